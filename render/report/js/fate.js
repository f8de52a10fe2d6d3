// fate.js - the pinned token: for every trace a grid of layers and heads with its fate, and a chart of its life.

const fate = { asked: 0 };
const GRID_WIDTH = 336, LIFE_HEIGHT = 70;

// Returns true if token i of a compared trace is the same token: both texts are equal up to it.
const sameToken = (trace, i) => trace === state.trace || (i < trace.T && i < commonTokens(state.trace, trace));

// Returns the opacity of a cell: of the fate of entry i, or of its state at the shown query.
function cellColour(end, i, T) {
  if (state.time !== null)
    return i > state.time ? 0.03 : end < 0 || state.time < end ? 1 : 0.12;
  return end < 0 ? 1 : 0.07 + 0.5 * Math.min(1, Math.max(0, (end - i) / Math.max(1, T - i)));
}

// Draws a grid, layers across, heads down.  A kept entry is full; an evicted one is paler the sooner it was evicted.  A
// dot means that later queries needed it.
function fateGrid(trace, fates, i) {
  const L = Math.max(...fates.heads.map((h) => h.layer)) + 1, G = Math.max(...fates.heads.map((h) => h.index)) + 1;
  const cell = Math.min(22, (GRID_WIDTH - 22) / L), tall = Math.max(Math.min(cell, 14), Math.min(14, 150 / G)), H = G * tall + 16;
  const out = svg('svg', { viewBox: `0 0 ${22 + L * cell} ${H}`, class: 'fates', role: 'group', tabindex: '0',
    'aria-label': `Fates of token ${i} in ${trace.title}: layers across, heads down` });
  fates.heads.forEach((head, k) => {
    const end = fates.end[k][i], x = 22 + head.layer * cell, y = head.index * tall, hits = fates.hits ? fates.hits[k][i] : 0;
    out.append(svg('rect', { x, y, width: cell - 1, height: tall - 1, 'data-head': head.name, 'data-end': end, class: end < 0 ? 'kept' : 'gone', 'fill-opacity': cellColour(end, i, trace.T),
      onclick: () => openHead(trace, head), onpointerenter: () => tellCell(trace, fates, head, k, i) }));
    if (hits > 0)
      out.append(svg('circle', { cx: x + (cell - 1) / 2, cy: y + (tall - 1) / 2, r: Math.min(cell, tall) * (0.14 + 0.06 * Math.min(3, Math.log2(hits))), class: 'missed' }));
    if (trace === state.trace && state.head && trace.kvHead(state.head) === head.name)
      out.append(svg('rect', { x: x - 0.5, y: y - 0.5, width: cell, height: tall, class: 'here' }));
  });
  for (const l of wholeTicks(0, L - 1, 6))
    out.append(svg('text', { class: 'tick', x: 22 + (l + 0.5) * cell, y: H - 3, 'text-anchor': 'middle' }, String(l)));
  for (const g of wholeTicks(0, Math.max(1, G - 1), Math.min(G, 4)).filter((v) => v < G))
    out.append(svg('text', { class: 'tick', x: 17, y: (g + 0.5) * tall + 3.5, 'text-anchor': 'end' }, String(g)));
  out.addEventListener('keydown', (e) => stepCell(e, trace, fates));
  out.style.maxWidth = `${1.25 * (22 + L * cell)}px`;
  return out;
}

function openHead(trace, head) {
  if (trace === state.trace)
    change({ head: trace.headFor(state.kind, head) });
  else
    showTrace(trace, head);
}

// Moves to the neighbouring head when an arrow key is pressed on the grid.
function stepCell(e, trace, fates) {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key], at = state.head;
  if (!step || !at || e.shiftKey || trace !== state.trace)
    return;
  e.preventDefault();
  e.stopPropagation();
  const own = fates.heads.find((h) => h.name === trace.kvHead(at)), to = own && fates.heads.find((h) => h.layer === own.layer + step[0] && h.index === own.index + step[1]);
  if (to) {
    fate.focus = true;
    openHead(trace, to);
    tellCell(trace, fates, to, fates.heads.indexOf(to), state.pin);
  }
}

async function headWords(trace, fates, head, k, i) {
  const missed = fates.hits ? missWords(fates.hits[k][i], fates.first ? fates.first[k][i] : NaN) : '';
  return `${head.name}: ${fateWords(i, fates.end[k][i], await fates.reason(head, i))}${missed && missed !== 'never' ? `; needed later ${missed}` : ''}`;
}

async function tellCell(trace, fates, head, k, i) {
  const words = await headWords(trace, fates, head, k, i), line = document.querySelector(`.fate-of[data-trace="${trace.index}"] .fate-head`);
  if (line)
    line.textContent = words;
  say(words);
}

// Draws the number of heads that cache the token over the steps, and when heads first needed it
// after eviction.
function lifeLine(trace, fates, i) {
  const W = GRID_WIDTH, H = LIFE_HEIGHT, left = 22, bottom = 16, N = fates.heads.length, T = trace.T;
  const px = (t) => left + t / Math.max(1, T) * (W - left), py = (n) => 16 + (1 - n / N) * (H - bottom - 16);
  const ends = fates.end.map((e) => e[i]).filter((e) => e >= 0).sort((a, b) => a - b), out = svg('svg', { viewBox: `0 0 ${W} ${H}`, class: 'life', role: 'img',
    'aria-label': `Heads that cache token ${i} of ${trace.title} over the queries` });
  let d = `M${px(i).toFixed(1)} ${py(0)}V${py(N)}`;
  ends.forEach((e, k) => { d += `H${px(e).toFixed(1)}V${py(N - k - 1).toFixed(1)}`; });
  d += `H${px(T).toFixed(1)}V${py(0)}Z`;
  if (trace.prompt > 0 && trace.prompt < T)
    out.append(svg('line', { class: 'rule', x1: px(trace.prompt), x2: px(trace.prompt), y1: 14, y2: H - bottom }));
  out.append(svg('path', { class: 'area', d }), svg('line', { class: 'axis', x1: left, x2: W, y1: H - bottom, y2: H - bottom }));
  (fates.first || []).map((f) => f[i]).filter((t) => t >= 0).forEach((t) =>
    out.append(svg('path', { class: 'missed', d: `M${px(t).toFixed(1)} ${H - bottom}l-2.5 5h5z` })));
  out.append(svg('text', { class: 'tick', x: left, y: 11 }, 'heads that cache it, by query'));
  for (const t of wholeTicks(0, T, 5))
    out.append(svg('text', { class: 'tick', x: Math.min(px(t), W - 10), y: H - 2, 'text-anchor': 'middle' }, String(t)));
  [[N, 22], [0, H - bottom]].forEach(([n, y]) => out.append(svg('text', { class: 'tick', x: 17, y, 'text-anchor': 'end' }, String(n))));
  return out;
}

function fateSummary(trace, fates, i) {
  const N = fates.heads.length, ends = fates.end.map((e) => e[i]).filter((e) => e >= 0).sort((a, b) => a - b), missed = fates.missed(i);
  const gone = ends.length ? `; ${counted(ends.length, 'head')} evicted it ${ends[0] === ends[ends.length - 1] ? `at query ${grouped(ends[0])}`
    : `from query ${grouped(ends[0])} to ${grouped(ends[ends.length - 1])}`}` : '';
  const later = missed ? (missed.hits ? `. Later queries needed it ${counted(missed.hits, 'time')} in ${counted(missed.heads, 'head')}, first at query ${grouped(missed.first)}`
    : '. No later query needed it') : '';
  return `${holdWords(N - ends.length, N)}${gone}${later}.`;
}

async function fateOf(trace, i) {
  await trace.load();
  const name = el('b', {}, [trace.method || trace.title].join(' ')), node = el('div', { class: 'fate-of', 'data-trace': String(trace.index) }, name);
  const fates = sameToken(trace, i) ? await trace.fates() : null;
  if (!fates) {
    node.append(el('p', { class: 'quiet' }, sameToken(trace, i) ? trace.why('alpha') || 'No evictions are in this file.' : 'Its text differs before this token.'));
    return node;
  }
  const own = trace === state.trace && state.head ? fates.heads.find((h) => h.name === trace.kvHead(state.head)) : null;
  node.append(el('span', { class: 'quiet' }, ` ${fateSummary(trace, fates, i)}`), fateGrid(trace, fates, i), lifeLine(trace, fates, i),
    el('p', { class: 'fate-head quiet' }, own ? await headWords(trace, fates, own, fates.heads.indexOf(own), i) : ''));
  return node;
}

function fatePicture() {
  const parts = [{ text: `Token ${state.pin} ${quotedToken(state.trace, state.pin)}`, x: 10, y: 20, size: 14 }];
  let y = 30;
  for (const node of document.querySelectorAll('#fate .fate-of')) {
    parts.push({ text: node.querySelector('b').textContent, x: 10, y: y + 14, size: 13 });
    y += 22;
    for (const picture of node.querySelectorAll('svg')) {
      const [, , w, h] = picture.getAttribute('viewBox').split(' ').map(Number);
      parts.push({ node: picture, x: 10, y, width: w, height: h });
      y += h + 6;
    }
    y += 6;
  }
  return { width: GRID_WIDTH + 24, height: Math.ceil(y + 6), parts };
}

// Returns one row per trace and head.
async function fateTable() {
  const i = state.pin, lines = [['trace', 'head', 'layer', 'index', 'token', 'evict_step', 'reason', 'hits', 'first_hit']];
  for (const trace of TRACES) {
    const fates = sameToken(trace, i) ? await trace.fates() : null;
    for (const [k, head] of (fates ? fates.heads : []).entries())
      lines.push([trace.name, head.name, head.layer, head.index, i, fates.end[k][i], await fates.reason(head, i) ?? '', fates.hits ? fates.hits[k][i] : NaN,
        fates.first ? fates.first[k][i] : NaN]);
  }
  return lines;
}

const FATE_VIEW = { name: 'Fate of a token', picture: fatePicture, table: fateTable,
  commands: () => TRACES.filter((t) => sameToken(t, state.pin)).map((t) => ofTable(t, 'eviction', '--tokens', `${state.pin}:${state.pin + 1}`, '-o', '-')) };

function stepPin(d) {
  const i = Math.min(state.trace.T - 1, Math.max(0, (state.pin ?? panes.cell?.i ?? 0) + d));
  change({ pin: i });
  revealToken(i);
  showColumn(i);
}

async function drawFate() {
  const i = state.pin, asked = ++fate.asked, host = byId('fate');
  document.body.classList.toggle('pinning', i !== null);
  host.hidden = i === null;
  if (i === null || !state.trace.T)
    return;
  const shown = state.other ? [state.trace, state.other] : [state.trace, ...TRACES.filter((t) => t !== state.trace)];
  const nodes = await Promise.all(shown.map((t) => fateOf(t, i)));
  if (asked !== fate.asked)
    return;
  const tools = el('span', { class: 'push tools' }, saveMenu(FATE_VIEW), el('div', { class: 'segments' },
    [['\u2039', 'Previous token', () => stepPin(-1)], ['\u203a', 'Next token', () => stepPin(1)], ['\u00d7', 'Unpin', () => change({ pin: null })]]
      .map(([text, label, onclick]) => el('button', { type: 'button', 'aria-label': label, title: label, onclick }, text))));
  host.replaceChildren(el('div', { class: 'head' }, el('h2', { id: 'fate-title' }, `Token ${i} ${quotedToken(state.trace, i)}`), tools),
    el('p', { class: 'quiet fate-key' }, el('span', { class: 'swatch full' }), 'kept  ', el('span', { class: 'swatch pale' }), 'evicted, fainter the earlier  ',
      el('span', { class: 'swatch dot' }), 'needed later  ', el('span', {}, 'layers across, KV heads down')), el('div', { class: 'fate-list', tabindex: '0', role: 'group', 'aria-label': 'Fates in every trace' }, nodes));
  if (fate.focus)
    host.querySelector('.fates')?.focus({ preventScroll: true });
  fate.focus = false;
  performance.mark('kvfate-fate');
}

// Shows the cells at the time of the slider.
function timeFates() {
  for (const cell of document.querySelectorAll('.fates rect[data-end]'))
    cell.setAttribute('fill-opacity', cellColour(Number(cell.dataset.end), state.pin, state.trace.T));
}

function watchFate(changed) {
  if (has(changed, 'time') && state.pin !== null)
    timeFates();
  if (has(changed, 'pin', 'trace', 'other', 'head'))
    drawFate();
}
