/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures how fast oneDNN alone multiplies matrices: speed.py's bound rests on it.
 *
 *     bench_products SECONDS MxNxK:KIND ...
 *
 * C (M x N) = A (M x K) times B (K x N) in fp32, on as many threads as OMP_NUM_THREADS says. KIND
 * is two letters, for A and B: n as written, t stored transposed. Each product is timed for about
 * SECONDS by each of
 *
 *     plain    a matmul primitive on matrices as they are
 *     packed   one whose B is in the order that the library likes best, the packing not counted
 *     both     one whose A and B are
 *     sgemm    dnnl_sgemm
 *
 * and prints a line: the product, then the median seconds of a call by each.
 */
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library_times.h"

typedef struct product {
    dnnl_dim_t M, N, K;
    bool a_transposed, b_transposed;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    float *a, *b, *c;
} product;

/* ---- primitives ---- */

static dnnl_memory_desc_t describe(dnnl_dim_t rows, dnnl_dim_t columns, bool transposed)
{
    dnnl_memory_desc_t md;
    dnnl_dims_t dims = {rows, columns};
    must(dnnl_memory_desc_init_by_tag(&md, 2, dims, dnnl_f32, transposed ? dnnl_ba : dnnl_ab));
    return md;
}

typedef struct execution {
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    dnnl_exec_arg_t argument[3];
} execution;

static void execute(void *with)
{
    execution *e = with;
    must(dnnl_primitive_execute(e->primitive, e->stream, 3, e->argument));
    must(dnnl_stream_wait(e->stream));
}

static dnnl_memory_t wrap(const product *p, const dnnl_memory_desc_t *md, float *at)
{
    dnnl_memory_t made;
    must(dnnl_memory_create(&made, md, p->engine, at));
    return made;
}

/* Whatever the library wants. */
static dnnl_memory_desc_t describe_any(dnnl_dim_t rows, dnnl_dim_t columns)
{
    dnnl_memory_desc_t md;
    dnnl_dims_t dims = {rows, columns};
    must(dnnl_memory_desc_init_by_tag(&md, 2, dims, dnnl_f32, dnnl_format_tag_any));
    return md;
}

/* The first `packed` of B and A are in the library's order. */
static double time_primitive(const product *p, double seconds, int packed)
{
    dnnl_memory_desc_t a =
        packed > 1 ? describe_any(p->M, p->K) : describe(p->M, p->K, p->a_transposed);
    dnnl_memory_desc_t b =
        packed > 0 ? describe_any(p->K, p->N) : describe(p->K, p->N, p->b_transposed);
    dnnl_memory_desc_t c = describe(p->M, p->N, false);
    dnnl_matmul_desc_t operation;
    dnnl_primitive_desc_t chosen;
    must(dnnl_matmul_desc_init(&operation, &a, &b, NULL, &c));
    must(dnnl_primitive_desc_create(&chosen, &operation, NULL, p->engine, NULL));
    const dnnl_memory_desc_t *order[] = {
        dnnl_primitive_desc_query_md(chosen, dnnl_query_src_md, 0),
        dnnl_primitive_desc_query_md(chosen, dnnl_query_weights_md, 0)};
    float *operand[] = {make_values(dnnl_memory_desc_get_size(order[0])),
                        make_values(dnnl_memory_desc_get_size(order[1]))};
    execution e = {.stream = p->stream,
                   .argument = {{DNNL_ARG_SRC, wrap(p, order[0], operand[0])},
                                {DNNL_ARG_WEIGHTS, wrap(p, order[1], operand[1])},
                                {DNNL_ARG_DST, wrap(p, &c, p->c)}}};
    must(dnnl_primitive_create(&e.primitive, chosen));
    double took = time_calls(seconds, execute, &e);
    for (int i = 0; i < 3; i++) dnnl_memory_destroy(e.argument[i].memory);
    dnnl_primitive_destroy(e.primitive);
    dnnl_primitive_desc_destroy(chosen);
    free(operand[0]);
    free(operand[1]);
    return took;
}

static void multiply(void *with)
{
    const product *p = with;
    must(dnnl_sgemm(p->a_transposed ? 'T' : 'N', p->b_transposed ? 'T' : 'N', p->M, p->N, p->K, 1,
                    p->a, p->a_transposed ? p->M : p->K, p->b, p->b_transposed ? p->K : p->N, 0,
                    p->c, p->N));
}

/* ---- the command line ---- */

static void parse(const char *text, product *p)
{
    char a, b;
    long M, N, K;
    if (sscanf(text, "%ldx%ldx%ld:%c%c", &M, &N, &K, &a, &b) != 5 || !strchr("nt", a) ||
        !strchr("nt", b) || M < 1 || N < 1 || K < 1)
        fail("a product is as 1024x768x3072:nt");
    p->M = M, p->N = N, p->K = K;
    p->a_transposed = a == 't';
    p->b_transposed = b == 't';
}

static void run(product *p, double seconds, const char *text)
{
    p->a = make_values((size_t)(p->M * p->K) * sizeof *p->a);
    p->b = make_values((size_t)(p->K * p->N) * sizeof *p->b);
    p->c = make_values((size_t)(p->M * p->N) * sizeof *p->c);
    printf("%s", text);
    for (int packed = 0; packed <= 2; packed++) printf(" %.9f", time_primitive(p, seconds, packed));
    printf(" %.9f\n", time_calls(seconds, multiply, p));
    free(p->a);
    free(p->b);
    free(p->c);
}

int main(int argc, char **argv)
{
    product p = {0};
    double seconds = argc > 2 ? strtod(argv[1], NULL) : 0;
    if (seconds <= 0) fail("usage: bench_products SECONDS MxNxK:KIND ...");
    must(dnnl_engine_create(&p.engine, dnnl_cpu, 0));
    must(dnnl_stream_create(&p.stream, p.engine, dnnl_stream_default_flags));
    for (int i = 2; i < argc; i++) {
        parse(argv[i], &p);
        run(&p, seconds, argv[i]);
    }
    dnnl_stream_destroy(p.stream);
    dnnl_engine_destroy(p.engine);
}
