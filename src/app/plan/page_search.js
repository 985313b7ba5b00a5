/* SPDX-License-Identifier: Apache-2.0
 *
 * The layouts of a search, the comparison of two plans, arguments of other systems, and the page as
 * a whole.
 */
'use strict';

const shortKey = key => key.split('.')[1].replace('_size', '').replace('offload_', '');

function reasonOf(search, i) {
  const one = search.candidates[i], first = search.candidates[0];
  const limit = `limit: ${one.limit}, ${percent(one.parts[one.limit])}`;
  if (!i) return limit;
  const part = one.slower, more = one.parts[part] * one.seconds - first.parts[part] * first.seconds;
  return `${percent(one.seconds / first.seconds - 1)} slower, most of it ${part} ` +
         `(${more < 0 ? '\u2212' : '+'}${time(Math.abs(more))}); ${limit}`;
}

/* options.choose(candidate): called when a layout is chosen. */
function candidatesOf(search, options) {
  const places = search.candidates.slice(0, search.places);
  const keys = Object.keys(places[0].keys), file = el('pre', {});
  const columns = [['#', (c, i) => i], ['s a step', c => c.seconds],
                   ['TFLOP/s', c => c.model_flops / 1e12], ['memory', c => c.bytes],
                   ['data', c => c.data], ...keys.map(key => [shortKey(key), c => c.keys[key]])];
  let order = 0, chosen = 0;
  const body = el('tbody', {});
  function cells(c, i) {
    return [i + 1, digits(c.seconds, 4), digits(c.model_flops / 1e12, 4), bytes(c.bytes), c.data,
            ...keys.map(key => c.keys[key])];
  }
  function fill() {
    const rows = places.map((c, i) => [c, i]);
    rows.sort((a, b) => {
      const x = columns[order][1](...a), y = columns[order][1](...b);
      const numbers = [Number(x), Number(y)];
      if (numbers.every(Number.isFinite)) return numbers[0] - numbers[1] || a[1] - b[1];
      return String(x).localeCompare(String(y)) || a[1] - b[1];
    });
    body.replaceChildren(...rows.map(([c, i]) =>
      el('tr', {class: 'can' + (i === chosen ? ' is-chosen' : ''), onclick: () => choose(i)},
         cells(c, i).map((cell, k) => el(k ? 'td' : 'th', {}, String(cell))),
         el('td', {class: 'words'}, reasonOf(search, i)))));
    file.textContent = places[chosen].run_file;
  }
  function choose(i) {
    chosen = i;
    fill();
    if (options && options.choose) options.choose(places[i]);
  }
  const counts = search.counts, rest = search.candidates.slice(search.places);
  fill();
  return section('Layouts', `${plural(search.candidates.length, 'layout')} for ` +
    `${plural(search.ranks, 'rank')} on ${search.cluster}: ${count(counts.planned)} planned and ` +
    `simulated, ${count(counts.brief)} only with few micro-batches, ${count(counts.large)} too ` +
    `large, ${count(counts.refused)} refused, ${count(counts.bounded)} left out by a bound of ` +
    `their time, ${count(counts.left)} by an estimate of it` +
    (search.open ? `, of which ${count(search.open)} may be among the first` : '') + '.' +
    (search.fixed.length ? ` Not searched, as the run sets them: ${search.fixed.join(', ')}.` : ''),
    el('div', {class: 'scroll'}, el('table', {}, el('thead', {}, el('tr', {},
      columns.map(([name], k) => el('th', {}, k ? el('button', {onclick: () => {
        order = k;
        fill();
      }}, name) : name)), el('th', {class: 'words'}, 'why'))), body)),
    el('details', {}, el('summary', {}, 'run file of the chosen layout'), file),
    rest.length ? othersOf(rest, keys) : null);
}

/* Layouts that are not in the list, and why. */
function othersOf(rest, keys) {
  const most = 300, details = el('details', {}, el('summary', {}, 'other layouts, by estimate'));
  details.addEventListener('toggle', () => {
    if (details.children.length > 1) return;
    details.append(el('div', {class: 'scroll', style: {maxHeight: '400px'}},
      table([...keys.map(shortKey), 'estimate', 'simulated', 'memory', 'fate'],
            rest.slice(0, most).map(c => [...keys.map(key => c.keys[key]), time(c.estimate),
              c.seconds === undefined ? dash : time(c.seconds),
              c.bytes === undefined ? dash : bytes(c.bytes),
              c.fate + (c.why ? ': ' + c.why : '')]))),
      rest.length > most ? el('p', {class: 'note'}, `and ${count(rest.length - most)} more in the ` +
                                                    'JSON') : '');
  });
  return details;
}

/* What makes `plan` slower or larger than `other`. */
function compareOf(plan, other, name) {
  const parts = Object.keys(plan.cluster.parts), here = plan.cluster, there = other.cluster;
  const sign = value => (value < 0 ? '\u2212' : '+');
  const row = (what, was, is, print) => [what, print(was), print(is),
    is === was ? dash : sign(is - was) + print(Math.abs(is - was))];
  const rows = [row('training step', there.step_time, here.step_time, time),
    ...parts.map(part => row(part, there.parts[part] * there.step_time,
                             here.parts[part] * here.step_time, time))
      .filter((cells, i) => here.parts[parts[i]] > 5e-4 || there.parts[parts[i]] > 5e-4),
    row('device memory', mostMemory(other), mostMemory(plan), bytes)];
  const most = parts.map(part => [part, here.parts[part] * here.step_time -
    there.parts[part] * there.step_time]).sort((a, b) => b[1] - a[1])[0];
  const slower = here.step_time / there.step_time - 1;
  const words = Math.abs(slower) < 5e-4 ? `As fast as ${name}.`
    : slower > 0 ? `${percent(slower)} slower than ${name}, most of it ${most[0]} ` +
                   `(+${time(most[1])}).`
    : `${percent(-slower)} faster than ${name}.`;
  return section('Compared with ' + name, words,
    el('div', {class: 'scroll'}, table(['', name, 'this layout', 'difference'], rows)));
}

/* ---- the layout as arguments of another system ---- */

const listOf = (title, texts) => texts.length
  ? [el('h3', {}, title), el('ul', {}, texts.map(text => el('li', {}, text)))] : [];

/* `emitted` is of the JSON (--emit-for). more: elements that follow the lists. */
function emittedOf(emitted, ...more) {
  const rows = Object.entries(emitted.arguments).map(([name, value]) =>
    [name, value === true ? dash : String(value)]);
  return section(`Arguments for ${emitted.system}`, emitted.parser
      ? `The parser of ${emitted.parser} has read such arguments back in a test.`
      : 'The format is not proved: the parser of this system could not be installed.',
    listOf('What this system does not have', emitted.not_supported),
    listOf('Memory that differs by design', emitted.other_memory),
    el('details', {open: !more.length}, el('summary', {}, plural(rows.length, 'argument')),
       el('div', {class: 'scroll'}, table(['argument', 'value'], rows))), ...more);
}

/* ---- the whole ---- */

function titleOf(plan) {
  const model = plan.model, on = plan.cluster ? ` on ${plan.cluster.name}` : '';
  const size = scaled(model.parameters, ['', 'k', 'M', 'B', 'T'], 1000).replace(' ', '');
  return `${model.architecture}, ${size} parameters, ${plural(plan.world, 'rank')}${on}`;
}

/* Draws a plan into `root`. */
function drawPlan(root, plan) {
  const listeners = [];
  const {train, touched} = plan.plans[0];
  const first = train ? train.findIndex(step => touched[step.touches].length > 1) : 0;
  const view = {plan: 0, rank: plan.plans[0].rank, step: Math.max(0, first), listen: f => listeners.push(f),
                choose(change) {
                  Object.assign(view, change);
                  listeners.forEach(f => f());
                }};
  const {batch, model} = plan;
  root.append(...[
    el('h1', {}, titleOf(plan)),
    el('p', {class: 'lead'}, `${count(model.parameters)} parameters` +
      (model.active_parameters !== model.parameters
        ? `, ${count(model.active_parameters)} active` : '') + `, computed in ${model.compute}; ` +
      `${count(batch.global_batch_size)} samples` +
      (batch.unit === 'token' ? ` of ${count(batch.sequence_length)} tokens` : '') + ' a step, ' +
      `micro-batches of ${batch.micro_batch_size}; ${gridText(plan)}`),
    factsOf(plan), plan.cluster ? partsOf(plan) : null, meshOf(plan, view), memoryOf(plan, view),
    plan.simulation ? timelineOf(plan, view)
                    : section('Who computes what, when', 'The lists are too long to simulate.'),
    plan.plans[0].train ? stepsOf(plan, view) : null, trafficOf(plan)].filter(Boolean));
}

/* Draws the data of a page: a plan, or a search with the plan of its first layout. */
function echelonPage(root, data) {
  const plan = data.candidates ? data.plan : data;
  document.title = 'Echelon: ' + (plan ? titleOf(plan) : 'layouts');
  const emitted = data.emitted ? emittedOf(data.emitted) : null;
  if (data.candidates) {
    const search = el('div', {});
    if (plan) drawPlan(root, plan);
    search.append(candidatesOf(data));
    root.insertBefore(search, plan ? root.children[3] : null);
  } else {
    drawPlan(root, plan);
  }
  if (emitted) root.append(emitted);
  root.append(el('footer', {}, `Echelon ${plan ? plan.echelon : ''}. All numbers are of the plan's ` +
                               'JSON, which this file contains.'));
}
