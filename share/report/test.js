// SPDX-License-Identifier: Apache-2.0
// What the test shows beyond its mean: the confusion matrix, calibration, classes, and the worst mistakes.

function shade(node, share, variable) {
  node.style.background = share > 0 ? `color-mix(in srgb, var(${variable}) ${Math.round(12 + 58 * share)}%, var(--page))` : "";
}

function matrixOf(test) {
  const names = test.classes.map((c) => c.name);
  const at = new Map(names.map((name, i) => [name, i]));
  const counts = names.map(() => names.map(() => 0));
  test.classes.forEach((c, i) => { counts[i][i] = Math.round((c.recall || 0) * c.samples); });
  for (const pair of test.confused) counts[at.get(pair.label)][at.get(pair.prediction)] = pair.samples;
  return el("div", { class: "scroll" }, el("table", { class: "matrix" },
    el("thead", {}, el("tr", {}, el("th", {}, "true \\ predicted"), names.map((name) => el("th", {}, name)))),
    el("tbody", {}, counts.map((row, i) => el("tr", {}, el("th", {}, names[i]), row.map((n, k) => {
      const cell = el("td", { title: names[i] + " predicted as " + names[k] }, count(n));
      shade(cell, n / Math.max(1, test.classes[i].samples), i === k ? "--c2" : "--bad");
      return cell;
    }))))));
}

function reliability(test) {
  const W = 320, H = 250, left = 40, bottom = 32, top = 8;
  const x = (v) => left + v * (W - left - 8), y = (v) => H - bottom - v * (H - bottom - top);
  const most = Math.max(1, ...test.calibration.map((b) => b.samples));
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return el("figure", {}, el("figcaption", {}, "Calibration: error " + percent(test.calibration_error, 2)),
    svg("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, style: "max-width: 420px", role: "img",
      "aria-label": "accuracy over probability" },
    ticks.map((t) => [svg("line", { class: "grid", x1: x(0), x2: x(1), y1: y(t), y2: y(t) }),
      svg("text", { class: "end", x: left - 5, y: y(t) + 4 }, percent(t, 0)),
      svg("text", { class: "mid", x: x(t), y: H - bottom + 15 }, percent(t, 0))]),
    svg("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), stroke: "var(--dim)", "stroke-dasharray": "4 4" }),
    test.calibration.map((b, i) => b.samples > 0 && svg("rect", { x: x(i / 10) + 2, width: x(0.1) - x(0) - 4,
      y: y(b.accuracy), height: y(0) - y(b.accuracy), fill: "var(--c0)",
      opacity: 0.35 + 0.6 * Math.sqrt(b.samples / most) },
      svg("title", {}, plural(b.samples, "sample") + ": probability " + percent(b.probability) + ", accuracy " +
        percent(b.accuracy)))),
    svg("text", { class: "mid", x: (left + W) / 2, y: H - 2 }, "probability of the prediction")),
    el("p", { class: "dim hint" }, "Bars: the accuracy of predictions with such a probability; pale ones have few samples."));
}

function pictureOf(shown) {
  const { width, height, channels, pixels } = shown;
  const canvas = el("canvas", { width, height });
  const image = canvas.getContext("2d").createImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) {
      const at = 2 * (i * channels + (channels === 3 ? c : 0));
      image.data[4 * i + c] = parseInt(pixels.slice(at, at + 2), 16);
    }
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function shownOf(shown) {
  if (!shown) return null;
  if (shown.pixels) return pictureOf(shown);
  if (shown.text !== undefined) return el("p", {}, el("code", {}, shown.text));
  return el("ul", {}, shown.row.map(([name, value]) =>
    el("li", {}, name + ": " + (typeof value === "number" ? figures(value, 5) : value))));
}

function mistakeOf(test, mistake) {
  const numbers = (test.outputs || []).map((o, i) => el("p", {}, o.name + ": ", el("b", {}, figures(mistake.predictions[i], 5)),
    ", true " + figures(mistake.targets[i], 5)));
  return el("div", {}, shownOf(mistake.shown),
    test.outputs ? numbers : [el("p", {}, el("b", {}, mistake.prediction), " (" + percent(mistake.probability) + ")"),
      el("p", {}, "true: ", el("b", {}, mistake.label))],
    el("p", { class: "dim" }, "test sample " + (mistake.sample + 1)));
}

function classTable(test) {
  const share = (x) => ({ n: isNumber(x) ? count(x, 4) : NONE });
  return table(["class", { n: "precision" }, { n: "recall" }, { n: "F1" }, { n: "samples" }],
    test.classes.map((c) => [c.name, share(c.precision), share(c.recall), share(c.f1), { n: count(c.samples) }]));
}

function outputTable(test) {
  const yes = test.threshold !== undefined;
  const keys = yes ? ["precision", "recall", "f1"] : ["r2", "mae", "rmse"];
  return table(["target", ...(yes ? ["precision", "recall", "F1"] : ["R2", "mean absolute error",
    "root mean squared error"]).map((n) => ({ n }))],
    test.outputs.map((o) => [o.name, ...keys.map((key) => ({ n: figures(o[key], 5) }))]));
}

function testSection(test) {
  const parts = [];
  if (test.classes) {
    parts.push(el("p", {}, "The accuracy is between " + percent(test.accuracy_interval[0], 2) + " and " +
      percent(test.accuracy_interval[1], 2) + " with 95 % confidence" +
      (isNumber(test.top5_accuracy) ? "; the class is among the first five of " + percent(test.top5_accuracy, 2) : "") +
      "."));
    const small = test.classes.length <= 20;
    if (small) parts.push(matrixOf(test));
    else parts.push(table(["true class", "predicted", { n: "samples" }], test.confused.slice(0, 15).map((pair) =>
      [pair.label, pair.prediction, { n: count(pair.samples) }])));
    parts.push(el("div", { class: "charts" }, reliability(test),
      small ? classTable(test) : details("the classes", classTable(test))));
  } else {
    parts.push(outputTable(test));
  }
  if (test.mistakes.length > 0)
    parts.push(el("h3", {}, "The worst mistakes"), el("div", { class: "mistakes" },
      test.mistakes.map((mistake) => mistakeOf(test, mistake))));
  section("test", "What the test shows", ...parts);
}
