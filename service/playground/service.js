// What the page asks of the service. Addresses are relative: a proxy may serve it below a path of its own.

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export class Service {
  #key = "";

  set key(value) {
    this.#key = value;
  }

  card() {
    return this.#asked("./model");
  }

  // Scores of the held-out examples, ascending.
  reference() {
    return this.#asked("./playground/reference");
  }

  // Prometheus' text.
  metrics() {
    return this.#asked("./metrics", {}, (response) => response.text());
  }

  async predict(body) {
    const { name, version } = this.model; // whose card is shown: another one may answer a part of the requests
    const place = [name, "versions", version].map(encodeURIComponent).join("/");
    const { predictions: [one], warnings, model } = await this.#asked(`./models/${place}/predict?detail=full&trial=true`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    return { ...one, warnings, digest: model.digest };
  }

  async #asked(address, options = {}, read = (response) => response.json()) {
    const headers = { ...options.headers, ...(this.#key ? { "X-API-Key": this.#key } : {}) };
    const response = await fetch(address, { ...options, headers }).catch(() => {
      throw new Refused(0, "The service cannot be reached.");
    });
    if (!response.ok) {
      const problem = await response.json().catch(() => ({}));
      throw new Refused(response.status, problem.detail ?? `The service answered ${response.status}.`);
    }
    return read(response);
  }
}

export const AGAIN = new Set([0, 429, 503, 504]); // no answer, or too busy: the same is asked again
const PAUSE_MILLISECONDS = 1000;

// Asks for the newest input only: what changes while an answer is awaited is asked once, afterwards.
export class Latest {
  #next = null;
  #busy = false;
  #wanted = true;

  // working: told whether an answer is awaited.
  constructor(ask, show, fail, working) {
    Object.assign(this, { ask, show, fail, working });
  }

  // What is awaited is not wanted any more.
  cancel() {
    clearTimeout(this.timer);
    this.#next = null;
    this.#wanted = false;
    this.working(false);
  }

  async send(body) {
    clearTimeout(this.timer);
    this.#next = body;
    this.#wanted = true;
    if (this.#busy) return;
    this.#busy = true;
    while (this.#next !== null) {
      this.working(true);
      const sent = this.#next;
      this.#next = null;
      try {
        const answer = await this.ask(sent);
        if (this.#wanted) this.show(answer);
      } catch (error) {
        if (!this.#wanted) continue;
        this.fail(error);
        if (AGAIN.has(error.status) && this.#next === null) {
          this.timer = setTimeout(() => this.send(sent), PAUSE_MILLISECONDS);
        }
      }
    }
    this.#busy = false;
    this.working(false);
  }
}
