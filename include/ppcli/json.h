/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON writer: streaming, no allocation, onto a FILE the caller owns. Strings are escaped, invalid
 * UTF-8 bytes become U+FFFD, numbers are printed so that they read back to the same value, NaN and
 * infinities become null. Write errors stay in the FILE's error flag: check it once at the end.
 */
#ifndef PPCLI_JSON_H
#define PPCLI_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PP_JSON_DEPTH 16

struct pp_json {
    FILE *f;
    int indent; /* spaces per level; 0 writes everything on one line */
    int depth;
    bool any[PP_JSON_DEPTH];      /* something was written at this level */
    bool is_array[PP_JSON_DEPTH]; /* which bracket closes this level */
};

/* An object, which the last pp_json_end() closes. */
struct pp_json pp_json_begin(FILE *f, int indent);

/* key is NULL inside arrays. */
void pp_json_object(struct pp_json *j, const char *key);
void pp_json_array(struct pp_json *j, const char *key);
void pp_json_end(struct pp_json *j); /* closes the innermost; the outermost adds a newline */

void pp_json_str(struct pp_json *j, const char *key, const char *value); /* NULL writes null */
void pp_json_int(struct pp_json *j, const char *key, int64_t value);
void pp_json_uint(struct pp_json *j, const char *key, uint64_t value);
void pp_json_dbl(struct pp_json *j, const char *key, double value);
void pp_json_bool(struct pp_json *j, const char *key, bool value);
void pp_json_raw(struct pp_json *j, const char *key, const char *value); /* JSON already */

#endif
