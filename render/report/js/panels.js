// panels.js - the panels below the map.  Each shows one table, or explains why the table is
// missing.

const PANELS = [];

// make(table, trace) returns the content; watch: names of the state that it depends on besides the trace; how: words of
// the command that draws the panel, after the words of its table.
function panel(id, title, keys, watch, make, how = () => []) {
  PANELS.push({ id, title, keys, watch: ['trace', ...watch], make, how, asked: 0 });
}

const keyOf = (p) => (typeof p.keys === 'function' ? p.keys() : p.keys);

// Returns the view for the save menu of a panel.
const panelView = (p) => ({ name: p.title,
  commands: () => [ofTable(state.trace, keyOf(p), ...p.how(), '-o', `${fileStem(state.trace)}-${p.id}.pdf`)],
  picture: () => chartPicture(p.body.querySelector('svg.chart, svg.layers'), `${p.title}  \u00b7  ${nameOf(state.trace)}`),
  table: () => [state.trace, state.trace.table(keyOf(p))] });

function buildPanels() {
  byId('panels').replaceChildren(...PANELS.map((p) => {
    p.body = el('div', { class: 'body' });
    return el('section', { class: `panel ${p.id}`, id: `panel-${p.id}`, 'aria-labelledby': `title-${p.id}` },
      el('div', { class: 'head' }, el('h2', { id: `title-${p.id}` }, p.title), el('span', { class: 'push' }, p.menu = el('span', {}))), p.body);
  }));
}

const nothing = (why) => el('p', { class: 'quiet' }, why);

async function drawPanel(p) {
  const { trace } = state, asked = ++p.asked, key = keyOf(p);
  const table = key && trace.table(key);
  let parts;
  if (key && !table)
    parts = [nothing(trace.absent.get(key) || 'Not in this file.')];
  else if (key && !(table.rows && trace.T))
    parts = [nothing('No data: the trace has no tokens.')];
  else
    parts = [...await p.make(table, trace), table?.about.has('note') && nothing(`Note: ${table.about.get('note')}.`)];
  if (asked !== p.asked)
    return;
  p.body.replaceChildren(...parts.filter(Boolean));
  p.menu.replaceChildren(...(table && table.rows ? [saveMenu(panelView(p))] : []));
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

panel('survival', 'Survival', 'survival', ['head', 'kind'], async (table) => {
  const names = ['criterion', 'horizon', 'survival'], query = state.kind === 'last' && state.head;
  const rows = query ? await rowsOf(table, state.head.name, names) : null, own = rows ? survivalLines(rows, false) : [];
  const all = survivalLines(await rowsOf(table, 'all', names), own.length > 0);
  if (!all.length)
    return [nothing('No curve: a token is gone when many later ones have not selected it, and fewer than twenty have so many here.')];
  const hi = all.reduce((a, l) => l.points.reduce((b, p) => Math.max(b, p[0]), a), 2);
  const chart = { title: 'Share of tokens still in use against their age', lines: [...all, ...own],
    x: { label: 'age n, steps', log: true, lo: 1, hi }, y: { label: 'share', lo: 0, hi: 1 } };
  const whose = own.length ? `Lines: ${state.head.name}; faint: all heads.` : 'All heads.';
  return [lineChart(chart), lineKey(own.length ? own : all),
    el('p', { class: 'quiet' }, `Estimated share of tokens whose last selection comes at age n or later (product limit). ${whose}`)];
}, () => (state.kind === 'last' && state.head ? ['--head', state.head.name] : []));

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
  const hi = [...own, ...mean].reduce((a, l) => l.points.reduce((b, p) => Math.max(b, p[1]), a), 1);
  const chart = { title: `Entries held by ${name}`, lines: [...mean, ...own],
    x: { label: 'query t', whole: true, lo: 0, hi: Math.max(1, trace.T) },
    y: { label: 'entries', lo: 0, hi: hi * 1.04 } };
  return [lineChart(chart), lineKey(chart.lines), el('p', { class: 'quiet' }, `Entries that ${name} holds at query t.`)];
}, () => [...(state.head ? ['--head', state.trace.kvHead(state.head)] : []), '--figure', 'occupancy-curves']);

// ---- layer x head maps of fractions, with colours from 0 to 1

async function layerMap(table, column, row, label) {
  const [heads, layers, indices] = await Promise.all(['head', 'layer', 'index'].map((c) => table.perBlock(c)));
  const values = [];
  for (let b = 0; b < table.blocks; b++)
    values.push((await table.column(column).numbers(b))[row]);
  const own = heads.map((h, b) => b).filter((b) => heads[b] !== 'all');
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
  change({ head: state.trace.headFor(state.kind, { name, layer, index }) });
}

panel('sizes', 'Cache size by head', 'kv-size', ['colours'], async (table) => {
  const at = (await table.column('at').strings(0)).indexOf('end'), share = (await rowsOf(table, 'all', ['size'])).size[at];
  return [...await layerMap(table, 'size', at, 'share of the tokens held at the end'),
    el('p', { class: 'quiet' }, `Layers across, heads down. All heads: ${shortNumber(share)}.`)];
}, () => ['--style', 'at=end']);

const SPARSE = { alpha: ['alpha', 'kept'], beta: ['beta', 'retained'], last: ['last-use', 'in use'] };

panel('sparsity', 'Sparsity by head', () => `sparsity-${SPARSE[state.kind][0]}`, ['kind', 'colours'], async (table) => [
  ...await layerMap(table, 'sparsity', 0, `share not ${SPARSE[state.kind][1]}`),
  el('p', { class: 'quiet' }, `Share of all pairs of a query and an earlier token that are not ${SPARSE[state.kind][1]}.`)]);

// ---- density

panel('density', 'Where in the text', 'density', ['head', 'kind'], async (table, trace) => {
  const name = state.head ? trace.kvHead(state.head) : '', lines = [];
  if (trace.T === 1)
    return [nothing('No density: the trace has one token.')];
  for (const [head, colour, faint] of [['all', 'currentColor', true], [name, LINES[0], false]]) {
    const rows = await rowsOf(table, head, ['bin_low', 'bin_high', 'share']), points = [];
    if (!rows)
      continue;
    const n = rows.share.length;
    rows.share.forEach((v, k) => points.push([rows.bin_low[k], v * n], [rows.bin_high[k], v * n]));
    lines.push({ name: head === 'all' ? 'all heads' : head, points, colour, faint, printed: !faint });
  }
  const hi = lines.reduce((a, l) => l.points.reduce((b, p) => Math.max(b, p[1] || 0), a), 1);
  return [lineChart({ title: 'Density of held entries over the text', lines, x: { label: 'position in the text', lo: 0, hi: 1 },
    y: { label: 'density', lo: 0, hi: hi * 1.04 } }), lineKey(lines),
    el('p', { class: 'quiet' }, 'Where the entries that are held at the end lie in the text; 1 is evenly.')];
}, () => (state.head ? ['--head', state.trace.kvHead(state.head), '--style', 'by=head'] : []));
