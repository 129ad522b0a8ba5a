// A sheet to draw on, or a picture that is chosen, dropped or pasted; turned, blurred and disturbed by sliders.

import { element, slider } from "./elements.js";
import { balanced, black, blurred, canvas, disturbed, numbers, reduced, scaled, turned } from "./pixels.js";
import { DATA_SETS, DIGITS, drawLines, fittedLines, stretch, turnedLines } from "./strokes.js";

const LEAST_SIDE = 280;
const MOST_SIDE = 1500; // of a chosen picture that is looked at here; larger ones are sent whole
const PEN = 0.13; // of the sheet's width
// A file is sent as it is where the service reads such files, and it is small enough; another one as it is seen here.
const SENT = new Set(["image/png", "image/jpeg", "image/webp"]);
const MOST_BYTES = 4e6;
const MOST_PIXELS = 16e6;

export class ImageInput {
  // spec: the card's input; changed: called with the body of a request.
  constructor(place, spec, names, changed, fail) {
    const [channels, height, width] = spec.shape;
    Object.assign(this, { width, height, grey: channels === 1, changed, fail, chosen: null, turn: 0 });
    const sees = spec.image.resize_to ? "What is sent, before the service cuts out its middle" : "What the network sees";
    this.effects = { degrees: 0, blur: 0, noise: 0 };
    this.dataSet = this.grey && width === height && names.includes("3") ? DATA_SETS[width] : undefined;
    const enlarged = Math.max(1, LEAST_SIDE / Math.max(width, height));
    this.paper = this.#paper(Math.round(enlarged * width), Math.round(enlarged * height));
    this.seen = element("canvas", { id: "seen", width, height, role: "img", "aria-label": sees });
    for (const shown of [this.paper, this.seen]) shown.style.aspectRatio = `${width} / ${height}`;
    this.lines = []; // drawn, on a sheet of side 1; none of a picture
    place.append(
      element("div", { class: "pictures" },
        element("figure", {}, this.paper, element("figcaption", {}, "Draw here, or drop or paste a picture")),
        element("figure", {}, this.seen, element("figcaption", {}, `${sees}: ${width} × ${height}`))),
      this.#tools(names), this.#sliders(), ...(this.dataSet ? [this.#placing()] : []));
    document.addEventListener("paste", (event) => this.#take(event.clipboardData?.files[0]));
    for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
    this.example(names.includes("3") ? "3" : "noise");
  }

  clear() {
    black(this.paper);
    this.#drop();
    this.update();
  }

  example(name) {
    const pen = black(this.paper);
    this.#drop();
    if (name in DIGITS) {
      this.lines = DIGITS[name].map((line) => [...line]);
      drawLines(pen, this.lines, PEN);
    } else {
      painted(pen, { noise: random(this.width, this.height), checkerboard, photograph }[name]);
    }
    this.update();
  }

  update() {
    const { degrees, blur, noise } = this.effects;
    const sheet = blurred(this.#placed(degrees) ?? turned(this.paper, degrees), Math.round(blur));
    // A file that nothing is done to is sent as it is: the service scales it itself, in the same way.
    const still = this.chosen !== null && degrees === 0 && blur === 0;
    const untouched = still && noise === 0;
    const size = this.chosen === null
      ? reduced(sheet, this.width, this.height)
      : scaled(still ? this.original : sheet, this.width, this.height);
    const small = disturbed(size, noise / 100, this.grey);
    this.seen.getContext("2d", { willReadFrequently: true }).drawImage(small, 0, 0);
    this.changed({ images: [untouched ? this.chosen : small.toDataURL("image/png").split(",")[1]] });
  }

  // What is drawn, as the data set of digits has it; undefined of a picture, and where it is not wanted.
  #placed(degrees) {
    if (!this.dataSet || !this.centred || this.lines.length === 0) return undefined;
    const sheet = canvas(this.paper.width, this.paper.height);
    const lines = fittedLines(turnedLines(this.lines, degrees), this.dataSet);
    const pen = black(sheet);
    pen.translate(sheet.width / 2, 0);
    pen.scale(stretch(lines, this.dataSet), 1);
    pen.translate(-sheet.width / 2, 0);
    drawLines(pen, lines, this.dataSet.pen);
    return this.dataSet.byMass ? balanced(sheet) : sheet;
  }

  #paper(width, height) {
    const paper = canvas(width, height);
    paper.id = "paper";
    paper.setAttribute("role", "img");
    paper.setAttribute("aria-label", "Sheet to draw on; the buttons below it draw without a pointer");
    const pen = black(paper);
    let line = null;
    const at = (event) => [event.offsetX / paper.clientWidth, event.offsetY / paper.clientHeight];
    paper.addEventListener("pointerdown", (event) => {
      if (!event.isPrimary || event.button !== 0) return;
      paper.setPointerCapture(event.pointerId);
      if (this.lines.length === 0) black(paper);
      const { lines } = this;
      this.#drop();
      line = [at(event)];
      this.lines = [...lines, line];
      drawLines(pen, [line], PEN);
      this.update();
    });
    paper.addEventListener("pointermove", (event) => {
      if (line === null || !event.isPrimary || this.lines.at(-1) !== line) return;
      line.push(at(event));
      drawLines(pen, [line.slice(-2)], PEN);
      this.update();
    });
    for (const name of ["pointerup", "pointercancel"]) paper.addEventListener(name, () => { line = null; });
    paper.addEventListener("dragover", (event) => { event.preventDefault(); paper.classList.add("over"); });
    paper.addEventListener("dragleave", () => paper.classList.remove("over"));
    paper.addEventListener("drop", (event) => {
      event.preventDefault();
      paper.classList.remove("over");
      this.#take(event.dataTransfer.files[0]);
    });
    return paper;
  }

  // Nothing drawn, no chosen file, and none that is still being read.
  #drop() {
    this.lines = [];
    this.chosen = null;
    this.turn += 1;
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
    const content = await encoded(file).catch(() => null); // a folder is none
    if (turn !== this.turn) return; // something else was drawn or chosen meanwhile
    if (picture === null || content === null) {
      this.fail(new Error(`${file.name} cannot be read: choose a PNG, JPEG or WebP picture.`));
      return;
    }
    // The whole picture on the sheet, as the service scales it.
    const pen = black(this.paper);
    pen.imageSmoothingQuality = "high";
    pen.drawImage(picture, 0, 0, this.paper.width, this.paper.height);
    this.original = whole(picture);
    this.lines = [];
    this.chosen = SENT.has(file.type) && file.size <= MOST_BYTES && picture.width * picture.height <= MOST_PIXELS
      ? content : this.original.toDataURL("image/png").split(",")[1];
    this.update();
  }
}

// On a canvas of its own size, or as large as is looked at here.
function whole(picture) {
  const scale = Math.min(1, MOST_SIDE / Math.max(picture.width, picture.height));
  const made = canvas(...[picture.width, picture.height].map((size) => Math.max(1, Math.round(scale * size))));
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

function painted(pen, colour) {
  const { width, height } = pen.canvas;
  const image = pen.createImageData(width, height);
  for (let i = 0; i < width * height; i += 1) {
    const value = colour((i % width) / width, Math.floor(i / width) / height);
    image.data.set([value, value, value, 255], 4 * i);
  }
  pen.putImageData(image, 0, 0);
}

// Fields as large as a pixel of the network's.
function random(width, height) {
  const next = numbers(7);
  const fields = Array.from({ length: width * height }, () => 255 * next());
  return (x, y) => fields[Math.floor(y * height) * width + Math.floor(x * width)];
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
