/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing a tensor of a file with the expected one.
 */
#ifndef ECH_CHECKPOINT_SAVED_H
#define ECH_CHECKPOINT_SAVED_H

#include "checkpoint/checkpoint.h"

/* ECH_EINPUT unless `have`, a tensor of the file or folder `where`, has the shape of `want`:
 * "WHERE: tensor 'NAME' has shape [3, 4]BEFORE[3, 5]AFTER", first the shape of `have`, then the
 * shape of `want`. `before` and `after` are texts. */
ech_status ech_shape_check(const char *where, const ech_saved_tensor *have,
                           const ech_saved_tensor *want, const char *before, const char *after);

#endif
