/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the planner in a thread of its own. A request is {id, kind: "plan" | "search", config,
 * cluster, words, ranks, tokens, system, steps}; answers are {id, json, runFile, emitted, seconds},
 * {id, error}, and before them any number of {id, progress}. system: as of --emit-for, or "".
 */
'use strict';
importScripts('planner.js');

let current = 0;
/* Called by planner.c. */
self.postProgress = text => postMessage({id: current, progress: text});
const made = createPlanner();

onmessage = async event => {
  const {id, kind, config, cluster, words, ranks, tokens, system, steps} = event.data;
  try {
    const planner = await made;
    current = id;
    const began = performance.now();
    try { planner.FS.mkdir('model'); } catch (error) { /* it is there */ }
    planner.FS.writeFile('model/config.json', config);
    planner.FS.writeFile('cluster.yaml', cluster);
    const types = ['string', 'number', 'number', 'string'];
    const values = [words.join('\n'), ranks, tokens, system];
    const json = kind === 'search'
      ? planner.ccall('planner_search', 'string', types, values)
      : planner.ccall('planner_plan', 'string', [...types, 'number'], [...values, steps ? 1 : 0]);
    /* No result can be empty. */
    if (!json) {
      postMessage({id, error: planner.ccall('planner_error', 'string', [], [])});
      return;
    }
    const runFile = planner.ccall('planner_run_file', 'string', [], []);
    const emitted = planner.ccall('planner_emitted', 'string', [], []);
    postMessage({id, json, runFile, emitted, seconds: (performance.now() - began) / 1000});
  } catch (error) {
    postMessage({id, error: 'The planner stopped: ' + error, ended: true});
  }
};
