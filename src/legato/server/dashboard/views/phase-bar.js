// @ts-check
// The four phases of a request as one bar; the same everywhere, so that a colour is learned once.

import { clear, h } from "../dom.js";

/** The phases in the order in which they pass, with the field of `timings` that holds each. */
export const PHASES = [
  { name: "load", field: "load_ms" },
  { name: "queue", field: "queue_ms" },
  { name: "prefill", field: "prefill_ms" },
  { name: "decode", field: "decode_ms" },
];

/**
 * A bar of a request's phases, each as wide as it was long. It is decoration: the words beside it say the same.
 *
 * @param {Record<string, any>} times `load_ms`, `queue_ms`, `prefill_ms`, `decode_ms`, in ms.
 * @param {string} [size] "small" or "large".
 * @returns {HTMLElement}
 */
export function phaseBar(times, size = "small") {
  return fillPhaseBar(h("span", { class: `bar phase-bar ${size}`, "aria-hidden": "true" }), times);
}

/**
 * Fill a bar anew, while its times are still growing.
 *
 * @param {HTMLElement} bar What `phaseBar` made.
 * @param {Record<string, any>} times In ms.
 * @returns {HTMLElement} The bar.
 */
export function fillPhaseBar(bar, times) {
  clear(bar);
  for (const { name, field } of PHASES) {
    const ms = times[field] ?? 0;
    if (ms <= 0) {
      continue;
    }
    const part = h("span", { "data-phase": name });
    part.style.setProperty("flex-grow", String(ms));
    bar.append(part);
  }
  return bar;
}
