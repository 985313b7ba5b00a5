/* SPDX-License-Identifier: Apache-2.0
 *
 * A tensor that is offloaded after the forward and fetched for the backward is two values. A step
 * finds the value of its own instance, also through the block that has made it. The first value
 * dies before the second one is born.
 */

#include "schedule/fixture.h"
#include "schedule/operands.h"
#include "unit.h"

enum { BLOCK = 2, MICRO = 1 };

TEST(instances_of_steps)
{
    static const struct {
        ech_step_kind kind;
        ech_phase phase;
        ech_instance instance;
    } steps[] = {{ECH_STEP_FORWARD, ECH_FORWARD, ECH_INSTANCE_FORWARD},
                 {ECH_STEP_SEND_KEPT, ECH_FORWARD, ECH_INSTANCE_FORWARD},
                 {ECH_STEP_RECV_BACK, ECH_FORWARD, ECH_INSTANCE_BACKWARD},
                 {ECH_STEP_SEND_ACT, ECH_FORWARD, ECH_INSTANCE_FORWARD},
                 {ECH_STEP_RECV_ACT, ECH_FORWARD, ECH_INSTANCE_FORWARD},
                 {ECH_STEP_COLLECTIVE, ECH_FORWARD, ECH_INSTANCE_FORWARD},
                 {ECH_STEP_COLLECTIVE, ECH_RECOMPUTE, ECH_INSTANCE_BACKWARD},
                 {ECH_STEP_RECOMPUTE, ECH_RECOMPUTE, ECH_INSTANCE_BACKWARD},
                 {ECH_STEP_BACKWARD_INPUT, ECH_BACKWARD_INPUT, ECH_INSTANCE_BACKWARD},
                 {ECH_STEP_BACKWARD_WEIGHT, ECH_BACKWARD_WEIGHT, ECH_INSTANCE_BACKWARD},
                 {ECH_STEP_SEND_GRAD, ECH_FORWARD, ECH_INSTANCE_BACKWARD}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        ech_step step = {.kind = steps[i].kind, .phase = steps[i].phase};
        assert_int_equal(ech_step_instance(&step), steps[i].instance);
    }
}

static int ask(const ech_plan *plan, int block, int local, ech_instance instance)
{
    return ech_list_value_of(plan, &plan->list[ECH_LIST_TRAIN], plan->model->block.at[block], local,
                             MICRO, instance);
}

/* The block's input, which F and B both read. */
static int kept_input(const ech_plan *plan)
{
    const ech_block *block = plan->model->block.at[BLOCK];
    assert_int_equal(block->input.n, 1);
    return ech_block_base(block, block->input.at[0]);
}

/* As the passes would leave it: later steps touch the second value. */
static void let_return(ech_plan *plan, int value)
{
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    ech_value second = list->value.at[value - (int)plan->persistent.n];
    int number = (int)(plan->persistent.n + list->value.n);
    ECH_PUSH(list->value, second);
    list->value.at[value - (int)plan->persistent.n].returned = number;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        for (int i = 0; i < step->accesses; i++) {
            ech_access *access = &list->access.at[step->first_access + i];
            if (access->value == value)
                access->value = ech_list_instance(plan, list, value, ech_step_instance(step));
        }
    }
    ech_pass_lifetime(plan, list);
}

TEST(each_instance_has_its_value)
{
    fixture f = fixture_pipeline((fixture_shape){
        .schedule = "gpipe", .stages = 1, .tensor = 1, .micro_batches = 3, .layers = 4});
    ech_plan *plan = f.plan[0];
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    int local = kept_input(plan), first = (int)plan->persistent.n;
    int value = ask(plan, BLOCK, local, ECH_INSTANCE_FORWARD);
    const ech_block *before = plan->model->block.at[BLOCK - 1];
    int output = ech_block_base(before, before->output.at[0]);
    assert_int_equal(ask(plan, BLOCK, local, ECH_INSTANCE_BACKWARD), value);
    assert_int_equal(ask(plan, BLOCK - 1, output, ECH_INSTANCE_FORWARD), value);
    ech_value was = list->value.at[value - first];

    let_return(plan, value);
    int back = ask(plan, BLOCK, local, ECH_INSTANCE_BACKWARD);
    assert_int_equal(ask(plan, BLOCK, local, ECH_INSTANCE_FORWARD), value);
    assert_int_equal(back, first + (int)list->value.n - 1);
    assert_int_equal(ask(plan, BLOCK - 1, output, ECH_INSTANCE_FORWARD), value);
    assert_int_equal(ask(plan, BLOCK - 1, output, ECH_INSTANCE_BACKWARD), back);
    const ech_value *left = &list->value.at[value - first], *again = &list->value.at[back - first];
    assert_int_equal(left->born, was.born);
    assert_int_equal(again->dies, was.dies);
    assert_true(left->dies < again->born);
    fixture_free(&f);
}
