/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon convert IN OUT [--merge] [--base DIR] [--dtype fp32|bf16|fp16|fp64] [--plugins FILES]
 */
#include <stdio.h>

#include "program/command.h"
#include "app/convert.h"
#include "app/count.h"
#include "program/options.h"
#include "app/setup/plugins.h"
#include "base/path.h"
#include "tensor/tensor.h"

static const char about[] =
    "Turns a model file of llm.c (versions 3 and 5) or llama2.c (version 1, and legacy), or a "
    "folder of Hugging Face with GPT-2, Llama or Qwen3, in one file or in shards, into the folder "
    "OUT with config.json and one model.safetensors. Hugging Face's transformers read it, and so "
    "do model.init_from, 'echelon sample' and 'echelon eval'."
    "\vOf a folder tokenizer.json and its companions are copied too. A model may be larger than "
    "memory: rows are read, converted and written one after the other. With --merge IN is a run "
    "with LoRA or a folder of PEFT, and OUT has the weights W + alpha / r B A.";

typedef struct convert_arguments {
    const char *in, *out, *type, *plugins;
    ech_conversion_options how;
    ech_dtype dtype;
} convert_arguments;

static const ech_option options[] = {
    ECH_TEXT(convert_arguments, type, "dtype", 't', "TYPE",
             "type of the weights in OUT: fp32, bf16, fp16 or fp64 (default: as in IN)"),
    ECH_FLAG(convert_arguments, how.merge, "merge", 'm',
             "add the adapters of IN (LoRA) to the weights of their base"),
    ECH_PATH(convert_arguments, how.base, "base", 'b', "DIR",
             "with --merge: the adapters' base, if it is not where IN says"),
    ECH_PATHS(convert_arguments, plugins, "plugins", 0, "FILES",
              "the model's plugins (as training.plugins)"),
    {0}};

static const ech_word words[] = {
    {offsetof(convert_arguments, in), "which model?", true},
    {offsetof(convert_arguments, out), "where to? OUT is a new folder", true}};

static void check(void *arguments, const struct argp_state *state)
{
    convert_arguments *in = arguments;
    if (!*in->out) argp_error(state, "%s", words[1].missing);
    if (in->how.base && !in->how.merge) argp_error(state, "--base is for --merge; add it");
    if (in->type && (!ech_dtype_from_name(in->type, &in->dtype) || !ech_dtype_is_real(in->dtype)))
        argp_error(state, "--dtype %s: fp32, bf16, fp16 or fp64", in->type);
}

ech_status ech_command_convert(int argc, char **argv, int *code)
{
    (void)code;
    const ech_command_line line = {.usage = "IN OUT",
                                   .about = about,
                                   .option = options,
                                   .word = words,
                                   .words = 2,
                                   .check = check};
    convert_arguments in = {0};
    ECH_CLEANUP(ech_conversion_close) ech_conversion conversion = {.raw.fd = -1};
    ech_command_line_parse(&line, argc, argv, &in);
    if (in.plugins) ECH_TRY(ech_plugins_load(in.plugins));
    ECH_TRY(ech_conversion_open(in.in, &in.how, &conversion));
    ech_dtype dtype = in.type ? in.dtype : conversion.dtype;
    ECH_TRY(ech_conversion_write(&conversion, in.out, dtype));
    printf("%s: %s, %s parameters in %s, from a %s\n", in.out, conversion.model->family->name,
           ECH_DIGITS(ech_model_params(conversion.model)), ech_dtype_name(dtype),
           conversion.format);
    ECH_FREED_TEXT word = {0}, typed = {0};
    ech_text_append(&word, "model.init_from=%s", in.out);
    ech_path_append_typed(word.at, &typed);
    printf("next: echelon train RUN.yaml %s\n", typed.at);
    return ECH_OK;
}
