/* SPDX-License-Identifier: Apache-2.0 */
/* The list of schedules, and the rules that several of them share. */
#include "ppcli/schedule.h"

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
    return NULL;
}

const char *const *pp_schedule_names(void)
{
    return names;
}

int pp_place(enum pp_placement placement, int stages, int s)
{
    int lap = s / stages;
    int j = s % stages;
    return placement == PP_PLACE_V && lap % 2 == 1 ? stages - 1 - j : j;
}

int pp_check_one_chunk(const struct pp_geometry *g, const char *name)
{
    if (g->chunks != 1) {
        return pp_fail(
            PP_ECONFIG,
            "schedule %s keeps one chunk per rank, not %d: set chunks = 1 (%d stages, %d "
            "micro-batches can stay)",
            name, g->chunks, g->stages, g->microbatches);
    }
    return 0;
}
