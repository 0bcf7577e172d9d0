/* SPDX-License-Identifier: Apache-2.0 */
/* The list of schedules, and the rules that several of them share. */
#include "ppcli/schedule.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ppcli/err.h"
#include "pass.h"

static const struct pp_schedule_ops *const schedules[] = {
#define PP_SCHEDULE(x, name) &schedule_##x,
#include "schedules.def"
#undef PP_SCHEDULE
};

static const char *const names[] = {
#define PP_SCHEDULE(x, name) name,
#include "schedules.def"
#undef PP_SCHEDULE
    NULL,
};

static const struct pp_schedule_ops *const two_way[] = {
#define PP_SCHEDULE(x, name) &schedule_##x,
#include "two_way.def"
#undef PP_SCHEDULE
};

static const char *const two_way_names[] = {
#define PP_SCHEDULE(x, name) name,
#include "two_way.def"
#undef PP_SCHEDULE
    NULL,
};

enum {
    N_SCHEDULES = sizeof(schedules) / sizeof(schedules[0])
};

const struct pp_schedule_ops *pp_schedule_find(const char *name)
{
    for (int i = 0; i < N_SCHEDULES; i++) {
        if (strcmp(names[i], name) == 0) {
            return schedules[i];
        }
    }
    for (int i = 0; two_way_names[i]; i++) {
        if (strcmp(two_way_names[i], name) == 0) {
            return two_way[i];
        }
    }
    return NULL;
}

const char *const *pp_schedule_names(void)
{
    return names;
}

const char *const *pp_schedule_two_way_names(void)
{
    return two_way_names;
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
    return ops->default_chunks > 0 ? ops->default_chunks : 1;
}

int pp_check_chunks(const struct pp_geometry *g, const char *name, int chunks)
{
    if (g->chunks == chunks) {
        return 0;
    }
    char keeps[32] = "one chunk";
    if (chunks != 1) {
        snprintf(keeps, sizeof(keeps), "%d chunks", chunks);
    }
    return pp_fail(PP_ECONFIG,
                   "schedule %s keeps %s per rank, not %d: set chunks = %d (%d stages, %d "
                   "micro-batches can stay)",
                   name, keeps, g->chunks, chunks, g->stages, g->microbatches);
}

int pp_check_one_chunk(const struct pp_geometry *g, const char *name)
{
    return pp_check_chunks(g, name, 1);
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

int pp_refuse_shape(const struct pp_geometry *g, const struct pp_geometry *nearest,
                    const char *name, const char *rule, ...)
{
    const struct {
        const char *key;
        int is, should;
    } keys[] = {
        {"stages", g->stages, nearest->stages},
        {"chunks", g->chunks, nearest->chunks},
        {"microbatches", g->microbatches, nearest->microbatches},
        {"group", g->group, nearest->group},
    };
    char way_out[128] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (keys[i].is != keys[i].should) {
            used += (size_t)snprintf(way_out + used, sizeof(way_out) - used, "%s%s = %d",
                                     used ? ", " : "", keys[i].key, keys[i].should);
        }
    }
    char needs[512];
    va_list args;
    va_start(args, rule);
    vsnprintf(needs, sizeof(needs), rule, args);
    va_end(args);
    return pp_fail(PP_ECONFIG,
                   "schedule %s needs %s, not %d stage%s, %d chunk%s, %d micro-batch%s; nearest "
                   "legal: %s",
                   name, needs, g->stages, plural(g->stages), g->chunks, plural(g->chunks),
                   g->microbatches, g->microbatches == 1 ? "" : "es", way_out);
}
