/* SPDX-License-Identifier: Apache-2.0
 *
 * Records are written at a known offset, so that one which was torn is written over by the next.
 */
#include "base/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/writing.h"

struct ech_journal {
    char *path;
    int fd;
    off_t end;         /* after the last whole record */
    int64_t lost, row; /* records in all, and since the last one that was written */
};

ech_status ech_journal_open(const char *path, bool anew, ech_journal **out)
{
    int fd;
    struct stat info;
    ECH_TRY(ech_file_open_to_write(path, O_WRONLY | O_CREAT | (anew ? O_TRUNC : 0), &fd));
    if (fstat(fd, &info) != 0) {
        close(fd);
        ECH_FAIL(ECH_EIO, "%s: cannot be written: %s", path, strerror(errno));
    }
    ech_journal *journal = ech_calloc(1, sizeof *journal);
    journal->path = ech_strdup(path);
    journal->fd = fd;
    journal->end = info.st_size;
    *out = journal;
    return ECH_OK;
}

/* A file without a name takes all that is written, and nobody will ever read it. */
static bool is_gone(const ech_journal *journal)
{
    struct stat info;
    return fstat(journal->fd, &info) == 0 && info.st_nlink == 0;
}

static bool lose(ech_journal *journal, const char *why)
{
    journal->lost++;
    if (journal->row++ == 0)
        ech_log_warn("%s: cannot be written: %s; the run goes on without it", journal->path, why);
    return false;
}

bool ech_journal_add(ech_journal *journal, const void *record, size_t n)
{
    if (is_gone(journal)) return lose(journal, "it was removed");
    int why = ech_file_put_at(journal->fd, record, n, journal->end);
    if (why) {
        /* If that fails, too, the next record overwrites the part. */
        if (ftruncate(journal->fd, journal->end) != 0) errno = 0;
        return lose(journal, strerror(why));
    }
    if (journal->row)
        ech_log_info("%s: is written again; missing records: %lld", journal->path,
                     (long long)journal->row);
    journal->row = 0;
    journal->end += (off_t)n;
    return true;
}

int64_t ech_journal_lost(const ech_journal *journal)
{
    return journal->lost;
}

void ech_journal_close(ech_journal *journal)
{
    if (!journal) return;
    if (journal->row)
        ech_log_warn("%s: its end is missing, records: %lld", journal->path,
                     (long long)journal->row);
    close(journal->fd);
    free(journal->path);
    free(journal);
}
