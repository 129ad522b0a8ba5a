// The score of an input among those of the held-out examples, and a threshold that can be moved.

import { drawn, element, short } from "./elements.js";

const WIDTH = 520;
const HEIGHT = 120;
const BINS = 40;
const BEYOND = 1.6; // times the span of the held-out scores: how far the axis goes on

export class ScoreChart {
  // reference: ascending; changed: called when the threshold has been moved.
  constructor(reference, threshold, changed) {
    Object.assign(this, { reference, usual: threshold, threshold, changed });
    const least = reference[0];
    const span = Math.max(reference.at(-1), threshold) - least || 1;
    this.low = least;
    this.high = least + BEYOND * span;
    this.svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + 18}`, "aria-hidden": "true" });
    this.range = element("input", {
      type: "range", id: "threshold", class: "axis-range", min: this.low, max: this.high, step: (this.high - this.low) / 400, value: threshold,
    });
    this.shown = element("output", { for: "threshold" });
    this.range.addEventListener("input", () => this.move(Number(this.range.value)));
    const reset = element("button", { type: "button" }, "Reset");
    reset.addEventListener("click", () => this.move(this.usual));
    this.#dragging();
    this.end = element("span");
    this.root = element("div", {}, this.svg, this.range,
      element("div", { class: "ends note" }, element("span", {}, short(this.low)), this.end),
      element("div", { class: "tools" }, element("label", { for: "threshold" }, "Reject above"), this.shown, reset));
    this.#draw();
  }

  get moved() {
    return this.threshold !== this.usual;
  }

  get rejectedCount() {
    return this.reference.filter((score) => score > this.threshold).length;
  }

  move(threshold) {
    this.threshold = threshold;
    this.range.value = threshold;
    this.#draw();
    this.changed();
  }

  // usual: the threshold that the service used for this input; it may differ by class.
  mark(score, usual) {
    if (!this.moved) this.threshold = this.range.value = usual;
    Object.assign(this, { score, usual });
    this.#draw();
  }

  #x(value) {
    return (WIDTH * (Math.min(Math.max(value, this.low), this.high) - this.low)) / (this.high - this.low);
  }

  #dragging() {
    const at = (event) => {
      const box = this.svg.getBoundingClientRect();
      this.move(this.low + ((this.high - this.low) * Math.min(Math.max(event.clientX - box.left, 0), box.width)) / box.width);
    };
    this.svg.addEventListener("pointerdown", (event) => { this.svg.setPointerCapture(event.pointerId); at(event); });
    this.svg.addEventListener("pointermove", (event) => { if (event.buttons) at(event); });
  }

  #draw() {
    const counts = new Array(BINS).fill(0);
    const width = (this.high - this.low) / BINS;
    for (const score of this.reference) counts[Math.min(BINS - 1, Math.floor((score - this.low) / width))] += 1;
    const most = Math.max(...counts);
    const bars = counts.map((count, i) => {
      const height = (HEIGHT * count) / most;
      const above = this.low + (i + 0.5) * width > this.threshold ? " above" : "";
      return drawn("rect", { class: `bin${above}`, x: (i * WIDTH) / BINS, y: HEIGHT - height, width: WIDTH / BINS - 1, height });
    });
    const limit = this.#x(this.threshold);
    const parts = [...bars,
      drawn("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }),
      drawn("line", { class: "limit", x1: limit, x2: limit, y1: 0, y2: HEIGHT + 8 })];
    if (this.score !== undefined && this.score !== null) {
      const x = this.#x(this.score);
      parts.push(drawn("path", { class: "score", d: `M ${x} ${HEIGHT + 2} l -8 14 h 16 z` }));
    }
    this.svg.replaceChildren(...parts);
    this.end.textContent = `${short(this.high)}${(this.score ?? 0) > this.high ? `; this input: ${short(this.score)}` : ""}`;
    this.shown.textContent = short(this.threshold);
  }
}
