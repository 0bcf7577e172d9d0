/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the schedule of a plan, and computes the digest of its table. */
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/sched/plan.h"

/* Returns the next cell of a list and moves *k past it. An I and the W of the same micro-batch
 * right after it are one cell, a B. */
static struct pp_cell next_cell(const struct pp_rank_plan *list, int *k)
{
    const struct pp_action *a = &list->actions[(*k)++];
    struct pp_cell c = {.op = a->op, .stage = a->stage, .mb = a->mb};
    if (a->op == PP_OP_I && *k < list->n_actions && a[1].op == PP_OP_W && a[1].stage == a->stage &&
        a[1].mb == a->mb) {
        c.op = PP_OP_B;
        ++*k;
    }
    return c;
}

static bool is_same(const struct pp_plan *a, const struct pp_plan *b)
{
    for (int r = 0; r < a->geometry.stages; r++) {
        const struct pp_rank_plan *x = &a->ranks[r], *y = &b->ranks[r];
        int i = 0, k = 0;
        while (i < x->n_actions && k < y->n_actions) {
            struct pp_cell c = next_cell(x, &i), d = next_cell(y, &k);
            if (c.op != d.op || c.stage != d.stage || c.mb != d.mb)
                return false;
        }
        if (i < x->n_actions || k < y->n_actions)
            return false;
    }
    return true;
}

const char *pp_plan_recognize(const struct pp_plan *plan)
{
    const char *found = NULL;
    for (const char *const *name = pp_schedule_names(); *name && !found; name++) {
        const struct pp_schedule_ops *ops = pp_schedule_find(*name);
        struct pp_geometry g = {.stages = plan->geometry.stages,
                                .chunks = plan->geometry.chunks,
                                .microbatches = plan->geometry.microbatches};
        for (g.eager = ops->eager ? 4 : 1; g.eager > 0 && !found; g.eager--) {
            PP_OWN(pp_plan_destroy) struct pp_plan *candidate = NULL;
            bool legal = !ops->fits && (ops->chunks == 0 || ops->chunks == g.chunks) &&
                         pp_plan_build(*name, &g, &candidate) == 0;
            found = legal && is_same(plan, candidate) ? *name : NULL;
        }
    }
    pp_error_clear();
    return found;
}

int pp_plan_csv_text(const struct pp_plan *plan, char **out)
{
    size_t bytes = 0;
    FILE *f = open_memstream(out, &bytes);
    if (!f)
        return pp_fail(PP_ERESOURCE, "plan: out of memory");
    int rc = pp_plan_print_csv(plan, f), closed = pp_text_close(f, out, "plan");
    return rc < 0 ? rc : closed;
}

int pp_plan_digest(const struct pp_plan *plan, char out[PP_SHA256_HEX])
{
    struct pp_sha256 s;
    uint8_t sum[PP_SHA256_BYTES];
    PP_OWN_MEMORY char *text = NULL;
    PP_TRY(pp_plan_csv_text(plan, &text));
    pp_sha256_init(&s);
    pp_sha256_update(&s, text, strlen(text));
    pp_sha256_final(&s, sum);
    pp_sha256_hex(sum, out);
    return 0;
}
