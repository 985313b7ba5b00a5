/* SPDX-License-Identifier: Apache-2.0
 *
 * Every kernel that the fast table has, with shapes of ordinary models and tensors larger than caches.
 */
#include "app/bench/kernels.h"

#define ROWS            "B=16 T=1024 C=1024"
#define WIDE            "B=16 T=1024 F=1024"
#define HEADS           "B=16 T=1024 H=16 D=64"
#define LOGITS          "R=512 V=50257"
#define WEIGHTS         "N=16777216"
#define ATTENTION(B, T) "B=" #B " T=" #T " H=12 G=12 D=64"

/* q, k, v, out, lse; dout, q, k, v, out, lse, dq, dk, dv. */
#define ATTENTION_FORWARD  "<BTHD <BTGD <BTGD >BTHD >BHT"
#define ATTENTION_BACKWARD "<BTHD <BTHD <BTGD <BTGD <BTHD <BHT >BTHD >BTGD >BTGD"

/* A call by the name of its row: c and t stand for what ech_bench_call has. */
#define CALL(op, ...)                                                                              \
    static void call_##op(ech_bench_call *c)                                                       \
    {                                                                                              \
        const ech_tensor *t = c->t;                                                                \
        c->kernels->op(c->context, __VA_ARGS__);                                                   \
    }

static const ech_dropout none = {0}, some = {.p = 0.1, .key = {.seed = 1}};
static const ech_update update = {.learning_rate = 1e-4,
                                  .weight_decay = 0.1,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .momentum = 0.9,
                                  .count = 1,
                                  .grad_scale = 1};
static const double scale = 0.125;

CALL(bias_backward, &t[0], false, &t[1])
CALL(layernorm_forward, &t[0], &t[1], &t[2], 1e-5, &t[3], &t[4], &t[5])
CALL(layernorm_backward, &t[0], &t[1], &t[2], &t[3], &t[4], NULL, &t[5], false, &t[6], &t[7])
CALL(rmsnorm_forward, &t[0], &t[1], 1e-5, &t[2], &t[3])
CALL(rmsnorm_backward, &t[0], &t[1], &t[2], &t[3], NULL, &t[4], false, &t[5])
CALL(gelu_forward, &t[0], &t[1])
CALL(gelu_backward, &t[0], &t[1], &t[2])
CALL(swiglu_forward, &t[0], &t[1], &t[2])
CALL(swiglu_backward, &t[0], &t[1], &t[2], &t[3], &t[4])
CALL(rotary, &t[0], c->frequency, &c->rows, NULL, false, &t[1])
CALL(attention_forward, &t[0], &t[1], &t[2], scale, &c->place, NULL, &none, false, &t[3], &t[4])
CALL(attention_backward, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], scale, &c->place, NULL, &none,
     false, false, &t[6], &t[7], &t[8])
CALL(embedding_forward, &t[0], &t[1], 0, &t[2])
CALL(embedding_backward, &t[0], &t[1], 0, false, &t[2])
CALL(position_forward, &t[0], &t[1], &c->rows, NULL, &t[2])
CALL(position_backward, &t[0], &c->rows, NULL, false, &t[1])
CALL(dropout, &t[0], &some, &c->rows, &t[1])
CALL(add, &t[0], &t[1], &t[2])
CALL(copy, &t[0], &t[1])
CALL(loss_statistics, &t[0], &t[1], 0, &t[2])
CALL(loss_gradient, &t[0], &t[1], &t[2], 0, &t[3], &t[4], true, &t[5])
CALL(adamw, &t[0], &t[1], &t[2], &t[3], &update)
CALL(sgd, &t[0], &t[1], &t[2], &update)
CALL(square_sums, &t[0], &t[1])
CALL(fill_normal, &t[0], (ech_random_key){.seed = 1}, 0, 0.0, 0.02)

static void call_find_nonfinite(ech_bench_call *c)
{
    int64_t first;
    c->kernels->find_nonfinite(c->context, &c->t[0], &first);
}

/* Looked-up tables count as many rows as are looked up; dropout's and the normals' random numbers are
 * integer work, which no bound here knows. The causal half of attention: 2 products of 2 B H T T D / 2
 * operations forward, 5 backward. */
#define ROW(op, ...)                                                                               \
    {                                                                                              \
        ECH_OP_##op, __VA_ARGS__, call_##op                                                        \
    }

const ech_bench_kernel ech_bench_kernel_rows[] = {
    ROW(bias_backward, ROWS, "<RC >C", "RC", NULL),
    ROW(layernorm_forward, ROWS, "<RC <C <C >RC >R >R", "8RC", NULL),
    ROW(layernorm_backward, ROWS, "<RC <RC <C <R <R >RC >C >C", "14RC", NULL),
    ROW(rmsnorm_forward, ROWS, "<RC <C >RC >R", "4RC", NULL),
    ROW(rmsnorm_backward, ROWS, "<RC <RC <C <R >RC >C", "10RC", NULL),
    ROW(gelu_forward, WIDE, "<RF >RF", "8RF", NULL),
    ROW(gelu_backward, WIDE, "<RF <RF >RF", "15RF", NULL),
    ROW(swiglu_forward, WIDE, "<RF <RF >RF", "5RF", NULL),
    ROW(swiglu_backward, WIDE, "<RF <RF <RF >RF >RF", "11RF", NULL),
    ROW(rotary, HEADS, "<BTHD >BTHD", "3BTHD", NULL),
    ROW(attention_forward, ATTENTION(16, 256), ATTENTION_FORWARD, "2BHTTD", NULL),
    ROW(attention_forward, ATTENTION(4, 1024), ATTENTION_FORWARD, "2BHTTD", NULL),
    ROW(attention_forward, ATTENTION(1, 4096), ATTENTION_FORWARD, "2BHTTD", NULL),
    ROW(attention_backward, ATTENTION(16, 256), ATTENTION_BACKWARD, "5BHTTD", NULL),
    ROW(attention_backward, ATTENTION(4, 1024), ATTENTION_BACKWARD, "5BHTTD", NULL),
    ROW(attention_backward, ATTENTION(1, 4096), ATTENTION_BACKWARD, "5BHTTD", NULL),
    ROW(embedding_forward, ROWS " V=50257", "~VC <iR >RC", "", "8RC 4R"),
    ROW(embedding_backward, ROWS " V=50257", "<RC <iR >VC", "RC", NULL),
    ROW(position_forward, ROWS " P=1024", "<RC <PC >RC", "RC", NULL),
    ROW(position_backward, ROWS " P=1024", "<RC >PC", "RC", NULL),
    ROW(dropout, ROWS, "<RC >RC", "RC", NULL),
    ROW(add, ROWS, "<RC <RC >RC", "RC", NULL),
    ROW(copy, HEADS, "<BTHD >BTHD", "", NULL),
    ROW(loss_statistics, LOGITS, "<RV <iR >dR3", "3RV", NULL),
    ROW(loss_gradient, LOGITS, "=RV <iR <R <dR3 <d =d2", "4RV", NULL),
    ROW(adamw, WEIGHTS, "=N <N =N =N", "15N", NULL),
    ROW(sgd, WEIGHTS, "=N <N =N", "7N", NULL),
    ROW(square_sums, WEIGHTS, "<N >dS", "2N", "4N"),
    ROW(find_nonfinite, WEIGHTS, "<N", "", NULL),
    ROW(fill_normal, WEIGHTS, ">N", "", NULL),
};
const int ech_bench_kernel_count = sizeof ech_bench_kernel_rows / sizeof *ech_bench_kernel_rows;
