/* SPDX-License-Identifier: Apache-2.0
 *
 * Running the same function on every rank.
 */
#include <pthread.h>
#include <stdlib.h>

#include "app/setup/setup.h"
#include "base/log.h"
#include "base/thread.h"

typedef struct rank_thread {
    pthread_t thread;
    ech_comm *comm;
    ech_rank_main main;
    void *context;
    ech_status status;
    char *error; /* of the status; NULL: none */
    bool started, quiet;
} rank_thread;

/* One rank from here to its end: a failure raises the abort flag, so that nobody waits for it. */
static ech_status run_rank(ech_comm *comm, ech_rank_main main, void *context)
{
    if (ech_comm_size(comm) > 1) ech_log_set_rank(ech_comm_rank(comm));
    ech_status status = main(comm, context);
    if (status != ECH_OK) ech_comm_abort(comm, status);
    ech_comm_close(comm);
    ech_log_set_rank(-1);
    return status;
}

static void *thread_main(void *argument)
{
    rank_thread *rank = argument;
    ech_log_set_quiet(rank->quiet);
    rank->status = run_rank(rank->comm, rank->main, rank->context);
    if (rank->status != ECH_OK) rank->error = ech_strdup(ech_last_error());
    return NULL;
}

static ech_status run_threads(ech_comm **comms, int ranks, ech_rank_main main, void *context)
{
    ECH_FREED rank_thread *threads = ech_calloc((size_t)ranks, sizeof *threads);
    bool quiet = ech_log_is_quiet();
    for (int r = 0; r < ranks; r++) {
        threads[r] =
            (rank_thread){.comm = comms[r], .main = main, .context = context, .quiet = quiet};
        threads[r].started = ech_thread_start(&threads[r].thread, thread_main, &threads[r]) == 0;
        if (threads[r].started) continue;
        threads[r].status =
            ech_fail_at(__FILE__, __LINE__, ECH_EIO,
                        "cannot start another thread for rank %d of %d: " ECH_NO_THREAD, r, ranks);
        for (; r < ranks; r++) { /* one error is enough */
            ech_comm_abort(comms[r], ECH_EIO);
            ech_comm_close(comms[r]);
        }
    }
    ech_status first = ECH_OK;
    for (int r = 0; r < ranks; r++) {
        if (threads[r].started) pthread_join(threads[r].thread, NULL);
        bool tells_more = first == ECH_OK || first == ECH_EABORTED;
        if (threads[r].status == ECH_OK || !tells_more) continue;
        first = threads[r].status;
        if (threads[r].error) ech_set_last_error(threads[r].error);
    }
    for (int r = 0; r < ranks; r++) free(threads[r].error);
    return first;
}

ech_status ech_run_ranks(ech_comm_kind kind, int ranks, double deadline, ech_rank_main main,
                         void *context)
{
    const ech_comm_backend *backend = ech_comm_of_kind(kind);
    if (!backend) ECH_FAIL(ECH_EUSAGE, "%s", ech_comm_lacks(kind));
    ECH_FREED ech_comm **comms = ech_calloc((size_t)(ranks > 0 ? ranks : 1), sizeof *comms);
    ECH_TRY(ech_comm_open(backend, ranks, deadline, comms));
    return ranks > 0 ? run_threads(comms, ranks, main, context) : run_rank(comms[0], main, context);
}

typedef struct designed {
    const ech_design *design;
    ech_design_main main;
    void *context;
} designed;

static ech_status designed_main(ech_comm *comm, void *context)
{
    const designed *of = context;
    return of->main(comm, of->design, of->context);
}

ech_status ech_design_run(const ech_design *design, ech_design_main main, void *context)
{
    const ech_config *config = design->config;
    ech_comm_kind comm = (ech_comm_kind)config->parallel.comm;
    designed of = {design, main, context};
    return ech_run_ranks(comm, ech_comm_has_threads(comm) ? ech_layout_ranks(design->layout) : 0,
                         config->parallel.deadline, designed_main, &of);
}
