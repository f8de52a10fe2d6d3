// open.js - the first view of the page: the view of its address, or else a trace that evicts, an informative head, and
// the queries from shortly before the first eviction.

const ofEvictions = (trace, name) => trace.table('eviction')?.about.get(name);
const evicts = (trace) => Number(ofEvictions(trace, 'evicted')) > 0;

// Starts like the figure of the map.  `eviction` has 1/8 as many steps before the first eviction as after it.
function firstView(trace, kind, T) {
  const first = kind === 'alpha' ? Number(ofEvictions(trace, 'first_eviction') ?? -1) : -1;
  return { x0: 0, x1: T, y0: first >= 0 && first < T ? Math.max(0, Math.floor(first - (T - first) / 8)) : 0, y1: T };
}

// Returns the first head to show: the head with the most separate runs of cached entries.
const worthSeeing = (trace) => trace.heads.alpha.find((h) => h.name === ofEvictions(trace, 'scattered_head'));

function kindFor(trace, asked) {
  const kinds = Object.keys(KINDS).filter((k) => !trace.why(k));
  if (kinds.includes(asked))
    return asked;
  return kinds.find((k) => k !== 'alpha' || evicts(trace)) || kinds[0] || 'alpha';
}

async function openAt(asked) {
  const trace = asked.trace || TRACES.find(evicts) || TRACES[0], other = asked.other && asked.other !== trace ? asked.other : null;
  await Promise.all([trace, other].filter(Boolean).map((t) => t.load()));
  const kind = kindFor(trace, asked.kind);
  const named = trace.heads[kind].find((h) => h.name === asked.head), T = Math.max(1, trace.T, other ? other.T : 0);
  const head = named || trace.headFor(kind, worthSeeing(trace)) || null;
  const inside = asked.view && asked.view.x1 <= T && asked.view.y1 <= T, all = { x0: 0, x1: T, y0: 0, y1: T };
  const view = inside ? asked.view : asked.whole ? all : firstView(trace, kind, T), within = (t) => (t !== null && t < trace.T ? t : null);
  const by = asked.by || (head || !trace.tokens.kept.length ? 'head' : 'kept');
  const { order, rising, wanted, single, scale, found } = asked;
  change({ trace, other, kind, head, view, by, pin: within(asked.pin), time: within(asked.time), colours: asked.colours || state.colours, found, order, rising,
    wanted, single, scale });
}
