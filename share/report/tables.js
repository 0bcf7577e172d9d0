// SPDX-License-Identifier: Apache-2.0
// What a page says in words and numbers: the answer, the comparison, ranks, config, environment.

const main = document.getElementById("main");
const nav = document.getElementById("nav");

function section(id, title, ...children) {
  nav.append(el("a", { href: "#" + id }, title));
  const node = el("section", { id }, el("h2", {}, title), children);
  main.append(node);
  return node;
}

// rows of cells; a cell is a text, a node, or { n: text } for a number. heads likewise.
function table(heads, rows, name) {
  const cell = (tag) => (x) => {
    const numeric = x !== null && typeof x === "object" && !(x instanceof Node);
    return el(tag, { class: numeric && "n", scope: tag === "th" && "col" }, numeric ? x.n : x);
  };
  return el("div", { class: "wide" }, el("table", { class: name },
    heads && el("thead", {}, el("tr", {}, heads.map(cell("th")))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map(cell("td")))))));
}

const details = (title, ...children) => el("details", {}, el("summary", {}, title), children);
const code = (x) => el("code", {}, x);
const chip = (run) =>
  el("span", { class: "chip" }, el("i", { style: "background:" + run.color }), run.name);

// ---- the answer

function describe(run) {
  const info = run.info || run.timeline;
  const stages = number(info, "stages"), replicas = number(info, "replicas");
  const parts = [text(info, "schedule"),
      plural(stages, "stage") + (replicas > 1 ? " \u00d7 " + plural(replicas, "replica") : ""),
    plural(number(info, "microbatches"), "micro-batch").replace("batchs", "batches")];
  if (run.header)
    parts.push(text(info, "dataset"), plural(number(info, "train_samples"), "sample"),
      plural(number(info, "parameters"), "parameter"),
      run.startTime.replace("T", " ").replace("Z", " UTC") + " on " + text(info, "host"));
  return parts.filter((part) => part && !part.startsWith(NONE)).join(" \u00b7 ");
}

function unfinished(run) {
  const end = (run.events || []).filter((e) => e.type === "end").pop();
  const said = {
    running: "is not finished.", killed: "did not finish.", failed: "did not finish.",
        stopped: "did not finish.",
  };
  const why = {
    running: " It was at work when this page was written.", killed: " Its process was killed.",
    failed: " It ended with an error.", stopped: " It was stopped.",
  };
  const total = number(run.info, "total_steps"), steps = run.stepsDone;
  const done = steps > 0
    ? " What it had recorded by step " + count(steps) + (total > 0 ? " of " + count(total) + " (" +
      Math.min(100, Math.floor((100 * steps) / total)) + " %)" : "") + " is shown."
    : " It recorded no step.";
  return el("div", { class: "warn" }, el("p", {},
    el("b", {}, "This run " + (said[run.end] || "did not finish.")),
    why[run.end] || why[text(end, "how")] || " It was stopped, failed, or is still going: no summary.json.",
    end && text(end, "why") && el("span", { class: "block" }, text(end, "why")), done,
    run.end && [" ", code("ppcli diagnose"), " tells what each rank did last."]));
}

// "schedule 10.5 + imbalance 6.2 + transfers and waiting 59.1"
function bubbleParts(summary) {
  const names = [["schedule", "bubble_schedule"], ["imbalance", "bubble_imbalance"],
      ["transfers and waiting", "bubble_waiting"]];
  const known = names.filter(([, key]) => isNumber(number(summary, key)));
  return known.map(([name, key]) => name + " " + count(100 * number(summary, key), 1)).join(" + ");
}

// Whether other programs spoiled the run's times.
function wasBusy(run) {
  const waited = number(run.summary, "waited_for_core"), load = number(run.summary, "load_before");
  return waited >= 0.02 || (!isNumber(waited) && load >= 0.5);
}

// What limits the run, and a machine that was busy, beside the figures that it spoils.
function remarks(run) {
  const waited = number(run.summary, "waited_for_core"), load = number(run.summary, "load_before");
  const busy = wasBusy(run);
  const advice = text(run.summary, "advice");
  return [
    advice && el("p", {}, el("b", {}, "Advice: "), advice + "."),
    busy && el("div", { class: "note" }, el("p", {}, el("b", {}, "Busy machine: "),
      "other programs used this machine (" + (isNumber(load) ? "load " + count(load, 1) : "") +
      (isNumber(waited) ? (isNumber(load) ? "; " : "") + "ranks waited " + percent(waited, 0) +
          " of the time for a core" : "") + "). Do not trust speed and bubble.")),
  ];
}

function card(title, big, ...below) {
  return el("div", { class: "card" }, el("p", { class: "dim" }, title), el("div", { class: "big" }, big),
    el("p", {}, below));
}

// The best test, with checkpoint.best.
function bestText(summary) {
  const best = (summary && summary.best) || {};
  const value = number(best, "value");
  return isNumber(value)
    ? "; best " + text(best, "metric").replace("_", " ") + " " + figures(value) + ", after epoch " +
        count(number(best, "epoch"))
    : "";
}

function cards(run) {
  const { summary } = run;
  const lastEpoch = run.epochs.epoch.length - 1;
  const of = (key) => number(run.result, key);
  const accuracy = of("test_accuracy"), r2 = of("test_r2"), perplexity = of("test_perplexity"), tokens = of("tokens_per_second");
  const ideal = of("bubble_ideal"), epochs = of("epochs"), before = of("steps_before");
  return el("div", { class: "cards" },
    isNumber(accuracy) || isNumber(r2)
      ? card((isNumber(perplexity) ? "test perplexity" : isNumber(r2) ? "test R2" : "test accuracy") +
              (summary ? "" : " after epoch " + run.epochs.epoch[lastEpoch]),
          isNumber(perplexity) ? figures(perplexity, 4) : isNumber(r2) ? figures(r2, 4) : percent(accuracy, 2),
          "test loss " + figures(of("test_loss")) + ", training loss " + figures(of("train_loss")) +
              bestText(summary))
      : card("training loss", figures(of("train_loss")), "not tested"),
    card("samples per second", count(of("samples_per_second")),
      [isNumber(tokens) && count(tokens) + " tokens per second",
        isNumber(run.stepMs) && count(run.stepMs, 3) + " ms a step",
        before > 0 && "of the " + plural(of("steps") - before, "step") + " since it was resumed"]
        .filter(Boolean).join(", ")),
    card("bubble, measured", percent(of("bubble_measured")),
      [isNumber(run.predicted) && percent(run.predicted) + " predicted from measured times",
        isNumber(ideal) && percent(ideal) + " ideal"].filter(Boolean).join(", "),
      el("span", { class: "dim block" }, bubbleParts(summary))),
    card(before > 0 ? "wall time since it was resumed" : summary ? "wall time" : "time until then",
      duration(of("wall_seconds")), plural(run.stepsDone, "step") +
        (isNumber(epochs) ? ", " + plural(epochs, "epoch") : "") + (before > 0 ? " in all" : "")));
}

function planCards(run) {
  const half = run.simulated || run.measured;
  const busy = half.ranks.reduce((sum, rank) => sum + computing(rank.spent), 0);
  return el("div", { class: "cards" },
    card(run.isPlan ? "simulated step" : "step", run.isPlan ? figures(half.span * 1e3) + " units"
        : span(half.span),
      "from the first start to the last end"),
    card("bubble", percent(1 - busy / (half.span * half.ranks.length)),
        "idle part of all ranks in that time"),
    card("ranks", count(half.all_ranks),
        plural(half.rows.flat().filter((s) => COMPUTES.includes(s.kind)).length, "action")));
}

// Keys that a resumed run changed, as --allow asked.
function changesOf(run) {
  const changes = (run.events || []).filter((event) => event.type === "change");
  const rows = changes.map((c) => [{ n: count(number(c, "step")) }, code(text(c, "key")), code(text(c, "was")),
    code(text(c, "is"))]);
  return rows.length > 0 && el("div", { class: "note" }, el("p", {}, "Changed while it was resumed (--allow):"),
    table([{ n: "after step" }, "key", "was", "is"], rows, "config"));
}

function answer(run) {
  const sha = text(run.summary, "weights_sha256");
  fill(main, {}, [
    el("p", { class: "kicker dim" }, run.trace ? (run.isPlan ? "plan" : "trace") : "run"),
    el("h1", {}, run.name),
    el("p", { class: "dim" }, describe(run)),
    run.resumes > 0 && el("p", { class: "dim" }, "Resumed " + plural(run.resumes, "time") + ", at step " +
      run.marks.filter((m) => m.label === "resumed").map((m) => count(m.step)).join(", ") +
      "; the layout is that of the last start."),
    changesOf(run),
    !run.finished && !run.trace && unfinished(run), notesBox(run),
    run.trace ? planCards(run) : cards(run), remarks(run),
    sha && el("p", {}, el("span", { class: "dim" }, "weights_sha256 "), code(sha)),
  ]);
}

function notesBox(run) {
  if (run.notes.length === 0) return null;
  const who = runs.length > 1 ? "run " + run.number + ": " : "";
  return el("div", { class: "note" }, run.notes.map((note) => el("p", {}, who + note)));
}

// ---- ppcli estimate: the ways to divide the model, best first

// A rank's memory as a bar of `memory` bytes.
function memoryBar(row, memory) {
  const parts = [row.weight_bytes, row.optimizer_bytes, row.activation_bytes];
  return el("div", {}, el("div", { class: "stack" }, parts.map((part, i) =>
      el("i", { style: "width:" + (100 * part / memory).toFixed(1) + "%;background:var(--c" + i + ")" }))),
    parts.map((part) => count(part / 1e9, 1)).join(" + ") + " GB");
}

function machineSection(plan) {
  const fastest = new Map();
  for (const row of plan.rows)
    if (!(fastest.get(row.group) <= row.step_s)) fastest.set(row.group, row.step_s);
  const idle = (row) =>
    [row.bubble_schedule, row.bubble_cut, row.bubble_transfer].map((x) => count(100 * x, 1)).join(" + ") + " %";
  section("plan", plural(plan.ranks, "rank") + " of " + plan.machine,
    table(["group", "division", "by", { n: "step" }, { n: "samples/s" }, { n: "MFU" },
      "idle: schedule + cut + transfer", "memory: weights + optimizer and gradients + activations"],
      plan.rows.map((row) => [
        row.group + (row.step_s === fastest.get(row.group) ? " *" : ""), row.division,
        row.trained_by.includes("ppcli") ? "ppcli" : "others", { n: figures(row.step_s) + " s" },
        { n: count(row.samples_per_s) }, { n: percent(row.mfu) }, idle(row), memoryBar(row, plan.memory_bytes)]), "plan"),
    details("as text, and as a config", el("pre", {}, plan.text)));
}

// ---- several runs

const peak = (run) =>
  Math.max(...((run.summary && run.summary.ranks) || []).map((rank) =>
      number(rank, "peak_bytes")).filter(isNumber));

const RESULTS = [
  ["test accuracy", (r) => number(r.result, "test_accuracy"), (x) => percent(x, 2), "points"],
  ["training accuracy", (r) => number(r.result, "train_accuracy"), (x) => percent(x, 2), "points"],
  ["test R2", (r) => number(r.result, "test_r2"), (x) => figures(x, 4), "difference"],
  ["test mean absolute error", (r) => number(r.result, "test_mae"), (x) => figures(x, 5), "ratio"],
  ["test root mean squared error", (r) => number(r.result, "test_rmse"), (x) => figures(x, 5), "ratio"],
  ["test loss", (r) => number(r.result, "test_loss"), (x) => figures(x, 5), "difference"],
  ["training loss", (r) => number(r.result, "train_loss"), (x) => figures(x, 5), "difference"],
  ["test perplexity", (r) => number(r.result, "test_perplexity"), (x) => figures(x, 5), "ratio"],
  ["training perplexity", (r) => number(r.result, "train_perplexity"), (x) => figures(x, 5), "ratio"],
  ["samples per second", (r) => number(r.result, "samples_per_second"), count, "ratio"],
  ["tokens per second", (r) => number(r.result, "tokens_per_second"), count, "ratio"],
  ["a step", (r) => r.stepMs,
    (x) => count(x, 3) + " ms", "ratio"],
  ["bubble, measured", (r) => number(r.result, "bubble_measured"), percent, "points"],
  ["bubble, predicted", (r) => r.predicted, percent, "points"],
  ["bubble, ideal", (r) => number(r.result, "bubble_ideal"), percent, "points"],
  ["memory of the largest rank", peak, bytes, "ratio"],
  ["wall time", (r) => number(r.result, "wall_seconds"), duration, "ratio"],
  ["steps", (r) => r.stepsDone || NaN, count, "difference"],
];

// Against the first run.
function change(a, b, how) {
  if (!isNumber(a) || !isNumber(b)) return "";
  if (a === b) return "equal";
  const sign = b >= a ? "+" : "";
  return how === "ratio" ? "\u00d7 " + figures(b / a, 4)
    : how === "points" ? sign + count((b - a) * 100, 2) + " points" : sign + figures(b - a, 4);
}

const TIMES = new Set(["samples per second", "tokens per second", "a step", "bubble, measured", "wall time"]);

function results() {
  const heads = ["", ...runs.map((run) => ({ n: chip(run) }))];
  const rows = RESULTS.filter(([, get]) =>
      runs.some((run) => isNumber(get(run)))).map(([name, get, show, how]) =>
    [name, ...runs.map((run, i) => ({
      n: [i > 0 && el("small", {}, change(get(runs[0]), get(run), how)), isNumber(get(run)) ? show(get(run)) : NONE,
          isNumber(get(run)) && TIMES.has(name) && wasBusy(run) && el("small", {}, " (busy machine)")],
    }))]);
  return rows.length ? table(heads, rows, "results") : null;
}

// The promise made visible: equal, or not, and whether they should be.
function weights() {
  const trained = runs.filter((run) => !run.trace);
  const shas = trained.map((run) => text(run.summary, "weights_sha256"));
  if (trained.length < 2) return null;
  if (shas.includes("")) return el("p", {},
      "The weights cannot be compared: a run that did not finish has no ", code("weights_sha256"), ".");
  if (shas.every((sha) => sha === shas[0]))
    return el("p", {}, el("b", {}, "The trained weights are equal, bit for bit"), " (", code(shas[0]), ").");
  const hashes = trained.map((run) => text(run.info, "config_hash"));
  const same = hashes[0] !== "" && hashes.every((hash) => hash === hashes[0]);
  return el("p", {}, el("b", {}, "The trained weights differ"), same
    ? ", although the configs promise equal bits: data, library or machine must differ."
    : hashes.every(Boolean) ? ": the configs differ in keys that change the numbers." : ".");
}

function differences() {
  const rows = [];
  const add = (name, values) => {
    if (values.some((value) => value !== values[0])) rows.push([code(name), ...values.map((v) => code(v))]);
  };
  const known = runs.filter((run) => run.keys.size > 0);
  for (const name of new Set(known.flatMap((run) => [...run.keys.keys()])))
    if (name !== "run.dir" && known.length > 1)
      add(name, runs.map((run) => (run.keys.has(name) ? run.keys.get(name).value
        : run.keys.size ? "(no such key)" : NONE)));
  for (const name of ["ppcli", "host", "backend", "transport", "mpi"])
    if (runs.every((run) => run.header)) add(name, runs.map((run) => text(run.info, name)));
  return section("differences", "What differs", rows.length
    ? table(["key", ...runs.map(chip)], rows, "config") : el("p", {}, "Nothing in config or environment."));
}

function compared() {
  document.title = runs.map((run) => run.name).join(", ") + " \u2013 ppcli report";
  fill(main, {}, [
    el("p", { class: "kicker dim" }, runs.length + " runs compared"),
    el("h1", {}, runs.map((run, i) => [i > 0 && el("span", { class: "dim" }, ", "), run.name])),
    runs.map((run) => [
      el("p", {}, chip(run), " ", el("span", { class: "dim" }, describe(run))),
      !run.finished && !run.trace && el("div", { class: "warn" }, el("p", {},
        el("b", {}, "Run " + run.number + " did not finish."), " Its results are those of its last records.")),
      notesBox(run)]),
    weights(), results(),
    runs.filter(wasBusy).map((run) => el("div", {}, chip(run), remarks(run).slice(1)))]);
  differences();
}

// ---- ranks

const MEMORY = [
  ["parameters", "parameter_bytes"], ["packed copy", "packed_bytes"], ["gradients", "gradient_bytes"],
  ["optimizer", "optimizer_bytes"], ["activations", "activation_bytes"], ["messages", "message_bytes"],
];

function parts(rank) {
  const list = MEMORY.map(([name, key], i) =>
      ({ name, bytes: Math.max(0, number(rank, key) || 0), class: "m" + i }));
  const total = number(rank, "peak_bytes");
  const other = total - list.reduce((sum, part) => sum + part.bytes, 0);
  /* gaps between blocks are not worth a colour */
  return [...list, { name: "other", bytes: other > 0.01 * total ? other : 0, class: "m6" }];
}

// A bar of coloured parts. parts: { share of the whole, class, label }
function bar(label, list) {
  return el("div", { class: "stack", role: "img", "aria-label": label,
    onpointerleave: hideTip }, list.filter((part) => part.share > 0).map((part) =>
    el("i", { class: part.class, style: "width:" + (100 * part.share).toFixed(3) + "%",
        "data-label": part.label,
      onpointermove: (event) => showTip(event.clientX, event.clientY, part.label) })));
}

function ranksOf(run) {
  const ranks = (run.summary && Array.isArray(run.summary.ranks) && run.summary.ranks) || [];
  if (ranks.length === 0) return null;
  const busy = ranks.map((rank) => number(rank, "busy"));
  const known = busy.filter(isNumber);
  const most = busy.indexOf(Math.max(...known)), least = busy.indexOf(Math.min(...known));
  const largest = peak(run);
  const hosts = new Set(ranks.map((rank) => rank.host));
  const named = ranks.map((rank, i) => i + (hosts.size > 1 ? " (" + rank.host + ")" : ""));
  const used = [...MEMORY.map(([name]) => name), "other"].map((name, i) =>
    ({ name, class: "m" + i, used: ranks.some((rank) => parts(rank)[i].bytes > 0) })).filter((part) => part.used);
  return el("div", {}, runs.length > 1 && el("h3", {}, chip(run)),
    ranks.length > 1 && known.length === ranks.length &&
        el("p", {}, "Busiest: rank " + named[most] + " (" + percent(busy[most]) +
      " of the time); least busy: rank " + named[least] + " (" + percent(busy[least]) + ")."),
    ranks.map((rank, i) => number(rank, "slower") > 1 && el("p", {}, "Since step " + number(rank, "slower_since") + " rank " + i +
      " (" + rank.host + ") takes " + number(rank, "slower").toFixed(1) + " times its expected time.")),
    el("div", { class: "two" },
      el("div", {}, el("h3", {}, "Time spent computing; the rest is the rank's bubble"),
        table(["rank", "", { n: "busy" }, { n: "idle" }], ranks.map((rank, i) => [named[i],
          bar("rank " + named[i] + " busy " + percent(busy[i]),
              [{ share: clamp(busy[i] || 0, 0, 1), class: "busy", label: percent(busy[i]) + " busy" }]),
          { n: percent(busy[i]) }, { n: percent(1 - busy[i]) }]), "bars")),
      isNumber(largest) && largest > 0 && el("div", {}, el("h3", {}, "Memory at most"),
        table(["rank", el("span", { class: "keys" },
            used.map((part) => el("span", {}, el("i", { class: part.class }), part.name))), { n: "total" }],
          ranks.map((rank, i) => [named[i], bar("memory of rank " + named[i], parts(rank).map((part) =>
            ({ share: part.bytes / largest, class: part.class,
                label: part.name + " " + bytes(part.bytes) }))),
          { n: bytes(number(rank, "peak_bytes")) }]), "bars"))),
    details("the numbers", table(["rank", ...used.map((part) => ({ n: part.name }))],
      ranks.map((rank, i) => [named[i], ...used.map((part) =>
        ({ n: bytes(parts(rank).find((p) => p.name === part.name).bytes) }))]))));
}

function ranksSection() {
  const shown = runs.map(ranksOf).filter(Boolean);
  if (shown.length > 0) section("ranks", "Ranks", shown);
}

// ---- config, environment

function configSection(run) {
  const rows = [...run.keys].map(([name, { value, origin }]) =>
    ({ origin, cells: [code(name), code(value), el("span", { class: "dim" }, origin)] }));
  const set = rows.filter((row) => row.origin !== "default"),
      rest = rows.filter((row) => row.origin === "default");
  const heads = ["key", "value", "from"];
  if (rows.length > 0)
    section("config", "Config", set.length > 0 && table(heads, set.map((row) => row.cells), "config"),
      details(plural(rest.length, "key") + " with their defaults",
          table(heads, rest.map((row) => row.cells), "config")));
}

function environmentSection(run) {
  const { info } = run;
  if (!run.header) return;
  const names = [["ppcli", "ppcli"], ["started", "time"], ["host", "host"], ["backend", "backend"],
    ["ranks talk through", "transport"], ["because", "transport_why"], ["precision", "precision"],
    ["steps recorded", "graphs"], ["MPI", "mpi"], ["config hash", "config_hash"]];
  const rows = names.map(([name, key]) => [name, text(info, key)]).filter(([, value]) => value);
  (Array.isArray(info.devices) ? info.devices : []).forEach((device, i) =>
      rows.push(["rank " + i, text(device, "text")]));
  rows.push(["launch", info.mpi ? "a process for each rank" : "one process, a thread for each rank"]);
  rows.push(["run folder", run.path]);
  section("environment", "Environment", table(null, rows, "facts"));
}
