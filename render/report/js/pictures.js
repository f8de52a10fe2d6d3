// pictures.js - saves a view as a picture: SVG with text as text, and PNG made from it, always dark on white.

const INK = { ink: '#1b1d20', quiet: '#5c6168', line: '#d5d8dc', accent: '#0b5fa5', cross: '#c01c28' };
const FONT = 'Lato, "DejaVu Sans", Helvetica, Arial, sans-serif';
// The styles that the style sheet gives to classes.
const DRAWN = {
  mark: { stroke: INK.quiet, 'stroke-width': 1 }, axis: { stroke: INK.quiet, 'stroke-width': 1 }, rule: { stroke: INK.line, 'stroke-width': 1 },
  tick: { fill: INK.quiet, 'font-size': 11 }, label: { fill: INK.quiet, 'font-size': 12 }, line: { fill: 'none', 'stroke-width': 1.8, 'stroke-linejoin': 'round' },
  faint: { opacity: 0.4, 'stroke-width': 1.3 }, place: { fill: INK.cross }, kept: { fill: INK.accent }, gone: { fill: INK.accent },
  missed: { fill: INK.cross }, area: { fill: INK.accent, 'fill-opacity': 0.35 }, here: { stroke: INK.ink, 'stroke-width': 1.5, fill: 'none' },
};

// Returns a copy of an SVG element that needs no style sheet.
function plain(node) {
  const copy = node.cloneNode(true);
  for (const n of [copy, ...copy.querySelectorAll('*')]) {
    for (const name of (n.getAttribute('class') || '').split(' '))
      for (const [k, v] of Object.entries(DRAWN[name] || {}))
        n.setAttribute(k, v);
    for (const k of ['class', 'tabindex', 'role', 'aria-hidden', 'data-head', 'data-end', 'style'])
      n.removeAttribute(k);
    if (n.getAttribute('stroke') === 'currentColor')
      n.setAttribute('stroke', INK.ink);
  }
  return copy;
}

// parts: [{node, x, y, width, height}]; node: an SVG element or a canvas, or {text, x, y}.
function pictureOf({ width, height, parts }) {
  const out = svg('svg', { xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}`, 'font-family': FONT }, svg('rect', { width, height, fill: '#ffffff' }));
  for (const p of parts) {
    if (p.text !== undefined) {
      out.append(svg('text', { x: p.x, y: p.y, 'font-size': p.size || 12, fill: p.fill || INK.ink, direction: p.direction || null }, p.text));
    } else if (p.fill) {
      out.append(svg('rect', { x: p.x, y: p.y, width: p.width, height: p.height, fill: p.fill, 'fill-opacity': p.opacity ?? 1 }));
    } else if (p.node instanceof HTMLCanvasElement) {
      out.append(svg('image', { x: p.x, y: p.y, width: p.width, height: p.height, href: p.node.toDataURL(), preserveAspectRatio: 'none',
        'image-rendering': 'pixelated' }));
    } else {
      const copy = plain(p.node);
      [['x', p.x], ['y', p.y], ['width', p.width], ['height', p.height], ['overflow', 'visible']].forEach(([k, v]) => copy.setAttribute(k, v));
      out.append(copy);
    }
  }
  return out;
}

function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob), link = el('a', { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

const pictureText = (view) => new XMLSerializer().serializeToString(pictureOf(view.picture()));
const pictureName = (view, ending) => `${fileStem(state.trace)}-${view.name.toLowerCase().replace(/[^a-z0-9]+/g, '-')}.${ending}`;

function saveSvg(view) {
  saveBlob(new Blob([`<?xml version="1.0" encoding="UTF-8"?>\n${pictureText(view)}\n`], { type: 'image/svg+xml' }), pictureName(view, 'svg'));
}

const PNG_SCALE = 3;

async function savePng(view) {
  const { width, height } = view.picture(), image = new Image(), canvas = el('canvas', { width: Math.round(width * PNG_SCALE), height: Math.round(height * PNG_SCALE) });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(pictureText(view))}`;
  await image.decode();
  canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
  saveBlob(await new Promise((done) => canvas.toBlob(done, 'image/png')), pictureName(view, 'png'));
}

// Returns the picture of a chart in a panel, with its title and the key of `lines`.
function chartPicture(node, title, lines = []) {
  if (!node)
    return null;
  const [, , w, h] = node.getAttribute('viewBox').split(' ').map(Number), k = Math.max(1, 440 / w);
  const key = lines.flatMap((line, i) => {
    const y = h * k + 46 + 18 * i;
    return [{ node: svg('svg', { viewBox: '0 0 22 8' }, svg('path', { class: 'line', d: 'M1 4H21', stroke: line.colour, 'stroke-dasharray': line.dash || null })), x: 54, y: y - 8,
      width: 22, height: 8 }, { text: line.name, x: 82, y }];
  });
  return { width: Math.round(w * k) + 20, height: Math.round(h * k) + 40 + 18 * lines.length,
    parts: [{ text: title, x: 10, y: 20, size: 13 }, { node, x: 10, y: 30, width: w * k, height: h * k }, ...key] };
}
