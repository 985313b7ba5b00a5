/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits between queues: a step of training on the device whose queues are threads leaves the CPU's
 * bits, and leaves others as soon as one wait is left out, whatever it is for. What should have
 * been waited for is held up then until what should have waited has ended, so the order is wrong
 * for certain.
 */

#include "app/fixture.h"
#include "gate.h"
#include "unit.h"

enum { RANKS = 4, MOST_LINES = 16, MOST_MARKS = 4096, MOST_TRIES = 12 };

/* ---- a device that leaves out a wait ---- */

/* What the lanes' threads put on a queue in a list: the same in every run, but for what transfers
 * put there. */
typedef struct line {
    ech_queue *queue;
    int records, waits;
    int awaited_line[MOST_MARKS],
        awaited_record[MOST_MARKS]; /* of a wait: the record that it is for */
} line;

/* An event of the interpreter, and where it was recorded last. */
typedef struct mark {
    const ech_event *event;
    int line, record;
} mark;

/* A rank. */
typedef struct watch {
    pthread_mutex_t lock;
    bool makes, on;  /* its queues are made; its list runs */
    bool made_queue; /* just now: the next event is that of the queue's transfers */
    int lines, marks;
    line line[MOST_LINES];
    mark mark[MOST_MARKS];
    bool leaves_out;
    int leave_line, leave_wait; /* the wait that is left out */
    /* The queue that is held up: after that record, or after its first wait if this is -1. */
    int hold_line, hold_record;
    ech_queue *early; /* whose wait is left out, until what it does ahead of that has been put */
    int ahead;        /* steps that it does */
    /* the host does not wait for the list's end, and work is held up from its beginning */
    bool host_is_early;
    ech_event *end; /* for which it does not */
    gate gate;
} watch;

static const ech_device *queued;
static _Thread_local watch *watching; /* of the rank whose thread this is */
static watch *watches_of_all[RANKS];  /* NULL: none */

static ech_status leaky_queue_create(ech_queue **out)
{
    watch *w = watching;
    ECH_TRY(queued->queue_create(out));
    if (!w || !w->makes) return ECH_OK;
    assert_true(w->lines < MOST_LINES);
    w->line[w->lines++].queue = *out;
    w->made_queue = true;
    return ECH_OK;
}

static ech_status leaky_event_create(ech_event **out)
{
    watch *w = watching;
    ECH_TRY(queued->event_create(out));
    if (!w || !w->makes) return ECH_OK;
    assert_true(w->marks < MOST_MARKS);
    if (!w->made_queue) w->mark[w->marks++] = (mark){.event = *out, .record = -1};
    w->made_queue = false;
    return ECH_OK;
}

/* Returns its rank's watch, locked. NULL: its list does not run, or it is no queue of the
 * interpreter's. */
static watch *find_line(const ech_queue *queue, int *at)
{
    for (int r = 0; r < RANKS; r++) {
        watch *w = watches_of_all[r];
        if (!w) continue;
        pthread_mutex_lock(&w->lock);
        for (*at = 0; w->on && *at < w->lines; ++*at)
            if (w->line[*at].queue == queue) return w;
        pthread_mutex_unlock(&w->lock);
    }
    return NULL;
}

/* NULL: a transfer's. */
static mark *find_mark(watch *w, const ech_event *event)
{
    for (int m = 0; m < w->marks; m++)
        if (w->mark[m].event == event) return &w->mark[m];
    return NULL;
}

static void leaky_record(ech_event *event, ech_queue *queue)
{
    int at;
    watch *w = find_line(queue, &at);
    mark *m = w ? find_mark(w, event) : NULL;
    gate *g = w ? &w->gate : NULL;
    if (m && queue == w->early && --w->ahead == 0) {
        queued->call(queue, gate_open, &g, sizeof g);
        w->early = NULL;
    }
    queued->record(event, queue);
    if (m) {
        bool holds = (w->leaves_out || w->host_is_early) && w->hold_line == at &&
                     w->hold_record == w->line[at].records;
        m->line = at;
        m->record = w->line[at].records++;
        if (holds) queued->call(queue, gate_pass, &g, sizeof g);
    }
    if (w) pthread_mutex_unlock(&w->lock);
}

static void leaky_wait(ech_queue *queue, ech_event *event)
{
    int at;
    watch *w = find_line(queue, &at);
    const mark *m = w ? find_mark(w, event) : NULL;
    if (m) {
        line *l = &w->line[at];
        gate *g = &w->gate;
        int number = l->waits++;
        assert_true(number < MOST_MARKS);
        l->awaited_line[number] = m->line;
        l->awaited_record[number] = m->record;
        if (w->leaves_out && w->leave_line == at && w->leave_wait == number)
            w->early = queue;
        else
            queued->wait(queue, event);
        if (w->leaves_out && w->hold_line == at && w->hold_record < 0 && number == 0)
            queued->call(queue, gate_pass, &g, sizeof g);
    } else {
        queued->wait(queue, event);
    }
    if (w) pthread_mutex_unlock(&w->lock);
}

static ech_status leaky_query(ech_event *event, bool *reached)
{
    watch *w = watching;
    if (!w || !w->on || !w->host_is_early) return queued->query(event, reached);
    w->end = event;
    *reached = true;
    return ECH_OK;
}

static void set_on(watch *w, bool on)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->on = on;
    pthread_mutex_unlock(&w->lock);
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
    set_on(w, true);
    ech_status status = ech_exec_run(s->exec, list, 0);
    set_on(w, false);
    ECH_TRY(status);
    const ech_readings *r = ech_exec_readings(s->exec);
    *digest = digest_of(0, &r->loss, sizeof r->loss);
    *digest = digest_of(*digest, &r->grad_norm, sizeof r->grad_norm);
    if (w && w->host_is_early) { /* now it waits, after all */
        gate_open(&(gate *){&w->gate});
        ECH_TRY(queued->synchronize(w->end));
    }
    for (int p = 0; p < (int)s->plan->model->param.n; p++) {
        if (s->plan->param[p].bucket < 0) continue;
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
    leaky.queue_create = leaky_queue_create;
    leaky.event_create = leaky_event_create;
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
    watching = leaks ? &t->watch[rank] : NULL;
    if (leaks) watching->makes = true;
    ech_status status = ech_exec_create(&setup, &s.exec);
    if (leaks) watching->makes = false;
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
    for (int r = 0; r < t->ranks && t->watch; r++) {
        pthread_mutex_init(&t->watch[r].lock, NULL);
        gate_create(&t->watch[r].gate);
        watches_of_all[r] = &t->watch[r];
    }
    ech_status status = fixture_run(config, t->ranks, run_rank, t);
    for (int r = 0; r < t->ranks && t->watch; r++) {
        watches_of_all[r] = NULL;
        pthread_mutex_destroy(&t->watch[r].lock);
        gate_destroy(&t->watch[r].gate);
    }
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
    for (int r = 0; r < RANKS; r++) watches[r] = r == rank ? *how : (watch){.on = false};
    run(&t);
    return memcmp(t.digest, right->digest, sizeof t.digest) != 0;
}

/* Leaves out a wait of a rank; `seen` has what it put. */
static bool leave_out(const watch *seen, int rank, int on, int number, int ahead,
                      const trial *right)
{
    static watch how;
    const line *l = &seen->line[on];
    how = (watch){.leaves_out = true,
                  .leave_line = on,
                  .leave_wait = number,
                  .ahead = ahead,
                  .hold_line = l->awaited_line[number],
                  .hold_record = l->awaited_record[number] - 1};
    return shows(&how, rank, right);
}

/* The number of each queue's line, in the order in which they are made: compute first, then as
 * lists need them. */
static void number_lines(const ech_plan *plan, int *line_of, int n)
{
    int lines = 1;
    for (int q = 0; q < n; q++) line_of[q] = -1;
    line_of[ECH_LANE_COMPUTE] = 0;
    for (int l = 0; l < ECH_LIST_KINDS; l++)
        for (size_t s = 0; s < plan->list[l].step.n; s++) {
            int q = ech_step_queue(&plan->list[l].step.at[s]);
            assert_true(q < n);
            if (line_of[q] < 0) line_of[q] = lines++;
        }
}

/* Each kind, until one of its waits has shown. */
static void try_rank(const trial *right, const trial *all, int rank, kind *kinds, int n)
{
    enum { MOST_QUEUES = 64 };
    const ech_list *list = &all->plan[rank]->list[all->list];
    const watch *seen = &all->watch[rank];
    int line_of[MOST_QUEUES], number[MOST_LINES]; /* of the queue's next wait */
    number_lines(all->plan[rank], line_of, MOST_QUEUES);
    for (int l = 0; l < MOST_LINES; l++) number[l] = 1; /* the first is for the list's beginning */
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        int on = line_of[ech_step_queue(step)];
        for (int i = 0; i < step->afters; i++) {
            const ech_step *after = &list->step.at[list->after.at[step->first_after + i]];
            if (ech_step_queue(step) == ech_step_queue(after)) continue;
            assert_int_equal(seen->line[on].awaited_line[number[on]],
                             line_of[ech_step_queue(after)]);
            kind *k = find_kind(kinds, n, step, after);
            if (k && !k->shown && k->tried++ < MOST_TRIES)
                k->shown = leave_out(seen, rank, on, number[on], k->ahead, right);
            number[on]++;
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
    for (int r = 0; r < ranks; r++) seen[r] = (watch){.on = false};
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

TEST(test_messages)
{
    skip_if_races_are_found();
    kind kinds[] = {{ECH_LANE_COMPUTE, ECH_LANE_RECEIVE, 1, 0, false},
                    {ECH_LANE_SEND, ECH_LANE_COMPUTE, 1, 0, false},
                    {ECH_LANE_RECEIVE, ECH_LANE_COMPUTE, 1, 0, false}};
    try_kinds("parallel.pipeline=2 parallel.schedule=1f1b training.micro_batch_size=1", 2,
              ECH_LIST_TRAIN, kinds, 3);
}

/* In training the answer to a message has come before its memory is used again; in validation there
 * is none. */
TEST(test_sent_memory)
{
    skip_if_races_are_found();
    kind kinds[] = {{ECH_LANE_COMPUTE, ECH_LANE_SEND, 4, 0, false}};
    try_kinds("parallel.pipeline=2 training.micro_batch_size=1 training.validate_every=1", 2,
              ECH_LIST_VALIDATE, kinds, 1);
}

TEST(test_collectives)
{
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

TEST(test_host)
{
    skip_if_races_are_found();
    static const watch early = {.host_is_early = true};
    trial right = {.words = "", .ranks = 1, .list = ECH_LIST_TRAIN, .device = "cpu"};
    run(&right);
    assert_true(shows(&early, 0, &right));
}

ALL_TESTS(fixture_setup, fixture_teardown)

int main(void)
{
    queued = ech_device_find("queued");
    return unit_run(NULL);
}
