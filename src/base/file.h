/* SPDX-License-Identifier: Apache-2.0
 *
 * Files and folders. Errors name the path and the system's reason: ECH_EIO, or ECH_EINPUT for the
 * kind or content of a file. The caller closes file descriptors.
 */
#ifndef ECH_BASE_FILE_H
#define ECH_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"

/* ech_file_read and ech_file_open accept regular files, and links to them. Pipes, devices and
 * sockets are errors: these may have no end, and opening one can have an effect. So a link in an
 * untrusted folder is harmless. */

/* Reads a file to its end; one of more than `limit` bytes is an error. *out has *n bytes and then a
 * NUL; release it with free(). */
ech_status ech_file_read(const char *path, size_t limit, char **out, size_t *n);

/* ECH_EINPUT if a file that begins with these n bytes is a Git LFS pointer, which stands for a file
 * that was not downloaded. The error names the command that downloads it. ech_file_read calls
 * this. */
ech_status ech_file_check_pointer(const char *path, const char *bytes, size_t n);

/* Creates or replaces a file atomically: writes a temporary file beside `path`, fsyncs it, renames
 * it to `path` and fsyncs the folder. If `path` is a device or a pipe, it is written directly. */
ech_status ech_file_write(const char *path, const void *bytes, size_t n);

/* Opens a file for reading. *out: the descriptor; *bytes: the size. */
ech_status ech_file_open(const char *path, int *out, int64_t *bytes);

/* Creates a file with a unique name in the folder of `path`, open for reading and writing. *out:
 * the descriptor. Release *name with free(). */
ech_status ech_file_create_beside(const char *path, char **name, int *out);

/* pread and pwrite of exactly n bytes; interrupted and short calls are repeated. */
ech_status ech_file_read_at(int fd, const char *path, void *bytes, size_t n, int64_t offset);
ech_status ech_file_write_at(int fd, const char *path, const void *bytes, size_t n, int64_t offset);
/* ech_file_write_at without a log line: returns 0 or errno. */
int ech_file_put_at(int fd, const void *bytes, size_t n, int64_t offset);

/* fsync of a folder, and of the folder that a file is in. */
ech_status ech_file_sync_folder(const char *path);
ech_status ech_file_sync_parent(const char *path);

/* Checks that a file can be made or replaced at `path`, without doing so: for results that take
 * long to compute. */
ech_status ech_file_check_place(const char *path);

/* Makes a folder and its parents. An existing folder is accepted; one that is not writable is an
 * error. */
ech_status ech_file_make_folder(const char *path);
/* Locks a folder for this process until *out, a descriptor, is closed or the process ends. If
 * another process has the lock, logs that and waits, but fails after `seconds` (ECH_EIO). On a file
 * system without locks every process gets it. */
ech_status ech_file_lock_folder(const char *path, double seconds, int *out);
/* Unlocks it, also if a forked process has the descriptor, too; below 0: nothing. */
void ech_file_unlock_folder(int descriptor);
/* True if `path` still names the open file fd; false if it was replaced or removed. An error of the
 * file system shows neither: true. */
bool ech_file_is_same(const char *path, int fd);
/* Both paths name one file or folder that exists. */
bool ech_file_are_same(const char *a, const char *b);
/* Removes a file, or a folder with all its contents; a missing path is no error. */
ech_status ech_file_remove_all(const char *path);

bool ech_file_exists(const char *path);
bool ech_file_is_folder(const char *path);
bool ech_file_is_link(const char *path);
bool ech_file_has(const char *folder, const char *name); /* FOLDER/NAME exists */

/* Names in new memory. */
typedef ECH_LIST(char *) ech_file_names;
void ech_file_names_free(ech_file_names *names);
/* The names in a folder that are wanted, in the order of their bytes; none if it cannot be read. */
void ech_file_list(const char *folder, bool (*wants)(const char *name), ech_file_names *out);

/* "a" + "b" -> "a/b" in new memory, released with free(). */
char *ech_file_join(const char *folder, const char *name);
/* "a/b" -> "a", "/b" -> "/", "b" -> "." in new memory, released with free(). */
char *ech_file_parent(const char *path);

#endif
