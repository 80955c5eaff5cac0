// @ts-check
// One ended request: what its wait was, in words, and the whole of it over time.

import { clear, h, text } from "../dom.js";
import { copyText } from "./copy.js";
import { PHASES, phaseBar } from "./phase-bar.js";
import { causeList } from "./request-causes.js";
import { overTime } from "./request-time.js";
import { verdictText } from "./verdict-words.js";

/**
 * @param {HTMLElement} root
 * @param {any} app
 * @param {{back: () => string}} [list] Where the list is that the visitor came from, as a hash without `#`.
 * @returns {{show: (id?: string) => void, hide: () => void}}
 */
export function mount(root, app, list = { back: () => "history" }) {
  const { t, format, api } = app;
  const body = h("div", { class: "stack" });
  const back = h(
    "a",
    { class: "button small", href: "#history" },
    h("span", { "aria-hidden": "true" }, "←"),
    t("request.back"),
  );
  const copy = h("button", { type: "button", class: "button small", on: { click: copyLink } }, t("request.copy_link"));
  const said = h("span", { class: "muted small", role: "status" });
  root.append(h("div", { class: "stack request" }, h("div", { class: "row" }, back, copy, said), body));
  /** What is shown, so that an answer that comes late is not. */
  let wanted = "";

  async function show(id = "") {
    back.setAttribute("href", `#${list.back()}`);
    if (id === wanted) {
      return;
    }
    wanted = id;
    text(said, "");
    window.scrollTo(0, 0);
    back.focus({ preventScroll: true }); // the link that was followed is gone
    clear(body);
    body.append(h("p", { class: "muted" }, t("request.loading")));
    try {
      const found = await api.get(`/api/requests/${encodeURIComponent(id)}`);
      if (id === wanted) {
        fill(found.request, found.verdict);
      }
    } catch (error) {
      if (id === wanted) {
        fail(id, error);
      }
    }
  }

  /** @param {string} id @param {any} error */
  function fail(id, error) {
    wanted = ""; // asked again when it is opened again
    clear(body);
    const known = error.status === 404 ? t("request.unknown", { id }) : error.message;
    body.append(h("div", { class: "notice bad", role: "alert" }, h("p", {}, known)));
    if (error.status === 404) {
      body.append(h("p", { class: "muted" }, t("request.unknown_why")));
    }
  }

  async function copyLink() {
    text(said, t((await copyText(location.href)) ? "request.copied" : "request.copy_failed"));
  }

  /** @param {any} record @param {any} verdict */
  function fill(record, verdict) {
    clear(body);
    body.append(head(record, verdict), phases(record), causes(record), overTime(record, app), ...remembered(record));
  }

  /** @param {any} record @param {any} verdict */
  function head(record, verdict) {
    return h(
      "section",
      { class: "card stack" },
      h(
        "h2",
        {},
        t("request.title", { who: record.client ?? t("request.somebody"), time: format.time(record.arrived_at) }),
      ),
      ...verdictText(record.timings, verdict, app),
      h(
        "div",
        { class: "row small" },
        h("span", { class: "chip" }, t(`history.end_${record.end}`)),
        h("span", { class: "chip" }, record.model),
        record.service_tier === "flex" && h("span", { class: "chip" }, t("request.background")),
        h("code", { class: "muted request-id" }, record.id),
      ),
      record.error && h("p", { class: "notice bad", lang: "en" }, record.error),
    );
  }

  /** @param {any} record */
  function phases(record) {
    const { timings } = record;
    const figures = PHASES.filter(({ name, field }) => name !== "load" || timings[field] >= 0.05).map(
      ({ name, field }) =>
        h(
          "div",
          { "data-phase": name },
          h("dt", {}, h("span", { class: "dot", "data-phase": name }), t(`request.label_${name}`)),
          h(
            "dd",
            {},
            format.ms(timings[field]),
            h(
              "span",
              { class: "muted" },
              ` ${format.percent(timings.total_ms > 0 ? timings[field] / timings.total_ms : 0)}`,
            ),
          ),
          h("dd", { class: "what muted small" }, what(name, record)),
        ),
    );
    return h(
      "section",
      { class: "card stack" },
      h("h2", {}, t("request.where")),
      phaseBar(timings, "large"),
      h("dl", { class: "figures request-phases" }, figures),
      h("p", { class: "muted" }, totals(timings)),
    );
  }

  /** What was done in a phase, in a few words. @param {string} name @param {any} record */
  function what(name, { timings, behind }) {
    if (name === "queue") {
      return behind.length ? t("request.behind", { count: behind.length }) : t("request.queue_what");
    }
    if (name === "prefill") {
      return timings.prefill_tokens_per_second === null
        ? t("request.read", { tokens: format.count(timings.prefill_tokens) })
        : t("request.read_at", {
            tokens: format.count(timings.prefill_tokens),
            rate: format.rate(timings.prefill_tokens_per_second),
          });
    }
    if (name === "decode") {
      return timings.decode_tokens_per_second === null
        ? t("request.wrote", { tokens: format.count(timings.decode_tokens) })
        : t("request.wrote_at", {
            tokens: format.count(timings.decode_tokens),
            rate: format.rate(timings.decode_tokens_per_second),
          });
    }
    return t("request.load_what");
  }

  /** @param {any} timings */
  function totals(timings) {
    const words = [t("request.total", { time: format.ms(timings.total_ms) })];
    if (timings.ttft_ms !== null) {
      words.push(t("request.first_token", { time: format.ms(timings.ttft_ms) }));
    }
    if (timings.itl_max_ms !== null) {
      words.push(t("request.gaps", { median: format.ms(timings.itl_p50_ms), longest: format.ms(timings.itl_max_ms) }));
    }
    if (timings.preemptions > 0) {
      words.push(t("request.preempted", { count: timings.preemptions }));
    }
    return words.join(" ");
  }

  /** @param {any} record */
  function causes({ timings }) {
    return h(
      "div",
      { class: "request-causes" },
      causeList(t("request.while_reading"), timings.prefill_parts, app),
      causeList(t("request.while_writing"), timings.decode_parts, app),
    );
  }

  /** @param {any} record */
  function remembered({ timings, prompt_tokens }) {
    const { reread } = timings;
    if (timings.cached_tokens === 0 && !reread) {
      return [];
    }
    return [
      h(
        "section",
        { class: "card stack" },
        h("h2", {}, t("request.memory")),
        timings.cached_tokens > 0 &&
          h(
            "p",
            {},
            t("request.cached", {
              cached: format.count(timings.cached_tokens),
              prompt: format.count(prompt_tokens),
              where: t(`request.tier_${timings.cached_in ?? "live"}`),
              saved: format.ms(timings.saved_ms),
            }),
          ),
        reread && why(reread),
      ),
    ];
  }

  /** @param {any} reread */
  function why(reread) {
    return h(
      "div",
      { class: "notice warn" },
      h(
        "p",
        {},
        t("request.reread", {
          what: t(`request.change_${reread.kind}`),
          at: format.count(reread.at_token),
          lost: format.count(reread.lost_tokens),
          time: format.ms(reread.lost_ms),
        }),
      ),
      reread.was && h("p", { class: "small" }, t("request.was"), " ", h("q", {}, reread.was)),
      reread.now && h("p", { class: "small" }, t("request.is_now"), " ", h("q", {}, reread.now)),
    );
  }

  return {
    show,
    hide() {
      wanted = "";
      clear(body);
    },
  };
}
