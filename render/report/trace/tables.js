// tables.js - the tables of the report, computed from a trace in the page.
//
// A table has the name, columns, units and values of the table that `kvfate report` embeds
// (cli/cmd_report.c, analyzers/an_*.c).  Values of heads are read from the trace when they are shown.

const CRITERIA_NAMES = ['top64', 'top128', 'top256', 'top512', 'mass.90', 'mass.95', 'mass.99'];
const SHOWN_CRITERION = 'mass.90';
const REASONS = ['alive', 'budget', 'window', 'refused', 'architecture', 'plan', 'unknown', ''];
const ROLES = ['prompt', 'answer', 'think', 'image', 'question'];
const roleName = (code) => (code >= 0 && code < 5 ? ROLES[Math.trunc(code)] : '?');
const inPrompt = (code) => code === 0 || code === 3;

// ---- forms of columns (data.js)

const spec = (name, unit, type, more) => ({ name, unit, type, ...more });
const constant = (name, unit, type, value) => spec(name, unit, type, { constant: value });
const affine = (name, unit, from, step) => spec(name, unit, 'int', { affine: [from, step] });
// values(b): an array with a value for each row of block b.
const valuesBy = (name, unit, type, values) => spec(name, unit, type, { values });
const inOrder = (name, unit, type, array) => valuesBy(name, unit, type, () => array);
const perBlock = (name, unit, type, list) => spec(name, unit, type, { by: 'block', list });
const textsInOrder = (name, strings) => spec(name, '', 'str', { by: 'cycle', strings });
const textsByBlock = (name, strings) => spec(name, '', 'str', { by: 'block', strings });

const headColumns = (heads) => [textsByBlock('head', heads.map((h) => h.name)), perBlock('layer', '', 'int', heads.map((h) => h.layer)),
  perBlock('index', '', 'int', heads.map((h) => h.index))];
const withAll = (heads) => [...heads, { name: 'all', layer: -1, index: -1 }];

// Returns steps that a table shows: every how many, and their number.
function stepsShown(T) {
  const every = T > 512 ? Math.ceil(T / 512) : 1;
  return { every, n: Math.ceil(T / every) };
}

// A table before its columns: meta and checks that the tables of heads share.
function tableOf(t, { needs = [], lacks = [] }) {
  const missing = needs.filter(([name, space, axis]) => columnOf(t, name, space, axis) < 0).map(([name]) => name);
  refuse(t, missing);
  const absent = lacks.filter((name) => t.find(name) < 0), meta = provenance(t);
  if (absent.length)
    meta.push(['missing', lacksText(t, absent)]);
  return meta;
}

const num = (meta, key, value) => meta.push([key, Number.isFinite(value) ? String(value) : 'null']);

// ---- tokens

function stateOf(step, i, last, { sinks, recent, cuts }, T) {
  if (step[i] !== Infinity)
    return 'evicted';
  if (!cuts)
    return 'kept';
  if (i < sinks)
    return 'sink';
  if (i >= T - recent)
    return 'recent';
  return i >= last ? 'new' : 'kept';
}

// Sum of beta^k for k from 0 to n - 1.
function geometric(x, n) {
  if (x === 0 || n <= 1)
    return Number.isNaN(x) ? x : n;
  return Math.expm1(n * x) / Math.expm1(x);
}

const evictOrNever = (t, column, h) => doubles(t, column, h.layer, h.index).map((v) => (v === ALIVE ? Infinity : v));

function* tokensTable(t) {
  const T = t.steps, [evict, beta, saliency, age] = ['evict_step', 'log_beta', 'saliency', 'last_selected.top64'].map((name) => t.find(name));
  if (saliency < 0 && evict < 0)
    refuse(t, ['evict_step']);
  const heads = headsOf(t, SPACE.KV), header = runHeader(t), method = textOf(member(member(header, 'method'), 'name'), '?');
  headerNumber(t, 'method', 'budget', 0);
  const rule = { sinks: headerNumber(t, 'method', 'sinks', 0), recent: headerNumber(t, 'method', 'recent', 0), cuts: method !== 'full' };
  const { text, joined } = tokenTexts(t), classes = T ? tokenClasses(t) : [];
  const run = (name) => (t.find(name) < 0 || !T ? null : doubles(t, t.find(name), 0, 0));
  const id = run('tokens.id'), role = run('tokens.role'), nll = run('nll'), kl = run('shadow.kl');
  const sums = () => new Float64Array(T), residency = sums(), kept = sums(), betas = sums(), retention = sums(), salience = sums(), ages = sums().fill(-1);
  const states = new Array(T).fill(null);
  for (const h of T ? heads : []) {
    if (evict >= 0) {
      const step = evictOrNever(t, evict, h), last = step.reduce((m, v) => (v === Infinity ? m : Math.max(m, v)), 0);
      for (let i = 0; i < T; i++) {
        const state = stateOf(step, i, last, rule, T);
        residency[i] += (smaller(step[i], T) - i) / (T - i);
        kept[i] += step[i] === Infinity ? 1 : 0;
        states[i] = states[i] === null || states[i] === state ? state : 'mixed';
      }
    }
    if (beta >= 0)
      doubles(t, beta, h.layer, h.index).forEach((v, i) => {
        betas[i] += Math.exp(v);
        retention[i] += geometric(v, T - i) / (T - i);
      });
    if (saliency >= 0)
      doubles(t, saliency, h.layer, h.index).forEach((v, i) => { salience[i] += v; });
    const share = queriesPerKv(t, h.layer);
    for (let g = h.index * share; age >= 0 && g < (h.index + 1) * share; g++)
      doubles(t, age, h.layer, g).forEach((v, i) => { ages[i] = v > ages[i] ? v : ages[i]; });
    yield;
  }
  const unknown = new Float64Array(T).fill(NaN), mean = (of, column) => (column < 0 ? unknown : of.map((v) => v / heads.length));
  const meta = tableOf(t, { lacks: ['tokens.id', 'tokens.role'] });
  const one = heads.length === 1 ? heads[0] : withAll([])[0];
  num(meta, 'heads', heads.length);
  if (age >= 0)
    meta.push(['criterion', 'top64']);
  return { name: 'tokens', rows: T, block: T, meta, columns: [
    affine('token', '', 0, 1), inOrder('id', '', 'int', id ? id.map((v) => (Number.isInteger(v) ? v : -1)) : new Float64Array(T).fill(-1)),
    textsInOrder('text', text), textsInOrder('class', classes), textsInOrder('role', role ? Array.from(role, roleName) : new Array(T).fill('')),
    inOrder('mean_beta', '', 'real', mean(betas, beta)), inOrder('mean_residency', '', 'real', mean(residency, evict)),
    inOrder('kept', '', 'real', mean(kept, evict)), inOrder('nll', 'nat', 'real', nll || unknown), textsInOrder('joined', joined),
    inOrder('mean_retention', '', 'real', mean(retention, beta)), inOrder('saliency', 'nat', 'real', mean(salience, saliency)),
    inOrder('last_use_age', 'step', 'real', age < 0 ? unknown : ages), inOrder('kl', 'nat', 'real', kl || unknown),
    textsInOrder('state', states.map((s) => s || '')), constant('trace', '', 'int', 1), textsInOrder('head', new Array(T).fill(one.name)),
    constant('layer', '', 'int', one.layer), constant('index', '', 'int', one.index)] };
}

// ---- eviction

function evictColumn(t, column, h) {
  const c = t.columns[column];
  if (c.dtype === U32 && !(c.flags & COL.AGE))
    return t.read(column, h.layer, h.index);
  return Uint32Array.from(doubles(t, column, h.layer, h.index), (v, i) => {
    if (!(v >= 0 && v <= ALIVE))
      throw new TraceError('KVF_E_FORMAT', `evict_step of token ${i} is ${v}, no step`);
    return v;
  });
}

// Hits of the query heads that read a KV head, or their first hit.
function missedOf(t, column, h, first) {
  const share = queriesPerKv(t, h.layer), out = new Float64Array(t.steps).fill(first ? -1 : 0);
  for (let g = h.index * share; g < (h.index + 1) * share; g++)
    doubles(t, column, h.layer, g).forEach((v, i) => {
      if (!first)
        out[i] += v;
      else if (v !== ALIVE && (out[i] < 0 || v < out[i]))
        out[i] = v;
    });
  return out;
}

// Returns a function of a block with the values of the last asked block kept.
function remembered(read) {
  let at = -1, values = null;
  return (b) => {
    if (b !== at) {
      values = read(b);
      at = b;
    }
    return values;
  };
}

function* evictionTable(t) {
  const T = t.steps, names = ['evict_reason', 'evict_score', 'evict_margin', 'evict_tie'], [step, reason, score, margin, tie] = ['evict_step', ...names].map((name) => columnOf(t, name, SPACE.KV));
  const [hits, first] = ['shadow.ghost_hits', 'shadow.first_hit'].map((name) => columnOf(t, name, SPACE.QUERY));
  if (step < 0)
    refuse(t, ['evict_step']);
  const heads = headsOf(t, SPACE.KV);
  [step, reason, score, margin, tie].forEach((c) => needValues(t, c, heads.length * T));
  const ofAge = new Float64Array(T + 2), atStep = new Float64Array(T + 1), ofReason = new Float64Array(REASONS.length);
  let evicted = 0, life = 0, scattered = null, mostRuns = 0;
  for (const h of T ? heads : []) {
    const steps = evictColumn(t, step, h);
    let runs = 0;
    for (let i = 0; i < T; i++) {
      const alive = steps[i] === ALIVE, age = Math.max(0, Math.min(steps[i] - i, T - i));
      life += age;
      runs += alive && (i === 0 || steps[i - 1] !== ALIVE) ? 1 : 0;
      if (alive)
        continue;
      evicted++;
      ofAge[age]++;
      atStep[i + age]++;
    }
    if (runs > mostRuns) {
      mostRuns = runs;
      scattered = h.name;
    }
    if (reason >= 0)
      doubles(t, reason, h.layer, h.index).forEach((v) => { ofReason[v >= 0 && v < 6 ? Math.trunc(v) : 6]++; });
    [score, margin, tie].forEach((c) => c >= 0 && t.read(c, h.layer, h.index)); // every value is checked now
    [hits, first].forEach((c) => c >= 0 && missedOf(t, c, h, c === first));
    yield;
  }
  const meta = tableOf(t, { lacks: names });
  putChurn(meta, { heads: heads.length, n: heads.length * T, evicted, life, ofAge, atStep }, t);
  for (let k = 1; reason >= 0 && k <= 5; k++)
    num(meta, `evicted_${REASONS[k]}`, ofReason[k]);
  putCached(meta, atStep, heads.length, t);
  if (evicted && scattered)
    meta.push(['scattered_head', scattered]);
  const steps = remembered((b) => evictColumn(t, step, heads[b])), of = (name, unit, c, type = 'real', read = (b) => doubles(t, c, heads[b].layer, heads[b].index)) =>
    (c < 0 ? constant(name, unit, 'real', null) : valuesBy(name, unit, type, remembered(read)));
  const reasonOf = (v) => (v >= 0 && v < 6 ? Math.trunc(v) : 6);
  return { name: 'eviction', rows: heads.length * T, block: T, meta, columns: [...headColumns(heads), affine('token', '', 0, 1), affine('birth', 'step', 0, 1),
    valuesBy('evict_step', 'step', 'int', remembered((b) => Float64Array.from(steps(b), (v) => (v === ALIVE ? -1 : v)))), spec('age', 'step', 'int', { age: ['evict_step', 'birth'] }),
    spec('reason', '', 'str', { dict: REASONS, values: remembered((b) => (reason < 0 ? new Uint8Array(T).fill(7) : Uint8Array.from(doubles(t, reason, heads[b].layer, heads[b].index), reasonOf))) }),
    of('score', '', score), of('margin', '', margin), of('tie', '', tie, 'int'),
    ...(hits < 0 ? [] : [of('hits', '', hits, 'int', (b) => missedOf(t, hits, heads[b], false))]),
    ...(first < 0 ? [] : [of('first_hit', 'step', first, 'int', (b) => missedOf(t, first, heads[b], true))])] };
}

// Returns the least age that at least a fraction q of the evictions do not exceed.
function ageQuantile(ofAge, evicted, q) {
  let age = 0, sum = ofAge[0];
  while (sum < q * evicted || sum === 0)
    sum += ofAge[++age];
  return age;
}

function putChurn(meta, c, t) {
  const T = t.steps, P = Number(meta.find(([k]) => k === 'prompt_tokens')?.[1] ?? -1);
  let most = 0, busy = 0, later = 0, first = -1;
  c.atStep.forEach((n, s) => {
    first = first < 0 && n > 0 ? s : first;
    most = n > c.atStep[most] ? s : most;
    busy += n > 0 ? 1 : 0;
    later += P >= 0 && s > P ? n : 0;
  });
  num(meta, 'entries', c.n);
  num(meta, 'evicted', c.evicted);
  if (c.n)
    num(meta, 'mean_life', c.life / c.n);
  for (const [key, q] of c.evicted ? [['age_least', 0], ['age_p25', 0.25], ['age_median', 0.5], ['age_p75', 0.75], ['age_most', 1]] : [])
    num(meta, key, ageQuantile(c.ofAge, c.evicted, q));
  num(meta, 'steps_with_evictions', busy);
  num(meta, 'first_eviction', first);
  num(meta, 'most_in_a_step', c.atStep[most]);
  num(meta, 'step_of_most', c.evicted ? most : -1);
  if (P >= 0 && P < T) {
    num(meta, 'evicted_after_prompt', later);
    num(meta, 'per_head_and_step', later / (c.heads * (T - P)));
  }
}

// Entries of a head that the queries after the prompt see, on average over heads: their mean and maximum.
function putCached(meta, atStep, heads, t) {
  const T = t.steps, P = Number(meta.find(([k]) => k === 'prompt_tokens')?.[1] ?? -1);
  if (!(P >= 0 && P < T && heads))
    return;
  let sum = 0, most = 0, gone = 0;
  for (let s = 0; s < T; s++) {
    gone += atStep[s];
    const seen = ((s + 1) * heads - gone) / heads;
    sum += s < P ? 0 : seen;
    most = s < P ? 0 : Math.max(most, seen);
  }
  num(meta, 'cached_mean', sum / (T - P));
  num(meta, 'cached_peak', most);
}

// ---- retention of gates, and last use

// Returns the largest age at which one of the query heads [first, first + share) selected each token.
function lastUse(t, column, layer, first, share) {
  const out = new Float64Array(t.steps).fill(-1);
  for (let g = first; g < first + share; g++)
    doubles(t, column, layer, g).forEach((v, i) => { out[i] = v > out[i] ? Math.min(Math.trunc(v), 2147483647) : out[i]; });
  return out;
}

function* retentionTable(t, gate) {
  const T = t.steps, name = `last_selected.${SHOWN_CRITERION}`, age = t.find(name), beta = t.find('log_beta');
  if (gate ? beta < 0 : age < 0)
    refuse(t, [gate ? 'log_beta' : name], gate ? '' : heldElse(t));
  const heads = headsOf(t, gate ? SPACE.KV : SPACE.QUERY), share = (h) => (gate ? queriesPerKv(t, h.layer) : 1);
  const gates = (b) => Float32Array.from(doubles(t, beta, heads[b].layer, heads[b].index)), ages = (b) => lastUse(t, age, heads[b].layer, heads[b].index * share(heads[b]), share(heads[b]));
  for (let b = 0; b < (T ? heads.length : 0); b++) { // every value is checked now
    if (gate)
      gates(b);
    if (age >= 0)
      ages(b);
    yield;
  }
  const meta = provenance(t), source = gate ? 'gate' : 'last-use';
  if (age >= 0)
    meta.push(['criterion', SHOWN_CRITERION]);
  meta.push(['source', source]);
  const derived = (column) => spec(column, '', 'real', gate ? { derived: 'log_beta' } : { constant: null });
  return { name: 'retention', rows: heads.length * T, block: T, meta, columns: [textsByBlock('source', heads.map(() => source)), ...headColumns(heads),
    affine('token', '', 0, 1), affine('birth', 'step', 0, 1),
    gate ? valuesBy('log_beta', 'nat', 'real', remembered(gates)) : constant('log_beta', 'nat', 'real', null), derived('beta'), derived('mean_retention'),
    age < 0 ? constant('last_use_age', 'step', 'int', -1) : valuesBy('last_use_age', 'step', 'int', remembered(ages))] };
}

// ---- sparsity

function* sparsityTable(t, kind) {
  const T = t.steps, name = { alpha: 'evict_step', beta: 'log_beta', 'last-use': `last_selected.${SHOWN_CRITERION}` }[kind], column = t.find(name);
  if (column < 0)
    refuse(t, [name]);
  const heads = headsOf(t, kind === 'last-use' ? SPACE.QUERY : SPACE.KV), cells = 0.5 * (T * (T + 1)), values = [];
  for (const h of heads) {
    let kept = 0;
    if (T)
      doubles(t, column, h.layer, h.index).forEach((v, i) => {
        const n = kind === 'beta' ? geometric(v, T - i) : kind === 'alpha' ? smaller(v, T) - i : (v < 0 ? 0 : v + 1);
        kept += n < 0 ? 0 : n;
      });
    values.push(cells > 0 ? 1 - kept / cells : NaN);
    yield;
  }
  const meta = provenance(t);
  meta.push(['kind', kind]);
  if (kind === 'last-use')
    meta.push(['criterion', SHOWN_CRITERION]);
  meta.push(['triangle', 'i <= t']);
  return { name: 'sparsity', rows: heads.length, block: 1, meta, columns: [...headColumns(heads), textsByBlock('kind', heads.map(() => kind)), perBlock('sparsity', '', 'real', values)] };
}

// ---- occupancy

function* occupancyTable(t) {
  const T = t.steps, meta = tableOf(t, { needs: [['evict_step', SPACE.KV]], lacks: ['tokens.role'] }), evict = t.find('evict_step'), role = columnOf(t, 'tokens.role', SPACE.RUN);
  const heads = headsOf(t, SPACE.KV), { every, n } = stepsShown(T);
  needValues(t, evict, heads.length * T);
  needValues(t, role, T);
  const roles = role >= 0 && T ? doubles(t, role, 0, 0) : new Float64Array(0), names = role < 0 ? ['all'] : ['all', 'prompt', 'answer'];
  if (roles.includes(4))
    names.push('question');
  const groupOf = (i) => (role < 0 ? 0 : roles[i] === 4 ? 3 : inPrompt(roles[i]) ? 1 : 2), G = names.length;
  // Entries of each group at the steps shown, from the number of entries that begin or end at each step.
  const sums = (changes) => {
    const out = Array.from({ length: G }, () => new Float64Array(n));
    for (let g = 0; g < G; g++)
      for (let k = 0, s = 0, sum = 0; k < n; k++) {
        for (; s <= k * every; s++)
          sum += changes[g][s];
        out[g][k] = sum;
      }
    for (let g = 1; g < G; g++)
      out[g].forEach((v, k) => { out[0][k] += v; });
    return out;
  };
  const zeros = () => Array.from({ length: G }, () => new Float64Array(T + 1)), births = zeros();
  for (let i = 0; i < T; i++)
    births[groupOf(i)][i]++;
  const born = T ? sums(births) : [], held = [];
  for (const h of heads) {
    const gone = zeros();
    (T ? evictSteps(t, evict, h) : []).forEach((v, i) => { gone[groupOf(i)][Math.max(i, Math.min(v, T))]++; });
    held.push(sums(gone).flatMap((list, g) => Array.from(list, (v, k) => born[g][k] - v)));
    yield;
  }
  num(meta, 'every', every);
  const steps = Float64Array.from({ length: G * n }, (_, k) => k % n * every), classes = names.flatMap((name) => new Array(n).fill(name));
  return { name: 'occupancy', rows: heads.length * G * n, block: G * n, meta, columns: [inOrder('step', 'step', 'int', steps), ...headColumns(heads), textsInOrder('class', classes),
    valuesBy('entries', 'entries', 'int', (b) => held[b])] };
}

// ---- cache sizes

const MOMENTS = ['end', 'prefill', 'mean', 'answer', 'peak'];

// Returns the prompt's tokens and the first step of the answer.
function promptOf(t, role) {
  const T = t.steps;
  if (role < 0) {
    const P = headerNumber(t, 'run', 'prompt_tokens', -1), Q = headerNumber(t, 'run', 'question_tokens', 0), prompt = P < 0 || P > T ? 0 : P;
    const answer = P >= 0 && Q >= 0 ? P + Q : P;
    return [prompt, answer < prompt || answer > T ? prompt : answer];
  }
  const roles = T ? doubles(t, role, 0, 0) : [];
  let P = 0, answer;
  while (P < T && inPrompt(roles[P]))
    P++;
  for (answer = P; answer < T && roles[answer] === 4;)
    answer++;
  return [P, answer];
}

function* kvSizeTable(t) {
  const T = t.steps, meta = tableOf(t, { needs: [['evict_step', SPACE.KV]], lacks: ['tokens.role'] }), evict = t.find('evict_step'), role = columnOf(t, 'tokens.role', SPACE.RUN), heads = headsOf(t, SPACE.KV);
  needValues(t, evict, heads.length * T);
  needValues(t, role, T);
  const [P, A] = T ? promptOf(t, role) : [0, 0], bornSum = (from) => from < T ? (T - from) * from + (T - from) * (T - from + 1) / 2 : 0;
  const heldAll = new Float64Array(T), rows = [];
  const peakOf = (held, n) => {
    let top = 0;
    held.forEach((v, s) => { top = v > held[top] ? s : top; });
    return [top, T > 0 ? 1 : 0, T ? held[top] : 0, n * Math.min(top + 1, T), n * T];
  };
  for (const h of heads) {
    const step = T ? evictSteps(t, evict, h) : [], gone = new Float64Array(T + 1), held = new Float64Array(T);
    const left = (n) => {
      let k = 0;
      for (let i = 0; i < n; i++)
        k += step[i] > n ? 1 : 0;
      return k;
    };
    let sum = 0, later = 0;
    for (let i = 0; i < T; i++) {
      const end = Math.min(step[i], T);
      sum += Math.max(0, end - i);
      later += Math.max(0, end - Math.max(i, A));
      gone[Math.max(end, i)]++;
    }
    for (let s = 0, now = 0; s < T; s++) {
      now += 1 - gone[s];
      held[s] = now;
      heldAll[s] += now;
    }
    rows.push([[T, 1, left(T), T, T], [P, 1, left(P), P, T], [0, T, sum, bornSum(0), T * T], [A, T - A, later, bornSum(A), (T - A) * T], peakOf(held, 1)]);
    yield;
  }
  const all = MOMENTS.slice(0, 4).map((_, m) => rows.reduce((a, r) => [r[m][0], r[m][1], a[2] + r[m][2], a[3] + r[m][3], a[4] + r[m][4]], [0, 0, 0, 0, 0]));
  rows.push([...all, peakOf(heldAll, heads.length)]);
  num(meta, 'window', 0);
  num(meta, 'prompt', P);
  const of = (name, unit, k) => valuesBy(name, unit, 'int', (b) => rows[b].map((r) => r[k]));
  return { name: 'kv-size', rows: 5 * rows.length, block: 5, meta, columns: [...headColumns(withAll(heads)), textsInOrder('at', MOMENTS), of('step', 'step', 0), of('steps', 'step', 1),
    of('entries', 'entries', 2), of('length', 'entries', 3), of('capacity', 'entries', 4), spec('size', '', 'real', { quotient: ['entries', 'capacity'] }),
    spec('ratio', '', 'real', { quotient: ['entries', 'length'] })] };
}

// ---- positions of cached entries

function* densityTable(t) {
  const T = t.steps, bins = 20, meta = tableOf(t, { needs: [['evict_step', SPACE.KV]] }), evict = t.find('evict_step'), heads = headsOf(t, SPACE.KV);
  needValues(t, evict, heads.length * T);
  const count = Array.from({ length: heads.length + 1 }, () => new Float64Array(bins)), total = new Float64Array(heads.length + 1), sum = new Float64Array(heads.length + 1);
  for (const [b, h] of heads.entries()) {
    (T ? evictSteps(t, evict, h) : []).forEach((v, i) => {
      if (v <= T)
        return;
      for (const k of [b, heads.length]) {
        count[k][Math.floor(i * bins / T)]++;
        total[k]++;
        sum[k] += i;
      }
    });
    yield;
  }
  num(meta, 'step', T);
  num(meta, 'length', T);
  num(meta, 'bins', bins);
  num(meta, 'undefined', total.subarray(0, heads.length).filter((v) => v === 0).length);
  const edge = (d) => Float64Array.from({ length: bins }, (_, k) => (k + d) / bins);
  return { name: 'density', rows: bins * count.length, block: bins, meta, columns: [...headColumns(withAll(heads)), inOrder('bin_low', '', 'real', edge(0)), inOrder('bin_high', '', 'real', edge(1)),
    spec('share', '', 'real', { quotient: ['count', 'total'] }), valuesBy('count', 'entries', 'int', (b) => count[b]), perBlock('total', 'entries', 'int', total),
    perBlock('mean', '', 'real', Array.from(sum, (v, b) => (total[b] * T > 0 ? v / (total[b] * T) : NaN))), perBlock('position_sum', '', 'int', sum)] };
}

// ---- survival

// Returns the entries that no head exceeds after the prompt, or 0 if the run header bounds no single head.
function headLimit(t) {
  const [budget, slack, stride] = ['budget', 'slack', 'stride'].map((key) => headerNumber(t, 'method', key, 0)), header = runHeader(t), method = member(header, 'method');
  const alone = textOf(member(method, 'allocation'), 'uniform') === 'uniform' && membersOf(member(header, 'overrides')).length === 0 && member(method, 'cut') === undefined && member(method, 'of') === undefined;
  return alone && budget > 0 ? budget + slack + stride : 0;
}

function horizonsOf(T) {
  const out = [0];
  for (let x = 1; x < T && out.length < 256; x *= 1.2589254117941673) {
    const n = Math.trunc(x + 0.5);
    if (n < T && n !== out[out.length - 1])
      out.push(n);
  }
  return out;
}

// The product-limit estimate from deaths and censored tokens in n cells: {S, G}, survival and the sum of Greenwood's formula.
function productLimit(died, censored, n) {
  const S = new Float64Array(n + 1), G = new Float64Array(n + 1);
  let risk = 0, s = 1, g = 0;
  for (let k = 0; k < n; k++)
    risk += died[k] + censored[k];
  for (let k = 0; k < n; k++) {
    S[k] = s;
    G[k] = g;
    if (died[k]) {
      g = died[k] === risk ? NaN : g + died[k] / (risk * (risk - died[k]));
      s = died[k] === risk ? 0 : s * ((risk - died[k]) / risk);
    } else if (!risk) {
      s = s === 0 ? 0 : NaN;
      g = NaN;
    }
    risk -= died[k] + censored[k];
  }
  S[n] = s;
  G[n] = g;
  return { S, G };
}

// The 95 % CI of survival S.
function survivalInterval(S, G, risk) {
  if (S === 1)
    return [risk ? 0.025 ** (1 / risk) : 1, 1];
  if (!(S > 0 && S < 1))
    return [NaN, NaN];
  const radius = 1.959963984540054 * Math.sqrt(G) / -Math.log(S);
  return [S ** Math.exp(radius), S ** Math.exp(-radius)];
}

// The rows of one curve.  counts: deaths and censored tokens in T + 1 cells, tokens by largest age, and the number of heads.
function survivalRows({ died, censored, ages, heads }, T, grace, horizons, meanTo) {
  const fewest = T < 8 || T > 20 ? 20 : T, last = T - 1 - (fewest - 1) - grace; // the age that the fewest-th token could show
  const out = horizons.map((n) => ({ at_risk: 0, alive: 0, undecided: 0, survival: NaN, survival_low: NaN, survival_high: NaN, events: 0, exposure: 0, half_life: NaN, half_life_over: -1, rmst: NaN,
    rmst_error: NaN, half_life_low: NaN, half_life_high: NaN, fraction: NaN, horizon: n }));
  const alive = new Float64Array(T + 1);
  for (let a = T - 1; a >= 0; a--)
    alive[a] = alive[a + 1] + ages[a];
  for (const r of out) {
    r.at_risk = heads * (T - r.horizon);
    r.alive = alive[r.horizon];
    if (r.at_risk && T - r.horizon >= fewest)
      r.fraction = r.alive / r.at_risk;
  }
  const followed = T >= fewest && last >= 0 ? last : -2;
  if (followed < 0)
    return out;
  const { S, G } = productLimit(died, censored, T + 1), dead = new Float64Array(T + 2), exposed = new Float64Array(T + 2);
  let risk = died.reduce((a, b) => a + b, 0) + censored.reduce((a, b) => a + b, 0), known = followed;
  for (let k = 0; k <= T; k++) {
    dead[k + 1] = dead[k] + died[k];
    exposed[k + 1] = exposed[k] + risk;
    risk -= died[k] + censored[k];
  }
  while (known >= 0 && Number.isNaN(S[known + 1]))
    known--;
  const interval = (n) => survivalInterval(S[n + 1], G[n + 1], exposed[n + 1] - exposed[n]), whole = {};
  const half = known < 0 ? -1 : S.findIndex((v, k) => k >= 1 && k < known + 2 && v < 0.5);
  if (known >= 0) {
    if (half >= 0)
      whole.half_life = half - 1;
    else
      whole.half_life_over = known;
    for (let n = 0; n <= known && whole.half_life_high === undefined; n++) {
      const [low, high] = interval(n);
      if (whole.half_life_low === undefined && low < 0.5)
        whole.half_life_low = n;
      if (high < 0.5 || S[n + 1] === 0)
        whole.half_life_high = n;
    }
    if (meanTo > 0 && meanTo <= known + 1)
      [whole.rmst, whole.rmst_error] = restrictedMean(died, censored, T + 1, S, meanTo + 1);
  }
  for (const [k, r] of out.entries()) {
    const n = r.horizon, before = k ? horizons[k - 1] : -1;
    Object.assign(r, whole);
    if (n <= followed) {
      r.events = dead[n + 1] - dead[before + 1];
      r.exposure = exposed[n + 1] - exposed[before + 1];
    }
    if (n <= known) {
      r.survival = S[n + 1];
      [r.survival_low, r.survival_high] = interval(n);
    }
  }
  return out;
}

function restrictedMean(died, censored, n, S, end) {
  let area = end > n ? S[n] : 0, variance = 0, risk = 0;
  for (let k = n - 1; k >= 0; k--) {
    risk += died[k] + censored[k];
    if (died[k] && area !== 0)
      variance += area * area * died[k] / (risk * (risk - died[k]));
    if (k >= 1 && k < end)
      area += S[k];
  }
  return [area, Math.sqrt(variance)];
}

// Counts one head: ages of tokens, -1 for never.
function countLives(ages, T, grace, to) {
  ages.forEach((v, i) => {
    const c = T - 1 - i - grace, a = v < 0 || !(v <= 2147483647) ? -1 : Math.trunc(v);
    if (a >= 0 && a < T)
      to.ages[a]++;
    if (c < 0)
      return;
    if (a < c)
      to.died[a + 1]++;
    else
      to.censored[c]++;
  });
  to.heads++;
}

const SURVIVAL_COLUMNS = [['at_risk', '', 'int'], ['alive', '', 'int'], ['fraction', '', 'real'], ['half_life', 'step', 'real'], ['undecided', '', 'int'], ['class', '', 'str'], ['survival', '', 'real'],
  ['survival_low', '', 'real'], ['survival_high', '', 'real'], ['events', '', 'int'], ['exposure', 'step', 'int'], ['half_life_over', 'step', 'int'], ['rmst', 'step', 'real'],
  ['rmst_error', 'step', 'real'], ['half_life_low', 'step', 'real'], ['half_life_high', 'step', 'real']];

function* survivalTable(t) {
  const T = t.steps, limit = headLimit(t) >= T ? 0 : headLimit(t), trivial = CRITERIA_NAMES.filter((c) => limit > 0 && c.startsWith('top') && Number(c.slice(3)) >= limit && t.find(`last_selected.${c}`) >= 0);
  let chosen = CRITERIA_NAMES.filter((c) => !trivial.includes(c));
  const there = chosen.filter((c) => t.find(`last_selected.${c}`) >= 0);
  let lacking = [];
  if (there.length || heldElse(t)) {
    lacking = chosen.filter((c) => !there.includes(c)).map((c) => `last_selected.${c}`);
    chosen = there.length ? there : ['held'];
  }
  const column = (c) => (c === 'held' ? columnOf(t, 'evict_step', SPACE.KV) : columnOf(t, `last_selected.${c}`, SPACE.QUERY));
  refuse(t, chosen.filter((c) => column(c) < 0).map((c) => `last_selected.${c}`), heldElse(t));
  const heads = headsOf(t, SPACE.QUERY), grace = chosen[0] === 'held' ? 0 : Math.min(64, Math.trunc(T / 4)), meanTo = Math.min(256, Math.trunc(T / 4)), horizons = horizonsOf(T), rows = [];
  for (const h of heads) {
    const share = queriesPerKv(t, h.layer);
    if (share < 1 || share * t.kv[h.layer] !== t.query[h.layer])
      throw new TraceError('KVF_E_FORMAT', `layer ${h.layer} has ${t.query[h.layer]} query heads for ${t.kv[h.layer]} KV heads`);
  }
  const counts = () => ({ died: new Float64Array(T + 1), censored: new Float64Array(T + 1), ages: new Float64Array(T + 1), heads: 0 });
  const agesOf = (c, h) => {
    const kv = Math.trunc(h.index / queriesPerKv(t, h.layer));
    return c === 'held' ? doubles(t, column(c), h.layer, kv).map((v, i) => (smaller(v, T) > i ? Math.trunc(smaller(v, T) - 1 - i) : -1)) : doubles(t, column(c), h.layer, h.index);
  };
  for (const c of chosen) {
    const all = counts();
    for (const h of heads) {
      const own = counts();
      if (T)
        countLives(agesOf(c, h), T, grace, own);
      for (const key of ['died', 'censored', 'ages'])
        own[key].forEach((v, k) => { all[key][k] += v; });
      all.heads++;
      rows.push(survivalRows(own, T, grace, horizons, meanTo));
      yield;
    }
    rows.push(survivalRows(all, T, grace, horizons, meanTo));
  }
  const meta = provenance(t), blocks = chosen.flatMap((c) => withAll(heads).map((h) => ({ ...h, criterion: c }))), H = horizons.length;
  if (lacking.length)
    meta.push(['missing', lacksText(t, lacking)]);
  meta.push(['denominator', 'tokens at risk (i + horizon < T)']);
  if (trivial.length)
    meta.push(['note', `the budget is ${limit} entries, so every query after the prompt selects every cached entry by ${trivial.join(', ')}: `
      + (chosen.length ? 'left out; --criterion with a name shows how long entries stay cached' : 'these rows show how long entries stay cached, not how long they are used')]);
  meta.push(['space', 'query']);
  num(meta, 'grace', grace);
  num(meta, 'at_least', 20);
  num(meta, 'mean_to', meanTo);
  const columns = SURVIVAL_COLUMNS.map(([name, unit, type]) => (name === 'class' ? textsByBlock('class', blocks.map(() => 'all'))
    : name === 'fraction' ? spec('fraction', '', 'real', { quotient: ['alive', 'at_risk'] }) : valuesBy(name, unit, type, (b) => rows[b].map((r) => r[name]))));
  if (rows.some((list) => list.some((r) => Number.isNaN(r.fraction) && r.at_risk)))
    columns[2] = valuesBy('fraction', '', 'real', (b) => rows[b].map((r) => r.fraction));
  return { name: 'survival', rows: rows.length * H, block: H, meta, columns: [...headColumns(blocks), textsByBlock('criterion', blocks.map((b) => b.criterion)), inOrder('horizon', 'step', 'int', horizons),
    ...columns] };
}

// ---- regret and dilution after the prompt: means over steps of each head, and over heads

// Returns the first token after the prompt, or 0 if there is none.
function answerOf(t) {
  const P = headerNumber(t, 'run', 'prompt_tokens', 0);
  return P < 0 || P >= t.steps ? 0 : P;
}

const knownMean = (lists) => {
  const sum = exactSum();
  let n = 0;
  for (const list of lists)
    for (const v of list)
      if (!Number.isNaN(v)) {
        sum.add(v);
        n++;
      }
  return n ? sum.get() / n : NaN;
};

function* regretTable(t) {
  const T = t.steps, a = answerOf(t), needs = ['shadow.kept_mass', 'shadow.oracle_mass'], meta = tableOf(t, { needs: needs.map((name) => [name, SPACE.QUERY, 1]) }), [kept, oracle] = needs.map((name) => t.find(name));
  const heads = headsOf(t, SPACE.QUERY), n = T - a, both = [];
  for (const h of n ? heads : []) {
    both.push([doubles(t, kept, h.layer, h.index, a, n), doubles(t, oracle, h.layer, h.index, a, n)]);
    yield;
  }
  const losses = both.map(([k]) => k.findIndex((v) => v < 1)).filter((k) => k >= 0), first = losses.length ? Math.min(...losses) : 0;
  const known = both.map(([k, o]) => {
    const some = [[], [], []];
    for (let i = first; i < n; i++)
      if (!Number.isNaN(k[i]) && !Number.isNaN(o[i]))
        [k[i], o[i], o[i] - k[i]].forEach((v, c) => some[c].push(v));
    return some;
  });
  const means = known.map((lists) => lists.map((list) => knownMean([list])));
  if (n)
    means.push([0, 1, 2].map((c) => knownMean(known.map((lists) => lists[c]))));
  if (a > 0)
    meta.push(['tokens', `${a}:${T}`]);
  if (losses.length)
    num(meta, 'first_loss', a + first);
  const worst = known.reduce((w, lists, h) => (lists[0].length && (w < 0 || means[h][2] > means[w][2]) ? h : w), -1);
  if (worst >= 0) {
    ['mean_kept_mass', 'mean_oracle_mass', 'mean_regret'].forEach((key, c) => num(meta, key, means[means.length - 1][c]));
    meta.push(['worst_head', heads[worst].name]);
    num(meta, 'worst_regret', means[worst][2]);
  }
  return { name: 'regret', rows: means.length, block: n ? 1 : 0, meta, columns: [...headColumns(withAll(heads)), constant('step', 'step', 'int', -1),
    ...['kept_mass', 'oracle_mass', 'regret'].map((name, c) => perBlock(name, '', 'real', means.map((m) => m[c])))] };
}

// Of the dilution only its mean and that of the useful weight, which the panel shows.
function* dilutionTable(t) {
  const T = t.steps, a = answerOf(t), span = t.find('useful.span') >= 0, set = span ? 'span' : 'top64', near = Array.from({ length: 16 }, (_, k) => `${span ? 'near.span' : 'near.all'}.${k}`);
  headerNumber(t, 'run', 'dilution_every', 1);
  [...['kept', 'rho_u', 'rho_d'].map((kind) => `${kind}.${set}`), 'shadow.oracle_mass'].forEach((name) => columnOf(t, name, SPACE.QUERY, 1)); // kvfate reads them too
  const needs = ['useful', 'dilution', 'size'].map((kind) => `${kind}.${set}`), missing = needs.filter((name) => columnOf(t, name, SPACE.QUERY, 1) < 0);
  if (near.some((name) => columnOf(t, name, SPACE.QUERY, 1) < 0))
    missing.push(span ? 'near.span.*' : 'near.all.*');
  refuse(t, missing);
  const heads = headsOf(t, SPACE.QUERY), n = T - a, lists = [];
  for (const h of n ? heads : []) {
    const [useful, rest] = needs.slice(0, 2).map((name) => doubles(t, t.find(name), h.layer, h.index, a, n));
    lists.push([rest.map((v, i) => (Number.isNaN(useful[i]) ? NaN : v)), useful]);
    yield;
  }
  const means = [...lists.map((both) => both.map((list) => knownMean([list]))), ...(n ? [[0, 1].map((c) => knownMean(lists.map((both) => both[c])))] : [])], meta = provenance(t);
  const sampled = textOf(member(member(runHeader(t), 'sampled'), 'dilution'));
  if (sampled && headerNumber(t, 'run', 'dilution_every', 1) > 1)
    meta.push(['sampled', sampled]);
  if (a > 0)
    meta.push(['tokens', `${a}:${T}`]);
  meta.push(['useful', span ? 'span' : 'topk:64'], ['weights', 'run']);
  return { name: 'dilution', rows: means.length, block: n ? 1 : 0, meta, columns: [...headColumns(withAll(heads)), constant('step', 'step', 'int', -1),
    ...['dilution', 'useful_mass'].map((name, c) => perBlock(name, '', 'real', means.map((m) => m[c])))] };
}

// ---- attention maps, which only the program computes

function* attentionTable(t) {
  const reads = ['seen', 'read.count'].find((name) => t.find(name) >= 0);
  if (reads)
    throw new TraceError('KVF_E_NOTFOUND', `the attention map needs entries that stay until they are evicted; in this trace queries read selected entries (column ${reads})`);
  const blobs = t.blobs.map((r) => t.blob(r));
  const has = (name, layer, head) => blobs.some((b) => b.name === name && b.layer === layer && b.head === head);
  const recorded = (h) => has('q', h.layer, h.index) && has('logit', h.layer, h.index)
    && has('k', h.layer, Math.floor(h.index * t.heads(h.layer, SPACE.KV) / t.heads(h.layer, SPACE.QUERY)));
  yield;
  throw new TraceError('KVF_E_NOTFOUND', blobs.length && headsOf(t, SPACE.QUERY).some(recorded)
    ? `this page computes no attention maps; 'kvfate report ${t.name}' writes a page with them`
    : `this trace has no blocks of queries and keys of any query head (kvfate run --probes raw:${Math.floor(t.kv.length / 2)}.0); --head names other heads`);
}

// ---- all tables of a trace

const TRACE_TABLES = [
  ['tokens', tokensTable, (x) => `tokens ${x}`],
  ['eviction', evictionTable, (x) => `eviction ${x}`],
  ['retention', (t) => retentionTable(t, true), (x) => `retention ${x} --criterion ${SHOWN_CRITERION} --source gate`],
  ['last-use', (t) => retentionTable(t, false), (x) => `retention ${x} --criterion ${SHOWN_CRITERION} --source last-use`],
  ['sparsity-alpha', (t) => sparsityTable(t, 'alpha'), (x) => `size ${x} --as sparsity --kind alpha`],
  ['sparsity-beta', (t) => sparsityTable(t, 'beta'), (x) => `size ${x} --as sparsity --kind beta`],
  ['sparsity-last-use', (t) => sparsityTable(t, 'last-use'), (x) => `size ${x} --as sparsity --kind last-use --criterion ${SHOWN_CRITERION}`],
  ['survival', survivalTable, (x) => `survival ${x}`],
  ['occupancy', occupancyTable, (x) => `size ${x}`],
  ['kv-size', kvSizeTable, (x) => `size ${x} --as kv-size`],
  ['density', densityTable, (x) => `where ${x}`],
  ['heads', headsTable, (x) => `heads ${x}`],
  ['regret', regretTable, (x, t) => `missed ${x} --as regret --mean${answerOf(t) ? ` --tokens ${answerOf(t)}:` : ''}`],
  ['dilution', dilutionTable, (x, t) => `dilution ${x} --mean${answerOf(t) ? ` --tokens ${answerOf(t)}:` : ''}`],
  ['attention', attentionTable, (x) => `attention ${x}`],
];

// Computes the tables of a trace.  It yields the fraction done from time to time, and returns the tables as
// data.js takes them.  A table that the trace has no data for becomes the reason for its absence.
function* tablesOf(t, index = 0) {
  const out = [];
  for (const [k, [key, make, command]] of TRACE_TABLES.entries()) {
    yield k / TRACE_TABLES.length;
    try {
      const steps = make(t);
      let next = steps.next();
      for (; !next.done; next = steps.next())
        yield k / TRACE_TABLES.length;
      out.push({ trace: index, key, command: `kvfate ${command(t.name, t)}`, ...next.value });
    } catch (e) {
      if (!(e instanceof TraceError) || e.code !== 'KVF_E_NOTFOUND')
        throw e;
      out.push({ trace: index, key, absent: e.message });
    }
  }
  return out;
}
