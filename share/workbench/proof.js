// SPDX-License-Identifier: Apache-2.0
// Tables, their proof, and their times: pure functions without a page. The rules and the sentences are those of
// `ppcli plan --csv` (src/sched/csv_shape.c, check.c, ascend.c, lower.c, cycle.c; src/sim/sim.c); a test compares them.
//
// A cell is { type, stage, mb, overlap, column }, type a word of the file: F, I, W, B, R or BW. A row is { cells, line, columns }.

const CELL = /^(\d+)(F|I|W|BW|B|R)(\d+)$/;

class TableError extends Error {}

const cellName = (c) => c.stage + c.type + c.mb;

// ---- reading and writing

function readCell(text, at) {
  const found = CELL.exec(text);
  if (/SEND|RECV/.test(text))
    throw new TableError(at + "'" + text + "': a table with SEND and RECV cells; this page reads computations: ppcli plan --csv FILE --format csv");
  if (!found)
    throw new TableError(at + "'" + text + "' is not a cell: write <stage><type><micro-batch>, as in 0F3, with type F, I, W, B or R, "
      + "or a pair, (0F3;3B1)OVERLAP_F_B");
  return { type: found[2], stage: Number(found[1]), mb: Number(found[3]), overlap: false };
}

function readTable(text) {
  const rows = [];
  text.replace(/\n$/, "").split(/\r?\n/).forEach((lineText, i) => {
    if (lineText.startsWith("#")) return;
    const row = { cells: [], line: i + 1, columns: 0 };
    for (const word of lineText.split(",")) {
      const at = row.line + ":" + ++row.columns + ": ", trimmed = word.trim();
      const pair = /^\(([^;]*);([^)]*)\)OVERLAP_F_B$/.exec(trimmed);
      const cells = (pair ? pair.slice(1) : trimmed ? [trimmed] : []).map((part) => readCell(part, at));
      if (pair && (cells[0].type !== "F" || cells[1].type !== "B"))
        throw new TableError(at + "'" + trimmed + "': a pair is one F and then one B, (<stage>F<micro-batch>;<stage>B<micro-batch>)OVERLAP_F_B");
      if (pair) cells[0].overlap = true;
      for (const c of cells) row.cells.push(Object.assign(c, { column: row.columns }));
    }
    rows.push(row);
  });
  if (rows.length === 0) throw new TableError("1:1: there is no line with cells");
  return rows;
}

// A row of a file that is written from these cells. Marks of pairs that were torn apart go.
function makeRow(cells, line) {
  let columns = 0;
  const placed = cells.map((c, k) => {
    const joined = k > 0 && cells[k - 1].overlap && c.type === "B" && cells[k - 1].type === "F";
    const overlap = c.overlap && c.type === "F" && k + 1 < cells.length && cells[k + 1].type === "B";
    columns += joined ? 0 : 1;
    return { type: c.type, stage: c.stage, mb: c.mb, overlap, column: columns };
  });
  return { cells: placed, line, columns: Math.max(columns, 1) };
}

function writeRow(row) {
  let out = "", open = false;
  for (const c of row.cells) {
    out += (open ? ";" : out ? "," : "") + (c.overlap ? "(" : "") + cellName(c) + (open ? ")OVERLAP_F_B" : "");
    open = c.overlap;
  }
  return out;
}

const writeTable = (rows) => rows.map((row) => (row.text = row.text || writeRow(row) + "\n")).join("");

const crcTable = Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n >>> 0;
});

function crc32(text) {
  let crc = 0xffffffff;
  for (let i = 0; i < text.length; i++) crc = crcTable[(crc ^ text.charCodeAt(i)) & 255] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

// ---- the proof

// What is wrong, at a cell (k: its number in the row, or the row's length for what is missing).
function failAt(t, rank, k, text) {
  const row = t.rows[rank];
  const column = k < row.cells.length ? row.cells[k].column : row.columns + 1;
  return { rank, k, text, where: row.line + ":" + column + ": " };
}

const many = (n, word, ending) => n + " " + word + (n === 1 ? "" : ending);

// The first place of each word; the dialect of 2024 has BW, or W without any I.
function findDialect(t) {
  const first = {};
  t.rows.forEach((row, r) => row.cells.forEach((c, k) => {
    first[c.type] = first[c.type] || { r, k, at: row.line * 2 ** 28 + c.column };
    if (c.overlap) first.pair = first.pair || { r, k };
  }));
  const { BW: bw, I: i } = first;
  if (bw && i) {
    const blamed = bw.at > i.at ? bw : i;
    return failAt(t, blamed.r, blamed.k, "both I and BW cells: I is of the present dialect (I, W, B = both), BW of that of 2024 "
      + "(B, W, BW = both); write the table in one of them");
  }
  if (bw && first.pair)
    return failAt(t, first.pair.r, first.pair.k, "an OVERLAP_F_B pair in a table with BW cells: there were no pairs in the dialect "
      + "of 2024; write BW as B, and B as I");
  t.old = Boolean(bw || (first.W && !i && !first.pair));
  return null;
}

const opOf = (t, type) => (type === "BW" ? "B" : t.old && type === "B" ? "I" : type);
const wordOf = (t, op) => (t.old ? { F: "F", I: "B", W: "W", B: "BW", R: "R" }[op] : op);
const inTable = (t, op, c) => c.stage + wordOf(t, op) + c.mb;

function findEmpty(t) {
  const rank = t.rows.findIndex((row) => row.cells.length === 0);
  return rank < 0 ? null : { rank, k: 0, where: t.rows[rank].line + ":1: ", text: "a line without cells: every rank has a line, and "
    + "something to do; delete the line, or begin it with # if it is a comment" };
}

function findShape(t) {
  let n = 0, stages = 0, mbs = 0;
  t.nVirtual = t.m = 0;
  for (const row of t.rows) for (const c of row.cells) {
    n++;
    stages += c.stage;
    mbs += c.mb;
    t.nVirtual = Math.max(t.nVirtual, c.stage + 1);
    t.m = Math.max(t.m, c.mb + 1);
  }
  if (t.nVirtual * t.m <= n) return null;
  const byStage = (t.nVirtual - 1) / (stages / n + 1) > (t.m - 1) / (mbs / n + 1);
  const r = t.rows.findIndex((row) => row.cells.some((c) => (byStage ? c.stage === t.nVirtual - 1 : c.mb === t.m - 1)));
  const k = t.rows[r].cells.findIndex((c) => (byStage ? c.stage === t.nVirtual - 1 : c.mb === t.m - 1));
  return failAt(t, r, k, cellName(t.rows[r].cells[k]) + ": " + many(t.nVirtual, "stage", "s") + " with " + many(t.m, "micro-batch", "es")
    + " are at least " + 2 * t.nVirtual * t.m + " cells, the table has " + n
    + " of F, I, W and B: stages and micro-batches count from 0 without gaps");
}

// The rank that most cells of a stage are on; every rank holds as many stages.
function findPlaces(t) {
  const votes = new Int32Array(t.nVirtual), held = t.rows.map(() => 0);
  t.rankOf = new Int32Array(t.nVirtual).fill(-1);
  t.rows.forEach((row, r) => row.cells.forEach((c) => {
    if (votes[c.stage] === 0) t.rankOf[c.stage] = r;
    votes[c.stage] += t.rankOf[c.stage] === r ? 1 : -1;
  }));
  for (let r = 0; r < t.rows.length; r++) for (let k = 0; k < t.rows[r].cells.length; k++) {
    const c = t.rows[r].cells[k], home = t.rankOf[c.stage];
    if (home !== r)
      return failAt(t, r, k, cellName(c) + ": there are cells of stage " + c.stage + " on rank " + home + " (line " + t.rows[home].line
        + "): all cells of a stage are on one rank");
  }
  for (let s = 0; s < t.nVirtual; s++) {
    const end = t.rows.length - 1;
    if (t.rankOf[s] < 0)
      return failAt(t, end, t.rows[end].cells.length, "no line has cells of stage " + s + ", and there are stages up to " + (t.nVirtual - 1));
    held[t.rankOf[s]]++;
  }
  t.chunks = held[0];
  const odd = held.findIndex((n) => n !== t.chunks);
  return odd < 0 ? null : failAt(t, odd, 0, "rank " + odd + " holds " + many(held[odd], "stage", "s") + ", rank 0 holds " + t.chunks
    + ": every rank must hold as many as any other");
}

const BIT = { F: 1, I: 2, W: 4, B: 8, R: 16 };

// Cell k of a rank, after those before it.
function checkCell(t, r, k, saw, adds) {
  const { cells } = t.rows[r], c = cells[k], op = opOf(t, c.type), i = c.stage * t.m + c.mb, seen = saw[i];
  const find = (other) => cells.findIndex((x, n) => n !== k && opOf(t, x.type) === other && x.stage === c.stage && x.mb === c.mb);
  const name = (other) => inTable(t, other, c);
  const fail = (text) => failAt(t, r, k, name(op) + text);
  const cell = (other) => " (cell " + cells[find(other)].column + ")";
  const needs = (other) => (find(other) < 0 ? fail(" has no " + name(other) + " on its rank")
    : fail(" comes before its " + name(other) + cell(other)));
  const both = (other) => fail(", but there is " + name(other) + " too" + cell(other) + ": a micro-batch of a stage has one "
    + wordOf(t, "B") + ", or one " + wordOf(t, "I") + " and one " + wordOf(t, "W"));
  if (seen & BIT[op]) return fail(" comes twice, first in cell " + cells[find(op)].column);
  if (op === "B" && seen & (BIT.I | BIT.W)) return both(seen & BIT.I ? "I" : "W");
  if ((op === "I" || op === "W") && seen & BIT.B) return both("B");
  if (op === "W" && !(seen & BIT.I)) return needs("I");
  if (op === "R" && seen & (BIT.I | BIT.B)) {
    const later = seen & BIT.I ? "I" : "B";
    return fail(" comes after its " + name(later) + cell(later) + ", which reads what it makes");
  }
  if (op !== "F" && op !== "W" && !(seen & BIT.F)) return needs("F");
  saw[i] |= BIT[op];
  if (op === "W" || op === "B") {
    t.descends = t.descends || c.mb < adds[c.stage];
    adds[c.stage] = c.mb;
  }
  return null;
}

// What is at the end of a rank's list: nothing of a stage and micro-batch is missing.
function checkComplete(t, r, saw) {
  for (let s = 0; s < t.nVirtual; s++) for (let mb = 0; t.rankOf[s] === r && mb < t.m; mb++) {
    const seen = saw[s * t.m + mb];
    if (seen & (BIT.B | BIT.W)) continue;
    const op = !(seen & BIT.F) ? "F" : seen & BIT.I ? "W" : "B";
    const more = op === "W" ? " for its input gradient" : op === "B" ? ", nor a backward in two cells" : "";
    return failAt(t, r, t.rows[r].cells.length, "stage " + s + " has no " + inTable(t, op, { stage: s, mb }) + more
      + ": there are micro-batches 0.." + (t.m - 1));
  }
  return null;
}

function checkLists(t) {
  const saw = new Uint8Array(t.nVirtual * t.m), adds = new Int32Array(t.nVirtual).fill(-1);
  let missing = null;
  for (let r = 0; r < t.rows.length; r++) {
    for (let k = 0; k < t.rows[r].cells.length; k++) {
      const wrong = checkCell(t, r, k, saw, adds);
      if (wrong) return wrong;
    }
    missing = missing || checkComplete(t, r, saw);
  }
  return missing;
}

// What a row does. Rows do not change, so it is made once.
function listOf(t, row) {
  if (!row.list || row.old !== t.old) {
    row.list = row.cells.map((c, k) => ({ op: opOf(t, c.type), stage: c.stage, mb: c.mb, overlap: c.overlap, k }));
    row.old = t.old;
  }
  return row.list;
}

// What runs: where weight gradients descend, a B before its turn becomes its I, and each W follows when it is its turn.
function ascend(t, cells) {
  const waits = new Set(), next = {}, out = [];
  for (const c of cells) {
    const turn = next[c.stage] || 0, adds = c.op === "W" || c.op === "B";
    if (!adds || c.mb === turn) {
      out.push({ ...c });
      if (adds) {
        next[c.stage] = turn + 1;
        for (; waits.has(c.stage * t.m + next[c.stage]); next[c.stage]++)
          out.push({ op: "W", stage: c.stage, mb: next[c.stage], overlap: false, k: -1 });
      }
      continue;
    }
    waits.add(c.stage * t.m + c.mb);
    if (c.op === "W") continue;
    if (out.length > 0) out[out.length - 1].overlap = false;
    out.push({ ...c, op: "I" });
  }
  return out;
}

// The message that an action waits for, or sends: channel * M + micro-batch; -1: none.
function messageOf(t, a, sends) {
  if (a.op === "W" || a.op === "R") return -1;
  const forward = a.op === "F", up = forward === sends, boundary = up ? a.stage : a.stage - 1;
  return boundary < 0 || boundary >= t.nVirtual - 1 ? -1 : (2 * boundary + (forward ? 0 : 1)) * t.m + a.mb;
}

// A rank takes messages in the order in which they were sent.
function checkOrder(t) {
  const channels = Math.max(0, 2 * (t.nVirtual - 1));
  const order = new Int32Array(channels * t.m), counts = { sent: new Int32Array(channels), taken: new Int32Array(channels) };
  for (let r = 0; r < t.lists.length; r++) for (let k = 0; k < t.lists[r].length; k++) {
    const a = t.lists[r][k];
    for (const sends of [false, true]) {
      const message = messageOf(t, a, sends);
      if (message < 0) continue;
      const channel = Math.floor(message / t.m), mine = sends ? counts.sent : counts.taken, theirs = sends ? counts.taken : counts.sent;
      const n = mine[channel]++, place = channel * t.m + n;
      if (n >= theirs[channel]) order[place] = a.mb;
      else if (order[place] !== a.mb) {
        const from = channel % 2 ? (channel + 1) / 2 : channel / 2, to = channel % 2 ? (channel - 1) / 2 : channel / 2 + 1;
        const other = t.rankOf[sends ? to : from], letter = a.op;
        return { rank: r, k: a.k, where: "", text: "row " + (r + 1) + " cell " + (k + 1) + ": " + a.stage + letter + a.mb + " comes before "
          + a.stage + letter + order[place] + ", but rank " + other + " " + (sends ? "takes" : "sends") + " "
          + (channel % 2 ? "gradient" : "activations") + " " + order[place] + " first; use one order in both rows" };
      }
    }
  }
  return null;
}

// The circle of ranks that wait for each other, from a run that got stuck.
function findCircle(t, sim) {
  const name = (a) => "" + a.stage + a.op + a.mb;
  const owner = (r) => t.chunks === 1 ? "" : " (rank " + r + ")";
  const source = (r) => {
    const message = messageOf(t, t.lists[r][sim.at[r]], false), channel = Math.floor(message / t.m);
    return { message, channel, rank: t.rankOf[channel % 2 ? (channel + 1) / 2 : channel / 2] };
  };
  let r = sim.at.findIndex((k, rank) => k < t.lists[rank].length);
  const first = r, visited = new Set();
  for (; !visited.has(r); r = source(r).rank) visited.add(r);
  const start = r, waits = [];
  do {
    const from = source(r), by = t.lists[from.rank].slice(sim.at[from.rank]).find((a) => messageOf(t, a, true) === from.message);
    waits.push(name(t.lists[r][sim.at[r]]) + owner(r) + " waits for " + (by ? name(by) : "what no cell does") + owner(from.rank));
    r = from.rank;
  } while (r !== start);
  const more = waits.length > 16 ? "; and " + (waits.length - 16) + " more" : "";
  return { rank: first, k: t.lists[start][sim.at[start]].k, circle: start, where: "",
    text: (waits.length > 1 ? "these ranks wait for each other: " : "a rank waits forever: ") + waits.slice(0, 16).join("; ") + more };
}

// "%g"
const general = (x) => String(Number(x.toPrecision(6)));

/*
 * Is a table a legal training step, and how long does it take? rows: of readTable() or makeRow().
 * costs: { f, i, w: [stages], latency, transfer: [channels] or null, overlap }. cap: forwards that a rank may hold, 0: any number.
 * Gives { error: null or { rank, k, where, text }, lists, sim, ... }; sim is also there, as far as it goes, for tables that are wrong.
 */
function judge(rows, costs, cap) {
  const t = { rows, old: false, descends: false, chunks: 0, nVirtual: 0, m: 0, rankOf: null, lists: [], sim: null };
  t.error = findEmpty(t) || findDialect(t) || findShape(t) || findPlaces(t) || checkLists(t);
  t.lists = rows.map((row) => listOf(t, row));
  if (!t.error && t.descends) t.lists = t.lists.map((cells) => ascend(t, cells));
  if (t.nVirtual * t.m > 4e6) return t;
  t.error = t.error || checkOrder(t);
  t.rankOf = t.rankOf || new Int32Array(t.nVirtual);
  t.sim = simulate(t, costs, 0);
  const stuck = t.sim.at.some((k, r) => k < t.lists[r].length);
  if (!t.error && stuck) t.error = findCircle(t, t.sim);
  if (!t.error && costs.overlap > 0) {
    t.sim = simulate(t, costs, costs.overlap);
    const r = t.sim.at.findIndex((k, rank) => k < t.lists[rank].length);
    if (r >= 0)
      t.error = { rank: r, k: t.sim.at[r], where: "", text: "rank " + r + " waits forever in action " + t.sim.at[r]
        + ": an overlapped pair needs a value that only follows from its own result" };
  }
  const full = cap > 0 && !t.error ? t.sim.peak.findIndex((n) => n / t.chunks > cap) : -1;
  if (full >= 0)
    t.error = { rank: full, k: t.sim.peakAt[full], memory: true, where: "", text: "row " + (full + 1) + " holds " + general(t.sim.peak[full] / t.chunks)
      + " micro-batches of activations, --memory-cap allows " + general(cap) };
  return t;
}

// ---- times

// All ranks' lists against each other. A rank runs until it waits for a message; the message wakes it.
function simulate(t, costs, overlap) {
  const p = t.lists.length, messages = Math.max(0, 2 * (t.nVirtual - 1)) * t.m;
  const arrives = new Float64Array(messages).fill(NaN), sender = new Int32Array(messages).fill(-1);
  const rows = (make) => t.lists.map((list) => make(list.length));
  const s = { start: rows((n) => new Float64Array(n).fill(NaN)), end: rows((n) => new Float64Array(n).fill(NaN)),
    from: rows((n) => new Int32Array(n).fill(-1)), live: rows((n) => new Int32Array(n)), at: Array(p).fill(0), now: Array(p).fill(0),
    work: Array(p).fill(0), first: Array(p).fill(0), peak: Array(p).fill(0), peakAt: Array(p).fill(0), makespan: 0 };
  const again = new Uint8Array(t.nVirtual * t.m), waiting = new Int32Array(messages).fill(-1), ready = [], held = Array(p).fill(0);
  for (const list of t.lists) for (const a of list) if (a.op === "R") again[a.stage * t.m + a.mb] = 1;
  const cost = (list, stage) => (stage < list.length ? list[stage] : list[0]);
  const took = (a) => (a.op === "F" || a.op === "R" ? cost(costs.f, a.stage) : a.op === "W" ? cost(costs.w, a.stage)
    : a.op === "I" ? cost(costs.i, a.stage) : cost(costs.i, a.stage) + cost(costs.w, a.stage));
  const input = (r, k, time) => {
    const message = messageOf(t, t.lists[r][k], false);
    if (message < 0) return time;
    if (Number.isNaN(arrives[message])) {
      waiting[message] = r;
      return NaN;
    }
    if (arrives[message] > time) s.from[r][k] = sender[message];
    return arrives[message] > time ? arrives[message] : time;
  };
  const put = (r, k, start, end) => {
    const a = t.lists[r][k], message = messageOf(t, a, true);
    s.start[r][k] = start;
    s.end[r][k] = end;
    if (k === 0) s.first[r] = start;
    if (message >= 0) {
      const channel = Math.floor(message / t.m), to = t.rankOf[channel % 2 ? (channel - 1) / 2 : channel / 2 + 1];
      arrives[message] = to === r ? end : end + (costs.latency + (costs.transfer ? costs.transfer[channel] || 0 : 0));
      sender[message] = r * 2 ** 20 + k;
      if (waiting[message] >= 0) ready.push(waiting[message]);
      waiting[message] = -1;
    }
    held[r] += a.op === "F" || a.op === "R" ? 1 : 0;
    if (held[r] > s.peak[r]) {
      s.peak[r] = held[r];
      s.peakAt[r] = k;
    }
    s.live[r][k] = held[r];
    held[r] -= a.op === "W" || a.op === "B" || (a.op === "F" && again[a.stage * t.m + a.mb]) ? 1 : 0;
  };
  for (let r = p - 1; r >= 0; r--) ready.push(r);
  while (ready.length > 0) {
    const r = ready.pop(), list = t.lists[r];
    while (s.at[r] < list.length) {
      const k = s.at[r], pair = overlap > 0 && list[k].overlap && k + 1 < list.length;
      let start = input(r, k, s.now[r]);
      if (pair && !Number.isNaN(start)) start = input(r, k + 1, start);
      if (Number.isNaN(start)) break;
      const time = pair ? (took(list[k]) + took(list[k + 1])) * overlap : took(list[k]);
      for (let n = 0; n < (pair ? 2 : 1); n++) put(r, k + n, start, start + time);
      s.work[r] += time;
      s.now[r] = start + time;
      s.at[r] += pair ? 2 : 1;
    }
  }
  s.makespan = Math.max(0, ...s.now);
  s.span = Math.max(0, ...s.now.map((end, r) => end - s.first[r]));
  s.bubble = s.makespan > 0 ? 1 - s.work.reduce((sum, x) => sum + x, 0) / (s.makespan * p) : 0;
  return s;
}

// The chain of actions that the step cannot be shorter than: [rank, k] from the last one to the first.
function criticalPath(t) {
  const path = [];
  let r = t.sim.now.indexOf(t.sim.makespan), k = r < 0 ? -1 : t.sim.at[r] - 1;
  while (k >= 0) {
    path.push([r, k]);
    const from = t.sim.from[r][k];
    if (from >= 0) [r, k] = [Math.floor(from / 2 ** 20), from % 2 ** 20];
    else k--;
  }
  return path;
}

// Why a rank computes nothing before its action k; k past the end: after its last one.
function whyIdle(t, r, k) {
  const list = t.lists[r], full = (a) => a.stage + a.op + a.mb;
  if (k >= list.length) {
    if (t.sim.at.some((n, q) => n < t.lists[q].length)) return "";
    const end = t.sim.now.indexOf(t.sim.makespan);
    return "done; the step ends with " + full(t.lists[end][t.lists[end].length - 1]) + " of rank " + end;
  }
  const message = messageOf(t, list[k], false), from = t.sim.from[r][k];
  if (k >= t.sim.at[r]) {
    const channel = Math.floor(message / t.m), stage = channel % 2 ? (channel + 1) / 2 : channel / 2;
    return full(list[k]) + " waits for the " + (channel % 2 ? "gradient" : "activations") + " of micro-batch " + (message % t.m)
      + " from stage " + stage + " on rank " + t.rankOf[stage] + (channel % 2 ? ", which never comes" : ", which never come");
  }
  if (from < 0) return "";
  const q = Math.floor(from / 2 ** 20), n = from % 2 ** 20, before = k > 0 ? t.sim.end[r][k - 1] : 0;
  const late = t.sim.end[q][n] <= before ? ", which is under way" : "";
  return full(list[k]) + " waits for " + full(t.lists[q][n]) + " of rank " + q + late;
}
