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

// Three digits, and no more than a screen has room for.
export function short(value) {
  if (value === 0 || (Math.abs(value) >= 0.001 && Math.abs(value) < 1e5)) return String(Number(value.toPrecision(3)));
  return value.toExponential(1);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
