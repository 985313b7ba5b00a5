/* SPDX-License-Identifier: Apache-2.0
 *
 * SAVE: the thread that writes a checkpoint. Until it ends, its rank's other threads do not change
 * the memory that it reads; it has its own channel.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/agree.h"
#include "exec/state.h"

static void free_request(ech_save_request *request)
{
    ech_checkpoint_info_free(&request->info);
    free(request->directory);
    *request = (ech_save_request){0};
}

void ech_exec_set_save(ech_exec *exec, const char *directory, const ech_checkpoint_info *info,
                       int64_t keep, int64_t best, int64_t proven)
{
    free_request(&exec->saver.next);
    exec->saver.next = (ech_save_request){ech_strdup(directory), keep, best, proven,
                                          ech_checkpoint_info_copy(info)};
}

void ech_exec_gate_saves(ech_exec *exec, ech_save_gate *gate, void *context)
{
    exec->saver.gate = gate;
    exec->saver.gate_context = context;
}

/* ---- the thread ---- */

static ech_group *group_of(const ech_exec *exec)
{
    return exec->channel[ECH_GROUP_WORLD][ECH_LANE_DISK];
}

/* Asks rank 0 whether to continue; every rank gets the answer. */
static ech_status pass_gate(const ech_exec *exec)
{
    ech_joint joint;
    ech_joint_begin(&joint, group_of(exec));
    return ech_joint_end(&joint,
                         exec->saver.gate ? exec->saver.gate(exec->saver.gate_context) : ECH_OK);
}

/* Rank 0 removes older checkpoints; every rank gets its status. */
static ech_status prune(const ech_exec *exec)
{
    const ech_save_request *now = &exec->saver.now;
    ech_joint joint;
    ech_status status = ECH_OK;
    ECH_TRY(pass_gate(exec));
    ech_joint_begin(&joint, group_of(exec));
    if (ech_group_index(group_of(exec)) == 0)
        status = ech_checkpoint_prune(now->directory, now->keep, now->best, now->proven);
    return ech_joint_end(&joint, status);
}

static void *saver_main(void *argument)
{
    ech_exec *exec = argument;
    ech_saver *saver = &exec->saver;
    ech_log_set_rank(exec->plan->layout->world > 1 ? exec->plan->rank : -1);
    ech_cores_release();
    ech_comm_set_saving(exec->comm, saver->now.info.step);
    ech_status status = pass_gate(exec);
    if (status == ECH_OK)
        status = ech_checkpoint_save(group_of(exec), saver->now.directory, &saver->now.info,
                                     saver->list.tensor.at, (int)saver->list.tensor.n,
                                     &saver->saved.bytes);
    saver->saved.seconds = ech_clock_now() - saver->began;
    if (status == ECH_OK) status = prune(exec);
    saver->status = status;
    if (status != ECH_OK) snprintf(saver->error, sizeof saver->error, "%s", ech_last_error());
    if (status != ECH_ECOMM) ech_comm_set_saving(exec->comm, -1);
    atomic_store(&saver->ended, true);
    return NULL;
}

/* Waits for the thread's end, if it is running. Returns the status of the last checkpoint. */
static ech_status join(ech_saver *saver)
{
    if (!saver->under_way) return saver->status;
    pthread_join(saver->thread, NULL);
    saver->under_way = false;
    saver->last = saver->saved;
    saver->news = saver->status == ECH_OK;
    if (saver->status != ECH_OK) ech_set_last_error(saver->error);
    return saver->status;
}

ech_status ech_saver_wait(ech_exec *exec)
{
    double start = ech_clock_now();
    bool waits = exec->saver.under_way;
    ech_status status = join(&exec->saver);
    exec->saver.waited = waits ? ech_clock_now() - start : 0;
    return status;
}

ech_status ech_handle_SAVE(ech_exec *exec, const ech_step *step)
{
    ech_saver *saver = &exec->saver;
    ECH_ASSERT(saver->next.directory);
    if (!exec->plan->snapshots) ECH_TRY(ech_saver_wait(exec));
    ECH_ASSERT(!saver->under_way);
    ECH_TRY(ech_device_settle(exec->device, ech_exec_queue(exec, step))); /* the copies are there */
    ech_saved_list_free(&saver->list);
    free_request(&saver->now);
    saver->updates = ech_exec_updates(exec);
    saver->list = ech_exec_list_saved(exec, step);
    saver->now = saver->next;
    saver->next = (ech_save_request){0};
    saver->saved = (ech_exec_saved){.step = saver->now.info.step, .waited_seconds = saver->waited};
    saver->began = ech_clock_now();
    atomic_store(&saver->ended, false);
    if (pthread_create(&saver->thread, NULL, saver_main, exec) != 0)
        ECH_FAIL(ECH_EIO, "cannot start another thread to write a checkpoint: " ECH_NO_THREAD);
    saver->under_way = true;
    return exec->plan->snapshots ? ECH_OK : join(saver);
}

/* ---- for the rank's own thread ---- */

bool ech_saver_has_failed(const ech_saver *saver)
{
    return atomic_load(&saver->ended) && saver->status != ECH_OK;
}

void ech_saver_free(ech_saver *saver)
{
    join(saver);
    free_request(&saver->now);
    free_request(&saver->next);
    ech_saved_list_free(&saver->list);
}

bool ech_exec_take_saved(ech_exec *exec, ech_exec_saved *out)
{
    ech_saver *saver = &exec->saver;
    /* The caller has not yet learned about the previous one, if ECH_LIST_SAVE waited for it. */
    if (!saver->news && saver->under_way && atomic_load(&saver->ended)) join(saver);
    if (!saver->news) return false;
    saver->news = false;
    *out = saver->last;
    return true;
}

ech_status ech_exec_finish_save(ech_exec *exec)
{
    return join(&exec->saver);
}
