// @ts-check
// The filters of the list as a form.

import { clear, h } from "../dom.js";
import { field } from "./field.js";
import { NO_FILTERS, hashOf } from "./history-filters.js";

const ENDS = ["stop", "length", "cancelled", "failed"];
const SLOWER_MS = [1000, 2000, 5000, 10_000, 30_000, 60_000];
/** A pause in typing after which a search begins, ms. */
const TYPING_MS = 300;

/** @typedef {import("./history-filters.js").Filters} Filters */

/**
 * @param {any} app
 * @param {(filters: Filters) => void} changed The visitor chose other filters.
 * @returns {{element: any, fill: (filters: Filters, people: string[]) => void}} `fill` shows filters; `people` are the
 *   names to choose from.
 */
export function createFilterForm({ t, format }, changed) {
  const client = h("select", {});
  const end = h("select", {});
  const slower = h("select", {});
  const search = h("input", { type: "search", placeholder: "cmpl-…", autocomplete: "off", spellcheck: "false" });
  const who = field(t("history.filter_who"), client);
  const reset = h(
    "button",
    { type: "button", class: "button", on: { click: () => changed(NO_FILTERS) } },
    t("history.reset"),
  );
  const element = h(
    "form",
    {
      class: "history-filters",
      "aria-label": t("history.filters"),
      on: { submit: (/** @type {Event} */ event) => event.preventDefault() },
    },
    who,
    field(t("history.filter_end"), end),
    field(t("history.filter_slower"), slower),
    field(t("history.filter_id"), search),
    reset,
  );
  let typing = 0;
  for (const input of [client, end, slower]) {
    input.addEventListener("change", tell);
  }
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = window.setTimeout(tell, TYPING_MS);
  });

  function tell() {
    changed({ client: client.value, end: end.value, slower: slower.value, id: search.value.trim() });
  }

  /** @param {Filters} filters @param {string[]} people */
  function fill(filters, people) {
    reset.hidden = hashOf(filters) === hashOf(NO_FILTERS);
    who.hidden = people.length === 0;
    choose(client, filters.client, [["", t("history.everybody")], ...people.map((name) => [name, name])]);
    choose(end, filters.end, [["", t("history.any_end")], ...ENDS.map((one) => [one, t(`history.end_${one}`)])]);
    const times = SLOWER_MS.map(String);
    if (filters.slower && !times.includes(filters.slower)) {
      times.push(filters.slower);
    }
    choose(slower, filters.slower, [["", t("history.any_time")], ...times.map((ms) => [ms, format.ms(Number(ms))])]);
    if (document.activeElement !== search || filters.id === "") {
      search.value = filters.id;
    }
  }

  return { element, fill };
}

/**
 * Options are only made anew when they changed: an open list would close under the visitor's hand.
 *
 * @param {any} input
 * @param {string} value
 * @param {string[][]} options
 */
function choose(input, value, options) {
  const key = JSON.stringify(options);
  if (input.dataset.options !== key) {
    input.dataset.options = key;
    clear(input);
    for (const [name, label] of options) {
      input.append(h("option", { value: name }, label));
    }
  }
  input.value = value;
}
