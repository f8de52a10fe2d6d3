// data.js - the tables of the page.  Columns are unpacked on demand.

const MANIFEST = JSON.parse(document.getElementById('manifest').textContent);
const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i1: Int8Array, i2: Int16Array, i4: Int32Array, f4: Float32Array,
  f8: Float64Array };
const CHUNKS_KEPT = 16;

function bytesOf(base64) {
  const text = atob(base64), out = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++)
    out[i] = text.charCodeAt(i);
  return out;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Restores values from planes: the first bytes of all values, then the second bytes and so on.
function unshuffle(planes, kind) {
  const width = ARRAYS[kind].BYTES_PER_ELEMENT, n = planes.length / width;
  if (width === 1)
    return new ARRAYS[kind](planes.buffer);
  const out = new Uint8Array(planes.length);
  for (let k = 0; k < width; k++)
    for (let i = 0, from = k * n; i < n; i++)
      out[i * width + k] = planes[from + i];
  return new ARRAYS[kind](out.buffer);
}

const WAIT = 5; // ms between two looks at data that are still loading

// Returns the text of a data element as a promise.  The script runs before the browser has read the data.
async function arrived(id) {
  for (let ended = false; ; await new Promise((go) => setTimeout(go, WAIT))) {
    const node = document.getElementById(id);
    if (node && (node.nextElementSibling || ended))
      return node.textContent;
    if (ended)
      throw new Error('the file is incomplete; copy it again');
    ended = document.readyState !== 'loading';
  }
}

class Column {
  constructor(table, spec) {
    this.table = table;
    this.spec = spec;
    this.name = spec.name;
    this.type = spec.type;
    this.chunks = new Map();
  }

  // True if the values are in the page.
  get here() {
    return !this.spec.dropped && !this.spec.derived;
  }

  async read(k) {
    if (this.text === undefined)
      this.text = this.spec.id ? await arrived(this.spec.id) : '';
    const at = this.spec.at, end = k + 1 < at.length ? at[k + 1] : this.text.length;
    return unshuffle(await inflate(bytesOf(this.text.substring(at[k], end))), this.spec.dtype);
  }

  // Returns chunk k of the packed values, as a promise.
  chunk(k) {
    if (!this.chunks.has(k)) {
      this.chunks.set(k, this.read(k));
      if (this.chunks.size > CHUNKS_KEPT)
        this.chunks.delete(this.chunks.keys().next().value);
    }
    return this.chunks.get(k);
  }

  // Returns the numbers of block b; for texts, their dictionary indices.
  async numbers(b) {
    const { spec } = this, n = this.table.block;
    if (spec.values)
      return spec.values(b);
    if (spec.list)
      return new Float64Array(n).fill(spec.list[b]);
    if (spec.constant !== undefined)
      return new Float64Array(n).fill(spec.constant === null ? NaN : spec.constant);
    if (spec.affine)
      return Float64Array.from({ length: n }, (_, i) => spec.affine[0] + spec.affine[1] * i);
    if (spec.quotient || spec.age)
      return this.computed(b);
    if (spec.by === 'block')
      return new Float64Array(n).fill((await this.chunk(0))[b]);
    if (spec.by === 'cycle')
      return this.chunk(0);
    if (spec.at.length > 1)
      return this.chunk(b);
    return (await this.chunk(0)).subarray(b * n, (b + 1) * n);
  }

  async computed(b) {
    const [x, y] = await Promise.all((this.spec.quotient || this.spec.age).map((name) => this.table.column(name).numbers(b)));
    const of = this.spec.age ? (i) => (x[i] < 0 ? -1 : x[i] - y[i]) : (i) => (y[i] === 0 ? NaN : x[i] / y[i]);
    return Float64Array.from({ length: x.length }, (_, i) => of(i));
  }

  async strings(b) {
    const { spec } = this, n = this.table.block;
    if (spec.strings && spec.by === 'cycle')
      return spec.strings;
    if (spec.strings)
      return spec.by === 'block' ? new Array(n).fill(spec.strings[b]) : spec.strings.slice(b * n, (b + 1) * n);
    return Array.from(await this.numbers(b), (k) => spec.dict[k]);
  }

  async all() {
    const out = [];
    for (let b = 0; b < this.table.blocks; b++)
      for (const v of this.type === 'str' ? await this.strings(b) : await this.numbers(b))
        out.push(v);
    return out;
  }
}

class Table {
  constructor(spec) {
    Object.assign(this, { key: spec.key, name: spec.name, command: spec.command, rows: spec.rows, block: spec.block, meta: spec.meta });
    this.blocks = spec.block ? spec.rows / spec.block : 0;
    this.columns = spec.columns.map((c) => new Column(this, c));
    this.about = new Map(spec.meta);
  }

  column(name) {
    return this.columns.find((c) => c.name === name);
  }

  // Returns true if there is such a column with its values in the page.
  has(name) {
    const c = this.column(name);
    return Boolean(c && c.here);
  }

  // Returns the first value of each block: a value that all rows of a head share.
  async perBlock(name) {
    const c = this.column(name), out = [];
    if (c.spec.by === 'block')
      return c.spec.strings || c.spec.list || Array.from(await c.chunk(0));
    for (let b = 0; b < this.blocks; b++)
      out.push((c.type === 'str' ? await c.strings(b) : await c.numbers(b))[0]);
    return out;
  }
}
