/* SPDX-License-Identifier: Apache-2.0
 *
 * Parsing the texts of a bench's rows. They are constants of the program, so an error in one ends
 * it.
 */
#include "program/bench/kernels.h"

#include <stdlib.h>
#include <string.h>

static bool is_letter(char c)
{
    return c >= 'A' && c <= 'Z';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int64_t ech_bench_size(const ech_bench_sizes *sizes, char letter)
{
    ECH_ASSERT(is_letter(letter) && sizes->of[letter - 'A'] > 0);
    return sizes->of[letter - 'A'];
}

ech_bench_sizes ech_bench_parse_sizes(const char *text, int64_t most)
{
    ech_bench_sizes sizes = {{0}};
    for (const char *at = text; *at; at += *at == ' ') {
        ECH_ASSERT(is_letter(at[0]) && at[1] == '=');
        char *end;
        int64_t size = strtoll(at + 2, &end, 10);
        sizes.of[at[0] - 'A'] = most > 0 && size > most ? most : size;
        at = end;
    }
    int64_t B = sizes.of['B' - 'A'], T = sizes.of['T' - 'A'];
    if (sizes.of['R' - 'A'] == 0) sizes.of['R' - 'A'] = B * T;
    if (sizes.of['S' - 'A'] == 0)
        sizes.of['S' - 'A'] = (sizes.of['N' - 'A'] + ECH_NORM_BLOCK - 1) / ECH_NORM_BLOCK;
    return sizes;
}

/* One extent, a letter's or a number; moves *at past it. */
static int64_t read_extent(const char **at, const ech_bench_sizes *sizes)
{
    if (is_letter(**at)) return ech_bench_size(sizes, *(*at)++);
    char *end;
    int64_t extent = strtoll(*at, &end, 10);
    *at = end;
    return extent;
}

static ech_tensor read_tensor(const char **at, const ech_bench_sizes *sizes, ech_dtype real)
{
    int64_t shape[ECH_MAX_DIMS] = {0};
    static const ech_dtype named[] = {
        ['i'] = ECH_I32, ['l'] = ECH_I64, ['d'] = ECH_F64, ['w'] = ECH_F32,
        ['b'] = ECH_U8,  ['n'] = ECH_I32, ['c'] = ECH_I32, ['e'] = ECH_I32};
    bool is_named = **at && strchr("ildwbnce", **at);
    ech_dtype dtype = is_named ? named[(int)*(*at)++] : real;
    int dims = 0;
    for (; is_letter(**at) || is_digit(**at); dims++) {
        ECH_ASSERT(dims < ECH_MAX_DIMS);
        shape[dims] = read_extent(at, sizes);
    }
    return ech_tensor_view(NULL, dtype, dims, shape);
}

ech_bench_operands ech_bench_parse_operands(const char *text, const ech_bench_sizes *sizes,
                                            ech_dtype real)
{
    ech_bench_operands out = {0};
    for (const char *at = text; *at; at += *at == ' ') {
        char role = *at++;
        ECH_ASSERT(out.n < ECH_BENCH_TENSORS && strchr("<>=~", role));
        ech_tensor *x = &out.tensor[out.n];
        out.table[out.n] = *at && strchr("nce", *at) ? *at : '\0';
        *x = read_tensor(&at, sizes, real);
        ECH_ASSERT(*at == ' ' || *at == '\0');
        out.reads[out.n++] = role != '>';
        int times = role == '=' ? 2 : role == '~' ? 0 : 1;
        out.bytes += times * (double)ech_tensor_bytes(x);
    }
    return out;
}

double ech_bench_count(const char *text, const ech_bench_sizes *sizes)
{
    double sum = 0;
    for (const char *at = text; *at; at += *at == ' ') {
        char *end;
        double term = is_letter(*at) ? 1 : strtod(at, &end);
        if (!is_letter(*at)) at = end;
        for (; is_letter(*at); at++) term *= (double)ech_bench_size(sizes, *at);
        ECH_ASSERT(*at == ' ' || *at == '\0');
        sum += term;
    }
    return sum;
}
