/* SPDX-License-Identifier: Apache-2.0
 *
 *     print_updates OPTIMIZER LEARNING_RATE ROWS COLUMNS STEPS [section.key=value ...] < NUMBERS
 *
 * Reads weights and the gradients of STEPS steps, ROWS x COLUMNS (ROWS 0: a vector) numbers each,
 * and prints the weights after each step, in fp64. For check_optimizers.py.
 */
#include <stdio.h>
#include <string.h>

#include "optim/optimized.h"

static void read_numbers(ech_tensor *x)
{
    for (int64_t i = 0; i < ech_tensor_count(x); i++)
        if (scanf("%lf", (double *)x->data + i) != 1) exit(1);
}

int main(int argc, char **argv)
{
    if (argc < 6) return 2;
    ech_config *config = optimized_config(argv[1]);
    double rate = strtod(argv[2], NULL);
    for (int i = 6; i < argc; i++)
        if (ech_config_set(config, argv[i]) != ECH_OK) return 2;
    config->optimizer.learning_rate = rate;
    config->training.steps = atoi(argv[5]);
    optimized o =
        optimized_create(config, ech_kernels_ref(ECH_F64), atoll(argv[3]), atoll(argv[4]));
    read_numbers(&o.param);
    for (int step = 0; step < atoi(argv[5]); step++) {
        read_numbers(&o.gradient);
        optimized_step(&o, ech_learning_rate(config, ech_curve_of(config), step + 1), 1);
        for (int64_t i = 0; i < ech_tensor_count(&o.param); i++)
            printf("%.17g\n", optimized_get(&o.param, i));
    }
    optimized_free(&o);
    ech_config_destroy(config);
    return 0;
}
