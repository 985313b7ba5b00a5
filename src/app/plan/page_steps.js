/* SPDX-License-Identifier: Apache-2.0
 *
 * The timeline of a plan, and its lists of steps.
 */
'use strict';

/* ---- the timeline ---- */

const timelineRow = 20, timelineGap = 4, timelineAxis = 24;

/* A mix of the colour #rrggbb with white. */
function paler(colour, white) {
  const part = at => Math.round(parseInt(colour.slice(at, at + 2), 16) * (1 - white) + 255 * white);
  return `rgb(${part(1)} ${part(3)} ${part(5)})`;
}

/* An object for each bar of the timeline's columns. */
function timelineBars({timeline, boxes}) {
  return timeline.rank.map((rank, i) => ({rank, kind: boxes[timeline.kind[i]].kind,
    chunk: timeline.chunk[i], micro: timeline.micro[i], begin: timeline.begin[i],
    end: timeline.end[i], weight: timeline.weight[i]}));
}

/* The bars by rank, in the order of ranks; of many ranks evenly spaced ones. */
function timelineRows(plan, bars) {
  const byRank = new Map();
  for (const bar of bars) {
    if (!byRank.has(bar.rank)) byRank.set(bar.rank, []);
    byRank.get(bar.rank).push(bar);
  }
  const all = [...byRank.entries()].sort((a, b) => a[0] - b[0]);
  const rows = all.map(([rank, bars]) => ({rank, bars, alike: 0}));
  const byFirst = new Map(rows.map(row => [row.rank, row]));
  for (const rank of plan.ranks) {
    const row = byFirst.get(rank.simulated_as);
    if (row) row.alike++;
  }
  const kept = rows.filter((row, i) => rows.length <= 64 ||
    Math.floor(i * 64 / rows.length) !== Math.floor((i - 1) * 64 / rows.length));
  return {rows: kept, left: rows.length - kept.length};
}

function tick(span, most) {
  const power = 10 ** Math.floor(Math.log10(span / most));
  return [1, 2, 5, 10].map(k => k * power).find(step => span / step <= most);
}

function timelineOf(plan, view) {
  const bars = timelineBars(plan.simulation), {rows, left} = timelineRows(plan, bars);
  const unit = plan.simulation.unit;
  const boxes = new Map(plan.simulation.boxes.map(box => [box.kind, box]));
  const end = Math.max(...rows.flatMap(row => row.bars.slice(-1).map(bar => bar.end)), 1e-12);
  /* The rank whose times the list of a class has. */
  const timedRank = c => plan.ranks[plan.plans[c].rank].simulated_as;
  const total = plan.simulation.step_time * plan.simulation.turns || end;
  const shown = {from: 0, to: total}, chunks = plan.grid.chunks;
  const pieces = plan.grid.sequence_chunks || 1; // of a micro-batch, each with its own number
  const labels = () => canvas.clientWidth > 600 ? 120 : 46;
  const x = (at, width) => labels() + (at - shown.from) / (shown.to - shown.from) *
                                     (width - labels());

  function zoom(factor, middle) {
    const span = Math.min(total, Math.max(total * 1e-6, (shown.to - shown.from) * factor));
    const share = (middle - shown.from) / (shown.to - shown.from);
    show(middle - share * span, span);
  }
  function show(from, span) {
    shown.from = Math.max(0, Math.min(total - span, from));
    shown.to = shown.from + span;
    canvas.redraw();
  }
  function colourOf(bar) {
    const box = boxes.get(bar.kind);
    return chunks > 1 && 'FBW'.includes(bar.kind) ? paler(box.colour, 0.55 * bar.chunk / chunks)
                                                  : box.colour;
  }
  /* Waits are drawn over the work that they are part of, and sums and gathers under it. Bars of
   * less than a pixel colour it by their share of it. */
  function drawBars(context, bars, top, width, kinds, inset, high) {
    for (const bar of bars) {
      if (!kinds.includes(bar.kind) || bar.end < shown.from || bar.begin > shown.to) continue;
      const x1 = Math.max(labels(), x(bar.begin, width)), x2 = Math.min(width, x(bar.end, width));
      const wide = x2 - x1, edge = wide > 3 ? 0.5 : 0;
      context.fillStyle = colourOf(bar);
      context.fillRect(x1 + edge, top + inset, wide - 2 * edge, high);
      if (bar.kind === 'B' && bar.weight > 0) { // of these B and W, the share that is W
        const part = high * bar.weight / (bar.end - bar.begin);
        context.fillStyle = colourOf({...bar, kind: 'W'});
        context.fillRect(x1 + edge, top + inset + high - part, wide - 2 * edge, part);
      }
      if (bar.micro >= 0 && high > 12 && wide > 8 + 7 * String(bar.micro).length) {
        context.fillStyle = 'BRC-'.includes(bar.kind) || bar.kind === 'F' ? '#10202c' : '#202020';
        context.textAlign = 'center';
        context.fillText(bar.micro, (x1 + x2) / 2, top + inset + high / 2 + 0.5);
        context.textAlign = 'left';
      }
    }
  }
  function draw(context, width) {
    const ink = css('--ink'), faint = css('--faint'), idle = css('--idle');
    rows.forEach((row, i) => {
      const top = i * (timelineRow + timelineGap), rank = plan.ranks[row.rank];
      const chosen = rank.plan === view.plan;
      context.fillStyle = chosen ? ink : faint;
      const name = labels() > 100 ? (rank.role === 'server' ? 'server' : `stage ${rank.stage}`) +
        `, rank ${row.rank}` : `${row.rank}`;
      context.fillText((row.rank === view.rank ? '\u25b8' : '') + name, 0, top + timelineRow / 2,
                       labels() - 6);
      context.fillStyle = idle;
      context.fillRect(labels(), top, width - labels(), timelineRow);
      drawBars(context, row.bars, top, width, 'FBWRU-', 0, timelineRow);
      drawBars(context, row.bars, top, width, 'C', timelineRow * 0.55, timelineRow * 0.45);
      drawBars(context, row.bars, top, width, 'SH', timelineRow - 4, 4);
      drawBars(context, row.bars, top, width, 'G', timelineRow - 2, 2);
    });
    drawAxis(context, width, rows.length * (timelineRow + timelineGap), faint);
    const step = view.step >= 0 && plan.plans[view.plan].train &&
      plan.plans[view.plan].train[view.step];
    if (!step || step.begin === undefined) return;
    context.fillStyle = css('--bad');
    const at = x(step.begin, width), row = rows.findIndex(one => one.rank === timedRank(view.plan));
    if (at >= labels() && at <= width && row >= 0)
      context.fillRect(at - 1, row * (timelineRow + timelineGap), 2, timelineRow);
  }
  function drawAxis(context, width, top, faint) {
    const span = shown.to - shown.from, step = tick(span, (width - labels()) / 90);
    const {scale, name} = unitOf(shown.to, unit), left = width - context.measureText(name).width;
    const decimals = Math.max(0, -Math.floor(Math.log10(step / scale) + 1e-9));
    context.fillStyle = faint;
    context.fillText(name, left, top + 12);
    for (let k = Math.ceil(shown.from / step); k * step <= shown.to; k++) {
      const at = x(k * step, width);
      context.fillRect(at, top, 1, 5);
      const text = (k * step / scale).toFixed(decimals);
      if (at + context.measureText(text).width < left - 9) context.fillText(text, at + 3, top + 12);
    }
  }

  /* Two fingers zoom, one finger or the mouse moves; a click chooses the box. */
  const pointers = new Map();
  let moved = 0;
  const timeAt = clientX => {
    const box = canvas.getBoundingClientRect();
    return shown.from + (clientX - box.left - labels()) / (box.width - labels()) *
                        (shown.to - shown.from);
  };
  function down(event) {
    pointers.set(event.pointerId, event.clientX);
    canvas.setPointerCapture(event.pointerId);
    moved = 0;
  }
  function move(event) {
    if (!pointers.has(event.pointerId)) return hover(event);
    const before = [...pointers.values()], span = shown.to - shown.from;
    const wide = canvas.clientWidth - labels();
    pointers.set(event.pointerId, event.clientX);
    const now = [...pointers.values()];
    moved += Math.abs(now[0] - before[0]);
    if (now.length > 1) {
      const apart = Math.abs(now[1] - now[0]), was = Math.abs(before[1] - before[0]);
      if (apart > 8) zoom(was / apart, timeAt((now[0] + now[1]) / 2));
    } else {
      show(shown.from - (now[0] - before[0]) / wide * span, span);
    }
  }
  function barAt(event) {
    const box = canvas.getBoundingClientRect();
    const row = rows[Math.floor((event.clientY - box.top) / (timelineRow + timelineGap))];
    const at = timeAt(event.clientX);
    if (!row || event.clientX - box.left < labels()) return row ? {row} : null;
    return {row, at, bar: row.bars.find(bar => 'FBWRU-'.includes(bar.kind) && bar.begin <= at &&
                                               at < bar.end)};
  }
  function hover(event) {
    const found = barAt(event);
    canvas.title = found && found.bar ? `${boxes.get(found.bar.kind).meaning}` +
      (found.bar.kind === 'B' && found.bar.weight > 0 ? ' and weights' : '') +
      (found.bar.micro >= 0 ? `, micro-batch ${Math.floor(found.bar.micro / pieces)}` : '') +
      (found.bar.micro >= 0 && pieces > 1 ? `, sequence chunk ${found.bar.micro % pieces}` : '') +
      (chunks > 1 ? `, model chunk ${found.bar.chunk}` : '') +
      `: ${spanText(found.bar, unit)}` : '';
  }
  /* The same place of the same box of the rank whose times the list of class c has. */
  function timeInList(c, {row, bar, at}) {
    const alike = one => ['kind', 'chunk', 'micro'].every(key => one[key] === bar[key]);
    const nth = row.bars.filter(alike).indexOf(bar);
    const twin = bars.filter(one => one.rank === timedRank(c) && alike(one))[nth] || bar;
    return twin.begin + (at - bar.begin) / (bar.end - bar.begin) * (twin.end - twin.begin);
  }
  function up(event) {
    pointers.delete(event.pointerId);
    if (moved > 4) return;
    const found = barAt(event);
    if (!found) return;
    const c = plan.ranks[found.row.rank].plan, train = plan.plans[c].train;
    const step = train && found.bar ? train.findIndex(one => one.lane === 'compute' &&
      one.end > timeInList(c, found)) : undefined;
    view.choose({rank: found.row.rank, plan: c, step: step === undefined ? view.step : step});
  }
  function wheel(event) {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    zoom(1.2 ** Math.sign(event.deltaY || event.deltaX), timeAt(event.clientX));
  }
  function key(event) {
    const span = shown.to - shown.from, middle = (shown.from + shown.to) / 2;
    const keys = {ArrowLeft: () => show(shown.from - span / 5, span),
                  ArrowRight: () => show(shown.from + span / 5, span),
                  '+': () => zoom(0.6, middle), '-': () => zoom(1 / 0.6, middle)};
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }
  const canvas = canvasOf(rows.length * (timelineRow + timelineGap) + timelineAxis, draw,
    {onpointerdown: down, onpointermove: move, onpointerup: up, onwheel: wheel, onkeydown: key,
     onpointercancel: event => pointers.delete(event.pointerId), tabindex: '0', role: 'img',
     'aria-label': 'timeline of the training step'});
  const middle = () => (shown.from + shown.to) / 2;
  view.listen(canvas.redraw);
  view.reveal = at => {
    const span = shown.to - shown.from;
    if (at < shown.from || at > shown.to) show(at - span / 2, span);
  };
  const used = new Set(bars.map(bar => bar.kind));
  if (bars.some(bar => bar.weight > 0)) used.add('W');
  return section('Who computes what, when', 'The simulated training step; a row is the first rank ' +
    'of those that do the same. Drag to move; zoom by the buttons, two fingers, or Ctrl and the ' +
    'wheel. Choose a box to see its steps below.' +
    (left ? ` ${left} more rows are not shown.` : ''),
    el('div', {class: 'tools'},
      el('button', {onclick: () => zoom(0.5, middle())}, 'Zoom in'),
      el('button', {onclick: () => zoom(2, middle())}, 'Zoom out'),
      el('button', {onclick: () => show(0, total)}, 'Whole step')),
    canvas, legend([...plan.simulation.boxes.filter(box => used.has(box.kind)).map(box =>
      [box.colour, `${box.kind}: ${box.meaning}`]), ['var(--idle)', 'idle'],
      ['transparent', `numbers: ${pieces > 1 ? 'sequence chunks' : 'micro-batches'}`]]));
}

/* ---- steps ---- */

const stepRow = 22;

/* The live bytes of a list over its compute steps. */
function liveOf(plan, view) {
  const limit = plan.device_limit_bytes;
  function points() {
    const train = plan.plans[view.plan].train, list = [];
    train.forEach((step, s) => { if (step.live_bytes !== undefined) list.push(s); });
    return list;
  }
  function draw(context, width, high) {
    const row = plan.plans[view.plan], list = points(), bottom = high - 4;
    const most = Math.max(row.memory.arena_bytes, 1);
    const y = value => bottom - value / most * (high - 20);
    context.fillStyle = css('--soft');
    context.strokeStyle = css('--accent');
    context.beginPath();
    context.moveTo(0, bottom);
    list.forEach((s, i) => {
      const at = row.train[s].live_bytes;
      context.lineTo(i / list.length * width, y(at));
      context.lineTo((i + 1) / list.length * width, y(at));
    });
    context.stroke();
    context.lineTo(width, bottom);
    context.fill();
    context.fillStyle = css('--faint');
    context.fillText(`live device memory; the arena has ${bytes(row.memory.arena_bytes)}` +
                     (limit ? ` of ${bytes(limit)}` : ''), 4, 8, width - 8);
    const i = list.findIndex(s => s >= view.step);
    if (view.step < 0 || i < 0) return;
    context.fillStyle = css('--bad');
    context.fillRect((i + 0.5) / list.length * width - 1, 16, 2, bottom - 16);
  }
  function pick(event) {
    const box = canvas.getBoundingClientRect(), list = points();
    const i = Math.floor((event.clientX - box.left) / box.width * list.length);
    view.choose({step: list[Math.max(0, Math.min(list.length - 1, i))]});
  }
  const canvas = canvasOf(84, draw, {onclick: pick, role: 'img',
                                     'aria-label': 'live device memory by step'});
  view.listen(canvas.redraw);
  return canvas;
}

function touchedTable(values) {
  const rows = [...values].sort((a, b) => b.bytes - a.bytes).map(value =>
    [value.value, value.kind, value.reads && value.writes ? 'reads, writes'
                                                          : value.reads ? 'reads' : 'writes',
     bytes(value.bytes)]);
  return rows.length ? table(['value', 'kind', 'the step', 'bytes'], rows)
                     : el('p', {class: 'note'}, 'The step touches no values of the plan.');
}

function stepsOf(plan, view) {
  const unit = plan.simulation ? plan.simulation.unit : '';
  const inner = el('div', {style: {position: 'relative'}});
  const list = el('div', {class: 'steps', tabindex: '0', onscroll: () => fill(), onkeydown: key});
  const about = el('div', {'aria-live': 'polite'});
  const select = el('select', {'aria-label': 'class of ranks',
                               onchange: () => view.choose({plan: Number(select.value), step: 0,
                                 rank: plan.plans[Number(select.value)].rank})},
    plan.plans.map((row, c) => el('option', {value: c}, className(plan, c))));
  let ofPlan = -1;
  const steps = () => plan.plans[view.plan].train;
  const go = step => view.choose({step: Math.max(0, Math.min(steps().length - 1, step))});
  function goOn(by) { /* the next step of the compute lane */
    let s = view.step + by;
    while (s >= 0 && s < steps().length && steps()[s].lane !== 'compute') s += by;
    go(s);
  }
  function key(event) {
    const by = {ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10}[event.key];
    if (!by) return;
    event.preventDefault();
    go(view.step + by);
  }
  function fill() {
    const first = Math.max(0, Math.floor(list.scrollTop / stepRow) - 5);
    const last = Math.min(steps().length, first + Math.ceil(list.clientHeight / stepRow) + 10);
    inner.style.height = steps().length * stepRow + 'px';
    inner.replaceChildren(...steps().slice(first, last).map((step, i) => {
      const s = first + i;
      return el('div', {class: 'row' + (s === view.step ? ' is-chosen' : ''),
                        style: {top: s * stepRow + 'px'}, onclick: () => go(s)},
                el('span', {}, s), el('span', {}, `${step.lane}: ${step.step}`));
    }));
  }
  function show() {
    const s = view.step;
    if (ofPlan !== view.plan) select.value = ofPlan = view.plan;
    if (s >= 0 && (s * stepRow < list.scrollTop ||
                   (s + 1) * stepRow > list.scrollTop + list.clientHeight))
      list.scrollTop = Math.max(0, s * stepRow - list.clientHeight / 2);
    fill();
    const step = steps()[s];
    if (!step) return;
    const facts = [`lane ${step.lane}`];
    if (step.begin !== undefined)
      facts.push(spanText(step, unit));
    if (step.live_bytes !== undefined) facts.push(`${bytes(step.live_bytes)} live on the device`);
    const waits = step.after.map(a => el('button', {onclick: () => go(a), title: steps()[a].step},
                                         a));
    about.replaceChildren(
      el('p', {style: {margin: '0 0 4px'}}, el('b', {}, `${s}: ${step.step}`)),
      el('p', {class: 'note'}, facts.join(' \u00b7 ')),
      waits.length ? el('div', {class: 'tools'}, el('span', {class: 'note',
        style: {margin: 0}}, 'waits for steps'), ...waits.slice(0, 12),
        waits.length > 12 ? `and ${waits.length - 12} more` : '') : '',
      el('div', {class: 'touched scroll'},
         touchedTable(plan.plans[view.plan].touched[step.touches])));
    if (view.reveal && step.begin !== undefined) view.reveal(step.begin);
  }
  list.append(inner);
  view.listen(show);
  new ResizeObserver(fill).observe(list);
  setTimeout(show);
  return section('Every step', 'The list of steps of one rank of the class, and the values that ' +
                 'a step touches with their bytes.',
    el('div', {class: 'tools'}, select,
      el('button', {onclick: () => go(view.step - 1)}, 'Previous'),
      el('button', {onclick: () => go(view.step + 1)}, 'Next'),
      el('button', {onclick: () => goOn(-1)}, 'Previous compute'),
      el('button', {onclick: () => goOn(1)}, 'Next compute')),
    liveOf(plan, view), el('div', {class: 'step'}, list, about));
}
