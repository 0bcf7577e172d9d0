// SPDX-License-Identifier: Apache-2.0
// One step on a canvas: ranks down, time across. A lane shows one half (measured or simulated), or
// two of them in one row. What computes fills the row, waits are a thin bar in its middle,
// transfers a thin line below. All lanes share the view: { from, to } in seconds.

// Those of `ppcli plan --format svg`, for the first, second, ... chunk of a rank.
const FILLS = {
  F: ["#d2e8ff", "#e8dcfb", "#cae4fe", "#e4d5fe"],
  I: ["#8ad9d2", "#7fd5f6", "#68e0d7", "#68d7ff"],
  W: ["#b5742c", "#c36355", "#b96f10", "#cd5849"],
  B: ["#79ba81", "#a1ac58", "#68bd74", "#9bab41"],
};
const GUTTER = 64, AXIS = 22, INK = "#14181d";

// "1.234 ms"; of a plan in units of its costs, of which one is a millisecond in the trace.
let inUnits = false;
function span(seconds, digits = 4) {
  if (!isNumber(seconds)) return NONE;
  if (inUnits) return figures(seconds * 1e3, digits) + (Math.abs(seconds - 1e-3) < 1e-9 ? " unit" : " units");
  const size = Math.abs(seconds);
  return size >= 1 ? figures(seconds, digits) + " s" : size >= 1e-3 || seconds === 0
      ? figures(seconds * 1e3, digits) + " ms"
    : figures(seconds * 1e6, Math.min(digits, 3)) + " \u00b5s";
}

class Lane {
  // halves: one, or two for one row. host: { view, full, dim, seen, move(view), see(slice or null) }
  // stretch: how many times as long as the own step the shared view is
  constructor(title, halves, host, stretch) {
    this.halves = halves;
    this.host = host;
    this.stretch = stretch;
    this.ranks = Math.max(...halves.map((half) => half.ranks.length));
    const base = this.ranks <= 4 ? 34 : this.ranks <= 8 ? 27 : this.ranks <= 16 ? 20 : this.ranks <= 32 ? 15 : 11;
    this.band = halves.length > 1 ? Math.max(7, Math.round(base * 0.72)) : base;
    this.row = this.band * halves.length + (halves.length > 1 ? 1 : 0);
    this.gap = this.ranks <= 16 ? 4 : 2;
    this.height = this.ranks * (this.row + this.gap) + AXIS;
    this.canvas = el("canvas", { tabindex: 0, role: "application", "aria-roledescription": "timeline",
      "aria-label": title +
          ". Arrow keys move, plus and minus zoom, zero shows all, shift with arrow keys goes from action to action." });
    this.figure = el("figure", { class: "lane" }, el("figcaption", {}, title), this.canvas);
    this.pointers = new Map();
    this.listen();
  }

  // ---- drawing

  x(t) {
    const { from, to } = this.view();
    return GUTTER + ((t - from) / (to - from)) * (this.width - GUTTER);
  }

  time(px) {
    const { from, to } = this.view();
    return from + ((px - GUTTER) / (this.width - GUTTER)) * (to - from);
  }

  // Seconds of this lane from edge to edge: the shared view, or the same part of its own step.
  view() {
    const { from, to } = this.host.view;
    return { from: from / this.stretch, to: to / this.stretch };
  }

  top(rank, half) {
    return rank * (this.row + this.gap) + (half ? half * (this.band + 1) : 0);
  }

  colors() {
    const names = ["ink", "dim", "line", "idle", "wait", "send", "update", "reduce", "page"];
    return Object.fromEntries(names.map((name) => [name, css("--" + name)]));
  }

  draw() {
    const scale = theme.printing ? 3 : devicePixelRatio || 1;
    this.width = Math.max(280, this.figure.clientWidth);
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = Math.round(this.height * scale);
    this.canvas.style.height = this.height + "px";
    const c = this.canvas.getContext("2d");
    c.scale(scale, scale);
    this.c = c;
    this.color = this.colors();
    this.drawAxis();
    c.font = "12px " + getComputedStyle(document.body).fontFamily;
    c.textBaseline = "middle";
    const every = this.row + this.gap >= 12 ? 1 : 2;
    for (let r = 0; r < this.ranks; r++) {
      c.fillStyle = this.color.idle;
      const end = this.x(Math.max(...this.halves.map((half) => half.span)));
      c.fillRect(GUTTER, this.top(r), Math.max(0, Math.min(this.width, end) - GUTTER), this.row);
      c.fillStyle = this.color.ink;
      c.font = (this.row >= 12 ? "12px " : "10px ") + getComputedStyle(document.body).fontFamily;
      if (r % every === 0) c.fillText("rank " + r, 0, this.top(r) + this.row / 2);
    }
    c.save();
    c.beginPath();
    c.rect(GUTTER, 0, this.width - GUTTER, this.height);
    c.clip();
    this.halves.forEach((half, h) => half.rows.forEach((row, r) => this.drawRow(row, this.top(r, h), half)));
    this.drawSelection();
    c.restore();
  }

  drawAxis() {
    const { from, to } = this.view();
    const unit = inUnits || to - from >= 2e-3 ? 1e-3 : 1e-6;
    const c = this.c, bottom = this.height - AXIS;
    const [low, high] = [from / unit, to / unit];
    c.font = "11px " + getComputedStyle(document.body).fontFamily;
    c.textBaseline = "alphabetic";
    c.textAlign = "center";
    for (const tick of linearTicks(low, high, Math.max(2, this.width / 110))) {
      const x = this.x(tick * unit);
      c.fillStyle = this.color.line;
      c.fillRect(Math.round(x), 0, 1, bottom + 4);
      c.fillStyle = this.color.dim;
      c.fillText(figures(tick, 7), clamp(x, GUTTER + 8, this.width - 14), this.height - 5);
    }
    c.textAlign = "left";
    c.fillText(inUnits ? "units" : unit === 1e-3 ? "ms" : "\u00b5s", 0, this.height - 5);
  }

  fillOf(slice) {
    const { group } = KINDS[slice.kind];
    return FILLS[group] ? FILLS[group][slice.chunk % 4] : this.color[group];
  }

  // First slice that may be seen: rows are sorted by start, and ends nearly so.
  firstOf(row) {
    const { from } = this.view();
    let low = 0, high = row.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row[middle].end < from) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 4);
  }

  drawRow(row, top, half) {
    const c = this.c, band = this.band, letters = band >= 10;
    c.textAlign = "center";
    c.font = (band >= 20 ? "11px " : band >= 13 ? "10px " : "9px ") +
        getComputedStyle(document.body).fontFamily;
    const { to } = this.view();
    for (let i = this.firstOf(row); i < row.length && row[i].start <= to; i++) {
      const s = row[i], { group } = KINDS[s.kind];
      const x = this.x(s.start), width = this.x(s.end) - x;
      const drawn = width > 3 ? width - 0.6 : Math.max(width, 0.4);
      c.globalAlpha = this.host.dim && this.host.dim !== group ? 0.13 : 1;
      c.fillStyle = this.fillOf(s);
      if (group === "wait") c.fillRect(x, top + band / 2 - (band > 12 ? 3 : 2), drawn, band > 12 ? 6 : 4);
      else if (group === "send") c.fillRect(x, top + band - 3, drawn, 3);
      else c.fillRect(x, top, drawn, band);
      if (letters && s.mb >= 0 && FILLS[group] && width > 12) this.label(s, half, x, width, top);
    }
    c.globalAlpha = 1;
    c.textAlign = "left";
  }

  label(s, half, x, width, top) {
    const names = [(half.chunks && s.stage >= 0 ? s.stage : "") + s.kind + s.mb, s.kind + s.mb, String(s.mb)];
    const name = names.find((candidate) => candidate.length * 6.6 + 3 <= width);
    if (!name) return;
    const left = Math.max(x, GUTTER), right = Math.min(x + width, this.width);
    if (right - left < name.length * 6.6) return;
    this.c.fillStyle = INK;
    this.c.fillText(name, (left + right) / 2, top + this.band / 2 + 0.5);
  }

  // A frame around the action that is looked at, and a line from what it took its input of.
  drawSelection() {
    const s = this.host.seen;
    const h = s ? this.halves.indexOf(s.half) : -1;
    if (h < 0) return;
    const c = this.c, y = this.top(s.rank, h);
    c.strokeStyle = this.color.ink;
    c.lineWidth = 1.5;
    c.strokeRect(this.x(s.start), y, Math.max(2, this.x(s.end) - this.x(s.start)), this.band);
    const from = COMPUTES.includes(s.kind) && producerOf(s);
    if (!from || from.rank >= this.ranks) return;
    const y0 = this.top(from.rank, h);
    c.setLineDash([3, 2]);
    c.strokeRect(this.x(from.start), y0, Math.max(2, this.x(from.end) - this.x(from.start)), this.band);
    c.setLineDash([]);
    if (from.rank !== s.rank) {
      c.beginPath();
      c.moveTo(this.x(from.end), y0 + this.band / 2);
      c.lineTo(this.x(s.start), y + this.band / 2);
      c.stroke();
    }
  }

  // ---- what is under the pointer

  sliceAt(px, py) {
    const rank = Math.floor(py / (this.row + this.gap));
    const inRow = py - this.top(rank);
    if (px < GUTTER || rank < 0 || rank >= this.ranks || inRow > this.row) return null;
    const half = this.halves[Math.min(this.halves.length - 1, Math.floor(inRow / (this.band + 1)))];
    const t = this.time(px), near = this.time(px + 1.5) - t;
    let found = null;
    const row = half.rows[rank] || [];
    for (let i = this.firstOf(row); i < row.length && row[i].start <= t + near; i++) {
      const s = row[i];
      const over = { wait: 1, send: 2 }[KINDS[s.kind].group] || 0;
      const foundOver = found ? { wait: 1, send: 2 }[KINDS[found.kind].group] || 0 : 9;
      if (s.end >= t - near && over <= foundOver) found = s;
    }
    return found;
  }

  look(slice, clientX, clientY) {
    if (this.host.seen !== slice) this.host.see(slice);
    if (!slice) return hideTip();
    showTip(clientX, clientY, describeSlice(slice));
  }

  // ---- moving

  move(from, to) {
    return this.host.move({ from: from * this.stretch, to: to * this.stretch });
  }

  zoom(factor, at) {
    const { from, to } = this.view();
    return this.move(at - (at - from) * factor, at + (to - at) * factor);
  }

  pan(seconds) {
    const { from, to } = this.view();
    return this.move(from + seconds, to + seconds);
  }

  position(event) {
    const rect = this.canvas.getBoundingClientRect();
    return [event.clientX - rect.left, event.clientY - rect.top];
  }

  listen() {
    const on = (name, handler) => this.canvas.addEventListener(name, handler, { passive: false });
    on("wheel", (event) => {
      const [px] = this.position(event);
      const perPixel = this.time(1) - this.time(0);
      const sideways = event.shiftKey ? event.deltaY || event.deltaX
          : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
      const lines = event.deltaMode === 1 ? 16 : 1;
      const moved = sideways ? this.pan(sideways * lines * perPixel)
        : this.zoom(Math.exp(clamp(event.deltaY * lines, -300, 300) * 0.0025),
            this.time(Math.max(px, GUTTER)));
      /* where nothing moves any more, the page does */
      if (moved) event.preventDefault();
      if (moved) this.look(null);
    });
    on("pointerdown", (event) => {
      this.pointers.set(event.pointerId, this.position(event)[0]);
      this.canvas.setPointerCapture(event.pointerId);
    });
    on("pointermove", (event) => this.drag(event));
    for (const name of ["pointerup", "pointercancel"])
      on(name, (event) => {
        this.pointers.delete(event.pointerId);
        this.canvas.classList.remove("dragged");
      });
    on("pointerleave", () => this.look(null));
    on("dblclick", () => this.host.move(this.host.full));
    on("keydown", (event) => this.key(event));
    on("blur", () => this.look(null));
  }

  drag(event) {
    const [px, py] = this.position(event);
    const before = this.pointers.get(event.pointerId);
    if (before === undefined) return this.look(this.sliceAt(px, py), event.clientX, event.clientY);
    this.pointers.set(event.pointerId, px);
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId);
    if (others.length > 0) {
      const other = others[0][1];
      const distance = Math.max(8, Math.abs(px - other)), was = Math.max(8, Math.abs(before - other));
      return this.zoom(was / distance, this.time(other));
    }
    this.canvas.classList.add("dragged");
    this.look(null);
    return this.pan(this.time(before) - this.time(px));
  }

  key(event) {
    const { from, to } = this.view(), middle = (from + to) / 2, part = (to - from) / 8;
    const across = { ArrowLeft: -1, ArrowRight: 1 }[event.key],
        down = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "+" || event.key === "=") this.zoom(1 / 1.5, middle);
    else if (event.key === "-") this.zoom(1.5, middle);
    else if (event.key === "0" || event.key === "Home") this.host.move(this.host.full);
    else if (event.key === "Escape") this.look(null);
    else if (across && !event.shiftKey) this.pan(across * part);
    else if (event.shiftKey && (across || down)) this.step(across || 0, down || 0);
    else return;
    event.preventDefault();
  }

  // From the action that is looked at to its neighbour in time, or on the next rank.
  step(across, down) {
    const { seen } = this.host;
    const from = seen && this.halves.includes(seen.half) ? seen : null;
    const half = from ? from.half : this.halves[0];
    let next;
    if (!from) next = half.rows[0].find((s) => COMPUTES.includes(s.kind));
    else if (across) next = neighbour(from, across);
    else {
      const row = half.rows[clamp(from.rank + down, 0, half.rows.length - 1)];
      next = row.filter((s) => COMPUTES.includes(s.kind)).reduce((best, s) =>
        !best || Math.abs(s.start - from.start) < Math.abs(best.start - from.start) ? s : best, undefined);
    }
    if (!next) return;
    const { from: left, to: right } = this.view(), aside = (right - left) / 2;
    if (next.start < left || next.end > right) this.move(next.start - aside, next.start + aside);
    const rect = this.canvas.getBoundingClientRect();
    this.look(next, rect.left + this.x(next.start), rect.top + this.top(next.rank) + this.row);
  }
}

// ---- what an action is, and what it waited for

function waitedFor(slice) {
  const work = neighbour(slice, 1);
  if (slice.kind === "r") {
    const from = work && producerOf(work);
    return from ? "waits for " + nameOf(from) + " of rank " + from.rank + ", which " + nameOf(work) + " needs" : "";
  }
  if (!COMPUTES.includes(slice.kind)) return "";
  const before = neighbour(slice, -1), from = producerOf(slice);
  const ready = before ? before.end : 0, gap = slice.start - ready;
  if (!from || from.rank === slice.rank)
    return before && gap > 0.02 * slice.length ? "started " + span(gap, 3) + " after " + nameOf(before)
        : before ? "followed " + nameOf(before) : "first of its rank";
  if (from.end > ready)
    return "waited " + span(gap, 3) + " for " + nameOf(from) + " of rank " + from.rank;
  return "did not wait: " + nameOf(from) + " of rank " + from.rank + " ended " +
      span(slice.start - from.end, 3) + " before";
}

const ratio = (a, b, of) => (a > 0 && b > 0 ? " (" + figures(a / b, 3) + " \u00d7 " + of + ")" : "");

function describeSlice(slice) {
  const kind = KINDS[slice.kind], other = counterpart(slice);
  const place = ["rank " + slice.rank, slice.stage >= 0 && "stage " + slice.stage,
      slice.half.chunks && "chunk " + slice.chunk,
    slice.mb >= 0 && "micro-batch " + slice.mb].filter(Boolean).join(", ");
  const rest = waitedFor(slice);
  const predicted = other && (slice.half.simulated
    ? "measured " + span(other.length, 3) + ratio(other.length, slice.length, "the prediction")
    : "predicted " + span(other.length, 3) + ratio(slice.length, other.length, "as long"));
  return [el("div", {}, el("b", {}, nameOf(slice)), kind.name !== nameOf(slice) && " " + kind.name),
      el("div", {}, place),
    el("div", {}, "starts at " + span(slice.start) + ", takes " + span(slice.length, 3)),
        predicted && el("div", {}, predicted),
    rest && el("div", {}, rest)];
}
