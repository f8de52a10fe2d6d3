// raster.js - rasterises maps.  Each pixel is the area-weighted mean over the part of its box at or below the diagonal
// (t >= i). The rule is that of kvfate's figures (render/heat.c), for any part of the plane: tokens x0 .. x1 to the
// right, steps y0 .. y1 downwards.

const LEAST_AREA = 1e-9;
const LEAST_VALUE = 1e-12;

// Adds the part of [a, b), in rows, that is in each row: full rows as differences, the ends directly.
function addSpan(a, b, weight, h, inner, edge) {
  if (a < 0)
    a = 0;
  if (b > h)
    b = h;
  if (!(b > a))
    return;
  const ra = Math.min(Math.floor(a), h - 1), rb = Math.min(Math.floor(b), h - 1);
  if (ra === rb) {
    edge[ra] += weight * (b - a);
    return;
  }
  edge[ra] += weight * (ra + 1 - a);
  edge[rb] += weight * (b - rb);
  inner[ra + 1] += weight;
  inner[rb] -= weight;
}

function newRaster(view, w, h) {
  return { w, h, view: { ...view }, value: new Float32Array(w * h), cover: new Float32Array(w * h) };
}

// Iterates over pixel columns; add(i, weight, rows) adds token i.  span: the entries and queries that count.
function sweep(view, span, w, h, add, isPrefix) {
  const raster = newRaster(view, w, h), dx = (view.x1 - view.x0) / w, dy = (view.y1 - view.y0) / h;
  const inner = new Float64Array(h + 1), edge = new Float64Array(h), allInner = new Float64Array(h + 1), allEdge = new Float64Array(h);
  for (let c = 0; c < w; c++) {
    const x0 = view.x0 + c * dx, x1 = c + 1 === w ? view.x1 : x0 + dx;
    inner.fill(0);
    edge.fill(0);
    allInner.fill(0);
    allEdge.fill(0);
    for (let i = Math.max(0, Math.floor(x0)); i < span.tokens && i < x1; i++) {
      const weight = (Math.min(x1, i + 1) - Math.max(x0, i)) / dx;
      if (!(weight > 0))
        continue;
      add(i, weight, inner, edge);
      addSpan((i - view.y0) / dy, (span.steps - view.y0) / dy, weight, h, allInner, allEdge);
    }
    let sum = 0, all = 0;
    for (let r = 0, k = c; r < h; r++, k += w) {
      sum += inner[r];
      all += allInner[r];
      const area = all + allEdge[r], some = area > LEAST_AREA;
      raster.cover[k] = some ? area : 0;
      raster.value[k] = some ? (isPrefix ? sum + edge[r] : edge[r]) / area : NaN;
    }
  }
  return raster;
}

// Computes the mean of [i <= t < end_i].
function rasterEnds(end, view, span, w, h) {
  const dy = (view.y1 - view.y0) / h, { y0 } = view;
  return sweep(view, span, w, h, (i, weight, inner, edge) =>
    addSpan((i - y0) / dy, (Math.min(end[i], span.steps) - y0) / dy, weight, h, inner, edge), true);
}

// Returns the sum of beta^k for 1 <= k < n.
function geometric(x, n) {
  if (n <= 1)
    return 0;
  return x === 0 ? n - 1 : Math.exp(x) * Math.expm1((n - 1) * x) / Math.expm1(x);
}

// Computes the mean of beta_i^(t - i) for integer t.  Rows are `step` or step + 1 steps apart, so two powers lead from
// row to row.
function rasterDecay(logBeta, view, span, w, h) {
  const dy = (view.y1 - view.y0) / h, { y0 } = view, step = Math.floor(dy);
  const bound = Float64Array.from({ length: h + 1 }, (_, r) => Math.min(r === h ? view.y1 : y0 + r * dy, span.steps));
  function add(i, weight, inner, rows) {
    const x = Math.max(logBeta[i], -1e4);
    const power = [Math.exp(step * x), Math.exp((step + 1) * x)], whole = [geometric(x, step), geometric(x, step + 1)];
    let r = Math.max(0, Math.floor((i - y0) / dy)), from = r < h ? Math.max(bound[r], i) : 0;
    let whole0 = Math.floor(from), v = Math.exp((whole0 - i) * x);
    for (; r < h && !(v < LEAST_VALUE); r++) {
      const to = bound[r + 1], whole1 = Math.floor(to), n = whole1 - whole0, part = from - whole0, end = to - whole1;
      if (!(to > from))
        continue;
      const k = n - step, known = k === 0 || k === 1, p = known ? power[k] : Math.exp(n * x);
      rows[r] += weight * v * (n === 0 ? end - part : 1 - part + (known ? whole[k] : geometric(x, n)) + p * end) / dy;
      v *= p;
      from = to;
      whole0 = whole1;
    }
  }
  return sweep(view, span, w, h, add, false);
}

// Computes a - b where both are defined.
function rasterDifference(a, b) {
  const out = newRaster(a.view, a.w, a.h);
  for (let k = 0; k < out.value.length; k++) {
    out.value[k] = a.value[k] - b.value[k];
    out.cover[k] = Math.min(a.cover[k], b.cover[k]);
  }
  return out;
}
