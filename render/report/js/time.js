// time.js - the slider of time: the cache at one query, in the text and in every map.

const clock = { timer: 0 };
const PLAY_TICK = 50, PLAY_TICKS = 240; // ms of a step while playing, and the most steps
const lastQuery = () => Math.max(0, state.trace.T - 1);

function showTime(t) {
  change({ time: Math.min(lastQuery(), Math.max(0, t)) });
}

// Moves the shown query; from the end of the text if none is shown.
function stepTime(d) {
  pause();
  showTime((state.time ?? lastQuery()) + d);
}

function pause() {
  clearInterval(clock.timer);
  clock.timer = 0;
  tellTime();
}

// Plays from the shown query, or from the top of the map, to the end of the text.
function play() {
  const top = Math.floor(startView().y0), from = state.time === null || state.time >= lastQuery() ? Math.min(top, lastQuery()) : state.time;
  const step = Math.max(1, Math.ceil((lastQuery() - top) / PLAY_TICKS));
  showTime(from);
  clock.timer = setInterval(() => {
    showTime((state.time ?? from) + step);
    if (state.time >= lastQuery())
      pause();
  }, Math.max(PLAY_TICK, Math.min(400, 6000 / Math.max(1, lastQuery() - top))));
  tellTime();
}

const togglePlay = () => (clock.timer ? pause() : play());

function timeTools() {
  const button = (id, label, text, onclick) => el('button', { type: 'button', id, 'aria-label': label, title: label, onclick }, text);
  const slider = el('input', { type: 'range', id: 'query', min: 0, max: lastQuery(), step: 1, 'aria-label': 'Query', oninput: () => {
    const t = Number(slider.value);
    pause();
    showTime(t);
  } });
  byId('time').replaceChildren(button('play', 'Play the queries', '\u25b6', togglePlay), button('query-before', 'Previous query', '\u2039', () => stepTime(-1)), slider,
    button('query-after', 'Next query', '\u203a', () => stepTime(1)), el('span', { id: 'query-note', class: 'quiet' }), button('query-all', 'Show all queries', '\u00d7', () => {
      pause();
      change({ time: null });
    }));
}

// Returns the number of entries of the shown head that are cached at query t, or NaN.
async function cachedAt(t) {
  const { trace, head } = state, fates = head ? await trace.fates() : null, own = fates ? fates.heads.findIndex((h) => h.name === trace.kvHead(head)) : -1;
  if (own < 0)
    return NaN;
  let n = 0;
  for (let i = 0; i <= t; i++)
    n += fates.end[own][i] < 0 || fates.end[own][i] > t;
  return n;
}

async function tellTime() {
  const { time, trace, head } = state, slider = byId('query'), button = byId('play'), playing = clock.timer !== 0;
  button.textContent = playing ? '\u23f8\ufe0e' : '\u25b6\ufe0e';
  button.setAttribute('aria-label', playing ? 'Pause' : 'Play the queries');
  slider.value = time ?? lastQuery();
  byId('query-all').disabled = time === null;
  const n = time === null ? NaN : await cachedAt(time);
  if (time !== state.time || trace !== state.trace)
    return;
  const note = time === null ? 'All queries' : `Query ${grouped(time)} of ${grouped(lastQuery())}${Number.isNaN(n) ? '' : `: ${trace.kvHead(head)} caches ${grouped(n)} of ${counted(time + 1, 'token')}`}`;
  byId('query-note').textContent = note;
  slider.setAttribute('aria-valuetext', note);
}

// Covers the queries after the shown one in all maps.
function markTime() {
  const { time, view } = state, share = time === null ? 1 : Math.min(1, Math.max(0, (time + 1 - view.y0) / (view.y1 - view.y0)));
  document.body.classList.toggle('timed', time !== null);
  byId('main').style.setProperty('--query', `${(100 * share).toFixed(3)}%`);
}

function watchTime(changed) {
  if (has(changed, 'trace')) {
    clearInterval(clock.timer);
    clock.timer = 0;
    timeTools();
  }
  if (has(changed, 'time', 'view', 'trace', 'other'))
    markTime();
  if (has(changed, 'time', 'trace', 'head', 'kind'))
    tellTime();
}
