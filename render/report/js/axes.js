// axes.js - ticks, and the lines of small charts.

function ticksOf(lo, hi, most) {
  const raw = (hi - lo) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(raw)), unit = [1, 2, 5, 10].find((u) => u * power >= raw * 0.999);
  const step = unit * power, out = [];
  for (let v = Math.ceil(lo / step - 1e-9) * step; v <= hi + step * 1e-9; v += step)
    out.push(Number(v.toPrecision(12)));
  return out;
}

function wholeTicks(lo, hi, most) {
  return ticksOf(lo, hi, most).filter((v) => Number.isInteger(v));
}

// chart: {lines: [{name, points: [[x, y]], colour, dash, faint, printed: in a colour of figures}],
// x: {label, log, whole, lo, hi}, y: {label, lo, hi}}
function lineChart(chart) {
  const W = 440, H = 224, left = 44, right = 10, top = 22, bottom = 36, { x, y } = chart;
  const fx = x.log ? (v) => Math.log(v) : (v) => v, lo = fx(x.lo), hi = Math.max(fx(x.hi), lo + 1e-9);
  const px = (v) => left + (fx(v) - lo) / (hi - lo) * (W - left - right), py = (v) => top + (1 - (v - y.lo) / (y.hi - y.lo)) * (H - top - bottom);
  const out = svg('svg', { viewBox: `0 0 ${W} ${H}`, class: 'chart', role: 'img', 'aria-label': chart.title });
  for (const v of ticksOf(y.lo, y.hi, 4))
    out.append(svg('line', { class: 'rule', x1: left, x2: W - right, y1: py(v), y2: py(v) }),
      svg('text', { class: 'tick', x: left - 6, y: py(v) + 3.5, 'text-anchor': 'end' }, shortNumber(v)));
  for (const v of x.log ? logTicks(x.lo, x.hi) : wholeOrNot(x, 5))
    out.append(svg('line', { class: 'mark', x1: px(v), x2: px(v), y1: H - bottom, y2: H - bottom + 4 }),
      svg('text', { class: 'tick', x: px(v), y: H - bottom + 15, 'text-anchor': 'middle' }, shortNumber(v)));
  out.append(svg('line', { class: 'axis', x1: left, x2: W - right, y1: H - bottom, y2: H - bottom }),
    svg('text', { class: 'label', x: (left + W - right) / 2, y: H - 4, 'text-anchor': 'middle' }, x.label),
    svg('text', { class: 'label', x: left, y: 12 }, y.label));
  for (const line of chart.lines)
    out.append(svg('path', { class: lineClass(line), d: pathOf(line, px, py), stroke: line.colour,
      'stroke-dasharray': line.dash || null }, svg('title', {}, line.name)));
  return out;
}

const lineClass = (line) => `line${line.faint ? ' faint' : ''}${line.printed ? ' printed' : ''}`;

const wholeOrNot = (x, most) => (x.whole || x.hi - x.lo >= 4 ? wholeTicks(x.lo, x.hi, most) : ticksOf(x.lo, x.hi, most));

function logTicks(lo, hi) {
  const out = [];
  for (let p = Math.ceil(Math.log10(lo) - 1e-9); 10 ** p <= hi * 1.0001; p++)
    out.push(10 ** p);
  if (out.length < 3)
    out.push(...[2, 5, 20, 50, 200, 500].filter((v) => v > lo && v < hi));
  return out;
}

// Returns the path of a line.  An isolated point is a short stroke.
function pathOf(line, px, py) {
  const points = line.points, known = (k) => k >= 0 && k < points.length && Number.isFinite(points[k][1]);
  let d = '';
  for (const [k, [x, y]] of points.entries())
    if (known(k))
      d += `${known(k - 1) ? 'L' : 'M'}${px(x).toFixed(1)} ${py(y).toFixed(1)}${known(k - 1) || known(k + 1) ? '' : 'm-2 0h4'}`;
  return d || 'M0 0';
}

function lineKey(lines) {
  return el('ul', { class: 'keys' }, lines.map((line) => {
    const sample = svg('svg', { viewBox: '0 0 22 8', class: 'sample', 'aria-hidden': 'true' },
      svg('path', { class: lineClass(line), d: 'M1 4H21', stroke: line.colour, 'stroke-dasharray': line.dash || null }));
    return el('li', {}, sample, line.name);
  }));
}
