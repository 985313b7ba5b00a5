/* SPDX-License-Identifier: Apache-2.0
 *
 *     mpi_hooks RUN.yaml stop|save|fail
 *
 * Trains as a rank of a launcher with hooks, of which that of rank 1 alone requests or fails. Each
 * rank prints a line: its events (test_hooks.c), the status, the error.
 */
#include <echelon.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct watcher {
    const char *mode;
    int rank, n;
    char events[64];
} watcher;

static void note(watcher *w, char event)
{
    if (w->n + 1 < (int)sizeof w->events) w->events[w->n++] = event;
}

static int step_end(echelon_training *training, const echelon_metrics *m, void *context)
{
    watcher *w = context;
    (void)training;
    note(w, '.');
    if (w->rank != 1 || m->step != 2) return 0;
    if (strcmp(w->mode, "stop") == 0) return ECHELON_STOP;
    return strcmp(w->mode, "save") == 0 ? ECHELON_SAVE : ECHELON_EIO;
}

static int saved(echelon_training *training, const echelon_metrics *m, void *context)
{
    (void)training, (void)m;
    note(context, 's');
    return 0;
}

static int end(echelon_training *training, const echelon_metrics *m, void *context)
{
    bool stopped = echelon_train_is_stopped(training) && m->requests == ECHELON_STOP;
    note(context, stopped ? 'S' : 'e');
    return 0;
}

int main(int argc, char **argv)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    echelon_run *run;
    if (argc != 3 || !rank || echelon_run_open(argv[1], &run)) return 2;
    watcher w = {.mode = argv[2], .rank = atoi(rank)};
    const echelon_train_hooks hooks = {
        .size = sizeof hooks, .context = &w, .step_end = step_end, .saved = saved, .end = end};
    echelon_status status = echelon_train(run, NULL, &hooks);
    printf("rank %d: %s, status %d %s\n", w.rank, w.events, (int)status, echelon_last_error());
    echelon_run_close(run);
    return 0;
}
