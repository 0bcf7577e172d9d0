/* SPDX-License-Identifier: Apache-2.0 */
/* See bench.h. */
#include "bench.h"

#include "ppcli/ahead.h"

struct plain_loop {
    const struct pp_layout *layout;
    const struct pp_dataset *data;
    struct pp_backend *be;
    struct pp_loader *loader;
    struct pp_chunk *chunk;
    struct pp_arena arena;
    void *block;
    float *x, *logits; /* [max_rows][inputs or outputs] */
    int32_t *targets;
    struct pp_loss_sums *sums;
    int64_t t; /* the step at hand */
};

/* Everything in one block, like the executor's, and without slots for what is in flight. */
static int lay_out(struct plain_loop *p, struct pp_arena *a)
{
    const struct pp_layout *l = p->layout;
    struct pp_chunk_spec spec = {.first = 0,
                                 .last = l->model->n_layers - 1,
                                 .max_rows = l->max_rows,
                                 .state_slots = 1,
                                 .grad_slots = 1,
                                 .optimizer = l->cfg->train.optimizer,
                                 .decay_weights = l->cfg->train.decay == PP_DECAY_WEIGHTS,
                                 .backend = &p->be->choice};
    size_t rows = (size_t)l->max_rows;
    PP_TRY(pp_chunk_create(l->model, &spec, a, &p->chunk));
    p->x = pp_arena_take(a, rows * (size_t)l->model->inputs, sizeof(float));
    p->logits = pp_arena_take(a, rows * (size_t)l->model->outputs, sizeof(float));
    p->targets = pp_arena_take(a, rows * (size_t)pp_model_targets(l->model), sizeof(*p->targets));
    p->sums = pp_arena_take(a, 1, sizeof(*p->sums));
    return 0;
}

static int create(struct plain_loop *p)
{
    const struct pp_layout *l = p->layout;
    const struct pp_config *cfg = l->cfg;
    struct pp_arena dry = pp_arena_dry();
    pp_assert(l->ranks == 1 && cfg->train.clip_norm == 0);
    if (p->be->ops->own_memory) {
        return pp_fail(PP_ERESOURCE,
                       "the loop without the executor works in memory of the host, and %s has its "
                       "own; use --set run.backend=cpu",
                       p->be->description);
    }
    if (pp_ahead_makes(cfg, PP_SPLIT_TRAIN)) {
        return pp_fail(PP_ECONFIG, "the loop without the executor takes samples as they are; use "
                                   "--set data.augment=none --set data.resize=0");
    }
    PP_TRY(lay_out(p, &dry));
    PP_TRY(pp_backend_alloc(p->be, dry.used, &p->block));
    p->arena = (struct pp_arena){.base = p->block, .bytes = dry.used};
    PP_TRY(lay_out(p, &p->arena));
    PP_TRY(pp_loader_create(l->train_n, cfg->train.batch_size, 1, 0, cfg->pipeline.microbatches,
                            true, cfg->train.seed, &p->loader));
    if (p->data->starts > 0)
        pp_loader_windows(p->loader, p->data->starts);
    return pp_chunk_init(p->chunk, p->be, cfg->train.seed);
}

int plain_loop_create(const struct pp_worker *w, struct plain_loop **out)
{
    struct plain_loop *p;
    PP_ALLOC(p, 1);
    p->layout = w->run->layout;
    p->data = w->data[PP_SPLIT_TRAIN];
    p->be = w->be;
    PP_TRY_UNDO(create(p), plain_loop_destroy(&p));
    *out = p;
    return 0;
}

void plain_loop_destroy(struct plain_loop **loop)
{
    struct plain_loop *p = *loop;
    if (!p)
        return;
    pp_chunk_destroy(&p->chunk);
    pp_loader_destroy(&p->loader);
    if (p->block)
        pp_backend_free(p->be, p->block, p->arena.bytes);
    pp_free(p);
    *loop = NULL;
}

void plain_loop_start_epoch(struct plain_loop *p, uint64_t epoch)
{
    pp_loader_start_epoch(p->loader, epoch);
}

static int microbatch(struct plain_loop *p, int step, int mb)
{
    const struct pp_model *model = p->layout->model;
    const struct pp_dataset *ds = p->data;
    const uint32_t *index, *first;
    int rows = pp_loader_microbatch(p->loader, step, mb, &index), slot = 0;
    pp_loader_microbatch(p->loader, step, 0, &first);
    const struct pp_config *cfg = p->layout->cfg;
    const struct pp_gather g = pp_dataset_gather(ds, ds->images, rows, index, p->x);
    const struct pp_targets t =
        pp_dataset_targets(ds, ds->windows ? ds->images : ds->labels, rows, index, p->targets);
    const struct pp_softmax_cross_entropy loss = {
        .B = rows,
        .P = t.P,
        .C = model->classes,
        .logits = p->logits,
        .targets = p->targets,
        .grad_scale = pp_loss_grad_scale(cfg, (int64_t)pp_loader_batch_rows(p->loader, step) * t.P,
                                         (int64_t)rows * t.P),
        .smoothing = (float)cfg->train.label_smoothing,
        .sums = p->sums,
        .dlogits = p->logits};
    PP_TRY(pp_backend_gather(p->be, &g));
    const struct pp_pass pass = {.rows = rows,
                                 .first_row = (uint32_t)(index - first),
                                 .training = true,
                                 .seed = p->layout->cfg->train.seed,
                                 .step = &p->t};
    PP_TRY(pp_chunk_forward(p->chunk, p->be, slot, &pass, p->x, p->logits));
    PP_TRY(pp_backend_targets(p->be, &t));
    PP_TRY(pp_backend_softmax_cross_entropy(p->be, &loss));
    PP_TRY(pp_chunk_backward_input(p->chunk, p->be, slot, slot, p->logits, NULL));
    return pp_chunk_backward_weight(p->chunk, p->be, 1, &slot, &slot, mb == 0);
}

/* Both places of a tied tensor get the sum of their gradients. */
static int add_ties(const struct plain_loop *p)
{
    const struct pp_model *m = p->layout->model;
    for (int i = 0; i < m->n_params; i++) {
        size_t copy, owner, n;
        if (m->params[i].tied_to == 0)
            continue;
        pp_chunk_param(p->chunk, i, &copy, &n);
        pp_chunk_param(p->chunk, m->params[i].tied_to - 1, &owner, &n);
        float *g = p->chunk->grads;
        PP_TRY(pp_backend_add(p->be, n, g + copy, g + owner));
        PP_TRY(pp_backend_copy(p->be, g + copy, g + owner, n * sizeof(*g)));
    }
    return 0;
}

int plain_loop_step(struct plain_loop *p, int step, double lr, int64_t t)
{
    int m = pp_loader_microbatches(p->loader, step);
    p->t = t;
    for (int mb = 0; mb < m; mb++)
        PP_TRY(microbatch(p, step, mb));
    PP_TRY(add_ties(p));
    struct pp_optimizer_args a = pp_optimizer_args_of(p->layout->cfg, lr, t);
    return pp_chunk_optimizer_step(p->chunk, p->be, &a);
}

int plain_loop_take_sums(struct plain_loop *p, struct pp_loss_sums *out)
{
    static const struct pp_loss_sums zero;
    PP_TRY(pp_backend_to_host(p->be, out, p->sums, sizeof(*out)));
    return pp_backend_to_device(p->be, p->sums, &zero, sizeof(zero));
}

int plain_loop_sha256(struct plain_loop *p, char out[65])
{
    PP_TAKE(float, host, p->chunk->n_floats);
    PP_TRY(pp_backend_to_host(p->be, host, p->chunk->params, p->chunk->n_floats * sizeof(*host)));
    struct pp_sha256 h;
    uint8_t digest[PP_SHA256_BYTES];
    pp_sha256_init(&h);
    pp_model_hash(p->layout->model, p->chunk->first, p->chunk->last, host, &h);
    pp_sha256_final(&h, digest);
    pp_sha256_hex(digest, out);
    return 0;
}
