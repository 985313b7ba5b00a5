/* SPDX-License-Identifier: Apache-2.0
 *
 * Files and folders. Every error names the path and what the system said.
 */
#ifndef ECH_BASE_FILE_H
#define ECH_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Readers open regular files, and links to such: never a pipe, a device or a socket, which may have no end,
 * or something to do with being opened. A link in a stranger's folder thus leads to a file at most. */

/* Reads a whole file of at most `limit` bytes; *out is terminated by a NUL not counted in *n and
 * is released with free(). */
ech_status ech_file_read(const char *path, size_t limit, char **out, size_t *n);

/* Writes all bytes to a temporary name beside `path`, fsyncs, renames over `path`, fsyncs the
 * folder: the file is either the old or the new one, whole. A device or a pipe is written into. */
ech_status ech_file_write(const char *path, const void *bytes, size_t n);

/* Opens a regular file of *bytes bytes for reading. */
ech_status ech_file_open(const char *path, int *out, int64_t *bytes);

/* A new file beside `path` under a name that nobody else has, for reading and writing; *name is released
 * with free(). */
ech_status ech_file_create_beside(const char *path, char **name, int *out);

/* pread and pwrite of exactly n bytes, retried when interrupted or short. */
ech_status ech_file_read_at(int fd, const char *path, void *bytes, size_t n, int64_t offset);
ech_status ech_file_write_at(int fd, const char *path, const void *bytes, size_t n, int64_t offset);

ech_status ech_file_sync_folder(const char *path);
/* Of the folder that the file is in. */
ech_status ech_file_sync_parent(const char *path);

/* Makes the folder and its parents; no error if it is there. It must be possible to write into it. */
ech_status ech_file_make_folder(const char *path);
/* Claims the folder for this process until *out is closed, or the process ends, however it ends.
 * Refused while another has it. A file system without locks gives everyone what they ask for. */
ech_status ech_file_lock_folder(const char *path, int *out);
/* The same, but waits so many seconds for who has it, and says so. */
ech_status ech_file_await_folder(const char *path, double seconds, int *out);
/* Whether the path leads to what was opened, not to something else by now, or to nothing. */
bool ech_file_is_same(const char *path, int fd);
/* Removes a file or a folder with all it holds; no error if it is not there. */
ech_status ech_file_remove_all(const char *path);

bool ech_file_exists(const char *path);
bool ech_file_is_folder(const char *path);
bool ech_file_is_link(const char *path);
bool ech_file_has(const char *folder, const char *name);

/* "a" + "b" -> "a/b" in new memory, released with free(). */
char *ech_file_join(const char *folder, const char *name);
/* "a/b" -> "a", "/b" -> "/", "b" -> "." in new memory, released with free(). */
char *ech_file_parent(const char *path);

#endif
