// An answer as people read it: the decision in large, then why.

import { element, short } from "./elements.js";
import { ScoreChart } from "./score_chart.js";

const MOST_CLASSES = 10;
const percent = (value) => `${short(100 * value)} %`;

export class Answer {
  // card: of the model; reference: scores of the held-out examples, ascending.
  constructor(place, card, reference) {
    this.card = card;
    this.verdict = document.getElementById("verdict");
    this.decision = document.getElementById("decision");
    this.sentence = document.getElementById("sentence");
    this.body = element("div");
    this.chart = new ScoreChart(reference, card.decision.threshold ?? card.calibration.threshold, () => this.decide());
    place.append(this.body, element("h3", {}, `Score: ${card.calibration.score.replaceAll("_", " ")}`), this.chart.root);
  }

  show(prediction) {
    this.prediction = prediction;
    this.decide();
    const parts = this.card.task === "regression" ? values(prediction, this.card) : classes(prediction, this.card);
    this.body.replaceChildren(...parts);
  }

  decide() {
    if (!this.prediction) return;
    const { score, rejected, reason, degraded } = this.prediction;
    if (degraded) {
      this.#say("", "No decision", "The service is overloaded: this is the plain network's answer.");
      return;
    }
    const said = this.chart.moved ? score > this.chart.threshold : rejected;
    this.chart.mark(score);
    const share = this.chart.shareAtLeast(score);
    const common = `${percent(share)} of the held-out examples score as high or higher.`;
    const own = `Your threshold rejects ${percent(this.chart.rejectedShare)} of inputs like the training data.`;
    const why = said ? reason ?? `Its score is above the threshold. ${common}` : `It looks like the training data: ${common}`;
    this.#say(said ? "rejected" : "accepted", said ? "Rejected" : "Accepted", this.chart.moved ? `${why} ${own}` : why);
  }

  #say(kind, decision, sentence) {
    this.verdict.className = kind;
    this.decision.textContent = decision;
    this.sentence.textContent = sentence;
  }
}

function classes(prediction, card) {
  const ours = prediction.probabilities;
  const shown = Object.keys(ours).length > MOST_CLASSES
    ? Object.keys(ours).sort((a, b) => ours[b] - ours[a]).slice(0, MOST_CLASSES)
    : card.class_names?.filter((name) => name in ours) ?? Object.keys(ours);
  const rows = shown.flatMap((name) => {
    const [low, high] = spread(prediction, name, card.map_temperature, card.task === "multilabel");
    return [
      element("dt", {}, name),
      element("dd", {}, track("ours", ours[name], [low, high]), cell(ours[name])),
      element("dd", {}, track("plain last", prediction.map_probabilities[name]), cell(prediction.map_probabilities[name], "last")),
    ];
  });
  return [
    element("h3", {}, "Probabilities"),
    element("p", { class: "note" }, element("span", { class: "key ours" }), " with uncertainty of the weights; the line: what the network would say with an output one standard deviation lower or higher. ",
      element("span", { class: "key plain" }), " plain network"),
    element("dl", { class: "bars" }, ...rows), ...entropy(prediction, Object.keys(card.class_names ?? ours).length, card.task),
  ];
}

// The plain network's probability of a class whose output is one standard deviation lower, and higher.
function spread(prediction, name, temperature, several) {
  const own = prediction.logit_mean[name];
  const deviation = Math.sqrt(prediction.logit_variance?.[name] ?? 0);
  const others = several ? [0] : Object.entries(prediction.logit_mean).filter(([other]) => other !== name).map(([, f]) => f);
  return [-1, 1].map((sign) => {
    const odds = others.reduce((sum, f) => sum + Math.exp((f - own - sign * deviation) / temperature), 0);
    return 1 / (1 + odds);
  });
}

function entropy({ uncertainty }, count, task) {
  if (!uncertainty) return [];
  const most = task === "multilabel" ? count * Math.log(2) : Math.log(count);
  const stack = element("div", { class: "stack", "aria-hidden": "true" }, element("div", { class: "data" }), element("div", { class: "weights" }));
  stack.children[0].style.width = `${(100 * uncertainty.aleatoric) / most}%`;
  stack.children[1].style.width = `${(100 * uncertainty.epistemic) / most}%`;
  return [
    element("h3", {}, `Entropy: ${short(uncertainty.total)} of at most ${short(most)} nats`),
    stack,
    element("p", { class: "note" }, element("span", { class: "key plain" }), ` ${short(uncertainty.aleatoric)} in the data `,
      element("span", { class: "key part" }), ` ${short(uncertainty.epistemic)} from not knowing the weights`),
  ];
}

function values(prediction, card) {
  const names = prediction.names ?? card.class_names ?? prediction.mean.map((_, i) => `value ${i}`);
  const rows = prediction.mean.map((mean, i) => element("tr", {},
    element("th", { scope: "row" }, names[i]), element("td", {}, short(mean)),
    element("td", {}, prediction.interval ? `${short(prediction.interval.low[i])} to ${short(prediction.interval.high[i])}` : "–"),
    element("td", {}, prediction.variance ? short(Math.sqrt(prediction.variance[i])) : "–"),
    element("td", {}, short(prediction.noise_std[i]))));
  const level = prediction.interval ? `${percent(prediction.interval.level)} interval` : "interval";
  const head = ["", "mean", level, "± from the weights", "± from noise"].map((name) => element("th", { scope: "col" }, name));
  return [element("h3", {}, "Values"), element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows))];
}

function track(kind, share, whisker) {
  const made = element("div", { class: `track ${kind}`, "aria-hidden": "true" }, element("div", { class: "fill" }));
  made.firstChild.style.width = `${100 * share}%`;
  if (whisker) {
    const line = element("div", { class: "whisker" });
    line.style.left = `${100 * whisker[0]}%`;
    line.style.width = `${100 * (whisker[1] - whisker[0])}%`;
    made.append(line);
  }
  return made;
}

function cell(share, extra = "") {
  return element("span", { class: `value ${extra}` }, `${(100 * share).toFixed(1)} %`);
}
