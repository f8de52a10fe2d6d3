// dom.js - creates elements, with text always as text.

const SVG = 'http://www.w3.org/2000/svg';
const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on'))
      node.addEventListener(name.slice(2), value);
    else if (value === true)
      node.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined)
      node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

function choice(label, options, value, change) {
  const select = el('select', { 'aria-label': label, onchange: () => change(select.value) },
    options.map(([v, text, off]) => el('option', { value: v, disabled: off }, text)));
  select.value = value;
  return el('label', { class: 'choice' }, el('span', {}, label), select);
}

// Returns a group of buttons, one of them pressed.
function segments(label, options, value, change) {
  return el('div', { class: 'segments', role: 'group', 'aria-label': label }, options.map(([v, text, why]) =>
    el('button', { type: 'button', 'data-value': v, 'aria-pressed': String(v === value), disabled: Boolean(why), title: why || null,
      onclick: () => change(v) }, text)));
}

// Returns a command that breaks into lines only between words.
const wholeWords = (command) => marked(command).split(' ').map((w, k) => [k ? ' ' : '', el('span', { class: 'word' }, w)]);

function say(text) {
  byId('said').textContent = text;
}

function problem(text) {
  byId('problem').textContent = text;
  byId('problem').hidden = false;
}

// Runs step() until it returns false, in slices that keep the page responsive.
function inPieces(step, done) {
  let stopped = false;
  async function slice() {
    const end = performance.now() + 8;
    let more = true;
    while (more && !stopped && performance.now() < end)
      more = await step();
    if (stopped)
      return;
    if (more)
      setTimeout(slice, 0);
    else if (done)
      done();
  }
  setTimeout(slice, 0);
  return () => { stopped = true; };
}
