// keys.js - the keyboard.

const COLOUR_MAPS = ['blues', 'viridis', 'cividis', 'magma'];
const KEYS = [
  ['\u2190 \u2192', 'previous, next head'],
  ['\u2191 \u2193', 'the same head, a layer up or down'],
  ['1 2 3', 'kept, retention, last use'],
  ['p', 'play the queries, or pause'],
  [', .', 'previous, next query (Shift: 10 queries)'],
  ['t', 'next trace'],
  ['d', 'compare with the next trace, or not'],
  ['c', 'next colour map'],
  ['+ \u2212', 'zoom in, out'],
  ['0 a', 'full view, as in the figure; all queries, with the prompt'],
  ['l', 'logarithmic or linear scale of retention'],
  ['s o', 'search in the heads; next order of the heads'],
  ['i', 'panels: only one trace, the next one, all'],
  ['Shift + arrows', 'move the crosshair (says the cell)'],
  ['Enter', 'pin the token under the crosshair'],
  ['[ ]', 'pin the token before, after'],
  ['/', 'find in the text; Enter and Shift + Enter: next, previous place'],
  ['n', 'next place found'],
  ['y', 'copy the command of the map'],
  ['Tab', 'on to thumbnails, map, text, fates (arrow keys: another head), menus'],
  ['Esc', 'one at a time: close, pause, unpin, all queries, no search, all heads, all traces, full view'],
  ['?', 'these keys'],
];
const HANDS = 'Mouse: point to read a cell, click to pin its token, drag a box to zoom in, wheel to zoom, Shift and drag to move, '
  + 'double-click for the full view. Touch: tap to read and pin, pinch to zoom, drag to move.';

function helpDialog() {
  byId('help').replaceChildren(el('h2', { id: 'help-title' }, 'Keys, mouse and touch'),
    el('dl', { class: 'facts' }, KEYS.map(([k, what]) => [el('dt', {}, el('kbd', {}, k)), el('dd', {}, what)])),
    el('p', {}, HANDS),
    el('form', { method: 'dialog' }, el('button', { type: 'button', onclick: () => byId('help').close() }, 'Close')));
  byId('help').showModal();
}

function moveCross(dx, dy) {
  const v = state.view, cell = panes.cell || { i: Math.floor((v.x0 + v.x1) / 2), t: Math.floor((v.y0 + v.y1) / 2) }, last = extent() - 1;
  const i = Math.min(last, Math.max(0, cell.i + dx)), t = Math.min(last, Math.max(0, (cell.t ?? cell.i) + dy)), pane = panes.list[0];
  const box = pane.frame.getBoundingClientRect(), x = (i + 0.5 - v.x0) / (v.x1 - v.x0), y = (t + 0.5 - v.y0) / (v.y1 - v.y0);
  pointAt(pane, { i, t }, box.left + x * pane.side, box.top + y * pane.side);
  say(cellLines(pane, i, t).map((l) => l.join(' ')).join('; '));
}

function zoomKey(factor) {
  const v = state.view, c = panes.cell;
  zoomAt(c ? c.i + 0.5 : (v.x0 + v.x1) / 2, c && c.t !== undefined ? c.t + 0.5 : (v.y0 + v.y1) / 2, factor);
}

async function copyMapCommand() {
  const text = [state.trace, state.other].filter(Boolean).map(mapCommand).join('\n');
  await copyText(text);
  say(`Copied: ${text}`);
}

const nextOf = (list, now) => list[(list.indexOf(now) + 1) % list.length];

function toggleCompare() {
  if (TRACES.length > 1)
    compareWith(state.other ? null : nextOf(TRACES, state.trace));
}

function toggleScale() {
  change({ scale: state.scale === 'log' ? 'linear' : 'log' });
  say(`${state.scale === 'log' ? 'Logarithmic' : 'Linear'} scale of retention`);
}

function nextOrder() {
  const orders = [...byId('order-tools').querySelectorAll('option:not([disabled])')].map((o) => o.value);
  change({ order: nextOf(orders, state.order), rising: false });
  say(`Heads sorted by ${labelOf(state.order)}`);
}

function nextSingle() {
  if (TRACES.length > 1)
    showSingle([null, ...TRACES][(TRACES.indexOf(state.single) + 2) % (TRACES.length + 1)]);
}

// Undoes the first of these that is shown: the cell under the crosshair, playing, the pinned token, the time, the text
// that is searched, the search and the order of the heads, the single trace of the panels, the part of the map.
function undoOne() {
  if (panes.cell && !tip.node.hidden)
    pointAt(null, null);
  else if (clock.timer)
    pause();
  else if (state.pin !== null)
    change({ pin: null });
  else if (state.time !== null)
    change({ time: null });
  else if (state.found)
    change({ found: '' });
  else if (state.wanted.trim())
    change({ wanted: '' });
  else if (state.order !== 'layer' || state.rising)
    change({ order: 'layer', rising: false });
  else if (state.single)
    showSingle(null);
  else
    change({ view: startView() });
}

const ACTIONS = {
  ArrowLeft: () => stepHead(-1),
  ArrowRight: () => stepHead(1),
  ArrowUp: () => stepHead(-1, true),
  ArrowDown: () => stepHead(1, true),
  1: () => showKind('alpha'),
  2: () => showKind('beta'),
  3: () => showKind('last'),
  t: () => showTrace(nextOf(TRACES, state.trace)),
  d: toggleCompare,
  c: () => change({ colours: nextOf(COLOUR_MAPS, state.colours) }),
  '+': () => zoomKey(1.5),
  '=': () => zoomKey(1.5),
  '-': () => zoomKey(1 / 1.5),
  0: () => change({ view: startView() }),
  a: () => change({ view: wholeView() }),
  p: togglePlay,
  ',': () => stepTime(-1),
  '.': () => stepTime(1),
  '<': () => stepTime(-10),
  '>': () => stepTime(10),
  l: toggleScale,
  s: () => byId('head-search').focus(),
  o: nextOrder,
  i: nextSingle,
  '?': helpDialog,
  '/': () => byId('find').focus(),
  n: () => nextFound(1),
  y: copyMapCommand,
  '[': () => stepPin(-1),
  ']': () => stepPin(1),
  Escape: undoOne,
  Enter: () => panes.cell && change({ pin: panes.cell.i }),
};
const CROSS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function listenToKeys() {
  document.addEventListener('keydown', (e) => {
    const { target } = e, slides = target.matches('input[type=range]'), typing = !slides && target.closest('select, input, textarea, dialog'), scrolls = target.closest('.text, .scroll');
    const press = e.key === 'Enter' && target.closest('button, a, summary');
    if (e.ctrlKey || e.metaKey || e.altKey || typing || press || !state.head || ((scrolls || slides) && e.key.startsWith('Arrow') && !e.shiftKey))
      return;
    const step = e.shiftKey && CROSS[e.key], action = ACTIONS[e.key.length === 1 ? e.key.toLowerCase() : e.key];
    if (!step && !action)
      return;
    e.preventDefault();
    if (step)
      moveCross(...step);
    else
      action();
    if (e.key.startsWith('Arrow') && !step)
      say(`Head ${state.head.name}`);
  });
}
