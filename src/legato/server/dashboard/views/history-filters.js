// @ts-check
// The filters of the list of ended requests. They live in the page's address, so that a link shows the same list.

/** @typedef {{client: string, end: string, slower: string, id: string}} Filters */

/** Nothing is left out. */
export const NO_FILTERS = Object.freeze({ client: "", end: "", slower: "", id: "" });

/**
 * The filters that an address names; unknown words in it are ignored.
 *
 * @param {string} hash As in `location.hash`, for example `#history?client=ana&slower=2000`.
 * @returns {Filters}
 */
export function filtersOf(hash) {
  const start = hash.indexOf("?");
  const words = new URLSearchParams(start < 0 ? "" : hash.slice(start + 1));
  const slower = Number(words.get("slower"));
  return {
    client: words.get("client") ?? "",
    end: words.get("end") ?? "",
    slower: Number.isFinite(slower) && slower > 0 ? String(slower) : "",
    id: words.get("id") ?? "",
  };
}

/**
 * The address of a list, without its `#`.
 *
 * @param {Filters} filters
 * @returns {string}
 */
export function hashOf(filters) {
  const words = new URLSearchParams(Object.entries(filters).filter(([, value]) => value !== "")).toString();
  return words ? `history?${words}` : "history";
}

/**
 * The path that asks the server for one page of a list.
 *
 * @param {Filters} filters
 * @param {string|null} before The `next` of the page before; null for the first.
 * @param {number} limit Most requests of a page.
 * @returns {string}
 */
export function pathOf(filters, before, limit) {
  const words = new URLSearchParams({ limit: String(limit) });
  if (filters.client) {
    words.set("client", filters.client);
  }
  if (filters.end) {
    words.set("end", filters.end);
  }
  if (filters.slower) {
    words.set("slower_than_ms", filters.slower);
  }
  if (filters.id) {
    words.set("id", filters.id);
  }
  if (before) {
    words.set("before", before);
  }
  return `/api/requests?${words}`;
}

/**
 * Whether a request that has just ended belongs into a list.
 *
 * @param {Filters} filters
 * @param {{id: string, client: string|null, end: string, total_ms: number}} request
 * @returns {boolean}
 */
export function belongs(filters, request) {
  return (
    (filters.client === "" || filters.client === request.client) &&
    (filters.end === "" || filters.end === request.end) &&
    (filters.slower === "" || request.total_ms > Number(filters.slower)) &&
    request.id.startsWith(filters.id)
  );
}
