/* SPDX-License-Identifier: Apache-2.0
 *
 * Files and folders. Errors (ECH_EIO, ECH_EINPUT) name the path and the system's reason.
 */
#ifndef ECH_BASE_FILE_H
#define ECH_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Functions that read open regular files, and links to regular files. They refuse pipes, devices and sockets:
 * these may have no end, and opening one can have an effect. So a link in an untrusted folder is harmless. */

/* Reads a whole file; a file of more than `limit` bytes is an error. *out has *n bytes and then a NUL;
 * release it with free(). */
ech_status ech_file_read(const char *path, size_t limit, char **out, size_t *n);

/* Replaces a file atomically: writes a temporary file beside `path`, fsyncs it, renames it to `path` and
 * fsyncs the folder. A device or a pipe is written directly. */
ech_status ech_file_write(const char *path, const void *bytes, size_t n);

/* Opens a regular file for reading; *bytes: its size. */
ech_status ech_file_open(const char *path, int *out, int64_t *bytes);

/* Creates a file with a unique name in the folder of `path`, open for reading and writing. Release *name with
 * free(). */
ech_status ech_file_create_beside(const char *path, char **name, int *out);

/* pread and pwrite of exactly n bytes; interrupted and short calls are repeated. */
ech_status ech_file_read_at(int fd, const char *path, void *bytes, size_t n, int64_t offset);
ech_status ech_file_write_at(int fd, const char *path, const void *bytes, size_t n, int64_t offset);
/* The same without a log line: returns 0 or errno. */
int ech_file_put_at(int fd, const void *bytes, size_t n, int64_t offset);

/* fsync of a folder, and of the folder that a file is in. */
ech_status ech_file_sync_folder(const char *path);
ech_status ech_file_sync_parent(const char *path);

/* Makes the folder and its parents; an existing folder is no error. Errors: it is not writable. */
ech_status ech_file_make_folder(const char *path);
/* Locks the folder for this process until *out is closed or the process ends. Waits up to `seconds` for a process
 * that has the lock, logs that it waits, and then fails. On a file system without locks every process gets it. */
ech_status ech_file_lock_folder(const char *path, double seconds, int *out);
/* Whether `path` still names the open file fd; false if it was replaced or removed. */
bool ech_file_is_same(const char *path, int fd);
/* Removes a file, or a folder with all its contents; a missing path is no error. */
ech_status ech_file_remove_all(const char *path);

bool ech_file_exists(const char *path);
bool ech_file_is_folder(const char *path);
bool ech_file_is_link(const char *path);
bool ech_file_has(const char *folder, const char *name); /* FOLDER/NAME exists */

/* "a" + "b" -> "a/b" in new memory, released with free(). */
char *ech_file_join(const char *folder, const char *name);
/* "a/b" -> "a", "/b" -> "/", "b" -> "." in new memory, released with free(). */
char *ech_file_parent(const char *path);

#endif
