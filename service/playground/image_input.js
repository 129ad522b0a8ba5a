// A sheet to draw on, or a picture that is chosen, dropped or pasted; turned, blurred and disturbed by sliders.

import { element, slider } from "./elements.js";
import { black, blurred, canvas, disturbed, numbers, placed, reduced, scaled, turned } from "./pixels.js";

const LEAST_SIDE = 280;
const MOST_SIDE = 1500; // of a chosen picture that is looked at here; larger ones are sent whole
// Of the side: about as thick as the pens of the data sets, by the height of their digits.
const stroke = (side) => (side === 8 ? 0.14 : 0.12);
// Strokes of digits on a sheet of side 1, for those who cannot or would rather not draw.
const DIGITS = {
  0: [[[0.5, 0.12], [0.32, 0.25], [0.27, 0.5], [0.33, 0.76], [0.5, 0.88], [0.67, 0.75], [0.72, 0.5], [0.67, 0.25], [0.5, 0.12]]],
  3: [[[0.3, 0.2], [0.5, 0.12], [0.68, 0.22], [0.66, 0.4], [0.46, 0.48], [0.68, 0.57], [0.7, 0.77], [0.5, 0.88], [0.28, 0.79]]],
  7: [[[0.28, 0.16], [0.72, 0.14], [0.62, 0.42], [0.52, 0.65], [0.44, 0.88]], [[0.34, 0.54], [0.74, 0.5]]],
};

export class ImageInput {
  // spec: the card's input; changed: called with the body of a request.
  constructor(place, spec, names, changed, fail) {
    const [channels, height] = spec.shape;
    Object.assign(this, { side: height, grey: channels === 1, changed, fail, chosen: null, turn: 0 });
    this.effects = { degrees: 0, blur: 0, noise: 0 };
    this.places = this.grey && (height === 8 || height === 28);
    this.paper = this.#paper(Math.max(LEAST_SIDE, height));
    this.seen = element("canvas", { id: "seen", width: height, height, role: "img", "aria-label": "What the network sees" });
    this.stroked = false;
    place.append(
      element("div", { class: "pictures" },
        element("figure", {}, this.paper, element("figcaption", {}, "Draw here, or drop or paste a picture")),
        element("figure", {}, this.seen, element("figcaption", {}, `What the network sees: ${height} × ${height}`))),
      this.#tools(names), this.#sliders(), ...(this.places ? [this.#placing()] : []));
    document.addEventListener("paste", (event) => this.#take(event.clipboardData?.files[0]));
    for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
    this.example(names.includes("7") ? "7" : "noise");
  }

  clear() {
    black(this.paper);
    this.stroked = false;
    this.#drop();
    this.update();
  }

  example(name) {
    const pen = black(this.paper);
    const side = this.paper.width;
    this.stroked = name in DIGITS;
    this.#drop();
    if (name in DIGITS) {
      this.#pen(pen);
      for (const line of DIGITS[name]) {
        pen.beginPath();
        for (const [x, y] of line) pen.lineTo(x * side, y * side);
        pen.stroke();
      }
    } else {
      painted(pen, side, { noise: random(this.side), checkerboard, photograph }[name]);
    }
    this.update();
  }

  update() {
    const sheet = blurred(turned(this.paper, this.effects.degrees), Math.round(this.effects.blur));
    const fitted = this.stroked && this.places && this.centred ? placed(sheet, this.side) : sheet;
    // A file that nothing is done to is sent as it is: the service scales it itself, in the same way.
    const { degrees, blur, noise } = this.effects;
    const still = this.chosen !== null && degrees === 0 && blur === 0;
    const untouched = still && noise === 0;
    const size = this.chosen === null ? reduced(fitted, this.side) : scaled(still ? this.original : fitted, this.side);
    const small = disturbed(size, noise / 100, this.grey);
    this.seen.getContext("2d").drawImage(small, 0, 0);
    this.changed({ images: [untouched ? this.chosen : small.toDataURL("image/png").split(",")[1]] });
  }

  #paper(side) {
    const paper = canvas(side);
    paper.id = "paper";
    paper.setAttribute("role", "img");
    paper.setAttribute("aria-label", "Sheet to draw on; the buttons below it draw without a pointer");
    const pen = black(paper);
    let last = null;
    const at = (event) => [(event.offsetX * side) / paper.clientWidth, (event.offsetY * side) / paper.clientHeight];
    paper.addEventListener("pointerdown", (event) => {
      if (!event.isPrimary || event.button !== 0) return;
      paper.setPointerCapture(event.pointerId);
      if (!this.stroked) black(paper);
      this.stroked = true;
      this.#drop();
      last = at(event);
      this.#line(pen, last, last);
    });
    paper.addEventListener("pointermove", (event) => {
      if (last === null || !event.isPrimary) return;
      const next = at(event);
      this.#line(pen, last, next);
      last = next;
    });
    for (const name of ["pointerup", "pointercancel"]) paper.addEventListener(name, () => { last = null; });
    paper.addEventListener("dragover", (event) => { event.preventDefault(); paper.classList.add("over"); });
    paper.addEventListener("dragleave", () => paper.classList.remove("over"));
    paper.addEventListener("drop", (event) => {
      event.preventDefault();
      paper.classList.remove("over");
      this.#take(event.dataTransfer.files[0]);
    });
    return paper;
  }

  // No chosen file, and none that is still being read.
  #drop() {
    this.chosen = null;
    this.turn += 1;
  }

  #pen(pen) {
    Object.assign(pen, { strokeStyle: "#fff", lineWidth: stroke(this.side) * this.paper.width, lineCap: "round", lineJoin: "round" });
  }

  #line(pen, from, to) {
    this.#pen(pen);
    pen.beginPath();
    pen.moveTo(...from);
    pen.lineTo(...to);
    pen.stroke();
    this.update();
  }

  #tools(names) {
    const file = element("input", { type: "file", accept: "image/*", "aria-label": "Choose a picture" });
    file.addEventListener("change", () => {
      this.#take(file.files[0]);
      file.value = ""; // so that the same file can be chosen again
    });
    const digits = Object.keys(DIGITS).filter((name) => this.grey && names.includes(name));
    const examples = [...digits, "noise", "checkerboard", "photograph"].map((name) => {
      const button = element("button", { type: "button" }, name in DIGITS ? `A ${name}` : `${name[0].toUpperCase()}${name.slice(1)}`);
      button.addEventListener("click", () => this.example(name));
      return button;
    });
    const clear = element("button", { type: "button" }, "Clear");
    clear.addEventListener("click", () => this.clear());
    return element("div", { class: "tools" }, clear, ...examples, file);
  }

  #sliders() {
    const kept = (name) => (value) => { this.effects[name] = value; this.update(); };
    return element("div", { class: "sliders" },
      ...slider("Turn", { id: "turn", min: -180, max: 180, step: 5, value: 0, unit: "°" }, kept("degrees")),
      ...slider("Blur", { id: "blur", min: 0, max: 40, step: 1, value: 0 }, kept("blur")),
      ...slider("Noise", { id: "noise", min: 0, max: 100, step: 1, value: 0, unit: " %" }, kept("noise")));
  }

  #placing() {
    const box = element("input", { type: "checkbox", id: "centred", checked: "" });
    this.centred = true;
    box.addEventListener("change", () => { this.centred = box.checked; this.update(); });
    return element("p", { class: "note" }, box, " ",
      element("label", { for: "centred" }, "Scale and centre drawings as the data set of digits was"));
  }

  async #take(file) {
    if (!file) return;
    this.turn += 1;
    const { turn } = this;
    const picture = await createImageBitmap(file).catch(() => null);
    const content = await encoded(file);
    if (turn !== this.turn) return; // something else was drawn or chosen meanwhile
    if (picture === null) {
      this.fail(new Error(`${file.name} cannot be read: choose a PNG, JPEG or WebP picture.`));
      return;
    }
    // The whole picture on the square sheet, as the service scales it.
    const side = this.paper.width;
    const pen = black(this.paper);
    pen.imageSmoothingQuality = "high";
    pen.drawImage(picture, 0, 0, side, side);
    this.original = whole(picture);
    this.chosen = content;
    this.stroked = false;
    this.update();
  }
}

// On a canvas of its own size, or as large as is looked at here.
function whole(picture) {
  const scale = Math.min(1, MOST_SIDE / Math.max(picture.width, picture.height));
  const made = document.createElement("canvas");
  [made.width, made.height] = [picture.width, picture.height].map((size) => Math.max(1, Math.round(scale * size)));
  black(made).drawImage(picture, 0, 0, made.width, made.height);
  return made;
}

// In base64.
function encoded(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.split(",")[1]);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

function painted(pen, side, colour) {
  const image = pen.createImageData(side, side);
  for (let i = 0; i < side * side; i += 1) {
    const value = colour((i % side) / side, Math.floor(i / side) / side);
    image.data.set([value, value, value, 255], 4 * i);
  }
  pen.putImageData(image, 0, 0);
}

// Fields as large as a pixel of the network's.
function random(side) {
  const next = numbers(7);
  const fields = Array.from({ length: side * side }, () => 255 * next());
  return (x, y) => fields[Math.floor(y * side) * side + Math.floor(x * side)];
}

function checkerboard(x, y) {
  return (Math.floor(8 * x) + Math.floor(8 * y)) % 2 ? 255 : 0;
}

// Hills under a bright sky with a sun.
function photograph(x, y) {
  const hill = 0.62 + 0.1 * Math.sin(7 * x) + 0.04 * Math.sin(19 * x + 1);
  const sun = Math.hypot(x - 0.72, y - 0.24) < 0.11;
  return y > hill ? 40 + 50 * (y - hill) + 30 * Math.sin(40 * x) ** 2 : sun ? 250 : 205 - 90 * y;
}
