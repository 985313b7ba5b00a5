/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a rank's trace: refused, or a trace whose lists tile its steps, and which prints as
 * trace events.
 */
#include <jansson.h>
#include <stdlib.h>

#include "app/trace/perfetto.h"
#include "base/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check(const ech_rank_trace *trace)
{
    size_t steps = 0;
    int64_t last = trace->first_step - 1;
    if (trace->world == 0 && trace->step.n) abort();
    if (trace->world && (trace->rank < 0 || trace->rank >= trace->world)) abort();
    for (size_t l = 0; l < trace->list.n; l++) {
        const ech_traced_list *list = &trace->list.at[l];
        if (list->first != steps || list->n == 0 || list->step <= last) abort();
        steps += list->n;
        last = list->step;
    }
    if (steps != trace->step.n) abort();
    for (size_t s = 0; s < steps; s++) {
        const ech_traced_step *step = &trace->step.at[s];
        if (!(step->begin <= step->end)) abort();
        if (step->name >= trace->names.n || step->peer >= trace->world) abort();
        if ((step->block < 0) != (step->chunk < 0) || (step->block < 0) != (step->micro < 0))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_rank_trace trace;
    ech_log_set_quiet(true);
    if (ech_rank_trace_parse((const char *)bytes, n, "fuzz", &trace) != ECH_OK) return 0;
    check(&trace);
    ech_text text = {0};
    ech_perfetto_print(&trace, 1, &text);
    json_t *root = json_loadb(text.at, text.n, JSON_REJECT_DUPLICATES, NULL);
    if (json_array_size(json_object_get(root, "traceEvents")) < trace.step.n) abort();
    json_decref(root);
    ech_text_free(&text);
    ech_rank_trace_free(&trace);
    return 0;
}
