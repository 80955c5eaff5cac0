// @ts-check
// Small drawings that more than one view has: a canvas of the screen's own sharpness, a distribution, a trend, a split bar.

import { h, svg } from "../dom.js";

const WIDTH = 240;
const HEIGHT = 56;
const BARS = 16;

/**
 * Make a canvas as many pixels as the screen shows of it.
 * @param {HTMLCanvasElement} canvas
 * @returns {{context: CanvasRenderingContext2D, width: number, height: number} | null} Sizes in CSS pixels; null if it is
 *   not to be seen.
 */
export function fitted(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const context = canvas.getContext("2d");
  if (!context || !width || !height) {
    return null;
  }
  const scale = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
  }
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/**
 * A value below which a share of the others lies, by linear interpolation.
 * @param {number[]} sorted From the smallest on.
 * @param {number} share 0 to 1.
 * @returns {number | null} Null of nothing.
 */
export function quantile(sorted, share) {
  if (!sorted.length) {
    return null;
  }
  const place = (sorted.length - 1) * share;
  const low = Math.floor(place);
  const high = Math.min(sorted.length - 1, low + 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (place - low);
}

/**
 * How many values lie where; bars get wider with the values, since times and rates spread over powers of ten.
 * @param {number[]} sorted From the smallest on; not empty.
 * @param {string} label What screen readers say of it.
 * @param {(value: number) => string} name
 * @returns {HTMLElement}
 */
export function distribution(sorted, label, name) {
  const low = Math.max(sorted[0], 1e-3);
  const high = Math.max(sorted[sorted.length - 1], low);
  const spread = Math.log(high / low);
  const bars = spread > 0.01 ? BARS : 1;
  const counts = new Array(bars).fill(0);
  for (const value of sorted) {
    const place = spread > 0.01 ? (Math.log(Math.max(value, low) / low) / spread) * bars : 0;
    counts[Math.min(bars - 1, Math.floor(place))] += 1;
  }
  const most = Math.max(...counts);
  const wide = WIDTH / BARS;
  const drawing = svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label,
    preserveAspectRatio: "none" });
  const offset = bars === 1 ? (WIDTH - wide) / 2 : 0;
  counts.forEach((count, i) => {
    const tall = count ? Math.max(2, (count / most) * (HEIGHT - 2)) : 0;
    const box = { x: offset + i * wide + 1, y: HEIGHT - tall, width: wide - 2, height: tall, class: "chart-bar" };
    drawing.append(svg("rect", box));
  });
  drawing.append(svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5, class: "chart-base" }));
  const ends = bars === 1 ? [h("span", null), h("span", null, name(low)), h("span", null)]
    : [h("span", null, name(low)), h("span", null, name(high))];
  return h("div", { class: "chart-box" }, drawing, h("div", { class: "chart-ends num muted", "aria-hidden": "true" }, ...ends));
}

/**
 * Values in the order in which they came, as dots, with a line at the median.
 * @param {number[]} values Oldest first; not empty.
 * @param {string} label What screen readers say of it.
 * @param {[string, string]} ends What stands below its beginning and its end.
 * @returns {HTMLElement}
 */
export function trend(values, label, ends) {
  const sorted = [...values].sort((a, b) => a - b);
  // A single outlier would press all others flat: the highest twentieth stands at the top edge.
  const top = Math.max(/** @type {number} */ (quantile(sorted, 0.95)) * 1.15, 1e-6);
  const high = (/** @type {number} */ value) => HEIGHT - 4 - (Math.min(value, top) / top) * (HEIGHT - 8);
  const drawing = svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label,
    preserveAspectRatio: "none" });
  const middle = high(/** @type {number} */ (quantile(sorted, 0.5)));
  drawing.append(svg("line", { x1: 0, x2: WIDTH, y1: middle, y2: middle, class: "chart-middle" }));
  drawing.append(svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5, class: "chart-base" }));
  values.forEach((value, i) => {
    const x = values.length > 1 ? 4 + (i / (values.length - 1)) * (WIDTH - 8) : WIDTH / 2;
    // A line of no length with round ends stays a round dot, however the drawing is stretched.
    const y = high(value);
    drawing.append(svg("line", { x1: x, x2: x, y1: y, y2: y, class: "chart-dot" }));
  });
  const below = ends.map((end) => h("span", null, end));
  return h("div", { class: "chart-box" }, drawing, h("div", { class: "chart-ends num muted", "aria-hidden": "true" }, ...below));
}

/**
 * One bar of several parts, with a list of them below.
 * @param {{phase: string, name: string, figure: string, share: number}[]} parts `phase` names the colour, as `data-phase`;
 *   shares of 0 to 1, together at most 1.
 * @returns {HTMLElement}
 */
export function split(parts) {
  const pieces = parts.filter((one) => one.share > 0).map((one) => {
    const piece = h("span", { "data-phase": one.phase });
    piece.style.setProperty("width", `${Math.min(100, one.share * 100).toFixed(2)}%`);
    return piece;
  });
  const rows = parts.map((one) =>
    h("li", null, h("span", { class: "dot", "data-phase": one.phase, "aria-hidden": "true" }), h("span", null, one.name),
      h("span", { class: "num split-figure" }, one.figure)));
  return h("div", { class: "split" }, h("div", { class: "bar split-bar", "aria-hidden": "true" }, ...pieces),
    h("ul", { class: "legend-list" }, ...rows));
}
