/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a division as keys of a config. */
#include "ppcli/pipe/division.h"

#include <inttypes.h>
#include <string.h>

#include "ppcli/pipe/layout.h"
#include "ppcli/base/base.h"
#include "ppcli/nn/model.h"

const char *pp_division_schedule(const struct pp_division *d)
{
    return d->schedule ? pp_schedule_name(d->schedule) : "table";
}

/* Returns the number of a key, which must exist. */
static int index_of_key(const char *key)
{
    int i = 0;
    while (strcmp(pp_config_key_name(i), key) != 0)
        i++;
    return i;
}

/* ---- the cut */

/* Returns whether the cut is the one that the config itself asks for, by ranges or by first layers.
 * *as_written is scratch. */
static bool cuts_as_written(const struct pp_division *d, const struct pp_model *model,
                            const struct pp_config *cfg, struct pp_division *as_written)
{
    size_t bytes = (size_t)pp_division_pieces(d) * sizeof(*d->last);
    const char *key;
    *as_written = *d;
    bool same = cfg->pipeline.assignment == PP_ASSIGN_EXPLICIT &&
                pp_division_cut(cfg, model, as_written, &key) == 0 &&
                memcmp(as_written->last, d->last, bytes) == 0;
    pp_error_clear();
    return same;
}

static int write_ranges(const struct pp_division *d, const struct pp_model *model, char *out,
                        size_t bytes)
{
    int n = pp_division_pieces(d);
    PP_TAKE(int, first, 2 * n);
    for (int s = 0; s < n; s++) {
        first[s] = pp_division_first(d, s);
        first[n + s] = d->last[s];
    }
    pp_ranges_text(model, first, first + n, n, out, bytes);
    return 0;
}

/* Writes which layers are recomputed: "all", "off", or ranges. */
static void write_recompute(const struct pp_division *d, const struct pp_model *model, char *out,
                            size_t bytes)
{
    int n = pp_division_pieces(d), redone = 0;
    size_t used = 0;
    for (int s = 0; s < n; s++)
        redone += d->recompute[s];
    snprintf(out, bytes, "%s", redone == 0 ? "off" : "all");
    for (int s = 0; s < n && redone < n && used + PP_LAYER_NAME_MAX < bytes; s++) {
        int first = pp_division_first(d, s), last = d->last[s];
        if (!d->recompute[s])
            continue;
        if (used > 0)
            out[used++] = ' ';
        pp_ranges_text(model, &first, &last, 1, out + used, bytes - used);
        used += strlen(out + used);
    }
}

/* ---- numbers */

static void write_ticks(const struct pp_division *d, char *out, size_t bytes)
{
    int n = 3 * pp_division_pieces(d);
    n += d->ticks[n] > 0;
    out[0] = '\0';
    for (int i = 0; i < n; i++)
        pp_text_add(out, bytes, "%s%" PRId64, i == 0 ? "" : i % 3 > 0 ? "," : " ", d->ticks[i]);
}

/* Returns the value that the division has for a key that is a count; -1 if the key is not one. */
static int find_count_key(const struct pp_division *d, const char *key)
{
    const struct {
        const char *key;
        int n;
    } counts[] = {{"pipeline.stages", d->stages},
                  {"pipeline.replicas", d->replicas},
                  {"pipeline.microbatches", d->microbatches},
                  {"pipeline.chunks", d->chunks},
                  {"pipeline.group", d->group},
                  {"pipeline.eager", d->eager},
                  {"train.zero", d->zero},
                  {"run.threads", d->threads}};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (strcmp(counts[i].key, key) == 0)
            return counts[i].n;
    return -1;
}

int pp_division_value(const struct pp_division *d, const struct pp_model *model,
                      const struct pp_config *cfg, const char *key, char *out, size_t bytes)
{
    const char *fault;
    bool cut = strcmp(key, "pipeline.assignment") == 0,
         split = strcmp(key, "pipeline.split_at") == 0;
    bool redo = strcmp(key, "pipeline.recompute") == 0;
    int count = find_count_key(d, key);
    if (count >= 0) {
        snprintf(out, bytes, "%d", count);
        return 0;
    }
    if (strcmp(key, "run.rank_order") == 0) {
        snprintf(out, bytes, "%s", d->across ? "replicas" : "stages");
        return 0;
    }
    if (strcmp(key, "pipeline.schedule") == 0 && d->schedule) {
        snprintf(out, bytes, "%s", pp_schedule_name(d->schedule));
        return 0;
    }
    if (strcmp(key, "pipeline.memory_cap") == 0) {
        pp_config_number(d->memory_cap, out, bytes);
        return 0;
    }
    if (strcmp(key, "pipeline.costs") == 0) {
        snprintf(out, bytes, "none");
        if (d->ticks)
            write_ticks(d, out, bytes);
        return 0;
    }
    if (strcmp(key, "train.coalesce") == 0) {
        struct pp_training training = pp_training_of(cfg, 0, 0);
        PP_TAKE(struct pp_division, own, 1);
        *own = *d;
        own->coalesce = 0; /* the automatic value need not be written */
        bool same = d->coalesce == pp_layout_coalesce(own, &training, model);
        snprintf(out, bytes, "%d", same && d->coalesce != cfg->train.coalesce ? 0 : d->coalesce);
        return 0;
    }
    if (cut || split || redo) {
        PP_TAKE(struct pp_division, own, 1);
        bool written = cuts_as_written(d, model, cfg, own), one = pp_division_pieces(d) == 1;
        if (redo) {
            *own = *d;
            memset(own->recompute, 0, sizeof(own->recompute));
            bool same = pp_division_redo(cfg, model, own, &fault) == 0 &&
                        memcmp(own->recompute, d->recompute, sizeof(own->recompute)) == 0;
            pp_error_clear();
            if (!same)
                write_recompute(d, model, out, bytes);
            if (!same)
                return 0;
        } else if (one || !written) {
            snprintf(out, bytes, "%s", cut && one ? "auto" : "none");
            return cut && !one ? write_ranges(d, model, out, bytes) : 0;
        }
    }
    return pp_config_key_value(cfg, index_of_key(key), out, bytes);
}

int pp_division_print(const struct pp_division *d, const struct pp_model *model,
                      const struct pp_config *cfg, FILE *f)
{
    PP_TAKE(char, value, PP_CUT_MAX);
    fprintf(f, "\n[pipeline]\n");
    for (int k = 0; k < pp_config_key_count(); k++) {
        const char *name = pp_config_key_name(k);
        if (strncmp(name, "pipeline.", 9) != 0)
            continue;
        PP_TRY(pp_division_value(d, model, cfg, name, value, PP_CUT_MAX));
        bool layer = strcmp(name, "pipeline.recompute") == 0; /* value 0 is the first layer */
        if ((layer || strcmp(value, "0") != 0) && strcmp(value, "none") != 0) /* ppcli chooses it */
            fprintf(f, "%s = %s\n", name + 9, value);
    }
    return ferror(f) ? pp_fail(PP_EIO, "the plan cannot be written") : 0;
}

int pp_division_config(const struct pp_division *d, const struct pp_model *model,
                       const struct pp_config *cfg, struct pp_config **out)
{
    static const char *const others[] = {"train.zero", "train.coalesce", "run.threads",
                                         "run.rank_order"};
    PP_TAKE(char, value, PP_CUT_MAX);
    PP_OWN_MEMORY struct pp_config *copy = NULL;
    PP_TRY(pp_config_copy(cfg, &copy));
    for (int k = 0; k < pp_config_key_count(); k++) {
        const char *name = pp_config_key_name(k);
        bool has = strncmp(name, "pipeline.", 9) == 0;
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
            has = has || strcmp(name, others[i]) == 0;
        if (!has)
            continue;
        PP_TRY(pp_division_value(d, model, cfg, name, value, PP_CUT_MAX));
        PP_TRY(pp_config_with(copy, name, value, copy));
    }
    *out = copy;
    copy = NULL;
    return 0;
}
