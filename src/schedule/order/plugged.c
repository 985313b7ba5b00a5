/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedule orders of plugins (echelon_plugin.h).
 */
#include "base/added.h"
#include "schedule/order/order.h"

static ech_added added = ECH_ADDED("schedule");

ech_status ech_order_plug(const char *plugin, const echelon_order *row)
{
    ECH_TRY(ech_added_check(plugin, row->name, "write", row->write));
    return ech_added_put(&added, plugin, row->name, ech_generator_names(), row);
}

const echelon_order *ech_order_find_plugged(const char *name)
{
    return ech_added_find(&added, name);
}

const char *ech_order_names(void)
{
    return ech_added_names(&added, ech_generator_names());
}

static void put(void *to, const char *text)
{
    ech_text_append(to, "%s", text);
}

ech_status ech_order_write(const echelon_order *row, const echelon_pipe *pipe, char **text,
                           size_t *n)
{
    ech_text written = {0};
    row->write(pipe, put, &written);
    if (written.n == 0)
        ECH_FAIL(ECH_EUSAGE,
                 "parallel.schedule = %s: the plugin has no order for %d stages with %d virtual "
                 "stages each and %d micro-batches",
                 row->name, pipe->stages, pipe->chunks, pipe->micro_batches);
    *text = written.at;
    *n = written.n;
    return ECH_OK;
}
