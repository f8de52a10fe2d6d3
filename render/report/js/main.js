// main.js - assembles the page.

function drawBar() {
  const kinds = Object.entries(KINDS).map(([kind, k]) => [kind, k.label, state.trace.why(kind)]);
  const others = TRACES.filter((t) => t !== state.trace).map((t) => [String(t.index), shortName(t)]);
  byId('bar').replaceChildren(...[
    TRACES.length > 1 && choice('Trace', TRACES.map((t) => [String(t.index), shortName(t)]), String(state.trace.index), (v) => showTrace(TRACES[v])),
    segments('Map', kinds, state.kind, showKind),
    choice('Colours', COLOUR_MAPS.map((c) => [c, c]), state.colours, (colours) => change({ colours })),
    others.length > 0 && choice('Compare with', [['', 'no comparison'], ...others], state.other ? String(state.other.index) : '',
      (v) => compareWith(v === '' ? null : TRACES[v])),
    openButton('Open a trace', 'push'),
    el('button', { type: 'button', onclick: helpDialog, 'aria-haspopup': 'dialog', 'aria-label': 'Keys' },
      el('span', { class: 'long' }, 'Keys'), el('span', { class: 'short' }, '?')),
  ].filter(Boolean));
}

function drawTitle() {
  const { about, title, T } = state.trace;
  const parts = [about.get('model'), state.trace.method,
    `${grouped(T)} token${T === 1 ? '' : 's'}${about.has('prompt_tokens') ? `, ${grouped(state.trace.prompt)} of them prompt` : ''}`,
    about.has('layers') && `${about.get('layers')} layers`, about.get('warning')];
  byId('title').textContent = title;
  byId('subtitle').textContent = parts.filter(Boolean).map((p) => isolated(tokenText(p))).join('  \u00b7  ');
  document.title = `${title} \u2013 kvfate report`;
}

const TOOLS = [
  ['\u2212', 'Zoom out', () => zoomKey(1 / 1.5)],
  ['+', 'Zoom in', () => zoomKey(1.5)],
  ['Full', 'Full view, as in the figure', () => change({ view: startView() })],
  ['All', 'All queries, with the prompt', () => change({ view: wholeView() })],
  ['Answer', 'The queries after the prompt', () => showAnswer()],
];

function mapTools() {
  const buttons = TOOLS.map(([label, title, action]) =>
    el('button', { type: 'button', title, 'aria-label': title, onclick: action, disabled: label === 'Answer' && !hasAnswer() }, label));
  byId('map-tools').replaceChildren(el('div', { class: 'segments', role: 'group', 'aria-label': 'Zoom' }, buttons), saveMenu(MAP_VIEW));
}

const hasAnswer = () => state.trace.prompt > 0 && state.trace.prompt < state.trace.T;

function showAnswer() {
  const { prompt, T } = state.trace;
  if (hasAnswer())
    setView(0, extent(), Math.max(0, prompt - Math.ceil((T - prompt) / 20)), T);
}

function watchBar(changed) {
  if (has(changed, 'trace', 'kind', 'colours', 'other'))
    drawBar();
  if (has(changed, 'trace', 'other'))
    drawTitle();
  if (has(changed, 'trace'))
    mapTools();
}

// ---- columns that were omitted because of the file size

// Descriptions of the columns that can be omitted; maps first.
const LEFT_OUT = [['eviction.evict_step', 'maps of what is kept'], ['retention.log_beta', 'maps of retention'],
  ['last-use.last_use_age', 'maps of last use'], ['eviction.score', 'scores of evictions'], ['eviction.margin', 'margins of evictions'],
  ['eviction.reason', 'reasons of evictions'], ['eviction.tie', 'ties of evictions'], ['retention.last_use_age', 'last uses beside retention'],
  ['tokens.mean_retention', 'mean retention of tokens'],
  ['attention.attention', 'attention maps of heads']];

function droppedColumns() {
  const all = MANIFEST.tables.flatMap((t) => (t.columns || []).filter((c) => c.dropped).map((c) => `${t.key}.${c.name}`));
  return [...new Set(all)];
}

function sayLeftOut() {
  const dropped = droppedColumns(), { left_out: size } = MANIFEST;
  if (!dropped.length || !size)
    return;
  const names = LEFT_OUT.filter(([key]) => dropped.includes(key)).map(([, name]) => name);
  const whole = megabytes(size.whole), code = (command) => el('code', {}, wholeWords(command));
  byId('left-out').replaceChildren(el('b', {}, 'Not in this file, '), `which may have ${megabytes(size.most)} MB: ${names.join(', ')}. `
    + `With them it has ${whole} MB: `, code(`${size.command} --max-size ${whole} -o FILE.html`), '; or fewer heads: ', code('--head L0-5K*'), '.');
  byId('left-out').hidden = false;
}

function footer() {
  const about = TRACES[0] ? TRACES[0].about : new Map(), dropped = droppedColumns();
  byId('foot').textContent = `kvfate ${about.get('engine') || ''} report. ${opened.size ? 'Opened files were read in this page and sent nowhere.'
    : 'This file holds all it shows and asks no network.'}` + (dropped.length ? ` Left out for size: ${dropped.join(', ')}.` : '');
  sayLeftOut();
}

let resizing = 0, onPaper = false;
function whenResized() {
  cancelAnimationFrame(resizing);
  resizing = requestAnimationFrame(() => !onPaper && sizePanes() && drawPanes());
}

// Lays out the page for paper, in CSS pixels of a sheet as wide as A4 and as high as Letter, without margins.  All
// thumbnails span the width.  The map is below them on the same sheet if it is not too small, followed by the complete
// text.
const PAPER = { width: 680, height: 930, most: 520, least: 200, others: 280 };

function beforePrint() {
  onPaper = true;
  const tokens = state.trace.tokens.text.length, above = gridAcross(PAPER.width) + document.querySelector('.top').offsetHeight
    + 1.4 * byId('headline').offsetHeight; // some of its lines break on paper
  const room = PAPER.height - PAPER.others - above;
  const third = Math.floor((PAPER.width - 40) / 3) - leftMargin() - MARGIN.right;
  const side = panes.list.length > 1 ? third : room < PAPER.least ? PAPER.most : Math.min(room, PAPER.most);
  panes.list.forEach((p) => p.resize(side));
  drawPanes();
  text.pieces.slice(0, tokens > 20000 ? 8 : undefined).forEach(fillPiece);
}

function afterPrint() {
  onPaper = false;
  buildGrid();
  whenResized();
}

// Shows the traces of the page for the first time.
async function showTraces(asked) {
  listenToKeys();
  listenToAddress();
  layHeadline(TRACES.map(waiting));
  await openAt(asked);
  await drawHeadline();
  footer();
  setTimeout(() => TRACES.forEach((t) => t.fates()), 1500); // ready before a token is pinned
  const sizes = new ResizeObserver(whenResized);
  [byId('panes'), document.querySelector('.overview')].forEach((node) => sizes.observe(node));
  window.addEventListener('resize', whenResized);
  window.addEventListener('beforeprint', beforePrint);
  window.addEventListener('afterprint', afterPrint);
}

async function start() {
  if (TRACES.length && typeof DecompressionStream === 'undefined') {
    problem('This browser cannot unpack the tables: it lacks DecompressionStream (Chrome 80, Firefox 113, Safari 16.4 or later have it).');
    return;
  }
  buildTip();
  buildPanels();
  listenToText();
  listenToMenus();
  listenToFiles();
  findTools();
  [watchBar, watchOrder, watchGrid, watchTime, watchPanes, watchText, watchPanels, watchFound, watchFate, watchHeadline, watchAddress].forEach(whenChanged);
  if (TRACES.length)
    await showTraces(askedFor());
  else
    showOpener();
}

start().catch((e) => problem(`The page could not be drawn: ${e && e.message}`));
