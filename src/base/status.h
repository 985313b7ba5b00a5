/* SPDX-License-Identifier: Apache-2.0
 *
 * How a function says that it could not do its work.
 *
 * Every fallible function returns an ech_status; results come back through the last parameters and
 * are written only on success. Whoever decides that something is an error logs it, once, with a
 * hint (ECH_FAIL); everyone above passes it up (ECH_TRY).
 */
#ifndef ECH_BASE_STATUS_H
#define ECH_BASE_STATUS_H

typedef enum ech_status {
    ECH_OK = 0,
    ECH_EUSAGE = -1,       /* the command line or the run file asks for something wrong: exit 2 */
    ECH_EINPUT = -2,       /* a file's content is wrong or damaged */
    ECH_EIO = -3,          /* the operating system refused a read, write or rename */
    ECH_ENOMEM = -4,       /* memory does not suffice */
    ECH_EUNSUPPORTED = -5, /* known, but not with these values on this machine */
    ECH_ECOMM = -6,        /* a peer is lost, or a deadline passed */
    ECH_EABORTED = -7,     /* another rank failed first and has logged why */
    ECH_ENUMERIC = -8,     /* a NaN or infinity where training cannot go on */
    ECH_EINTERNAL = -9     /* a promise of this program to itself is broken */
} ech_status;

/* The hint where a thread cannot be started. */
#define ECH_NO_THREAD                                                                              \
    "raise the limit on processes and threads (ulimit -u, or pids.max of a container)"

/* Logs the message once, with this thread's rank, remembers it for ech_last_error, returns st. */
ech_status ech_fail_at(const char *file, int line, ech_status st, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The last message that ech_fail_at logged on this thread, "" if none. Borrowed. */
const char *ech_last_error(void);

/* Forget this thread's last error. */
void ech_clear_error(void);

/* The word for a status in logs ("i/o", "usage", ...). */
const char *ech_status_name(ech_status st);

/* Returns the constant itself, so that compilers see that results are unset only on failure. */
#define ECH_FAIL(st, ...)                                                                          \
    do {                                                                                           \
        ech_fail_at(__FILE__, __LINE__, (st), __VA_ARGS__);                                        \
        return (st);                                                                               \
    } while (0)

#define ECH_TRY(expr)                                                                              \
    do {                                                                                           \
        ech_status ech_try_status_ = (expr);                                                       \
        if (ech_try_status_ != ECH_OK) return ech_try_status_;                                     \
    } while (0)

/* Before the declaration of a pointer, which gives it a value: what it points to then is freed wherever its block
 * is left, by ECH_TRY too. */
#define ECH_FREED __attribute__((cleanup(ech_free_at)))
void ech_free_at(void *pointer);

/* What is wrong beside each other is said at once: the expression is tried whatever failed before, and
 * *first keeps the first failure. */
#define ECH_ALSO(first, expr)                                                                      \
    do {                                                                                           \
        ech_status ech_also_status_ = (expr);                                                      \
        if (*(first) == ECH_OK) *(first) = ech_also_status_;                                       \
    } while (0)

/* A programmer's error, never a user's: prints where, and aborts the process. Always active. */
void ech_assert_failed(const char *file, int line, const char *what) __attribute__((noreturn));
#define ECH_ASSERT(cond) ((cond) ? (void)0 : ech_assert_failed(__FILE__, __LINE__, #cond))

#endif
