// heads.js - the sortable table of head types.  A click on a row shows the map of its head.

const HEAD_COLUMNS = [['head', 'Head'], ['kind', 'Kind'], ['score', 'Score'], ['window', 'Window'], ['sink_mass', 'Sink'], ['recent', 'Recent'],
  ['entropy', 'Entropy'], ['last_use_sparsity', 'Unused']];
const order = { column: 'head', down: false };

// Returns a square in the colour of the head type, as in all figures.
function kindMark(kind) {
  const mark = el('span', { class: 'kind', 'aria-hidden': 'true' });
  mark.style.backgroundColor = HEAD_KINDS.get(kind) || '#b3b3b3';
  return mark;
}

function sorted(rows) {
  const { column, down } = order, sign = down ? -1 : 1;
  return [...rows].sort((a, b) => {
    const x = column === 'head' ? a.place : a[column], y = column === 'head' ? b.place : b[column];
    if (typeof x === 'string')
      return sign * x.localeCompare(y) || a.place - b.place;
    return Number.isNaN(x) ? 1 : Number.isNaN(y) ? -1 : sign * (x - y) || a.place - b.place;
  });
}

function headRow(row) {
  const on = Boolean(state.head) && (state.head.name === row.head || state.trace.kvHead(state.head) === row.head);
  return el('tr', { 'aria-current': on ? 'true' : null, class: on ? 'on' : null, onclick: () => chooseHead(row.head, row.layer, row.index) },
    HEAD_COLUMNS.map(([name], k) => el(k ? 'td' : 'th', { scope: k ? null : 'row', class: typeof row[name] === 'number' ? 'number' : null },
      name === 'kind' ? kindMark(row[name]) : null, k ? (typeof row[name] === 'number' ? shortNumber(row[name], 3) : row[name])
        : el('button', { type: 'button', 'aria-label': `Show the map of ${row.head}` }, row.head))));
}

function headTable(rows, redraw) {
  const press = (name) => {
    order.down = order.column === name ? !order.down : !['head', 'kind'].includes(name);
    order.column = name;
    redraw();
  };
  const isNumber = (name) => rows.length > 0 && typeof rows[0][name] === 'number';
  const titles = HEAD_COLUMNS.map(([name, title]) => el('th', { scope: 'col', class: isNumber(name) ? 'number' : null,
    'aria-sort': order.column === name ? (order.down ? 'descending' : 'ascending') : null },
    el('button', { type: 'button', onclick: () => press(name) }, title)));
  return el('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Heads' },
    el('table', {}, el('thead', {}, el('tr', {}, titles)), el('tbody', {}, sorted(rows).map(headRow))));
}

panel('kinds', 'Head types', 'heads', ['head', 'wanted'], async (table) => {
  const names = [...HEAD_COLUMNS.map(([n]) => n), 'layer', 'index'].filter((n) => table.has(n)), values = {};
  for (const name of names)
    values[name] = await table.column(name).all();
  const rows = values.head.map((_, k) => Object.assign({ place: k }, ...names.map((n) => ({ [n]: values[n][k] }))));
  const host = el('div', {}), redraw = () => host.replaceChildren(headTable(rows, redraw));
  redraw();
  return [kindChips(new Map(rows.map((row) => [row.head, row.kind])), rows.map((row) => ({ ...row, name: row.head }))), host];
});
