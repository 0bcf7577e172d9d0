/* SPDX-License-Identifier: Apache-2.0 */
/* A benchmark for programs: everything that was measured, so that others can count again. */
#include "bench.h"
#include "table.h"
#include "ppcli/base/files.h"

void bench_put_machine(struct pp_json *j, const struct pp_bench_header *h)
{
    pp_json_int(j, "schema", PP_BENCH_SCHEMA);
    pp_json_str(j, "ppcli", h->version);
    pp_json_str(j, "commit", h->commit);
    pp_json_str(j, "date", h->date);
    pp_json_str(j, "host", h->host);
    pp_json_str(j, "cpu", h->cpu);
    pp_json_int(j, "cores", h->cores);
    pp_json_str(j, "binding", h->binding);
    pp_json_str(j, "governor", h->governor[0] ? h->governor : NULL);
    pp_json_dbl(j, "load_before", h->load);
    pp_json_str(j, "blas", h->blas);
    pp_json_str(j, "backend", h->backend);
    pp_json_str(j, "mpi", h->mpi);
    pp_json_str(j, "gpu", h->gpu);
}

static void put_header(struct pp_json *j, const struct pp_bench *b, const struct pp_bench_header *h)
{
    bench_put_machine(j, h);
    pp_json_str(j, "config", h->config);
    pp_json_str(j, "model", h->model);
    pp_json_str(j, "dataset", h->dataset);
    pp_json_str(j, "optimizer", h->optimizer);
    pp_json_int(j, "rounds", b->repeat);
    pp_json_int(j, "added_rows", b->added); /* first ones that are not of the sweep */
}

static void put_ceilings(struct pp_json *j, const struct pp_ceilings *c)
{
    if (c->cores == 0)
        return;
    pp_json_object(j, "ceilings");
    pp_json_int(j, "cores", c->cores);
    pp_json_str(j, "isa", c->isa);
    pp_json_array(j, "fma_flops_core");
    for (int i = 0; i < c->fma_cores; i++)
        pp_json_dbl(j, NULL, c->fma_core[i]);
    pp_json_end(j);
    pp_json_dbl(j, "fma_flops_all", c->fma_all);
    pp_json_int(j, "gemm_n", c->gemm_n);
    pp_json_dbl(j, "blas_flops_core", c->blas_core);
    pp_json_dbl(j, "blas_flops_all", c->blas_all);
    pp_json_dbl(j, "own_flops_core", c->own_core);
    pp_json_dbl(j, "own_flops_all", c->own_all);
    pp_json_dbl(j, "gemm_flops_core", c->gemm_core);
    pp_json_dbl(j, "gemm_flops_all", c->gemm_all);
    pp_json_uint(j, "triad_bytes", c->triad_bytes);
    pp_json_dbl(j, "triad_bytes_per_second_core", c->triad_core);
    pp_json_dbl(j, "triad_bytes_per_second_all", c->triad_all);
    pp_json_dbl(j, "ping_pong_seconds", c->ping_pong);
    pp_json_dbl(j, "seconds", c->took);
    pp_json_end(j);
}

static void put_device(struct pp_json *j, const struct pp_device_ceilings *c)
{
    if (!c->name[0])
        return;
    pp_json_object(j, "device_ceilings");
    pp_json_str(j, "device", c->name);
    pp_json_int(j, "gemm_n", c->gemm_n);
    pp_json_object(j, "gemm_flops");
    for (int i = 0; i < 3; i++)
        pp_json_dbl(j, pp_precision_name((enum pp_precision)i), c->gemm[i]);
    pp_json_end(j);
    pp_json_uint(j, "copy_bytes", c->copy_bytes);
    pp_json_dbl(j, "copy_bytes_per_second", c->copy);
    pp_json_dbl(j, "launch_seconds", c->launch);
    pp_json_dbl(j, "op_seconds", c->op);
    pp_json_int(j, "graph_nodes", c->nodes);
    pp_json_dbl(j, "graph_node_seconds", c->node);
    pp_json_dbl(j, "seconds", c->took);
    pp_json_end(j);
}

static void put_samples(struct pp_json *j, const struct pp_bench *b, const struct pp_bench_row *row)
{
    pp_json_array(j, "samples");
    for (int k = 0; row->samples && k < b->repeat; k++) {
        const struct pp_bench_sample *s = &row->samples[k];
        pp_json_object(j, NULL);
        pp_json_bool(j, "valid", s->valid);
        pp_json_dbl(j, "samples_per_second", s->samples_per_second);
        pp_json_dbl(j, "seconds", s->seconds);
        pp_json_dbl(j, "step_seconds_min", s->step_min);
        pp_json_dbl(j, "step_seconds_p50", s->step_p50);
        pp_json_dbl(j, "step_seconds_p90", s->step_p90);
        pp_json_dbl(j, "step_seconds_p99", s->step_p99);
        pp_json_dbl(j, "step_seconds_max", s->step_max);
        pp_json_dbl(j, "bubble_measured", s->bubble.idle);
        pp_json_dbl(j, "bubble_predicted", s->bubble_predicted);
        pp_json_dbl(j, "bound", s->bound);
        if (s->waited >= 0)
            pp_json_dbl(j, "waited_for_core", s->waited);
        pp_json_dbl(j, "loss", s->loss);
        pp_json_str(j, "weights_sha256", s->sha);
        pp_json_end(j);
    }
    pp_json_end(j);
}

/* i: of the table. */
static int put_row(struct pp_json *j, const struct pp_bench *b, const struct bench_axes *axes,
                   const struct table *t, int i)
{
    const struct pp_bench_row *row = i < b->n ? &b->rows[i] : &b->references[i - b->n];
    PP_TAKE(char, value, PP_CONFIG_VALUE_MAX);
    table_json(t, i, j);
    pp_json_object(j, "axes");
    for (int k = 0; k < axes->n; k++) {
        PP_TRY(pp_config_key_value(row->cfg, axes->keys[k], value, PP_CONFIG_VALUE_MAX));
        pp_json_str(j, pp_config_key_name(axes->keys[k]), value);
    }
    pp_json_end(j);
    pp_json_int(j, "ranks", row->ranks);
    pp_json_bool(j, "exact", row->exact);
    pp_json_str(j, "ranks_are", row->processes ? "processes" : "threads");
    pp_json_int(j, "warmup_steps", row->warmup);
    pp_json_int(j, "steps", row->steps);
    pp_json_dbl(j, "flops_per_sample", row->flops);
    pp_json_dbl(j, "bytes_per_sample", row->bytes);
    if (row->samples && row->samples[b->repeat - 1].valid)
        pp_json_str(j, "weights_sha256", row->samples[b->repeat - 1].sha);
    put_samples(j, b, row);
    return 0;
}

int bench_print_json(const struct pp_bench *b, const struct pp_bench_header *h,
                     const struct bench_axes *axes, const struct table *t, FILE *f)
{
    struct pp_json j = pp_json_begin(f, 2);
    pp_json_str(&j, "type", "bench");
    put_header(&j, b, h);
    put_ceilings(&j, &b->ceilings);
    put_device(&j, &b->device);
    pp_json_array(&j, "rows");
    for (int i = 0; i < b->n; i++) {
        pp_json_object(&j, NULL);
        PP_TRY(put_row(&j, b, axes, t, i));
        pp_json_end(&j);
    }
    pp_json_end(&j);
    pp_json_array(&j, "references"); /* what x1 is relative to, where it is not a row itself */
    for (int r = 0; r < b->n_references; r++) {
        if (b->reference_row[r] < 0) {
            pp_json_object(&j, NULL);
            PP_TRY(put_row(&j, b, axes, t, b->n + r));
            pp_json_end(&j);
        }
    }
    pp_json_end(&j);
    pp_json_end(&j);
    return 0;
}
