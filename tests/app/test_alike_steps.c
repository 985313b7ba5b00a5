/* SPDX-License-Identifier: Apache-2.0
 *
 * What is put on queues in a list is the same in every step: the same functions, arguments and
 * addresses, and the host waits once. So a device could record a list once and replay it. What
 * copies read of the host is in its arena, too.
 *
 * And whatever would be told as an argument, not read on the device, is found: three rows are told
 * so.
 */

#include <pthread.h>

#include "app/fixture.h"
#include "unit.h"

enum { RANKS = 4, RUNS = 4, MOST_QUEUES = 256, MOST_ARENAS = 64 };

/* A call, copy or fill that was put on a queue. */
typedef struct piece {
    const ech_queue *queue;
    pthread_t thread; /* that has put it there: of each the order is known */
    size_t number;
    void (*function)(void *argument); /* NULL: a copy, or a fill */
    const void *to, *from;
    unsigned char byte;
    size_t bytes;
    char *argument;
} piece;

typedef struct record {
    int run; /* that is recorded; -1: none */
    ECH_LIST(piece) of[RUNS];
} record;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const ech_device *under; /* what the recording device is otherwise */
static struct {
    ech_queue *queue;
    record *record;
} owner[MOST_QUEUES];
static int owners;
static struct {
    const char *begin, *end;
    record *record;
} arena[MOST_ARENAS];
static int arenas;
static _Thread_local record *own; /* of the rank whose queues this thread makes */

static ech_status recording_queue_create(ech_queue **out)
{
    ECH_TRY(under->queue_create(out));
    pthread_mutex_lock(&lock);
    ECH_ASSERT(owners < MOST_QUEUES);
    owner[owners].queue = *out;
    owner[owners++].record = own;
    pthread_mutex_unlock(&lock);
    return ECH_OK;
}

static ech_status recording_alloc(size_t bytes, void **out)
{
    ECH_TRY(under->alloc(bytes, out));
    pthread_mutex_lock(&lock);
    ECH_ASSERT(arenas < MOST_ARENAS);
    arena[arenas].begin = *out;
    arena[arenas].end = arena[arenas].begin + bytes;
    arena[arenas++].record = own;
    pthread_mutex_unlock(&lock);
    return ECH_OK;
}

/* Of the rank that has this memory; NULL: none. */
static record *record_of(const void *memory)
{
    const char *at = memory;
    record *found = NULL;
    for (int i = 0; i < arenas; i++)
        if (at >= arena[i].begin && at < arena[i].end) found = arena[i].record;
    return found;
}

/* A transfer between two ranks is put by the one that comes second, on the other's queue. */
static bool enter_transfer(void *to, const void *from, size_t bytes)
{
    pthread_mutex_lock(&lock);
    record *sends = record_of(from), *receives = record_of(to);
    bool is_transfer = sends && receives && sends != receives;
    if (is_transfer && receives->run >= 0)
        ECH_PUSH(receives->of[receives->run], ((piece){.to = to, .from = from, .bytes = bytes}));
    pthread_mutex_unlock(&lock);
    return is_transfer;
}

static void enter(const ech_queue *queue, const piece *what)
{
    pthread_mutex_lock(&lock);
    record *r = NULL;
    for (int i = 0; i < owners; i++)
        if (owner[i].queue == queue) r = owner[i].record;
    if (r && r->run >= 0) {
        piece entry = *what;
        entry.queue = queue;
        entry.thread = pthread_self();
        entry.number = r->of[r->run].n;
        if (what->function) {
            entry.argument = ech_calloc(1, what->bytes);
            memcpy(entry.argument, what->argument, what->bytes);
        }
        ECH_PUSH(r->of[r->run], entry);
    }
    pthread_mutex_unlock(&lock);
}

static void recording_call(ech_queue *queue, void (*function)(void *argument), void *argument,
                           size_t bytes)
{
    enter(queue, &(piece){.function = function, .argument = argument, .bytes = bytes});
    under->call(queue, function, argument, bytes);
}

static void recording_copy(ech_queue *queue, void *to, const void *from, size_t bytes)
{
    if (!enter_transfer(to, from, bytes))
        enter(queue, &(piece){.to = to, .from = from, .bytes = bytes});
    under->copy(queue, to, from, bytes);
}

static void recording_fill(ech_queue *queue, void *to, unsigned char byte, size_t bytes)
{
    enter(queue, &(piece){.to = to, .byte = byte, .bytes = bytes});
    under->fill(queue, to, byte, bytes);
}

/* ---- rows that are told what changes ---- */

static int64_t now; /* the list's step, or the token's position */
static const ech_kernels *right;

static void told_dropout(ech_kernel_context *context, const ech_tensor *x,
                         const ech_dropout *dropout, const ech_rows *rows, const ech_tensor *y)
{
    ech_dropout told = *dropout;
    told.step = NULL;
    told.key.step = (uint32_t)now;
    right->dropout(context, x, &told, rows, y);
}

static void told_adamw(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                       const ech_tensor *exp_avg, const ech_tensor *exp_avg_sq,
                       const ech_update *update, const ech_tensor *rounded)
{
    ech_update told = *update;
    told.number = NULL;
    told.count = now + 1;
    right->adamw(context, param, grad, exp_avg, exp_avg_sq, &told, rounded);
}

static void told_append(ech_kernel_context *context, const ech_tensor *x, const ech_rows *rows,
                        const ech_tensor *cache)
{
    ech_rows told = *rows;
    told.position = NULL;
    told.start[0] = now;
    right->append(context, x, &told, cache);
}

/* ---- runs ---- */

typedef struct trial {
    const char *words, *device, *told; /* told: the row that is; NULL: none */
    ech_list_kind list;
    int period; /* lists after which weights are in the same slots */
    record record[RANKS];
    double loss[RUNS]; /* rank 0's */
} trial;

static ech_status run_lists(const ech_session *s, trial *t, record *r)
{
    ECH_TRY(ech_exec_run(s->exec, ECH_LIST_INIT, 0));
    for (int run = 0; run < RUNS; run++) {
        int64_t step = run * s->plan->list[t->list].turns;
        if (t->told) now = step;
        if (t->list == ECH_LIST_GENERATE) ech_exec_set_token(s->exec, 7 * run, run);
        int64_t waits = ech_exec_counted(s->exec)->host_waits;
        r->run = run;
        ech_status status = ech_exec_run(s->exec, t->list, step);
        r->run = -1;
        ECH_TRY(status);
        waits = ech_exec_counted(s->exec)->host_waits - waits;
        ECH_ASSERT(waits == 1);
        if (r == t->record)
            t->loss[run] = t->list == ECH_LIST_GENERATE ? ech_exec_logits(s->exec)[0]
                                                        : ech_exec_readings(s->exec)->loss;
    }
    return ECH_OK;
}

static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    trial *t = context;
    int rank = ech_comm_rank(comm);
    ech_device recording = *under;
    recording.alloc = recording_alloc;
    recording.queue_create = recording_queue_create;
    recording.call = recording_call;
    recording.copy = recording_copy;
    recording.fill = recording_fill;
    own = &t->record[rank];
    own->run = -1;
    ech_session s = {0};
    ech_corpus *corpus = NULL;
    ech_loader *loader = NULL;
    ECH_TRY(ech_design_plan(design, rank, t->list == ECH_LIST_GENERATE, &s.plan));
    ech_kernels told;
    if (t->told) {
        right = s.plan->kernels;
        told = *right;
        if (strcmp(t->told, "dropout") == 0) told.dropout = told_dropout;
        if (strcmp(t->told, "adamw") == 0) told.adamw = told_adamw;
        if (strcmp(t->told, "append") == 0) told.append = told_append;
        s.plan->kernels = &told;
    }
    ech_exec_setup setup = {
        .config = design->config, .plan = s.plan, .device = &recording, .comm = comm};
    ech_status status = ech_exec_create(&setup, &s.exec);
    if (status == ECH_OK) status = ech_design_open_data(design, ECH_SPLIT_TRAIN, &corpus);
    if (status == ECH_OK)
        status = ech_session_read(&s, design, corpus, ECH_TRAIN, 0, INT64_MAX, &loader);
    if (status == ECH_OK) status = run_lists(&s, t, own);
    ech_exec_destroy(s.exec);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
    ech_plan_destroy(s.plan);
    return status;
}

static int by_thread(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    if (x->queue != y->queue) return x->queue < y->queue ? -1 : 1;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

static bool same_pieces(const piece *x, const piece *y)
{
    return x->queue == y->queue && x->thread == y->thread && x->function == y->function &&
           x->to == y->to && x->from == y->from && x->byte == y->byte && x->bytes == y->bytes &&
           (!x->function || memcmp(x->argument, y->argument, x->bytes) == 0);
}

/* Frees what was recorded. Returns pieces that differ from those of a run before, and in *all how
 * many there are. */
static size_t compare(record *r, int period, size_t *all)
{
    size_t apart = 0;
    for (int run = 0; run < RUNS; run++)
        qsort(r->of[run].at, r->of[run].n, sizeof(piece), by_thread);
    for (int run = period; run < RUNS; run++) {
        assert_int_equal(r->of[run].n, r->of[run - period].n);
        for (size_t i = 0; i < r->of[run].n; i++)
            apart += !same_pieces(&r->of[run].at[i], &r->of[run - period].at[i]);
        *all += r->of[run].n;
    }
    for (int run = 0; run < RUNS; run++) {
        for (size_t i = 0; i < r->of[run].n; i++) free(r->of[run].at[i].argument);
        free(r->of[run].at);
    }
    return apart;
}

/* Returns how many pieces differ. */
static size_t run(trial *t, int ranks)
{
    char words[400];
    snprintf(words, sizeof words, "%s parallel.device=%s", t->words, t->device);
    under = ech_device_find(t->device);
    owners = arenas = 0;
    assert_true(fixture_runs("llama", words, ranks, run_rank, t));
    size_t apart = 0, all = 0;
    for (int r = 0; r < ranks; r++) apart += compare(&t->record[r], t->period, &all);
    assert_true(all > 50);
    assert_true(t->loss[0] != t->loss[1] && t->loss[1] != t->loss[2]); /* what is read did change */
    return apart;
}

TEST(test_steps_are_alike)
{
    static const struct {
        const char *words;
        int ranks, period;
    } cases[] = {
        {"training.micro_batch_size=3 precision.compute=fp16 optimizer.name=adamw8", 1, 1},
        {"optimizer.name=adafactor parallel.tensor=2 parallel.data=2 parallel.sequence=true "
         "model.vocab_size=264 precision.compute=bf16",
         4, 1},
        {"optimizer.name=muon optimizer.momentum=0.9 parallel.pipeline=2 memory.sequence_chunks=3 "
         "training.micro_batch_size=2 parallel.schedule=1f1b memory.recompute=full "
         "model.architecture=gpt2 model.attn_pdrop=0.1 model.resid_pdrop=0.1",
         2, 1},
        {"optimizer.name=sm3 parallel.context=2 data.sequence_length=12 "
         "parallel.compression=powersgd",
         2, 1},
        {"parallel.pipeline=2 parallel.schedule=pipedream training.micro_batch_size=2 "
         "model.tie_word_embeddings=false parallel.flush_every=1",
         2, 2},
        {"parallel.pipeline=2 parallel.schedule=pipedream training.micro_batch_size=2 "
         "model.tie_word_embeddings=false parallel.flush_every=2",
         2, 1},
    };
    static const char *const devices[] = {"walled", "queued"};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int d = 0; d < 2; d++) {
            trial t = {.words = cases[c].words,
                       .device = devices[d],
                       .list = ECH_LIST_TRAIN,
                       .period = cases[c].period};
            size_t apart = run(&t, cases[c].ranks);
            if (apart > 0) fail_msg("%s on %s: %zu differ", t.words, t.device, apart);
        }
}

TEST(test_tokens_are_alike)
{
    trial t = {.words = "", .device = "queued", .list = ECH_LIST_GENERATE, .period = 1};
    assert_int_equal(run(&t, 1), 0);
}

TEST(test_arguments_that_change_are_found)
{
    static const struct {
        const char *row, *words;
        ech_list_kind list;
    } cases[] = {{"dropout", "model.architecture=gpt2 model.resid_pdrop=0.1", ECH_LIST_TRAIN},
                 {"adamw", "", ECH_LIST_TRAIN},
                 {"append", "", ECH_LIST_GENERATE}};
    for (int c = 0; c < 3; c++) {
        trial t = {.words = cases[c].words, .device = "walled", .list = cases[c].list, .period = 1};
        assert_int_equal(run(&t, 1), 0);
        trial changed = {.words = t.words,
                         .device = t.device,
                         .told = cases[c].row,
                         .list = t.list,
                         .period = 1};
        assert_true(run(&changed, 1) > 0);
        assert_memory_equal(t.loss, changed.loss, sizeof t.loss); /* by no other sign */
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
