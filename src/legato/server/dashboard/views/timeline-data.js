// @ts-check
// What the last minute's drawing is made of: plain data in, plain data out, and never more of it than a minute holds.

/** Seconds that are shown. */
export const WINDOW_S = 60;
/** Gaps kept for one answer; above what an answer has in a minute, but for very fast accelerators. */
const GAPS_KEPT = 10_000;
/** Answers and prompts whose names are remembered after they ended. */
const NAMES_KEPT = 200;
/** How far the time of a token, as this page knows it, may be from when it was written, s. */
export const DRIFT_S = 1;
/** Colours for prompts; a sixth one shares the first one's. */
export const PALETTE = 5;

/** @typedef {{at: number, ms: number}} Gap  `at`: when the token came that ended it, unix s. */
/** @typedef {{id: string, at: number, ms: number, target: number}} Stall */
/** @typedef {{request: string, start: number, tokens: number}} Chunk */
/** @typedef {{number: number, begun_at: number, took_ms: number, decoded: string[], chunks: Chunk[]}} Step */

/** The gaps between tokens of each answer in the last minute, and which of them are stalls. */
export class Gaps {
  constructor() {
    /** @type {Map<string, Gap[]>} */
    this.answers = new Map();
    /** Oldest first. @type {Stall[]} */
    this.stalls = [];
  }

  /**
   * @param {Record<string, number[]>} news Gaps in ms, by answer.
   * @param {number} now Unix s.
   * @param {(id: string) => number} targetOf Its gap target, ms.
   */
  add(news, now, targetOf) {
    let stalled = false;
    for (const [id, gaps] of Object.entries(news)) {
      const known = this.answers.get(id) ?? [];
      this.answers.set(id, known);
      const whole = gaps.reduce((sum, ms) => sum + ms, 0) / 1000;
      // Events come in bunches; tokens are set one gap apart from each other, and the chain only if it went astray.
      const chained = known.length ? known[known.length - 1].at + whole : now;
      let at = (chained > now || now - chained > DRIFT_S ? now : chained) - whole;
      for (const ms of gaps) {
        at += ms / 1000;
        known.push({ at, ms });
        if (ms > targetOf(id)) {
          this.stalls.push({ id, at, ms, target: targetOf(id) });
          stalled = true;
        }
      }
      if (known.length > GAPS_KEPT) {
        known.splice(0, known.length - GAPS_KEPT);
      }
    }
    if (stalled) {
      this.stalls.sort((a, b) => a.at - b.at);
    }
    this.forget(now);
  }

  /**
   * Begin with what the steps tell of the time before the first event; of gaps in delivery they know nothing.
   * @param {Step[]} steps Oldest first. @param {(id: string) => number} targetOf
   */
  seed(steps, targetOf) {
    /** @type {Map<string, number>} */
    const latest = new Map();
    const until = new Map([...this.answers].map(([id, known]) => [id, known[0].at - known[0].ms / 1000]));
    /** @type {Map<string, Gap[]>} */
    const before = new Map();
    for (const step of steps) {
      const at = step.begun_at + step.took_ms / 1000;
      for (const id of step.decoded) {
        const from = latest.get(id);
        latest.set(id, at);
        if (from === undefined || at > (until.get(id) ?? Infinity)) {
          continue;
        }
        const ms = (at - from) * 1000;
        before.set(id, before.get(id) ?? []);
        before.get(id)?.push({ at, ms });
        if (ms > targetOf(id)) {
          this.stalls.push({ id, at, ms, target: targetOf(id) });
        }
      }
    }
    for (const [id, known] of before) {
      this.answers.set(id, [...known, ...(this.answers.get(id) ?? [])]);
    }
    this.stalls.sort((a, b) => a.at - b.at);
  }

  /** Leave out what is older than the window. @param {number} now Unix s. */
  forget(now) {
    const from = now - WINDOW_S;
    for (const [id, gaps] of this.answers) {
      dropUntil(gaps, from);
      if (!gaps.length) {
        this.answers.delete(id);
      }
    }
    dropUntil(this.stalls, from);
  }

  /** Forget everything: the server restarted. */
  clear() {
    this.answers.clear();
    this.stalls.length = 0;
  }
}

/** @param {{at: number}[]} list Oldest first. @param {number} from */
function dropUntil(list, from) {
  let gone = 0;
  while (gone < list.length && list[gone].at < from) {
    gone += 1;
  }
  if (gone) {
    list.splice(0, gone);
  }
}

/** Who asked for what, for a while after it ended too. */
export class Names {
  constructor() {
    /** @type {Map<string, {client: string | null, prompt_tokens: number, target: number | null}>} */
    this._known = new Map();
  }

  /** @param {Iterable<any>} requests Live requests, or summaries of ended ones. */
  learn(requests) {
    for (const one of requests) {
      const target = one.gap_target_ms ?? this._known.get(one.id)?.target ?? null;
      this._known.set(one.id, { client: one.client, prompt_tokens: one.prompt_tokens, target });
    }
    for (const id of this._known.keys()) {
      if (this._known.size <= NAMES_KEPT) {
        break;
      }
      this._known.delete(id);
    }
  }

  /** @param {string} id */
  of(id) {
    return this._known.get(id) ?? null;
  }
}

/** Which colour a prompt has: the same as long as any of it is in sight. */
export class Palette {
  constructor() {
    /** @type {Map<string, number>} */
    this._slots = new Map();
  }

  /** @param {string} id @returns {number} 0 to PALETTE - 1. */
  slot(id) {
    const had = this._slots.get(id);
    if (had !== undefined) {
      return had;
    }
    const taken = new Set(this._slots.values());
    let slot = 0;
    while (slot < PALETTE - 1 && taken.has(slot)) {
      slot += 1;
    }
    this._slots.set(id, taken.has(slot) ? this._slots.size % PALETTE : slot);
    return /** @type {number} */ (this._slots.get(id));
  }

  /** @param {(id: string) => boolean} inSight */
  keep(inSight) {
    for (const id of this._slots.keys()) {
      if (!inSight(id)) {
        this._slots.delete(id);
      }
    }
  }
}

/**
 * What a call that only decodes takes: the median of those in sight, ms; null before there is one.
 * @param {Step[]} steps
 * @returns {number | null}
 */
export function decodeMs(steps) {
  const alone = [];
  for (let i = steps.length - 1; i >= 0 && alone.length < 51; i -= 1) {
    if (!steps[i].chunks.length && steps[i].decoded.length) {
      alone.push(steps[i].took_ms);
    }
  }
  alone.sort((a, b) => a - b);
  return alone.length ? alone[alone.length >> 1] : null;
}

/**
 * The part of a step that went to decode, 0 to 1. A call that also reads is split as the server does it: decoding gets what
 * it takes without the chunk, as far as that is known, else by tokens.
 * @param {Step} step
 * @param {number | null} alone What a call that only decodes takes, ms.
 */
export function decodeShare(step, alone) {
  if (!step.chunks.length) {
    return step.decoded.length ? 1 : 0;
  }
  if (!step.decoded.length) {
    return 0;
  }
  if (alone !== null && step.took_ms > 0) {
    return Math.min(0.9, alone / step.took_ms);
  }
  return step.decoded.length / (step.decoded.length + tokensOf(step));
}

/** Prompt tokens that a step reads. @param {Step} step */
export function tokensOf(step) {
  let tokens = 0;
  for (const chunk of step.chunks) {
    tokens += chunk.tokens;
  }
  return tokens;
}

/**
 * @typedef {object} Minute
 * @property {number} decode_ms
 * @property {number} prefill_ms
 * @property {Map<string, {tokens: number, ms: number}>} read By request, what was read of its prompt.
 */

/**
 * The steps between two instants, added up.
 * @param {Step[]} steps Oldest first.
 * @param {number} from Unix s.
 * @param {number} to Unix s.
 * @returns {Minute}
 */
export function addUp(steps, from, to) {
  const alone = decodeMs(steps);
  /** @type {Minute} */
  const sum = { decode_ms: 0, prefill_ms: 0, read: new Map() };
  for (const step of steps) {
    const end = step.begun_at + step.took_ms / 1000;
    if (end <= from || step.begun_at >= to) {
      continue;
    }
    const inside = Math.max(0, Math.min(end, to) - Math.max(step.begun_at, from)) * 1000;
    const share = decodeShare(step, alone);
    sum.decode_ms += inside * share;
    sum.prefill_ms += step.chunks.length ? inside * (1 - share) : 0;
    const tokens = tokensOf(step);
    for (const chunk of step.chunks) {
      const had = sum.read.get(chunk.request) ?? { tokens: 0, ms: 0 };
      had.tokens += chunk.tokens;
      had.ms += tokens ? (inside * (1 - share) * chunk.tokens) / tokens : 0;
      sum.read.set(chunk.request, had);
    }
  }
  return sum;
}
