/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of tokenizer.json that say how text is cut into words, and put together again.
 */
#include <string.h>

#include "data/bpe/json.h"

enum { LONGEST_SHOWN = 120 };

static bool has_type(const json_t *object, const char *type)
{
    const char *have = json_string_value(json_object_get(object, "type"));
    return have && strcmp(have, type) == 0;
}

static bool has_text(const json_t *object, const char *key, const char *text)
{
    const char *have = json_string_value(json_object_get(object, key));
    return have && strcmp(have, text) == 0;
}

static ech_status check_byte_level(const json_t *part, const char *file)
{
    const json_t *blank = json_object_get(part, "add_prefix_space");
    /* The library takes true where nothing is said. */
    if (!json_is_false(blank))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: pre_tokenizer: add_prefix_space is not supported; set it to false", file);
    return ECH_OK;
}

/* Pieces between matches are words as well as matches are; as every text is covered by matches, both
 * spellings mean the same. */
static bool isolates(const json_t *split)
{
    bool invert = json_is_true(json_object_get(split, "invert"));
    return has_text(split, "behavior", invert ? "Removed" : "Isolated");
}

static ech_status take_split(const json_t *split, const char *file, ech_bpe *bpe)
{
    const char *expression =
        json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
    if (!expression || !ech_bpe_pattern_match(expression, &bpe->pattern))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: pre_tokenizer: the pattern %.*s is not known; the patterns are:%s (see "
                 "docs/formats.md)",
                 file, LONGEST_SHOWN, expression ? expression : "(no Regex)",
                 strchr(ech_bpe_pattern_names(), ' '));
    if (!isolates(split))
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: pre_tokenizer: Split works with behavior Isolated", file);
    return ECH_OK;
}

/* ByteLevel, or Split and then ByteLevel without an expression of its own. */
static ech_status take_pre_tokenizer(const json_t *part, const char *file, ech_bpe *bpe)
{
    const json_t *steps = json_object_get(part, "pretokenizers");
    bool sequence = has_type(part, "Sequence");
    const json_t *last = sequence && json_array_size(steps) > 0
                             ? json_array_get(steps, json_array_size(steps) - 1)
                             : part;
    if (!has_type(last, "ByteLevel") || json_array_size(steps) > 2)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: pre_tokenizer: neither ByteLevel nor a sequence of Split and ByteLevel; "
                 "byte-level BPE is read",
                 file);
    ECH_TRY(check_byte_level(last, file));
    bool own = !json_is_false(json_object_get(last, "use_regex"));
    bpe->pattern = own ? ECH_BPE_gpt2 : ECH_BPE_whole;
    if (!sequence || json_array_size(steps) < 2) return ECH_OK;
    if (own || !has_type(json_array_get(steps, 0), "Split"))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: pre_tokenizer: before ByteLevel works a Split, and then its use_regex is "
                 "false",
                 file);
    return take_split(json_array_get(steps, 0), file, bpe);
}

static ech_status take_normalizer(const json_t *part, const char *file, ech_bpe *bpe)
{
    const json_t *steps = json_object_get(part, "normalizers");
    if (has_type(part, "Sequence") && json_array_size(steps) == 1) part = json_array_get(steps, 0);
    bool none = !part || json_is_null(part) ||
                (has_type(part, "Sequence") && json_is_array(steps) && !json_array_size(steps));
    bpe->nfc = !none && has_type(part, "NFC");
    if (!none && !bpe->nfc) ECH_FAIL(ECH_EUNSUPPORTED, "%s: normalizer: null and NFC work", file);
    return ECH_OK;
}

ech_status ech_bpe_take_pattern(const json_t *root, const char *file, ech_bpe *bpe)
{
    const json_t *decoder = json_object_get(root, "decoder");
    ECH_TRY(take_normalizer(json_object_get(root, "normalizer"), file, bpe));
    ECH_TRY(take_pre_tokenizer(json_object_get(root, "pre_tokenizer"), file, bpe));
    if (decoder && !json_is_null(decoder) && !has_type(decoder, "ByteLevel"))
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: decoder: ByteLevel works", file);
    return ECH_OK;
}
