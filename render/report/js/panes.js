// panes.js - the map, or two maps and their difference; the colours; the tooltip.

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

const PHONE = 700, TEXT_LEAST = 300; // CSS pixels: the width below which the text is under the map, and that of the text

// Returns the most width that one map can have beside the text and, on a wide page, the heads.
function mapWidth() {
  const main = byId('main'), style = getComputedStyle(main), inside = main.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  const gap = parseFloat(style.columnGap) || 0, wide = window.innerWidth > NARROW;
  if (window.innerWidth <= PHONE)
    return inside;
  const heads = wide ? document.querySelector('.overview').offsetWidth + gap : 0;
  return inside - heads - gap - Math.max(TEXT_LEAST, 0.26 * inside);
}

// Resizes the maps.  Returns true if their size changed.
function sizePanes() {
  const host = byId('panes'), n = panes.list.length, gap = 20, width = n > 1 ? host.clientWidth : mapWidth();
  const across = n > 1 && width > 720 ? n : 1, room = (width - gap * (across - 1)) / across - leftMargin() - MARGIN.right;
  const most = Math.max(340, window.innerHeight - host.getBoundingClientRect().top - window.scrollY - 96);
  const side = Math.max(120, Math.floor(Math.min(room, n > 1 ? room : most, 1200))), { style } = byId('main');
  style.setProperty('--map', `${side + leftMargin() + MARGIN.right}px`);
  style.setProperty('--tall', `${side}px`);
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
    + `queries ${Math.floor(state.view.y0)}\u2013${Math.ceil(state.view.y1) - 1}`;
  byId('compared').textContent = state.other ? prefixWords(state.trace, state.other) : '';
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
  const floor = onLogs() ? String(LOG_FLOOR) : '0';
  byId('legend').replaceChildren(...[colourBar(state.colours, floor, '1', `${kind.range}${onLogs() ? ' (logarithmic)' : ''}`), state.kind === 'beta' ? segments('Scale of retention',
    [['log', 'Log'], ['linear', 'Linear']], state.scale, (scale) => change({ scale })) : null,
    state.other ? colourBar('difference', '\u22121', '1', `only ${state.other.title} / only ${state.trace.title}`) : null,
    el('span', { class: 'quiet' }, el('span', { class: 'swatch' }), 'no value')].filter(Boolean));
}

// ---- the tooltip

function buildTip() {
  tip.rows = Array.from({ length: 9 }, () => {
    const name = el('dt', {}), value = el('dd', {});
    return { name, value };
  });
  tip.node.replaceChildren(el('dl', {}, tip.rows.map((r) => [r.name, r.value])));
}

const coarse = (v) => String(Number(v.toPrecision(2)));

// Returns the state of a cell in a trace's map, in words.
function cellWords(trace, series, i, t) {
  const v = trace.cell(series, i, t);
  if (state.kind === 'alpha')
    return v ? 'has the token' : 'no longer has it';
  if (state.kind === 'beta')
    return `retains ${shortNumber(v)} of it`;
  return v ? 'will select it again' : 'will not select it again';
}

// Returns the table values of entry i for the pane's head, as lines of a name and a text.
function entryLines(pane, i) {
  const d = pane.detail || {}, [series] = pane.series, [trace] = pane.traces(), lines = [], gone = d.evict_step && d.evict_step[i] >= 0;
  if (series && series.logBeta)
    lines.push(['Retention', `${shortNumber(Math.exp(series.logBeta[i]), 5)} per step, half-life ${halfLifeWords(series.logBeta[i])}`]);
  if (series && series.age)
    lines.push(['Last use', series.age[i] < 0 ? 'never selected' : `at query ${grouped(i + series.age[i])}, age ${grouped(series.age[i])}`]);
  lines.push([d.name && d.name !== state.head.name ? d.name : 'Fate', fateWords(i, d.evict_step && d.evict_step[i], d.reason && d.reason[i])]);
  if (d.score && gone)
    lines.push(['Score', shortNumber(d.score[i]) + (d.margin && !Number.isNaN(d.margin[i]) ? `, ${shortNumber(d.margin[i])} below the worst that stayed` : '')]);
  if (d.hits && gone)
    lines.push(['Needed later', missWords(d.hits[i], d.first_hit ? d.first_hit[i] : NaN)]);
  const { kept } = trace.tokens, N = trace.heads.alpha.length;
  if (N && kept.length)
    lines.push(['All heads', holdWords(Math.round(kept[i] * N), N)]);
  return lines;
}

function cellLines(pane, i, t) {
  const traces = pane.traces(), [trace] = traces, mean = pane.mean(i, t), head = state.head ? state.head.name : 'Head';
  const lines = [['Token', `${i}  ${quotedToken(trace, i)}`], ['Query', `${t}  ${quotedToken(trace, t)}`]];
  const short = traces.find((x) => i >= x.T || t >= x.T);
  if (short)
    return [...lines, ['', `${short.title} ends before`]];
  if (traces.length > 1 && i >= commonTokens(...traces))
    return [...lines, ['', 'not compared: the texts differ here']];
  pane.series.forEach((s, k) => lines.push([traces.length > 1 ? traces[k].title : head, i > t ? 'the token comes after this query' : cellWords(traces[k], s, i, t)]));
  const [w, h] = [['x0', 'x1'], ['y0', 'y1']].map(([a, b]) => (state.view[b] - state.view[a]) / pane.pixels);
  if ((w > 1 || h > 1) && !Number.isNaN(mean))
    lines.push(['This pixel', `${shortNumber(mean)}, the mean of ${coarse(Math.max(1, w))} tokens \u00d7 ${coarse(Math.max(1, h))} queries`]);
  return traces.length > 1 ? lines : [...lines, ...entryLines(pane, i)];
}

// Shows the tooltip of the cell near the point (x, y) of the window.
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
  follow(pane, cell);
  if (cell && pane && pane.series.length)
    showTip(pane, cell.i, cell.t, x, y);
  else
    hideTip();
}

// Scrolls the token under the pointer into view in the other view: the text immediately, the map when the pointer
// rests.
const FOLLOW_REST = 120;
let following = 0, resting = 0;
function follow(pane, cell) {
  cancelAnimationFrame(following);
  clearTimeout(resting);
  if (cell && pane)
    following = requestAnimationFrame(() => revealToken(cell.i, true));
  else if (cell)
    resting = setTimeout(() => showColumn(cell.i), FOLLOW_REST);
}

// Moves the map so that token i is visible.
function showColumn(i) {
  const { x0, x1 } = state.view;
  if (i < x0 || i >= x1)
    panBy(i + 0.5 - (x0 + x1) / 2, 0);
}

// ---- the map as a picture

const roomBeside = () => leftMargin() + MARGIN.right;

function mapPicture() {
  const parts = [{ text: `${byId('map-title').textContent}  \u00b7  ${nameOf(state.trace)}`, x: 10, y: 20, size: 13 }];
  let x = 10, height = 0;
  for (const p of panes.list.filter((q) => !q.problem && q.raster)) {
    const w = p.side + roomBeside(), h = p.side + MARGIN.top + MARGIN.bottom;
    parts.push(...(state.other ? [{ text: p.title.textContent, x: x + leftMargin(), y: 40, fill: INK.quiet }] : []),
      { node: p.canvas, x: x + leftMargin(), y: 48 + MARGIN.top, width: p.side, height: p.side }, { node: p.axes, x, y: 48, width: w, height: h });
    x += w + 20;
    height = Math.max(height, h);
  }
  let at = 10 + leftMargin();
  for (const bar of document.querySelectorAll('#legend .colour-bar')) {
    const [lo, hi, label] = [...bar.querySelectorAll('span')].map((e) => e.textContent);
    parts.push({ text: lo, x: at, y: height + 70 }, { node: bar.querySelector('canvas'), x: at + 22, y: height + 61, width: 120, height: 10 },
      { text: `${hi}   ${label}`, x: at + 150, y: height + 70 });
    at += 190 + 6.2 * label.length;
  }
  return { width: Math.ceil(Math.max(x, at)), height: Math.ceil(height + 86), parts };
}

const MAP_VIEW = { name: 'Map', picture: mapPicture, commands: () => [state.trace, state.other].filter(Boolean).map(mapCommand),
  table: () => {
    const table = state.trace.table(KINDS[state.kind].table);
    return table ? [state.trace, table] : null;
  } };

function watchPanes(changed) {
  if (has(changed, 'trace', 'other'))
    buildPanes();
  if (has(changed, 'trace', 'other', 'kind', 'head'))
    loadPanes();
  else if (has(changed, 'view', 'colours', 'scale'))
    drawPanes();
  if (has(changed, 'pin'))
    panes.list.forEach((p) => p.pin());
}
