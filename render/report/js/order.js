// order.js - sorts and filters the heads of the overview.

// Measures of a head that the overview can be sorted by.  read: returns the values of a trace as a Map from names of KV
// heads or query heads; table: the table that it needs.
const MEASURES = {
  kind: { label: 'head type', table: 'heads', read: (trace) => valuesOf(trace, 'heads', 'kind') },
  kept: { label: 'fraction kept', table: 'sparsity-alpha', read: (trace) => complementOf(trace, 'sparsity-alpha') },
  retention: { label: 'mean retention', table: 'sparsity-beta', read: (trace) => complementOf(trace, 'sparsity-beta') },
  evictions: { label: 'evicted entries', table: 'eviction', read: (trace) => sumOfFates(trace, (fates, k) => fates.end[k].reduce((n, e) => n + (e >= 0), 0)) },
  missed: { label: 'evicted entries needed later', table: 'eviction', read: (trace) => sumOfFates(trace, (fates, k) => (fates.hits ? fates.hits[k].reduce((n, h) => n + (h > 0), 0) : NaN)) },
  dilution: { label: 'dilution', table: 'dilution', read: (trace) => valuesOf(trace, 'dilution', 'dilution') },
};
const distanceTo = (trace) => `distance-${trace.index + 1}`;

// Returns the trace of an order such as distance-2, or undefined.
const distantTrace = (order) => TRACES.find((t) => distanceTo(t) === order);
// Returns an order that exists; the order of the model for anything else.
const orderOf = (text) => (Object.hasOwn(MEASURES, text || '') || distantTrace(text) ? text : 'layer');
const labelOf = (order) => (MEASURES[order] ? MEASURES[order].label : distantTrace(order) ? `distance to ${shortName(distantTrace(order))}` : 'layer');

// Returns the first value of each head in a table, without the row of all heads.
async function valuesOf(trace, key, column) {
  const table = trace.table(key), [heads, values] = await Promise.all([table.perBlock('head'), table.perBlock(column)]);
  return new Map(heads.map((head, k) => [head, values[k]]).filter(([head]) => head !== 'all'));
}

async function complementOf(trace, key) {
  return new Map([...await valuesOf(trace, key, 'sparsity')].map(([head, v]) => [head, 1 - v]));
}

async function sumOfFates(trace, of) {
  const fates = await trace.fates();
  return new Map(fates ? fates.heads.map((head, k) => [head.name, of(fates, k)]) : []);
}

// Returns the Jaccard distance of the cached pairs (entry, query) of each head in two traces, over the tokens that both
// texts begin with and the queries after the prompt.
async function distances(a, b) {
  await b.load();
  const [x, y] = await Promise.all([a.fates(), b.fates()]), out = new Map(), { tokens, steps } = commonSpan(a, b);
  const cut = Math.max(a.prompt, b.prompt) < steps ? Math.max(a.prompt, b.prompt) : 0;
  (x && y ? x.heads : []).forEach((head, k) => {
    const other = y.heads.findIndex((h) => h.name === head.name);
    let both = 0, either = 0;
    for (let i = 0; other >= 0 && i < tokens; i++) {
      const from = Math.max(i, cut), [p, q] = [x.end[k][i], y.end[other][i]].map((e) => Math.max(0, (e < 0 ? steps : Math.min(e, steps)) - from));
      both += Math.min(p, q);
      either += Math.max(p, q);
    }
    out.set(head.name, either > 0 ? 1 - both / either : NaN);
  });
  return out;
}

// Returns the values of an order for a trace, computed once.
function measured(trace, order) {
  trace.measures = trace.measures || new Map();
  if (!trace.measures.has(order)) {
    const m = MEASURES[order], other = distantTrace(order);
    trace.measures.set(order, m ? (trace.table(m.table)?.rows ? m.read(trace) : new Map()) : other ? distances(trace, other) : new Map());
  }
  return trace.measures.get(order);
}

// Returns the names of the query heads that read a KV head, or of the query head itself.
function readersOf(trace, head) {
  const n = trace.share(head.layer);
  return head.name.includes('H') ? [head.name] : Array.from({ length: n }, (_, k) => `L${head.layer}H${head.index * n + k}`);
}

// Returns the value of a head.  A KV head has the mean of the query heads that read it, or their most frequent text.
function valueFor(trace, head, values) {
  const own = values.get(head.name) ?? values.get(trace.kvHead(head));
  if (own !== undefined)
    return own;
  const some = readersOf(trace, head).map((name) => values.get(name)).filter((v) => v !== undefined && !Number.isNaN(v));
  if (!some.length)
    return NaN;
  if (typeof some[0] === 'string')
    return some.reduce((best, v) => (some.filter((w) => w === v).length > some.filter((w) => w === best).length ? v : best));
  return some.reduce((sum, v) => sum + v, 0) / some.length;
}

// ---- search

const HEAD_WORD = /^L?(\*|\d+(?:-\d+)?)(?:([.KH])(\*|\d+(?:-\d+)?)?|\*)?$/i;

function inRange(range, value) {
  const [lo, hi = lo] = (range || '*').split('-');
  return lo === '*' || (value >= Number(lo) && value <= Number(hi));
}

// Returns true if a head fits a word: heads such as L5*, L3-7K0, 15.2, or a part of a head type; a comma means or.
function fitsWord(trace, head, kinds, word) {
  return word.split(',').filter(Boolean).some((part) => {
    const at = part.match(HEAD_WORD);
    if (!at)
      return readersOf(trace, head).some((name) => (kinds.get(name) || '').includes(part.toLowerCase()));
    const letter = (at[2] || '.').toUpperCase(), query = head.name.includes('H');
    const indices = letter === 'H' ? readersOf(trace, head).map((name) => Number(name.split('H')[1])) : letter === 'K' && query
      ? [Math.floor(head.index / trace.share(head.layer))] : [head.index];
    return inRange(at[1], head.layer) && indices.some((i) => inRange(at[3], i));
  });
}

const wordsOfSearch = () => state.wanted.trim().split(/\s+/).filter(Boolean);

// Returns the heads of the overview in their order, as a promise of [{head, value}].
async function orderedHeads() {
  const { trace, kind, order, rising } = state, heads = trace.heads[kind] || [], words = wordsOfSearch();
  const [values, kinds] = await Promise.all([measured(trace, order), words.length ? measured(trace, 'kind') : new Map()]);
  const list = heads.filter((head) => words.every((word) => fitsWord(trace, head, kinds, word)))
    .map((head, place) => ({ head, place, value: order === 'layer' ? NaN : valueFor(trace, head, values) }));
  const sign = rising ? 1 : -1, text = order === 'kind' || order === 'layer';
  return list.sort((a, b) => {
    if (typeof a.value === 'string' && typeof b.value === 'string')
      return -sign * a.value.localeCompare(b.value) || a.place - b.place;
    if (Number.isNaN(a.value) || Number.isNaN(b.value) || text)
      return Number.isNaN(a.value) - Number.isNaN(b.value) || (order === 'layer' && rising ? b.place - a.place : a.place - b.place);
    return sign * (a.value - b.value) || a.place - b.place;
  });
}

// ---- controls

// Returns the words of the search with a head type added, or taken out if it is there.  Types are alternatives.
function toggledKind(kind, all) {
  const words = wordsOfSearch(), at = words.findIndex((word) => word.split(',').every((w) => all.includes(w)));
  const now = at < 0 ? [] : words[at].split(','), next = now.includes(kind) ? now.filter((w) => w !== kind) : [...now, kind];
  return [...words.filter((_, k) => k !== at), next.join(',')].filter(Boolean).join(' ');
}

// Returns a button for each head type with its number of heads.  A press shows only these heads.  kinds: {query head: type}.  A KV head has
// the types of all query heads that read it.
function kindChips(kinds, heads) {
  const all = [...new Set(kinds.values())], count = all.map((k) => [k, heads.filter((head) => readersOf(state.trace, head).some((name) => kinds.get(name) === k)).length]);
  const chosen = new Set(wordsOfSearch().flatMap((w) => w.split(',')));
  return el('div', { class: 'chips', role: 'group', 'aria-label': 'Show heads of a type' }, count.sort((a, b) => b[1] - a[1]).map(([k, n]) =>
    el('button', { type: 'button', class: 'chip', 'data-kind': k, 'aria-pressed': String(chosen.has(k)), onclick: () => change({ wanted: toggledKind(k, all) }) },
      kindMark(k), el('b', {}, String(n)), ` ${k}`)));
}

function orderTools() {
  const { trace } = state, why = (key) => !trace.table(key)?.rows;
  const options = [['layer', 'layer'], ...Object.entries(MEASURES).map(([name, m]) => [name, m.label, why(m.table)]),
    ...TRACES.filter((t) => t !== trace).map((t) => [distanceTo(t), labelOf(distanceTo(t)), why('eviction') || !t.table('eviction')?.rows])];
  const input = el('input', { type: 'search', id: 'head-search', placeholder: 'L5* sink', 'aria-label': 'Show only heads (L5*, L3-7K0, head type)', maxlength: '200',
    title: 'Heads and head types, such as: L5* sink', oninput: () => change({ wanted: input.value }), onkeydown: (e) => {
      if (e.key !== 'Escape')
        return;
      e.stopPropagation();
      change({ wanted: '' });
      input.blur();
    } });
  input.value = state.wanted;
  byId('order-tools').replaceChildren(choice('Sort by', options, state.order, (order) => change({ order, rising: false })),
    el('button', { type: 'button', id: 'rising', 'aria-label': 'Reverse the order', title: 'Reverse the order', 'aria-pressed': String(state.rising),
      onclick: () => change({ rising: !state.rising }) }, '\u21c5'), input);
}

async function drawChips() {
  const { trace } = state, kinds = await measured(trace, 'kind');
  if (trace !== state.trace)
    return;
  byId('chips').replaceChildren(...(kinds.size ? [kindChips(kinds, trace.heads[state.kind] || [])] : []));
  gridMoved();
}

function watchOrder(changed) {
  if (has(changed, 'trace'))
    orderTools();
  if (has(changed, 'trace', 'kind', 'wanted'))
    setTimeout(drawChips, 0);
  if (has(changed, 'wanted') && byId('head-search').value !== state.wanted)
    byId('head-search').value = state.wanted;
  if (has(changed, 'order'))
    byId('order-tools').querySelector('select').value = state.order;
  if (has(changed, 'rising'))
    byId('rising').setAttribute('aria-pressed', String(state.rising));
}
