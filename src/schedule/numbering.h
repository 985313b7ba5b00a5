/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's list numbers its sequence chunks by turn (training step of the list), then by the rank's
 * micro-batch, then by sequence chunk. Steps and values store this one number, an int called
 * `micro`; only functions of this file split it. (An order counts whole micro-batches until
 * ech_order_expand_sequence_chunks.)
 */
#ifndef ECH_SCHEDULE_NUMBERING_H
#define ECH_SCHEDULE_NUMBERING_H

typedef struct ech_numbering {
    int micro_batches;   /* micro-batches of the rank per turn; >= 1 */
    int sequence_chunks; /* per micro-batch; 1: not divided */
} ech_numbering;

/* The parts of a number `micro`, each counted from 0. */
typedef struct ech_micro {
    int turn, micro_batch, sequence_chunk;
} ech_micro;

static inline ech_micro ech_micro_at(ech_numbering numbering, int number)
{
    int whole = number / numbering.sequence_chunks;
    return (ech_micro){.turn = whole / numbering.micro_batches,
                       .micro_batch = whole % numbering.micro_batches,
                       .sequence_chunk = number % numbering.sequence_chunks};
}

/* The micro-batch's index over all turns: turn x micro_batches + micro_batch. */
static inline int ech_micro_whole(ech_numbering numbering, ech_micro at)
{
    return at.turn * numbering.micro_batches + at.micro_batch;
}

/* The inverse of ech_micro_at. */
static inline int ech_micro_number(ech_numbering numbering, ech_micro at)
{
    return ech_micro_whole(numbering, at) * numbering.sequence_chunks + at.sequence_chunk;
}

#endif
