/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, memory, texts and numbers that every module uses. */
#ifndef PPCLI_BASE_BASE_H
#define PPCLI_BASE_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PP_PATH_MAX 4096

/* ---- numbers */

/* Return the smaller and the larger of two numbers. Each argument is evaluated once. */
#define PP_MIN(a, b) PP_CHOOSE_(a, b, <, __COUNTER__)
#define PP_MAX(a, b) PP_CHOOSE_(a, b, >, __COUNTER__)
#define PP_CHOOSE_(a, b, op, n) PP_CHOOSE_NAMED_(a, b, op, n)
#define PP_CHOOSE_NAMED_(a, b, op, n)                                                              \
    __extension__({                                                                                \
        __typeof__(a) a_##n = (a);                                                                 \
        __typeof__(b) b_##n = (b);                                                                 \
        a_##n op b_##n ? a_##n : b_##n;                                                            \
    })

/* ---- errors */

/*
 * Errors. A function that can fail returns 0 or a negative PP_E... code. The function that first
 * knows what is wrong says it once with pp_fail(); everyone else passes the code on with PP_TRY().
 * The text lives in a per-thread record; nothing below cli/ prints it and nothing below cli/ exits.
 */

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
    PP_EDIFFERS = -81,  /* other bits than expected (train --expect, reproduce) */
};

#define PP_ERROR_TEXT_MAX 4096

/* One failure: plain data, so that a rank thread can pass it to the thread that started it. */
struct pp_error {
    int code;         /* 0 when there is none */
    const char *file; /* source position of the pp_fail(), static storage */
    int line;
    bool full;                    /* a disk or a quota is full: another try would fail too */
    char text[PP_ERROR_TEXT_MAX]; /* one line, lower case, no newline, no control characters */
};

/*
 * Records a failure of this thread and returns `code` (one of PP_E...), so that a caller can write
 * `return pp_fail(PP_EFORMAT, "...")`. Overwrites an earlier record of this thread.
 */
#define pp_fail(code, ...) pp_failed(pp_error_set((code), __FILE__, __LINE__, __VA_ARGS__))

/* Records a failure as pp_fail() does, with ": " and the meaning of errno at the end; if `code` is
 * 0, errno gives the code. */
#define pp_fail_errno(code, ...)                                                                   \
    pp_failed(pp_error_set_errno((code), __FILE__, __LINE__, __VA_ARGS__))

/* Returns from the function when expr fails, with its code. */
#define PP_TRY(expr)                                                                               \
    do {                                                                                           \
        int pp_try_rc_ = (expr);                                                                   \
        if (pp_try_rc_ < 0)                                                                        \
            return pp_try_rc_;                                                                     \
    } while (0)

/* Returns from the function when expr fails, as PP_TRY() does, but runs `undo` first, which
 * releases what was taken before. */
#define PP_TRY_UNDO(expr, undo)                                                                    \
    do {                                                                                           \
        int pp_try_rc_ = (expr);                                                                   \
        if (pp_try_rc_ < 0) {                                                                      \
            undo;                                                                                  \
            return pp_try_rc_;                                                                     \
        }                                                                                          \
    } while (0)

/* Checks an invariant that no input can break: prints its position and aborts (also in release
 * builds). */
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

/* Returns the code of a failure, which must be below 0: the check shows compilers and analysers
 * that a failure is not a success. */
static inline int pp_failed(int code)
{
    pp_assert(code < 0);
    return code;
}

/* Puts "context: " in front of this thread's record and returns its code. For adding information to
 * a failure only. */
int pp_error_context(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Marks this thread's record as a failure for lack of disk space; returns its code. */
int pp_error_full(void);

/* Returns this thread's record, never NULL; its code is 0 when nothing failed since
 * pp_error_clear(). */
const struct pp_error *pp_error_get(void);
void pp_error_clear(void);

/* Makes `e`, which another thread recorded, the record of this thread; returns its code. */
int pp_error_adopt(const struct pp_error *e);

/* Returns the word for a code, such as "configuration" or "bad data"; static storage. */
const char *pp_status_name(int code);

/*
 * Declares a variable whose content is released when its block is left in any way: give_back() of
 * its address is called after the value of a return is known. The variable begins with the value
 * that give_back() takes for empty. unused: clang's analyser does not see that the end of the block
 * reads it.
 */
#define PP_OWN(give_back) __attribute__((cleanup(give_back), unused))

/* ---- memory */

/*
 * Host memory. Small objects come from pp_alloc(). What a rank needs in a training step comes from
 * one arena, which is planned first (a dry pass that only counts) and allocated once, so that what
 * `ppcli explain` predicts and what a run uses are the same number by construction.
 */

#define PP_ALIGN 64 /* bytes; every arena block is aligned to it */

/* Allocates zeroed memory for `count` objects of `size` bytes. NULL: out of memory or overflow, and
 * the failure is recorded (PP_ERESOURCE). count or size 0 gives a valid pointer. Local. */
void *pp_alloc(size_t count, size_t size);

/* Grows or shrinks a block. On failure returns NULL, the old block stays valid, and the failure is
 * recorded. */
void *pp_realloc(void *p, size_t count, size_t size);

/* Call pp_alloc() and pp_realloc() in a function that returns a code; on failure the function
 * returns PP_ERESOURCE. PP_ALLOC sets p to memory for `count` elements; PP_GROW resizes it, and
 * leaves p unchanged on failure. */
#define PP_ALLOC(p, count)                                                                         \
    PP_TRY(((p) = pp_alloc((size_t)(count), sizeof(*(p)))) ? 0 : PP_ERESOURCE)
#define PP_GROW(p, count)                                                                          \
    do {                                                                                           \
        void *pp_grown_ = pp_realloc(p, (size_t)(count), sizeof(*(p)));                            \
        PP_TRY(pp_grown_ ? 0 : PP_ERESOURCE);                                                      \
        (p) = pp_grown_;                                                                           \
    } while (0)
/* Makes p[capacity] hold more than n elements; n and capacity have an integer type that holds 2 *
 * capacity + 16. */
#define PP_RESERVE(p, n, capacity)                                                                 \
    do {                                                                                           \
        if ((n) == (capacity)) {                                                                   \
            PP_GROW(p, 2 * (capacity) + 16);                                                       \
            (capacity) = 2 * (capacity) + 16;                                                      \
        }                                                                                          \
    } while (0)

char *pp_strdup(const char *s);
void pp_free(void *p); /* accepts NULL */

/* PP_OWN_MEMORY declares a pointer that owns memory of pp_alloc(). PP_TAKE also allocates it,
 * zeroed, for `count` of `type`, in a function that returns a code, which goes to its caller on
 * failure. */
#define PP_OWN_MEMORY PP_OWN(pp_free_at)
#define PP_TAKE(type, p, count)                                                                    \
    PP_OWN_MEMORY type *p = pp_alloc((size_t)(count), sizeof(type));                               \
    PP_TRY((p) ? 0 : PP_ERESOURCE)
void pp_free_at(void *at); /* calls pp_free() of the pointer at `at` */

/* Returns how many pp_alloc/pp_realloc/pp_strdup/arena calls this thread has made: a training step
 * must not change it. */
uint64_t pp_alloc_count(void);

/* Compute a*b and a+b. An overflow is PP_ECONFIG ("too large") and leaves *out untouched. */
int pp_size_mul(size_t a, size_t b, size_t *out);
int pp_size_add(size_t a, size_t b, size_t *out);

/*
 * An allocator that hands out one block from its start. base == NULL is the dry pass:
 * pp_arena_take() counts and returns NULL. The caller of pp_arena_create() owns the block.
 */
struct pp_arena {
    char *base;
    size_t bytes; /* capacity; SIZE_MAX in the dry pass */
    size_t used;
};

/* Makes an arena that only counts and allocates nothing. */
struct pp_arena pp_arena_dry(void);

/* Allocates `bytes` from the system, zeroed, PP_ALIGN aligned, in huge pages if possible. Errors:
 * PP_ERESOURCE. */
int pp_arena_create(size_t bytes, struct pp_arena *out);
void pp_arena_destroy(struct pp_arena *a); /* accepts a dry or zeroed arena */

/* Returns memory for the next `count` objects of `size` bytes, PP_ALIGN aligned; NULL in the dry
 * pass. Exceeding the capacity is a broken invariant (the dry pass must have asked for the
 * same). */
void *pp_arena_take(struct pp_arena *a, size_t count, size_t size);

/* ---- texts */

/*
 * Text from outside (file names, arguments, bytes of a file) on its way to a terminal. A terminal
 * obeys control characters, so none of them is ever printed as it came.
 */

/* Returns the length of the valid UTF-8 sequence at s, which is not at the end of its text; 0 if
 * the sequence is not valid (overlong, surrogate, cut). */
int pp_utf8_length(const char *s);

/* Writes a character as UTF-8, without a NUL; returns its bytes. */
#define PP_UTF8_MAX 4
size_t pp_utf8_put(uint32_t code, char *out);

/* Returns the character of the valid UTF-8 sequence at s if a terminal obeys it instead of
 * showing it: a control character, a mark of text direction, an invisible separator. Returns 0
 * for others. */
uint32_t pp_text_control(const char *s);

/* Replaces what pp_text_control() finds, and what is not UTF-8, byte by byte by '?', so that the
 * length stays. Returns `text`. Local. */
char *pp_text_make_plain(char *text);

/* Copies `text` to out[bytes], cut to what fits, and replaces there what pp_text_make_plain() replaces.
 * Returns out. */
const char *pp_text_shown(const char *text, char *out, size_t bytes);

/* Quotes a word for a shell, in single quotes if it needs them. A word that does not fit is cut and
 * not quoted. Returns out. */
const char *pp_text_shell(const char *word, char *out, size_t bytes);

/* Writes a field of a CSV file, a plain word and a text, in quotes if the text contains a comma, a
 * quote or a line end. */
void pp_text_csv(const char *before, const char *text, FILE *f);

/* Returns the length of the byte order mark at the start of a text, 3, or 0 if there is none.
 * Readers skip it. */
static inline size_t pp_text_bom(const char *text)
{
    return strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* Writes a text, escaped for XML and HTML; only its first `bytes` bytes unless that is SIZE_MAX. */
void pp_text_xml(const char *text, size_t bytes, FILE *f);

bool pp_text_ends(const char *text, const char *end); /* with `end` */
int pp_text_columns(const char *text);                /* width in characters of UTF-8 */

/* Appends to the text in out[bytes], cut to what fits. */
void pp_text_add(char *out, size_t bytes, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns whether `word` is one of the blank-separated words of `list`, which may be NULL. */
bool pp_has_word(const char *list, const char *word);

/* Formats "a b c" as "a, b and c". Returns out. */
const char *pp_text_list(const char *words, char *out, size_t bytes);

/* Returns the ending of a noun after a number: "%d sample%s". */
static inline const char *pp_plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

/*
 * Ends a FILE of open_memstream(text, ...): the caller owns *text, free(). On failure
 * (PP_ERESOURCE, "LABEL: out of memory") it is NULL. Local. (The result of fclose() alone is not
 * enough: it is 0 when the block could not be shrunk and *text is NULL.)
 */
int pp_text_close(FILE *f, char **text, const char *label);

#define PP_TEXT_WIDTH 96 /* maximum columns of lines of help */

/* Prints `text` in lines that begin at `column` and break at blanks, with a line end after the
 * last. hang: the first line is already begun, up to that column. */
void pp_text_wrap(FILE *f, int column, const char *text);
void pp_text_hang(FILE *f, int column, const char *text);

#define PP_COUNT_TEXT 32

/* Formats a count for people: "55,170", "69.0 billion", "12.5". Returns out. */
const char *pp_text_commas(double x, char out[PP_COUNT_TEXT]); /* "69,000,000,000" */
const char *pp_text_count(double x, char out[PP_COUNT_TEXT]);

/* Formats a size: "812 bytes", "1.4 MB". Returns out. */
const char *pp_text_size(uint64_t bytes, char out[PP_COUNT_TEXT]);

/* ---- log */

/*
 * Messages of a run on stderr: one call, one line, one write. Results never go through here (they
 * belong on stdout) and neither do errors (cli/main.c prints the one that ended the run). Control
 * characters in messages become '?'. The level is process-wide state, which the command sets once
 * before ranks start.
 */

enum pp_log_level {
    PP_LOG_QUIET, /* -q: warnings only */
    PP_LOG_INFO,  /* default */
    PP_LOG_DEBUG, /* -v */
};

void pp_log_set_level(enum pp_log_level level);
enum pp_log_level pp_log_level(void);

void pp_log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void pp_log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void pp_log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* "warning: ..." */

/* Shows one line about a long operation in place of the one before, cut to the terminal's width, at
 * any level; NULL removes it, and so does the next message. Only if stderr is pp_term_live(). */
void pp_log_progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Returns whether a line can be written to this descriptor, standard output or error. A reader that
 * does not read must not stop a training, nor keep a signal from ending it: it gets one second,
 * once; after that lines are counted instead of written. When it reads again, one line says how
 * many were left out. */
bool pp_log_ready(int fd);

/* Return whether a line may be redrawn on this descriptor (a terminal, TERM not "dumb", and not a
 * rank under mpirun, whose stdout looks like a terminal even when it is not), and whether escape
 * codes may be sent as well (NO_COLOR is empty). */
bool pp_term_live(int fd);
bool pp_term_color(int fd);

/* ---- clock */

/* Time: durations always come from the monotonic clock; dates are only for people and logs. */

uint64_t pp_clock_ns(void);     /* CLOCK_MONOTONIC, nanoseconds */
uint64_t pp_clock_cpu_ns(void); /* processor time of this thread */

void pp_clock_nap(uint64_t ns); /* sleeps for ns, or until a signal */

/* Returns how long this thread has been ready to run without a core, so far; -1: unknown. */
int64_t pp_clock_waited_ns(void);

/* Formats the date as ISO 8601 UTC, "2026-01-31T12:00:00Z"; returns out. bytes >= 21. */
char *pp_clock_utc(char *out, size_t bytes);

/* Formats a duration, "00:08", "1:02:03"; returns out. bytes >= 16. */
char *pp_clock_duration(double seconds, char *out, size_t bytes);

/* ---- random numbers */

/*
 * Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). There is no generator state: a number is a function of
 * (seed, stream, index), so nothing depends on stages, micro-batches, schedule or resume.
 *
 *   key     = (seed low 32 bits, seed high 32 bits)
 *   counter = (index/4 low, index/4 high, stream low, stream high); word = index mod 4
 *   stream  = FNV-1a 64 of the name's bytes followed by the 8 little-endian bytes of n
 */

/* Computes one block of the bijection, 10 rounds. */
void pp_philox4x32(const uint32_t key[2], const uint32_t ctr[4], uint32_t out[4]);

/* Returns the stream for a purpose, such as ("init:layers.0.weight", 0) or ("shuffle", epoch). */
uint64_t pp_rng_stream(const char *name, uint64_t n);

/* Returns word number `index` of a stream, uniform over 32 bits. */
uint32_t pp_rng_u32(uint64_t seed, uint64_t stream, uint64_t index);

/* Sets out[i] = lo + (hi - lo) * (u32(first + i) >> 8) * 2^-24, computed in float, for i =
 * 0..n-1. */
void pp_rng_uniform(uint64_t seed, uint64_t stream, uint64_t first, float lo, float hi, size_t n,
                    float *out);

/* Sets out[i] = mean + deviation * z, z from N(0, 1): elements 2k and 2k + 1 are the Box-Muller
 * pair of words 2k and 2k + 1, computed in double without libm. |z| < 6.7. */
void pp_rng_normal(uint64_t seed, uint64_t stream, uint64_t first, float mean, float deviation,
                   size_t n, float *out);

/*
 * Computes a permutation of 0..n-1 (Fisher-Yates from the end): for i = n-1..1 swap a[i] with a[j],
 * j = (u32(i) * (i+1)) >> 32, where u32(i) is word i of the stream.
 */
void pp_rng_permutation(uint64_t seed, uint64_t stream, uint32_t n, uint32_t *out);

/* ---- numbers of 16 bits */

/* Round a finite float to IEEE half precision, and to bfloat16: to nearest, ties to even. */
uint16_t pp_f16_round(float f);
uint16_t pp_bf16_round(float f);
float pp_f16_value(uint16_t h); /* of a half */

/* ---- order statistics */

/* Order statistics of measurements. */

void pp_sort_doubles(double *values, int64_t n); /* ascending; no value is a NaN */

/* Returns the q-quantile of sorted[n], interpolated linearly between two values. n >= 1, 0 <= q <=
 * 1. */
double pp_quantile(const double *sorted, int64_t n, double q);

double pp_median(double *values, int64_t n); /* sorts them; n >= 1 */

/* ---- hashes */

/* SHA-256 (FIPS 180-4), so that `sha256sum` can check what ppcli prints. */

#define PP_SHA256_BYTES 32
#define PP_SHA256_HEX 65 /* with the terminating NUL */

struct pp_sha256 {
    uint32_t h[8];
    uint64_t bytes;
    uint8_t block[64];
};

void pp_sha256_init(struct pp_sha256 *s);
void pp_sha256_update(struct pp_sha256 *s, const void *data, size_t bytes);
void pp_sha256_final(struct pp_sha256 *s, uint8_t out[PP_SHA256_BYTES]);

/* Formats a digest as lower-case hex; returns out. */
char *pp_sha256_hex(const uint8_t digest[PP_SHA256_BYTES], char out[PP_SHA256_HEX]);

/* ---- shapes */

/* The shape of one sample of a value: C, or TC (positions, channels), or HWC (rows and columns of
 * pixels, channels). Channels lie next to each other in memory, samples one after the other. */

struct pp_shape {
    int n, dims[3]; /* 1..3 dims, each at least 1 */
};

static inline struct pp_shape pp_shape_flat(int c)
{
    return (struct pp_shape){1, {c, 1, 1}};
}

static inline struct pp_shape pp_shape_image(int h, int w, int c)
{
    return (struct pp_shape){3, {h, w, c}};
}

/* Properties of the data that a model needs. */
struct pp_data_input {
    struct pp_shape shape; /* n 0: not known, or the model accepts any */
    int classes;           /* 0: not known */
    int vocabulary;        /* texts: number of different tokens; 0: not known, or not texts */
    int targets;           /* per sample: 1, or one for each position; 0: not known */
};

/* Returns the floats of one sample. */
static inline size_t pp_shape_floats(const struct pp_shape *s)
{
    size_t floats = 1;
    for (int i = 0; i < s->n; i++)
        floats *= (size_t)s->dims[i];
    return floats;
}

static inline int pp_shape_channels(const struct pp_shape *s)
{
    return s->dims[s->n - 1];
}

/* Formats "32 x 32 x 3"; returns the length as snprintf does. */
int pp_shape_text(const struct pp_shape *s, char *out, size_t bytes);

/* ---- installed files */

/* Folders of the configs and sample data that come with ppcli. */

#define PP_SHIPPED_MAX 6

/* Lists folders that may contain `below` of share/ppcli ("configs", "data/mnist-sample"), the
 * nearest first: near the program, wherever it was moved to; where it is installed; and for a
 * program in its build folder, the source. Absolute; they need not exist. Returns how many. Any
 * thread. */
int pp_shipped_folders(const char *below, char out[PP_SHIPPED_MAX][PP_PATH_MAX]);

#endif
