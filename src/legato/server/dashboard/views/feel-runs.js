// @ts-check
// What came of the last two times that a document was read beside a running answer, side by side.

import { clear, h } from "../dom.js";

/**
 * @typedef {{policy: string, longest: number, target: number, book_ms: number | null, tokens: number | null,
 *   at: number}} Run
 *   `longest`: gap of the answer meanwhile, ms; `target`: gap target, ms; `at`: unix s.
 */

/**
 * @param {any} app
 * @returns {{element: any, add: (run: Run) => void}}
 */
export function createRuns({ t, format }) {
  /** @type {Run[]} Older first, at most two. */
  let runs = [];
  const places = h("div", { class: "runs" });
  const said = h("p", { class: "visually-hidden", role: "status" });
  const element = h("section", { class: "card" }, h("h2", {}, t("feel.runs")), places, said);
  fill();

  /** @param {Run} run */
  function add(run) {
    runs = [...runs, run].slice(-2);
    fill();
    said.textContent = t("feel.run_said", {
      policy: t(`settings.policy_${run.policy}`),
      longest: format.ms(run.longest),
      time: format.ms(run.book_ms),
    });
  }

  function fill() {
    clear(places);
    if (runs.length === 0) {
      places.append(h("p", { class: "muted" }, t("feel.no_runs")));
      return;
    }
    const longest = Math.max(...runs.map((run) => run.longest), 1);
    const slowest = Math.max(...runs.map((run) => run.book_ms ?? 0), 1);
    places.append(...runs.map((run) => card(run, longest, slowest)));
    if (runs.length === 1) {
      places.append(h("p", { class: "muted run-hint" }, t("feel.run_again")));
    }
  }

  /** @param {Run} run @param {number} longest @param {number} slowest */
  function card(run, longest, slowest) {
    const times = run.longest / Math.max(run.target, 1);
    const how = times <= 1 ? "good" : times <= 3 ? "warn" : "bad";
    return h(
      "article",
      { class: "run" },
      h("h3", {}, t(`settings.policy_${run.policy}`), h("span", { class: "small muted" }, ` ${format.time(run.at)}`)),
      h(
        "dl",
        {},
        h("dt", { class: "small muted" }, t("feel.run_gap")),
        h("dd", { class: `num run-${how}` }, format.ms(run.longest)),
        h("dd", { class: "small muted" }, against(times, run.target)),
        bar(how, run.longest / longest),
        h(
          "dt",
          { class: "small muted" },
          run.tokens === null ? t("feel.run_book") : t("feel.run_book_of", { tokens: format.count(run.tokens) }),
        ),
        h("dd", { class: "num" }, run.book_ms === null ? t("feel.run_failed") : format.ms(run.book_ms)),
        bar("reading", (run.book_ms ?? 0) / slowest),
      ),
    );
  }

  /** @param {number} times The gap, in gap targets. @param {number} target */
  function against(times, target) {
    if (times <= 1) {
      return t("feel.run_within", { target: format.ms(target) });
    }
    return t("feel.run_times", {
      times: times < 9.5 ? decimal(times) : format.count(times),
      target: format.ms(target),
    });
  }

  return { element, add };
}

/** @param {number} value */
function decimal(value) {
  return value.toLocaleString(document.documentElement.lang, { maximumFractionDigits: 1 });
}

/** @param {string} kind @param {number} share */
function bar(kind, share) {
  const part = h("span", { class: `run-${kind}-bar` });
  part.style.setProperty("width", `${100 * share}%`);
  return h("dd", { class: "bar", "aria-hidden": "true" }, part);
}
