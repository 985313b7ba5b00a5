/* SPDX-License-Identifier: Apache-2.0
 *
 * How a rank's list numbers its sequence chunks: the turn (training step of the list) counts most,
 * then the rank's own micro-batch, then the sequence chunk. Steps and values have this one number,
 * an int called `micro`; only functions here take it apart. (An order counts whole micro-batches
 * until ech_order_expand_sequence_chunks.)
 */
#ifndef ECH_SCHEDULE_NUMBERING_H
#define ECH_SCHEDULE_NUMBERING_H

typedef struct ech_numbering {
    int micro_batches;   /* of the rank in each turn; >= 1 */
    int sequence_chunks; /* of each micro-batch; 1: it is not divided */
} ech_numbering;

/* What a number `micro` stands for; each counts from 0. */
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

/* The index of the micro-batch over all turns: turn x micro_batches + micro_batch. */
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
