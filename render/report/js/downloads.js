// downloads.js - writes tables as kvfate prints them, from the embedded columns.

function tsvText(s) {
  return s.replace(/[\t\n\r\\]/g, (c) => ({ '\t': '\\t', '\n': '\\n', '\r': '\\r', '\\': '\\\\' })[c]);
}

function csvText(s) {
  return s === '' || /[,"\r\n#]/.test(s) ? `"${s.replace(/"/g, '""')}"` : s;
}

// Returns the lines of a table as pieces of text.
async function tableText(table, csv) {
  const columns = table.columns.filter((c) => c.here), put = csv ? csvText : tsvText, gap = csv ? ',' : '\t';
  const about = table.meta.map(([k, v]) => `# ${k}: ${tsvText(v)}\n`);
  const out = [...(csv ? [] : [`# table: ${table.name}\n`, ...about]), `${columns.map((c) => put(c.name)).join(gap)}\n`];
  for (let b = 0; b < table.blocks; b++) {
    const cells = [];
    for (const c of columns)
      cells.push(c.type === 'str' ? (await c.strings(b)).map(put) : Array.from(await c.numbers(b), exactNumber));
    const lines = [];
    for (let r = 0; r < table.block; r++)
      lines.push(cells.map((cell) => cell[r]).join(gap));
    out.push(`${lines.join('\n')}\n`);
  }
  return out;
}

async function download(trace, table, csv) {
  saveBlob(new Blob(await tableText(table, csv), { type: 'text/plain;charset=utf-8' }), `${trace.name.replace(/\.kvf$/, '')}.${table.key}.${csv ? 'csv' : 'tsv'}`);
}

// Saves the table of a view: a table of kvfate, or lines that the view makes.
async function saveTable(view, csv) {
  const given = await view.table();
  if (given[0] instanceof Trace) {
    await download(given[0], given[1], csv);
    return;
  }
  const put = csv ? csvText : tsvText, lines = given.map((cells) => cells.map((c) => (typeof c === 'number' ? exactNumber(c) : put(c))).join(csv ? ',' : '\t'));
  saveBlob(new Blob([`${lines.join('\n')}\n`], { type: 'text/plain;charset=utf-8' }), pictureName(view, csv ? 'csv' : 'tsv'));
}

function leftOut(table) {
  const of = (c) => (c.spec.dropped ? `${c.name} (for its size)` : `${c.name} (follows from log_beta)`);
  const names = table.columns.filter((c) => !c.here).map(of);
  return names.length ? `without ${names.join(', ')}` : '';
}

panel('tables', 'Tables', null, [], async (_, trace) => [
  el('ul', { class: 'tables' }, [...trace.tables.values()].map((table) => el('li', {},
    el('span', { class: 'name' }, table.key), el('span', { class: 'quiet' }, `${grouped(table.rows)} row${table.rows === 1 ? '' : 's'}`),
    el('span', { class: 'push' }, ['TSV', 'CSV'].map((kind) => el('button', { type: 'button', 'data-table': table.key,
      onclick: () => download(trace, table, kind === 'CSV') }, kind))),
    el('code', { class: 'quiet' }, wholeWords(`${table.command} -o -`)), leftOut(table) && el('span', { class: 'quiet' }, leftOut(table))))),
  ...[...trace.absent].map(([key, why]) => el('p', { class: 'quiet' }, el('b', {}, key), ` is not here: ${why}.`)),
]);

const OF_TABLE = ['heads', 'criterion']; // of the table of tokens, not of the run

panel('run', 'Run', null, [], async (_, trace) => [
  el('dl', { class: 'facts' }, [...trace.about].filter(([k]) => !OF_TABLE.includes(k))
    .map(([k, v]) => [el('dt', {}, k), el('dd', {}, tokenText(v))])),
]);
