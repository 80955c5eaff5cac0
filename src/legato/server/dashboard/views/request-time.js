// @ts-check
// One request over time: when its prompt was read, and how long every token took. Drawn as SVG, whose shapes stretch
// with the page and take their colours from the stylesheet.

import { clear, h, svg } from "../dom.js";
import { phaseOf } from "./request-causes.js";

/** Units across and down a strip; a strip is stretched to its place. */
const WIDE = 1000;
const HIGH = 100;
/** The narrowest that a chunk or a stall is drawn, units. */
const LEAST = 1.5;
const TICKS = 5;
/** Stalls that are listed before the visitor asks for all. */
const FIRST_STALLS = 6;

/**
 * @param {any} record A request of `GET /api/requests/ID`.
 * @param {any} app
 * @returns {HTMLElement}
 */
export function overTime(record, app) {
  const { t, format } = app;
  const { timings, chunks, token_ms: tokens } = record;
  const total = Math.max(timings.total_ms, 1);
  const x = (/** @type {number} */ ms) => (WIDE * Math.min(Math.max(ms, 0), total)) / total;
  const card = h("section", { class: "card stack" }, h("h2", {}, t("request.over_time")));
  if (chunks.length === 0 && tokens.length === 0) {
    card.append(h("p", { class: "muted" }, t("request.nothing_over_time")));
    return card;
  }
  card.append(h("p", { class: "muted" }, t("request.over_time_how")));
  const figure = h("figure", { class: "over-time" });
  if (chunks.length > 0) {
    figure.append(...strip(t("request.reading"), readingSummary(chunks, app), "chunks", chunkBlocks(chunks, x)));
  }
  if (tokens.length > 1) {
    const target = timings.raised_gap_target_ms ?? timings.gap_target_ms ?? null;
    const { shapes, longest } = gapShapes(tokens, target, x);
    figure.append(...strip(t("request.writing"), gapSummary(timings, app), "gaps", shapes, format.ms(longest)));
  }
  figure.append(axis(total, format));
  card.append(figure);
  if (record.stalls.length > 0) {
    card.append(...stallTable(record, figure, x, app));
  }
  return card;
}

/**
 * @param {string} label
 * @param {string} summary What the drawing shows, in words.
 * @param {string} kind
 * @param {SVGElement[]} shapes
 * @param {string} [top] What the upper edge stands for.
 */
function strip(label, summary, kind, shapes, top) {
  const drawing = svg(
    "svg",
    {
      class: `strip ${kind}`,
      viewBox: `0 0 ${WIDE} ${HIGH}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": summary,
    },
    shapes,
  );
  return [
    h("div", { class: "strip-head small muted" }, h("span", {}, label), top && h("span", { class: "num" }, top)),
    drawing,
  ];
}

/**
 * Chunks as blocks: as wide as they took, as high as they were large.
 *
 * @param {any[]} chunks
 * @param {(ms: number) => number} x
 */
function chunkBlocks(chunks, x) {
  const largest = Math.max(...chunks.map((chunk) => chunk.tokens), 1);
  const path = chunks
    .map((chunk) => {
      const from = x(chunk.at_ms);
      const wide = Math.max(x(chunk.at_ms + chunk.took_ms) - from, LEAST);
      const high = HIGH * (0.15 + 0.85 * (chunk.tokens / largest));
      return block(from, wide, high);
    })
    .join("");
  return [svg("path", { class: "chunk", d: path })];
}

/**
 * Gaps as blocks: as wide as they were long, and higher the longer. The height goes with the root, so that small gaps
 * are still seen beside a long one.
 *
 * @param {number[]} tokens When each token left, ms.
 * @param {number|null} target Gap target, ms.
 * @param {(ms: number) => number} x
 */
function gapShapes(tokens, target, x) {
  const gaps = tokens.slice(1).map((at, i) => at - tokens[i]);
  const longest = Math.max(...gaps, target ?? 0, 1);
  const y = (/** @type {number} */ ms) => HIGH * Math.sqrt(ms / longest);
  const paths = { smooth: "", stalled: "" };
  gaps.forEach((gap, i) => {
    const from = x(tokens[i]);
    const stalled = target !== null && gap > target;
    const wide = Math.max(x(tokens[i + 1]) - from, stalled ? LEAST : 0.3);
    paths[stalled ? "stalled" : "smooth"] += block(from, wide, y(gap));
  });
  const shapes = [
    svg("path", { class: "smooth", d: paths.smooth }),
    svg("path", { class: "stalled", d: paths.stalled }),
  ];
  if (target !== null) {
    const at = HIGH - y(target);
    shapes.push(
      svg("line", { class: "target", x1: 0, x2: WIDE, y1: at, y2: at, "vector-effect": "non-scaling-stroke" }),
    );
  }
  return { shapes, longest };
}

/** @param {number} from @param {number} wide @param {number} high */
function block(from, wide, high) {
  return `M${from.toFixed(2)} ${HIGH}v${(-high).toFixed(2)}h${wide.toFixed(2)}v${high.toFixed(2)}z`;
}

/** @param {number} total @param {any} format */
function axis(total, format) {
  return h(
    "div",
    { class: "time-axis num small muted", "aria-hidden": "true" },
    Array.from({ length: TICKS }, (_, i) => h("span", {}, format.ms((total * i) / (TICKS - 1)))),
  );
}

/** @param {any[]} chunks @param {any} app */
function readingSummary(chunks, { t, format }) {
  const tokens = chunks.reduce((sum, chunk) => sum + chunk.tokens, 0);
  const last = chunks[chunks.length - 1];
  return t("request.reading_summary", {
    count: chunks.length,
    tokens: format.count(tokens),
    from: format.ms(chunks[0].at_ms),
    to: format.ms(last.at_ms + last.took_ms),
  });
}

/** @param {any} timings @param {any} app */
function gapSummary(timings, { t, format }) {
  return t("request.gap_summary", {
    tokens: format.count(timings.decode_tokens),
    median: format.ms(timings.itl_p50_ms),
    longest: format.ms(timings.itl_max_ms),
    count: timings.stalls,
  });
}

/**
 * The stalls, longest first. Pointing at one shows it in the strip.
 *
 * @param {any} record
 * @param {HTMLElement} figure
 * @param {(ms: number) => number} x
 * @param {any} app
 */
function stallTable({ stalls, timings }, figure, x, { t, format }) {
  const gaps = figure.querySelector(".strip.gaps");
  const mark = svg("g", { class: "mark" });
  gaps?.append(mark);
  const point = (/** @type {any} */ stall) => {
    clear(mark);
    if (stall === null) {
      return;
    }
    const from = x(stall.at_ms);
    mark.append(svg("rect", { x: from, y: 0, width: Math.max(x(stall.at_ms + stall.gap_ms) - from, 4), height: HIGH }));
  };
  const rows = stalls.map((/** @type {any} */ stall) =>
    h(
      "tr",
      { role: "row", on: { mouseenter: () => point(stall), mouseleave: () => point(null) } },
      h("td", { role: "cell", class: "num" }, format.ms(stall.gap_ms)),
      h("td", { role: "cell", class: "num" }, t("request.after", { time: format.ms(stall.at_ms) })),
      h(
        "td",
        { role: "cell" },
        h("span", { class: "chip", "data-phase": phaseOf(stall.cause) }, t(`request.cause_${stall.cause}`)),
        whose(stall, t),
      ),
    ),
  );
  rows.slice(FIRST_STALLS).forEach((/** @type {any} */ row) => (row.hidden = true));
  const all = h(
    "button",
    { type: "button", class: "button small", on: { click: showAll } },
    t("request.all_stalls", { count: rows.length }),
  );
  function showAll() {
    rows.forEach((/** @type {any} */ row) => (row.hidden = false));
    all.hidden = true;
    rows[FIRST_STALLS].querySelector("a")?.focus();
  }
  const hidden = timings.stalls - stalls.length;
  return [
    h("h3", {}, t("request.stalls", { count: timings.stalls, time: format.ms(timings.stalled_ms) })),
    h(
      "div",
      { class: "table-scroll", tabindex: "0", role: "region", "aria-label": t("request.stall_list") },
      h(
        "table",
        { class: "table stall-table", role: "table" },
        h(
          "thead",
          { role: "rowgroup" },
          h(
            "tr",
            { role: "row" },
            h("th", { role: "columnheader", scope: "col", class: "num" }, t("request.how_long")),
            h("th", { role: "columnheader", scope: "col", class: "num" }, t("request.when")),
            h("th", { role: "columnheader", scope: "col" }, t("request.cause")),
          ),
        ),
        h("tbody", { role: "rowgroup" }, rows),
      ),
    ),
    rows.length > FIRST_STALLS && h("div", {}, all),
    hidden > 0 && h("p", { class: "muted small" }, t("request.more_stalls", { count: hidden })),
  ].filter(Boolean);
}

/** @param {any} stall @param {Function} t */
function whose(stall, t) {
  const first = stall.cause === "others_prefill" ? stall.parts.blamed?.[0] : null;
  if (!first) {
    return null;
  }
  return h(
    "span",
    { class: "small muted stall-whose" },
    t("request.prompt_of"),
    " ",
    h("a", { href: `#history/${encodeURIComponent(first.request)}` }, first.request),
  );
}
