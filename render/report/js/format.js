// format.js - numbers and tokens as text.

// As kvfate prints: the fewest digits that read back equal, in the style of %g.
function exactNumber(v) {
  if (Number.isNaN(v))
    return 'nan';
  if (!Number.isFinite(v))
    return v > 0 ? 'inf' : '-inf';
  if (Number.isInteger(v) && Math.abs(v) < 1e15)
    return String(v + 0);
  const [digits, power] = Math.abs(v).toExponential().split('e');
  const figures = digits.replace('.', ''), x = Number(power), sign = v < 0 ? '-' : '';
  if (x < -4 || x >= figures.length)
    return `${sign}${digits}e${x < 0 ? '-' : '+'}${String(Math.abs(x)).padStart(2, '0')}`;
  if (x < 0)
    return `${sign}0.${'0'.repeat(-x - 1)}${figures}`;
  const whole = figures.slice(0, x + 1), rest = figures.slice(x + 1);
  return sign + whole + (rest ? '.' + rest : '');
}

// For people: four digits that count.
function shortNumber(v) {
  if (Number.isNaN(v))
    return 'n/a';
  if (!Number.isFinite(v))
    return v > 0 ? '\u221e' : '\u2212\u221e';
  if (Number.isInteger(v) && Math.abs(v) < 1e6)
    return String(v).replace('-', '\u2212');
  const size = Math.abs(v);
  const text = size >= 1e-3 && size < 1e6 ? String(Number(v.toPrecision(4))) : Number(v.toPrecision(4)).toExponential().replace('e+', 'e');
  return text.replace('-', '\u2212');
}

const grouped = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ',');

const TOKEN_SHOWN = 200;
// Marks that would be invisible, or turn the direction of what follows.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

function marked(text) {
  return text.replace(UNSEEN, (c) => `\u27e8U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}\u27e9`);
}

// A token as the page shows it: whole, or its two ends with its length.
function tokenText(text, most = TOKEN_SHOWN) {
  if (text.length <= most)
    return marked(text);
  const letters = Array.from(text), half = Math.max(8, Math.floor(most / 2 - 12));
  if (letters.length <= most)
    return marked(text);
  return `${marked(letters.slice(0, half).join(''))} \u2026 [${letters.length} characters] \u2026 ${marked(letters.slice(-half).join(''))}`;
}

function quoted(text) {
  return text === '' ? '(no text)' : `\u201c${tokenText(text, 60)}\u201d`;
}
