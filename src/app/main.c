/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the program begins.
 */
#include "app/command.h"

int main(int argc, char **argv)
{
    return ech_command_run(argc, argv);
}
