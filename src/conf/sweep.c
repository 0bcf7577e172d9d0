/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sweep: every combination is a config of its own, loaded and checked like any other, so that its
 * problems are reported in the same way.
 */
#include "ppcli/conf/config.h"

#include <string.h>

#include "conf.h"
#include "ppcli/base/base.h"

#define AXES_MAX 16
#define VALUES_MAX 256

struct axis {
    int setting; /* index of the setting with these values */
    char *text;  /* owned: the values, separated by NULs */
    const char *values[VALUES_MAX];
    int n;
};

struct axes {
    struct axis items[AXES_MAX];
    int n;
};

static bool is_replaced(const struct pp_settings *settings, int i)
{
    for (int k = i + 1; k < settings->n; k++)
        if (strcmp(settings->items[k].key, settings->items[i].key) == 0)
            return true;
    return false;
}

static int split_values(const struct pp_setting *s, bool numbers, struct axis *out)
{
    out->text = pp_strdup(s->value);
    if (!out->text)
        return PP_ERESOURCE;
    for (char *p = out->text; p;) {
        char *comma = strchr(p, ',');
        if (comma)
            *comma = '\0';
        char *value = p + strspn(p, " \t");
        bool digit = value[0] >= '0' && value[0] <= '9';
        if (!value[0] || (numbers && !digit)) {
            return pp_fail(PP_EUSAGE, "%s needs %s separated by commas, not '%s'", s->said,
                           numbers ? "numbers" : "names", s->value);
        }
        if (out->n == VALUES_MAX)
            return pp_fail(PP_EUSAGE, "%s lists more than %d values", s->said, VALUES_MAX);
        out->values[out->n++] = value;
        p = comma ? comma + 1 : NULL;
    }
    return 0;
}

static int find_axes(const struct pp_settings *settings, struct axes *out, int *rows)
{
    int64_t n = 1;
    for (int i = 0; i < settings->n; i++) {
        const struct pp_setting *s = &settings->items[i];
        bool numbers;
        if (!strchr(s->value, ',') || is_replaced(settings, i) || !conf_sweeps(s->key, &numbers))
            continue;
        if (out->n == AXES_MAX)
            return pp_fail(PP_EUSAGE, "more than %d lists in one sweep", AXES_MAX);
        struct axis *a = &out->items[out->n++];
        a->setting = i;
        PP_TRY(split_values(s, numbers, a));
        n *= a->n;
        if (n > PP_SWEEP_ROWS_MAX)
            return pp_fail(PP_EUSAGE, "these lists have more than %d combinations",
                           PP_SWEEP_ROWS_MAX);
    }
    *rows = (int)n;
    return 0;
}

/* Sets the settings to the values of combination number `row`. The values of the last list change
 * fastest. */
static void choose_combination(const struct axes *axes, int row, struct pp_setting *items)
{
    for (int k = axes->n - 1; k >= 0; k--) {
        const struct axis *a = &axes->items[k];
        items[a->setting].value = a->values[row % a->n];
        row /= a->n;
    }
}

/* Loads the configs of all combinations. A bad config keeps its list of problems; fails unless at
 * least one config is good. */
static int load_all(const char *path, const struct pp_settings *settings, const struct axes *axes,
                    const struct pp_names *names, struct pp_sweep *out)
{
    int good = 0;
    PP_TAKE(struct pp_setting, items, settings->n + 1);
    memcpy(items, settings->items, (size_t)settings->n * sizeof(*items));
    for (int i = 0; i < out->n; i++) {
        choose_combination(axes, i, items);
        int rc = pp_config_load(path, items, settings->n, names, &out->configs[i]);
        if (rc < 0 && rc != PP_ECONFIG)
            return rc;
        good += rc == 0;
    }
    return good > 0 ? 0 : PP_ECONFIG;
}

int pp_sweep_load(int (*find)(const char *word, char *out), const char *word,
                  const struct pp_settings *settings, const struct pp_names *names,
                  struct pp_sweep *out)
{
    char path[PP_PATH_MAX];
    PP_TAKE(struct axes, axes, 1);
    *out = (struct pp_sweep){0};
    int rc = find_axes(settings, axes, &out->n);
    if (rc == 0 && word)
        rc = find(word, path);
    out->configs = rc == 0 ? pp_alloc((size_t)out->n, sizeof(struct pp_config *)) : NULL;
    if (rc == 0)
        rc = out->configs ? load_all(word ? path : NULL, settings, axes, names, out) : PP_ERESOURCE;
    for (int k = 0; k < axes->n; k++)
        pp_free(axes->items[k].text);
    return rc;
}

int pp_sweep_ranks(const struct pp_sweep *s)
{
    int most = 1;
    for (int i = 0; i < s->n; i++) {
        int ranks = s->configs[i]->pipeline.stages * s->configs[i]->pipeline.replicas;
        most = ranks > most ? ranks : most;
    }
    return most;
}

void pp_sweep_fini(struct pp_sweep *s)
{
    for (int i = 0; s->configs && i < s->n; i++)
        pp_config_destroy(&s->configs[i]);
    pp_free(s->configs);
    *s = (struct pp_sweep){0};
}
