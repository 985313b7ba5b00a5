/* SPDX-License-Identifier: Apache-2.0
 *
 * Blends and splits: proportions at every position, each source's epochs, the same samples whatever
 * the ranks and wherever a run begins, and texts that say something else.
 */
#include "data/scratch.h"

#include "base/random.h"
#include "data/corpus.h"
#include "data/samples.h"

/* Files of samples of T tokens; file k's tokens are STRIDE k, STRIDE k + 1, ... */
enum { T = 4, STRIDE = 10000, BATCH = 12 };

static void write_counting(const char *name, int64_t samples, int32_t from)
{
    ech_token_writer *writer;
    assert_int_equal(ech_token_writer_create(in_scratch(name), 65000, &writer), ECH_OK);
    for (int32_t i = 0; i < samples * T + 1; i++) {
        int32_t id = from + i;
        assert_int_equal(ech_token_writer_add(writer, &id, 1), ECH_OK);
        if (i % 3 == 2 || i == samples * T)
            assert_int_equal(ech_token_writer_end_document(writer), ECH_OK);
    }
    assert_int_equal(ech_token_writer_finish(writer), ECH_OK);
}

static ech_corpus_options options_of(const char *sources, const char *split, ech_split part)
{
    return (ech_corpus_options){.key = "data.train",
                                .sources = sources,
                                .split = split,
                                .part = part,
                                .sequence_length = T};
}

static ech_corpus *open_corpus(const char *sources, const char *split, ech_split part)
{
    ech_corpus *corpus;
    ech_corpus_options options = options_of(sources, split, part);
    assert_int_equal(ech_corpus_open(&options, &corpus), ECH_OK);
    return corpus;
}

static void assert_refused(const char *sources, const char *split, ech_split part, ech_status why,
                           const char *says)
{
    ech_corpus *corpus = NULL;
    ech_corpus_options options = options_of(sources, split, part);
    assert_int_equal(ech_corpus_open(&options, &corpus), why);
    assert_error_has(says);
    assert_null(corpus);
}

/* ---- proportions ---- */

/* Less than one sample away from its share at every position, by the bound of Tijdeman's theorem;
 * and samples of each source in order, over three periods. */
static void check_blend(const ech_blend *blend)
{
    int64_t had[ECH_BLEND_MOST] = {0}, P = blend->period;
    int64_t slack = blend->sources > 1 ? 2 * blend->sources - 2 : 1;
    for (int64_t g = 0; g < 3 * P; g++) {
        int64_t sample;
        int k = ech_blend_at(blend, g, &sample);
        assert_int_equal(sample, had[k]++);
        assert_int_equal(ech_blend_position(blend, k, sample), g);
        for (int i = 0; i < blend->sources; i++) {
            int64_t away = llabs(blend->count[i] * (g + 1) - had[i] * P);
            assert_true(away * slack <= P * (slack - 1) && away < P);
        }
    }
}

TEST(test_proportions)
{
    for (uint32_t trial = 0; trial < 400; trial++) {
        int64_t weights[12];
        int n = (int)(trial % 11) + 2;
        for (int k = 0; k < n; k++) {
            int64_t bound = trial % 3 == 0 ? 3 : trial % 3 == 1 ? 10 : 90;
            uint64_t random = ech_random_permute(trial, 1, 1 << 20, (uint64_t)k);
            weights[k] = 1 + (int64_t)random % (random % 5 == 0 ? 100 : bound);
        }
        ech_blend blend;
        ech_blend_create(weights, n, ECH_BLEND_PERIOD, &blend);
        for (int k = 0; k < n; k++)
            assert_int_equal(blend.count[k] * weights[0], blend.count[0] * weights[k]);
        check_blend(&blend);
        ech_blend_free(&blend);
    }
}

/* Weights without a short period are rounded, to less than a millionth of the whole. */
TEST(test_rounded_proportions)
{
    const int64_t weights[] = {123456789, 987654321, 1, 5000000};
    const double sum = 123456789.0 + 987654321.0 + 1 + 5000000;
    ech_blend blend;
    ech_blend_create(weights, 4, ECH_BLEND_PERIOD, &blend);
    assert_in_range(blend.period, ECH_BLEND_PERIOD - 4, ECH_BLEND_PERIOD + 4);
    for (int k = 0; k < 4; k++) {
        double away = (double)blend.count[k] / (double)blend.period - (double)weights[k] / sum;
        assert_true(away < 2e-6 && away > -2e-6 && blend.count[k] >= 1);
    }
    int64_t had[4] = {0};
    for (int64_t g = 0; g < blend.period; g++) had[blend.source[g]]++;
    for (int k = 0; k < 4; k++) assert_int_equal(had[k], blend.count[k]);
    ech_blend_free(&blend);
}

TEST(test_one_source)
{
    const int64_t weight = 300000000, positions[] = {0, 1, 7, INT64_MAX};
    ech_blend blend;
    ech_blend_create(&weight, 1, ECH_BLEND_PERIOD, &blend);
    assert_int_equal(blend.period, 1);
    for (size_t i = 0; i < 4; i++) {
        int64_t sample;
        assert_int_equal(ech_blend_at(&blend, positions[i], &sample), 0);
        assert_int_equal(sample, positions[i]);
        assert_int_equal(ech_blend_position(&blend, 0, positions[i]), positions[i]);
    }
    ech_blend_free(&blend);
}

/* ---- samples ---- */

static void make_sources(char *text, size_t size, const char *format)
{
    write_counting("a", 10, 0);
    write_counting("b", 7, STRIDE);
    write_counting("c", 25, 2 * STRIDE);
    snprintf(text, size, format, in_scratch("a"), in_scratch("b"), in_scratch("c"));
}

static ech_loader_options reading(bool shuffle)
{
    return (ech_loader_options){.sequence_length = T,
                                .global_batch_size = BATCH,
                                .shares = 1,
                                .micro_batch_size = 2,
                                .data_degree = 1,
                                .vocabulary = 65000,
                                .shuffle = shuffle,
                                .seed = 3,
                                .last_position = INT64_MAX,
                                .prefetch = 2};
}

/* The first tokens of a step's samples, as a run of `degree` replicas that begins there reads
 * them. */
static void read_step(const ech_corpus *corpus, int degree, int64_t step, int32_t firsts[BATCH])
{
    double tokens = -1;
    for (int rank = 0; rank < degree; rank++) {
        ech_loader_options options = reading(true);
        ech_loader *loader;
        const ech_batch *batch;
        options.data_degree = degree;
        options.data_rank = rank;
        assert_int_equal(ech_loader_create(corpus, &options, step, &loader), ECH_OK);
        assert_int_equal(ech_loader_next(loader, step, &batch), ECH_OK);
        if (rank == 0) tokens = batch->step_tokens;
        assert_true(batch->step_tokens == tokens && tokens == BATCH * T);
        for (int64_t row = 0; row < batch->micro_batches * 2; row++)
            firsts[ech_sample_index(&options, row)] = batch->tokens[row * T];
        ech_loader_destroy(loader);
    }
}

TEST(test_samples_of_a_blend)
{
    enum { STEPS = 40 };
    char text[13000];
    const int64_t sizes[] = {10, 7, 25}, weights[] = {5, 2, 3};
    make_sources(text, sizeof text, "0.5 %s 0.2 %s .3 %s");
    ech_corpus *corpus = open_corpus(text, "", ECH_SPLIT_TRAIN);
    for (int k = 0; k < 3; k++) assert_int_equal(corpus->source.at[k].samples, sizes[k]);
    int seen[3][25] = {{0}}, had[3] = {0};
    for (int64_t step = 0; step < STEPS; step++) {
        int32_t firsts[BATCH], again[BATCH];
        read_step(corpus, 1, step, firsts);
        for (int degree = 2; degree <= 6; degree++) {
            read_step(corpus, degree, step, again);
            assert_memory_equal(again, firsts, sizeof firsts);
        }
        for (int i = 0; i < BATCH; i++) {
            int k = firsts[i] / STRIDE, s = firsts[i] % STRIDE / T;
            assert_int_equal(firsts[i] % STRIDE % T, 0);
            had[k]++;
            seen[k][s]++;
            /* Every source has epochs of its own: all its samples come equally often. */
            for (int64_t other = 0; other < sizes[k]; other++)
                assert_in_range(seen[k][s] - seen[k][other] + 1, 0, 2);
            int64_t t = step * BATCH + i + 1;
            for (int source = 0; source < 3; source++)
                assert_true(llabs(weights[source] * t - 10 * had[source]) < 10);
        }
    }
    ech_corpus_close(corpus);
}

/* In no order but that of the table, until something would come twice. */
TEST(test_validation_on_a_blend)
{
    char text[13000];
    const struct {
        const char *format;
        int64_t samples;
    } cases[] = {{"%s %s %s", 42}, {"1 %s 1 %s 1 %s", 21}, {"0.5 %s 0.1 %s 0.4 %s", 20}};
    for (size_t i = 0; i < 3; i++) {
        make_sources(text, sizeof text, cases[i].format);
        ech_corpus *corpus = open_corpus(text, "", ECH_SPLIT_TRAIN);
        assert_in_range(ech_corpus_samples(corpus), cases[i].samples, cases[i].samples + 2);
        bool seen[3][25] = {{false}};
        ech_loader_options options = reading(false);
        for (int64_t g = 0; g < ech_corpus_samples(corpus); g++) {
            int64_t s;
            size_t k = (size_t)(ech_sample_at(corpus, &options, g, &s) - corpus->source.at);
            assert_false(seen[k][s]);
            assert_true(s == 0 || seen[k][s - 1]);
            seen[k][s] = true;
        }
        ech_corpus_close(corpus);
    }
}

/* Sources of as many samples each are not shuffled alike. */
TEST(test_permutations_differ)
{
    char text[13000];
    write_counting("a", 25, 0);
    write_counting("b", 25, STRIDE);
    snprintf(text, sizeof text, "%s %s", in_scratch("a"), in_scratch("b"));
    ech_corpus *corpus = open_corpus(text, "", ECH_SPLIT_TRAIN);
    ech_loader_options options = reading(true);
    int same = 0;
    for (int64_t j = 0; j < 25; j++) {
        int64_t a, b;
        ech_sample_at(corpus, &options, 2 * j, &a);
        ech_sample_at(corpus, &options, 2 * j + 1, &b);
        same += a == b;
        assert_int_equal(a, ech_random_permute(3, 0, 25, (uint64_t)j));
    }
    assert_true(same < 8);
    ech_corpus_close(corpus);
}

/* ---- splits ---- */

/* `documents` of 1 to 5 tokens, the last of each being end-of-text (1); other ids count on from
 * 2. */
static int64_t write_documents(const char *name, int documents, bool plain, int64_t *begins)
{
    uint16_t ids[4096];
    int32_t n = 0;
    ech_token_writer *writer = NULL;
    if (!plain) assert_int_equal(ech_token_writer_create(in_scratch(name), 65000, &writer), ECH_OK);
    for (int d = 0; d < documents; d++) {
        begins[d] = n;
        for (int i = d % 5; i >= 0; i--, n++) {
            int32_t id = i == 0 ? 1 : n + 2;
            ids[n] = (uint16_t)id;
            if (writer) assert_int_equal(ech_token_writer_add(writer, &id, 1), ECH_OK);
        }
        if (writer) assert_int_equal(ech_token_writer_end_document(writer), ECH_OK);
    }
    begins[documents] = n;
    if (writer)
        assert_int_equal(ech_token_writer_finish(writer), ECH_OK);
    else
        write_file(name, ids, (size_t)n * 2);
    return n;
}

/* The part of a split contains documents [first, end), in the order of the file, and with `mask`
 * it keeps their boundaries. */
static void check_part(const char *name, const char *split, ech_split part, bool mask,
                       const int64_t *begins, int first, int end)
{
    ech_corpus_options options = options_of(in_scratch(name), split, part);
    ech_corpus *corpus;
    options.document_mask = mask;
    options.end_of_text = 1;
    assert_int_equal(ech_corpus_open(&options, &corpus), ECH_OK);
    const ech_token_file *file = corpus->source.at[0].file;
    int64_t n = begins[end] - begins[first];
    int32_t ids[4096];
    assert_int_equal(file->documents, end - first);
    assert_int_equal(file->runs.tokens, n);
    assert_int_equal(ech_token_file_read(file, 0, n, 65000, ids), ECH_OK);
    for (int64_t i = 0, d = first; i < n; i++) {
        int64_t at = begins[first] + i;
        if (at == begins[d + 1]) d++;
        assert_int_equal(ids[i], at + 1 == begins[d + 1] ? 1 : at + 2);
    }
    assert_int_equal(ech_token_runs_documents(&file->runs), mask ? end - first : 1);
    ech_corpus_close(corpus);
}

TEST(test_splits)
{
    int64_t begins[1001];
    const struct {
        const char *split;
        int documents, bound[4];
    } cases[] = {{"969,30,1", 1000, {0, 969, 999, 1000}},
                 {"8,1,1", 100, {0, 80, 90, 100}},
                 {"0.9,0.1", 10, {0, 9, 10, 10}},
                 {"100,0,0", 10, {0, 10, 10, 10}},
                 {"1,1,1", 10, {0, 3, 7, 10}},
                 {"0,5,5", 30, {0, 0, 15, 30}},
                 {"99,1", 50, {0, 50, 50, 50}},
                 {"97,3", 50, {0, 48, 50, 50}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int plain = 0; plain < 2; plain++) {
            const char *name = plain ? "p.bin" : "m";
            write_documents(name, cases[i].documents, plain, begins);
            for (int part = 0; part < 3; part++) {
                const int *bound = &cases[i].bound[part];
                if (bound[0] == bound[1])
                    assert_refused(in_scratch(name), cases[i].split, (ech_split)part, ECH_EUSAGE,
                                   "leaves none of the");
                for (int mask = 0; mask < 2 && bound[0] < bound[1]; mask++)
                    check_part(name, cases[i].split, (ech_split)part, mask, begins, bound[0],
                               bound[1]);
            }
        }
    }
}

/* ---- texts ---- */

TEST(test_texts_that_are_no_blend)
{
    char text[13000];
    make_sources(text, sizeof text, "%s %s %s");
    const char *a = in_scratch("a");
    const struct {
        const char *format, *says;
    } cases[] = {{"", "names no token file"},
                 {"  ", "names no token file"},
                 {"0.5", "no path after the last weight"},
                 {"0.5 %s 0.5", "no path after the last weight"},
                 {"1 %s %s", "should be a weight"},
                 {"0 %s", "a weight of 0"},
                 {"1 %s 0.0 %s", "a weight of 0"},
                 {"1 %s -1 %s", "-1 should be a weight"},
                 {"1 %s 1e3 %s", "1e3 should be a weight"},
                 {"1 %s 1000000000 %s", "should be a weight"},
                 {"1 %s nan %s", "nan should be a weight"},
                 {"1 %s 0.0000000001 %s", "should be a weight"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *at = cases[i].format;
        text[0] = '\0';
        for (const char *hole; (hole = strstr(at, "%s")); at = hole + 2)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%.*s%s", (int)(hole - at),
                     at, a);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s", at);
        assert_refused(text, "", ECH_SPLIT_TRAIN, ECH_EUSAGE, cases[i].says);
    }
    const char *const splits[] = {",",    "a",    "1,2,3,4", "1;2", "-1,2",
                                  "1,,2", "1,2,", "0,0,0",   " 1"};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        assert_refused(a, splits[i], ECH_SPLIT_TRAIN, ECH_EUSAGE,
                       "must be up to three proportions");
}

/* A source of which no token would be learnt is an error; one with a single target is none. */
TEST(test_no_target)
{
    static const struct {
        const char *sequences; /* p: a token of a prompt, t: one of a text; |: the document ends */
        bool mask, refused;
    } cases[] = {{"pppp|", false, true}, {"tppp|", false, true},   {"pppt|", false, false},
                 {"t|t|t|", true, true}, {"t|t|t|", false, false}, {"t|tt|t|", true, false},
                 {"pp|t|", true, true},  {"pp|t|", false, false},  {"pp|pt|", true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_token_writer *writer;
        const int32_t id = 7;
        assert_int_equal(ech_token_writer_create(in_scratch("a"), 100, &writer), ECH_OK);
        for (const char *at = cases[i].sequences; *at; at++) {
            if (*at == '|')
                assert_int_equal(ech_token_writer_end_document(writer), ECH_OK);
            else
                assert_int_equal(*at == 'p' ? ech_token_writer_add_prompt(writer, &id, 1)
                                            : ech_token_writer_add(writer, &id, 1),
                                 ECH_OK);
        }
        assert_int_equal(ech_token_writer_finish(writer), ECH_OK);
        ech_corpus *corpus = NULL;
        ech_corpus_options options = options_of(in_scratch("a"), "", ECH_SPLIT_TRAIN);
        options.document_mask = cases[i].mask;
        assert_int_equal(ech_corpus_open(&options, &corpus),
                         cases[i].refused ? ECH_EINPUT : ECH_OK);
        if (cases[i].refused) assert_error_has("tokens and no target");
        ech_corpus_close(corpus);
    }
}

/* "words" of a text, paths divided by |, each after its weight in units if it has one; or what the
 * error says. */
static void assert_words(const char *text, const char *expected)
{
    ech_corpus_words words;
    ECH_FREED_TEXT is = {0};
    if (ech_corpus_read_words("data.train", text, &words) != ECH_OK) {
        assert_error_has(expected);
        return;
    }
    for (size_t i = 0; i < words.path.n; i++) {
        if (words.weight.n)
            ech_text_append(&is, "%lld ", (long long)words.weight.at[i] / 1000000000);
        ech_text_append(&is, "%s|", words.path.at[i]);
    }
    assert_string_equal(is.at, expected);
    ech_corpus_words_free(&words);
}

/* Numbers are weights, or names where files have these names; what could be both is refused, and
 * quotes tell. */
TEST(test_names_that_are_numbers)
{
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(scratch), 0);
    write_counting("2023", 2, 0);
    write_counting("2024", 2, 0);
    write_counting("000", 2, 0);
    static const char *const cases[][2] = {
        {"2023 2024", "2023 is a number, and there is a token file 2023.idx"},
        {"000 2024", "write it in quotes, '000'"},
        {"7 2024", "7 2024|"},
        {"7 2024 2023 x", "2023 is a number, and there is a token file"},
        {"2023", "2023|"},
        {"2023 2024 000", "2023|2024|000|"},
        {"2023 x", "2023 is a number"},
        {"2023 x y", "2023|x|y|"},
        {"x 2023", "x|2023|"},
        {"'2023' '2024'", "2023|2024|"},
        {"\"2023\" 2024", "2023|2024|"},
        {"2023.0 2024", "2023 2024|"},
        {"3 '2023' 4 \"a b\"", "3 2023|4 a b|"},
        {"'a\\'b' it's \\'c", "a'b|it's|'c|"},
        {"''", "|"},
        {"a 'open end", "a quote is not closed"},
        {"1 '2'3", "no path after the last weight"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_words(cases[i][0], cases[i][1]);
    assert_int_equal(chdir(before), 0);
}

TEST(test_paths_with_blanks)
{
    char text[13000];
    write_counting("a b\\", 3, 0);
    write_counting("1", 4, STRIDE);
    snprintf(text, sizeof text, "  %s/a\\ b\\\\ %s/1 ", scratch, scratch);
    ech_corpus *corpus = open_corpus(text, "", ECH_SPLIT_TRAIN);
    assert_int_equal(corpus->source.n, 2);
    assert_int_equal(corpus->source.at[0].samples + corpus->source.at[1].samples, 7);
    ech_corpus_close(corpus);
}

TEST(test_too_little)
{
    const uint16_t one = 1;
    char text[13000];
    write_file("one.bin", &one, sizeof one);
    write_counting("a", 3, 0);
    assert_refused(in_scratch("one.bin"), "", ECH_SPLIT_TRAIN, ECH_EINPUT,
                   "has 1 tokens; a sample needs at least two");
    snprintf(text, sizeof text, "0.9 %s 0.1 %s", in_scratch("a"), in_scratch("one.bin"));
    assert_refused(text, "", ECH_SPLIT_TRAIN, ECH_EINPUT, "one.bin has 1 tokens;");
    snprintf(text, sizeof text, "0.9 %s 0.1 %s", in_scratch("a"), in_scratch("missing"));
    assert_refused(text, "", ECH_SPLIT_TRAIN, ECH_EUSAGE, "missing.idx: no such file");
}

/* ---- what it contains ---- */

static void print_identity(const char *sources, bool document_mask, ech_text *out)
{
    ech_corpus *corpus;
    ech_corpus_options options = options_of(sources, "", ECH_SPLIT_TRAIN);
    options.document_mask = document_mask;
    assert_int_equal(ech_corpus_open(&options, &corpus), ECH_OK);
    out->n = 0;
    assert_int_equal(ech_corpus_identity(corpus, out), ECH_OK);
    ech_corpus_close(corpus);
}

static void assert_change(const char *before, const char *now, const char *says)
{
    ech_text change = {0};
    ech_corpus_print_change(before, now, &change);
    if (!strstr(change.at, says)) fail_msg("no \"%s\" in \"%s\"", says, change.at);
    ech_text_free(&change);
}

/* Equal for equal data at other places; of other tokens, documents or weights it is another. */
TEST(test_identity)
{
    ech_text a = {0}, b = {0};
    char sources[9000];
    write_counting("a", 5000, 0);
    write_counting("moved", 5000, 0);
    write_counting("longer", 5001, 0);
    write_counting("others", 5000, 1);
    print_identity(in_scratch("a"), false, &a);
    print_identity(in_scratch("moved"), false, &b);
    assert_string_equal(a.at, b.at);
    print_identity(in_scratch("longer"), false, &b);
    assert_change(a.at, b.at, "20005 tokens, where there were 20001");
    print_identity(in_scratch("others"), false, &b);
    assert_change(a.at, b.at, "the same number of tokens, but others");
    print_identity(in_scratch("a"), true, &b);
    assert_change(a.at, b.at, "or other documents");
    snprintf(sources, sizeof sources, "1 %s 2 %s", in_scratch("a"), in_scratch("longer"));
    print_identity(sources, false, &b);
    assert_change(a.at, b.at, "2 sources, where there were 1");
    snprintf(sources, sizeof sources, "1 %s 3 %s", in_scratch("a"), in_scratch("longer"));
    print_identity(sources, false, &a);
    assert_change(a.at, b.at, "source 2 has another weight");
    assert_change("what", "ever", "ever, where there was what");
    ech_text_free(&a);
    ech_text_free(&b);
}
