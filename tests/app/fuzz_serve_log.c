/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as serves.jsonl: refused, or the pushes of whole spans, each once, in its
 * worker's order and not too far ahead; written again they read the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "app/setup/setup.h"
#include "base/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { RANKS = 5, WORKERS = 3, TURNS = 2, STALENESS = 1 };

static const char run_file[] =
    "model: {architecture: gpt2, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 1, "
    "vocab_size: 9}\n"
    "data: {train: none, sequence_length: 4}\n"
    "training: {steps: 6, global_batch_size: 6, micro_batch_size: 1, check_every: 0}\n"
    "optimizer: {learning_rate: 1e-3}\n"
    "parallel: {comm: local, strategy: ssp, staleness: 1, data: 3, servers: 2, flush_every: 2}\n"
    "log: {directory: none}\n";

static ech_design design;

static void open_design(void)
{
    ech_config *config;
    if (ech_setup_config_text(run_file, "fuzz", NULL, 0, &config) != ECH_OK) abort();
    if (ech_design_create(config, NULL, RANKS, RANKS, &design) != ECH_OK) abort();
}

static ech_status read_bytes(const void *bytes, size_t n, ech_serve_log **out)
{
    char path[40];
    int fd = memfd_create("serves", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n) abort();
    ech_status status =
        ech_serve_log_read(path, design.config, design.layout, design.schedule, out);
    close(fd);
    return status;
}

/* next: [WORKERS] clocks; -1: not known. */
static void check_span(const ech_serve *push, int64_t *next)
{
    int done[WORKERS] = {0}, left[WORKERS] = {0};
    for (int i = 0; i < WORKERS * TURNS; i++) {
        int w = push[i].worker, least = TURNS, most = 0;
        if (w < 0 || w >= WORKERS || push[i].clock < 0 || push[i].read != left[w]) abort();
        if (next[w] >= 0 && push[i].clock != next[w]) abort();
        next[w] = push[i].clock + 1;
        done[w]++;
        left[w] = i + 1;
        for (int other = 0; other < WORKERS; other++) {
            least = done[other] < least ? done[other] : least;
            most = done[other] > most ? done[other] : most;
        }
        if (most > TURNS || most - least > STALENESS) abort();
    }
}

static void check(const ech_serve_log *log)
{
    ech_text text = {0};
    ech_serve_log *again;
    int64_t next[WORKERS];
    size_t pushes = (size_t)(log->end - log->first) * WORKERS;
    if (log->end < design.config->training.steps || log->serve.n != pushes) abort();
    for (int w = 0; w < WORKERS; w++) next[w] = log->first ? -1 : 0;
    ech_serve_log_begin(design.config, design.layout, design.schedule, log->first, &text);
    for (int64_t step = log->first; step < log->end; step += TURNS) {
        check_span(ech_serve_log_span(log, step), next);
        ech_serve_log_add(step + TURNS, ech_serve_log_span(log, step), log->pushes, &text);
    }
    if (read_bytes(text.at, text.n, &again) != ECH_OK) abort();
    if (again->first != log->first || again->serve.n != pushes) abort();
    for (size_t i = 0; i < pushes; i++)
        if (again->serve.at[i].worker != log->serve.at[i].worker ||
            again->serve.at[i].withheld != log->serve.at[i].withheld)
            abort();
    ech_serve_log_destroy(again);
    ech_text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_serve_log *log;
    ech_log_set_quiet(true);
    if (!design.config) open_design();
    if (read_bytes(bytes, n, &log) != ECH_OK) return 0;
    check(log);
    ech_serve_log_destroy(log);
    return 0;
}
