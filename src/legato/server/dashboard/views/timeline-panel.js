// @ts-check
// What happened in one stall, in words; opens below the drawing and leaves the rest of the page as it is.

import { clear, h, text } from "../dom.js";
import { explain } from "./timeline-cause.js";

/** Prompts that are named one by one. */
const NAMED = 4;

/**
 * @param {any} app
 * @param {(id: string) => string} nameOf Whose a request is.
 * @param {() => void} closed Called when the reader closes it.
 */
export function createPanel(app, nameOf, closed) {
  const { store, t, format, go } = app;
  const words = h("div", { class: "timeline-cause" });
  // Screen readers speak only what changes in a region that was there before.
  const spoken = h("p", { class: "visually-hidden", role: "status" });
  const link = h("button", { type: "button", class: "button small" }, t("timeline.whole"));
  let about = "";
  link.addEventListener("click", () => go(`history/${about}`));
  const close = h("button", { type: "button", class: "button small", on: { click: leave } }, t("timeline.close"));
  const box = h("div", { class: "notice bad timeline-panel", hidden: true,
    on: { keydown: (/** @type {KeyboardEvent} */ event) => event.key === "Escape" && leave() } },
  words, h("div", { class: "row" }, link, close));

  function hide() {
    box.hidden = true;
    text(spoken, "");
  }

  function leave() {
    hide();
    closed();
  }

  /** @param {import("./timeline-data.js").Stall} stall */
  function sentences(stall) {
    const found = explain(stall, store.steps);
    const said = [];
    if (found.own_tokens) {
      said.push(t("timeline.own_read", { count: found.own_tokens }));
    }
    for (const one of found.read.slice(0, NAMED)) {
      said.push(t("timeline.others_read", { name: nameOf(one.request), count: one.tokens, ms: format.ms(one.ms) }));
    }
    if (found.read.length > NAMED) {
      said.push(t("timeline.more_read", { count: found.read.length - NAMED }));
    }
    if (found.beside) {
      said.push(t("timeline.beside", { count: found.beside }));
    }
    if (!said.length) {
      said.push(t(found.known ? "timeline.alone" : "timeline.unknown"));
    }
    return said;
  }

  return {
    element: h("div", null, spoken, box),
    /** @param {import("./timeline-data.js").Stall} stall */
    open(stall) {
      about = stall.id;
      box.hidden = false;
      clear(words);
      const heading = t("timeline.paused",
        { name: nameOf(stall.id), ms: format.ms(stall.ms), target: format.ms(stall.target), time: format.time(stall.at) });
      const said = sentences(stall);
      words.append(h("p", null, h("strong", null, heading)), ...said.map((one) => h("p", null, one)));
      text(spoken, [heading, ...said].join(" "));
      // An answer that is still being written has no page of its own yet.
      link.hidden = store.requests.has(stall.id);
    },
    close: hide,
    isOpen: () => !box.hidden,
  };
}
