/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in forms that are not read: adapters, GGUF files, pickles, and folders of quantizers.
 */
#ifndef ECH_CHECKPOINT_FOREIGN_H
#define ECH_CHECKPOINT_FOREIGN_H

#include "base/status.h"

/* If `path`, a file or a folder without safetensors, has weights in such a form, logs which, and
 * the Python that converts them: ECH_EUNSUPPORTED. Otherwise, or if nothing is there, ECH_OK. */
ech_status ech_foreign_check(const char *path);

#endif
