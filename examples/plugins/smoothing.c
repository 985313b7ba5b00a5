/* SPDX-License-Identifier: Apache-2.0
 *
 * A loss: the cross-entropy with label smoothing (Szegedy et al. 2016, arXiv:1512.00567, section
 * 7). A tenth of the target's probability is shared among all tokens.
 *
 *     cc -shared -fPIC -O2 -I include examples/plugins/smoothing.c -o smoothing.so -lm
 *     echelon train run.yaml training.plugins=./smoothing.so training.loss=smoothing
 */
#include <echelon_plugin.h>
#include <math.h>

static const double smoothing = 0.1;

/* log of the sum of exponentials of a row. */
static double log_sum(const echelon_loss_work *work, int64_t row)
{
    int64_t V = work->vocabulary;
    double largest = echelon_get(&work->logits, row * V), sum = 0;
    for (int64_t v = 1; v < V; v++)
        largest = fmax(largest, echelon_get(&work->logits, row * V + v));
    for (int64_t v = 0; v < V; v++) sum += exp(echelon_get(&work->logits, row * V + v) - largest);
    return largest + log(sum);
}

static void forward(const echelon_loss_work *work)
{
    int64_t V = work->vocabulary;
    for (int64_t r = 0; r < work->rows; r++) {
        double mean = 0;
        if (work->weight[r] == 0) continue;
        for (int64_t v = 0; v < V; v++) mean += echelon_get(&work->logits, r * V + v) / (double)V;
        double of_target = echelon_get(&work->logits, r * V + work->target[r]);
        work->loss[r] = log_sum(work, r) - (1 - smoothing) * of_target - smoothing * mean;
    }
}

static void backward(const echelon_loss_work *work)
{
    int64_t V = work->vocabulary;
    for (int64_t r = 0; r < work->rows; r++) {
        if (work->weight[r] == 0) continue;
        double all = log_sum(work, r);
        for (int64_t v = 0; v < V; v++) {
            double wanted = smoothing / (double)V + (v == work->target[r] ? 1 - smoothing : 0);
            echelon_set(&work->gradient, r * V + v,
                        exp(echelon_get(&work->logits, r * V + v) - all) - wanted);
        }
    }
}

static const echelon_loss loss = {
    .size = sizeof loss, .name = "smoothing", .forward = forward, .backward = backward};
static const echelon_loss *const losses[] = {&loss, NULL};

const echelon_plugin echelon_plugin_table = {.size = sizeof(echelon_plugin),
                                             .version = ECHELON_PLUGIN_VERSION,
                                             .name = "smoothing",
                                             .losses = losses};
