/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jansson with limits. Its own depth limit is 2048 and it has none for the memory a text becomes,
 * so one pass over the brackets and commas comes first. When it runs out of memory it often says
 * "invalid token": whoever took that for damage would turn to an older checkpoint.
 */
#include "ppcli/json_in.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"

/* Whether jansson asked for memory in vain since pp_json_read() began; per thread, because ranks
 * that are threads may all be reading. */
static _Thread_local bool starved;

static void *take(size_t bytes)
{
    void *p = pp_alloc(bytes, 1);
    starved = starved || !p;
    return p;
}

static void use_our_memory(void)
{
    json_set_alloc_funcs(take, pp_free);
}

const char *pp_json_shown(const char *text, char out[PP_JSON_SHOWN])
{
    size_t n = strlen(text);
    size_t take = n < PP_JSON_SHOWN ? n : PP_JSON_SHOWN - 4;
    for (size_t i = 0; i < take; i++) {
        out[i] = '?';
        if (text[i] >= 0x20 && text[i] < 0x7f) {
            out[i] = text[i];
        }
    }
    memcpy(out + take, take < n ? "..." : "", take < n ? 4 : 1);
    return out;
}

/* Needs no understanding of the text: brackets and commas outside of strings are counted. */
static int check_limits(const char *label, const char *text, size_t bytes,
                        const struct pp_json_limits *limits)
{
    bool in_string = false;
    int depth = 0;
    size_t items = 0;
    int inner = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            depth++;
            inner = 1;
        } else if (c == '}' || c == ']') {
            depth--;
        } else if (c == ',' && depth == limits->depth) {
            inner++;
        } else if (c == ',') {
            items++;
        }
        if (depth > limits->depth) {
            return pp_fail(PP_EFORMAT, "%s: its JSON is nested deeper than %d levels", label,
                           limits->depth);
        }
        if (items > limits->items || (depth == limits->depth && inner > limits->inner_items)) {
            return pp_fail(PP_EFORMAT, "%s: its JSON has more values than such a file can need",
                           label);
        }
    }
    return 0;
}

int pp_json_read(const char *label, const char *text, size_t bytes,
                 const struct pp_json_limits *limits, json_t **out)
{
    PP_TRY(check_limits(label, text, bytes, limits));
    /* jansson keeps its two functions in variables; they are set before anybody reads them. */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, use_our_memory);
    json_error_t e;
    starved = false;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &e);
    if (starved) {
        json_decref(root); /* it can also go on without what it did not get */
        return pp_fail(PP_ERESOURCE, "%s: out of memory", label);
    }
    char shown[PP_JSON_SHOWN];
    if (!root) {
        return pp_fail(PP_EFORMAT, "%s: its JSON is damaged at byte %d: %s", label, e.position,
                       pp_json_shown(e.text, shown));
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return pp_fail(PP_EFORMAT, "%s: its JSON is no object", label);
    }
    *out = root;
    return 0;
}
