/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of tokenizer.json that split text into words, and that join ids to text.
 */
#include <string.h>

#include "data/bpe/json.h"

enum { MOST_STEPS = ECH_BPE_STAGES };

static bool has_text(const json_t *object, const char *key, const char *text)
{
    const char *have = json_string_value(json_object_get(object, key));
    return have && strcmp(have, text) == 0;
}

static bool has_type(const json_t *object, const char *type)
{
    return has_text(object, "type", type);
}

json_t *ech_bpe_steps(const json_t *part, const char *key)
{
    json_t *steps = json_object_get(part, key);
    if (!part || json_is_null(part)) return json_array();
    if (has_type(part, "Sequence") && json_is_array(steps)) return json_incref(steps);
    return json_pack("[O]", part);
}

/* {"type": TYPE, "pattern": {"String": from}, "content": to} */
static bool is_replacement(const json_t *step, const char *from, const char *to)
{
    return has_type(step, "Replace") && has_text(step, "content", to) &&
           has_text(json_object_get(step, "pattern"), "String", from);
}

/* ---- words ---- */

/* Texts between matches are words as well as matches are; where every text is covered by matches,
 * as with one Split, both spellings mean the same. */
static bool isolates(const json_t *split, bool alone)
{
    bool invert = json_is_true(json_object_get(split, "invert"));
    return invert ? alone && has_text(split, "behavior", "Removed")
                  : has_text(split, "behavior", "Isolated");
}

/* Hugging Face's Punctuation: either a run of punctuation is one word, or each character is. */
static ech_status punctuation(const json_t *step, const ech_bpe *bpe, ech_text *out)
{
    bool together = has_text(step, "behavior", "Contiguous");
    if (!together && json_object_get(step, "behavior") && !has_text(step, "behavior", "Isolated"))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: pre_tokenizer: Punctuation has another behavior than Isolated and "
                 "Contiguous" ECH_BPE_OTHERWISE,
                 bpe->file);
    ech_text_append(out, "%s%s", ech_bpe_punctuation_expression, together ? "+" : "");
    return ECH_OK;
}

static ech_status find_expression(const json_t *step, bool alone, const ech_bpe *bpe, ech_text *out)
{
    const char *regex =
        json_string_value(json_object_get(json_object_get(step, "pattern"), "Regex"));
    if (has_type(step, "Punctuation")) return punctuation(step, bpe, out);
    if (has_type(step, "Digits")) {
        bool single = json_is_true(json_object_get(step, "individual_digits"));
        ech_text_append(out, "%s", single ? ech_bpe_digit_expression : ech_bpe_digits_expression);
        return ECH_OK;
    }
    if (!has_type(step, "Split"))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: pre_tokenizer: before ByteLevel only Split, Digits and Punctuation are "
                 "supported" ECH_BPE_OTHERWISE,
                 bpe->file);
    if (!regex)
        ECH_FAIL(
            ECH_EUNSUPPORTED,
            "%s: pre_tokenizer: a Split has no Regex, its only supported pattern" ECH_BPE_OTHERWISE,
            bpe->file);
    if (!isolates(step, alone))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: pre_tokenizer: Split is supported only with behavior Isolated and invert "
                 "false" ECH_BPE_OTHERWISE,
                 bpe->file);
    ech_text_append(out, "%s", regex);
    return ECH_OK;
}

/* Steps after ByteLevel, where characters stand for bytes; ASCII digits stand for themselves. */
static ech_status find_bytes_expression(const json_t *step, const ech_bpe *bpe, ech_text *out)
{
    const char *regex =
        json_string_value(json_object_get(json_object_get(step, "pattern"), "Regex"));
    bool digits =
        has_type(step, "Digits") && !json_is_true(json_object_get(step, "individual_digits"));
    size_t n = regex ? strlen(regex) : 0, at = 0;
    while (regex && strncmp(regex + at, "[0-9]", 5) == 0) at += 5;
    bool split = has_type(step, "Split") && n > 0 && at == n && isolates(step, false);
    if (!digits && !split)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: pre_tokenizer: after ByteLevel only Digits together, and a Split of [0-9]... "
                 "are supported" ECH_BPE_OTHERWISE,
                 bpe->file);
    ech_text_append(out, "%s", digits ? ech_bpe_digit_bytes_expression : regex);
    return ECH_OK;
}

static void push_stage(ech_bpe *bpe, const char *expression, bool bytes)
{
    ECH_PUSH(bpe->own, (ech_bpe_stage){ech_strdup(expression), bytes});
}

/* Texts between matches are words, too, unless they are removed. */
static ech_status find_pattern(bool removes, ech_bpe *bpe)
{
    const char *expressions[ECH_BPE_STAGES];
    int n = (int)bpe->own.n;
    bool bytes = false;
    for (int i = 0; i < n; i++) {
        expressions[i] = bpe->own.at[i].expression;
        bytes |= bpe->own.at[i].bytes;
    }
    bpe->pattern = ECH_BPE_OWN;
    if (n == 0) bpe->pattern = ECH_BPE_whole;
    if (n == 0 || (!bytes && ech_bpe_pattern_match(expressions, n, &bpe->pattern))) return ECH_OK;
    if (!removes) return ECH_OK;
    ECH_FAIL(ECH_EUNSUPPORTED,
             "%s: pre_tokenizer: a Split with invert true and behavior Removed is supported with "
             "the known patterns, not with this one" ECH_BPE_OTHERWISE,
             bpe->file);
}

/* Splits, Digits and Punctuation around the ByteLevel at `level`, which may have an expression of
 * its own. */
static ech_status take_byte_level(const json_t *parts, size_t level, ech_bpe *bpe)
{
    size_t steps = json_array_size(parts);
    const json_t *own = json_array_get(parts, level);
    bool removes = false;
    if (steps > MOST_STEPS)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: pre_tokenizer: %zu steps; at most %d are supported" ECH_BPE_OTHERWISE,
                 bpe->file, steps, MOST_STEPS);
    for (size_t i = 0; i < steps; i++) {
        ECH_FREED_TEXT expression = {0};
        const json_t *step = json_array_get(parts, i);
        /* The library takes true where nothing is said. */
        if (i == level && json_is_false(json_object_get(own, "use_regex"))) continue;
        if (i < level)
            ECH_TRY(find_expression(step, steps == 2, bpe, &expression));
        else if (i == level)
            ech_text_append(&expression, "%s", ech_bpe_gpt2_expression);
        else
            ECH_TRY(find_bytes_expression(step, bpe, &expression));
        removes |= json_is_true(json_object_get(step, "invert"));
        push_stage(bpe, expression.n ? expression.at : "", i > level);
    }
    bool prefix = !json_is_false(json_object_get(own, "add_prefix_space"));
    if (prefix && steps > 1)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: pre_tokenizer: add_prefix_space of a ByteLevel after other steps would put "
                 "a blank before every word; set it to false",
                 bpe->file);
    if (prefix) bpe->prefix = ECH_BPE_PREFIX_PARTS;
    return find_pattern(removes, bpe);
}

static ech_status take_metaspace(const json_t *part, ech_bpe *bpe)
{
    const json_t *scheme = json_object_get(part, "prepend_scheme");
    const char *name = scheme ? json_string_value(scheme) : "always";
    if (!has_text(part, "replacement", ECH_BPE_BLANK))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: pre_tokenizer: Metaspace has another replacement than %s" ECH_BPE_OTHERWISE,
                 bpe->file, ECH_BPE_BLANK);
    if (name && strcmp(name, "first") == 0)
        bpe->prefix = ECH_BPE_PREFIX_FIRST;
    else if (name && strcmp(name, "always") == 0)
        bpe->prefix = ECH_BPE_PREFIX_PARTS;
    else if (!name || strcmp(name, "never") != 0)
        ECH_FAIL(ECH_EINPUT, "%s: pre_tokenizer: prepend_scheme must be always, first or never",
                 bpe->file);
    if (json_is_false(json_object_get(part, "add_prefix_space")) &&
        bpe->prefix != ECH_BPE_NO_PREFIX)
        ECH_FAIL(ECH_EINPUT,
                 "%s: pre_tokenizer: add_prefix_space false and prepend_scheme %s contradict each "
                 "other; remove add_prefix_space",
                 bpe->file, name);
    bpe->word_blanks = true;
    bpe->splits_at_blanks = !json_is_false(json_object_get(part, "split"));
    return ECH_OK;
}

/* The pre-tokenizers of a tokenizer whose words are not byte-level. Gemma's Split splits at blanks,
 * but its normalizer has replaced them all. */
static ech_status take_characters(const json_t *root, const json_t *parts, ech_bpe *bpe)
{
    const json_t *first = json_array_get(parts, 0);
    size_t steps = json_array_size(parts);
    const json_t *model = json_object_get(root, "model");
    bool blanks = first && has_type(first, "Split") &&
                  has_text(json_object_get(first, "pattern"), "String", " ");
    bool known = steps == 0 || (steps == 1 && (has_type(first, "Metaspace") || blanks));
    if (!known || !json_is_true(json_object_get(model, "byte_fallback")))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: pre_tokenizer: must be ByteLevel (alone or after Split and Digits) or, with "
                 "model.byte_fallback true, null or Metaspace" ECH_BPE_OTHERWISE,
                 bpe->file);
    bpe->characters = true;
    bpe->pattern = ECH_BPE_whole;
    if (blanks && !bpe->normal_blanks)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: pre_tokenizer: Split at blanks, which no normalizer replaces, is not "
                 "supported" ECH_BPE_OTHERWISE,
                 bpe->file);
    return steps > 0 && !blanks ? take_metaspace(first, bpe) : ECH_OK;
}

static ech_status take_pre_tokenizer(const json_t *root, ech_bpe *bpe)
{
    json_auto_t *parts = ech_bpe_steps(json_object_get(root, "pre_tokenizer"), "pretokenizers");
    size_t n = json_array_size(parts), level = 0;
    while (level < n && !has_type(json_array_get(parts, level), "ByteLevel")) level++;
    if (level == n) return take_characters(root, parts, bpe);
    if (bpe->normal_blanks)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: normalizer: Replace and Prepend are not supported with "
                 "ByteLevel" ECH_BPE_OTHERWISE,
                 bpe->file);
    return take_byte_level(parts, level, bpe);
}

/* ---- the normalizer ---- */

/* NFC or NFKC, then Prepend and Replace, which make a text of blanks one of U+2581. */
static ech_status take_step(const json_t *step, ech_bpe *bpe)
{
    bool plain = bpe->form == ECH_BPE_AS_IS && !bpe->normal_blanks;
    if (has_type(step, "NFC") && plain)
        bpe->form = ECH_BPE_NFC;
    else if (has_type(step, "NFKC") && plain)
        bpe->form = ECH_BPE_NFKC;
    else if (has_type(step, "Prepend") && has_text(step, "prepend", ECH_BPE_BLANK))
        bpe->prefix = ECH_BPE_PREFIX_ALWAYS;
    else if (is_replacement(step, " ", ECH_BPE_BLANK))
        bpe->normal_blanks = true;
    else
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: normalizer: only null, NFC and NFKC are supported, and then Prepend of %s "
                 "and Replace of a blank by %s" ECH_BPE_OTHERWISE,
                 bpe->file, ECH_BPE_BLANK, ECH_BPE_BLANK);
    return ECH_OK;
}

static ech_status take_normalizer(const json_t *part, ech_bpe *bpe)
{
    json_auto_t *steps = ech_bpe_steps(part, "normalizers");
    for (size_t i = 0; i < json_array_size(steps); i++)
        ECH_TRY(take_step(json_array_get(steps, i), bpe));
    if (bpe->prefix != ECH_BPE_NO_PREFIX && !bpe->normal_blanks)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: normalizer: Prepend is supported only with Replace of a blank by "
                 "%s" ECH_BPE_OTHERWISE,
                 bpe->file, ECH_BPE_BLANK);
    return ECH_OK;
}

/* ---- the decoder ---- */

/* Replace, ByteFallback, Fuse and, where a blank was put before the text, Strip. */
static bool is_fallback(const json_t *decoder, bool *strips)
{
    const json_t *steps = json_object_get(decoder, "decoders");
    size_t n = json_array_size(steps);
    const json_t *strip = json_array_get(steps, 3);
    if (!has_type(decoder, "Sequence") || n < 3 || n > 4) return false;
    *strips = n == 4;
    return is_replacement(json_array_get(steps, 0), ECH_BPE_BLANK, " ") &&
           has_type(json_array_get(steps, 1), "ByteFallback") &&
           has_type(json_array_get(steps, 2), "Fuse") &&
           (!strip || (has_type(strip, "Strip") && has_text(strip, "content", " ") &&
                       json_integer_value(json_object_get(strip, "start")) == 1 &&
                       json_integer_value(json_object_get(strip, "stop")) == 0));
}

static ech_status take_decoder(const json_t *decoder, ech_bpe *bpe)
{
    if (bpe->characters && !is_fallback(decoder, &bpe->strips))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: decoder: with byte_fallback only a Sequence of Replace (%s by a blank), "
                 "ByteFallback, Fuse and, if need be, Strip of one blank at the start is "
                 "supported" ECH_BPE_OTHERWISE,
                 bpe->file, ECH_BPE_BLANK);
    if (!bpe->characters && decoder && !json_is_null(decoder) && !has_type(decoder, "ByteLevel"))
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: decoder: only ByteLevel is supported" ECH_BPE_OTHERWISE,
                 bpe->file);
    return ECH_OK;
}

ech_status ech_bpe_take_pattern(const json_t *root, ech_bpe *bpe)
{
    ECH_TRY(take_normalizer(json_object_get(root, "normalizer"), bpe));
    ECH_TRY(take_pre_tokenizer(root, bpe));
    return take_decoder(json_object_get(root, "decoder"), bpe);
}
