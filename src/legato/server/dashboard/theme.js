// @ts-check
// Light or dark. A file of its own, which the browser waits for, so that no page flashes white at night.

const dark = matchMedia("(prefers-color-scheme: dark)");

/**
 * Something the reader chose: of the address (`?theme=dark`), else as remembered.
 * @param {string} name
 * @returns {string | null}
 */
export function remembered(name) {
  try {
    return new URLSearchParams(location.search).get(name) ?? localStorage.getItem(`legato.${name}`);
  } catch {
    return null; // a browser that lets pages keep nothing
  }
}

/**
 * Remember what the reader chose.
 * @param {string} name
 * @param {string} value
 * @returns {boolean} Whether the browser let it be kept.
 */
export function remember(name, value) {
  try {
    localStorage.setItem(`legato.${name}`, value);
    return true;
  } catch {
    return false;
  }
}

/** @returns {"auto" | "light" | "dark"} */
export function themeChoice() {
  const choice = remembered("theme");
  return choice === "light" || choice === "dark" ? choice : "auto";
}

/**
 * Show a theme; drawings hear of it by the document's event "themechange".
 * @param {"auto" | "light" | "dark"} choice
 */
export function applyTheme(choice) {
  document.documentElement.dataset.theme = choice === "auto" ? (dark.matches ? "dark" : "light") : choice;
  document.dispatchEvent(new Event("themechange"));
}

applyTheme(themeChoice());
dark.addEventListener("change", () => applyTheme(themeChoice()));
