/* SPDX-License-Identifier: Apache-2.0
 *
 *     freeze_thread THREAD
 *
 * Keeps one thread of a process from going on until the process dies, like an endless loop in it:
 * the other threads run. For a process's first thread that is what SIGSTOP cannot do. Exit code 77
 * where the system allows no tracing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

int main(int argc, char **argv)
{
    pid_t thread = argc == 2 ? (pid_t)atoi(argv[1]) : 0;
    int status = 0;
    if (thread <= 0) return 2;
    if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0 ||
        ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) != 0) {
        perror("ptrace");
        return 77;
    }
    /* It stops, and then nobody lets it go on. */
    while (waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status)) {
    }
    return 0;
}
