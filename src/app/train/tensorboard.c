/* SPDX-License-Identifier: Apache-2.0
 *
 * Event files of a run: events through protobuf-c, checksums through ISA-L.
 */
#include "app/train/tensorboard.h"

#include <inttypes.h>
#include <isa-l/crc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <tensorboard.pb-c.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"

enum { SESSION_START = 1, DATA_CLASS_TENSOR = 2, DT_STRING = 7 };

/* Masked, since checksums of data that contains checksums would be weak. */
static uint32_t masked_crc(const void *bytes, size_t n)
{
    /* ISA-L's parameter is not const, but it only reads. */
    uint32_t crc = ~crc32_iscsi((unsigned char *)(uintptr_t)bytes, (int)n, UINT32_MAX);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static void append_record(const Tb__Event *event, ech_text *out)
{
    uint64_t n = tb__event__get_packed_size(event);
    ECH_FREED uint8_t *packed = ech_calloc(n + 1, 1);
    tb__event__pack(event, packed);
    uint32_t length_crc = masked_crc(&n, sizeof n), crc = masked_crc(packed, n);
    ech_text_append_bytes(out, &n, sizeof n);
    ech_text_append_bytes(out, &length_crc, sizeof length_crc);
    ech_text_append_bytes(out, packed, n);
    ech_text_append_bytes(out, &crc, sizeof crc);
}

/* step -1: none. */
static Tb__Event event_of(double wall_time, int64_t step)
{
    Tb__Event event = TB__EVENT__INIT;
    event.has_wall_time = 1;
    event.wall_time = wall_time;
    event.has_step = step >= 0;
    event.step = step;
    return event;
}

void ech_event_version(double wall_time, ech_text *out)
{
    Tb__Event event = event_of(wall_time, -1);
    char version[] = "brain.Event:2";
    event.file_version = version;
    append_record(&event, out);
}

void ech_event_start(double wall_time, int64_t step, ech_text *out)
{
    Tb__Event event = event_of(wall_time, step);
    Tb__SessionLog log = TB__SESSION_LOG__INIT;
    log.has_status = 1;
    log.status = SESSION_START;
    event.session_log = &log;
    append_record(&event, out);
}

static void append_summary(Tb__Event *event, Tb__Value **values, size_t n, ech_text *out)
{
    Tb__Summary summary = TB__SUMMARY__INIT;
    summary.n_value = n;
    summary.value = values;
    event->summary = &summary;
    append_record(event, out);
}

void ech_event_scalars(double wall_time, int64_t step, const ech_event_scalar *scalars, int n,
                       ech_text *out)
{
    Tb__Event event = event_of(wall_time, step);
    Tb__Value value[ECH_EVENT_SCALARS], *at[ECH_EVENT_SCALARS];
    ECH_ASSERT(n <= ECH_EVENT_SCALARS);
    for (int i = 0; i < n; i++) {
        value[i] = (Tb__Value)TB__VALUE__INIT;
        value[i].tag = ech_strdup(scalars[i].tag);
        value[i].has_simple_value = 1;
        value[i].simple_value = (float)scalars[i].value;
        at[i] = &value[i];
    }
    append_summary(&event, at, (size_t)n, out);
    for (int i = 0; i < n; i++) free(value[i].tag);
}

/* A legacy HistogramProto, which TensorBoard converts. Moments are of the intervals' middles. */
void ech_event_histogram(double wall_time, int64_t step, const char *tag, int first,
                         const double *counts, int n, ech_text *out)
{
    Tb__Event event = event_of(wall_time, step);
    Tb__Histogram histogram = TB__HISTOGRAM__INIT;
    Tb__Value value = TB__VALUE__INIT, *at = &value;
    ECH_FREED double *limits = ech_calloc((size_t)n + 1, sizeof *limits);
    ECH_FREED double *copy = ech_calloc((size_t)n + 1, sizeof *copy);
    histogram.has_min = histogram.has_max = histogram.has_num = true;
    histogram.has_sum = histogram.has_sum_squares = true;
    histogram.min = first;
    histogram.max = first + n;
    for (int i = 0; i < n; i++) {
        double middle = first + i + 0.5;
        limits[i] = first + i + 1;
        copy[i] = counts[i];
        histogram.num += counts[i];
        histogram.sum += counts[i] * middle;
        histogram.sum_squares += counts[i] * middle * middle;
    }
    histogram.n_bucket_limit = histogram.n_bucket = (size_t)n;
    histogram.bucket_limit = limits;
    histogram.bucket = copy;
    value.tag = ech_strdup(tag);
    value.histo = &histogram;
    append_summary(&event, &at, 1, out);
    free(value.tag);
}

void ech_event_text(double wall_time, int64_t step, const char *tag, const char *text,
                    ech_text *out)
{
    Tb__Event event = event_of(wall_time, step);
    Tb__PluginData plugin = TB__PLUGIN_DATA__INIT;
    Tb__SummaryMetadata metadata = TB__SUMMARY_METADATA__INIT;
    Tb__TensorShape shape = TB__TENSOR_SHAPE__INIT;
    Tb__Tensor tensor = TB__TENSOR__INIT;
    Tb__Value value = TB__VALUE__INIT, *at = &value;
    char name[] = "text", *bytes = ech_strdup(text);
    ProtobufCBinaryData string = {.len = strlen(bytes), .data = (uint8_t *)bytes};
    plugin.plugin_name = name;
    metadata.plugin_data = &plugin;
    metadata.has_data_class = 1;
    metadata.data_class = DATA_CLASS_TENSOR;
    tensor.has_dtype = 1;
    tensor.dtype = DT_STRING;
    tensor.shape = &shape;
    tensor.n_string_val = 1;
    tensor.string_val = &string;
    value.tag = ech_strdup(tag);
    value.tensor = &tensor;
    value.metadata = &metadata;
    append_summary(&event, &at, 1, out);
    free(value.tag);
    free(bytes);
}

static char *name_file(const char *folder, int64_t start)
{
    struct utsname machine;
    ECH_FREED_TEXT name = {0};
    bool named = uname(&machine) == 0 && machine.nodename[0];
    ech_text_append(&name, "events.out.tfevents.%lld.%s.%05" PRId64, (long long)time(NULL),
                    named ? machine.nodename : "echelon", start);
    char *path = ech_file_join(folder, name.at);
    return path;
}

ech_status ech_event_file_open(const char *folder, int64_t first_step, int64_t start,
                               ech_journal **out)
{
    ECH_FREED char *path = name_file(folder, start);
    ECH_FREED_TEXT records = {0};
    ECH_TRY(ech_journal_open(path, true, out));
    ech_event_version(ech_clock_wall(), &records);
    /* The checkpoint's step is done: its events stay. */
    ech_event_start(ech_clock_wall(), first_step + 1, &records);
    ech_journal_add(*out, records.at, records.n);
    return ECH_OK;
}
