/* SPDX-License-Identifier: Apache-2.0
 *
 * The page of the planner in a browser. It reads the form, sends requests to worker.js and draws
 * the answers with page.js. Texts of the user become text nodes only.
 */
'use strict';

const byId = id => document.getElementById(id);
const schedules = ['1f1b', 'interleaved', 'zero-bubble', 'zero-bubble-v', 'gpipe'];
/* The fields of the layout. They set keys of the run file. */
const degrees = [
  ['parallel.pipeline', 'pipeline'], ['parallel.data', 'data'], ['parallel.tensor', 'tensor'],
  ['parallel.context', 'context'], ['parallel.expert', 'expert'],
  ['parallel.virtual_stages', 'virtual stages'], ['training.micro_batch_size', 'micro-batch'],
  ['training.global_batch_size', 'samples a step'],
  ['parallel.schedule', 'schedule', schedules],
  ['parallel.sequence', 'sequence parallel', ['true', 'false']],
  ['parallel.zero', 'ZeRO', ['0', '1', '2', '3']],
  ['memory.recompute', 'recomputation', ['none', 'selective', 'full', 'auto']],
  ['memory.offload_optimizer', 'optimizer on', ['none', 'host']]];
/* The systems of --emit-for. */
const systems = [['', 'Echelon'], ['megatron', 'Megatron-LM'], ['torchtitan', 'torchtitan'],
                 ['deepspeed', 'DeepSpeed']];
/* What can be saved of a result: a name, the file, and its text. */
const exports = [
  ['Run file', 'run.yaml', state => state.runFile],
  ['Arguments for the other system', 'layout.args', state => state.emitted],
  ['JSON of the plan', 'plan.json', state => state.json],
  ['JSON of the search', 'search.json', state => state.searchJson]];
/* fixed: the fields' values before the last search; chosen: those that a layout of it has set. */
const state = {id: 0, worker: null, best: null, runFile: '', json: '', searchJson: '',
               emitted: '', search: null, fixed: {}, chosen: {}};

/* ---- the form ---- */

function fillForm() {
  for (const model of plannerData.models) byId('model').append(el('option', {}, model.name));
  byId('model').append(el('option', {value: ''}, 'the config.json below'));
  for (const name of Object.keys(plannerData.clusters))
    byId('cluster').append(el('option', {value: name}, plannerData.clusters[name].title));
  byId('cluster').append(el('option', {value: ''}, 'the cluster file below'));
  for (const [name, title] of systems)
    byId('system').append(el('option', {value: name}, title));
  for (const [key, label, choices] of degrees) {
    const field = choices
      ? el('select', {id: key}, el('option', {value: ''}, 'default'),
           choices.map(choice => el('option', {}, choice)))
      : el('input', {id: key, type: 'number', min: '1'});
    field.addEventListener('change', () => {
      if (key === 'training.global_batch_size') forget();
      ask('plan');
    });
    byId('degrees').append(el('label', {title: key}, label, field));
  }
}
function chooseModel() {
  const model = plannerData.models[byId('model').selectedIndex];
  byId('own-model').open = !model;
  if (!model) return;
  byId('config').value = JSON.stringify(model.config, null, 1);
  byId('ranks').value = model.ranks;
  clearLayout();
}
function chooseCluster() {
  const cluster = plannerData.clusters[byId('cluster').value];
  byId('own-cluster').open = !cluster;
  if (!cluster) return;
  byId('cluster-text').value = cluster.text;
  byId('gpu').checked = cluster.gpu;
}
function clearLayout() {
  for (const [key] of degrees) byId(key).value = '';
  state.chosen = {};
  forget();
}
/* Results of another model, cluster or batch are not compared with later ones. */
function forget() {
  state.best = state.search = null;
  state.searchJson = '';
}
/* 300B, 1.5T. */
function tokensOf(text) {
  const found = /^\s*([0-9.]+)\s*([kMBT]?)\s*$/.exec(text);
  const number = found ? Number(found[1]) * {'': 1, k: 1e3, M: 1e6, B: 1e9, T: 1e12}[found[2]] : NaN;
  if (!(number >= 1 && number <= 1e18)) throw new Error('Tokens: write a number like 300B or 1.5T.');
  return number;
}
function wordsOf() {
  const words = ['parallel.device=' + (byId('gpu').checked ? 'cuda' : 'cpu'), 'parallel.threads=1'];
  for (const [key] of degrees) if (byId(key).value) words.push(`${key}=${byId(key).value}`);
  return words.concat(byId('words').value.split('\n').map(word => word.trim()).filter(Boolean));
}
function requestOf(kind, steps) {
  const ranks = Number(byId('ranks').value);
  if (!(Number.isInteger(ranks) && ranks >= 1 && ranks <= 65536))
    throw new Error('Ranks: write a number from 1 to 65536.');
  return {id: ++state.id, kind, config: byId('config').value, cluster: byId('cluster-text').value,
          words: wordsOf(), ranks, tokens: tokensOf(byId('tokens').value),
          system: byId('system').value, steps};
}

/* ---- requests ---- */

function startWorker() {
  state.worker = new Worker('worker.js');
  state.worker.onmessage = event => answer(event.data);
  state.worker.onerror = () => answer({id: state.id, error: 'The planner could not be loaded.',
                                       ended: true});
}
function ask(kind, steps) {
  let request;
  try {
    request = requestOf(kind, steps);
  } catch (error) {
    fail(error.message);
    return;
  }
  if (state.busy) stop();
  if (!state.worker) startWorker();
  Object.assign(state, {busy: kind, began: performance.now(), doing: 'starting'});
  state.clock = setInterval(sayProgress, 200);
  byId('cancel').hidden = false;
  byId('error').hidden = true;
  byId('results').classList.add('is-old');
  sayProgress();
  state.worker.postMessage(request);
}
/* A worker that computes hears no message, so it ends. */
function stop() {
  state.worker.terminate();
  state.worker = null;
  finish('stopped');
}
function finish(said) {
  clearInterval(state.clock);
  state.busy = null;
  byId('cancel').hidden = true;
  byId('results').classList.remove('is-old');
  byId('status').textContent = said;
}
function sayProgress() {
  const seconds = (performance.now() - state.began) / 1000;
  byId('status').textContent = `${state.doing}, ${seconds.toFixed(1)} s`;
}
function fail(text) {
  byId('error').textContent = text;
  byId('error').hidden = false;
  byId('error').scrollIntoView({block: 'nearest'});
}
function answer(message) {
  if (message.id !== state.id) return;
  if (message.progress) {
    state.doing = message.progress;
    sayProgress();
    return;
  }
  const kind = state.busy;
  finish(message.error ? '' : `computed in ${message.seconds.toFixed(2)} s`);
  if (message.ended) state.worker = null;
  if (message.error) {
    fail(message.error);
    byId('results').classList.add('is-old');
    return;
  }
  if (kind === 'search') showSearch(message);
  else showPlan(message);
}

/* ---- results ---- */

/* What a layout of the search before has set is open again. */
function search() {
  for (const [key] of degrees) {
    if (byId(key).value === state.chosen[key]) byId(key).value = state.fixed[key];
    state.fixed[key] = byId(key).value;
  }
  state.chosen = {};
  ask('search');
}
function showSearch(message) {
  state.best = null;
  state.searchJson = message.json;
  state.search = JSON.parse(message.json);
  chooseCandidate(state.search.candidates[0]);
}
/* Sets the fields to the layout's values and plans it. */
function chooseCandidate(candidate) {
  const keys = {...candidate.keys, 'parallel.data': ''};
  for (const [key] of degrees) {
    if (!(key in keys)) continue;
    byId(key).value = keys[key];
    state.chosen[key] = byId(key).value;
  }
  ask('plan');
}
function verdictOf(plan) {
  const most = mostMemory(plan), limit = plan.device_limit_bytes;
  return el('p', {class: 'verdict good'}, `It fits: ${bytes(most)} of ${bytes(limit)}, and a step ` +
            `takes ${time(plan.cluster.step_time)}.`);
}
function showPlan(message) {
  const plan = JSON.parse(message.json), results = byId('results'), page = el('div', {});
  state.json = message.json;
  state.runFile = message.runFile;
  state.emitted = message.emitted;
  results.replaceChildren(verdictOf(plan));
  if (state.best && state.best.world === plan.world && plan.cluster && state.best.cluster)
    results.append(compareOf(plan, state.best, state.search ? 'the fastest layout'
                                                            : 'the first layout'));
  else
    state.best = plan;
  if (state.search)
    results.append(candidatesOf(state.search, {choose: chooseCandidate}));
  drawPlan(page, plan);
  if (!plan.plans[0].train)
    page.append(section('Every step', 'The list of steps of each class of ranks, with the values ' +
      'that a step touches and their bytes.',
      el('button', {onclick: () => ask('plan', true)}, 'Make the lists')));
  results.append(page, argumentsOf(plan), section('Run file', '', el('pre', {}, state.runFile),
    el('div', {class: 'tools', style: {marginTop: '12px'}}, exports.map(([name, file, text]) =>
      text(state) ? el('button', {onclick: () => save(file, text(state))}, `Save: ${name}`)
                  : null))));
}
/* The layout for another system, or a button for each. */
function argumentsOf(plan) {
  if (plan.emitted)
    return emittedOf(plan.emitted, el('pre', {style: {marginTop: '12px'}}, state.emitted));
  return section('Arguments for other systems', 'This layout as the configuration of another system.',
    el('div', {class: 'tools', style: {margin: '0'}}, systems.slice(1).map(([name, title]) =>
      el('button', {onclick: () => {
        byId('system').value = name;
        ask('plan');
      }}, title))));
}
function save(file, text) {
  const link = el('a', {download: file, href: URL.createObjectURL(new Blob([text]))});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/* ---- files that are dropped ---- */

async function drop(event) {
  event.preventDefault();
  document.body.classList.remove('drops');
  const file = event.dataTransfer.files[0];
  if (!file) return;
  if (file.size > 4 << 20) {
    fail(`${file.name}: larger than 4 MiB; drop a config.json or a cluster file.`);
    return;
  }
  const text = await file.text(), isModel = !/\.ya?ml$/.test(file.name);
  byId(isModel ? 'config' : 'cluster-text').value = text;
  byId(isModel ? 'model' : 'cluster').value = '';
  byId(isModel ? 'own-model' : 'own-cluster').open = true;
  clearLayout();
  ask('plan');
}

fillForm();
byId('model').value = 'Llama 3 8B';
byId('cluster').value = 'h100';
chooseModel();
chooseCluster();
byId('model').addEventListener('change', () => { chooseModel(); ask('plan'); });
byId('cluster').addEventListener('change', () => { chooseCluster(); clearLayout(); ask('plan'); });
byId('ranks').addEventListener('change', () => { clearLayout(); ask('plan'); });
byId('system').addEventListener('change', () => ask('plan'));
byId('config').addEventListener('input', () => { byId('model').value = ''; forget(); });
byId('cluster-text').addEventListener('input', () => { byId('cluster').value = ''; forget(); });
byId('words').addEventListener('input', forget);
byId('form').addEventListener('submit', event => { event.preventDefault(); ask('plan'); });
byId('search').addEventListener('click', search);
byId('clear').addEventListener('click', () => { clearLayout(); ask('plan'); });
byId('cancel').addEventListener('click', stop);
document.addEventListener('dragover', event => {
  event.preventDefault();
  document.body.classList.add('drops');
});
document.addEventListener('dragleave', () => document.body.classList.remove('drops'));
document.addEventListener('drop', drop);
ask('plan');
