/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the program begins.
 */
#include "program/command.h"
#include "program/startup.h"

/* The dynamic linker calls these ahead of every library's constructors (ELF gABI,
 * DT_PREINIT_ARRAY). */
__attribute__((section(".preinit_array"),
               used)) static void (*const check)(int, char **, char **) = ech_startup_check;

int main(int argc, char **argv)
{
    ech_startup_keep_memory();
    ech_startup_prepare_words();
    return ech_command_run(argc, argv);
}
