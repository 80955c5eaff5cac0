// @ts-check
// The last ended requests: those that this page saw end, and before them those that the server remembers.

/** As many as there are figures of. */
export const LIMIT = 200;

/**
 * Both lists as one, newest first, each request once.
 * @param {any[]} seen Summaries, newest first.
 * @param {any[]} remembered Summaries, newest first.
 * @returns {any[]}
 */
export function together(seen, remembered) {
  const ids = new Set(seen.map((one) => one.id));
  return [...seen, ...remembered.filter((one) => !ids.has(one.id))].slice(0, LIMIT);
}

/**
 * @param {any} app
 * @returns {{list: () => any[], fetch: () => Promise<void>}} `fetch` asks the server; a failure only leaves the list shorter.
 */
export function createEndedRequests(app) {
  /** @type {any[]} */
  let remembered = [];
  return {
    list: () => together(app.store.ended, remembered),
    async fetch() {
      try {
        remembered = (await app.api.get(`/api/requests?limit=${LIMIT}`)).requests;
      } catch {
        // The connection's state says it already; what this page saw itself is still right.
      }
    },
  };
}

/**
 * Tokens per second at which a request's prompt was read; null where nearly all of it was remembered.
 * @param {any} request A summary.
 * @returns {number | null}
 */
export function readingRate(request) {
  const read = request.prompt_tokens - request.cached_tokens;
  // A handful of tokens takes a step of its own like a hundred do: their rate says nothing.
  return read >= 16 && request.prefill_ms > 0 ? (read / request.prefill_ms) * 1000 : null;
}

/**
 * Tokens per second at which an answer was written; null for answers of a few tokens.
 * @param {any} request A summary.
 * @returns {number | null}
 */
export function writingRate(request) {
  return request.answer_tokens >= 4 && request.decode_ms > 0
    ? ((request.answer_tokens - 1) / request.decode_ms) * 1000
    : null;
}
