/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Continues texts. One chunk holds all layers, and its attention keeps keys and values, so a token
 * is one row of a forward pass. A prompt is read many tokens at a time, so that weights are read
 * once for all of them.
 *
 * A PyTorch program (model.type = graph) keeps nothing: it reads the whole context each time, as one
 * sample, with any tokens after it. So the logits of a position must not depend on later tokens.
 */
#include "ppcli/train/train.h"

#include <math.h>
#include <string.h>

#include "ppcli/nn/chunk.h"
#include "ppcli/data/dataset.h"
#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"
#include "ppcli/ckpt/checkpoint.h"
#include "train.h"

struct pp_generator {
    struct pp_ckpt *ck; /* open while it is read */
    struct pp_vocabulary vocabulary;
    struct pp_model *model;
    struct pp_backend *be;
    struct pp_chunk *chunk;
    void *block; /* device memory */
    size_t block_bytes;
    float *x, *y;   /* device memory: [rows], [rows][tokens] */
    float *logits;  /* [tokens] */
    float *context; /* [capacity] tokens read so far */
    int n, capacity, rows;
    bool whole; /* the context is one sample, read as a whole */
};

struct target {
    struct pp_backend *be;
    float *values;
};

static int put_weights(void *ctx, size_t first, const float *values, size_t n)
{
    const struct target *to = ctx;
    PP_TRY(pp_backend_to_device(to->be, to->values + first, values, n * sizeof(*values)));
    return pp_backend_synchronize(to->be); /* the caller reuses `values` */
}

int chunk_read_weights(const struct pp_ckpt *ck, struct pp_chunk *chunk, struct pp_backend *be)
{
    PP_TRY(pp_weights_check_extras(chunk->model, ck, false));
    for (int i = 0; i < pp_chunk_param_count(chunk); i++) {
        size_t offset, n;
        const struct pp_param *p = pp_chunk_param(chunk, i, &offset, &n);
        struct target to = {be, chunk->params + offset};
        PP_TRY(pp_weights_read(ck, p->name, p, put_weights, &to));
    }
    return pp_chunk_weights_changed(chunk, be);
}

/* Creates the model. Its tokens are defined by the checkpoint, or by a tokenizer next to weights of
 * another program, or else by the data. */
static int make_model(struct pp_generator *g, const struct pp_config *cfg)
{
    const struct pp_ckpt_state *s = pp_ckpt_state(g->ck);
    const char *text = s ? s->vocabulary : NULL, *path = g->ck->path;
    PP_TRY(text           ? pp_vocabulary_from(path, text, &g->vocabulary)
           : g->ck->plain ? pp_vocabulary_beside(path, &g->vocabulary)
                          : 0);
    if (g->vocabulary.n == 0)
        PP_TRY(pp_dataset_vocabulary(cfg, &g->vocabulary));
    struct pp_data_input data = {.vocabulary = g->vocabulary.n};
    if (data.vocabulary == 0)
        PP_TRY(pp_dataset_input(cfg, &data));
    PP_TRY(g->whole ? pp_model_create(cfg, &data, &g->model)
                    : pp_model_create_cached(cfg, &data, &g->model));
    if (g->whole && pp_model_text_targets(g->model) != cfg->model.block_size)
        return pp_fail(PP_ECONFIG,
                       "%s: no text can be continued: forward() has to take tokens "
                       "[samples][positions] and to return logits for each position",
                       cfg->model.from);
    if (g->vocabulary.n > g->model->classes) {
        return pp_fail(PP_ECONFIG, "the text has %d different tokens, the model %d",
                       g->vocabulary.n, g->model->classes);
    }
    return 0;
}

/* Returns the number of elements in a row of logits. */
static size_t row_of_logits(const struct pp_generator *g)
{
    return (size_t)pp_model_logits_row(g->model, &g->be->choice);
}

/* Takes memory for the chunk, its input and its output. A dry arena only counts the bytes. */
static int place_generator(struct pp_generator *g, struct pp_arena *a)
{
    const struct pp_chunk_spec spec = {.last = g->model->n_layers - 1,
                                       .max_rows = g->whole ? 1 : g->rows,
                                       .state_slots = 1,
                                       .backend = &g->be->choice};
    size_t rows = (size_t)(g->whole ? g->capacity : g->rows);
    PP_TRY(pp_chunk_create(g->model, &spec, a, &g->chunk));
    g->x = pp_arena_take(a, rows, sizeof(float));
    g->y = pp_arena_take(a, rows * row_of_logits(g), sizeof(float));
    return 0;
}

/* Runs the forward pass of the whole context, whose tokens after the first n count as well. */
static int forward_context(struct pp_generator *g)
{
    const struct pp_pass pass = {.rows = 1};
    PP_TRY(pp_chunk_prepare(g->chunk, g->be, 1, false));
    PP_TRY(pp_backend_to_device(g->be, g->x, g->context, (size_t)g->capacity * sizeof(*g->x)));
    PP_TRY(pp_backend_synchronize(g->be));
    return pp_chunk_forward(g->chunk, g->be, 0, &pass, g->x, g->y);
}

/* Runs the forward pass of the next n tokens of the context. */
static int forward_tokens(struct pp_generator *g, int n)
{
    const struct pp_pass pass = {.rows = n, .position = g->n};
    if (g->whole) {
        g->n += n;
        return forward_context(g);
    }
    PP_TRY(pp_chunk_prepare(g->chunk, g->be, n, false));
    PP_TRY(pp_backend_to_device(g->be, g->x, g->context + g->n, (size_t)n * sizeof(*g->x)));
    PP_TRY(pp_backend_synchronize(g->be));
    g->n += n;
    return pp_chunk_forward(g->chunk, g->be, 0, &pass, g->x, g->y);
}

/* Reads a row of the logits that the last forward pass gave. */
static int read_logits(const struct pp_generator *g, int row, float *out)
{
    return pp_backend_values_to_host(g->be, out,
                                     pp_value_at(g->be, g->y, (size_t)row * row_of_logits(g)),
                                     (size_t)g->model->classes);
}

/*
 * Checks that the logits of a position are the same whatever tokens follow, bit by bit, at a few
 * positions. One position that looks ahead shows in all that it sees, so a few are enough.
 */
static int check_causal(struct pp_generator *g, const char *program)
{
    const int n = g->capacity, classes = g->model->classes, ends[] = {1, n / 2, n - 1};
    PP_TAKE(float, logits, 2 * classes);
    for (int k = 0; k < 3 && n > 1; k++) {
        int end = ends[k] > 0 ? ends[k] : 1;
        for (int other = 0; other < 2; other++) {
            for (int i = 0; i < n; i++)
                g->context[i] = (float)((i >= end ? 7 * i + other : 3 * i) % classes);
            PP_TRY(forward_context(g));
            PP_TRY(read_logits(g, end - 1, logits + (ptrdiff_t)other * classes));
        }
        if (memcmp(logits, logits + classes, (size_t)classes * sizeof(*logits)) != 0)
            return pp_fail(
                PP_ECONFIG,
                "%s: no text can be continued: position %d sees the tokens after it; each "
                "attention needs a causal mask (is_causal=True)",
                program, end - 1);
    }
    memset(g->context, 0, (size_t)n * sizeof(*g->context));
    return 0;
}

static int create_generator(struct pp_generator *g, const struct pp_config *cfg,
                            const char *weights)
{
    struct pp_backend_choice choice = pp_backend_choice_of(cfg);
    PP_TRY(pp_backend_resolve(cfg->run.backend, &choice.ops));
    pp_backend_warn_unused(cfg->run.backend, choice.ops);
    if (cfg->run.threads == 0 && pp_backend_sums_in_order(&choice))
        choice.threads = pp_machine_whole_cores(); /* the generator is one rank */
    g->whole = strcmp(cfg->model.type, "graph") == 0;
    PP_TRY(pp_ckpt_open(weights, PP_CKPT_STRUCTURE, &g->ck));
    PP_TRY(make_model(g, cfg));
    PP_TRY(pp_backend_open_choice(&choice, &g->be));
    g->capacity = cfg->model.block_size;
    g->rows = g->capacity < PP_READ_AT_ONCE ? g->capacity : PP_READ_AT_ONCE;
    struct pp_arena a = pp_arena_dry();
    PP_TRY(place_generator(g, &a));
    PP_TRY(pp_backend_alloc(g->be, a.used, &g->block));
    g->block_bytes = a.used;
    a = (struct pp_arena){.base = g->block, .bytes = a.used};
    PP_TRY(place_generator(g, &a));
    PP_ALLOC(g->context, g->capacity);
    PP_ALLOC(g->logits, g->model->classes);
    PP_TRY(chunk_read_weights(g->ck, g->chunk, g->be));
    PP_TRY(pp_weights_check_model(cfg, g->model, g->ck, false));
    pp_ckpt_close(&g->ck);
    return g->whole ? check_causal(g, cfg->model.from) : 0;
}

int pp_generator_create(const struct pp_config *cfg, const char *weights, struct pp_generator **out)
{
    struct pp_generator *g;
    PP_ALLOC(g, 1);
    PP_TRY_UNDO(create_generator(g, cfg, weights), pp_generator_destroy(&g));
    *out = g;
    return 0;
}

void pp_generator_destroy(struct pp_generator **generator)
{
    struct pp_generator *g = *generator;
    if (!g)
        return;
    pp_chunk_destroy(&g->chunk);
    if (g->block)
        pp_backend_free(g->be, g->block, g->block_bytes);
    pp_backend_close(&g->be);
    pp_model_destroy(&g->model);
    pp_ckpt_close(&g->ck);
    pp_vocabulary_fini(&g->vocabulary);
    pp_free(g->context);
    pp_free(g->logits);
    pp_free(g);
    *generator = NULL;
}

int pp_generator_tokens(const struct pp_generator *g)
{
    return g->model->classes;
}

const struct pp_vocabulary *pp_generator_vocabulary(const struct pp_generator *g)
{
    return &g->vocabulary;
}

int pp_generator_read(struct pp_generator *g, const uint32_t *tokens, int n,
                      const float **out_logits)
{
    if (g->n == g->capacity) {
        int kept = g->capacity / 2;
        memmove(g->context, g->context + g->capacity - kept, (size_t)kept * sizeof(*g->context));
        for (g->n = g->whole ? kept : 0; g->n < kept;)
            PP_TRY(forward_tokens(g, kept - g->n < g->rows ? kept - g->n : g->rows));
    }
    pp_assert(n >= 1 && n <= g->rows && g->n + n <= g->capacity);
    for (int i = 0; i < n; i++) {
        pp_assert(tokens[i] < (uint32_t)g->model->classes);
        g->context[g->n + i] = (float)tokens[i];
    }
    PP_TRY(forward_tokens(g, n));
    PP_TRY(read_logits(g, g->whole ? g->n - 1 : n - 1, g->logits));
    for (int i = 0; i < g->model->classes; i++) {
        if (!isfinite(g->logits[i])) {
            return pp_fail(PP_EDIVERGED,
                           "the logits after %d tokens are not finite: these weights "
                           "are not those of a working model",
                           g->n);
        }
    }
    *out_logits = g->logits;
    return 0;
}
