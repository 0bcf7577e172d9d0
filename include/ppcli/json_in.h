/* SPDX-License-Identifier: Apache-2.0 */
/* Reading JSON that may be hostile: bounded before the parser sees it. */
#ifndef PPCLI_JSON_IN_H
#define PPCLI_JSON_IN_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "ppcli/err.h"

/* What may be in a text: one value needs up to fifty times its bytes once it is parsed. */
struct pp_json_limits {
    int depth;       /* of open brackets; 1: an object of plain values */
    size_t items;    /* commas above the innermost level */
    int inner_items; /* values in one bracket of the innermost level */
};

/*
 * Parse an object. Refused: any other value, duplicate keys, invalid UTF-8, NUL characters, text
 * after the object, more than the limits allow. Caller decref's *out.
 * Errors: PP_EFORMAT beginning with `label`, PP_ERESOURCE. Local.
 */
int pp_json_read(const char *label, const char *text, size_t bytes,
                 const struct pp_json_limits *limits, json_t **out);

/*
 * The parser alone, with jansson's own flags and no limits: *out NULL where the text is damaged,
 * and *e (may be NULL) says how. jansson itself is not called for parsing: it cannot do without
 * memory. PP_ERESOURCE when there is none. Caller decref's *out. Local.
 */
int pp_json_load(const char *text, size_t bytes, size_t flags, json_error_t *e, json_t **out);

/* `text` for a message: what is not printable ASCII becomes '?', and it is cut; returns out. */
#define PP_JSON_SHOWN 160
const char *pp_json_shown(const char *text, char out[PP_JSON_SHOWN]);

#endif
