/* SPDX-License-Identifier: Apache-2.0
 *
 * Error codes and logging of errors.
 *
 * Every fallible function returns an ech_status; results come back through the last parameters and
 * are written only on success. The function that detects an error logs it once, with a hint
 * (ECH_FAIL); its callers pass the status up (ECH_TRY). If memory for small structures runs out,
 * the process ends (memory.h).
 */
#ifndef ECH_BASE_STATUS_H
#define ECH_BASE_STATUS_H

typedef enum ech_status {
    ECH_OK = 0,
    ECH_EUSAGE = -1,       /* the command line or the run file is wrong: exit 2 */
    ECH_EINPUT = -2,       /* a file's content is wrong or damaged */
    ECH_EIO = -3,          /* the operating system refused a read, write or rename */
    ECH_ENOMEM = -4,       /* not enough memory */
    ECH_EUNSUPPORTED = -5, /* not available with these values or on this machine */
    ECH_ECOMM = -6,        /* a peer is lost, or a deadline passed */
    ECH_EABORTED = -7,     /* another rank failed first and has logged why */
    ECH_ENUMERIC = -8,     /* a NaN or infinity with which training cannot continue */
    ECH_EINTERNAL = -9     /* an invariant of this program is broken */
} ech_status;

/* The exit code of a process that ends with a status: 0; 2 for ECH_EUSAGE; otherwise 1. */
static inline int ech_status_exit_code(ech_status status)
{
    if (status == ECH_OK) return 0;
    return status == ECH_EUSAGE ? 2 : 1;
}

/* The hint of errors of pthread_create. */
#define ECH_NO_THREAD                                                                              \
    "raise the limit on processes and threads (ulimit -u, or pids.max of a container)"

/* strerror's text and what would work: "No space left on device; free some space". The text is this
 * thread's, and stays until the next call. */
const char *ech_system_error(int error);

/* Logs the message with this thread's rank, stores it for ech_last_error, and returns st. */
ech_status ech_fail_at(const char *file, int line, ech_status st, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The last message of ech_fail_at on this thread, "" if none. Borrowed. */
const char *ech_last_error(void);

/* Makes `message` this thread's last error, without logging it: another thread has logged it. */
void ech_set_last_error(const char *message);
/* Clears this thread's last error. */
void ech_clear_error(void);

/* Logs the error and returns st from the calling function: the constant itself, not the result of
 * ech_fail_at, so that compilers see that results are unset only on failure. */
#define ECH_FAIL(st, ...)                                                                          \
    do {                                                                                           \
        ech_fail_at(__FILE__, __LINE__, (st), __VA_ARGS__);                                        \
        return (st);                                                                               \
    } while (0)

/* Returns from the calling function with the status of the expression, unless it is ECH_OK. */
#define ECH_TRY(expr)                                                                              \
    do {                                                                                           \
        ech_status ech_try_status_ = (expr);                                                       \
        if (ech_try_status_ != ECH_OK) return ech_try_status_;                                     \
    } while (0)

/* Attribute of a local variable, which must be initialized: `function` is called with its address
 * whenever its block is left, also by ECH_TRY. */
#define ECH_CLEANUP(function) __attribute__((cleanup(function)))
/* Attribute of a local pointer, or of an ECH_LIST: free() is called on it whenever its block is
 * left. */
#define ECH_FREED ECH_CLEANUP(ech_free_at)
void ech_free_at(void *pointer);
/* Defines DESTROY_at, the ECH_CLEANUP of a handle `type *`, from `destroy`, which accepts NULL. */
#define ECH_DESTROY_AT(type, destroy)                                                              \
    static inline void destroy##_at(type **handle)                                                 \
    {                                                                                              \
        destroy(*handle);                                                                          \
    }

/* For checks that should all log their errors: evaluates the expression even after a failure, and
 * stores the first failure in *first. */
#define ECH_ALSO(first, expr)                                                                      \
    do {                                                                                           \
        ech_status ech_also_status_ = (expr);                                                      \
        if (*(first) == ECH_OK) *(first) = ech_also_status_;                                       \
    } while (0)

/* For programming errors, never for a user's: prints file, line and condition and aborts the
 * process. Active in all builds. */
void ech_assert_failed(const char *file, int line, const char *what) __attribute__((noreturn));
#define ECH_ASSERT(cond) ((cond) ? (void)0 : ech_assert_failed(__FILE__, __LINE__, #cond))

#endif
