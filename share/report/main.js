// SPDX-License-Identifier: Apache-2.0
startTheme();
if (data.sweep) {
  sweepSection(data.sweep, data.pictures);
} else {
  inUnits = runs.every((run) => run.isPlan);
  if (runs.length > 1) {
    compared();
  } else {
    document.title = runs[0].name + " \u2013 ppcli report";
    if (data.machine) machineSection(data.machine);
    answer(runs[0]);
  }
  if (data.test) testSection(data.test);
  curvesSection();
  stepSection();
  ranksSection();
  if (runs.length === 1) {
    configSection(runs[0]);
    environmentSection(runs[0]);
  }
}
main.append(el("footer", { class: "dim" }, "Written by ppcli " + data.ppcli + ", " + data.written + "."));
