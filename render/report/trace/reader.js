// reader.js - reads traces (.kvf) as docs/reference/format.md defines them.
//
// openTrace() takes the complete bytes of a file.  It finds the records by the index of a closed
// trace, or by walking over the records of an unfinished one, and reads run header, schema, commits
// and notes.  Values are decoded when they are asked for.  Every record is checked (CRC-32C, place,
// hash of its header) before it is used.  Errors are TraceError: `code` is the name of the code in
// <kvf/err.h>, the message is the sentence of the C reader.

const TRACE_MAGIC = [0x89, 0x4b, 0x56, 0x46, 0x0d, 0x0a, 0x1a, 0x0a];
const FOOTER_MAGIC = [0x4b, 0x56, 0x46, 0x45, 0x4e, 0x44, 0x0d, 0x0a];
const SYNC = 0x52465ac5;
const FILE_HEADER = 64, FOOTER = 64, COLUMN_ENTRY = 68, BLOB_HEADER = 80, NAME_MAX = 48;
const REC = { META: 1, SCHEMA: 2, TOKENS: 3, COLUMN: 4, NOTE: 5, COMMIT: 6, CHECKPOINT: 7, INDEX: 8, INTERVALS: 9, BLOB: 10 };
const CODEC = { RAW: 0, CONSTANT: 1, SHUFFLE_ZSTD: 2 };
const COL = { SNAPSHOT: 1, AGE: 2, INTERVALS: 4 };
const SPACE = { RUN: 0, KV: 1, QUERY: 2 };
// Types of values, by their code: the array that holds them.  f16 and bf16 occur only in blobs.
const DTYPES = [null, Uint8Array, Uint16Array, Uint32Array, Int32Array, Float32Array, Float64Array, BigUint64Array, Uint16Array, Uint16Array];
const U32 = 3, U64 = 7;
const MAX_STEPS = 2 ** 24, MAX_RECORDS = 2 ** 24, MAX_META = 2 ** 24, MAX_CHUNK = 2 ** 24, MAX_BLOB = 2 ** 24;
const MAX_LAYERS = 4096, MAX_HEADS = 4096, MAX_COLUMNS = 4096, MAX_KEY = 255, MAX_LISTS = 65535, MAX_RANK = 4;
// Limits of this reader: bytes of a file, records of a file (as objects, about 250 bytes each), bytes of
// decoded chunks that are kept, and records that one read may look at.
const MAX_FILE = 2 ** 30, MAX_HERE = 2 ** 21, CACHED = 48 * 2 ** 20, MAX_LOOKS = 2 ** 25;

class TraceError extends Error {
  constructor(code, text) {
    super(text);
    this.name = 'TraceError';
    this.code = code;
  }
}

// Returns bytes as text on one line: control characters and bytes that are not UTF-8 as \xHH, a line
// feed as U+21B5 and a tab as U+2192.
function shownBytes(bytes) {
  const hex = (from, n) => Array.from(bytes.subarray(from, from + n), (b) => `\\x${b.toString(16).toUpperCase().padStart(2, '0')}`).join('');
  let out = '';
  for (let i = 0; i < bytes.length;) {
    const [n, code] = characterAt(bytes, i);
    const control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    out += code === 10 ? '\u21b5' : code === 9 ? '\u2192' : code < 0 || control ? hex(i, n) : String.fromCodePoint(code);
    i += n;
  }
  return out;
}

// Returns [length, code] of the UTF-8 character at a place; [1, -1] if there is none.
function characterAt(bytes, at) {
  const first = bytes[at], n = first < 0x80 ? 1 : first >> 5 === 6 ? 2 : first >> 4 === 14 ? 3 : first >> 3 === 30 ? 4 : 0;
  if (!n || at + n > bytes.length)
    return [1, -1];
  let code = n === 1 ? first : first & 0x7f >> n;
  for (let i = 1; i < n; i++) {
    if (bytes[at + i] >> 6 !== 2)
      return [1, -1];
    code = code << 6 | bytes[at + i] & 0x3f;
  }
  const least = [0, 0, 0x80, 0x800, 0x10000][n];
  return code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? [1, -1] : [n, code];
}

const sameBytes = (a, b) => a.length === b.length && a.every((v, i) => v === b[i]);
const padded = (n) => Math.ceil(n / 8) * 8;
// Returns the bytes before the first zero byte.
const untilZero = (bytes) => (bytes.includes(0) ? bytes.subarray(0, bytes.indexOf(0)) : bytes);
const plainName = (bytes) => String.fromCharCode(...untilZero(bytes));
const isChunk = (r) => r.type === REC.COLUMN || r.type === REC.INTERVALS;
const isUnknown = (r) => r.type < REC.META || r.type > REC.BLOB;

// The order of the index.
function compareRecords(a, b) {
  return a.type - b.type || a.column - b.column || a.layer - b.layer || a.epoch - b.epoch || a.head0 - b.head0 || a.t0 - b.t0
    || a.offset - b.offset;
}

const sameRecord = (a, b) => compareRecords(a, b) === 0 && a.stored === b.stored && a.raw === b.raw && a.n === b.n && a.nHeads === b.nHeads
  && a.codec === b.codec && a.hash === b.hash;

// Returns elements from their byte planes: the first bytes of all elements, then the second bytes and so on.
function joinPlanes(planes, width) {
  if (width === 1)
    return planes;
  const n = planes.length / width, out = new Uint8Array(planes.length);
  for (let k = 0; k < width; k++)
    for (let i = 0, from = k * n, to = k; i < n; i++, from++, to += width)
      out[to] = planes[from];
  return out;
}

// Returns the content size that a zstd frame states, or -1.
function contentSize(frame) {
  if (frame.length < 6 || frame[0] !== 0x28 || frame[1] !== 0xb5 || frame[2] !== 0x2f || frame[3] !== 0xfd)
    return -1;
  const flags = frame[4], single = flags >> 5 & 1, width = flags >> 6 ? 1 << (flags >> 6) : single;
  const at = 6 - single + [0, 1, 2, 4][flags & 3];
  if (!width || at + width > frame.length)
    return -1;
  let size = width === 2 ? 256 : 0;
  for (let k = 0; k < width; k++)
    size += frame[at + k] * 256 ** k;
  return size;
}

// Decodes one zstd frame of exactly n bytes; throws an Error.
function decodeFrame(frame, n) {
  if (contentSize(frame) !== n)
    throw new Error('the content size differs');
  const out = new Uint8Array(n), end = unzstd(frame, out), summed = frame[4] & 4;
  if (end + summed !== frame.length)
    throw new Error('bytes follow the frame');
  if (summed && viewOf(frame).getUint32(end, true) !== frameChecksum(out))
    throw new Error('the checksum differs');
  return out;
}

// Decodes values of `width` bytes.  Returns raw bytes; throws the code of an error.
function decodeValues(stored, codec, width, raw) {
  if (raw % width)
    throw 'KVF_E_CORRUPT';
  if (codec === CODEC.RAW) {
    if (stored.length !== raw)
      throw 'KVF_E_CORRUPT';
    return stored.slice();
  }
  if (codec === CODEC.CONSTANT) {
    if (stored.length !== width)
      throw 'KVF_E_CORRUPT';
    const out = new Uint8Array(raw);
    for (let i = 0; i < raw; i++)
      out[i] = stored[i % width];
    return out;
  }
  if (codec !== CODEC.SHUFFLE_ZSTD)
    throw 'KVF_E_VERSION';
  try {
    return joinPlanes(decodeFrame(stored, raw), width);
  } catch (e) {
    throw 'KVF_E_CORRUPT';
  }
}

class TraceReader {
  // name: the file, in messages; bytes: all of it.  Use openTrace().
  constructor(name, bytes) {
    Object.assign(this, { name, bytes, view: viewOf(bytes), size: bytes.length });
    Object.assign(this, { chained: true, salt: 0, id: '', clean: false, records: [], meta: null, columns: null, kv: [], query: [], notes: [] });
    Object.assign(this, { epoch: 0, steps: 0, bad: 0, firstBad: 0, commitAt: 0, torn: 0, tail: null, tailAside: '', cache: new Map(), cached: 0, checked: new Set() });
    this.texts = null;
  }

  fail(code, text) {
    throw new TraceError(code, `${shownBytes(new TextEncoder().encode(this.name))}: ${text}`);
  }

  // ---- headers

  // Reads a number of 64 bits.  Values above 2^53 lose their lowest bits; they exceed every limit.
  u64(at) {
    return this.view.getUint32(at, true) + 2 ** 32 * this.view.getUint32(at + 4, true);
  }

  get headerSize() {
    return this.chained ? 88 : 80;
  }

  readFileHeader() {
    const { view, bytes } = this;
    if (this.size < FILE_HEADER || !TRACE_MAGIC.every((b, i) => bytes[i] === b))
      this.fail('KVF_E_FORMAT', `not a kvfate trace (${this.size} bytes); 'kvfate run -o X.kvf' records one`);
    if (view.getUint32(60, true) !== crc32c(bytes.subarray(0, 60)))
      this.fail('KVF_E_CORRUPT', 'the header of the trace is damaged');
    const features = view.getUint32(16, true);
    if (view.getUint16(8, true) !== 1 || features > 1)
      this.failVersion();
    this.chained = features === 1;
    this.salt = view.getUint32(28, true);
    this.hash = hash64(bytes.subarray(0, FILE_HEADER));
    if (this.chained) {
      if (this.salt !== view.getUint32(32, true))
        this.fail('KVF_E_CORRUPT', 'the header of the trace is damaged');
      this.id = [40, 32].map((at) => view.getBigUint64(at, true).toString(16).padStart(16, '0')).join('');
    }
  }

  failVersion() {
    this.fail('KVF_E_VERSION', 'written by a newer kvfate; update to read it');
  }

  // Returns the record at a place, or null if there is none.
  recordAt(at) {
    const { view, chained, headerSize: size } = this;
    if (at + size > this.size || view.getUint32(at, true) !== SYNC || view.getUint16(at + 4, true) !== size || view.getUint32(at + 56, true) !== this.salt
      || this.u64(at + 68) !== at || view.getUint32(at + size - 4, true) !== crc32c(this.bytes.subarray(at, at + size - 4)))
      return null;
    return { type: view.getUint8(at + 6), flags: view.getUint8(at + 7), seq: this.u64(at + 8), stored: this.u64(at + 16), raw: this.u64(at + 24),
      column: view.getUint32(at + 32, true), layer: view.getUint16(at + 36, true), head0: view.getUint16(at + 38, true),
      t0: view.getUint32(at + 40, true), n: view.getUint32(at + 44, true), codec: view.getUint32(at + 48, true),
      epoch: view.getUint32(at + 60, true), nHeads: view.getUint16(at + 64, true), offset: at,
      link: chained ? view.getBigUint64(at + 76, true) : 0n, hash: chained ? hash64(this.bytes.subarray(at, at + size)) : 0n };
  }

  // Returns true if the lengths of a record fit its type and end before `end`.
  plausible(r, end) {
    const most = isChunk(r) || r.type === REC.TOKENS ? MAX_CHUNK : r.type === REC.INDEX ? MAX_RECORDS * 56 : MAX_META + 1024;
    return r.seq <= MAX_RECORDS - (r.type !== REC.INDEX) && r.raw <= most && r.stored <= most && r.offset <= end && r.offset % 8 === 0
      && this.headerSize + padded(r.stored) <= end - r.offset;
  }

  // Returns the payload of a record after its checks, or null if it is damaged.
  intact(r) {
    const head = this.headerSize, full = this.checked.has(r) ? r : this.recordAt(r.offset);
    const payload = this.bytes.subarray(r.offset + head, r.offset + head + r.stored);
    if (full === r)
      return payload;
    const place = new Uint8Array(20);
    [[56, 4], [8, 8], [68, 8]].reduce((to, [from, n]) => {
      place.set(this.bytes.subarray(r.offset + from, r.offset + from + n), to);
      return to + n;
    }, 0);
    if (!full || !sameRecord(full, r) || crc32c(payload, crc32c(place)) !== this.view.getUint32(r.offset + 52, true))
      return null;
    this.checked.add(r);
    return payload;
  }

  payload(r) {
    const bytes = this.intact(r);
    return bytes || this.fail('KVF_E_CORRUPT', `the record at byte ${r.offset} is damaged`);
  }

  // ---- finding the records

  readFooter() {
    const at = this.size - FOOTER, { view } = this;
    if (this.size < FILE_HEADER + this.headerSize + FOOTER || !FOOTER_MAGIC.every((b, i) => this.bytes[at + i] === b)
      || view.getUint32(at + 60, true) !== crc32c(this.bytes.subarray(at, at + 60)) || view.getUint32(at + 36, true) !== this.salt)
      return null;
    const f = { index: this.u64(at + 8), records: this.u64(at + 16), last: this.chained ? view.getBigUint64(at + 24, true) : this.u64(at + 24) };
    const closed = view.getUint32(at + 32, true) === 1 && f.index >= FILE_HEADER && f.index <= at - this.headerSize;
    return closed ? f : null;
  }

  add(r) {
    if (this.records.length === MAX_HERE)
      this.fail('KVF_E_LIMIT', `has more than ${MAX_HERE} records, too many for this page; 'kvfate trace compact' writes larger and fewer ones`);
    this.records.push(r);
  }

  // Lists the records of the index.  Returns false if it cannot be used.
  loadIndex(f) {
    const { view, chained, headerSize: head } = this, entry = chained ? 56 : 48, end = this.size - FOOTER, index = this.recordAt(f.index);
    if (!index || index.type !== REC.INDEX || !this.plausible(index, end) || index.stored % entry || index.offset + head + padded(index.stored) !== end
      || index.stored / entry !== f.records || (chained ? index.hash : index.seq) !== f.last || !this.intact(index))
      return false;
    let covered = FILE_HEADER;
    for (let i = 0, at = f.index + head; i < f.records; i++, at += entry) {
      const r = { type: view.getUint8(at + 22), flags: 0, seq: 0, stored: this.u64(at + 32), raw: this.u64(at + 40), column: view.getUint32(at, true),
        layer: view.getUint16(at + 4, true), head0: view.getUint16(at + 6, true), t0: view.getUint32(at + 8, true), n: view.getUint32(at + 16, true),
        codec: view.getUint8(at + 23), epoch: view.getUint32(at + 12, true), nHeads: view.getUint16(at + 20, true), offset: this.u64(at + 24), link: 0n,
        hash: chained ? view.getBigUint64(at + 48, true) : 0n };
      if (!this.plausible(r, f.index) || covered > f.index) {
        this.records = [];
        return false;
      }
      if (isUnknown(r) && this.recordAt(r.offset)?.flags & 1)
        this.failVersion();
      this.add(r);
      covered += head + padded(r.stored);
    }
    if (covered === f.index)
      return true;
    this.records = [];
    return false;
  }

  noteDamage(at) {
    if (!this.bad++ || at < this.firstBad)
      this.firstBad = at;
  }

  // Returns the first place from `at` on that begins a record which ends before `end`, or 0.
  resync(at, end) {
    for (let p = padded(at); p + this.headerSize <= end; p += 8)
      if (this.view.getUint32(p, true) === SYNC && this.recordAt(p))
        return p;
    return 0;
  }

  // Goes from record to record up to `end`.
  walk(end) {
    let at = FILE_HEADER, next = 0, link = this.hash;
    while (at < end) {
      const r = end - at >= this.headerSize ? this.recordAt(at) : null;
      if (r && this.plausible(r, end) && r.seq >= next) {
        if (isUnknown(r) && r.flags & 1)
          this.failVersion();
        if (this.chained && link !== null && r.link !== link)
          this.noteDamage(r.offset);
        next = r.seq + 1;
        at = r.offset + this.headerSize + padded(r.stored);
        link = r.hash;
        if (r.type !== REC.INDEX)
          this.add(r);
        continue;
      }
      const again = this.resync(at + 8, end);
      if (!again && !this.clean) {
        this.torn = end - at;
        return;
      }
      this.noteDamage(at);
      at = again || end;
      link = null;
    }
  }

  scan() {
    this.readFileHeader();
    const f = this.readFooter();
    this.clean = f !== null;
    if (!f || !this.loadIndex(f))
      this.walk(f ? f.index : this.size);
  }

  // ---- run header, schema, commits and notes

  first(type, what) {
    const r = this.records.find((x) => x.type === type);
    const cut = !this.clean && !this.bad;
    return r || this.fail('KVF_E_CORRUPT', `the ${what} is ${cut ? 'not complete: the writer was interrupted at once, or the file was cut off' : 'lost'}`);
  }

  loadMeta() {
    const r = this.first(REC.META, 'run header');
    if (r.stored > MAX_META)
      this.fail('KVF_E_LIMIT', `the run header has ${r.stored} bytes, over the limit`);
    this.meta = untilZero(this.payload(r));
  }

  loadSchema() {
    const p = this.payload(this.first(REC.SCHEMA, 'schema'));
    if (!this.parseSchema(p))
      this.fail('KVF_E_CORRUPT', 'the schema is malformed');
  }

  parseSchema(p) {
    const view = viewOf(p), layers = p.length >= 8 ? view.getUint32(0, true) : MAX_LAYERS + 1;
    if (layers > MAX_LAYERS || p.length < 8 + 4 * layers)
      return false;
    for (let l = 0; l < layers; l++) {
      this.kv.push(view.getUint16(4 + 4 * l, true));
      this.query.push(view.getUint16(6 + 4 * l, true));
    }
    const n = view.getUint32(4 + 4 * layers, true);
    if (this.kv.some((h) => h > MAX_HEADS) || this.query.some((h) => h > MAX_HEADS) || n > MAX_COLUMNS || p.length - 8 - 4 * layers !== n * COLUMN_ENTRY)
      return false;
    this.columns = Array.from({ length: n }, (_, i) => this.parseColumn(p.subarray(8 + 4 * layers + i * COLUMN_ENTRY, 8 + 4 * layers + (i + 1) * COLUMN_ENTRY)));
    return !this.columns.includes(null);
  }

  parseColumn(p) {
    const [dtype, space, axis, flags] = p.subarray(NAME_MAX), name = p.subarray(0, NAME_MAX), unit = p.subarray(52);
    const lists = flags & COL.INTERVALS;
    if (!name.includes(0) || !unit.includes(0) || dtype < 1 || dtype > U64 || space > SPACE.QUERY || axis > 1
      || (lists && !(flags & COL.SNAPSHOT && !(flags & COL.AGE) && dtype === U32 && axis === 0)))
      return null;
    return { name: plainName(name), shown: shownBytes(untilZero(name)), unit: shownBytes(untilZero(unit)), entry: p, dtype, space, axis, flags,
      width: DTYPES[dtype].BYTES_PER_ELEMENT, type: lists ? REC.INTERVALS : REC.COLUMN };
  }

  // Returns the number of heads of a layer.
  heads(layer, space) {
    if (space === SPACE.RUN)
      return layer === 0 ? 1 : 0;
    return (space === SPACE.KV ? this.kv : this.query)[layer] || 0;
  }

  // Returns true if a record agrees with the schema.
  fits(r) {
    if (r.type === REC.BLOB) {
      const head = r.layer >= this.kv.length ? r.layer === 0 && r.head0 === 0 : r.head0 === 0 || r.head0 < this.kv[r.layer] || r.head0 < this.query[r.layer];
      return head && r.t0 < MAX_STEPS && r.raw >= 1 && r.raw <= MAX_BLOB && r.stored >= BLOB_HEADER;
    }
    if (!isChunk(r))
      return true;
    const c = this.columns[r.column], values = r.nHeads * r.n;
    return Boolean(c) && c.type === r.type && r.nHeads >= 1 && r.head0 + r.nHeads <= this.heads(r.layer, c.space) && r.n >= 1 && r.t0 + r.n <= MAX_STEPS
      && (r.type === REC.COLUMN ? r.raw === values * c.width : r.raw >= 4 * values && (r.raw - 4 * values) % 8 === 0);
  }

  // Reads a commit or a note.  Returns false if it cannot be used.
  loadSmall(r) {
    const p = this.intact(r);
    if (!p)
      return false;
    if (r.type === REC.NOTE) {
      const zero = p.indexOf(0);
      if (zero < 1 || zero > MAX_KEY || p.length - zero - 1 > MAX_META)
        return false;
      this.notes.push({ key: plainName(p), text: untilZero(p.subarray(zero + 1)) });
      return true;
    }
    const view = viewOf(p);
    if (p.length !== 8 || view.getUint32(0, true) !== r.epoch || view.getUint32(4, true) > MAX_STEPS)
      return false;
    if (r.epoch > this.epoch) {
      this.epoch = r.epoch;
      this.steps = view.getUint32(4, true);
      this.commitAt = r.offset;
    }
    return true;
  }

  load() {
    this.loadMeta();
    this.loadSchema();
    this.records = this.records.filter((r) => {
      const good = r.type === REC.COMMIT || r.type === REC.NOTE ? this.loadSmall(r) : this.fits(r);
      if (!good)
        this.noteDamage(r.offset);
      return good;
    });
    if (this.records.some((r, i) => i > 0 && compareRecords(this.records[i - 1], r) > 0))
      this.records.sort(compareRecords);
    if (this.bad && (this.clean || this.firstBad < this.commitAt))
      this.fail('KVF_E_CORRUPT', `damaged at byte ${this.firstBad}; 'kvfate trace verify --full' lists the lost data`);
  }

  // ---- the tail of an unfinished trace

  takeTail({ name, bytes }) {
    if (this.clean || !this.chained)
      return;
    let tail;
    try {
      tail = new TraceReader(name, bytes);
      tail.scan();
      tail.load();
      if (!tail.clean)
        tail.fail('KVF_E_CORRUPT', 'the tail ends early; it was complete when written');
    } catch (e) {
      if (!(e instanceof TraceError))
        throw e;
      this.tailAside = e.message;
      return;
    }
    const same = (a, b) => a.length === b.length && a.every((v, i) => v === b[i]);
    if (!tail.chained || tail.id !== this.id || tail.steps <= this.steps || !same(tail.kv, this.kv) || !same(tail.query, this.query)
      || tail.columns.length !== this.columns.length || !tail.columns.every((c, i) => sameBytes(c.entry, this.columns[i].entry)))
      return;
    this.tail = tail;
    this.steps = tail.steps;
    this.epoch++;
  }

  // ---- limits

  get fileBytes() {
    return this.size + (this.tail ? this.tail.size : 0);
  }

  // Rejects a trace that declares more steps or heads than its bytes can have.
  checkSize() {
    const ofAny = 2 ** 17, bytes = this.fileBytes, heads = [...this.kv, ...this.query].reduce((a, b) => a + b, 0);
    const many = heads > ofAny && heads > bytes;
    if (many || (this.steps > ofAny && this.steps > bytes))
      throw new TraceError('KVF_E_LIMIT', `${shownBytes(new TextEncoder().encode(this.name))} declares ${many ? heads : this.steps} ${many ? 'heads' : 'steps'} in a file of ${bytes} bytes, `
        + 'which is less than a byte for each: it is no record of a run');
  }

  // Returns the number of values of a column that records have at the first n steps.
  held(column, n = this.steps) {
    const c = this.columns[column], from = c.flags & COL.SNAPSHOT && this.tail ? [] : [this];
    return [...from, ...(this.tail ? [this.tail] : [])].reduce((sum, t) => {
      for (let i = t.lowerBound(c.type, column, 0, 0); i < t.records.length && t.records[i].type === c.type && t.records[i].column === column; i++) {
        const r = t.records[i];
        sum += r.epoch === (c.flags & COL.SNAPSHOT ? t.epoch : 0) && r.t0 < n ? Math.min(r.n, n - r.t0) * r.nHeads : 0;
      }
      return sum;
    }, 0);
  }

  // ---- values

  // Returns the index of the first record of a column, layer and epoch.
  lowerBound(type, column, layer, epoch) {
    const key = { type, column, layer, epoch, head0: 0, t0: 0, offset: 0 };
    let lo = 0, hi = this.records.length;
    while (lo < hi) {
      const mid = lo + hi >> 1;
      if (compareRecords(this.records[mid], key) < 0)
        lo = mid + 1;
      else
        hi = mid;
    }
    return lo;
  }

  // Returns the decoded bytes of a chunk.
  chunk(r) {
    let data = this.cache.get(r);
    if (!data) {
      const c = this.columns[r.column], stored = this.payload(r);
      try {
        data = decodeValues(stored, r.codec, r.type === REC.INTERVALS ? 4 : c.width, r.raw);
      } catch (code) {
        if (code instanceof Error)
          throw code;
        this.fail(code, `the chunk at byte ${r.offset} cannot be decoded`);
      }
      if (r.type === REC.INTERVALS && !this.listsFit(r, data))
        this.fail('KVF_E_CORRUPT', `the chunk at byte ${r.offset} has impossible intervals`);
      this.cached += data.length;
    }
    this.cache.delete(r); // the chunk becomes the newest
    this.cache.set(r, data);
    for (const [old, bytes] of this.cache) {
      if (this.cached <= CACHED || old === r)
        break;
      this.cache.delete(old);
      this.cached -= bytes.length;
    }
    return data;
  }

  // Returns true if decoded lists of intervals rise and are within the steps.
  listsFit(r, data) {
    const words = new Uint32Array(data.buffer, data.byteOffset, data.length / 4), lists = r.nHeads * r.n, total = (words.length - lists) / 2;
    const steps = r.epoch === this.epoch ? this.steps : MAX_STEPS;
    let from = 0;
    for (let k = 0; k < lists; k++) {
      const to = words[k];
      if (to < from || to > total || to - from > MAX_LISTS)
        return false;
      for (let j = from, least = r.t0 + k % r.n; j < to; j++) {
        const first = words[lists + 2 * j], last = words[lists + 2 * j + 1];
        if (first < least || last < first || last >= steps)
          return false;
        least = last + 2;
      }
      from = to;
    }
    return from === total;
  }

  // Returns the properties of the records of these values.
  key(column, layer, head, t0, n, lists) {
    const c = this.columns[column];
    if (!c || head < 0 || head >= this.heads(layer, c.space) || t0 > MAX_STEPS || n > MAX_STEPS - t0)
      this.fail('KVF_E_ARG', 'no such column, layer or head');
    if (Boolean(c.flags & COL.INTERVALS) !== lists)
      this.fail('KVF_E_ARG', `column ${c.shown} holds ${lists ? 'one value for each index' : 'intervals'}`);
    return { c, column, layer, head, type: c.type, epoch: c.flags & COL.SNAPSHOT ? this.epoch : 0 };
  }

  // Calls take(record, data) for each chunk with the value at index `at.have`, which take() advances
  // up to `stop`.  Several passes are needed only if heads were grouped differently over time.
  pass(key, at, stop, take) {
    for (let i = this.lowerBound(key.type, key.column, key.layer, key.epoch); i < this.records.length && at.have < stop; i++) {
      const r = this.records[i];
      if (r.type !== key.type || r.column !== key.column || r.layer !== key.layer || r.epoch !== key.epoch)
        break;
      if (++at.looks > MAX_LOOKS)
        this.fail('KVF_E_LIMIT', `the records of column ${key.c.shown} are too entangled to be read here; 'kvfate trace compact' sorts them`);
      if (key.head < r.head0 || key.head >= r.head0 + r.nHeads || r.t0 > at.have || r.t0 + r.n <= at.have)
        continue;
      take(r, this.chunk(r));
    }
  }

  // A pass over the trace, then over its tail: the tail may have values that are damaged in the trace.
  passBoth(key, at, stop, take) {
    let damage = null;
    try {
      this.pass(key, at, stop, take);
    } catch (e) {
      if (!(e instanceof TraceError) || !this.tail || e.code !== 'KVF_E_CORRUPT')
        throw e;
      damage = e;
    }
    if (!this.tail)
      return;
    const before = at.have;
    try {
      this.tail.pass(key, at, stop, take);
    } catch (e) {
      if (!(e instanceof TraceError) || !damage || e.code !== 'KVF_E_CORRUPT' || at.have > before)
        throw e;
    }
    if (damage && at.have === before)
      throw damage;
  }

  notThere(key, at) {
    this.fail('KVF_E_NOTFOUND', `column ${key.c.shown}, layer ${key.layer}, head ${key.head}: values from ${at} on are not in the trace`);
  }

  // Returns n values of a head from index t0 on, as an array of the type of the column.
  read(column, layer, head, t0 = 0, n = this.steps) {
    const key = this.key(column, layer, head, t0, n, false), { c } = key;
    if (this.tail && c.flags & COL.SNAPSHOT)
      return this.tail.read(column, layer, head, t0, n);
    const kind = DTYPES[c.dtype], at = { have: t0, looks: 0 }, stop = t0 + n;
    let out = null;
    const take = (r, data) => {
      const end = Math.min(r.t0 + r.n, stop), from = (head - r.head0) * r.n + at.have - r.t0, values = new kind(data.buffer, data.byteOffset + from * c.width, end - at.have);
      if (at.have === t0 && end === stop)
        out = values;
      else
        (out ||= new kind(n)).set(values, at.have - t0);
      at.have = end;
    };
    for (let before = -1; at.have < stop && at.have > before;) {
      before = at.have;
      this.passBoth(key, at, stop, take);
    }
    if (at.have < stop)
      this.notThere(key, at.have);
    return out || new kind(0);
  }

  // Returns the lists of intervals of n tokens of a head from t0 on: {end, pairs}.  end[k] is the number of
  // intervals up to and with token t0 + k; pairs are first and last of each.
  lists(column, layer, head, t0 = 0, n = this.steps) {
    const key = this.key(column, layer, head, t0, n, true);
    if (this.tail)
      return this.tail.lists(column, layer, head, t0, n);
    const end = new Uint32Array(n), parts = [], at = { have: t0, looks: 0 }, stop = t0 + n;
    let total = 0;
    const take = (r, data) => {
      const words = new Uint32Array(data.buffer, data.byteOffset, data.length / 4), lists = r.nHeads * r.n, list = (head - r.head0) * r.n - r.t0;
      const from = list + at.have ? words[list + at.have - 1] : 0, base = total;
      let to = from;
      for (const last = Math.min(r.t0 + r.n, stop); at.have < last; at.have++) {
        to = words[list + at.have];
        end[at.have - t0] = base + to - from;
      }
      total += to - from;
      parts.push(words.subarray(lists + 2 * from, lists + 2 * to));
      if (total > 2 ** 24)
        this.fail('KVF_E_LIMIT', `column ${key.c.shown} has more than ${2 ** 24} intervals there`);
    };
    for (let before = -1; at.have < stop && at.have > before;) {
      before = at.have;
      this.pass(key, at, stop, take);
    }
    if (at.have < stop)
      this.notThere(key, at.have);
    const pairs = new Uint32Array(2 * total);
    parts.reduce((to, p) => (pairs.set(p, to), to + p.length), 0);
    return { end, pairs };
  }

  // Returns the number of a column, or -1.
  find(name) {
    return this.columns.findIndex((c) => c.name === name);
  }

  // ---- texts, notes and blobs

  loadTexts() {
    this.texts = new Map();
    let next = 0;
    for (const r of this.records) {
      if (r.type !== REC.TOKENS || r.t0 > MAX_STEPS || r.n > MAX_STEPS - r.t0 || r.n > r.stored / 4)
        continue;
      const p = this.intact(r), view = p && viewOf(p), ends = 4 * r.n;
      let before = 0, good = Boolean(p);
      for (let i = 0; good && i < r.n; i++) {
        const e = view.getUint32(4 * i, true);
        good = e >= before && e <= p.length - ends;
        before = e;
      }
      if (!good || r.t0 < next)
        continue;
      for (let i = 0, from = 0; i < r.n; i++) {
        const e = view.getUint32(4 * i, true);
        this.texts.set(r.t0 + i, p.subarray(ends + from, ends + e));
        from = e;
      }
      next = r.n ? r.t0 + r.n : next;
    }
  }

  // Returns the bytes of the text of a token, or null if the trace has none.
  text(i) {
    if (!this.texts)
      this.loadTexts();
    return this.texts.get(i) || (this.tail ? this.tail.text(i) : null);
  }

  // Returns the bytes of the last note of a key, or null.
  note(key) {
    return this.notes.filter((n) => n.key === key).pop()?.text || null;
  }

  get blobs() {
    return this.records.filter((r) => r.type === REC.BLOB);
  }

  // Returns the description of a blob and its elements: {name, dtype, shape, layer, head, t0, bytes}.
  blob(r) {
    const p = this.intact(r);
    if (!p)
      this.fail('KVF_E_CORRUPT', `the record at byte ${r.offset} is damaged`);
    const view = viewOf(p), dtype = p[48], rank = p[49], shape = [0, 1, 2, 3].map((i) => view.getUint32(56 + 4 * i, true)), kind = DTYPES[dtype];
    const width = kind ? kind.BYTES_PER_ELEMENT : 0, name = untilZero(p.subarray(0, NAME_MAX));
    const size = shape.slice(0, rank).reduce((a, b) => a * b, width);
    const zeros = (from, to) => p.subarray(from, to).every((b) => b === 0);
    if (!kind || rank < 1 || rank > MAX_RANK || size !== r.raw || !name.length || name.length === NAME_MAX || !zeros(name.length, NAME_MAX)
      || !zeros(50, 56) || shape.slice(rank).some((v) => v) || view.getBigUint64(72, true) !== hash64(p.subarray(0, 72)))
      this.fail('KVF_E_CORRUPT', `the blob at byte ${r.offset} is damaged`);
    try {
      const bytes = decodeValues(p.subarray(BLOB_HEADER), r.codec, width, r.raw);
      return { name: plainName(name), dtype, shape: shape.slice(0, rank), layer: r.layer, head: r.head0, t0: r.t0, bytes };
    } catch (code) {
      if (code instanceof Error)
        throw code;
      return this.fail(code, `the blob at byte ${r.offset} cannot be decoded`);
    }
  }
}

// Opens a trace.  file: {name, bytes}; tail: the file NAME.tail of an unfinished trace, or null.
function openTrace(file, tail = null) {
  const t = new TraceReader(file.name, file.bytes);
  if (t.size > MAX_FILE)
    t.fail('KVF_E_LIMIT', `has ${t.size} bytes, more than the ${MAX_FILE} that this page reads; 'kvfate trace trim' writes a part of it`);
  t.scan();
  t.load();
  if (tail)
    t.takeTail(tail);
  t.checkSize();
  return t;
}
