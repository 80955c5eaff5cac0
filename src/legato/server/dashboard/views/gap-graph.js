// @ts-check
// The gaps between the tokens of a running answer, drawn as they come, beside the gap target.

import { h, text } from "../dom.js";

/** What is seen at once, ms. */
const WINDOW_MS = 20_000;
/** Gaps that are kept at most, whatever comes. */
const MOST_GAPS = 8000;
/** Between two texts of the alternative, ms: a screen reader needs time to say one. */
const TELL_MS = 4000;
const MARGIN = { left: 8, right: 8, top: 22, bottom: 20 };

/**
 * @param {any} app
 * @returns The graph: `element` for the page; `begin()` an answer; `token()` came; `reading(true|false)` of the
 *   document; `end()` of the answer; `show()` and `hide()`.
 */
export function createGapGraph(app) {
  const { t, format, store } = app;
  const canvas = h("canvas", { class: "gap-canvas", "aria-hidden": "true" });
  const summary = h("p", { class: "visually-hidden" });
  const element = h("figure", { class: "gap-graph" }, canvas, summary);
  /** @type {{at: number, gap: number}[]} */
  let gaps = [];
  /** @type {{from: number, to: number|null}[]} When documents were read; the last few. */
  let books = [];
  let last = 0;
  let writing = false;
  let until = 0;
  let frame = 0;
  let shown = false;
  let toldAt = 0;
  /** @type {Record<string, string>} */
  const colours = {};

  function begin() {
    gaps = [];
    books = books.filter((book) => book.to === null);
    last = 0;
    writing = true;
    run();
  }

  /** @returns {number|null} The gap before this token, ms; null for the first. */
  function token() {
    const now = performance.now();
    const gap = last > 0 ? now - last : null;
    if (gap !== null) {
      gaps.push({ at: now, gap });
    }
    const old = gaps.findIndex((one) => one.at > now - WINDOW_MS - 5000);
    if (old > 500 || gaps.length > MOST_GAPS) {
      gaps.splice(0, Math.max(old, gaps.length - MOST_GAPS));
    }
    last = now;
    return gap;
  }

  function end() {
    writing = false;
    until = performance.now();
  }

  /** @param {boolean} is */
  function reading(is) {
    const now = performance.now();
    if (is) {
      books = [...books.filter((book) => (book.to ?? now) > now - WINDOW_MS), { from: now, to: null }];
    } else {
      for (const book of books) {
        book.to ??= now;
      }
    }
    run();
  }

  /** @returns {number} How long the next token has been awaited, ms. */
  function waiting() {
    return writing && last > 0 ? performance.now() - last : 0;
  }

  function run() {
    if (shown && frame === 0) {
      frame = requestAnimationFrame(draw);
    }
  }

  function draw() {
    frame = 0;
    const context = canvas.getContext("2d");
    const { width, height } = fit(canvas, context);
    if (width === 0) {
      return;
    }
    const moving = writing || books.some((book) => book.to === null);
    const now = moving ? performance.now() : Math.max(until, last);
    const target = store.status?.gap_target_ms ?? 100;
    const open = waiting();
    const seen = gaps.filter((one) => one.at > now - WINDOW_MS);
    const longest = Math.max(...seen.map((one) => one.gap), open, 2 * target);
    const bottom = height - MARGIN.bottom;
    const x = (/** @type {number} */ at) =>
      MARGIN.left + (width - MARGIN.left - MARGIN.right) * (1 - (now - at) / WINDOW_MS);
    // The root: a gap of 10 ms is still seen beside one of 5 s.
    const y = (/** @type {number} */ ms) => bottom - (bottom - MARGIN.top) * Math.sqrt(Math.min(ms / longest, 1));
    context.clearRect(0, 0, width, height);
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, 0, width - MARGIN.left - MARGIN.right, height);
    context.clip();
    for (const book of books) {
      context.globalAlpha = 0.16;
      context.fillStyle = colours.prefill;
      const from = x(book.from);
      context.fillRect(from, MARGIN.top, x(book.to ?? now) - from, bottom - MARGIN.top);
      context.globalAlpha = 1;
    }
    for (const { at, gap } of seen) {
      context.fillStyle = gap > target ? colours.bad : colours.decode;
      const from = x(at - gap);
      context.fillRect(from, y(gap), Math.max(x(at) - from - 0.5, 1), bottom - y(gap));
    }
    if (open > 0 && moving) {
      context.fillStyle = open > target ? colours.bad : colours.decode;
      context.globalAlpha = 0.6;
      context.fillRect(x(last), y(open), x(now) - x(last), bottom - y(open));
      context.globalAlpha = 1;
    }
    context.restore();
    context.fillStyle = colours.line;
    context.fillRect(MARGIN.left, bottom, width - MARGIN.left - MARGIN.right, 1);
    context.setLineDash([5, 4]);
    context.strokeStyle = colours.text;
    context.beginPath();
    context.moveTo(MARGIN.left, Math.round(y(target)) + 0.5);
    context.lineTo(width - MARGIN.right, Math.round(y(target)) + 0.5);
    context.stroke();
    context.setLineDash([]);
    label(context, t("feel.graph_target", { time: format.ms(target) }), MARGIN.left + 2, y(target) - 5, colours.text);
    label(context, t("feel.graph_from", { count: WINDOW_MS / 1000 }), MARGIN.left, height - 5, colours.muted);
    label(context, t("feel.graph_now"), width - MARGIN.right, height - 5, colours.muted, "right");
    const top = t("feel.graph_top", { time: format.ms(longest) });
    label(context, top, MARGIN.left, 14, colours.muted);
    const left = MARGIN.left + context.measureText(top).width + 16;
    for (const book of books.filter((one) => (one.to ?? now) > now - WINDOW_MS)) {
      // Above its field, and beside the other words there.
      const words = t("feel.graph_reading");
      const right = width - MARGIN.right - context.measureText(words).width;
      label(context, words, Math.max(left, Math.min(x(book.from), right)), 14, colours.prefill);
    }
    if (seen.length === 0 && !moving) {
      label(context, t("feel.graph_nothing"), width / 2, (MARGIN.top + bottom) / 2 + 24, colours.muted, "center");
    }
    tell(seen, target, now);
    if (moving) {
      run();
    }
  }

  /** @param {{gap: number}[]} seen @param {number} target @param {number} now */
  function tell(seen, target, now) {
    if (now - toldAt < TELL_MS && writing) {
      return;
    }
    toldAt = now;
    text(
      summary,
      seen.length === 0
        ? t("feel.graph_nothing")
        : t("feel.graph_summary", {
            tokens: format.count(seen.length),
            longest: format.ms(Math.max(...seen.map((one) => one.gap))),
            target: format.ms(target),
            above: format.count(seen.filter((one) => one.gap > target).length),
          }),
    );
  }

  function recolour() {
    const style = getComputedStyle(canvas);
    for (const name of ["prefill", "decode", "bad", "line", "text", "muted", "font"]) {
      colours[name] = style.getPropertyValue(`--${name}`).trim();
    }
    run();
  }

  /**
   * @param {any} context
   * @param {string} words
   * @param {number} x
   * @param {number} y
   * @param {string} colour
   * @param {string} [align]
   */
  function label(context, words, x, y, colour, align = "left") {
    context.font = `12px ${colours.font}`;
    context.textAlign = align;
    context.fillStyle = colour;
    context.fillText(words, x, y);
  }

  document.addEventListener("themechange", recolour);
  new ResizeObserver(run).observe(canvas);

  return {
    element,
    begin,
    token,
    end,
    reading,
    waiting,
    show() {
      shown = true;
      recolour();
    },
    hide() {
      shown = false;
      cancelAnimationFrame(frame);
      frame = 0;
    },
  };
}

/**
 * Give a canvas as many pixels as its place on the screen has.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {CanvasRenderingContext2D} context
 * @returns {{width: number, height: number}} Its size in CSS pixels.
 */
function fit(canvas, context) {
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { width, height };
}
