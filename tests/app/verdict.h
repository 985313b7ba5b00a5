/* SPDX-License-Identifier: Apache-2.0
 *
 * The verdict of verify on a run, in a process of its own, so that one that crashes is one that
 * fails. After fixture.h.
 */
#ifndef ECH_TESTS_APP_VERDICT_H
#define ECH_TESTS_APP_VERDICT_H

#include <fcntl.h>
#include <sys/wait.h>

#include "base/log.h"
#include "app/resumed.h"
#include "app/verify/verify.h"
#include "config/strategy.h"

enum { VERDICT_DEADLINE = 120 };

typedef struct verdict_request {
    const ech_config *config;
    const char *device; /* taken instead of the configuration's, by the child; NULL: none */
    int ranks;
    int64_t steps;
    bool own_precision; /* also in the run's own */
    bool resumes;       /* also: a run that is interrupted and resumed leaves the same bits */
    /* Called by the child with the run's configuration before it is verified, and when that is
     * done. The second returns whether all is well; if not, `why` of n bytes says what is not,
     * unless verify has not passed. NULL: nothing more is asked. */
    void (*begin)(void *context, const ech_config *config, int ranks);
    bool (*judge)(void *context, bool passed, char *why, size_t n);
    void *context;
} verdict_request;

typedef struct verdict {
    bool passed, refused;    /* refused: the run file cannot be had, and `why` says so */
    bool ill;                /* not passed: ill-conditioned */
    double unit;
    double worst, worst_own; /* worst_own: in the run's own precision, where that was compared */
    int64_t compared;
    char why[400], worst_at[256], worst_own_at[256];
} verdict;

/* Ranks share it. */
static inline void verdict_set_device(ech_config *config, const char *device)
{
    char word[64];
    snprintf(word, sizeof word, "parallel.device=%s", device);
    ECH_ASSERT(ech_config_set(config, word) == ECH_OK);
    config->parallel.share_device = 1;
}

/* Whether this machine computes with it; if not, it is said why. Asked in a process of its own:
 * what a GPU's driver has begun does not go along into the children in which runs are. */
static inline bool verdict_has_device(const char *device)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    ECH_ASSERT(child >= 0);
    if (child == 0) {
        const char *lacks = ech_device_lacks(device);
        if (lacks) printf("skipped: %s\n", lacks);
        fflush(NULL);
        _exit(lacks != NULL);
    }
    ECH_ASSERT(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return status == 0;
}

/* Whether the same bits are promised and some differ. In other types than fp64 they are promised
 * for these, in which the tolerance is zero. Workers that push sum their validation losses in an
 * order of their own. */
static inline bool verdict_breaks_a_promise(const ech_verification *v, const ech_config *config)
{
    bool promised = v->exact && config->precision.compute == ECH_COMPUTE_FP64;
    double worst = v->worst_loss + v->worst_gradient + v->worst_weight + v->worst_state;
    if (ech_strategy_sums_over(config) != ECH_SUMS_SERVERS) worst += v->worst_validation;
    return promised && worst > 0;
}

static inline verdict verdict_here(const verdict_request *request)
{
    verdict found = {0};
    ech_verifications v = {.main = {.steps = request->steps,
                                    .tolerance = ECH_TOLERANCE,
                                    .widened = true},
                           .own = {.tolerance = ECH_TOLERANCE_FP32},
                           .own_precision = request->own_precision};
    ech_config *config = ech_config_copy(request->config);
    config->parallel.deadline = VERDICT_DEADLINE;
    if (request->device) verdict_set_device(config, request->device);
    if (request->begin) request->begin(request->context, config, request->ranks);
    ech_status status = request->own_precision
                            ? fixture_run(config, request->ranks, ech_verify_twice_rank, &v)
                            : fixture_run(config, request->ranks, ech_verify_rank, &v.main);
    const ech_verification *bad = v.main.passed ? &v.own : &v.main;
    found.passed = status == ECH_OK && v.main.passed && (!v.own_compared || v.own.passed);
    found.refused = status == ECH_EUSAGE;
    found.ill = status == ECH_OK && bad->ill;
    found.worst = v.main.worst;
    found.unit = v.main.unit;
    found.compared = v.main.compared;
    memcpy(found.worst_at, v.main.worst_at, sizeof found.worst_at);
    if (v.own_compared) {
        found.worst_own = v.own.worst;
        memcpy(found.worst_own_at, v.own.worst_at, sizeof found.worst_own_at);
    }
    if (found.ill)
        snprintf(found.why, sizeof found.why,
                 "ill-conditioned in %s: a unit of %.1e, %lld of %lld updates withheld",
                 bad->precision, bad->unit, (long long)bad->withheld, (long long)bad->updates);
    else if (status == ECH_OK && !found.passed)
        snprintf(found.why, sizeof found.why, "%.1e at %s in %s", bad->worst, bad->first_bad,
                 bad->precision);
    if (found.passed && verdict_breaks_a_promise(&v.main, config)) {
        found.passed = false;
        snprintf(found.why, sizeof found.why, "not the bits that are promised: %.1e at %s",
                 v.main.worst, v.main.worst_at);
    }
    /* In which order pushes come nothing says. */
    if (found.passed && request->resumes && ech_strategy_sums_over(config) != ECH_SUMS_SERVERS)
        found.passed = resumed_is_same(config, request->ranks, found.why, sizeof found.why);
    if (request->judge)
        found.passed = request->judge(request->context, found.passed, found.why, sizeof found.why);
    ech_config_destroy(config);
    return found;
}

/* Its exit is an ordinary one, at which sanitizers say what they have found. */
static inline void verdict_child(const verdict_request *request, int out)
{
    char path[300];
    snprintf(path, sizeof path, "%s/log", fixture_folder);
    int log = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (log >= 0) dup2(log, STDERR_FILENO);
    ech_log_set_quiet(false);
    verdict found = verdict_here(request);
    exit(write(out, &found, sizeof found) == (ssize_t)sizeof found ? 0 : 1);
}

/* The first error that the child has logged: ranks are threads, and each knows its own only. */
static inline void verdict_read_error(verdict *found)
{
    char path[300], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/log", fixture_folder);
    if (ech_file_read(path, 1 << 24, &text, &n) != ECH_OK) return;
    const char *error = strstr(text, "error: ");
    if (error) snprintf(found->why, sizeof found->why, "%.*s", (int)strcspn(error, "\n"), error);
    free(text);
}

/* In a child; what it logs is in FOLDER/log until the next one. */
static inline verdict verdict_of(const verdict_request *request)
{
    verdict found = {0};
    int ends[2], status = 0;
    ECH_ASSERT(pipe(ends) == 0);
    fflush(NULL);
    pid_t child = fork();
    ECH_ASSERT(child >= 0);
    if (child == 0) verdict_child(request, ends[1]);
    close(ends[1]);
    bool told = read(ends[0], &found, sizeof found) == (ssize_t)sizeof found;
    close(ends[0]);
    ECH_ASSERT(waitpid(child, &status, 0) == child);
    if (!told || status != 0) {
        found = (verdict){.passed = false};
        snprintf(found.why, sizeof found.why, "the process ended with %s %d",
                 WIFSIGNALED(status) ? "signal" : "code",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    if (!found.passed && !found.why[0]) verdict_read_error(&found);
    return found;
}

/* Whether they train as one rank does, in bf16 too where the words ask for it, and go on from a
 * checkpoint as if they had not stopped. Says why not. */
static inline bool verdict_agrees(ech_config *config, int ranks, int64_t steps, const char *words)
{
    verdict_request request = {.config = config,
                               .ranks = ranks,
                               .steps = steps,
                               .own_precision = strstr(words, "bf16") != NULL,
                               .resumes = true};
    verdict found = verdict_of(&request);
    if (!found.passed) fprintf(stderr, "%s: %s\n", words, found.why);
    return found.passed;
}

#endif
