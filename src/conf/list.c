/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values that are lists: model.sizes "784 1024*16 10", run.devices "0 2-3" and numbers such as
 * train.lr_milestones "100 150" (blanks and commas separate), and pipeline.assignment "0-2 | 3-5" (one range of layers for each stage).
 * Whether ranges fit the model is a question for check.c; which devices there are, for src/dev.
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

/* "3-5" or "3", with `blanks` between its parts. */
static bool take_range(const char **p, const char *blanks, int limit, int *first, int *last)
{
    *p += strspn(*p, blanks);
    if (!take_number(p, limit, first))
        return false;
    *last = *first;
    *p += strspn(*p, blanks);
    if (**p == '-') {
        (*p)++;
        *p += strspn(*p, blanks);
        if (!take_number(p, limit, last))
            return false;
        *p += strspn(*p, blanks);
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

static void set_ranges(struct pp_config *cfg, enum pp_assignment kind, const int *first,
                       const int *last, int n)
{
    memset(cfg->pipeline.first_layer, 0, sizeof(cfg->pipeline.first_layer));
    memset(cfg->pipeline.last_layer, 0, sizeof(cfg->pipeline.last_layer));
    for (int i = 0; i < n; i++) {
        cfg->pipeline.first_layer[i] = first[i];
        cfg->pipeline.last_layer[i] = last[i];
    }
    cfg->pipeline.n_ranges = n;
    cfg->pipeline.assignment = kind;
}

int conf_assignment_parse(const char *text, struct pp_config *cfg, char why[CONF_WHY_MAX])
{
    const char *words[ASSIGNMENT_WORDS + 1] = {NULL};
    for (int i = 0; i < ASSIGNMENT_WORDS; i++) {
        words[i] = assignment_words[i].word;
        if (strcmp(text, words[i]) == 0) {
            set_ranges(cfg, assignment_words[i].kind, NULL, NULL, 0);
            return 0;
        }
    }
    const char *near = pp_nearest(text, words);
    if (near) {
        return conf_why(why, "unknown '%s'; did you mean '%s'? write " FORMS,
                        conf_quote(text, strlen(text)).s, near);
    }
    int first[PP_STAGES_MAX], last[PP_STAGES_MAX];
    int n = 0;
    for (const char *p = text, *start = p;; start = ++p) {
        if (n == PP_STAGES_MAX)
            return conf_why(why, "more than %d ranges", PP_STAGES_MAX);
        if (!take_range(&p, BLANKS, PP_MODEL_SIZES_MAX, &first[n], &last[n]) ||
            (*p != '|' && *p != '\0')) {
            start += strspn(start, BLANKS);
            return conf_why(why, "'%s' is not a range of layers; write " FORMS,
                            conf_quote(start, strcspn(start, "|")).s);
        }
        n++;
        if (*p == '\0')
            break;
    }
    set_ranges(cfg, PP_ASSIGN_EXPLICIT, first, last, n);
    return 0;
}

int conf_assignment_print(const struct pp_config *cfg, char *out, size_t bytes)
{
    struct conf_text t = {.out = out, .bytes = bytes};
    for (int i = 0; i < ASSIGNMENT_WORDS; i++)
        if (assignment_words[i].kind == cfg->pipeline.assignment)
            conf_put(&t, "%s", assignment_words[i].word);
    for (int i = 0; i < cfg->pipeline.n_ranges; i++) {
        int first = cfg->pipeline.first_layer[i], last = cfg->pipeline.last_layer[i];
        conf_put(&t, "%s%d", i ? " | " : "", first);
        if (last != first)
            conf_put(&t, "-%d", last);
    }
    return conf_put_end(&t);
}

/* ---- run.devices: "auto", or in the order in which ranks take them */

int conf_devices_parse(const char *text, struct pp_config *cfg, char why[CONF_WHY_MAX])
{
    int list[PP_DEVICES_MAX], n = 0;
    bool seen[PP_DEVICES_MAX] = {false};
    for (const char *p = strcmp(text, "auto") == 0 ? "" : text; *p;) {
        const char *entry = p;
        int first, last;
        if (!take_range(&p, "", PP_DEVICES_MAX, &first, &last) || !strchr(BLANKS ",", *p)) {
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
