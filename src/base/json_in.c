/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jansson with limits. Its own depth limit is 2048, and it does not limit the memory that a text
 * needs, so a pass over the brackets and commas comes first.
 *
 * jansson also handles failed allocations badly: it reports "invalid token", which looks like
 * damage, continues without the value, or fails an assertion and ends the process. So this
 * allocator never returns NULL to jansson: the first failure leaves the parser by longjmp(). Its
 * blocks are kept in a list, so that they can be freed then.
 */
#include "ppcli/base/files.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <string.h>

#include "ppcli/base/base.h"

/* The header of every block of jansson. */
struct block {
    struct block *next;
    struct block **link; /* what points to this block; NULL: it is in no list */
};

/* The parser's state of this thread: several rank threads may read JSON at once. */
static _Thread_local struct {
    struct block *blocks; /* taken by the parser that runs */
    bool running;
    jmp_buf out;
} parser;

static void *allocate_json(size_t bytes)
{
    size_t whole = 0;
    struct block *b = NULL;
    if (pp_size_add(bytes, sizeof(*b), &whole) == 0)
        b = pp_alloc(whole, 1);
    if (!b) {
        if (parser.running)
            longjmp(parser.out, 1);
        return NULL;
    }
    if (parser.running) {
        b->next = parser.blocks;
        b->link = &parser.blocks;
        if (b->next)
            b->next->link = &b->next;
        parser.blocks = b;
    }
    return b + 1;
}

static void free_json(void *p)
{
    if (!p)
        return;
    struct block *b = (struct block *)p - 1;
    if (b->link) {
        *b->link = b->next;
        if (b->next)
            b->next->link = b->link;
    }
    pp_free(b);
}

static void set_allocators(void)
{
    json_set_alloc_funcs(allocate_json, free_json);
}

int pp_json_load(const char *text, size_t bytes, size_t flags, json_error_t *e, json_t **out)
{
    /* jansson keeps its two functions in variables, which must be set before the first use. */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_allocators);
    pp_assert(!parser.running);
    parser.blocks = NULL;
    parser.running = true;
    if (setjmp(parser.out) != 0) {
        parser.running = false;
        while (parser.blocks)
            free_json(parser.blocks + 1);
        return PP_ERESOURCE;
    }
    size_t bom = bytes >= 3 ? pp_text_bom(text) : 0;
    *out = json_loadb(text + bom, bytes - bom, flags, e);
    parser.running = false;
    for (struct block *b = parser.blocks; b; b = b->next)
        b->link = NULL;
    return 0;
}

const char *pp_json_shown(const char *text, char out[PP_JSON_SHOWN])
{
    size_t n = strlen(text);
    size_t take = n < PP_JSON_SHOWN ? n : PP_JSON_SHOWN - 4;
    for (size_t i = 0; i < take; i++) {
        out[i] = '?';
        if (text[i] >= 0x20 && text[i] < 0x7f)
            out[i] = text[i];
    }
    memcpy(out + take, take < n ? "..." : "", take < n ? 4 : 1);
    return out;
}

/* Checks the nesting and the number of items of a JSON text against the limits, by counting
 * brackets and commas outside strings; does not parse the text. */
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
    json_error_t e;
    json_t *root = NULL;
    if (pp_json_load(text, bytes, JSON_REJECT_DUPLICATES, &e, &root) < 0)
        return pp_fail(PP_ERESOURCE, "%s: out of memory", label);
    char shown[PP_JSON_SHOWN];
    if (!root) {
        return pp_fail(PP_EFORMAT, "%s: its JSON is damaged at byte %d: %s", label, e.position,
                       pp_json_shown(e.text, shown));
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return pp_fail(PP_EFORMAT, "%s: its JSON is not an object", label);
    }
    *out = root;
    return 0;
}
