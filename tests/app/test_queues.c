/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits between queues: a step of training on the device whose queues are threads leaves the CPU's bits, and leaves
 * others as soon as one wait is left out, whatever it is for. What should have been waited for is held up then until
 * what should have waited has ended, so the order is wrong for certain.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "app/fixture.h"

enum { RANKS = 4, MOST_MARKS = 4096, HOLD_MS = 400, MOST_TRIES = 12 };

/* A queue's work that is held up; not for longer than HOLD_MS, where the wait that is left out follows from others. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
} gate;

static void open_gate(void *argument)
{
    gate *g = *(gate **)argument;
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void pass_gate(void *argument)
{
    gate *g = *(gate **)argument;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += HOLD_MS * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&g->lock);
    while (!g->open && pthread_cond_timedwait(&g->changed, &g->lock, &end) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&g->lock);
}

/* ---- a device that leaves out a wait ---- */

typedef struct mark {
    ech_event *event;
    ech_queue *queue;
} mark;

/* What a rank's thread puts on queues in a list. */
typedef struct watch {
    bool on;
    int records, waits;
    mark record[MOST_MARKS], wait[MOST_MARKS];
    int record_of[MOST_MARKS]; /* of a wait: the number of the record that it is for */
    int leave_out;             /* number of a wait; -1: none */
    int hold_record; /* number of the record behind which its queue is held up; -1: see hold_wait */
    int hold_wait;   /* number of the wait behind which its queue is held up */
    ech_queue *early; /* whose wait is left out, until what it does ahead of that has been put */
    int ahead;        /* steps that it does */
    bool
        host_is_early; /* the host does not wait for the list's end, and work is held up from its beginning */
    ech_event *end; /* for which it does not */
    gate gate;
} watch;

static const ech_device *queued;
static _Thread_local watch *watching; /* NULL: this thread puts nothing on queues */

static void leaky_record(ech_event *event, ech_queue *queue)
{
    watch *w = watching;
    gate *g = w ? &w->gate : NULL;
    if (w && w->on && queue == w->early && --w->ahead == 0) {
        queued->call(queue, open_gate, &g, sizeof g);
        w->early = NULL;
    }
    queued->record(event, queue);
    if (!w || !w->on) return;
    assert_true(w->records < MOST_MARKS);
    if ((w->leave_out >= 0 || w->host_is_early) && w->records == w->hold_record)
        queued->call(queue, pass_gate, &g, sizeof g);
    w->record[w->records++] = (mark){event, queue};
}

static void leaky_wait(ech_queue *queue, ech_event *event)
{
    watch *w = watching;
    if (!w || !w->on) {
        queued->wait(queue, event);
        return;
    }
    int record = w->records - 1;
    while (record >= 0 && w->record[record].event != event) record--;
    assert_true(w->waits < MOST_MARKS);
    w->record_of[w->waits] = record;
    w->wait[w->waits] = (mark){event, queue};
    if (w->waits == w->leave_out)
        w->early = queue;
    else
        queued->wait(queue, event);
    gate *g = &w->gate;
    if (w->leave_out >= 0 && w->hold_record < 0 && w->waits == w->hold_wait)
        queued->call(queue, pass_gate, &g, sizeof g);
    w->waits++;
}

static ech_status leaky_query(ech_event *event, bool *reached)
{
    watch *w = watching;
    if (!w || !w->on || !w->host_is_early) return queued->query(event, reached);
    w->end = event;
    *reached = true;
    return ECH_OK;
}

/* ---- a run of one list ---- */

typedef struct trial {
    const char *words;
    int ranks;
    ech_list_kind list; /* that is watched */
    const char *device; /* "leaky": as above */
    watch *watch;       /* [RANKS] */
    uint64_t digest[RANKS];
    ech_plan *plan[RANKS]; /* to be kept, if `keeps` */
    bool keeps;
} trial;

static uint64_t digest_of(uint64_t digest, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) digest = (digest ^ at[i]) * UINT64_C(0x100000001b3);
    return digest;
}

static ech_status run_lists(const ech_session *s, const ech_device *device, ech_list_kind list,
                            watch *w, uint64_t *digest)
{
    ECH_TRY(ech_exec_run(s->exec, ECH_LIST_INIT, 0));
    watching = w;
    if (w) w->on = true;
    ech_status status = ech_exec_run(s->exec, list, 0);
    if (w) w->on = false;
    ECH_TRY(status);
    const ech_readings *r = ech_exec_readings(s->exec);
    *digest = digest_of(0, &r->loss, sizeof r->loss);
    *digest = digest_of(*digest, &r->grad_norm, sizeof r->grad_norm);
    if (w && w->host_is_early) { /* now it waits, after all */
        open_gate(&(gate *){&w->gate});
        ECH_TRY(queued->synchronize(w->end));
    }
    for (int p = 0; p < (int)s->plan->model->param.n; p++) {
        if (s->plan->param[p].value < 0) continue;
        ech_tensor x = ech_exec_param(s->exec, p);
        *digest = digest_of(*digest, ech_device_reach(device, x.data), ech_tensor_bytes(&x));
    }
    return ECH_OK;
}

static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    trial *t = context;
    int rank = ech_comm_rank(comm);
    ech_device leaky = *queued;
    leaky.record = leaky_record;
    leaky.wait = leaky_wait;
    leaky.query = leaky_query;
    bool leaks = strcmp(t->device, "leaky") == 0;
    ech_session s = {0};
    ech_corpus *corpus = NULL;
    ech_loader *loader = NULL;
    ECH_TRY(ech_design_plan(design, rank, false, &s.plan));
    ech_exec_setup setup = {.config = design->config,
                            .plan = s.plan,
                            .device = leaks ? &leaky : ech_device_find(t->device),
                            .comm = comm};
    ech_status status = ech_exec_create(&setup, &s.exec);
    bool trains = t->list == ECH_LIST_TRAIN;
    if (status == ECH_OK)
        status = ech_design_open_data(design, trains ? ECH_SPLIT_TRAIN : ECH_SPLIT_VALID, &corpus);
    if (status == ECH_OK)
        status = ech_session_read(&s, design, corpus, trains ? ECH_TRAIN : ECH_EVALUATE, 0,
                                  trains ? INT64_MAX : 12, &loader);
    if (status == ECH_OK)
        status =
            run_lists(&s, setup.device, t->list, leaks ? &t->watch[rank] : NULL, &t->digest[rank]);
    ech_exec_destroy(s.exec);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
    watching = NULL;
    if (t->keeps)
        t->plan[rank] = s.plan;
    else
        ech_plan_destroy(s.plan);
    return status;
}

static void run(trial *t)
{
    char words[400];
    snprintf(words, sizeof words, "%s parallel.device=%s", t->words,
             strcmp(t->device, "cpu") == 0 ? "cpu" : "queued");
    ech_config *config = fixture_config("gpt2", words);
    ech_status status = fixture_run(config, t->ranks, run_rank, t);
    ech_config_destroy(config);
    if (status != ECH_OK) fail_msg("%s: %s", t->device, ech_last_error());
}

/* ---- what a wait is for ---- */

/* Which lane's step waits for which lane's. */
typedef struct kind {
    ech_lane waits, awaited;
    int ahead; /* steps that are done too early: a message's memory is used again by a later one */
    int tried;
    bool shown;
} kind;

static kind *find_kind(kind *kinds, int n, const ech_step *waits, const ech_step *awaited)
{
    for (int k = 0; k < n; k++)
        if (kinds[k].waits == waits->lane && kinds[k].awaited == awaited->lane) return &kinds[k];
    return NULL;
}

/* Runs with what `how` says of the rank. Whether it shows. */
static bool shows(const watch *how, int rank, const trial *right)
{
    static watch watches[RANKS];
    trial t = *right;
    t.device = "leaky";
    t.watch = watches;
    for (int r = 0; r < RANKS; r++) {
        watches[r] = r == rank ? *how : (watch){.leave_out = -1};
        pthread_mutex_init(&watches[r].gate.lock, NULL);
        pthread_cond_init(&watches[r].gate.changed, NULL);
    }
    run(&t);
    for (int r = 0; r < RANKS; r++) {
        pthread_mutex_destroy(&watches[r].gate.lock);
        pthread_cond_destroy(&watches[r].gate.changed);
    }
    return memcmp(t.digest, right->digest, sizeof t.digest) != 0;
}

/* Leaves out wait `number` of a rank, whose waits and records `seen` has. */
static bool leave_out(const watch *seen, int rank, int number, int ahead, const trial *right)
{
    static watch how;
    int record = seen->record_of[number];
    const ech_queue *held = seen->record[record].queue;
    how = (watch){.leave_out = number, .ahead = ahead, .hold_record = record - 1};
    while (how.hold_record >= 0 && seen->record[how.hold_record].queue != held) how.hold_record--;
    while (seen->wait[how.hold_wait].queue != held) how.hold_wait++;
    return shows(&how, rank, right);
}

/* Each kind, until one of its waits has shown. */
static void try_rank(const trial *right, const trial *all, int rank, kind *kinds, int n)
{
    const ech_list *list = &all->plan[rank]->list[all->list];
    const watch *seen = &all->watch[rank];
    int number = 0; /* of the wait: first come those of each queue for the list's beginning */
    while (number < seen->waits && seen->record_of[number] == 0) number++;
    ECH_FREED int *order = ech_calloc(list->step.n, sizeof *order);
    ech_list_put_order(list, order);
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[order[s]];
        for (int i = 0; i < step->afters; i++) {
            const ech_step *after = &list->step.at[list->after.at[step->first_after + i]];
            if (ech_step_queue(step) == ech_step_queue(after)) continue;
            kind *k = find_kind(kinds, n, step, after);
            if (k && !k->shown && k->tried++ < MOST_TRIES)
                k->shown = leave_out(seen, rank, number, k->ahead, right);
            number++;
        }
    }
}

static void try_kinds(const char *words, int ranks, ech_list_kind list, kind *kinds, int n)
{
    static watch seen[RANKS];
    trial right = {.words = words, .ranks = ranks, .list = list, .device = "cpu"}, all = right;
    all.device = "leaky";
    all.watch = seen;
    all.keeps = true;
    for (int r = 0; r < ranks; r++) seen[r] = (watch){.leave_out = -1};
    run(&right);
    run(&all);
    assert_memory_equal(right.digest, all.digest, sizeof right.digest);
    for (int rank = 0; rank < ranks; rank++) {
        try_rank(&right, &all, rank, kinds, n);
        ech_plan_destroy(all.plan[rank]);
    }
    for (int k = 0; k < n; k++)
        if (!kinds[k].shown)
            fail_msg("%s does not wait for %s, and nothing shows it: %d tried",
                     ech_lane_name(kinds[k].waits), ech_lane_name(kinds[k].awaited),
                     kinds[k].tried);
}

/* What races if a wait is left out is no finding of the thread sanitizer's. */
static void skip_if_races_are_found(void)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
}

/* Layouts with a pipeline, tensor, context and data ranks. */
static void test_queues_leave_the_same_bits(void **state)
{
    (void)state;
    static const char *const words[] = {
        "parallel.pipeline=2 parallel.schedule=zero-bubble parallel.data=2 "
        "training.micro_batch_size=1",
        "parallel.pipeline=2 parallel.tensor=2 parallel.sequence=true training.micro_batch_size=2 "
        "model.vocab_size=264",
        "parallel.pipeline=2 parallel.context=2 parallel.schedule=pipedream "
        "training.micro_batch_size=2 data.sequence_length=12 model.tie_word_embeddings=false",
        "parallel.data=4 memory.recompute=full parallel.bucket_bytes=1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        trial right = {.words = words[i], .ranks = RANKS, .list = ECH_LIST_TRAIN, .device = "cpu"};
        trial found = right;
        found.device = "queued";
        run(&right);
        run(&found);
        assert_memory_equal(right.digest, found.digest, sizeof right.digest);
    }
}

static void test_messages(void **state)
{
    (void)state;
    skip_if_races_are_found();
    kind kinds[] = {{ECH_LANE_COMPUTE, ECH_LANE_RECEIVE, 1, 0, false},
                    {ECH_LANE_SEND, ECH_LANE_COMPUTE, 1, 0, false},
                    {ECH_LANE_RECEIVE, ECH_LANE_COMPUTE, 1, 0, false}};
    try_kinds("parallel.pipeline=2 parallel.schedule=1f1b training.micro_batch_size=1", 2,
              ECH_LIST_TRAIN, kinds, 3);
}

/* In training the answer to a message has come before its memory is used again; in validation there is none. */
static void test_sent_memory(void **state)
{
    (void)state;
    skip_if_races_are_found();
    kind kinds[] = {{ECH_LANE_COMPUTE, ECH_LANE_SEND, 4, 0, false}};
    try_kinds("parallel.pipeline=2 training.micro_batch_size=1 training.validate_every=1", 2,
              ECH_LIST_VALIDATE, kinds, 1);
}

static void test_collectives(void **state)
{
    (void)state;
    skip_if_races_are_found();
    kind kinds[] = {{ECH_LANE_COLLECTIVE, ECH_LANE_COMPUTE, 1, 0, false},
                    {ECH_LANE_COMPUTE, ECH_LANE_COLLECTIVE, 1, 0, false},
                    {ECH_LANE_COLLECTIVE, ECH_LANE_RECEIVE, 1, 0, false},
                    {ECH_LANE_REDUCE, ECH_LANE_COMPUTE, 1, 0, false},
                    {ECH_LANE_COMPUTE, ECH_LANE_REDUCE, 1, 0, false}};
    try_kinds("parallel.pipeline=2 parallel.tensor=2 parallel.sequence=true "
              "training.micro_batch_size=2 model.vocab_size=264",
              4, ECH_LIST_TRAIN, kinds, 5);
}

static void test_host(void **state)
{
    (void)state;
    skip_if_races_are_found();
    static const watch early = {.leave_out = -1, .host_is_early = true};
    trial right = {.words = "", .ranks = 1, .list = ECH_LIST_TRAIN, .device = "cpu"};
    run(&right);
    assert_true(shows(&early, 0, &right));
}

int main(void)
{
    queued = ech_device_find("queued");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queues_leave_the_same_bits), cmocka_unit_test(test_messages),
        cmocka_unit_test(test_sent_memory), cmocka_unit_test(test_host),
        cmocka_unit_test(test_collectives)};
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
