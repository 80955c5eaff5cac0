// @ts-check

import { h } from "../dom.js";

/**
 * Put a text into the clipboard.
 *
 * @param {string} content
 * @returns {Promise<boolean>} Whether the browser did it.
 */
export async function copyText(content) {
  try {
    await navigator.clipboard.writeText(content);
    return true;
  } catch {
    return copySelected(content);
  }
}

/** The older way: a page that a phone opens over plain HTTP has no clipboard of its own. @param {string} content */
function copySelected(content) {
  const focused = /** @type {HTMLElement|null} */ (document.activeElement);
  const area = h("textarea", { class: "visually-hidden", "aria-hidden": "true", tabindex: "-1" });
  area.value = content;
  document.body.append(area);
  area.select();
  let done = false;
  try {
    done = document.execCommand("copy");
  } catch {
    done = false;
  }
  area.remove();
  focused?.focus();
  return done;
}
