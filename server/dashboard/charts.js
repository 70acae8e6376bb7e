// Charts in SVG, drawn by hand: bars by time, a line with its band, a step line, a histogram, strips of samples. Each
// has a name for users who cannot see it, and the pages show its figures in a table, too.
import { clockTime, el, isNumber, plain, svg } from "/dom.js";

const LEFT = 44;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;

// As wide as the page when it is drawn, so that a unit is about a pixel; it shrinks and grows with its box from there.
let WIDE = 720;
function measure() {
  const main = document.getElementById("main");
  WIDE = Math.min(1140, Math.max(300, (main ? main.clientWidth : 720) - 76));
}

// A round number at or above the greatest value, for the end of an axis.
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.999999);
}

function frame(label, height, body, kind = "") {
  return svg("svg", { viewBox: `0 0 ${WIDE} ${height}`, role: "img", "aria-label": label, class: "chart " + kind }, body);
}

function axis(height, top, format, steps = 2) {
  const lines = [];
  for (let i = 0; i <= steps; i++) {
    const y = TOP + (height - TOP - BOTTOM) * (1 - i / steps);
    lines.push(svg("line", { class: "grid", x1: LEFT, x2: WIDE - RIGHT, y1: y, y2: y }),
      svg("text", { class: "tick end", x: LEFT - 6, y: y + 4, text: format((top * i) / steps) }));
  }
  return lines;
}

// The times at the ends and the middle, as long as the window asks for.
function timeAxis(height, steps, stepS) {
  const show = (text) => (stepS >= 21600 ? text.slice(5, 10) : text.slice(11, 16));
  const last = steps.length - 1;
  return [[0, "start"], [last >> 1, "middle"], [last, "finish"]].filter(([i], k, all) => k === 0 || i !== all[k - 1][0])
    .map(([i, anchor]) => svg("text", { class: "tick " + anchor, x: xOf(i + (anchor === "start" ? 0 : anchor === "finish" ? 1 : 0.5), steps.length),
      y: height - 5, text: show(steps[i].start) }));
}

const xOf = (i, n) => LEFT + ((WIDE - LEFT - RIGHT) * i) / n;

// Stacked bars, one for each step. series: [{name, className, value(step)}], from the bottom up.
export function stackedBars(label, steps, stepS, series, { height = 150, format = plain, whole = 0 } = {}) {
  measure();
  const most = whole || roundUp(Math.max(...steps.map((step) => series.reduce((sum, one) => sum + one.value(step), 0)), 0));
  const room = height - TOP - BOTTOM;
  const gap = steps.length * 4 > WIDE ? 0.5 : 2;
  const bars = steps.map((step, i) => {
    let y = TOP + room;
    const parts = series.map((one) => {
      const h = (room * one.value(step)) / most;
      y -= h;
      return h > 0 && svg("rect", { class: one.className, x: xOf(i, steps.length) + gap / 2, y, width: Math.max(0.5, xOf(1, steps.length) - LEFT - gap), height: h });
    });
    const told = series.map((one) => one.name + " " + format(one.value(step))).join(", ");
    return svg("g", {}, svg("title", { text: clockTime(step.start) + ": " + told }), parts);
  });
  return frame(label, height, [axis(height, most, format), bars, timeAxis(height, steps, stepS)]);
}

// A line with a band around it; steps without a value are gaps.
export function bandLine(label, steps, stepS, { value, lo, hi, top, least = 0, height = 150, format = plain, className = "" }) {
  measure();
  const room = height - TOP - BOTTOM;
  const most = top || roundUp(Math.max(...steps.map((s) => (isNumber(hi ? hi(s) : value(s)) ? (hi ? hi(s) : value(s)) : 0)), 0));
  const y = (v) => TOP + room * (1 - Math.min(1, Math.max(0, (v - least) / (most - least))));
  const x = (i) => xOf(i + 0.5, steps.length);
  const runs = [];
  steps.forEach((step, i) => {
    if (!isNumber(value(step))) return;
    const run = runs.at(-1);
    if (run && run.at(-1) === i - 1) run.push(i);
    else runs.push([i]);
  });
  const body = runs.map((run) => [
    lo && svg("path", { class: "band " + className, d: "M" + [...run.map((i) => x(i) + "," + y(hi(steps[i]))), ...run.toReversed().map((i) => x(i) + "," + y(lo(steps[i])))].join("L") + "Z" }),
    run.length > 1 ? svg("path", { class: "line " + className, d: "M" + run.map((i) => x(i) + "," + y(value(steps[i]))).join("L") })
      : svg("circle", { class: "dot " + className, cx: x(run[0]), cy: y(value(steps[run[0]])), r: 2.5 }),
  ]);
  const hover = steps.map((step, i) => svg("rect", { class: "hover", x: xOf(i, steps.length), y: TOP, width: xOf(1, steps.length) - LEFT, height: room },
    svg("title", { text: clockTime(step.start) + ": " + (isNumber(value(step)) ? format(value(step)) : "none") })));
  const told = (v) => format(least + (v / most) * (most - least)); // of the axis, which begins at 0
  return frame(label, height, [axis(height, most, told), body, hover, timeAxis(height, steps, stepS)]);
}

// Lines over numbered steps; series: [{name, className, points: [[step, value], …]}]. A point without a value is left out.
export function lines(label, series, { top, height = 170, format = plain } = {}) {
  measure();
  const wide = Math.min(WIDE, 560);
  const kept = series.map((one) => ({ ...one, points: one.points.filter(([, value]) => isNumber(value)) }));
  const every = kept.flatMap((one) => one.points);
  const first = Math.min(...every.map(([step]) => step)), last = Math.max(...every.map(([step]) => step));
  const most = top || roundUp(Math.max(...every.map(([, value]) => value), 0));
  const least = Math.min(0, ...every.map(([, value]) => value));
  const room = height - TOP - BOTTOM;
  const x = (step) => LEFT + ((wide - LEFT - RIGHT) * (step - first)) / Math.max(1, last - first);
  const y = (value) => TOP + room * (1 - (Math.min(most, value) - least) / (most - least));
  const grid = [0, 0.5, 1].map((part) => { const value = least + part * (most - least); return [
    svg("line", { class: "grid", x1: LEFT, x2: wide - RIGHT, y1: y(value), y2: y(value) }), svg("text", { class: "tick end", x: LEFT - 6, y: y(value) + 4, text: format(value) })]; });
  const drawn = kept.map((one) => svg("g", { class: one.className },
    one.points.length > 1 && svg("path", { class: "line", d: "M" + one.points.map(([step, value]) => x(step) + "," + y(value)).join("L") }),
    one.points.length <= 60 && one.points.map(([step, value]) => svg("circle", { class: "dot", cx: x(step), cy: y(value), r: 2.5 }, svg("title", { text: `${one.name}, step ${step}: ${format(value)}` })))));
  const ends = [[first, "start"], ...(last > first ? [[last, "finish"]] : [])].map(([step, anchor]) => svg("text", { class: "tick " + anchor, x: x(step), y: height - 5, text: "step " + step }));
  return svg("svg", { viewBox: `0 0 ${wide} ${height}`, role: "img", "aria-label": label, class: "chart" }, grid, drawn, ends);
}

// A table of shades from 0 to 1; rows: [{name, key, isChosen, cells: [{shade, told} or null]}]. A row's name is a button.
export function heatMap(label, what, steps, rows, pick) {
  const cell = (row) => (one, i) => el("td", { class: one ? null : "none", title: one ? `${row.name}, step ${steps[i]}: ${one.told}` : null,
    style: one ? { backgroundColor: `color-mix(in srgb, var(--good) ${Math.round(100 * Math.min(1, Math.max(0, one.shade)))}%, var(--bad))` } : null },
  el("span", { class: "unseen", text: one ? one.told : "none" }));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label, "data-key": label }, el("table", { class: "heat" },
    el("caption", { class: "unseen", text: label }),
    el("thead", {}, el("tr", {}, el("th", { scope: "col", text: what }), steps.map((step, i) => el("th", { scope: "col" },
      el("span", { class: i === 0 || i === steps.length - 1 || i % 10 === 0 ? null : "unseen", text: String(step) }))))),
    el("tbody", {}, rows.map((row) => el("tr", {}, el("th", { scope: "row" },
      el("button", { type: "button", class: "quiet", "data-key": "heat" + row.key, "aria-pressed": String(row.isChosen), text: row.name, onclick: () => pick(row.key) })), row.cells.map(cell(row)))))));
}

// Bars with the name of each below; items: [{name, value, className}].
export function histogram(label, items, { height = 150, format = plain } = {}) {
  measure();
  const most = roundUp(Math.max(...items.map((item) => item.value), 0));
  const room = height - TOP - BOTTOM;
  const bars = items.map((item, i) => {
    const h = (room * item.value) / most;
    const wide = xOf(1, items.length) - LEFT;
    return svg("g", {}, svg("title", { text: item.name + ": " + format(item.value) }),
      svg("rect", { class: item.className, x: xOf(i, items.length) + 2, y: TOP + room - h, width: wide - 4, height: h }),
      svg("text", { class: "tick middle", x: xOf(i + 0.5, items.length), y: height - 5, text: item.name }));
  });
  return frame(label, height, [axis(height, most, format), bars]);
}

// Small bars without axes, next to a figure.
export function spark(label, values) {
  const most = Math.max(1, ...values);
  const n = Math.max(1, values.length);
  return svg("svg", { class: "spark", viewBox: `0 0 ${n * 3} 24`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    values.map((v, i) => svg("rect", { class: "accent", x: i * 3, width: 2, y: 24 - (24 * v) / most, height: (24 * v) / most })));
}

// What was best at each time, as steps; points: [{at (ms), value, href, name}].
export function stepLine(label, points, { height = 180, format = plain, until = Date.now() } = {}) {
  measure();
  const room = height - TOP - BOTTOM;
  const most = roundUp(Math.max(...points.map((p) => p.value), 1));
  const first = points[0].at;
  const span = Math.max(1, until - first);
  const x = (at) => LEFT + ((WIDE - LEFT - RIGHT) * (at - first)) / span;
  const y = (v) => TOP + room * (1 - v / most);
  let path = "M" + x(first) + "," + y(points[0].value);
  points.slice(1).forEach((p) => { path += "H" + x(p.at) + "V" + y(p.value); });
  path += "H" + (WIDE - RIGHT);
  const dots = points.map((p) => svg("a", { href: p.href, "aria-label": p.name },
    svg("circle", { class: "dot accent", cx: x(p.at), cy: y(p.value), r: 4 }), svg("title", { text: p.name })));
  const ends = [[first, "start"], [until, "finish"]].map(([at, anchor]) => svg("text", { class: "tick " + anchor, x: x(at), y: height - 5,
    text: new Date(at).toISOString().slice(span > 172800000 ? 5 : 11, span > 172800000 ? 10 : 16) }));
  const even = svg("line", { class: "even", x1: LEFT, x2: WIDE - RIGHT, y1: y(1), y2: y(1) });
  // Its dots are links, so it is not a single image.
  return svg("svg", { viewBox: `0 0 ${WIDE} ${height}`, role: "group", "aria-label": label, class: "chart" },
    axis(height, most, format, 4), even, svg("path", { class: "line accent", d: path }), dots, ends);
}

// Samples in the order they were made; the series share an axis. A band is shaded across, `middle` is a line in it.
export function strip(label, series, unit, { band = null, middle = null, height = 130 } = {}) {
  measure();
  const every = series.flatMap((one) => one.values).concat(band || []);
  let lo = Math.min(...every);
  const most = Math.max(...every);
  const pad = (most - lo || Math.abs(lo) || 1) * 0.08;
  lo -= pad;
  const span = most + pad - lo;
  const room = height - 2 * TOP;
  const left = 64;
  const y = (v) => TOP + room * (1 - (v - lo) / span);
  const x = (i, n) => left + ((WIDE - left - RIGHT) * (i + 0.5)) / n;
  const shapes = {
    square: (cx, cy) => svg("rect", { x: cx - 2.5, y: cy - 2.5, width: 5, height: 5 }),
    circle: (cx, cy) => svg("circle", { cx, cy, r: 2.8 }),
  };
  return svg("svg", { viewBox: `0 0 ${WIDE} ${height}`, role: "img", "aria-label": label, class: "chart" },
    [lo + pad, most].map((v) => [svg("line", { class: "grid", x1: left, x2: WIDE - RIGHT, y1: y(v), y2: y(v) }),
      svg("text", { class: "tick end", x: left - 6, y: y(v) + 4, text: +v.toPrecision(4) + unit })]),
    band && svg("rect", { class: "interval", x: left, width: WIDE - left - RIGHT, y: y(band[1]), height: Math.max(1, y(band[0]) - y(band[1])) }),
    isNumber(middle) && svg("line", { class: "middle", x1: left, x2: WIDE - RIGHT, y1: y(middle), y2: y(middle) }),
    series.map((one) => one.values.map((value, i) => svg("g", { class: one.className },
      svg("title", { text: one.name + " " + i + ": " + plain(value) + unit }), (shapes[one.shape] || shapes.circle)(x(i, one.values.length), y(value))))));
}

// Distributions over one axis, a row of boxes: least, quartiles, median, greatest. rows: [{name, values, className}].
export function boxes(label, rows, unit) {
  measure();
  const every = rows.flatMap((row) => row.values);
  const lo = Math.min(...every), span = (Math.max(...every) - lo) || 1;
  const left = 84, each = 34, height = rows.length * each + BOTTOM;
  const x = (v) => left + ((WIDE - left - 14) * (v - lo)) / span;
  const drawn = rows.map((row, i) => {
    const sorted = row.values.toSorted((a, b) => a - b);
    const at = (q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
    const y = i * each + each / 2 + 2;
    return svg("g", { class: row.className }, svg("title", { text: row.name + ": median " + plain(at(0.5)) + unit }),
      svg("text", { class: "tick end", x: left - 10, y: y + 4, text: row.name }),
      svg("line", { class: "whisker", x1: x(sorted[0]), x2: x(sorted.at(-1)), y1: y, y2: y }),
      svg("rect", { class: "box", x: x(at(0.25)), width: Math.max(1, x(at(0.75)) - x(at(0.25))), y: y - 8, height: 16 }),
      svg("line", { class: "median", x1: x(at(0.5)), x2: x(at(0.5)), y1: y - 10, y2: y + 10 }));
  });
  const ends = [[lo, "start"], [lo + span, "finish"]].map(([v, anchor]) => svg("text", { class: "tick " + anchor, x: x(v), y: height - 5, text: +v.toPrecision(4) + unit }));
  return svg("svg", { viewBox: `0 0 ${WIDE} ${height}`, role: "img", "aria-label": label, class: "chart" }, drawn, ends);
}
