/* SPDX-License-Identifier: Apache-2.0
 *
 * Forwards in place: activations and batch norms write over their input if no later call reads it
 * (schedule/inherit.c). In validation each of them does; in training those whose input no backward
 * reads. Plans of networks on images; the lattice trains them.
 */
#include "app/fixture.h"
#include "app/setup/setup.h"
#include "layer/layers.h"
#include "schedule/operands.h"
#include "unit.h"

enum { SIDE = 32, BATCH = 16 };

#define VGG                                                                                        \
    "model.architecture=vgg model.weight_layers=16 model.base_channels=8 model.hidden_size=64 "
#define RESNET "model.architecture=resnet model.weight_layers=18 model.base_channels=8 "
#define PREACT "model.architecture=resnet model.weight_layers=20 model.pre_activation=true "
#define REVNET "model.architecture=revnet model.weight_layers=14 model.base_channels=8 "

typedef struct planned {
    ech_config *config;
    ech_design design;
    ech_plan *plan;
} planned;

static planned plan_of(const char *words)
{
    planned p = {0};
    ech_text yaml = {0};
    ech_text_append(&yaml,
                    "model: {image_height: %d, image_width: %d, num_classes: 10}\n"
                    "data: {train: data/shapes.images, valid: data/shapes.images}\n"
                    "training: {steps: 2, global_batch_size: %d, micro_batch_size: %d}\n"
                    "optimizer: {name: sgd, momentum: 0.9, learning_rate: 0.1}\n"
                    "parallel: {comm: local, threads: 1}\n"
                    "log: {directory: run}\n",
                    SIDE, SIDE, BATCH, BATCH);
    p.config = fixture_config_of(yaml.at, words);
    if (!p.config || ech_design_create(p.config, NULL, 1, 1, &p.design) != ECH_OK)
        fail_msg("%s: %s", words, ech_last_error());
    assert_int_equal(ech_design_plan(&p.design, 0, false, &p.plan), ECH_OK);
    ech_text_free(&yaml);
    return p;
}

static void free_planned(planned *p)
{
    ech_plan_destroy(p->plan);
    ech_design_destroy(&p->design);
    ech_config_destroy(p->config);
}

/* Calls of forwards that may write over their input. */
static int count_renewing(const ech_model *model)
{
    int n = 0;
    for (size_t b = 0; b < model->block.n; b++)
        for (size_t i = 0; i < model->block.at[b]->node.n; i++) {
            const ech_node *node = &model->block.at[b]->node.at[i];
            n += node->layer->renews && !node->recompute_only;
        }
    return n;
}

/* Activations whose memory an activation takes over that a step of the phase makes. */
static int count_renewed(const ech_list *list, ech_phase phase)
{
    int n = 0;
    for (size_t i = 0; i < list->value.n; i++) {
        const ech_value *v = &list->value.at[i];
        const ech_value *heir = v->successor < 0 ? NULL : &list->value.at[v->successor];
        if (!heir || heir->kind != ECH_MEMORY_ACTIVATIONS) continue;
        assert_int_equal(heir->offset, v->offset);
        n += ech_list_step_at(list, heir->born)->phase == phase;
    }
    return n;
}

TEST(validation_computes_activations_and_norms_in_place)
{
    static const char *const networks[] = {VGG, RESNET, RESNET "precision.compute=bf16"};
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        planned p = plan_of(networks[i]);
        int calls = count_renewing(p.design.model);
        assert_true(calls > 10);
        assert_int_equal(count_renewed(&p.plan->list[ECH_LIST_VALIDATE], ECH_FORWARD), calls);
        free_planned(&p);
    }
}

/* In training a norm's input waits for the backward, and so does the input of a ReLU after a
 * convolution. A ReLU after a norm reads what the backward makes again. With recomputation little
 * waits, and with codes the code does. */
TEST(training_computes_in_place_what_no_backward_reads)
{
    static const struct {
        const char *words;
        int forward, weight; /* values renewed by F, and by W, which makes outputs again */
    } cases[] = {
        {VGG, 0, 0},
        {VGG "memory.recompute=full", 13, 0},
        {VGG "memory.encode=lossless", 15, 0},
        {RESNET, 9, 0},
        {RESNET "memory.recompute=full", 36, 0},
        {RESNET "memory.encode=lossless", 17, 0},
        {RESNET "memory.encode=fp10 memory.encode_norms=true", 37, 0},
        {PREACT, 19, 7},
        {REVNET, 22, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        planned p = plan_of(cases[i].words);
        const ech_list *list = &p.plan->list[ECH_LIST_TRAIN];
        int forward = count_renewed(list, ECH_FORWARD);
        int weight = count_renewed(list, ECH_BACKWARD_WEIGHT);
        if (forward != cases[i].forward || weight != cases[i].weight)
            fail_msg("%s: F renews %d values, W %d", cases[i].words, forward, weight);
        free_planned(&p);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
