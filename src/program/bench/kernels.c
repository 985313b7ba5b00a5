/* SPDX-License-Identifier: Apache-2.0
 *
 * The bench's tables of matrix products and of kernels: operands and calls.
 */
#include "program/bench/kernels.h"

#include <stdio.h>

#include "device/device.h"

/* ---- rows ----
 *
 * Every kernel that the fast table has, with shapes of ordinary models and tensors larger than
 * caches. */

#define ROWS            "B=16 T=1024 C=1024"
#define WIDE            "B=16 T=1024 F=1024"
#define HEADS           "B=16 T=1024 H=16 D=64"
#define LOGITS          "R=512 V=50257"
#define CLASSES         "R=256 V=1000"
#define WEIGHTS         "N=16777216"
#define LISTED          "N=16777216 K=16384"
#define MATRIX          "R=4096 C=4096"
#define IMAGES          "B=64 H=32 W=32 C=64"
#define GROUPS          "R=65536 C=64 S=64 G=1"
#define CHOICES         "S=2048 J=2 N=4096 C=512 T=2048 E=8"
#define TOKENS          "B=2 T=512 C=512 F=2048"
#define CODED           "R=4096"
#define HIDDEN          "R=4096 F=1536 P=1 X=8"
#define ATTENTION(B, T) "B=" #B " T=" #T " H=12 G=12 D=64 E=64"

/* q, k, v, out, lse; dout, q, k, v, out, lse, dq, dk, dv. */
#define ATTENTION_FORWARD  "<BTHD <BTGD <BTGE >BTHE >wBHT"
#define ATTENTION_BACKWARD "<BTHE <BTHD <BTGD <BTGE <BTHE <wBHT >BTHD >BTGD >BTGE"

/* A call by the name of its row: c and t stand for what ech_bench_call has. */
#define CALL(op, ...)                                                                              \
    static void call_##op(ech_bench_call *c)                                                       \
    {                                                                                              \
        const ech_tensor *t = c->t;                                                                \
        c->kernels->op(c->context, __VA_ARGS__);                                                   \
    }

static const ech_dropout none = {0}, some = {.p = 0.1, .key = {.seed = 1}};
/* 3 x 3 pixels; the padding keeps the size. */
static const ech_filter nine = {{3, 3}, {1, 1}, {1, 1}};
static const ech_update update = {.learning_rate = 1e-4,
                                  .weight_decay = 0.1,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .momentum = 0.9,
                                  .count = 1,
                                  .grad_scale = 1};

CALL(matmul, &t[0], c->a_transposed, &t[1], c->b_transposed, NULL, c->adds ? &t[2] : NULL, &t[2])
CALL(bias_backward, &t[0], false, &t[1])
CALL(layernorm_forward, &t[0], &t[1], &t[2], 1e-5, &t[3], &t[4], &t[5])
CALL(layernorm_backward, &t[0], &t[1], &t[2], &t[3], &t[4], NULL, &t[5], false, &t[6], &t[7])
CALL(rmsnorm_forward, &t[0], NULL, &t[1], 0, 1e-5, &t[2], &t[3])
CALL(rmsnorm_backward, &t[0], &t[1], &t[2], 0, &t[3], NULL, &t[4], NULL, false, &t[5])
CALL(squares_forward, &t[0], 0.5, &t[1])
CALL(squares_backward, &t[0], &t[1], 0.5, NULL, &t[2])
CALL(add_layernorm, &t[0], &t[1], &t[2], &t[3], &t[4], 1e-5, &t[5], &t[6], &t[7])
CALL(add_rmsnorm, &t[0], &t[1], &t[2], &t[3], 0, 1e-5, &t[4], &t[5])
#define CALLS_1(name)                                                                              \
    CALL(matmul_##name, &t[0], false, &t[1], false, &t[2], &t[3], &t[4])                           \
    CALL(name##_forward, &t[0], &t[1])                                                             \
    CALL(name##_backward, &t[0], &t[1], &t[2])                                                     \
    CALL(name##_backward_bias, &t[0], &t[1], &t[2], false, &t[3])                                  \
    CALL(grouped_##name##_forward, &t[0], &t[1], &t[2])                                            \
    CALL(grouped_##name##_backward, &t[0], &t[1], &t[2], &t[3])
#define CALLS_2(name)                                                                              \
    CALL(name##_forward, &t[0], &t[1], &t[2])                                                      \
    CALL(name##_backward, &t[0], &t[1], &t[2], &t[3], &t[4])                                       \
    CALL(grouped_##name##_forward, &t[0], &t[1], &t[2], &t[3])                                     \
    CALL(grouped_##name##_backward, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5])
#define CALLS(NAME, name, operands, ...) CALLS_##operands(name)
ECH_ACTIVATIONS(CALLS)

CALL(rotary, &t[0], c->frequency, t[0].shape[3], false, 1, &c->rows, NULL, false, &t[1])
CALL(attention_forward, &t[0], &t[1], &t[2], &c->rule, &c->shard, NULL, &none, false, &t[3], &t[4])
CALL(attention_backward, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &c->rule, &c->shard, NULL, &none,
     false, false, &t[6], &t[7], &t[8])
CALL(sinks_forward, &t[0], &t[1], &t[2])
CALL(sinks_backward, &t[0], &t[1], &t[2], &t[3], false, &t[4])
CALL(embedding_forward, &t[0], &t[1], 0, &t[2])
CALL(embedding_backward, &t[0], &t[1], 0, false, &t[2])
CALL(position_forward, &t[0], &t[1], &c->rows, NULL, &t[2])
CALL(position_backward, &t[0], &c->rows, NULL, false, &t[1])
CALL(dropout, &t[0], &some, &c->rows, &t[1])
CALL(add, &t[0], &t[1], &t[2])
CALL(subtract, &t[0], &t[1], &t[2])
CALL(scale, &t[0], 0.5, 0, &t[1])
CALL(copy, &t[0], &t[1])
CALL(sum_heads, &t[0], &t[1])
CALL(encode_bits, &t[0], &t[1])
CALL(decode_bits, &t[0], &t[1])
CALL(encode_sparse, &t[0], &t[1], &t[2], &t[3], &t[4], NULL)
CALL(decode_sparse, &t[0], &t[1], &t[2], &t[3], &t[4])
CALL(encode_places, &t[0], &t[1])
CALL(decode_places, &t[0], &t[1])
CALL(encode_narrow, &t[0], t[1].shape[1] == 2048 ? 16 : t[1].shape[1] == 1368 ? 10 : 8, &t[1])
CALL(decode_narrow, &t[0], t[0].shape[1] == 2048 ? 16 : t[0].shape[1] == 1368 ? 10 : 8, &t[1])
CALL(append, &t[0], &c->rows, &t[1])
CALL(router_forward, &t[0], &t[1], &some, &c->rows, &t[2])
CALL(router_backward_input, &t[0], &t[1], &some, &c->rows, NULL, &t[2])
CALL(router_backward_weight, &t[0], &t[1], &some, &c->rows, false, &t[2])
CALL(dispatch_forward, &t[0], &t[1], &t[2])
CALL(dispatch_backward, &t[0], &t[1], NULL, &t[2])
CALL(dispatch_index, &t[0], &c->rows, &t[1])
CALL(combine_forward, &t[0], &t[1], &t[2], &t[3])
CALL(combine_backward, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5])
CALL(row_gate_forward, &t[0], &t[1], &t[2])
CALL(row_gate_backward, &t[0], &t[1], &t[2], &t[3], &t[4])
CALL(grouped_matmul, &t[0], &t[1], c->b_transposed, &t[2], false, &t[3])
CALL(grouped_matmul_weight, &t[0], &t[1], &t[2], false, &t[3])
CALL(add_bias, &t[0], &t[1], &t[2])
CALL(grouped_bias, &t[0], &t[1], &t[2])
CALL(grouped_bias_backward, &t[0], &t[1], false, &t[2])
CALL(grouped_dropout, &t[0], &some, &t[1], 0, t[0].shape[1], &t[2], &t[3])
CALL(loss_statistics, &t[0], &t[1], 0, &t[2])
CALL(loss_gradient, &t[0], &t[1], &t[2], 0, &t[3], &t[4], 1, 0, &t[0], &t[5])
CALL(smooth_statistics, &t[0], 0.1, &t[1])
CALL(smooth_gradient, &t[0], &t[1], &t[2], 0.1, &t[3])
CALL(sparse_logits, &t[0], &t[1], &t[2], &t[3])
CALL(sparse_logits_backward, &t[0], &t[1], false, &t[2], &t[3])
CALL(conv2d_forward, &t[0], &t[1], NULL, &nine, &t[2])
CALL(conv2d_backward_input, &t[0], &t[1], &nine, &t[2])
CALL(conv2d_backward_weight, &t[0], &t[1], &nine, false, &t[2])
CALL(max_pool_forward, &t[0], &nine, &t[1], &t[2])
CALL(max_pool_backward, &t[0], &t[1], &nine, &t[2])
CALL(mean_pool_forward, &t[0], &nine, &t[1])
CALL(mean_pool_backward, &t[0], &nine, &t[1])
CALL(transpose, &t[0], &t[1])
CALL(batch_norm_statistics, &t[0], t[1].shape[0], &t[1], &t[2])
CALL(batch_norm_forward, &t[0], &t[1], &t[2], &t[3], &t[4], 1e-5, &t[5])
CALL(batch_norm_backward, &t[0], &t[1], t[2].shape[0], &t[2], &t[3], &t[4], 1e-5, &t[5], false,
     &t[6], &t[7])
CALL(batch_norm_merge, &t[0], &t[1], &t[2])
CALL(batch_norm_sums, &t[0], &t[1], &t[2], &t[3], 1e-5, &t[4], false, &t[5], &t[6])
CALL(batch_norm_input, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], t[0].shape[0], 1e-5, &t[6])
CALL(adamw, &t[0], &t[1], &t[2], &t[3], &update, NULL)
CALL(sgd, &t[0], &t[1], &t[2], &update, NULL)
CALL(sgd_shared, &t[0], &t[1], &update)
CALL(copy_shared, &t[0], &t[1])
CALL(relay_shared, &t[0], &t[1], &t[2], 0.62, 0.38, 1, 0, 0)
CALL(sgd_shared_rows, &t[0], &t[1], &t[2], &update)
CALL(copy_shared_rows, &t[0], &t[1], &t[2])
CALL(adafactor_sums, &t[0], &t[1], &update, &t[2], &t[3], &t[4])
CALL(adafactor_squares, &t[0], &t[1], &t[2], &update, &t[3])
CALL(adafactor, &t[0], &t[1], &t[2], &t[3], NULL, &t[4], &t[4], &t[4], 1, &update, NULL)
CALL(sm3_maxima, &t[0], &t[1], &t[2], &update, &t[3], &t[4])
CALL(sm3, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], NULL, &update, NULL)
CALL(scaled_sum, &t[0], 0.5, 2, 1, NULL, NULL, &t[1])
CALL(choose, &t[0], false, &t[1], &t[2])
CALL(add_chosen, &t[0], &t[1], false, 0.5,
     &t[2]) /* at a line's first two places, which patterns say */
CALL(square_sums, &t[0], &t[1])
CALL(square_sums_rows, &t[0], &t[1], &t[2])
CALL(hash, &t[0], 0, &t[1])
CALL(find_nonfinite, &t[0], &t[1])
CALL(fill_normal, &t[0], (ech_random_key){.seed = 1}, 0, 0.0, 0.02)
CALL(fill_uniform, &t[0], (ech_random_key){.seed = 1}, 0, -0.02, 0.02)

/* Blocks as long as the sizes have them. */
static void call_adamw8(ech_bench_call *c)
{
    ech_update own = update;
    const ech_tensor *t = c->t;
    own.block = (t[0].shape[1] + t[4].shape[1] - 1) / t[4].shape[1];
    c->kernels->adamw8(c->context, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &own, NULL);
}

/* Looked-up tables count as many rows as are looked up; dropout's and the normals' random numbers
 * are integer work, which no bound here knows. The causal half of attention: 2 products of 2 B H T
 * T D / 2 operations forward, 5 backward. */
#define KERNEL(group, op, name, sizes, tensors, flops, bytes, phase, switches)                     \
    {                                                                                              \
        ECH_BENCH_##group, ECH_OP_##op, name, sizes, tensors, flops, bytes, call_##op, phase,      \
            switches                                                                               \
    }
#define ROW(op, sizes, tensors, flops, bytes)                                                      \
    KERNEL(KERNELS, op, #op, sizes, tensors, flops, bytes, NULL, "")

/* Convolutions by `nine`, whose strides and paddings are 1. */
#define CONVOLUTION(op, tensors)                                                                   \
    KERNEL(KERNELS, op, #op, "B=16 H=32 W=32 C=64 O=64 Y=3 X=3", tensors, "2BHWCOYX", NULL, NULL,  \
           "down across above beside")

/* Operands of X experts with R rows in all, R / X for each. */
#define GROUPED(R, X, in, out)                                                                     \
    KERNEL(KERNELS, grouped_matmul, "grouped_matmul", "R=" #R " N=" #out " K=" #in " P=1 X=" #X,   \
           "<RK <XNK <cPX >RN", "2RNK", NULL, "F", "b_transposed"),                                \
        KERNEL(KERNELS, grouped_matmul, "grouped_matmul",                                          \
               "R=" #R " N=" #in " K=" #out " P=1 X=" #X, "<RK <XKN <cPX >RN", "2RNK", NULL, "B",  \
               ""),                                                                                \
        KERNEL(KERNELS, grouped_matmul_weight, "grouped_matmul_weight",                            \
               "R=" #R " M=" #out " N=" #in " P=1 X=" #X, "<RM <RN <cPX >XMN", "2RMN", NULL, "W",  \
               "")

/* The three products of a linear layer with R tokens, y (R,out) = x (R,in) weight (out,in)
 * transposed. F: y; B: dx = dy weight; W: dweight = dy transposed x. */
#define PRODUCT(name, phase, M, N, K, tensors, switches)                                           \
    KERNEL(PRODUCTS, matmul, name, "M=" #M " N=" #N " K=" #K, tensors, "2MNK", NULL, phase,        \
           switches)
#define LAYER(name, R, in, out)                                                                    \
    PRODUCT(name, "F", R, out, in, "<MK <NK >MN", "b_transposed"),                                 \
        PRODUCT(name, "B", R, in, out, "<MK <KN >MN", ""),                                         \
        PRODUCT(name, "W", out, in, R, "<KM <KN >MN", "a_transposed")

/* Rows of activations (kernel/activations.h). */
#define FUSED_1(name)                                                                              \
    KERNEL(KERNELS, matmul_##name, "matmul_" #name, "M=1024 N=3072 K=768", "<MK <KN <wN >MN >MN",  \
           "2MNK", NULL, NULL, "has_bias"),
#define FUSED_2(name)
#define FUSED(NAME, name, operands, ...) FUSED_##operands(name)
#define ACTIVATION_1(name, forward, backward)                                                      \
    ROW(name##_forward, WIDE, "<RF >RF", forward "RF", NULL),                                      \
        ROW(name##_backward, WIDE, "<RF <RF >RF", backward "RF", NULL),                            \
        ROW(name##_backward_bias, "R=16384 N=1024", "<RN <RN >RN >wN", backward "RN", NULL),
#define ACTIVATION_2(name, forward, backward)                                                      \
    ROW(name##_forward, WIDE, "<RF <RF >RF", forward "RF", NULL),                                  \
        ROW(name##_backward, WIDE, "<RF <RF <RF >RF >RF", backward "RF", NULL),
#define ACTIVATION(NAME, name, operands, forward, backward, meaning)                               \
    ACTIVATION_##operands(name, forward, backward)
#define GROUPED_1(name, forward, backward)                                                         \
    ROW(grouped_##name##_forward, HIDDEN, "<RF <cPX >RF", forward "RF", NULL),                     \
        ROW(grouped_##name##_backward, HIDDEN, "<RF <RF <cPX >RF", backward "RF", NULL),
#define GROUPED_2(name, forward, backward)                                                         \
    ROW(grouped_##name##_forward, HIDDEN, "<RF <RF <cPX >RF", forward "RF", NULL),                 \
        ROW(grouped_##name##_backward, HIDDEN, "<RF <RF <RF <cPX >RF >RF", backward "RF", NULL),
#define GROUPED_ACTIVATION(NAME, name, operands, forward, backward, meaning)                       \
    GROUPED_##operands(name, forward, backward)

const ech_bench_kernel ech_bench_kernel_rows[] = {
    LAYER("qkv_384", 2048, 384, 1152),
    LAYER("up_384", 2048, 384, 1536),
    LAYER("down_384", 2048, 1536, 384),
    LAYER("qkv_512", 2048, 512, 1536),
    LAYER("up_512", 2048, 512, 1536),
    LAYER("qkv_768", 1024, 768, 2304),
    LAYER("proj_768", 1024, 768, 768),
    LAYER("up_768", 1024, 768, 3072),
    LAYER("down_768", 1024, 3072, 768),
    LAYER("head_384", 256, 384, 50257),
    LAYER("head_768", 256, 768, 50257),
    ECH_ACTIVATIONS(FUSED) ROW(bias_backward, ROWS, "<RC >wC", "RC", NULL),
    ROW(layernorm_forward, ROWS, "<RC <wC <wC >RC >wR >wR", "8RC", NULL),
    ROW(layernorm_backward, ROWS, "<RC <RC <wC <wR <wR >RC >wC >wC", "14RC", NULL),
    ROW(rmsnorm_forward, ROWS, "<RC <wC >RC >wR", "4RC", NULL),
    ROW(rmsnorm_backward, ROWS, "<RC <RC <wC <wR >RC >wC", "10RC", NULL),
    ROW(squares_forward, ROWS, "<RC >wR", "2RC", NULL),
    ROW(squares_backward, ROWS, "<wR <RC >RC", "RC", NULL),
    ROW(add_layernorm, ROWS, "<RC <RC >RC <wC <wC >RC >wR >wR", "9RC", NULL),
    ROW(add_rmsnorm, ROWS, "<RC <RC >RC <wC >RC >wR", "5RC", NULL),
    ECH_ACTIVATIONS(ACTIVATION) ROW(rotary, HEADS, "<BTHD >BTHD", "3BTHD", NULL),
    ROW(attention_forward, ATTENTION(16, 256), ATTENTION_FORWARD, "2BHTTD", NULL),
    ROW(attention_forward, ATTENTION(4, 1024), ATTENTION_FORWARD, "2BHTTD", NULL),
    ROW(attention_forward, ATTENTION(2, 2048), ATTENTION_FORWARD, "2BHTTD", NULL),
    ROW(attention_backward, ATTENTION(16, 256), ATTENTION_BACKWARD, "5BHTTD", NULL),
    ROW(attention_backward, ATTENTION(4, 1024), ATTENTION_BACKWARD, "5BHTTD", NULL),
    ROW(attention_backward, ATTENTION(2, 2048), ATTENTION_BACKWARD, "5BHTTD", NULL),
    ROW(sinks_forward, HEADS, "<wH >BTHD >wBHT", "", NULL),
    ROW(sinks_backward, HEADS, "<BTHD <BTHD <wBHT <wH >wH", "2BTHD", NULL),
    ROW(embedding_forward, ROWS " V=50257", "~VC <iR >RC", "", "8RC 4R"),
    ROW(embedding_backward, ROWS " V=50257", "<RC <iR >wVC", "RC", NULL),
    ROW(position_forward, ROWS " P=1024", "<RC <PC >RC", "RC", NULL),
    ROW(position_backward, ROWS " P=1024", "<RC >wPC", "RC", NULL),
    ROW(dropout, ROWS, "<RC >RC", "RC", NULL),
    ROW(add, ROWS, "<RC <RC >RC", "RC", NULL),
    ROW(subtract, ROWS, "<RC <RC >RC", "RC", NULL),
    ROW(scale, ROWS, "<RC >RC", "RC", NULL),
    ROW(copy, HEADS, "<BTHD >BTHD", "", NULL),
    ROW(sum_heads, HEADS, "<BTHD >BTD", "BTHD", NULL),
    ROW(append, HEADS, "<BTHD >BTHD", "", NULL),
    ROW(encode_bits, CODED, "<R1024 >bR128", "", NULL),
    ROW(decode_bits, CODED, "<bR128 >R1024", "", NULL),
    ROW(encode_sparse, CODED, "<R1024 >R1024 >bR1024 >nR4 ~R1024", "", NULL),
    ROW(decode_sparse, CODED, "<R512 <bR512 <eR4 ~R1024 >R1024", "", NULL),
    ROW(encode_places, CODED, "<bR1024 >bR512", "", NULL),
    ROW(decode_places, CODED, "<bR512 >bR1024", "", NULL),
    ROW(encode_narrow, CODED, "<R1024 >bR2048", "", NULL),
    ROW(encode_narrow, CODED, "<R1024 >bR1368", "", NULL),
    ROW(encode_narrow, CODED, "<R1024 >bR1024", "", NULL),
    ROW(decode_narrow, CODED, "<bR2048 >R1024", "", NULL),
    ROW(decode_narrow, CODED, "<bR1368 >R1024", "", NULL),
    ROW(decode_narrow, CODED, "<bR1024 >R1024", "", NULL),
    ROW(router_forward, CHOICES, "<SC <wEC >wSE", "2SEC", NULL),
    ROW(router_backward_input, CHOICES, "<wSE <wEC >SC", "2SEC", NULL),
    ROW(router_backward_weight, CHOICES, "<wSE <SC >wEC", "2SEC", NULL),
    ROW(dispatch_forward, CHOICES, "<SC <nSJ >NC", "", NULL),
    ROW(dispatch_backward, CHOICES, "<NC <nSJ >SC", "NC", NULL),
    ROW(dispatch_index, CHOICES, "<nSJ >nN2", "", NULL),
    ROW(combine_forward, CHOICES, "<NC <wSJ <nSJ >SC", "2NC", NULL),
    ROW(combine_backward, CHOICES, "<SC <NC <wSJ <nSJ >NC >wSJ", "3NC", NULL),
    ROW(row_gate_forward, CHOICES, "<SC <wS1 >SC", "SC", NULL),
    ROW(row_gate_backward, CHOICES, "<SC <SC <wS1 >SC >wS1", "3SC", NULL),
    GROUPED(2048, 16, 512, 1536),
    GROUPED(2048, 8, 512, 1536),
    GROUPED(16384, 64, 512, 1536),
    ECH_ACTIVATIONS(GROUPED_ACTIVATION) ROW(add_bias, CHOICES, "<wSE <wE >wSE", "SE", NULL),
    ROW(grouped_bias, HIDDEN, "<XF <cPX >RF", "", NULL),
    ROW(grouped_bias_backward, HIDDEN, "<RF <cPX >wXF", "RF", NULL),
    ROW(grouped_dropout, HIDDEN, "<RF <nR2 <cPX >RF", "RF", NULL),
    ROW(loss_statistics, LOGITS, "<wRV <iR >dR3", "3RV", NULL),
    ROW(loss_gradient, LOGITS, "=RV <iR <wR <dR3 <d =d2", "4RV", NULL),
    ROW(smooth_statistics, CLASSES, "<RV =dR3", "RV", NULL),
    ROW(smooth_gradient, CLASSES, "<iR <wR <d =RV", "RV", NULL),
    ROW(sparse_logits, "R=65536 K=80 N=1", "<RK <wRK <wN >wR", "2RK", NULL),
    ROW(sparse_logits_backward, "R=65536 K=80 N=1", "<wR <wRK >RK >wN", "RK", NULL),
    CONVOLUTION(conv2d_forward, "<BHWC <OCYX >BHWO"),
    CONVOLUTION(conv2d_backward_input, "<BHWO <OCYX >BHWC"),
    CONVOLUTION(conv2d_backward_weight, "<BHWO <BHWC >OCYX"),
    ROW(max_pool_forward, IMAGES, "<BHWC >BHWC >bBHWC", "9BHWC", NULL),
    ROW(max_pool_backward, IMAGES, "<BHWC <bBHWC >BHWC", "9BHWC", NULL),
    ROW(mean_pool_forward, IMAGES, "<BHWC >BHWC", "9BHWC", NULL),
    ROW(mean_pool_backward, IMAGES, "<BHWC >BHWC", "9BHWC", NULL),
    ROW(transpose, "B=64 N=1024 C=64", "<BNC >BCN", "", NULL),
    ROW(batch_norm_statistics, GROUPS, "<RC >wSC >wSC", "4RC", NULL),
    ROW(batch_norm_forward, GROUPS, "<RC <wSC <wSC <wC <wC >RC", "4RC", NULL),
    ROW(batch_norm_backward, GROUPS, "<RC <RC <wSC <wSC <wC >RC >wC >wC", "10RC", NULL),
    ROW(batch_norm_merge, GROUPS, "<w8C >wSC >wSC", "", NULL),
    ROW(batch_norm_sums, GROUPS, "<RC <RC <wSC <wSC >w2C >wC >wC", "5RC", NULL),
    ROW(batch_norm_input, GROUPS, "<RC <RC <wSC <wSC <wC <w2C >RC", "5RC", NULL),
    ROW(adamw, WEIGHTS, "=wN <N =wN =wN", "15N", NULL),
    ROW(sgd, WEIGHTS, "=wN <N =wN", "7N", NULL),
    ROW(sgd_shared, WEIGHTS, "=wN <N", "3N", NULL),
    ROW(copy_shared, WEIGHTS, "<wN >wN", "", NULL),
    ROW(relay_shared, WEIGHTS, "=wN =wN =wN", "8N", NULL),
    ROW(sgd_shared_rows, LISTED, "=wN1 =K1 <nK", "3K", "20K"),
    ROW(copy_shared_rows, LISTED, "<wN1 <nK >wK1", "", "12K"),
    ROW(adamw8, MATRIX " B=16", "=wRC <RC =bRC =bRC =wRB =wRB", "17RC", NULL),
    ROW(adafactor_sums, MATRIX, "<wRC <RC >dR >dC >d", "6RC", NULL),
    ROW(adafactor_squares, MATRIX, "<RC <wR <wC >d", "3RC", NULL),
    ROW(adafactor, MATRIX, "=wRC <RC <wR <wC <d", "5RC", NULL),
    ROW(sm3_maxima, MATRIX, "<RC <wR <wC >dR >dC", "5RC", NULL),
    ROW(sm3, MATRIX, "=wRC <RC <wR <wC <dR <dC", "9RC", NULL),
    ROW(scaled_sum, MATRIX, "<RC =wRC", "3RC", NULL),
    ROW(choose, MATRIX " K=41", "<wRC >wRK >wRK", "", NULL),
    ROW(add_chosen, MATRIX " K=41", "<wRK <wRK ~wRC", "2RK", "16RK"),
    ROW(square_sums, WEIGHTS, "<N >dS", "2N", "4N"),
    ROW(square_sums_rows, LISTED, "<K1 <nK >dS", "2K", "8K 8S"),
    ROW(hash, WEIGHTS, "<N =l", "", NULL),
    ROW(find_nonfinite, WEIGHTS, "<N >d", "", NULL),
    ROW(fill_normal, WEIGHTS, ">N", "", NULL),
    ROW(fill_uniform, WEIGHTS, ">N", "", NULL),
};
const int ech_bench_kernel_count = sizeof ech_bench_kernel_rows / sizeof *ech_bench_kernel_rows;

/* ---- rows of a cluster file ---- */

#define OF_CLUSTER(kind, op, sizes, tensors, flops)                                                \
    KERNEL(KERNELS, op, kind, sizes, tensors, flops, NULL, NULL, "")
/* As in training, where the gradients of weights accumulate. */
#define TRAINED(R, in, out)                                                                        \
    PRODUCT("product", "F", R, out, in, "<MK <NK >MN", "b_transposed"),                            \
        PRODUCT("product", "B", R, in, out, "<MK <KN >MN", ""),                                    \
        PRODUCT("product", "W", out, in, R, "<KM <KN =MN", "a_transposed has_add")

/* Products from the shapes of small ranks to those that fill a GPU; then the kernels that a block
 * of a Transformer has, each as often. */
const ech_bench_kernel ech_bench_cluster_rows[] = {
    TRAINED(64, 256, 256),
    TRAINED(256, 256, 1024),
    TRAINED(256, 1024, 256),
    TRAINED(512, 384, 1152),
    TRAINED(512, 384, 384),
    TRAINED(512, 768, 768),
    TRAINED(1024, 768, 3072),
    TRAINED(256, 512, 8192),
    TRAINED(4096, 1024, 4096),
    TRAINED(16384, 1024, 1024),
    TRAINED(8192, 4096, 4096),
    OF_CLUSTER("attention", attention_forward, ATTENTION(4, 256), ATTENTION_FORWARD, "2BHTTD"),
    OF_CLUSTER("attention", attention_backward, ATTENTION(4, 256), ATTENTION_BACKWARD, "5BHTTD"),
    OF_CLUSTER("attention", attention_forward, ATTENTION(1, 1024), ATTENTION_FORWARD, "2BHTTD"),
    OF_CLUSTER("attention", attention_backward, ATTENTION(1, 1024), ATTENTION_BACKWARD, "5BHTTD"),
    OF_CLUSTER("kernel", layernorm_forward, TOKENS, "<RC <wC <wC >RC >wR >wR", "8RC"),
    OF_CLUSTER("kernel", layernorm_backward, TOKENS, "<RC <RC <wC <wR <wR >RC >wC >wC", "14RC"),
    OF_CLUSTER("kernel", gelu_forward, TOKENS, "<RF >RF", "RF"),
    OF_CLUSTER("kernel", gelu_backward, TOKENS, "<RF <RF >RF", "RF"),
    OF_CLUSTER("kernel", add, TOKENS, "<RC <RC >RC", "RC"),
    OF_CLUSTER("launch", add, "B=1 T=1 C=8", "<RC <RC >RC", "RC"),
};
const int ech_bench_cluster_count = sizeof ech_bench_cluster_rows / sizeof *ech_bench_cluster_rows;

bool ech_bench_kernel_has(const char *device, const ech_bench_kernel *row, ech_dtype dtype)
{
    const ech_kernels *own = ech_kernels_on(device, dtype), *ref = ech_kernels_ref(dtype);
    const bool is_own[ECH_OPS] = {
#define X(op, ...) [ECH_OP_##op] = own->op && (dtype == ECH_F32 || own->op != ref->op),
#include "kernel/kernel.def"
#undef X
    };
    return is_own[row->op];
}

void ech_bench_kernel_describe(const ech_bench_kernel *row, ech_dtype dtype, int64_t most,
                               ech_bench_result *out)
{
    ech_bench_sizes sizes = ech_bench_parse_sizes(row->sizes, most);
    *out = (ech_bench_result){
        .group = row->group,
        .name = row->name,
        .dtype = dtype,
        .of_products = row->op == ECH_OP_matmul || row->op == ECH_OP_matmul_gelu ||
                       row->op == ECH_OP_grouped_matmul ||
                       row->op == ECH_OP_grouped_matmul_weight ||
                       row->op == ECH_OP_attention_forward || row->op == ECH_OP_attention_backward,
        .flops = ech_bench_count(row->flops, &sizes),
        .bytes = row->bytes ? ech_bench_count(row->bytes, &sizes)
                            : ech_bench_parse_operands(row->tensors, &sizes, dtype).bytes};
    snprintf(out->shape, sizeof out->shape, "%s%s%s", row->phase ? row->phase : "",
             row->phase ? " " : "", row->sizes);
}
