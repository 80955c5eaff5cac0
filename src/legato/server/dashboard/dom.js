// @ts-check
// Elements, made and changed. Text from outside reaches the page only as text, so that nothing in it is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Create an HTML element.
 * @param {string} tag
 * @param {Record<string, any> | null} [props] `class`, attributes (true: without a value; false, null: none), `on: {click: f}`.
 * @param {...(Child | Child[])} children Strings become text.
 * @returns {any} The element; `any` because its class depends on the tag.
 */
export function h(tag, props, ...children) {
  return filled(document.createElement(tag), props, children);
}

/**
 * Create an SVG element.
 * @param {string} tag
 * @param {Record<string, any> | null} [props] As for `h`.
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function svg(tag, props, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

/**
 * An icon of 24 by 24 units, drawn in lines of the text's colour; hidden from screen readers.
 * @param {string} path The `d` of its path.
 * @returns {SVGElement}
 */
export function icon(path) {
  return svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: path }));
}

/**
 * Set an element's text if it changed: screen readers speak, and browsers lay out, at every change.
 * @param {Node} node
 * @param {string | number} value
 */
export function text(node, value) {
  const wanted = String(value);
  if (node.textContent !== wanted) {
    node.textContent = wanted;
  }
}

/**
 * Remove all children.
 * @param {Node} node
 */
export function clear(node) {
  node.textContent = "";
}

/**
 * Set an attribute if it changed; null and false remove it.
 * @param {Element} node
 * @param {string} name
 * @param {string | number | boolean | null} value
 */
export function attribute(node, name, value) {
  if (value === null || value === false) {
    node.removeAttribute(name);
    return;
  }
  const wanted = value === true ? "" : String(value);
  if (node.getAttribute(name) !== wanted) {
    node.setAttribute(name, wanted);
  }
}

/**
 * @param {any} node
 * @param {Record<string, any> | null | undefined} props
 * @param {(Child | Child[])[]} children
 */
function filled(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) {
        node.addEventListener(event, listener);
      }
    } else {
      attribute(node, name, value ?? null);
    }
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) {
      node.append(child instanceof Node ? child : String(child));
    }
  }
  return node;
}
