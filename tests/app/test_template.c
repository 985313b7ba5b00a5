/* SPDX-License-Identifier: Apache-2.0
 *
 * Run files for texts: the model grows with the texts and with the machine, and what is written is
 * a run file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/setup/setup.h"
#include "app/setup/template.h"
#include "unit.h"

/* The run file for `lines` lines of 10 bytes on a machine of so many FLOP/s. */
static ech_config *make(int lines, double flops, double of_bf16)
{
    const ech_template_machine machine = {.cores = 2,
                                          .flops = {[ECH_F32] = flops, [ECH_BF16] = of_bf16}};
    char path[] = "texts-XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    ECH_FREED_TEXT text = {0};
    ech_config *config = NULL;
    assert_non_null(file);
    for (int i = 0; i < lines; i++) fprintf(file, "%09d\n", i);
    fclose(file);
    assert_int_equal(ech_template_of_texts(path, &machine, &text), ECH_OK);
    unlink(path);
    assert_int_equal(ech_setup_config_text(text.at, "made", NULL, 0, &config), ECH_OK);
    for (const char *at = text.at; *at; at = strchr(at, '\n') + 1)
        if (*at == ' ') assert_true(strchr(at, '#') < strchr(at, '\n')); /* each value's origin */
    return config;
}

static void check(int lines, double flops, int layers, int steps)
{
    ech_config *config = make(lines, flops, flops);
    assert_int_equal(config->model.num_hidden_layers, layers);
    assert_int_equal(config->training.steps, steps);
    assert_int_equal(config->precision.compute, ECH_F32);
    ech_config_destroy(config);
}

/* 12 L C^2 + 257 C parameters with 20 tokens each; 95 % of the bytes count, four times at most. */
TEST(models_grow_with_texts_and_machines)
{
    const double fast = 1e15, slow = 1e9;
    check(100, fast, 2, 100);        /* 950 bytes: the fewest steps */
    check(100 * 1000, fast, 2, 464); /* 4 x 950,000 tokens of 8,192 a step */
    check(1000 * 1000, fast, 4, (20 * 1818816) / 8192 + 1);
    check(1000 * 1000, slow, 2, (20 * 426112) / 8192 + 1);
}

TEST(types_suit_the_machine)
{
    ech_config *config = make(100, 1e9, 2e9);
    assert_int_equal(config->precision.compute, ECH_BF16);
    ech_config_destroy(config);
}

TEST(there_must_be_texts)
{
    const ech_template_machine machine = {.cores = 1, .flops = {[ECH_F32] = 1e9}};
    ECH_FREED_TEXT text = {0};
    assert_int_equal(ech_template_of_texts("no such file", &machine, &text), ECH_EIO);
    assert_int_equal(text.n, 0);
}
