/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text from elsewhere (file names, words of a command line, bytes of a file) on its way to a
 * terminal. A terminal obeys control characters, so none of them is ever printed as it came.
 */
#ifndef PPCLI_TEXT_H
#define PPCLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "ppcli/err.h"

/* Bytes of the valid UTF-8 sequence at s, which is not at its end; 0 when there is none (overlong,
 * surrogate, cut). */
int pp_utf8_length(const char *s);

/* A character as UTF-8, without a NUL; returns its bytes. */
#define PP_UTF8_MAX 4
size_t pp_utf8_put(uint32_t code, char *out);

/* The character of the valid UTF-8 sequence at s when it is obeyed instead of shown: a control
 * character, a mark of text direction, an invisible separator. Else 0. */
uint32_t pp_text_control(const char *s);

/* In place: what pp_text_control() finds and what is not UTF-8 become '?', byte by byte; the length
 * stays. Returns `text`. Local. */
char *pp_text_plain(char *text);

/* The same for a text that is not ours: a copy, cut to what fits, in out[bytes]; returns out. */
const char *pp_text_shown(const char *text, char *out, size_t bytes);

/* A word as a shell reads it back: in single quotes where it needs them. A word that does not fit is cut, without
 * quotes. Returns out. */
const char *pp_text_shell(const char *word, char *out, size_t bytes);

/* Bytes of the byte order mark that some editors put before a text: 3 or 0. Readers pass over it. */
static inline size_t pp_text_bom(const char *text)
{
    return strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* A text, or its first bytes (SIZE_MAX: all), as XML and HTML have it. */
void pp_text_xml(const char *text, size_t bytes, FILE *f);

bool pp_text_ends(const char *text, const char *end); /* in it */
int pp_text_columns(const char *text);                /* that it takes: characters of UTF-8 */

/* Append to the text in out[bytes]; cut at what fits. */
void pp_text_add(char *out, size_t bytes, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether `word` is one of the words of `list`, which blanks separate; list may be NULL. */
bool pp_has_word(const char *list, const char *word);

/* "a b c" as "a, b and c". Returns out. */
const char *pp_text_list(const char *words, char *out, size_t bytes);

/* What follows "%d sample". */
static inline const char *pp_plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

/*
 * End a FILE of open_memstream(text, ...), on which all writing is done: *text is the caller's,
 * free(). On failure (PP_ERESOURCE, "LABEL: out of memory") it is NULL. Local. (What
 * fclose() returns will not do: it is 0 where the block could not be shrunk and *text is NULL.)
 */
int pp_text_close(FILE *f, char **text, const char *label);

#define PP_TEXT_WIDTH 96 /* columns that lines of help have at most */

/* `text` in lines that begin at `column` and break at blanks; the last one ends too. hang: the first
 * line is begun already, up to that column. */
void pp_text_wrap(FILE *f, int column, const char *text);
void pp_text_hang(FILE *f, int column, const char *text);

#define PP_COUNT_TEXT 32

/* A count for people: "55,170", "69.0 billion", "12.5". Returns out. */
const char *pp_text_commas(double x, char out[PP_COUNT_TEXT]); /* "69,000,000,000" */
const char *pp_text_count(double x, char out[PP_COUNT_TEXT]);

/* "812 bytes", "1.4 MB"; returns out. */
const char *pp_text_size(uint64_t bytes, char out[PP_COUNT_TEXT]);

#endif
