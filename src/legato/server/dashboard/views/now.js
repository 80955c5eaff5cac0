// @ts-check
// Now: one sentence, a few figures, and a lane for each request.

import { attribute, clear, h, text } from "../dom.js";
import { Lane } from "./now-lane.js";
import { sentence } from "./now-sentence.js";
import { PHASES, Track } from "./now-tracker.js";

const TICK_MS = 250;
/** The shortest time a sentence stands. */
const SENTENCE_MS = 2000;
/** How long a lane stays after its end, s. */
const STAYS_S = 5;

/**
 * @param {HTMLElement} root
 * @param {any} app
 */
export function mount(root, app) {
  const { store, t, format } = app;
  /** @type {Map<string, Track>} */
  const tracks = new Map();
  /** @type {Map<string, Lane>} */
  const lanes = new Map();
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let timer;
  let saidKind = "";
  let said_ms = -SENTENCE_MS;

  const line = h("p", { class: "sentence", "aria-live": "polite" });
  const problem = h("p", { class: "notice bad", lang: "en", hidden: true });
  /** @type {Record<string, HTMLElement>} */
  const figures = {};
  const title = h("h2", { class: "visually-hidden", id: "now-lanes" }, t("now.lanes"));
  const list = h("ul", { class: "lanes", "aria-labelledby": "now-lanes" });
  const legend = buildLegend();
  const empty = h("div", { class: "card", hidden: true });
  root.append(
    h(
      "div",
      { class: "hero" },
      line,
      problem,
      buildFigures(["answered", "waiting", "reading_rate", "writing_rate", "target"]),
    ),
    title,
    list,
    legend,
    empty,
  );

  /** @param {string[]} names */
  function buildFigures(names) {
    return h(
      "dl",
      { class: "figures hero-figures" },
      names.map((one) => {
        figures[one] = h("dd", null, "–");
        return h("div", null, h("dt", null, t(`now.figure_${one}`)), figures[one]);
      }),
    );
  }

  function buildLegend() {
    return h(
      "div",
      { class: "legend small muted", hidden: true },
      h("p", null, t("now.legend_strip")),
      h("ul", null, PHASES.map(buildPhase)),
      h("p", null, t("now.legend_rhythm")),
    );
  }

  /** @param {string} phase */
  function buildPhase(phase) {
    return h("li", null, h("span", { class: "dot", "data-phase": phase }), ` ${t(`now.legend_${phase}`)}`);
  }

  function fillEmpty() {
    const keys = store.hello?.keys ? ' -H "Authorization: Bearer YOUR-KEY"' : "";
    const address = `${location.origin}/v1/chat/completions`;
    const messages = [{ role: "user", content: t("now.empty_hello") }];
    const body = JSON.stringify({ model: store.status?.model ?? "", messages });
    clear(empty);
    empty.append(
      h("h2", null, t("now.empty_title")),
      h(
        "div",
        { class: "empty" },
        h("p", null, t("now.empty_hint"), " ", h("a", { href: "#feel" }, t("now.empty_feel"))),
        h("p", null, t("now.empty_code")),
        h("pre", null, h("code", null, `curl ${address}${keys} \\\n  -H "Content-Type: application/json" \\\n  -d '${body}'`)),
      ),
    );
  }

  function takeRequests() {
    const now_s = store.now();
    for (const [id, request] of store.requests) {
      const track = tracks.get(id);
      if (track) {
        track.update(request, now_s);
      } else {
        tracks.set(id, new Track(request, now_s));
      }
    }
    for (const id of [...tracks.keys()]) {
      if (!store.requests.has(id)) {
        tracks.delete(id);
        lanes.get(id)?.end(null);
      }
    }
  }

  /** @param {string} _kind @param {Record<string, number[]>} gaps */
  function takeGaps(_kind, gaps) {
    for (const [id, some] of Object.entries(gaps)) {
      tracks.get(id)?.addGaps(some, store.now());
      const lane = lanes.get(id);
      if (lane) {
        lane.isDirty = true;
      }
    }
  }

  /** @param {string} _kind @param {Record<string, number>} silent */
  function takeSilent(_kind, silent) {
    for (const [id, ms] of Object.entries(silent)) {
      tracks.get(id)?.setSilent(ms);
    }
  }

  /** @param {string} _kind @param {{requests: any[]}} ended */
  function takeEnded(_kind, ended) {
    for (const summary of ended.requests) {
      lanes.get(summary.id)?.end(summary);
    }
  }

  function takeConnection() {
    // Everything comes anew after it.
    if (store.connection !== "open") {
      forget();
    }
  }

  function forget() {
    tracks.clear();
    lanes.clear();
    clear(list);
  }

  function updateLanes() {
    for (const [id, track] of tracks) {
      if (!lanes.has(id)) {
        const lane = new Lane(app, track);
        lanes.set(id, lane);
        list.append(lane.node);
      }
    }
    for (const [id, lane] of lanes) {
      if (lane.ended_at !== null && store.now() > lane.ended_at + STAYS_S) {
        lane.node.remove();
        lanes.delete(id);
      } else {
        lane.update();
      }
    }
  }

  function updateSentence() {
    const { kind, text: wanted } = sentence(app, tracks.values());
    const isOld = saidKind === "connecting" || saidKind === "lost" || performance.now() - said_ms >= SENTENCE_MS;
    if (line.textContent !== wanted && isOld) {
      said_ms = performance.now();
      // New figures in the same sentence are seen, and not spoken each time.
      attribute(line, "aria-live", kind === saidKind ? "off" : "polite");
      saidKind = kind;
      text(line, wanted);
    }
  }

  function updateFigures() {
    const { status } = store;
    if (status === null) {
      return;
    }
    const { running, parallel } = status;
    text(figures.answered, parallel ? t("now.of", { count: running, total: parallel }) : format.count(running));
    text(figures.waiting, format.count(status.waiting));
    text(figures.reading_rate, format.rate(status.prefill_tokens_per_second));
    text(figures.writing_rate, format.rate(status.decode_tokens_per_second));
    text(figures.target, format.ms(status.gap_target_ms));
    text(problem, status.history_problem ?? "");
    problem.hidden = !status.history_problem;
  }

  function tick() {
    updateLanes();
    updateSentence();
    updateFigures();
    const isEmpty = lanes.size === 0;
    title.hidden = isEmpty;
    list.hidden = isEmpty;
    legend.hidden = isEmpty;
    const wantsHint = isEmpty && store.status?.state === "ready" && store.connection === "open";
    if (wantsHint && empty.hidden) {
      fillEmpty();
    }
    empty.hidden = !wantsHint;
  }

  store.on("requests", takeRequests);
  store.on("gaps", takeGaps);
  store.on("silent", takeSilent);
  store.on("ended", takeEnded);
  store.on("connection", takeConnection);
  document.addEventListener("themechange", () => lanes.forEach((lane) => (lane.isDirty = true)));

  return {
    show() {
      clearInterval(timer);
      timer = setInterval(tick, TICK_MS);
      tick();
    },
    hide() {
      clearInterval(timer);
      // What ended meanwhile is history when the tab is opened again.
      lanes.clear();
      clear(list);
    },
  };
}
