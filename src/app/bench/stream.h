/* SPDX-License-Identifier: Apache-2.0
 *
 * How many bytes a second this machine moves between memory and its cores, as McCalpin's STREAM
 * (https://www.cs.virginia.edu/stream) measures it: what bounds steps that compute little.
 */
#ifndef ECH_APP_BENCH_STREAM_H
#define ECH_APP_BENCH_STREAM_H

/* Bytes read and written a second by `threads` threads together, over arrays larger than the caches: the
 * better of a[i] = b[i] + s c[i], counted as STREAM does (a store that fetches its line first is
 * counted once), and a[i] = a[i] + s c[i], which counts all that moves, and is what optimizers do.
 * Takes a few tenths of a second. 0: no memory, or no threads, for it. */
double ech_stream_bytes(int threads);

#endif
