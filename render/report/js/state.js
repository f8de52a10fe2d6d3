// state.js - the shown state and its listeners.

// The traces of the page.  Opened files are added (opener.js).
const TRACES = MANIFEST.traces.map((name, index) => new Trace(index, name));
// time: the query whose cache is shown, or null; scale: of retention; order, rising, wanted: of the heads in the
// overview; single: the only trace in the panels, or null.
const state = { trace: null, other: null, kind: 'alpha', head: null, colours: 'blues', view: null, pin: null, by: 'head',
  found: '', time: null, scale: 'log', order: 'layer', rising: false, wanted: '', single: null };
const listeners = [];

// f(changed): changed is a set of names of members of state.
function whenChanged(f) {
  listeners.push(f);
}

function change(values) {
  const changed = new Set(Object.keys(values).filter((k) => state[k] !== values[k]));
  if (!changed.size)
    return;
  Object.assign(state, values);
  for (const f of listeners)
    f(changed);
}

const has = (changed, ...names) => names.some((n) => changed.has(n));

// Returns the steps and tokens of the shown traces.
function extent() {
  return Math.max(1, state.trace.T, state.other ? state.other.T : 0);
}

const wholeView = () => ({ x0: 0, x1: extent(), y0: 0, y1: extent() });
// Returns the view with which the figure of the same map starts.
const startView = () => firstView(state.trace, state.kind, extent());
const sameView = (a, b) => a.x0 === b.x0 && a.x1 === b.x1 && a.y0 === b.y0 && a.y1 === b.y1;
// True if the map has a logarithmic scale.
const onLogs = () => state.kind === 'beta' && state.scale === 'log';

function isWhole(view) {
  const T = extent();
  return view.x0 <= 0 && view.y0 <= 0 && view.x1 >= T && view.y1 >= T;
}

const GESTURE_REST = 200; // ms after which a gesture has ended
let gesture = 0;

// Sets the view, moved and cut to the plane, with at least some cells.  Its ends are whole numbers; moving: not before
// the gesture ends.
function setView(x0, x1, y0, y1, moving = false) {
  const T = extent(), round = moving ? (v) => v : Math.round, fit = (a, b) => {
    const size = round(Math.min(Math.max(b - a, Math.min(4, T)), T)), from = Math.min(Math.max(round((a + b - size) / 2), 0), T - size);
    return [from, from + size];
  };
  const [l, r] = fit(x0, x1), [u, d] = fit(y0, y1), view = { x0: l, x1: r, y0: u, y1: d };
  clearTimeout(gesture);
  if (!sameView(view, state.view))
    change({ view });
  if (moving)
    gesture = setTimeout(() => setView(state.view.x0, state.view.x1, state.view.y0, state.view.y1), GESTURE_REST);
}

// Zooms by a factor about the point (x, y) of the plane.
function zoomAt(x, y, factor, moving = false) {
  const v = state.view;
  setView(x - (x - v.x0) / factor, x + (v.x1 - x) / factor, y - (y - v.y0) / factor, y + (v.y1 - y) / factor, moving);
}

function panBy(dx, dy) {
  const v = state.view, T = extent();
  const x = Math.min(Math.max(dx, -v.x0), T - v.x1), y = Math.min(Math.max(dy, -v.y0), T - v.y1);
  setView(v.x0 + x, v.x1 + x, v.y0 + y, v.y1 + y, true);
}

function showKind(kind) {
  if (!state.trace.why(kind))
    change({ kind, head: state.trace.headFor(kind, state.head) });
}

// like: the head to show; default: the head that corresponds to the current one.
async function showTrace(trace, like = state.head) {
  await trace.load();
  const kinds = Object.keys(KINDS).filter((k) => !trace.why(k));
  const kind = kinds.includes(state.kind) ? state.kind : kinds[0] || 'alpha';
  const other = state.other === trace ? null : state.other;
  const T = Math.max(1, trace.T, other ? other.T : 0), fresh = !state.view || T !== extent();
  const view = fresh ? firstView(trace, kind, T) : state.view, inside = (t) => (t !== null && t < trace.T ? t : null);
  const head = trace.headFor(kind, like) || null, by = head || !trace.tokens.kept.length ? state.by : 'kept';
  change({ trace, kind, other, view, head, by, pin: inside(state.pin), time: inside(state.time) });
}

async function compareWith(other) {
  if (other)
    await other.load();
  const T = Math.max(1, state.trace.T, other ? other.T : 0);
  change({ other, view: T === extent() ? state.view : firstView(state.trace, state.kind, T) });
}

// Moves d heads forward in the order of the overview, or d layers if `layers`.
function stepHead(d, layers) {
  const list = state.trace.heads[state.kind], at = grid.list.indexOf(state.head);
  let next = at < 0 ? grid.list[0] : grid.list[at + d];
  if (layers)
    next = list.find((h) => h.layer === state.head.layer + d && h.index === state.head.index)
      || list.find((h) => h.layer === state.head.layer + d);
  if (next)
    change({ head: next });
}
