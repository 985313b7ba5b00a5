/* SPDX-License-Identifier: Apache-2.0
 *
 * From argv to a command, and from its status to an exit code.
 */
#include "program/command.h"

#include <argp.h>
#include <ech_commit.h>
#include <echelon.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program/help.h"
#include "app/setup/setup.h"

typedef struct command {
    const char *name, *arguments, *help;
    ech_status (*run)(int argc, char **argv, int *code);
} command;

static const command commands[] = {
#define X(name, arguments, help) {#name, arguments, help, ech_command_##name},
#include "program/commands.def"
#undef X
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_tour(FILE *out)
{
    fprintf(out, "Echelon trains large neural networks across many devices.\n\n"
                 "Usage: echelon COMMAND ...\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-11s%-23s %s\n", commands[i].name, commands[i].arguments,
                commands[i].help);
    fprintf(out,
            "\n"
            "  echelon COMMAND --help   what a command takes\n"
            "  echelon help keys        every key of a run file, a line each\n"
            "  echelon help keys WORD   the keys of a section, or those whose help has the word\n"
            "  echelon help key NAME    all about one key\n"
            "  echelon help together    features that cannot be combined, and why\n"
            "  echelon help techniques  which techniques run together: a matrix\n"
            "  echelon help names       other tools' names for keys and values\n"
            "  echelon version          what this program was built from and with\n\n"
            "For example:\n\n"
            "  echelon data book.txt book --valid 0.1\n"
            "  echelon plan run.yaml --ranks 4\n"
            "  echelon train run.yaml --ranks 4 training.steps=1000\n"
            "  echelon sample runs/book \"Once upon a time\"\n");
}

static ech_status print_version(void)
{
    ech_isa isa;
    ECH_TRY(ech_isa_decide(&isa));
    printf("echelon %s (commit %s)\n", ECH_VERSION, ECH_COMMIT);
    const char *without_mpi = ech_comm_lacks(ECH_COMM_mpi);
    printf("MPI:     %s\n", without_mpi ? without_mpi : ech_comm_version(ECH_COMM_mpi));
    const char *without_ucx = ech_comm_lacks(ECH_COMM_ucx);
    printf("UCX:     %s\n", without_ucx ? without_ucx : ech_comm_version(ECH_COMM_ucx));
    printf("kernels: %s\n", ech_kernels_describe());
    printf("cuda:    %s\n", ech_device_describe("cuda"));
    return ECH_OK;
}

static const command *find_command(const char *name)
{
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0) return &commands[i];
    return NULL;
}

/* Our command for another tool's; NULL: unknown. */
static const char *find_foreign(const char *name)
{
    static const struct {
        const char *theirs, *ours;
    } foreign[] = {
#define X(theirs, ours) {#theirs, ours},
#include "program/foreign_commands.def"
    };
    ECH_FREED char *wanted = ech_strdup(name);
    for (char *at = wanted; *at; at++)
        if (*at == '-') *at = '_';
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (strcmp(foreign[i].theirs, wanted) == 0) return foreign[i].ours;
    return NULL;
}

static ech_status refuse_command(const char *name)
{
    const char *names[COMMANDS + 2] = {"help", "version"};
    for (int i = 0; i < COMMANDS; i++) names[i + 2] = commands[i].name;
    const char *foreign = find_foreign(name);
    if (foreign) ECH_FAIL(ECH_EUSAGE, "no command %s; here that is `echelon %s`", name, foreign);
    if (strchr(name, '.') && !strchr(name, '='))
        ECH_FAIL(ECH_EUSAGE, "no command %s; to train a run file, use `echelon train %s`", name,
                 name);
    const char *nearest = ech_text_nearest(name, names, COMMANDS + 2);
    if (nearest) ECH_FAIL(ECH_EUSAGE, "no command %s; did you mean echelon %s?", name, nearest);
    ECH_FAIL(ECH_EUSAGE, "no command %s; echelon --help lists them", name);
}

static ech_status run_command(const command *chosen, int argc, char **argv, int *code)
{
    char name[64];
    snprintf(name, sizeof name, "echelon %s", chosen->name);
    argv[0] = name;
    argp_err_exit_status = ECH_EXIT_USAGE;
    setenv("ARGP_HELP_FMT", "rmargin=90,no-dup-args-note", 0); /* the user's own wins */
    return chosen->run(argc, argv, code);
}

/* echelon help [keys [WORD] | key NAME | names | together | techniques | COMMAND] */
static ech_status help(int argc, char **argv, int *code)
{
    const char *word = argc > 1 ? argv[1] : "";
    bool is_key = strcmp(word, "key") == 0, is_keys = strcmp(word, "keys") == 0;
    if (is_key && argc != 3)
        ECH_FAIL(ECH_EUSAGE, "help key takes one key, as `echelon help key parallel.zero`");
    if (argc > 3 || (argc > 2 && !is_key && !is_keys))
        ECH_FAIL(ECH_EUSAGE, "help takes one word: a command, keys, names, together or techniques; "
                             "or two: key NAME, keys WORD");
    if (is_key) return ech_help_key(argv[2]);
    if (is_keys) return argc > 2 ? ech_help_keys_with(argv[2]) : ech_help_keys();
    if (strcmp(word, "names") == 0) return ech_help_names();
    if (strcmp(word, "together") == 0) return ech_help_together();
    if (strcmp(word, "techniques") == 0) return ech_help_techniques();
    if (argc == 2) {
        const command *chosen = find_command(word);
        char option[] = "--help", *words[] = {NULL, option, NULL};
        return chosen ? run_command(chosen, 2, words, code) : refuse_command(word);
    }
    print_tour(stdout);
    return ECH_OK;
}

static ech_status dispatch(int argc, char **argv, int *code)
{
    if (argc < 2) {
        print_tour(stderr);
        return ECH_EUSAGE;
    }
    const command *chosen = find_command(argv[1]);
    if (chosen) return run_command(chosen, argc - 1, argv + 1, code);
    if (strcmp(argv[1], "version") == 0 || strcmp(argv[1], "--version") == 0 ||
        strcmp(argv[1], "-V") == 0)
        return print_version();
    if (strcmp(argv[1], "help") == 0) return help(argc - 1, argv + 1, code);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return help(1, argv, code);
    return refuse_command(argv[1]);
}

/* Results that did not reach the disk or the pipe are no results. At the exit, since argp ends the
 * process itself when it has printed help. */
static void flush_results(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return;
    ech_fail_at(__FILE__, __LINE__, ECH_EIO, "standard output cannot be written: %s",
                errno ? ech_system_error(errno) : "a part of it is lost; write it to a file");
    _exit(ECH_EXIT_FAILED);
}

int ech_command_run(int argc, char **argv)
{
    int code = ECH_EXIT_DONE;
    /* A file that may not grow any more is an error like a full disk, not the end. */
    signal(SIGXFSZ, SIG_IGN);
    atexit(flush_results);
    echelon_set_log(echelon_log_print, NULL);
    ech_status status = dispatch(argc, argv, &code);
    return status == ECH_OK ? code : ech_status_exit_code(status);
}
