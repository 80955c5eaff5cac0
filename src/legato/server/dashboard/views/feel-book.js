// @ts-check
// The document that somebody pastes: posts it as another request, and shows how far it is read.

import { h, text } from "../dom.js";
import { makeBook } from "./book.js";

/** What the document shall have, tokens: long enough to be felt. */
const BOOK_TOKENS = 3000;
/** Room in the context for the question, the template and the answer, tokens. */
const ROOM = 128;

/**
 * @param {any} app
 * @param {() => void} pressed The button was pressed.
 * @returns The part of the page: `element`; `post()` resolves with `{ms, tokens}` when it has been read, `ms` null if
 *   it was not; `reading()`; `stop()`.
 */
export function createBook(app, pressed) {
  const { t, format, api } = app;
  /** @type {any} */
  let stream = null;
  let busy = false;
  const button = h("button", { type: "button", class: "button", on: { click: pressed } }, t("feel.paste"));
  const fill = h("span", { "data-phase": "prefill" });
  const bar = h(
    "div",
    {
      class: "bar book-bar",
      role: "progressbar",
      "aria-label": t("feel.book_progress"),
      "aria-valuemin": 0,
      "aria-valuemax": 100,
      "aria-valuenow": 0,
    },
    fill,
  );
  const words = h("p", { class: "small muted num" }, t("feel.book_idle", { tokens: BOOK_TOKENS }));
  const element = h("div", { class: "stack book" }, h("div", { class: "row" }, button), bar, words);

  /** @param {number} share */
  function advance(share) {
    fill.style.setProperty("width", `${100 * share}%`);
    bar.setAttribute("aria-valuenow", String(Math.round(100 * share)));
  }

  async function post() {
    if (busy) {
      return { ms: null, tokens: null };
    }
    busy = true;
    button.disabled = true;
    advance(0);
    text(words, t("feel.book_waits"));
    const begun = performance.now();
    /** @type {number|null} */
    let firstAt = null;
    /** @type {number|null} */
    let total = null;
    /** @type {any} */
    let timings = null;
    try {
      const book = makeBook(await fitting());
      const body = {
        messages: [{ role: "user", content: `${book}\n\n${t("feel.book_question")}` }],
        max_tokens: 16,
        stream: true,
        stream_options: { include_usage: true, include_progress: true },
      };
      stream = api.stream("/v1/chat/completions", body, (/** @type {any} */ event) => {
        timings = event.timings ?? timings;
        if (event.prompt_progress && firstAt === null) {
          const { total: all, processed, left_ms } = event.prompt_progress;
          total = all;
          advance(all > 0 ? processed / all : 0);
          const values = { done: format.count(processed), total: format.count(all) };
          text(
            words,
            left_ms === null ? t("feel.reads", values) : t("feel.reads_left", { ...values, left: format.ms(left_ms) }),
          );
        }
        if (event.choices?.[0]?.delta?.content) {
          firstAt ??= performance.now();
        }
      });
      await stream.done;
      const ms = timings?.ttft_ms ?? (firstAt === null ? null : firstAt - begun);
      const tokens = timings?.prefill_tokens ?? total;
      advance(ms === null ? 0 : 1);
      text(
        words,
        ms === null
          ? t("feel.book_stopped")
          : t("feel.book_read", { tokens: format.count(tokens), time: format.ms(ms) }),
      );
      return { ms, tokens };
    } catch (error) {
      text(words, /** @type {Error} */ (error).message);
      return { ms: null, tokens: total };
    } finally {
      stream = null;
      busy = false;
      button.disabled = false;
    }
  }

  /** How long a document fits beside the rest, tokens. */
  async function fitting() {
    try {
      const context = (await api.get("/api/settings")).fixed?.context_tokens;
      return context ? Math.max(200, Math.min(BOOK_TOKENS, Math.round(0.8 * (context - ROOM)))) : BOOK_TOKENS;
    } catch {
      return BOOK_TOKENS;
    }
  }

  return { element, post, reading: () => busy, stop: () => stream?.cancel() };
}
