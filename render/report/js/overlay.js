// overlay.js - draws all traces in one panel: one colour per method, as in the figures.

const DASHES = [null, '7 3', '2 2.5', '9 3 2 3'];

// Returns the colour of a method in the figures; the i-th colour of lines for an unknown method.
const methodColour = (trace, i) => METHOD_COLOURS.get((trace.about.get('method') || '').split(/[:, ]/)[0]) || LINES[i % 6];

// True if a colour is too dark for a dark page, where it is inverted: its contrast there is below 3.
function isDark(colour) {
  const [r, g, b] = [1, 3, 5].map((k) => (parseInt(colour.slice(k, k + 2), 16) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b < 0.13;
}

// Returns the name, the colour and the dashes of a trace in every panel.  Traces of one colour differ in the dashes.
function lookOf(trace) {
  if (!trace.look) {
    const colours = TRACES.map(methodColour), before = colours.slice(0, trace.index).filter((c) => c === colours[trace.index]).length;
    trace.look = { name: shortName(trace), colour: colours[trace.index], dash: DASHES[before % DASHES.length], printed: isDark(colours[trace.index]) };
  }
  return trace.look;
}

// Shows one trace in all panels that draw all traces, or all for null.
function showSingle(trace) {
  change({ single: trace });
  say(trace ? `Panels: only ${shortName(trace)}` : 'Panels: all traces');
}

// Returns the key of the traces.  A press on a trace shows only it; another press shows all.
function traceKey() {
  return el('ul', { class: 'keys traces', 'aria-label': 'Traces' }, TRACES.map((trace) => {
    const look = lookOf(trace), sample = svg('svg', { viewBox: '0 0 22 8', class: 'sample', 'aria-hidden': 'true' },
      svg('path', { class: lineClass(look), d: 'M1 4H21', stroke: look.colour, 'stroke-dasharray': look.dash }));
    return el('li', {}, el('button', { type: 'button', class: state.single && state.single !== trace ? 'dim' : null, 'data-single': String(trace.index),
      'aria-pressed': String(state.single === trace), title: state.single === trace ? 'Show all traces' : `Show only ${look.name}`,
      onclick: () => pressKey(trace) }, sample, look.name));
  }));
}

// Keeps the focus in the panel whose key was pressed.
function pressKey(trace) {
  const own = document.activeElement?.closest('.panel');
  showSingle(state.single === trace ? null : trace);
  if (own)
    refocus(own.id, `[data-single="${trace.index}"]`);
}

// Gives the focus back when a redrawn panel has lost it.
function refocus(id, selector) {
  const again = () => document.activeElement === document.body && byId(id).querySelector(selector)?.focus({ preventScroll: true });
  new MutationObserver((_, watcher) => {
    watcher.disconnect();
    again();
  }).observe(byId(id), { childList: true, subtree: true });
}

// Returns the content of a panel with all traces.
async function overlayParts(p, key) {
  await Promise.all(TRACES.map((t) => t.load()));
  const all = TRACES.map((trace) => ({ trace, table: trace.table(key) })), some = all.filter(({ trace, table }) => table && table.rows && trace.T);
  const missing = all.filter((x) => !some.includes(x)).map(({ trace }) => `${shortName(trace)}: ${trace.absent.get(key) || 'no data'}`);
  p.drawn = null;
  if (!some.length)
    return [nothing(new Set(missing.map((m) => m.split(': ').slice(1).join(': '))).size === 1 ? `All traces: ${all[0].trace.absent.get(key) || 'no data'}` : missing.join('; '))];
  const drawn = p.drawn = await p.overlay(some), problems = [...(drawn.problems || []), ...missing];
  const notes = new Map(some.filter(({ table }) => table.about.has('note')).map(({ trace, table }) => [shortName(trace), table.about.get('note')]));
  const shared = new Set(notes.values()).size === 1 && notes.size === some.length;
  return [drawn.tools, drawn.sentence ? nothing(drawn.sentence) : drawn.lines.length ? lineChart({ title: `${p.title}, all traces`, ...drawn }) : nothing('No curve.'),
    drawn.facts && el('ul', { class: 'quiet plain' }, drawn.facts.map((f) => el('li', {}, f))), drawn.note && nothing(drawn.note),
    ...(shared ? [nothing(`Note: ${[...notes.values()][0]}.`)] : [...notes].map(([name, note]) => nothing(`Note on ${name}: ${note}.`))),
    problems.length > 0 && nothing(`Not shown: ${problems.join('; ')}.`)];
}

// Returns the lines of an overlay as rows of a table.
const overlayTable = (drawn) => [['trace', 'x', 'y'], ...(drawn ? drawn.lines : []).flatMap((line) => line.points.map(([x, y]) => [line.name, x, y]))];
