/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that writes a checkpoint. Its rank's other threads do not change the memory that it reads until it has
 * ended, and its channel is its own.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/agree.h"
#include "exec/state.h"

void ech_save_request_free(ech_save_request *request)
{
    ech_checkpoint_info_free(&request->info);
    free(request->directory);
    *request = (ech_save_request){0};
}

/* Whether rank 0 may go on; all learn it. */
static ech_status pass_gate(const ech_saver *saver)
{
    ech_joint joint;
    ech_joint_begin(&joint, saver->group);
    return ech_joint_end(&joint, saver->gate ? saver->gate(saver->gate_context) : ECH_OK);
}

/* Rank 0 removes older checkpoints; whether that went well all learn. */
static ech_status prune(const ech_saver *saver)
{
    ech_joint joint;
    ech_status status = ECH_OK;
    ECH_TRY(pass_gate(saver));
    ech_joint_begin(&joint, saver->group);
    if (ech_group_index(saver->group) == 0)
        status = ech_checkpoint_prune(saver->now.directory, saver->now.keep, saver->now.proven);
    return ech_joint_end(&joint, status);
}

static void *saver_main(void *argument)
{
    ech_saver *saver = argument;
    ech_log_set_rank(saver->rank);
    ech_cores_release();
    ech_comm_set_saving(saver->comm, saver->now.info.step);
    ech_status status = pass_gate(saver);
    if (status == ECH_OK)
        status = ech_checkpoint_save(saver->group, saver->now.directory, &saver->now.info,
                                     saver->tensors, saver->n, &saver->saved.bytes);
    saver->saved.seconds = ech_clock_now() - saver->began;
    if (status == ECH_OK) status = prune(saver);
    saver->status = status;
    if (status != ECH_ECOMM) ech_comm_set_saving(saver->comm, -1);
    atomic_store(&saver->ended, true);
    return NULL;
}

ech_status ech_saver_start(ech_saver *saver)
{
    ECH_ASSERT(!saver->under_way);
    saver->saved = (ech_exec_saved){.step = saver->now.info.step, .waited_seconds = saver->waited};
    saver->began = ech_clock_now();
    atomic_store(&saver->ended, false);
    if (pthread_create(&saver->thread, NULL, saver_main, saver) != 0)
        ECH_FAIL(ECH_EIO,
                 "the system starts no further thread to write a checkpoint: " ECH_NO_THREAD);
    saver->under_way = true;
    return ECH_OK;
}

ech_status ech_saver_join(ech_saver *saver)
{
    if (!saver->under_way) return saver->status;
    pthread_join(saver->thread, NULL);
    saver->under_way = false;
    saver->last = saver->saved;
    saver->news = saver->status == ECH_OK;
    return saver->status;
}

bool ech_saver_has_failed(const ech_saver *saver)
{
    return atomic_load(&saver->ended) && saver->status != ECH_OK;
}

void ech_saver_free(ech_saver *saver)
{
    ech_saver_join(saver);
    ech_save_request_free(&saver->now);
    ech_save_request_free(&saver->next);
    ech_pool_destroy(saver->pool);
    free(saver->tensors);
}

bool ech_exec_take_saved(ech_exec *exec, ech_exec_saved *out)
{
    ech_saver *saver = &exec->saver;
    if (saver->under_way && atomic_load(&saver->ended)) ech_saver_join(saver);
    if (!saver->news) return false;
    saver->news = false;
    *out = saver->last;
    return true;
}

ech_status ech_exec_finish_save(ech_exec *exec)
{
    return ech_saver_join(&exec->saver);
}
