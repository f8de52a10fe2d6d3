// dump_trace.js - writes all contents of traces as text, with the reader of the report page.
//
// usage: node dump_trace.js READER.js LIST.  A line of LIST is "TRACE<tab>TAIL<tab>OUT".  TAIL is the
// file of the newest state of an unfinished trace, or empty.  dump_trace.c writes the same lines with
// the library: an error; or the trace, its layers, run header, columns with the values of each head,
// texts, notes and blobs.  Numbers and texts of the trace are hexadecimal.
'use strict';
const fs = require('fs');
const path = require('path');
const { openTrace, TraceError } = require(path.resolve(process.argv[2]));

const MOST_READS = 20000, MOST_BYTES = 24 << 20, MOST_TEXTS = 4096, MOST_BLOBS = 64;
let written = 0;

function hex(bytes) {
  written += bytes.byteLength;
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');
}

// Returns the result of f, or the line of its error.
function tried(f) {
  try {
    return f();
  } catch (e) {
    if (!(e instanceof TraceError))
      throw e;
    return `error ${e.code} ${e.message}`;
  }
}

function valuesOf(t, c, layer, head) {
  if (!(t.columns[c].flags & 4))
    return hex(t.read(c, layer, head));
  const { end, pairs } = t.lists(c, layer, head);
  return `${hex(end)} ${hex(pairs)}`;
}

function* columns(t) {
  let reads = 0;
  for (const [c, col] of t.columns.entries()) {
    yield `column ${c} ${hex(Buffer.from(col.name, 'latin1'))} ${col.dtype} ${col.space} ${col.axis} ${col.flags} `;
    for (let l = 0; l < t.kv.length; l++)
      for (let h = 0; h < t.heads(l, col.space); h++)
        if (++reads <= MOST_READS && written < MOST_BYTES)
          yield `values ${c} ${l} ${h} ${tried(() => valuesOf(t, c, l, h))}`;
  }
}

function* texts(t) {
  for (let i = 0; i < t.steps && i < MOST_TEXTS; i++) {
    const s = t.text(i);
    yield `text ${i} ${s ? hex(s) : 'none'}`;
  }
  for (const key of ['result', 'part', 'repaired', 'heads', 'spans', 'k', 'x'])
    if (t.note(key))
      yield `note ${key} ${hex(t.note(key))}`;
}

function* blobs(t) {
  for (const [i, r] of t.blobs.entries()) {
    if (i >= MOST_BLOBS || written >= MOST_BYTES)
      return;
    yield `blob ${i} ${tried(() => {
      const b = t.blob(r);
      return `${hex(Buffer.from(b.name, 'latin1'))} ${b.dtype} ${b.layer} ${b.head} ${b.t0} ${b.shape.join(' ')} ${hex(b.bytes)}`;
    })}`;
  }
}

function* lines(name, tail) {
  const file = (p) => ({ name: p, bytes: new Uint8Array(fs.readFileSync(p)) });
  const t = tried(() => openTrace(file(name), tail ? file(tail) : null));
  if (typeof t === 'string') {
    yield t;
    return;
  }
  yield `open ${t.steps} ${t.epoch} ${t.clean ? 1 : 0} ${/[^0]/.test(t.id) ? t.id : ''}`;
  if (t.tailAside)
    yield `aside ${t.tailAside}`;
  for (let l = 0; l < Math.min(t.kv.length, 64); l++)
    yield `layer ${l} ${t.kv[l]} ${t.query[l]}`;
  yield `meta ${hex(t.meta)}`;
  yield* columns(t);
  yield* texts(t);
  yield* blobs(t);
}

for (const line of fs.readFileSync(process.argv[3], 'utf8').split('\n').filter(Boolean)) {
  const [name, tail, out] = line.split('\t'), started = Date.now();
  written = 0;
  fs.writeFileSync(out, [...lines(name, tail)].map((l) => `${l}\n`).join(''));
  if (Date.now() - started > 20000)
    console.log(`slow: ${name} took ${Date.now() - started} ms`);
}
