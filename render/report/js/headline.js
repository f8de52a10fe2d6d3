// headline.js - one line per trace: how much was evicted, how old, of which classes, and the cost.

const LEAST_TOKENS = 5; // of a class that is named

// Returns the classes that the fewest heads still cache at the end: [[class, fraction evicted]].
function lostClasses(trace) {
  const { kept, class: names } = trace.tokens, sums = new Map();
  for (let i = 0; i < kept.length; i++) {
    const s = sums.get(names[i]) || { n: 0, lost: 0 };
    s.n++;
    s.lost += 1 - kept[i];
    sums.set(names[i], s);
  }
  return [...sums].filter(([name, s]) => name && s.n >= LEAST_TOKENS && s.lost > 0).map(([name, s]) => [name, s.lost / s.n]).sort((a, b) => b[1] - a[1]);
}

// Returns the mean over the tokens after the prompt that have a value.
function meanAfterPrompt(trace, values) {
  const from = trace.prompt < trace.T ? trace.prompt : 0;
  let sum = 0, n = 0;
  for (let i = from; i < values.length; i++)
    if (!Number.isNaN(values[i])) {
      sum += values[i];
      n++;
    }
  return n ? sum / n : NaN;
}

const notRecorded = (option) => el('span', { class: 'quiet', title: `kvfate run ${option} records it` }, 'not recorded');

async function headlineOf(trace) {
  const about = trace.table('eviction')?.about || new Map(), n = Number(about.get('entries')), gone = Number(about.get('evicted'));
  const lost = lostClasses(trace).slice(0, 2), kl = meanAfterPrompt(trace, trace.tokens.kl || []), missed = Number(trace.table('regret')?.about.get('mean_kept_mass'));
  const mean = Number(about.get('cached_mean') ?? NaN), peak = Number(about.get('cached_peak') ?? NaN);
  return { trace, mean, peak, gone, share: n ? gone / n : NaN, age: Number(about.get('age_median')), lost, kl, missed: 1 - missed };
}

const EQUAL_MEMORY = 0.02; // traces of one budget whose entries differ by more than this share are told

const oneDecimal = (v) => String(Number(v.toFixed(1)));

// Returns a sentence for each budget whose traces cache different numbers of entries.
function unequalMemory(lines) {
  const told = [];
  for (const budget of new Set(lines.map((h) => h.trace.budget).filter((b) => b > 0)))
    for (const [key, what] of [['mean', 'on average'], ['peak', 'at most']]) {
      const some = lines.filter((h) => h.trace.budget === budget && h[key] > 0).sort((a, b) => a[key] - b[key]);
      const least = some[0], most = some[some.length - 1];
      if (some.length > 1 && most[key] > (1 + EQUAL_MEMORY) * least[key])
        told.push(`At budget ${budget} a head caches ${oneDecimal(least[key])} entries ${what} under ${nameOf(least.trace)} and `
          + `${oneDecimal(most[key])} under ${nameOf(most.trace)}: equal budgets are not equal memory here.`);
    }
  return told;
}

const HEADLINE = [
  ['Entries', 'Entries of a head that a query after the prompt sees: on average, and the most', (h) => (Number.isNaN(h.mean) ? '\u2013'
    : `${oneDecimal(h.mean)}, at most ${oneDecimal(h.peak)}`)],
  ['Evicted', 'Share of all entries of all heads that were evicted', (h) => (Number.isNaN(h.share) ? notRecorded('--probes evict') : percent(h.share))],
  ['Median age', 'Steps from writing to eviction, of half of the evicted entries at most', (h) => (h.gone > 0 ? counted(h.age, 'step') : '\u2013')],
  ['Lost most', 'Classes of tokens of which the fewest heads hold anything at the end', (h) => (h.lost.length && h.gone > 0
    ? h.lost.map(([name, share]) => `${isolated(marked(name))} ${percent(share)}`).join(', ') : '\u2013')],
  ['Attention missed', 'Share of attention after the prompt that would have gone to evicted entries', (h) => (Number.isNaN(h.missed)
    ? (h.gone > 0 ? notRecorded('--shadow entries') : '\u2013') : percent(Math.max(0, h.missed)))],
  ['KL to full cache', 'Nats between the predictions of this run and those of a full cache, mean after the prompt', (h) => (Number.isNaN(h.kl)
    ? (h.gone > 0 ? notRecorded('--shadow model') : '\u2013') : shortNumber(h.kl, 3))],
];

function headlineRow(h) {
  const { trace } = h, on = state.trace === trace;
  const name = trace.method ? [el('span', { class: 'long' }, `${trace.title} \u00b7 `), trace.method] : trace.title;
  return el('tr', { class: on ? 'on' : null, 'aria-current': on ? 'true' : null, onclick: () => showTrace(trace) },
    el('th', { scope: 'row' }, el('button', { type: 'button', 'data-trace': String(trace.index), 'aria-pressed': String(on) }, name)),
    HEADLINE.map(([, , text]) => el('td', {}, h.waiting ? '\u2026' : text(h))));
}

const HEADLINE_VIEW = { name: 'Headline', commands: () => TRACES.map((t) => ofTable(t, 'eviction')),
  table: async () => [['trace', 'budget', 'cached_mean', 'cached_peak', 'evicted', 'age_median', 'lost_most', 'attention_missed', 'kl'], ...(await Promise.all(TRACES.map(headlineOf))).map((h) =>
    [h.trace.name, h.trace.budget, h.mean, h.peak, h.share, h.gone > 0 ? h.age : NaN, h.lost.map(([c, s]) => `${c} ${exactNumber(s)}`).join('; '), h.missed, h.kl])] };

// lines: from headlineOf, or from `waiting` until these are known, so that the table has its size from the start.
function layHeadline(lines) {
  byId('headline').replaceChildren(el('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'What became of the entries' }, el('table', {},
    el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'Trace'), HEADLINE.map(([title, why]) => el('th', { scope: 'col', title: why }, title)))),
    el('tbody', {}, lines.map(headlineRow))), unequalMemory(lines).map((text) => el('p', { class: 'quiet unequal' }, text))), saveMenu(HEADLINE_VIEW));
}

const waiting = (trace) => ({ trace, waiting: true });

async function drawHeadline() {
  await Promise.all(TRACES.map((t) => t.load()));
  layHeadline(await Promise.all(TRACES.map(headlineOf)));
  performance.mark('kvfate-headline');
}

function markHeadline() {
  for (const row of document.querySelectorAll('#headline tbody tr')) {
    const button = row.querySelector('button'), on = button.dataset.trace === String(state.trace.index);
    row.classList.toggle('on', on);
    if (on)
      row.setAttribute('aria-current', 'true');
    else
      row.removeAttribute('aria-current');
    button.setAttribute('aria-pressed', String(on));
  }
}

function watchHeadline(changed) {
  if (has(changed, 'trace'))
    markHeadline();
}
