// Attention maps as smooth fields and as pixels; the same arithmetic as captioner/maps/saliency.py.

// How much of each of `cells` cells goes into each of `pixels` pixels: a uniform cubic B-spline through
// cell centres that goes on beyond the border as at the border.
function splineMatrix(cells, pixels) {
  const matrix = [];
  for (let pixel = 0; pixel < pixels; pixel++) {
    const centre = (pixel + 0.5) * cells / pixels - 0.5;
    const first = Math.floor(centre) - 1;
    const row = new Float32Array(cells);
    for (let cell = first; cell < first + 4; cell++) {
      const distance = Math.abs(centre - cell);
      const weight = distance < 1 ? 2 / 3 - distance ** 2 + distance ** 3 / 2 : Math.max(0, 2 - distance) ** 3 / 6;
      row[Math.min(cells - 1, Math.max(0, cell))] += weight;
    }
    matrix.push(row);
  }
  return matrix;
}

// A word's map as a field of values from 0 to 1, `scale` samples a cell each way.
function smoothField(word, [rows, columns], scale) {
  const height = rows * scale, width = columns * scale;
  const values = new Float32Array(height * width);
  if (!word.map) return { values, width, height };
  const cells = Uint8Array.from(atob(word.map), (letter) => letter.charCodeAt(0));
  const gain = word.max / 255 / (word.peak - word.floor), offset = word.floor / (word.peak - word.floor);
  const down = splineMatrix(rows, height), across = splineMatrix(columns, width);
  const stretched = new Float32Array(rows * width);
  for (let row = 0; row < rows; row++)
    for (let x = 0; x < width; x++) {
      let sum = 0;
      for (let column = 0; column < columns; column++) sum += across[x][column] * cells[row * columns + column];
      stretched[row * width + x] = sum;
    }
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      let sum = 0;
      for (let row = 0; row < rows; row++) sum += down[y][row] * stretched[row * width + x];
      values[y * width + x] = Math.min(1, Math.max(0, sum * gain - offset));
    }
  return { values, width, height };
}

// 256 colours of evenly spread stops, given as one string of hexadecimal digits.
function colorTable(stops) {
  const count = stops.length / 6;
  const channel = (stop, part) => parseInt(stops.slice(stop * 6 + part * 2, stop * 6 + part * 2 + 2), 16);
  const table = new Uint8ClampedArray(256 * 3);
  for (let value = 0; value < 256; value++) {
    const place = value / 255 * (count - 1), low = Math.min(count - 2, Math.floor(place));
    for (let part = 0; part < 3; part++)
      table[value * 3 + part] = channel(low, part) + (channel(low + 1, part) - channel(low, part)) * (place - low);
  }
  return table;
}

const SPOTLIGHT_DARK = [12, 11, 14];
const OPACITY_EXPONENT = 0.7;

// Draw a field on a canvas of its size: colours whose opacity grows with the value, or darkness that the
// value lifts.
function paintField(canvas, field, mode, table, alpha) {
  if (canvas.width !== field.width || canvas.height !== field.height) {
    canvas.width = field.width;
    canvas.height = field.height;
  }
  const context = canvas.getContext("2d");
  const picture = context.createImageData(field.width, field.height);
  const pixels = picture.data;
  for (let place = 0; place < field.values.length; place++) {
    const value = field.values[place], at = place * 4;
    if (mode === "spotlight") {
      pixels.set(SPOTLIGHT_DARK, at);
      pixels[at + 3] = 255 * alpha * (1 - Math.sqrt(value));
    } else {
      const color = Math.round(value * 255) * 3;
      pixels[at] = table[color];
      pixels[at + 1] = table[color + 1];
      pixels[at + 2] = table[color + 2];
      pixels[at + 3] = 255 * alpha * value ** OPACITY_EXPONENT;
    }
  }
  context.putImageData(picture, 0, 0);
}
