/* SPDX-License-Identifier: Apache-2.0
 *
 * Event files of a run.
 */
#include "app/train/event_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/journal.h"
#include "base/memory.h"

struct ech_events {
    ech_journal *journal;
};

/* Takes the record. */
static void add(ech_events *events, ech_text *record)
{
    ech_journal_add(events->journal, record->at, record->n);
    ech_text_free(record);
}

static char *name_file(const char *folder, int64_t start)
{
    struct utsname machine;
    ECH_FREED_TEXT name = {0};
    if (uname(&machine) != 0 || !machine.nodename[0]) machine.nodename[0] = '\0';
    ech_text_append(&name, "events.out.tfevents.%lld.%s.%05" PRId64, (long long)time(NULL),
                    machine.nodename[0] ? machine.nodename : "echelon", start);
    char *path = ech_file_join(folder, name.at);
    return path;
}

ech_status ech_events_open(const char *folder, int64_t first_step, int64_t start, ech_events **out)
{
    ech_events *events = ech_calloc(1, sizeof *events);
    ECH_FREED char *path = name_file(folder, start);
    ech_status status = ech_journal_open(path, true, &events->journal);
    if (status != ECH_OK) {
        free(events);
        return status;
    }
    ech_text record = {0};
    ech_event_version(ech_clock_wall(), &record);
    /* A checkpoint is of a step that is done: what is logged of it stays. */
    ech_event_start(ech_clock_wall(), first_step + 1, &record);
    add(events, &record);
    *out = events;
    return ECH_OK;
}

void ech_events_scalars(ech_events *events, double wall_time, int64_t step,
                        const ech_event_scalar *scalars, int n)
{
    ech_text record = {0};
    ech_event_scalars(wall_time, step, scalars, n, &record);
    add(events, &record);
}

void ech_events_text(ech_events *events, int64_t step, const char *tag, const char *text)
{
    ech_text record = {0};
    ech_event_text(ech_clock_wall(), step, tag, text, &record);
    add(events, &record);
}

void ech_events_close(ech_events *events)
{
    if (!events) return;
    ech_journal_close(events->journal);
    free(events);
}
