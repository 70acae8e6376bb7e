// Source text: lines with numbers, Python's words in colour, and the difference of two texts.
import { el } from "/dom.js";

const WORDS = new Set(("False None True and as assert async await break class continue def del elif else except finally for from global if import in is " +
  "lambda nonlocal not or pass raise return try while with yield").split(" "));
// Strings (with the three-quoted ones), comments, decorators, names, numbers; each alternative walks forward only.
const TOKEN = /("""|''')|("(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)|(#.*)|(@[\w.]+)|([A-Za-z_]\w*)|(\d[\w.]*)/g;

// Python's text as lines of [className, text]; a string with three quotes goes on over lines.
function tokens(text) {
  let quote = null;
  return text.split("\n").map((line) => {
    const parts = [];
    let at = 0;
    const put = (to, kind) => { if (to > at) parts.push([kind, line.slice(at, to)]); at = Math.max(at, to); };
    while (at < line.length) {
      if (quote) {
        const end = line.indexOf(quote, at);
        put(end < 0 ? line.length : end + 3, "string");
        if (end >= 0) quote = null;
        continue;
      }
      TOKEN.lastIndex = at;
      const found = TOKEN.exec(line);
      if (!found) break;
      put(found.index, "");
      if (found[1]) { // its closing quotes may stand on the same line
        const end = line.indexOf(found[1], found.index + 3);
        put(end < 0 ? line.length : end + 3, "string");
        quote = end < 0 ? found[1] : null;
      } else {
        const kind = found[2] ? "string" : found[3] ? "comment" : found[4] ? "decorator" : found[5] ? (WORDS.has(found[5]) ? "word" : "") : "figure";
        put(found.index + found[0].length, kind);
      }
    }
    put(line.length, quote ? "string" : "");
    return parts;
  });
}

const PAINT_MAX = 200000; // characters: beyond that the text stays plain

export function painted(text) {
  const lines = text.length > PAINT_MAX ? text.split("\n").map((line) => [["", line]]) : tokens(text);
  return lines.map((parts) => parts.map(([kind, part]) => (kind ? el("span", { class: "py-" + kind, text: part }) : document.createTextNode(part))));
}

// The text with its line numbers; marked: {line, text} is shown below that line.
export function sourceView(text, marked) {
  const rows = painted(text.replace(/\n$/, "")).map((parts, i) => {
    const isMarked = marked && marked.line === i + 1;
    return [
      el("tr", { class: isMarked ? "marked" : null, id: "L" + (i + 1) }, el("td", { class: "n", "data-n": i + 1 }), el("td", {}, el("code", {}, parts))),
      isMarked && el("tr", { class: "marked why" }, el("td", { class: "n" }), el("td", {}, el("code", { text: marked.text }))),
    ];
  });
  return el("div", { class: "scroll source", tabindex: "0", role: "region", "aria-label": "Source", "data-key": "source" },
    el("table", { role: "presentation" }, el("tbody", {}, rows)));
}

const DIFF_CELLS = 4e6;

// Lines of a and b as [kind, line of a, line of b, text]: "same", "gone", "new". The longest common subsequence, without
// the equal lines at both ends; texts too large for that are shown as replaced whole.
export function diff(a, b) {
  const x = a.trimEnd().split("\n"), y = b.trimEnd().split("\n");
  let head = 0, tail = 0;
  while (head < x.length && head < y.length && x[head] === y[head]) head++;
  while (tail < x.length - head && tail < y.length - head && x[x.length - 1 - tail] === y[y.length - 1 - tail]) tail++;
  const n = x.length - head - tail, m = y.length - head - tail;
  const out = [];
  const same = (i, j) => out.push(["same", i, j, x[i]]);
  for (let i = 0; i < head; i++) same(i, i);
  let i = 0, j = 0;
  if (n * m <= DIFF_CELLS) {
    const wide = m + 1;
    const best = new Uint32Array((n + 1) * wide);
    for (let r = n - 1; r >= 0; r--)
      for (let c = m - 1; c >= 0; c--)
        best[r * wide + c] = x[head + r] === y[head + c] ? best[(r + 1) * wide + c + 1] + 1 : Math.max(best[(r + 1) * wide + c], best[r * wide + c + 1]);
    while (i < n && j < m) {
      if (x[head + i] === y[head + j]) same(head + i++, head + j++);
      else if (best[(i + 1) * wide + j] >= best[i * wide + j + 1]) out.push(["gone", head + i, null, x[head + i++]]);
      else out.push(["new", null, head + j, y[head + j++]]);
    }
  }
  for (; i < n; i++) out.push(["gone", head + i, null, x[head + i]]);
  for (; j < m; j++) out.push(["new", null, head + j, y[head + j]]);
  for (let k = tail; k > 0; k--) same(x.length - k, y.length - k);
  return out;
}

const AROUND = 3;

// The difference as a table; equal lines far from any change are folded.
export function diffView(a, b, caption) {
  const rows = diff(a, b);
  const near = new Uint8Array(rows.length);
  rows.forEach(([kind], i) => { if (kind !== "same") near.fill(1, Math.max(0, i - AROUND), i + AROUND + 1); });
  const shown = [];
  rows.forEach(([kind, i, j, text], at) => {
    if (!near[at]) {
      if (at === 0 || near[at - 1]) shown.push(el("tr", { class: "fold" }, el("td", { class: "n" }), el("td", { class: "n" }), el("td", { text: "⋯" })));
      return;
    }
    const sign = kind === "gone" ? "− " : kind === "new" ? "+ " : "  ";
    shown.push(el("tr", { class: kind }, el("td", { class: "n", "data-n": i === null ? "" : i + 1 }), el("td", { class: "n", "data-n": j === null ? "" : j + 1 }),
      el("td", {}, el("code", { text: sign + text }))));
  });
  if (!rows.some(([kind]) => kind !== "same")) return el("p", { class: "card dim", text: "The same text." });
  return el("div", { class: "scroll source", tabindex: "0", role: "region", "aria-label": caption, "data-key": caption }, el("table", { role: "presentation" }, el("tbody", {}, shown)));
}
