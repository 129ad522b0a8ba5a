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

export function canvas(width, height) {
  const made = document.createElement("canvas");
  Object.assign(made, { width, height });
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
  const target = canvas(source.width, source.height);
  const pen = black(target);
  pen.translate(source.width / 2, source.height / 2);
  pen.rotate((degrees * Math.PI) / 180);
  pen.drawImage(source, -source.width / 2, -source.height / 2);
  return target;
}

// Three box blurs are close to a Gaussian one; radius in pixels of the source.
export function blurred(source, radius) {
  if (radius < 1) return source;
  const { width, height } = source;
  const image = source.getContext("2d", { willReadFrequently: true }).getImageData(0, 0, width, height);
  for (let pass = 0; pass < 3; pass += 1) {
    boxed(image.data, { lines: height, stride: 4 * width, length: width, step: 4 }, radius);
    boxed(image.data, { lines: width, stride: 4, length: height, step: 4 * width }, radius);
  }
  const target = canvas(width, height);
  target.getContext("2d", { willReadFrequently: true }).putImageData(image, 0, 0);
  return target;
}

function boxed(data, { lines, stride, length, step }, radius) {
  const line = new Float32Array(length);
  for (let row = 0; row < lines; row += 1) {
    for (let channel = 0; channel < 3; channel += 1) {
      const start = row * stride + channel;
      let sum = 0;
      for (let i = 0; i < length; i += 1) line[i] = data[start + i * step];
      for (let i = -radius; i <= radius; i += 1) sum += line[i] ?? 0;
      for (let i = 0; i < length; i += 1) {
        data[start + i * step] = sum / (2 * radius + 1);
        sum += (line[i + radius + 1] ?? 0) - (line[i - radius] ?? 0);
      }
    }
  }
}

// The picture moved so that the centre of mass of its ink is the middle.
export function balanced(source) {
  const { width, height } = source;
  const { data } = source.getContext("2d", { willReadFrequently: true }).getImageData(0, 0, width, height);
  let [sum, x, y] = [0, 0, 0];
  for (let i = 0; i < width * height; i += 1) {
    sum += data[4 * i];
    x += data[4 * i] * ((i % width) + 0.5);
    y += data[4 * i] * (Math.floor(i / width) + 0.5);
  }
  if (sum === 0) return source;
  const target = canvas(width, height);
  black(target).drawImage(source, width / 2 - x / sum, height / 2 - y / sum);
  return target;
}

// Every pixel of the target is the mean of the area that it covers.
export function reduced(source, width, height) {
  const from = source.width;
  const { data } = source.getContext("2d", { willReadFrequently: true }).getImageData(0, 0, from, source.height);
  const target = canvas(width, height);
  const pen = target.getContext("2d", { willReadFrequently: true });
  const image = pen.createImageData(width, height);
  const edges = (count, size) => Array.from({ length: count + 1 }, (_, i) => Math.round((i * size) / count));
  const [across, down] = [edges(width, from), edges(height, source.height)];
  for (let row = 0; row < height; row += 1) {
    for (let column = 0; column < width; column += 1) {
      const sum = [0, 0, 0];
      for (let y = down[row]; y < down[row + 1]; y += 1) {
        for (let x = across[column]; x < across[column + 1]; x += 1) {
          for (let channel = 0; channel < 3; channel += 1) sum[channel] += data[4 * (y * from + x) + channel];
        }
      }
      const area = (down[row + 1] - down[row]) * (across[column + 1] - across[column]);
      const at = 4 * (row * width + column);
      for (let channel = 0; channel < 3; channel += 1) image.data[at + channel] = Math.round(sum[channel] / area);
      image.data[at + 3] = 255;
    }
  }
  pen.putImageData(image, 0, 0);
  return target;
}

// As the service scales a picture of any size: Pillow's bilinear filter, a triangle as wide as the step between pixels,
// along rows and then along columns.
export function scaled(source, width, height) {
  const { width: w, height: h } = source;
  const { data } = source.getContext("2d", { willReadFrequently: true }).getImageData(0, 0, w, h);
  const rows = filtered(data, { count: h, stride: 4 * w, from: w, step: 4, to: width, outStride: 4 * width, outStep: 4 });
  const all = filtered(rows, { count: width, stride: 4, from: h, step: 4 * width, to: height, outStride: 4, outStep: 4 * width });
  const target = canvas(width, height);
  target.getContext("2d", { willReadFrequently: true }).putImageData(new ImageData(all, width, height), 0, 0);
  return target;
}

// `count` lines of `from` pixels become lines of `to` pixels; steps in numbers of the arrays.
function filtered(data, { count, stride, from, step, to, outStride, outStep }) {
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
        found[line * outStride + i * outStep + channel] = Math.round(sum / total);
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
