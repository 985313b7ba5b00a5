/* SPDX-License-Identifier: Apache-2.0
 *
 * A training step that is not the first allocates nothing, takes no page from the system, waits for the device once,
 * and locks nothing for its steps: calls of the allocator and of mutexes are counted by functions that stand in front of the C
 * library's, faults by the system. Counted, never timed. Sanitizers have allocators of their own, and poisoned
 * builds note more: skipped there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "app/fixture.h"
#include "app/startup.h"
#include "app/verify/verify.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(ECH_POISON)
enum { COUNTS = false };
#else
enum { COUNTS = true };
#endif

static _Thread_local int64_t locks; /* of this thread */
static atomic_bool counting;
static atomic_llong ours,
    theirs; /* allocations, of all threads: those of libraries are their own affair */

static void *_Atomic culprit; /* who has allocated, of ours */

/* Where in its file, for addr2line. */
static void print_culprit(void)
{
    Dl_info info;
    void *caller = atomic_load(&culprit);
    if (dladdr(caller, &info) != 0)
        print_message("    allocated by %s+0x%zx (%s)\n", info.dli_fname,
                      (size_t)((char *)caller - (char *)info.dli_fbase),
                      info.dli_sname ? info.dli_sname : "?");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* oneDNN allocates small objects at each call, and so does the C++ library for it; GNU's OpenMP a small one
 * for each region of one thread. */
static bool is_theirs(void *caller)
{
    Dl_info info;
    return dladdr(caller, &info) != 0 &&
           (strstr(info.dli_fname, "libdnnl") || strstr(info.dli_fname, "libstdc++") ||
            strstr(info.dli_fname, "libgomp") || strstr(info.dli_fname, "libomp"));
}

static void note_allocation(void *caller)
{
    if (!atomic_load(&counting)) return;
    bool is_ours = !is_theirs(caller);
    atomic_fetch_add(is_ours ? &ours : &theirs, 1);
    if (is_ours) atomic_store(&culprit, caller);
}

#define NOTE_ALLOCATION() note_allocation(__builtin_return_address(0))

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

void *malloc(size_t bytes)
{
    NOTE_ALLOCATION();
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    NOTE_ALLOCATION();
    return __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
    NOTE_ALLOCATION();
    return __libc_realloc(old, bytes);
}

void *memalign(size_t align, size_t bytes)
{
    NOTE_ALLOCATION();
    return __libc_memalign(align, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    NOTE_ALLOCATION();
    return __libc_memalign(align, bytes);
}

int posix_memalign(void **out, size_t align, size_t bytes)
{
    NOTE_ALLOCATION();
    void *memory = __libc_memalign(align, bytes);
    if (memory) *out = memory;
    return memory ? 0 : ENOMEM;
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*_Atomic next)(pthread_mutex_t *);
    int (*lock)(pthread_mutex_t *) = atomic_load(&next);
    if (!lock) {
        *(void **)&lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
        atomic_store(&next, lock);
    }
    locks++;
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
    return (rank_count){locks, usage.ru_minflt, exec ? ech_exec_host_waits(exec) : 0};
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
    atomic_store(&counting, true);
    rank_count before = count_now(exec);
    ech_status status = run_steps(exec, WARM, STEPS);
    rank_count after = count_now(exec);
    atomic_store(&counting, false);
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
    atomic_store(&ours, 0);
    atomic_store(&theirs, 0);
    assert_int_equal(fixture_run(config, ranks, count_rank, &all), ECH_OK);
    all.ours = atomic_load(&ours);
    all.theirs = atomic_load(&theirs);
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
    {1, "gpt2", "parallel.threads=1 training.micro_batch_size=3"},
    {1, "gpt2", "parallel.threads=2 training.micro_batch_size=8 model.resid_pdrop=0.1" WIDE},
    {1, "llama", "parallel.threads=2 training.micro_batch_size=4" WIDE},
    {2, "gpt2", "parallel.threads=1 training.micro_batch_size=2" WIDE},
    {2, "llama", "parallel.threads=1 parallel.pipeline=2 training.micro_batch_size=2" WIDE},
    {2, "llama", "parallel.threads=1 parallel.tensor=2 training.micro_batch_size=2" WIDE},
    {1, "mixtral", "parallel.threads=2 training.micro_batch_size=3"},
    {2, "mixtral",
     "parallel.threads=1 parallel.data=2 parallel.expert=2 training.micro_batch_size=2 "
     "model.moe_bound=1 model.moe_gate=noisy_topk model.router_load_coef=0.1"},
    {2, "switch",
     "parallel.threads=1 parallel.data=2 parallel.expert=2 training.micro_batch_size=2 "
     "model.hidden_act=gelu_new model.moe_capacity_factor=1.25 model.router_aux_loss_coef=0.01"},
    {2, "gpt2", "parallel.strategy=asp parallel.flush_every=1 training.micro_batch_size=3"},
    {3, "gpt2",
     "parallel.strategy=parameter_server parallel.backup_workers=1 parallel.flush_every=1 "
     "training.micro_batch_size=3"},
    {2, "gpt2",
     "parallel.strategy=hogwild_ring parallel.flush_every=1 parallel.token_updates=1 "
     "optimizer.name=sgd optimizer.weight_decay=0 training.micro_batch_size=3"},
};

/* The counters count. */
static void what_is_done_is_seen(void **state)
{
    (void)state;
    if (!COUNTS) skip();
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    enum { BYTES = 64 << 12 };
    atomic_store(&ours, 0);
    rank_count before = count_now(NULL);
    atomic_store(&counting, true);
    char *memory = malloc(BYTES);
    free(memory);
    atomic_store(&counting, false);
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    char *pages = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    for (int at = 0; at < BYTES; at += 4096) ((volatile char *)pages)[at] = 1;
    munmap(pages, BYTES);
    rank_count after = count_now(NULL);
    assert_int_equal(atomic_load(&ours), 1);
    assert_int_equal(after.locks - before.locks, 1);
    assert_true(after.faults - before.faults > FAULTS);
}

static void steps_allocate_nothing(void **state)
{
    (void)state;
    if (!COUNTS) skip();
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        counted all = count(shapes[s].ranks, shapes[s].architecture, shapes[s].more);
        print_message("%d steps of %d ranks, %s, %s: %lld allocations, %lld in libraries\n", STEPS,
                      shapes[s].ranks, shapes[s].architecture, shapes[s].more, (long long)all.ours,
                      (long long)all.theirs);
        /* Rows may come to where none have been before, and so to new pages of what is allocated. */
        bool by_counts = ech_text_has_word("mixtral switch", shapes[s].architecture);
        if (all.ours) print_culprit();
        assert_int_equal(all.ours, 0);
        for (int r = 0; r < shapes[s].ranks; r++) {
            print_message("    rank %d: %lld faults\n", r, (long long)all.rank[r].faults);
            if (!by_counts) assert_true(all.rank[r].faults <= FAULTS);
            assert_int_equal(all.rank[r].waits, STEPS);
        }
    }
}

/* As many locks for a list of many steps as for one of few: those of its beginning, its end, and its batch. */
static void locks_do_not_grow_with_steps(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_done_is_seen),
                                       cmocka_unit_test(steps_allocate_nothing),
                                       cmocka_unit_test(locks_do_not_grow_with_steps)};
    ech_startup_keep_memory();
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
