/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts in bf16 and fp16 against one rank: partial sums are rounded once each, so along every axis the first steps'
 * losses are within 1e-3 and gradient norms within 0.5%. A pipeline changes no bit (test_pipeline_bits.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "app/grid_run.h"

enum { STEPS = 3 };

typedef struct steps {
    double loss[STEPS], norm[STEPS];
} steps;

static ech_status train(ech_comm *comm, const ech_design *design, void *context)
{
    steps *s = context;
    ech_compared_run run = {.design = design};
    ECH_TRY(ech_compared_run_open(&run, comm));
    for (int step = 0; step < STEPS; step++) {
        ECH_TRY(ech_exec_run(run.session.exec, ECH_LIST_TRAIN, step));
        const ech_readings *r = ech_exec_readings(run.session.exec);
        if (ech_comm_rank(comm) == 0) s->loss[step] = r->loss;
        if (ech_comm_rank(comm) == 0) s->norm[step] = r->grad_norm;
    }
    ech_compared_run_close(&run);
    return ECH_OK;
}

static steps run(const char *family, int ranks, const char *precision, const char *layout)
{
    steps s = {{0}, {0}};
    char words[500];
    snprintf(words, sizeof words,
             "training.micro_batch_size=1 optimizer.learning_rate=1e-3 "
             "model.tie_word_embeddings=false %s %s",
             precision, layout);
    ech_config *config = grid_config_of(family, "run", words);
    if (!config) fail_msg("%s: %s", words, ech_last_error());
    if (fixture_run(config, ranks, train, &s) != ECH_OK)
        fail_msg("%s: %s", words, ech_last_error());
    ech_config_destroy(config);
    return s;
}

static void check(const steps *one, const char *family, int ranks, const char *precision,
                  const char *layout)
{
    steps many = run(family, ranks, precision, layout);
    double loss = 0, norm = 0;
    for (int i = 0; i < STEPS; i++) {
        loss = fmax(loss, fabs(many.loss[i] - one->loss[i]));
        norm = fmax(norm, fabs(many.norm[i] / one->norm[i] - 1));
    }
    print_message("%-5s %-24s %-66s loss %.1e norm %.2f%%\n", family, precision, layout, loss,
                  100 * norm);
    if (!(loss <= 1e-3) || !(norm <= 5e-3))
        fail_msg("%s with %s %s: losses %g apart, norms %g", family, precision, layout, loss, norm);
}

static const struct {
    int ranks;
    const char *words;
} layouts[] = {
    {2, "parallel.tensor=2"},
    {4, "parallel.tensor=4 parallel.sequence=true"},
    {2, "parallel.context=2"},
    {2, "parallel.context=2 parallel.context_method=ulysses"},
    {2, "parallel.data=2 precision.reduce=bf16"},
    {1, "memory.sequence_chunks=4"},
    {8, "parallel.data=2 parallel.context=2 parallel.tensor=2"},
};

static void check_all(const char *family, const char *precision, size_t first, size_t step)
{
    steps one = run(family, 1, precision, "");
    for (size_t i = first; i < sizeof layouts / sizeof *layouts; i += step)
        check(&one, family, layouts[i].ranks, precision, layouts[i].words);
}

static void test_bf16(void **state)
{
    (void)state;
    check_all("llama", "precision.compute=bf16", 0, 1);
    check_all("gpt2", "precision.compute=bf16", 0, 3);
}

static void test_types_of_gradients_and_stream(void **state)
{
    (void)state;
    check_all("llama", "precision.compute=bf16 precision.gradients=compute", 1, 5);
    check_all("gpt2", "precision.compute=bf16 precision.residual=fp32", 1, 5);
}

static void test_fp16(void **state)
{
    (void)state;
    check_all("llama", "precision.compute=fp16", 1, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bf16),
                                       cmocka_unit_test(test_types_of_gradients_and_stream),
                                       cmocka_unit_test(test_fp16)};
    return cmocka_run_group_tests(tests, grid_setup, fixture_teardown);
}
