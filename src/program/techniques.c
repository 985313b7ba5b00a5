/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix of techniques: for each pair a small run with the keys of both, and the first rule
 * that it breaks.
 */
#include "program/techniques.h"

#include <string.h>

#include "app/setup/setup.h"
#include "config/strategy.h"

const ech_technique ech_techniques[ECH_TECHNIQUES] = {
#define X(name, keys, needs) {name, keys, needs},
#include "program/techniques.def"
};

/* Degrees and sizes are set, so that no rule meets an "auto". */
static const char base[] =
    "model.architecture=llama model.hidden_size=16 model.num_hidden_layers=8 "
    "model.num_attention_heads=4 model.num_key_value_heads=4 model.intermediate_size=32 "
    "model.vocab_size=64 model.tie_word_embeddings=false data.train=text data.sequence_length=16 "
    "training.steps=16 training.global_batch_size=16 training.micro_batch_size=1 "
    "optimizer.learning_rate=0.001 checkpoint.every=0 log.directory=run parallel.comm=local "
    "parallel.pipeline=1 parallel.data=1";

/* Whether both set a key, to different values. */
static bool are_choices(const char *a, const char *b)
{
    for (const char *at = a; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        size_t key = strcspn(at, "="), length = strcspn(at, " ") - key - 1, n;
        const char *other = ech_text_find_value(b, at, key, &n);
        if (other && (n != length || memcmp(at + key + 1, other, n) != 0)) return true;
    }
    return false;
}

static void assign(ech_config *config, const char *assignments)
{
    ECH_FREED char *words = ech_strdup(assignments);
    char *rest = NULL;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        ECH_ASSERT(ech_config_set(config, word) == ECH_OK);
}

static const ech_rule *broken_rule(const ech_config *config)
{
    const ech_rule *rule = ech_rule_broken(config, ECH_RULES_OF_RUN);
    return rule ? rule : ech_rule_broken(config, ECH_RULES_OF_GRID);
}

ech_pair ech_technique_pair(int a, int b, ech_text *assignments)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = NULL;
    size_t before = assignments->n;
    const ech_technique *of = &ech_techniques[a], *with = &ech_techniques[b];
    ech_text_append(assignments, "%s %s %s %s %s", base, with->needs, of->needs, with->keys,
                    of->keys);
    if (are_choices(of->keys, with->keys)) return ECH_PAIR_CHOICE;
    ECH_ASSERT(ech_setup_defaults(&config) == ECH_OK);
    assign(config, assignments->at + before);
    ECH_ASSERT(ech_strategy_apply(config) == ECH_OK);
    const ech_rule *rule = broken_rule(config);
    if (!rule) return ECH_PAIR_RUNS;
    return rule->kind == ECH_RULE_UNBUILT ? ECH_PAIR_UNBUILT : ECH_PAIR_FORBIDDEN;
}

void ech_techniques_print(ech_text *out)
{
    static const char *const marks[ECH_PAIRS] = {"·", "=", "x", "?"};
    int count[ECH_PAIRS] = {0};
    ECH_FREED_TEXT rows = {0};
    for (int a = 0; a < ECH_TECHNIQUES; a++) {
        ech_text_append(&rows, "| %d | %s |", a + 1, ech_techniques[a].name);
        for (int b = 0; b < a; b++) {
            ECH_FREED_TEXT assignments = {0};
            ech_pair pair = ech_technique_pair(a, b, &assignments);
            count[pair]++;
            ech_text_append(&rows, " %s |", marks[pair]);
        }
        ech_text_append(&rows, "\n");
    }
    ech_text_append(
        out,
        "There are %d pairs of techniques. `echelon help together` lists the reasons, and what\n"
        "would work instead.\n\n"
        "| mark | pairs | meaning |\n"
        "|---|---|---|\n"
        "| · | %d | the two run together |\n"
        "| = | %d | they are values of one key; a run has one of them |\n"
        "| x | %d | they exclude each other, or one has nothing to act on |\n"
        "| ? | %d | they could run together, but that is not built |\n\n",
        ECH_TECHNIQUES * (ECH_TECHNIQUES - 1) / 2, count[ECH_PAIR_RUNS], count[ECH_PAIR_CHOICE],
        count[ECH_PAIR_FORBIDDEN], count[ECH_PAIR_UNBUILT]);
    ech_text_append(out, "| | technique |");
    for (int b = 1; b < ECH_TECHNIQUES; b++) ech_text_append(out, " %d |", b);
    ech_text_append(out, "\n|---|---|");
    for (int b = 1; b < ECH_TECHNIQUES; b++) ech_text_append(out, "---|");
    ech_text_append(out, "\n%s", rows.at);
}
