// Drawn lines, as points on a sheet of side 1: turned and scaled as points, so that the pen stays as thick as it was.

// Strokes of digits for those who cannot or would rather not draw.
export const DIGITS = {
  0: [[[0.5, 0.12], [0.32, 0.25], [0.27, 0.5], [0.33, 0.76], [0.5, 0.88], [0.67, 0.75], [0.72, 0.5], [0.67, 0.25], [0.5, 0.12]]],
  3: [[[0.3, 0.2], [0.5, 0.12], [0.68, 0.22], [0.66, 0.4], [0.46, 0.48], [0.68, 0.57], [0.7, 0.77], [0.5, 0.88], [0.28, 0.79]]],
  7: [[[0.28, 0.16], [0.72, 0.14], [0.62, 0.42], [0.52, 0.65], [0.44, 0.88]], [[0.34, 0.54], [0.74, 0.5]]],
};
const DOT = 0.05; // what is smaller is no digit, and not made larger

// How data sets of digits were made, by the side of their images. UCI (8 x 8): the ink fills the height and at most six
// of eight columns; a one is as black as other digits, so narrow ink is stretched. MNIST (28 x 28): it fits a box of
// 20 x 20, and its centre of mass is the image's centre. The pens leave as much ink as the data sets have on average.
export const DATA_SETS = {
  8: { width: 6 / 8, height: 1, pen: 0.17, leastWidth: 0.4, byMass: false },
  28: { width: 20 / 28, height: 20 / 28, pen: 0.105, leastWidth: 0, byMass: true },
};

export function turnedLines(lines, degrees) {
  const [sin, cos] = [Math.sin((degrees * Math.PI) / 180), Math.cos((degrees * Math.PI) / 180)];
  return lines.map((line) => line.map(([x, y]) => [
    0.5 + cos * (x - 0.5) - sin * (y - 0.5),
    0.5 + sin * (x - 0.5) + cos * (y - 0.5),
  ]));
}

// In the middle of the sheet, as large as the data set's ink.
export function fittedLines(lines, { width, height, pen }) {
  const [xs, ys] = [0, 1].map((axis) => lines.flat().map((point) => point[axis]));
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const [across, down] = [right - left, bottom - top];
  const scale = Math.max(across, down) < DOT ? 1 : Math.min((width - pen) / across, (height - pen) / down);
  return lines.map((line) => line.map(([x, y]) => [
    0.5 + scale * (x - (left + right) / 2),
    0.5 + scale * (y - (top + bottom) / 2),
  ]));
}

// By how much the lines' ink is stretched to be as wide as the data set's narrowest.
export function stretch(lines, { pen, leastWidth }) {
  const xs = lines.flat().map(([x]) => x);
  return Math.max(1, leastWidth / (Math.max(...xs) - Math.min(...xs) + pen));
}

// On a context whose canvas is the sheet; pen: its thickness.
export function drawLines(context, lines, pen) {
  const { width, height } = context.canvas;
  Object.assign(context, { strokeStyle: "#fff", lineWidth: pen * width, lineCap: "round", lineJoin: "round" });
  for (const line of lines) {
    context.beginPath();
    context.moveTo(line[0][0] * width, line[0][1] * height);
    context.lineTo(line[0][0] * width + 0.01, line[0][1] * height); // a point alone is a dot
    for (const [x, y] of line) context.lineTo(x * width, y * height);
    context.stroke();
  }
}
