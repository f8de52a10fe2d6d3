// colour.js - colour maps of the figures (PALETTES: text of 256 colours each): blues from white, others rising in
// lightness.  Differences are red below the middle and blue above it.

const GREY = 217;

// Returns 256 colours as 32-bit words of image data (little-endian ABGR).
function wordsOf(text, reversed) {
  return Uint32Array.from({ length: 256 }, (_, k) => {
    const at = 6 * (reversed ? 255 - k : k), rgb = parseInt(text.slice(at, at + 6), 16);
    return ((rgb >> 16) | (rgb & 0xff00) | ((rgb & 255) << 16)) >>> 0;
  });
}

const COLOURS = { blues: wordsOf(PALETTES.blues), viridis: wordsOf(PALETTES.viridis), cividis: wordsOf(PALETTES.cividis), magma: wordsOf(PALETTES.magma),
  difference: wordsOf(PALETTES.bluered, true) };

function cssColour(name, v) {
  if (Number.isNaN(v))
    return `rgb(${GREY} ${GREY} ${GREY})`;
  const word = COLOURS[name][Math.round(Math.min(Math.max(v, 0), 1) * 255)];
  return `rgb(${word & 255} ${(word >> 8) & 255} ${(word >> 16) & 255})`;
}

// Returns true for maps that start at white or have white in the middle, which are inverted on a
// dark page.
const onPaperWhite = (name) => name === 'blues' || name === 'difference';

// The smallest value on the logarithmic scale of retention, as in the figure `retention`.
const LOG_FLOOR = 1e-3;
// Returns the place of a value in 0 .. 1 on the logarithmic scale, 0 at or below the floor.
const onLogScale = (v) => (v <= LOG_FLOOR ? 0 : 1 - Math.log10(v) / Math.log10(LOG_FLOOR));

// Paints a raster with values in lo..hi and NaN for undefined.  cover: opacity, 0 for an empty
// pixel.  logs: the colours are those of the logarithm of values in 0..1.
function paint(canvas, raster, name, lo, hi, logs = false) {
  const { w, h, value, cover } = raster, context = canvas.getContext('2d');
  canvas.classList.toggle('printed', onPaperWhite(name));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const image = context.createImageData(w, h), words = new Uint32Array(image.data.buffer), colours = COLOURS[name];
  const grey = GREY | (GREY << 8) | (GREY << 16);
  for (let k = 0; k < words.length; k++) {
    if (!(cover[k] > 0))
      continue;
    const v = logs ? onLogScale(value[k]) : (value[k] - lo) / (hi - lo);
    const colour = v !== v ? grey : colours[v <= 0 ? 0 : v >= 1 ? 255 : Math.round(v * 255)];
    words[k] = (colour | (Math.round(Math.min(cover[k], 1) * 255) << 24)) >>> 0;
  }
  context.putImageData(image, 0, 0);
}
