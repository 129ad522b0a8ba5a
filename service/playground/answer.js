// An answer as people read it: the decision in large, then why.

import { element, short } from "./elements.js";
import { ScoreChart } from "./score_chart.js";

const MOST_CLASSES = 10;
const SELDOM = 0.15; // a p-value below which an accepted input is called unusual
const percent = (value) => (value < 1 && value > 0.999 ? "over 99.9 %" : `${short(100 * value)} %`);

export class Answer {
  // card: of the model; reference: scores of the held-out examples, ascending.
  constructor(place, card, reference) {
    this.card = card;
    this.verdict = document.getElementById("verdict");
    this.decision = document.getElementById("decision");
    this.label = document.getElementById("label");
    this.sentence = document.getElementById("sentence");
    this.body = element("div");
    this.chart = new ScoreChart(reference, card.decision.threshold ?? card.calibration.threshold, () => this.decide());
    place.append(this.body, element("h3", {}, `Score: ${card.calibration.score.replaceAll("_", " ")}`), this.chart.root);
  }

  show(prediction) {
    this.prediction = prediction;
    this.decide();
    const parts = this.card.task === "regression" ? values(prediction, this.card) : classes(prediction, this.card);
    const warnings = prediction.warnings.map((text) => element("p", { class: "note" }, `Warning: ${text}`));
    this.body.replaceChildren(...warnings, ...parts);
  }

  // No answer to what is shown.
  clear(why) {
    this.prediction = null;
    this.body.replaceChildren();
    this.chart.mark(null, this.chart.usual);
    this.#say("", "No answer", "", why);
  }

  decide() {
    if (!this.prediction) return;
    const { score, rejected, reason, threshold, p_value: p } = this.prediction;
    const label = said(this.prediction);
    this.chart.mark(score, threshold);
    const no = this.chart.moved ? score > this.chart.threshold : rejected;
    const own = `Score ${short(score)}, your threshold ${short(this.chart.threshold)}, above which ${this.chart.rejectedCount} of ${this.chart.reference.length} held-out examples lie.`;
    const why = no ? reason : `It looks ${p < SELDOM ? "unusual, but not enough to be rejected" : "like the held-out examples"}: its p-value is ${short(p)}.`;
    this.#say(no ? "rejected" : "accepted", no ? "Rejected" : "Accepted", label, this.chart.moved ? own : why);
  }

  #say(kind, decision, label, sentence) {
    this.verdict.className = kind;
    this.decision.textContent = decision;
    this.label.textContent = label;
    this.sentence.textContent = sentence;
  }
}

// What it answers, in a few words.
function said({ label, labels, probability, mean, interval, names }) {
  const span = (i) => ` (${short(interval.low[i])} to ${short(interval.high[i])})`;
  if (mean) return mean.length > 3 ? "" : mean.map((value, i) => `${names ? `${names[i]} ` : ""}${short(value)}${span(i)}`).join(", ");
  return labels ? labels.join(", ") || "no label" : `${label}, ${percent(probability)}`;
}

function classes(prediction, card) {
  const plain = prediction.map_probabilities;
  const ours = prediction.probabilities;
  const shown = Object.keys(ours).length > MOST_CLASSES
    ? Object.keys(ours).sort((a, b) => ours[b] - ours[a]).slice(0, MOST_CLASSES)
    : card.class_names?.filter((name) => name in ours) ?? Object.keys(ours);
  const rows = shown.flatMap((name) => {
    const [low, high] = spread(prediction, name, card.map_temperature, card.task === "multilabel");
    return [
      element("dt", {}, name),
      element("dd", {}, track("ours", ours[name]), cell(ours[name])),
      element("dd", {}, track("plain last", plain[name], [low, high]), cell(plain[name], "last")),
    ];
  });
  return [
    element("h3", {}, "Probabilities"),
    element("p", { class: "note" }, element("span", { class: "key ours" }), " with the uncertainty of the weights; ",
      element("span", { class: "key plain" }), " plain network, with a line: what it would say with this output one standard deviation lower or higher; each at the temperature that suits it"),
    element("dl", { class: "bars" }, ...rows), ...members(prediction), ...entropy(prediction, Object.keys(card.class_names ?? ours).length, card.task),
  ];
}

// Of an input that is rejected, and so unlike the held-out ones, a set says nothing.
function members({ prediction_set: set, rejected }) {
  if (!set || rejected) return [];
  const shown = set.labels
    ? `${set.labels.join(", ")}${set.size > set.labels.length ? ", …" : ""}`
    : ["present", "undecided", "absent"].map((part) => `${part}: ${set[part].join(", ") || "none"}`).join("; ");
  const truth = set.labels ? "hold the truth" : "are right about each label";
  return [element("p", { class: "note" }, `Prediction set: ${shown}. Of inputs like the held-out ones, ${percent(set.level)} of such sets ${truth}.`)];
}

// The plain network's probability of a class whose output is one standard deviation lower, and higher.
function spread(prediction, name, temperature, several) {
  const own = prediction.logit_mean[name];
  const deviation = Math.sqrt(prediction.logit_variance[name]);
  const others = several ? [0] : Object.entries(prediction.logit_mean).filter(([other]) => other !== name).map(([, f]) => f);
  return [-1, 1].map((sign) => {
    const odds = others.reduce((sum, f) => sum + Math.exp((f - own - sign * deviation) / temperature), 0);
    return 1 / (1 + odds);
  });
}

function entropy({ uncertainty }, count, task) {
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
    element("td", {}, `${short(prediction.interval.low[i])} to ${short(prediction.interval.high[i])}`),
    element("td", {}, short(Math.sqrt(prediction.variance[i]))),
    element("td", {}, short(prediction.noise_std[i]))));
  const head = ["", "mean", `${percent(prediction.interval.level)} interval`, "± from the weights", "± from noise"].map((name) => element("th", { scope: "col" }, name));
  return [element("h3", {}, "Values"), element("div", { class: "wide" }, element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)))];
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
