// @ts-check
// The accelerator's last minute: what each step was spent on, how smooth the answers were meanwhile, how busy the machine was.

import { attribute, clear, h, text } from "../dom.js";
import { addUp, Gaps, Names, Palette, PALETTE, WINDOW_S } from "./timeline-data.js";
import { Columns, drawGaps, drawSteps, drawUtilisation, readColours, stallAt } from "./timeline-draw.js";
import { createPanel } from "./timeline-panel.js";

/** Between drawings, ms: at most ten a second; one where nothing moves, or the reader wants no motion. */
const FRAME_MS = 100;
const STILL_MS = 1000;
/** Between changes of the words, ms. */
const WORDS_MS = 2000;
const SAMPLES_KEPT = 300;

/**
 * @param {HTMLElement} root
 * @param {any} app
 */
export function mount(root, app) {
  const { store, t, format } = app;
  const gaps = new Gaps();
  const names = new Names();
  const palette = new Palette();
  const columns = new Columns();
  /** @type {{at: number, cpu: number | null, gpu: number | null}[]} */
  const samples = [];
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  /** @type {import("./timeline-data.js").Stall | null} */
  let cursor = null;
  let shown = false;
  let timer = 0;
  let worded = 0;
  let seeded = false;
  /** @type {import("./timeline-draw.js").Colours | null} */
  let colours = null;

  const nameOf = (/** @type {string} */ id) => names.of(id)?.client ?? t("timeline.somebody");
  const fallback = () => store.status?.gap_target_ms ?? 100;
  const targetOf = (/** @type {string} */ id) => names.of(id)?.target ?? fallback();

  const summary = h("p", { class: "muted", id: "timeline-summary" });
  const swatches = Array.from({ length: PALETTE }, (_, i) => h("i", { class: `prompt-${i}` }));
  const legend = h("ul", { class: "legend-list timeline-legend" });
  const stepsCanvas = canvas("timeline-steps", t("timeline.steps_label"));
  const gapsCanvas = canvas("timeline-gaps", t("timeline.gaps_label"));
  const useCanvas = canvas("timeline-use", t("timeline.use_label"));
  // A slider is what screen readers know for "left and right choose one of a row"; its words name the stall.
  const slider = h("div", { class: "timeline-slider", tabindex: "0", role: "slider", "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0",
    "aria-label": t("timeline.stalls_label"), on: { keydown: onKey, click: onClick } }, gapsCanvas);
  const hint = h("p", { class: "muted small" });
  const busy = h("p", { class: "num muted small" });
  const panel = createPanel(app, nameOf, () => slider.focus());
  const marks = ["60", "45", "30", "15"].map((seconds) => h("span", null, t("timeline.ago", { seconds })));
  const axis = h("div", { class: "timeline-axis num muted", "aria-hidden": "true" }, ...marks,
    h("span", null, t("timeline.now")));
  root.append(
    h("section", { class: "card timeline", "aria-labelledby": "timeline-heading" },
      h("h2", { id: "timeline-heading" }, t("timeline.heading")), summary,
      h("div", { class: "timeline-palette", "aria-hidden": "true" }, ...swatches),
      row(t("timeline.steps"), t("timeline.steps_about"), stepsCanvas, legend),
      row(t("timeline.gaps"), t("timeline.gaps_about"), slider, hint, panel.element),
      row(t("timeline.use"), t("timeline.use_about"), useCanvas, axis, busy)));

  store.on("requests", () => names.learn(store.requests.values()));
  store.on("ended", () => names.learn(store.ended.slice(0, 50).reverse()));
  store.on("gaps", (/** @type {string} */ _kind, /** @type {Record<string, number[]>} */ news) => {
    gaps.add(news, store.now(), targetOf);
  });
  store.on("steps", () => {
    if (!seeded && store.steps.length) {
      seeded = true;
      gaps.seed(store.steps, targetOf);
    }
  });
  store.on("status", sample);
  store.on("connection", () => {
    if (store.connection === "restarted") {
      gaps.clear();
      seeded = false;
      samples.length = 0;
      panel.close();
    }
  });
  document.addEventListener("visibilitychange", wake);
  document.addEventListener("themechange", () => {
    colours = null;
    draw();
  });

  function sample() {
    const use = store.status?.utilisation;
    if (!use) {
      return;
    }
    samples.push({ at: store.now(), cpu: use.cpu_percent ?? null, gpu: use.gpu_percent ?? null });
    while (samples.length > SAMPLES_KEPT || (samples.length > 1 && samples[1].at < store.now() - WINDOW_S)) {
      samples.shift();
    }
  }

  /** Draw from now on, if there is somebody to see it; else stop. */
  function wake() {
    clearTimeout(timer);
    timer = 0;
    if (shown && !document.hidden) {
      frame();
    }
  }

  function frame() {
    requestAnimationFrame(draw);
    const moves = !still.matches && (store.steps.length > 0 || gaps.answers.size > 0);
    timer = window.setTimeout(frame, moves ? FRAME_MS : STILL_MS);
  }

  /** @returns {import("./timeline-draw.js").GapsDrawing} */
  function gapsDrawing() {
    const target = fallback();
    colours ??= readColours(root, swatches);
    const targetLabel = t("timeline.target", { ms: format.ms(target) });
    return { gaps, now: store.now(), target, target_label: targetLabel, name: format.ms, cursor, colours };
  }

  function draw() {
    if (!shown || document.hidden) {
      return;
    }
    const now = store.now();
    gaps.forget(now);
    if (cursor && !gaps.stalls.includes(cursor)) {
      cursor = null;
    }
    const what = gapsDrawing();
    const slot = (/** @type {string} */ id) => palette.slot(id);
    drawSteps(stepsCanvas, columns, store.steps, now, slot, what.colours);
    drawGaps(gapsCanvas, what);
    drawUtilisation(useCanvas, samples, now, what.colours);
    if (performance.now() - worded > WORDS_MS) {
      worded = performance.now();
      say(now);
    }
  }

  /** Say in words what the drawings show. @param {number} now Unix s. */
  function say(now) {
    const sum = addUp(store.steps, now - WINDOW_S, now);
    palette.keep((id) => sum.read.has(id));
    text(summary, sentence(sum));
    showLegend(sum);
    sayStalls();
    const { cpu, gpu } = samples[samples.length - 1] ?? { cpu: null, gpu: null };
    text(busy, [gpu === null ? "" : t("timeline.gpu", { percent: format.percent(gpu / 100) }),
      cpu === null ? "" : t("timeline.cpu", { percent: format.percent(cpu / 100) })].filter(Boolean).join(" · "));
  }

  /** @param {import("./timeline-data.js").Minute} sum */
  function sentence(sum) {
    const worked = sum.decode_ms + sum.prefill_ms;
    if (worked <= 0) {
      return t("timeline.idle");
    }
    return t("timeline.summary", { share: format.percent(Math.min(1, worked / 1000 / WINDOW_S)),
      decode: format.ms(sum.decode_ms), prefill: format.ms(sum.prefill_ms) });
  }

  /** @param {import("./timeline-data.js").Minute} sum */
  function showLegend(sum) {
    clear(legend);
    legend.append(h("li", null, h("i", { class: "dot", "data-phase": "decode" }), t("timeline.writing")));
    for (const [id, read] of [...sum.read].slice(-8)) {
      legend.append(h("li", null, h("i", { class: `dot prompt-${palette.slot(id)}` }),
        t("timeline.reading", { name: nameOf(id), count: read.tokens })));
    }
    legend.append(h("li", null, h("i", { class: "dot idle" }), t("timeline.nothing")));
  }

  function sayStalls() {
    const { stalls } = gaps;
    const at = cursor ? stalls.indexOf(cursor) + 1 : 0;
    attribute(slider, "aria-valuemax", stalls.length);
    attribute(slider, "aria-valuenow", at);
    const words = cursor
      ? t("timeline.stall", { number: at, total: stalls.length, name: nameOf(cursor.id), ms: format.ms(cursor.ms) })
      : t("timeline.stalls", { count: stalls.length });
    attribute(slider, "aria-valuetext", words);
    const longest = stalls.reduce((most, stall) => Math.max(most, stall.ms), 0);
    text(hint, cursor ? words : stalls.length ? t("timeline.hint", { count: stalls.length, ms: format.ms(longest) })
      : gaps.answers.size ? t("timeline.smooth") : t("timeline.nobody"));
  }

  /** @param {KeyboardEvent} event */
  function onKey(event) {
    const { stalls } = gaps;
    const at = cursor ? stalls.indexOf(cursor) : -1;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const last = stalls.length - 1;
      const next = event.key === "ArrowLeft" ? (at < 0 ? last : at - 1) : (at < 0 ? last : at + 1);
      cursor = stalls[Math.max(0, Math.min(last, next))] ?? null;
    } else if (event.key === "Home" || event.key === "End") {
      cursor = stalls[event.key === "Home" ? 0 : stalls.length - 1] ?? null;
    } else if ((event.key === "Enter" || event.key === " ") && cursor) {
      panel.open(cursor);
    } else if (event.key === "Escape" && panel.isOpen()) {
      panel.close(); // the reader goes on from there to the next one
    } else if (event.key === "Escape") {
      cursor = null;
    } else {
      return;
    }
    event.preventDefault();
    sayStalls();
    draw();
  }

  /** @param {MouseEvent} event */
  function onClick(event) {
    const box = gapsCanvas.getBoundingClientRect();
    const found = stallAt(gapsCanvas, gapsDrawing(), event.clientX - box.left, event.clientY - box.top);
    if (found) {
      cursor = found;
      panel.open(found);
      sayStalls();
      draw();
    }
  }

  return {
    show() {
      shown = true;
      worded = 0;
      names.learn(store.requests.values());
      sample();
      wake();
    },
    hide() {
      shown = false;
      wake();
    },
  };
}

/** @param {string} name @param {string} label */
function canvas(name, label) {
  return h("canvas", { class: name, role: "img", "aria-label": label, "aria-describedby": "timeline-summary" });
}

/** @param {string} heading @param {string} about @param {...Node} content */
function row(heading, about, ...content) {
  return h("div", { class: "timeline-row" },
    h("div", { class: "timeline-row-head" }, h("h3", null, heading), h("p", { class: "muted small" }, about)),
    ...content);
}
