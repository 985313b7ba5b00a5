/* SPDX-License-Identifier: Apache-2.0
 *
 * Times and bytes of a model's blocks, measured by `echelon profile`: a JSON file (docs/formats.md)
 * that plans, simulations and the partitioner read.
 */
#ifndef ECH_LAYOUT_PROFILE_H
#define ECH_LAYOUT_PROFILE_H

#include "config/config.h"
#include "model/model.h"

/* File format version. Version 1 stored times of block fragments; version 2 had no recompute
 * times, version 3 no densities. */
enum { ECH_PROFILE_VERSION = 4 };

/* The measured phases: F, B and W without recomputation, and R by what it recomputes
 * (memory.recompute, memory.invert) in a block that is a segment of its own. */
enum {
    ECH_PROFILE_SELECTIVE = ECH_RECOMPUTE,
    ECH_PROFILE_FULL,
    ECH_PROFILE_INVERT,
    ECH_PROFILE_PHASES
};
/* The measured phase for a phase of blocks with these options. */
int ech_profile_phase(ech_phase phase, const ech_block_options *options);

/* One block and one micro-batch, on one rank. */
typedef struct ech_profile_block {
    double seconds[ECH_PROFILE_PHASES]; /* medians; 0: the block has no such phase */
    int64_t activation_bytes;           /* saved by F for B and W */
    int64_t boundary_bytes;             /* of the block's outputs, which the next block reads */
    int64_t param_bytes; /* of its parameters; a tied one counts at its first block */
    double low[ECH_PROFILE_PHASES],
        high[ECH_PROFILE_PHASES]; /* seconds: first and third quartile */
    double density; /* the largest share of non-zeros in a training step's values that have sparse
                       codes; 0: none was counted */
} ech_profile_block;

typedef struct ech_profile {
    int blocks;
    ech_profile_block *block; /* [blocks] */
    double update_seconds;    /* of norm and update, per byte of parameters */
    double other_seconds;     /* of the rest of a training step: reading its batch, its scalars */
    double bandwidth;         /* bytes per second between two ranks of one machine */
    double latency;           /* seconds of an empty message */
    double spread;          /* (sum of high - low) / (sum of medians), over all blocks and phases */
    double processor_share; /* fraction of the time in which the compute lane had a processor */
    bool busy;              /* other work ran on the machine: the seconds are unreliable */
    char *model;            /* what was measured: ech_profile_describe */
} ech_profile;

/* Appends "gpt2 C=384 L=12 ... b=4 T=256 fp32 threads=1", in which a profile and a run must agree:
 * resolved model keys, sequence length, micro-batch size, compute type, threads. */
void ech_profile_describe(const ech_config *config, ech_text *out);

/* The micro-batch size in the profile's description; ECH_AUTO: none. */
int64_t ech_profile_micro_batch(const ech_profile *profile);

/* Reads a profile; the caller destroys *out. Errors: not JSON, another version, missing or negative
 * numbers (file and key are named). */
ech_status ech_profile_read(const char *path, ech_profile **out);
/* The same from memory; `name` stands for the file in errors. */
ech_status ech_profile_parse(const char *text, size_t n, const char *name, ech_profile **out);
ech_status ech_profile_write(const ech_profile *profile, const char *path);
void ech_profile_destroy(ech_profile *profile); /* accepts NULL */
ECH_DESTROY_AT(ech_profile, ech_profile_destroy)

/* Refuses a profile of another model or batch; the error has both descriptions and the command to
 * run instead. */
ech_status ech_profile_check(const ech_profile *profile, const ech_config *config,
                             const ech_model *model, const char *path);

/* The blocks' densities, [blocks], for ech_model_create; NULL if profile is NULL. Release with
 * free. */
double *ech_profile_densities(const ech_profile *profile);
/* Refuses a memory.encode_density below a block's measured density. */
ech_status ech_profile_check_density(const ech_profile *profile, const ech_config *config);

#endif
