/* SPDX-License-Identifier: Apache-2.0
 *
 * 1F1B with a flush: PipeDream-Flush. Narayanan et al. 2021, arXiv:2006.09503, §3.2. Stage r of p
 * runs min(p - r - 1, m) forwards ahead, then one forward, one backward, then the backwards that are
 * left. One stage alone runs micro-batch by micro-batch.
 */
#include "schedule/schedule.h"

static void emit(ech_order *order, ech_action action, int micro)
{
    ECH_PUSH(*order, (ech_order_item){.action = action, .chunk = 0, .micro = micro});
}

static void generate(int stages, int stage, int micro_batches, ech_order *order)
{
    int ahead = stages - stage - 1;
    if (ahead > micro_batches) ahead = micro_batches;
    for (int micro = 0; micro < ahead; micro++) emit(order, ECH_F, micro);
    for (int micro = 0; micro < micro_batches; micro++) {
        if (micro + ahead < micro_batches) emit(order, ECH_F, micro + ahead);
        emit(order, ECH_B, micro);
        emit(order, ECH_W, micro);
    }
}

const ech_generator ech_generator_row_1f1b = {"1f1b", generate};
