/* SPDX-License-Identifier: Apache-2.0
 *
 * A training step after the first allocates nothing, gets no page from the system, waits for the
 * device once, and takes no lock for its steps. These tests add facts and runs that probes/quiet.c
 * and the lattice do not have. They count and never time: the system counts page faults, and a
 * wrapper of the C library's function counts locks. Sanitizers have allocators of their own, and
 * poisoned builds record more, so the tests are skipped there.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "app/allocations.h"
#include "app/fixture.h"
#include "program/startup.h"
#include "app/verify/verify.h"
#include "unit.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(ECH_POISON)
enum { COUNTS = false };
#else
enum { COUNTS = true };
#endif

static _Thread_local int64_t locks; /* of this thread; libraries' are their own affair */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*_Atomic next)(pthread_mutex_t *);
    int (*lock)(pthread_mutex_t *) = atomic_load(&next);
    if (!lock) {
        *(void **)&lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
        atomic_store(&next, lock);
    }
    locks += !allocations_is_theirs(__builtin_return_address(0));
    return lock(mutex);
}
#endif

/* ---- runs ---- */

enum { WARM = 3, STEPS = 4, RANKS = 3, FAULTS = 8 };

typedef struct rank_count {
    int64_t locks;  /* of the compute lane's own thread */
    int64_t faults; /* of the process */
    int64_t waits;  /* for the device */
} rank_count;

typedef struct counted {
    const ech_config *config;
    rank_count rank[RANKS];
    int64_t ours, theirs; /* allocations */
} counted;

static rank_count count_now(const ech_exec *exec)
{
    struct rusage usage;
    ECH_ASSERT(getrusage(RUSAGE_SELF, &usage) == 0);
    return (rank_count){locks, usage.ru_minflt, exec ? ech_exec_counted(exec)->host_waits : 0};
}

static ech_status run_steps(ech_exec *exec, int64_t first, int64_t n)
{
    for (int64_t step = first; step < first + n; step++)
        ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, step));
    return ech_group_barrier(ech_exec_world(exec));
}

/* Allocations are counted from when all ranks are warm until the first has done its steps. */
static ech_status count_steps(ech_exec *exec, rank_count *out)
{
    ECH_TRY(run_steps(exec, 0, WARM));
    atomic_store(&allocations.counting, true);
    rank_count before = count_now(exec);
    ech_status status = run_steps(exec, WARM, STEPS);
    rank_count after = count_now(exec);
    atomic_store(&allocations.counting, false);
    *out = (rank_count){after.locks - before.locks, after.faults - before.faults,
                        after.waits - before.waits};
    return status;
}

static ech_status count_rank(ech_comm *comm, const ech_design *design, void *context)
{
    counted *all = context;
    ech_compared_run c = {.design = design};
    ECH_TRY(ech_compared_run_open(&c, comm));
    ech_status status = count_steps(c.session.exec, &all->rank[ech_comm_rank(comm)]);
    ECH_TRY(ech_group_barrier(ech_exec_world(c.session.exec)));
    ech_compared_run_close(&c);
    return status;
}

static counted count(int ranks, const char *architecture, const char *more)
{
    char words[600];
    snprintf(words, sizeof words, "training.steps=100 training.check_every=0 %s", more);
    ech_config *config = fixture_config(architecture, words);
    counted all = {0};
    atomic_store(&allocations.ours, 0);
    atomic_store(&allocations.theirs, 0);
    assert_int_equal(fixture_run(config, ranks, count_rank, &all), ECH_OK);
    all.ours = atomic_load(&allocations.ours);
    all.theirs = atomic_load(&allocations.theirs);
    ech_config_destroy(config);
    return all;
}

typedef struct shape {
    int ranks;
    const char *architecture, *more;
} shape;

#define WIDE                                                                                       \
    " model.hidden_size=256 model.num_hidden_layers=2 model.num_attention_heads=4 "                \
    "data.sequence_length=64 training.global_batch_size=16 "

static const shape shapes[] = {
    {1, "gpt2", "parallel.threads=2 training.micro_batch_size=8 model.resid_pdrop=0.1" WIDE},
    {1, "llama", "parallel.threads=2 training.micro_batch_size=4" WIDE},
    {1, "mixtral", "parallel.threads=2 training.micro_batch_size=3"},
    {3, "gpt2",
     "parallel.strategy=parameter_server parallel.backup_workers=1 parallel.flush_every=1 "
     "training.micro_batch_size=3"},
    {2, "gpt2",
     "parallel.strategy=hogwild_ring parallel.flush_every=1 parallel.token_updates=1 "
     "optimizer.name=sgd optimizer.weight_decay=0 training.micro_batch_size=3"},
};

/* The counters count. */
TEST(what_is_done_is_seen)
{
    if (!COUNTS) skip();
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    enum { BYTES = 64 << 12 };
    atomic_store(&allocations.ours, 0);
    rank_count before = count_now(NULL);
    atomic_store(&allocations.counting, true);
    char *volatile memory = malloc(BYTES); /* volatile: the compiler leaves the pair out else */
    free(memory);
    atomic_store(&allocations.counting, false);
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    char *pages = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    for (int at = 0; at < BYTES; at += 4096) ((volatile char *)pages)[at] = 1;
    munmap(pages, BYTES);
    rank_count after = count_now(NULL);
    assert_int_equal(atomic_load(&allocations.ours), 1);
    assert_int_equal(after.locks - before.locks, 1);
    assert_true(after.faults - before.faults > FAULTS);
}

TEST(steps_allocate_nothing)
{
    if (!COUNTS) skip();
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        counted all = count(shapes[s].ranks, shapes[s].architecture, shapes[s].more);
        print_message("%d steps of %d ranks, %s, %s: %lld allocations, %lld in libraries\n", STEPS,
                      shapes[s].ranks, shapes[s].architecture, shapes[s].more, (long long)all.ours,
                      (long long)all.theirs);
        /* Rows may come to where none have been before, and so to new pages of what is
         * allocated. */
        bool by_counts = ech_text_has_word("mixtral", shapes[s].architecture);
        if (all.ours) {
            char where[300];
            allocations_print_culprit(where, sizeof where);
            print_message("    allocated by %s\n", where);
        }
        assert_int_equal(all.ours, 0);
        for (int r = 0; r < shapes[s].ranks; r++) {
            print_message("    rank %d: %lld faults\n", r, (long long)all.rank[r].faults);
            if (!by_counts) assert_true(all.rank[r].faults <= FAULTS);
            assert_int_equal(all.rank[r].waits, STEPS);
        }
    }
}

/* As many locks for a list of many steps as for one of few: those of its beginning, its end, and
 * its batch. */
TEST(locks_do_not_grow_with_steps)
{
    if (!COUNTS) skip();
    static const char *const sizes[] = {
        "parallel.threads=1 training.micro_batch_size=12",
        "parallel.threads=1 training.micro_batch_size=1 model.num_hidden_layers=6"};
    int64_t found[2];
    for (int i = 0; i < 2; i++) found[i] = count(1, "gpt2", sizes[i]).rank[0].locks;
    print_message("%d steps of few and of many: %lld and %lld locks\n", STEPS, (long long)found[0],
                  (long long)found[1]);
    assert_int_equal(found[0], found[1]);
    assert_true(found[0] <= 6 * STEPS);
}

ALL_TESTS(fixture_setup, fixture_teardown)

int main(void)
{
    ech_startup_keep_memory();
    return unit_run(NULL);
}
