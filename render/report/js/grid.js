// grid.js - the overview: a thumbnail per head and a row per layer, of the part of the plane that the map shows.

const grid = { buttons: new Map(), list: [], flat: false, asked: 0, stop: null, size: 20, down: 1, most: 1, layers: 0, later: 0 };

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

const NARROW = 1200; // CSS pixels; as in style.css

// Draws the heads in the order of the model, without a search in rows of layers, else each with its name and value.
async function buildGrid() {
  const asked = ++grid.asked, flat = state.order !== 'layer' || state.rising || state.wanted.trim() !== '';
  const list = flat ? await orderedHeads() : (state.trace.heads[state.kind] || []).map((head) => ({ head }));
  if (asked !== grid.asked)
    return;
  grid.list = list.map(({ head }) => head);
  grid.flat = flat;
  grid.buttons.clear();
  byId('grid').classList.toggle('flat', flat);
  if (flat)
    layFlat(list);
  else
    layLayers(grid.list);
  const all = (state.trace.heads[state.kind] || []).length, n = grid.list.length;
  byId('grid-tools').replaceChildren(...(all ? [saveMenu(GRID_VIEW)] : []));
  byId('overview-note').textContent = all ? `${n < all ? `${n} of ` : ''}${all} ${state.kind === 'last' ? 'query heads' : 'KV heads'}` : '';
  markThumb();
  drawThumbs();
}

function gridWidth() {
  return window.innerWidth <= NARROW ? document.documentElement.clientWidth - 48 : Math.min(420, Math.max(230, window.innerWidth * 0.21));
}

function layLayers(heads) {
  const host = byId('grid'), layers = [...new Set(heads.map((h) => h.layer))], narrow = window.innerWidth <= NARROW, width = gridWidth();
  const most = Math.max(1, ...layers.map((l) => heads.filter((h) => h.layer === l).length));
  const { size, down: high } = layOut(layers.length, most, width, narrow ? 600 : Math.max(360, window.innerHeight - host.getBoundingClientRect().top - window.scrollY - 20));
  const down = narrow ? Math.min(high, downIn(width, size, layers.length, most)) : high; // a narrow page has all of its width for them
  Object.assign(grid, { size, down, most, layers: layers.length, top: host.offsetTop });
  host.style.width = '';
  gridDown();
  host.replaceChildren(...layers.map((layer) => el('div', { class: 'layer', role: 'group', 'aria-label': `Layer ${layer}` },
    el('span', { class: 'name', 'aria-hidden': 'true' }, String(layer)),
    heads.filter((h) => h.layer === layer).map((head) => thumb(head)))));
  if (!heads.length)
    host.append(el('p', { class: 'quiet' }, state.trace.why(state.kind)));
}

// Lays the rows out again when what is above them has changed its height.
function gridMoved() {
  if (grid.flat || byId('grid').offsetTop === grid.top)
    return;
  grid.buttons.clear();
  layLayers(grid.list);
  markThumb();
  drawThumbs();
}

const FLAT_SIZE = 46; // CSS pixels of a thumbnail with a name

// list: [{head, value}]
function layFlat(list) {
  const host = byId('grid'), words = (v) => (typeof v === 'string' ? v : v === undefined || Number.isNaN(v) ? '' : shortNumber(v, 3));
  Object.assign(grid, { size: FLAT_SIZE });
  host.style.width = `${gridWidth()}px`;
  host.style.gridTemplateRows = '';
  host.style.setProperty('--thumb', `${FLAT_SIZE}px`);
  host.replaceChildren(...list.map(({ head, value }) => el('div', { class: 'one' }, thumb(head, words(value)), el('span', { class: 'name', 'aria-hidden': 'true' }, head.name),
    el('span', { class: 'name value', 'aria-hidden': 'true' }, words(value)))));
  if (!list.length)
    host.append(el('p', { class: 'quiet' }, `No head fits \u201c${state.wanted.trim()}\u201d. Search for heads (L5*, L3-7K0, 15.2) and head types (sink); a comma means or.`));
}

function placeThumbs(size, down) {
  const { style } = byId('grid');
  style.setProperty('--thumb', `${size}px`);
  style.gridTemplateRows = `repeat(${Math.max(1, down)}, max-content)`;
}

const gridDown = () => placeThumbs(grid.size, grid.down);

// Arranges the layers in as many columns as fit the width.  Returns their height.
function gridAcross(width) {
  if (grid.flat) {
    byId('grid').style.width = '';
    return Math.ceil(grid.list.length / Math.floor(width / 62)) * 84;
  }
  const size = Math.min(grid.size, 28), down = downIn(width, size, grid.layers, grid.most);
  placeThumbs(size, down);
  return down * (size + 3);
}

function thumb(head, value = '') {
  const button = el('button', { type: 'button', class: 'thumb', title: head.name, 'aria-label': `Head ${head.name}${value && `, ${labelOf(state.order)} ${value}`}`,
    tabindex: '-1', 'data-head': head.name, onclick: () => showHead(head) }, el('canvas', { 'aria-hidden': 'true' }));
  grid.buttons.set(head.name, button);
  return button;
}

function drawThumbs() {
  const { trace, kind, colours, view } = state, heads = grid.list;
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
    paint(button.firstChild, trace.raster(series, view, pixels, pixels), colours, 0, 1, onLogs());
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
  if (grid.list.length && !grid.list.includes(state.head))
    grid.buttons.get(grid.list[0].name).tabIndex = 0;
}

// Shows a head, and scrolls to its map unless most of it is in the window.
function showHead(head) {
  change({ head });
  const { top, bottom } = panes.list[0].frame.getBoundingClientRect(), tall = window.innerHeight;
  if (top > tall / 2 || bottom < tall / 2)
    byId('map').scrollIntoView({ block: 'start', behavior: 'instant' });
  say(`Head ${head.name}`);
}

function watchGrid(changed) {
  if (has(changed, 'trace', 'kind', 'colours', 'view', 'scale'))
    clearTimeout(grid.later);
  if (has(changed, 'trace', 'kind', 'order', 'rising', 'wanted'))
    buildGrid();
  else if (has(changed, 'colours', 'scale'))
    drawThumbs();
  else if (has(changed, 'view'))
    grid.later = setTimeout(drawThumbs, 250);
  if (has(changed, 'head'))
    markThumb();
}
