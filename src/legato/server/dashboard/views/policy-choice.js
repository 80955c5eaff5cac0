// @ts-check
// How prompts are read beside running answers: a choice for those who may change it, and the state for all.

import { h, text } from "../dom.js";

export const POLICIES = ["adaptive", "chunked", "whole"];
let made = 0;

/**
 * Why this visitor may not change settings; empty if they may.
 *
 * @param {any} store
 * @returns {string} The key of a text, or "".
 */
export function refusal(store) {
  if (store.hello?.admin ?? true) {
    return "";
  }
  return store.hello.keys ? "settings.not_admin" : "settings.no_keys";
}

/**
 * @param {any} app
 * @param {{title: string, say: (words: string, bad: boolean) => void, compact?: boolean}} options
 *   `say` is told what became of a change.
 * @returns {{element: any, refresh: () => void, choose: (policy: string) => Promise<void>}}
 */
export function createPolicyChoice(app, { title, say, compact = false }) {
  const { t, api, store } = app;
  const name = `policy-${++made}`;
  /** @type {Map<string, any>} */
  const inputs = new Map();
  let changing = false;
  const options = POLICIES.map((policy) => {
    const input = h("input", { type: "radio", name, value: policy, on: { change: () => choose(policy) } });
    inputs.set(policy, input);
    return h(
      "label",
      { class: "policy" },
      input,
      h("span", {}, h("strong", {}, t(`settings.policy_${policy}`)), h("code", { class: "small muted" }, policy)),
      h("span", { class: "small muted policy-what" }, t(`settings.policy_${policy}_${compact ? "short" : "what"}`)),
    );
  });
  const element = h("fieldset", { class: `policies ${compact ? "compact" : ""}` }, h("legend", {}, title), options);

  /** @param {string} policy */
  async function choose(policy) {
    changing = true;
    try {
      await api.send("PATCH", "/api/settings", { policy });
      say(
        t("settings.now_policy", {
          policy: t(`settings.policy_${policy}`),
          what: t(`settings.policy_${policy}_short`),
        }),
        false,
      );
      if (store.status) {
        store.status.policy = policy;
      } // the next status says so too
    } catch (error) {
      say(/** @type {Error} */ (error).message, true);
    } finally {
      changing = false;
      refresh();
    }
  }

  function refresh() {
    if (changing) {
      return;
    }
    const current = store.status?.policy;
    for (const [policy, input] of inputs) {
      input.checked = policy === current;
    }
    element.disabled = refusal(store) !== "";
  }

  store.on(["status", "connection"], refresh);
  refresh();
  return { element, refresh, choose };
}

/**
 * A live region that says what was changed.
 *
 * @returns {{element: any, say: (words: string, bad: boolean) => void}}
 */
export function createSaying() {
  const element = h("p", { class: "notice saying", role: "status", hidden: true });
  return {
    element,
    say(words, bad) {
      element.hidden = false;
      element.classList.toggle("bad", bad);
      element.classList.toggle("good", !bad);
      text(element, words);
    },
  };
}
