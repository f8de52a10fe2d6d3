// heads.js - the table of head types: the numbers of a query head, and its type by the rules of
// docs/reference/analyses/heads.md (analyzers/signature.h, analyzers/head_kind.h).

const FIRST_TOKENS = 4, LEAST_TOKENS_OF_HEAD = 32, LEAST_OF_CLASS = 8;
const CLASS_GROUPS = { number: 0, operator: 0, latex: 0, punctuation: 1, whitespace: 1, function: 2, wait: 2 };
const FEATURES = [['sink_mass', ''], ['window', 'step'], ['spread', 'octave'], ['mode_low', 'step'], ['mode_high', 'step'], ['modes_apart', 'octave'], ['lesser_mode', ''], ['two_modes', ''], ['recent', ''],
  ['last_use', 'step'], ['never', ''], ['survival_64th', ''], ['survival_16th', ''], ['survival_4th', ''], ['survival_half', ''], ['last_use_sparsity', ''], ['number', ''], ['gist', ''], ['filler', ''],
  ['prompt', ''], ['uneven', ''], ['top_tenth', ''], ['runs', ''], ['rises', ''], ['entropy', ''], ['residence', ''], ['lse_mean', 'nat']];
const HORIZON_PARTS = [['64th', 64], ['16th', 16], ['4th', 4], ['half', 2]];
const HEAD_RULES = ['sliding-window', 'several-windows', 'sink', 'a-shape', 'context-switch', 'gist', 'number', 'instruction', 'filler'];

const sumOf = (list) => {
  const sum = exactSum();
  list.forEach((v) => sum.add(v));
  return sum.get();
};
const meanOf = (list) => (list.length ? sumOf(list) / list.length : NaN);

// Returns quantile q of numbers by linear interpolation; NaN if one is no number.
function quantile(values, q) {
  if (values.some(Number.isNaN))
    return NaN;
  const v = Float64Array.from(values).sort(), at = q * (v.length - 1), lo = Math.floor(at), hi = Math.min(lo + 1, v.length - 1);
  return v[lo] + (at - lo) * (v[hi] - v[lo]);
}

// Pearson's correlation; NaN for fewer than two values or if one side is constant.
function correlation(x, y) {
  if (x.length < 2 || x.every((v) => v === x[0]) || y.every((v) => v === y[0]))
    return NaN;
  const mx = meanOf(x), my = meanOf(y), of = (a, b) => sumOf(x.map((_, i) => a(i) * b(i))), dx = (i) => x[i] - mx, dy = (i) => y[i] - my;
  return of(dx, dy) / Math.sqrt(of(dx, dx) * of(dy, dy));
}

// The share of the mass of queries after P that goes to tokens before P, times T - P; and that of even attention.
function crossing(m, P, mean) {
  return P > FIRST_TOKENS ? sumOf(m.subarray(FIRST_TOKENS, P).map((v) => v / mean - 1)) : NaN;
}

function evenCrossing(T, P) {
  let even = 0;
  for (let t = P; t < T; t++)
    even += 1 / (t + 1 - FIRST_TOKENS);
  return even * (P - FIRST_TOKENS);
}

// Splits rising values in two so that the sum of squares between the means is largest.
function twoModes(v, out) {
  const n = v.length, total = v.reduce((a, b) => a + b, 0), squares = v.reduce((s, x) => s + (x - total / n) * (x - total / n), 0);
  let below = 0, best = -1;
  for (let k = 1; k < n; k++) {
    below += v[k - 1];
    const low = below / k, high = (total - below) / (n - k), between = k * (n - k) * (high - low) * (high - low);
    if (between <= best)
      continue;
    best = between;
    Object.assign(out, { mode_low: 2 ** low, mode_high: 2 ** high, modes_apart: high - low, lesser_mode: Math.min(k, n - k) / n, two_modes: squares > 0 ? between / n / squares : NaN });
  }
}

// Tokens of the first half of the text, which at least half of the queries could use.
function widthsOf({ m, x, l }, T, out) {
  const width = [], last = [];
  for (let i = FIRST_TOKENS; i < Math.trunc(T / 2); i++)
    if (x[i] !== 0) {
      width.push(Math.log2(m[i] / x[i]));
      last.push(l[i] + 1);
    }
  if (width.length < 2)
    return;
  out.spread = quantile(width, 0.75) - quantile(width, 0.25);
  out.window = 2 ** quantile(width, 0.5);
  out.last_use = quantile(last, 0.5);
  twoModes(width.some(Number.isNaN) ? width : Array.from(Float64Array.from(width).sort()), out);
}

function profileOf(m, T, out) {
  const v = Array.from(m.subarray(FIRST_TOKENS, Math.max(FIRST_TOKENS, T - Math.trunc(T / 8)))), n = v.length, mean = v.reduce((a, b) => a + b, 0) / n;
  if (n < 10 || !(mean > 0))
    return;
  out.uneven = Math.sqrt(v.reduce((s, x) => s + (x - mean) * (x - mean), 0) / n) / mean;
  out.top_tenth = Array.from(Float64Array.from(v).sort()).slice(n - Math.trunc((n + 9) / 10)).reduce((a, b) => a + b, 0) / (mean * n);
}

// The logarithm of the mass from token to token: correlation of neighbours, and skewness of the steps.
function courseOf(m, T, out) {
  const before = [], now = [];
  for (let i = FIRST_TOKENS + 1; i < T - Math.trunc(T / 8); i++)
    if (m[i - 1] !== 0 && m[i] !== 0) {
      before.push(Math.log(m[i - 1]));
      now.push(Math.log(m[i]));
    }
  const n = now.length, steps = now.map((v, k) => v - before[k]), mean = steps.reduce((a, v) => a + v / n, 0);
  const second = steps.reduce((a, v) => a + (v - mean) * (v - mean) / n, 0), third = steps.reduce((a, v) => a + (v - mean) * (v - mean) * (v - mean) / n, 0);
  out.runs = correlation(before, now);
  if (second > 0)
    out.rises = third / (second * Math.sqrt(second));
}

// Returns the numbers of a head.  columns: m mass, x largest weight, l last use, h entropy, z lse or null, e eviction steps or null;
// facts: T, prompt (-1 if not known), groups of the tokens.
function signatureOf(columns, { T, prompt: P, groups }) {
  const { m, l, h, z, e } = columns, S = FIRST_TOKENS, out = { tokens: Math.max(0, T - S), never_tokens: 0, groups: [0, 0, 0], risk: [0, 0, 0, 0], alive: [0, 0, 0, 0] };
  FEATURES.forEach(([name]) => { out[name] = NaN; });
  let cells = 0, used = 0;
  for (let i = S; i < T; i++) {
    out.never_tokens += l[i] < 0 ? 1 : 0;
    cells += T - i;
    used += Math.trunc(l[i]) + 1;
    HORIZON_PARTS.forEach(([, part], k) => {
      const n = Math.trunc((T + part - 1) / part);
      out.risk[k] += i + n < T ? 1 : 0;
      out.alive[k] += i + n < T && l[i] >= n ? 1 : 0;
    });
  }
  if (out.tokens < LEAST_TOKENS_OF_HEAD)
    return out;
  HORIZON_PARTS.forEach(([name], k) => { out[`survival_${name}`] = out.risk[k] ? out.alive[k] / out.risk[k] : NaN; });
  out.never = out.never_tokens / out.tokens;
  out.last_use_sparsity = 1 - used / cells;
  const mean = sumOf(m.subarray(S)) / out.tokens, quarters = [1, 2, 3].map((k) => Math.trunc(k * T / 4));
  out.sink_mass = 1 - mean;
  out.recent = 1 - quarters.reduce((s, q) => s + crossing(m, q, mean), 0) / quarters.reduce((s, q) => s + evenCrossing(T, q), 0);
  if (P - S >= 16 && T - P >= 16) {
    const base = evenCrossing(T, P) / (T - P);
    out.prompt = (crossing(m, P, mean) / (T - P) - base) / (1 - base);
  }
  widthsOf(columns, T, out);
  classesOf(m, groups, T, out);
  profileOf(m, T, out);
  courseOf(m, T, out);
  let entropy = 0, logits = 0, held = 0, could = 0;
  for (let t = S; t < T; t++) {
    entropy += h[t] / Math.log(t + 1);
    logits += z ? z[t] : 0;
    held += e ? smaller(e[t], T) - t : 0;
    could += T - t;
  }
  out.entropy = entropy / out.tokens;
  out.lse_mean = z ? logits / out.tokens : NaN;
  out.residence = e ? held / could : NaN;
  FEATURES.forEach(([name]) => { out[name] = Number.isFinite(out[name]) ? out[name] : NaN; });
  return out;
}

// The share of the mass of a group of classes beyond that of as many arbitrary tokens.
function classesOf(m, groups, T, out) {
  const mass = [0, 0, 0, 0];
  let all = 0;
  for (let i = FIRST_TOKENS; i < T; i++) {
    const g = groups[i];
    all += m[i];
    mass[g] += m[i];
    if (g < 3)
      out.groups[g]++;
  }
  ['number', 'gist', 'filler'].forEach((name, g) => {
    const n = out.groups[g], base = n / out.tokens;
    if (n >= LEAST_OF_CLASS && out.tokens - n >= LEAST_OF_CLASS && all > 0)
      out[name] = (mass[g] / all - base) / (1 - base);
  });
}

// ---- types

const above = (x, from, to) => (Number.isNaN(x) ? 0 : Math.min(1, Math.max(0, (x - from) / (to - from))));
const below = (x, from, to) => (Number.isNaN(x) ? 0 : 1 - above(x, from, to));

// Returns {kind, score, rules}: the type of a head, its score, and the score of each rule.
function headKindOf(f) {
  if (Number.isNaN(f.sink_mass))
    return { kind: 'unknown', score: NaN, rules: HEAD_RULES.map(() => NaN) };
  const recent = above(f.recent, 0.4, 0.7), some = above(f.sink_mass, 0.1, 0.3), saw = Math.min(above(f.runs, 0.1, 0.5), above(f.rises, 0.6, 1.8));
  const two = Math.min(above(f.modes_apart, 1, 1.6), above(f.lesser_mode, 0.05, 0.15), above(f.two_modes, 0.68, 0.78));
  const window = Math.min(recent, below(f.spread, 0.8, 1.6), 1 - saw, 1 - two), rest = below(f.sink_mass, 0.9, 1);
  const rules = [Math.min(window, 1 - some), Math.min(above(f.recent, 0.1, 0.4), two, 1 - saw), 0, Math.min(window, some), Math.min(recent, saw), above(f.gist, 0.2, 0.5), above(f.number, 0.2, 0.5),
    above(f.prompt, 0.2, 0.5), above(f.filler, 0.2, 0.5)].map((v) => Math.min(v, rest));
  rules[2] = Math.min(above(f.sink_mass, 0.25, 0.55), 1 - Math.max(...rules));
  const best = rules.reduce((b, v, k) => (v > rules[b] ? k : b), 0);
  return { kind: rules[best] >= 0.5 ? HEAD_RULES[best] : 'mixed', score: rules[best] >= 0.5 ? rules[best] : 1 - rules[best], rules };
}

// Returns true if every query saw all entries, as far as the trace records it.
function sawEverything(t, evict) {
  return t.find('read.count') < 0 && headsOf(t, SPACE.KV).every((h) => evictSteps(t, evict, h).every((v) => v >= t.steps));
}

function* headsTable(t) {
  const T = t.steps, name = `last_selected.${SHOWN_CRITERION}`, needs = [['mass.sum', 0], ['mass.max', 0], [name, 0], ['entropy', 1]];
  const columns = needs.map(([column, axis]) => columnOf(t, column, SPACE.QUERY, axis));
  refuse(t, needs.filter((_, k) => columns[k] < 0).map(([column]) => column));
  const heads = headsOf(t, SPACE.QUERY), lse = t.find('lse'), evict = t.find('evict_step'), role = t.find('tokens.role'), [sum, max, last, entropy] = columns, rows = [];
  const facts = { T, prompt: role >= 0 && T ? promptOf(t, role)[0] : -1, groups: T ? tokenClasses(t).map((c) => CLASS_GROUPS[c] ?? 3) : [] };
  for (const h of T ? heads : []) {
    const read = (column) => doubles(t, column, h.layer, h.index), share = queriesPerKv(t, h.layer), kv = { layer: h.layer, index: share >= 1 ? Math.trunc(h.index / share) : 0 };
    const f = signatureOf({ m: read(sum), x: read(max), l: read(last).map((v, i) => (v >= 0 ? Math.min(v, T - 1 - i) : -1)), h: read(entropy), z: lse < 0 ? null : read(lse),
      e: evict < 0 ? null : evictOrNever(t, evict, kv) }, facts);
    rows.push({ ...f, ...headKindOf(f) });
    yield;
  }
  const meta = provenance(t), shown = T ? heads : [], of = (column, unit, f) => perBlock(column, unit, 'real', rows.map(f)), count = (column, f) => perBlock(column, '', 'int', rows.map(f));
  meta.push(['criterion', SHOWN_CRITERION]);
  if (evict >= 0 && T && columnIsOfKv(t, evict) && !sawEverything(t, evict))
    meta.push(['note', 'the run evicts entries, and heads are classified by their attention to the entries that were still cached; a run of --method full shows all their attention']);
  num(meta, 'undefined', rows.filter((r) => r.kind === 'unknown').length);
  const feature = ([column, unit]) => of(column, unit, (r) => r[column]), [sink, window, ...others] = FEATURES;
  return { name: 'heads', rows: rows.length, block: T ? 1 : 0, meta, columns: [...headColumns(shown), textsByBlock('kind', rows.map((r) => r.kind)), of('score', '', (r) => r.score), feature(window), feature(sink),
    ...others.map(feature), count('tokens', (r) => r.tokens), count('never_tokens', (r) => r.never_tokens),
    ...HORIZON_PARTS.flatMap(([part], k) => [count(`at_risk_${part}`, (r) => r.risk[k]), count(`alive_${part}`, (r) => r.alive[k])]),
    ...['number_tokens', 'gist_tokens', 'filler_tokens'].map((column, g) => count(column, (r) => r.groups[g])),
    ...HEAD_RULES.map((rule, k) => of(`score_${rule.replace('-', '_')}`, '', (r) => r.rules[k]))] };
}

const columnIsOfKv = (t, column) => t.columns[column].space === SPACE.KV && t.columns[column].axis === 0;
