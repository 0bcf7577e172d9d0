/* SPDX-License-Identifier: Apache-2.0 */
/* Reading JSON that may be hostile: bounded before the parser sees it. Local to ckpt/. */
#ifndef PPCLI_CKPT_JSON_IN_H
#define PPCLI_CKPT_JSON_IN_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

/* What may be in a text: one value needs up to fifty times its bytes once it is parsed. */
struct json_limits {
    int depth;       /* of open brackets; 1: an object of plain values */
    size_t items;    /* commas above the innermost level */
    int inner_items; /* values in one bracket of the innermost level */
};

/*
 * Parse an object. Refused: any other value, duplicate keys, invalid UTF-8, NUL characters, text
 * behind the object, more than the limits allow. Caller decref's *out.
 * Errors: PP_EFORMAT beginning with `label`, PP_ERESOURCE.
 */
int json_in(const char *label, const char *text, size_t bytes, const struct json_limits *limits,
            json_t **out);

/* `text` for a message: what is not printable ASCII becomes '?', and it is cut; returns out. */
#define JSON_SHOWN 160
const char *json_shown(const char *text, char out[JSON_SHOWN]);

#endif
