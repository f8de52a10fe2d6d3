// commands.js - the kvfate command that reproduces a view.

// Quotes a word for a shell if necessary.
const shellWord = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, '\'\\\'\'')}'`);
const fileStem = (trace) => trace.name.replace(/\.kvf$/, '').replace(/[^\w.-]+/g, '-').replace(/^-+/, '') || 'trace';
const command = (...words) => ['kvfate', ...words.filter((w) => w !== null && w !== undefined && w !== '')].join(' ');

// Returns the words of the command of an embedded table without `kvfate`, as kvfate report wrote it.  The trace's name
// is quoted for a shell.
function tableWords(trace, table) {
  const words = table.command.split(' ').slice(1), [analysis] = words, rest = table.command.slice(`kvfate ${analysis} ${trace.name}`.length).trim();
  return [analysis, shellWord(trace.name), ...(rest ? rest.split(' ') : [])];
}

// Returns the command of a table with more words.  It omits --head of the report if the new words
// have their own.
function ofTable(trace, key, ...more) {
  const table = trace.table(key);
  if (!table)
    return '';
  const words = tableWords(trace, table), at = words.indexOf('--head');
  if (at >= 0 && more.includes('--head'))
    words.splice(at, 2);
  return command(...words, ...more);
}

function viewWords() {
  const v = state.view, T = extent(), a = Math.max(0, Math.floor(v.x0)), b = Math.min(T, Math.ceil(v.x1)), c = Math.floor(v.y0), d = Math.min(T, Math.ceil(v.y1));
  const tokens = a > 0 || b < T ? ['--tokens', `${a}:${b}`] : [], style = [`steps=${c}:${d < T ? d : ''}`];
  if (state.kind === 'beta')
    style.push(`scale=${state.scale}`);
  return [...tokens, '--style', style.join(',')];
}

// Returns the command that draws the map of a trace as a figure.
function mapCommand(trace) {
  if (!state.head || trace.why(state.kind))
    return '';
  const { table } = KINDS[state.kind], cmap = ['--cmap', state.colours];
  return ofTable(trace, table, '--head', state.head.name, ...viewWords(), ...cmap, '-o', `${fileStem(trace)}-${table}-${state.head.name}.pdf`);
}

const SHADES_OF = { kept: 'kept', mean_residency: 'residency', mean_beta: 'beta', nll: 'nll' };

function textCommand() {
  const { trace, by, head } = state, style = by === 'head' ? ['--head', head ? trace.kvHead(head) : '', '--style', state.kind === 'beta' ? 'by=retention' : 'by=residency']
    : SHADES_OF[by] ? ['--style', `by=${SHADES_OF[by]}`] : null;
  return style ? ofTable(trace, 'tokens', ...style, '-o', `${fileStem(trace)}-text.pdf`) : ofTable(trace, 'tokens', '-o', `${fileStem(trace)}-text.tsv`);
}
