/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts for other systems: every row and every refusal; and the failures of a planned run. The
 * systems' own parsers read the files back in check_emitted.py.
 */
#include <jansson.h>
#include <math.h>

#include "app/advice/advice.h"
#include "app/runs.h"
#include "draw/markup.h"
#include "unit.h"

/* The file, and what is said of it, for a design of these words. */
static void emit(const char *system, const char *architecture, const char *words, int ranks,
                 ech_text *file, ech_text *said)
{
    ech_design design;
    ech_emitted emitted;
    ech_config *config = fixture_config(architecture, words);
    assert_int_equal(ech_design_create(config, fixture_tokenizer, ranks, ranks, &design), ECH_OK);
    assert_int_equal(ech_emit(&design, system, &emitted), ECH_OK);
    ech_text_append(file, "%s", emitted.file.at);
    ech_emitted_text(&emitted, said);
    ech_emitted_free(&emitted);
    ech_design_destroy(&design);
    ech_config_destroy(config);
}

/* Checks lines of the file, divided by |, and that exactly these keys are not supported. */
static void assert_emitted(const char *system, const char *architecture, const char *words,
                           int ranks, const char *lines, const char *missing)
{
    ECH_FREED_TEXT file = {0}, said = {0}, line = {0}, named = {0};
    emit(system, architecture, words, ranks, &file, &said);
    for (const char *at = lines; *at; at += strspn(at, "|")) {
        ech_text_free(&line);
        ech_text_append(&line, "\n%.*s\n", (int)strcspn(at, "|"), at);
        if (!strstr(file.at, line.at)) fail_msg("no line%sin\n%s", line.at, file.at);
        at += strcspn(at, "|");
    }
    static const char before[] = "not supported: ";
    for (const char *at = strstr(said.at, before); at; at = strstr(at + 1, before)) {
        const char *key = at + strlen(before);
        ech_text_append(&named, "%s%.*s", named.n ? " " : "", (int)strcspn(key, " "), key);
    }
    assert_string_equal(named.n ? named.at : "", missing);
    assert_non_null(strstr(said.at, "read back by the parser of "));
    assert_non_null(strstr(said.at, "other memory: "));
}

#define STAGES                                                                                     \
    "model.num_hidden_layers=8 parallel.pipeline=2 parallel.schedule=interleaved "                 \
    "parallel.virtual_stages=2 parallel.partition=[1,2,3,2] "                                      \
    "training.micro_batch_size=3"

TEST(megatron_gets_what_it_has)
{
    assert_emitted("megatron", "llama",
                   "parallel.tensor=2 parallel.sequence=true data.sequence_length=8 "
                   "parallel.zero=1 memory.recompute=full memory.offload_optimizer=host "
                   "training.micro_batch_size=3 model.num_key_value_heads=2 precision.compute=bf16",
                   8,
                   "--tensor-model-parallel-size 2|--sequence-parallel|--use-distributed-optimizer|"
                   "--recompute-granularity full|--recompute-method uniform|"
                   "--optimizer-cpu-offload|--use-precision-aware-optimizer|--micro-batch-size 3|"
                   "--global-batch-size 12|--seq-length 8|--bf16|--num-layers 2|--swiglu|"
                   "--num-query-groups 2|--normalization RMSNorm|--disable-bias-linear|"
                   "--position-embedding-type rope|--untie-embeddings-and-output-weights",
                   "");
    assert_emitted("megatron", "gpt2", "parallel.zero=3 parallel.context=2 data.sequence_length=8",
                   4,
                   "--use-megatron-fsdp|--data-parallel-sharding-strategy optim_grads_params|"
                   "--context-parallel-size 2|--cp-comm-type p2p|--normalization LayerNorm|"
                   "--position-embedding-type learned_absolute|--ckpt-format fsdp_dtensor",
                   "");
    assert_emitted("megatron", "llama", STAGES, 2, "--num-layers 8", "");
    ECH_FREED_TEXT file = {0}, said = {0};
    emit("megatron", "llama", STAGES, 2, &file, &said);
    assert_non_null(strstr(file.at, "layout Et*1|t*2|t*3|t*2L\n"));
}

TEST(names_what_a_system_does_not_have)
{
    static const char zero_bubble[] =
        "model.num_hidden_layers=8 parallel.pipeline=2 parallel.schedule=zero-bubble-v";
    assert_emitted("megatron", "llama", zero_bubble, 2, "--pipeline-model-parallel-size 2",
                   "parallel.schedule");
    assert_emitted("torchtitan", "llama", zero_bubble, 2,
                   "--parallelism.pipeline_parallel_schedule ZBVZeroBubble", "");
    assert_emitted("megatron", "llama",
                   "memory.offload_optimizer=disk memory.offload_activations=host", 2,
                   "--num-layers 2", "memory.offload_optimizer memory.offload_activations");
    assert_emitted("deepspeed", "llama", "parallel.compression=powersgd", 2,
                   "  \"train_batch_size\": 12,", "parallel.compression");
    assert_emitted("torchtitan", "llama",
                   "parallel.zero=1 memory.offload_optimizer=host "
                   "parallel.context=2 parallel.context_method=ulysses data.sequence_length=8",
                   4, "--parallelism.context_parallel_degree 2",
                   "parallel.context_method parallel.zero memory.offload_optimizer");
    assert_emitted("deepspeed", "llama", "parallel.pipeline=2 parallel.zero=2", 4,
                   "  \"train_batch_size\": 12,", "parallel.zero");
}

TEST(data_ranks_of_torchtitan_shard_or_replicate)
{
    assert_emitted("torchtitan", "llama", "", 4,
                   "--parallelism.data_parallel_replicate_degree 4|"
                   "--parallelism.data_parallel_shard_degree 1|activation-checkpoint:none",
                   "");
    assert_emitted("torchtitan", "llama", "parallel.zero=2 memory.recompute=selective", 4,
                   "--parallelism.data_parallel_replicate_degree 1|"
                   "--parallelism.data_parallel_shard_degree 4|"
                   "--parallelism.fsdp_reshard_after_forward never|activation-checkpoint:selective",
                   "");
}

static void assert_refused(const char *system, const char *architecture, const char *words,
                           int ranks, const char *says)
{
    ech_design design;
    ech_emitted emitted;
    ech_config *config = fixture_config(architecture, words);
    assert_int_equal(ech_design_create(config, fixture_tokenizer, ranks, ranks, &design), ECH_OK);
    assert_int_equal(ech_emit(&design, system, &emitted), ECH_EUSAGE);
    if (!strstr(ech_last_error(), says)) fail_msg("%s", ech_last_error());
    ech_emitted_free(&emitted);
    ech_design_destroy(&design);
    ech_config_destroy(config);
}

TEST(refuses_what_a_system_cannot_run)
{
    assert_refused("jax", "llama", "", 2, "megatron, torchtitan, deepspeed");
    assert_refused("megatron", "llama", "parallel.strategy=asp training.steps=64", 3,
                   "parallel.strategy");
    assert_refused("deepspeed", "llama", "parallel.context=2 data.sequence_length=8", 2,
                   "parallel.context_method=ulysses");
    assert_refused("torchtitan", "mixtral", "model.num_local_experts=4 parallel.expert=2", 2,
                   "parallel.zero=3");
}

/* ---- failures ---- */

static const char cluster_text[] = "device: {memory: 1 GiB, bandwidth: 2000 GB/s, host: 10 MB/s}\n"
                                   "flops: {fp32: 10 TFLOP/s, bf16: 100 TFLOP/s}\n"
                                   "products: {share: 0.8}\n"
                                   "attention: {share: 0.5}\n"
                                   "kernels: {share: 0.7, launch: 1 us}\n"
                                   "%slevels: [{bandwidth: 20 GB/s}]\n";

/* Bytes of tensors in the safetensors files of a folder. */
static double tensor_bytes(const char *folder)
{
    ECH_FREED_TEXT command = {0};
    double bytes = 0;
    ech_text_append(&command, "find %s -name '*.safetensors'", folder);
    FILE *files = popen(command.at, "r");
    char path[600];
    while (fgets(path, sizeof path, files)) {
        uint64_t header = 0;
        path[strcspn(path, "\n")] = '\0';
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        assert_int_equal(fread(&header, sizeof header, 1, file), 1);
        assert_int_equal(fseek(file, 0, SEEK_END), 0);
        bytes += (double)ftell(file) - 8 - (double)header;
        fclose(file);
    }
    pclose(files);
    return bytes;
}

static void advise(const char *family, const char *words, int ranks, ech_advice_options options,
                   double bandwidth, ech_advice *out)
{
    ech_design design;
    ech_cluster cluster;
    ECH_FREED_TEXT text = {0}, storage = {0};
    ech_text_append(&storage, "storage: {bandwidth: %g B/s}\n", bandwidth);
    ech_text_append(&text, cluster_text, storage.at);
    assert_int_equal(ech_cluster_parse(text.at, text.n, "c.yaml", &cluster), ECH_OK);
    ech_config *config = runs_config(family, "advised", words);
    assert_int_equal(ech_design_create(config, fixture_tokenizer, ranks, ranks, &design), ECH_OK);
    design.cluster = &cluster;
    assert_int_equal(ech_advice_create(&design, &options, 0.5, out), ECH_OK);
    ech_design_destroy(&design);
    ech_config_destroy(config);
}

TEST(a_checkpoint_takes_the_time_of_its_bytes)
{
    ech_advice waits, goes_on, more;
    ech_advice_options options = {.mtbf_hours = 10, .restart_seconds = 60, .repair_hours = 1};
    advise("llama", "checkpoint.background=false", 2, options, 1e4, &waits);
    double bytes = waits.failures.checkpoint_bytes;
    assert_true(fabs(waits.failures.of.stall - bytes / 1e4) < 1e-9 &&
                waits.failures.of.writing == 0);
    assert_true(fabs(waits.failures.of.between - 5 * 3600) < 1e-6);
    /* each of two ranks copies half of it, at 10 MB/s, and training goes on */
    advise("llama", "parallel.zero=1", 2, options, 1e4, &goes_on);
    assert_true(goes_on.failures.checkpoint_bytes == bytes);
    assert_true(fabs(goes_on.failures.of.writing - bytes / 1e4) < 1e-9);
    assert_true(goes_on.failures.of.stall > 0.4 * bytes / 1e7);
    assert_true(goes_on.failures.of.stall < bytes / 1e7);
    assert_true(goes_on.failures.best.goodput.useful > waits.failures.best.goodput.useful);
    const ech_advice_failures *f = &waits.failures;
    assert_true(f->best.goodput.useful >= f->young.goodput.useful);
    assert_true(f->best.goodput.useful >= f->daly.goodput.useful);
    assert_true(f->best.goodput.waiting > 0);
    options.spares = f->rarely;
    advise("llama", "checkpoint.background=false", 2, options, 1e4, &more);
    assert_true(more.failures.best.goodput.waiting < f->best.goodput.waiting / 100);
    ech_advice_free(&waits);
    ech_advice_free(&goes_on);
    ech_advice_free(&more);
}

/* Trains, and compares the bytes of the files. */
static void assert_saved_bytes(const char *family, const char *name, const char *words)
{
    ech_advice advice;
    ech_advice_options options = {.mtbf_hours = 10};
    char folder[600], all[400];
    snprintf(all, sizeof all, "training.micro_batch_size=2 training.steps=1 %s", words);
    runs_train(family, name, 2, all);
    advise(family, all, 2, options, 1e4, &advice);
    snprintf(folder, sizeof folder, "%s/%s", fixture_folder, name);
    double bytes = tensor_bytes(folder);
    if (bytes < 1000 || fabs(bytes - advice.failures.checkpoint_bytes) > 0.5)
        fail_msg("%s: files have %.0f bytes, not %.0f", name, bytes,
                 advice.failures.checkpoint_bytes);
    ech_advice_free(&advice);
}

TEST(a_checkpoint_has_the_bytes_of_its_files)
{
    assert_saved_bytes("llama", "plain", "");
    assert_saved_bytes("gpt2", "rounded", "checkpoint.dtype=bf16 parallel.zero=1");
    assert_saved_bytes("llama", "bf16", "precision.compute=bf16 parallel.tensor=2");
    assert_saved_bytes("llama", "whole", "precision.compute=bf16 checkpoint.dtype=fp32");
    assert_saved_bytes("mixtral", "experts", "model.num_local_experts=4 parallel.expert=2");
    assert_saved_bytes("llama", "sgd", "optimizer.name=sgd");
    assert_saved_bytes("llama", "lora", "lora.rank=2 lora.targets=all-linear");
}

TEST(goodput_is_drawn_and_printed)
{
    ech_advice advice;
    ECH_FREED_TEXT svg = {0}, text = {0};
    ech_advice_options options = {
        .mtbf_hours = 10, .restart_seconds = 60, .repair_hours = 1, .spares = 1};
    advise("llama", "", 2, options, 1e4, &advice);
    assert_int_equal(ech_advice_svg(&advice, &svg), ECH_OK);
    assert_non_null(strstr(svg.at, "1 spare machine"));
    for (int ranks = 1; ranks <= 64; ranks *= 2) { /* from one on, each once */
        char label[24];
        snprintf(label, sizeof label, ">%d</text>", ranks);
        assert_int_equal(markup_count(svg.at, label), 1);
    }
    ech_advice_text(&advice, 10, &text);
    assert_non_null(strstr(text.at, "% goodput with checkpoint.every=") + 1);
    json_auto_t *json = json_object();
    ech_advice_json(&advice, 10, json);
    const json_t *best = json_object_get(json_object_get(json, "failures"), "best");
    double sum = 0;
    const char *const parts[] = {"goodput", "saving", "lost", "restarting", "waiting"};
    for (int i = 0; i < 5; i++) sum += json_real_value(json_object_get(best, parts[i]));
    assert_true(fabs(sum - 1) < 1e-9);
    assert_true(json_integer_value(json_object_get(best, "steps")) == advice.failures.best.steps);
    ech_advice_free(&advice);
    advice = (ech_advice){0};
    assert_int_equal(ech_advice_svg(&advice, &svg), ECH_EUSAGE);
}

TEST(says_what_failures_need)
{
    ech_cluster cluster;
    ECH_FREED_TEXT text = {0};
    ech_advice_options options = {.mtbf_hours = 10};
    ech_text_append(&text, cluster_text, "");
    assert_int_equal(ech_cluster_parse(text.at, text.n, "c.yaml", &cluster), ECH_OK);
    assert_int_equal(ech_advice_check(&options, &cluster, "c.yaml"), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "c.yaml: storage.bandwidth: not set"));
    assert_int_equal(ech_advice_check(&options, NULL, NULL), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "add --cluster"));
}

ALL_TESTS(fixture_setup, fixture_teardown)
