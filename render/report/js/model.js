// model.js - the data of a trace: heads, kinds of maps, tokens.

const SERIES_KEPT = 24;
const KINDS = {
  alpha: { table: 'eviction', column: 'evict_step', label: 'Kept', range: 'token is cached at the query',
    probe: 'evict' },
  beta: { table: 'retention', column: 'log_beta', label: 'Retention', range: 'retention of the token at the query',
    probe: 'gates' },
  last: { table: 'last-use', column: 'last_use_age', label: 'Last use', range: 'token is selected by a later query',
    probe: 'survival' },
};

const megabytes = (bytes) => String(Math.ceil(bytes / 1e5) / 10);
const largeEnough = () => (MANIFEST.left_out ? `; made with --max-size ${megabytes(MANIFEST.left_out.whole)} it has them` : '');

// Returns the name of a trace and its method, for titles.
const nameOf = (trace) => [trace.title, trace.method].filter(Boolean).join('  \u00b7  ');
// Returns the method of a trace, without a budget that all traces have.  If this does not tell the traces apart, returns
// the whole name.
function shortName(trace) {
  const same = TRACES.every((t) => t.budget === trace.budget), short = (t) => (same ? t.method.replace(/, budget \d+/, '') : t.method);
  return trace.method && TRACES.every((t) => t === trace || short(t) !== short(trace)) ? short(trace) : nameOf(trace);
}

class Trace {
  constructor(index, name) {
    this.index = index;
    this.name = name;
    this.title = isolated(marked(name));
    this.tables = new Map();
    this.absent = new Map();
    this.series = new Map();
    for (const spec of MANIFEST.tables.filter((t) => t.trace === index)) {
      if (spec.absent === undefined)
        this.tables.set(spec.key, new Table(spec));
      else
        this.absent.set(spec.key, spec.absent);
    }
    const first = this.tables.values().next().value;
    this.about = first ? first.about : new Map();
    this.T = Number(this.about.get('T') || 0);
    this.prompt = Number(this.about.get('prompt_tokens') || 0);
  }

  // The budget, or 0 if the method has none.
  get budget() {
    return Number(this.about.get('budget')) || 0;
  }

  // The method, its budget and its protocol, or '' if the trace names no method.
  get method() {
    const method = this.about.get('method'), budget = this.budget, protocol = this.about.get('protocol');
    return method ? isolated(tokenText(`${method}${budget ? `, budget ${budget}` : ''}${protocol ? `, ${protocol}` : ''}`)) : '';
  }

  table(key) {
    return this.tables.get(key);
  }

  // Returns why there is no map of this kind, or '' if there is one.
  why(kind) {
    const { table, column, label } = KINDS[kind], t = this.table(table);
    if (!t)
      return this.absent.get(table) || `no table of ${label}`;
    if (!t.has(column))
      return `These maps (${t.name}.${column}) are left out for the size of the file${largeEnough()}.`;
    return t.rows ? '' : 'the trace has no tokens';
  }

  load() {
    this.loading = this.loading || this.read();
    return this.loading;
  }

  // Calls f(b) for every block of a table.
  blocks(table, f) {
    return Array.from({ length: table.blocks }, (_, b) => f(b));
  }

  async headsOf(table) {
    const [names, layers, indices] = await Promise.all(['head', 'layer', 'index'].map((c) => table.perBlock(c)));
    return names.map((name, block) => ({ name, layer: layers[block], index: indices[block], block }));
  }

  // Returns the fates of all entries (Fates) as a promise, or null if the file has no evictions.
  fates() {
    this.reading = this.reading || Fates.read(this);
    return this.reading;
  }

  async read() {
    this.heads = {};
    for (const kind of Object.keys(KINDS)) {
      const t = this.table(KINDS[kind].table);
      this.heads[kind] = [];
      if (!t || this.why(kind))
        continue;
      this.heads[kind] = await this.headsOf(t);
    }
    await this.loadTokens();
  }

  async loadTokens() {
    const t = this.table('tokens'), some = t && t.rows;
    const read = async (name, texts) => (some && t.has(name) ? t.column(name)[texts ? 'strings' : 'numbers'](0) : []);
    const names = ['id', 'nll', 'kept', 'mean_residency', 'mean_beta', 'mean_retention', 'kl'];
    const [raw, text, cls, role, ...numbers] = await Promise.all([...['text', 'joined', 'class', 'role'].map((n) => read(n, true)),
      ...names.map((n) => read(n, false))]);
    // text: a character of several tokens is complete in the first of them; raw: each token with
    // its bytes.
    this.tokens = { text, raw, class: cls, role, ...Object.fromEntries(names.map((n, k) => [n, numbers[k]])) };
  }

  // Returns the corresponding head in another kind of map: query head g reads KV head floor(g /
  // share).
  headFor(kind, like) {
    const list = this.heads[kind];
    if (!like || !list.length)
      return list[0];
    const here = list.filter((h) => h.layer === like.layer);
    if (!here.length)
      return list[0];
    const share = this.share(like.layer), to = kind === 'last', from = like.name.includes('H');
    const index = to === from ? like.index : to ? like.index * share : Math.floor(like.index / share);
    return here.find((h) => h.index === index) || here[0];
  }

  // Returns the number of query heads of a layer that read one KV head.
  share(layer) {
    const count = (kind) => this.heads[kind].filter((h) => h.layer === layer).length, kv = count('alpha') || count('beta');
    const q = Number(this.about.get('query_heads')), k = Number(this.about.get('kv_heads'));
    return Math.max(1, Math.floor(kv && count('last') ? count('last') / kv : q && k ? q / k : 1));
  }

  kvHead(head) {
    return head.name.includes('H') ? `L${head.layer}K${Math.floor(head.index / this.share(head.layer))}` : head.name;
  }

  // Returns the ends of the spans of a head (alpha, last), or its log beta.
  async seriesOf(kind, head) {
    const key = `${kind} ${head.block}`;
    if (!this.series.has(key)) {
      this.series.set(key, this.readSeries(kind, head));
      if (this.series.size > SERIES_KEPT)
        this.series.delete(this.series.keys().next().value);
    }
    return this.series.get(key);
  }

  async readSeries(kind, head) {
    const raw = await this.table(KINDS[kind].table).column(KINDS[kind].column).numbers(head.block);
    if (kind === 'beta')
      return { logBeta: raw };
    const end = new Float64Array(raw.length);
    for (let i = 0; i < raw.length; i++)
      end[i] = kind === 'alpha' ? (raw[i] < 0 ? Infinity : raw[i]) : i + raw[i] + 1;
    return { end, age: kind === 'last' ? raw : null };
  }

  // span: the entries and queries that count; default: all.
  raster(series, view, w, h, span = { tokens: this.T, steps: this.T }) {
    return series.end ? rasterEnds(series.end, view, span, w, h) : rasterDecay(series.logBeta, view, span, w, h);
  }

  // Returns the value of one cell.
  cell(series, i, t) {
    if (i > t || t >= this.T)
      return NaN;
    return series.end ? Number(t < series.end[i]) : i === t ? 1 : Math.exp(series.logBeta[i] * (t - i));
  }

  // Returns the columns of the table of evictions for the head's entries.  Missing columns are
  // undefined.
  async detail(head) {
    const t = this.table('eviction');
    if (!t || !t.rows)
      return {};
    const name = this.kvHead(head), names = await t.perBlock('head'), block = names.indexOf(name), out = { name };
    for (const c of ['evict_step', 'reason', 'score', 'margin', 'hits', 'first_hit'])
      if (block >= 0 && t.has(c))
        out[c] = t.column(c).type === 'str' ? await t.column(c).strings(block) : await t.column(c).numbers(block);
    return out;
  }
}
