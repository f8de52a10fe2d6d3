// pointer.js - mouse, touch and wheel on a map: point, pin, zoom, pan.

const TAP = 6; // CSS pixels that a tap may move

function listenTo(pane) {
  const { frame, canvas } = pane, hand = { down: new Map(), start: null, moved: false, pinch: 0 };
  const place = (e) => {
    const box = frame.getBoundingClientRect();
    return [e.clientX - box.left, e.clientY - box.top];
  };
  frame.addEventListener('pointermove', (e) => (hand.down.has(e.pointerId) ? drag(pane, hand, e, place(e)) : hover(pane, e, place(e))));
  frame.addEventListener('pointerleave', (e) => e.pointerType !== 'mouse' || hand.down.size || pointAt(null, null));
  document.addEventListener('pointerdown', (e) => e.pointerType === 'mouse' || frame.contains(e.target) || hideTip());
  frame.addEventListener('pointerdown', (e) => press(pane, hand, e, place(e)));
  frame.addEventListener('pointerup', (e) => release(pane, hand, e, place(e)));
  frame.addEventListener('pointercancel', (e) => cancel(pane, hand, e));
  frame.addEventListener('dblclick', () => change({ view: startView() }));
  frame.addEventListener('wheel', (e) => wheel(pane, e, place(e)), { passive: false });
  canvas.addEventListener('blur', () => pointAt(null, null));
}

function cellAt(pane, [px, py]) {
  const [x, y] = pane.at(px, py), last = extent() - 1;
  return { i: Math.min(last, Math.max(0, Math.floor(x))), t: Math.min(last, Math.max(0, Math.floor(y))) };
}

function hover(pane, e, at) {
  pointAt(pane, cellAt(pane, at), e.clientX, e.clientY);
}

function press(pane, hand, e, at) {
  if (e.button > 0)
    return;
  try {
    pane.frame.setPointerCapture(e.pointerId);
  } catch (_) {
    // the pointer no longer exists, or a script made it
  }
  hand.down.set(e.pointerId, at);
  if (hand.down.size === 1)
    Object.assign(hand, { start: at, moved: false, view: state.view });
  else
    hand.pinch = spread(hand);
}

const spread = (hand) => {
  const [a, b] = [...hand.down.values()];
  return Math.hypot(a[0] - b[0], a[1] - b[1]);
};

function drag(pane, hand, e, at) {
  const before = hand.down.get(e.pointerId);
  hand.down.set(e.pointerId, at);
  if (hand.down.size > 1) {
    pinch(pane, hand, before, at);
    return;
  }
  hand.moved = hand.moved || Math.hypot(at[0] - hand.start[0], at[1] - hand.start[1]) > TAP;
  if (!hand.moved)
    return;
  const v = state.view;
  if (e.pointerType === 'mouse' && !e.shiftKey)
    showBand(pane, hand.start, at);
  else
    panBy((before[0] - at[0]) / pane.side * (v.x1 - v.x0), (before[1] - at[1]) / pane.side * (v.y1 - v.y0));
}

function pinch(pane, hand) {
  const now = spread(hand), [a, b] = [...hand.down.values()];
  if (hand.pinch > 10 && now > 10)
    zoomAt(...pane.at((a[0] + b[0]) / 2, (a[1] + b[1]) / 2), now / hand.pinch, true);
  hand.pinch = now;
  hand.moved = true;
}

function showBand(pane, a, b) {
  const style = pane.band.style, inside = (v) => Math.min(pane.side, Math.max(0, v));
  pane.band.hidden = false;
  for (const [k, side, size] of [[0, 'left', 'width'], [1, 'top', 'height']]) {
    const lo = inside(Math.min(a[k], b[k])), hi = inside(Math.max(a[k], b[k]));
    style[side] = `${lo}px`;
    style[size] = `${hi - lo}px`;
  }
}

function release(pane, hand, e, at) {
  if (!hand.down.delete(e.pointerId) || hand.down.size)
    return;
  const banded = !pane.band.hidden;
  pane.band.hidden = true;
  if (!hand.moved) {
    const cell = cellAt(pane, at);
    change({ pin: state.pin === cell.i ? null : cell.i });
    revealToken(cell.i);
    hover(pane, e, at);
  } else if (banded) {
    const [x0, y0] = pane.at(Math.min(hand.start[0], at[0]), Math.min(hand.start[1], at[1]));
    const [x1, y1] = pane.at(Math.max(hand.start[0], at[0]), Math.max(hand.start[1], at[1]));
    setView(x0, x1, y0, y1);
  }
}

function cancel(pane, hand, e) {
  hand.down.delete(e.pointerId);
  pane.band.hidden = true;
}

function wheel(pane, e, at) {
  if (e.deltaY > 0 && isWhole(state.view))
    return; // the page scrolls on
  e.preventDefault();
  zoomAt(...pane.at(...at), Math.exp(-Math.max(-200, Math.min(200, e.deltaY)) / 300), true);
}
