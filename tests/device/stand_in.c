/* SPDX-License-Identifier: Apache-2.0
 *
 * A shared library with one function, for test_cuda_library.
 */
int ech_stand_in_twice(int n);

int ech_stand_in_twice(int n)
{
    return 2 * n;
}
