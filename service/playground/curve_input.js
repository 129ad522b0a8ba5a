// A regression with one input: its whole curve with the band of its intervals, asked at once; click to ask one value.

import { drawn, element, short, slider } from "./elements.js";

const WIDTH = 520;
const HEIGHT = 260;
const POINTS = 121;
const BEYOND = 1; // times the span of the training data, on either side

export class CurveInput {
  static takes(card) {
    return card.task === "regression" && card.outputs === 1 && card.input.shape.length === 1 && card.input.shape[0] === 1;
  }

  constructor(place, card, service, changed) {
    const [low, high] = [card.input.range?.low[0] ?? 0, card.input.range?.high[0] ?? 1];
    const span = high - low || 1;
    Object.assign(this, { trained: [low, high], low: low - BEYOND * span, high: high + BEYOND * span, changed });
    this.name = card.input.feature_names?.[0] ?? "input";
    this.svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "The curve of the regression with its band" });
    this.svg.addEventListener("pointerdown", (event) => {
      const box = this.svg.getBoundingClientRect();
      this.ask(this.low + ((this.high - this.low) * (event.clientX - box.left)) / box.width);
    });
    this.cells = slider(this.name, { id: "value", min: this.low, max: this.high, step: (this.high - this.low) / 400, value: (low + high) / 2 },
      (value) => this.ask(value));
    this.told = element("span");
    place.append(this.svg,
      element("div", { class: "ends note" }, element("span", {}, short(this.low)), this.told, element("span", {}, short(this.high))),
      element("p", { class: "note" }, "Line: mean; band: interval, red where it is rejected; dashed: the ends of the training data. Click to ask."),
      element("div", { class: "sliders" }, ...this.cells));
    this.#load(service);
    this.ask((low + high) / 2);
  }

  // What is red: what lies above this score, or by null what the service rejects.
  threshold(value) {
    this.own = value;
    if (this.curve) this.#draw();
  }

  ask(value) {
    this.value = value;
    this.cells[1].value = value;
    this.cells[2].textContent = short(value);
    if (this.curve) this.#draw();
    this.changed({ inputs: [[value]] });
  }

  async #load(service) {
    const xs = Array.from({ length: POINTS }, (_, i) => this.low + ((this.high - this.low) * i) / (POINTS - 1));
    const answers = await service.predictAll({ inputs: xs.map((x) => [x]) }).catch((error) => {
      this.told.textContent = `No curve: ${error.message}`;
      return null;
    });
    if (answers === null) return;
    this.curve = answers.map((one, i) => ({
      x: xs[i], mean: one.mean[0], low: one.interval?.low[0] ?? one.mean[0], high: one.interval?.high[0] ?? one.mean[0],
      rejected: one.rejected, score: one.score,
    }));
    this.#draw();
  }

  #draw() {
    const [least, most] = [Math.min(...this.curve.map(({ low }) => low)), Math.max(...this.curve.map(({ high }) => high))];
    this.told.textContent = this.name;
    const x = (value) => (WIDTH * (value - this.low)) / (this.high - this.low);
    const y = (value) => HEIGHT - 8 - ((HEIGHT - 16) * (value - least)) / (most - least || 1);
    const red = ({ rejected, score }) => (this.own == null ? rejected : score > this.own);
    const bands = this.curve.slice(1).map((to, i) => {
      const from = this.curve[i];
      return drawn("polygon", {
        class: red(from) || red(to) ? "band above" : "band",
        points: [[from.x, from.low], [to.x, to.low], [to.x, to.high], [from.x, from.high]].map(([a, b]) => `${x(a)},${y(b)}`).join(" "),
      });
    });
    const line = (value, kind) => drawn("line", { class: kind, x1: x(value), x2: x(value), y1: 0, y2: HEIGHT });
    this.svg.replaceChildren(...bands,
      drawn("polyline", { class: "mean", points: this.curve.map((one) => `${x(one.x)},${y(one.mean)}`).join(" ") }),
      ...this.trained.map((value) => line(value, "edge")), line(this.value, "asked"),
      drawn("text", { x: 2, y: 12 }, short(most)), drawn("text", { x: 2, y: HEIGHT - 2 }, short(least)));
  }
}
