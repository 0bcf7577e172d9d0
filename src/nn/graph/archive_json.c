/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON in pieces. A parsed text needs up to fifty times its bytes, so the large lists of a program
 * are walked over as text, and their members are parsed one at a time.
 */
#include "archive_impl.h"

#include "ppcli/base/files.h"

#define DEPTH_MAX 64
#define ITEMS_MAX ((size_t)1 << 20) /* values of a member that is parsed */

static const char *skip_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

/* Returns what follows the string at p, which begins with a quotation mark; NULL: cut short. */
static const char *skip_string(const char *p, const char *end)
{
    for (p++; p < end && *p != '"'; p++)
        p += *p == '\\';
    return p < end ? p + 1 : NULL;
}

/* Returns what follows the value at p; NULL: there is none, or it is nested too deep. */
static const char *skip_value(const char *p, const char *end)
{
    const char *begin = p;
    int depth = 0;
    while (p && p < end && depth <= DEPTH_MAX) {
        char c = *p;
        if (depth == 0 && p > begin && (c == ',' || c == ']' || c == '}'))
            break;
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (depth < 0)
            return NULL;
        p = c == '"' ? skip_string(p, end) : p + 1;
    }
    return p && p > begin && depth == 0 ? p : NULL;
}

static int refuse_walk(const struct pt_walk *w, const char *at)
{
    return pp_fail(PP_EFORMAT, "%s: its JSON is damaged at byte %zu", w->label,
                   (size_t)((at ? at : w->at) - w->begin));
}

int pt_walk_begin(const char *label, struct pt_text text, char open, struct pt_walk *out)
{
    const char *end = text.at + text.bytes, *at = skip_blanks(text.at, end);
    *out = (struct pt_walk){.label = label, .begin = text.at, .at = at, .end = end};
    if (at == end || *at != open)
        return refuse_walk(out, at);
    out->at++;
    out->close = open == '{' ? '}' : ']';
    return 0;
}

int pt_walk_next(struct pt_walk *w, struct pt_text *key, struct pt_text *value)
{
    const char *p = skip_blanks(w->at, w->end);
    if (p < w->end && *p == w->close)
        return 0;
    if (w->any && (p == w->end || *p++ != ','))
        return refuse_walk(w, NULL);
    p = skip_blanks(p, w->end);
    *key = (struct pt_text){p, 0};
    if (w->close == '}') {
        const char *name = p;
        p = p < w->end && *p == '"' ? skip_string(p, w->end) : NULL;
        if (!p)
            return refuse_walk(w, name);
        *key = (struct pt_text){name + 1, (size_t)(p - name) - 2};
        p = skip_blanks(p, w->end);
        if (p == w->end || *p++ != ':')
            return refuse_walk(w, name);
        p = skip_blanks(p, w->end);
    }
    const char *end = skip_value(p, w->end);
    if (!end)
        return refuse_walk(w, p);
    *value = (struct pt_text){p, (size_t)(end - p)};
    w->at = end;
    w->any = true;
    return 1;
}

int pt_members_find(const char *label, struct pt_text object, struct pt_member *members, int n)
{
    struct pt_walk w;
    struct pt_text key, value;
    int rc = pt_walk_begin(label, object, '{', &w);
    while (rc == 0 && (rc = pt_walk_next(&w, &key, &value)) > 0) {
        rc = 0;
        for (int i = 0; i < n; i++) {
            if (strlen(members[i].name) != key.bytes ||
                memcmp(members[i].name, key.at, key.bytes) != 0)
                continue;
            if (members[i].text.at)
                return pp_fail(PP_EFORMAT, "%s: it has %s twice", label, members[i].name);
            members[i].text = value;
        }
    }
    PP_TRY(rc);
    for (int i = 0; i < n; i++)
        if (!members[i].text.at && !members[i].optional)
            return pp_fail(PP_EFORMAT, "%s: it has no %s", label, members[i].name);
    return 0;
}

int pt_text_parse(const char *label, struct pt_text object, json_t **out)
{
    static const struct pp_json_limits limits = {DEPTH_MAX, ITEMS_MAX, (int)ITEMS_MAX};
    return pp_json_read(label, object.at, object.bytes, &limits, out);
}

/* ---- names */

struct pt_slot *pt_names_slot(const struct pt_names *names, const char *text)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *p = text; *p; p++)
        hash = (hash ^ (uint8_t)*p) * 1099511628211u;
    size_t at = (hash ^ hash >> 32) & (names->capacity - 1);
    while (names->slots[at].text && strcmp(names->slots[at].text, text) != 0)
        at = (at + 1) & (names->capacity - 1);
    return &names->slots[at];
}

int pt_names_find(const struct pt_names *names, const char *text)
{
    const struct pt_slot *s = names->n > 0 ? pt_names_slot(names, text) : NULL;
    return s && s->text ? s->number : -1;
}

int pt_names_add(struct pt_names *names, const char *text, int number)
{
    if (2 * names->n >= names->capacity) { /* at least half of the slots are free */
        struct pt_names larger = {.n = names->n,
                                  .capacity = names->capacity > 0 ? 4 * names->capacity : 64};
        PP_ALLOC(larger.slots, larger.capacity);
        for (size_t i = 0; i < names->capacity; i++)
            if (names->slots[i].text)
                *pt_names_slot(&larger, names->slots[i].text) = names->slots[i];
        pt_names_fini(names);
        *names = larger;
    }
    *pt_names_slot(names, text) = (struct pt_slot){text, number};
    names->n++;
    return 0;
}

void pt_names_fini(struct pt_names *names)
{
    pp_free(names->slots);
    *names = (struct pt_names){0};
}

/* ---- texts and lists of a program */

#define BLOCK_BYTES ((size_t)1 << 16)

void *pt_take(struct pt_reading *r, size_t count, size_t size)
{
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2) {
        pp_fail(PP_ERESOURCE, "%s: out of memory", r->file);
        return NULL;
    }
    bytes = (bytes + 15) & ~(size_t)15;
    struct pt_block *b = r->p->blocks;
    if (!b || bytes > b->bytes - b->used) {
        size_t whole = PP_MAX(bytes, BLOCK_BYTES);
        b = pp_alloc(1, sizeof(*b) + whole);
        if (!b)
            return NULL;
        b->bytes = whole;
        b->next = r->p->blocks;
        r->p->blocks = b;
    }
    void *at = b->data + b->used;
    b->used += bytes;
    return at;
}

const char *pt_keep(struct pt_reading *r, const char *text)
{
    PP_OWN_MEMORY char *plain = pp_strdup(text);
    if (!plain)
        return NULL;
    pp_text_make_plain(plain);
    const struct pt_slot *s = r->texts.n > 0 ? pt_names_slot(&r->texts, plain) : NULL;
    if (s && s->text)
        return s->text;
    size_t bytes = strlen(plain) + 1;
    char *kept = pt_take(r, bytes, 1);
    if (!kept)
        return NULL;
    memcpy(kept, plain, bytes);
    return pt_names_add(&r->texts, kept, 0) < 0 ? NULL : kept;
}

int pt_keep_name(struct pt_reading *r, const char *text, const char **out)
{
    size_t bytes = text ? strlen(text) : 0;
    if (bytes == 0 || bytes > PT_NAME_MAX) {
        return pp_fail(PP_EFORMAT, "%s: a name is expected, of 1 to %d characters", r->where,
                       PT_NAME_MAX);
    }
    *out = pt_keep(r, text);
    if (*out && strcmp(*out, text) != 0)
        return pp_fail(PP_EFORMAT, "%s: a name has control characters: %s", r->where, *out);
    return *out ? 0 : PP_ERESOURCE;
}
