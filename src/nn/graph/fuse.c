/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaces nodes of a graph by others that compute the same faster. No pass looks over the border of
 * a layer, and layers are chosen before stages, so the bits do not depend on where a model is cut.
 * model.fuse = off leaves a graph as it was lowered: slower, and the judge of these passes.
 */
#include "fuse.h"

int graph_fuse(struct graph *g)
{
    static int (*const passes[])(struct graph *) = {fuse_tidy,  fuse_neighbours, fuse_exprs,
                                                    fuse_forms, fuse_neighbours, fuse_products};
    for (size_t i = 0; i < sizeof(passes) / sizeof(passes[0]); i++) {
        graph_count_readers(g);
        PP_TRY(passes[i](g));
    }
    graph_count_readers(g);
    return 0;
}
