// address.js - the state of the view as the fragment of the page's address, so that a link opens a
// view.

const address = { written: '' };
const whole = (text) => (/^\d{1,9}$/.test(text || '') ? Number(text) : null);
const range = (text) => ((text || '').match(/^(\d{1,9})(?:\.\d{1,6})?-(\d{1,9})(?:\.\d{1,6})?$/) || []).slice(1).map(Number);
const rangeText = (a, b) => `${Math.round(a)}-${Math.round(b)}`;

function addressOf() {
  const { trace, other, kind, head, view, pin, by, colours, found, time, order, rising, wanted, single, scale } = state, out = new URLSearchParams();
  if (!trace || !view)
    return '';
  const first = sameView(view, startView()), part = !first && !isWhole(view);
  const parts = [['trace', trace.index + 1], ['with', other && other.index + 1], ['map', kind], ['head', head && head.name],
    ['tokens', part ? rangeText(view.x0, view.x1) : null], ['steps', part ? rangeText(view.y0, view.y1) : null], ['whole', !first && isWhole(view) ? 'yes' : null],
    ['query', time], ['token', pin], ['shade', by === 'head' ? null : by], ['colours', colours === 'blues' ? null : colours],
    ['scale', scale === 'log' ? null : scale], ['heads', wanted || null], ['order', order === 'layer' ? null : order], ['rising', rising ? 'yes' : null],
    ['panels', single && single.index + 1], ['find', found || null]];
  parts.filter(([, v]) => v !== null && v !== undefined).forEach(([k, v]) => out.set(k, String(v)));
  return `#${out}`;
}

function writeAddress() {
  const now = addressOf();
  if (now === address.written)
    return;
  address.written = now;
  try {
    history.replaceState(null, '', now);
  } catch (_) {
    // some browsers do not change the address of a file
  }
}

// Returns the state that a fragment requests.  Unknown or impossible parts are ignored.
function askedFor() {
  const q = new URLSearchParams(location.hash.slice(1)), of = (name) => TRACES[(whole(q.get(name)) || 0) - 1] || null;
  const view = [range(q.get('tokens')), range(q.get('steps'))], good = view.every(([a, b]) => b > a);
  return { trace: of('trace'), other: of('with'), kind: Object.hasOwn(KINDS, q.get('map')) ? q.get('map') : null, head: q.get('head'),
    view: good ? { x0: view[0][0], x1: view[0][1], y0: view[1][0], y1: view[1][1] } : null, whole: q.has('whole'), pin: whole(q.get('token')),
    by: Object.hasOwn(BY, q.get('shade')) ? q.get('shade') : null, colours: COLOUR_MAPS.includes(q.get('colours')) ? q.get('colours') : null,
    found: (q.get('find') || '').slice(0, 200), time: whole(q.get('query')), scale: q.get('scale') === 'linear' ? 'linear' : 'log',
    wanted: (q.get('heads') || '').slice(0, 200), order: orderOf(q.get('order')), rising: q.has('rising'), single: of('panels') };
}

function listenToAddress() {
  window.addEventListener('hashchange', () => {
    if (location.hash !== address.written)
      openAt(askedFor());
  });
}

const watchAddress = () => writeAddress();
