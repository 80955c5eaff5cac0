// @ts-check
// The phases of an answer, under it: while it comes, and when it has ended.

import { h, text } from "../dom.js";
import { fillPhaseBar, phaseBar } from "./phase-bar.js";

/**
 * @param {any} app
 * @returns The part of the page: `element`; `progress(prompt_progress)`; `token(n)`; `end(timings, stopped)`;
 *   `fail(message)`.
 */
export function createPhases({ t, format }) {
  const bar = phaseBar({});
  const words = h("p", { class: "small muted num" });
  const element = h("div", { class: "answer-phases" }, bar, words);
  const begun = performance.now();
  /** @type {number|null} */
  let firstAt = null;
  let told = 0;
  text(words, t("feel.waits"));

  return {
    element,

    /** @param {{total: number, processed: number, left_ms: number|null}} progress */
    progress(progress) {
      fillPhaseBar(bar, { prefill_ms: progress.processed, queue_ms: 0 });
      const values = { done: format.count(progress.processed), total: format.count(progress.total) };
      text(
        words,
        progress.left_ms === null
          ? t("feel.reads", values)
          : t("feel.reads_left", { ...values, left: format.ms(progress.left_ms) }),
      );
    },

    /** @param {number} tokens Of the answer, so far. */
    token(tokens) {
      const now = performance.now();
      firstAt ??= now;
      // Figures that change faster than twice a second are not read.
      if (now - told < 500) {
        return;
      }
      told = now;
      fillPhaseBar(bar, { prefill_ms: firstAt - begun, decode_ms: now - firstAt });
      text(words, t("feel.writes", { tokens: format.count(tokens) }));
    },

    /** @param {any} timings Of the answer, null where they are not known. @param {boolean} stopped By the visitor. */
    end(timings, stopped) {
      if (timings) {
        fillPhaseBar(bar, timings);
      }
      text(
        words,
        [stopped ? t("feel.stopped") : "", timings ? sentence(timings, t, format) : ""].filter(Boolean).join(" "),
      );
    },

    /** @param {string} message */
    fail(message) {
      words.className = "notice bad";
      words.setAttribute("role", "alert");
      text(words, message);
    },
  };
}

/**
 * The phases of an answer in words.
 *
 * @param {any} timings
 * @param {Function} t
 * @param {Record<string, Function>} format
 * @returns {string}
 */
export function sentence(timings, t, format) {
  const parts = [];
  if (timings.load_ms + timings.queue_ms >= 1) {
    parts.push(t("feel.waited", { time: format.ms(timings.load_ms + timings.queue_ms) }));
  }
  parts.push(t("feel.read", { tokens: format.count(timings.prefill_tokens), time: format.ms(timings.prefill_ms) }));
  if (timings.cached_tokens > 0) {
    parts.push(t("feel.remembered", { tokens: format.count(timings.cached_tokens) }));
  }
  if (timings.ttft_ms !== null) {
    parts.push(t("feel.first_token", { time: format.ms(timings.ttft_ms) }));
  }
  if (timings.decode_tokens_per_second !== null) {
    const values = { tokens: format.count(timings.decode_tokens), rate: format.rate(timings.decode_tokens_per_second) };
    parts.push(t("feel.wrote", values));
  }
  if (timings.itl_max_ms !== null) {
    parts.push(t("feel.longest_gap", { time: format.ms(timings.itl_max_ms) }));
  }
  return parts.join(" · ");
}
