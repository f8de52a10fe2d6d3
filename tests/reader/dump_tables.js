// dump_tables.js - writes the tables that the report page computes from traces, as JSON.
//
// usage: node dump_tables.js READER.js LIST.  A line of LIST is "TRACE<tab>OUT".  OUT gets {"error": sentence} or {"tables":
// [...]}, each table with key, command, rows, block, meta, and its columns with all values; NaN is null,
// an infinite number is "Infinity" or "-Infinity".
'use strict';
const fs = require('fs');
const path = require('path');
const { openTrace, tablesOf, TraceError } = require(path.resolve(process.argv[2]));

const repeated = (n, f) => Array.from({ length: n }, (_, r) => f(r));

// Returns all values of a column.
function valuesOf(c, table, columns) {
  const { rows, block } = table, of = (name) => valuesOf(columns.find((x) => x.name === name), table, columns);
  if (c.derived)
    return null;
  if (c.quotient || c.age) {
    const [x, y] = (c.quotient || c.age).map(of);
    return repeated(rows, (r) => (c.age ? (x[r] < 0 ? -1 : x[r] - y[r]) : y[r] === 0 ? NaN : x[r] / y[r]));
  }
  if (c.constant !== undefined)
    return repeated(rows, () => c.constant);
  if (c.affine)
    return repeated(rows, (r) => c.affine[0] + c.affine[1] * (r % block));
  if (c.strings || c.list)
    return repeated(rows, (r) => (c.strings || c.list)[c.by === 'block' ? Math.trunc(r / block) : r % block]);
  const all = repeated(block ? rows / block : 0, (b) => Array.from(c.values(b))).flat();
  return c.dict ? all.map((k) => c.dict[k]) : all;
}

function tables(name) {
  try {
    const steps = tablesOf(openTrace({ name, bytes: new Uint8Array(fs.readFileSync(name)) }));
    let next = steps.next();
    while (!next.done)
      next = steps.next();
    return { tables: next.value.map((t) => ({ ...t, columns: t.columns?.map((c) => ({ name: c.name, unit: c.unit, type: c.type, values: valuesOf(c, t, t.columns) })) })) };
  } catch (e) {
    if (!(e instanceof TraceError))
      throw e;
    return { error: e.message };
  }
}

for (const line of fs.readFileSync(process.argv[3], 'utf8').split('\n').filter(Boolean)) {
  const [name, out] = line.split('\t');
  fs.writeFileSync(out, JSON.stringify(tables(name), (_, v) => (v === Infinity || v === -Infinity ? String(v) : v)));
}
