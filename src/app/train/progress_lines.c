/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of lines that several kinds of notes share.
 */
#include "app/train/progress_notes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void ech_progress_append_code(const char *text, ech_text *out)
{
    for (const char *at = text; *at;) {
        int n = (int)strcspn(at, "\n");
        ech_text_append(out, "    %.*s\n", n, at);
        at += n + (at[n] == '\n');
    }
}

void ech_progress_add(ech_journal *journal, ech_text *record)
{
    ech_journal_add(journal, record->at, record->n);
    ech_text_free(record);
}

void ech_progress_add_json(ech_progress *p, ech_text *json)
{
    ech_text_append(json, "}\n");
    ech_progress_add(p->metrics, json);
}

void ech_progress_add_scalars(ech_progress *p, double at, int64_t step,
                              const ech_event_scalar *scalars, int n)
{
    ech_text event = {0};
    if (!p->events) return;
    ech_event_scalars(at, step, scalars, n, &event);
    ech_progress_add(p->events, &event);
}

void ech_progress_begin_line(const ech_progress *p, int64_t step, ech_text *out)
{
    ech_text_append(out, "step %5" PRId64 "/%" PRId64 " | ", step, p->steps);
}

const char *ech_progress_unit_key(const ech_progress *p, const char *before, const char *after,
                                  char key[ECH_UNIT_KEY_BYTES])
{
    snprintf(key, ECH_UNIT_KEY_BYTES, "%s%ss%s", before, p->row->unit, after);
    return key;
}

void ech_progress_append_loss(double loss, bool none, ech_text *out)
{
    if (none)
        ech_text_append(out, "loss: none, no token is a target");
    else
        ech_text_append(out, "loss %.4f", loss);
}

/* Number of validations after steps `first` and later. */
static int64_t validations_from(const ech_progress *p, int64_t first)
{
    int64_t every = p->validate_every, last = p->steps - 1;
    if (!p->validates || first > p->steps) return 0;
    if (every == 0 || first > last) return 1;
    return last / every - (first > 0 ? (first - 1) / every : 0) + 1;
}

double ech_progress_seconds_left(const ech_progress *p, int64_t step, int64_t validated)
{
    double steps = p->step_seconds > 0 ? p->step_seconds : 0;
    return (double)(p->steps - step) * steps +
           (double)validations_from(p, validated) * p->valid_seconds;
}
