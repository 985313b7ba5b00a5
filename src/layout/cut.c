/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts between blocks.
 */
#include "layout/cut.h"

#include "layout/layout.h"

/* Embedding and head count as work: all blocks are dealt out evenly. What does not divide goes to
 * stages in the middle first, since the first and the last have the blocks that are no layers. */
static void cut_evenly(int blocks, int stages, int *cut)
{
    int each = blocks / stages, more = blocks % stages, first = (stages - more) / 2;
    cut[0] = 0;
    for (int s = 0; s < stages; s++) cut[s + 1] = cut[s] + each + (s >= first && s < first + more);
}

void ech_cut_blocks(const ech_config *config, int blocks, int stages, int *cut)
{
    int64_t list[ECH_CONFIG_LONGEST_LIST];
    int n = ech_config_list(config->parallel.partition, list, ECH_CONFIG_LONGEST_LIST);
    if (n == 0) {
        cut_evenly(blocks, stages, cut);
        return;
    }
    cut[0] = 0;
    for (int s = 0; s < stages; s++)
        cut[s + 1] = cut[s] + (int)list[s] + (s == 0) + (s == stages - 1);
}

void ech_cut_print(const int *cut, int stages, ech_text *out)
{
    for (int s = 0; s < stages; s++)
        ech_text_append(out, "%s%d", s ? ", " : "[",
                        cut[s + 1] - cut[s] - (s == 0) - (s == stages - 1));
    ech_text_append(out, "]");
}
