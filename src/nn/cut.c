/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the cuts that a user writes, with layers by name or number, and writes cuts as text. */
#include <string.h>

#include "nn.h"
#include "model.h"

/* Returns whether layers are written by number: their names end in numbers, such as "layers.0" to
 * "layers.7", or a name cannot be written, as it looks like a number or has a separator. */
static bool has_numbered_layers(const struct pp_model *m)
{
    char end[16];
    for (int i = 0; i < m->n_layers; i++) {
        const char *name = m->layers[i].name;
        if (name[strspn(name, "0123456789")] == '\0' || name[strcspn(name, " -|")] != '\0')
            return true;
    }
    const char *a = strrchr(m->layers[0].name, '.');
    const char *b = strrchr(m->layers[m->n_layers - 1].name, '.');
    snprintf(end, sizeof(end), ".%d", m->n_layers - 1);
    return a && b && strcmp(a, ".0") == 0 && strcmp(b, end) == 0;
}

struct word {
    char s[PP_LAYER_NAME_MAX];
};

static struct word layer_word(const struct pp_model *m, int layer, bool number)
{
    struct word w;
    if (number)
        snprintf(w.s, sizeof(w.s), "%d", layer);
    else
        memcpy(w.s, m->layers[layer].name, sizeof(w.s));
    return w;
}

char *pp_ranges_text(const struct pp_model *m, const int *first, const int *last, int n, char *out,
                     size_t bytes)
{
    bool number = has_numbered_layers(m);
    size_t used = 0;
    out[0] = '\0';
    for (int s = 0; s < n && used < bytes; s++) {
        used += (size_t)snprintf(out + used, bytes - used, "%s%s", s ? " | " : "",
                                 layer_word(m, first[s], number).s);
        if (last[s] > first[s] && used < bytes)
            used +=
                (size_t)snprintf(out + used, bytes - used, "-%s", layer_word(m, last[s], number).s);
    }
    return out;
}

/* ---- reading */

static int fail_unknown_layer(const struct pp_model *m, const char *key, const char *word)
{
    const char **names;
    PP_ALLOC(names, (size_t)m->n_layers + 1);
    for (int i = 0; i < m->n_layers; i++)
        names[i] = m->layers[i].name;
    const char *near = pp_nearest(word, names);
    char why[512] = "";
    pp_free(names);
    if (m->explain_cut)
        PP_TRY(m->explain_cut(m, word, why, sizeof(why)));
    if (why[0])
        return pp_fail(PP_ECONFIG, "%s: %s", key, why);
    if (near)
        return pp_fail(PP_ECONFIG, "%s: no layer is named '%s'; did you mean '%s'?", key, word,
                       near);
    return pp_fail(PP_ECONFIG, "%s: no layer is named '%s'; they are %s to %s (ppcli explain)", key,
                   word, m->layers[0].name, m->layers[m->n_layers - 1].name);
}

/* Reads the layer at *p and moves *p past it. Sets *number to whether it was written as a
 * number. */
static int read_layer(const struct pp_model *m, const char *key, const char **p, int *out,
                      bool *number)
{
    char word[PP_LAYER_NAME_MAX];
    size_t n = strcspn(*p, " -|");
    snprintf(word, sizeof(word), "%.*s", (int)n, *p);
    *p += n;
    *number = strspn(word, "0123456789") == strlen(word);
    long long layer = 0;
    for (const char *d = word; *number && *d && layer < m->n_layers; d++)
        layer = 10 * layer + (*d - '0');
    if (*number && layer >= m->n_layers) {
        return pp_fail(PP_ECONFIG,
                       "%s: no layer %s: the model's last layer is %d (%d layer%s, "
                       "counted from 0)",
                       key, word, m->n_layers - 1, m->n_layers, pp_plural(m->n_layers));
    }
    *out = *number ? (int)layer : pp_model_find_layer(m, word);
    return *out < 0 ? fail_unknown_layer(m, key, word) : 0;
}

/* Reads a cut that names the first layer of each piece but the first: "layer2.0 layer3.0". */
static int read_first_layers(const struct pp_model *m, const char *p, int n, int *first, int *last)
{
    static const char key[] = "pipeline.split_at";
    bool number;
    first[0] = 0;
    last[n - 1] = m->n_layers - 1;
    for (int s = 1; s < n; s++, p += *p == ' ') {
        PP_TRY(read_layer(m, key, &p, &first[s], &number));
        const char *now = layer_word(m, first[s], number).s;
        if (first[s] == 0) {
            return pp_fail(PP_ECONFIG,
                           "%s: %s is the first layer of all; name those that a later "
                           "stage begins with",
                           key, now);
        }
        if (first[s] <= first[s - 1]) {
            return pp_fail(PP_ECONFIG, "%s: %s %s; name each once, in model order", key, now,
                           first[s] == first[s - 1] ? "is given twice" : "comes too late");
        }
        last[s - 1] = first[s] - 1;
    }
    return 0;
}

/* Reads a cut that names the layers of each piece: "conv1-layer1.1 | layer2.0-fc". */
static int read_ranges(const struct pp_model *m, const char *p, int n, int *first, int *last)
{
    static const char key[] = "pipeline.assignment";
    int next = 0, end = m->n_layers - 1; /* next: first layer that no range has yet */
    bool number = true;
    for (int s = 0; s < n; s++, p += strspn(p, " |")) {
        PP_TRY(read_layer(m, key, &p, &first[s], &number));
        last[s] = first[s];
        if (*p == '-') {
            p++;
            PP_TRY(read_layer(m, key, &p, &last[s], &number));
        }
        if (first[s] > last[s]) {
            return pp_fail(PP_ECONFIG, "%s: range %d begins at layer %s, which comes after %s", key,
                           s + 1, layer_word(m, first[s], number).s,
                           layer_word(m, last[s], number).s);
        }
        if (next > end) {
            return pp_fail(PP_ECONFIG,
                           "%s: range %d has the model's last layer, so range %d can "
                           "have none",
                           key, s, s + 1);
        }
        if (first[s] != next) {
            return pp_fail(PP_ECONFIG,
                           "%s: range %d begins at layer %s, must begin at %s (a layer "
                           "would %s)",
                           key, s + 1, layer_word(m, first[s], number).s,
                           layer_word(m, next, number).s,
                           first[s] > next ? "have no stage" : "be in two stages");
        }
        next = last[s] + 1;
    }
    if (next <= end) {
        return pp_fail(PP_ECONFIG,
                       "%s: the ranges end at layer %s, the model's last layer is %s "
                       "(%d layers, counted from 0)",
                       key, layer_word(m, next - 1, number).s, layer_word(m, end, number).s,
                       end + 1);
    }
    return 0;
}

int pp_recompute_stages(const struct pp_model *m, const char *text, int n, const int *first,
                        const int *last, bool *out)
{
    static const char key[] = "pipeline.recompute";
    bool number, all = strcmp(text, "all") == 0;
    if (strcmp(text, "auto") == 0) {
        return pp_fail(
            PP_ECONFIG,
            "%s: auto is for commands that measure; write off, all or layers (ppcli tune "
            "CONFIG finds them)",
            key);
    }
    for (int s = 0; s < n; s++)
        out[s] = all;
    for (const char *p = all ? "" : text; *p; p += *p == ' ') {
        int from, to;
        PP_TRY(read_layer(m, key, &p, &from, &number));
        to = from;
        if (*p == '-') {
            p++;
            PP_TRY(read_layer(m, key, &p, &to, &number));
        }
        if (from > to || (*p && *p != ' ')) {
            return pp_fail(
                PP_ECONFIG, "%s: '%s': write off, all, or layers in model order, such as %s-%s",
                key, text, layer_word(m, 0, number).s, layer_word(m, m->n_layers - 1, number).s);
        }
        for (int s = 0; s < n; s++)
            out[s] |= from <= last[s] && first[s] <= to;
    }
    return 0;
}

int cut_as_written(const struct pp_model *m, const struct pp_config *cfg, int n, int *first,
                   int *last)
{
    bool ranges = cfg->pipeline.ranges[0];
    const char *text = ranges ? cfg->pipeline.ranges : cfg->pipeline.split_at;
    int pieces = ranges ? 1 : 2;
    for (const char *p = text; *p; p++)
        pieces += *p == (ranges ? '|' : ' ');
    if (pieces != n) { /* the number of chunks is the schedule's */
        return pp_fail(PP_ECONFIG, "%s: %d pieces for %d stages and chunks; give one for each",
                       ranges ? "pipeline.assignment" : "pipeline.split_at", pieces, n);
    }
    return ranges ? read_ranges(m, text, n, first, last)
                  : read_first_layers(m, text, n, first, last);
}
