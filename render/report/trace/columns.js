// columns.js - helpers of the tables: columns of a trace as numbers, heads, missing columns, the run
// header and the metadata that every table begins with.

const ALIVE = 0xffffffff;
const SPACE_WORDS = ['', 'KV head and ', 'query head and '];

// Returns the sum of numbers with Neumaier's compensation, as the object {add, get}.
function exactSum() {
  let s = 0, c = 0;
  return {
    add(x) {
      const t = s + x;
      c += Math.abs(s) >= Math.abs(x) ? s - t + x : x - t + s;
      s = t;
    },
    get: () => (Number.isFinite(s) ? s + c : s),
  };
}

const smaller = (a, b) => (Number.isNaN(a) || b < a ? b : a); // as fmin of C: NaN is no number

// Returns values of a column as doubles; -1 for "never" of an age.
function doubles(t, column, layer, head, from = 0, n = t.steps) {
  const c = t.columns[column], raw = t.read(column, layer, head, from, n);
  const out = c.dtype === U64 ? Float64Array.from(raw, Number) : Float64Array.from(raw);
  if (c.flags & COL.AGE && [1, 2, U32, U64].includes(c.dtype)) {
    const never = c.dtype === U64 ? 0xffffffffffffffffn : 256 ** c.width - 1;
    raw.forEach((v, i) => {
      if (v === never)
        out[i] = -1;
    });
  }
  return out;
}

// Returns eviction steps as integers, ALIVE for entries that were not evicted.
function evictSteps(t, column, head) {
  if (t.columns[column].dtype === U32)
    return t.read(column, head.layer, head.index);
  // a value that is no int32 counts as alive
  return Uint32Array.from(doubles(t, column, head.layer, head.index), (v) => (v > 2147483647 || !(v >= -2147483648) ? ALIVE : Math.trunc(v)));
}

// Returns all heads of a space: [{layer, index, name}].
function headsOf(t, space) {
  const list = [], bytes = t.fileBytes;
  for (let layer = 0; layer < t.kv.length; layer++)
    for (let index = 0; index < t.heads(layer, space); index++)
      list.push({ layer, index, name: `L${layer}${space === SPACE.KV ? 'K' : 'H'}${index}` });
  const values = list.length * t.steps;
  if (values > 2 ** 24 && values / 1024 > bytes)
    throw new TraceError('KVF_E_LIMIT', `${t.name} declares ${list.length} heads and ${t.steps} steps in a file of ${bytes} bytes, which is too small for their values`);
  if (!list.length)
    throw new TraceError('KVF_E_ARG', `${t.name} has no ${space === SPACE.KV ? 'KV' : 'query'} heads`);
  return list;
}

// Returns the number of query heads that read one KV head of a layer.
const queriesPerKv = (t, layer) => (t.kv[layer] ? Math.trunc(t.query[layer] / t.kv[layer]) : 0);

// ---- the run header

// Returns the run header as an object, after the same checks in every table.
function runHeader(t) {
  if (!t.header) {
    try {
      t.header = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(t.meta));
    } catch (e) {
      t.fail('KVF_E_FORMAT', `the run header is no JSON: ${e.message}`);
    }
  }
  return t.header;
}

const member = (node, key) => (node && typeof node === 'object' && !Array.isArray(node) && Object.hasOwn(node, key) ? node[key] : undefined);
const textOf = (node, otherwise) => (typeof node === 'string' ? node : otherwise);
const membersOf = (node) => (node && typeof node === 'object' ? Object.values(node) : []);

// Returns a whole number of the run header, or `absent`.
function headerNumber(t, section, key, absent) {
  const v = member(member(runHeader(t), section), key);
  if (v === undefined)
    return absent;
  return Number.isSafeInteger(v) ? v : t.fail('KVF_E_FORMAT', `${section}.${key} of the run header is not a whole number`);
}

// ---- the protocol: settings that the method and its budget do not name

function budgetText(method) {
  const percent = member(method, 'budget_percent'), entries = member(method, 'budget');
  if (typeof percent === 'number')
    return `budget=${Number(percent.toPrecision(8))}%`;
  return Number.isSafeInteger(entries) && entries > 0 ? `budget=${entries}` : '';
}

// Returns the settings of a method as a list, its budget only if it is not `usual`.
function settingsOf(method, usual) {
  const options = textOf(member(method, 'options'), ''), budget = budgetText(method), given = options.split(',').filter(Boolean);
  const own = ['cut', 'of', 'protect'].filter((k) => typeof member(method, k) === 'string' && !given.some((s) => s.startsWith(`${k}=`)));
  return [...(budget && budget !== usual ? [budget] : []), ...given, ...own.map((k) => `${k}=${method[k]}`)];
}

function overridesText(header) {
  const usual = budgetText(member(header, 'method'));
  return membersOf(member(header, 'overrides')).map((o) => {
    const options = settingsOf(o, usual);
    return `${textOf(member(o, 'heads'), '?')}=${textOf(member(o, 'name'), '?')}${options.length ? `:${options.join(',')}` : ''}`;
  }).join('; ');
}

const LONG_OVERRIDES = 60; // bytes; longer overrides are counted

function protocolText(header) {
  const run = member(header, 'run'), method = member(header, 'method'), overrides = membersOf(member(header, 'overrides')), text = overridesText(header);
  const type = textOf(member(run, 'kv_type'), 'f16'), question = textOf(member(run, 'question'), 'known');
  const table = [method, ...overrides].map((m) => member(m, 'head_budgets')).find((x) => x !== undefined);
  const list = settingsOf(method, member(method, 'budget_percent') !== undefined ? '' : budgetText(method));
  if (type !== 'f16')
    list.push(`cache type ${type}`);
  if (question !== 'known')
    list.push(`question ${question}`);
  if (text)
    list.push(new TextEncoder().encode(text).length > LONG_OVERRIDES ? `${overrides.length} overrides` : `${overrides.length > 1 ? 'overrides' : 'override'} ${text}`);
  if (table !== undefined)
    list.push(`head budgets ${textOf(member(table, 'form'), '?').slice(0, 20)} ${textOf(member(table, 'hash'), '?').slice(0, 20)}`);
  return list.join(', ');
}

// Returns the metadata that every table begins with: [[key, value]].
function provenance(t) {
  const header = runHeader(t), [model, run, method] = ['model', 'run', 'method'].map((k) => member(header, k)), out = [];
  const put = (key, value) => (typeof value === 'string' || typeof value === 'number') && out.push([key, String(value)]);
  const text = (key, value) => put(key, textOf(value)), number = (key, value) => put(key, typeof value === 'number' ? value : undefined);
  text('model', member(model, 'name'));
  text('model_hash', member(model, 'hash'));
  number('query_heads', member(model, 'query_heads'));
  number('kv_heads', member(model, 'kv_heads'));
  number('layers', t.kv.length);
  number('T', t.steps);
  number('prompt_tokens', member(run, 'prompt_tokens'));
  number('question_tokens', member(run, 'question_tokens'));
  text('method', textOf(member(run, 'external_score')) ? member(run, 'external_score') : member(method, 'name')); // a user's function has its own name
  number('budget', member(method, 'budget'));
  number('budget_percent', member(method, 'budget_percent'));
  const protocol = protocolText(header), overrides = overridesText(header);
  if (protocol)
    put('protocol', protocol);
  if (new TextEncoder().encode(overrides).length > LONG_OVERRIDES)
    put('overrides', overrides);
  text('gates', member(member(header, 'gates'), 'hash'));
  text('engine', member(member(header, 'kvf'), 'version'));
  if (!t.clean)
    put('warning', 'the trace was not closed: values are those of its last snapshot');
  return out;
}

// ---- missing columns

// Names columns that a trace lacks, with the options that record them.
function lacksText(t, names) {
  const captured = member(member(runHeader(t), 'run'), 'captured') !== undefined;
  const supply = (name) => COLUMN_SUPPLIES.find(([known]) => (known.endsWith('*') ? name.startsWith(known.slice(0, -1)) : name === known)) || ['', null, null];
  const told = ([, flag, of]) => {
    const capture = captured && flag && (flag === '--shadow entries' ? ['probes', 'shadow'] : flag.startsWith('--watch ') ? ['watch', flag.slice(8)]
      : flag.startsWith('--probes ') && !flag.slice(9).includes(' ') ? ['probes', flag.slice(9)] : null);
    const from = capture ? `kvfate.capture with ${capture[0]}="${capture[1]}", or ` : flag ? `kvfate run ${flag}, or ` : '';
    return ` (${from}kvfate trace import${of ? ` of ${of}` : ''})`;
  };
  return names.map((name, k) => {
    const own = supply(name), next = names[k + 1] !== undefined ? supply(names[k + 1]) : null;
    const last = !next || next[1] !== own[1] || next[2] !== own[2];
    return `${k ? ', ' : ''}${name}${last ? told(own) : ''}`;
  }).join('');
}

// Rejects a table whose columns a trace lacks.
function refuse(t, names, otherwise = '') {
  if (names.length)
    throw new TraceError('KVF_E_NOTFOUND', `this trace has no column${names.length > 1 ? 's' : ''} ${lacksText(t, names)}${otherwise ? `; ${otherwise}` : ''}`);
}

const heldElse = (t) => (t.find('evict_step') < 0 ? '' : '--criterion held needs only evict_step, which it has');

// Returns the number of a column that has one value for each head of a space and index, or -1.
function columnOf(t, name, space, axis = 0) {
  const column = t.find(name), c = t.columns[column];
  if (c && (c.space !== space || c.axis !== axis))
    throw new TraceError('KVF_E_FORMAT', `the column ${name} must have a value for each ${SPACE_WORDS[space]}${['token', 'step'][axis]}`);
  return column;
}

// Rejects a table if a column has fewer than n values.
function needValues(t, column, n) {
  const held = column < 0 ? n : t.held(column);
  if (held < n)
    throw new TraceError('KVF_E_NOTFOUND', `this trace has ${held} values of the column ${t.columns[column].shown}, fewer than the ${n} requested; 'kvfate trace verify' lists the missing ones`);
}
