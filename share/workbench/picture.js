// SPDX-License-Identifier: Apache-2.0
// The picture of a judged table: ranks down, time across, below each rank what it holds. One routine draws onto a canvas and into
// an SVG file; a pen hides which.

// Those of `ppcli report`, for the first, second, ... chunk of a rank.
const FILLS = {
  F: ["#d2e8ff", "#e8dcfb", "#cae4fe", "#e4d5fe"],
  I: ["#8ad9d2", "#7fd5f6", "#68e0d7", "#68d7ff"],
  W: ["#b5742c", "#c36355", "#b96f10", "#cd5849"],
  B: ["#79ba81", "#a1ac58", "#68bd74", "#9bab41"],
  R: ["#c9a5ea", "#b086dc", "#c9a5ea", "#b086dc"],
};
const GUTTER = 64, AXIS = 20, INK = "#14181d", FONT = "11px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif";

class CanvasPen {
  constructor(context) {
    this.c = context;
    context.font = FONT;
    context.textBaseline = "middle";
  }
  rect(x, y, w, h, fill, alpha = 1) {
    if (alpha < 1) this.c.globalAlpha = alpha;
    if (this.fill !== fill) this.c.fillStyle = this.fill = fill;
    this.c.fillRect(x, y, w, h);
    if (alpha < 1) this.c.globalAlpha = 1;
  }
  frame(x, y, w, h, color, width) {
    this.c.strokeStyle = color;
    this.c.lineWidth = width;
    this.c.strokeRect(x, y, w, h);
  }
  line(points, color, width, dash) {
    this.c.setLineDash(dash ? [4, 3] : []);
    this.c.strokeStyle = color;
    this.c.lineWidth = width;
    this.c.beginPath();
    points.forEach(([x, y], i) => (i ? this.c.lineTo(x, y) : this.c.moveTo(x, y)));
    this.c.stroke();
    this.c.setLineDash([]);
  }
  text(x, y, words, color, align = "left") {
    this.c.fillStyle = this.fill = color;
    this.c.textAlign = align;
    this.c.fillText(words, x, y);
  }
}

class SvgPen {
  constructor(width, height, page) {
    this.parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="' + width + '" height="' + height + '" viewBox="0 0 ' + width + " " + height
      + '">', '<rect width="100%" height="100%" fill="' + page + '"/>'];
  }
  put(tag, attributes, words) {
    const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => "&#" + c.charCodeAt(0) + ";");
    const list = Object.entries(attributes).filter(([, value]) => value !== undefined)
      .map(([name, value]) => " " + name + '="' + escaped(typeof value === "number" ? Number(value.toFixed(2)) : value) + '"');
    this.parts.push("<" + tag + list.join("") + (words === undefined ? "/>" : ">" + escaped(words) + "</" + tag + ">"));
  }
  rect(x, y, width, height, fill, alpha = 1) {
    this.put("rect", { x, y, width, height, fill, opacity: alpha < 1 ? alpha : undefined });
  }
  frame(x, y, width, height, stroke, thick) {
    this.put("rect", { x, y, width, height, fill: "none", stroke, "stroke-width": thick });
  }
  line(points, stroke, thick, dash) {
    this.put("polyline", { points: points.map(([x, y]) => x.toFixed(2) + "," + y.toFixed(2)).join(" "), fill: "none", stroke,
      "stroke-width": thick, "stroke-dasharray": dash ? "4 3" : undefined });
  }
  text(x, y, words, fill, align = "left") {
    this.put("text", { x, y, fill, "font-family": "system-ui, Helvetica, Arial, sans-serif", "font-size": 11, "dominant-baseline": "central",
      "text-anchor": { left: "start", center: "middle", right: "end" }[align] }, words);
  }
  end() {
    return this.parts.join("\n") + "\n</svg>\n";
  }
}

// Where each action is drawn: at its time, or, where it never runs, one after the other after the last one that does.
function findPlacesInTime(t, costs) {
  const took = (a) => {
    const of = (list) => (a.stage < list.length ? list[a.stage] : list[0]);
    return Math.max(1e-9, a.op === "F" || a.op === "R" ? of(costs.f) : a.op === "W" ? of(costs.w)
      : of(costs.i) + (a.op === "B" ? of(costs.w) : 0));
  };
  const rows = t.lists.map((list, r) => {
    const start = new Float64Array(list.length), end = new Float64Array(list.length), runs = t.sim ? t.sim.at[r] : 0;
    let now = 0;
    list.forEach((a, k) => {
      start[k] = k < runs ? t.sim.start[r][k] : now;
      now = end[k] = k < runs ? t.sim.end[r][k] : now + took(a);
    });
    return { start, end, runs };
  });
  return { rows, total: Math.max(1e-9, ...rows.map((row) => (row.end.length ? row.end[row.end.length - 1] : 0))) };
}

function layOut(ranks) {
  const band = ranks <= 8 ? 26 : ranks <= 16 ? 20 : ranks <= 32 ? 15 : 11, strip = ranks <= 16 ? 12 : ranks <= 32 ? 7 : 4;
  const row = band + strip + (ranks <= 16 ? 8 : 3);
  return { band, strip, row, height: ranks * row + AXIS, top: (r) => r * row };
}

// Text where it fits: widths of letters are guessed, so that 16,000 cells need not be measured.
const fitting = (words, width) => (words.length * 6.2 <= width - 4 ? words : "");
function shortened(words, width) {
  const room = Math.floor((width - 8) / 5.6);
  return words.length <= room ? words : room > 8 ? words.slice(0, room - 1) + "\u2026" : "";
}

/*
 * m: { t, places, view: { from, to }, width, cap, selected: { rank, k } or null, path: [[rank, k]] or null,
 *      caret: { rank, k } or null, colors }. What is outside of the view is left out.
 */
function drawPicture(pen, m) {
  const { t, places, view, width, colors } = m, lay = layOut(t.lists.length);
  const scale = (width - GUTTER) / (view.to - view.from), x = (time) => GUTTER + (time - view.from) * scale;
  const left = (time) => Math.max(GUTTER, x(time)), right = (time) => Math.min(width, x(time));
  const chunkOf = new Map();
  const chunk = (r, a) => {
    if (!chunkOf.has(a.stage)) chunkOf.set(a.stage, t.chunks > 1 ? Math.floor(a.stage / t.lists.length) % 4 : 0);
    return chunkOf.get(a.stage);
  };
  const label = (a) => (t.chunks === 1 && a.stage < t.lists.length ? a.op + a.mb : a.stage + a.op + a.mb);
  t.lists.forEach((list, r) => {
    const y = lay.top(r), { start, end, runs } = places.rows[r];
    pen.rect(GUTTER, y, width - GUTTER, lay.band, colors.idle);
    pen.text(4, y + lay.band / 2, "rank " + r, colors.dim);
    let now = 0;
    for (let k = 0; k <= list.length; k++) {
      const until = k < list.length ? start[k] : t.sim ? t.sim.makespan : now;
      if (until > now && until > view.from && now < view.to && lay.band > 11 && t.sim) {
        const words = shortened(whyIdle(t, r, k), right(until) - left(now));
        if (words) pen.text(left(now) + 4, y + lay.band / 2, words, colors.dim);
      }
      if (k === list.length) break;
      now = end[k];
      if (end[k] <= view.from || start[k] >= view.to) continue;
      const a = list[k], from = left(start[k]), size = Math.max(0.5, right(end[k]) - from - (scale * (end[k] - start[k]) > 4 ? 1 : 0));
      pen.rect(from, y, size, lay.band, FILLS[a.op][chunk(r, a)], k < runs ? 1 : 0.4);
      const words = lay.band > 11 ? fitting(label(a), size) || fitting(a.op + a.mb, size) || fitting(String(a.mb), size) : "";
      if (words) pen.text(from + size / 2, y + lay.band / 2 + 0.5, words, k < runs ? INK : colors.ink, "center");
    }
    if (t.sim) drawHeld(pen, m, r, x);
  });
  drawMarks(pen, m, x);
  drawAxis(pen, m, x, lay.height - AXIS);
}

// What a rank holds over time, and what it may hold.
function drawHeld(pen, m, r, x) {
  const { t, places, width, colors } = m, lay = layOut(t.lists.length), y = lay.top(r) + lay.band + 1, { live } = t.sim;
  const most = Math.max(m.cap * t.chunks, ...t.sim.peak, 1), { start, end, runs } = places.rows[r];
  for (let k = 0, next = 1; k < runs; k = next, next++) {
    while (next < runs && live[r][next] === live[r][k]) next++;
    const until = next < runs ? start[next] : end[next - 1], height = ((lay.strip - 1) * live[r][k]) / most;
    const from = Math.max(GUTTER, x(start[k])), to = Math.min(width, x(until));
    if (to > from) pen.rect(from, y + lay.strip - 1 - height, to - from + 0.3, height, m.cap > 0 && live[r][k] > m.cap * t.chunks ? colors.bad : colors.wait);
  }
  if (m.cap > 0) {
    const at = y + (lay.strip - 1) * (1 - (m.cap * t.chunks) / most);
    pen.line([[GUTTER, at], [width, at]], colors.bad, 1, true);
  }
}

// The critical path, the first wrong cell, what is selected, and where a dragged action would go.
function drawMarks(pen, m, x) {
  const { t, places, colors, width } = m, lay = layOut(t.lists.length);
  const frame = (r, k, color, thick) => {
    const { start, end } = places.rows[r], from = Math.max(GUTTER, x(start[k])), to = Math.min(width, x(end[k]));
    if (to > from) pen.frame(from + thick / 2, lay.top(r) + thick / 2, Math.max(1, to - from - thick - 0.5), lay.band - thick, color, thick);
  };
  if (m.path) {
    m.path.forEach(([r, k], i) => {
      frame(r, k, colors.path, 2);
      const [q, n] = m.path[i + 1] || [r, k], [a, b] = [x(places.rows[q].end[n]), x(places.rows[r].start[k])];
      if (q !== r && a >= GUTTER && b <= width) pen.line([[a, lay.top(q) + lay.band / 2], [b, lay.top(r) + lay.band / 2]], colors.path, 1.5);
    });
  }
  const wrong = t.error, cells = wrong ? t.lists[wrong.rank] : [];
  if (wrong && wrong.k < cells.length && wrong.k >= 0) frame(wrong.rank, wrong.k, colors.bad, 3);
  if (wrong && wrong.k >= cells.length) {
    const end = cells.length ? x(places.rows[wrong.rank].end[cells.length - 1]) : GUTTER;
    pen.frame(Math.max(GUTTER + 1, end + 1), lay.top(wrong.rank) + 1, 14, lay.band - 2, colors.bad, 2);
  }
  if (m.selected && m.selected.k < t.lists[m.selected.rank].length) frame(m.selected.rank, m.selected.k, colors.ink, 2);
  if (m.caret) {
    const { start, end } = places.rows[m.caret.rank], n = end.length;
    const at = clamp(x(m.caret.k < n ? start[m.caret.k] : n ? end[n - 1] : 0), GUTTER, width), y = lay.top(m.caret.rank);
    pen.line([[at, y - 2], [at, y + lay.band + 2]], colors.bad, 3);
  }
}

function drawAxis(pen, m, x, y) {
  const step = niceStep(m.view.to - m.view.from, Math.max(2, (m.width - GUTTER) / 70));
  for (let n = Math.ceil(m.view.from / step); n * step <= m.view.to; n++) {
    const at = x(n * step);
    pen.line([[at, y], [at, y + 4]], m.colors.line, 1);
    if (at < m.width - 12) pen.text(at, y + 12, figures(n * step), m.colors.dim, n === 0 ? "left" : "center");
  }
}
