// pane.js - one map: its pixels, axes and crosshair, and the cell under a point.

const MARGIN = { top: 6, right: 6, bottom: 40 };
// Returns the width of the step numbers.
const leftMargin = () => 31 + 7 * String(extent()).length;

class Pane {
  // role: 'first', 'other' or 'difference'
  constructor(role) {
    this.role = role;
    this.canvas = el('canvas', { class: 'map', tabindex: '0', role: 'img' });
    this.axes = svg('svg', { class: 'axes', 'aria-hidden': 'true' });
    this.cross = [el('div', { class: 'cross down' }), el('div', { class: 'cross across' }), el('div', { class: 'pinned' })];
    this.band = el('div', { class: 'band', hidden: true });
    this.frame = el('div', { class: 'frame' }, this.canvas, el('div', { class: 'later' }), this.cross, this.band);
    this.title = el('p', { class: 'pane-title' });
    this.node = el('figure', { class: 'pane', 'data-role': role }, this.title, el('div', { class: 'plot' }, this.axes, this.frame));
    this.series = [];
    this.raster = null;
    listenTo(this);
  }

  traces() {
    return this.role === 'first' ? [state.trace] : this.role === 'other' ? [state.other] : [state.trace, state.other];
  }

  // Returns the shown head of each trace, or undefined if the trace has no such head.
  heads() {
    return this.traces().map((trace) => trace.why(state.kind) ? undefined
      : trace === state.trace ? state.head : trace.heads[state.kind].find((h) => h.name === state.head?.name));
  }

  // Returns false if another view was requested in the meantime.
  async load(asked) {
    const traces = this.traces(), heads = this.heads();
    const missing = heads.findIndex((h) => !h);
    const unlike = traces.length > 1 && !commonTokens(...traces);
    this.problem = missing >= 0 ? traces[missing].why(state.kind) || `${traces[missing].title} has no head ${state.head?.name ?? ''}`
      : unlike ? prefixWords(...traces) : '';
    const series = this.problem ? [] : await Promise.all(traces.map((t, k) => t.seriesOf(state.kind, heads[k])));
    const detail = this.problem ? {} : await traces[0].detail(heads[0]);
    if (asked !== panes.asked)
      return false;
    this.series = series;
    this.detail = detail;
    return true;
  }

  resize(side) {
    const ratio = window.devicePixelRatio || 1;
    this.side = Math.round(side);
    this.pixels = Math.max(1, Math.round(this.side * ratio));
    for (const [name, value] of [['width', `${this.side}px`], ['height', `${this.side}px`]])
      this.frame.style[name] = value;
    this.frame.style.left = this.title.style.paddingLeft = `${leftMargin()}px`;
    this.node.style.width = `${this.side + leftMargin() + MARGIN.right}px`;
  }

  draw() {
    const name = this.role === 'difference' ? 'difference' : state.colours, lo = this.role === 'difference' ? -1 : 0;
    this.raster = null;
    if (this.problem || !this.series.length) {
      this.canvas.width = this.canvas.height = 1;
    } else {
      const traces = this.traces(), span = traces.length > 1 ? commonSpan(...traces) : undefined;
      const each = this.series.map((s, k) => traces[k].raster(s, state.view, this.pixels, this.pixels, span));
      this.raster = each.length > 1 ? rasterDifference(each[0], each[1]) : each[0];
      paint(this.canvas, this.raster, name, lo, 1, this.role !== 'difference' && onLogs());
    }
    this.frame.classList.toggle('empty', Boolean(this.problem));
    this.frame.dataset.problem = this.problem;
    this.frame.style.touchAction = isWhole(state.view) ? 'pan-y' : 'none';
    this.label();
    this.drawAxes();
    this.point(null);
    this.pin();
  }

  label() {
    const kind = KINDS[state.kind], traces = this.traces(), name = state.head ? state.head.name : 'no head';
    const one = nameOf(traces[0]);
    this.title.textContent = this.role === 'difference' ? `${traces[0].title} \u2212 ${traces[1].title}` : state.other ? one : '';
    this.title.title = this.title.textContent;
    this.title.hidden = !state.other;
    this.canvas.setAttribute('aria-label', `${kind.label} of ${name}: tokens to the right, queries downwards. `
      + 'Shift and arrow keys move the crosshair, plus and minus zoom.');
  }

  drawAxes() {
    const { side } = this, { top, right, bottom } = MARGIN, left = leftMargin(), v = state.view, most = Math.max(2, side / 90);
    const W = left + side + right, H = top + side + bottom, parts = [];
    this.axes.setAttribute('viewBox', `0 0 ${W} ${H}`);
    this.axes.style.width = `${W}px`;
    this.axes.style.height = `${H}px`;
    for (const t of wholeTicks(v.x0, v.x1, most)) {
      const x = left + (t - v.x0) / (v.x1 - v.x0) * side;
      parts.push(svg('line', { class: 'mark', x1: x, x2: x, y1: top + side, y2: top + side + 4 }),
        svg('text', { class: 'tick', x, y: top + side + 16, 'text-anchor': 'middle' }, String(t)));
    }
    for (const t of wholeTicks(v.y0, v.y1, most)) {
      const y = top + (t - v.y0) / (v.y1 - v.y0) * side;
      parts.push(svg('line', { class: 'mark', x1: left - 4, x2: left, y1: y, y2: y }),
        svg('text', { class: 'tick', x: left - 7, y: y + 3.5, 'text-anchor': 'end' }, String(t)));
    }
    parts.push(...this.places(left, top));
    parts.push(svg('text', { class: 'label', x: left + side / 2, y: H - 6, 'text-anchor': 'middle' }, 'token'),
      svg('text', { class: 'label', transform: `translate(10 ${top + side / 2}) rotate(-90)`, 'text-anchor': 'middle' }, 'query'));
    this.axes.replaceChildren(...parts);
  }

  // Returns marks above the map for the matches of a search.
  places(left, top) {
    const { view: v } = state, from = (i) => left + (i - v.x0) / (v.x1 - v.x0) * this.side, out = [];
    for (const [a, b] of this.role === 'difference' ? [] : found.at) {
      const lo = Math.max(left, from(a)), hi = Math.min(left + this.side, from(b + 1));
      if (hi > lo && out.length < 500)
        out.push(svg('rect', { class: 'place', x: lo, y: top - 5, width: Math.max(2, hi - lo), height: 4 }));
    }
    return out;
  }

  // Returns the point of the plane under a point of the frame (CSS pixels).
  at(px, py) {
    const v = state.view;
    return [v.x0 + px / this.side * (v.x1 - v.x0), v.y0 + py / this.side * (v.y1 - v.y0)];
  }

  mean(i, t) {
    if (!this.raster)
      return NaN;
    const v = state.view, n = this.pixels;
    const c = Math.min(n - 1, Math.floor((i + 0.5 - v.x0) / (v.x1 - v.x0) * n));
    const r = Math.min(n - 1, Math.floor((t + 0.5 - v.y0) / (v.y1 - v.y0) * n));
    return c < 0 || r < 0 ? NaN : this.raster.value[r * n + c];
  }

  // Moves the crosshair to the cell (i, t), to token i only (t undefined), or hides it.
  point(cell) {
    const v = state.view, scale = this.side / (v.x1 - v.x0), [down, across] = this.cross;
    const x = cell ? (cell.i - v.x0) * scale : NaN, y = cell && cell.t !== undefined ? (cell.t - v.y0) * this.side / (v.y1 - v.y0) : NaN;
    this.bar(down, x, scale, 'left', 'width');
    this.bar(across, y, this.side / (v.y1 - v.y0), 'top', 'height');
  }

  pin() {
    const v = state.view, scale = this.side / (v.x1 - v.x0);
    this.bar(this.cross[2], state.pin === null ? NaN : (state.pin - v.x0) * scale, scale, 'left', 'width');
  }

  // Places a bar across the frame; at: NaN hides it.
  bar(node, at, size, side, width) {
    const lo = Math.max(0, at), hi = Math.min(this.side, at + Math.max(1, size));
    node.hidden = !(at > -size && hi > lo);
    if (!node.hidden) {
      node.style[side] = `${lo}px`;
      node.style[width] = `${Math.max(1, hi - lo)}px`;
      node.classList.toggle('wide', hi - lo > 4);
    }
  }
}
