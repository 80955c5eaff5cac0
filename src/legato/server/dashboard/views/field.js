// @ts-check
// A control with its label.

import { h } from "../dom.js";

let made = 0;

/**
 * @param {string} label
 * @param {any} control An input, a select or a textarea.
 * @returns {any} The field; the control gets an id if it has none.
 */
export function field(label, control) {
  control.id ||= `field-${++made}`;
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control);
}
