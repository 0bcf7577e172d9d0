/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The per-thread error record. One record per thread is enough because the first function that
 * knows what is wrong reports it and all callers only pass the code on.
 */
#include "ppcli/base/base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct pp_error record;

static void store_error(int code, const char *file, int line, const char *fmt, va_list ap)
{
    /* The arguments may point into the old text, so format into another buffer first. */
    char text[PP_ERROR_TEXT_MAX];
    vsnprintf(text, sizeof(text), fmt, ap);
    record.code = code;
    record.file = file;
    record.line = line;
    record.full = false;
    /* The text may contain words of the user, and it ends up on a terminal. */
    memcpy(record.text, pp_text_make_plain(text), sizeof(text));
}

int pp_error_set(int code, const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    store_error(code, file, line, fmt, ap);
    va_end(ap);
    return code;
}

static int code_of_errno(int e)
{
    switch (e) {
    case ENOENT:
    case ENOTDIR:
        return PP_ENOINPUT;
    case EACCES:
    case EPERM:
    case EROFS:
        return PP_EPERM;
    case ENOMEM:
    case EAGAIN:
    case EMFILE:
    case ENFILE:
        return PP_ERESOURCE;
    default:
        return PP_EIO;
    }
}

int pp_error_set_errno(int code, const char *file, int line, const char *fmt, ...)
{
    int e = errno;
    va_list ap;
    va_start(ap, fmt);
    store_error(code != 0 ? code : code_of_errno(e), file, line, fmt, ap);
    va_end(ap);
    if (e != 0) /* else a stream has lost the errno of an earlier write */
        pp_text_add(record.text, sizeof(record.text), ": %s", strerror(e));
    record.full = e == ENOSPC || e == EDQUOT;
    return record.code;
}

void pp_assert_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "ppcli: internal error: %s:%d: %s does not hold; please report this\n", file,
            line, cond);
    abort();
}

int pp_error_context(const char *fmt, ...)
{
    char text[PP_ERROR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text) - 2, fmt, ap);
    va_end(ap);
    size_t used = strlen(pp_text_make_plain(text));
    memcpy(text + used, ": ", 3);
    used += 2;
    /* Cut the old text at its end; the context names the place to look at. */
    size_t take = strnlen(record.text, sizeof(text) - 1 - used);
    memcpy(text + used, record.text, take);
    text[used + take] = '\0';
    memcpy(record.text, text, sizeof(text));
    return record.code;
}

int pp_error_full(void)
{
    record.full = true;
    return record.code;
}

const struct pp_error *pp_error_get(void)
{
    return &record;
}

void pp_error_clear(void)
{
    memset(&record, 0, sizeof(record));
}

int pp_error_adopt(const struct pp_error *e)
{
    if (e != &record)
        record = *e;
    return record.code;
}

const char *pp_status_name(int code)
{
    static const char *const names[] = {
        [-PP_OK] = "done",
        [-PP_ECHECK] = "check failed",
        [-PP_EUSAGE] = "usage",
        [-PP_EFORMAT] = "bad data",
        [-PP_ENOINPUT] = "input missing",
        [-PP_ERESOURCE] = "resource absent",
        [-PP_EIO] = "input/output",
        [-PP_ESTOPPED] = "stopped on request",
        [-PP_ELOST] = "a rank was lost",
        [-PP_EPERM] = "permission",
        [-PP_ECONFIG] = "configuration",
        [-PP_EDIVERGED] = "diverged",
        [-PP_EDIFFERS] = "other bits",
    };
    const int n = sizeof(names) / sizeof(names[0]);
    return code <= 0 && code > -n && names[-code] ? names[-code] : "internal error";
}
