// @ts-check
// What is remembered: the KV cells, the cache's tiers, what that saved, and the remembered prompts themselves.

import { clear, h, text } from "../dom.js";
import { split, quantile } from "./charts.js";
import { createEndedRequests, readingRate } from "./ended-requests.js";
import { createEntries } from "./memory-entries.js";

/** Between two looks at the list, ms. */
const LOOK_MS = 5000;
/** Between two renewals of the figures, ms. */
const RENEW_MS = 1000;

/**
 * @param {HTMLElement} root
 * @param {any} app
 */
export function mount(root, app) {
  const { store, t, format, api } = app;
  const ended = createEndedRequests(app);
  let shown = false;
  let looking = 0;
  let renewing = 0;
  let visit = 0;

  const places = h("p", { class: "sentence" });
  const cells = h("div");
  const tiers = h("div", { class: "memory-tiers" });
  const saved = h("div", { class: "stack" });
  const trouble = h("p", { class: "notice bad", role: "alert", hidden: true });
  const entries = createEntries(app, look);
  root.append(h("div", { class: "stack" },
    h("section", { class: "card stack memory-cells", "aria-labelledby": "memory-cells" },
      h("h2", { id: "memory-cells" }, t("memory.cells")), places, cells, h("p", { class: "muted small" }, t("memory.cells_what"))),
    h("div", { class: "memory-two" },
      h("section", { class: "card", "aria-labelledby": "memory-tiers" },
        h("h2", { id: "memory-tiers" }, t("memory.tiers")), tiers),
      h("section", { class: "card", "aria-labelledby": "memory-saved" },
        h("h2", { id: "memory-saved" }, t("memory.saved")), saved)),
    trouble, entries.element));

  store.on("status", renew);
  store.on("ended", renew);
  document.addEventListener("visibilitychange", () => shown && !document.hidden && void look());

  function renew() {
    if (shown && !renewing && !document.hidden) {
      renewing = window.setTimeout(() => {
        renewing = 0;
        draw();
      }, RENEW_MS);
    }
  }

  function draw() {
    if (!shown || document.hidden) {
      return;
    }
    showCells();
    showTiers();
    showSaved();
  }

  function showCells() {
    const { status } = store;
    clear(cells);
    if (!status?.kv_cells) {
      text(places, t("memory.no_model"));
      return;
    }
    text(places, t("memory.places", { count: status.running, parallel: status.parallel ?? 0 }));
    const all = status.kv_cells;
    const used = Math.min(all, status.kv_cells_used ?? 0);
    const parked = Math.min(all - used, status.cache?.tiers.live.tokens ?? 0);
    const part = (/** @type {string} */ phase, /** @type {number} */ tokens) => ({ phase, share: tokens / all,
      name: t(`memory.${phase}`), figure: t("memory.tokens", { count: tokens }) });
    cells.append(split([part("used", used), part("parked", parked), part("free", all - used - parked)]));
  }

  function showTiers() {
    const { status } = store;
    clear(tiers);
    const cache = status?.cache;
    if (!cache) {
      tiers.append(h("p", { class: "muted" }, t("memory.no_cache")));
      return;
    }
    tiers.append(h("p", { class: "muted" }, t(`memory.scope_${cache.scope}`)));
    const { live, memory, disk } = cache.tiers;
    const most = status.kv_cells || 1;
    tiers.append(tier("live", live, live.tokens / most, t("memory.tokens", { count: live.tokens })),
      ...[["memory", memory], ["disk", disk]].map(([name, held]) => tier(name, held,
        held.budget_bytes ? held.bytes / held.budget_bytes : 0,
        held.budget_bytes ? t("memory.of", { used: format.bytes(held.bytes), budget: format.bytes(held.budget_bytes) })
          : t("memory.off"))));
  }

  /** @param {string} name @param {{entries: number}} held @param {number} share @param {string} figure */
  function tier(name, held, share, figure) {
    const fill = h("span");
    fill.style.setProperty("width", `${Math.min(100, share * 100).toFixed(2)}%`);
    return h("div", { class: "memory-tier" },
      h("div", { class: "memory-tier-head" }, h("h3", null, t(`memory.tier_${name}`)), h("span", { class: "num" }, figure)),
      h("div", { class: "bar", "aria-hidden": "true" }, fill),
      h("p", { class: "muted small" }, t(`memory.tier_${name}_what`), " ", t("memory.prompts", { count: held.entries })));
  }

  function showSaved() {
    const requests = ended.list();
    clear(saved);
    const asked = requests.reduce((sum, one) => sum + one.prompt_tokens, 0);
    if (!asked) {
      saved.append(h("p", { class: "muted" }, t("memory.saved_empty")));
      return;
    }
    const known = requests.reduce((sum, one) => sum + one.cached_tokens, 0);
    const hits = requests.filter((one) => one.cached_tokens > 0).length;
    const rates = requests.map(readingRate).filter((rate) => rate !== null).sort((a, b) => a - b);
    const rate = quantile(rates, 0.5);
    const figure = (/** @type {string} */ name, /** @type {string} */ value) =>
      h("div", null, h("dt", null, t(`memory.${name}`)), h("dd", null, value));
    saved.append(
      h("p", { class: "big-figure num" }, format.percent(known / asked), " ",
        h("span", { class: "muted small" }, t("memory.hit_rate"))),
      h("p", null, rate === null || !known ? t("memory.saved_tokens", { count: known })
        : t("memory.saved_time", { count: known, ms: format.ms((known / rate) * 1000) })),
      h("dl", { class: "figures" }, figure("began_known", t("memory.n_of_m", { hits, all: requests.length })),
        figure("asked", format.count(asked))),
      h("p", { class: "muted small" }, t("memory.saved_over", { count: requests.length })));
  }

  /** Look at the list now, and again every few seconds as long as somebody sees it. */
  async function look() {
    clearTimeout(looking);
    if (!shown || document.hidden) {
      return;
    }
    visit += 1;
    const mine = visit;
    try {
      const cache = await api.get("/api/cache");
      if (mine === visit) {
        trouble.hidden = true;
        entries.update(cache);
      }
    } catch (error) {
      if (mine === visit) {
        trouble.hidden = false;
        text(trouble, /** @type {Error} */ (error).message);
      }
    }
    if (shown && mine === visit) {
      looking = window.setTimeout(look, LOOK_MS);
    }
  }

  return {
    show() {
      shown = true;
      draw();
      void ended.fetch().then(draw);
      void look();
    },
    hide() {
      shown = false;
      visit += 1;
      clearTimeout(looking);
      clearTimeout(renewing);
      renewing = 0;
    },
  };
}
