// @ts-check
// A conversation with the model, each answer with its phases under it.

import { clear, h, text } from "../dom.js";
import { createPhases } from "./answer-phases.js";
import { field } from "./field.js";

/** Messages that the page keeps; older ones are neither shown nor sent. */
const MOST_MESSAGES = 40;
/** After a stop, until the server knows the whole of it, ms. */
const SETTLE_MS = 400;

/**
 * @param {any} app
 * @param {{begin: () => void, token: () => void, end: () => void}} listener
 * @returns The chat: `element`; `ask(words, options)` resolves when the answer has ended; `stop()`; `busy()` while an
 *   answer is awaited; `writing()` from its first token on.
 */
export function createChat(app, listener) {
  const { t, api } = app;
  /** @type {{role: string, content: string}[]} */
  let messages = [];
  /** @type {any} */
  let stream = null;
  let stopped = false;
  let tokens = 0;

  const log = h("div", {
    class: "chat-log",
    role: "log",
    "aria-live": "off",
    "aria-label": t("feel.conversation"),
    tabindex: "0",
  });
  const hint = h("p", { class: "empty" }, t("feel.chat_empty"));
  const said = h("p", { class: "visually-hidden", role: "status" });
  const input = h("textarea", { rows: "2", placeholder: t("feel.placeholder"), on: { keydown: keyed } });
  const send = h("button", { type: "submit", class: "button primary" }, t("feel.send"));
  const halt = h("button", { type: "button", class: "button", disabled: true, on: { click: stop } }, t("feel.stop"));
  const anew = h(
    "button",
    { type: "button", class: "button", disabled: true, on: { click: forget } },
    t("feel.new_chat"),
  );
  const element = h(
    "section",
    { class: "card chat" },
    h("h2", {}, t("feel.chat")),
    log,
    h(
      "form",
      { class: "stack chat-form", on: { submit: submitted } },
      field(t("feel.your_message"), input),
      h("div", { class: "row" }, send, halt, anew),
    ),
    said,
  );
  log.append(hint);

  /** Enter sends, as in every chat; with Shift it begins a new line. @param {any} event */
  function keyed(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      submitted(event);
    }
  }

  /** @param {any} event */
  function submitted(event) {
    event.preventDefault();
    const words = input.value.trim();
    if (!words || stream) {
      return;
    }
    input.value = "";
    ask(words);
  }

  function forget() {
    messages = [];
    clear(log);
    log.append(hint);
    anew.disabled = true;
    input.focus();
  }

  function stop() {
    stopped = true;
    stream?.cancel();
  }

  /**
   * @param {string} words
   * @param {Record<string, unknown>} [options] Further fields of the request.
   */
  async function ask(words, options = {}) {
    if (stream) {
      return;
    }
    hint.remove();
    messages.push({ role: "user", content: words });
    messages = messages.slice(-MOST_MESSAGES);
    while (log.children.length >= MOST_MESSAGES) {
      log.firstElementChild?.remove();
    }
    const answer = document.createTextNode("");
    const phases = createPhases(app);
    log.append(
      bubble("user", t("feel.you"), document.createTextNode(words)),
      bubble("assistant", t("feel.model"), answer, phases.element),
    );
    follow(true);
    let id = "";
    /** @type {any} */
    let timings = null;
    tokens = 0;
    stopped = false;
    busy(true);
    listener.begin();
    const body = {
      messages: [...messages],
      stream: true,
      stream_options: { include_usage: true, include_progress: true },
      // A long conversation goes on with its latest turns, rather than ending with an error.
      truncation: "auto",
      ...options,
    };
    try {
      stream = api.stream("/v1/chat/completions", body, (/** @type {any} */ event) => {
        id ||= event.id ?? "";
        timings = event.timings ?? timings;
        if (event.prompt_progress) {
          phases.progress(event.prompt_progress);
        }
        const content = event.choices?.[0]?.delta?.content;
        if (!content) {
          return;
        }
        tokens += 1;
        answer.appendData(content);
        listener.token();
        phases.token(tokens);
        follow(false);
      });
      await stream.done;
    } catch (error) {
      if (!stopped) {
        phases.fail(/** @type {Error} */ (error).message);
      }
    }
    stream = null;
    listener.end();
    busy(false);
    if (answer.data) {
      messages.push({ role: "assistant", content: answer.data });
    } else {
      messages.pop(); // a question without an answer is no turn of a conversation
    }
    if (stopped && id) {
      timings = await recorded(id);
    }
    if (timings || stopped) {
      phases.end(timings, stopped);
      text(said, phases.element.textContent ?? "");
    }
    follow(false);
  }

  /** A stopped stream ends without its timings; the server has recorded them. @param {string} id */
  async function recorded(id) {
    await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    try {
      const [request] = (await api.get(`/api/requests?limit=1&id=${encodeURIComponent(id)}`)).requests;
      return request ? timingsOf(request) : null;
    } catch {
      return null;
    }
  }

  /** @param {boolean} is */
  function busy(is) {
    send.disabled = is;
    halt.disabled = !is;
    anew.disabled = is || messages.length === 0;
    log.setAttribute("aria-busy", String(is));
  }

  /** Keep the newest words in sight, unless the visitor has scrolled up to read. @param {boolean} always */
  function follow(always) {
    if (always || log.scrollHeight - log.scrollTop - log.clientHeight < 120) {
      log.scrollTop = log.scrollHeight;
    }
  }

  return {
    element,
    ask,
    stop,
    writing: () => stream !== null && tokens > 0,
    busy: () => stream !== null,
  };
}

/** What a request of the list tells of its `timings`. @param {any} request */
function timingsOf(request) {
  const { answer_tokens: tokens, decode_ms } = request;
  return {
    ...request,
    prefill_tokens: request.prompt_tokens - request.cached_tokens,
    decode_tokens: tokens,
    decode_tokens_per_second: tokens > 1 && decode_ms > 0 ? (1000 * (tokens - 1)) / decode_ms : null,
  };
}

/** @param {string} role @param {string} name @param {Node} content @param {...Node} rest */
function bubble(role, name, content, ...rest) {
  return h(
    "article",
    { class: `message ${role}` },
    h("h3", {}, name),
    h("p", { class: "message-text" }, content),
    ...rest,
  );
}
