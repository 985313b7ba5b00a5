/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that writes for others: in order, all of it, and with bounded room. It is held up by
 * the test, never timed.
 */
#include "checkpoint/scratch.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "app/record_writer.h"
#include "base/log.h"

enum { ROOM = 4, MOST = 1000 };

typedef struct book {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool held;
    int begun; /* records whose writing has begun */
    int n;
    int64_t at[MOST];
} book;

static void write_down(void *context, void *record)
{
    book *b = context;
    pthread_mutex_lock(&b->lock);
    b->begun++;
    pthread_cond_broadcast(&b->changed);
    while (b->held) pthread_cond_wait(&b->changed, &b->lock);
    b->at[b->n++] = *(int64_t *)record;
    pthread_mutex_unlock(&b->lock);
}

static book *make_book(bool held)
{
    book *b = ech_calloc(1, sizeof *b);
    b->held = held;
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    return b;
}

static void free_book(book *b)
{
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

static void let_go(book *b)
{
    pthread_mutex_lock(&b->lock);
    b->held = false;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static ech_record_writer *begin(book *b)
{
    const ech_record_writer_setup setup = {.what = "a book",
                                           .record_bytes = sizeof(int64_t),
                                           .records = ROOM,
                                           .write = write_down,
                                           .context = b};
    ech_record_writer *writer = NULL;
    assert_int_equal(ech_record_writer_begin(&setup, &writer), ECH_OK);
    return writer;
}

static void hand(ech_record_writer *writer, int64_t value)
{
    *(int64_t *)ech_record_writer_slot(writer) = value;
    ech_record_writer_submit(writer);
}

static void assert_holds(const book *b, int n)
{
    assert_int_equal(b->n, n);
    for (int i = 0; i < n; i++) assert_int_equal(b->at[i], i);
}

TEST(all_in_order)
{
    book *b = make_book(false);
    ech_record_writer *writer = begin(b);
    for (int i = 0; i < MOST; i++) {
        hand(writer, i);
        if (i % 100 != 99) continue;
        ech_record_writer_flush(writer);
        assert_holds(b, i + 1); /* nothing is under way */
    }
    ech_record_writer_end(writer);
    assert_holds(b, MOST);
    free_book(b);
}

TEST(none_at_all)
{
    book *b = make_book(false);
    ech_record_writer *writer = begin(b);
    ech_record_writer_flush(writer);
    ech_record_writer_end(writer);
    ech_record_writer_end(NULL);
    assert_holds(b, 0);
    free_book(b);
}

/* What was handed over is written, though nobody waits for it but the end. */
TEST(end_writes_the_rest)
{
    for (int n = 1; n <= ROOM; n++) {
        book *b = make_book(true);
        ech_record_writer *writer = begin(b);
        for (int i = 0; i < n; i++) hand(writer, i);
        let_go(b);
        ech_record_writer_end(writer);
        assert_holds(b, n);
        free_book(b);
    }
}

typedef struct handing {
    ech_record_writer *writer;
    book *book;
    atomic_int done; /* records handed over, or found written */
} handing;

static void *hand_many(void *context)
{
    handing *h = context;
    for (int i = 0; i < ROOM + 2; i++) {
        hand(h->writer, i);
        atomic_fetch_add(&h->done, 1);
    }
    return NULL;
}

/* Polls, since standard error tells nobody. */
static void wait_for_text(const char *path, const char *wanted)
{
    for (bool found = false; !found; usleep(1000)) {
        char *text;
        size_t n;
        assert_int_equal(ech_file_read(path, 1 << 20, &text, &n), ECH_OK);
        found = strstr(text, wanted) != NULL;
        free(text);
    }
}

/* While the first record cannot be written, as many are taken as there is room for. The next one
 * waits and says so; nothing is lost. */
TEST(waits_when_full)
{
    char *folder = scratch_make(), *path = ech_file_join(folder, "stderr");
    int before = dup(STDERR_FILENO), file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(before >= 0 && file >= 0);
    dup2(file, STDERR_FILENO);
    ech_log_set_quiet(false);
    close(file);
    book *b = make_book(true);
    handing h = {.writer = begin(b)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, hand_many, &h), 0);
    wait_for_text(path, "echelon: warning: a book: 4 records wait for the disk, ");
    assert_int_equal(atomic_load(&h.done), ROOM);
    assert_int_equal(b->n, 0);
    let_go(b);
    pthread_join(thread, NULL);
    ech_record_writer_end(h.writer);
    wait_for_text(path, "echelon: a book: records are written again; training waited for ");
    dup2(before, STDERR_FILENO);
    ech_log_set_quiet(true);
    close(before);
    assert_holds(b, ROOM + 2);
    assert_int_equal(b->begun, ROOM + 2);
    free_book(b);
    free(path);
    scratch_remove(folder);
}

static void *settle(void *context)
{
    handing *h = context;
    book *b = h->book;
    ech_record_writer_flush(h->writer);
    pthread_mutex_lock(&b->lock);
    atomic_store(&h->done, b->n);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* Another thread than the one that hands over finds written what was handed over before it
 * settled. */
TEST(settles)
{
    book *b = make_book(true);
    handing h = {.writer = begin(b), .book = b};
    pthread_t thread;
    hand(h.writer, 0);
    hand(h.writer, 1);
    assert_int_equal(pthread_create(&thread, NULL, settle, &h), 0);
    let_go(b);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&h.done), 2);
    ech_record_writer_end(h.writer);
    free_book(b);
}
