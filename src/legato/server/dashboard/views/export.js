// @ts-check
// A list of requests as a file to keep.

import { h } from "../dom.js";

/** The columns of a CSV file: the fields of a request in the list. */
const COLUMNS = [
  "id",
  "arrived_at",
  "client",
  "model",
  "endpoint",
  "end",
  "prompt_tokens",
  "cached_tokens",
  "answer_tokens",
  "load_ms",
  "queue_ms",
  "prefill_ms",
  "ttft_ms",
  "decode_ms",
  "total_ms",
  "itl_max_ms",
  "stalls",
  "verdict",
];

/**
 * Requests as CSV (RFC 4180), with a head line.
 *
 * @param {Record<string, unknown>[]} requests
 * @returns {string}
 */
export function csvOf(requests) {
  const lines = [COLUMNS, ...requests.map((request) => COLUMNS.map((column) => request[column]))];
  return lines.map((line) => line.map(field).join(",")).join("\r\n") + "\r\n";
}

/**
 * One field. Spreadsheets run text that begins like a formula, and a client's name is anybody's text.
 *
 * @param {unknown} value
 * @returns {string}
 */
function field(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const formula = typeof value !== "number" && /^[=+\-@\t\r]/.test(text);
  return `"${(formula ? `'${text}` : text).replaceAll('"', '""')}"`;
}

/**
 * Hand a text over as a file.
 *
 * @param {string} name Of the file.
 * @param {string} type Media type.
 * @param {string} content
 */
export function download(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type: `${type};charset=utf-8` }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  // The browser still reads the blob after the click returns.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
