// SPDX-License-Identifier: Apache-2.0
// Tables and pictures in and out: CSV as `ppcli plan --format csv` has it, a link that holds the state, SVG and PNG of what is seen.

function saveFile(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function readInto(text, from) {
  try {
    loadPlan(readTable(text), "Read from " + from + ".");
  } catch (error) {
    if (!(error instanceof TableError)) throw error;
    wb.note = "Not read: " + error.message + ".";
    showVerdict();
  }
}

function svgOfView() {
  const width = Math.max(280, parts.board.clientWidth), pen = new SvgPen(width, layOut(wb.rows.length).height, css("--page"));
  drawPicture(pen, pictureOf(width));
  return pen.end();
}

// ---- the link

const packTable = (rows) => encodeURIComponent(rows.map(writeRow).join("/")).replace(/%2C/g, ",").replace(/%2F/g, "/");

function makeLink() {
  const words = ["table=" + packTable(wb.rows), wb.level !== null && "level=" + (wb.level + 1), wb.level === null && wb.cap && "cap=" + wb.cap];
  return "#" + words.filter(Boolean).join("&");
}

function openLink() {
  const words = Object.fromEntries(location.hash.slice(1).split("&").map((word) => word.split("=")));
  if (!words.table) return;
  try {
    const rows = readTable(decodeURIComponent(words.table).replace(/\//g, "\n")), level = Number(words.level) - 1;
    if (LEVELS[level]) startLevel(level, rows);
    else {
      loadPlan(rows, "Read from the link.");
      if (Number(words.cap) >= 0 && Number(words.cap) !== wb.cap) setCap(Number(words.cap));
    }
  } catch (error) {
    if (!(error instanceof TableError) && !(error instanceof URIError)) throw error;
    wb.note = "The link holds no table: " + error.message + ".";
    showVerdict();
  }
}

function setCap(cap) {
  wb.cap = cap > 0 && cap < 1e9 ? cap : 0;
  parts.cap.value = wb.cap || "";
  setRows(wb.rows);
}

function filesSection() {
  const area = el("textarea", { id: "csv", spellcheck: "false", "aria-label": "a table as CSV" });
  const file = el("input", { type: "file", accept: ".csv,text/csv,text/plain", hidden: true, id: "file" });
  file.addEventListener("change", () => file.files[0] && file.files[0].text().then((text) => {
    readInto(text, file.files[0].name);
    file.value = "";
  }));
  parts.cap = el("input", { type: "number", min: 0, step: 0.5, id: "cap", placeholder: "none", value: data.cap || null });
  parts.cap.addEventListener("change", () => setCap(Number(parts.cap.value)));
  const start = el("select", { id: "start", "aria-label": "begin with a known schedule", onchange: () => {
    const known = data.known.find((k) => k.name === start.value);
    if (known) loadPlan(readTable(known.table), "Begun with " + known.name + ".");
    else if (start.value === "plan") loadPlan();
    start.value = "";
  } }, el("option", { value: "" }, "begin with \u2026"), el("option", { value: "plan" }, "the plan"),
  data.known.filter((k) => k.table).map((k) => el("option", { value: k.name }, k.name)));
  const copy = () => {
    location.hash = makeLink();
    wb.note = "The address of this page now holds the table: copy it.";
    showVerdict();
    if (navigator.clipboard) navigator.clipboard.writeText(location.href).catch(() => {});
  };
  const png = () => canvas.toBlob((blob) => saveFile("schedule.png", blob));
  return el("section", { id: "files" }, el("h2", {}, "Files"),
    el("p", {}, "The table is what ", el("code", {}, "ppcli plan --csv mine.csv"), " reads, and what ", el("code", {}, "ppcli train CONFIG --schedule file:mine.csv"), " trains with."),
    el("div", { class: "tools" }, start, el("label", {}, "memory limit (micro-batches a rank)", parts.cap), el("span", { class: "gap" }),
      button("Save CSV", null, () => saveFile("mine.csv", new Blob([writeTable(wb.rows)], { type: "text/csv" }))),
      button("Open CSV", null, () => file.click()), file, button("Link", null, copy),
      button("SVG", null, () => saveFile("schedule.svg", new Blob([svgOfView()], { type: "image/svg+xml" }))), button("PNG", null, png)),
    area, el("div", { class: "tools" }, button("Show the table here", null, () => (area.value = writeTable(wb.rows))),
      button("Read what is written here", null, () => readInto(area.value, "the field"))));
}
