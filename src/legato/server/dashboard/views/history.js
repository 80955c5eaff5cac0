// @ts-check
// The requests that have ended: a list with filters, and one of them in detail.

import { clear, h, text } from "../dom.js";
import { csvOf, download } from "./export.js";
import { NO_FILTERS, belongs, filtersOf, hashOf, pathOf } from "./history-filters.js";
import { createFilterForm } from "./history-form.js";
import { requestRow } from "./history-row.js";
import { mount as mountRequest } from "./request.js";

const PAGE = 50;
/** Rows that the page holds at most; then the oldest go, so that a page left open does not grow. */
const MOST_ROWS = 1000;
const COLUMNS = ["time", "who", "tokens", "first_token", "longest_gap", "whole", "verdict"];

/**
 * @param {HTMLElement} root
 * @param {any} app
 * @returns {{show: () => void, hide: () => void}}
 */
export function mount(root, app) {
  const { t, store, api } = app;
  /** @type {import("./history-filters.js").Filters} */
  let filters = NO_FILTERS;
  /** @type {any[]} */
  let requests = [];
  /** @type {string|null} */
  let next = null;
  let asked = 0;
  let loading = false;
  let loaded = false;
  let shown = false;
  let opened = "";
  let scrolled = 0;
  /** @type {Set<string>} Who was seen so far. */
  const names = new Set();

  const rows = h("tbody", { role: "rowgroup" });
  const count = h("p", { class: "muted history-count" });
  const said = h("p", { class: "visually-hidden", role: "status" });
  const problem = h("p", { class: "notice bad", role: "alert", hidden: true });
  const empty = h("div", { class: "empty", hidden: true });
  const more = button("history.more", () => load(false));
  const csv = button("history.csv", () => download("requests.csv", "text/csv", csvOf(requests)), "small");
  const json = button(
    "history.json",
    () => download("requests.json", "application/json", JSON.stringify(requests, null, 2)),
    "small",
  );
  const form = createFilterForm(app, change);
  const table = h(
    "table",
    { class: "table history-table", role: "table" },
    h("caption", { class: "visually-hidden" }, t("history.title")),
    h(
      "thead",
      { role: "rowgroup" },
      h(
        "tr",
        { role: "row" },
        ...COLUMNS.map((name) =>
          h(
            "th",
            { role: "columnheader", scope: "col", class: name === "who" || name === "verdict" ? "" : "num" },
            t(`history.${name}`),
          ),
        ),
      ),
    ),
    rows,
  );
  const list = h(
    "section",
    { class: "card history-list" },
    h(
      "div",
      { class: "history-head" },
      h("h2", {}, t("history.title")),
      h("div", { class: "history-export" }, csv, json),
    ),
    h("p", { class: "muted" }, t("history.intro")),
    form.element,
    problem,
    count,
    said,
    table,
    empty,
    more,
  );
  const detailRoot = h("div", { hidden: true });
  root.append(list, detailRoot);
  const detail = mountRequest(detailRoot, app, { back: () => hashOf(filters) });

  /**
   * The address is changed in place: stepping back leaves the list instead of undoing each filter.
   *
   * @param {import("./history-filters.js").Filters} wanted
   */
  function change(wanted) {
    history.replaceState(history.state, "", `#${hashOf(wanted)}`);
    filters = wanted;
    fill();
    load(true);
  }

  /** @param {boolean} anew From the newest on; else the next page. */
  async function load(anew) {
    if (loading && !anew) {
      return;
    }
    const mine = ++asked;
    loading = true;
    more.disabled = true;
    table.setAttribute("aria-busy", "true");
    try {
      const page = await api.get(pathOf(filters, anew ? null : next, PAGE));
      if (mine !== asked) {
        return;
      }
      if (anew) {
        requests = [];
      }
      const known = new Set(requests.map((request) => request.id));
      requests.push(...page.requests.filter((/** @type {any} */ request) => !known.has(request.id)));
      next = page.next;
      loaded = true;
      problem.hidden = true;
      if (anew) {
        clear(rows);
      }
      for (const request of requests.slice(rows.children.length)) {
        rows.append(requestRow(request, app));
      }
    } catch (error) {
      if (mine !== asked) {
        return;
      }
      problem.hidden = false;
      text(problem, /** @type {Error} */ (error).message);
    } finally {
      if (mine === asked) {
        loading = false;
        more.disabled = false;
        table.setAttribute("aria-busy", "false");
        tell();
        text(said, count.textContent ?? "");
      }
    }
  }

  /** Requests that ended since: on top, without a word, for a list that speaks all day is switched off. */
  function takeEnded() {
    if (!shown || !loaded || loading) {
      return;
    }
    const known = new Set(requests.map((request) => request.id));
    const fresh = store.ended.filter((/** @type {any} */ one) => !known.has(one.id) && belongs(filters, one));
    if (fresh.length === 0) {
      return;
    }
    const oldest = requests.at(-1)?.arrived_at ?? 0;
    for (const one of fresh) {
      // Older than all on this page: it belongs to one that was not asked for yet.
      if (next !== null && one.arrived_at < oldest) {
        continue;
      }
      const at = requests.findIndex((other) => other.arrived_at < one.arrived_at);
      const place = at < 0 ? requests.length : at;
      requests.splice(place, 0, one);
      const row = requestRow(one, app);
      row.classList.add("fresh");
      rows.insertBefore(row, rows.children[place] ?? null);
    }
    while (requests.length > MOST_ROWS) {
      requests.pop();
      rows.lastElementChild?.remove();
    }
    tell();
  }

  function tell() {
    const filtered = hashOf(filters) !== "history";
    table.hidden = requests.length === 0;
    more.hidden = next === null || requests.length >= MOST_ROWS;
    empty.hidden = !loaded || requests.length > 0;
    csv.disabled = json.disabled = requests.length === 0;
    text(empty, t(filtered ? "history.none_match" : "history.none"));
    text(
      count,
      requests.length === 0 ? "" : t(next === null ? "history.shown_all" : "history.shown", { count: requests.length }),
    );
    fill();
  }

  function fill() {
    for (const one of [...requests, ...store.ended, ...store.requests.values(), filters]) {
      if (one.client) {
        names.add(one.client);
      }
    }
    form.fill(filters, [...names].sort());
  }

  /** The list or one request, as the address says. */
  function route() {
    if (!shown) {
      return;
    }
    const hash = location.hash;
    const id = /^#history\/([^?]+)/.exec(hash)?.[1];
    const wasList = !list.hidden;
    if (id !== undefined && wasList) {
      scrolled = window.scrollY;
    }
    list.hidden = id !== undefined;
    detailRoot.hidden = id === undefined;
    if (id !== undefined) {
      opened = decoded(id);
      detail.show(opened);
      return;
    }
    detail.hide();
    if (!wasList) {
      // Back where the visitor was, with the keyboard too.
      window.scrollTo(0, scrolled);
      rows.querySelector(`[data-id="${CSS.escape(opened)}"] a`)?.focus({ preventScroll: true });
    }
    const wanted = filtersOf(hash);
    const same = hashOf(wanted) === hashOf(filters);
    filters = wanted;
    fill();
    if (!same || !(loaded || loading)) {
      load(true);
    } else {
      takeEnded();
    }
  }

  window.addEventListener("hashchange", route);
  store.on(["ended"], takeEnded);
  // What ended while the connection was lost was never told.
  store.on(["connection"], () => {
    if (store.connection === "lost") {
      loaded = false;
    } else if (shown && !loaded && !loading && !list.hidden) {
      load(true);
    }
  });

  return {
    show() {
      shown = true;
      route();
    },
    hide() {
      shown = false;
      detail.hide();
    },
  };

  /** @param {string} key @param {() => void} click @param {string} [size] */
  function button(key, click, size = "") {
    return h("button", { type: "button", class: `button ${size}`, on: { click } }, t(key));
  }
}

/** @param {string} id */
function decoded(id) {
  try {
    return decodeURIComponent(id);
  } catch {
    return id;
  }
}
