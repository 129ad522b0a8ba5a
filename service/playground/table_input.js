// A form for the features of one row: a slider and a number each, over the range of the training data.

import { element } from "./elements.js";
import { numbers } from "./pixels.js";

const MOST_FEATURES = 100;
const BEYOND = 0.5; // of the span, on either side

export class TableInput {
  #wrong = new Set(); // numbers that are none
  #cells = [];

  static takes(spec) {
    return spec.shape.length === 1 && spec.shape[0] <= MOST_FEATURES && spec.dtype !== "int64";
  }

  constructor(place, spec, changed) {
    const [count] = spec.shape;
    const names = spec.feature_names ?? Array.from({ length: count }, (_, i) => `feature ${i}`);
    const each = (values, other) => (i) => (values ? values[values.length === 1 ? 0 : i] : other);
    const [low, high] = [each(spec.range?.low, 0), each(spec.range?.high, 1)];
    const between = (share) => names.map((_, i) => low(i) + share() * (high(i) - low(i)));
    const typical = spec.typical ?? [];
    this.values = typical.length ? [...typical[0]] : between(() => 0.5);
    const rows = names.flatMap((name, i) => this.#row(name, i, low(i), high(i), () => changed(this.#wrong.size ? null : { inputs: [this.values] })));
    const random = numbers(1);
    const rowsToTry = [
      ...typical.map((row, i) => [`Usual row ${i + 1}`, () => row]),
      ...(typical.length ? [] : [["The middle", () => between(() => 0.5)]]),
      ["At random", () => between(random)], ["The lowest", () => between(() => 0)], ["The highest", () => between(() => 1)],
    ];
    const buttons = rowsToTry.map(([title, row]) => {
      const button = element("button", { type: "button" }, title);
      button.addEventListener("click", () => {
        row().forEach((value, i) => this.#set(i, value));
        changed({ inputs: [this.values] });
      });
      return button;
    });
    const begins = typical.length
      ? "A usual row has the medians of a group of held-out examples; the lowest and the highest values together are seldom usual."
      : "The middle of every range, with which the page begins, need not be a usual row.";
    place.append(
      element("div", { class: "tools" }, ...buttons),
      element("p", { class: "note" }, `Each slider goes half as far again as the training data on both sides. ${begins}`),
      element("div", { class: "sliders" }, ...rows));
    changed({ inputs: [this.values] });
  }

  #set(i, value) {
    this.values[i] = value;
    this.#wrong.delete(i);
    this.#cells[i].range.value = value;
    this.#cells[i].number.value = Number(value.toPrecision(7));
  }

  #row(name, i, low, high, changed) {
    const span = high - low || 1;
    const attributes = { min: low - BEYOND * span, max: high + BEYOND * span, step: span / 200, value: this.values[i] };
    const range = element("input", { type: "range", id: `feature-${i}`, ...attributes });
    const number = element("input", { type: "number", step: "any", value: Number(this.values[i].toPrecision(7)), "aria-label": `${name}, as a number` });
    this.#cells.push({ range, number });
    range.addEventListener("input", () => {
      number.value = Number(Number(range.value).toPrecision(7));
      this.values[i] = Number(range.value);
      this.#wrong.delete(i);
      changed();
    });
    number.addEventListener("input", () => {
      if (number.value === "" || !Number.isFinite(number.valueAsNumber)) {
        this.#wrong.add(i);
        changed();
        return;
      }
      this.#wrong.delete(i);
      range.value = number.value;
      this.values[i] = number.valueAsNumber;
      changed();
    });
    return [element("label", { for: `feature-${i}` }, name), range, number];
  }
}
