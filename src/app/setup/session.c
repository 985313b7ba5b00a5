/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's plan, the table of its memory, and its session.
 */
#include <stdio.h>
#include <string.h>

#include "app/setup/cards.h"
#include "app/setup/parts.h"
#include "base/log.h"
#include "check/check.h"
#include "config/rules.h"
#include "schedule/peaks.h"

/* The working memory at its peak, by kind. */
static void print_working(const ech_plan *plan, ech_text *out)
{
    ech_working most = ech_plan_working(plan);
    ech_text_append(out, "    %-21s %12s  (at once, at ", "working memory", ECH_BYTES(most.bytes));
    ech_step_print(most.step, out);
    ech_text_append(out, " of %s:", ech_list_name(most.list->kind));
    const char *comma = "";
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++) {
        if (!most.kind[kind]) continue;
        ech_text_append(out, "%s %s %s", comma, ech_memory_name((ech_memory_kind)kind),
                        ECH_BYTES(most.kind[kind]));
        comma = ",";
    }
    ech_text_append(out, ")\n");
}

/* The kinds of a space, and its arena. */
static void print_space(const ech_plan *plan, ech_space space, ech_text *out)
{
    int64_t peak[ECH_MEMORY_KINDS], padding[ECH_MEMORY_KINDS];
    char name[32];
    ech_plan_peaks(plan, peak);
    ech_plan_paddings(plan, padding);
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++) {
        if (!peak[kind] || ech_memory_space((ech_memory_kind)kind) != space) continue;
        ech_text_append(out, "    %-21s %12s", ech_memory_name((ech_memory_kind)kind),
                        ECH_BYTES(peak[kind]));
        if (padding[kind])
            ech_text_append(out, "  (of these %s padding)", ECH_BYTES(padding[kind]));
        ech_text_append(out, "\n");
    }
    snprintf(name, sizeof name, "%s arena", ech_space_name(space));
    ech_text_append(out, "    %-21s %12s", name, ECH_BYTES(plan->arena_bytes[space]));
    ech_text_append(out, "  (lower bound %s; kinds do not peak together)\n",
                    ECH_BYTES(ech_plan_lower_bound(plan, space)));
}

void ech_print_memory(const ech_plan *plan, ech_text *out)
{
    print_space(plan, ECH_SPACE_DEVICE, out);
    print_working(plan, out);
    print_space(plan, ECH_SPACE_HOST, out);
    for (ech_space space = ECH_SPACE_HOST + 1; space < ECH_SPACES; space++)
        if (plan->arena_bytes[space]) print_space(plan, space, out);
}

static ech_plan_request request_of(const ech_design *design, int rank)
{
    return (ech_plan_request){
        .config = design->config,
        .model = design->model,
        .layout = design->layout,
        .schedule = design->schedule,
        .kernels = design->kernels,
        .device = ech_device_row_of(ech_config_name(design->config, "parallel.device")),
        .rank = rank,
        .validates = design->first_rank > 0,
        .threads = (int)design->config->parallel.threads};
}

/* Stages, then servers. The first rank of each part represents it (ech_layout.first_rank). */
static int parts_of(const ech_layout *layout)
{
    return layout->stages + (ech_layout_roles(layout).serve.n > 0);
}

int64_t ech_design_device_bytes(const ech_design *design)
{
    int64_t most = 0;
    for (int part = 0; part < parts_of(design->layout); part++) {
        ech_plan_request request = request_of(design, design->layout->first_rank[part]);
        ech_plan *plan = ech_plan_create(&request);
        if (plan->arena_bytes[ECH_SPACE_DEVICE] > most) most = plan->arena_bytes[ECH_SPACE_DEVICE];
        ech_plan_destroy(plan);
    }
    return most;
}

/* With more bytes memory.recompute = auto would choose less recomputation, so what it has chosen is
 * named, too. */
static ech_status refuse_fp64(const ech_design *design)
{
    const ech_config *config = design->config;
    ECH_FREED_TEXT keys = {0};
    int64_t most = ech_design_device_bytes(design);
    if (config->memory.recompute != ECH_RECOMPUTE_NONE)
        ech_text_append(&keys, "memory.recompute=%s ", ech_config_name(config, "memory.recompute"));
    if (config->memory.recompute_blocks != ECH_AUTO)
        ech_text_append(&keys, "memory.recompute_blocks=%lld ",
                        (long long)config->memory.recompute_blocks);
    return ech_config_complain(config, "memory.device_limit",
                               "the run may fit, but fp64, in which it is verified, takes %s; "
                               "verify with %smemory.device_limit=%lld",
                               ECH_BYTES(most), keys.n ? keys.at : "", (long long)most);
}

/* Whether the device limit is this machine's memory, which a processor's device arena shares with
 * the host arena. */
static bool shares_limit(const ech_design *design)
{
    return !design->kernels->architecture &&
           !ech_config_is_set(design->config, "memory.device_limit");
}

/* What NCCL takes of a GPU whose memory is the limit, besides the arena. */
static int64_t library_need(const ech_design *design, const ech_plan *plan)
{
    const ech_device *device = ech_device_find(ech_config_name(design->config, "parallel.device"));
    bool given = ech_config_is_set(design->config, "memory.device_limit");
    return given || !device || !device->count ? 0 : ech_communicators_of(design, plan).bytes;
}

/* Bytes of memory.device_limit that a rank needs with a host arena of this size. Shared memory
 * exists once for all ranks; each rank counts its share. */
static int64_t device_need(const ech_design *design, const ech_plan *plan, int64_t host)
{
    int64_t ranks = design->world, shared = plan->arena_bytes[ECH_SPACE_SHARED];
    return plan->arena_bytes[ECH_SPACE_DEVICE] + (shared + ranks - 1) / ranks +
           library_need(design, plan) + (shares_limit(design) ? host : 0);
}

static bool fits(const ech_design *design, const ech_plan *plan, int64_t host)
{
    int64_t limit = design->config->memory.host_limit;
    return device_need(design, plan, host) <= design->config->memory.device_limit &&
           (!limit || host <= limit);
}

/* "needs A and may use B", in bytes where the rounded texts are alike. */
static void append_need(int64_t need, int64_t limit, const char *of, ech_text *out)
{
    bool alike = strcmp(ECH_BYTES(need), ECH_BYTES(limit)) == 0;
    if (alike)
        ech_text_append(out, "needs %lld bytes%s and may use %lld", (long long)need, of,
                        (long long)limit);
    else
        ech_text_append(out, "needs %s%s and may use %s", ECH_BYTES(need), of, ECH_BYTES(limit));
}

static ech_status refuse_host(const ech_design *design, const ech_plan *plan, const char *helps)
{
    ECH_FREED_TEXT need = {0};
    append_need(plan->arena_bytes[ECH_SPACE_HOST], design->config->memory.host_limit,
                " of the host", &need);
    return ech_config_complain(design->config, "memory.host_limit",
                               "rank %d %s; what would help: %sor more bytes",
                               design->first_rank + plan->rank, need.at, helps);
}

/* Line by line. */
static void log_memory(const ech_design *design, const ech_plan *plan)
{
    ECH_FREED_TEXT table = {0};
    char *rest = NULL;
    const ech_communicators joined = ech_communicators_of(design, plan);
    ech_print_memory(plan, &table);
    ech_communicators_print(&joined, &table);
    ech_log_info("the memory of rank %d:", design->first_rank + plan->rank);
    for (char *line = strtok_r(table.at, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        ech_log_info("%s", line);
}

/* The kind of memory that takes the most: "parameters 1.5 GiB". */
static void append_largest(const ech_plan *plan, ech_text *out)
{
    int64_t peak[ECH_MEMORY_KINDS];
    int most = 0;
    ech_plan_peaks(plan, peak);
    for (int kind = 1; kind < ECH_MEMORY_KINDS; kind++)
        if (peak[kind] > peak[most]) most = kind;
    ech_text_append(out, "%s %s", ech_memory_name((ech_memory_kind)most), ECH_BYTES(peak[most]));
}

/* Appends what reduces a plan's memory, each with a comma after it. */
static void append_helps(const ech_design *design, const ech_plan *plan, ech_text *out)
{
    ECH_FREED_TEXT tried = {0};
    if (design->first_rank) {
        ech_text_append(out,
                        "no evaluator, which has the whole model (parallel.evaluators=0, and fewer "
                        "ranks), a smaller training.micro_batch_size (now %lld), ",
                        (long long)design->config->training.micro_batch_size);
        return;
    }
    ech_remedies_print(design, plan, &tried);
    ech_text_append(out, "%s", tried.n ? tried.at : "more ranks, a smaller model, ");
}

/* The table, then the error in one line. */
static ech_status refuse(const ech_design *design, const ech_plan *plan)
{
    ECH_FREED_TEXT helps = {0}, need = {0}, largest = {0};
    int64_t bytes = device_need(design, plan, plan->arena_bytes[ECH_SPACE_HOST]);
    append_largest(plan, &largest);
    log_memory(design, plan);
    if (design->in_fp64 && bytes > design->config->memory.device_limit) return refuse_fp64(design);
    append_helps(design, plan, &helps);
    if (bytes <= design->config->memory.device_limit) return refuse_host(design, plan, helps.at);
    append_need(bytes, design->config->memory.device_limit, "", &need);
    return ech_config_complain(
        design->config, "memory.device_limit",
        "rank %d %s (the largest part: %s); what would help: %sor more bytes",
        design->first_rank + plan->rank, need.at, largest.at, helps.at);
}

/* The machine has less left than the limit says, as when another process uses it; the error has
 * told how much. */
static void explain_memory(const ech_design *design, const ech_plan *plan)
{
    log_memory(design, plan);
    ech_log_info("what would help: a smaller training.micro_batch_size (now %lld), "
                 "memory.recompute=full, or to end what else uses this memory",
                 (long long)design->config->training.micro_batch_size);
}

/* To the first span of the log of serves. */
static void bind(const ech_design *design, ech_plan *plan)
{
    if (design->serves)
        ech_plan_bind(plan, ech_serve_log_span(design->serves, design->serves->first));
}

ech_plan *ech_design_lists(const ech_design *design, int rank)
{
    ech_plan_request request = request_of(design, rank);
    request.outline = request.every_list = true;
    return ech_plan_create(&request);
}

ech_status ech_design_outline(const ech_design *design, int rank, bool forward_only, ech_plan **out)
{
    ech_plan_request request = request_of(design, rank);
    request.forward_only = forward_only;
    request.outline = true;
    ECH_TRY(ech_checked_plan_create(&request, out));
    bind(design, *out);
    return ECH_OK;
}

/* Takes the plan, unless it does not fit into memory. */
static ech_status accept(const ech_design *design, ech_plan *plan, ech_plan **out)
{
    if (!fits(design, plan, plan->arena_bytes[ECH_SPACE_HOST])) {
        ech_status status = refuse(design, plan);
        ech_plan_destroy(plan);
        return status;
    }
    bind(design, plan);
    *out = plan;
    return ECH_OK;
}

ech_status ech_design_plan(const ech_design *design, int rank, bool forward_only, ech_plan **out)
{
    ech_plan_request request = request_of(design, rank);
    ech_plan *plan;
    request.forward_only = forward_only;
    ECH_TRY(ech_checked_plan_create(&request, &plan));
    return accept(design, plan, out);
}

ech_status ech_design_plan_unchecked(const ech_design *design, int rank, ech_plan **out)
{
    ech_plan_request request = request_of(design, rank);
    return accept(design, ech_plan_create(&request), out);
}

ech_plan *ech_design_buckets(const ech_design *design, int rank)
{
    ech_plan_request request = request_of(design, rank);
    request.listless = true;
    return ech_plan_create(&request);
}

ech_plan *ech_design_sketch(const ech_design *design, int rank, bool outline)
{
    ech_plan_request request = request_of(design, rank);
    request.brief = true;
    request.outline = outline;
    ech_plan *plan = ech_plan_create(&request);
    bind(design, plan);
    return plan;
}

/* The host arena of the rank of a stage that writes most into checkpoints: otherwise all need as
 * much as the first, whose replica has the most micro-batches. */
static int64_t most_host_bytes(const ech_design *design, const ech_plan *plan)
{
    const ech_layout *layout = design->layout;
    int stage = layout->coordinates[plan->rank].stage;
    bool serves = ech_layout_serves(layout, plan->rank);
    int first = layout->first_rank[serves ? layout->stages : stage];
    int end = serves ? layout->world : layout->first_rank[stage + 1];
    int64_t own = ech_plan_snapshot_bytes(plan, plan->rank), most = 0;
    for (int rank = first; rank < end; rank++) {
        int64_t bytes = ech_plan_snapshot_bytes(plan, rank);
        if (bytes > most) most = bytes;
    }
    return plan->arena_bytes[ECH_SPACE_HOST] - own + most;
}

bool ech_design_fits(const ech_design *design, int *longest)
{
    bool all = true;
    for (int part = 0; part < parts_of(design->layout); part++) {
        ech_plan_request request = request_of(design, design->layout->first_rank[part]);
        ech_plan *plan = ech_plan_create(&request);
        all &= fits(design, plan, most_host_bytes(design, plan));
        for (int b = 0; longest && b < (int)design->model->block.n; b++)
            if (plan->segment[b] >= 0 && b - plan->segment[b] >= *longest)
                *longest = b - plan->segment[b] + 1;
        ech_plan_destroy(plan);
    }
    return all;
}

/* The ech_serve_order of a log. */
static int worker_of(void *context, int64_t step, int turn)
{
    const ech_serve *span = ech_serve_log_span(context, step);
    ECH_ASSERT(span); /* ech_design_check_serves */
    return span[turn].worker;
}

/* Of a machine's devices, which its ranks take in turn. */
static int index_of(const ech_device *device, int local_rank)
{
    return device->use ? local_rank % device->count() : 0;
}

/* Ranks that are threads copy from GPU to GPU, rank i's being GPU i; NCCL's communicators have ways
 * of their own. */
static void meet_others(const ech_device *device, const ech_comm *comm, int mine)
{
    int n = device->meet ? device->count() : 0;
    if (n > ech_comm_size(comm)) n = ech_comm_size(comm);
    for (int other = 0; other < n && !ech_comm_joins(comm); other++)
        if (!device->meet(other) && mine < other)
            ech_log_warn("messages between GPUs %d and %d go through the host's memory, which is "
                         "slow: the system lets neither access the other (nvidia-smi topo -p2p r)",
                         mine, other);
}

/* What NCCL has taken of a GPU with so many bytes left before, next to what was planned. */
static void say_taken(const ech_design *design, const ech_plan *plan, const ech_device *device,
                      int64_t left)
{
    const ech_communicators joined = ech_communicators_of(design, plan);
    int64_t taken = left - (int64_t)device->left() - plan->arena_bytes[ECH_SPACE_DEVICE];
    if (joined.n && design->config->parallel.share_device != 1)
        ech_log_info("NCCL took %s of rank 0's GPU for %s; planned: at most %s",
                     ECH_BYTES(taken > 0 ? taken : 0), ECH_COUNT(joined.n, "communicator"),
                     ECH_BYTES(joined.bytes));
}

ech_status ech_session_create(const ech_design *design, ech_comm *comm, bool forward_only,
                              ech_session *out)
{
    int local_rank = ech_comm_local_rank(comm);
    const ech_device *device = ech_device_find(ech_config_name(design->config, "parallel.device"));
    int index = index_of(device, local_rank);
    ECH_TRY(ech_cards_check_device(design->config, comm, device, index));
    if (device->use) device->use(index);
    meet_others(device, comm, index);
    if (!forward_only) ECH_TRY(ech_practise(design, comm));
    int64_t left = device->left ? (int64_t)device->left() : 0;
    ECH_TRY(ech_session_create_on(design, comm, local_rank, forward_only, out));
    if (left && ech_comm_rank(comm) == 0) say_taken(design, out->plan, device, left);
    return ECH_OK;
}

ech_status ech_session_create_on(const ech_design *design, ech_comm *comm, int local_rank,
                                 bool forward_only, ech_session *out)
{
    ECH_CLEANUP(ech_plan_destroy_at) ech_plan *plan = NULL;
    ECH_TRY(ech_design_plan(design, ech_comm_rank(comm), forward_only, &plan));
    const ech_device *device = ech_device_find(ech_config_name(design->config, "parallel.device"));
    if (device->use) device->use(index_of(device, local_rank));
    ech_exec_setup setup = {.config = design->config, .plan = plan, .device = device, .comm = comm};
    ech_status status = ech_exec_create(&setup, &out->exec);
    if (status == ECH_ENOMEM) explain_memory(design, plan);
    ECH_TRY(status);
    if (design->serves) ech_exec_order_serves(out->exec, worker_of, design->serves);
    out->plan = plan;
    out->base[0] = '\0';
    plan = NULL;
    return ECH_OK;
}

void ech_session_destroy(ech_session *session)
{
    ech_exec_destroy(session->exec);
    ech_plan_destroy(session->plan);
    *session = (ech_session){0};
}

ech_status ech_session_read(const ech_session *session, const ech_design *design,
                            const ech_corpus *corpus, ech_purpose purpose, int64_t first_step,
                            int64_t last, ech_loader **out)
{
    ech_loader_options options =
        ech_design_reads(design, session->plan->rank, purpose == ECH_TRAIN, last);
    ECH_TRY(ech_loader_create(corpus, &options, first_step, out));
    ech_exec_set_loader(session->exec, purpose, *out);
    return ECH_OK;
}
