/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values that are lists: model.sizes "784 1024*16 10", run.devices "0 2-3" and numbers such as
 * train.lr_milestones "100 150" or data.mean "0.5 0.4 0.3" (blanks and commas separate),
 * pipeline.assignment "0-2 | 3-fc" (one range of layers for each stage) and pipeline.split_at.
 * Whether the model has such layers is a question for src/nn; which devices there are, for src/dev.
 */
#include "conf.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define BLANKS " \t"

/* Past the blanks, or the one comma, between two entries. 0, or -1 and why. */
static int next_entry(const char **p, char *why)
{
    *p += strspn(*p, BLANKS);
    if (**p != ',')
        return 0;
    (*p)++;
    *p += strspn(*p, BLANKS);
    return **p ? 0 : conf_why(why, "nothing after the last comma");
}

/* A whole number below `limit` at *p; moves *p past it. */
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

/* "3-5" or "3". */
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

/* "1024" or "1024*16" -> width and how often. */
static int parse_entry(const struct conf_option *o, const char *entry, size_t n, uint64_t *width,
                       uint64_t *count, char *why)
{
    char text[64] = "";
    bool negative = false, minus = false;
    if (n < sizeof(text))
        memcpy(text, entry, n);
    char *star = strchr(text, '*');
    *count = 1;
    bool good = true;
    if (star) {
        *star = '\0';
        good = conf_number_parse(star + 1, &minus, count) == CONF_NUMBER_OK && !minus && *count > 0;
    }
    if (good && conf_number_parse(text, &negative, width) == CONF_NUMBER_OK && !negative &&
        *width >= (uint64_t)o->min && *width <= (uint64_t)o->max)
        return 0;
    return conf_why(why,
                    "'%s' is not a size; write whole numbers of %.0f to %.0f, a repeat as 1024*16 "
                    "without blanks",
                    conf_quote(entry, n).s, o->min, o->max);
}

int conf_sizes_parse(const struct conf_option *o, const char *text, struct pp_config *cfg,
                     char why[CONF_WHY_MAX])
{
    int sizes[PP_MODEL_SIZES_MAX];
    int n = 0;
    for (const char *p = text; *p;) {
        uint64_t width = 0, count = 0;
        size_t len = strcspn(p, BLANKS ",");
        if (len == 0) {
            return conf_why(why, "a comma without a number before it: '%s'",
                            conf_quote(p, strlen(p)).s);
        }
        if (parse_entry(o, p, len, &width, &count, why) < 0)
            return -1;
        if (count > (uint64_t)(PP_MODEL_SIZES_MAX - n))
            return conf_why(why, "more than %d sizes", PP_MODEL_SIZES_MAX);
        for (uint64_t i = 0; i < count; i++)
            sizes[n++] = (int)width;
        p += len;
        if (next_entry(&p, why) < 0)
            return -1;
    }
    if (n < 2) {
        return conf_why(
            why, "%d size is no model; write at least input width and classes, such as 784 10", n);
    }
    memset(cfg->model.sizes, 0, sizeof(cfg->model.sizes));
    memcpy(cfg->model.sizes, sizes, (size_t)n * sizeof(sizes[0]));
    cfg->model.n_sizes = n;
    return 0;
}

int conf_sizes_print(const struct pp_config *cfg, char *out, size_t bytes)
{
    struct conf_text t = {.out = out, .bytes = bytes};
    const int *sizes = cfg->model.sizes;
    for (int i = 0, run; i < cfg->model.n_sizes; i += run) {
        for (run = 1; i + run < cfg->model.n_sizes && sizes[i + run] == sizes[i]; run++) {
        }
        conf_put(&t, "%s%d", i ? " " : "", sizes[i]);
        if (run > 1)
            conf_put(&t, "*%d", run);
    }
    return conf_put_end(&t);
}

/* ---- pipeline.assignment */

#define FORMS "auto, equal, flops, params, time, or one range for each stage such as 0-2 | 3-5"

/* by enum pp_assignment, without explicit ranges */
static const struct {
    const char *word;
    enum pp_assignment kind;
} assignment_words[] = {{"auto", PP_ASSIGN_AUTO},
                        {"equal", PP_ASSIGN_EQUAL},
                        {"flops", PP_ASSIGN_FLOPS},
                        {"params", PP_ASSIGN_PARAMS},
                        {"time", PP_ASSIGN_TIME}};
enum {
    ASSIGNMENT_WORDS = sizeof(assignment_words) / sizeof(assignment_words[0])
};

static void set_cut(struct pp_config *cfg, enum pp_assignment kind, const char *ranges)
{
    cfg->pipeline.assignment = kind;
    snprintf(cfg->pipeline.ranges, sizeof(cfg->pipeline.ranges), "%s", ranges);
}

/* Bytes of the layer's name, or its number, at p; 0: there is none. */
static int layer_bytes(const char *p)
{
    int n = 0;
    while (isalnum((unsigned char)p[n]) || p[n] == '_' || p[n] == '.')
        n++;
    return n;
}

/* One range into the text; moves *p past it. */
static bool take_layers(const char **p, struct conf_text *out)
{
    const char *first = *p += strspn(*p, BLANKS);
    int n = layer_bytes(first);
    const char *dash = first + n + strspn(first + n, BLANKS), *last = dash + 1;
    conf_put(out, "%s%.*s", out->used ? " | " : "", n, first);
    *p = dash;
    if (n == 0 || *dash != '-')
        return n > 0;
    last += strspn(last, BLANKS);
    int m = layer_bytes(last);
    if (m != n || strncmp(first, last, (size_t)n) != 0)
        conf_put(out, "-%.*s", m, last);
    *p = last + m + strspn(last + m, BLANKS);
    return m > 0;
}

int conf_assignment_parse(const char *text, struct pp_config *cfg, char why[CONF_WHY_MAX])
{
    static _Thread_local char ranges[PP_CUT_MAX];
    struct conf_text out = {.out = ranges, .bytes = sizeof(ranges)};
    const char *words[ASSIGNMENT_WORDS + 1] = {NULL};
    for (int i = 0; i < ASSIGNMENT_WORDS; i++) {
        words[i] = assignment_words[i].word;
        if (strcmp(text, words[i]) == 0) {
            set_cut(cfg, assignment_words[i].kind, "");
            return 0;
        }
    }
    /* a layer alone is a cut of a model that has no other */
    if (pp_nearest(text, words) || (isalpha((unsigned char)*text) && !strpbrk(text, "-|. "))) {
        return conf_why(why, "unknown '%s'%s; write " FORMS, conf_quote(text, strlen(text)).s,
                        pp_did_you_mean(text, words).s);
    }
    int n = 0;
    for (const char *p = text, *start = p;; start = ++p) {
        if (n++ == PP_STAGES_MAX)
            return conf_why(why, "more than %d ranges", PP_STAGES_MAX);
        if (!take_layers(&p, &out) || (*p != '|' && *p != '\0')) {
            start += strspn(start, BLANKS);
            return conf_why(why, "'%s' is not a range of layers; write " FORMS,
                            conf_quote(start, strcspn(start, "|")).s);
        }
        if (*p == '\0')
            break;
    }
    if (conf_put_end(&out) < 0)
        return conf_why(why, "more than %d bytes", PP_CUT_MAX - 1);
    set_cut(cfg, PP_ASSIGN_EXPLICIT, ranges);
    return 0;
}

int conf_assignment_print(const struct pp_config *cfg, char *out, size_t bytes)
{
    struct conf_text t = {.out = out, .bytes = bytes};
    const char *word = assignment_words[0].word; /* of what split_at says */
    for (int i = 0; i < ASSIGNMENT_WORDS; i++)
        if (assignment_words[i].kind == cfg->pipeline.assignment)
            word = assignment_words[i].word;
    conf_put(&t, "%s", cfg->pipeline.ranges[0] ? cfg->pipeline.ranges : word);
    return conf_put_end(&t);
}

int conf_split_parse(const char *text, struct pp_config *cfg, char why[CONF_WHY_MAX])
{
    static _Thread_local char layers[PP_CUT_MAX];
    struct conf_text out = {.out = layers, .bytes = sizeof(layers)};
    layers[0] = '\0';
    for (const char *p = strcmp(text, "none") == 0 ? "" : text; *p;) {
        int n = layer_bytes(p);
        if (n == 0 || !strchr(BLANKS ",", p[n])) {
            return conf_why(why,
                            "'%s' is not a layer; write none, or the first layer of every stage "
                            "but the first, such as layer2.0 layer3.0",
                            conf_quote(p, strcspn(p, BLANKS ",")).s);
        }
        conf_put(&out, "%s%.*s", out.used ? " " : "", n, p);
        p += n;
        if (next_entry(&p, why) < 0)
            return -1;
    }
    if (conf_put_end(&out) < 0)
        return conf_why(why, "more than %d bytes", PP_CUT_MAX - 1);
    memcpy(cfg->pipeline.split_at, layers, sizeof(layers));
    return 0;
}

/* ---- run.devices: "auto", or in the order in which ranks take them */

int conf_devices_parse(const char *text, struct pp_config *cfg, char why[CONF_WHY_MAX])
{
    int list[PP_DEVICES_MAX], n = 0;
    bool seen[PP_DEVICES_MAX] = {false};
    for (const char *p = strcmp(text, "auto") == 0 ? "" : text; *p;) {
        const char *entry = p;
        int first, last;
        if (!take_range(&p, PP_DEVICES_MAX, &first, &last) || !strchr(BLANKS ",", *p)) {
            return conf_why(why,
                            "'%s' is not a device; write auto, or numbers and ranges of 0 to %d "
                            "such as 0 2-3",
                            conf_quote(entry, strcspn(entry, BLANKS ",")).s, PP_DEVICES_MAX - 1);
        }
        for (int d = first; d <= last; d++) {
            if (seen[d]) {
                return conf_why(why,
                                "device %d is there twice; write each once: with fewer devices "
                                "than ranks the ranks share them",
                                d);
            }
            seen[d] = true;
            list[n++] = d;
        }
        if (next_entry(&p, why) < 0)
            return -1;
    }
    memset(cfg->run.devices, 0, sizeof(cfg->run.devices));
    for (int i = 0; i < n; i++)
        cfg->run.devices[i] = list[i];
    cfg->run.n_devices = n;
    return 0;
}

int conf_devices_print(const struct pp_config *cfg, char *out, size_t bytes)
{
    const int *list = cfg->run.devices;
    struct conf_text t = {.out = out, .bytes = bytes};
    conf_put(&t, "%s", cfg->run.n_devices == 0 ? "auto" : "");
    for (int i = 0, run; i < cfg->run.n_devices; i += run) {
        for (run = 1; i + run < cfg->run.n_devices && list[i + run] == list[i] + run; run++) {
        }
        run = run == 2 ? 1 : run; /* "0 1", but "0-2" */
        conf_put(&t, "%s%d", i > 0 ? " " : "", list[i]);
        if (run > 1)
            conf_put(&t, "-%d", list[i] + run - 1);
    }
    return conf_put_end(&t);
}

/* ---- numbers: "none", or in ascending order */

int conf_numbers_parse(const struct conf_option *o, const char *text, struct pp_config *cfg,
                       char why[CONF_WHY_MAX])
{
    struct pp_numbers list = {.n = 0};
    for (const char *p = strcmp(text, "none") == 0 ? "" : text; *p;) {
        size_t len = strcspn(p, BLANKS ",");
        char entry[64] = "";
        bool minus = false;
        uint64_t n = 0;
        if (len < sizeof(entry))
            memcpy(entry, p, len);
        if (conf_number_parse(entry, &minus, &n) != CONF_NUMBER_OK || minus ||
            n < (uint64_t)o->min || n > (uint64_t)o->max) {
            return conf_why(why, "'%s' is not one of none, or whole numbers of %.0f to %.0f",
                            conf_quote(p, len).s, o->min, o->max);
        }
        if (list.n > 0 && (int64_t)n <= list.at[list.n - 1]) {
            return conf_why(why, "%s after %lld; write numbers in ascending order", entry,
                            (long long)list.at[list.n - 1]);
        }
        if (list.n == PP_NUMBERS_MAX)
            return conf_why(why, "more than %d numbers", PP_NUMBERS_MAX);
        list.at[list.n++] = (int64_t)n;
        p += len;
        if (next_entry(&p, why) < 0)
            return -1;
    }
    memcpy((char *)cfg + o->offset, &list, sizeof(list));
    return 0;
}

int conf_numbers_print(const struct conf_option *o, const struct pp_config *cfg, char *out,
                       size_t bytes)
{
    const struct pp_numbers *list =
        (const struct pp_numbers *)(const void *)((const char *)cfg + o->offset);
    struct conf_text t = {.out = out, .bytes = bytes};
    conf_put(&t, "%s", list->n == 0 ? "none" : "");
    for (int i = 0; i < list->n; i++)
        conf_put(&t, "%s%lld", i > 0 ? " " : "", (long long)list->at[i]);
    return conf_put_end(&t);
}

/* ---- floats: "none", or a list */

int conf_floats_parse(const struct conf_option *o, const char *text, struct pp_config *cfg,
                      char why[CONF_WHY_MAX])
{
    struct pp_floats list = {.n = 0};
    for (const char *p = strcmp(text, "none") == 0 ? "" : text; *p;) {
        size_t len = strcspn(p, BLANKS ",");
        char entry[64] = "";
        memcpy(entry, p, len < sizeof(entry) ? len : 0);
        if (list.n == PP_CHANNELS_MAX)
            return conf_why(why, "more than %d numbers", PP_CHANNELS_MAX);
        if (conf_float_parse(o, entry, &list.at[list.n++], why) < 0)
            return -1;
        p += len;
        if (next_entry(&p, why) < 0)
            return -1;
    }
    memcpy((char *)cfg + o->offset, &list, sizeof(list));
    return 0;
}

int conf_floats_print(const struct conf_option *o, const struct pp_config *cfg, char *out,
                      size_t bytes)
{
    const struct pp_floats *list =
        (const struct pp_floats *)(const void *)((const char *)cfg + o->offset);
    struct conf_text t = {.out = out, .bytes = bytes};
    char number[64];
    conf_put(&t, "%s", list->n == 0 ? "none" : "");
    for (int i = 0; i < list->n; i++) {
        conf_float_print(list->at[i], number, sizeof(number));
        conf_put(&t, "%s%s", i > 0 ? " " : "", number);
    }
    return conf_put_end(&t);
}

/* ---- choices: "none", or some of the words */

int conf_choices_parse(const struct conf_option *o, const char *text, struct pp_config *cfg,
                       char why[CONF_WHY_MAX])
{
    struct pp_augments list = {.n = 0};
    char range[256];
    for (const char *p = strcmp(text, "none") == 0 ? "" : text; *p;) {
        size_t len = strcspn(p, BLANKS ",");
        const struct conf_choice *c = o->choices;
        while (c->name && (strlen(c->name) != len || strncmp(c->name, p, len) != 0))
            c++;
        if (!c->name) {
            return conf_why(why, "'%s' is none of the words; write %s", conf_quote(p, len).s,
                            conf_range_text(o, NULL, range, sizeof(range)));
        }
        for (int i = 0; i < list.n; i++)
            if (list.at[i] == c->value)
                return conf_why(why, "%s is there twice", c->name);
        list.at[list.n++] = c->value;
        p += len;
        if (next_entry(&p, why) < 0)
            return -1;
    }
    memcpy((char *)cfg + o->offset, &list, sizeof(list));
    return 0;
}

int conf_choices_print(const struct conf_option *o, const struct pp_config *cfg, char *out,
                       size_t bytes)
{
    const struct pp_augments *list =
        (const struct pp_augments *)(const void *)((const char *)cfg + o->offset);
    struct conf_text t = {.out = out, .bytes = bytes};
    conf_put(&t, "%s", list->n == 0 ? "none" : "");
    for (int i = 0; i < list->n; i++)
        for (const struct conf_choice *c = o->choices; c->name; c++)
            if (c->value == list->at[i])
                conf_put(&t, "%s%s", i > 0 ? " " : "", c->name);
    return conf_put_end(&t);
}
