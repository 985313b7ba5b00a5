/* SPDX-License-Identifier: Apache-2.0
 *
 * Log-likelihoods of texts: against the softmax of the logits that sampling reads, token by token,
 * in fp64 and under several layouts.
 */
#include <math.h>

#include "app/train/trained.h"
#include "library/tiny_run.h"

enum { MOST = 8, WINDOW = 16, MOST_IDS = 64 };

static char folder[4096]; /* of a trained run with a window of 16 tokens, a byte each */

static void train_once(void)
{
    snprintf(folder, sizeof folder, "%s/scored", fixture_folder);
    if (ech_file_exists(folder)) return;
    echelon_run *run = open_run("precision.compute=fp64 training.steps=2", folder);
    assert_int_equal(echelon_train(run, NULL, NULL), ECHELON_OK);
    echelon_run_close(run);
}

/* ---- the reference ---- */

/* Ids, of which those from `from` on are scored. */
typedef struct reference {
    int32_t ids[MOST_IDS];
    int n, from;
    double sum;
    int greedy;
} reference;

static ech_status find_reference(ech_trained *trained, void *context)
{
    reference *r = context;
    ech_exec *exec = trained->session.exec;
    r->sum = 0;
    r->greedy = 1;
    for (int t = 0; t + 1 < r->n; t++) {
        ech_exec_set_token(exec, r->ids[t], t);
        ECH_TRY(ech_exec_run(exec, ECH_LIST_GENERATE, 0));
        const double *logits = ech_exec_logits(exec);
        double sum = 0, most = logits[0];
        for (int v = 0; v < 260; v++) sum += exp(logits[v]);
        for (int v = 0; v < 260; v++) most = fmax(most, logits[v]);
        if (t + 1 < r->from) continue;
        r->sum += logits[r->ids[t + 1]] - log(sum);
        r->greedy &= logits[r->ids[t + 1]] >= most;
    }
    return ECH_OK;
}

/* The reference of text[n] after `before` other bytes; of id 256 before them if there are none. */
static reference refer(const char *text, int n, int before)
{
    reference r = {.from = before ? before : 1};
    const ech_trained_options wanted = {.path = folder, .samples = 1};
    if (!before) r.ids[r.n++] = 256;
    for (int i = 0; i < n; i++) r.ids[r.n++] = (unsigned char)text[i];
    assert_int_equal(ech_trained_run(&wanted, find_reference, &r), ECH_OK);
    return r;
}

/* ---- what the library finds ---- */

typedef struct found {
    echelon_likelihood of[MOST];
    int n;
} found;

static void take(const echelon_likelihood *one, void *context)
{
    found *f = context;
    assert_true(one->size == sizeof *one && one->index == f->n && f->n < MOST);
    f->of[f->n++] = *one;
}

static echelon_scored_text text_of(const char *context, const char *text)
{
    return (echelon_scored_text){
        .size = sizeof(echelon_scored_text), .context = context, .text = text};
}

static found score(const echelon_scored_text *texts, int64_t n, echelon_score_options options)
{
    found f = {0};
    assert_int_equal(echelon_score(folder, texts, n, &options, take, &f), ECHELON_OK);
    assert_int_equal(f.n, n);
    return f;
}

static void same(const echelon_likelihood *one, reference r)
{
    if (fabs(one->log_likelihood - r.sum) > 1e-10 * fabs(r.sum))
        fail_msg("%.15g is not %.15g", one->log_likelihood, r.sum);
    assert_int_equal(one->tokens, r.n - r.from);
}

static const char long_text[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP"; /* 42 bytes */

/* The blank at a context's end belongs to the text, as in lm-evaluation-harness. A text of one
 * token more than the window fits, since the last one is not read. */
TEST(test_formula)
{
    train_once();
    const echelon_scored_text texts[] = {text_of("ab", "cde"), text_of("ab  ", "c"),
                                         text_of("", "xyz"), text_of("abcdefgh", "ijklmnopq")};
    echelon_score_options options = ECHELON_SCORE_OPTIONS;
    options.greedy = true;
    found f = score(texts, 4, options);
    const reference wanted[] = {refer("abcde", 5, 2), refer("ab  c", 5, 2), refer("xyz", 3, 0),
                                refer("abcdefghijklmnopq", 17, 8)};
    for (int i = 0; i < 4; i++) {
        same(&f.of[i], wanted[i]);
        assert_int_equal(f.of[i].greedy, wanted[i].greedy);
    }
    options.greedy = false;
    f = score(texts, 4, options);
    for (int i = 0; i < 4; i++) assert_int_equal(f.of[i].greedy, -1);
    options.begin_of_text = 1; /* the last text would be too long */
    f = score(texts, 3, options);
    same(&f.of[2], wanted[2]);
    assert_true(fabs(f.of[0].log_likelihood - wanted[0].sum) > 1e-6);
}

/* What greedy sampling writes is greedy; another last token is not. */
static bool keep(const echelon_token *token, void *context)
{
    char *to = context;
    if (token->n != 1 || token->bytes[0] == '\0') return false;
    if (!token->is_prompt) strncat(to, token->bytes, 1);
    return strlen(to) < 4;
}

TEST(test_greedy)
{
    char written[16] = "", other[16];
    train_once();
    echelon_sample_options how = ECHELON_SAMPLE_OPTIONS;
    echelon_score_options options = ECHELON_SCORE_OPTIONS;
    how.temperature = 0;
    how.tokens = 4;
    assert_int_equal(echelon_sample(folder, "ab", &how, keep, written), ECHELON_OK);
    size_t n = strlen(written);
    assert_true(n > 0);
    strcpy(other, written);
    other[n - 1] ^= 1;
    options.greedy = true;
    const echelon_scored_text texts[] = {text_of("ab", written), text_of("ab", other),
                                         text_of("ab", written)};
    found f = score(texts, 3, options);
    assert_int_equal(f.of[0].greedy, 1);
    assert_int_equal(f.of[1].greedy, 0);
    assert_int_equal(f.of[2].greedy, 1);
}

TEST(test_windows)
{
    train_once();
    const echelon_scored_text texts[] = {text_of(NULL, "abc"), text_of(NULL, long_text)};
    echelon_score_options options = ECHELON_SCORE_OPTIONS;
    found f = score(texts, 2, options);
    same(&f.of[0], refer("abc", 3, 0));
    /* 16 targets after the begin of text; 16 after one byte; 10 after 7 bytes. */
    double sum = refer(long_text, 16, 0).sum + refer(long_text + 15, 17, 1).sum +
                 refer(long_text + 25, 17, 7).sum;
    assert_true(fabs(f.of[1].log_likelihood - sum) < 1e-10 * fabs(sum));
    assert_int_equal(f.of[1].tokens, 42);
    /* A long context loses its first tokens, if that is requested. */
    const echelon_scored_text cut = text_of(long_text, "xy");
    options.truncate = true;
    f = score(&cut, 1, options);
    char end[32];
    snprintf(end, sizeof end, "%sxy", long_text + 42 - 15);
    same(&f.of[0], refer(end, 17, 15));
}

TEST(test_layouts)
{
    static const char *const layouts[] = {"tensor=2", "pipeline=2", "context=2",
                                          "context=2 context_method=ulysses",
                                          "tensor=2 pipeline=2 context=2 sequence=true"};
    train_once();
    const echelon_scored_text texts[] = {text_of("ab", "cde"), text_of("", "xyz"),
                                         text_of(NULL, long_text)};
    echelon_score_options options = ECHELON_SCORE_OPTIONS;
    found one = score(texts, 3, options);
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        options.parallel = layouts[l];
        found f = score(texts, 3, options);
        for (int i = 0; i < 3; i++) {
            double a = f.of[i].log_likelihood, b = one.of[i].log_likelihood;
            if (fabs(a - b) > 1e-10 * fabs(b)) fail_msg("%s: %.15g, %.15g", layouts[l], a, b);
        }
    }
    char data[4096];
    echelon_evaluation alone = {.size = sizeof alone}, shared = alone;
    echelon_evaluate_options evaluated = {.size = sizeof evaluated, .parallel = layouts[4]};
    snprintf(data, sizeof data, "%s/valid", fixture_folder);
    assert_int_equal(echelon_evaluate(folder, data, NULL, &alone), ECHELON_OK);
    assert_int_equal(echelon_evaluate(folder, data, &evaluated, &shared), ECHELON_OK);
    assert_true(fabs(alone.loss - shared.loss) < 1e-10 && alone.targets == shared.targets);
    assert_true(fabs(alone.bits_per_byte - shared.bits_per_byte) < 1e-10);
    evaluated.logits = "not/written";
    fails(echelon_evaluate(folder, data, &evaluated, &shared), ECHELON_EUSAGE, "one rank");
}

static void refused(const echelon_scored_text *text, const char *parallel, bool greedy,
                    const char *said)
{
    found f = {0};
    echelon_score_options options = ECHELON_SCORE_OPTIONS;
    options.parallel = parallel;
    options.greedy = greedy;
    fails(echelon_score(folder, text, 1, &options, take, &f), ECHELON_EUSAGE, said);
    assert_int_equal(f.n, 0);
}

TEST(test_refused)
{
    train_once();
    echelon_scored_text text = text_of("abcdefgh", "ijklmnopqr");
    refused(&text, NULL, false, "text 0: 18 tokens with the context, but");
    text.name = "items:7: choice 2";
    refused(&text, NULL, false, "items:7: choice 2: 18 tokens");
    text = text_of("ab", "");
    refused(&text, NULL, false, "has no tokens");
    text = text_of("", "");
    refused(&text, NULL, false, "has no tokens");
    text = text_of("ab", NULL);
    refused(&text, NULL, false, "text 0 is NULL");
    text = text_of("ab", "c");
    refused(&text, "data=2", false, "\"data=2\" is none of pipeline=");
    refused(&text, "tensor", false, "\"tensor\" is none of");
    refused(&text, "tensor=3", false, "parallel.tensor");
    refused(&text, "tensor=2", true, "use no --parallel");
    text.size = 0;
    refused(&text, NULL, false, "size");
    fails(echelon_score(folder, &text, 0, NULL, take, NULL), ECHELON_EUSAGE, "0 texts to score");
}

ALL_TESTS(fixture_setup, fixture_teardown)
