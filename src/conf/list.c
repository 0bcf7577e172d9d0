/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two values that are lists: model.sizes "784 1024*16 10" (blanks and commas separate) and
 * pipeline.assignment "0-2 | 3-5" (one range of layers for each stage). Whether ranges fit the
 * model is a question for check.c, which knows the number of layers.
 */
#include "conf.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static int bad_size(const struct conf_option *o, const char *entry, size_t n, char *why)
{
    snprintf(why, CONF_WHY_MAX,
             "'%s' is not a size; write whole numbers of %.0f to %.0f, a repeat as 1024*16 without "
             "blanks",
             conf_quote(entry, n).s, o->min, o->max);
    return -1;
}

/* "1024" or "1024*16" -> width and how often. */
static int parse_entry(const struct conf_option *o, const char *entry, size_t n, uint64_t *width,
                       uint64_t *count, char *why)
{
    char text[64];
    bool negative = false, minus = false;
    if (n >= sizeof(text)) {
        return bad_size(o, entry, n, why);
    }
    memcpy(text, entry, n);
    text[n] = '\0';
    char *star = strchr(text, '*');
    *count = 1;
    if (star) {
        *star = '\0';
        if (conf_number_parse(star + 1, &minus, count) != CONF_NUMBER_OK || minus || *count == 0) {
            return bad_size(o, entry, n, why);
        }
    }
    if (conf_number_parse(text, &negative, width) != CONF_NUMBER_OK || negative ||
        *width < (uint64_t)o->min || *width > (uint64_t)o->max) {
        return bad_size(o, entry, n, why);
    }
    return 0;
}

int conf_sizes_parse(const struct conf_option *o, const char *text, struct pp_config *cfg,
                     char why[CONF_WHY_MAX])
{
    int sizes[PP_MODEL_SIZES_MAX];
    int n = 0;
    const char *p = text;
    while (*p) {
        uint64_t width = 0, count = 0;
        size_t len = strcspn(p, " \t,");
        if (len == 0) {
            snprintf(why, CONF_WHY_MAX, "a comma without a number before it: '%s'",
                     conf_quote(p, strlen(p)).s);
            return -1;
        }
        if (parse_entry(o, p, len, &width, &count, why) < 0) {
            return -1;
        }
        if (count > (uint64_t)(PP_MODEL_SIZES_MAX - n)) {
            snprintf(why, CONF_WHY_MAX, "more than %d sizes", PP_MODEL_SIZES_MAX);
            return -1;
        }
        for (uint64_t i = 0; i < count; i++) {
            sizes[n++] = (int)width;
        }
        p += len;
        p += strspn(p, " \t");
        if (*p == ',') {
            p++;
            p += strspn(p, " \t");
            if (*p == '\0') {
                snprintf(why, CONF_WHY_MAX, "nothing after the last comma");
                return -1;
            }
        }
    }
    if (n < 2) {
        snprintf(why, CONF_WHY_MAX,
                 "%d size is no model; write at least input width and classes, such as 784 10", n);
        return -1;
    }
    memset(cfg->model.sizes, 0, sizeof(cfg->model.sizes));
    memcpy(cfg->model.sizes, sizes, (size_t)n * sizeof(sizes[0]));
    cfg->model.n_sizes = n;
    return 0;
}

/* Append; false when it does not fit. */
static bool append(char *out, size_t bytes, size_t *used, int n)
{
    if (n < 0 || (size_t)n >= bytes - *used) {
        return false;
    }
    *used += (size_t)n;
    return true;
}

int conf_sizes_print(const struct pp_config *cfg, char *out, size_t bytes)
{
    size_t used = 0;
    const int *sizes = cfg->model.sizes;
    for (int i = 0, run; i < cfg->model.n_sizes; i += run) {
        for (run = 1; i + run < cfg->model.n_sizes && sizes[i + run] == sizes[i]; run++) {
        }
        char repeat[16] = "";
        if (run > 1) {
            snprintf(repeat, sizeof(repeat), "*%d", run);
        }
        if (!append(out, bytes, &used,
                    snprintf(out + used, bytes - used, "%s%d%s", i ? " " : "", sizes[i], repeat))) {
            return -1;
        }
    }
    return 0;
}

/* A layer number at *p; moves *p behind it. */
static bool take_layer(const char **p, int *out)
{
    int n = 0;
    if (!isdigit((unsigned char)**p)) {
        return false;
    }
    for (; isdigit((unsigned char)**p); (*p)++) {
        n = 10 * n + (**p - '0');
        if (n >= PP_MODEL_SIZES_MAX) {
            return false;
        }
    }
    *out = n;
    return true;
}

static void skip_blanks(const char **p)
{
    *p += strspn(*p, " \t");
}

/* "3-5" or "3", up to the end of the text or a '|'. */
static bool take_range(const char **p, int *first, int *last)
{
    skip_blanks(p);
    if (!take_layer(p, first)) {
        return false;
    }
    *last = *first;
    skip_blanks(p);
    if (**p == '-') {
        (*p)++;
        skip_blanks(p);
        if (!take_layer(p, last)) {
            return false;
        }
        skip_blanks(p);
    }
    return (**p == '|' || **p == '\0') && *first <= *last;
}

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

static int parse_ranges(const char *text, struct pp_config *cfg, char *why)
{
    int first[PP_STAGES_MAX], last[PP_STAGES_MAX];
    int n = 0;
    const char *p = text;
    for (;;) {
        const char *start = p + strspn(p, " \t");
        if (n == PP_STAGES_MAX) {
            snprintf(why, CONF_WHY_MAX, "more than %d ranges", PP_STAGES_MAX);
            return -1;
        }
        if (!take_range(&p, &first[n], &last[n])) {
            snprintf(why, CONF_WHY_MAX,
                     "'%s' is not a range of layers; write auto, equal, flops, params, time, or "
                     "one range for each stage such as 0-2 | 3-5",
                     conf_quote(start, strcspn(start, "|")).s);
            return -1;
        }
        n++;
        if (*p == '\0') {
            break;
        }
        p++;
    }
    memset(cfg->pipeline.first_layer, 0, sizeof(cfg->pipeline.first_layer));
    memset(cfg->pipeline.last_layer, 0, sizeof(cfg->pipeline.last_layer));
    memcpy(cfg->pipeline.first_layer, first, (size_t)n * sizeof(first[0]));
    memcpy(cfg->pipeline.last_layer, last, (size_t)n * sizeof(last[0]));
    cfg->pipeline.n_ranges = n;
    cfg->pipeline.assignment = PP_ASSIGN_EXPLICIT;
    return 0;
}

int conf_assignment_parse(const char *text, struct pp_config *cfg, char why[CONF_WHY_MAX])
{
    const char *words[ASSIGNMENT_WORDS + 1] = {NULL};
    for (int i = 0; i < ASSIGNMENT_WORDS; i++) {
        words[i] = assignment_words[i].word;
        if (strcmp(text, words[i]) == 0) {
            memset(cfg->pipeline.first_layer, 0, sizeof(cfg->pipeline.first_layer));
            memset(cfg->pipeline.last_layer, 0, sizeof(cfg->pipeline.last_layer));
            cfg->pipeline.n_ranges = 0;
            cfg->pipeline.assignment = assignment_words[i].kind;
            return 0;
        }
    }
    const char *near = pp_nearest(text, words);
    if (near) {
        snprintf(why, CONF_WHY_MAX,
                 "unknown '%s'; did you mean '%s'? write auto, equal, flops, params, time, or one "
                 "range for each stage such as 0-2 | 3-5",
                 conf_quote(text, strlen(text)).s, near);
        return -1;
    }
    return parse_ranges(text, cfg, why);
}

int conf_assignment_print(const struct pp_config *cfg, char *out, size_t bytes)
{
    size_t used = 0;
    if (cfg->pipeline.assignment != PP_ASSIGN_EXPLICIT) {
        for (int i = 0; i < ASSIGNMENT_WORDS; i++) {
            if (assignment_words[i].kind == cfg->pipeline.assignment) {
                return append(out, bytes, &used,
                              snprintf(out, bytes, "%s", assignment_words[i].word))
                           ? 0
                           : -1;
            }
        }
        return -1;
    }
    for (int i = 0; i < cfg->pipeline.n_ranges; i++) {
        int first = cfg->pipeline.first_layer[i], last = cfg->pipeline.last_layer[i];
        char range[32], to[16] = "";
        if (last != first) {
            snprintf(to, sizeof(to), "-%d", last);
        }
        snprintf(range, sizeof(range), "%d%s", first, to);
        if (!append(out, bytes, &used,
                    snprintf(out + used, bytes - used, "%s%s", i ? " | " : "", range))) {
            return -1;
        }
    }
    return 0;
}
