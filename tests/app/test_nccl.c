/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs whose data NCCL moves, over a stand-in for it (tests/comm/nccl_standin.h): pipelines,
 * tensor, context and data ranks, asynchronous schedules. They leave the bits of `local`, send as
 * many messages and bytes, and keep NCCL's rules. The cases are lines of tools/same_bits.cases,
 * which meet most pairs of features of the lattice; ECHELON_LATTICE=all takes all.
 */

#include "app/grid_run.h"
#include "app/resumed.h"
#include "app/setup/parts.h"
#include "comm/nccl_opened.h"
#include "share.h"
#include "unit.h"

enum { RANKS = 8, EVERY = 8, LINES = 40, KINDS = 1 + ECH_MESSAGES + ECH_GROUPS * ECH_LANES };

/* ---- counters ---- */

typedef struct tally {
    ech_comm_count of[RANKS][KINDS];
    int64_t bytes[RANKS];
    int communicators[RANKS]; /* that the rank is to be in */
} tally;

static ech_status count_rank(ech_comm *comm, const ech_design *design, void *context)
{
    tally *t = context;
    int rank = ech_comm_rank(comm), n = 0;
    ech_compared_run c = {.design = design};
    ech_status status = ech_compared_run_open(&c, comm);
    if (status == ECH_OK) status = ech_exec_run(c.session.exec, ECH_LIST_TRAIN, 0);
    if (status == ECH_OK) {
        for (ech_message_kind kind = 0; kind < ECH_MESSAGES; kind++)
            t->of[rank][n++] = ech_exec_counted(c.session.exec)->messages[kind];
        t->of[rank][n++] = ech_exec_reduce_count(c.session.exec);
        for (ech_layout_group g = 0; g < ECH_GROUPS; g++)
            for (ech_lane lane = 0; lane < ECH_LANES; lane++)
                t->of[rank][n++] =
                    ech_exec_channel_count(c.session.exec, g, lane, ECH_COMM_COLLECTIVES);
        t->bytes[rank] = ech_exec_sent_bytes(c.session.exec);
        t->communicators[rank] = ech_communicators_of(design, c.session.plan).n;
    }
    ech_compared_run_close(&c);
    return status;
}

/* ---- first calls ---- A GPU loads a kernel when it is called first. ---- */

static atomic_bool is_loaded[RANKS][ECH_DTYPES][ECH_OPS];
static atomic_int loads;

static void load(ech_op op, ech_dtype dtype)
{
    int rank = ech_log_rank() >= 0 ? ech_log_rank() : 0;
    if (atomic_exchange(&is_loaded[rank][dtype][op], true)) return;
    atomic_fetch_add(&loads, 1);
    nccl_opened.load(ech_op_name(op));
}

/* ---- a case ---- */

static ech_config *config_of(const char *words, const char *comm)
{
    ech_text all = {0};
    ech_text_append(&all,
                    "training.steps=4 training.validate_every=2 training.validate_samples=4 "
                    "checkpoint.every=2 %s parallel.device=queued checkpoint.keep=1 "
                    "parallel.deadline=60 parallel.comm=%s",
                    words, comm);
    ech_config *config = grid_config_of("gpt2", "run", all.at);
    if (!config) fail_msg("%s: %s", words, ech_last_error());
    ech_text_free(&all);
    return config;
}

static void train(const char *words, const char *comm, int ranks, resumed_bytes *left, tally *t)
{
    ech_config *config = config_of(words, comm);
    assert_int_equal(ech_file_remove_all(config->log.directory), ECH_OK);
    if (resumed_train(config, ranks, left) != ECH_OK ||
        fixture_run(config, ranks, count_rank, t) != ECH_OK)
        fail_msg("%s over %s: %s", words, comm, ech_last_error());
    ech_config_destroy(config);
}

static void check_case(const char *words, int ranks)
{
    resumed_bytes local = {0}, nccl = {0};
    tally local_tally, nccl_tally;
    memset(&local_tally, 0, sizeof local_tally);
    memset(&nccl_tally, 0, sizeof nccl_tally);
    train(words, "local", ranks, &local, &local_tally);
    nccl_opened.use(NULL, NULL);
    memset(is_loaded, 0, sizeof is_loaded);
    loads = 0;
    ech_kernels_watch(load);
    train(words, "nccl", ranks, &nccl, &nccl_tally);
    ech_kernels_watch(NULL);
    assert_true(loads > 10);
    nccl_standin_counts counts = nccl_opened.count();
    for (int f = 0; f < RESUMED_FILES; f++) {
        if (local.n[f] != nccl.n[f] || memcmp(local.at[f], nccl.at[f], local.n[f]) != 0)
            fail_msg("%s leaves another %s over nccl", words, resumed_files[f]);
        free(local.at[f]);
        free(nccl.at[f]);
    }
    int members = 0;
    for (int r = 0; r < ranks; r++) members += nccl_tally.communicators[r];
    memset(nccl_tally.communicators, 0, sizeof nccl_tally.communicators); /* `local` has none */
    assert_memory_equal(&local_tally, &nccl_tally, sizeof local_tally);
    assert_int_equal(counts.violations, 0);
    assert_int_equal(counts.aborted, 0);
    assert_true(members > 0);
    assert_int_equal(counts.made, 2 * members); /* that was trained, and that was counted */
    assert_int_equal(counts.destroyed, counts.made);
    assert_int_equal(counts.sends, counts.receives);
}

/* Those of the rank with the most, of 8. A sum's has 8 thread blocks, a block's 16, a message's 2;
 * 10 MiB for each block and other member, and 512 MiB for the code. */
TEST(communicators_follow_the_layout)
{
    static const struct {
        const char *words;
        int n, blocks_of_members; /* summed over communicators: blocks * (members - 1) */
    } layouts[] = {{"parallel.data=8", 2, 112},
                   {"parallel.data=8 parallel.zero=3", 3, 184}, /* 16 of a ring */
                   {"parallel.pipeline=2 parallel.tensor=2 parallel.data=2", 7, 116}};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        char words[300];
        ech_communicators most = {0};
        snprintf(words, sizeof words,
                 "parallel.comm=nccl parallel.device=queued training.micro_batch_size=1 "
                 "training.global_batch_size=32 %s",
                 layouts[l].words);
        grid_plans g = grid_plan("gpt2", words);
        assert_int_equal(g.ranks, 8);
        for (int r = 0; r < g.ranks; r++) {
            ech_communicators has = ech_communicators_of(&g.design, g.plan[r]);
            if (has.bytes > most.bytes) most = has;
        }
        grid_plans_free(&g);
        assert_int_equal(most.n, layouts[l].n);
        assert_int_equal(most.bytes,
                         ((int64_t)512 << 20) + ((int64_t)10 << 20) * layouts[l].blocks_of_members);
    }
}

/* Lines "RANKS parallel.comm=BACKEND WORD ...". */
TEST(test_lattice_over_nccl)
{
    const char *which = getenv("ECHELON_LATTICE");
    char *text, *rest = NULL;
    size_t n;
    int line = 0, cases = 0, every = which && strcmp(which, "all") == 0 ? 1 : EVERY;
    assert_int_equal(ech_file_read(ECH_CASES, 1 << 20, &text, &n), ECH_OK);
    for (char *at = strtok_r(text, "\n", &rest); at && line < LINES;
         at = strtok_r(NULL, "\n", &rest)) {
        if (line++ % every) continue;
        char *words = strstr(at, "parallel.comm=local ");
        assert_non_null(words);
        check_case(words, (int)strtol(at, NULL, 10));
        cases++;
    }
    free(text);
    print_message("%d cases\n", cases);
    assert_int_equal(cases, (LINES + every - 1) / every);
}

/* The library's own sums, and with ZeRO its reduce-scatter and all-gather: in another order, so of
 * other bits. */
TEST(test_sums_of_the_library)
{
    enum { STAGES = 4 };
    for (int zero = 0; zero < STAGES; zero++) {
        if (!share_takes_of((size_t)zero, STAGES)) continue;
        char words[100];
        snprintf(words, sizeof words,
                 "parallel.data=2 parallel.tensor=2 parallel.reduction=mpi parallel.zero=%d", zero);
        ech_config *config = config_of(words, "nccl");
        assert_string_equal(ech_config_name(config, "parallel.reduction"), "library");
        tally t;
        nccl_opened.use(NULL, NULL);
        assert_int_equal(fixture_run(config, 4, count_rank, &t), ECH_OK);
        nccl_standin_counts counts = nccl_opened.count();
        assert_true(counts.sums > 0 && (zero == 0 || counts.gathers > 0));
        assert_int_equal(counts.violations, 0);
        ech_verification v = {.steps = 2, .tolerance = ECH_TOLERANCE};
        assert_int_equal(fixture_run(config, 4, ech_verify_rank, &v), ECH_OK);
        assert_true(v.passed && v.compared > 1000);
        ech_config_destroy(config);
    }
}

/* Workers and servers of pushes load their kernels before NCCL's are on their way, too. */
TEST(servers_of_pushes_practise)
{
    static const char *const strategies[] = {
        "parallel.strategy=asp parallel.servers=2 parallel.flush_every=2",
        "parallel.strategy=ssp parallel.servers=1 parallel.flush_every=1",
        "parallel.strategy=parameter_server parallel.servers=2 parallel.backup_workers=1"};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        if (!share_takes_of(i, sizeof strategies / sizeof *strategies)) continue;
        ech_config *config = config_of(strategies[i], "nccl");
        tally t;
        nccl_opened.use(NULL, NULL);
        memset(is_loaded, 0, sizeof is_loaded);
        loads = 0;
        ech_kernels_watch(load);
        if (fixture_run(config, i == 1 ? 3 : 4, count_rank, &t) != ECH_OK)
            fail_msg("%s: %s", strategies[i], ech_last_error());
        ech_kernels_watch(NULL);
        assert_true(loads > 10);
        assert_int_equal(nccl_opened.count().violations, 0);
        ech_config_destroy(config);
    }
}

ALL_TESTS(grid_setup, fixture_teardown)

int main(void)
{
    nccl_opened_open();
    return unit_run(NULL);
}
