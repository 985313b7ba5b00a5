/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as orders of pipelines of several shapes: refused, or whole orders that print to
 * a text which reads back to the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "schedule/orders.h"

enum { MOST_STAGES = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void parse(const char *text, size_t n, int stages, int chunks, int micro_batches)
{
    ech_order orders[MOST_STAGES] = {0}, back[MOST_STAGES] = {0};
    if (ech_order_parse(text, n, "fuzz", stages, chunks, micro_batches, orders) != ECH_OK) return;
    ech_text printed = {0};
    for (int s = 0; s < stages; s++) {
        if (order_check(&orders[s], chunks, micro_batches, "read") != ECH_OK) abort();
        int most = ech_order_in_flight(&orders[s]);
        if (most < 1 || most > chunks * micro_batches) abort();
        order_print(&orders[s], &printed);
        ech_text_append(&printed, "\n");
    }
    ECH_ASSERT(ech_order_parse(printed.at, printed.n, "printed", stages, chunks, micro_batches,
                               back) == ECH_OK);
    for (int s = 0; s < stages; s++) {
        if (back[s].n != orders[s].n) abort();
        if (memcmp(back[s].at, orders[s].at, back[s].n * sizeof *back[s].at) != 0) abort();
        free(back[s].at);
        free(orders[s].at);
    }
    ech_text_free(&printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const int shapes[][3] = {{1, 1, 1}, {1, 1, 3}, {2, 1, 2}, {2, 2, 2}, {3, 1, 4}};
    ech_log_set_quiet(true);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        parse((const char *)bytes, n, shapes[s][0], shapes[s][1], shapes[s][2]);
    return 0;
}
