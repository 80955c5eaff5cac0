// @ts-check
// What the page itself remembers of each live request: time in each phase, the latest gaps, and how fast its prompt is read.

export const PHASES = /** @type {const} */ (["load", "queue", "prefill", "decode"]);
/** Gaps of an answer that are drawn. */
export const MOST_GAPS = 80;
/** How far back "now" reaches for pauses, s. */
const RECENT_S = 3;
/** Over how long the reading rate is taken, s. */
const RATE_S = 5;

/** One request, as the page has seen it. */
export class Track {
  /**
   * @param {any} request
   * @param {number} now_s Server time.
   */
  constructor(request, now_s) {
    /** @type {Record<string, number>} Time spent in each phase up to `_since_s`, ms. */
    this.phases = { load: 0, queue: 0, prefill: 0, decode: 0 };
    /** @type {number[]} ms, oldest first. */
    this.gaps = [];
    this.request = request;
    this._phase = request.phase;
    this._since_s = request.begun_at;
    /** For how long no token has come, as the server said last, ms; 0 while they come in time. */
    this._silent_ms = 0;
    /** @type {{at_s: number, ms: number}[]} */
    this._recent = [];
    /** @type {{at_s: number, read: number}[]} */
    this._reads = [];
    if (request.phase === "decode" && request.decode_tokens_per_second) {
      // It began before the page was opened: its pace tells about when it began to write.
      const written_s = Math.min(now_s - request.begun_at, request.answer_tokens / request.decode_tokens_per_second);
      this.phases.prefill = (now_s - request.begun_at - written_s) * 1000;
      this._since_s = now_s - written_s;
    }
    this.update(request, now_s);
  }

  /**
   * @param {any} request
   * @param {number} now_s
   */
  update(request, now_s) {
    if (request.phase !== this._phase) {
      this.phases[this._phase] += Math.max(0, now_s - this._since_s) * 1000;
      this._phase = request.phase;
      this._since_s = now_s;
    }
    if (request.phase === "prefill" && this._reads.at(-1)?.read !== request.read_tokens) {
      this._reads = this._reads.filter((one) => one.at_s > now_s - RATE_S);
      this._reads.push({ at_s: now_s, read: request.read_tokens });
    }
    this.request = request;
  }

  /**
   * @param {number[]} gaps New ones, ms.
   * @param {number} now_s
   */
  addGaps(gaps, now_s) {
    this.gaps = [...this.gaps, ...gaps].slice(-MOST_GAPS);
    this._recent = this._recent.filter((one) => one.at_s > now_s - RECENT_S);
    this._recent.push({ at_s: now_s, ms: Math.max(...gaps) });
    this._silent_ms = 0;
  }

  /** @param {number} ms For how long no token has come. */
  setSilent(ms) {
    this._silent_ms = ms;
  }

  /**
   * Time in each phase until now, ms.
   * @param {number} now_s
   */
  phasesUntil(now_s) {
    return { ...this.phases, [this._phase]: this.phases[this._phase] + Math.max(0, now_s - this._since_s) * 1000 };
  }

  /**
   * The longest wait for a token just now, one that still goes on included, ms.
   * @param {number} now_s
   */
  pause(now_s) {
    if (this.request.phase !== "decode") {
      return 0;
    }
    const recent = this._recent.filter((one) => one.at_s > now_s - RECENT_S).map((one) => one.ms);
    return Math.max(this._silent_ms, ...recent);
  }

  /** Prompt tokens a second over the last seconds; null before there are two readings. */
  readRate() {
    const first = this._reads[0];
    const last = this._reads.at(-1);
    return first && last && last.at_s > first.at_s ? (last.read - first.read) / (last.at_s - first.at_s) : null;
  }
}
