// From a picture to the pixels that a network takes: turned, blurred, reduced, disturbed. Grey values are 0 to 255.

// A generator of numbers from 0 to 1 with a seed (mulberry32): noise stays where it is while a slider moves.
export function numbers(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export function canvas(side) {
  const made = document.createElement("canvas");
  made.width = made.height = side;
  return made;
}

export function black(target) {
  const pen = target.getContext("2d", { willReadFrequently: true });
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, target.width, target.height);
  return pen;
}

export function turned(source, degrees) {
  const target = canvas(source.width);
  const pen = black(target);
  const middle = source.width / 2;
  pen.translate(middle, middle);
  pen.rotate((degrees * Math.PI) / 180);
  pen.drawImage(source, -middle, -middle);
  return target;
}

// Three box blurs are close to a Gaussian one; radius in pixels of the source.
export function blurred(source, radius) {
  if (radius < 1) return source;
  const side = source.width;
  const pen = source.getContext("2d", { willReadFrequently: true });
  const image = pen.getImageData(0, 0, side, side);
  for (let pass = 0; pass < 3; pass += 1) {
    boxed(image.data, side, 4, 4 * side, radius);
    boxed(image.data, side, 4 * side, 4, radius);
  }
  const target = canvas(side);
  target.getContext("2d", { willReadFrequently: true }).putImageData(image, 0, 0);
  return target;
}

function boxed(data, side, step, stride, radius) {
  const line = new Float32Array(side);
  for (let row = 0; row < side; row += 1) {
    for (let channel = 0; channel < 3; channel += 1) {
      const start = row * stride + channel;
      let sum = 0;
      for (let i = 0; i < side; i += 1) line[i] = data[start + i * step];
      for (let i = -radius; i <= radius; i += 1) sum += line[i] ?? 0;
      for (let i = 0; i < side; i += 1) {
        data[start + i * step] = sum / (2 * radius + 1);
        sum += (line[i + radius + 1] ?? 0) - (line[i - radius] ?? 0);
      }
    }
  }
}

// The smallest rectangle around the ink, null without any.
export function ink(source) {
  const side = source.width;
  const { data } = source.getContext("2d", { willReadFrequently: true }).getImageData(0, 0, side, side);
  let [left, top, right, bottom] = [side, side, -1, -1];
  for (let i = 0; i < side * side; i += 1) {
    if (data[4 * i] > 40) {
      const x = i % side;
      const y = (i - x) / side;
      [left, right] = [Math.min(left, x), Math.max(right, x)];
      [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
    }
  }
  return right < 0 ? null : { x: left, y: top, width: right - left + 1, height: bottom - top + 1 };
}

// As data sets of digits were made. MNIST (28 x 28): the ink fits a box of 20 x 20, and its centre of mass is the
// image's centre. The digits of UCI (8 x 8): the ink fills the height and at most six of eight columns.
export function placed(source, side) {
  const box = ink(source);
  if (box === null) return source;
  const target = canvas(source.width);
  const scale = source.width * (side === 8
    ? Math.min(1 / box.height, 6 / 8 / box.width)
    : 20 / 28 / Math.max(box.width, box.height));
  const [width, height] = [scale * box.width, scale * box.height];
  const centre = side === 8 ? { x: 0.5, y: 0.5 } : mass(source, box);
  black(target).drawImage(
    source, box.x, box.y, box.width, box.height,
    target.width / 2 - centre.x * width, target.width / 2 - centre.y * height, width, height,
  );
  return target;
}

// The centre of mass of the ink, from 0 to 1 within its box.
function mass(source, box) {
  const pen = source.getContext("2d", { willReadFrequently: true });
  const { data } = pen.getImageData(box.x, box.y, box.width, box.height);
  let [sum, x, y] = [0, 0, 0];
  for (let i = 0; i < box.width * box.height; i += 1) {
    sum += data[4 * i];
    x += data[4 * i] * ((i % box.width) + 0.5);
    y += data[4 * i] * (Math.floor(i / box.width) + 0.5);
  }
  return { x: x / sum / box.width, y: y / sum / box.height };
}

// Every pixel of the target is the mean of the area that it covers.
export function reduced(source, side) {
  const from = source.width;
  const { data } = source.getContext("2d", { willReadFrequently: true }).getImageData(0, 0, from, from);
  const target = canvas(side);
  const pen = target.getContext("2d", { willReadFrequently: true });
  const image = pen.createImageData(side, side);
  const edges = Array.from({ length: side + 1 }, (_, i) => Math.round((i * from) / side));
  for (let row = 0; row < side; row += 1) {
    for (let column = 0; column < side; column += 1) {
      const sum = [0, 0, 0];
      for (let y = edges[row]; y < edges[row + 1]; y += 1) {
        for (let x = edges[column]; x < edges[column + 1]; x += 1) {
          for (let channel = 0; channel < 3; channel += 1) sum[channel] += data[4 * (y * from + x) + channel];
        }
      }
      const area = (edges[row + 1] - edges[row]) * (edges[column + 1] - edges[column]);
      const at = 4 * (row * side + column);
      for (let channel = 0; channel < 3; channel += 1) image.data[at + channel] = Math.round(sum[channel] / area);
      image.data[at + 3] = 255;
    }
  }
  pen.putImageData(image, 0, 0);
  return target;
}

// As the service scales a picture of any size: Pillow's bilinear filter, a triangle as wide as the step between pixels,
// along rows and then along columns.
export function scaled(source, side) {
  const { width, height } = source;
  const { data } = source.getContext("2d", { willReadFrequently: true }).getImageData(0, 0, width, height);
  const rows = filtered(data, { count: height, stride: 4 * width, from: width, step: 4, to: side, out: 4 });
  const all = filtered(rows, { count: side, stride: 4, from: height, step: 4 * side, to: side, out: 4 * side });
  const target = canvas(side);
  target.getContext("2d", { willReadFrequently: true }).putImageData(new ImageData(all, side, side), 0, 0);
  return target;
}

// `count` lines of `from` pixels become lines of `to` pixels; steps in numbers of the arrays.
function filtered(data, { count, stride, from, step, to, out }) {
  const rows = out === 4; // lines lie one after the other
  const found = new Uint8ClampedArray(4 * count * to).fill(255);
  const scale = from / to;
  const reach = Math.max(scale, 1);
  for (let i = 0; i < to; i += 1) {
    const centre = (i + 0.5) * scale;
    const [first, last] = [Math.max(0, Math.round(centre - reach)), Math.min(from, Math.round(centre + reach))];
    const weights = Array.from({ length: last - first }, (_, k) => Math.max(0, 1 - Math.abs((first + k + 0.5 - centre) / reach)));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    for (let line = 0; line < count; line += 1) {
      for (let channel = 0; channel < 3; channel += 1) {
        let sum = 0;
        weights.forEach((weight, k) => { sum += weight * data[line * stride + (first + k) * step + channel]; });
        found[(rows ? line * 4 * to + i * 4 : i * out + line * 4) + channel] = Math.round(sum / total);
      }
    }
  }
  return found;
}

// A share of each pixel is replaced by a value at random, the same one in all channels of a grey image.
export function disturbed(target, share, grey) {
  if (share === 0) return target;
  const random = numbers(1);
  const pen = target.getContext("2d", { willReadFrequently: true });
  const image = pen.getImageData(0, 0, target.width, target.height);
  for (let i = 0; i < image.data.length; i += 4) {
    const shared = random();
    for (let channel = 0; channel < 3; channel += 1) {
      const value = 255 * (grey ? shared : random());
      image.data[i + channel] = (1 - share) * image.data[i + channel] + share * value;
    }
  }
  pen.putImageData(image, 0, 0);
  return target;
}
