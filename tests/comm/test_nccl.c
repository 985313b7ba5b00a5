/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `nccl` over a stand-in for the library (nccl_standin.h), with ranks that are threads
 * and queues of the device `queued`. Bits and counts are those of host memory. NCCL's rules are
 * kept, mistakes are detected, and a call that hangs ends at the deadline.
 */

#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "comm/nccl_opened.h"
#include "comm/on_queue.h"
#include "unit.h"

static const ech_device *queued;

/* ---- the library ---- */

static void expect_refusal(const ech_device *device, const char *words)
{
    assert_int_equal(ech_comm_check_device(ech_comm_find("nccl"), device, 2), ECH_EUNSUPPORTED);
    if (!strstr(ech_last_error(), words)) fail_msg("%s", ech_last_error());
}

/* First of all: what was opened stays. */
TEST(test_says_what_is_missing)
{
    expect_refusal(ech_device_find("cpu"), "sends the memory of GPUs");
    expect_refusal(queued, "ECHELON_NCCL");
    assert_int_equal(setenv("ECHELON_NCCL", "/nowhere/libnccl.so.2", 1), 0);
    expect_refusal(queued, "NCCL (/nowhere/libnccl.so.2) is neither where the system looks");
    expect_refusal(queued, "LD_LIBRARY_PATH");
    expect_refusal(queued, "pip install nvidia-nccl-cu");
    assert_int_equal(setenv("NCCL_STANDIN_VERSION", "21805", 1), 0);
    assert_int_equal(setenv("ECHELON_NCCL", ECH_NCCL_STANDIN, 1), 0);
    expect_refusal(queued, "NCCL 2.18.5 (");
    expect_refusal(queued, "is too old: 2.22 and newer");
    assert_int_equal(unsetenv("NCCL_STANDIN_VERSION"), 0);
    assert_int_equal(setenv("ECHELON_NCCL", "libm.so.6", 1), 0);
    expect_refusal(queued, "has no ncclGetVersion");
    assert_int_equal(ech_comm_check_device(ech_comm_find("nccl"), queued, 1), ECH_OK);
    nccl_opened_open();
    assert_int_equal(ech_comm_check_device(ech_comm_find("nccl"), queued, 2), ECH_OK);
}

TEST(test_ranks_share_a_gpu_with_newer_libraries)
{
    const ech_comm_backend *nccl = ech_comm_find("nccl");
    nccl_opened_open();
    assert_int_equal(setenv("NCCL_STANDIN_VERSION", "22907", 1), 0);
    assert_int_equal(ech_comm_share_device(nccl, queued), ECH_EUNSUPPORTED);
    assert_non_null(strstr(ech_last_error(), "install NCCL 2.30 or newer"));
    assert_null(getenv("NCCL_MULTI_RANK_GPU_ENABLE"));
    assert_int_equal(unsetenv("NCCL_STANDIN_VERSION"), 0);
    assert_int_equal(ech_comm_share_device(nccl, queued), ECH_OK);
    assert_string_equal(getenv("NCCL_MULTI_RANK_GPU_ENABLE"), "1");
    assert_int_equal(ech_comm_share_device(ech_comm_find("local"), queued), ECH_OK);
}

/* ---- reductions ---- */

static ech_status reduce(ech_comm *comm, void *context)
{
    RANKS_CHECK(strcmp(ech_comm_name(comm), "nccl") == 0);
    return on_queue_reduce(comm, context);
}

TEST(test_reductions_have_the_same_bits)
{
    for (int n = 1; n <= 4; n++) {
        nccl_opened.use(NULL, NULL);
        assert_int_equal(ranks_run_over("nccl", n, 60, reduce, NULL, NULL), ECH_OK);
        nccl_standin_counts all = nccl_opened.count();
        assert_int_equal(all.violations, 0);
        assert_int_equal(all.made, n > 1 ? n : 0);
        assert_int_equal(all.destroyed, all.made);
        assert_int_equal(all.sends, all.receives);
        assert_int_equal(all.groups > 0, n > 1);
        assert_true(n == 1 || all.groups < all.sends + all.receives);
        /* one is of the join; of 1,000 numbers, 4 ranks have equal shards */
        assert_int_equal(all.gathers > n, n == 4);
    }
}

/* Its shard of the sum in place, then the gather. */
static ech_status reduce_in_halves(ech_group *group, const ech_tensor *x)
{
    ech_sum scatter, gather;
    size_t bytes =
        (size_t)ech_tensor_count(x) / (size_t)ech_group_size(group) * ech_dtype_bytes(x->dtype);
    char *shard = (char *)x->data + (size_t)ech_group_index(group) * bytes;
    ECH_TRY(ech_sum_begin_scatter(group, ECH_REDUCTION_LIBRARY, x, x->dtype, shard,
                                  ECH_DELIVER_OVER, NULL, &scatter));
    ECH_TRY(ech_sum_run(&scatter));
    ECH_TRY(ech_sum_end(&scatter));
    ECH_TRY(ech_sum_begin_gather(group, ECH_REDUCTION_LIBRARY, x, shard, &gather));
    ECH_TRY(ech_sum_run(&gather));
    return ech_sum_end(&gather);
}

/* Sums of whole numbers are exact in any order. */
static ech_status sum_by_library(ech_comm *comm, void *context)
{
    (void)context;
    enum { N = 1200 };
    static const ech_dtype types[] = {ECH_F32, ECH_F64};
    ech_group *here, *there;
    ech_comm_queue on;
    ECH_TRY(on_queue_open(queued, &on));
    ECH_TRY(checks_world(comm, &here));
    there = ech_group_open(here, 1);
    ECH_TRY(ech_group_prepare(there, ECH_REDUCTION_LIBRARY));
    ECH_TRY(ech_group_set_queue(there, &on));
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        double x[N], wanted[N];
        void *memory;
        size_t bytes = N * ech_dtype_bytes(types[t]);
        ECH_TRY(queued->alloc(bytes, &memory));
        checks_fill(x, types[t], N, ech_comm_rank(comm), true);
        checks_serial_sum(wanted, types[t], types[t], N, ech_comm_size(comm), true);
        ECH_TRY(ech_device_copy_now(queued, on.queue, memory, x, bytes));
        ech_tensor far = ech_tensor_1d(memory, types[t], N);
        for (int sums = 0; sums < 2; sums++)
            ECH_TRY(ech_group_reduce(there, ECH_REDUCTION_LIBRARY, &far, types[t], NULL));
        ECH_TRY(reduce_in_halves(there, &far));
        ECH_TRY(ech_device_copy_now(queued, on.queue, x, memory, bytes));
        double first = ech_comm_size(comm) * (double)ech_comm_size(comm);
        for (int i = 0; i < N; i++) {
            double is = types[t] == ECH_F32 ? (double)((float *)x)[i] : x[i];
            double was = types[t] == ECH_F32 ? (double)((float *)wanted)[i] : wanted[i];
            RANKS_CHECK(fabs(is - first * was) == 0);
        }
        queued->release(memory, bytes);
    }
    RANKS_CHECK(ech_group_count(there, ECH_COMM_REDUCES).bytes == 2 * N * (4 + 8));
    ech_group_destroy(there);
    ech_group_destroy(here);
    on_queue_close(&on);
    return ECH_OK;
}

TEST(test_sums_by_the_library)
{
    nccl_opened.use(NULL, NULL);
    assert_true(ech_reduction_supported(ech_comm_find("nccl"), ECH_REDUCTION_LIBRARY));
    assert_int_equal(ranks_run_over("nccl", 3, 60, sum_by_library, NULL, NULL), ECH_OK);
    assert_int_equal(nccl_opened.count().sums, 3 * (2 + 6)); /* two kinds at the join */
    assert_int_equal(nccl_opened.count().gathers, 3 * (1 + 2));
    assert_int_equal(nccl_opened.count().violations, 0);
}

/* ---- messages between pairs ---- */

enum { MESSAGES = 50, MISFIT = 7 };

/* Rank 1 talks with 0 and with 2 on one queue; each pair has a communicator. Messages that are put
 * together do not wait for each other. */
typedef struct talk {
    int misfit; /* this message of rank 2 is short; -1: none */
} talk;

static ech_status talk_on(ech_comm *comm, const talk *t, ech_comm_queue *on, char *memory)
{
    int me = ech_comm_rank(comm);
    for (int i = 0; i < MESSAGES; i++) {
        int peer = me == 1 ? i % 2 * 2 : 1;
        int64_t number = 100 * me + i;
        if (me != 1 && i % 2 != me / 2) continue;
        ECH_TRY(ech_device_copy_now(queued, on->queue, memory, &number, sizeof number));
        ech_request both[] = {{.on = on, .data = memory, .peer = peer, .bytes = 8, .sends = true},
                              {.on = on, .data = memory + 8, .peer = peer, .bytes = 8}};
        if (i == t->misfit && me == 2) both[0].bytes = 4;
        ECH_TRY(ech_comm_put(comm, both, 2));
        ECH_TRY(ech_comm_wait(comm, both, 2));
        ECH_TRY(ech_device_copy_now(queued, on->queue, &number, memory + 8, sizeof number));
        RANKS_CHECK(number == 100 * peer + i || t->misfit >= 0);
    }
    return ECH_OK;
}

/* Until the job is over. */
static ech_status wait_for_the_end(ech_comm *comm)
{
    ech_request request;
    int64_t never;
    int peer = (ech_comm_rank(comm) + 1) % ech_comm_size(comm);
    bool done = false;
    ECH_TRY(ech_comm_receive_start(comm, peer, 99, &never, sizeof never, &request));
    for (;;) {
        ECH_TRY(ech_comm_test(comm, &request, &done));
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static ech_status talk_rank(ech_comm *comm, void *context)
{
    const talk *t = context;
    int me = ech_comm_rank(comm);
    void *memory;
    ech_comm_queue on;
    ECH_TRY(on_queue_open(queued, &on));
    ECH_TRY(queued->alloc(16, &memory));
    for (int peer = 0; peer < 3; peer++) {
        int pair[] = {peer < me ? peer : me, peer < me ? me : peer};
        if (peer != me && (peer == 1 || me == 1))
            ECH_TRY(ech_comm_join(comm, &on, "a pair", pair, 2));
    }
    ech_status status = talk_on(comm, t, &on, memory);
    if (status == ECH_OK && t->misfit >= 0) status = wait_for_the_end(comm);
    ech_comm_disconnect(comm, &on);
    on_queue_close(&on);
    queued->release(memory, 16);
    return status;
}

TEST(test_pairs_talk)
{
    nccl_opened.use(NULL, NULL);
    talk t = {.misfit = -1};
    assert_int_equal(ranks_run_over("nccl", 3, 60, talk_rank, &t, NULL), ECH_OK);
    assert_int_equal(nccl_opened.count().made, 4);
    assert_int_equal(nccl_opened.count().sends, 2 * MESSAGES + 4); /* and one each to connect */
    assert_int_equal(nccl_opened.count().violations, 0);
    assert_int_equal(nccl_opened.count().aborted, 0);
}

TEST(test_an_error_of_the_library_ends_the_job)
{
    nccl_opened.use(NULL, NULL);
    talk t = {.misfit = MISFIT};
    assert_int_not_equal(ranks_run_over("nccl", 3, 60, talk_rank, &t, NULL), ECH_OK);
    assert_int_equal(nccl_opened.count().violations, 1);
    assert_int_equal(nccl_opened.count().aborted, 4);
    assert_int_equal(nccl_opened.count().destroyed, 0);
}

/* ---- what hangs ---- */

/* Rank 1 does not come to the second collective. The others wait for it at their device, as one
 * does whose launch finds the stream full. */
static ech_status hang_at(ech_comm *comm, ech_group *there, ech_comm_queue *on, void *memory)
{
    ECH_TRY(ech_group_broadcast(there, 0, memory, 8));
    if (ech_comm_rank(comm) == 1) {
        ech_comm_set_position(comm, 3, "lost in block 5");
        return wait_for_the_end(comm);
    }
    ech_comm_set_position(comm, 3, "reducing");
    ech_status status = ech_group_broadcast(there, 0, memory, 8);
    queued->record(on->mark, on->queue);
    ECH_TRY(queued->synchronize(on->mark));
    RANKS_CHECK(status == ECH_OK);
    return ECH_EABORTED;
}

static ech_status hang_rank(ech_comm *comm, void *context)
{
    void *memory;
    ech_group *here, *there;
    ech_comm_queue on;
    (void)context;
    ECH_TRY(on_queue_open(queued, &on));
    ECH_TRY(queued->alloc(8, &memory));
    ECH_TRY(checks_world(comm, &here));
    there = ech_group_open(here, 1);
    ECH_TRY(ech_group_set_queue(there, &on));
    ech_status status = hang_at(comm, there, &on, memory);
    ech_group_destroy(there);
    ech_group_destroy(here);
    on_queue_close(&on);
    queued->release(memory, 8);
    return status;
}

/* What the ranks' threads log goes to a file. */
static char *run_hang(int ranks, ech_status *results)
{
    char *text;
    size_t n;
    FILE *log = tmpfile();
    int before = dup(STDERR_FILENO);
    assert_true(log && before >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
    ech_log_set_quiet(false);
    ranks_run_over("nccl", ranks, 1, hang_rank, NULL, results);
    fflush(stderr);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    ech_log_set_quiet(true);
    close(before);
    n = (size_t)lseek(fileno(log), 0, SEEK_END);
    text = calloc(n + 1, 1);
    assert_int_equal(pread(fileno(log), text, n, 0), n);
    fclose(log);
    return text;
}

static void check_hang(int ranks)
{
    ech_status results[RANKS_MOST];
    nccl_opened.use(NULL, NULL);
    char *log = run_hang(ranks, results);
    if (!strstr(log, "held up by rank 1: step 3, lost in block 5") ||
        !strstr(log, "parallel.deadline"))
        fail_msg("%s", log);
    free(log);
    for (int r = 0; r < ranks; r++) assert_int_equal(results[r], ECH_EABORTED);
    assert_int_equal(nccl_opened.count().aborted, ranks);
    assert_int_equal(nccl_opened.count().destroyed, 0);
    assert_int_equal(nccl_opened.count().violations, 0);
}

TEST(test_a_collective_that_hangs_ends_at_the_deadline)
{
    check_hang(2);
    check_hang(3);
}

/* ---- aborts ---- */

/* Broadcasts on three queues, whose kernels wait for each other's ranks, until one rank fails at a
 * random moment: all end, and what they hold of the library is aborted together. */
enum { ABORTS = 20, CHANNELS = 3, BROADCASTS = 300, ABORT_RANKS = 3 };

typedef struct failure {
    int rank, at; /* this rank fails before its broadcast `at` */
} failure;

static ech_status broadcast_until(ech_comm *comm, const failure *f, ech_group **there, char *memory)
{
    for (int i = 0; i < BROADCASTS; i++) {
        if (ech_comm_rank(comm) == f->rank && i == f->at) return ECH_EIO;
        int which = (i * 7 + i / 5) % CHANNELS;
        ECH_TRY(ech_group_broadcast(there[which], i % ABORT_RANKS, memory + 8 * which, 8));
    }
    return wait_for_the_end(comm);
}

static ech_status failing_rank(ech_comm *comm, void *context)
{
    void *memory;
    ech_group *here, *there[CHANNELS];
    ech_comm_queue on[CHANNELS];
    ECH_TRY(queued->alloc(8 * CHANNELS, &memory));
    ECH_TRY(checks_world(comm, &here));
    for (int i = 0; i < CHANNELS; i++) {
        ECH_TRY(on_queue_open(queued, &on[i]));
        there[i] = ech_group_open(here, 1 + i);
        ECH_TRY(ech_group_set_queue(there[i], &on[i]));
    }
    ech_status status = broadcast_until(comm, context, there, memory);
    if (status == ECH_EIO) ech_comm_raise(comm);
    for (int i = 0; i < CHANNELS; i++) {
        ech_group_destroy(there[i]);
        on_queue_close(&on[i]);
    }
    ech_group_destroy(here);
    queued->release(memory, 8 * CHANNELS);
    return status;
}

/* ECHELON_NCCL_ABORTS: how many. */
TEST(test_aborts_at_random_moments)
{
    const char *named = getenv("ECHELON_NCCL_ABORTS");
    int aborts = named ? atoi(named) : ABORTS;
    ech_random_key key = {.seed = 49};
    assert_true(aborts > 0);
    for (int i = 0; i < aborts; i++) {
        failure f = {.rank = i % ABORT_RANKS,
                     .at = (int)(ech_random_word(key, (uint64_t)i) % BROADCASTS)};
        nccl_opened.use(NULL, NULL);
        double began = ech_clock_now();
        assert_int_not_equal(ranks_run_over("nccl", ABORT_RANKS, 10, failing_rank, &f, NULL),
                             ECH_OK);
        assert_true(ech_clock_now() - began < 10 + 5);
        nccl_standin_counts counts = nccl_opened.count();
        assert_int_equal(counts.made, ABORT_RANKS * CHANNELS);
        assert_int_equal(counts.aborted + counts.destroyed, counts.made);
        if (counts.violations) fail_msg("rank %d at broadcast %d", f.rank, f.at);
    }
}

int main(void)
{
    queued = ech_device_find("queued");
    return unit_run(NULL);
}
