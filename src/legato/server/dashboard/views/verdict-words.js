// @ts-check
// What a request's wait was, in the reader's language. The server's own sentences say more, but are English.

import { h } from "../dom.js";
import { PHASES } from "./phase-bar.js";

/** Whether the page speaks the language of the server's sentences. */
function speaksEnglish() {
  return document.documentElement.lang.startsWith("en");
}

/**
 * Which phase took most of the time.
 *
 * @param {Record<string, any>} times `load_ms`, `queue_ms`, `prefill_ms`, `decode_ms`, `total_ms`.
 * @param {any} app
 * @returns {string}
 */
function gist(times, { t, format }) {
  const longest = PHASES.reduce((a, b) => (times[b.field] > times[a.field] ? b : a));
  return t("request.gist", {
    phase: t(`request.phase_${longest.name}`),
    time: format.ms(times[longest.field]),
    total: format.ms(times.total_ms),
  });
}

/**
 * One sentence about an ended request.
 *
 * @param {Record<string, any>} summary One of `requests` of `GET /api/requests`.
 * @param {any} app
 * @returns {string}
 */
export function verdictLine(summary, app) {
  return speaksEnglish() ? summary.verdict : gist(summary, app);
}

/**
 * All that is known of a request's wait, and what would have made it shorter.
 *
 * @param {any} timings Of its record.
 * @param {any} verdict
 * @param {any} app
 * @returns {HTMLElement[]}
 */
export function verdictText(timings, verdict, app) {
  const { t, format } = app;
  const advice = verdict.advice.map((/** @type {string} */ code) => t(`request.advice_${code}`));
  const [first, ...rest] = verdict.sentences.slice(0, verdict.sentences.length - advice.length);
  if (speaksEnglish()) {
    return [h("p", { class: "sentence" }, first), ...list([...rest, ...advice])];
  }
  const raised =
    timings.raised_gap_target_ms != null &&
    t("request.raised", { target: format.ms(timings.gap_target_ms), possible: format.ms(timings.raised_gap_target_ms) });
  return [
    h("p", { class: "sentence" }, gist(timings, app)),
    ...list([raised, ...advice].filter(Boolean)),
    h("details", {}, h("summary", {}, t("request.in_english")), h("div", { lang: "en" }, ...list([first, ...rest]))),
  ];
}

/**
 * @param {readonly string[]} sentences
 * @returns {HTMLElement[]} None for no sentences.
 */
function list(sentences) {
  return sentences.length
    ? [
        h(
          "ul",
          { class: "request-rest" },
          sentences.map((one) => h("li", {}, one)),
        ),
      ]
    : [];
}
