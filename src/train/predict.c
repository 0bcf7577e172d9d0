/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the outputs of samples with all layers in one chunk. Samples come as a data set, of new
 * ones or of a test, and take the way of those in a run: gather, then the forward pass. */
#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/ckpt/checkpoint.h"
#include "ppcli/data/preprocessing.h"
#include "ppcli/nn/chunk.h"
#include "train.h"

#define ROWS_MAX 32

struct pp_predictor {
    const struct pp_config *cfg;
    struct pp_preprocessing names;
    struct pp_new_samples *samples; /* NULL: not for new samples */
    struct pp_model *model;
    struct pp_backend *be;
    struct pp_chunk *chunk;
    int rows;      /* at once */
    size_t sample; /* most bytes of a sample */
    void *block;   /* device memory of all below */
    size_t block_bytes;
    uint8_t *data;     /* [rows][sample] */
    uint32_t *lengths; /* [rows] */
    uint32_t *index;   /* [rows] 0, 1, 2, ... */
    float *x, *y;
    float *outputs; /* [rows][outputs] host memory */
};

void pp_predictor_destroy(struct pp_predictor **predictor)
{
    struct pp_predictor *p = *predictor;
    if (!p)
        return;
    pp_chunk_destroy(&p->chunk);
    if (p->block)
        pp_backend_free(p->be, p->block, p->block_bytes);
    pp_backend_close(&p->be);
    pp_model_destroy(&p->model);
    pp_new_samples_destroy(&p->samples);
    pp_preprocessing_fini(&p->names);
    pp_free(p->outputs);
    pp_free(p);
    *predictor = NULL;
}

/* Creates the model from what the checkpoint says of its samples, or from the data. */
static int make_model(struct pp_predictor *p, const struct pp_ckpt *ck, bool for_new)
{
    const struct pp_ckpt_state *s = pp_ckpt_state(ck);
    struct pp_data_input input = {0};
    if (s && s->preprocessing)
        PP_TRY(pp_preprocessing_parse(ck->path, s->preprocessing, &p->names));
    if (for_new) {
        PP_TRY(pp_new_samples_create(p->cfg, &p->names, s ? s->vocabulary : NULL, p->rows,
                                     &p->samples));
        pp_new_samples_input(p->samples, &input);
    } else {
        PP_TRY(pp_dataset_input(p->cfg, &input));
    }
    return pp_model_create(p->cfg, &input, &p->model);
}

/* Takes memory for the chunk, its input and its output. A dry arena only counts the bytes. */
static int place_predictor(struct pp_predictor *p, struct pp_arena *a)
{
    const struct pp_chunk_spec spec = {.last = p->model->n_layers - 1,
                                       .max_rows = p->rows,
                                       .state_slots = 1,
                                       .backend = &p->be->choice};
    size_t rows = (size_t)p->rows, targets = (size_t)pp_model_targets(p->model);
    PP_TRY(pp_chunk_create(p->model, &spec, a, &p->chunk));
    p->data = pp_arena_take(a, rows, p->sample);
    p->lengths = pp_arena_take(a, rows, sizeof(*p->lengths));
    p->index = pp_arena_take(a, rows, sizeof(*p->index));
    p->x = pp_arena_take(a, rows * (size_t)p->model->inputs, sizeof(*p->x));
    p->y = pp_arena_take(a, rows * targets * (size_t)pp_model_logits_row(p->model, &p->be->choice),
                         sizeof(*p->y));
    return 0;
}

static int take_memory(struct pp_predictor *p)
{
    uint32_t index[ROWS_MAX];
    struct pp_arena a = pp_arena_dry();
    PP_TRY(place_predictor(p, &a));
    PP_TRY(pp_backend_alloc(p->be, a.used, &p->block));
    p->block_bytes = a.used;
    a = (struct pp_arena){.base = p->block, .bytes = a.used};
    PP_TRY(place_predictor(p, &a));
    PP_ALLOC(p->outputs, (size_t)p->rows * (size_t)p->model->outputs);
    for (int i = 0; i < p->rows; i++)
        index[i] = (uint32_t)i;
    PP_TRY(pp_backend_to_device(p->be, p->index, index, (size_t)p->rows * sizeof(*index)));
    return pp_backend_synchronize(p->be);
}

static int create_predictor(struct pp_predictor *p, const char *weights, bool for_new)
{
    const struct pp_config *cfg = p->cfg;
    struct pp_backend_choice choice = pp_backend_choice_of(cfg);
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    int rows = cfg->train.batch_size / (cfg->pipeline.microbatches * cfg->pipeline.replicas);
    p->rows = rows < 1 ? 1 : rows < ROWS_MAX ? rows : ROWS_MAX;
    PP_TRY(pp_backend_resolve(cfg->run.backend, &choice.ops));
    pp_backend_warn_unused(cfg->run.backend, choice.ops);
    PP_TRY(pp_ckpt_open(weights, PP_CKPT_STRUCTURE, &ck));
    PP_TRY(make_model(p, ck, for_new));
    PP_TRY(pp_backend_open_choice(&choice, &p->be));
    p->sample = (size_t)p->model->inputs * sizeof(float);
    PP_TRY(take_memory(p));
    PP_TRY(chunk_read_weights(ck, p->chunk, p->be));
    return pp_weights_check_model(cfg, p->model, ck, false);
}

int pp_predictor_create(const struct pp_config *cfg, const char *weights, bool for_new,
                        struct pp_predictor **out)
{
    struct pp_predictor *p;
    PP_ALLOC(p, 1);
    p->cfg = cfg;
    PP_TRY_UNDO(create_predictor(p, weights, for_new), pp_predictor_destroy(&p));
    *out = p;
    return 0;
}

struct pp_new_samples *pp_predictor_samples(const struct pp_predictor *p)
{
    return p->samples;
}

const struct pp_preprocessing *pp_predictor_names(const struct pp_predictor *p)
{
    return &p->names;
}

int pp_predictor_outputs(const struct pp_predictor *p)
{
    return p->model->outputs;
}

/* Copies samples to the device and makes the model's input of them. */
static int gather_samples(struct pp_predictor *p, const struct pp_dataset *ds, int first, int rows)
{
    size_t bytes = pp_element_bytes(ds->element) * ds->stride, n = (size_t)rows;
    struct pp_gather g = pp_dataset_gather(ds, p->data, rows, p->index, p->x);
    pp_assert(bytes <= p->sample && ds->features == p->model->inputs);
    g.f32 = p->model->tokens;
    PP_TRY(pp_backend_to_device(p->be, p->data, ds->images + (size_t)first * bytes, n * bytes));
    if (ds->lengths)
        PP_TRY(
            pp_backend_to_device(p->be, p->lengths, ds->lengths + first, n * sizeof(*p->lengths)));
    PP_TRY(pp_backend_synchronize(p->be));
    return pp_backend_gather(p->be, &g);
}

int pp_predictor_run(struct pp_predictor *p, const struct pp_dataset *ds, int first, int *out_rows,
                     const float **out_outputs)
{
    const struct pp_model *m = p->model;
    const int rows = ds->n - first < p->rows ? ds->n - first : p->rows;
    const struct pp_pass pass = {
        .rows = rows, .lengths = ds->lengths ? p->lengths : NULL, .index = p->index};
    PP_TRY(pp_chunk_prepare(p->chunk, p->be, rows, false));
    PP_TRY(gather_samples(p, ds, first, rows));
    PP_TRY(pp_chunk_forward(p->chunk, p->be, 0, &pass, p->x, p->y));
    PP_TRY(pp_backend_rows_to_host(p->be, p->outputs, p->y,
                                   (size_t)rows * (size_t)pp_model_targets(m), m->classes,
                                   pp_model_logits_row(m, &p->be->choice)));
    PP_TRY(pp_backend_synchronize(p->be));
    for (size_t i = 0; i < (size_t)rows * (size_t)m->outputs; i++) {
        if (!isfinite(p->outputs[i]))
            return pp_fail(PP_EDIVERGED,
                           "the outputs of sample %zu are not finite: these weights are not those "
                           "of a working model",
                           (size_t)first + i / (size_t)m->outputs);
    }
    *out_rows = rows;
    *out_outputs = p->outputs;
    return 0;
}

static int judge_dataset(struct pp_predictor *p, const struct pp_dataset *ds, struct pp_outcome *o)
{
    bool numbers = pp_loss_takes_numbers(p->cfg->train.loss);
    const float *targets = ds->targets, *outputs;
    for (int first = 0, rows = 0; first < ds->n; first += rows) {
        PP_TRY(pp_predictor_run(p, ds, first, &rows, &outputs));
        for (int r = 0; r < rows; r++) {
            uint32_t i = (uint32_t)(first + r);
            PP_TRY(pp_outcome_add(o, i, numbers ? 0 : pp_dataset_label(ds, i),
                                  numbers ? targets + (size_t)i * (size_t)ds->targets_each : NULL,
                                  outputs + (size_t)r * (size_t)p->model->outputs));
        }
    }
    return 0;
}

int pp_predictor_test(struct pp_predictor *p, double flops, struct pp_outcome **out)
{
    PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
    PP_OWN(pp_outcome_destroy) struct pp_outcome *o = NULL;
    *out = NULL;
    if (pp_model_text_targets(p->model) > 0)
        return 0;
    PP_TRY(pp_dataset_open(p->cfg, PP_SPLIT_TEST, PP_DATA_IMAGES | PP_DATA_LABELS,
                           &p->model->values[0], p->model->classes, &ds));
    if (ds->n == 0 || pp_shape_floats(&ds->shape) != (size_t)p->model->inputs)
        return 0; /* none, or pictures that each step resizes */
    if (pp_model_flops(p->model) / 3 * ds->n > flops)
        return 0;
    PP_TRY(pp_outcome_create(p->cfg->train.loss, p->model->outputs, 0.5, ds->preprocessing, &o));
    PP_TRY(judge_dataset(p, ds, o));
    PP_TRY(mistakes_show(p->cfg, ds, o));
    *out = o;
    o = NULL;
    return 0;
}
