// SPDX-License-Identifier: Apache-2.0
// The table as it is edited. Nothing is forbidden: after each change the proof says in one sentence what is wrong, or how long it
// takes. An edit replaces the rows that it touches, so that undo is a list of tables.

const data = JSON.parse(document.getElementById("data").textContent);
const wb = { rows: [], costs: data.costs, cap: data.cap, known: [], level: null, kept: null, undo: [], redo: [], selected: null,
  view: null, path: false, note: "", t: null, places: null, caret: null, drag: null, edit: 0 };

// ---- changes

function setRows(rows, note) {
  wb.rows = rows;
  wb.note = note || "";
  wb.t = judge(rows, wb.costs, wb.cap);
  if (wb.t.descends && wb.t.lists.some((list, r) => list.some((a, k) => a.k !== k || a.op !== opOf(wb.t, rows[r].cells[k].type)))) {
    const lists = wb.t.lists.map((list, r) => makeRow(list.map((a) => ({ ...a, type: a.op })), r + 1));
    return setRows(lists, "Weight gradients are added in ascending order: a B before its turn became its I, and its W follows when it is its turn.");
  }
  wb.places = findPlacesInTime(wb.t, wb.costs);
  if (wb.selected && !(wb.rows[wb.selected.rank] && wb.selected.k < wb.rows[wb.selected.rank].cells.length)) wb.selected = null;
  show();
  return undefined;
}

function edit(rows, note) {
  const began = performance.now();
  wb.undo.push({ rows: wb.rows, selected: wb.selected });
  wb.redo = [];
  setRows(rows, note);
  wb.edit = performance.now() - began;
}

function goBack(from, to) {
  if (from.length === 0) return;
  const state = from.pop();
  to.push({ rows: wb.rows, selected: wb.selected });
  wb.selected = state.selected;
  setRows(state.rows);
}

const undo = () => goBack(wb.undo, wb.redo);
const redo = () => goBack(wb.redo, wb.undo);

const withRows = (changes) => wb.rows.map((row, r) => (changes[r] ? makeRow(changes[r], r + 1) : row));

// The rows after action k of rank r was put before action n of rank q; n counts as before the move. null: no change.
function movedRows(r, k, q, n) {
  const from = wb.rows[r].cells.slice(), moved = { ...from[k], overlap: false };
  if (q === r && (n === k || n === k + 1)) return null;
  if (k > 0 && from[k - 1].overlap) from[k - 1] = { ...from[k - 1], overlap: false };
  from.splice(k, 1);
  const to = q === r ? from : wb.rows[q].cells.slice(), at = q === r && n > k ? n - 1 : n;
  if (at > 0 && to[at - 1].overlap) to[at - 1] = { ...to[at - 1], overlap: false };
  to.splice(at, 0, moved);
  return { rows: withRows({ [r]: from, [q]: to }), at };
}

function moveAction(r, k, q, n) {
  const moved = movedRows(r, k, q, n);
  if (!moved) return;
  const before = wb.selected, name = cellName(wb.rows[r].cells[k]);
  wb.selected = { rank: q, k: moved.at };
  edit(moved.rows, "Moved " + name + (q === r ? "." : " to rank " + q + "."));
  wb.undo[wb.undo.length - 1].selected = before;
}

function replaceActions(count, replacement, note) {
  const { rank, k } = wb.selected, cells = wb.rows[rank].cells.slice();
  cells.splice(k, count, ...replacement);
  edit(withRows({ [rank]: cells }), note);
}

function deleteAction() {
  if (!wb.selected) return;
  const { rank, k } = wb.selected, name = cellName(wb.rows[rank].cells[k]);
  if (wb.rows[rank].cells.length > 1 && k === wb.rows[rank].cells.length - 1) wb.selected = { rank, k: k - 1 };
  const cells = wb.rows[rank].cells.filter((_, n) => n !== k);
  edit(withRows({ [rank]: cells }), "Deleted " + name + ".");
}

// Before the selected action, or at the end of the rank that has the stage.
function insertAction(words) {
  const found = CELL.exec(words.trim());
  if (!found || found[2] === "BW") {
    wb.note = "'" + words.trim() + "' is not an action: write stage, letter (F, I, W, B or R) and micro-batch, as in 0F3.";
    return showVerdict();
  }
  const c = { type: found[2], stage: Number(found[1]), mb: Number(found[3]), overlap: false };
  const home = wb.t.rankOf && c.stage < wb.t.nVirtual ? wb.t.rankOf[c.stage] : 0;
  const at = wb.selected || { rank: Math.max(0, home), k: wb.rows[Math.max(0, home)].cells.length };
  const cells = wb.rows[at.rank].cells.slice();
  if (at.k > 0 && cells[at.k - 1].overlap) cells[at.k - 1] = { ...cells[at.k - 1], overlap: false };
  cells.splice(at.k, 0, c);
  wb.selected = at;
  return edit(withRows({ [at.rank]: cells }), "Inserted " + cellName(c) + ".");
}

// A whole backward as its two halves, or the halves as one: what is sent leaves after I, or after B.
function splitOrJoin() {
  const cells = wb.selected ? wb.rows[wb.selected.rank].cells : [], c = wb.selected && cells[wb.selected.k], next = c && cells[wb.selected.k + 1];
  if (c && c.type === "B") replaceActions(1, [{ ...c, type: "I" }, { ...c, type: "W" }], "Split " + cellName(c) + ": its gradient leaves after I.");
  else if (c && c.type === "I" && next && next.type === "W" && next.stage === c.stage && next.mb === c.mb)
    replaceActions(2, [{ ...c, type: "B" }], "Joined " + cellName(c) + " and " + cellName(next) + ": the gradient leaves after both.");
  else {
    wb.note = "Select a B to split it into I and W, or an I whose W is next to join them.";
    showVerdict();
  }
}

// ---- what the page says

const main = document.getElementById("main");
const canvas = el("canvas", { tabindex: 0, role: "application", "aria-roledescription": "schedule editor", "aria-describedby": "keys",
  "aria-label": "The schedule: ranks down, time across" });
const parts = {};
const costWord = (list, chunks) => (list.every((x) => x === list[0]) ? figures(list[0] * chunks) : "one for each stage");

function bestKnown() {
  const fits = wb.known.filter((k) => !wb.cap || k.peak / wb.t.chunks <= wb.cap);
  return fits.reduce((best, k) => (best && best.makespan <= k.makespan ? best : k), null);
}

function knownNames() {
  const crc = crc32(writeTable(wb.rows));
  return wb.known.filter((k) => k.crc === crc).map((k) => k.name);
}

// The reason, or what the table takes.
function showVerdict() {
  const { error, sim } = wb.t, names = error && !error.memory ? [] : knownNames(), solved = !error && levelSolved();
  parts.why.className = error ? "warn" : solved ? "note solved" : "note";
  parts.why.replaceChildren();
  const first = error ? [el("b", {}, error.memory ? "Over the memory limit: " : "Cannot run: "), error.where + error.text + "."]
    : [el("b", {}, solved ? "Solved. " : "Legal. "), "Every rank finishes; a step takes " + figures(sim.makespan, 6) + "."];
  const called = names.length ? " This is " + names[0] + (names.length > 1 ? " (here the same as " + names.slice(1).join(", ") + ")" : "") + "." : "";
  fill(parts.why, {}, [el("p", {}, first, called), wb.note && el("p", { class: "dim" }, wb.note)]);
}

function card(big, ...words) {
  return el("div", { class: "card" }, el("div", { class: "big" }, big), el("p", { class: "dim" }, words));
}

function showCards() {
  const { t } = wb, good = t.sim && (!t.error || t.error.memory), best = bestKnown(), { costs } = wb, v = t.chunks || 1;
  const fullest = good ? Math.max(...t.sim.peak) / v : NaN;
  const late = best && good ? t.sim.makespan / best.makespan - 1 : NaN;
  const than = !isNumber(late) || Math.abs(late) < 1e-9 ? "" : late > 0 ? "; this table takes " + percent(late) + " longer" : "; this table is "
    + percent(-late) + " faster";
  parts.cards.replaceChildren(
    card(good ? figures(t.sim.makespan, 6) : NONE, "time of a step; F " + costWord(costs.f, v) + ", I " + costWord(costs.i, v) + ", W "
      + costWord(costs.w, v) + ", transfer " + (costs.transfer ? "one for each boundary" : figures(costs.latency))),
    card(best ? figures(best.makespan, 6) : NONE, best ? "par: " + best.name + " of this shape" + (wb.cap ? " within the limit" : "") + than
      : "no known schedule of this shape" + (wb.cap ? " within the limit" : "")),
    card(good ? percent(t.sim.bubble) : NONE, "bubble: idle part of all ranks' time"),
    card(good ? figures(fullest) : NONE, "micro-batches held by the fullest rank" + (wb.cap ? "; the limit is " + figures(wb.cap) : "")));
}

const fullName = (a) => a.stage + a.op + a.mb;

// One line about an action: its times, and why it does not start earlier.
function describe(r, k) {
  const a = wb.t.lists[r][k], s = wb.t.sim, name = fullName(a) + " on rank " + r;
  if (!s) return name;
  if (k >= s.at[r]) return name + " never runs: " + (k === s.at[r] ? whyIdle(wb.t, r, k) : fullName(wb.t.lists[r][s.at[r]]) + " before it waits forever") + ".";
  const waited = s.start[r][k] - (k > 0 ? s.end[r][k - 1] : 0), why = waited > 0 ? whyIdle(wb.t, r, k) : "";
  return name + ": from " + figures(s.start[r][k]) + " to " + figures(s.end[r][k]) + ", the rank then holds " + figures(s.live[r][k] / (wb.t.chunks || 1))
    + (why ? "; idle for " + figures(waited) + " before: " + why : "") + ".";
}

function showTools() {
  parts.undo.disabled = wb.undo.length === 0;
  parts.redo.disabled = wb.redo.length === 0;
  parts.delete.disabled = parts.split.disabled = !wb.selected;
  parts.path.setAttribute("aria-pressed", wb.path);
  parts.spot.textContent = wb.selected ? describe(wb.selected.rank, wb.selected.k) : "Select an action: click it, or use the arrow keys.";
}

function pictureOf(width) {
  const names = ["ink", "dim", "line", "idle", "wait", "bad", "page"];
  const colors = Object.fromEntries(names.map((name) => [name, css("--" + name)]));
  colors.path = css("--c3");
  return { t: wb.t, places: wb.places, view: wb.view || { from: 0, to: wb.places.total * 1.001 }, width, cap: wb.cap, selected: wb.selected,
    path: wb.path && wb.t.sim && (!wb.t.error || wb.t.error.memory) ? criticalPath(wb.t) : null, caret: wb.caret, colors };
}

function draw() {
  if (!wb.t) return;
  const scale = devicePixelRatio || 1, width = Math.max(280, parts.board.clientWidth), { height } = layOut(wb.rows.length);
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  drawPicture(new CanvasPen(context), pictureOf(width));
}

function show() {
  showVerdict();
  showCards();
  showTools();
  showLevel();
  draw();
}

// ---- mouse and touch

function timeAt(x) {
  const { view, width } = pictureOf(parts.board.clientWidth);
  return view.from + ((x - GUTTER) / (width - GUTTER)) * (view.to - view.from);
}

// The rank at a point; k: the action there or the first after it; on: is the point on it; before: the place of a caret.
function find(event) {
  const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top, lay = layOut(wb.rows.length);
  const rank = clamp(Math.floor(y / lay.row), 0, wb.rows.length - 1), { start, end } = wb.places.rows[rank], time = timeAt(x);
  let low = 0, high = end.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (end[middle] > time) high = middle;
    else low = middle + 1;
  }
  const on = low < end.length && start[low] <= time && x >= GUTTER && y - lay.top(rank) < lay.row && y < lay.height - AXIS;
  return { rank, k: low, on, strip: y - lay.top(rank) > lay.band, before: low < end.length && time > (start[low] + end[low]) / 2 ? low + 1 : low, x, time };
}

function pressed(event) {
  if (event.button !== 0) return;
  const at = find(event);
  canvas.focus({ preventScroll: true });
  canvas.setPointerCapture(event.pointerId);
  const again = at.on && wb.selected && wb.selected.rank === at.rank && wb.selected.k === at.k;
  wb.drag = at.on ? { rank: at.rank, k: at.k, x: event.clientX, y: event.clientY, moved: false, again }
    : { pan: wb.view && { ...wb.view }, x: event.clientX };
  if (at.on) wb.selected = { rank: at.rank, k: at.k };
  hideTip();
  showTools();
  draw();
}

function dragged(event) {
  const { drag } = wb;
  if (!drag) return hover(event);
  canvas.classList.add("dragged");
  if (drag.rank === undefined) {
    if (!drag.pan) return undefined;
    const by = ((drag.x - event.clientX) / (parts.board.clientWidth - GUTTER)) * (drag.pan.to - drag.pan.from);
    return setView(drag.pan.from + by, drag.pan.to + by);
  }
  if (Math.hypot(event.clientX - drag.x, event.clientY - drag.y) < 5 && !drag.moved) return undefined;
  drag.moved = true;
  const at = find(event);
  if (wb.caret && wb.caret.rank === at.rank && wb.caret.k === at.before) return undefined;
  wb.caret = { rank: at.rank, k: at.before };
  const moved = movedRows(drag.rank, drag.k, at.rank, at.before), would = moved && judge(moved.rows, wb.costs, wb.cap);
  parts.spot.textContent = !moved ? "Here it stays where it is." : would.error ? "Here it cannot run: " + would.error.where + would.error.text + "."
    : "Here a step takes " + figures(would.sim.makespan, 6) + ".";
  return draw();
}

function released() {
  const { drag, caret } = wb;
  wb.drag = wb.caret = null;
  canvas.classList.remove("dragged");
  if (drag && drag.moved && caret) moveAction(drag.rank, drag.k, caret.rank, caret.k);
  showTools();
  draw();
}

function cancelDrag() {
  wb.drag = wb.caret = null;
  canvas.classList.remove("dragged");
  showTools();
  draw();
}

function hover(event) {
  const at = find(event);
  if (at.x < GUTTER || !wb.t.sim) return hideTip();
  const held = wb.t.sim.live[at.rank], k = at.on ? at.k : at.k - 1;
  if (at.strip) {
    const n = k >= 0 && k < wb.t.sim.at[at.rank] ? held[k] / (wb.t.chunks || 1) : 0;
    return showTip(event.clientX, event.clientY, "rank " + at.rank + " holds " + figures(n) + " micro-batches" + (wb.cap ? " of " + figures(wb.cap) : ""));
  }
  const why = at.on ? describe(at.rank, at.k) : whyIdle(wb.t, at.rank, at.k);
  return why ? showTip(event.clientX, event.clientY, (at.on ? "" : "Rank " + at.rank + ": ") + why) : hideTip();
}

function setView(from, to) {
  const total = wb.places.total * 1.001, length = clamp(to - from, total / 1000, total);
  from = clamp(from, 0, total - length);
  wb.view = length >= total ? null : { from, to: from + length };
  draw();
}

function zoom(factor, around) {
  const { view } = pictureOf(100), middle = around === undefined ? (view.from + view.to) / 2 : around;
  setView(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
}

// ---- keys

function select(rank, k) {
  rank = clamp(rank, 0, wb.rows.length - 1);
  wb.selected = wb.rows[rank].cells.length ? { rank, k: clamp(k, 0, wb.rows[rank].cells.length - 1) } : null;
  if (wb.selected && wb.view) {
    const { start, end } = wb.places.rows[rank], length = wb.view.to - wb.view.from;
    if (start[wb.selected.k] < wb.view.from || end[wb.selected.k] > wb.view.to) setView(start[wb.selected.k] - length / 3, start[wb.selected.k] + length * 2 / 3);
  }
  showTools();
  draw();
}

// The action of another rank that is there when this one starts.
function neighbour(rank, k, q) {
  const time = wb.places.rows[rank].start[k], { end } = wb.places.rows[q];
  const found = end.findIndex((x) => x > time);
  return found < 0 ? Math.max(0, end.length - 1) : found;
}

function pressedKey(event) {
  const s = wb.selected, { key } = event, control = event.ctrlKey || event.metaKey;
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[key];
  if (step && s && !control) {
    const q = s.rank + step[0];
    if (q >= 0 && q < wb.rows.length) {
      if (step[0] !== 0) {
        if (event.shiftKey) moveAction(s.rank, s.k, q, Math.min(neighbour(s.rank, s.k, q), wb.rows[q].cells.length));
        else select(q, neighbour(s.rank, s.k, q));
      } else if (!event.shiftKey) select(q, s.k + step[1]);
      else if (s.k + step[1] >= 0 && s.k + step[1] < wb.rows[q].cells.length) moveAction(q, s.k, q, step[1] < 0 ? s.k - 1 : s.k + 2);
    }
  } else if (step && !control) select(0, 0);
  else if (key === "Home" && s) select(s.rank, 0);
  else if (key === "End" && s) select(s.rank, Infinity);
  else if (control && key.toLowerCase() === "z") (event.shiftKey ? redo : undo)();
  else if (control && key.toLowerCase() === "y") redo();
  else if (control) return;
  else if (key === "Delete" || key === "Backspace") deleteAction();
  else if (key === "Insert" || key === "i") parts.insert.focus();
  else if (key === "s") splitOrJoin();
  else if (key === "c") togglePath();
  else if (key === "+" || key === "=") zoom(0.5, s ? wb.places.rows[s.rank].start[s.k] : undefined);
  else if (key === "-") zoom(2);
  else if (key === "0") setView(0, Infinity);
  else if (key === "Escape") cancelDrag();
  else return;
  event.preventDefault();
}

function togglePath() {
  wb.path = !wb.path;
  showTools();
  draw();
}

// ---- the page

function makeTools() {
  const tool = (name, label, onclick, title) => (parts[name] = button(label, null, onclick, title));
  parts.insert = el("input", { type: "text", "aria-label": "action to insert before the selected one", placeholder: "0F3", id: "insert" });
  parts.insert.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    insertAction(parts.insert.value);
    canvas.focus({ preventScroll: true });
  });
  return el("div", { class: "tools", role: "toolbar", "aria-label": "edit" }, tool("undo", "Undo", undo, "Ctrl+Z"), tool("redo", "Redo", redo, "Ctrl+Y"),
    tool("delete", "Delete", deleteAction, "Delete"), tool("split", "Split / join", splitOrJoin, "S: a B into I and W, or back"),
    el("label", {}, parts.insert), button("Insert", null, () => insertAction(parts.insert.value), "before the selected action"),
    el("span", { class: "gap" }), (parts.path = button("Critical path", false, togglePath, "C")), button("\u2212", null, () => zoom(2), "zoom out"),
    button("+", null, () => zoom(0.5), "zoom in"), button("All", null, () => setView(0, Infinity), "0"));
}

function makePage() {
  const first = data.schedule === "table" ? "" : ", " + data.schedule;
  document.title = "plan" + first + " \u2013 ppcli";
  const legend = Object.entries({ F: "forward", I: "input gradient", W: "weight gradient", B: "I and W", R: "recompute" })
    .map(([op, words]) => el("span", { class: "chip" }, el("i", { style: "background:" + FILLS[op][0] }), op + " " + words));
  parts.cards = el("div", { class: "cards" });
  parts.why = el("div", { id: "why", role: "status", "aria-live": "polite" });
  parts.spot = el("p", { class: "spot", id: "spot", "aria-live": "polite" });
  parts.board = el("div", { class: "board" }, canvas);
  parts.kicker = el("p", { class: "kicker dim" });
  parts.task = el("div", { id: "task" });
  fill(main, {}, [parts.kicker, el("h1", {}, "Schedule workbench"), parts.why, parts.cards,
    el("section", { id: "edit" }, el("h2", {}, "Schedule"), parts.task, makeTools(), parts.board, parts.spot, el("div", { class: "legend" }, legend),
      el("details", { id: "keys" }, el("summary", {}, "Mouse and keys"), el("p", {}, "Drag an action to another place. Arrow keys select, Shift with an arrow "
        + "moves the action, Delete removes it, Insert or I goes to the field, S splits a B or joins its halves, Ctrl+Z and Ctrl+Y undo and redo, C shows the "
        + "critical path, + \u2212 0 zoom, Home and End go to a rank's ends. The bar below a rank is what it holds; the dashed line is the limit."))),
    levelsSection(), filesSection()]);
}

// Begin with a table: that of the plan, of a level, of a file or of a link.
function load(rows, options) {
  Object.assign(wb, { undo: [], redo: [], selected: null, view: null, ...options });
  parts.cap.value = wb.cap || "";
  setRows(rows, options.note);
  parts.kicker.textContent = (wb.level === null ? "Plan" : "Level " + (wb.level + 1)) + ": " + plural(wb.rows.length, "rank") + ", "
    + count(wb.t.m) + " micro-batches" + (wb.t.chunks > 1 ? ", " + wb.t.chunks + " chunks a rank" : "");
}

// A table of another shape has the costs of a rank of the plan, and no par.
function loadPlan(rows, note) {
  const plan = judge(readTable(data.table), data.costs, 0), t = rows ? judge(rows, data.costs, 0) : plan;
  const same = t.rows.length === plan.rows.length && t.nVirtual === plan.nVirtual && t.m === plan.m;
  const each = (list) => Array(Math.min(t.nVirtual, 1e5)).fill((list[0] * plan.chunks) / (t.chunks || 1));
  const costs = same ? data.costs : { f: each(data.costs.f), i: each(data.costs.i), w: each(data.costs.w), latency: data.costs.latency,
    transfer: null, overlap: data.costs.overlap };
  load(t.rows, { level: null, costs, cap: data.cap, known: same ? data.known : [], note });
}

function start() {
  makePage();
  canvas.addEventListener("pointerdown", pressed);
  canvas.addEventListener("pointermove", dragged);
  canvas.addEventListener("touchstart", (event) => { // a finger on the selected action drags it; elsewhere it scrolls the page
    if (wb.drag && wb.drag.again) event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("pointerup", released);
  canvas.addEventListener("pointercancel", cancelDrag);
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("keydown", pressedKey);
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event.clientX - canvas.getBoundingClientRect().left));
  }, { passive: false });
  redraws.push(draw);
  new ResizeObserver(() => requestAnimationFrame(draw)).observe(parts.board);
  globalThis.workbench = { wb, readTable, writeTable, judge, criticalPath, whyIdle, LEVELS }; // for scripts and the console
  loadPlan();
  openLink();
  addEventListener("hashchange", openLink);
}
