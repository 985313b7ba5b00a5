/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads cluster files, and the costs that follow from them.
 */
#include "layout/cluster.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "config/yaml_tree.h"

typedef struct reader {
    const char *name;
    ech_cluster *out;
} reader;

static const char *const shape =
    "a cluster file has the sections device, host, flops, products, attention, kernels, recompute, "
    "step, storage and levels";

#define FAIL(r, node, format, ...)                                                                 \
    ECH_FAIL(ECH_EUSAGE, "%s:%zu:%zu: " format, (r)->name, (node)->line, (node)->column,           \
             __VA_ARGS__)

/* ---- numbers ---- */

/* Sets *factor to the meaning of a prefix ("T", "Gi", "u", ""). False: it is none. */
static bool read_prefix(const char *text, size_t n, double *factor)
{
    static const struct {
        const char *prefix;
        double factor;
    } prefixes[] = {{"", 1},     {"k", 1e3},   {"M", 1e6},      {"G", 1e9},     {"T", 1e12},
                    {"P", 1e15}, {"Ki", 1024}, {"Mi", 1048576}, {"Gi", 0x1p30}, {"Ti", 0x1p40},
                    {"m", 1e-3}, {"u", 1e-6},  {"n", 1e-9}};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strlen(prefixes[i].prefix) == n && strncmp(text, prefixes[i].prefix, n) == 0) {
            *factor = prefixes[i].factor;
            return true;
        }
    return false;
}

/* "2039 GB/s" as a number of `unit`. */
static bool read_quantity(const char *text, const char *unit, double *out)
{
    char *end;
    double factor = 1, number = ech_text_number(text, &end);
    if (end == text || !isfinite(number) || strpbrk(text, "xX")) return false; /* 0x10 */
    end += strspn(end, " ");
    size_t n = strlen(end), ends = strlen(unit);
    if (n > 0 && (ends == 0 || n < ends || strcmp(end + n - ends, unit) != 0)) return false;
    if (n > 0 && !read_prefix(end, n - ends, &factor)) return false;
    *out = number * factor;
    return true;
}

static ech_status read_number(const reader *r, const ech_yaml_node *node, const char *unit,
                              double least, double most, double *out)
{
    if (node->kind != ECH_YAML_SCALAR)
        FAIL(r, node, "%.60s: must be one number%s%s", node->key, *unit ? " with the unit " : "",
             unit);
    if (!read_quantity(node->text, unit, out))
        FAIL(r, node, "%.60s: \"%.60s\" is no number%s%s%s", node->key, node->text,
             *unit ? " of " : "", unit,
             *unit ? "; prefixes are k M G T P, Ki Mi Gi Ti, m u n" : "");
    if (*out < least || *out > most)
        FAIL(r, node, "%.60s: %s is not between %g and %g%s%s", node->key, node->text, least, most,
             *unit ? " " : "", unit);
    return ECH_OK;
}

/* ---- sections ---- */

static const struct number {
    const char *section, *name, *unit;
    double least, most, initial;
    size_t offset;
} numbers[] = {
#define NUMBER(section, name, unit, least, most, initial, help)                                    \
    {#section, #name, unit, least, most, initial, offsetof(ech_cluster, section##_##name)},
#include "layout/cluster.def"
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static double *number_in(ech_cluster *cluster, const struct number *number)
{
    return (double *)(void *)((char *)cluster + number->offset);
}

/* The keys of a section, for errors. */
static void append_keys(const char *section, ech_text *out)
{
    for (int i = 0; i < NUMBERS; i++)
        if (strcmp(numbers[i].section, section) == 0)
            ech_text_append(out, "%s%s", out->n ? " " : "", numbers[i].name);
}

static ech_status read_key(const reader *r, const ech_yaml_node *section, const ech_yaml_node *node)
{
    ECH_FREED_TEXT keys = {0};
    for (int i = 0; i < NUMBERS; i++)
        if (strcmp(numbers[i].section, section->key) == 0 &&
            strcmp(numbers[i].name, node->key) == 0)
            return read_number(r, node, numbers[i].unit, numbers[i].least, numbers[i].most,
                               number_in(r->out, &numbers[i]));
    append_keys(section->key, &keys);
    FAIL(r, node, "%s.%.60s: no such key; the keys of %s are %s", section->key, node->key,
         section->key, keys.at);
}

static ech_status read_flops(const reader *r, const ech_yaml_node *section)
{
    for (const ech_yaml_node *node = section->first; node; node = node->next) {
        ech_dtype dtype;
        if (!ech_dtype_from_name(node->key, &dtype))
            FAIL(r, node, "flops.%.60s: no such type; types are fp64 fp32 bf16 fp16", node->key);
        ECH_TRY(read_number(r, node, "FLOP/s", 1, 1e20, &r->out->flops[dtype]));
    }
    return ECH_OK;
}

#define LEVEL_KEYS "ranks bandwidth latency share links"

static ech_status read_level(const reader *r, const ech_yaml_node *node, ech_cluster_level *level)
{
    double ranks = INT32_MAX, links = INT32_MAX;
    *level = (ech_cluster_level){.bandwidth = NAN, .share = 1};
    if (node->kind != ECH_YAML_MAP) FAIL(r, node, "%s", "a level has the keys " LEVEL_KEYS);
    for (const ech_yaml_node *at = node->first; at; at = at->next) {
        if (strcmp(at->key, "ranks") == 0)
            ECH_TRY(read_number(r, at, "", 1, INT32_MAX, &ranks));
        else if (strcmp(at->key, "bandwidth") == 0)
            ECH_TRY(read_number(r, at, "B/s", 1, 1e18, &level->bandwidth));
        else if (strcmp(at->key, "latency") == 0)
            ECH_TRY(read_number(r, at, "s", 0, 1, &level->latency));
        else if (strcmp(at->key, "share") == 0)
            ECH_TRY(read_number(r, at, "", 1e-3, 1, &level->share));
        else if (strcmp(at->key, "links") == 0)
            ECH_TRY(read_number(r, at, "", 1, INT32_MAX, &links));
        else
            FAIL(r, at, "levels: %.60s: no such key; the keys of a level are " LEVEL_KEYS, at->key);
    }
    if (isnan(level->bandwidth))
        FAIL(r, node, "%s", "levels: bandwidth: not set; set it in each level, in B/s");
    if (ranks > floor(ranks) || links > floor(links))
        FAIL(r, node, "%s", "levels: ranks and links must be whole numbers from 1");
    level->ranks = (int)ranks;
    level->links = (int)links;
    return ECH_OK;
}

static ech_status read_levels(const reader *r, const ech_yaml_node *section)
{
    ech_cluster *out = r->out;
    if (section->kind != ECH_YAML_LIST) FAIL(r, section, "%s", "levels: must be a list of levels");
    for (const ech_yaml_node *node = section->first; node; node = node->next) {
        int below = out->levels ? out->level[out->levels - 1].ranks : 1;
        if (out->levels == ECH_MOST_LEVELS)
            FAIL(r, node, "levels: at most %d levels are supported", ECH_MOST_LEVELS);
        ECH_TRY(read_level(r, node, &out->level[out->levels]));
        int ranks = out->level[out->levels++].ranks;
        if (below == INT32_MAX) FAIL(r, node, "%s", "levels: only the last level may omit ranks");
        if (ranks != INT32_MAX && (ranks < below || ranks % below))
            FAIL(r, node, "levels: ranks: %d is no multiple of %d, the ranks of the level below",
                 ranks, below);
    }
    return ECH_OK;
}

static bool is_section(const char *key)
{
    for (int i = 0; i < NUMBERS; i++)
        if (strcmp(numbers[i].section, key) == 0) return true;
    return strcmp(key, "flops") == 0;
}

static ech_status read_section(const reader *r, const ech_yaml_node *node)
{
    if (strcmp(node->key, "name") == 0 && node->kind == ECH_YAML_SCALAR) {
        snprintf(r->out->name, sizeof r->out->name, "%s", node->text);
        return ECH_OK;
    }
    if (strcmp(node->key, "sources") == 0) return ECH_OK; /* for people */
    if (strcmp(node->key, "levels") == 0) return read_levels(r, node);
    if (!is_section(node->key)) FAIL(r, node, "%.60s: no such section; %s", node->key, shape);
    if (node->kind != ECH_YAML_MAP) FAIL(r, node, "%s: must be a section with keys", node->key);
    if (strcmp(node->key, "flops") == 0) return read_flops(r, node);
    for (const ech_yaml_node *key = node->first; key; key = key->next)
        ECH_TRY(read_key(r, node, key));
    return ECH_OK;
}

static ech_status check_complete(const reader *r)
{
    bool any = false;
    for (int i = 0; i < NUMBERS; i++)
        if (isnan(*number_in(r->out, &numbers[i])))
            ECH_FAIL(ECH_EUSAGE, "%s: %s.%s: not set; every cluster file sets it", r->name,
                     numbers[i].section, numbers[i].name);
    for (int d = 0; d < ECH_DTYPES; d++) any |= r->out->flops[d] > 0;
    if (!any) ECH_FAIL(ECH_EUSAGE, "%s: flops: not set; every cluster file sets it", r->name);
    if (!r->out->levels)
        ECH_FAIL(ECH_EUSAGE,
                 "%s: levels: not set, so that ranks have no links; add one like \"levels: "
                 "[{bandwidth: 50 GB/s}]\"",
                 r->name);
    if (r->out->device_reserved >= r->out->device_memory)
        ECH_FAIL(ECH_EUSAGE, "%s: device.reserved: is all of device.memory; make it smaller",
                 r->name);
    return ECH_OK;
}

ech_status ech_cluster_parse(const char *text, size_t n, const char *name, ech_cluster *out)
{
    reader r = {.name = name, .out = out};
    ech_yaml_node *root = NULL;
    ECH_CLEANUP(ech_pool_destroy_at) ech_pool *pool = ech_pool_create();
    *out = (ech_cluster){0};
    const char *slash = strrchr(name, '/');
    snprintf(out->name, sizeof out->name, "%s", slash ? slash + 1 : name);
    for (int i = 0; i < NUMBERS; i++) *number_in(out, &numbers[i]) = numbers[i].initial;
    ECH_TRY(ech_yaml_read(name, text, n, shape, pool, &root));
    if (root && root->kind != ECH_YAML_MAP)
        ECH_FAIL(ECH_EUSAGE, "%s:%zu:%zu: %s", name, root->line, root->column, shape);
    for (const ech_yaml_node *at = root ? root->first : NULL; at; at = at->next)
        ECH_TRY(read_section(&r, at));
    return check_complete(&r);
}

ech_status ech_cluster_read(const char *path, ech_cluster *out)
{
    ECH_FREED char *text = NULL;
    size_t n = 0;
    ECH_TRY(ech_file_read(path, 1 << 20, &text, &n));
    return ech_cluster_parse(text, n, path, out);
}

ech_status ech_cluster_check(const ech_cluster *cluster, const char *path, int ranks)
{
    int all = cluster->level[cluster->levels - 1].ranks;
    if (ranks > all)
        ECH_FAIL(
            ECH_EUSAGE,
            "%s: levels: the cluster has %d ranks; %d are too many; add ranks to the last level",
            path, all, ranks);
    for (int i = 0; i < cluster->levels - 1; i++) {
        int unit = cluster->level[i].ranks;
        if (ranks > unit && ranks % unit)
            ECH_FAIL(ECH_EUSAGE,
                     "%s: levels: %d ranks are no whole units of %d; use %d or %d ranks", path,
                     ranks, unit, ranks / unit * unit, (ranks / unit + 1) * unit);
    }
    return ECH_OK;
}

/* ---- costs ---- */

const ech_cluster_level *ech_cluster_level_of(const ech_cluster *cluster, int first, int last)
{
    int i = 0;
    while (i < cluster->levels - 1 &&
           first / cluster->level[i].ranks != last / cluster->level[i].ranks)
        i++;
    return &cluster->level[i];
}

double ech_cluster_kernel(const ech_cluster *cluster, double bytes)
{
    double seconds = bytes / (cluster->device_bandwidth * cluster->kernels_share);
    return cluster->step_factor * (seconds + cluster->kernels_launch);
}

double ech_cluster_host(const ech_cluster *cluster, double bytes)
{
    return cluster->step_factor * bytes / (cluster->host_bandwidth * cluster->kernels_share);
}

/* Of the peak rate, what products of this shape reach. */
static double reached(const ech_cluster *cluster, const ech_products *p)
{
    return cluster->products_share * p->M / (p->M + cluster->products_half_m) * p->N /
           (p->N + cluster->products_half_n) * p->K / (p->K + cluster->products_half_k);
}

double ech_cluster_products(const ech_cluster *cluster, const ech_products *products,
                            ech_dtype dtype, bool attention, double bytes)
{
    double peak = cluster->flops[dtype],
           flops = 2 * products->M * products->N * products->K * products->count;
    double share = attention ? cluster->attention_share * products->K /
                                   (products->K + cluster->attention_half_k)
                             : reached(cluster, products);
    double busy = peak > 0 ? flops / (peak * share) : 0;
    double moves = bytes / (cluster->device_bandwidth * cluster->kernels_share);
    return cluster->step_factor * (fmax(busy, moves) + cluster->kernels_launch);
}
