/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of serves of a run with pushes. The first server knows what is served, since it tells the
 * others; rank 0 has the log.
 */
#include <stdlib.h>
#include <string.h>

#include "app/train/trainer.h"
#include "base/file.h"

enum { TAG = (1 << 20) - 3 }; /* of what a server has served in a span */

ech_status ech_trainer_check_clocks(const ech_trainer *t)
{
    const ech_serve_log *log = t->design->serves;
    const int64_t *clock = ech_exec_clocks(t->session.exec);
    for (int w = 0; log && w < ech_layout_workers(t->design->layout); w++) {
        int64_t logged = ech_serve_log_clock(log, t->step, w);
        if (logged >= 0 && logged != clock[w])
            return ech_config_complain(t->config, "parallel.serve_log",
                                       "continues after step %lld with the push of worker %d in "
                                       "step %lld, but this run with its push in step %lld; start "
                                       "where the log's run started, or resume from its checkpoint",
                                       (long long)t->step, w, (long long)logged + 1,
                                       (long long)clock[w] + 1);
    }
    return ECH_OK;
}

ech_status ech_trainer_log_serves(ech_trainer *t)
{
    const ech_layout *layout = t->design->layout;
    int rank = ech_comm_rank(t->comm), server = ech_layout_workers(layout), n;
    const ech_serve *served = ech_exec_serves(t->session.exec, &n);
    ech_request request;
    if (!ech_trainer_pushes(t) || (rank > 0 && rank != server)) return ECH_OK;
    if (rank == server) {
        ECH_TRY(ech_comm_send_start(t->comm, 0, TAG, served, (size_t)n * sizeof *served, &request));
        return ech_comm_wait(t->comm, &request, 1);
    }
    n = server * t->turns;
    ECH_FREED ech_serve *all = ech_calloc((size_t)n, sizeof *all);
    ECH_TRY(ech_comm_receive_start(t->comm, server, TAG, all, (size_t)n * sizeof *all, &request));
    ECH_TRY(ech_comm_wait(t->comm, &request, 1));
    ech_note note = {.kind = ECH_NOTE_SERVES, .serves = {t->step + t->turns, n, all}};
    all = NULL;
    ech_progress_submit(t->progress, &note);
    return ECH_OK;
}
