// @ts-check
// What is going on, in one sentence.

/** An unread rest from which a prompt is worth a word, tokens. */
const LONG_TOKENS = 1000;
/** A pause shorter than this is none to a reader, whatever the gap target, ms. */
const SHORTEST_PAUSE_MS = 250;
/** A gap beyond this many gap targets is called a pause: a little over the target nobody sees. */
export const PAUSE = 1.5;
const NUMBERS = ["two", "three", "four", "five", "six", "seven", "eight", "nine"];

/**
 * @param {any} app
 * @param {Iterable<import("./now-tracker.js").Track>} tracks Of the live requests.
 * @returns {{kind: string, text: string}} Sentences of one kind differ in figures only.
 */
export function sentence({ store, t, format }, tracks) {
  const { status } = store;
  /** @param {string} key @param {Record<string, string | number>} [values] @param {string} [of] */
  const say = (key, values, of = "") => ({ kind: key + of, text: capital(t(`now.${key}`, values)) });
  if (status === null) {
    return say(store.connection === "lost" && store.hello ? "lost" : "connecting");
  }
  if (store.connection === "lost") {
    return say("lost");
  }
  if (status.state !== "ready") {
    return status.state === "loading" && status.load_share !== null
      ? say("loading_share", { share: format.percent(status.load_share) })
      : say(["loading", "failed", "stopping"].includes(status.state) ? status.state : "loading");
  }

  const now_s = store.now();
  const all = [...tracks];
  const answered = all.filter(({ request }) => request.phase === "prefill" || request.phase === "decode");
  const writing = answered.filter(({ request }) => request.phase === "decode");
  const waiting = all.filter(({ request }) => request.phase === "queue").map(({ request }) => request);
  const reading = answered
    .filter(({ request }) => request.phase === "prefill")
    .map(({ request }) => request)
    .sort((a, b) => b.prompt_tokens - b.read_tokens - (a.prompt_tokens - a.read_tokens));
  if (all.length === 0) {
    return say("idle");
  }

  const paused = worst(writing, status, now_s);
  const read = reading[0];
  if (paused) {
    const values = { who: name(t, paused.request), pause: format.seconds(paused.ms) };
    return read
      ? say("paused", { ...values, ...promptOf(t, format, read, paused.request) }, read.id)
      : say("paused_only", values);
  }
  if (waiting.length > 0) {
    const first = waiting[0];
    const names = listed(t, answered.map(({ request }) => request));
    if (answered.length === 0) {
      return say("queued_alone", { who: name(t, first) });
    }
    const others = waiting.length - 1;
    const values = { who: name(t, first), names, count: others, number: number(t, others) };
    return say(others === 0 ? "queued" : "queued_more", values, first.id);
  }
  const people = peopleOf(answered.map(({ request }) => request));
  const values = { count: people, number: number(t, people) };
  if (read && read.prompt_tokens - read.read_tokens >= LONG_TOKENS) {
    const others = peopleOf(writing.map(({ request }) => request));
    const prompt = promptOf(t, format, read);
    return writing.length > 0
      ? say("people_reading", { count: others, number: number(t, others), ...prompt }, read.id)
      : say("reading", prompt, read.id);
  }
  return say("people", values);
}

/**
 * The name of whoever sent a request, as a sentence has it.
 * @param {(key: string) => string} t
 * @param {{client: string | null}} request
 */
export function name(t, request) {
  return request.client === null ? t("common.somebody") : capital(request.client);
}

/** @param {string} sentence */
export function capital(sentence) {
  return sentence.charAt(0).toLocaleUpperCase() + sentence.slice(1);
}

/**
 * A time left, in whole seconds: tenths would only flicker.
 * @param {any} format
 * @param {number} ms
 */
export function timeLeft(format, ms) {
  return ms < 99_000 ? `${format.count(Math.max(1, Math.ceil(ms / 1000)))}\u00a0s` : format.ms(ms);
}

/** @param {any[]} writing @param {any} status @param {number} now_s */
function worst(writing, status, now_s) {
  let found = null;
  for (const track of writing) {
    const ms = track.pause(now_s);
    const target = track.request.gap_target_ms ?? status.gap_target_ms;
    if (ms > Math.max(SHORTEST_PAUSE_MS, PAUSE * target) && ms > (found?.ms ?? 0)) {
      found = { ms, request: track.request };
    }
  }
  return found;
}

/** @param {any} t @param {any} format @param {any} request @param {any} [paused] Whose answer waits for it. */
function promptOf(t, format, request, paused) {
  const values = { tokens: format.count(request.prompt_tokens), client: name(t, request) };
  const left = request.prefill_left_ms;
  const key = request.client === null ? "prompt" : request.client === paused?.client ? "prompt_other" : "prompt_of";
  return {
    prompt: t(`now.${key}`, values),
    left: left === null ? "" : t("now.left_after", { left: timeLeft(format, left) }),
  };
}

/** People with names are counted once, however much they ask. @param {any[]} requests */
function peopleOf(requests) {
  const names = new Set(requests.map(({ client }) => client).filter((client) => client !== null));
  return names.size + requests.filter(({ client }) => client === null).length;
}

/** @param {any} t @param {number} count */
function number(t, count) {
  return NUMBERS[count - 2] ? t(`now.${NUMBERS[count - 2]}`) : String(count);
}

/** @param {any} t @param {any[]} requests */
function listed(t, requests) {
  const names = [...new Set(requests.filter(({ client }) => client !== null).map((request) => name(t, request)))];
  const nameless = requests.filter(({ client }) => client === null).length;
  if (nameless > 0) {
    names.push(nameless === 1 ? t("common.somebody") : t("now.nameless", { count: nameless, number: number(t, nameless) }));
  }
  return new Intl.ListFormat(document.documentElement.lang, { type: "conjunction" }).format(names);
}
