// @ts-check
// The last minute's three rows on canvases that share one time axis: steps, gaps, utilisation.

import { fitted } from "./charts.js";
import { decodeMs, decodeShare, PALETTE, tokensOf, WINDOW_S } from "./timeline-data.js";

const LABEL = "11px system-ui, sans-serif";
/** The shortest gap that is told apart from none, ms. */
const LOWEST_MS = 4;
/** How near a pointer must be to a stall, CSS pixels. */
const NEAR = 14;

/**
 * @typedef {object} Colours
 * @property {string} line @property {string} text @property {string} muted @property {string} surface
 * @property {string} decode @property {string} bad @property {string} accent @property {string} queue
 * @property {string[]} prompts
 */

/**
 * The theme's colours, as canvases take them.
 * @param {Element} root
 * @param {Element[]} swatches One for each colour of prompts; the browser works out what their style sheet mixes.
 * @returns {Colours}
 */
export function readColours(root, swatches) {
  const style = getComputedStyle(root);
  const of = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  return {
    line: of("--line"), text: of("--text"), muted: of("--muted"), surface: of("--surface"), decode: of("--decode"),
    bad: of("--bad"), accent: of("--accent"), queue: of("--queue"),
    prompts: swatches.map((swatch) => getComputedStyle(swatch).backgroundColor),
  };
}

/**
 * Sums for each pixel column of the steps' row, made once for a width and used again for every drawing. A column stands for
 * a fixed stretch of time, so that nothing flickers while the row moves.
 */
export class Columns {
  constructor() {
    this.count = 0;
    this.first = 0;
    this.width_s = 1;
    this.decode = new Float32Array(0);
    /** @type {Float32Array[]} */
    this.prompts = [];
  }

  /** @param {number} width CSS pixels. @param {number} now Unix s. */
  begin(width, now) {
    const count = Math.ceil(width) + 1;
    if (count !== this.count) {
      this.count = count;
      this.decode = new Float32Array(count);
      this.prompts = Array.from({ length: PALETTE }, () => new Float32Array(count));
    }
    this.width_s = WINDOW_S / width;
    this.first = Math.floor((now - WINDOW_S) / this.width_s);
    this.decode.fill(0);
    for (const sums of this.prompts) {
      sums.fill(0);
    }
  }

  /**
   * Add a stretch of time, in shares of the columns that it touches.
   * @param {Float32Array} sums @param {number} from Unix s. @param {number} to @param {number} weight
   */
  add(sums, from, to, weight) {
    const begin = from / this.width_s - this.first;
    const end = to / this.width_s - this.first;
    for (let i = Math.max(0, Math.floor(begin)); i < Math.min(this.count, Math.ceil(end)); i += 1) {
      sums[i] += weight * (Math.min(end, i + 1) - Math.max(begin, i));
    }
  }
}

/**
 * @param {HTMLCanvasElement} canvas @param {Columns} columns @param {any[]} steps @param {number} now Unix s.
 * @param {(id: string) => number} slot @param {Colours} colours
 */
export function drawSteps(canvas, columns, steps, now, slot, colours) {
  const room = fitted(canvas);
  if (!room) {
    return;
  }
  const { context, width, height } = room;
  columns.begin(width, now);
  const alone = decodeMs(steps);
  for (const step of steps) {
    const end = step.begun_at + step.took_ms / 1000;
    const share = decodeShare(step, alone);
    columns.add(columns.decode, step.begun_at, end, share);
    const tokens = tokensOf(step);
    for (const chunk of step.chunks) {
      columns.add(columns.prompts[slot(chunk.request)], step.begun_at, end, ((1 - share) * chunk.tokens) / tokens);
    }
  }
  grid(context, width, height, colours);
  const left = columns.first * columns.width_s - (now - WINDOW_S);
  const layers = [[columns.decode, colours.decode], ...columns.prompts.map((sums, i) => [sums, colours.prompts[i]])];
  for (let i = 0; i < columns.count; i += 1) {
    const x = Math.round((left / columns.width_s + i) * 2) / 2;
    let y = height;
    for (const [sums, colour] of /** @type {[Float32Array, string][]} */ (layers)) {
      const tall = Math.min(1, sums[i]) * height;
      if (tall > 0.2) {
        context.fillStyle = colour;
        context.fillRect(x, y - tall, 1.05, tall);
        y -= tall;
      }
    }
  }
}

/**
 * @typedef {object} GapsDrawing
 * @property {import("./timeline-data.js").Gaps} gaps
 * @property {number} now Unix s.
 * @property {number} target ms
 * @property {string} target_label
 * @property {(ms: number) => string} name Of a duration.
 * @property {import("./timeline-data.js").Stall | null} cursor
 * @property {Colours} colours
 */

/**
 * The scale of the gaps' row: as many pixels for each doubling, since gaps go from some ms to many seconds.
 * @param {number} height CSS pixels. @param {GapsDrawing} what
 */
function gapScale(height, what) {
  const most = what.gaps.stalls.reduce((longest, stall) => Math.max(longest, stall.ms), what.target * 3);
  const top = Math.log((most * 1.3) / LOWEST_MS);
  return (/** @type {number} */ ms) =>
    height - 4 - Math.min(1, Math.max(0, Math.log(ms / LOWEST_MS)) / top) * (height - 12);
}

/** @param {HTMLCanvasElement} canvas @param {GapsDrawing} what */
export function drawGaps(canvas, what) {
  const room = fitted(canvas);
  if (!room) {
    return;
  }
  const { context, width, height } = room;
  const { gaps, now, target, colours } = what;
  const high = gapScale(height, what);
  const across = (/** @type {number} */ at) => width - ((now - at) / WINDOW_S) * width;
  grid(context, width, height, colours);
  context.strokeStyle = colours.decode;
  context.lineWidth = 1.5;
  context.lineJoin = "round";
  for (const known of gaps.answers.values()) {
    answerLine(context, known, across, high);
  }
  line(context, width, high(target), colours.muted, [4, 4]);
  for (const stall of gaps.stalls) {
    context.beginPath();
    context.arc(across(stall.at), high(stall.ms), stall === what.cursor ? 6 : 3.5, 0, 2 * Math.PI);
    context.fillStyle = colours.bad;
    context.fill();
    if (stall === what.cursor) {
      context.strokeStyle = colours.text;
      context.lineWidth = 2;
      context.stroke();
    }
  }
  label(context, 4, high(target) - 4, what.target_label, colours);
  for (const ms of [10, 100, 1000, 10_000]) {
    // Where the target's own label stands there is no room for another.
    if (Math.abs(high(ms) - high(target)) > 16 && high(ms) > 12 && high(ms) < height - 8) {
      label(context, 4, high(ms) + 4, what.name(ms), colours);
    }
  }
}

/**
 * One answer's rhythm: in each pixel column its longest gap.
 * @param {CanvasRenderingContext2D} context @param {{at: number, ms: number}[]} known
 * @param {(at: number) => number} across @param {(ms: number) => number} high
 */
function answerLine(context, known, across, high) {
  context.beginPath();
  let column = NaN;
  let longest = 0;
  let begun = false;
  for (let i = 0; i <= known.length; i += 1) {
    const place = i < known.length ? Math.floor(known[i].at * 8) : NaN;
    if (place !== column && longest > 0) {
      const x = across((column + 0.5) / 8);
      if (begun) {
        context.lineTo(x, high(longest));
      } else {
        context.moveTo(x, high(longest));
        context.lineTo(x + 1, high(longest));
        begun = true;
      }
      longest = 0;
    }
    if (i < known.length) {
      column = place;
      longest = Math.max(longest, known[i].ms);
    }
  }
  context.stroke();
}

/**
 * The stall that a pointer means.
 * @param {HTMLCanvasElement} canvas @param {GapsDrawing} what @param {number} x @param {number} y CSS pixels.
 */
export function stallAt(canvas, what, x, y) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const high = gapScale(height, what);
  let best = null;
  let nearest = NEAR * NEAR;
  for (const stall of what.gaps.stalls) {
    const right = width - ((what.now - stall.at) / WINDOW_S) * width;
    const off = (right - x) ** 2 + (high(stall.ms) - y) ** 2;
    if (off < nearest) {
      nearest = off;
      best = stall;
    }
  }
  return best;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{at: number, cpu: number | null, gpu: number | null}[]} samples Percent, oldest first.
 * @param {number} now Unix s. @param {Colours} colours
 */
export function drawUtilisation(canvas, samples, now, colours) {
  const room = fitted(canvas);
  if (!room) {
    return;
  }
  const { context, width, height } = room;
  grid(context, width, height, colours);
  for (const [of, colour] of /** @type {["cpu" | "gpu", string][]} */ ([["cpu", colours.muted], ["gpu", colours.accent]])) {
    context.beginPath();
    let last = null;
    for (const sample of samples) {
      const value = sample[of];
      if (value === null) {
        continue;
      }
      const x = width - ((now - sample.at) / WINDOW_S) * width;
      const y = height - 2 - (value / 100) * (height - 4);
      if (last === null) {
        context.moveTo(x, y);
      } else {
        context.lineTo(x, last);
        context.lineTo(x, y);
      }
      last = y;
    }
    if (last !== null) {
      context.lineTo(width, last);
      context.strokeStyle = colour;
      context.lineWidth = 1.5;
      context.stroke();
    }
  }
}

/** @param {CanvasRenderingContext2D} context @param {number} width @param {number} height @param {Colours} colours */
function grid(context, width, height, colours) {
  context.fillStyle = colours.line;
  for (let i = 0; i <= 4; i += 1) {
    context.fillRect(Math.round(((width - 1) * i) / 4), 0, 1, height);
  }
}

/**
 * @param {CanvasRenderingContext2D} context @param {number} width @param {number} y @param {string} colour
 * @param {number[]} dashes
 */
function line(context, width, y, colour, dashes) {
  context.beginPath();
  context.setLineDash(dashes);
  context.moveTo(0, y);
  context.lineTo(width, y);
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.stroke();
  context.setLineDash([]);
}

/** @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {string} words @param {Colours} colours */
function label(context, x, y, words, colours) {
  context.font = LABEL;
  context.lineWidth = 3;
  context.strokeStyle = colours.surface;
  context.strokeText(words, x, y);
  context.fillStyle = colours.muted;
  context.fillText(words, x, y);
}
