/* SPDX-License-Identifier: Apache-2.0
 *
 * Cores of this process, by Linux's calls.
 */
#include "device/cores.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* The cores of the process before its first thread was bound: threads started later inherit their
 * creator's. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static ech_core_set before;

static void remember(void)
{
    before = ech_cores_mine();
}

ech_core_set ech_cores_mine(void)
{
    ech_core_set set = {{0}};
    _Static_assert(sizeof set % sizeof(unsigned long) == 0, "the system fills whole words");
    if (sched_getaffinity(0, sizeof set, (cpu_set_t *)(void *)&set) != 0)
        memset(&set, 0, sizeof set);
    return set;
}

static bool has(const ech_core_set *set, int core)
{
    return set->word[core / 64] >> (core % 64) & 1;
}

int ech_cores_count(const ech_core_set *set)
{
    int n = 0;
    for (int c = 0; c < ECH_MOST_CORES; c++) n += has(set, c);
    return n;
}

bool ech_cores_overlap(const ech_core_set *a, const ech_core_set *b)
{
    for (int w = 0; w < ECH_MOST_CORES / 64; w++)
        if (a->word[w] & b->word[w]) return true;
    return false;
}

bool ech_cores_are_same(const ech_core_set *a, const ech_core_set *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

ech_core_set ech_cores_common(const ech_core_set *a, const ech_core_set *b)
{
    ech_core_set set;
    for (int w = 0; w < ECH_MOST_CORES / 64; w++) set.word[w] = a->word[w] & b->word[w];
    return set;
}

static void add(ech_core_set *set, int core)
{
    set->word[core / 64] |= UINT64_C(1) << (core % 64);
}

ech_core_set ech_cores_read(const char *path)
{
    ech_core_set set = {{0}};
    FILE *file = fopen(path, "re");
    int first, last, mark = ',';
    while (file && mark == ',' && fscanf(file, "%4d", &first) == 1) {
        last = first;
        mark = fgetc(file);
        if (mark == '-' && fscanf(file, "%4d", &last) == 1) mark = fgetc(file);
        if (first < 0 || last < first || last >= ECH_MOST_CORES) mark = '?';
        for (int c = first; mark != '?' && c <= last; c++) add(&set, c);
    }
    if (file) fclose(file);
    return mark == '\n' || mark == EOF ? set : (ech_core_set){{0}};
}

/* The first thread of the physical core that a core is a thread of ("0,64" or "0-1" in its
 * file). */
static int physical(int core)
{
    char path[96];
    int first = core;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             core);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%d", &first) != 1) first = core;
    if (file) fclose(file);
    return first;
}

int ech_cores_order(const ech_core_set *set, int wanted, int *core)
{
    int all[ECH_MOST_CORES], first_of[ECH_MOST_CORES], n = 0, ordered = 0;
    for (int c = 0; c < ECH_MOST_CORES; c++)
        if (has(set, c)) {
            all[n] = c;
            first_of[n++] = physical(c);
        }
    for (int siblings = 0; siblings < 2 && (siblings == 0 || ordered < wanted); siblings++) {
        ordered = 0;
        for (int i = 0; i < n; i++) {
            bool is_new = true;
            for (int j = 0; j < i && is_new; j++) is_new = first_of[j] != first_of[i];
            for (int j = i; j < n && is_new && (siblings || j == i); j++)
                if (first_of[j] == first_of[i]) core[ordered++] = all[j];
        }
    }
    return ordered;
}

void ech_cores_bind_set(const ech_core_set *set)
{
    pthread_once(&once, remember);
    (void)sched_setaffinity(0, sizeof *set, (const cpu_set_t *)(const void *)set);
}

void ech_cores_bind(const int *core, int n)
{
    ech_core_set set = {{0}};
    for (int i = 0; i < n; i++) add(&set, core[i]);
    ech_cores_bind_set(&set);
}

void ech_cores_release(void)
{
    pthread_once(&once, remember);
    if (ech_cores_count(&before) > 0) ech_cores_bind_set(&before);
}
