// opener.js - opens traces (.kvf) in the page: by a button, or by dropping files.

const MOST_TRACES = 8;
const opened = new Set(); // names of the traces that were opened, not embedded
const SLICE = 12;         // ms of work before the page may draw

const MISSING_HERE = ['columns of dilution except its mean, scores of retrieval and induction heads, and budgets per head, in the tables', 'classes of tokens of your own (--classes), and other criteria of last use than mass.90'];

function openButton(label, classes) {
  return el('button', { type: 'button', class: classes, onclick: () => {
    const input = el('input', { type: 'file', multiple: true, accept: '.kvf,.unfinished,.tail', class: 'unseen', tabindex: '-1', 'aria-hidden': 'true', onchange: () => {
      openFiles([...input.files]);
      input.remove();
    } });
    document.body.append(input);
    input.click();
  } }, label);
}

// Shows how to open traces, in a page without any.
function showOpener() {
  document.body.classList.add('empty');
  byId('title').textContent = 'kvfate trace viewer';
  byId('subtitle').textContent = 'This page shows traces that \u2018kvfate run -o X.kvf\u2019 records. It reads them in the browser and sends nothing.';
  document.title = 'kvfate trace viewer';
  byId('opener').replaceChildren(el('div', {}, el('h2', { id: 'opener-title' }, 'Open traces'),
    el('p', {}, `Drop one to ${MOST_TRACES} files (.kvf) on this page, or choose them. Several traces are compared. Of an unfinished trace, add its .tail file for the newest state.`),
    openButton('Open traces', 'first'),
    el('p', { class: 'quiet' }, 'You see the text, the maps of cached entries, retention and last use, and the panels survival, occupancy, positions, cache size, sparsity, dilution and head types, '
      + 'with the same values as in the page of \u2018kvfate report\u2019. This page lacks:'),
    el('ul', { class: 'quiet' }, MISSING_HERE.map((text) => el('li', {}, text))),
    el('p', { class: 'quiet' }, `Traces of up to ${MAX_FILE / 2 ** 30} GiB are read. \u2018kvfate report X.kvf -o X.html\u2019 makes a page with all panels.`)));
  byId('opener').setAttribute('role', 'main'); // the other main part is not shown
  byId('opener').hidden = false;
}

// Runs a generator in slices that keep the page responsive, and returns its result.
async function inSlices(steps, tell) {
  for (let next = steps.next(), end = performance.now() + SLICE; ; next = steps.next()) {
    if (next.done)
      return next.value;
    if (performance.now() > end) {
      tell(next.value);
      await new Promise((go) => setTimeout(go, 0));
      end = performance.now() + SLICE;
    }
  }
}

const bytesOfFile = async (file) => ({ name: file.name, bytes: new Uint8Array(await file.arrayBuffer()) });

// Returns the traces among files, each with its tail: [[file, tail or null]].
function pairsOf(files) {
  const base = (name) => name.replace(/\.unfinished$/, ''), tails = files.filter((f) => f.name.endsWith('.tail'));
  const tailOf = (file) => tails.find((f) => f !== file && f.name === `${base(file.name)}.tail`) || null;
  const others = files.filter((f) => !tails.includes(f) || !files.some((x) => tailOf(x) === f));
  return others.map((f) => [f, tailOf(f)]);
}

// Returns the sentences that `kvfate report` prints about an incomplete trace.
function incomplete(t) {
  const out = t.tailAside ? [`${t.tailAside}; the newest state of the run, which was there, is not read`] : [];
  if (t.steps === 0)
    out.push(`${t.name} has no steps${t.clean ? '' : ': it was not closed'}`);
  else if (!t.clean)
    out.push(`${t.name} was not closed: this page shows its last snapshot (${t.steps} steps)`);
  else if (t.note('repaired'))
    out.push(`${t.name} was repaired, and may lack lost data`);
  return out;
}

// Reads one file and adds its trace.  Returns sentences about it; throws an error that says why it cannot be shown.
async function addFile(file, tail) {
  if (TRACES.length === MOST_TRACES)
    throw new TraceError('KVF_E_LIMIT', `${file.name}: this page shows at most ${MOST_TRACES} traces; reload it to begin again`);
  if (file.size > MAX_FILE)
    throw new TraceError('KVF_E_LIMIT', `${file.name}: has ${file.size} bytes, more than the ${MAX_FILE} that this page reads; 'kvfate trace trim' writes a part of it`);
  const t = openTrace(await bytesOfFile(file), tail ? await bytesOfFile(tail) : null), index = TRACES.length;
  const tables = await inSlices(tablesOf(t, index), (done) => telling(`Reading ${file.name}: ${Math.round(100 * done)} %`));
  MANIFEST.traces.push(t.name);
  MANIFEST.tables.push(...tables);
  opened.add(t.name);
  TRACES.push(new Trace(index, t.name));
  return incomplete(t);
}

function telling(text) {
  byId('opened').replaceChildren(...(text ? [el('p', { class: 'quiet' }, text)] : []));
}

// Opens files one after the other and shows the first new trace.
async function openFiles(files) {
  const problems = [], notes = [], before = TRACES.length;
  for (const [file, tail] of pairsOf(files)) {
    telling(`Reading ${isolated(file.name)}`);
    await new Promise((go) => setTimeout(go, 0)); // the page draws this line first
    try {
      notes.push(...await addFile(file, tail));
    } catch (e) {
      problems.push(e instanceof TraceError ? e.message : `${file.name}: cannot be read: ${e && e.message}`);
    }
  }
  telling('');
  byId('opened').replaceChildren(...problems.map((text) => el('p', { class: 'problem' }, text)), ...notes.map((text) => el('p', { class: 'quiet' }, text)));
  if (TRACES.length > before)
    await showOpened(before);
}

async function showOpened(first) {
  const fresh = document.body.classList.contains('empty'), none = { other: null, kind: null, head: null, view: null, pin: null, time: null, by: null };
  byId('opener').hidden = true;
  byId('opener').removeAttribute('role');
  document.body.classList.remove('empty');
  TRACES.forEach((t) => { t.look = null; });
  if (fresh) {
    await showTraces(askedFor());
  } else {
    layHeadline(TRACES.map(waiting));
    await openAt({ ...state, ...none, trace: TRACES[first] });
    await drawHeadline();
    footer();
    TRACES.forEach((t) => t.fates());
  }
  say(`Opened ${TRACES.slice(first).map((t) => t.name).join(', ')}`);
  performance.mark('kvfate-opened');
}

function listenToFiles() {
  const carriesFiles = (e) => e.dataTransfer && [...e.dataTransfer.types].includes('Files'), mark = (on) => document.body.classList.toggle('dropping', on);
  document.addEventListener('dragover', (e) => {
    if (!carriesFiles(e))
      return;
    e.preventDefault();
    mark(true);
  });
  document.addEventListener('dragleave', (e) => e.relatedTarget === null && mark(false));
  document.addEventListener('drop', (e) => {
    mark(false);
    if (!carriesFiles(e))
      return;
    e.preventDefault();
    openFiles([...e.dataTransfer.files]);
  });
}
