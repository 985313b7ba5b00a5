/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights, states and gradients of a training, between steps.
 */
#include <string.h>

#include "library/library.h"

int echelon_tensor_count(echelon_training *training)
{
    ECH_USE_HANDLE(training, TRAINING, 0);
    if (ech_training_check(training) != ECH_OK) return 0;
    return ech_exec_whole_count(ech_training_exec(training));
}

static ech_status find(echelon_training *training, int index, ech_exec_whole *out)
{
    ECH_TRY(ech_training_check(training));
    if (ech_exec_whole_at(ech_training_exec(training), index, out)) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE, "there is no tensor %d; indices are below %d", index,
             echelon_tensor_count(training));
}

echelon_status echelon_tensor_at(echelon_training *training, int index, echelon_tensor *out)
{
    ech_exec_whole of;
    ech_library_enter();
    ECH_USE(training, TRAINING);
    ECH_NEED_STRUCT(out);
    ECH_PASS(find(training, index, &of));
    echelon_tensor tensor = {.name = of.name,
                             .state = of.state ? of.state : "",
                             .dtype = ech_dtype_name(of.dtype),
                             .dims = of.dims,
                             .bytes = of.bytes};
    for (int d = 0; d < of.dims; d++) tensor.shape[d] = of.shape[d];
    ech_library_give(out, out->size, &tensor, sizeof tensor);
    return ECHELON_OK;
}

typedef struct transfer {
    int index;
    void *out;
    const void *from;
} transfer;

static ech_status move_whole(ech_trainer *t, bool is_first, void *argument)
{
    const transfer *of = argument;
    if (of->from) t->saved_step = -1; /* this step's checkpoint has the tensor as it was */
    if (of->from) return ech_exec_write_whole(t->session.exec, of->index, of->from);
    return ech_exec_read_whole(t->session.exec, of->index, is_first ? of->out : NULL);
}

static ech_status transfer_whole(echelon_training *training, transfer of, size_t bytes)
{
    ech_exec_whole is;
    ECH_TRY(find(training, of.index, &is));
    if ((int64_t)bytes != is.bytes)
        ECH_FAIL(ECH_EUSAGE, "%s%s%s has %lld bytes, not %zu; pass a buffer of its size", is.name,
                 is.state ? "." : "", is.state ? is.state : "", (long long)is.bytes, bytes);
    if (is.is_gradient && of.from)
        ECH_FAIL(ECH_EUSAGE, "%s.%s: a gradient can only be read; the step has applied it", is.name,
                 is.state);
    if (is.is_gradient && !ech_exec_has_gradients(ech_training_exec(training)))
        ECH_FAIL(ECH_EUSAGE, "%s.%s: no step was made since this training started", is.name,
                 is.state);
    return ech_training_call(training, move_whole, &of);
}

echelon_status echelon_tensor_read(echelon_training *training, int index, void *data, size_t bytes)
{
    ech_library_enter();
    ECH_USE(training, TRAINING);
    ECH_NEED(data);
    return (echelon_status)transfer_whole(training, (transfer){index, data, NULL}, bytes);
}

echelon_status echelon_tensor_write(echelon_training *training, int index, const void *data,
                                    size_t bytes)
{
    ech_library_enter();
    ECH_USE(training, TRAINING);
    ECH_NEED(data);
    return (echelon_status)transfer_whole(training, (transfer){index, NULL, data}, bytes);
}
