/* SPDX-License-Identifier: Apache-2.0
 *
 * SGD of a sparse logistic regression by threads with common weights, as small as it can be: what
 * hogwild.py compares Echelon with.
 *
 *   bench_hogwild FILE FEATURES EACH BATCH SECONDS WAY THREADS
 *
 * FILE has samples: a label of 0 or 1 (int32), EACH numbers of features (int32), EACH values
 * (float32). Threads take batches by turns. Of a batch each reads the weights, computes the
 * samples' slopes, and then changes the weights. WAY says how: `atomic`, each number by a
 * compare-and-swap (Niu et al. 2011); `mutex`, all of the batch's under one mutex; `alone`, of one
 * thread. Prints samples per second, and the mean loss of the last pass over the file.
 */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_THREADS = 64, MOST_BATCH = 65536 };

static struct {
    const int32_t *label, *index;
    const float *value;
    int64_t samples, each, batch;
    int threads;
    double seconds;
    enum { ALONE, ATOMIC, MUTEX } way;
    float *weight; /* [features], and the bias */
    int64_t bias;
    float rate;
    pthread_mutex_t lock;
    pthread_barrier_t barrier;
    atomic_bool ended;
    int64_t done[MOST_THREADS];
    double loss[MOST_THREADS]; /* of a thread's last pass, a mean */
} run = {.lock = PTHREAD_MUTEX_INITIALIZER};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float read_weight(int64_t i)
{
    return atomic_load_explicit((_Atomic float *)&run.weight[i], memory_order_relaxed);
}

static void add_atomic(int64_t i, float by)
{
    _Atomic float *at = (_Atomic float *)&run.weight[i];
    float old = atomic_load_explicit(at, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(at, &old, old + by, memory_order_relaxed,
                                                  memory_order_relaxed))
        continue;
}

static void add_plain(int64_t i, float by)
{
    atomic_store_explicit((_Atomic float *)&run.weight[i], read_weight(i) + by,
                          memory_order_relaxed);
}

/* The slope of a sample's loss by its logit. */
static float slope_of(int64_t s, double *loss)
{
    const int32_t *index = run.index + s * run.each;
    const float *value = run.value + s * run.each;
    float z = read_weight(run.bias), sign = run.label[s] ? 1.0F : -1.0F;
    for (int64_t k = 0; k < run.each; k++) z += read_weight(index[k]) * value[k];
    *loss += (double)(z * sign > 0 ? log1pf(expf(-sign * z)) : log1pf(expf(sign * z)) - sign * z);
    return -sign / (1 + expf(sign * z));
}

/* Both ways inlined, so that neither pays for a choice at each number. */
static inline void change(int64_t first, const float *slope, void (*add)(int64_t, float))
{
    float step = -run.rate / (float)run.batch;
    for (int64_t b = 0; b < run.batch; b++) {
        const int32_t *index = run.index + (first + b) * run.each;
        const float *value = run.value + (first + b) * run.each;
        for (int64_t k = 0; k < run.each; k++) add(index[k], step * slope[b] * value[k]);
        add(run.bias, step * slope[b]);
    }
}

static void change_all(int64_t first, const float *slope)
{
    if (run.way == MUTEX) pthread_mutex_lock(&run.lock);
    if (run.way == ATOMIC)
        change(first, slope, add_atomic);
    else
        change(first, slope, add_plain);
    if (run.way == MUTEX) pthread_mutex_unlock(&run.lock);
}

static void *work(void *argument)
{
    int me = (int)(intptr_t)argument;
    int64_t batches = run.samples / run.batch;
    float *slope = calloc((size_t)run.batch, sizeof *slope);
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET((size_t)me, &core);
    (void)sched_setaffinity(0, sizeof core, &core);
    pthread_barrier_wait(&run.barrier);
    while (slope && !atomic_load(&run.ended)) {
        double loss = 0;
        int64_t seen = 0;
        for (int64_t b = me; b < batches && !atomic_load(&run.ended); b += run.threads) {
            for (int64_t i = 0; i < run.batch; i++) slope[i] = slope_of(b * run.batch + i, &loss);
            change_all(b * run.batch, slope);
            seen += run.batch;
        }
        run.done[me] += seen;
        run.loss[me] = loss / (double)(seen ? seen : 1);
    }
    free(slope);
    return NULL;
}

/* Of the file's records columns. */
static bool read_file(const char *path, int64_t each)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) return false;
    size_t record = 4 * (1 + 2 * (size_t)each), bytes = (size_t)ftell(file), n = bytes / record;
    char *all = malloc(bytes);
    int32_t *label = malloc(4 * n), *index = malloc(4 * n * (size_t)each);
    float *value = malloc(4 * n * (size_t)each);
    rewind(file);
    if (!all || !label || !index || !value || fread(all, 1, bytes, file) != bytes) return false;
    fclose(file);
    for (size_t s = 0; s < n; s++) {
        const char *at = all + s * record;
        memcpy(&label[s], at, 4);
        memcpy(index + s * (size_t)each, at + 4, 4 * (size_t)each);
        memcpy(value + s * (size_t)each, at + 4 + 4 * (size_t)each, 4 * (size_t)each);
    }
    free(all);
    run.label = label;
    run.index = index;
    run.value = value;
    run.samples = (int64_t)n;
    return true;
}

int main(int count, char **words)
{
    static const char *const ways[] = {"alone", "atomic", "mutex"};
    pthread_t thread[MOST_THREADS];
    if (count != 8) return 2;
    int64_t features = atoll(words[2]);
    run.each = atoll(words[3]);
    run.batch = atoll(words[4]);
    run.seconds = atof(words[5]);
    while (run.way < MUTEX && strcmp(ways[run.way], words[6]) != 0) run.way++;
    run.threads = run.way == ALONE ? 1 : atoi(words[7]);
    if (run.threads < 1 || run.threads > MOST_THREADS || run.batch < 1 || run.batch > MOST_BATCH ||
        !read_file(words[1], run.each) || run.samples < run.batch * run.threads) {
        fprintf(stderr, "%s cannot be trained on\n", words[1]);
        return 2;
    }
    run.bias = features;
    run.weight = calloc((size_t)features + 1, sizeof *run.weight);
    run.rate = 2.0F / (float)run.threads;
    pthread_barrier_init(&run.barrier, NULL, (unsigned)run.threads + 1);
    for (int t = 0; t < run.threads; t++)
        if (pthread_create(&thread[t], NULL, work, (void *)(intptr_t)t) != 0) return 2;
    pthread_barrier_wait(&run.barrier);
    double began = now(), rest = run.seconds, loss = 0;
    struct timespec wait = {(time_t)rest, (long)(1e9 * (rest - floor(rest)))};
    nanosleep(&wait, NULL);
    atomic_store(&run.ended, true);
    for (int t = 0; t < run.threads; t++) pthread_join(thread[t], NULL);
    double took = now() - began;
    int64_t done = 0;
    for (int t = 0; t < run.threads; t++) done += run.done[t];
    for (int t = 0; t < run.threads; t++) loss += run.loss[t] / run.threads;
    printf("%.1f %.5f\n", (double)done / took, loss);
    return 0;
}
