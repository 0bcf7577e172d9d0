// SPDX-License-Identifier: Apache-2.0
// Eight small tables to improve by hand. F, I and W of a rank take 1 each, a chunk takes its share, transfers take nothing. A level
// is solved by any legal table that keeps its goals: { time, span (longest from the first to the last action of a rank) } and cap.

const whole = (stage, m) => Array.from({ length: m }, (_, mb) => stage + "F" + mb);
const back = (stage, m) => Array.from({ length: m }, (_, mb) => stage + "B" + mb);
const perRank = (p, row) => Array.from({ length: p }, (_, r) => row(r).join(",")).join("\n");
const allForwards = (p, m) => perRank(p, (r) => [...whole(r, m), ...back(r, m)]);
const oneAhead = (p, m, split) => perRank(p, (r) => {
  const ahead = Math.min(m, p - 1 - r), out = whole(r, ahead);
  for (let k = ahead; k < m + ahead; k++) {
    if (k < m) out.push(r + "F" + k);
    out.push(...(split ? [r + "I" + (k - ahead), r + "W" + (k - ahead)] : [r + "B" + (k - ahead)]));
  }
  return out;
});

const LEVELS = [
  { name: "GPipe", stages: 3, chunks: 1, m: 4, cap: 0, time: 18, par: "gpipe",
    start: perRank(3, (r) => [0, 1, 2, 3].flatMap((mb) => [r + "F" + mb, r + "B" + mb])),
    text: "One micro-batch at a time: two of three ranks always wait. Let them work on different micro-batches.",
    help: ["Rank 0 could compute its next forward while rank 1 works on the first one.",
      "On each rank, drag every forward to the left of every backward.",
      "Each row becomes F0 F1 F2 F3 B0 B1 B2 B3: all forwards, then all backwards."] },
  { name: "Memory wall", stages: 3, chunks: 1, m: 4, cap: 2, time: 24, par: "1f1b with two in flight",
    start: allForwards(3, 4),
    text: "A rank may hold the activations of two micro-batches; this table holds four.",
    help: ["A forward takes memory, and the backward of the same micro-batch gives it back.",
      "Before its third forward a rank needs a backward: drag B0 to the left of F2.",
      "Ranks 0 and 1: F0 F1 B0 F2 B1 F3 B2 B3. Rank 2: F0 B0 F1 B1 F2 B2 F3 B3."] },
  { name: "1F1B", stages: 4, chunks: 1, m: 6, cap: 4, time: 27, par: "1f1b",
    start: allForwards(4, 6),
    text: "As fast as GPipe, with no more than four micro-batches in memory.",
    help: ["The last rank can start a backward as soon as it has its forward.",
      "Rank r computes 3 - r forwards first. From there on one forward and one backward take turns.",
      "Rank 3: F0 B0 F1 B1 \u2026; rank 2: F0 F1 B0 F2 B1 \u2026; rank 0: F0 F1 F2 F3 B0 F4 B1 F5 B2 \u2026"] },
  { name: "Interleaved", stages: 2, chunks: 2, m: 4, cap: 2.5, time: 13.5, par: "interleaved",
    start: perRank(2, (r) => [...whole(r, 4), ...whole(r + 2, 4), ...back(r + 2, 4), ...back(r, 4)]),
    text: "Two chunks a rank: rank 0 has stages 0 and 2, rank 1 has 1 and 3. Keep the short bubble, and hold 2.5 micro-batches at most.",
    help: ["Take two micro-batches through both chunks of a rank before the next two begin.",
      "The order in which a rank sends must be the order in which the other one takes: change both rows alike.",
      "Rank 0: 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3. Rank 1: 1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3."] },
  { name: "B = 2F", stages: 3, chunks: 1, m: 4, cap: 3, time: 16, par: "1f1b with split backwards",
    start: oneAhead(3, 4),
    text: "A backward takes as long as two forwards, because it is two products: the input gradient I, for which the rank before waits, and the "
      + "weight gradient W, for which no rank waits.",
    help: ["A B sends its gradient at its end, an I at its own end, which is earlier.",
      "Select a B and press S: it becomes I and W.",
      "Split every B of ranks 1 and 2; no action needs to move."] },
  { name: "ZB-H1", stages: 3, chunks: 1, m: 5, cap: 3, time: 17, par: "zb-h1",
    start: oneAhead(3, 5, true),
    text: "Weight gradients can fill gaps. Bring the step down to 17 with the memory of 1F1B.",
    help: ["A W that stands between two I delays the next I: the ranks before wait for it.",
      "Let W wait: on rank 2 the first W comes after I2, on rank 1 after I1. What is left comes at the end.",
      "Rank 2: F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 F4 I4 W2 W3 W4. Rank 1: F0 F1 I0 F2 I1 W0 F3 I2 W1 F4 I3 W2 I4 W3 W4."] },
  { name: "ZB-H2", stages: 3, chunks: 1, m: 6, cap: 5, span: 18, best: 20, par: "zb-h2",
    start: oneAhead(3, 6, true),
    text: "With room for five micro-batches no rank needs to wait between its first and its last action: each is done 18 after it began.",
    help: ["Rank 0 waits for its first gradient; more forwards fill that time.",
      "Rank r computes 2(2 - r) more forwards before its first I, and as many W wait longer.",
      "Rank 0: F0 F1 F2 F3 F4 I0 W0 F5 I1 W1 \u2026; rank 1: F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 W1 I4 W2 I5 W3 W4 W5; "
        + "rank 2: F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 \u2026"] },
  { name: "V", stages: 2, chunks: 2, m: 4, cap: 2, time: 12.5, par: "zb-v",
    start: [[0, 3], [1, 2]].map(([near, far]) => [...whole(near, 4), ...whole(far, 4), ...back(far, 4), ...back(near, 4)].join(",")).join("\n"),
    text: "The model goes down the ranks and up again: rank 0 has stages 0 and 3, rank 1 has 1 and 2. Reach 12.5 with two micro-batches in memory.",
    help: ["Stages 1 and 2 are on one rank: between them nothing travels. Rank 0 gets its first micro-batch back early.",
      "Split the backwards (S). Rank 0 begins with 0F0 0F1 0F2 3F0, rank 1 with 1F0 2F0 1F1 2F1.",
      "Rank 0: 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3. Rank 1: 1F0 2F0 1F1 2F1 2I0 2W0 "
        + "1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3."] },
];

// Schedules that a level's table may be, by the checksum of `ppcli plan --format csv`, a level each.
const LEVEL_KNOWN = { 0: ["gpipe", 2841552611], 2: ["1f1b", 3294785089], 3: ["interleaved", 3307739054], 4: ["1f1b", 3680310088],
  5: ["zb-h1", 2095783814], 6: ["zb-h2", 1251943766], 7: ["zb-v", 2919255261] };

function levelSolved() {
  const level = wb.level === null ? null : LEVELS[wb.level], { t } = wb;
  return Boolean(level && !t.error && t.rows.length === level.stages && t.m === level.m && t.chunks === level.chunks
    && (!level.cap || Math.max(...t.sim.peak) / t.chunks <= level.cap) && (!level.time || t.sim.makespan <= level.time + 1e-9) && (!level.span || t.sim.span <= level.span + 1e-9));
}

function startLevel(number, rows) {
  const level = LEVELS[number], n = level.stages * level.chunks, each = Array(n).fill(1 / level.chunks), target = LEVEL_KNOWN[number];
  parts.helped = 0;
  load(rows || readTable(level.start), { level: number, cap: level.cap, costs: { f: each, i: each, w: each, latency: 0, transfer: null, overlap: 0 },
    known: [{ name: level.par, crc: -1, makespan: level.time || level.best, peak: 0 },
      target && { name: target[0], crc: target[1], makespan: Infinity, peak: 0 }].filter(Boolean), note: "" });
}

function showLevel() {
  const level = wb.level === null ? null : LEVELS[wb.level];
  parts.levels.forEach((b, i) => b.setAttribute("aria-pressed", i === wb.level));
  parts.task.replaceChildren();
  parts.task.className = level ? "note" : "";
  if (!level) return;
  const goal = [level.time && "a step of at most " + figures(level.time), level.span && "every rank done " + figures(level.span) + " after it began",
    level.cap && "at most " + figures(level.cap) + " micro-batches held by a rank"].filter(Boolean).join(", ");
  const more = () => {
    parts.helped++;
    showLevel();
  };
  fill(parts.task, {}, [el("h3", {}, "Level " + (wb.level + 1) + ": " + level.name), el("p", {}, level.text), el("p", {}, el("b", {}, "Goal: "), goal + "."),
    level.help.slice(0, parts.helped).map((words, i) => el("p", { class: "help" }, "Help " + (i + 1) + ": " + words)),
    el("div", { class: "tools" }, parts.helped < 3 && button("Help " + (parts.helped + 1) + " of 3", null, more),
      button("Start over", null, () => startLevel(wb.level)),
      levelSolved() && wb.level + 1 < LEVELS.length && button("Next level", null, () => startLevel(wb.level + 1)))]);
}

function levelsSection() {
  parts.helped = 0;
  parts.levels = LEVELS.map((level, i) => button(i + 1 + " " + level.name, false, () => {
    startLevel(i);
    document.getElementById("edit").scrollIntoView();
  }));
  return el("section", { id: "levels" }, el("h2", {}, "Levels"),
    el("p", { class: "dim" }, "Eight tables to improve by hand. The plan is not changed."), el("div", { class: "levels" }, parts.levels,
    button("Back to the plan", null, () => loadPlan(null))));
}
