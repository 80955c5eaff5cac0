// @ts-check
// What went on while an answer stood still: plain data in, plain data out.

import { addUp, DRIFT_S } from "./timeline-data.js";

/**
 * @typedef {object} Explanation
 * @property {number} own_tokens Of its own prompt that were read (again), after it gave its place up.
 * @property {{request: string, tokens: number, ms: number}[]} read Others' prompts, the longest reading first.
 * @property {number} beside Other answers that were written meanwhile.
 * @property {boolean} known There were steps in that time.
 */

/**
 * What went on in a stall.
 * @param {import("./timeline-data.js").Stall} stall
 * @param {import("./timeline-data.js").Step[]} steps Oldest first.
 * @returns {Explanation}
 */
export function explain(stall, steps) {
  const [from, to] = between(stall, steps);
  const inside = steps.filter((step) => step.begun_at + step.took_ms / 1000 > from + 0.001 && step.begun_at < to);
  const beside = new Set(inside.flatMap((step) => step.decoded));
  beside.delete(stall.id);
  const sum = addUp(steps, from + 0.001, to);
  const own = sum.read.get(stall.id)?.tokens ?? 0;
  sum.read.delete(stall.id);
  const read = [...sum.read].map(([request, what]) => ({ request, ...what })).sort((a, b) => b.ms - a.ms);
  return { own_tokens: own, read, beside: beside.size, known: inside.length > 0 };
}

/**
 * The instants that a gap lay between. This page knows a token's time only to some tenths of a second; the two steps that
 * wrote the tokens know it exactly.
 * @param {import("./timeline-data.js").Stall} stall
 * @param {import("./timeline-data.js").Step[]} steps
 * @returns {[number, number]}
 */
function between(stall, steps) {
  let before = null;
  let best = Infinity;
  /** @type {[number, number]} */
  let found = [stall.at - stall.ms / 1000, stall.at];
  for (const step of steps) {
    if (!step.decoded.includes(stall.id)) {
      continue;
    }
    const end = step.begun_at + step.took_ms / 1000;
    if (before !== null && Math.abs(end - stall.at) < DRIFT_S) {
      const off = Math.abs((end - before) * 1000 - stall.ms) + Math.abs(end - stall.at) * 50;
      if (off < best && off < 0.3 * stall.ms + 60) {
        best = off;
        found = [before, end];
      }
    }
    before = end;
  }
  return found;
}
