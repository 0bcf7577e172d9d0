/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one rank's list of a V schedule, phase by phase. */
#include "orders.h"
#include "../schedule.h"

#include <string.h>

void pp_v_start(struct pp_v_rank *v, const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    *v = (struct pp_v_rank){
        .emit = e, .m = g->microbatches, .stage = {rank, 2 * g->stages - 1 - rank}, .oldest = e->n};
}

static int emit_action(struct pp_v_rank *v, int chunk, enum pp_op op, bool overlap)
{
    int mb = v->next[chunk][op]++;
    if (op == PP_OP_B) { /* the next I and the next W are those of the micro-batch after a B */
        v->next[chunk][PP_OP_I] = mb + 1;
        v->next[chunk][PP_OP_W] = mb + 1;
    } else if (op == PP_OP_I) {
        v->next[chunk][PP_OP_B] = mb + 1;
    }
    if (mb >= v->m)
        return 0;
    PP_TRY(pp_emit_cell(v->emit, op, v->stage[chunk], mb));
    v->emit->cells[v->emit->n - 1].overlap = overlap;
    return 0;
}

static int put_oldest_w(struct pp_v_rank *v)
{
    const struct pp_emit *e = v->emit;
    while (v->oldest < e->n && e->cells[v->oldest].op != PP_OP_I)
        v->oldest++;
    pp_assert(v->oldest < e->n);
    int stage = e->cells[v->oldest++].stage;
    return emit_action(v, stage == v->stage[PP_V_A] ? PP_V_A : PP_V_Z, PP_OP_W, false);
}

static int put_all(struct pp_v_rank *v, const char *cells)
{
    bool overlap = false;
    for (const char *c = cells; *c != '\0'; c++) {
        if (*c == '(') {
            overlap = true;
        } else if (*c == '-') {
            c++;
            PP_TRY(put_oldest_w(v));
        } else if (*c == 'a' || *c == 'z') {
            int chunk = *c == 'a' ? PP_V_A : PP_V_Z;
            c++;
            const char *letter = strchr(PP_OP_LETTERS, *c);
            PP_TRY(emit_action(v, chunk, (enum pp_op)(letter - PP_OP_LETTERS), overlap));
            overlap = false; /* only the F of an overlapped cell is marked */
        }
    }
    return 0;
}

void pp_v_phase(struct pp_v_rank *v, int times, const char *cells)
{
    for (int i = 0; i < times && v->rc == 0; i++)
        v->rc = put_all(v, cells);
}
