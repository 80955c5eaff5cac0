// @ts-check
// How much may be remembered in memory and on disk.

import { h } from "../dom.js";
import { field } from "./field.js";
import { refusal } from "./policy-choice.js";

/** The fields, and the tiers that `status.cache` has their budgets under. */
const BUDGETS = { cache_memory_mib: "memory", cache_disk_mib: "disk" };
const MIB = 2 ** 20;

/**
 * @param {any} app
 * @param {(words: string, bad: boolean) => void} say Is told what became of a change.
 * @returns {{element: any, refresh: () => void}}
 */
export function createCacheBudgets(app, say) {
  const { t, format, api, store } = app;
  /** @type {Record<string, any>} */
  const inputs = {};
  for (const name of Object.keys(BUDGETS)) {
    inputs[name] = h("input", { type: "number", min: 0, step: 1, inputmode: "numeric", required: true });
  }
  const button = h("button", { class: "button", type: "submit" }, t("settings.cache_save"));
  const form = h(
    "form",
    { class: "card stack", on: { submit } },
    h("h2", {}, t("settings.cache_title")),
    h("p", { class: "muted" }, t("settings.cache_what")),
    h("div", { class: "row" }, Object.keys(BUDGETS).map((name) => field(t(`settings.${name}`), inputs[name]))),
    h("div", {}, button),
  );

  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    /** @type {Record<string, number>} */
    const wanted = {};
    for (const [name, input] of Object.entries(inputs)) {
      if (!input.disabled && Number(input.value) !== present(name)) {
        wanted[name] = Number(input.value);
      }
    }
    if (Object.keys(wanted).length === 0) {
      return;
    }
    button.disabled = true;
    try {
      await api.send("PATCH", "/api/settings", wanted);
      const parts = Object.entries(wanted).map(([name, mib]) => `${t(`settings.${name}`)}: ${format.bytes(mib * MIB)}`);
      say(t("settings.now_cache", { what: parts.join(", ") }), false);
    } catch (error) {
      say(/** @type {Error} */ (error).message, true);
    } finally {
      button.disabled = false;
    }
  }

  /** @param {string} name @returns {number | null} MiB; null while it is not known, or there is no such place. */
  function present(name) {
    const tier = store.status?.cache?.tiers[BUDGETS[/** @type {keyof typeof BUDGETS} */ (name)]];
    return tier ? Math.round(tier.budget_bytes / MIB) : null;
  }

  function refresh() {
    const cache = store.status?.cache;
    form.hidden = !cache || cache.scope === "off";
    for (const [name, input] of Object.entries(inputs)) {
      const budget = present(name);
      input.disabled = refusal(store) !== "" || budget === null || (name === "cache_disk_mib" && !cache.has_disk);
      if (budget !== null && document.activeElement !== input && !form.contains(document.activeElement)) {
        input.value = String(budget);
      }
    }
    button.disabled = Object.values(inputs).every((input) => input.disabled);
  }

  return { element: form, refresh };
}
