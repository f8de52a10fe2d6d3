// attention.js - the panel of attention maps, for heads with recorded queries and keys.  Pointing at a token, in the
// map of the panel or in the text, shows the tokens that it attends to (its row) and the queries that attend to it (its
// column).

const ATTENTION_SIDE = 440, ATTENTION_LIST = 6; // CSS pixels of the map, entries of a list
const HATCH = 7, HATCH_INK = 0xff9e9e9e, HATCH_PAPER = 0xfff8f8f8;
// head: name of the shown head; shade: text of the tokens that the token attends to (row), that attend to it (column)
// or unchanged (off); shown: the map that is drawn.
const attention = { head: '', shade: 'off', shown: null };

// Returns the place of a weight in 0 .. 1 on the logarithmic scale of the figure, of a text of T tokens.
const weightPlace = (v, T) => {
  const floor = Math.max(-8, Math.floor(-Math.log10(10 * Math.max(1, T))));
  return v > 0 ? Math.min(1, Math.max(0, 1 - Math.log10(v) / floor)) : 0;
};

// Returns block b as a map: first queries and tokens of rows and columns, with their ends, and the cells row by row;
// weight NaN: later than the query.
async function attentionMap(table, b) {
  const names = ['query', 'query_end', 'token', 'token_end', 'attention', 'cached'];
  const [query, queryEnd, token, tokenEnd, weight, cached] = await Promise.all(names.map((n) => table.column(n).numbers(b)));
  const rows = [], columns = [];
  for (let k = 0; k < query.length; k++)
    if (k === 0 || query[k] !== query[k - 1])
      rows.push([query[k], queryEnd[k]]);
  for (let k = query.length - 1; k >= 0 && query[k] === query[query.length - 1]; k--)
    columns.unshift([token[k], tokenEnd[k]]);
  const map = { rows, columns, weight: new Float64Array(rows.length * columns.length).fill(NaN), cached: new Float64Array(rows.length * columns.length) };
  for (let k = 0, r = -1, c = 0; k < query.length; k++, c++) {
    if (k === 0 || query[k] !== query[k - 1]) {
      r++;
      c = 0;
    }
    map.weight[r * columns.length + c] = weight[k];
    map.cached[r * columns.length + c] = cached[k];
  }
  return map;
}

const placeIn = (parts, i) => parts.findIndex(([from, to]) => i >= from && i < to);

// Draws the boxes with the colours of the page.  Boxes without a cached entry are hatched, later ones are transparent.
function paintAttention(canvas, map, T) {
  const { rows, columns, weight, cached } = map, scale = Math.max(1, Math.floor(2 * ATTENTION_SIDE / Math.max(rows.length, columns.length)));
  const w = columns.length * scale, h = rows.length * scale, colours = COLOURS[state.colours];
  canvas.width = w;
  canvas.height = h;
  canvas.classList.toggle('printed', onPaperWhite(state.colours));
  const context = canvas.getContext('2d'), image = context.createImageData(w, h), words = new Uint32Array(image.data.buffer);
  for (let y = 0; y < h; y++)
    for (let x = 0; x < w; x++) {
      const k = Math.floor(y / scale) * columns.length + Math.floor(x / scale);
      if (Number.isNaN(weight[k]))
        continue;
      words[y * w + x] = cached[k] > 0 ? (colours[Math.round(255 * weightPlace(weight[k], T))] | 0xff000000) >>> 0 : (x + y) % HATCH ? HATCH_PAPER : HATCH_INK;
    }
  context.putImageData(image, 0, 0);
}

// Returns the weights of token i with all others: [others, weights], of its row or its column.
function weightsOf(map, i, row) {
  const r = placeIn(map.rows, i), c = placeIn(map.columns, i), n = map.columns.length;
  if (row)
    return r < 0 ? [] : map.columns.map(([from], k) => [from, map.weight[r * n + k]]).filter(([, v]) => v > 0);
  return c < 0 ? [] : map.rows.map(([from], k) => [from, map.weight[k * n + c]]).filter(([, v]) => v > 0);
}

function attentionList(title, found) {
  const most = found.sort((a, b) => b[1] - a[1]).slice(0, ATTENTION_LIST);
  return el('div', {}, el('h3', {}, title), most.length ? el('ol', { class: 'plain' }, most.map(([i, v]) => el('li', {}, `${percent(v)} \u2007 ${i} `, quotedToken(state.trace, i))))
    : el('p', { class: 'quiet' }, 'none'));
}

// Shades the text by the row or the column of token i; null: as before.
function shadeAttention(i) {
  const { shown, shade } = attention;
  if (!shown || shade === 'off')
    return;
  if (i === null) {
    tellText();
    return;
  }
  text.asked++; // values that are on their way are of no use
  text.values = new Float64Array(state.trace.T).fill(NaN);
  for (const [k, v] of weightsOf(shown.map, i, shade === 'row'))
    text.values[k] = weightPlace(v, state.trace.T);
  paintText();
}

// Shows the row and the column of token i; null: of the pinned token, if there is one.
function pointAttention(i) {
  const { shown } = attention, at = i ?? state.pin;
  if (!shown)
    return;
  const { map, lists, across, down } = shown, r = at === null ? -1 : placeIn(map.rows, at), c = at === null ? -1 : placeIn(map.columns, at);
  for (const [node, k, n, side, size] of [[across, r, map.rows.length, 'top', 'height'], [down, c, map.columns.length, 'left', 'width']]) {
    node.hidden = k < 0;
    node.style[side] = `${100 * k / n}%`;
    node.style[size] = `${Math.max(0.4, 100 / n)}%`;
  }
  lists.replaceChildren(...(at === null ? [nothing('Point at a token, here or in the text.')] : [
    attentionList(`Token ${at} ${quotedToken(state.trace, at)} attends to`, weightsOf(map, at, true)), attentionList('is attended to by', weightsOf(map, at, false))]));
  shadeAttention(at);
}

function attentionTools(heads) {
  const redraw = () => drawPanel(PANELS.find((p) => p.id === 'attention'));
  return el('div', { class: 'buttons' }, choice('Head', heads.map((h) => [h, h]), attention.head, (head) => {
    attention.head = head;
    redraw();
  }), choice('Shade the text by', [['off', 'the map above'], ['row', 'what the token attends to'], ['column', 'what attends to it']], attention.shade, (shade) => {
    attention.shade = shade;
    if (shade === 'off')
      tellText();
    pointAttention(null);
  }));
}

function attentionNote(table) {
  const { about } = table, boxes = Number(about.get('tokens_per_box')) > 1 || Number(about.get('queries_per_box')) > 1;
  return `Weight that each query (down) gives each token (across), on a logarithmic scale. Hatched: not in the cache at the query.${
    boxes ? ` A box has ${shortNumber(Number(about.get('queries_per_box')))} \u00d7 ${shortNumber(Number(about.get('tokens_per_box')))} cells and shows their ${about.get('each') === 'mean' ? 'mean' : 'maximum'}.` : ''}`;
}

panel('attention', 'Attention of a head', 'attention', ['colours'], async (table, trace) => {
  attention.shown = null;
  if (!table.has('attention'))
    return [nothing('The weights were left out of this file.')];
  const heads = await table.perBlock('head');
  attention.head = heads.includes(attention.head) ? attention.head : heads.includes(state.head?.name) ? state.head.name : heads[0];
  const map = await attentionMap(table, heads.indexOf(attention.head)), canvas = el('canvas', { class: 'attention', role: 'img',
    'aria-label': `Attention map of ${attention.head}: tokens to the right, queries downwards` });
  const across = el('div', { class: 'cross across', hidden: true }), down = el('div', { class: 'cross down', hidden: true }), lists = el('div', { class: 'attends' });
  const frame = el('div', { class: 'attention-frame', onpointermove: (e) => {
    const box = canvas.getBoundingClientRect(), c = Math.floor((e.clientX - box.left) / box.width * map.columns.length);
    const i = map.columns[Math.min(map.columns.length - 1, Math.max(0, c))][0];
    pointAt(null, { i });
    pointAttention(i);
  }, onpointerleave: () => {
    pointAt(null, null);
    pointAttention(null);
  } }, canvas, across, down);
  paintAttention(canvas, map, trace.T);
  attention.shown = { map, lists, across, down };
  pointAttention(null);
  return [attentionTools(heads), frame, lists, nothing(attentionNote(table))];
}, () => ['--head', attention.head.replace('L', '').replace('H', '.')]);

whenChanged((changed) => has(changed, 'pin') && pointAttention(null));
byId('text').addEventListener('pointerover', (e) => pointAttention(tokenUnder(e)));
byId('text').addEventListener('pointerleave', () => pointAttention(null));
