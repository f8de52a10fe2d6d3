// texts.js - the texts of tokens as one line each, and their classes (analyzers/classes.h).

const MOST_JOINED = 8, MOST_RULE_TEXT = 256;

const isText = (bytes) => {
  for (let i = 0; i < bytes.length;) {
    const [n, code] = characterAt(bytes, i);
    if (code < 0)
      return false;
    i += n;
  }
  return true;
};

function joinBytes(parts) {
  const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  parts.reduce((at, p) => (out.set(p, at), at + p.length), 0);
  return out;
}

// Returns {text, joined} of all tokens.  text: the bytes of each token; joined: a character of several
// tokens complete in the first of them, and '' for the others.
function tokenTexts(t) {
  const bytes = Array.from({ length: t.steps }, (_, i) => t.text(i) || new Uint8Array(0)), joined = new Array(t.steps).fill('');
  for (let i = 0, next; i < t.steps; i = next) {
    let whole = false, all = bytes[i];
    for (next = i; !whole && next < t.steps && next < i + MOST_JOINED; next++) {
      all = next === i ? bytes[i] : joinBytes([all, bytes[next]]);
      whole = all.length === 0 || isText(all);
    }
    joined[i] = shownBytes(whole ? all : bytes[i]);
    if (!whole)
      next = i + 1;
  }
  return { text: bytes.map(shownBytes), joined };
}

// Returns the text of a document in which each byte that is not UTF-8 is one control character, and
// the byte at which each of its characters begins.
function cleanText(bytes) {
  const clean = bytes.slice(), starts = [];
  for (let i = 0; i < clean.length;) {
    const [n, code] = characterAt(bytes, i);
    if (code < 0)
      clean[i] = 0x1a;
    starts.push(i);
    if (code > 0xffff)
      starts.push(i); // two units of a JavaScript string
    i += n;
  }
  starts.push(clean.length);
  return { clean, text: new TextDecoder('utf-8', { ignoreBOM: true }).decode(clean), starts };
}

// Returns the class of each token.
function tokenClasses(t) {
  const parts = Array.from({ length: t.steps }, (_, i) => t.text(i)), end = [];
  parts.reduce((at, p) => (end.push(at + (p ? p.length : 0)), end[end.length - 1]), 0);
  const { clean, text, starts } = cleanText(joinBytes(parts.map((p) => p || new Uint8Array(0)))), out = new Array(t.steps).fill('');
  const inside = (at) => (clean[at] & 0xc0) === 0x80, decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const own = (i) => { // the text of a token, widened to whole characters
    let a = i ? end[i - 1] : 0, b = end[i];
    while (b > a && a && inside(a))
      a--;
    b = b > a + MOST_RULE_TEXT ? a + MOST_RULE_TEXT : b;
    while (b > a && b < clean.length && inside(b))
      b++;
    return decoder.decode(clean.subarray(a, b));
  };
  const texts = out.map((_, i) => own(i));
  for (const [name, ofText, regex] of TOKEN_CLASSES) {
    regex.lastIndex = 0;
    if (!ofText) {
      out.forEach((c, i) => {
        regex.lastIndex = 0;
        if (!c && regex.test(texts[i]))
          out[i] = name;
      });
      continue;
    }
    for (let i = 0, found = regex.exec(text); found; found = regex.exec(text)) {
      const from = starts[found.index], to = starts[found.index + found[0].length];
      while (end[i] <= from)
        i++;
      for (let k = i; k < t.steps && (k === i || end[k - 1] < to); k++)
        if (!out[k] && end[k] > (k ? end[k - 1] : 0))
          out[k] = name;
    }
  }
  return out.map((c, i) => (parts[i] ? c || 'word' : 'unknown'));
}
