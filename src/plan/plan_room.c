/* SPDX-License-Identifier: Apache-2.0 */
/* What making a plan takes of this machine. */
#include "ppcli/plan/search.h"

#include "ppcli/base/cores.h"

#define TIMES_BYTES ((int)(6 * sizeof(double))) /* of one cell: start and end of its F, I and W */
#define GIB (1024.0 * 1024.0 * 1024.0)

int pp_plan_check_room(const struct pp_geometry *g, bool times)
{
    struct pp_memory_left room;
    const char *whose;
    double cells = (double)g->stages * g->chunks * g->microbatches;
    double needs = pp_plan_bytes(g);
    if (needs == 0)
        return 0; /* refused with its reason when it is built */
    needs += times ? cells * TIMES_BYTES : 0;
    pp_memory_left_find("", &room);
    double left = (double)room.bytes[pp_memory_left_least(&room, &whose)];
    if (needs <= left)
        return 0;
    char fits[96] = "no number of micro-batches fits";
    double m = g->microbatches * (left / needs);
    if (m >= 1)
        snprintf(fits, sizeof(fits), "with these stages, --microbatches %.0f would fit", m - .5);
    return pp_fail(PP_ERESOURCE,
                   "making a plan of %d stages x %d chunk%s x %d micro-batches takes up to %.1f "
                   "GiB; %.1f GiB are left of %s: %s",
                   g->stages, g->chunks, pp_plural(g->chunks), g->microbatches, needs / GIB,
                   left / GIB, whose, fits);
}
