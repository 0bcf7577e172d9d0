// SPDX-License-Identifier: Apache-2.0
// The curves of all runs, over steps or over time. All pictures share one range of x.

const CURVES = [
  { id: "loss", title: "Loss", key: "loss", test: "test_loss", show: (x) => figures(x, 5), log: true },
  { id: "accuracy", title: "Accuracy", key: "accuracy", test: "test_accuracy", show: (x) => percent(x, 2),
      share: true },
  { id: "r2", title: "R2", key: "r2", test: "test_r2", show: (x) => figures(x, 4) },
  { id: "throughput", title: "Throughput, samples/s", key: "speed", show: (x) => count(x), zero: true },
  { id: "bubble", title: "Bubble", key: "bubble", show: (x) => percent(x), share: true, zero: true },
  { id: "norm", title: "Gradient norm", key: "norm", show: (x) => figures(x, 4) },
  { id: "clipped", title: "Clipped steps", key: "clipped", show: (x) => percent(x), share: true,
      zero: true },
];

const curveState = { time: false, log: true, smooth: 0, range: null, hidden: new Set() };

function smoothed(ys, weight) {
  let value = 0, norm = 0;
  return ys.map((y) => {
    if (!isNumber(y)) return y;
    value = weight * value + (1 - weight) * y;
    norm = weight * norm + (1 - weight);
    return value / norm;
  });
}

// Series of one picture: training as a line, the test set as dots on a dashed line.
function seriesOf(curve) {
  const series = [];
  const clean = (s) => {
    const keep = s.xs.map((x, i) => isNumber(x) && isNumber(s.ys[i]));
    return { ...s, xs: s.xs.filter((_, i) => keep[i]), ys: s.ys.filter((_, i) => keep[i]) };
  };
  for (const run of runs) {
    if (curveState.hidden.has(run.number)) continue;
    const who = runs.length > 1 ? run.name + " " : "";
    series.push(clean({
      name: who + (curve.test ? "training" : ""), color: run.color, run,
      xs: run.points.map((p) => (curveState.time ? p.time : p.step)), ys: run.points.map((p) => p[curve.key]),
      dots: run.points.length < 3,
    }));
    if (curve.test)
      series.push(clean({
        name: who + "test", color: runs.length > 1 ? run.color : "var(--c1)", run, test: true, dots: true,
        xs: run.epochs.step.map((step) => (curveState.time ? run.clock(step) : step)),
            ys: run.epochs[curve.test],
      }));
  }
  return series.filter((s) => s.xs.length > 0);
}

function logTicks(low, high) {
  const ticks = [];
  const factors = high / low > 1e4 ? [1] : high / low > 30 ? [1, 3] : [1, 2, 5];
  const stride = Math.max(1, Math.ceil((Math.log10(high) - Math.log10(low)) / 10));
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += stride)
    for (const factor of factors) {
      const tick = factor * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  return ticks;
}

function linearTicks(low, high, most) {
  const step = niceStep(high - low || 1, most);
  const ticks = [];
  const first = Math.ceil(low / step - 1e-9);
  for (let i = first; i * step <= high + step * 1e-9 && ticks.length < 50; i++) ticks.push(i * step);
  return ticks;
}

function yScale(curve, ys) {
  let low = Math.min(...ys), high = Math.max(...ys);
  const log = curve.log && curveState.log && low > 0;
  if (log) {
    if (high / low < 1.5) [low, high] = [low / 1.3, high * 1.3];
    const from = Math.log(low), span = Math.log(high) - from; // high / low may be infinite
    const at = (y) => (Math.log(y) - from) / span;
    return { at, ticks: logTicks(low, high), log };
  }
  if (curve.zero) low = Math.min(0, low);
  if (curve.share && high > 0.8) high = Math.max(1, high);
  if (high - low < 1e-12) [low, high] = [low - 0.5 * Math.abs(low || 1), high + 0.5 * Math.abs(high || 1)];
  const ticks = linearTicks(low, high, 5);
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : 1;
  if (!curve.share || high < 1) high = Math.max(high, Math.ceil(high / step - 1e-9) * step);
  low = Math.floor(low / step + 1e-9) * step;
  return { at: (y) => (y - low) / (high - low), ticks: linearTicks(low, high, 6), log };
}

class Chart {
  constructor(curve, group) {
    this.curve = curve;
    this.group = group;
    this.svg = svg("svg", {
      class: "chart", tabindex: 0, role: "img", "aria-label": curve.title,
      onpointermove: (e) => this.move(e),
      onpointerleave: () => this.leave(),
      onpointerdown: (e) => this.down(e),
      onpointerup: (e) => this.up(e),
      ondblclick: () => this.group.zoom(null),
      onkeydown: (e) => this.key(e),
      onblur: () => this.leave(),
    });
    this.figure = el("figure", {}, el("figcaption", {}, curve.title), this.svg);
  }

  draw() {
    const width = Math.max(220, Math.round(this.figure.clientWidth || 540)), height = 220;
    const box = { left: 46, right: width - 10, top: 10, bottom: height - 22 };
    this.series = seriesOf(this.curve);
    const xs = this.series.flatMap((s) => [s.xs[0], last(s.xs)]);
    const full = [Math.min(...xs, curveState.time ? 0 : Infinity), Math.max(...xs)];
    if (full[1] - full[0] < 1e-12) full[1] = full[0] + 1;
    const [x0, x1] = curveState.range || full;
    this.full = full;
    this.x = (x) => box.left + ((x - x0) / (x1 - x0)) * (box.right - box.left);
    this.unX = (px) => x0 + ((px - box.left) / (box.right - box.left)) * (x1 - x0);
    const visible = this.series.flatMap((s) => s.ys.filter((_, i) => s.xs[i] >= x0 && s.xs[i] <= x1));
    const scale = yScale(this.curve, visible.length ? visible : [0, 1]);
    this.y = (y) => box.bottom - scale.at(y) * (box.bottom - box.top);
    this.box = box;
    this.svg.setAttribute("viewBox", "0 0 " + width + " " + height);
    this.svg.setAttribute("height", height);
    const clip = "clip-" + this.curve.id;
    this.cursor = svg("g", { class: "cursor" });
    const frame = { x: box.left - 4, y: box.top - 4, width: box.right - box.left + 8,
      height: box.bottom - box.top + 8 };
    const showY = (y) => (this.curve.share ? percent(y, y > 0 && y < 0.01 ? 1 : 0) : short(y));
    const rows = scale.ticks.map((tick) => {
      const y = this.y(tick);
      return [svg("path", { class: "grid", d: `M${box.left} ${y.toFixed(1)}H${box.right}` }),
        svg("text", { class: "end", x: box.left - 6, y: (y + 4).toFixed(1) }, showY(tick))];
    });
    const columns = linearTicks(x0, x1, Math.max(3, width / 90)).map((tick) =>
      svg("text", { class: "mid", x: this.x(tick).toFixed(1), y: height - 6 },
        short(tick) + (curveState.time ? " s" : "")));
    this.svg.replaceChildren(svg("clipPath", { id: clip }, svg("rect", frame)), ...rows.flat(), ...columns,
      ...this.marks(box, x0, x1),
      svg("g", { "clip-path": `url(#${clip})` }, this.series.map((s) => this.line(s))), this.cursor);
  }

  marks(box, x0, x1) {
    const shown = runs.filter((run) => !curveState.hidden.has(run.number)).flatMap((run) =>
      run.marks.map(({ step, label }) => ({ run, label, at: curveState.time ? run.clock(step) : step })));
    return shown.filter(({ at }) => at >= x0 && at <= x1).map(({ run, label, at }) => {
      const x = this.x(at), late = x > (box.left + box.right) / 2;
      const style = runs.length > 1 ? "stroke:" + run.color : null;
      return svg("g", { class: "mark" },
        svg("path", { d: `M${x.toFixed(1)} ${box.top}V${box.bottom}`, style }),
        svg("text", { x: x + (late ? -5 : 5), y: box.top + 9, class: late ? "end" : "" }, label));
    });
  }

  line(s) {
    const smooth = curveState.smooth > 0 && !s.test && s.ys.length > 2;
    const path = (ys) => {
      let d = "";
      ys.forEach((y, i) => {
        d += (d ? "L" : "M") + this.x(s.xs[i]).toFixed(1) + " " + this.y(y).toFixed(1);
      });
      return d;
    };
    s.shown = smooth ? smoothed(s.ys, curveState.smooth) : s.ys;
    return svg("g", { style: "stroke:" + s.color + ";fill:" + s.color },
      smooth && svg("path", { class: "curve raw", d: path(s.ys) }),
      svg("path", { class: "curve" + (s.test ? " dash" : ""), d: path(s.shown) }),
      s.dots && s.xs.length < 150 &&
          s.xs.map((x, i) => svg("circle",
              { cx: this.x(x).toFixed(1), cy: this.y(s.ys[i]).toFixed(1), r: 2.6 })));
  }

  at(x, clientX, clientY) {
    const near = (s) => {
      let best = 0;
      for (let i = 1; i < s.xs.length; i++) if (Math.abs(s.xs[i] - x) < Math.abs(s.xs[best] - x)) best = i;
      return best;
    };
    if (this.series.length === 0) return;
    const points = this.series.map((s) => ({ s, i: near(s) }));
    const nearest = points.reduce((a, b) => (Math.abs(b.s.xs[b.i] - x) < Math.abs(a.s.xs[a.i] - x) ? b : a));
    const px = this.x(nearest.s.xs[nearest.i]);
    this.cursorX = nearest.s.xs[nearest.i];
    this.cursor.replaceChildren(svg("path", { d: `M${px.toFixed(1)} ${this.box.top}V${this.box.bottom}` }),
      ...points.map(({ s, i }) =>
          svg("circle", { cx: this.x(s.xs[i]), cy: this.y(s.shown[i]), r: 4, style: "fill:" + s.color })));
    const where = curveState.time ? duration(this.cursorX) : "step " + count(this.cursorX);
    showTip(clientX, clientY, el("b", {}, where), el("table", {}, points.map(({ s, i }) => el("tr", {},
      el("td", {}, el("i", { class: "dot", style: "background:" + s.color }), s.name || this.curve.title),
      el("td", { class: "n" }, this.curve.show(s.ys[i])),
      el("td", { class: "dim" }, s.xs[i] === this.cursorX ? "" : curveState.time ? duration(s.xs[i])
          : "step " + count(s.xs[i]))))));
  }

  position(event) {
    const rect = this.svg.getBoundingClientRect();
    return this.unX(((event.clientX - rect.left) * this.svg.viewBox.baseVal.width) / rect.width);
  }

  down(event) {
    this.from = this.position(event);
    this.svg.setPointerCapture(event.pointerId);
  }

  move(event) {
    const x = this.position(event);
    if (this.from === undefined) return this.at(x, event.clientX, event.clientY);
    const [a, b] = [this.x(Math.min(x, this.from)), this.x(Math.max(x, this.from))];
    this.cursor.replaceChildren(svg("rect",
        { class: "range", x: a, y: this.box.top, width: b - a, height: this.box.bottom - this.box.top }));
  }

  up(event) {
    const from = this.from, to = this.position(event);
    this.from = undefined;
    if (Math.abs(this.x(to) - this.x(from)) > 8)
      this.group.zoom([Math.max(Math.min(from, to), this.full[0]),
          Math.min(Math.max(from, to), this.full[1])]);
  }

  leave() {
    this.cursor.replaceChildren();
    this.from = undefined;
    hideTip();
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape" || event.key === "0") this.group.zoom(null);
    if (!by || this.series.length === 0) return;
    event.preventDefault();
    const all = [...new Set(this.series.flatMap((s) => s.xs))].sort((a, b) => a - b);
    const now = this.cursorX === undefined ? -by : all.indexOf(this.cursorX);
    const rect = this.svg.getBoundingClientRect();
    const x = all[clamp(now + by, 0, all.length - 1)];
    this.at(x, rect.left + (this.x(x) * rect.width) / this.svg.viewBox.baseVal.width, rect.top + 40);
  }
}

function numbersOf(run) {
  const thin = (n) => Array.from({ length: n },
      (_, i) => i).filter((i) => (n - 1 - i) % Math.ceil(n / 60) === 0);
  const { epochs: e, steps: s } = run;
  const cells = (list) => list.map((x) => ({ n: x }));
  const numbers = e.r2.some(isNumber) || s.r2.some(isNumber);
  const [key, word, show] = numbers ? ["r2", "R2", (x) => figures(x, 4)]
    : ["accuracy", "accuracy", (x) => percent(x, 2)];
  if (run.points.length === 0) return null;
  return details(runs.length > 1 ? "the numbers of " + run.name : "the numbers",
    e.epoch.length > 0 &&
        table(cells(["epoch", "training loss", word, "test loss", "test " + word, "samples/s",
            "bubble", "time"]),
      thin(e.epoch.length).map((i) =>
          cells([count(e.epoch[i]), figures(e.loss[i], 5), show(e[key][i]),
              figures(e.test_loss[i], 5),
        show(e["test_" + key][i]), count(e.speed[i]), percent(e.bubble[i]), duration(e.seconds[i])]))),
    s.step.length > 0 && table(cells(["step", "epoch", "loss", word, "samples/s", "bubble",
        "learning rate"]),
      thin(s.step.length).map((i) =>
          cells([count(s.step[i]), count(s.epoch[i]), figures(s.loss[i], 5), show(s[key][i]),
        count(s.speed[i]), percent(s.bubble[i]), figures(s.lr[i], 5)]))));
}

function curvesSection() {
  if (!runs.some((run) => run.points.length > 0)) return;
  const group = { charts: [], zoom(range) { curveState.range = range; reset.hidden = !range; draw(); } };
  const draw = () => group.charts.forEach((chart) => chart.draw());
  const reset = button("Whole range", null, () => group.zoom(null));
  reset.hidden = true;
  const toggle = (label, get, set, title) => {
    const b = button(label, String(get()),
        () => { set(!get()); b.setAttribute("aria-pressed", String(get())); draw(); }, title);
    return b;
  };
  const legend = runs.length > 1
    ? runs.map((run) => {
        const b = button(chip(run), "true", () => {
          if (!curveState.hidden.delete(run.number)) curveState.hidden.add(run.number);
          b.setAttribute("aria-pressed", String(!curveState.hidden.has(run.number)));
          draw();
        }, "show or hide this run");
        return b;
      })
    : [el("span", { class: "chip" }, el("i", { style: "background:var(--c0)" }), "training")];
  const tested = runs.some((run) => run.epochs.test_loss.some(isNumber));
  const testKey = tested &&
      el("span", { class: "chip" },
          svg("svg", { width: 26, height: 12,
              style: "stroke:" + (runs.length > 1 ? "var(--dim)" : "var(--c1)") + ";fill:" +
                  (runs.length > 1 ? "var(--dim)" : "var(--c1)") },
    svg("path", { class: "curve dash", d: "M0 6H26" }), svg("circle", { cx: 13, cy: 6, r: 2.6 })), "test");
  const slider = el("input",
      { type: "range", min: 0, max: 0.98, step: 0.02, value: 0, "aria-label": "smoothing",
    oninput: (e) => { curveState.smooth = Number(e.target.value); draw(); } });
  const grid = el("div", { class: "charts" });
  section("training", "Training", el("div", { class: "tools" }, legend, testKey, el("span", { class: "gap" }),
    toggle("Over time", () => curveState.time,
        (on) => { curveState.time = on; curveState.range = null; reset.hidden = true; },
            "seconds of training instead of steps"),
    toggle("Log loss", () => curveState.log, (on) => { curveState.log = on; }),
        el("label", {}, "Smooth ", slider), reset),
  grid, runs.map(numbersOf));
  for (const curve of CURVES)
    if (seriesOf(curve).length > 0) {
      const chart = new Chart(curve, group);
      group.charts.push(chart);
      grid.append(chart.figure);
    }
  draw();
  redraws.push(draw);
  new ResizeObserver(draw).observe(grid);
}
