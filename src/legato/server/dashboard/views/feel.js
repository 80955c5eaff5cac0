// @ts-check
// To feel what the policy does: a chat, a document pasted beside it, and the gaps between the tokens as they come.

import { h, text } from "../dom.js";
import { createBook } from "./feel-book.js";
import { createChat } from "./feel-chat.js";
import { createRuns } from "./feel-runs.js";
import { createGapGraph } from "./gap-graph.js";
import { createPolicyChoice, createSaying, refusal } from "./policy-choice.js";

/** The demonstration: the answer's length, tokens; how long it writes before the document comes, and after. */
const ANSWER_TOKENS = 2000;
const BEFORE_MS = 2000;
const AFTER_MS = 1500;
/** How long the demonstration waits for the answer to begin, ms. */
const PATIENCE_MS = 120_000;
/** After the document is read, until the answer's next token is sure to be here, ms. */
const SETTLE_MS = 500;

/**
 * @param {HTMLElement} root
 * @param {any} app
 * @returns {{show: () => void, hide: () => void}}
 */
export function mount(root, app) {
  const { t, store } = app;
  /** The longest gap of the answer while a document is read, ms; null while none is. @type {number|null} */
  let overlap = null;
  let ended = false;

  const graph = createGapGraph(app);
  const runs = createRuns(app);
  const saying = createSaying();
  const chat = createChat(app, {
    begin() {
      ended = false;
      graph.begin();
    },
    token() {
      const gap = graph.token();
      if (overlap !== null && gap !== null) {
        overlap = Math.max(overlap, gap);
      }
    },
    end() {
      ended = true;
      graph.end();
    },
  });
  const book = createBook(app, paste);
  const policy = createPolicyChoice(app, { title: t("feel.policy"), say: told, compact: true });
  const why = h("p", { class: "small muted" });
  const demo = h("button", { type: "button", class: "button primary", on: { click: demonstrate } }, t("feel.demo"));
  const demoSaid = h("p", { class: "small muted", role: "status" }, t("feel.demo_what"));
  const restore = h(
    "div",
    { class: "notice warn row", hidden: true },
    h("span", {}, t("feel.not_adaptive")),
    h(
      "button",
      { type: "button", class: "button small", on: { click: () => policy.choose("adaptive") } },
      t("feel.back_to_adaptive"),
    ),
  );

  const graphCard = h(
    "section",
    { class: "card feel-graph" },
    h("h2", {}, t("feel.gaps")),
    h("p", { class: "small muted" }, t("feel.gaps_what")),
    graph.element,
  );

  root.append(
    h(
      "div",
      { class: "stack feel" },
      h(
        "section",
        { class: "card feel-intro" },
        h("div", {}, h("h2", {}, t("feel.title")), h("p", {}, t("feel.look"))),
        h("div", { class: "feel-demo" }, demo, demoSaid),
      ),
      h(
        "div",
        { class: "feel-columns" },
        chat.element,
        h(
          "div",
          { class: "feel-side" },
          graphCard,
          h("section", { class: "card stack" }, h("h2", {}, t("feel.book")), book.element),
          h("section", { class: "card stack" }, policy.element, why, saying.element, restore),
        ),
      ),
      runs.element,
    ),
  );

  /** @param {string} words @param {boolean} bad */
  function told(words, bad) {
    saying.say(words, bad);
    refresh();
  }

  function refresh() {
    const reason = refusal(store);
    why.hidden = reason === "";
    if (reason) {
      text(why, t(reason));
    }
    restore.hidden = reason !== "" || (store.status?.policy ?? "adaptive") === "adaptive";
  }

  /** Post the document; beside a running answer that is a run to be compared. */
  async function paste() {
    const beside = chat.writing();
    const used = store.status?.policy ?? "adaptive";
    overlap = beside ? 0 : null;
    graph.reading(true);
    const { ms, tokens } = await book.post();
    graph.reading(false);
    if (!beside || overlap === null) {
      return;
    }
    await pause(SETTLE_MS);
    const longest = Math.max(overlap, ended ? 0 : graph.waiting());
    overlap = null;
    runs.add({
      policy: used,
      longest,
      target: store.status?.gap_target_ms ?? 100,
      book_ms: ms,
      tokens,
      at: store.now(),
    });
  }

  async function demonstrate() {
    if (chat.busy() || book.reading()) {
      text(demoSaid, t("feel.demo_busy"));
      return;
    }
    demo.disabled = true;
    // On phones what is to be watched lies below the button.
    if (graphCard.getBoundingClientRect().bottom > window.innerHeight) {
      graphCard.scrollIntoView({ behavior: "smooth" });
    }
    try {
      text(demoSaid, t("feel.demo_answer"));
      // Its own end would end the demonstration early.
      const answer = chat.ask(t("feel.demo_question"), { max_tokens: ANSWER_TOKENS, ignore_eos: true });
      const patient = performance.now() + PATIENCE_MS;
      while (chat.busy() && !chat.writing() && performance.now() < patient) {
        await pause(50);
      }
      await pause(BEFORE_MS);
      if (!chat.writing()) {
        text(demoSaid, t("feel.demo_short"));
        return;
      }
      text(demoSaid, t("feel.demo_book"));
      await paste();
      await pause(AFTER_MS);
      chat.stop();
      await answer;
      text(demoSaid, t("feel.demo_done"));
    } finally {
      demo.disabled = false;
    }
  }

  store.on(["status", "connection"], refresh);

  return {
    show() {
      graph.show();
      policy.refresh();
      refresh();
    },
    hide: graph.hide,
  };
}

/** @param {number} ms */
function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
