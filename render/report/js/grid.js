// grid.js - the overview: a thumbnail for each head, a row for each layer.

const grid = { buttons: new Map(), stop: null, drawn: 0 };

function thumbSize(heads, layers) {
  const most = Math.max(...layers.map((l) => heads.filter((h) => h.layer === l).length), 1);
  return heads.length > 600 ? 22 : most > 6 ? 28 : heads.length > 48 ? 36 : 52;
}

function buildGrid() {
  const host = byId('grid'), heads = state.trace.heads[state.kind] || [], layers = [...new Set(heads.map((h) => h.layer))];
  const size = thumbSize(heads, layers);
  grid.buttons.clear();
  host.style.setProperty('--thumb', `${size}px`);
  host.replaceChildren(...layers.map((layer) => el('div', { class: 'layer', role: 'group', 'aria-label': `Layer ${layer}` },
    el('span', { class: 'name', 'aria-hidden': 'true' }, String(layer)),
    heads.filter((h) => h.layer === layer).map((head) => thumb(head)))));
  if (!heads.length)
    host.append(el('p', { class: 'quiet' }, state.trace.why(state.kind)));
  byId('overview-note').textContent = heads.length ? `${heads.length} ${state.kind === 'last' ? 'query heads' : 'KV heads'}` : '';
  drawThumbs(heads, size);
}

function thumb(head) {
  const button = el('button', { type: 'button', class: 'thumb', title: head.name, 'aria-label': `Head ${head.name}`, tabindex: '-1',
    'data-head': head.name, onclick: () => change({ head }) }, el('canvas', { 'aria-hidden': 'true' }));
  grid.buttons.set(head.name, button);
  return button;
}

function drawThumbs(heads, size) {
  const { trace, kind, colours } = state, view = { x0: 0, x1: Math.max(1, trace.T), y0: 0, y1: Math.max(1, trace.T) };
  const pixels = Math.round(size * Math.min(2, window.devicePixelRatio || 1));
  let at = 0;
  if (grid.stop)
    grid.stop();
  grid.drawn = 0;
  grid.stop = inPieces(async () => {
    const head = heads[at++];
    if (!head)
      return false;
    const series = await trace.readSeries(kind, head);
    paint(grid.buttons.get(head.name).firstChild, trace.raster(series, view, pixels, pixels), colours, 0, 1);
    grid.drawn = at;
    return at < heads.length;
  }, () => performance.mark('kvfate-grid'));
}

function markThumb() {
  for (const [name, button] of grid.buttons) {
    const on = Boolean(state.head) && name === state.head.name;
    button.setAttribute('aria-pressed', String(on));
    button.tabIndex = on ? 0 : -1;
  }
}

function watchGrid(changed) {
  if (has(changed, 'trace', 'kind', 'colours'))
    buildGrid();
  if (has(changed, 'trace', 'kind', 'colours', 'head'))
    markThumb();
}
