// panes.js - the map, or two and their difference; the colours; the tip under the pointer.

const panes = { list: [], cell: null, asked: 0 };
const tip = { node: byId('tip'), rows: [] };

function buildPanes() {
  const roles = state.other ? ['first', 'other', 'difference'] : ['first'];
  if (panes.list.map((p) => p.role).join() !== roles.join()) {
    panes.list = roles.map((role) => panes.list.find((p) => p.role === role) || new Pane(role));
    byId('panes').replaceChildren(...panes.list.map((p) => p.node));
    document.body.classList.toggle('comparing', roles.length > 1);
  }
  sizePanes();
}

// Whether the maps have another size than before.
function sizePanes() {
  const host = byId('panes'), n = panes.list.length, gap = 20, width = host.clientWidth;
  const across = n > 1 && width > 720 ? n : 1, room = (width - gap * (across - 1)) / across - leftMargin() - MARGIN.right;
  const most = Math.max(320, window.innerHeight - 250);
  const side = Math.max(120, Math.floor(Math.min(room, n > 1 ? room : most, 900)));
  const before = panes.list.map((p) => p.pixels).join();
  for (const p of panes.list)
    p.resize(side);
  return before !== panes.list.map((p) => p.pixels).join();
}

async function loadPanes() {
  const asked = ++panes.asked, done = await Promise.all(panes.list.map((p) => p.load(asked)));
  if (done.every(Boolean)) {
    drawPanes();
    tellText();
  }
}

function drawPanes() {
  for (const p of panes.list)
    p.draw();
  if (!performance.getEntriesByName('kvfate-map').length)
    performance.mark('kvfate-map');
  drawLegend();
  const kind = KINDS[state.kind];
  byId('map-title').textContent = state.head ? `${kind.label} \u2013 ${state.head.name}` : 'Map';
  byId('map-note').textContent = isWhole(state.view) ? '' : `tokens ${Math.floor(state.view.x0)}\u2013${Math.ceil(state.view.x1) - 1}, `
    + `steps ${Math.floor(state.view.y0)}\u2013${Math.ceil(state.view.y1) - 1}`;
  hideTip();
}

function colourBar(name, lo, hi, label) {
  const canvas = el('canvas', { class: 'bar-colours', width: 256, height: 1, 'aria-hidden': 'true' });
  const value = Float32Array.from({ length: 256 }, (_, k) => k / 255);
  paint(canvas, { w: 256, h: 1, value, cover: value.map(() => 1) }, name, 0, 1);
  return el('div', { class: 'colour-bar', role: 'img', 'aria-label': `${label}, from ${lo} to ${hi}` }, el('span', {}, lo), canvas,
    el('span', {}, hi), el('span', { class: 'quiet' }, label));
}

function drawLegend() {
  const kind = KINDS[state.kind];
  byId('legend').replaceChildren(...[colourBar(state.colours, '0', '1', `${kind.symbol}: ${kind.range}`),
    state.other ? colourBar('difference', '\u22121', '1', 'difference') : null,
    el('span', { class: 'quiet' }, el('span', { class: 'swatch' }), 'not defined')].filter(Boolean));
}

// ---- the tip

function buildTip() {
  tip.rows = Array.from({ length: 7 }, () => {
    const name = el('dt', {}), value = el('dd', {});
    return { name, value };
  });
  tip.node.replaceChildren(el('dl', {}, tip.rows.map((r) => [r.name, r.value])));
}

function fate(detail, i) {
  const end = detail.evict_step ? detail.evict_step[i] : undefined;
  if (end === undefined)
    return '';
  if (end < 0)
    return 'alive at the end';
  return `evicted at step ${end}, age ${end - i}${detail.reason ? `, ${detail.reason[i]}` : ''}`;
}

const coarse = (v) => String(Number(v.toPrecision(2)));

const oneCell = (v) => (Number.isNaN(v) ? 'not defined' : shortNumber(v));

// What the tables say of the entry i of the pane's head: lines of a name and a text.
function entryLines(pane, i) {
  const d = pane.detail || {}, [series] = pane.series, lines = [];
  if (series && series.logBeta)
    lines.push(['log \u03b2', shortNumber(series.logBeta[i])]);
  if (series && series.age)
    lines.push(['last use', series.age[i] < 0 ? 'never selected' : `age ${series.age[i]}`]);
  lines.push([d.name && d.name !== state.head.name ? d.name : 'entry', `born ${i}; ${fate(d, i) || 'fate not in this file'}`]);
  if (d.score && d.evict_step && d.evict_step[i] >= 0)
    lines.push(['score', shortNumber(d.score[i]) + (d.margin ? `, margin ${shortNumber(d.margin[i])}` : '')]);
  return lines;
}

function cellLines(pane, i, t) {
  const traces = pane.traces(), [trace] = traces, mean = pane.mean(i, t);
  const lines = [['token', `${i}  ${quotedToken(trace, i)}`], ['step', `${t}  ${quotedToken(trace, t)}`]];
  if (i >= trace.T || t >= trace.T)
    return [...lines, ['', `${trace.title} ends before`]];
  const values = pane.series.map((s, k) => oneCell(traces[k].cell(s, i, t)));
  lines.push([KINDS[state.kind].symbol, i > t ? 'future: t < i' : values.join(' \u2212 ')]);
  const [w, h] = [['x0', 'x1'], ['y0', 'y1']].map(([a, b]) => (state.view[b] - state.view[a]) / pane.pixels);
  if ((w > 1 || h > 1) && !Number.isNaN(mean))
    lines.push(['pixel mean', `${shortNumber(mean)} of ${coarse(w)} \u00d7 ${coarse(h)} cells`]);
  return [...lines, ...entryLines(pane, i)];
}

// Shows the tip of the cell beside the point (x, y) of the window.
function showTip(pane, i, t, x, y) {
  const lines = cellLines(pane, i, t);
  tip.rows.forEach((row, k) => {
    const line = lines[k];
    row.name.hidden = row.value.hidden = !line;
    if (line) {
      row.name.textContent = line[0];
      row.value.textContent = line[1];
    }
  });
  tip.node.hidden = false;
  const width = 300, left = x + 18 + width > document.documentElement.clientWidth ? Math.max(4, x - width - 18) : x + 18;
  const above = y > window.innerHeight - 190;
  tip.node.style.transform = `translate(${left}px, ${above ? y - 14 : y + 18}px)${above ? ' translateY(-100%)' : ''}`;
}

function hideTip() {
  tip.node.hidden = true;
}

function pointAt(pane, cell, x, y) {
  panes.cell = cell;
  for (const p of panes.list)
    p.point(cell);
  hoverText(cell ? cell.i : null);
  if (cell && pane && pane.series.length)
    showTip(pane, cell.i, cell.t, x, y);
  else
    hideTip();
}

function watchPanes(changed) {
  if (has(changed, 'trace', 'other'))
    buildPanes();
  if (has(changed, 'trace', 'other', 'kind', 'head'))
    loadPanes();
  else if (has(changed, 'view', 'colours'))
    drawPanes();
  if (has(changed, 'pin'))
    panes.list.forEach((p) => p.pin());
}
