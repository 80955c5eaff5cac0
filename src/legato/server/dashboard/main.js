// @ts-check
// The page's frame: language, theme, tabs, connection, and the login box where a session is needed.

import { createApi } from "./api.js";
import { attribute, h, text } from "./dom.js";
import { createFormat } from "./format.js";
import { Store, follow } from "./live.js";
import { applyTheme, remember, remembered, themeChoice } from "./theme.js";
import * as feel from "./views/feel.js";
import * as historyView from "./views/history.js";
import * as login from "./views/login.js";
import * as measures from "./views/measures.js";
import * as memory from "./views/memory.js";
import * as now from "./views/now.js";
import * as settings from "./views/settings.js";
import * as timeline from "./views/timeline.js";
import { LANGUAGES, chooseLanguage, createWords } from "./words.js";

/** The views of each tab, from top to bottom. */
const TABS = {
  now: [now, timeline],
  measures: [measures],
  history: [historyView],
  memory: [memory],
  feel: [feel],
  settings: [settings],
};

/** @param {string} id @returns {any} */
const find = (id) => document.getElementById(id);

const language = chooseLanguage([remembered("language"), ...navigator.languages]);
const t = createWords(language);
const store = new Store();
const api = createApi({ onUnauthorized: showLogin, unreachable: () => t("common.unreachable") });
const app = { store, t, format: createFormat(language), api, go };

/** @type {Map<string, {section: HTMLElement, link: HTMLElement, views: {show(): void, hide(): void}[] | null}>} */
const tabs = new Map();
let open = "";
let isLoginShown = false;

/** @param {string} hash Without `#`. */
function go(hash) {
  location.hash = hash;
}

function translateFrame() {
  document.documentElement.lang = language;
  for (const node of document.querySelectorAll("[data-text]")) {
    text(node, t(node.getAttribute("data-text") ?? ""));
  }
  for (const node of document.querySelectorAll("[data-label]")) {
    attribute(node, "aria-label", t(node.getAttribute("data-label") ?? ""));
  }
}

function buildSwitches() {
  for (const [code, name] of Object.entries(LANGUAGES)) {
    find("language").append(h("option", { value: code, lang: code, selected: code === language }, name));
  }
  find("language").addEventListener("change", () => choose("language", find("language").value));
  find("theme").value = themeChoice();
  find("theme").addEventListener("change", () => {
    const wanted = find("theme").value;
    remember("theme", wanted);
    applyTheme(wanted);
  });
  find("logout").addEventListener("click", async () => {
    await api.send("POST", "/logout").catch(() => null);
    location.reload();
  });
  document.querySelector(".skip")?.addEventListener("click", (event) => {
    event.preventDefault(); // the hash names the tab
    find("main").focus();
  });
}

/**
 * Every view was written in one language: the page begins anew in the other.
 * @param {string} name
 * @param {string} value
 */
function choose(name, value) {
  const words = new URLSearchParams(location.search);
  words.delete(name);
  if (!remember(name, value)) {
    words.set(name, value);
  }
  const wanted = words.size > 0 ? `?${words}` : "";
  if (wanted === location.search) {
    location.reload();
  } else {
    location.replace(`${location.pathname}${wanted}${location.hash}`);
  }
}

function buildTabs() {
  for (const name of Object.keys(TABS)) {
    const link = h("a", { href: `#${name}`, id: `tab-${name}` }, t(`common.tab_${name}`));
    const section = h("section", { class: "view", id: `view-${name}`, "aria-labelledby": `tab-${name}`, hidden: true });
    find("tabs").append(h("li", null, link));
    find("main").append(section);
    tabs.set(name, { section, link, views: null });
  }
  window.addEventListener("hashchange", route);
}

/** Show the tab that the address names. */
function route() {
  const asked = location.hash.slice(1).split(/[/?]/)[0];
  const name = tabs.has(asked) ? asked : "now";
  document.title = `${t(`common.tab_${name}`)} · Legato`;
  if (name === open || isLoginShown) {
    return;
  }
  const before = tabs.get(open);
  if (before) {
    before.section.hidden = true;
    before.link.removeAttribute("aria-current");
    before.views?.forEach((view) => view.hide());
  }
  open = name;
  const tab = /** @type {any} */ (tabs.get(name));
  tab.link.setAttribute("aria-current", "page");
  bringIntoSight(tab.link);
  // Shown first: drawings ask how wide they are.
  tab.section.hidden = false;
  tab.views ??= TABS[/** @type {keyof TABS} */ (name)].map((view) => mountIn(tab.section, view));
  tab.views.forEach((/** @type {any} */ view) => view.show());
}

/**
 * Scroll the row of tabs, where it is wider than the screen. Not by `scrollIntoView`, from where the Tab key would go on.
 * @param {HTMLElement} link
 */
function bringIntoSight(link) {
  const row = find("tabs");
  const wanted = link.getBoundingClientRect();
  const shown = row.getBoundingClientRect();
  row.scrollLeft += Math.min(0, wanted.left - shown.left) + Math.max(0, wanted.right - shown.right);
}

/**
 * @param {HTMLElement} section
 * @param {{mount: (root: HTMLElement, app: any) => {show(): void, hide(): void}}} view
 */
function mountIn(section, view) {
  const root = h("div", { class: "stack" });
  section.append(root);
  return view.mount(root, app);
}

function showConnection() {
  const state = store.hello === null && store.connection === "lost" ? "connecting" : store.connection;
  text(find("connection"), t(`common.connection_${state}`));
  attribute(find("connection"), "data-state", state);
}

function showWho() {
  const { hello, status } = store;
  text(find("model"), status?.model ?? hello?.model ?? "");
  if (hello) {
    find("logout").hidden = !hello.keys;
    const values = { version: hello.version, client: hello.client ?? "" };
    text(find("footer"), t(hello.client ? "common.footer_as" : "common.footer", values));
  }
}

/** A session is needed: the page has nothing to show without one. */
function showLogin() {
  if (isLoginShown) {
    return;
  }
  isLoginShown = true;
  for (const { section, views } of tabs.values()) {
    section.hidden = true;
    views?.forEach((view) => view.hide());
  }
  find("nav").hidden = true;
  find("connection").hidden = true;
  find("logout").hidden = true;
  const root = h("section", { class: "view" });
  find("main").append(root);
  login.mount(root, app).show();
}

async function start() {
  // A server that can't be reached is tried again by whoever follows it.
  const { needed } = await api.get("/login").catch(() => ({ needed: false }));
  if (needed) {
    showLogin();
    route();
    return;
  }
  route();
  await follow(store, api);
}

translateFrame();
buildSwitches();
buildTabs();
showConnection();
store.on("connection", () => (showConnection(), showWho()));
store.on("status", showWho);
start().catch(console.error);
