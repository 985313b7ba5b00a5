/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint MOVES to other layouts: the one that probes/resumes.c has gone on from is loaded by
 * one rank, which saves it again to the last bit. In files tensors are whole and nothing is padded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/fixture.h"
#include "app/probe.h"
#include "app/resumed.h"

/* One rank has neither the versions of weights of asynchronous schedules, nor replicas' residuals
 * and what they have in common. */
static bool applies(const ech_design *design)
{
    const ech_config *config = design->config;
    return config->checkpoint.keep == 0 && design->layout->sums != ECH_SUMS_SERVERS &&
           !probe_diverges(design->layout) && design->schedule->weights == ECH_WEIGHTS_FLUSHED &&
           config->memory.offload_delayed_from == 0 &&
           config->parallel.compression == ECH_COMPRESSION_NONE;
}

typedef struct move {
    char *from, to[400];
    int64_t step;
} move;

static ech_status load_and_save(ech_exec *exec, const move *m)
{
    char yaml[] = "none", json[] = "{}";
    ech_checkpoint *checkpoint;
    ECH_TRY(ech_checkpoint_open(m->from, true, &checkpoint));
    ech_status status = ech_exec_restore(exec, checkpoint);
    ech_checkpoint_close(checkpoint);
    ECH_TRY(status);
    ech_checkpoint_info info = {.step = m->step,
                                .optimizer_count = ech_exec_updates(exec),
                                .ranks = 1,
                                .run_yaml = yaml,
                                .text[ECH_FILE_CONFIG] = {json, strlen(json)}};
    ech_exec_set_save(exec, m->to, &info, 0, 0, -1);
    ECH_TRY(ech_exec_run(exec, ECH_LIST_SAVE, m->step));
    return ech_exec_finish_save(exec);
}

static ech_status move_alone(ech_comm *comm, const ech_design *design, void *context)
{
    ech_compared_run run = {.design = design};
    ech_status status = ech_compared_run_open(&run, comm);
    if (status == ECH_OK) status = load_and_save(run.session.exec, context);
    ech_compared_run_close(&run);
    return status;
}

/* A design of one rank with everything on its device. */
static ech_status run_alone(const probe_case *c, move *m)
{
    ech_config *config = ech_config_copy(c->config), *one = NULL;
    ech_design design = {0}, alone = {0};
    ech_status status = ech_design_create(config, c->tokenizer, c->ranks, c->ranks, &design);
    if (status == ECH_OK) {
        one = ech_config_copy(config);
        ech_config_set_alone(one);
        one->memory.offload_optimizer = ECH_OFFLOAD_NONE;
        one->memory.offload_parameters = ECH_OFFLOAD_NONE;
        one->memory.device_limit = ECH_AUTO;
        one->parallel.reduction = ECH_REDUCTION_DIRECT;
        status = ech_design_create_alone(&design, one, &alone);
    }
    if (status == ECH_OK) status = ech_design_run(&alone, move_alone, m);
    ech_design_destroy(&alone);
    ech_design_destroy(&design);
    ech_config_destroy(one);
    ech_config_destroy(config);
    return status;
}

static void compare_file(const move *m, const char *name)
{
    char *path[2] = {ech_file_join(m->from, name), NULL}, *bytes[2] = {NULL, NULL}, folder[500];
    size_t n[2] = {0, 0};
    snprintf(folder, sizeof folder, "%s/step-%08lld", m->to, (long long)m->step);
    path[1] = ech_file_join(folder, name);
    for (int i = 0; i < 2; i++)
        if (ech_file_read(path[i], 1 << 26, &bytes[i], &n[i]) != ECH_OK)
            probe_fail("%s", ech_last_error());
    if (bytes[0] && bytes[1] && (n[0] != n[1] || memcmp(bytes[0], bytes[1], n[0]) != 0))
        probe_fail("one rank loads it and saves another %s", name);
    for (int i = 0; i < 2; i++) free(path[i]), free(bytes[i]);
}

static void judge(void *const *states, const probe_case *c)
{
    move m = {.step = c->config->training.steps - c->config->checkpoint.every};
    (void)states;
    probe_look_away();
    fixture_tokenizer = c->tokenizer;
    m.from = resumed_folder(c->config, m.step);
    snprintf(m.to, sizeof m.to, "%s/moved", c->config->log.directory);
    if (run_alone(c, &m) != ECH_OK)
        probe_fail("one rank: %s", ech_last_error());
    else
        for (int f = 0; f < RESUMED_FILES; f++) compare_file(&m, resumed_files[f]);
    free(m.from);
}

const probe probe_moves = {.name = "moves", .applies = applies, .judge = judge};
