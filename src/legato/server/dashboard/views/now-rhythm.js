// @ts-check
// The rhythm of an answer: a bar for each gap between two tokens, and the gap target as a line.

import { PAUSE } from "./now-sentence.js";
import { MOST_GAPS } from "./now-tracker.js";

const HEIGHT = 56;
/** The top of the strip, in gap targets: what is longer fills it. */
const TOP = 2.5;

/**
 * @param {HTMLCanvasElement} canvas
 * @param {number[]} gaps ms, oldest first; the newest stands at the right.
 * @param {number} target_ms
 * @param {string} label Of the line.
 */
export function drawRhythm(canvas, gaps, target_ms, label) {
  const width = canvas.clientWidth;
  const context = canvas.getContext("2d");
  if (width === 0 || context === null) {
    return;
  }
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(HEIGHT * scale);
  context.scale(scale, scale);
  const style = getComputedStyle(canvas);
  /** @param {string} name */
  const colour = (name) => style.getPropertyValue(name).trim();

  const slot = width / MOST_GAPS;
  const bar = Math.max(1, slot - Math.min(2, slot / 3));
  gaps.forEach((ms, i) => {
    const height = Math.max(2, Math.min(1, ms / (TOP * target_ms)) * HEIGHT);
    context.fillStyle = colour(ms > PAUSE * target_ms ? "--bad" : ms > target_ms ? "--warn" : "--decode");
    context.fillRect(width - (gaps.length - i) * slot, HEIGHT - height, bar, height);
  });

  const y = Math.round(HEIGHT * (1 - 1 / TOP)) + 0.5;
  context.strokeStyle = colour("--muted");
  context.setLineDash([3, 4]);
  context.beginPath();
  context.moveTo(0, y);
  context.lineTo(width, y);
  context.stroke();
  context.font = `11px ${colour("--font")}`;
  context.fillStyle = colour("--muted");
  context.fillText(label, 0, y - 5);
}
