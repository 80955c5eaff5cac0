// @ts-check
// The page's words in the reader's language.

import en from "./languages/en.js";
import es from "./languages/es.js";
import sv from "./languages/sv.js";

/** The languages, by their own names. @type {Record<string, string>} */
export const LANGUAGES = { en: "English", es: "Español", sv: "Svenska" };

/** @type {Record<string, Record<string, any>>} */
const TEXTS = { en, es, sv };

/**
 * The first language of a list that the page speaks; English if none.
 * @param {readonly (string | null | undefined)[]} wished Such as `["sv-SE", "en"]`.
 * @returns {string}
 */
export function chooseLanguage(wished) {
  for (const wish of wished) {
    const short = wish?.slice(0, 2).toLowerCase() ?? "";
    if (Object.hasOwn(LANGUAGES, short)) {
      return short;
    }
  }
  return "en";
}

/**
 * Make the function that finds texts: `t("now.smooth")`, `t("now.people", {count: 2})`.
 *
 * A text is a string with places like `{name}`, or an object of plural forms chosen by `values.count`: `{one: "…",
 * other: "…"}` as Intl.PluralRules names them, and `zero` for a count of 0 in every language.
 * @param {string} language
 * @returns {(key: string, values?: Record<string, string | number>) => string} An unknown key is shown as it is: a fault
 *   that is seen and not one that stops the page.
 */
export function createWords(language) {
  const plural = new Intl.PluralRules(language);
  const numbers = new Intl.NumberFormat(language, /** @type {any} */ ({ useGrouping: "always" }));

  return function t(key, values = {}) {
    let found = /** @type {any} */ (TEXTS[language]);
    for (const part of key.split(".")) {
      found = typeof found === "object" && found !== null ? found[part] : undefined;
    }
    if (typeof found === "object" && found !== null) {
      const count = Number(values.count ?? 0);
      found = (count === 0 ? found.zero : undefined) ?? found[plural.select(count)] ?? found.other;
    }
    if (typeof found !== "string") {
      return key;
    }
    return found.replace(/\{(\w+)\}/g, (place, name) => {
      const value = values[name];
      return value === undefined ? place : typeof value === "number" ? numbers.format(value) : value;
    });
  };
}
