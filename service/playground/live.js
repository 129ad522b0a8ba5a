// What the service has done since it was started, and does now: read from its metrics every two seconds.

import { drawn, element, short } from "./elements.js";

const EVERY_MILLISECONDS = 2000;
const WIDTH = 520;
const HEIGHT = 140;
const TEXT = 16;

// Prometheus' text format: name -> samples with labels and a value.
export function parsed(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (match === null) continue;
    const labels = Object.fromEntries([...(match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, name, value]) => [name, plain(value)]));
    found.set(match[1], [...(found.get(match[1]) ?? []), { labels, value: Number(match[3].replace("Inf", "Infinity")) }]);
  }
  return found;
}

function plain(escaped) {
  return escaped.replace(/\\(.)/g, (_, sign) => (sign === "n" ? "\n" : sign));
}

export class Live {
  #timer = null;
  #before = null;

  constructor(place, service, card, fail) {
    Object.assign(this, { service, card, fail });
    this.tiles = element("dl", { class: "tiles" });
    this.svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "Shares of p-values, and what is expected of unchanged data" });
    place.append(element("h2", {}, "What it answers others"), this.tiles,
      element("h3", {}, "P-values of the examples"), this.svg,
      element("div", { class: "ends note" }, element("span", {}, "0"), element("span", {}, "p-value"), element("span", {}, "1")),
      element("p", { class: "note" }, "A bar for each tenth, with its share of the examples. On data like the held-out "
        + "examples all are as high as the dashed line, 10 %; a high one at the left is foreign inputs. What this page "
        + "asks while you try the model counts among requests and latency alone."));
  }

  show(shown) {
    clearInterval(this.#timer);
    if (!shown && this.failed) this.fail(null);
    if (!shown) return;
    this.#read();
    this.#timer = setInterval(() => this.#read(), EVERY_MILLISECONDS);
  }

  async #read() {
    try {
      this.#draw(parsed(await this.service.metrics()), performance.now() / 1000);
      if (this.failed) this.fail(null);
      this.failed = false;
    } catch (error) {
      this.failed = true;
      this.fail(error);
    }
  }

  #draw(metrics, seconds) {
    const { name, version } = this.card;
    const own = (metric) => (metrics.get(metric) ?? []).filter(({ labels }) => labels.model === name && labels.version === version);
    const sum = (samples) => samples.reduce((total, { value }) => total + value, 0);
    const requests = sum((metrics.get("demur_http_requests_total") ?? []).filter(({ labels }) => labels.method === "POST"));
    const answered = sum(own("demur_predictions_total"));
    const rejected = sum(own("demur_rejections_total"));
    const rate = this.#before && seconds > this.#before.seconds ? (requests - this.#before.requests) / (seconds - this.#before.seconds) : 0;
    this.#before = { requests, seconds };
    const tiles = {
      "Requests a second": short(rate),
      "Examples answered": answered.toLocaleString("en"),
      "Rejected": answered ? `${short((100 * rejected) / answered)} %` : "–",
      "Median latency": this.#median(metrics),
      "Evidence of drift since the last alarm": own("demur_drift_evidence").length ? `${short(10 ** sum(own("demur_drift_evidence")))} : 1` : "–",
      "Drift alarms": String(sum(own("demur_drift_alarms_total"))),
    };
    this.tiles.replaceChildren(...Object.entries(tiles).map(([title, value]) => element("div", {}, element("dt", {}, title), element("dd", {}, value))));
    this.#bars(own("demur_ood_p_value_bucket"));
  }

  // Of the predictions' routes, by linear interpolation within a bucket.
  #median(metrics) {
    const totals = new Map();
    for (const { labels, value } of metrics.get("demur_http_request_duration_seconds_bucket") ?? []) {
      if (!labels.route.endsWith("predict") && !labels.route.endsWith("infer")) continue;
      const end = Number(labels.le.replace("+Inf", "Infinity"));
      totals.set(end, (totals.get(end) ?? 0) + value);
    }
    const steps = [...totals].sort(([a], [b]) => a - b);
    const half = (steps.at(-1)?.[1] ?? 0) / 2;
    if (half === 0) return "–";
    const place = steps.findIndex(([, count]) => count >= half);
    const [low, below] = place > 0 ? steps[place - 1] : [0, 0];
    const [high, count] = steps[place];
    return Number.isFinite(high) ? `${short(1000 * (low + ((high - low) * (half - below)) / (count - below)))} ms` : `over ${low} s`;
  }

  #bars(buckets) {
    const at = new Map(buckets.map(({ labels, value }) => [Number(labels.le), value]));
    const total = at.get(1) ?? 0;
    const shares = Array.from({ length: 10 }, (_, i) => (total ? ((at.get((i + 1) / 10) ?? 0) - (at.get(i / 10) ?? 0)) / total : 0));
    const most = Math.max(0.3, ...shares);
    const y = (share) => HEIGHT - (HEIGHT - TEXT) * (share / most);
    this.svg.replaceChildren(
      ...shares.map((share, i) => drawn("rect", { class: "bin", x: (i * WIDTH) / 10, y: y(share), width: WIDTH / 10 - 2, height: HEIGHT - y(share) })),
      ...shares.map((share, i) => drawn("text", { x: ((i + 0.5) * WIDTH) / 10, y: y(share) - 3, "text-anchor": "middle" }, share ? `${short(100 * share)} %` : "")),
      drawn("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }),
      drawn("line", { class: "edge", x1: 0, x2: WIDTH, y1: y(0.1), y2: y(0.1) }));
  }
}
