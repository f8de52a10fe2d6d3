// format.js - formats numbers and tokens as text.

// Formats a number as kvfate prints it: the fewest digits that read back equal, in the style of %g.
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

// Formats a number for display with at most four significant digits.
function shortNumber(v, digits = 4) {
  if (Number.isNaN(v))
    return 'n/a';
  if (!Number.isFinite(v))
    return v > 0 ? '\u221e' : '\u2212\u221e';
  if (Number.isInteger(v) && Math.abs(v) < 1e6)
    return String(v).replace('-', '\u2212');
  const size = Math.abs(v);
  const text = size >= 1e-3 && size < 1e6 ? String(Number(v.toPrecision(digits))) : Number(v.toPrecision(digits)).toExponential().replace('e+', 'e');
  return text.replace('-', '\u2212');
}

const grouped = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ',');

const TOKEN_SHOWN = 200;
// Characters with an invisible effect: controls, direction marks, fillers, line separators.
const ACTS = /[\p{Cc}\p{DI}\u2028\u2029\ufff9-\ufffb]/gu;
// The exceptions that shape the characters before them: joiners, variation selectors, tags of flags.  The end of the
// text is matched by lookbehind, because some engines miss characters beyond the basic plane directly before a bare $.
const SHAPES = [[/[\u200c\u200d]/u, /(?<=[\p{L}\p{M}\p{Extended_Pictographic}\u{1f3fb}-\u{1f3ff}])$/u],
  [/[\u180b-\u180d\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/u, /(?<=[\p{L}\p{N}\p{P}\p{S}])(?<!\u27e9)$/u],
  [/[\u{e0020}-\u{e007f}]/u, /(?<=\u{1f3f4}[\u{e0020}-\u{e007e}]*)$/u]];
const CONTEXT = 24; // letters that are looked at before a token

// Returns text with visible marks for such characters.  before: the preceding text, for characters
// that shape it.
function marked(text, before = '') {
  return (before + text).replace(ACTS, (c, at, all) => {
    if (at < before.length || SHAPES.some(([what, behind]) => what.test(c) && behind.test(all.slice(Math.max(0, at - CONTEXT), at))))
      return c;
    return `\u27e8U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}\u27e9`;
  }).slice(before.length);
}

// Returns a token as the page shows it: complete, or its two ends with its length.
function tokenText(text, most = TOKEN_SHOWN, before = '') {
  if (text.length <= most)
    return marked(text, before);
  const letters = Array.from(text), half = Math.max(8, Math.floor(most / 2 - 12));
  if (letters.length <= most)
    return marked(text, before);
  return `${marked(letters.slice(0, half).join(''), before)} \u2026 [${letters.length} characters] \u2026 ${marked(letters.slice(-half).join(''))}`;
}

// Marks that replace invalid text.  They read from left to right in any line.
const MARKS = /((?:\\x[0-9A-F]{2})+|\u27e8U\+[0-9A-F]{4,6}\u27e9| \u2026 \[\d+ characters\] \u2026 )/u;
const MARKS_ALL = new RegExp(MARKS.source, 'gu');

// Returns a text whose direction does not affect the rest of the line.
function isolated(text) {
  return /^[ -~]*$/.test(text) ? text : `\u2068${text.replace(MARKS_ALL, '\u2066$1\u2069')}\u2069`;
}

function quoted(text) {
  return text === '' ? '(no text)' : `\u201c${isolated(tokenText(text, 60))}\u201d`;
}

// Returns the quoted token.  For a token with part of a character, this is its bytes and the
// character.
function quotedToken(trace, i) {
  const { text, raw } = trace.tokens;
  let first = i;
  while (first > 0 && isPart(trace, first))
    first--;
  return text[first] === raw[i] || !raw[i] ? quoted(raw[i] ?? '') : `${quoted(raw[i])} of ${quoted(text[first])}`;
}

// Returns true if token i has only bytes of a character that begins before it.
function isPart(trace, i) {
  const { text, raw } = trace.tokens;
  return text[i] === '' && raw[i] !== '';
}
