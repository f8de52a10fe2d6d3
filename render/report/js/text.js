// text.js - the tokens as running text, in pieces that are filled when they become visible.

const PIECE = 256;      // tokens of a piece, up to the next end of a line
const PIECE_MOST = 420;
const SHADES = 10, SHADE_STEP = 0.038; // as in style.css
const GROUP_MOST = 32;   // tokens of one element
const text = { pieces: [], watcher: null, values: null, lit: null, pinned: null, query: null, asked: 0 };

const BY = {
  head: ['this head', ''],
  kept: ['kept at the end, all heads', 'fraction of the heads that cache the token at the end'],
  mean_residency: ['time kept, all heads', 'fraction of its life that the token was cached, mean over the heads'],
  mean_beta: ['retention, all heads', 'half-life of the token under the gates, mean retention over the heads'],
  nll: ['surprise', 'how unlikely the token was, against the unlikeliest of the text'],
  kl: ['harm to predictions', 'how far the prediction after the token is from that of a full cache (KL), against the farthest'],
};

const OF_HEAD = {
  alpha: 'fraction of the queries after the prompt for which this head caches the token',
  beta: 'retention of the token in this head, mean over its life', last: 'fraction of its life before its last use in this head',
};
const AT_QUERY = { alpha: 'cached in this head', beta: 'retention in this head', last: 'still to be selected in this head' };
const OF_ALL_HEADS = ['kept', 'mean_residency', 'mean_beta']; // shades that a query has too

function shadeText() {
  const { by, time, kind } = state, of = by === 'head' ? AT_QUERY[kind] : OF_ALL_HEADS.includes(by) ? 'fraction of the heads that cache the token' : null;
  if (time !== null && of)
    return `Shade: ${of} at query ${grouped(time)}. Struck through: ${by === 'head' && kind !== 'alpha' ? 'nothing left' : 'evicted'}. Grey: not read yet.`;
  return `Shade: ${by === 'head' ? OF_HEAD[kind] : BY[by][1]}.`;
}

// ---- user-perceived characters

const LEFTWARDS = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const PICTURE = /\p{Extended_Pictographic}/u;
// Code points that do not begin a character: [text before, code point]. Marks and joiners continue anything except a
// mark of the page or a line end.
const CLINGS = [[/(?<=[^\u21b5\u27e9])$/u, /^[\p{M}\u200c\u200d\u{1f3fb}-\u{1f3ff}\u{e0020}-\u{e007f}\u1160-\u11ff]/u],
  [/(?<=\p{Extended_Pictographic}[\p{M}\u{1f3fb}-\u{1f3ff}]*\u200d)$/u, /^\p{Extended_Pictographic}/u],
  [/(?<=[\u094d\u09cd\u0a4d\u0acd\u0b4d\u0c4d\u0ccd\u0d4d\u0dca\u1039\u17d2]\u200d?)$/u, /^\p{L}/u],
  [/(?<=[\u{1f1e6}-\u{1f1ff}])$/u, /^[\u{1f1e6}-\u{1f1ff}]/u]];

function textBefore(i) {
  const { text } = state.trace.tokens;
  let before = '';
  for (let k = i - 1; k >= 0 && k > i - 8 && before.length < CONTEXT; k--)
    before = text[k].slice(-CONTEXT) + before;
  return marked(before).slice(-CONTEXT);
}

// Returns true if a character begins with token i.
function begins(i) {
  if (isPart(state.trace, i))
    return false;
  const word = state.trace.tokens.text[i];
  if (i === 0 || /^[ -~]/.test(word))
    return true;
  const before = textBefore(i), own = marked(word.slice(0, 2), before);
  return /\\x[0-9A-F]{2}$/.test(before) || !CLINGS.some(([behind, what]) => behind.test(before) && what.test(own));
}

// Returns the direction of the first letter from token i to the end of the line.
function directionFrom(i) {
  const { text } = state.trace.tokens;
  for (; i < text.length; i++) {
    const letter = text[i].replace(MARKS_ALL, '').match(/\p{L}/u);
    if (letter)
      return LEFTWARDS.test(letter[0]) ? 'rtl' : 'ltr';
    if (endsLine(text[i]))
      break;
  }
  return 'ltr';
}

const endsLine = (word) => word.includes('\u21b5');

// ---- pieces

// Returns the end of a piece: at the end of a line, else of a word, else of a character.
function cutAt(from, T, words) {
  let to = Math.min(T, from + PIECE);
  while (to < T && to < from + PIECE_MOST && !(endsLine(words[to - 1]) && begins(to)))
    to++;
  if (to < T && !endsLine(words[to - 1]))
    for (let k = to; k > from + PIECE; k--)
      if (/^\s/.test(words[k]))
        return k;
  while (to < T && to < from + 2 * PIECE_MOST && !begins(to))
    to++;
  return to;
}

// line: the first token of the piece's first line, which may be in an earlier piece.
function cutPieces(T, words) {
  const out = [];
  for (let from = 0, line = 0; from < T;) {
    const to = cutAt(from, T, words);
    out.push({ from, to, line });
    for (let k = from; k < to; k++)
      if (endsLine(words[k]))
        line = k + 1;
    from = to;
  }
  return out;
}

function buildText() {
  const host = byId('text'), { trace } = state, words = trace.tokens.text;
  if (text.watcher)
    text.watcher.disconnect();
  text.watcher = new IntersectionObserver((seen) => seen.forEach(showPiece), { root: host, rootMargin: '400px 0px' });
  text.pieces = cutPieces(Math.min(trace.T, words.length), words);
  text.lit = text.pinned = text.query = null;
  host.replaceChildren(...text.pieces.map((piece, k) => {
    piece.node = el('div', { class: 'piece', 'data-piece': k });
    piece.node.style.minHeight = `${Math.ceil((piece.to - piece.from) / 11) * 22}px`;
    return piece.node;
  }));
  if (!words.length)
    host.append(el('p', { class: 'quiet' }, trace.absent.get('tokens') || 'The trace has no tokens.'));
  host.scrollTop = 0;
  text.pieces.forEach((p) => text.watcher.observe(p.node));
}

function showPiece(entry) {
  const piece = text.pieces[Number(entry.target.dataset.piece)];
  if (!piece || piece.node !== entry.target || entry.isIntersecting === Boolean(piece.spans))
    return;
  if (entry.isIntersecting) {
    fillPiece(piece);
  } else if (text.pieces.length > 40) {
    piece.node.style.minHeight = `${piece.node.offsetHeight}px`;
    piece.node.replaceChildren();
    piece.spans = piece.groups = null;
  }
}

// Returns the elements of a token's text.  Marks keep their direction and do not join with letters.
function partsOf(i) {
  const { text, raw } = state.trace.tokens, before = /^[ -~]*$/.test(text[i]) ? '' : textBefore(i);
  const shown = text[i] || raw[i] ? tokenText(text[i], TOKEN_SHOWN, before) : '\u2205';
  return shown.split(MARKS).map((part, k) => (k % 2 ? el('bdi', { dir: 'ltr' }, part) : part)).filter(Boolean);
}

// Fills a piece.  Letters join and reorder across inline elements, so a line is one paragraph and a token a part of it.
// Tokens of one character share an element.
function fillPiece(piece) {
  if (piece.spans)
    return;
  const lines = [], { text } = state.trace.tokens;
  let span = null, ended = true;
  piece.spans = [];
  piece.groups = [];
  for (let i = piece.from; i < piece.to; i++) {
    const first = piece.spans.length === 0 || begins(i);
    if (ended && first) {
      lines.push(el('div', { class: 'line', dir: directionFrom(lines.length ? i : piece.line) }));
      ended = false;
    }
    if (first || (span.n >= GROUP_MOST && !isPart(state.trace, i))) {
      span = { i, n: 0, node: el('span', { 'data-i': i }) };
      piece.groups.push(span);
      lines[lines.length - 1].append(span.node);
    }
    span.n++;
    span.node.append(...partsOf(i));
    piece.spans.push(span);
    ended = ended || endsLine(text[i]);
  }
  piece.groups.forEach(finishGroup);
  piece.node.replaceChildren(...lines);
  piece.node.style.minHeight = '';
  markToken(state.pin, 'pinned');
  markToken(state.time, 'query');
}

function finishGroup(group) {
  const words = group.node.textContent;
  group.more = (group.n > 1 ? ' many' : '') + (PICTURE.test(words) ? ' picture' : '');
  group.leftwards = LEFTWARDS.test(words);
  if (group.n > 1)
    group.node.dataset.n = group.n;
  paintGroup(group);
}

// Returns the shade of token i in steps, NaN without a value.
function shadeOf(i) {
  const v = text.values ? text.values[i] : NaN;
  return Number.isNaN(v) || v === undefined ? NaN : Math.round(Math.min(Math.max(v, 0), 1) * SHADES);
}

// Paints an element.  Tokens that share it divide its width.
function paintGroup(group) {
  const { i, n, node } = group, shades = Array.from({ length: n }, (_, k) => shadeOf(i + k)), even = shades.every((v) => Object.is(v, shades[0]));
  const part = (v, k) => `rgb(var(--shade) / ${((v || 0) * SHADE_STEP).toFixed(3)}) ${k / n * 100}% ${(k + 1) / n * 100}%`;
  const hit = found.tokens.size && Array.from({ length: n }, (_, k) => found.tokens.has(i + k)).some(Boolean) ? ' found' : '';
  const late = state.time === null ? '' : i > state.time ? ' late' : shades[0] === 0 ? ' out' : '';
  const name = (even && !Number.isNaN(shades[0]) ? `w k${shades[0]}` : 'w') + group.more + hit + late, key = `${name} ${even ? '' : shades}`;
  if (group.key === key && node.className === name)
    return;
  group.key = key;
  node.className = name;
  node.style.backgroundImage = even ? '' : `linear-gradient(to ${group.leftwards ? 'left' : 'right'}, ${shades.map(part).join(', ')})`;
}

function paintText() {
  for (const piece of text.pieces)
    (piece.groups || []).forEach(paintGroup);
  markToken(state.pin, 'pinned');
  markToken(state.time, 'query');
}

// Returns token values of the shown head, in 0 .. 1.
function valuesOfHead(series, trace) {
  const { T } = trace, cut = series.age || trace.prompt >= T ? 0 : trace.prompt;
  return Float64Array.from({ length: T }, (_, i) => {
    const from = Math.max(i, cut), n = T - i;
    if (series.end)
      return Math.max(0, Math.min(series.end[i], T) - from) / (T - from);
    const x = series.logBeta[i], mean = x === 0 ? 1 : Math.expm1(n * x) / Math.expm1(x) / n;
    return onLogs() ? onLogScale(mean) : mean;
  });
}

// Returns the values of the shown head at query t, in 0 .. 1, NaN for tokens after it.
function valuesOfQuery(series, trace, t) {
  return Float64Array.from({ length: trace.T }, (_, i) => {
    const v = trace.cell(series, i, t);
    return onLogs() && v === v ? onLogScale(v) : v;
  });
}

// Returns the fraction of the heads that cache each token at query t, or null.
async function fractionsAt(trace, t) {
  const fates = await trace.fates();
  return fates && Float64Array.from({ length: trace.T }, (_, i) => (i > t ? NaN : fates.end.reduce((n, e) => n + (e[i] < 0 || t < e[i]), 0) / fates.end.length));
}

// Returns the place of a retention per step in 0 .. 1: its half-life on a logarithmic scale from a step to the text.
const halfLifePlace = (beta, T) => Math.log(Math.LN2 / -Math.log(beta)) / Math.log(Math.max(2, T));

async function valuesToShow() {
  const { trace, by, kind, head, time } = state, of = head && !trace.why(kind) && by === 'head' ? await trace.seriesOf(kind, head) : null;
  if (by === 'head')
    return of && (time === null ? valuesOfHead(of, trace) : valuesOfQuery(of, trace, time));
  const atQuery = time !== null && OF_ALL_HEADS.includes(by) ? await fractionsAt(trace, time) : null;
  if (atQuery)
    return atQuery;
  const values = trace.tokens[by];
  if (by === 'mean_beta')
    return state.scale === 'log' ? Array.from(values, (v) => (v >= 1 ? 1 : halfLifePlace(v, trace.T))) : values;
  if ((by !== 'nll' && by !== 'kl') || !values.length)
    return values;
  const most = values.reduce((a, v) => (v > a ? v : a), 0);
  return values.map((v) => v / most);
}

async function tellText() {
  const asked = ++text.asked, values = await valuesToShow();
  if (asked !== text.asked)
    return;
  text.values = values;
  paintText();
  byId('text-note').textContent = shadeText();
}

function spanOf(i) {
  const piece = i === null ? undefined : text.pieces.find((p) => i >= p.from && i < p.to);
  return piece && piece.spans ? piece.spans[i - piece.from].node : null;
}

function markToken(i, name) {
  const before = text[name], now = spanOf(i);
  if (before)
    before.classList.remove(name);
  if (now)
    now.classList.add(name);
  text[name] = now;
}

function hoverText(i) {
  markToken(i, 'lit');
}

// Scrolls the text so that token i is visible, without moving the page.  quick: immediately, for a moving pointer.
function revealToken(i, quick = false) {
  const host = byId('text'), piece = text.pieces.find((p) => i >= p.from && i < p.to);
  if (!piece)
    return;
  fillPiece(piece);
  const span = spanOf(i), top = span.getBoundingClientRect().top - host.getBoundingClientRect().top;
  if (top < 20 || top > host.clientHeight - 40)
    host.scrollBy({ top: top - host.clientHeight / 2, behavior: quick ? 'instant' : 'auto' });
  markToken(state.pin, 'pinned');
}

function tokenLine(i) {
  const { tokens } = state.trace, number = (name) => (tokens[name].length ? tokens[name][i] : NaN);
  const name = tokens.class[i] && isolated(marked(tokens.class[i]));
  const parts = [`token ${i} ${quotedToken(state.trace, i)}`, name, tokens.role[i], `id ${number('id')}`];
  for (const [name, label, put] of [['kept', 'kept by', (v) => `${percent(v)} of the heads`], ['mean_residency', 'cached for', (v) => `${percent(v)} of its life`],
    ['mean_beta', 'retention', shortNumber], ['nll', 'surprise', (v) => `${shortNumber(v, 3)}\u00a0nats`], ['kl', 'KL', (v) => `${shortNumber(v, 3)}\u00a0nats`]])
    if (!Number.isNaN(number(name)))
      parts.push(`${label} ${put(number(name))}`);
  return parts.join(' \u00b7 ');
}

// Returns the token under the pointer.  Tokens that share an element are distinguished by the
// position in it.
function tokenUnder(e) {
  const node = e.target.closest ? e.target.closest('[data-i]') : null;
  if (!node)
    return null;
  const i = Number(node.dataset.i), n = Number(node.dataset.n || 1);
  if (n === 1)
    return i;
  const box = node.getBoundingClientRect(), x = (e.clientX - box.left) / Math.max(1, box.width);
  return i + Math.min(n - 1, Math.max(0, Math.floor(n * (LEFTWARDS.test(node.textContent) ? 1 - x : x))));
}

function listenToText() {
  const host = byId('text');
  let last = null;
  const point = (e) => {
    const i = tokenUnder(e);
    if (i === null || i === last)
      return;
    last = i;
    pointAt(null, { i });
    byId('text-note').textContent = tokenLine(i);
  };
  host.addEventListener('pointerover', point);
  host.addEventListener('pointermove', point);
  host.addEventListener('pointerleave', () => {
    last = null;
    pointAt(null, null);
    byId('text-note').textContent = state.pin === null ? shadeText() : tokenLine(state.pin);
  });
  host.addEventListener('click', (e) => {
    const i = tokenUnder(e);
    if (i !== null)
      change({ pin: state.pin === i ? null : i });
  });
}

// Returns a picture of the visible rows of the text.
function textPicture() {
  const host = byId('text'), box = host.getBoundingClientRect(), parts = [{ text: `${nameOf(state.trace)}  \u00b7  ${shadeText()}`, x: 10, y: 20, size: 12, fill: INK.quiet }];
  for (const span of host.querySelectorAll('.w')) {
    const rects = [...span.getClientRects()], widest = rects.reduce((a, r) => (!a || r.width > a.width ? r : a), null);
    const shade = Number((span.className.match(/\bk(\d+)/) || [])[1] || 0) * SHADE_STEP;
    for (const r of rects.filter((q) => q.bottom > box.top && q.top < box.bottom)) {
      const x = r.left - box.left + 10, y = r.top - box.top + 34;
      if (shade)
        parts.push({ fill: INK.accent, opacity: shade, x, y, width: r.width, height: r.height });
      if (r === widest)
        parts.push({ text: span.textContent, x: LEFTWARDS.test(span.textContent) ? x + r.width : x, y: y + 14.5, size: 14, direction: LEFTWARDS.test(span.textContent) ? 'rtl' : null });
    }
  }
  return { width: Math.ceil(Math.max(box.width + 20, 11 + 6 * parts[0].text.length)), height: Math.ceil(host.clientHeight + 44), parts };
}

const TEXT_VIEW = { name: 'Text', picture: textPicture, commands: () => [textCommand()], table: () => [state.trace, state.trace.table('tokens')] };

function textTools() {
  const { tokens } = state.trace, some = (name) => tokens[name] && tokens[name].length > 0 && !Array.prototype.every.call(tokens[name], Number.isNaN);
  const options = Object.entries(BY).map(([name, [label]]) => [name, label, name === 'head' ? !state.head : !some(name)]);
  byId('text-tools').replaceChildren(choice('Shade', options, state.by, (by) => change({ by })), saveMenu(TEXT_VIEW));
}

function watchText(changed) {
  if (has(changed, 'trace')) {
    buildText();
    textTools();
  }
  if (has(changed, 'by', 'time', 'scale'))
    tellText();
  if (has(changed, 'pin')) {
    markToken(state.pin, 'pinned');
    if (state.pin !== null) {
      byId('text-note').textContent = tokenLine(state.pin);
      say(tokenLine(state.pin));
    }
  }
}
