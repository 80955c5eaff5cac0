// @ts-check
// The four measures, apart: reading the prompt, waiting for the first token, the rhythm of the answer, and its rate.

import { clear, h } from "../dom.js";
import { distribution, quantile, split, trend } from "./charts.js";
import { createEndedRequests, readingRate, writingRate } from "./ended-requests.js";

/** Gaps kept of those that this page saw. */
const GAPS_KEPT = 5000;
/** From how many on they say more than the means of ended answers. */
const GAPS_ENOUGH = 50;
/** Between two renewals, ms. */
const RENEW_MS = 1500;

/**
 * @typedef {object} Measure
 * @property {string} name Of its texts.
 * @property {string} phase Its colour.
 * @property {number[]} values In the order in which they came.
 * @property {(value: number) => string} format
 * @property {string} about What the figures were taken over.
 * @property {number} slow Share of values at which the second figure is taken: 0.9 of times, 0.1 of rates.
 * @property {[string, string][]} [more] Further figures, with their names.
 * @property {Node | null} [detail]
 */

/**
 * @param {HTMLElement} root
 * @param {any} app
 */
export function mount(root, app) {
  const { store, t, format } = app;
  const ended = createEndedRequests(app);
  /** A ring: the newest gap overwrites the oldest. @type {number[]} */
  const gaps = [];
  let gapsSeen = 0;
  let shown = false;
  let timer = 0;

  const about = h("p", { class: "muted" });
  const cards = h("div", { class: "measures-grid" });
  root.append(h("div", { class: "stack" },
    h("header", { class: "measures-head" }, h("h2", null, t("measures.heading")), about), cards));

  store.on("gaps", (/** @type {string} */ _kind, /** @type {Record<string, number[]>} */ news) => {
    for (const ms of Object.values(news).flat()) {
      gaps[gapsSeen % GAPS_KEPT] = ms;
      gapsSeen += 1;
    }
    renew();
  });
  store.on("ended", renew);
  store.on("connection", () => {
    if (store.connection === "restarted") {
      gaps.length = 0;
      gapsSeen = 0;
    }
  });
  document.addEventListener("visibilitychange", renew);

  function renew() {
    if (shown && !timer && !document.hidden) {
      timer = window.setTimeout(() => {
        timer = 0;
        draw();
      }, RENEW_MS);
    }
  }

  function draw() {
    if (!shown || document.hidden) {
      return;
    }
    const requests = ended.list().reverse();
    clear(cards);
    about.textContent = requests.length ? t("measures.over", { count: requests.length }) : "";
    if (!requests.length) {
      cards.append(h("div", { class: "card empty" }, h("h3", null, t("measures.empty")), h("p", null, t("measures.empty_what"))));
      return;
    }
    cards.append(reading(requests), first(requests), noContradiction(requests), between(requests), output(requests));
  }

  /** @param {any[]} requests */
  function reading(requests) {
    const rates = known(requests.map(readingRate));
    const read = requests.filter((one) => readingRate(one) !== null);
    const rate = quantile(ascending(rates), 0.5);
    return card({ name: "reading", phase: "prefill", values: read.map((one) => one.prefill_ms), format: format.ms, slow: 0.9,
      about: t("measures.of_prompts", { count: read.length }), more: [[t("measures.rate"), format.rate(rate)]] }, requests);
  }

  /** @param {any[]} requests */
  function first(requests) {
    const begun = requests.filter((one) => one.ttft_ms !== null);
    const sum = (/** @type {string} */ field) => begun.reduce((all, one) => all + one[field], 0);
    const parts = [["load", sum("load_ms")], ["queue", sum("queue_ms")], ["prefill", sum("prefill_ms")]];
    const whole = parts.reduce((all, [, ms]) => all + Number(ms), 0);
    const rows = parts.filter(([, ms]) => Number(ms) > 0).map(([phase, ms]) => ({ phase: String(phase),
      name: t(`measures.part_${phase}`), figure: format.percent(Number(ms) / whole), share: Number(ms) / whole }));
    return card({ name: "first", phase: "queue", values: begun.map((one) => one.ttft_ms), format: format.ms, slow: 0.9,
      about: t("measures.of_answers", { count: begun.length }), detail: whole > 0 ? split(rows) : null }, requests);
  }

  /** @param {any[]} requests */
  function between(requests) {
    const live = gaps.length >= GAPS_ENOUGH;
    const written = requests.filter((one) => writingRate(one) !== null);
    // Oldest first: the ring begins behind its newest value.
    const turn = gapsSeen % GAPS_KEPT;
    const seen = gapsSeen > GAPS_KEPT ? [...gaps.slice(turn), ...gaps.slice(0, turn)] : gaps;
    const values = live ? seen : written.map((one) => one.decode_ms / (one.answer_tokens - 1));
    const longest = ascending(known(requests.map((one) => one.itl_max_ms)));
    const stalls = requests.reduce((all, one) => all + one.stalls, 0);
    return card({ name: "between", phase: "decode", values, format: format.ms, slow: 0.9,
      about: live ? t("measures.of_gaps", { count: values.length }) : t("measures.of_means", { count: values.length }),
      more: [[t("measures.longest"), format.ms(longest[longest.length - 1])], [t("measures.stalls"), format.count(stalls)]],
    }, live ? [] : requests);
  }

  /** @param {any[]} requests */
  function output(requests) {
    const rates = known(requests.map(writingRate));
    return card({ name: "output", phase: "decode", values: rates, format: format.rate, slow: 0.1,
      about: t("measures.of_answers", { count: rates.length }) }, requests);
  }

  /** The two rates side by side, and why both are right. @param {any[]} requests */
  function noContradiction(requests) {
    const read = quantile(ascending(known(requests.map(readingRate))), 0.5);
    const written = quantile(ascending(known(requests.map(writingRate))), 0.5);
    const both = read !== null && written !== null && read > written
      ? t("measures.both", { read: format.rate(read), written: format.rate(written) })
      : t("measures.both_unknown");
    return h("aside", { class: "measures-both" }, h("p", null, h("strong", null, both)), h("p", { class: "muted" }, t("measures.why")));
  }

  /** @param {Measure} measure @param {any[]} requests Those that the trend goes over; none for gaps. */
  function card(measure, requests) {
    const id = `measure-${measure.name}`;
    const sorted = ascending(measure.values);
    const heading = h("h3", { id }, h("i", { class: "dot", "data-phase": measure.phase }), t(`measures.${measure.name}`));
    const body = h("section", { class: "card measure", "data-phase": measure.phase, "aria-labelledby": id },
      heading, h("p", null, t(`measures.${measure.name}_means`)));
    if (!sorted.length) {
      body.append(h("p", { class: "muted" }, t("measures.none")));
      return body;
    }
    const at = (/** @type {number} */ share) => measure.format(/** @type {number} */ (quantile(sorted, share)));
    const isTime = measure.slow > 0.5;
    const slow = t(isTime ? "measures.nine_time" : "measures.nine_rate", { value: at(measure.slow) });
    const spread = t("measures.spread", { low: at(0), middle: at(0.5), high: at(1) });
    const ends = /** @type {[string, string]} */ (requests.length
      ? [format.time(requests[0].arrived_at), format.time(requests[requests.length - 1].arrived_at)]
      : [t("measures.earlier"), t("measures.now")]);
    const figures = (measure.more ?? []).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)));
    body.append(
      h("p", { class: "big-figure num" }, at(0.5), " ",
        h("span", { class: "muted small" }, t(isTime ? "measures.median_time" : "measures.median_rate"))),
      h("p", { class: "muted num" }, slow),
      figures.length ? h("dl", { class: "figures" }, ...figures) : "",
      measure.detail ?? "",
      h("div", { class: "measure-charts" },
        h("figure", null, h("figcaption", { class: "small muted" }, t("measures.distribution")),
          distribution(sorted, spread, measure.format)),
        h("figure", null, h("figcaption", { class: "small muted" }, t("measures.trend")),
          trend(measure.values.slice(-200), t("measures.trend_label", { middle: at(0.5) }), ends))),
      h("p", { class: "muted small" }, measure.about));
    return body;
  }

  return {
    show() {
      shown = true;
      draw();
      void ended.fetch().then(draw);
    },
    hide() {
      shown = false;
      clearTimeout(timer);
      timer = 0;
    },
  };
}

/** @param {(number | null | undefined)[]} values @returns {number[]} */
function known(values) {
  return values.filter((value) => value !== null && value !== undefined);
}

/** @param {number[]} values @returns {number[]} */
function ascending(values) {
  return [...values].sort((a, b) => a - b);
}
