/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each op costs: every node of a model by itself, called through its table with arrays of its
 * own, at the size of the config's largest micro-batch. F, I and W follow each other as in a step;
 * the median of the passes counts. What is small stays in the cache here, and may not in a run.
 */
#include "bench.h"
#include "ppcli/base/base.h"

#define PASSES_MIN 3
#define PASSES_MAX 31
#define FILL 65536 /* floats */

/* A node and its arrays, in memory of the device. */
struct bed {
    struct pp_backend *be;
    const struct pp_model *model;
    const struct pp_node *n;
    struct pp_pass pass;
    struct pp_at at;
    struct pp_weight_part part;
    int64_t *step;
    float *params, *packed, *grads;
    const float *fill; /* host: [FILL] small numbers */
    bool cpu;          /* the processor's time of this thread counts, not the wall clock's */
};

static float *take_floats(struct pp_arena *a, size_t floats)
{
    return floats > 0 ? pp_arena_take(a, floats, sizeof(float)) : NULL;
}

/* Takes all memory that the node needs. A dry arena only counts the bytes. */
static void place_values(struct bed *b, struct pp_arena *a)
{
    const struct pp_node *n = b->n;
    size_t rows = (size_t)b->pass.rows, out = rows * pp_node_elements(b->model, n, &b->be->choice);
    struct pp_workspace w = {0};
    if (n->op->workspace)
        n->op->workspace(n, &b->be->choice, b->pass.rows, &w);
    b->at = (struct pp_at){.pass = &b->pass, .y = take_floats(a, out), .dy = take_floats(a, out)};
    for (int j = 0; j < n->n_x; j++) {
        size_t in = rows * pp_shape_floats(&b->model->values[n->x[j]]);
        b->at.x[j] = take_floats(a, in);
        b->at.dx[j] = n->wants_dx[j] ? take_floats(a, in) : NULL;
        b->at.add[j] = n->shared[j];
    }
    b->at.keep = take_floats(a, w.keep);
    b->at.grad_keep = take_floats(a, w.grad_keep);
    b->at.scratch = take_floats(a, w.scratch);
    b->at.packed = b->packed = take_floats(a, w.packed);
    b->at.params = b->params = take_floats(a, n->n_floats);
    b->grads = take_floats(a, n->n_floats);
    b->pass.step = b->step = pp_arena_take(a, 1, sizeof(*b->step));
    b->part = (struct pp_weight_part){.B = b->pass.rows * n->positions,
                                      .dz = n->reads & PP_READS_DY_IN_W ? b->at.dy : NULL,
                                      .x = n->reads & PP_READS_X_IN_W ? b->at.x[0] : NULL,
                                      .x1 = n->reads & PP_READS_X1_IN_W ? b->at.x[1] : NULL,
                                      .keep = b->at.keep,
                                      .grad_keep = b->at.grad_keep};
}

static int fill_values(struct bed *b, float *to, size_t floats)
{
    for (size_t i = 0; i < floats; i += FILL) {
        size_t n = floats - i < FILL ? floats - i : FILL;
        PP_TRY(pp_backend_to_device(b->be, to + i, b->fill, n * sizeof(float)));
    }
    return 0;
}

/* Fills the input of an embedding with tokens from all over its table. */
static int fill_tokens(struct bed *b)
{
    size_t n = (size_t)b->pass.rows * pp_shape_floats(&b->n->in);
    PP_TAKE(float, tokens, n);
    for (size_t i = 0; i < n; i++)
        tokens[i] =
            (float)(((uint32_t)i * 2654435761u >> 8) % (uint32_t)b->n->embedding.vocabulary);
    return pp_backend_to_device(b->be, (float *)b->at.x[0], tokens, n * sizeof(*tokens));
}

static int call_op(struct bed *b, int phase)
{
    const struct pp_node_op *op = b->n->op;
    return phase == 0   ? op->forward(b->n, b->be, &b->at)
           : phase == 1 ? op->backward_input(b->n, b->be, &b->at)
                        : op->backward_weight(b->n, b->be, 1, &b->part, 1, b->at.scratch, b->grads);
}

static int time_pass(struct bed *b, const bool has[OP_PHASES], double t[OP_PHASES])
{
    /* I may have changed dy in place; after many passes it would fade to zero */
    size_t width = pp_node_elements(b->model, b->n, &b->be->choice);
    PP_TRY(fill_values(b, b->at.dy, (size_t)b->pass.rows * width));
    for (int k = 0; k < OP_PHASES; k++) {
        PP_TRY(pp_backend_synchronize(b->be));
        uint64_t start = b->cpu ? pp_clock_cpu_ns() : pp_clock_ns();
        if (has[k])
            PP_TRY(call_op(b, k));
        PP_TRY(b->be->caps.async ? pp_backend_synchronize(b->be) : 0);
        t[k] = (double)((b->cpu ? pp_clock_cpu_ns() : pp_clock_ns()) - start) * 1e-9;
    }
    return 0;
}

static int time_node(struct bed *b, double seconds, struct op_cost *out)
{
    const struct pp_node *n = b->n;
    double t[OP_PHASES][PASSES_MAX], one[OP_PHASES], spent = 0;
    const bool has[OP_PHASES] = {true, n->learns && n->op->backward_input,
                                 n->trains && n->op->backward_weight};
    PP_TRY(pp_backend_zero(b->be, b->step, sizeof(*b->step)));
    if (b->packed)
        PP_TRY(n->op->pack(n, b->be, b->params, b->packed));
    if (n->op->prepare)
        PP_TRY(n->op->prepare(n, b->be, b->pass.rows, b->params, b->packed, b->grads));
    PP_TRY(time_pass(b, has, one)); /* to warm up */
    int passes = 0;
    while (passes < PASSES_MAX && (passes < PASSES_MIN || spent < seconds)) {
        PP_TRY(time_pass(b, has, one));
        for (int k = 0; k < OP_PHASES; k++) {
            t[k][passes] = one[k];
            spent += one[k];
        }
        passes++;
    }
    for (int k = 0; k < OP_PHASES; k++)
        out->seconds[k] = has[k] ? pp_median(t[k], passes) : 0;
    return 0;
}

void ops_count(const struct pp_model *m, const struct pp_node *n, size_t element, double rows,
               struct op_cost *out)
{
    struct pp_layer_cost c = {0};
    if (n->op->cost)
        n->op->cost(n, &c);
    out->product = c.flops_f > 0;
    double bytes[OP_PHASES], weights = 0;
    for (int i = 0; i < n->n_params; i++)
        weights += (double)pp_param_floats(&m->params[n->first_param + i]) * sizeof(float);
    pp_node_traffic(m, n, element, bytes);
    out->work[0] = rows * (out->product ? c.flops_f : bytes[0]);
    out->work[1] = rows * (out->product ? c.flops_i : bytes[1]);
    out->work[2] = rows * (out->product ? c.flops_w : bytes[2]);
    if (!out->product && n->op->backward_weight) /* the gradient itself */
        out->work[2] += weights;
    /* products read all weights; W reads and writes their gradients */
    for (int k = 0; k < OP_PHASES; k++) {
        double passes = out->work[k] > 0 ? (k == 2 ? 2 : 1) : 0;
        out->bytes[k] = !out->product ? out->work[k] : rows * bytes[k] + passes * weights;
    }
}

static int measure_node(struct bed *b, double seconds, struct op_cost *out)
{
    struct pp_arena a = pp_arena_dry();
    void *block = NULL;
    place_values(b, &a);
    PP_TRY(pp_backend_alloc(b->be, a.used, &block));
    a = (struct pp_arena){.base = block, .bytes = a.used};
    place_values(b, &a);
    int rc = fill_values(b, block, a.bytes / sizeof(float)); /* every page is touched */
    if (rc == 0 && b->n->embedding.vocabulary > 0)
        rc = fill_tokens(b);
    if (rc == 0)
        rc = time_node(b, seconds, out);
    ops_count(b->model, b->n, pp_backend_value_bytes(&b->be->choice), b->pass.rows, out);
    pp_backend_free(b->be, block, a.bytes);
    return rc;
}

static int measure_all_nodes(const struct pp_config *cfg, const struct pp_run *run, double seconds,
                             struct op_cost *costs)
{
    struct pp_backend_choice choice = pp_backend_choice_of(cfg);
    struct bed b = {.model = run->model,
                    .pass = {.rows = run->layout->max_rows, .training = true, .seed = 1}};
    PP_OWN(pp_backend_close) struct pp_backend *be = NULL;
    PP_TAKE(float, small, FILL);
    PP_TRY(choice.ops
               ? pp_backend_open_choice(&choice, &be)
               : pp_fail(PP_ERESOURCE, "run.backend = %s cannot run here", cfg->run.backend));
    /* neither zeros nor denormals nor anything that grows */
    for (int i = 0; i < FILL; i++)
        small[i] = (float)(((uint32_t)i * 2654435761u >> 16) % 255 + 1) / 25600 * (i % 2 ? 1 : -1);
    b.be = be;
    b.fill = small;
    b.cpu = !be->caps.async && choice.threads == 1;
    for (int i = 0; i < run->model->n_nodes; i++) {
        b.n = &run->model->nodes[i];
        PP_TRY(measure_node(&b, seconds / 10, &costs[i]));
    }
    return 0;
}

static int measure_ceilings(const struct pp_config *cfg, struct bench_top *out)
{
    struct pp_bench b = {.n = 0};
    PP_TRY(pp_bench_ceilings(cfg, true, &b));
    bool device = b.device.name[0];
    out->flops = device ? b.device.gemm[cfg->run.precision]
                        : pp_ceiling_gemm(&b.ceilings, pp_backend_choice_of(cfg).threads);
    out->bytes = device ? b.device.copy : b.ceilings.triad_core;
    return 0;
}

int ops_run_make(const struct pp_config *cfg, double seconds, struct ops_run *o)
{
    if (pp_mpi_launched())
        return pp_fail(PP_EUSAGE, "ops are measured in one process: leave out mpirun");
    PP_TRY(pp_config_copy(cfg, &o->cfg));
    PP_TRY(bench_plain_pipeline(o->cfg, 1));
    PP_TRY(pp_run_prepare(o->cfg, PP_RUN_EXPLAIN, &o->run));
    o->costs = pp_alloc((size_t)o->run.model->n_nodes, sizeof(*o->costs));
    return o->costs ? measure_all_nodes(o->cfg, &o->run, seconds, o->costs) : PP_ERESOURCE;
}

void ops_run_fini(struct ops_run *o)
{
    pp_free(o->costs);
    pp_run_fini(&o->run);
    pp_free(o->cfg);
}

int pp_bench_ops(const struct pp_config *cfg, double seconds, bool ceilings,
                 const struct pp_bench_header *h, enum pp_bench_format format, FILE *f)
{
    PP_OWN(ops_run_fini) struct ops_run o = {.cfg = NULL};
    struct bench_top top = {0};
    PP_TRY(ops_run_make(cfg, seconds, &o));
    if (ceilings)
        PP_TRY(measure_ceilings(o.cfg, &top));
    return ops_print(&top, &o.run, o.costs, h, format, f);
}
