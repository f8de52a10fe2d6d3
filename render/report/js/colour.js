// colour.js - maps from numbers to colours that rise in lightness, and one with two ends.

const ANCHORS = {
  viridis: ['440154', '472c7a', '3b518e', '2c718e', '21908d', '27ad81', '5cc863', 'aadc32', 'fde725'],
  cividis: ['00204d', '00306f', '2a406c', '48526b', '5e626e', '727374', '878479', '9e9677', 'b6a971', 'd0be67', 'ead357', 'ffea46'],
  magma: ['000004', '1c1044', '4f127b', '812581', 'b5367a', 'e55064', 'fb8761', 'fec287', 'fcfdbf'],
  difference: ['67001f', 'b2182b', 'd6604d', 'f4a582', 'f7f7f7', '92c5de', '4393c3', '2166ac', '053061'],
};
const GREY = 217;

const rgbOf = (hex) => [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16));

// 256 colours as the words of image data (little-endian ABGR), linear between anchors.
function tableOf(name) {
  const anchors = ANCHORS[name].map(rgbOf), out = new Uint32Array(256);
  for (let k = 0; k < 256; k++) {
    const x = (k / 255) * (anchors.length - 1), i = Math.min(Math.floor(x), anchors.length - 2), f = x - i;
    const [r, g, b] = anchors[i].map((v, c) => Math.round(v + f * (anchors[i + 1][c] - v)));
    out[k] = (r | (g << 8) | (b << 16)) >>> 0;
  }
  return out;
}

const COLOURS = Object.fromEntries(Object.keys(ANCHORS).map((name) => [name, tableOf(name)]));

function cssColour(name, v) {
  if (Number.isNaN(v))
    return `rgb(${GREY} ${GREY} ${GREY})`;
  const word = COLOURS[name][Math.round(Math.min(Math.max(v, 0), 1) * 255)];
  return `rgb(${word & 255} ${(word >> 8) & 255} ${(word >> 16) & 255})`;
}

// Paints a raster (values in lo..hi, NaN: undefined; cover: opacity, 0: nothing there).
function paint(canvas, raster, name, lo, hi) {
  const { w, h, value, cover } = raster, context = canvas.getContext('2d');
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const image = context.createImageData(w, h), words = new Uint32Array(image.data.buffer), colours = COLOURS[name];
  const grey = GREY | (GREY << 8) | (GREY << 16);
  for (let k = 0; k < words.length; k++) {
    if (!(cover[k] > 0))
      continue;
    const v = (value[k] - lo) / (hi - lo);
    const colour = v !== v ? grey : colours[v <= 0 ? 0 : v >= 1 ? 255 : Math.round(v * 255)];
    words[k] = (colour | (Math.round(Math.min(cover[k], 1) * 255) << 24)) >>> 0;
  }
  context.putImageData(image, 0, 0);
}
