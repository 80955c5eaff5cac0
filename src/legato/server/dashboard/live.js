// @ts-check
// What the server tells as it happens, kept for the views. Everything is bounded: the page may stay open for weeks.

import { ApiError, readEvents } from "./api.js";

const STEPS_S = 60;
const MOST_STEPS = 6000;
const MOST_ENDED = 200;
/** Silence after which the connection counts as lost; the server says something every 10 s. */
const SILENCE_MS = 25_000;
const RETRIES_MS = [1000, 2000, 4000, 8000];
/** How long the page says that the server was restarted. */
const RESTARTED_MS = 5000;

/** @typedef {"status" | "requests" | "steps" | "ended" | "gaps" | "silent" | "connection"} Kind */

/** The latest that is known. Views read it, and are told of changes. */
export class Store {
  constructor() {
    /** @type {any} Of `hello`: who is looking, and whether keys are used; null before it came. */
    this.hello = null;
    /** @type {any} Of `GET /api/status`; null before it came. */
    this.status = null;
    /** @type {Map<string, any>} Live requests by id; each with `begun_at`, unix s on the server's clock. */
    this.requests = new Map();
    /** @type {any[]} Of the last 60 s, oldest first. */
    this.steps = [];
    /** @type {any[]} Newest first. */
    this.ended = [];
    /** @type {"open" | "lost" | "restarted"} */
    this.connection = "lost";
    /** @type {Map<Kind, Set<(kind: Kind, data?: any) => void>>} */
    this._callbacks = new Map();
    this._ahead_s = 0;
  }

  /** The server's time, unix s. */
  now() {
    return Date.now() / 1000 + this._ahead_s;
  }

  /**
   * Be told of changes.
   * @param {Kind | Kind[]} kinds
   * @param {(kind: Kind, data?: any) => void} callback Gets the event's own data too.
   * @returns {() => void} Ends it.
   */
  on(kinds, callback) {
    const wanted = Array.isArray(kinds) ? kinds : [kinds];
    for (const kind of wanted) {
      const callbacks = this._callbacks.get(kind) ?? new Set();
      this._callbacks.set(kind, callbacks.add(callback));
    }
    return () => wanted.forEach((kind) => this._callbacks.get(kind)?.delete(callback));
  }

  /**
   * Take in an event of `/api/live`; unknown ones are left to newer pages.
   * @param {string} name
   * @param {any} data
   */
  take(name, data) {
    if (name === "hello") {
      this._begin(data);
    } else if (name === "status") {
      this.status = data;
      this._tell("status", data);
    } else if (name === "requests") {
      this._takeRequests(data);
    } else if (name === "gaps" || name === "silent") {
      this._tell(name, data);
    } else if (name === "steps") {
      this._takeSteps(data.steps);
      this._tell("steps", data);
    } else if (name === "ended") {
      // The oldest of an event comes first.
      this.ended = [...data.requests.slice().reverse(), ...this.ended].slice(0, MOST_ENDED);
      this._tell("ended", data);
    }
  }

  /** @param {"open" | "lost" | "restarted"} state */
  setConnection(state) {
    if (this.connection !== state) {
      this.connection = state;
      this._tell("connection", state);
    }
  }

  /** @param {any} hello */
  _begin(hello) {
    const isRestarted = this.hello !== null && this.hello.server !== hello.server;
    this.hello = hello;
    this._ahead_s = hello.now - Date.now() / 1000;
    // All that is there now follows, whether the server is another or the connection was lost.
    this.requests.clear();
    this.steps = [];
    this.ended = [];
    this.setConnection(isRestarted ? "restarted" : "open");
    if (isRestarted) {
      setTimeout(() => this.connection === "restarted" && this.setConnection("open"), RESTARTED_MS);
    }
  }

  /** @param {{changed: any[], gone: string[]}} data */
  _takeRequests(data) {
    const now = this.now();
    for (const request of data.changed) {
      const begun_at = this.requests.get(request.id)?.begun_at ?? now - request.since_ms / 1000;
      this.requests.set(request.id, { ...request, begun_at });
    }
    for (const id of data.gone) {
      this.requests.delete(id);
    }
    this._tell("requests", data);
  }

  /** @param {any[]} steps */
  _takeSteps(steps) {
    this.steps.push(...steps);
    const oldest = this.now() - STEPS_S;
    let old = Math.max(0, this.steps.length - MOST_STEPS);
    while (old < this.steps.length && this.steps[old].begun_at < oldest) {
      old += 1;
    }
    this.steps.splice(0, old);
  }

  /** @param {Kind} kind @param {any} [data] */
  _tell(kind, data) {
    for (const callback of [...(this._callbacks.get(kind) ?? [])]) {
      try {
        callback(kind, data);
      } catch (error) {
        // One view's fault is not to stop the others.
        console.error(error);
      }
    }
  }
}

/**
 * Fill the store for as long as the page is open, and connect again whenever the connection breaks.
 * @param {Store} store
 * @param {{live: (signal: AbortSignal) => Promise<ReadableStream<Uint8Array>>}} api
 * @returns {Promise<void>} Ends only when a session is needed.
 */
export async function follow(store, api) {
  let failures = 0;
  for (;;) {
    const abort = new AbortController();
    let timer = setTimeout(() => abort.abort(), SILENCE_MS);
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), SILENCE_MS);
    };
    try {
      const body = await api.live(abort.signal);
      await readEvents(
        body,
        (name, data) => {
          failures = 0;
          store.take(name, JSON.parse(data));
        },
        alive,
      );
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) {
        return;
      }
    } finally {
      clearTimeout(timer);
      abort.abort();
    }
    store.setConnection("lost");
    const wait_ms = RETRIES_MS[Math.min(failures, RETRIES_MS.length - 1)];
    failures += 1;
    await new Promise((resolve) => setTimeout(resolve, wait_ms));
  }
}
