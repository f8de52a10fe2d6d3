// words.js - describes the fate of an entry in words.

const REASONS = { budget: 'the budget was full', window: 'it fell out of the method\u2019s window', refused: 'the method did not admit it',
  architecture: 'it fell out of the layer\u2019s own window', plan: 'the plan said so' };

const counted = (n, one, many = `${one}s`) => `${grouped(n)} ${n === 1 ? one : many}`;
// Returns the name of a criterion in a key: mass 0.90 for mass.90.
const criterionName = (raw) => raw.replace(/^top/, 'top-').replace(/^mass\./, 'mass 0.');
const percent = (share) => (Number.isNaN(share) ? 'n/a' : share > 0 && share < 0.001 ? '< 0.1\u00a0%' : `${Number((100 * share).toPrecision(share < 0.1 ? 2 : 3))}\u00a0%`);

// Returns the number of steps after which half is left, in words.
function halfLifeWords(logBeta) {
  const n = Math.LN2 / -logBeta;
  return n > 0 && Number.isFinite(n) ? `${shortNumber(n, 3)} steps` : 'unlimited';
}

// end: the first query after eviction; negative: the entry is kept.
function fateWords(i, end, reason) {
  if (end === undefined)
    return 'not in this file';
  if (end < 0)
    return 'kept to the end';
  const why = REASONS[reason] ? `: ${REASONS[reason]}` : '';
  return `evicted at query ${grouped(end)}, ${counted(end - i, 'step')} after it was written${why}`;
}

function missWords(hits, first) {
  if (hits === undefined)
    return '';
  return hits > 0 ? `${counted(hits, 'time')}, first at query ${grouped(first)}` : 'never';
}

const holdWords = (held, n) => `${grouped(held)} of ${counted(n, 'head')} ${held === 1 ? 'caches' : 'cache'} it at the end`;
