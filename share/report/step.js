// SPDX-License-Identifier: Apache-2.0
// The section of one step: which halves are shown, the tools, the legend, the shares of time.

const computing = (spent) => [...COMPUTES].reduce((sum, kind) => sum + (spent[kind] || 0), 0);

// Seconds of every group of a rank, and what is left of its step.
function groupsOf(half, rank) {
  const spent = half.ranks[rank].spent;
  const step = half.simulated ? number(half.run.timeline, "simulated_step_seconds") : spent.all;
  const all = isNumber(step) && step > 0 ? step : half.span;
  const groups = Object.fromEntries(Object.keys(GROUPS).map((group) => [group, 0]));
  for (const [kind, seconds] of Object.entries(spent)) if (KINDS[kind]) groups[KINDS[kind].group] += seconds;
  const known = Object.values(groups).reduce((sum, x) => sum + x, 0);
  groups.idle = Math.max(0, all - known);
  return { groups, all: Math.max(all, known) };
}

function titleOf(half) {
  const { run } = half, head = run.timeline;
  if (run.isPlan) return (runs.length > 1 ? run.name + ", " : "") + "simulated: " + span(half.span);
  const seconds = number(head, half.simulated ? "simulated_step_seconds" : "step_seconds");
  const bubble = number(head, half.simulated ? "bubble_predicted" : "bubble_measured");
  return (runs.length > 1 ? run.name + ", " : "") +
      (half.simulated ? "simulated from measured times" : "measured") +
    (half.step >= 0 && !half.simulated ? ", step " + count(half.step) : "") + ": " +
    (isNumber(seconds) ? span(seconds) + " from step to step" : span(half.span) + " from first to last") +
    (isNumber(bubble) ? ", bubble " + percent(bubble) : "");
}

function shareView(half) {
  const used = Object.keys(GROUPS).filter((group) =>
      half.ranks.some((_, r) => groupsOf(half, r).groups[group] > 0));
  const rows = half.ranks.map((_, r) => {
    const { groups, all } = groupsOf(half, r);
    const label = (group) => "rank " + r + ": " + GROUPS[group] + " " + percent(groups[group] / all) + ", " +
        span(groups[group], 3);
    const busy = [...COMPUTES].reduce((sum, kind) => sum + (half.ranks[r].spent[kind] || 0), 0);
    return [String(r), bar("rank " + r,
        used.map((group) => ({ share: groups[group] / all, class: "g-" + group, label: label(group) }))),
      { n: percent(busy / all) }];
  });
  const numbers = half.ranks.map((_, r) => {
    const { groups, all } = groupsOf(half, r);
    return [String(r), ...used.map((group) => ({ n: percent(groups[group] / all) }))];
  });
  return el("div", {}, el("h3", {}, titleOf(half)),
      table(["rank", "", { n: "computing" }], rows, "bars shares"),
    details("the numbers", table(["rank", ...used.map((group) => ({ n: GROUPS[group] }))], numbers)));
}

class Step {
  constructor(halves) {
    this.halves = halves;
    this.shown = new Set(halves.length > 2 ? halves.filter((half) => !half.simulated).slice(0, 4) : halves);
    if (halves.length > 1 &&
        Math.max(...halves.map((half) => half.ranks.length)) > 16) this.shown = new Set([halves[0]]);
    if (this.shown.size === 0) this.shown.add(halves[0]);
    this.overlay = false;
    const spans = halves.map((half) => half.span);
    this.ownScales = Math.max(...spans) > 3 * Math.min(...spans);
    this.shares = false;
    this.dim = null;
    this.seen = null;
    this.stage = el("div", { class: "lanes" });
    this.range = el("output", { class: "range-text", "aria-live": "polite" });
    this.thumb = el("i", {});
    this.build();
  }

  build() {
    const names = (half) => (runs.length > 1 ? half.run.number + " " : "") +
        (half.simulated ? "simulated" : "measured");
    this.lanes = [];
    this.choices = this.halves.map((half) => button(names(half), "", () => {
      if (!this.shown.delete(half)) this.shown.add(half);
      if (this.shown.size === 0) this.shown.add(half);
      this.layout();
    }, runs.length > 1 ? half.run.name : "show or hide"));
    this.together = button("Overlay", "false", () => {
      this.overlay = !this.overlay;
      if (this.overlay && this.shown.size !== 2) this.shown = new Set(this.halves.slice(0, 2));
      this.layout();
    }, "both in one row: the first above, the second below");
    this.scales = button("Own scales", "", () => {
      this.ownScales = !this.ownScales;
      this.layout();
    }, "every step as wide as the page, or all at the same scale");
    this.asShares = button("Time shares", "false", () => {
      this.shares = !this.shares;
      this.layout();
    }, "how much of its time each rank spends on what");
    const part = (factor) => () => {
      const { from, to } = this.view, middle = (from + to) / 2, half = ((to - from) / 2) * factor;
      this.move({ from: middle - half, to: middle + half });
    };
    this.zoomTools = el("span", { class: "tools" }, button("\u2212", null, part(1.6), "zoom out (-)"),
        button("+", null, part(1 / 1.6), "zoom in (+)"),
      button("Whole step", null, () => this.move(this.full), "0"), this.range);
    this.track = el("div", { class: "track", "aria-hidden": true }, this.thumb);
    this.hint = el("p", { class: "hint dim" }, "Wheel or ", el("kbd", {}, "+"), el("kbd", {}, "\u2212"),
        " zooms, drag or ", el("kbd", {}, "\u2190"), el("kbd", {}, "\u2192"),
      " moves, double-click or ", el("kbd", {}, "0"), " shows all, ", el("kbd", {}, "Shift"),
          " with arrows goes from action to action.");
    this.node = section("step", "One step of the pipeline", el("div", { class: "tools" },
      this.halves.length > 1 && this.choices, this.halves.length > 1 && [this.together, this.scales],
          this.asShares, el("span", { class: "gap" }), this.zoomTools),
    this.legend(), this.track, this.stage, this.hint);
    this.layout();
    redraws.push(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.stage);
  }

  legend() {
    const shades = {};
    for (const slice of this.halves.flatMap((half) => half.rows.flat())) {
      const { group } = KINDS[slice.kind];
      shades[group] = Math.max(shades[group] || 0, FILLS[group] ? Math.min(slice.chunk, 3) + 1 : 1);
    }
    const many = Object.values(shades).some((n) => n > 1);
    const keys = Object.keys(GROUPS).filter((group) => shades[group] || group === "idle").map((group) => {
      const marks = Array.from({ length: shades[group] || 1 }, (_, i) =>
        el("i", { class: "g-" + group + " key-" + group,
            style: FILLS[group] && "background:" + FILLS[group][i] }));
      const b = button([marks, (FILLS[group] ? group + " " : "") + GROUPS[group]], "false", () => {
        this.dim = this.dim === group ? null : group;
        for (const other of keys) other.setAttribute("aria-pressed",
            String(other === b && this.dim !== null));
        this.draw();
      }, "show only this");
      return b;
    });
    return el("div", { class: "legend" }, keys,
        many && el("span", { class: "dim" }, "one shade for each chunk of a rank"));
  }

  layout() {
    const shown = this.halves.filter((half) => this.shown.has(half));
    this.overlay = this.overlay && shown.length === 2;
    this.choices.forEach((choice, i) =>
        choice.setAttribute("aria-pressed", String(this.shown.has(this.halves[i]))));
    this.together.setAttribute("aria-pressed", String(this.overlay));
    this.asShares.setAttribute("aria-pressed", String(this.shares));
    this.scales.setAttribute("aria-pressed", String(this.ownScales));
    for (const node of [this.zoomTools, this.hint]) node.hidden = this.shares;
    this.together.hidden = this.shares;
    this.scales.hidden = this.shares || this.overlay || shown.length < 2;
    this.full = { from: 0, to: Math.max(...shown.map((half) => half.span)) };
    this.view = this.view && this.view.to <= this.full.to &&
        this.view.to - this.view.from < this.full.to * 0.999 ? this.view : this.full;
    this.seen = null;
    const stretch = (half) => (this.ownScales ? this.full.to / half.span : 1);
    this.lanes = this.shares ? []
      : this.overlay ? [new Lane("above: " + titleOf(shown[0]) + "; below: " + titleOf(shown[1]), shown, this, 1)]
      : shown.map((half) => new Lane(titleOf(half), [half], this, stretch(half)));
    this.stage.replaceChildren(...(this.shares ? [el("div", { class: "two" }, shown.map(shareView))]
        : this.lanes.map((lane) => lane.figure)));
    this.draw();
  }

  draw() {
    for (const lane of this.lanes) lane.draw();
    const { from, to } = this.view, whole = this.full.to;
    const own = this.ownScales && this.lanes.length > 1;
    this.range.textContent = own ? percent(from / whole) + " \u2013 " + percent(to / whole)
        : span(from, 3) + " \u2013 " + span(to, 3);
    this.thumb.style.left = (100 * from) / whole + "%";
    this.thumb.style.width = (100 * (to - from)) / whole + "%";
    this.track.classList.toggle("idle", this.shares || to - from > 0.999 * whole);
  }

  // False when the view stays what it is.
  move({ from, to }) {
    const whole = this.full.to, length = clamp(to - from, whole / 20000, whole);
    const at = clamp(from + (to - from - length) / 2, 0, whole - length);
    const before = this.view;
    if (Math.abs(at - before.from) < 1e-6 * whole &&
        Math.abs(length - (before.to - before.from)) < 1e-6 * length) return false;
    this.view = { from: at, to: at + length };
    this.draw();
    return true;
  }

  see(slice) {
    this.seen = slice;
    for (const lane of this.lanes) lane.draw();
  }
}

function stepSection() {
  const halves = runs.flatMap((run) => [run.measured, run.simulated]).filter(Boolean);
  if (halves.length === 0) return;
  inUnits = halves.every((half) => half.run.isPlan);
  new Step(halves);
}
