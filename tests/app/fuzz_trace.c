/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a rank's trace: refused, of another plan, or times that print to what reads
 * back the same.
 */
#include <math.h>
#include <stdlib.h>

#include "app/setup/setup.h"
#include "app/trace/trace.h"
#include "app/trace/recording.h"
#include "base/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static const char run_file[] = "model: {architecture: gpt2, hidden_size: 16, num_hidden_layers: 2, "
                               "num_attention_heads: 2, vocab_size: 300}\n"
                               "data: {train: x, sequence_length: 8}\n"
                               "training: {steps: 2, global_batch_size: 2, micro_batch_size: 1}\n"
                               "optimizer: {learning_rate: 1e-3}\n"
                               "parallel: {comm: local, threads: 1, pipeline: 2}\n"
                               "memory: {device_limit: 1GiB}\n"
                               "log: {directory: r}\n";

/* Of rank 1. */
static const ech_plan *outline(void)
{
    static ech_plan *plan;
    static ech_design design;
    ech_config *config;
    if (plan) return plan;
    if (ech_setup_config_text(run_file, "fuzz", NULL, 0, &config) != ECH_OK ||
        ech_design_create(config, NULL, 2, 2, &design) != ECH_OK ||
        ech_design_outline(&design, 1, false, &plan) != ECH_OK)
        abort();
    return plan;
}

static ech_status parse(const char *text, size_t n, ech_recorded_rank *out, bool *fits)
{
    ech_status status = ech_recording_parse(text, n, "fuzz", outline(), out, fits);
    if (status == ECH_OK && out->begin.n != out->end.n) abort();
    return status;
}

static void print_again(const ech_recorded_rank *rank)
{
    const ech_list *list = &outline()->list[ECH_LIST_TRAIN];
    ech_trace_events *events = ech_trace_events_create(outline(), (ech_comm_clock_offset){0});
    ech_recorded_rank back;
    ech_text text = {0};
    bool fits;
    size_t lists = rank->begin.n / list->step.n;
    ech_trace_events_head(events, rank->first_step, &text);
    for (size_t l = 0; l < lists; l++)
        ech_trace_events_list(events, rank->first_step + (int64_t)l * list->turns,
                              rank->begin.at + l * list->step.n, rank->end.at + l * list->step.n,
                              &text);
    if (parse(text.at, text.n, &back, &fits) != ECH_OK || !fits) abort();
    if (back.begin.n != lists * list->step.n) abort();
    for (size_t s = 0; s < back.begin.n; s++)
        if (fabs(back.begin.at[s] - rank->begin.at[s]) > 1e-9 + 1e-15 * back.begin.at[s]) abort();
    ech_recorded_rank_free(&back);
    ech_text_free(&text);
    ech_trace_events_destroy(events);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_recorded_rank rank;
    bool fits;
    ech_log_set_quiet(true);
    if (parse((const char *)bytes, n, &rank, &fits) != ECH_OK) return 0;
    if (fits && rank.world > 0) print_again(&rank);
    ech_recorded_rank_free(&rank);
    return 0;
}
