// SPDX-License-Identifier: Apache-2.0
// A result of ppcli bench: the program's own pictures, each with a link to save it, and the rows.

const SWEEP_COLUMNS = [
  ["stages", (x) => count(x)], ["replicas", (x) => count(x)], ["threads", (x) => count(x)], ["schedule", String],
  ["microbatches", (x) => count(x)], ["samples_per_second", (x) => count(x), "samples/s"],
  ["samples_per_second_sd", (x) => count(x), "\u00b1"], ["bubble_ideal", (x) => percent(x), "ideal bubble"],
  ["bubble_measured", (x) => percent(x), "measured"], ["x1", (x) => figures(x, 3), "over one stage"],
  ["check", String], ["waited_for_core", (x) => percent(x), "waited for a core"],
];
const BUSY = 0.02; // of the ranks' time, as PP_BUBBLE_WAITED

function sweepPicture(source, i) {
  const url = "data:image/svg+xml," + encodeURIComponent(source);
  const name = (i % 2 ? "bubble" : "speed") + "-" + (i >> 1) + ".svg";
  return el("figure", {}, el("img", { src: url, alt: source.match(/<title>([^<]*)/)[1], style: "max-width:100%" }),
    el("figcaption", {}, el("a", { href: url, download: name }, "save as SVG")));
}

function sweepSection(sweep, pictures) {
  document.title = text(sweep, "config") + " \u2013 ppcli bench";
  main.append(el("h1", {}, "ppcli bench: " + text(sweep, "model")),
    el("p", { class: "dim" }, text(sweep, "cpu") + ", " + plural(sweep.cores, "core") + ", " + text(sweep, "date")));
  section("curves", "Curves", pictures.length > 0
    ? el("div", { class: "charts" }, pictures.map(sweepPicture))
    : el("p", {}, "The rows do not differ in micro-batches, stages, schedule or replicas."));
  const busy = sweep.rows.filter((row) => row.waited_for_core >= BUSY).length;
  section("rows", "Rows", busy > 0
    ? el("p", { class: "warn" }, "Busy machine: do not trust " + busy + " of " + plural(sweep.rows.length, "row") +
      ", whose ranks waited for a core.") : "", table(SWEEP_COLUMNS.map(([key, , title]) => ({ n: title || key })),
    sweep.rows.map((row) => SWEEP_COLUMNS.map(([key, show]) => ({ n: key in row ? show(row[key]) : NONE })))));
}
