// find.js - finds tokens by text.  A match may span several tokens.

const found = { at: [], tokens: new Set(), now: -1 };
const MOST_FOUND = 10000;

// Returns the places of `words` in the text of the trace as [first token, last token], ignoring
// case.
function findTokens(trace, words) {
  const { text, raw } = trace.tokens, what = words.toLowerCase(), starts = [], out = [];
  let all = '';
  for (let i = 0; i < text.length; i++) {
    starts.push(all.length);
    all += (text[i] || (raw[i] ? '' : '')).toLowerCase();
  }
  const tokenAt = (k) => {
    let lo = 0, hi = starts.length - 1;
    while (lo < hi) {
      const middle = (lo + hi + 1) >> 1;
      if (starts[middle] <= k)
        lo = middle;
      else
        hi = middle - 1;
    }
    return lo;
  };
  for (let at = what ? all.indexOf(what) : -1; at >= 0 && out.length < MOST_FOUND; at = all.indexOf(what, at + what.length))
    out.push([tokenAt(at), tokenAt(at + what.length - 1)]);
  return out;
}

function search() {
  found.at = findTokens(state.trace, state.found.trim() ? state.found : '');
  found.now = -1;
  found.tokens = new Set();
  for (const [a, b] of found.at)
    for (let i = a; i <= b; i++)
      found.tokens.add(i);
  paintText();
  panes.list.forEach((p) => p.drawAxes());
  tellFound();
}

function tellFound() {
  const n = found.at.length, where = found.now >= 0 ? `${found.now + 1} of ${grouped(n)}` : counted(n, 'place');
  byId('find-count').textContent = state.found.trim() ? (n ? where : 'not in the text') : '';
}

// Pins the next place (d = 1) or the previous one (d = -1).
function nextFound(d) {
  const n = found.at.length;
  if (!n)
    return;
  found.now = found.now < 0 && d < 0 ? n - 1 : (found.now + d + n) % n;
  const [i] = found.at[found.now];
  tellFound();
  change({ pin: i });
  revealToken(i);
  showColumn(i);
}

function findTools() {
  const input = el('input', { type: 'search', id: 'find', placeholder: 'Find in the text', 'aria-label': 'Find in the text', maxlength: '200',
    oninput: () => change({ found: input.value }), onkeydown: (e) => {
      if (e.key === 'Enter') {
        e.preventDefault();
        nextFound(e.shiftKey ? -1 : 1);
      } else if (e.key === 'Escape') {
        e.stopPropagation();
        change({ found: '' });
        input.blur();
      }
    } });
  byId('find-tools').replaceChildren(input, el('button', { type: 'button', 'aria-label': 'Previous place', onclick: () => nextFound(-1) }, '\u2191'),
    el('button', { type: 'button', 'aria-label': 'Next place', onclick: () => nextFound(1) }, '\u2193'),
    el('span', { id: 'find-count', class: 'quiet', role: 'status' }));
}

function watchFound(changed) {
  if (!has(changed, 'found', 'trace'))
    return;
  if (byId('find').value !== state.found)
    byId('find').value = state.found;
  search();
}
