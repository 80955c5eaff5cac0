// @ts-check
// One request, as a card: who, in which phase, and how it goes.

import { attribute, clear, h, text } from "../dom.js";
import { drawRhythm } from "./now-rhythm.js";
import { PAUSE, capital, name, timeLeft } from "./now-sentence.js";
import { PHASES } from "./now-tracker.js";
import { verdictLine } from "./verdict-words.js";

/** A lane and what stands in it. */
export class Lane {
  /**
   * @param {any} app
   * @param {import("./now-tracker.js").Track} track
   */
  constructor(app, track) {
    this._app = app;
    this._track = track;
    /** Server time at which it ended, unix s; null while it runs. @type {number | null} */
    this.ended_at = null;
    const { t } = app;
    const { request } = track;

    this._age = h("span", { class: "muted num" });
    this._phase = h("span", { class: "chip" });
    this._segments = PHASES.map((phase) => h("span", { "data-phase": phase }));
    this._detail = h("div", { class: "stack lane-detail" });
    /** @type {string} */
    this._shown = "";
    /** @type {Record<string, HTMLElement>} */
    this._parts = {};
    this._width = 0;
    this.isDirty = true;
    this.node = h(
      "li",
      { class: "lane" },
      h("div", { class: "bar lane-phases", "aria-hidden": "true" }, this._segments),
      h(
        "div",
        { class: "lane-head" },
        h("h3", null, capital(name(t, request))),
        h("span", { class: "muted small" }, t(request.endpoint === "chat" ? "now.chat" : "now.completion")),
        request.service_tier === "flex" && h("span", { class: "chip", title: t("now.background_help") }, t("now.background")),
        this._age,
      ),
      h("div", { class: "row" }, this._phase),
      this._detail,
    );
  }

  /** Show how it is now. */
  update() {
    const { store, format } = this._app;
    const { request } = this._track;
    const now_s = this.ended_at ?? store.now();
    text(this._age, format.ms(Math.max(0, (now_s - request.begun_at) * 1000)));
    const phases = this._track.phasesUntil(now_s);
    PHASES.forEach((phase, i) => {
      this._segments[i].style.setProperty("flex-grow", String(Math.round(phases[phase])));
      this._segments[i].hidden = phases[phase] < 1;
    });
    if (this.ended_at !== null) {
      return;
    }
    this._phaseIs(request.phase);
    if (request.phase === "decode") {
      this._updateWriting(request);
    } else if (request.phase === "prefill") {
      this._updateReading(request);
    } else {
      this._updateWaiting(request);
    }
  }

  /**
   * The request has ended: the lane stays a while.
   * @param {any | null} summary Of the ended request; null if it is not known (yet).
   */
  end(summary) {
    const { store, t, format } = this._app;
    this.ended_at ??= store.now();
    const end = summary?.end ?? "stop";
    attribute(this.node, "data-ended", end);
    attribute(this._phase, "data-phase", null);
    text(this._phase, t(`now.ended_${["cancelled", "failed"].includes(end) ? end : "well"}`));
    this._shown = "ended";
    clear(this._detail);
    if (summary) {
      const figures = t("now.ended_figures", { count: summary.answer_tokens, total: format.ms(summary.total_ms) });
      this._detail.append(
        h("p", {}, verdictLine(summary, this._app)),
        h("p", { class: "small muted" }, `${figures} `, h("a", { href: `#history/${summary.id}` }, t("now.details"))),
      );
    }
    this.update();
  }

  /** @param {string} phase */
  _phaseIs(phase) {
    if (this._shown === phase) {
      return;
    }
    const { t } = this._app;
    this._shown = phase;
    attribute(this._phase, "data-phase", phase);
    text(this._phase, t(`common.phase_${phase}`));
    clear(this._detail);
    this._parts = {};
    if (phase === "decode") {
      this._parts.canvas = h("canvas", { class: "rhythm", "aria-hidden": "true" });
      this._detail.append(this._parts.canvas, this._figures(["rate", "worst", "written"]));
      this.isDirty = true;
    } else if (phase === "prefill") {
      this._parts.fill = h("span", { "data-phase": "prefill" });
      this._parts.progress = h(
        "div",
        { class: "bar progress", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": t("now.read") },
        this._parts.fill,
      );
      this._detail.append(this._parts.progress, this._figures(["left", "read", "rate"]));
      this._parts.remembered = h("p", { class: "small muted" });
      this._detail.append(this._parts.remembered);
    } else {
      this._parts.wait = h("p");
      this._detail.append(this._parts.wait);
    }
  }

  /** @param {string[]} names */
  _figures(names) {
    return h(
      "dl",
      { class: "figures lane-figures" },
      names.map((one) => {
        this._parts[one] = h("dd");
        return h("div", null, h("dt", null, this._app.t(`now.${one}`)), this._parts[one]);
      }),
    );
  }

  /** @param {any} request */
  _updateWaiting(request) {
    const { store, t, format } = this._app;
    if (request.phase === "queue") {
      text(this._parts.wait, t("now.ahead", { count: request.ahead }));
    } else {
      const share = store.status?.load_share;
      text(this._parts.wait, share ? t("now.waits_share", { share: format.percent(share) }) : t("now.waits_load"));
    }
  }

  /** @param {any} request */
  _updateReading(request) {
    const { t, format } = this._app;
    const share = request.prompt_tokens > 0 ? request.read_tokens / request.prompt_tokens : 0;
    this._parts.fill.style.setProperty("width", `${(100 * share).toFixed(1)}%`);
    attribute(this._parts.progress, "aria-valuenow", Math.round(100 * share));
    const left = request.prefill_left_ms;
    text(this._parts.left, left === null ? "–" : timeLeft(format, left));
    text(this._parts.read, t("now.read_of", { read: request.read_tokens, total: request.prompt_tokens }));
    text(this._parts.rate, format.rate(this._track.readRate()));
    text(this._parts.remembered, request.cached_tokens > 0 ? t("now.remembered", { count: request.cached_tokens }) : "");
    this._parts.remembered.hidden = request.cached_tokens === 0;
  }

  /** @param {any} request */
  _updateWriting(request) {
    const { store, t, format } = this._app;
    const target = request.gap_target_ms ?? store.status?.gap_target_ms ?? 100;
    text(this._parts.rate, format.rate(request.decode_tokens_per_second));
    text(this._parts.worst, format.ms(request.gap_max_ms));
    attribute(this._parts.worst, "class", request.gap_max_ms > PAUSE * target ? "over" : null);
    text(this._parts.written, format.count(request.answer_tokens));
    const canvas = /** @type {HTMLCanvasElement} */ (this._parts.canvas);
    if (this.isDirty || canvas.clientWidth !== this._width) {
      this.isDirty = false;
      this._width = canvas.clientWidth;
      drawRhythm(canvas, this._track.gaps, target, format.ms(target));
    }
  }
}
