// panels.js - the panels below the map.  Each shows one table of a trace, or of all traces (overlay.js), or explains
// why the table is missing.

const PANELS = [];

// make(table, trace) returns the content; watch: names of the state that it depends on besides the trace; how: words of
// the command that draws the panel, after the words of its table; overlay: returns {lines, x, y, note, problems} of all
// traces, from [{trace, table}].
function panel(id, title, keys, watch, make, how = () => [], overlay = null) {
  PANELS.push({ id, title, keys, watch: ['trace', ...(overlay ? ['single'] : []), ...watch], make, how, overlay, asked: 0 });
}

const keyOf = (p) => (typeof p.keys === 'function' ? p.keys() : p.keys);

// The trace of a panel that shows one.
const traceOf = (p) => (p.overlay && state.single) || state.trace;
const showsAll = (p) => Boolean(p.overlay) && TRACES.length > 1 && !state.single;

// Returns the view for the save menu of a panel.
const panelView = (p) => ({ name: p.title,
  commands: () => (showsAll(p) ? TRACES : [traceOf(p)]).map((t) => ofTable(t, keyOf(p), ...p.how(), '-o', `${fileStem(t)}-${p.id}.pdf`)),
  picture: () => chartPicture(p.body.querySelector('svg.chart, svg.layers'), showsAll(p) ? `${p.title}  \u00b7  all traces` : `${p.title}  \u00b7  ${nameOf(traceOf(p))}`,
    showsAll(p) && p.drawn ? p.drawn.lines : []),
  table: () => (showsAll(p) ? overlayTable(p.drawn) : [traceOf(p), traceOf(p).table(keyOf(p))]) });

function buildPanels() {
  byId('panels').replaceChildren(...PANELS.map((p) => {
    p.body = el('div', { class: 'body' });
    return el('section', { class: `panel ${p.id}`, id: `panel-${p.id}`, 'aria-labelledby': `title-${p.id}` },
      el('div', { class: 'head' }, el('h2', { id: `title-${p.id}` }, p.title), el('span', { class: 'push' }, p.menu = el('span', {}))), p.body);
  }));
}

const nothing = (why) => el('p', { class: 'quiet' }, why);

async function drawPanel(p) {
  const trace = traceOf(p), asked = ++p.asked, key = keyOf(p), all = showsAll(p);
  await trace.load();
  const table = key && trace.table(key);
  let parts;
  if (all)
    parts = await overlayParts(p, key);
  else if (key && !table)
    parts = [nothing(trace.absent.get(key) || 'Not in this file.')];
  else if (key && !(table.rows && trace.T))
    parts = [nothing('No data: the trace has no tokens.')];
  else
    parts = [...await p.make(table, trace), table?.about.has('note') && nothing(`Note: ${table.about.get('note')}.`)];
  if (asked !== p.asked)
    return;
  const some = all ? TRACES.some((t) => t.table(key)?.rows) : table && table.rows;
  p.body.replaceChildren(...(p.overlay && TRACES.length > 1 ? [traceKey()] : []), ...parts.filter(Boolean));
  p.menu.replaceChildren(...(some ? [saveMenu(panelView(p))] : []));
}

function watchPanels(changed) {
  const wanted = PANELS.filter((p) => has(changed, ...p.watch));
  inPieces(async () => {
    const p = wanted.shift();
    if (p)
      await drawPanel(p);
    return wanted.length > 0;
  }, () => performance.mark('kvfate-panels'));
}

// Returns the rows of a head as columns of plain arrays, or null if the head has no rows.
async function rowsOf(table, head, names) {
  const heads = await table.perBlock('head'), out = Object.fromEntries(names.map((n) => [n, []]));
  let some = false;
  for (let b = 0; b < heads.length; b++) {
    if (heads[b] !== head)
      continue;
    some = true;
    for (const name of names) {
      const c = table.column(name);
      out[name].push(...(c.type === 'str' ? await c.strings(b) : await c.numbers(b)));
    }
  }
  return some ? out : null;
}

// ---- survival

// Returns lines with the colours and dashes of the figure.
function survivalLines(rows, faint) {
  const lines = [];
  for (const [criterion, colour] of CRITERIA) {
    const points = [];
    rows.criterion.forEach((c, k) => c === criterion && rows.horizon[k] > 0 && points.push([rows.horizon[k], rows.survival[k]]));
    if (points.some((p) => Number.isFinite(p[1])))
      lines.push({ name: criterionName(criterion), points, colour, faint, printed: true, dash: criterion.startsWith('mass') ? '5 3' : null });
  }
  return lines;
}

// The criterion of the overlay; '' until one is chosen.
let criterionShown = '';

const queryHead = () => (state.kind === 'last' && state.head ? state.head.name : 'all');
const SURVIVAL = ['criterion', 'horizon', 'survival'];

// Draws one criterion of all traces.
async function survivalOverlay(some) {
  const name = queryHead(), each = [];
  for (const { trace, table } of some) {
    const rows = await rowsOf(table, name, SURVIVAL) || await rowsOf(table, 'all', SURVIVAL);
    each.push({ trace, lines: survivalLines(rows, false) });
  }
  const names = CRITERIA.map(([c]) => criterionName(c)).filter((c) => each.some(({ lines }) => lines.some((l) => l.name === c)));
  const shown = names.includes(criterionShown) ? criterionShown : names.includes('mass 0.90') ? 'mass 0.90' : names[0], lines = [], problems = [];
  for (const { trace, lines: own } of each) {
    const line = own.find((l) => l.name === shown);
    if (line)
      lines.push({ ...lookOf(trace), points: line.points });
    else
      problems.push(`${shortName(trace)}: no curve of ${shown || 'any criterion'}`);
  }
  const hi = lines.reduce((a, l) => l.points.reduce((b, p) => Math.max(b, p[0]), a), 2);
  const tools = names.length ? choice('Selected set', names.map((c) => [c, c]), shown, (c) => {
    criterionShown = c;
    drawPanel(PANELS.find((p) => p.id === 'survival'));
  }) : null;
  return { lines, problems, tools, x: { label: 'age n, steps', log: true, lo: 1, hi }, y: { label: 'fraction still in use', lo: 0, hi: 1 },
    note: `Estimated fraction of tokens whose last selection comes at age n or later (product limit), ${name === 'all' ? 'all heads' : name}.` };
}

panel('survival', 'Survival', 'survival', ['head', 'kind'], async (table) => {
  const names = SURVIVAL, query = state.kind === 'last' && state.head;
  const rows = query ? await rowsOf(table, state.head.name, names) : null, own = rows ? survivalLines(rows, false) : [];
  const all = survivalLines(await rowsOf(table, 'all', names), own.length > 0);
  if (!all.length)
    return [nothing('No curve: a token is gone when many later ones have not selected it, and fewer than twenty have so many here.')];
  const hi = all.reduce((a, l) => l.points.reduce((b, p) => Math.max(b, p[0]), a), 2);
  const chart = { title: 'Fraction of tokens still in use against their age', lines: [...all, ...own],
    x: { label: 'age n, steps', log: true, lo: 1, hi }, y: { label: 'fraction still in use', lo: 0, hi: 1 } };
  const whose = own.length ? `Lines: ${state.head.name}; faint: all heads.` : 'All heads.';
  return [lineChart(chart), lineKey(own.length ? own : all),
    el('p', { class: 'quiet' }, `Estimated fraction of tokens whose last selection comes at age n or later (product limit). ${whose}`)];
}, () => (state.kind === 'last' && state.head ? ['--head', state.head.name] : []), survivalOverlay);

// ---- occupancy

const OCCUPANCY = { all: [LINES[0], null], prompt: [LINES[1], '5 3'], answer: [LINES[2], '2 2'] };

function occupancyLines(rows, of) {
  return Object.entries(OCCUPANCY).map(([name, [colour, dash]]) => {
    const points = [];
    rows.class.forEach((c, k) => c === name && points.push([rows.step[k], of[k]]));
    return { name, points, colour, dash, printed: true };
  }).filter((line) => line.points.length);
}

async function meanEntries(table) {
  if (table.mean)
    return table.mean;
  const sum = new Float64Array(table.block);
  for (let b = 0; b < table.blocks; b++)
    (await table.column('entries').numbers(b)).forEach((v, k) => { sum[k] += v; });
  table.mean = sum.map((v) => v / table.blocks);
  return table.mean;
}

// Returns the first query of the charts over time: that of the figure `eviction`.
const firstQuery = (traces) => Math.max(0, Math.min(...traces.map((t) => firstView(t, 'alpha', t.T).y0)));

// Draws the entries of one head of all traces.
async function occupancyOverlay(some) {
  const name = state.head ? state.trace.kvHead(state.head) : (await some[0].table.perBlock('head'))[0], lo = firstQuery(some.map(({ trace }) => trace));
  const lines = [], problems = [];
  for (const { trace, table } of some) {
    const rows = trace.T > 1 ? await rowsOf(table, name, ['class', 'step', 'entries']) : null;
    const line = rows && occupancyLines(rows, rows.entries).find((l) => l.name === 'all');
    if (line)
      lines.push({ ...lookOf(trace), points: line.points.filter(([t]) => t >= lo) });
    else
      problems.push(`${shortName(trace)}: no occupancy of ${name}`);
  }
  const values = lines.flatMap((l) => l.points.map((p) => p[1])), hi = Math.max(1, ...values), T = Math.max(...some.map(({ trace }) => trace.T));
  return { lines, problems, x: { label: 'query t', whole: true, lo, hi: Math.max(lo + 1, T - 1) }, y: { label: 'cached entries', lo: 0, hi: hi * 1.04 },
    note: `Entries that ${name} caches at query t.` };
}

panel('occupancy', 'Occupancy', 'occupancy', ['head', 'kind'], async (table, trace) => {
  const name = state.head ? trace.kvHead(state.head) : (await table.perBlock('head'))[0];
  const rows = await rowsOf(table, name, ['class', 'step', 'entries']);
  if (!rows)
    return [el('p', { class: 'quiet' }, `No rows of ${name}.`)];
  if (trace.T === 1)
    return [nothing(`No curve: the trace has one step, at whose query ${name} holds ${rows.entries[0]}.`)];
  const own = occupancyLines(rows, rows.entries);
  const mean = occupancyLines(rows, await meanEntries(table)).filter((l) => l.name === 'all')
    .map((l) => ({ ...l, name: 'all, mean of heads', colour: 'currentColor', faint: true, printed: false, dash: null }));
  const lo = firstQuery([trace]), lines = [...mean, ...own].map((l) => ({ ...l, points: l.points.filter(([t]) => t >= lo) }));
  const hi = lines.reduce((a, l) => l.points.reduce((b, p) => Math.max(b, p[1]), a), 1);
  const chart = { title: `Entries cached by ${name}`, lines,
    x: { label: 'query t', whole: true, lo, hi: Math.max(lo + 1, trace.T - 1) },
    y: { label: 'cached entries', lo: 0, hi: hi * 1.04 } };
  return [lineChart(chart), lineKey(chart.lines), el('p', { class: 'quiet' }, `Entries that ${name} caches at query t.`)];
}, () => [...(state.head ? ['--head', state.trace.kvHead(state.head)] : []), '--figure', 'occupancy-curves'], occupancyOverlay);

// ---- density

async function densityLine(table, head) {
  const rows = await rowsOf(table, head, ['bin_low', 'bin_high', 'share']), points = [];
  if (!rows)
    return null;
  rows.share.forEach((v, k) => points.push([rows.bin_low[k], v * rows.share.length], [rows.bin_high[k], v * rows.share.length]));
  return points;
}

const densityAxes = (lines) => ({ x: { label: 'position in the text', lo: 0, hi: 1 },
  y: { label: 'density', lo: 0, hi: lines.reduce((a, l) => l.points.reduce((b, p) => Math.max(b, p[1] || 0), a), 1) * 1.04 } });

// Draws one head of all traces.
async function densityOverlay(some) {
  const name = state.head ? state.trace.kvHead(state.head) : 'all', lines = [], problems = [];
  for (const { trace, table } of some) {
    const points = trace.T > 1 ? await densityLine(table, name) : null;
    if (points)
      lines.push({ ...lookOf(trace), points });
    else
      problems.push(`${shortName(trace)}: no density of ${name}`);
  }
  return { lines, problems, ...densityAxes(lines), note: `Positions of the entries that ${name === 'all' ? 'all heads cache' : `${name} caches`} at the end; 1 = uniform.` };
}

panel('density', 'Where in the text', 'density', ['head', 'kind'], async (table, trace) => {
  const name = state.head ? trace.kvHead(state.head) : '', lines = [];
  if (trace.T === 1)
    return [nothing('No density: the trace has one token.')];
  for (const [head, colour, faint] of [['all', 'currentColor', true], [name, LINES[0], false]]) {
    const points = await densityLine(table, head);
    if (points)
      lines.push({ name: head === 'all' ? 'all heads' : head, points, colour, faint, printed: !faint });
  }
  return [lineChart({ title: 'Density of cached entries over the text', lines, ...densityAxes(lines) }), lineKey(lines),
    nothing('Positions of the entries that are cached at the end; 1 = uniform.')];
}, () => (state.head ? ['--head', state.trace.kvHead(state.head), '--style', 'by=head'] : []), densityOverlay);

// ---- layer x head maps of fractions, with colours from 0 to 1

// Returns {heads, layers, indices, values, own} of a column; own: the blocks of single heads.
async function headValues(table, column, row) {
  const [heads, layers, indices] = await Promise.all(['head', 'layer', 'index'].map((c) => table.perBlock(c)));
  const values = [];
  for (let b = 0; b < table.blocks; b++)
    values.push((await table.column(column).numbers(b))[row]);
  return { heads, layers, indices, values, own: heads.map((h, b) => b).filter((b) => heads[b] !== 'all') };
}

// Returns the common value of all heads, or NaN if they differ.
const commonValue = ({ own, values }) => (own.every((b) => values[b] === values[own[0]]) ? values[own[0]] : NaN);

// Returns the overlay of a column: its mean over the heads of each layer, one line per trace.
async function layerOverlay(some, column, row, label, what) {
  const lines = [], same = [];
  for (const { trace, table } of some) {
    const v = await headValues(table, column, await row(table)), layers = [...new Set(v.own.map((b) => v.layers[b]))], common = commonValue(v);
    const mean = (layer) => v.own.filter((b) => v.layers[b] === layer && !Number.isNaN(v.values[b])).reduce((m, b, k) => m + (v.values[b] - m) / (k + 1), 0);
    lines.push({ ...lookOf(trace), points: layers.map((layer) => [layer, mean(layer)]) });
    if (!Number.isNaN(common))
      same.push(`${shortName(trace)}: every head ${percent(common)}`);
  }
  const points = lines.flatMap((l) => l.points), hi = Math.max(...points.map((p) => p[1]));
  if (same.length === some.length)
    return { lines, sentence: `${what}: all heads are equal.`, facts: same };
  return { lines, x: { label: 'layer', whole: true, lo: 0, hi: Math.max(1, ...points.map((p) => p[0])) }, y: { label, lo: 0, hi: hi > 0 ? Math.min(1, hi * 1.1) : 1 },
    note: `${what}. Mean over the heads of a layer.${same.length ? ` ${same.join('; ')}.` : ''}` };
}

async function layerMap(table, column, row, label) {
  const all = await headValues(table, column, row), { heads, layers, indices, values, own } = all, common = commonValue(all);
  if (own.length > 1 && !Number.isNaN(common))
    return [nothing(`All ${own.length} heads have the same ${label}: ${percent(common)}.`)];
  const L = Math.max(...layers) + 1, G = Math.max(...indices) + 1, cell = Math.min(14, 400 / L), tall = Math.max(cell, Math.min(14, 160 / G));
  const out = svg('svg', { viewBox: `0 0 ${26 + L * cell + 2} ${G * tall + 18}`, class: 'layers', role: 'img',
    'aria-label': `${label} by layer and head` });
  for (const b of own)
    out.append(svg('rect', { x: 26 + layers[b] * cell, y: indices[b] * tall, width: cell - 0.6, height: tall - 0.6,
      fill: cssColour(state.colours, values[b]), 'data-head': heads[b], class: onPaperWhite(state.colours) ? 'printed' : null,
      onclick: () => chooseHead(heads[b], layers[b], indices[b]) }, svg('title', {}, `${heads[b]}: ${shortNumber(values[b])}`)));
  for (const l of wholeTicks(0, L - 1, 6))
    out.append(svg('text', { class: 'tick', x: 26 + (l + 0.5) * cell, y: G * tall + 12, 'text-anchor': 'middle' }, String(l)));
  for (const g of wholeTicks(0, Math.max(1, G - 1), Math.min(G, 4)).filter((v) => v < G))
    out.append(svg('text', { class: 'tick', x: 20, y: (g + 0.5) * tall + 3.5, 'text-anchor': 'end' }, String(g)));
  out.style.maxWidth = `${1.25 * (26 + L * cell + 2)}px`;
  return [out, colourBar(state.colours, '0', '1', label)];
}

function chooseHead(name, layer, index) {
  showHead(state.trace.headFor(state.kind, { name, layer, index }));
}

const rowOfEnd = async (table) => (await table.column('at').strings(0)).indexOf('end');

panel('sizes', 'Cache size by head', 'kv-size', ['colours'], async (table) => {
  const at = await rowOfEnd(table), share = (await rowsOf(table, 'all', ['size'])).size[at];
  return [...await layerMap(table, 'size', at, 'fraction of tokens cached at the end'),
    el('p', { class: 'quiet' }, `Layers across, heads down. All heads: ${shortNumber(share)}.`)];
}, () => ['--style', 'at=end'], (some) => layerOverlay(some, 'size', rowOfEnd, 'fraction of tokens cached', 'Fraction of tokens cached at the end'));

const SPARSE = { alpha: ['alpha', 'kept'], beta: ['beta', 'retained'], last: ['last-use', 'in use'] };

const sparsityWords = () => `Fraction of all pairs of a query and an earlier token that are not ${SPARSE[state.kind][1]}`;
const dilutionWords = (table) => `Attention to irrelevant entries (useful: ${table.about.get('useful')}), mean ${table.command.includes(' --tokens ') ? 'after the prompt' : 'of all queries'}`;

panel('sparsity', 'Sparsity by head', () => `sparsity-${SPARSE[state.kind][0]}`, ['kind', 'colours'], async (table) => [
  ...await layerMap(table, 'sparsity', 0, `fraction not ${SPARSE[state.kind][1]}`), nothing(`${sparsityWords()}.`)], () => [],
(some) => layerOverlay(some, 'sparsity', async () => 0, `fraction not ${SPARSE[state.kind][1]}`, sparsityWords()));

panel('dilution', 'Dilution', 'dilution', ['colours'], async (table) => [
  ...await layerMap(table, 'dilution', 0, 'dilution'), nothing(`${dilutionWords(table)}.`)], () => ['--figure', 'map'],
(some) => layerOverlay(some, 'dilution', async () => 0, 'dilution', dilutionWords(some[0].table)));
