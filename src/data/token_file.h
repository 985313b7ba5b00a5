/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: what a token file's stream consists of.
 */
#ifndef ECH_DATA_TOKEN_FILE_H
#define ECH_DATA_TOKEN_FILE_H

#include "data/data.h"
#include "data/token_runs.h"

const ech_token_runs *ech_token_file_runs(const ech_token_file *file);

#endif
