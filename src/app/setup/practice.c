/* SPDX-License-Identifier: Apache-2.0
 *
 * Each call of a rank's lists, once, before messages are on their way.
 */
#include "app/setup/parts.h"

/* Lists whose steps compute while messages are on their way; in this order, since the first sets
 * weights. */
static const ech_list_kind practised[] = {ECH_LIST_INIT,  ECH_LIST_TRAIN,   ECH_LIST_UNDELAYED,
                                          ECH_LIST_SYNC,  ECH_LIST_GOSSIP,  ECH_LIST_RETURN,
                                          ECH_LIST_CHECK, ECH_LIST_VALIDATE};

static bool is_needed(const ech_design *design, const ech_comm *comm)
{
    const ech_device *device = ech_device_find(ech_config_name(design->config, "parallel.device"));
    return ech_comm_joins(comm) && ech_comm_size(comm) > 1 && !device->is_immediate;
}

/* Workers push in turn, since nobody says who does. */
static int in_turn(void *context, int64_t step, int turn)
{
    const ech_layout *layout = context;
    (void)step;
    return turn % ech_layout_workers(layout);
}

/* Reads the first batch of a split. */
static ech_status read_split(const ech_session *session, const ech_design *design, ech_split split,
                             ech_corpus **corpus, ech_loader **loader)
{
    bool trains = split == ECH_SPLIT_TRAIN;
    ECH_TRY(ech_design_open_data(design, split, corpus));
    if (!*corpus) return ECH_OK;
    return ech_session_read(session, design, *corpus, trains ? ECH_TRAIN : ECH_EVALUATE, 0,
                            trains ? INT64_MAX : ech_corpus_samples(*corpus), loader);
}

static ech_status run_lists(const ech_session *session)
{
    for (size_t i = 0; i < sizeof practised / sizeof *practised; i++)
        if (session->plan->list[practised[i]].step.n > 0)
            ECH_TRY(ech_exec_run(session->exec, practised[i], 0));
    return ECH_OK;
}

ech_status ech_practise(const ech_design *design, const ech_comm *comm)
{
    if (!is_needed(design, comm)) return ECH_OK;
    ech_corpus *corpus[2] = {NULL};
    ech_loader *loader[2] = {NULL};
    ech_session session = {0};
    ech_comm *silent = ech_comm_open_silent(comm);
    ech_status status =
        ech_session_create_on(design, silent, ech_comm_local_rank(comm), false, &session);
    for (int split = 0; split < 2 && status == ECH_OK; split++)
        status = read_split(&session, design, split ? ECH_SPLIT_VALID : ECH_SPLIT_TRAIN,
                            &corpus[split], &loader[split]);
    if (status == ECH_OK) ech_exec_order_serves(session.exec, in_turn, design->layout);
    if (status == ECH_OK) status = run_lists(&session);
    ech_session_destroy(&session);
    for (int split = 0; split < 2; split++) {
        ech_loader_destroy(loader[split]);
        ech_corpus_close(corpus[split]);
    }
    ech_comm_close(silent);
    return status;
}
