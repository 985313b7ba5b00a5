/* SPDX-License-Identifier: Apache-2.0
 *
 * From argv to a command, and from its status to an exit code.
 */
#include "app/command.h"

#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/setup/setup.h"
#include "app/techniques.h"
#include "config/rules.h"

typedef struct command {
    const char *name, *arguments, *help;
    ech_status (*run)(int argc, char **argv, int *code);
} command;

static const command commands[] = {
#define X(name, arguments, help) {#name, arguments, help, ech_command_##name},
#include "app/commands.def"
#undef X
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_tour(FILE *out)
{
    fprintf(out, "Echelon trains large neural networks across many devices.\n\n"
                 "Usage: echelon COMMAND ...\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-11s%-20s%s\n", commands[i].name, commands[i].arguments, commands[i].help);
    fprintf(out, "\n"
                 "  echelon COMMAND --help   what a command takes\n"
                 "  echelon help keys        every key of a run file\n"
                 "  echelon help together    what does not go together, and why\n"
                 "  echelon help techniques  which techniques run together: a matrix\n"
                 "  echelon --version        what this program was built with\n\n"
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
    printf("echelon %s\n", ECH_VERSION);
    const char *lacks = ech_comm_lacks(ECH_COMM_mpi);
    if (lacks)
        printf("MPI:     %s\n", lacks);
    else
        printf("MPI:     %s (%s)\n", ech_comm_version(ECH_COMM_mpi),
               ech_comm_launcher(ECH_COMM_mpi));
    const char *without_ucx = ech_comm_lacks(ECH_COMM_ucx);
    printf("UCX:     %s\n", without_ucx ? without_ucx : ech_comm_version(ECH_COMM_ucx));
    printf("kernels: %s\n", ech_kernels_describe());
    printf("cuda:    %s\n", ech_device_describe("cuda"));
    return ECH_OK;
}

/* The tables that run files choose from. */
static const struct {
    const char *key, *name, *help;
} choices[] = {
#define X(name, help) {"model.architecture", #name, help},
#include "model/models.def"
#undef X
#define X(name, help) {"optimizer.name", #name, help},
#include "optim/optimizers.def"
#undef X
#define X(name, help) {"optimizer.schedule", #name, help},
#include "optim/learning_rates.def"
#undef X
#define X(identifier, name, help) {"parallel.schedule", name, help},
#include "schedule/order/schedules.def"
#undef X
#define X(name, help, lacking) {"parallel.comm", #name, help},
#include "comm/comm.def"
#undef X
#define X(name, alignment, part, loss_rows, kernels, fused, lacking, help)                         \
    {"parallel.device", #name, help},
#include "device/device.def"
#undef X
    {"parallel.device", "auto",
     "cuda where the build and the machine have it, otherwise cpu, and a line says why"},
#define X(name, text, help) {"parallel.reduction", text, help},
#include "comm/reduction.def"
#undef X
};

static ech_status print_keys(void)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = NULL;
    ECH_FREED_TEXT text = {0};
    ECH_TRY(ech_setup_defaults(&config));
    ech_config_help(config, &text);
    fputs(text.at, stdout);
    printf("\nWhat may be chosen by name:\n");
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        printf("  %s = %s\n      %s\n", choices[i].key, choices[i].name, choices[i].help);
    return ECH_OK;
}

/* The keys that this choice reads and others do not. */
static void print_reads(const char *key, const char *name, const char *reads)
{
    if (*reads) printf("  %s = %s:\n      %s\n", key, name, reads);
}

static void print_families(void)
{
#define X(name, help)                                                                              \
    {                                                                                              \
        ECH_FREED_TEXT reads = {0};                                                                \
        ech_family_append_reads(ech_family_find(#name), &reads);                                   \
        print_reads("model.architecture", #name, reads.at);                                        \
    }
#include "model/models.def"
#undef X
}

static ech_status print_together(void)
{
    ECH_FREED_TEXT forbidden = {0}, unbuilt = {0};
    ech_rules_help(ECH_RULE_FORBIDDEN, &forbidden);
    ech_rules_help(ECH_RULE_UNBUILT, &unbuilt);
    printf("Every two features go together, except where one rules the other out or has nothing "
           "to act on:\n\n%s\nand except these pairs, which nobody has built yet:\n\n%s",
           forbidden.at, unbuilt.at);
    printf("\nSome keys are not read by every choice; these read:\n\n");
    print_families();
#define X(name, help) print_reads("optimizer.name", #name, ech_optimizer_find(#name)->reads);
#include "optim/optimizers.def"
#undef X
#define X(name, help) print_reads("optimizer.schedule", #name, ech_curve_find(#name)->reads);
#include "optim/learning_rates.def"
#undef X
    printf("\nAnd numbers must fit:\n\n");
#define X(name, scope, meaning)                                                                    \
    if (strcmp(#name, "together") != 0) printf("  %s\n", meaning);
#include "layout/grid_rules.def"
#undef X
    return ECH_OK;
}

static ech_status print_techniques(void)
{
    ECH_FREED_TEXT text = {0};
    ech_techniques_print(&text);
    fputs(text.at, stdout);
    return ECH_OK;
}

static const command *find_command(const char *name)
{
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0) return &commands[i];
    return NULL;
}

static ech_status refuse_command(const char *name)
{
    const char *names[COMMANDS + 1] = {"help"};
    for (int i = 0; i < COMMANDS; i++) names[i + 1] = commands[i].name;
    const char *nearest = ech_text_nearest(name, names, COMMANDS + 1);
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

/* echelon help, and of keys, together, techniques or a COMMAND. */
static ech_status help(int argc, char **argv, int *code)
{
    if (argc > 2)
        ECH_FAIL(ECH_EUSAGE, "help takes one word: a command, keys, together or techniques");
    if (argc == 2 && strcmp(argv[1], "keys") == 0) return print_keys();
    if (argc == 2 && strcmp(argv[1], "together") == 0) return print_together();
    if (argc == 2 && strcmp(argv[1], "techniques") == 0) return print_techniques();
    if (argc == 2) {
        const command *chosen = find_command(argv[1]);
        char option[] = "--help", *words[] = {NULL, option, NULL};
        return chosen ? run_command(chosen, 2, words, code) : refuse_command(argv[1]);
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
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) return print_version();
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
                errno ? strerror(errno) : "a part of it is lost");
    _exit(ECH_EXIT_FAILED);
}

int ech_command_run(int argc, char **argv)
{
    int code = ECH_EXIT_DONE;
    /* A file that may not grow any more is an error like a full disk, not the end. */
    signal(SIGXFSZ, SIG_IGN);
    atexit(flush_results);
    ech_status status = dispatch(argc, argv, &code);
    return status == ECH_OK ? code : ech_status_exit_code(status);
}
