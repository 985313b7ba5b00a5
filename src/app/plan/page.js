/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws the JSON of a plan or of a search (docs/formats.md). Texts of the data become text nodes
 * only, never markup. Works without a network; draws the page of `echelon plan --html` and the
 * results of the planner in a browser.
 */
'use strict';

const memoryColours = {
  'parameters': '#0072b2', 'optimizer': '#56b4e9', 'gradients': '#009e73',
  'activations': '#e69f00', 'activation gradients': '#f0c75e', 'scratch': '#cc79a7',
  'carried': '#b8860b', 'activations of a peer': '#d55e00', 'batch': '#7d6bb0',
  'scalars': '#999999', 'factors': '#5c9f8a', 'statistics': '#a0785a',
  'relayed parameters': '#6a8fb5', 'between values': '#b9c0c8'};
const partColours = ['#0072b2', '#56b4e9', '#009e73', '#e69f00', '#d55e00', '#cc79a7', '#f0c75e',
                     '#b9c0c8'];
const dash = '\u2013';

/* ---- texts and elements ---- */

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name === 'style') Object.assign(made.style, value);
    else if (value === true) made.setAttribute(name, '');
    else if (value !== false && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined));
  return made;
}
function digits(value, n) {
  if (!Number.isFinite(value)) return dash;
  const text = value.toPrecision(n || 3);
  return Math.abs(value) >= 1e6 || text.includes('e') ? Number(text).toLocaleString('en-US')
                                                      : String(Number(text));
}
function scaled(value, units, step) {
  let u = 0;
  while (Math.abs(value) >= step && u + 1 < units.length) { value /= step; u++; }
  return digits(value, value >= 1000 ? 4 : 3) + ' ' + units[u];
}
const bytes = value => scaled(value, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'], 1024);
const big = (value, unit) => scaled(value, ['', 'k', 'M', 'G', 'T', 'P', 'E'].map(p => p + unit),
                                    1000);
const count = value => value.toLocaleString('en-US');
const plural = (n, noun) => count(n) + ' ' + noun + (n === 1 ? '' : 's');
const percent = value => digits(100 * value, Math.abs(value) < 0.1 ? 2 : 3) + ' %';
/* The unit for times up to `most`: its size in the data's unit, and its name. */
function unitOf(most, unit) {
  if (unit && unit !== 'seconds') return {scale: 1, name: unit};
  if (most >= 1 || most === 0) return {scale: 1, name: 's'};
  return most >= 1e-3 ? {scale: 1e-3, name: 'ms'} : {scale: 1e-6, name: '\u00b5s'};
}
function time(seconds, unit) {
  const {scale, name} = unitOf(seconds, unit);
  return digits(seconds / scale, 4) + ' ' + name;
}
const spanText = ({begin, end}, unit) =>
  `from ${time(begin, unit)}, for ${time(end - begin, unit)}`;
const section = (title, note, ...content) => el('section', {}, el('h2', {}, title),
  note ? el('p', {class: 'note'}, note) : null, el('div', {class: 'card'}, ...content));
const legend = entries => el('div', {class: 'legend'}, entries.map(([colour, text]) =>
  el('span', {}, el('i', {style: {background: colour}}), text)));
function table(heads, rows, more) {
  return el('table', more || {}, el('thead', {}, el('tr', {}, heads.map(h => el('th', {}, h)))),
            el('tbody', {}, rows.map(row => el('tr', {}, row.map((cell, i) =>
              el(i ? 'td' : 'th', {}, cell))))));
}
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* A canvas of `height` pixels that `draw(context, width, height)` fills, again when its width or
 * the colours change. */
function canvasOf(height, draw, attributes) {
  const canvas = el('canvas', attributes);
  canvas.redraw = () => {
    const width = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    const high = typeof height === 'function' ? height(width) : height;
    if (!width) return;
    canvas.width = width * ratio;
    canvas.height = high * ratio;
    canvas.style.height = high + 'px';
    const context = canvas.getContext('2d');
    context.scale(ratio, ratio);
    context.font = '12px Helvetica, Arial, sans-serif';
    context.textBaseline = 'middle';
    draw(context, width, high);
  };
  new ResizeObserver(canvas.redraw).observe(canvas);
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', canvas.redraw);
  return canvas;
}

/* ---- the numbers of a plan ---- */

const classColour = (plan, c) => {
  const n = plan.plans.length;
  return `hsl(${205 + (n > 1 ? 150 * c / (n - 1) : 0)} 62% ${c % 2 ? 58 : 48}%)`;
};
const mostMemory = plan => Math.max(...plan.plans.map(row => row.memory.arena_bytes));
function blocksText(pairs) {
  return pairs.filter(([first, end]) => end > first)
    .map(([first, end]) => end - first > 1 ? `${first} to ${end - 1}` : `${first}`).join(', ');
}
function gridText(plan) {
  const grid = plan.grid, words = [];
  const replicas = [...new Set(grid.replicas)].sort((a, b) => a - b).join(' or ');
  if (grid.stages > 1)
    words.push(plural(grid.stages, 'stage') +
               (grid.chunks > 1 ? ` of ${grid.chunks} model chunks` : ''));
  words.push(replicas === '1' ? '1 replica' : replicas + ' replicas');
  if (grid.context > 1) words.push(`${grid.context} context ranks (${grid.context_method})`);
  if (grid.tensor > 1)
    words.push(`${grid.tensor} tensor ranks` + (grid.sequence === 'true' ? ', sequence parallel'
                                                                         : ''));
  if (grid.expert > 1) words.push(`experts over ${grid.expert} ranks`);
  return words.join(' \u00d7 ') + `; schedule ${plan.schedule}, recomputation ${grid.recompute}`;
}
function className(plan, c) {
  const row = plan.plans[c], rank = plan.ranks[row.rank];
  if (rank.role === 'server') return plural(row.ranks, 'server');
  return `stage ${rank.stage}, blocks ${blocksText(rank.blocks)}: ${plural(row.ranks, 'rank')}`;
}

function factsOf(plan) {
  const facts = [], cluster = plan.cluster, limit = plan.device_limit_bytes;
  const units = plan.batch.unit + 's';
  const most = mostMemory(plan);
  const add = (key, value, small, style) => facts.push(el('div', {}, el('dt', {}, key),
    el('dd', {class: style}, value, small ? el('small', {}, small) : null)));
  if (cluster) {
    add('training step', time(cluster.step_time),
        `${time(cluster.low)} to ${time(cluster.high)}`);
    add('throughput', big(cluster.tokens_per_second, units + '/s'),
        big(cluster.tokens_per_second / plan.world, units + '/s') + ' a rank');
    add('model FLOPs of peak', cluster.peak_flops_per_second > 0
      ? percent(cluster.model_flops_per_second / cluster.peak_flops_per_second) : dash,
        big(cluster.model_flops_per_second, 'FLOP/s') + ' a rank');
  } else if (plan.simulation) {
    add('training step', time(plan.simulation.step_time, plan.simulation.unit), 'simulated');
  }
  add('device memory', bytes(most), limit ? `${percent(most / limit)} of ${bytes(limit)}`
                                          : 'the limit is unknown', limit && most > limit
      ? 'bad' : limit ? 'good' : '');
  if (plan.bubble !== undefined)
    add('bubble', percent(plan.bubble), 'time without F, B or W');
  if (cluster)
    add('whole training', cluster.days >= 2 ? digits(cluster.days, 3) + ' days'
                                            : digits(24 * cluster.days, 3) + ' hours',
        `${big(cluster.tokens, units)}, ${digits(cluster.device_hours)} device hours`);
  return el('dl', {class: 'facts'}, facts);
}

/* ---- where the time goes ---- */

function partsOf(plan) {
  const parts = Object.entries(plan.cluster.parts).map(([name, share], i) =>
    [name, share, partColours[i % partColours.length]]).filter(part => part[1] >= 5e-4);
  return section('Where the time goes', 'Mean over all ranks. Compute that waits counts for ' +
                 'what it waits for.',
    el('div', {class: 'bar'}, parts.map(([name, share, colour]) =>
      el('i', {style: {width: 100 * share + '%', background: colour},
               title: `${name}: ${percent(share)}`}))),
    legend(parts.map(([name, share, colour]) => [colour, `${name}, ${percent(share)}`])));
}

/* ---- the mesh of ranks ---- */

function meshOf(plan, view) {
  const {grid, ranks} = plan, across = Math.max(1, grid.tensor), deep = Math.max(1, grid.context);
  const strips = [];
  for (const rank of ranks) {
    const key = rank.role === 'server' ? 'servers' : 'stage ' + rank.stage;
    let strip = strips[strips.length - 1];
    if (!strip || strip.key !== key) strips.push(strip = {key, ranks: [], rank});
    strip.ranks.push(rank);
  }
  const place = {cell: 22, left: 0, strips: []};
  function arrange(width) {
    place.left = width > 600 ? 190 : 0;
    for (place.cell = 22; place.cell > 2; place.cell--) {
      const high = measure(width), wide = across * place.cell + place.gap;
      if (high <= (ranks.length > 4096 ? 640 : 420) && wide <= width - place.left) break;
    }
    return measure(width);
  }
  function measure(width) {
    const {cell, left} = place, gap = across * deep > 1 && cell > 5 ? 3 : 0;
    const label = left ? 0 : 18, blockWide = across * cell + gap, blockHigh = deep * cell + gap;
    let top = 2;
    place.gap = gap;
    place.strips = strips.map(strip => {
      const blocks = Math.ceil(strip.ranks.length / (across * deep));
      const columns = Math.max(1, Math.floor((width - left) / blockWide));
      const one = {strip, top: top + label, columns, blockWide, blockHigh,
                   high: Math.ceil(blocks / columns) * blockHigh};
      top = one.top + Math.max(one.high, left ? 15 : 0) + 5;
      return one;
    });
    return Math.ceil(top);
  }
  function cellOf(one, i) {
    const block = Math.floor(i / (across * deep)), inside = i % (across * deep);
    return [place.left + block % one.columns * one.blockWide + inside % across * place.cell,
            one.top + Math.floor(block / one.columns) * one.blockHigh +
            Math.floor(inside / across) * place.cell];
  }
  function draw(context, width) {
    const size = place.cell > 3 ? place.cell - 1 : place.cell, ink = css('--ink');
    for (const one of place.strips) {
      const {strip} = one, rank = strip.rank;
      context.fillStyle = css('--faint');
      const text = strip.key + (rank.role === 'server' ? '' : ': blocks ' +
                                blocksText(rank.blocks));
      context.fillText(text, 0, place.left ? one.top + 8 : one.top - 9,
                       (place.left || width) - 8);
      strip.ranks.forEach((r, i) => {
        const [x, y] = cellOf(one, i);
        context.globalAlpha = r.plan === view.plan ? 1 : 0.5;
        context.fillStyle = classColour(plan, r.plan);
        context.fillRect(x, y, size, size);
        context.globalAlpha = 1;
        if (r.rank !== view.rank) return;
        context.strokeStyle = ink;
        context.lineWidth = 2;
        context.strokeRect(x, y, size, size);
      });
    }
  }
  const said = el('p', {class: 'note', 'aria-live': 'polite'});
  function say() {
    const r = ranks[view.rank], row = plan.plans[r.plan];
    const at = r.role === 'server' ? 'parameter server' : `stage ${r.stage}, replica ${r.data}` +
      (grid.context > 1 ? `, context rank ${r.context}` : '') +
      (grid.tensor > 1 ? `, tensor rank ${r.tensor}` : '') + `, blocks ${blocksText(r.blocks)}, ` +
      `${plural(r.micro_batches, 'micro-batch')}`.replace('batchs', 'batches');
    said.textContent = `Rank ${r.rank}: ${at}; ${bytes(row.memory.arena_bytes)} of device ` +
      `memory, sends ${bytes(row.sent_bytes_per_step)} a step; simulated as rank ` +
      `${r.simulated_as}; one of ${plural(row.ranks, 'rank')} with the same memory.`;
  }
  function pick(event) {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    for (const one of place.strips) {
      if (y < one.top || y >= one.top + one.high || x < place.left) continue;
      const column = Math.floor((x - place.left) / one.blockWide);
      const block = Math.floor((y - one.top) / one.blockHigh) * one.columns + column;
      const inX = Math.floor((x - place.left - column * one.blockWide) / place.cell);
      const inY = Math.floor((y - one.top) % one.blockHigh / place.cell);
      if (column >= one.columns || inX >= across || inY >= deep) return;
      const rank = one.strip.ranks[block * across * deep + inY * across + inX];
      if (rank) view.choose({rank: rank.rank, plan: rank.plan});
    }
  }
  const canvas = canvasOf(arrange, draw, {onclick: pick, role: 'img',
                                          'aria-label': 'ranks by stage and replica'});
  view.listen(() => { canvas.redraw(); say(); });
  say();
  return section('Ranks', `${count(plan.world)} ranks: ${gridText(plan)}. A square is a rank; ` +
                 'ranks of one colour have the same blocks and memory. Choose one.',
                 el('div', {class: 'mesh'}, canvas), said);
}

/* ---- memory ---- */

function memoryOf(plan, view) {
  const limit = plan.device_limit_bytes, arena = mostMemory(plan);
  const near = limit && limit < 4 * arena, most = near ? Math.max(limit, arena) : arena;
  const order = Object.keys(memoryColours), all = plan.plans.length;
  const fullest = plan.plans.findIndex(row => row.memory.arena_bytes === arena);
  const shown = [...Array(all).keys()].filter(c => all <= 16 || c < 14 || c === fullest ||
                                                  c === all - 1);
  const kinds = order.filter(kind => plan.plans.some(row => row.memory.fullest_bytes[kind] > 0));
  const rows = shown.map(c => {
    const memory = plan.plans[c].memory, used = memory.fullest_bytes;
    return [el('span', {class: 'name'}, className(plan, c)),
      el('div', {class: 'track', onclick: () => view.choose({plan: c, rank: plan.plans[c].rank})},
        el('div', {class: 'fill', style: {width: 100 * memory.arena_bytes / most + '%'}},
          kinds.filter(kind => used[kind]).map(kind => el('i', {
            title: `${kind}: ${bytes(used[kind])}`,
            style: {width: 100 * used[kind] / memory.arena_bytes + '%', height: '22px',
                    background: memoryColours[kind]}}))),
        near ? el('div', {class: 'limit', title: `limit: ${bytes(limit)}`,
                          style: {left: `calc(${100 * limit / most}% - 2px)`}}) : null),
      el('span', {class: limit && memory.arena_bytes > limit ? 'bad' : ''},
         bytes(memory.arena_bytes))];
  });
  const heads = ['class of ranks', ...kinds, 'device arena', 'host arena'];
  const cells = shown.map(c => {
    const memory = plan.plans[c].memory;
    return [className(plan, c), ...kinds.map(kind => count(memory.fullest_bytes[kind] || 0)),
            count(memory.arena_bytes), count(memory.host.arena_bytes)];
  });
  return section('Memory', 'The device arena of each class of ranks in its fullest moment, by ' +
    'what fills it' + (near ? `; the line is the limit, ${bytes(limit)}.`
      : limit ? `; the limit, ${bytes(limit)}, is beyond the scale.` : '.') +
    (shown.length < all ? ` ${shown.length} of ${all} classes are shown.` : ''),
    el('div', {class: 'memory'}, rows), legend(kinds.map(kind => [memoryColours[kind], kind])),
    el('details', {}, el('summary', {}, 'in bytes'),
       el('div', {class: 'scroll'}, table(heads, cells))));
}

/* ---- bytes sent ---- */

function levelName(levels, l) {
  const level = levels[l], rate = big(level.bandwidth, 'B/s');
  return (l + 1 < levels.length || l === 0 ? `within ${plural(level.ranks, 'rank')}`
                                           : 'beyond that') + `, ${rate}`;
}
function matrix(heads, rows) {
  const most = Math.max(1, ...rows.flatMap(row => row[1]));
  return el('div', {class: 'scroll'}, el('table', {class: 'matrix'},
    el('thead', {}, el('tr', {}, ['', ...heads].map(h => el('th', {}, h)))),
    el('tbody', {}, rows.map(([name, values]) => el('tr', {}, el('th', {}, name),
      values.map(value => {
        const share = value > 0 ? 10 + 45 * Math.sqrt(value / most) : 0;
        return el('td', {style: {background: share
          ? `color-mix(in srgb, var(--accent) ${share}%, transparent)` : ''}},
                  value ? bytes(value) : dash);
      }))))));
}
function trafficOf(plan) {
  const sends = new Set();
  for (const row of plan.plans)
    for (const [axis, traffic] of Object.entries(row.traffic))
      if (traffic.bytes > 0) sends.add(axis);
  const axes = [...sends], content = [];
  if (!axes.length) return null;
  if (plan.cluster) {
    const levels = plan.cluster.levels.filter((level, l) =>
      l === 0 || level.ranks > plan.cluster.levels[l - 1].ranks);
    const crossing = axes.filter(axis => levels.some(level => level.bytes[axis] > 0));
    if (crossing.length)
      content.push(el('p', {class: 'note'}, 'All ranks together, by the outermost level that a ' +
                      'group of ranks crosses.'),
        matrix(levels.map((level, l) => levelName(levels, l)),
               crossing.map(axis => [axis, levels.map(level => level.bytes[axis] || 0)])));
  }
  const all = plan.plans.length, step = Math.max(1, Math.ceil(all / 12));
  const shown = [...Array(all).keys()].filter(c => c % step === 0 || c === all - 1);
  content.push(el('p', {class: 'note', style: {marginTop: '12px'}}, 'One rank of each class, by ' +
                  'axis; copies to host or disk are axes, too.'),
    matrix(axes, shown.map(c => [className(plan, c), axes.map(axis =>
      plan.plans[c].traffic[axis].bytes)])));
  const flows = axes.flatMap(axis => plan.plans[0].traffic[axis].flows.map(flow =>
    [`${axis}: ${flow.collective} over ${flow.group}`, count(flow.calls),
     flow.messages === null ? dash : count(flow.messages), bytes(flow.bytes)]));
  content.push(el('details', {}, el('summary', {}, `collectives and messages of rank ` +
                                                   `${plan.plans[0].rank}`),
    el('div', {class: 'scroll'}, table(['', 'calls', 'messages', 'bytes'], flows))));
  return section('Bytes that move in a step', '', ...content);
}
