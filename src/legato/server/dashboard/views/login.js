// @ts-check
// The box that asks for an API key. The key is sent once, for a session; it never goes into the address or the
// browser's storage.

import { h, text } from "../dom.js";

/**
 * @param {HTMLElement} root
 * @param {any} app
 */
export function mount(root, { t, api }) {
  const key = h("input", {
    id: "login-key",
    type: "password",
    required: true,
    autocomplete: "current-password",
    autocapitalize: "off",
    spellcheck: "false",
    "aria-describedby": "login-help login-problem",
  });
  const problem = h("p", { id: "login-problem", class: "notice bad", role: "alert", lang: "en", hidden: true });
  const button = h("button", { class: "button primary", type: "submit" }, t("login.enter"));

  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    problem.hidden = true;
    try {
      await api.send("POST", "/login", { key: key.value });
      key.value = "";
      location.reload();
    } catch (error) {
      button.disabled = false;
      problem.hidden = false;
      text(problem, /** @type {Error} */ (error).message);
      key.select();
    }
  }

  root.append(
    h(
      "form",
      { class: "card login stack", on: { submit } },
      h("h2", null, t("login.title")),
      h("p", { class: "muted", id: "login-help" }, t("login.help")),
      // Password managers ask for whom they keep something.
      h("input", { type: "text", autocomplete: "username", value: "Legato", hidden: true }),
      h("div", { class: "field" }, h("label", { for: "login-key" }, t("login.key")), key),
      problem,
      h("div", null, button),
    ),
  );
  return { show: () => key.focus(), hide() {} };
}
