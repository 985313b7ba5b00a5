/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that are slowed down for experiments.
 */
#include "layout/delay.h"

#include <string.h>

#include "base/memory.h"
#include "base/text.h"

double ech_layout_delay(const ech_layout *layout, int rank)
{
    return layout->delay ? layout->delay[rank] : 0;
}

/* One word, "3:0.5". */
static ech_status fill(const ech_config *config, ech_layout *layout, char *word)
{
    int64_t rank;
    double seconds, deadline = config->parallel.deadline;
    char *colon = strchr(word, ':');
    if (colon) *colon = '\0';
    if (!colon || !ech_text_to_int(word, &rank) || !ech_text_to_real(colon + 1, &seconds) ||
        !(seconds > 0))
        return ech_config_complain(config, "parallel.delay",
                                   "\"%s%s%s\" is no RANK:SECONDS with seconds above 0, as 1:0.5",
                                   word, colon ? ":" : "", colon ? colon + 1 : "");
    if (rank < 0 || rank >= layout->world)
        return ech_config_complain(config, "parallel.delay", "there is no rank %lld, but 0 to %d",
                                   (long long)rank, layout->world - 1);
    if (seconds >= deadline)
        return ech_config_complain(
            config, "parallel.delay",
            "%g seconds are as long as others wait (parallel.deadline = %g); "
            "use fewer, or a longer deadline",
            seconds, deadline);
    if (layout->delay[rank] > 0)
        return ech_config_complain(config, "parallel.delay", "names rank %lld twice; name it once",
                                   (long long)rank);
    layout->delay[rank] = seconds;
    return ECH_OK;
}

ech_status ech_layout_fill_delays(const ech_config *config, ech_layout *layout)
{
    ECH_FREED char *words = ech_strdup(config->parallel.delay);
    char *rest = words;
    if (!words[0]) return ECH_OK;
    layout->delay = ech_calloc((size_t)layout->world, sizeof *layout->delay);
    for (char *word; (word = strtok_r(rest, " \t\n", &rest));) ECH_TRY(fill(config, layout, word));
    return ECH_OK;
}
