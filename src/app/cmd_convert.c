/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon convert IN OUT [--dtype fp32|bf16|fp16|fp64]
 */
#include <stdio.h>

#include "app/command.h"
#include "app/convert.h"
#include "app/count.h"
#include "tensor/convert.h"

static const char about[] =
    "Turns a model file of llm.c (versions 3 and 5) or llama2.c (version 1, and legacy), or a "
    "folder of "
    "Hugging Face with GPT-2, Llama or Qwen3, in one file or in shards, into the folder OUT with "
    "config.json and "
    "one model.safetensors. Hugging Face's transformers read it, and so do model.init_from, "
    "'echelon sample' and 'echelon eval'."
    "\vOf a folder tokenizer.json and its companions are copied too. A model may be larger than "
    "memory: "
    "rows are read, converted and written one after the other.";

static const struct argp_option options[] = {
    {"dtype", 't', "TYPE", 0,
     "type of the weights in OUT: fp32, bf16, fp16 or fp64 (default: as in IN)", 0},
    {0}};

typedef struct convert_arguments {
    const char *in, *out;
    ech_dtype dtype;
    bool typed;
} convert_arguments;

static error_t parse(int key, char *text, struct argp_state *state)
{
    convert_arguments *in = state->input;
    switch (key) {
    case 't':
        in->typed = ech_dtype_from_name(text, &in->dtype) && ech_dtype_is_real(in->dtype);
        if (!in->typed) argp_error(state, "--dtype %s: fp32, bf16, fp16 or fp64", text);
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 1) argp_error(state, "%s: one word too many", text);
        *(state->arg_num == 0 ? &in->in : &in->out) = text;
        return 0;
    case ARGP_KEY_END:
        if (!in->in) argp_error(state, "which model?");
        if (!in->out || !*in->out) argp_error(state, "where to? OUT is a new folder");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

ech_status ech_command_convert(int argc, char **argv, int *code)
{
    (void)code;
    const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "IN OUT", .doc = about};
    convert_arguments in = {0};
    ech_conversion conversion;
    argp_parse(&argp, argc, argv, 0, NULL, &in);
    ECH_TRY(ech_conversion_open(in.in, &conversion));
    ech_dtype dtype = in.typed ? in.dtype : conversion.dtype;
    ech_status status = ech_conversion_write(&conversion, in.out, dtype);
    if (status == ECH_OK) {
        char count[ECH_COUNT_BYTES];
        printf("%s: %s, %s parameters in %s, from a %s\n", in.out, conversion.model->family->name,
               ech_count_text(ech_model_params(conversion.model), count), ech_dtype_name(dtype),
               conversion.format);
        printf("next: echelon train RUN.yaml model.init_from=%s\n", in.out);
    }
    ech_conversion_close(&conversion);
    return status;
}
