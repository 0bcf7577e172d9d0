/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the values that are lists: model.sizes "784 1024*16 10", run.devices "0 2-3" and numbers
 * such as train.lr_milestones "100 150" or data.mean "0.5 0.4 0.3" (separated by blanks and
 * commas), pipeline.assignment "0-2 | 3-fc" (one range of layers for each stage) and
 * pipeline.split_at. src/nn checks whether the model has these layers, src/dev whether there are
 * such devices.
 */
#include "conf.h"

#include <ctype.h>
#include <string.h>

#include "ppcli/base/base.h"

#define BLANKS " \t"

/* An entry of a list, and a copy as a string: empty if it is longer than any legal one. */
struct entry {
    const char *p;
    size_t n;
    char s[64];
};

/* Takes one entry into the list that is being made. 0, or -1 and why. */
typedef int take_entry(const struct conf_reading *r, const struct entry *e, void *list);

/* Parses a comma-separated list and calls `take` for each entry. `none` is the word for an empty
 * list. */
static int parse_list(const struct conf_reading *r, const char *text, const char *none,
                      take_entry *take, void *list)
{
    for (const char *p = strcmp(text, none) == 0 ? "" : text; *p;) {
        struct entry e = {.p = p, .n = strcspn(p, BLANKS ",")};
        memcpy(e.s, p, e.n < sizeof(e.s) ? e.n : 0);
        if (take(r, &e, list) < 0)
            return -1;
        p += e.n + strspn(p + e.n, BLANKS);
        if (*p == ',') {
            p++;
            p += strspn(p, BLANKS);
            if (!*p)
                return conf_why(r->why, "nothing after the last comma");
        }
    }
    return 0;
}

/* Parses a whole number below `limit` at *p and moves *p past it. Returns whether there is one. */
static bool take_number(const char **p, int limit, int *out)
{
    int n = 0;
    if (!isdigit((unsigned char)**p))
        return false;
    for (; isdigit((unsigned char)**p) && n < limit; (*p)++)
        n = 10 * n + (**p - '0');
    *out = n;
    return n < limit;
}

/* Parses a range "3-5" or a single number "3" at *p and moves *p past it. Returns whether it is
 * valid. */
static bool take_range(const char **p, int limit, int *first, int *last)
{
    if (!take_number(p, limit, first))
        return false;
    *last = *first;
    if (**p == '-') {
        (*p)++;
        if (!take_number(p, limit, last))
            return false;
    }
    return *first <= *last;
}

/* ---- model.sizes */

struct sizes {
    int at[PP_MODEL_SIZES_MAX], n;
};

/* Parses an entry "1024" or "1024*16" (16 times) of a list of sizes, and appends it to the list. */
static int take_sizes(const struct conf_reading *r, const struct entry *e, void *list)
{
    struct sizes *sizes = list;
    const struct conf_option *o = r->o;
    bool negative = false, minus = false, good = true;
    uint64_t width = 0, count = 1;
    char text[sizeof(e->s)];
    if (e->n == 0) {
        return conf_why(r->why, "a comma without a number before it: '%s'",
                        conf_quote(e->p, strlen(e->p)).s);
    }
    memcpy(text, e->s, sizeof(text));
    char *star = strchr(text, '*');
    if (star) {
        *star = '\0';
        good = conf_number_parse(star + 1, &minus, &count) == CONF_NUMBER_OK && !minus && count > 0;
    }
    if (!good || conf_number_parse(text, &negative, &width) != CONF_NUMBER_OK || negative ||
        width < (uint64_t)o->min || width > (uint64_t)o->max) {
        return conf_why(r->why,
                        "'%s' is not a size; write whole numbers of %.0f to %.0f, a repeat as "
                        "1024*16 without blanks",
                        conf_quote(e->p, e->n).s, o->min, o->max);
    }
    if (count > (uint64_t)(PP_MODEL_SIZES_MAX - sizes->n))
        return conf_why(r->why, "more than %d sizes", PP_MODEL_SIZES_MAX);
    for (uint64_t i = 0; i < count; i++)
        sizes->at[sizes->n++] = (int)width;
    return 0;
}

int conf_sizes_parse(const struct conf_reading *r, const char *text, struct pp_config *cfg)
{
    struct sizes sizes = {.n = 0};
    if (parse_list(r, text, "", take_sizes, &sizes) < 0)
        return -1;
    if (sizes.n < 2) {
        return conf_why(r->why, "%d number: needs at least two, inputs and classes, such as 784 10",
                        sizes.n);
    }
    memcpy(cfg->model.sizes, sizes.at, sizeof(sizes.at));
    cfg->model.n_sizes = sizes.n;
    return 0;
}

void conf_sizes_print(const struct conf_option *o, const struct pp_config *cfg, struct conf_text *t)
{
    const int *sizes = cfg->model.sizes;
    for (int i = 0, run; i < cfg->model.n_sizes; i += run) {
        for (run = 1; i + run < cfg->model.n_sizes && sizes[i + run] == sizes[i]; run++) {
        }
        conf_put(t, "%s%d", i ? " " : "", sizes[i]);
        if (run > 1)
            conf_put(t, "*%d", run);
    }
}

/* ---- pipeline.assignment */

#define FORMS "auto, equal, flops, params, time, or one range for each stage such as 0-2 | 3-5"

/* indexed by enum pp_assignment, without explicit ranges */
static const struct {
    const char *word;
    enum pp_assignment kind;
} assignment_words[] = {{"auto", PP_ASSIGN_AUTO},
                        {"equal", PP_ASSIGN_EQUAL},
                        {"flops", PP_ASSIGN_FLOPS},
                        {"params", PP_ASSIGN_PARAMS},
                        {"time", PP_ASSIGN_TIME}};
#define ASSIGNMENT_WORDS ((int)(sizeof(assignment_words) / sizeof(assignment_words[0])))

static void set_cut(struct pp_config *cfg, enum pp_assignment kind, const char *ranges)
{
    cfg->pipeline.assignment = kind;
    snprintf(cfg->pipeline.ranges, sizeof(cfg->pipeline.ranges), "%s", ranges);
}

/* Returns the length of the layer's name or number at p; 0 if there is none. */
static int measure_layer(const char *p)
{
    int n = 0;
    while (isalnum((unsigned char)p[n]) || p[n] == '_' || p[n] == '.')
        n++;
    return n;
}

/* Copies one range of layers at *p to `out`, and moves *p past it. Returns whether it is valid. */
static bool take_layers(const char **p, struct conf_text *out)
{
    const char *first = *p += strspn(*p, BLANKS);
    int n = measure_layer(first);
    const char *dash = first + n + strspn(first + n, BLANKS), *last = dash + 1;
    conf_put(out, "%s%.*s", out->used ? " | " : "", n, first);
    *p = dash;
    if (n == 0 || *dash != '-')
        return n > 0;
    last += strspn(last, BLANKS);
    int m = measure_layer(last);
    if (m != n || strncmp(first, last, (size_t)n) != 0)
        conf_put(out, "-%.*s", m, last);
    *p = last + m + strspn(last + m, BLANKS);
    return m > 0;
}

int conf_assignment_parse(const struct conf_reading *r, const char *text, struct pp_config *cfg)
{
    PP_OWN_MEMORY char *ranges = pp_alloc(PP_CUT_MAX, 1);
    struct conf_text out = {.out = ranges, .bytes = PP_CUT_MAX};
    if (!ranges)
        return conf_why(r->why, "out of memory");
    const char *words[ASSIGNMENT_WORDS + 1] = {NULL};
    for (int i = 0; i < ASSIGNMENT_WORDS; i++) {
        words[i] = assignment_words[i].word;
        if (strcmp(text, words[i]) == 0) {
            set_cut(cfg, assignment_words[i].kind, "");
            return 0;
        }
    }
    /* a single layer is a cut of a model with one layer */
    if (pp_nearest(text, words) || (isalpha((unsigned char)*text) && !strpbrk(text, "-|. "))) {
        return conf_why(r->why, "unknown '%s'%s; write " FORMS, conf_quote(text, strlen(text)).s,
                        pp_did_you_mean(text, words).s);
    }
    int n = 0;
    for (const char *p = text, *start = p;; start = ++p) {
        if (n++ == PP_STAGES_MAX)
            return conf_why(r->why, "more than %d ranges", PP_STAGES_MAX);
        if (!take_layers(&p, &out) || (*p != '|' && *p != '\0')) {
            start += strspn(start, BLANKS);
            return conf_why(r->why, "'%s' is not a range of layers; write " FORMS,
                            conf_quote(start, strcspn(start, "|")).s);
        }
        if (*p == '\0')
            break;
    }
    if (conf_put_end(&out) < 0)
        return conf_why(r->why, "more than %d bytes", PP_CUT_MAX - 1);
    set_cut(cfg, PP_ASSIGN_EXPLICIT, ranges);
    return 0;
}

void conf_assignment_print(const struct conf_option *o, const struct pp_config *cfg,
                           struct conf_text *t)
{
    const char *word = assignment_words[0].word; /* in messages about split_at */
    for (int i = 0; i < ASSIGNMENT_WORDS; i++)
        if (assignment_words[i].kind == cfg->pipeline.assignment)
            word = assignment_words[i].word;
    conf_put(t, "%s", cfg->pipeline.ranges[0] ? cfg->pipeline.ranges : word);
}

static int take_layer(const struct conf_reading *r, const struct entry *e, void *list)
{
    struct conf_text *layers = list;
    size_t n = (size_t)measure_layer(e->p);
    if (r->o->word) { /* ranges are allowed */
        if (n > 0 && e->p[n] == '-' && measure_layer(e->p + n + 1) > 0)
            n += 1 + (size_t)measure_layer(e->p + n + 1);
        if (n == 0 || n != e->n) {
            return conf_why(r->why,
                            "'%s' is not a layer; write off, all, auto, or layers and ranges of "
                            "them, such as h.0-h.2 h.5",
                            conf_quote(e->p, e->n).s);
        }
    } else if (n == 0 || n != e->n) {
        return conf_why(r->why,
                        "'%s' is not a layer; write none, or the first layer of every stage but "
                        "the first, such as layer2.0 layer3.0",
                        conf_quote(e->p, e->n).s);
    }
    conf_put(layers, "%s%.*s", layers->used ? " " : "", (int)e->n, e->p);
    return 0;
}

int conf_layers_parse(const struct conf_reading *r, const char *text, struct pp_config *cfg)
{
    PP_OWN_MEMORY char *layers = pp_alloc(PP_CUT_MAX, 1);
    struct conf_text out = {.out = layers, .bytes = PP_CUT_MAX};
    if (!layers)
        return conf_why(r->why, "out of memory");
    if (parse_list(r, text, r->o->def, take_layer, &out) < 0)
        return -1;
    if (conf_put_end(&out) < 0)
        return conf_why(r->why, "more than %d bytes", PP_CUT_MAX - 1);
    memcpy((char *)cfg + r->o->offset, layers, PP_CUT_MAX);
    return 0;
}

/* ---- run.devices: "auto", or a list in the order in which ranks use them */

struct devices {
    int at[PP_DEVICES_MAX], n;
    bool seen[PP_DEVICES_MAX];
};

static int take_devices(const struct conf_reading *r, const struct entry *e, void *list)
{
    struct devices *devices = list;
    const char *p = e->p;
    int first, last;
    if (!take_range(&p, PP_DEVICES_MAX, &first, &last) || p != e->p + e->n) {
        return conf_why(r->why,
                        "'%s' is not a device; write auto, or numbers and ranges of 0 to %d such "
                        "as 0 2-3",
                        conf_quote(e->p, e->n).s, PP_DEVICES_MAX - 1);
    }
    for (int d = first; d <= last; d++) {
        if (devices->seen[d]) {
            return conf_why(r->why,
                            "device %d is given twice; write each once: with fewer devices than "
                            "ranks the ranks share them",
                            d);
        }
        devices->seen[d] = true;
        devices->at[devices->n++] = d;
    }
    return 0;
}

int conf_devices_parse(const struct conf_reading *r, const char *text, struct pp_config *cfg)
{
    struct devices devices = {.n = 0};
    if (parse_list(r, text, "auto", take_devices, &devices) < 0)
        return -1;
    memcpy(cfg->run.devices, devices.at, sizeof(devices.at));
    cfg->run.n_devices = devices.n;
    return 0;
}

void conf_devices_print(const struct conf_option *o, const struct pp_config *cfg,
                        struct conf_text *t)
{
    const int *list = cfg->run.devices;
    conf_put(t, "%s", cfg->run.n_devices == 0 ? "auto" : "");
    for (int i = 0, run; i < cfg->run.n_devices; i += run) {
        for (run = 1; i + run < cfg->run.n_devices && list[i + run] == list[i] + run; run++) {
        }
        run = run == 2 ? 1 : run; /* "0 1", but "0-2" */
        conf_put(t, "%s%d", i > 0 ? " " : "", list[i]);
        if (run > 1)
            conf_put(t, "-%d", list[i] + run - 1);
    }
}

/* ---- "none", or ascending numbers, or floats, or some of the words */

static int take_whole(const struct conf_reading *r, const struct entry *e, void *value)
{
    struct pp_numbers *list = value;
    const struct conf_option *o = r->o;
    bool minus = false;
    uint64_t n = 0;
    if (conf_number_parse(e->s, &minus, &n) != CONF_NUMBER_OK || minus || n < (uint64_t)o->min ||
        n > (uint64_t)o->max) {
        return conf_why(r->why,
                        "'%s' is not a whole number; write none, or whole numbers of %.0f to %.0f",
                        conf_quote(e->p, e->n).s, o->min, o->max);
    }
    if (!o->threes && list->n > 0 && (int64_t)n <= list->at[list->n - 1]) {
        return conf_why(r->why, "%s after %lld; write numbers in ascending order", e->s,
                        (long long)list->at[list->n - 1]);
    }
    if (list->n == PP_NUMBERS_MAX)
        return conf_why(r->why, "more than %d numbers", PP_NUMBERS_MAX);
    list->at[list->n++] = (int64_t)n;
    return 0;
}

static int take_float(const struct conf_reading *r, const struct entry *e, void *value)
{
    struct pp_floats *list = value;
    if (list->n == PP_FLOATS_MAX)
        return conf_why(r->why, "more than %d numbers", PP_FLOATS_MAX);
    return conf_float_parse(r->o, e->s, &list->at[list->n++], r->why);
}

static int take_choice(const struct conf_reading *r, const struct entry *e, void *value)
{
    struct pp_augments *list = value;
    const struct conf_choice *c = r->o->choices;
    char range[256];
    while (c->name && (strlen(c->name) != e->n || strncmp(c->name, e->p, e->n) != 0))
        c++;
    if (!c->name) {
        return conf_why(r->why, "unknown word '%s'; write %s", conf_quote(e->p, e->n).s,
                        conf_range_text(r->o, NULL, range, sizeof(range)));
    }
    for (int i = 0; i < list->n; i++)
        if (list->at[i] == c->value)
            return conf_why(r->why, "%s is given twice", c->name);
    list->at[list->n++] = c->value;
    return 0;
}

/* The lists of struct pp_config. */
union list {
    int n; /* the first member of each */
    struct pp_numbers numbers;
    struct pp_floats floats;
    struct pp_augments augments;
};

static const struct {
    take_entry *take;
    size_t bytes;
} kinds[] = {[CONF_NUMBERS] = {take_whole, sizeof(struct pp_numbers)},
             [CONF_FLOATS] = {take_float, sizeof(struct pp_floats)},
             [CONF_CHOICES] = {take_choice, sizeof(struct pp_augments)}};

int conf_list_parse(const struct conf_reading *r, const char *text, struct pp_config *cfg)
{
    union list list;
    memset(&list, 0, sizeof(list));
    if (r->o->type == CONF_FLOATS && r->o->word && strcmp(text, r->o->word) == 0)
        list.n = PP_FLOATS_WORD;
    else if (parse_list(r, text, "none", kinds[r->o->type].take, &list) < 0)
        return -1;
    memcpy((char *)cfg + r->o->offset, &list, kinds[r->o->type].bytes);
    return 0;
}

void conf_list_print(const struct conf_option *o, const struct pp_config *cfg, struct conf_text *t)
{
    union list list;
    memcpy(&list, (const char *)cfg + o->offset, kinds[o->type].bytes);
    if (list.n <= 0)
        conf_put(t, "%s", list.n == 0 ? "none" : o->word);
    for (int i = 0; i < list.n; i++) {
        conf_put(t, "%s", i == 0 ? "" : o->threes && i % 3 > 0 ? "," : " ");
        if (o->type == CONF_NUMBERS)
            conf_put(t, "%lld", (long long)list.numbers.at[i]);
        else if (o->type == CONF_FLOATS)
            conf_float_print(list.floats.at[i], t);
        else
            conf_put(t, "%s", conf_choice_name(o->choices, list.augments.at[i]));
    }
}
