// main.js - puts the page together.

function drawBar() {
  const kinds = Object.entries(KINDS).map(([kind, k]) => [kind, k.label, state.trace.why(kind)]);
  const others = TRACES.filter((t) => t !== state.trace).map((t) => [String(t.index), t.title]);
  byId('bar').replaceChildren(...[
    TRACES.length > 1 && choice('Trace', TRACES.map((t) => [String(t.index), t.title]), String(state.trace.index), (v) => showTrace(TRACES[v])),
    segments('Map', kinds, state.kind, showKind),
    choice('Colours', COLOUR_MAPS.map((c) => [c, c]), state.colours, (colours) => change({ colours })),
    others.length > 0 && choice('Compare with', [['', 'no comparison'], ...others], state.other ? String(state.other.index) : '',
      (v) => compareWith(v === '' ? null : TRACES[v])),
    el('button', { type: 'button', class: 'push', onclick: helpDialog, 'aria-haspopup': 'dialog' }, 'Keys'),
  ].filter(Boolean));
}

function drawTitle() {
  const { about, title, T } = state.trace, budget = Number(about.get('budget'));
  const parts = [about.get('model'), about.get('method') && `${about.get('method')}${budget ? `, budget ${budget}` : ''}`,
    `${grouped(T)} token${T === 1 ? '' : 's'}${about.has('prompt_tokens') ? `, ${grouped(state.trace.prompt)} of them prompt` : ''}`,
    about.has('layers') && `${about.get('layers')} layers`, about.get('warning')];
  byId('title').textContent = title;
  byId('subtitle').textContent = parts.filter(Boolean).map((p) => isolated(tokenText(p))).join('  \u00b7  ');
  document.title = `${title} \u2013 kvfate report`;
  const { other } = state, differ = other && other.T === T ? other.tokens.raw.filter((w, i) => w !== state.trace.tokens.raw[i]).length : 0;
  byId('problem').hidden = !differ;
  if (differ)
    problem(`The texts of the two traces differ in ${differ} of ${T} tokens: cells of the difference are not of the same tokens.`);
}

const TOOLS = [
  ['\u2212', 'Zoom out', () => zoomKey(1 / 1.5)],
  ['+', 'Zoom in', () => zoomKey(1.5)],
  ['Whole', 'Whole map', () => change({ view: wholeView() })],
  ['Answer', 'The queries after the prompt', () => showAnswer()],
];

function mapTools() {
  const buttons = TOOLS.map(([label, title, action]) =>
    el('button', { type: 'button', title, 'aria-label': title, onclick: action }, label));
  byId('map-tools').replaceChildren(el('div', { class: 'segments', role: 'group', 'aria-label': 'Zoom' }, buttons));
}

function showAnswer() {
  const { prompt, T } = state.trace;
  if (prompt > 0 && prompt < T)
    setView(0, extent(), Math.max(0, prompt - Math.ceil((T - prompt) / 20)), T);
}

function watchBar(changed) {
  if (has(changed, 'trace', 'kind', 'colours', 'other'))
    drawBar();
  if (has(changed, 'trace', 'other'))
    drawTitle();
}

function footer() {
  const about = TRACES[0] ? TRACES[0].about : new Map(), dropped = new Set();
  for (const t of MANIFEST.tables)
    for (const c of t.columns || [])
      if (c.dropped)
        dropped.add(`${t.key}.${c.name}`);
  byId('foot').textContent = `kvfate ${about.get('engine') || ''} report. This file holds all it shows and asks no network.`
    + (dropped.size ? ` Left out for size: ${[...dropped].join(', ')}.` : '');
}

let resizing = 0;
function whenResized() {
  cancelAnimationFrame(resizing);
  resizing = requestAnimationFrame(() => sizePanes() && drawPanes());
}

// On paper: the map as wide as a page, and the whole text.
function beforePrint() {
  const tokens = state.trace.tokens.text.length;
  panes.list.forEach((p) => p.resize(Math.min(p.side, panes.list.length > 1 ? 190 : 560)));
  drawPanes();
  text.pieces.slice(0, tokens > 20000 ? 8 : undefined).forEach(fillPiece);
}

async function start() {
  if (typeof DecompressionStream === 'undefined') {
    problem('This browser cannot unpack the tables: it lacks DecompressionStream (Chrome 80, Firefox 113, Safari 16.4 or later have it).');
    return;
  }
  await Promise.all(TRACES.map((t) => t.load()));
  buildTip();
  mapTools();
  buildPanels();
  listenToText();
  listenToKeys();
  [watchBar, watchGrid, watchPanes, watchText, watchPanels].forEach(whenChanged);
  const first = TRACES[0];
  state.trace = null;
  showTrace(first);
  footer();
  new ResizeObserver(whenResized).observe(byId('panes'));
  window.addEventListener('resize', whenResized);
  window.addEventListener('beforeprint', beforePrint);
  window.addEventListener('afterprint', whenResized);
}

start().catch((e) => problem(`The page could not be drawn: ${e && e.message}`));
