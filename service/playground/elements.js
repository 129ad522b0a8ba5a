// Elements from a name, attributes and children.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

// A labelled slider with its value: three cells of a grid.
export function slider(label, { id, min, max, step, value, unit = "" }, changed) {
  const range = element("input", { type: "range", id, min, max, step, value });
  const shown = element("output", { for: id }, `${value}${unit}`);
  range.addEventListener("input", () => {
    shown.textContent = `${range.value}${unit}`;
    changed(Number(range.value));
  });
  return [element("label", { for: id }, label), range, shown];
}

// Three digits, of large values six, and no more than a screen has room for.
export function short(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e9)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: size < 1000 ? 3 : 6 });
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
