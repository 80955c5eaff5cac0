// @ts-check
// Requests to the server that the page came from. The session's cookie goes along by itself; no key is ever kept here.

/** An answer that says no, in the server's own sentence. */
export class ApiError extends Error {
  /**
   * @param {number} status HTTP status; 0 if the server could not be reached.
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.name = "ApiError";
    this.status = status;
  }
}

/**
 * Read server-sent events until the stream ends.
 * @param {ReadableStream<Uint8Array>} body
 * @param {(name: string, data: string) => void} onEvent
 * @param {() => void} [onAnything] Called whenever something came, comments too.
 * @returns {Promise<void>}
 */
export async function readEvents(body, onEvent, onAnything = () => {}) {
  const reader = body.pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
  let rest = "";
  let name = "message";
  /** @type {string[]} */
  let data = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      return;
    }
    onAnything();
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const whole of lines) {
      const line = whole.endsWith("\r") ? whole.slice(0, -1) : whole;
      if (line === "") {
        if (data.length > 0) {
          onEvent(name, data.join("\n"));
        }
        name = "message";
        data = [];
      } else if (line.startsWith("event:")) {
        name = line.slice(6).trim();
      } else if (line.startsWith("data:")) {
        data.push(line.slice(5).trimStart());
      }
    }
  }
}

/**
 * @param {{onUnauthorized: () => void, unreachable: () => string}} page What happens when a session is needed; the sentence
 *   for a server that cannot be reached.
 */
export function createApi(page) {
  /**
   * @param {string} method
   * @param {string} path
   * @param {unknown} body
   * @param {AbortSignal} [signal]
   */
  async function answer(method, path, body, signal) {
    let response;
    try {
      response = await fetch(path, {
        method,
        signal,
        credentials: "same-origin",
        headers: body === undefined ? {} : { "content-type": "application/json" },
        body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (error) {
      if (signal?.aborted) {
        throw error;
      }
      throw new ApiError(0, page.unreachable());
    }
    if (!response.ok) {
      const told = await response.json().catch(() => null);
      if (response.status === 401 && path !== "/login") {
        page.onUnauthorized();
      }
      throw new ApiError(response.status, told?.error?.message ?? `${response.status} ${response.statusText}`);
    }
    return response;
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {unknown} [body] Sent as JSON.
   * @returns {Promise<any>} The parsed answer; null if it has none.
   */
  async function send(method, path, body) {
    const text = await (await answer(method, path, body)).text();
    return text === "" ? null : JSON.parse(text);
  }

  return {
    /** @param {string} path */
    get: (path) => send("GET", path),
    send,

    /**
     * Post a request whose answer comes as events of the OpenAI API.
     * @param {string} path
     * @param {unknown} body
     * @param {(event: any) => void} onEvent Gets each event, parsed.
     * @returns {{cancel: () => void, done: Promise<void>}} `done` throws ApiError; a cancelled answer just ends.
     */
    stream(path, body, onEvent) {
      const abort = new AbortController();
      async function run() {
        try {
          const response = await answer("POST", path, body, abort.signal);
          await readEvents(/** @type {any} */ (response.body), (_name, data) => {
            if (data !== "[DONE]" && !abort.signal.aborted) {
              const event = JSON.parse(data);
              if (event.error) {
                throw new ApiError(event.error.code ?? 500, event.error.message);
              }
              onEvent(event);
            }
          });
        } catch (error) {
          if (abort.signal.aborted) {
            return;
          }
          throw error instanceof ApiError || error instanceof SyntaxError ? error : new ApiError(0, page.unreachable());
        }
      }
      return { cancel: () => abort.abort(), done: run() };
    },

    /**
     * Open the live events.
     * @param {AbortSignal} signal
     * @returns {Promise<ReadableStream<Uint8Array>>} Throws ApiError.
     */
    async live(signal) {
      return /** @type {any} */ ((await answer("GET", "/api/live", undefined, signal)).body);
    },
  };
}
