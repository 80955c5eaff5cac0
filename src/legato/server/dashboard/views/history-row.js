// @ts-check
// One ended request as a row of the list; on phones the stylesheet makes a card of it.

import { h } from "../dom.js";
import { phaseBar } from "./phase-bar.js";
import { verdictLine } from "./verdict-words.js";

/**
 * @param {Record<string, any>} request One of `requests` of `GET /api/requests`.
 * @param {{t: Function, format: Record<string, Function>}} app
 * @returns {HTMLElement}
 */
export function requestRow(request, app) {
  const { t, format } = app;
  const at = new Date(request.arrived_at * 1000);
  const read = Math.max(0, request.prompt_tokens - request.cached_tokens);
  const link = h(
    "a",
    { href: `#history/${encodeURIComponent(request.id)}`, class: "row-link", title: request.id },
    h("time", { datetime: at.toISOString() }, format.time(request.arrived_at)),
  );
  const ended =
    request.end === "stop" || request.end === "length"
      ? null
      : h("span", { class: `chip ${request.end === "failed" ? "bad" : ""}` }, t(`history.end_${request.end}`));
  return h(
    "tr",
    { role: "row", "data-id": request.id },
    cell(t("history.time"), "num when", link),
    cell(t("history.who"), "who", request.client ?? h("span", { class: "muted" }, t("history.somebody"))),
    cell(t("history.tokens"), "num tokens", tokens(read, request.cached_tokens, t, format)),
    cell(t("history.first_token"), "num", format.ms(request.ttft_ms)),
    cell(t("history.longest_gap"), request.stalls > 0 ? "num stalled" : "num", gap(request, t, format)),
    cell(t("history.whole"), "num whole", format.ms(request.total_ms), phaseBar(request)),
    cell(t("history.verdict"), "verdict", ended ?? "", h("span", {}, verdictLine(request, app))),
  );
}

/**
 * What was read and what was remembered, which need not be read.
 *
 * @param {number} read
 * @param {number} cached
 * @param {Function} t
 * @param {any} format
 */
function tokens(read, cached, t, format) {
  if (cached === 0) {
    return h("span", {}, format.count(read));
  }
  return h("span", {}, format.count(read), h("span", { class: "sub" }, t("history.remembered", { count: cached })));
}

/**
 * The longest gap, with the number of stalls in words: a colour alone says nothing to some readers.
 *
 * @param {any} request
 * @param {Function} t
 * @param {any} format
 */
function gap(request, t, format) {
  if (request.stalls === 0) {
    return format.ms(request.itl_max_ms);
  }
  return h(
    "span",
    {},
    format.ms(request.itl_max_ms),
    h("span", { class: "sub" }, t("history.stalls", { count: request.stalls })),
  );
}

/**
 * A cell that names its column, for the card on phones.
 *
 * @param {string} label
 * @param {string} classes
 * @param {...any} content
 */
function cell(label, classes, ...content) {
  return h("td", { role: "cell", class: classes, "data-label": label }, ...content);
}
