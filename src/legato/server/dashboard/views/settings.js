// @ts-check
// What can be changed while the server runs, and what needs a restart.

import { clear, h, text } from "../dom.js";
import { createCacheBudgets } from "./cache-budgets.js";
import { createPolicyChoice, createSaying, refusal } from "./policy-choice.js";

/** The ends of the slider, ms. It is logarithmic: between 20 and 40 ms lies as much as between 500 and 1,000. */
const LEAST_MS = 20;
const MOST_MS = 1000;
const SLIDER_STEPS = 100;
/** Words of one token, about, in the languages of Europe. */
const WORDS_A_TOKEN = 0.75;
const FIXED = [
  "parallel",
  "context_tokens",
  "batch",
  "joined_calls",
  "interruptible",
  "flash_attention",
  "threads",
  "threads_prefill",
  "kv_type_k",
  "kv_type_v",
  "background_wait_s",
];

/**
 * @param {HTMLElement} root
 * @param {any} app
 * @returns {{show: () => void, hide: () => void}}
 */
export function mount(root, app) {
  const { t, format, api, store } = app;
  const saying = createSaying();
  let shown = false;
  let dragging = false;

  const slider = h("input", {
    type: "range",
    id: "gap-target",
    min: 0,
    max: SLIDER_STEPS,
    step: 1,
    "aria-describedby": "gap-target-means",
    on: { input: moved, change: release },
  });
  const value = h("output", { class: "gap-value num", for: "gap-target" });
  const means = h("p", { id: "gap-target-means" });
  const target = h(
    "fieldset",
    { class: "gap-field" },
    h("legend", { class: "visually-hidden" }, t("settings.gap_target")),
    h("div", { class: "gap-head" }, h("label", { for: "gap-target" }, t("settings.gap_target")), value),
    slider,
    h(
      "div",
      { class: "gap-ends small muted", "aria-hidden": "true" },
      h("span", {}, t("settings.smoother", { time: format.ms(LEAST_MS) })),
      h("span", {}, t("settings.faster", { time: format.ms(MOST_MS) })),
    ),
  );
  const policy = createPolicyChoice(app, { title: t("settings.policy"), say: saying.say });
  const cache = createCacheBudgets(app, saying.say);
  const why = h("div", { class: "notice stack", hidden: true });
  const problem = h("p", { class: "notice bad", role: "alert", hidden: true });
  const rows = h("tbody", {});

  root.append(
    h(
      "div",
      { class: "stack settings" },
      why,
      saying.element,
      h(
        "section",
        { class: "card stack" },
        h("h2", {}, t("settings.gap_title")),
        h("p", { class: "muted" }, t("settings.gap_what")),
        target,
        means,
      ),
      h(
        "section",
        { class: "card stack" },
        h("h2", {}, t("settings.policy_title")),
        policy.element,
        h("p", { class: "small muted" }, t("settings.until_restart")),
      ),
      cache.element,
      h(
        "section",
        { class: "card stack" },
        h("h2", {}, t("settings.fixed")),
        h("p", { class: "muted" }, t("settings.fixed_what")),
        problem,
        h(
          "table",
          { class: "table fixed-table" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              h("th", { scope: "col" }, t("settings.setting")),
              h("th", { scope: "col" }, t("settings.value")),
            ),
          ),
          rows,
        ),
      ),
    ),
  );

  function moved() {
    dragging = true;
    describe(msOf(Number(slider.value)));
  }

  async function release() {
    const gap = msOf(Number(slider.value));
    try {
      await api.send("PATCH", "/api/settings", { gap_target_ms: gap });
      if (store.status) {
        store.status.gap_target_ms = gap;
      } // the next status says so too
      saying.say(t("settings.now_gap", { time: format.ms(gap), words: words(gap) }), false);
    } catch (error) {
      saying.say(/** @type {Error} */ (error).message, true);
    } finally {
      dragging = false;
      refresh();
    }
  }

  /** @param {number} gap ms */
  function words(gap) {
    const rate = (1000 / gap) * WORDS_A_TOKEN;
    return rate < 9.5
      ? (Math.round(rate * 2) / 2).toLocaleString(document.documentElement.lang)
      : format.count(Math.round(rate));
  }

  /** @param {number} gap ms */
  function describe(gap) {
    const pace = gap <= 60 ? "fast" : gap <= 200 ? "reading" : "slow";
    text(value, format.ms(gap));
    text(means, t(`settings.means_${pace}`, { words: words(gap) }));
    slider.setAttribute("aria-valuetext", format.ms(gap));
  }

  function refresh() {
    if (!shown) {
      return;
    }
    const reason = refusal(store);
    target.disabled = reason !== "";
    why.hidden = reason === "";
    if (reason && why.dataset.reason !== reason) {
      why.dataset.reason = reason;
      clear(why);
      why.append(
        h("p", {}, t(reason)),
        h("p", { class: "muted" }, t("settings.how_admin")),
        h("pre", {}, "legato serve MODEL --api-key ana=SECRET --admin ana"),
      );
    }
    policy.refresh();
    cache.refresh();
    const gap = store.status?.gap_target_ms;
    if (gap === undefined || dragging) {
      return;
    }
    slider.value = String(placeOf(gap));
    describe(gap);
  }

  async function load() {
    try {
      const { fixed } = await api.get("/api/settings");
      problem.hidden = true;
      clear(rows);
      const known = FIXED.filter((name) => name in fixed);
      const others = Object.keys(fixed).filter((name) => !FIXED.includes(name));
      rows.append(
        ...known.map((name) => row(name, fixed[name], true)),
        ...others.map((name) => row(name, fixed[name], false)),
      );
    } catch (error) {
      problem.hidden = false;
      text(problem, /** @type {Error} */ (error).message);
    }
  }

  /** @param {string} name @param {any} setting @param {boolean} known There are words for it. */
  function row(name, setting, known) {
    return h(
      "tr",
      {},
      h(
        "th",
        { scope: "row" },
        known ? t(`settings.fixed_${name}`) : name,
        known && h("span", { class: "small muted" }, t(`settings.fixed_${name}_what`)),
      ),
      h("td", { class: "num" }, shownValue(name, setting)),
    );
  }

  /** @param {string} name @param {any} setting */
  function shownValue(name, setting) {
    if (setting === null) {
      return t("settings.automatic");
    }
    if (typeof setting === "boolean") {
      return t(setting ? "settings.on" : "settings.off");
    }
    if (name === "background_wait_s") {
      return format.ms(1000 * setting);
    }
    return typeof setting === "number" ? format.count(setting) : String(setting);
  }

  store.on(["status", "connection"], refresh);

  return {
    show() {
      shown = true;
      refresh();
      load();
    },
    hide() {
      shown = false;
    },
  };
}

/** The gap target at a place of the slider, ms, in round figures. @param {number} place */
function msOf(place) {
  const exact = LEAST_MS * (MOST_MS / LEAST_MS) ** (place / SLIDER_STEPS);
  const round = exact < 100 ? 5 : exact < 300 ? 10 : 50;
  return Math.round(exact / round) * round;
}

/** The place of a gap target, which may have been set to what the slider has not. @param {number} ms */
function placeOf(ms) {
  const within = Math.min(Math.max(ms, LEAST_MS), MOST_MS);
  return Math.round((SLIDER_STEPS * Math.log(within / LEAST_MS)) / Math.log(MOST_MS / LEAST_MS));
}
