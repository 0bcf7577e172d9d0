/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the optimizer over a chunk's parameters, in pieces as large as possible. */
#include "chunk.h"

/* Runs the optimizer over the floats at .. to - 1 of the chunk's parameters. */
static int update_floats(struct pp_chunk *c, struct pp_backend *be,
                         const struct pp_optimizer_args *a, size_t at, size_t to, bool decay)
{
    if (at == to)
        return 0;
    return pp_backend_optimizer_step(
        be, &(struct pp_optimizer_step){to - at, a, decay, c->grads + at,
                                        c->opt_m ? c->opt_m + at : NULL,
                                        c->opt_v ? c->opt_v + at : NULL, c->params + at});
}

int chunk_update(struct pp_chunk *c, struct pp_backend *be, const struct pp_optimizer_args *a,
                 int first, int n)
{
    size_t from = 0, to = 0;
    bool decay = true; /* weight decay of floats from..to-1 */
    for (int i = 0; i < n; i++) {
        const struct pp_param *p = &c->model->params[first + i];
        size_t at = pp_chunk_offset(c, p);
        bool decays = p->kind == PP_PARAM_DECAYED || !c->decay_weights;
        bool muon = chunk_is_muon(c, p), apart = muon || !pp_param_learns(p);
        if (apart || decays != decay || at != to) {
            PP_TRY(update_floats(c, be, a, from, to, decay));
            if (muon)
                PP_TRY(chunk_muon_step(c, be, p, a, c->grads + at, c->opt_m + at, c->params + at));
            from = at;
            decay = decays;
        }
        to = at + pp_param_floats(p);
        from = apart ? to : from;
    }
    return update_floats(c, be, a, from, to, decay);
}

int pp_chunk_update_shard(struct pp_chunk *c, struct pp_backend *be,
                          const struct pp_optimizer_args *a, size_t from, size_t to, size_t state)
{
    const struct pp_param *p = &c->model->params[c->model->layers[c->first].first_param];
    const struct pp_param *past = p + pp_chunk_param_count(c);
    PP_TRY(pp_backend_collect(be, PP_COLLECT_UPDATES));
    for (; p < past && pp_chunk_offset(c, p) < to; p++) {
        size_t first = pp_chunk_offset(c, p), end = first + pp_param_floats(p);
        size_t at = first > from ? first : from, n = (end < to ? end : to) - at;
        if (end <= from || !pp_param_learns(p))
            continue;
        if (chunk_is_muon(c, p)) {
            pp_assert(at == first && n == pp_param_floats(p));
            PP_TRY(chunk_muon_step(c, be, p, a, c->grads + at, c->opt_m + state + at - from,
                                   c->params + at));
            continue;
        }
        PP_TRY(pp_backend_optimizer_step(
            be, &(struct pp_optimizer_step){
                    n, a, p->kind == PP_PARAM_DECAYED || !c->decay_weights, c->grads + at,
                    c->opt_m ? c->opt_m + state + at - from : NULL,
                    c->opt_v ? c->opt_v + state + at - from : NULL, c->params + at}));
    }
    return pp_backend_collect(be, PP_COLLECT_NOTHING);
}
