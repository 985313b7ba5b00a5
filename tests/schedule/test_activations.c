/* SPDX-License-Identifier: Apache-2.0
 *
 * How many micro-batches' activations a stage keeps, and in how many bytes, to the last byte: what
 * backwards read, and the tensors on the boundaries to other stages.
 */

#include "schedule/fixture.h"
#include "unit.h"

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* ---- bytes ---- */

/* read[value]: a backward of this rank reads it. */
static bool *find_read(const ech_plan *plan, const ech_list *list)
{
    bool *read = ech_calloc(list->value.n, sizeof *read);
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        for (int i = 0; fixture_is_backward(step) && i < step->accesses; i++) {
            int value = list->access.at[step->first_access + i].value - (int)plan->persistent.n;
            if (value >= 0) read[value] = true;
        }
    }
    return read;
}

/* read[value]: a backward of this rank reads what is there before it. */
static bool *find_kept(const ech_plan *plan, const ech_list *list)
{
    bool *read = find_read(plan, list);
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        for (int i = 0; fixture_is_backward(step) && i < step->accesses; i++) {
            const ech_access *access = &list->access.at[step->first_access + i];
            int value = access->value - (int)plan->persistent.n;
            if (value >= 0 && access->write) read[value] = false; /* made again */
        }
    }
    return read;
}

/* What is kept of one micro-batch from forward to backward. */
static int64_t kept_bytes(const ech_plan *plan, const ech_list *list, int micro)
{
    bool *read = find_kept(plan, list);
    int64_t bytes = 0;
    for (size_t v = 0; v < list->value.n; v++) {
        const ech_value *value = &list->value.at[v];
        if (read[v] && value->kind == ECH_MEMORY_ACTIVATIONS && value->micro == micro)
            bytes += ech_align(value->bytes, 64);
    }
    free(read);
    return bytes;
}

/* The most bytes of activations, by adding up at every tick; of those that are not `kept`. */
static int64_t most_bytes(const ech_list *list, const bool *kept)
{
    int64_t most = 0;
    for (int tick = 0; tick < list->ticks; tick++) {
        int64_t bytes = 0;
        for (size_t v = 0; v < list->value.n; v++) {
            const ech_value *value = &list->value.at[v];
            if (value->kind == ECH_MEMORY_ACTIVATIONS && !(kept && kept[v]) &&
                value->born <= tick && tick <= value->dies)
                bytes += ech_align(value->bytes, 64);
        }
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Checks the peak of stage r with n micro-batches in flight. Each of them contributes the values
 * that backwards read. If another stage follows, each also contributes its output, which lives
 * until that stage is known to have received it. One layer at a time adds values that only the next
 * forward reads, and values that are recomputed. The last stage has no output, but it receives the
 * input of one more micro-batch ahead, if there is one. An inner stage also holds one more value:
 * its first backward that waits for a send recomputes a value before the sent output has died. */
static void check_bytes(const fixture *f, int r, int n, int m)
{
    const ech_list *list = fixture_list(f, r);
    int64_t boundary = ech_align(fixture_boundary_bytes(f), 64);
    int64_t kept = kept_bytes(f->plan[r], list, 0);
    for (int micro = 1; micro < m; micro++)
        assert_int_equal(kept_bytes(f->plan[r], list, micro), kept);
    bool last = r == f->ranks - 1;
    int64_t wanted = n * kept;
    if (!last) wanted += n * boundary;
    if (last && m > n && f->ranks > 1) wanted += boundary;
    bool *is_kept = find_kept(f->plan[r], list);
    int64_t beyond = most_bytes(list, is_kept) - (last ? 0 : n * boundary);
    int64_t widest =
        2 * boundary * f->of.config->model.intermediate_size / f->of.config->model.hidden_size;
    int64_t ahead = !last && r > 0 && m > n ? boundary : 0;
    assert_in_range(list->peak[ECH_MEMORY_ACTIVATIONS], wanted, wanted + beyond + ahead);
    assert_in_range(beyond, 0, 2 * boundary + widest);
    assert_int_equal(most_bytes(list, NULL), list->peak[ECH_MEMORY_ACTIVATIONS]);
    free(is_kept);
}

TEST(test_bytes)
{
    static const char *const architectures[] = {"gpt2", "llama", "qwen3"};
    for (int i = 0; i < 3; i++)
        for (int p = 1; p <= 4; p++)
            for (int m = 1; m <= 8; m++) {
                fixture_shape shape = {.schedule = "gpipe",
                                       .architecture = architectures[i],
                                       .stages = p,
                                       .micro_batches = m,
                                       .layers = 6};
                fixture f = fixture_pipeline(shape);
                for (int r = 0; r < p; r++) check_bytes(&f, r, m, m);
                fixture_free(&f);
                shape.schedule = "1f1b";
                f = fixture_pipeline(shape);
                for (int r = 0; r < p; r++) check_bytes(&f, r, least(p - r, m), m);
                fixture_free(&f);
            }
}

/* ---- micro-batches ---- */

/* The most chunks of micro-batches of which something is kept at once that a forward of this rank
 * made; inputs that are received come earlier. */
static int most_in_flight(const ech_plan *plan, const ech_list *list)
{
    int chunks = plan->layout->chunks, m = list->micro_batches, most = 0;
    bool *read = find_read(plan, list);
    bool *live = ech_calloc((size_t)(chunks * m), sizeof *live);
    for (int tick = 0; tick < list->ticks; tick++) {
        int n = 0;
        for (int i = 0; i < chunks * m; i++) live[i] = false;
        for (size_t v = 0; v < list->value.n; v++) {
            const ech_value *value = &list->value.at[v];
            if (!read[v] || value->kind != ECH_MEMORY_ACTIVATIONS) continue;
            if (tick < value->born || value->dies < tick) continue;
            for (int chunk = 0; chunk < chunks; chunk++) {
                int first, end;
                ech_layout_blocks(plan->layout, plan->rank, chunk, &first, &end);
                const ech_block *block = plan->model->block.at[value->block];
                bool received = block->value.at[value->local].source == ECH_FROM_BLOCK;
                if (value->block >= first && value->block < end && !received)
                    live[chunk * m + value->micro] = true;
            }
        }
        for (int i = 0; i < chunks * m; i++) n += live[i];
        if (n > most) most = n;
    }
    free(live);
    free(read);
    return most;
}

static int wanted_in_flight(const char *schedule, int p, int v, int r, int m)
{
    if (strcmp(schedule, "naive") == 0) return v;
    if (strcmp(schedule, "gpipe") == 0) return v * m;
    if (strcmp(schedule, "zero-bubble") == 0) return least(p, m);
    if (strcmp(schedule, "zero-bubble-v") == 0) return 2 * p; /* of m >= 2p - 1 */
    if (strcmp(schedule, "interleaved") != 0) return least(p - r, m);
    return m == p ? v * m : least(2 * (p - r - 1) + (v - 1) * p + 1, v * m);
}

static void check_in_flight(const char *schedule, int p, int v, int m)
{
    int turns = fixture_is_asynchronous(schedule) ? 3 : 0;
    fixture f = fixture_pipeline((fixture_shape){.schedule = schedule,
                                                 .stages = p,
                                                 .chunks = v,
                                                 .micro_batches = m,
                                                 .turns = turns,
                                                 .layers = p * v * 2 - 2});
    for (int r = 0; r < p; r++)
        assert_int_equal(most_in_flight(f.plan[r], fixture_list(&f, r)),
                         wanted_in_flight(schedule, p, v, r, turns ? turns * m : m));
    fixture_free(&f);
}

TEST(test_in_flight)
{
    static const char *const one[] = {"naive",       "gpipe",     "1f1b",
                                      "zero-bubble", "pipedream", "pipedream-2bw"};
    for (int p = 2; p <= 4; p++) {
        for (size_t i = 0; i < sizeof one / sizeof *one; i++)
            for (int m = p; m <= 2 * p; m += p - 1) check_in_flight(one[i], p, 1, m);
        for (int m = 2 * p - 1; m <= 2 * p + 1; m++) check_in_flight("zero-bubble-v", p, 2, m);
        for (int v = 1; v <= 3; v++) {
            for (int m = p; m <= 3 * p; m += p) check_in_flight("interleaved", p, v, m);
            check_in_flight("gpipe", p, v, 3);
            check_in_flight("naive", p, v, 3);
        }
    }
}

/* With unequal replicas: as many as there are ranks from the stage on, over the stage's own
 * (PipeDream's NOAM). */
TEST(test_in_flight_of_replicas)
{
    static const struct {
        const char *replicas;
        int stages, depth[3];
    } rows[] = {{"[3,1]", 2, {2, 1}},
                {"[1,3]", 2, {4, 1}},
                {"[1,2,1]", 3, {4, 2, 1}},
                {"[2,2]", 2, {2, 1}},
                {"[4,1,2]", 3, {2, 3, 1}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int m = 4; m <= 13; m += 3) {
            fixture f = fixture_pipeline((fixture_shape){.schedule = "1f1b",
                                                         .stages = rows[i].stages,
                                                         .replicas = rows[i].replicas,
                                                         .micro_batches = m});
            for (int rank = 0; rank < f.ranks; rank++) {
                const ech_list *list = fixture_list(&f, rank);
                int depth = rows[i].depth[f.of.layout->coordinates[rank].stage];
                assert_int_equal(most_in_flight(f.plan[rank], list),
                                 least(depth, list->micro_batches));
            }
            fixture_free(&f);
        }
}

/* Of no list, validation's included, does memory grow with micro-batches, but for gpipe's training;
 * two per cent are placement's. */
TEST(test_bounded)
{
    static const struct {
        const char *schedule;
        int stages, chunks, context;
    } rows[] = {{"1f1b", 4, 1, 1},        {"interleaved", 2, 2, 1},   {"interleaved", 3, 3, 1},
                {"interleaved", 4, 2, 2}, {"zero-bubble", 3, 1, 1},   {"zero-bubble-v", 3, 2, 1},
                {"pipedream", 3, 1, 1},   {"pipedream-2bw", 3, 1, 1}, {"gpipe", 3, 1, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t bytes[2][16][2];
        for (int many = 0; many < 2; many++) {
            fixture f = fixture_pipeline((fixture_shape){.schedule = rows[i].schedule,
                                                         .stages = rows[i].stages,
                                                         .chunks = rows[i].chunks,
                                                         .context = rows[i].context,
                                                         .micro_batches = many ? 48 : 24});
            for (int rank = 0; rank < f.ranks; rank++)
                for (int l = 0; l < 2; l++)
                    bytes[many][rank][l] = f.plan[rank]
                                               ->list[l ? ECH_LIST_VALIDATE : ECH_LIST_TRAIN]
                                               .bytes[ECH_SPACE_DEVICE];
            for (int rank = 0; rank < f.ranks && many; rank++)
                for (int l = strcmp(rows[i].schedule, "gpipe") == 0; l < 2; l++)
                    assert_true(100 * bytes[1][rank][l] <= 102 * bytes[0][rank][l]);
            fixture_free(&f);
        }
    }
}
