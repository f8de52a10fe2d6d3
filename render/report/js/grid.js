// grid.js - the overview: a thumbnail per head and a row per layer, of the part of the plane that the map shows.

const grid = { buttons: new Map(), stop: null, size: 20, down: 1, most: 1, layers: 0, later: 0 };

// Returns the largest thumbnails for which all layers fit: {size, down: layers in a column}.
function layOut(layers, most, width, height) {
  const gap = 3, name = 24;
  for (let size = 48; size > 14; size--)
    for (let across = 1; across <= 6; across++) {
      const down = Math.ceil(layers / across), wide = across * (name + most * (size + gap)) + (across - 1) * 12;
      if (wide <= width && down * (size + gap) <= height)
        return { size, down };
    }
  return { size: 20, down: Math.ceil(layers / Math.max(1, Math.floor(width / (name + most * 23)))) };
}

// Returns the layers per column if the width has as many columns as fit.
const downIn = (width, size, layers, most) => Math.ceil(layers / Math.max(1, Math.floor(width / (36 + most * (size + 3)))));

function buildGrid() {
  const host = byId('grid'), heads = state.trace.heads[state.kind] || [], layers = [...new Set(heads.map((h) => h.layer))];
  const most = Math.max(1, ...layers.map((l) => heads.filter((h) => h.layer === l).length)), narrow = window.innerWidth <= 1080;
  const width = narrow ? document.documentElement.clientWidth - 48 : Math.min(330, window.innerWidth * 0.21);
  const { size, down: high } = layOut(layers.length, most, width, narrow ? 600 : Math.max(360, window.innerHeight - host.getBoundingClientRect().top - window.scrollY - 20));
  const down = narrow ? Math.min(high, downIn(width, size, layers.length, most)) : high; // a narrow page has all of its width for them
  grid.buttons.clear();
  Object.assign(grid, { size, down, most, layers: layers.length });
  gridDown();
  host.replaceChildren(...layers.map((layer) => el('div', { class: 'layer', role: 'group', 'aria-label': `Layer ${layer}` },
    el('span', { class: 'name', 'aria-hidden': 'true' }, String(layer)),
    heads.filter((h) => h.layer === layer).map((head) => thumb(head)))));
  if (!heads.length)
    host.append(el('p', { class: 'quiet' }, state.trace.why(state.kind)));
  byId('grid-tools').replaceChildren(...(heads.length ? [saveMenu(GRID_VIEW)] : []));
  byId('overview-note').textContent = heads.length ? `${heads.length} ${state.kind === 'last' ? 'query heads' : 'KV heads'}` : '';
  drawThumbs();
}

function placeThumbs(size, down) {
  const { style } = byId('grid');
  style.setProperty('--thumb', `${size}px`);
  style.gridTemplateRows = `repeat(${Math.max(1, down)}, max-content)`;
}

const gridDown = () => placeThumbs(grid.size, grid.down);

// Arranges the layers in as many columns as fit the width.  Returns their height.
function gridAcross(width) {
  const size = Math.min(grid.size, 28), down = downIn(width, size, grid.layers, grid.most);
  placeThumbs(size, down);
  return down * (size + 3);
}

function thumb(head) {
  const button = el('button', { type: 'button', class: 'thumb', title: head.name, 'aria-label': `Head ${head.name}`, tabindex: '-1',
    'data-head': head.name, onclick: () => change({ head }) }, el('canvas', { 'aria-hidden': 'true' }));
  grid.buttons.set(head.name, button);
  return button;
}

function drawThumbs() {
  const { trace, kind, colours, view } = state, heads = trace.heads[kind] || [];
  const pixels = Math.round(grid.size * Math.min(2, window.devicePixelRatio || 1));
  let at = 0;
  if (grid.stop)
    grid.stop();
  grid.stop = inPieces(async () => {
    const head = heads[at++];
    if (!head)
      return false;
    const series = await trace.readSeries(kind, head);
    const button = grid.buttons.get(head.name);
    if (!button) // other heads were laid out meanwhile
      return false;
    paint(button.firstChild, trace.raster(series, view, pixels, pixels), colours, 0, 1);
    return at < heads.length;
  }, () => performance.mark('kvfate-grid'));
}

// Returns a picture of all thumbnails in place, with their layer numbers.
function gridPicture() {
  const host = byId('grid').getBoundingClientRect(), parts = [{ text: `${KINDS[state.kind].label}  \u00b7  ${nameOf(state.trace)}`, x: 10, y: 20, size: 13 }];
  let width = 10 + 7 * parts[0].text.length, height = 40;
  for (const node of document.querySelectorAll('#grid .name, #grid canvas')) {
    const r = node.getBoundingClientRect(), x = r.left - host.left + 10, y = r.top - host.top + byId('grid').scrollTop + 32;
    parts.push(node instanceof HTMLCanvasElement ? { node, x, y, width: r.width, height: r.height } : { text: node.textContent, x, y: y + 12, size: 11, fill: INK.quiet });
    width = Math.max(width, x + r.width + 10);
    height = Math.max(height, y + r.height + 10);
  }
  return { width: Math.ceil(width), height: Math.ceil(height), parts };
}

const GRID_VIEW = { name: 'Heads', picture: gridPicture, table: () => MAP_VIEW.table(),
  commands: () => [ofTable(state.trace, KINDS[state.kind].table, ...viewWords(), '--cmap', state.colours, '-o',
    `${fileStem(state.trace)}-${KINDS[state.kind].table}.pdf`)] };

function markThumb() {
  for (const [name, button] of grid.buttons) {
    const on = Boolean(state.head) && name === state.head.name;
    button.setAttribute('aria-pressed', String(on));
    button.tabIndex = on ? 0 : -1;
  }
}

function watchGrid(changed) {
  if (has(changed, 'trace', 'kind', 'colours', 'view'))
    clearTimeout(grid.later);
  if (has(changed, 'trace', 'kind', 'colours'))
    buildGrid();
  else if (has(changed, 'view'))
    grid.later = setTimeout(drawThumbs, 250);
  if (has(changed, 'trace', 'kind', 'colours', 'head'))
    markThumb();
}
