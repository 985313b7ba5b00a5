/* SPDX-License-Identifier: Apache-2.0
 *
 * Logs of serves that no run has written. After cmocka.h.
 */
#ifndef ECH_TESTS_APP_SERVE_ORDERS_H
#define ECH_TESTS_APP_SERVE_ORDERS_H

#include <stdlib.h>

#include "app/serve_log.h"
#include "base/file.h"

/* The pushes of a span, of those workers in turn; each has read what its push before has left.
 * clock: [workers] goes on. */
static inline void serve_orders_fill(int64_t *clock, const int *workers, int pushes, ech_serve *out)
{
    for (int i = 0; i < pushes; i++) {
        out[i] = (ech_serve){.worker = workers[i], .clock = clock[workers[i]]++};
        for (int before = 0; before < i; before++)
            if (workers[before] == workers[i]) out[i].read = before + 1;
    }
}

/* Writes the log of a run of that design that serves `workers`, span by span. The log begins after
 * `step` training steps, and so do the workers' clocks. */
static inline void serve_orders_write(const char *path, const ech_config *config,
                                      const ech_layout *layout, const ech_schedule *schedule,
                                      int64_t step, const int *workers, int spans)
{
    int all = ech_layout_workers(layout), pushes = schedule->turns * all;
    int64_t *clock = ech_calloc((size_t)all, sizeof *clock);
    ech_serve *span = ech_calloc((size_t)pushes, sizeof *span);
    ech_text text = {0};
    for (int w = 0; w < all; w++) clock[w] = step;
    ech_serve_log_begin(config, layout, schedule, step, &text);
    for (int i = 0; i < spans; i++, step += schedule->turns) {
        serve_orders_fill(clock, workers + i * pushes, pushes, span);
        ech_serve_log_add(step + schedule->turns, span, pushes, &text);
    }
    ECH_ASSERT(ech_file_write(path, text.at, text.n) == ECH_OK);
    ech_text_free(&text);
    free(span);
    free(clock);
}

#endif
