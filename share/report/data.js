// SPDX-License-Identifier: Apache-2.0
// The data that the program wrote, as the rest of the page wants it.

const FILES = ["summary.json", "metrics.jsonl", "config.resolved.ini", "timeline.json"];

// Letters of src/show/timeline.c: what they mean, and which group of time they count as.
const KINDS = {
  F: { name: "forward", group: "F" },
  I: { name: "input gradient", group: "I" },
  W: { name: "weight gradient", group: "W" },
  B: { name: "backward", group: "B" },
  R: { name: "recompute", group: "F" },
  u: { name: "optimizer", group: "update" },
  c: { name: "gradient norm", group: "reduce" },
  d: { name: "sum over replicas", group: "reduce" },
  g: { name: "updated parameters of the replicas", group: "reduce" },
  G: { name: "giving the gradient of a tied tensor", group: "reduce" },
  T: { name: "summing the gradients of a tied tensor", group: "reduce" },
  r: { name: "waiting for a message", group: "wait" },
  l: { name: "waiting for a free message slot", group: "wait" },
  m: { name: "waiting for all ranks", group: "wait" },
  v: { name: "waiting for the finite check of all ranks", group: "wait" },
  s: { name: "handing a message over", group: "send" },
  f: { name: "freeing message slots", group: "send" },
  "-": { name: "other work", group: "send" },
};

const GROUPS = {
  F: "forward", I: "input gradient", W: "weight gradient", B: "backward", update: "optimizer",
  reduce: "sum over replicas, norm", send: "messages", wait: "waiting", idle: "idle",
};
const COMPUTES = "FIWBR";

// ---- config.resolved.ini

function parseConfig(source) {
  const keys = new Map();
  let section = "", origin = "";
  for (const raw of (source || "").split("\n")) {
    const line = raw.trim();
    const equals = line.indexOf("=");
    if (line.startsWith(";")) origin = line.slice(1).trim().replace(/^from /, "");
    else if (line.startsWith("[")) section = line.slice(1).split("]")[0];
    else if (equals > 0) {
      const name = section + "." + line.slice(0, equals).trim();
      keys.set(name, { value: line.slice(equals + 1).trim(), origin });
      origin = "";
    }
  }
  return keys;
}

// ---- one step

// See src/show/encode.c for the text.
function decodeRank(encoded, half, rank, stagesPerReplica) {
  const pattern = /([A-Za-z-])(?:\.(\d+))?(?::(\d*))?(?:\+(-?\d+))?(?:=(\d+))?/g;
  const before = new Map();
  const slices = [];
  let now = 0;
  for (const [, kind, chunkText, mbText, gap, ticks] of encoded.actions.matchAll(pattern)) {
    const chunk = chunkText ? Number(chunkText) : 0;
    const id = kind + (chunk % 64);
    const was = before.get(id) || { mb: -1, ticks: -1 };
    const mb = mbText === undefined ? was.mb + 1 : mbText === "" ? -1 : Number(mbText);
    const length = ticks === undefined ? was.ticks : Number(ticks);
    const start = now + (gap ? Number(gap) : 0);
    const stage = encoded.stages[chunk];
    now = start + length;
    before.set(id, { mb, ticks: length });
    slices.push({
      kind, chunk, mb, rank, half, stage: stage === undefined ? -1 : stage,
      start: start * half.tick, length: length * half.tick, end: now * half.tick,
      replica: Math.floor(rank / stagesPerReplica), index: slices.length,
    });
  }
  return slices;
}

const keyOf = (kind, replica, stage, mb) => kind + replica + "." + stage + "." + mb;

function decodeHalf(raw, run, simulated) {
  if (!raw) return null;
  const half = { ...raw, run, simulated, byKey: new Map(), chunks: false };
  const stages = number(run.info, "stages") || number(run.timeline, "stages") || raw.ranks.length;
  half.rows = raw.ranks.map((rank, r) => decodeRank(rank, half, r, stages));
  for (const slice of half.rows.flat()) {
    half.chunks = half.chunks || slice.chunk > 0;
    if (COMPUTES.includes(slice.kind))
      half.byKey.set(keyOf(slice.kind, slice.replica, slice.stage, slice.mb), slice);
  }
  return half;
}

// The action whose result another one takes in.
function producerOf(slice) {
  const find = (kind, stage) => slice.half.byKey.get(keyOf(kind, slice.replica, stage, slice.mb));
  if (slice.kind === "F") return slice.stage > 0 ? find("F", slice.stage - 1) : undefined;
  if (slice.kind === "I" || slice.kind === "B")
    return find("I", slice.stage + 1) || find("B", slice.stage + 1) || find("F", slice.stage);
  return slice.kind === "W" ? find("I", slice.stage) : undefined;
}

// The action before, or after, of a rank that is work and not waiting.
function neighbour(slice, by) {
  const row = slice.half.rows[slice.rank];
  for (let i = slice.index + by; i >= 0 && i < row.length; i += by)
    if (!["wait", "send"].includes(KINDS[row[i].kind].group)) return row[i];
  return undefined;
}

const counterpart = (slice) => {
  const other = slice.half.simulated ? slice.half.run.measured : slice.half.run.simulated;
  return other && other.byKey.get(keyOf(slice.kind, slice.replica, slice.stage, slice.mb));
};

const nameOf = (slice) =>
  slice.mb >= 0 && COMPUTES.includes(slice.kind) ? slice.kind + slice.mb : KINDS[slice.kind].name;

// ---- curves

// Records of steps, and those of epochs that no such record tells of, in order. A record of a step
// is the mean since the one before, or since its process began.
function trainingPoints(run) {
  const { steps, epochs } = run;
  const resumes = (run.events || []).filter((event) => event.type === "resume").map((event) => event.step);
  const isCovered = (step, next) => next !== undefined && !resumes.some((at) => step <= at && at < next);
  const points = [];
  const add = (from, i, epoch) => points.push({
    step: from.step[i], loss: from.loss[i], accuracy: from.accuracy[i], r2: from.r2[i], speed: from.speed[i],
    bubble: from.bubble[i], norm: from.norm[i], clipped: from.clipped[i], seconds: from.seconds[i], epoch,
  });
  let s = 0;
  for (let e = 0; e < epochs.step.length; e++) {
    const first = s;
    for (; s < steps.step.length && steps.step[s] <= epochs.step[e]; s++) add(steps, s, false);
    if (s === first && !isCovered(epochs.step[e], steps.step[s])) add(epochs, e, true);
  }
  for (; s < steps.step.length; s++) add(steps, s, false);
  return points;
}

// When a step was done, in seconds of training since the start; a process that resumes counts from
// zero again.
function clockOf(points) {
  let clock = 0, own = 0;
  for (const p of points) {
    const seconds = isNumber(p.seconds) ? p.seconds : 0;
    const passed = p.epoch ? seconds : seconds >= own ? seconds - own : seconds;
    own = p.epoch ? own + seconds : seconds;
    clock += passed;
    p.time = clock;
  }
  return (step) => {
    const after = points.findIndex((p) => p.step >= step);
    if (after < 0) return points.length ? last(points).time : 0;
    const b = points[after], a = after > 0 ? points[after - 1] : { step: 0, time: 0 };
    return b.step > a.step ? a.time + ((b.time - a.time) * (step - a.step)) / (b.step - a.step) : b.time;
  };
}

// Runs of old programs do not tell at which step an epoch ended.
function placeEpochs(run) {
  const { steps, epochs } = run;
  let each = number(run.summary, "steps") / number(run.summary, "epochs");
  for (let i = steps.step.length - 1; i >= 0 && !(each >= 1); i--)
    if (steps.epoch[i] > 1) each = steps.step[i] / steps.epoch[i];
  epochs.step = epochs.step.map((step, i) =>
    isNumber(step) ? step : each >= 1 ? epochs.epoch[i] * each : epochs.epoch[i]);
}

// ---- what is missing

function notesOf(run) {
  const notes = [];
  const absent = [
    null, // the page begins with it
    "There is no metrics.jsonl, so there are no curves.",
    "There is no config.resolved.ini, so the config is not shown.",
    "There is no timeline.json, which a run leaves at its end, so no step of the pipeline is shown.",
  ];
  run.lost.forEach((lost, i) => {
    let lines = lost.lines;
    if (lost.absent && absent[i] && !run.trace) notes.push(absent[i]);
    if (lost.why) notes.push("Left out: " + lost.why + ".");
    if (lines > 0 && lost.last) {
      notes.push("The last line of " + FILES[i] + " is not whole: the run ended in the middle of it.");
      lines--;
    }
    if (lines > 0)
      notes.push(plural(lines, "line") + " of " + FILES[i] + " could not be read and " +
        (lines === 1 ? "is" : "are") + " left out.");
    if (lost.beyond > 0) notes.push(count(lost.beyond) + " actions of timeline.json are left out.");
  });
  if (!run.trace && !run.lost[3].absent && !run.lost[3].why && !run.measured && !run.simulated)
    notes.push("timeline.json holds no step, so none is shown.");
  const half = run.measured || run.simulated;
  if (half && half.detail > 0)
    notes.push("The step has more actions than a page can hold: " +
      (half.detail === 1 ? "transfers" : "waits and transfers") + " are not drawn" +
      (half.ranks.length < half.all_ranks
        ? ", and only the first " + half.ranks.length + " of " + half.all_ranks + " ranks" : "") +
      ". The shares of time count all of them.");
  return notes;
}

// Where the run went on after a stop, went back, or ended before its end.
function marksOf(run) {
  const marks = [];
  for (const event of run.events || []) {
    const step = number(event, "step");
    if (!isNumber(step)) continue;
    if (event.type === "resume") marks.push({ step, label: "resumed" });
    if (event.type === "change") marks.push({ step, label: text(event, "key") + " changed" });
    if (event.type === "pace" && event.slower > 1) marks.push({ step, label: "rank " + event.rank + " slow" });
    if (event.type === "rewind") marks.push({ step, label: "rewound" });
  }
  if (!run.finished && !run.trace && run.stepsDone > 0)
    marks.push({ step: run.stepsDone, label: run.end === "running" ? "now" : "stopped here" });
  return marks;
}

// Columns of numbers; those of epochs have other names for the same.
function columns(raw) {
  const pick = (a, b) => (raw[a].some(isNumber) ? raw[a] : raw[b]);
  return { ...raw, loss: pick("loss", "train_loss"), accuracy: pick("accuracy", "train_accuracy"),
    r2: pick("r2", "train_r2"),
    speed: raw.samples_per_second, tokens: raw.tokens_per_second, bubble: raw.bubble_measured,
    norm: raw.grad_norm, clipped: raw.clipped_share,
    perplexity: pick("perplexity", "train_perplexity") };
}

// The results of a run: its summary; of one that did not finish what metrics.jsonl has, results of
// tests of the last epoch and the rest as it was last recorded.
function resultOf(run) {
  if (run.summary) return run.summary;
  const { steps, epochs } = run;
  const newest = (list) => last(list.filter(isNumber));
  const later = last(steps.step) > (last(epochs.step) || 0);
  const recent = (name) => {
    const [first, second] = later ? [steps, epochs] : [epochs, steps];
    const value = newest(first[name]);
    return isNumber(value) ? value : newest(second[name]);
  };
  return {
    test_accuracy: newest(epochs.test_accuracy), test_loss: newest(epochs.test_loss),
    test_perplexity: newest(epochs.test_perplexity), train_accuracy: recent("accuracy"),
    test_mae: newest(epochs.test_mae), test_rmse: newest(epochs.test_rmse), test_r2: newest(epochs.test_r2), train_r2: recent("r2"),
    train_loss: recent("loss"), train_perplexity: recent("perplexity"), samples_per_second: recent("speed"),
    tokens_per_second: recent("tokens"), bubble_measured: recent("bubble"),
    wall_seconds: run.points.length ? last(run.points).time : NaN, epochs: newest(epochs.epoch),
  };
}

// Milliseconds of a step, of the same steps that the speed is of: those of the last start.
function stepMs(run) {
  const { summary } = run;
  const before = number(summary, "steps_before") || 0, seconds = number(summary, "train_seconds_before");
  const steps = number(summary, "steps") - before;
  if (summary && (before === 0 || isNumber(seconds)))
    return ((number(summary, "train_seconds") - (seconds || 0)) / steps) * 1e3;
  const batch = Number((run.keys.get("train.batch_size") || {}).value);
  return (batch / number(run.result, "samples_per_second")) * 1e3;
}

function prepare(run, index) {
  run.steps = columns(run.steps);
  run.epochs = columns(run.epochs);
  run.number = index + 1;
  run.color = "var(--c" + (index % 8) + ")";
  run.finished = run.summary !== null;
  const resumes = (run.events || []).filter((event) => event.type === "resume");
  run.resumes = resumes.length;
  run.info = run.header || run.summary ? { ...run.summary, ...run.header, ...last(resumes) } : null;
  run.startTime = text(run.header, "time");
  run.keys = parseConfig(run.config);
  placeEpochs(run);
  run.points = trainingPoints(run);
  run.clock = clockOf(run.points);
  run.result = resultOf(run);
  run.stepMs = stepMs(run);
  run.stepsDone = Math.max(0, ...[number(run.summary, "steps"), ...run.steps.step.slice(-1),
    ...run.epochs.step.slice(-1), ...(run.events || []).map((e) => number(e, "step"))].filter(isNumber));
  run.measured = decodeHalf(run.measured, run, false);
  run.simulated = decodeHalf(run.simulated, run, true);
  run.trace = !run.header && !run.summary && !run.config && run.points.length === 0 &&
    (run.measured !== null || run.simulated !== null);
  run.isPlan = text(run.timeline, "kind") === "simulated";
  const predicted = number(run.summary, "bubble_predicted");
  run.predicted = isNumber(predicted) ? predicted : number(run.timeline, "bubble_predicted");
  run.notes = notesOf(run);
  run.marks = marksOf(run);
  return run;
}

const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs.map(prepare);
