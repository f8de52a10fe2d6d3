// prefix.js - the common prefix of two traces and the comparable part of their maps.

const prefixes = new Map();

// Returns the number of tokens that both texts begin with.
function commonTokens(a, b) {
  const key = `${a.index} ${b.index}`, x = a.tokens.raw, y = b.tokens.raw, T = Math.min(a.T, b.T);
  if (!prefixes.has(key)) {
    let n = 0;
    while (n < T && x[n] === y[n])
      n++;
    prefixes.set(key, x.length && y.length ? n : T);
  }
  return prefixes.get(key);
}

// Returns the entries and queries that a difference covers.
const commonSpan = (a, b) => ({ tokens: commonTokens(a, b), steps: Math.min(a.T, b.T) });

function prefixWords(a, b) {
  const { tokens, steps } = commonSpan(a, b);
  if (tokens === a.T && tokens === b.T)
    return '';
  if (!tokens)
    return 'The two texts have no beginning in common: there is no difference of their maps.';
  return `Both texts begin with the same ${counted(tokens, 'token')}: the difference is of these, up to query ${grouped(steps - 1)}.`;
}
