// @ts-check
// The list of remembered prompts, which admins may pin and forget. Never their content: nobody's words are shown.

import { h, text } from "../dom.js";

/** Rows that are shown. */
const ROWS = 100;

/**
 * @param {any} app
 * @param {() => Promise<void>} changed Called when the list is another one.
 * @returns {{element: HTMLElement, update: (cache: any) => void}}
 */
export function createEntries(app, changed) {
  const { store, t, format, api } = app;
  /** Rows are kept from look to look, so that a button keeps its focus. @type {Map<string, ReturnType<typeof createRow>>} */
  const rows = new Map();

  const body = h("tbody");
  const columns = ["length", "size", "where", "hits", "unused", "whose"];
  const numbers = ["length", "size", "hits", "unused"];
  // A phone has no room for all of them.
  const looks = (/** @type {string} */ name) =>
    `${numbers.includes(name) ? "num" : ""} ${["hits", "whose"].includes(name) ? "memory-wide" : ""}`.trim();
  const actions = h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, t("memory.actions")));
  const table = h("table", { class: "table memory-table" },
    h("caption", { class: "visually-hidden" }, t("memory.entries")),
    h("thead", null, h("tr", null, ...columns.map((name) =>
      h("th", { scope: "col", class: looks(name) }, t(`memory.${name}`))), actions)), body);
  const scroll = h("div", { class: "table-scroll memory-scroll", tabindex: "0", role: "region", "aria-label": t("memory.entries"),
    hidden: true }, table);
  const empty = h("div", { class: "empty", hidden: true }, h("p", null, t("memory.empty")));
  const more = h("p", { class: "muted small" });
  const said = h("p", { role: "status" });
  const all = button(t("memory.forget_all"), () => ask(true));
  all.hidden = true;
  const question = h("p");
  const confirm = h("div", { class: "notice bad memory-confirm", hidden: true, role: "group", "aria-label": t("memory.forget_all") },
    question, h("div", { class: "row" }, button(t("memory.forget_all_yes"), forgetAll), button(t("memory.keep"), () => ask(false))));
  const element = h("section", { class: "card stack", "aria-labelledby": "memory-entries" },
    h("div", { class: "row memory-head" }, h("h2", { id: "memory-entries" }, t("memory.entries")), all),
    h("div", null, h("p", { class: "muted" }, t("memory.entries_what")), said), confirm, empty, scroll, more);

  /** @param {boolean} asked */
  function ask(asked) {
    confirm.hidden = !asked;
    (asked ? confirm.querySelector("button:last-child") : all).focus();
  }

  async function forgetAll() {
    await change(() => api.send("DELETE", "/api/cache"), (answer) => t("memory.forgot", { count: answer.freed.entries,
      bytes: format.bytes(answer.freed.bytes) }));
    ask(false);
  }

  /**
   * @param {() => Promise<any>} send
   * @param {(answer: any) => string} words What to say when it is done.
   */
  async function change(send, words) {
    try {
      text(said, words(await send()));
    } catch (error) {
      text(said, /** @type {Error} */ (error).message);
    }
    await changed();
  }

  /** @param {string} id Empty for what is in the cells alone, which can be neither pinned nor forgotten by itself. */
  function createRow(id) {
    const cells = columns.map((name) => h("td", { class: looks(name) }));
    const path = `/api/cache/${encodeURIComponent(id)}`;
    let pinned = false;
    let tokens = 0;
    const pin = button("", () => {
      const said = pinned ? "memory.is_unpinned" : "memory.is_pinned";
      return change(() => api.send(pinned ? "DELETE" : "PUT", `${path}/pin`), () => t(said, { count: tokens }));
    });
    const forget = button(t("memory.forget"), () => change(() => api.send("DELETE", path),
      (answer) => t("memory.forgot", { count: answer.freed.entries, bytes: format.bytes(answer.freed.bytes) })));
    const last = h("td", null, h("div", { class: "memory-actions" }, id ? [pin, forget] : []));
    if (id) {
      cells[0].id = `remembered-${id}`;
      pin.setAttribute("aria-describedby", cells[0].id);
      forget.setAttribute("aria-describedby", cells[0].id);
    }
    const mark = h("span", { class: "chip" }, t("memory.pinned"));
    const where = h("span");
    cells[2].append(where, " ", mark);
    return {
      element: h("tr", null, ...cells, last),
      /** @param {any} entry @param {boolean} admin */
      update(entry, admin) {
        ({ pinned, tokens } = entry);
        text(cells[0], format.count(entry.tokens));
        text(cells[1], entry.bytes ? format.bytes(entry.bytes) : "–");
        text(where, entry.places.map((/** @type {string} */ place) => t(`memory.in_${place}`)).join(", "));
        text(cells[3], format.count(entry.hits));
        text(cells[4], format.ms(entry.unused_s * 1000));
        text(cells[5], entry.scope || t("memory.everybody"));
        mark.hidden = !pinned;
        text(pin, t(pinned ? "memory.unpin" : "memory.pin"));
        pin.hidden = !admin;
        forget.hidden = !admin;
      },
    };
  }

  return {
    element,
    update(cache) {
      const admin = Boolean(store.hello?.admin);
      const shown = cache.entries.slice(0, ROWS);
      const keys = shown.map((/** @type {any} */ entry, /** @type {number} */ i) => entry.id || `cells-${i}`);
      for (const [key, row] of rows) {
        if (!keys.includes(key)) {
          row.element.remove();
          rows.delete(key);
        }
      }
      shown.forEach((/** @type {any} */ entry, /** @type {number} */ i) => {
        const row = rows.get(keys[i]) ?? createRow(entry.id);
        rows.set(keys[i], row);
        row.update(entry, admin);
        // Moving an element takes its focus away: only those that stand wrong are moved.
        if (body.children[i] !== row.element) {
          body.insertBefore(row.element, body.children[i] ?? null);
        }
      });
      empty.hidden = shown.length > 0;
      scroll.hidden = shown.length === 0;
      all.hidden = !admin || shown.length === 0;
      confirm.hidden = confirm.hidden || all.hidden;
      actions.hidden = !admin;
      text(question, t("memory.forget_all_sure", { count: cache.entries.length }));
      text(more, cache.entries.length > ROWS ? t("memory.more", { count: cache.entries.length - ROWS }) : "");
    },
  };
}

/** @param {string} name @param {() => void} action */
function button(name, action) {
  return h("button", { type: "button", class: "button small", on: { click: action } }, name);
}
