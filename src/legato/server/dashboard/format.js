// @ts-check
// Figures as people of a language write them; the same roundings as the server's sentences (telemetry/wording.py).

/**
 * @param {string} language `en`, `es` or `sv`.
 */
export function createFormat(language) {
  /** @type {Map<string, Intl.NumberFormat>} */
  const formats = new Map();
  // Spanish groups only from five digits by default; the other figures beside it would not line up.
  const base = /** @type {any} */ ({ useGrouping: "always" });

  /** @param {number} value @param {number} digits */
  function decimal(value, digits) {
    return cached(`d${digits}`, { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);
  }

  /** @param {string} key @param {Intl.NumberFormatOptions} options */
  function cached(key, options) {
    let found = formats.get(key);
    if (!found) {
      found = new Intl.NumberFormat(language, { ...base, ...options });
      formats.set(key, found);
    }
    return found;
  }

  return {
    /**
     * A duration: `0 ms`, `4.2 ms`, `312 ms`, `5.9 s`, `3 min 20 s`, `1 h 5 min`; `–` for none.
     * @param {number | null | undefined} ms
     */
    ms(ms) {
      if (ms === null || ms === undefined) {
        return "–";
      }
      const value = Math.max(0, ms);
      if (value < 0.05) {
        return "0\u00a0ms";
      }
      if (value < 999.5) {
        return `${decimal(value, value < 9.95 ? 1 : 0)}\u00a0ms`;
      }
      if (value < 99_950) {
        return `${decimal(value / 1000, 1)}\u00a0s`;
      }
      const seconds = Math.round(value / 1000);
      if (seconds < 3600) {
        return `${Math.floor(seconds / 60)}\u00a0min ${seconds % 60}\u00a0s`;
      }
      const minutes = Math.round(seconds / 60);
      return `${decimal(Math.floor(minutes / 60), 0)}\u00a0h ${minutes % 60}\u00a0min`;
    },

    /**
     * A duration for people who do not count in thousandths: `0.4 s`, `5.9 s`, from 100 s on as `ms` has it.
     * @param {number} ms
     */
    seconds(ms) {
      return ms < 99_950 ? `${decimal(Math.max(0, ms) / 1000, 1)}\u00a0s` : this.ms(ms);
    },

    /**
     * A whole number: `6,012`; `–` for none.
     * @param {number | null | undefined} n
     */
    count(n) {
      return n === null || n === undefined ? "–" : decimal(n, 0);
    },

    /**
     * Tokens per second, the unit included: `815 tokens/s`, `3.4 tokens/s`; `–` for none.
     * @param {number | null | undefined} n
     */
    rate(n) {
      return n === null || n === undefined ? "–" : `${decimal(n, n >= 0.05 && n < 9.95 ? 1 : 0)}\u00a0tokens/s`;
    },

    /**
     * An amount of memory in binary units: `312 KiB`, `1.5 GiB`; `–` for none.
     * @param {number | null | undefined} n Bytes.
     */
    bytes(n) {
      if (n === null || n === undefined) {
        return "–";
      }
      const units = ["B", "KiB", "MiB", "GiB", "TiB"];
      let value = Math.max(0, n);
      let unit = 0;
      while (value >= 999.5 && unit < units.length - 1) {
        value /= 1024;
        unit += 1;
      }
      return `${decimal(value, unit > 0 && value < 9.95 ? 1 : 0)}\u00a0${units[unit]}`;
    },

    /**
     * A time of day; with the date if it is not today.
     * @param {number | null | undefined} unix_s
     */
    time(unix_s) {
      if (unix_s === null || unix_s === undefined) {
        return "–";
      }
      const date = new Date(unix_s * 1000);
      const clock = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
      const today = date.toDateString() === new Date().toDateString();
      const options = today ? clock : { ...clock, day: "numeric", month: "short" };
      return new Intl.DateTimeFormat(language, /** @type {any} */ (options)).format(date);
    },

    /**
     * A share as per cent: `percent(0.42)` is `42%`; `–` for none.
     * @param {number | null | undefined} x 0 to 1.
     */
    percent(x) {
      return x === null || x === undefined
        ? "–"
        : cached("p", { style: "percent", maximumFractionDigits: 0 }).format(x);
    },
  };
}
