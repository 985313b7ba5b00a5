/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of kernel arguments, with messages that show both shapes.
 */
#include "kernel/shape.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 128, MOST_LETTERS = 10 };

_Static_assert(ECH_LOSS_STATS == 3 && ECH_LOSS_SUMS == 2, "kernel.def has these sizes");
static const char *const row_shapes[ECH_OPS] = {
#define X(name, arguments, shapes, scratch_dims) #shapes,
#include "kernel/kernel.def"
#undef X
};

/* A row's rule for one tensor. A letter may have a second one ("Tq"), and a digit is a size. */
typedef struct rule {
    const char *name;
    int name_length;
    /* real: "any", of all types that ech_convert accepts */
    bool optional, strided, wide, either, real;
    ech_dtype fixed; /* ECH_DTYPES: the table's type, or as `wide` and `either` say */
    bool any;        /* "(...)" */
    int dims, letter[ECH_MAX_DIMS];
} rule;

enum { MOST_TENSORS = 16 };
static struct {
    int tensors;
    rule tensor[MOST_TENSORS];
} row[ECH_OPS];

/* The required properties of a call's tensor. */
typedef struct wanted {
    const rule *of;
    ech_dtype dtype, other; /* two if either is accepted */
    int dims;
    int64_t shape[ECH_MAX_DIMS];
} wanted;

/* Sizes determined by the tensors so far: of letters, and of the shape "(...)". */
typedef struct sizes {
    int n, letter[MOST_LETTERS];
    int64_t size[MOST_LETTERS];
    const ech_tensor *any;
} sizes;

/* ---- a row's text, read once ---- */

/* Reads "optional either NAME(" and returns the rest. */
static const char *read_words(const char *at, rule *out)
{
    size_t n = 0;
    *out = (rule){.fixed = ECH_DTYPES};
    for (;; at += n) {
        at += strspn(at, "(), ");
        n = strcspn(at, " (");
        if (at[n] == '(') break;
        out->optional |= strncmp(at, "optional", n) == 0;
        out->strided |= strncmp(at, "strided", n) == 0;
        out->wide |= strncmp(at, "wide", n) == 0;
        out->either |= strncmp(at, "either", n) == 0;
        out->real |= strncmp(at, "any", n) == 0;
        for (ech_dtype d = 0; d < ECH_DTYPES; d++)
            if (strncmp(at, ech_dtype_name(d), n) == 0) out->fixed = d;
    }
    out->name = at;
    out->name_length = (int)n;
    return at + n + 1;
}

/* Reads "R,C)" or "...)" and returns the end. */
static const char *read_sizes(const char *at, rule *out)
{
    out->any = *at == '.';
    if (out->any) return at + 3;
    for (; *at != ')'; at += *at == ',') {
        int letter = *at++;
        if (*at != ',' && *at != ')') letter = letter << 8 | *at++;
        out->letter[out->dims++] = letter;
    }
    return at;
}

static void read_rows(void)
{
    for (int op = 0; op < ECH_OPS; op++)
        for (const char *at = row_shapes[op]; strcmp(at, "()") != 0 && strcmp(at, "))") != 0;) {
            ECH_ASSERT(row[op].tensors < MOST_TENSORS);
            rule *out = &row[op].tensor[row[op].tensors++];
            at = read_sizes(read_words(at, out), out);
        }
}

/* ---- a call ---- */

static int64_t size_of(int letter, sizes *known, int64_t given)
{
    if (letter >= '0' && letter <= '9') return letter - '0';
    for (int i = 0; i < known->n; i++)
        if (known->letter[i] == letter) return known->size[i];
    ECH_ASSERT(known->n < MOST_LETTERS);
    known->letter[known->n] = letter;
    known->size[known->n++] = given;
    return given;
}

static void resolve(const rule *of, ech_dtype real, const ech_tensor *x, sizes *known, wanted *out)
{
    ech_dtype wide = ech_dtype_wide(real);
    out->of = of;
    out->dtype = of->fixed != ECH_DTYPES ? of->fixed : of->wide ? wide : real;
    out->other = of->either ? wide : out->dtype;
    if (of->real && ech_dtype_converts(x->dtype)) out->dtype = out->other = x->dtype;
    if (of->any) {
        if (!known->any) known->any = x;
        out->dims = known->any->dims;
        memcpy(out->shape, known->any->shape, sizeof out->shape);
        return;
    }
    out->dims = of->dims;
    for (int d = 0; d < of->dims; d++)
        out->shape[d] = size_of(of->letter[d], known, d < x->dims ? x->shape[d] : 0);
}

static void print_shape(char text[TEXT_BYTES], ech_dtype dtype, ech_dtype other, int dims,
                        const int64_t *shape)
{
    bool same = dtype == other;
    int at = snprintf(text, TEXT_BYTES, "%s%s%s (", ech_dtype_name(dtype), same ? "" : " or ",
                      same ? "" : ech_dtype_name(other));
    for (int d = 0; d < dims && d < ECH_MAX_DIMS; d++)
        at += snprintf(text + at, (size_t)(TEXT_BYTES - at), d ? ", %lld" : "%lld",
                       (long long)shape[d]);
    snprintf(text + at, (size_t)(TEXT_BYTES - at), ")");
}

static _Noreturn void refuse(const char *file, int line, const rule *of, const ech_tensor *x,
                             const char *expected)
{
    char got[TEXT_BYTES], message[3 * TEXT_BYTES];
    print_shape(got, x->dtype, x->dtype, x->dims, x->shape);
    snprintf(message, sizeof message, "tensor %.*s is %s, expected %s", of->name_length, of->name,
             got, expected);
    ech_assert_failed(file, line, message);
}

static void check(const char *file, int line, const ech_tensor *x, const wanted *w)
{
    int last = x->dims - 1;
    bool same = (x->dtype == w->dtype || x->dtype == w->other) && x->dims == w->dims;
    for (int d = 0; same && d < x->dims; d++) same = x->shape[d] == w->shape[d];
    if (!same) {
        char text[TEXT_BYTES];
        print_shape(text, w->dtype, w->other, w->dims, w->shape);
        refuse(file, line, w->of, x, text);
    }
    if (!w->of->strided && !ech_tensor_is_contiguous(x))
        refuse(file, line, w->of, x, "contiguous memory");
    if (last >= 0 && x->shape[last] > 1 && x->stride[last] != 1)
        refuse(file, line, w->of, x, "a last stride of 1");
    if (!x->data && ech_tensor_count(x) > 0) refuse(file, line, w->of, x, "memory");
}

void ech_shapes_check(const char *file, int line, ech_op op, ech_dtype real, int n,
                      const ech_tensor *const *x)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sizes known = {.n = 0};
    wanted w;
    pthread_once(&once, read_rows);
    ECH_ASSERT(n == row[op].tensors);
    for (int i = 0; i < n; i++) {
        ECH_ASSERT(x[i] || row[op].tensor[i].optional);
        if (!x[i]) continue;
        resolve(&row[op].tensor[i], real, x[i], &known, &w);
        check(file, line, x[i], &w);
    }
}

ech_tensor ech_shape_transposed(const ech_tensor *x, bool transposed)
{
    ech_tensor view = *x;
    view.shape[0] = x->shape[transposed ? 1 : 0];
    view.shape[1] = x->shape[transposed ? 0 : 1];
    return view;
}

static bool ascending(const ech_rows *rows)
{
    return rows->tokens >= 1 && rows->first >= 0 && rows->first_sample >= 0 && rows->split >= 0 &&
           (rows->split == 0 || rows->start[0] >= 0) &&
           (rows->split >= rows->tokens ||
            rows->start[1] >= (rows->split > 0 ? rows->start[0] + rows->split : 0));
}

static void check_starts(const char *file, int line, const ech_tensor *starts, const ech_rows *rows,
                         int64_t count)
{
    char message[3 * TEXT_BYTES];
    int64_t samples = (rows->first + count - 1) / rows->tokens + 1, T = rows->whole;
    static const rule of = {.name = "starts", .name_length = 6};
    const wanted w = {
        .of = &of, .dtype = ECH_I32, .other = ECH_I32, .dims = 2, .shape = {starts->shape[0], T}};
    check(file, line, starts, &w);
    ECH_ASSERT(starts->shape[0] >= samples);
    for (int64_t i = 0; i < samples * T; i++) {
        int64_t start = ech_document_start(starts, i / T, i % T);
        int64_t before = i % T ? ech_document_start(starts, i / T, i % T - 1) : 0;
        if (start >= before && start <= i % T) continue;
        snprintf(message, sizeof message,
                 "the document of position %lld begins at %lld, the previous position's at %lld: "
                 "expected ascending positions up to its own",
                 (long long)(i % T), (long long)start, (long long)before);
        ech_assert_failed(file, line, message);
    }
}

void ech_rows_check(const char *file, int line, const ech_rows *rows, const ech_tensor *starts,
                    int64_t count)
{
    char message[3 * TEXT_BYTES];
    if (count == 0) return;
    if (!ascending(rows) || ech_rows_token_position(rows, rows->tokens - 1) >= rows->whole) {
        snprintf(message, sizeof message,
                 "%lld of %lld tokens from row %lld on, %lld from position %lld, the others from "
                 "%lld: expected ascending positions",
                 (long long)rows->tokens, (long long)rows->whole, (long long)rows->first,
                 (long long)rows->split, (long long)rows->start[0], (long long)rows->start[1]);
        ech_assert_failed(file, line, message);
    }
    if (starts) check_starts(file, line, starts, rows, count);
}

void *ech_scratch(const ech_kernel_context *context, size_t bytes)
{
    if (bytes == 0) return context->scratch;
    ECH_ASSERT(context->scratch && context->scratch_bytes >= bytes);
    return context->scratch;
}
