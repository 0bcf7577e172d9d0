/* SPDX-License-Identifier: Apache-2.0 */
/* The list of schedules, and the rules that several schedules share. */
#include "schedule.h"

#include <math.h>
#include <string.h>

#include "pass.h"

#define PP_SCHEDULE_TWO_WAY PP_SCHEDULE
static const struct {
    const char *name;
    const struct pp_schedule_ops *ops;
} rows[] = {
#define PP_SCHEDULE(x, name, help) {name, &schedule_##x},
#include "schedules.def"
#undef PP_SCHEDULE
};

static const char *const help_lines[] = {
#define PP_SCHEDULE(x, name, help) name, help,
#include "schedules.def"
#undef PP_SCHEDULE
    NULL,
};
#undef PP_SCHEDULE_TWO_WAY

static const char *const names[] = {
#define PP_SCHEDULE(x, name, help) name,
#define PP_SCHEDULE_TWO_WAY(x, name, help)
#include "schedules.def"
#undef PP_SCHEDULE
#undef PP_SCHEDULE_TWO_WAY
    NULL,
};

enum {
    N_ROWS = sizeof(rows) / sizeof(rows[0])
};

const struct pp_schedule_ops *pp_schedule_find(const char *name)
{
    for (int i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].ops;
    return NULL;
}

const char *pp_schedule_name(const struct pp_schedule_ops *ops)
{
    int i = 0;
    while (rows[i].ops != ops)
        i++;
    return rows[i].name;
}

const char *const *pp_schedule_names(void)
{
    return names;
}

const char *const *pp_schedule_help(void)
{
    return help_lines;
}

const char *pp_schedule_stand_in(enum pp_placement placement, int chunks)
{
    int i = 0;
    while (!rows[i].ops->stands_in || rows[i].ops->placement != placement ||
           (rows[i].ops->chunks > 0 && rows[i].ops->chunks != chunks))
        i++;
    return rows[i].name;
}

bool pp_schedule_merges(const char *name)
{
    const struct pp_schedule_ops *ops = pp_schedule_find(name);
    return ops && ops->merges;
}

void pp_schedule_ticks(const double *costs, int n_virtual, double comm, int64_t *ticks)
{
    double longest = comm;
    for (int i = 0; i < 3 * n_virtual; i++)
        longest = fmax(costs[i], longest);
    for (int i = 0; i <= 3 * n_virtual; i++) {
        double cost = i < 3 * n_virtual ? costs[i % 3 * n_virtual + i / 3] : comm;
        ticks[i] = longest > 0 ? llround(cost / longest * 1000) : 0;
        ticks[i] = ticks[i] < 1 && i < 3 * n_virtual ? 1 : ticks[i];
    }
}

struct pp_geometry pp_schedule_share(const struct pp_schedule_ops *ops, const struct pp_geometry *g)
{
    struct pp_geometry share = *g;
    share.microbatches /= ops->copies > 0 ? ops->copies : 1;
    return share;
}

int pp_place(enum pp_placement placement, int stages, int s)
{
    int lap = s / stages;
    int j = s % stages;
    return placement == PP_PLACE_V && lap % 2 == 1 ? stages - 1 - j : j;
}

int pp_schedule_default_chunks(const struct pp_schedule_ops *ops)
{
    int chunks = ops->chunks > 0 ? ops->chunks : ops->default_chunks;
    return chunks > 0 ? chunks : 1;
}

int pp_schedule_check(const struct pp_schedule_ops *ops, const struct pp_geometry *g)
{
    if (ops->chunks > 0 && g->chunks != ops->chunks) {
        return pp_fail(PP_ECONFIG,
                       "schedule %s keeps %d chunk%s per rank, not %d: set chunks = %d (%d stages, "
                       "%d micro-batches can stay)",
                       pp_schedule_name(ops), ops->chunks, pp_plural(ops->chunks), g->chunks,
                       ops->chunks, g->stages, g->microbatches);
    }
    int rc = ops->check ? ops->check(g) : 0;
    return rc == PP_ECONFIG ? pp_error_context("schedule %s", pp_schedule_name(ops)) : rc;
}

int pp_refuse_shape(const struct pp_geometry *g, const struct pp_geometry *nearest,
                    const char *rule, ...)
{
    const struct {
        const char *key;
        int found, required;
    } keys[] = {
        {"stages", g->stages, nearest->stages},
        {"chunks", g->chunks, nearest->chunks},
        {"microbatches", g->microbatches, nearest->microbatches},
        {"group", g->group, nearest->group},
    };
    char way_out[128] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (keys[i].found != keys[i].required) {
            used += (size_t)snprintf(way_out + used, sizeof(way_out) - used, "%s%s = %d",
                                     used ? ", " : "", keys[i].key, keys[i].required);
        }
    }
    char needs[512];
    va_list args;
    va_start(args, rule);
    vsnprintf(needs, sizeof(needs), rule, args);
    va_end(args);
    return pp_fail(PP_ECONFIG,
                   "needs %s, not %d stage%s, %d chunk%s, %d micro-batch%s; nearest legal: %s",
                   needs, g->stages, pp_plural(g->stages), g->chunks, pp_plural(g->chunks),
                   g->microbatches, g->microbatches == 1 ? "" : "es", way_out);
}
