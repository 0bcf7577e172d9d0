// SPDX-License-Identifier: Apache-2.0
// Elements, numbers as people read them, the tooltip, the colours. Text from the data goes into
// the page as text nodes only.

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false)
      node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(3))
    if (child !== null && child !== undefined && child !== false)
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  return node;
}

const el = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const button = (label, pressed, onclick, title) =>
  el("button", { type: "button", "aria-pressed": pressed, onclick, title }, label);

// ---- numbers

const NONE = "\u2013";
const isNumber = (x) => typeof x === "number" && Math.abs(x) < 1e300;
const number = (object, key) => (object && isNumber(object[key]) ? object[key] : NaN);
const text = (object, key) => (object && typeof object[key] === "string" ? object[key] : "");
const last = (list) => list[list.length - 1];

function count(x, decimals = 0) {
  if (!isNumber(x)) return NONE;
  if (Math.abs(x) >= 1e15) return x.toPrecision(3);
  if (Math.abs(x) < 0.5 * 10 ** -decimals) x = 0; // no "-0"
  return x.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

// "0.0477", "1.2e-7"
function figures(x, digits = 4) {
  if (!isNumber(x)) return NONE;
  if (x !== 0 && (Math.abs(x) < 1e-4 || Math.abs(x) >= 1e7)) return x.toExponential(digits - 1);
  return String(Number(x.toPrecision(digits)));
}

const percent = (x, decimals = 1) => (isNumber(x) ? count(100 * x, decimals) + " %" : NONE);

function bytes(x) {
  if (!isNumber(x)) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; x >= 1024 && i < 4; i++) x /= 1024;
  return count(x, i === 0 || x >= 100 ? 0 : 1) + " " + units[i];
}

function duration(x) {
  if (!isNumber(x)) return NONE;
  if (x < 120) return count(x, x < 10 ? 2 : 1) + " s";
  const pad = (n) => String(Math.floor(n) % 60).padStart(2, "0");
  return (x >= 3600 ? Math.floor(x / 3600) + ":" + pad(x / 60) : Math.floor(x / 60)) + ":" + pad(x);
}

// "16.2k" on an axis
function short(x) {
  const size = Math.abs(x);
  const units = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]];
  for (const [from, letter] of units)
    if (size >= from) return figures(x / (letter === "k" ? 1e3 : from), 4) + letter;
  return figures(x, 4);
}

const plural = (n, word) => count(n) + " " + word + (n === 1 ? "" : "s");

// The least of 1, 2, 5 times a power of ten that cuts `length` into at most `most` pieces.
function niceStep(length, most) {
  const power = 10 ** Math.floor(Math.log10(length / most));
  for (const factor of [1, 2, 5]) if (length / (factor * power) <= most) return factor * power;
  return 10 * power;
}

const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

// ---- tooltip

const tip = document.getElementById("tip");

function showTip(x, y, ...children) {
  tip.replaceChildren();
  fill(tip, {}, children);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
  tip.style.left = Math.max(4, left) + "px";
  tip.style.top = clamp(y + 14, 4, Math.max(4, innerHeight - box.height - 8)) + "px";
}

function hideTip() {
  tip.hidden = true;
}

// ---- colours

const redraws = []; // what draws with colours of the theme

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// "auto" is what the system says; paper is light.
const theme = { chosen: "auto", printing: false };
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function applyTheme() {
  const dark = theme.chosen === "auto" ? prefersDark.matches : theme.chosen === "dark";
  const names = { auto: "Auto", light: "Light", dark: "Dark" };
  const switcher = document.getElementById("theme");
  document.documentElement.dataset.theme = dark && !theme.printing ? "dark" : "light";
  switcher.textContent = names[theme.chosen];
  switcher.setAttribute("aria-label", "colours: " + names[theme.chosen]);
  for (const draw of redraws) draw();
}

function startTheme() {
  const print = (on) => () => {
    theme.printing = on;
    applyTheme();
  };
  try {
    const kept = localStorage.getItem("ppcli-theme");
    if (kept === "light" || kept === "dark") theme.chosen = kept;
  } catch (e) { /* a page of a file may have no storage */ }
  document.getElementById("theme").onclick = () => {
    theme.chosen = { auto: "light", light: "dark", dark: "auto" }[theme.chosen];
    try {
      localStorage.setItem("ppcli-theme", theme.chosen);
    } catch (e) { /* as above */ }
    applyTheme();
  };
  prefersDark.addEventListener("change", applyTheme);
  addEventListener("beforeprint", print(true));
  addEventListener("afterprint", print(false));
  applyTheme();
}
