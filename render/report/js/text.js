// text.js - the tokens as running text, in pieces that are filled when they come into sight.

const PIECE = 256;      // tokens of a piece, up to the next end of a line
const PIECE_MOST = 420;
const SHADES = 10;
const text = { pieces: [], watcher: null, values: null, lit: null, pinned: null, asked: 0 };

const BY = {
  head: ['this head', ''],
  kept: ['kept at the end, all heads', 'share of KV heads that hold the token at the end'],
  mean_residency: ['time kept, all heads', 'mean over KV heads of the share of its life that the token was held'],
  mean_beta: ['\u03b2, all heads', 'mean over KV heads of \u03b2'],
  nll: ['surprise', 'negative log-likelihood of the token, of its largest in the text'],
};

const OF_HEAD = {
  alpha: 'share of the queries after the prompt (of its life, if it is younger) that still saw the token in this head',
  beta: 'mean over its life of what this head retained of the token', last: 'share of its life before the last selection in this head',
};
const shadeText = () => `Shade: ${state.by === 'head' ? OF_HEAD[state.kind] : BY[state.by][1]}.`;

function cutPieces(T, words) {
  const out = [];
  for (let from = 0; from < T;) {
    let to = Math.min(T, from + PIECE);
    while (to < T && to < from + PIECE_MOST && !words[to - 1].includes('\u21b5'))
      to++;
    out.push({ from, to });
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
  text.lit = text.pinned = null;
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
    piece.spans = null;
  }
}

function fillPiece(piece) {
  if (piece.spans)
    return;
  piece.spans = [];
  const parts = [];
  for (let i = piece.from; i < piece.to; i++) {
    const word = state.trace.tokens.text[i], span = el('span', { class: shadeOf(i), 'data-i': i }, tokenText(word) || '\u2205');
    piece.spans.push(span);
    parts.push(span);
    if (word.includes('\u21b5'))
      parts.push(el('br'));
  }
  piece.node.replaceChildren(...parts);
  piece.node.style.minHeight = '';
  markToken(state.pin, 'pinned');
}

function shadeOf(i) {
  const v = text.values ? text.values[i] : NaN;
  return Number.isNaN(v) || v === undefined ? 'w' : `w k${Math.round(Math.min(Math.max(v, 0), 1) * SHADES)}`;
}

function paintText() {
  for (const piece of text.pieces)
    for (let k = 0; piece.spans && k < piece.spans.length; k++)
      piece.spans[k].className = shadeOf(piece.from + k);
  text.lit = text.pinned = null;
  markToken(state.pin, 'pinned');
}

// Values of tokens that the shown head gives, in 0 .. 1.
function valuesOfHead(series, trace) {
  const { T } = trace, cut = series.age || trace.prompt >= T ? 0 : trace.prompt;
  return Float64Array.from({ length: T }, (_, i) => {
    const from = Math.max(i, cut), n = T - i;
    if (series.end)
      return Math.max(0, Math.min(series.end[i], T) - from) / (T - from);
    const x = series.logBeta[i];
    return x === 0 ? 1 : Math.expm1(n * x) / Math.expm1(x) / n;
  });
}

async function tellText() {
  const { trace, by, kind, head } = state, asked = ++text.asked;
  let values = null;
  if (by === 'head' && head && !trace.why(kind))
    values = valuesOfHead(await trace.seriesOf(kind, head), trace);
  else if (by !== 'head')
    values = trace.tokens[by];
  if (by === 'nll' && values.length) {
    const most = values.reduce((a, v) => (v > a ? v : a), 0);
    values = values.map((v) => v / most);
  }
  if (asked !== text.asked)
    return;
  text.values = values;
  paintText();
  byId('text-note').textContent = shadeText();
}

function spanOf(i) {
  const piece = i === null ? undefined : text.pieces.find((p) => i >= p.from && i < p.to);
  return piece && piece.spans ? piece.spans[i - piece.from] : null;
}

function markToken(i, name) {
  const before = name === 'lit' ? text.lit : text.pinned, now = spanOf(i);
  if (before)
    before.classList.remove(name);
  if (now)
    now.classList.add(name);
  text[name] = now;
}

function hoverText(i) {
  markToken(i, 'lit');
}

// Scrolls the text so that token i is seen; the page stays where it is.
function revealToken(i) {
  const host = byId('text'), piece = text.pieces.find((p) => i >= p.from && i < p.to);
  if (!piece)
    return;
  fillPiece(piece);
  const span = spanOf(i), top = span.getBoundingClientRect().top - host.getBoundingClientRect().top;
  if (top < 20 || top > host.clientHeight - 40)
    host.scrollTop += top - host.clientHeight / 2;
  markToken(state.pin, 'pinned');
}

function tokenLine(i) {
  const { tokens } = state.trace, number = (name) => (tokens[name].length ? tokens[name][i] : NaN);
  const parts = [`token ${i} ${quoted(state.trace.tokenText(i))}`, tokens.class[i], tokens.role[i], `id ${number('id')}`];
  for (const [name, label] of [['nll', 'nll'], ['kept', 'kept by'], ['mean_residency', 'time kept'], ['mean_beta', 'mean \u03b2']])
    if (!Number.isNaN(number(name)))
      parts.push(`${label} ${shortNumber(number(name))}`);
  return parts.join(' \u00b7 ');
}

function listenToText() {
  const host = byId('text'), of = (e) => (e.target.dataset && e.target.dataset.i !== undefined ? Number(e.target.dataset.i) : null);
  host.addEventListener('pointerover', (e) => {
    const i = of(e);
    if (i === null)
      return;
    pointAt(null, { i });
    byId('text-note').textContent = tokenLine(i);
  });
  host.addEventListener('pointerleave', () => {
    pointAt(null, null);
    byId('text-note').textContent = state.pin === null ? shadeText() : tokenLine(state.pin);
  });
  host.addEventListener('click', (e) => {
    const i = of(e);
    if (i !== null)
      change({ pin: state.pin === i ? null : i });
  });
}

function textTools() {
  const { tokens } = state.trace, some = (name) => tokens[name] && tokens[name].length > 0 && !Array.prototype.every.call(tokens[name], Number.isNaN);
  const options = Object.entries(BY).map(([name, [label]]) => [name, label, name !== 'head' && !some(name)]);
  byId('text-tools').replaceChildren(choice('Shade', options, state.by, (by) => change({ by })));
}

function watchText(changed) {
  if (has(changed, 'trace')) {
    buildText();
    textTools();
  }
  if (has(changed, 'by'))
    tellText();
  if (has(changed, 'pin')) {
    markToken(state.pin, 'pinned');
    if (state.pin !== null) {
      byId('text-note').textContent = tokenLine(state.pin);
      say(tokenLine(state.pin));
    }
  }
}
