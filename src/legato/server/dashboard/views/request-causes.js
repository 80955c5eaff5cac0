// @ts-check
// What a stretch of a request's time was spent on, by cause.

import { h } from "../dom.js";

/** The causes, with the colour of each: own work in its phase's colour, others' in theirs, the rest in grey. */
const CAUSES = [
  { name: "own_prefill", phase: "prefill" },
  { name: "own_decode", phase: "decode" },
  { name: "others_prefill", phase: "others" },
  { name: "others_decode", phase: "others" },
  { name: "engine", phase: "load" },
  { name: "delivery", phase: "load" },
];

/**
 * The phase whose colour a cause has.
 *
 * @param {string} cause
 * @returns {string}
 */
export function phaseOf(cause) {
  return CAUSES.find(({ name }) => name === cause)?.phase ?? "load";
}

/**
 * A card with a bar for each cause that took any time, longest first.
 *
 * @param {string} title
 * @param {any} parts `prefill_parts` or `decode_parts`; null where nothing was recorded.
 * @param {{t: Function, format: Record<string, Function>}} app
 * @returns {HTMLElement}
 */
export function causeList(title, parts, { t, format }) {
  const card = h("section", { class: "card" }, h("h2", {}, title));
  const found = parts
    ? CAUSES.map(({ name, phase }) => ({ name, phase, ms: parts[`${name}_ms`] })).filter(({ ms }) => ms >= 0.05)
    : [];
  if (found.length === 0) {
    card.append(h("p", { class: "muted" }, t("request.no_parts")));
    return card;
  }
  found.sort((a, b) => b.ms - a.ms);
  const whole = found.reduce((sum, { ms }) => sum + ms, 0);
  card.append(
    h(
      "ul",
      { class: "causes" },
      found.map(({ name, phase, ms }) =>
        h(
          "li",
          {},
          h("span", {}, t(`request.cause_${name}`)),
          h("span", { class: "num" }, format.ms(ms), h("span", { class: "muted" }, ` ${format.percent(ms / whole)}`)),
          bar(phase, ms / whole),
          name === "others_prefill" && blamed(parts.blamed, t, format),
        ),
      ),
    ),
  );
  return card;
}

/** @param {string} phase @param {number} share */
function bar(phase, share) {
  const part = h("span", { "data-phase": phase });
  part.style.setProperty("width", `${100 * share}%`);
  return h("span", { class: "bar", "aria-hidden": "true" }, part);
}

/**
 * Whose prompts were read meanwhile, each with a link to its own detail.
 *
 * @param {{request: string, tokens: number, ms: number}[]} blames
 * @param {Function} t
 * @param {Record<string, Function>} format
 */
function blamed(blames, t, format) {
  if (!blames?.length) {
    return null;
  }
  return h(
    "ul",
    { class: "blamed small" },
    blames
      .slice(0, 10)
      .map((blame) =>
        h(
          "li",
          {},
          h("a", { href: `#history/${encodeURIComponent(blame.request)}` }, blame.request),
          h(
            "span",
            { class: "muted" },
            ` ${t("request.blamed", { tokens: format.count(blame.tokens), time: format.ms(blame.ms) })}`,
          ),
        ),
      ),
  );
}
