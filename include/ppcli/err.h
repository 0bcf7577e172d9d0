/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors. A function that can fail returns 0 or a negative PP_E... code. The function that first
 * knows what is wrong says it once with pp_fail(); everyone else passes the code on with PP_TRY().
 * The text lives in a per-thread record; nothing below cli/ prints it and nothing below cli/ exits.
 */
#ifndef PPCLI_ERR_H
#define PPCLI_ERR_H

#include <stdarg.h>
#include <stdbool.h>

/* The negated code is the exit code of the command (sysexits where they fit). */
enum pp_status {
    PP_OK = 0,
    PP_ECHECK = -1,     /* a check failed (verify, bench) */
    PP_EUSAGE = -64,    /* wrong words on the command line */
    PP_EFORMAT = -65,   /* bad data: IDX, gzip, checkpoint, plan */
    PP_ENOINPUT = -66,  /* an input file or data set is missing */
    PP_ERESOURCE = -69, /* memory, mpirun, device, library not available */
    PP_EINTERNAL = -70, /* broken invariant: please report */
    PP_EIO = -74,       /* read, write, network */
    PP_ESTOPPED = -75,  /* stopped on request, resumable */
    PP_ELOST = -76,     /* a rank was lost or hung */
    PP_EPERM = -77,     /* permission */
    PP_ECONFIG = -78,   /* configuration */
    PP_EDIVERGED = -80, /* NaN or Inf in loss or gradients */
};

#define PP_ERROR_TEXT_MAX 4096

/* One failure: plain data, so that a rank thread can hand it to the thread that started it. */
struct pp_error {
    int code;         /* 0 when there is none */
    const char *file; /* source position of the pp_fail(), static storage */
    int line;
    bool full;                    /* a disk or a quota is: another try would find it so again */
    char text[PP_ERROR_TEXT_MAX]; /* one line, lower case, no newline, no control characters */
};

/*
 * Record a failure of this thread and return `code` (one of PP_E...), so that a caller can write
 * `return pp_fail(PP_EFORMAT, "...")`. Overwrites an earlier record of this thread.
 */
#define pp_fail(code, ...) pp_failed(pp_error_set((code), __FILE__, __LINE__, __VA_ARGS__))

/* As pp_fail(), with ": " and the meaning of errno at the end; code by errno when `code` is 0. */
#define pp_fail_errno(code, ...)                                                                   \
    pp_failed(pp_error_set_errno((code), __FILE__, __LINE__, __VA_ARGS__))

/* Pass a failure on. */
#define PP_TRY(expr)                                                                               \
    do {                                                                                           \
        int pp_try_rc_ = (expr);                                                                   \
        if (pp_try_rc_ < 0)                                                                        \
            return pp_try_rc_;                                                                     \
    } while (0)

/* The same, after undo: a call that gives back what was taken before. */
#define PP_TRY_UNDO(expr, undo)                                                                    \
    do {                                                                                           \
        int pp_try_rc_ = (expr);                                                                   \
        if (pp_try_rc_ < 0) {                                                                      \
            undo;                                                                                  \
            return pp_try_rc_;                                                                     \
        }                                                                                          \
    } while (0)

/* A broken invariant, never bad input: prints where and aborts (also in release builds). */
#define pp_assert(cond)                                                                            \
    do {                                                                                           \
        if (!(cond))                                                                               \
            pp_assert_failed(#cond, __FILE__, __LINE__);                                           \
    } while (0)

int pp_error_set(int code, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int pp_error_set_errno(int code, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void pp_assert_failed(const char *cond, const char *file, int line) __attribute__((noreturn));

/* A failure is never taken for a success; said here, where compilers and analysers see it. */
static inline int pp_failed(int code)
{
    pp_assert(code < 0);
    return code;
}

/* Put "context: " in front of this thread's record; returns its code. Only for new knowledge. */
int pp_error_context(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Mark this thread's record as one of a full disk; returns its code. */
int pp_error_full(void);

/* This thread's record; never NULL; code 0 when nothing failed since pp_error_clear(). */
const struct pp_error *pp_error_get(void);
void pp_error_clear(void);

/* Make `e`, recorded by another thread, this thread's record; returns its code. */
int pp_error_adopt(const struct pp_error *e);

/* The word for a code: "configuration", "bad data", ... ; static storage. */
const char *pp_status_name(int code);

/*
 * A variable that gives back what it holds when its block is left, whichever way: give_back() of its
 * address is called when the value of a return is known. It begins with what give_back() takes for
 * nothing. unused: clang's analyser does not know that the end of the block reads it.
 */
#define PP_OWN(give_back) __attribute__((cleanup(give_back), unused))

#endif
