/* SPDX-License-Identifier: Apache-2.0
 *
 * Recognizing weights that are not read by names of files alone; none of the files is opened.
 */
#include "checkpoint/foreign.h"

#include <string.h>

#include "base/file.h"
#include "base/text.h"

#define PICKLE                                                                                     \
    "a pickle, which may run any code when it is read; convert it where you trust it, in Python: " \
    "from transformers import AutoModelForCausalLM; "                                              \
    "AutoModelForCausalLM.from_pretrained(\"%s\").save_pretrained(\"NEW\")"
/* Files of a folder, the likeliest first; %s: the folder. */
static const struct {
    const char *file, *text;
} kinds[] = {
    {"adapter_config.json",
     "adapters (PEFT, LoRA), which are no model without their base; merge both: echelon convert "
     "--merge %s NEW; or train them: name the base in model.init_from, and the adapters in "
     "lora.init_from"},
    {"pytorch_model.bin", PICKLE},
    {"pytorch_model.bin.index.json", PICKLE},
    {"quantize_config.json",
     "weights of GPTQ, integers of 2 to 8 bits, which are not read; name the folder of the model "
     "that they were made from, or convert them, in Python: from gptqmodel.utils.model_dequant "
     "import dequantize_model; dequantize_model(\"%s\", \"NEW\")"},
    {"quant_config.json",
     "weights of AWQ, integers of 4 bits, which are not read; name the folder of the model that "
     "they were made from"}};

static bool is_gguf(const char *name)
{
    return ech_text_ends_in(name, ".gguf");
}

static ech_status refuse_gguf(const char *folder, const char *name)
{
    ECH_FAIL(ECH_EUNSUPPORTED,
             "%s/%s: a GGUF file, which is not read; convert it, in Python: from transformers "
             "import AutoModelForCausalLM, GgufConfig; AutoModelForCausalLM.from_pretrained(\"%s\""
             ", gguf_file=\"%s\", quantization_config=GgufConfig(dequantize=True))"
             ".save_pretrained(\"NEW\")",
             folder, name, folder, name);
}

ech_status ech_foreign_check(const char *path)
{
    ECH_FREED char *parent = ech_file_parent(path);
    const char *slash = strrchr(path, '/');
    if (is_gguf(path) && !ech_file_is_folder(path))
        return refuse_gguf(parent, slash ? slash + 1 : path);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        ECH_FREED_TEXT text = {0};
        if (!ech_file_has(path, kinds[i].file)) continue;
        ech_text_append(&text, kinds[i].text, path);
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: %s: %s", path, kinds[i].file, text.at);
    }
    ECH_CLEANUP(ech_file_names_free) ech_file_names found = {0};
    ech_file_list(path, is_gguf, &found);
    return found.n ? refuse_gguf(path, found.at[0]) : ECH_OK;
}
