/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said of a job's end, and who is to blame.
 */
#include <signal.h>
#include <string.h>

#include "app/command.h"
#include "app/job/witness_state.h"
#include "base/log.h"

enum { NOT_STARTED = 127 };

bool ech_witness_is_over(const ech_witness *witness)
{
    bool alive = witness->phase == ECH_CHILD_LOST;
    for (int i = 0; i < witness->slots; i++) alive |= witness->life[i] >= 0;
    return !alive;
}

/* The next start would meet them, in the folders that they hold. */
static void name_survivors(const ech_witness *witness)
{
    for (int i = 0; i < witness->slots; i++)
        if (witness->life[i] >= 0)
            ech_log_warn("rank %d (process %d) was killed and has not ended yet",
                         atomic_load(&witness->board->slot[i].rank), (int)witness->known[i]);
}

static int count_present(const ech_witness *witness)
{
    int present = 0;
    for (int i = 0; i < witness->slots; i++) present += ech_witness_present(witness, i) != 0;
    return present;
}

int ech_witness_signal(const ech_witness *witness, const ech_ending *ending)
{
    bool ours = witness->halted || witness->phase >= ECH_CHILD_BLAMED; /* who ended the child */
    if (witness->killed_by && !witness->halted) return witness->killed_by;
    if (ending->signal) return ours ? 0 : ending->signal;
    int told = ending->is_launcher ? ending->code - 128 : 0; /* as launchers tell it */
    return !ours && told > 0 && told < NSIG ? told : 0;
}

bool ech_witness_forbids_restart(const ech_witness *witness)
{
    return atomic_load(&witness->board->is_final) != 0;
}

int ech_witness_progress(const ech_witness *witness)
{
    return atomic_load(&witness->board->progress);
}

/* Whether nothing is to be added to what the launcher or the ranks have said. */
static bool is_told(const ech_witness *witness, const ech_ending *ending)
{
    bool came = atomic_load(&witness->board->members) > 0;
    if (witness->halted) return false;
    if (ending->stops > 1 || ending->code == ECH_EXIT_DONE || ending->code == ECH_EXIT_USAGE ||
        ending->code == ECH_EXIT_STOPPED)
        return true;
    if (!came && ending->code == NOT_STARTED) return true;
    if (!came) return ending->code == ECH_EXIT_FAILED && (witness->any || !ending->is_launcher);
    if (count_present(witness) == 0) return true; /* all have come to their end */
    return ech_board_aborted(witness->board) && !witness->has_dead;
}

/* Who the others wait for; -1 if nobody waits. */
static int awaited(const ech_witness *witness)
{
    for (int i = 0; i < witness->slots; i++) {
        int peer = atomic_load(&witness->board->slot[i].waits_for);
        if (peer >= 0) return ech_board_culprit(witness->board, peer);
    }
    return -1;
}

static void describe_end(const ech_ending *ending, ech_text *out)
{
    int signal = ending->code - 128;
    const char *who = ending->is_launcher ? "the launcher" : "its process";
    if (ending->signal) {
        ech_text_append(out, "%s was ended by signal %d (%s)", who, ending->signal,
                        strsignal(ending->signal));
        if (ending->is_launcher) return;
    } else {
        ech_text_append(out, "%s exit code is %d", ending->is_launcher ? "the launcher's" : "its",
                        ending->code);
    }
    if (ending->is_launcher && signal > 0 && signal < NSIG)
        ech_text_append(out, ", which means signal %d (%s)", signal, strsignal(signal));
    if (signal == SIGKILL)
        ech_text_append(out, "; if nobody sent it, memory may have run out: see dmesg");
}

static void name_culprit(const ech_witness *witness, const ech_ending *ending, ech_text *out)
{
    int rank = witness->first_dead;
    if (witness->early && rank < 0) {
        ech_text_append(out, "a rank (process %d) has died as it began, and the job with it",
                        (int)witness->early);
        return;
    }
    if (atomic_load(&witness->board->members) == 0 && !witness->any && ending->is_launcher) {
        ech_text_append(out, "the launcher has ended before it started a rank; give the line above "
                             "to a shell without --quiet, if it has that: then it says why");
        return;
    }
    if (atomic_load(&witness->board->members) == 0) {
        ech_text_append(out, "the job has died before a rank of this machine began");
        return;
    }
    bool ours = witness->phase == ECH_CHILD_BLAMED; /* who ended the launcher */
    if (rank < 0 && (ours || !ending->signal)) rank = awaited(witness);
    if (rank < 0)
        ech_text_append(out, "the job has died");
    else if (rank == witness->first_dead)
        ech_text_append(out, "rank %d has died, and the job with it: ", rank);
    else
        ech_text_append(out, "the job has died; likely for rank %d: ", rank);
    if (rank >= 0) ech_board_describe(witness->board, rank, out);
}

ech_status ech_witness_report(ech_witness *witness, const ech_ending *ending)
{
    ech_witness_see_off(witness);
    name_survivors(witness);
    if (is_told(witness, ending)) return ECH_OK;
    if (witness->halted) {
        ech_text what = {0};
        ech_witness_describe_halt(witness, &what);
        ech_status halted = ech_fail_at(__FILE__, __LINE__, ECH_ECOMM, "%s", what.at);
        ech_text_free(&what);
        return halted;
    }
    if (ech_board_claim_report(witness->board)) ech_board_print(witness->board);
    ECH_FREED_TEXT who = {0}, how = {0};
    name_culprit(witness, ending, &who);
    describe_end(ending, &how);
    return ech_fail_at(__FILE__, __LINE__, ECH_ECOMM, "%s (%s)", who.at, how.at);
}
