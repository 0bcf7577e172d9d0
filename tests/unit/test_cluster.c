/* SPDX-License-Identifier: Apache-2.0 */
/* Machine files, read and written; and what a model's layers take on such a machine, by hand. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ppcli/conf/cluster.h"
#include "ppcli/base/base.h"
#include "ppcli/conf/config.h"
#include "ppcli/plan/machine_plan.h"
#include "ppcli/plan/search.h"

static const char good[] = "; a machine\n[device]\nf32 = 1G\nbf16 = 10G ; twice\nbandwidth = 1G\n"
                           "memory = 2Gi\nproduct = 0.5\nattention = 0.25\nconv = 1\npasses = 0.5\n"
                           "launch = 1e-3\n[host]\nranks = 4\n[within]\nlatency = 1e-6\n"
                           "bandwidth = 2M\n";

static int read_text(const char *text, struct pp_cluster *out)
{
    char path[] = "/tmp/ppcli-machine-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    int rc = pp_cluster_read(path, out);
    unlink(path);
    return rc;
}

/* `good` with `with` in place of the line that begins with `key`; NULL: without it. */
static int read_changed(const char *key, const char *with, struct pp_cluster *out)
{
    char text[sizeof(good) + 200];
    const char *at = strstr(good, key), *end = strchr(at, '\n');
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - good), good, with ? with : "",
             with ? end : end + 1);
    return read_text(text, out);
}

static void refused(const char *key, const char *with, const char *says)
{
    struct pp_cluster c;
    CHECK_INT_EQ(read_changed(key, with, &c), PP_ECONFIG);
    if (!strstr(pp_error_get()->text, says))
        fail_msg("'%s' does not say '%s'", pp_error_get()->text, says);
}

TEST(what_is_written_is_read)
{
    struct pp_cluster c, again;
    char path[] = "/tmp/ppcli-machine-XXXXXX";
    CHECK_OK(read_changed("ranks", "ranks = 8\n[layers]\nh.0 = 4 1e-3 2e-3 3e-3 123456789012", &c));
    assert_float_equal(c.memory, 0x1p31, 0);
    assert_float_equal(c.peak[PP_PRECISION_BF16], 1e10, 0);
    assert_float_equal(c.peak[PP_PRECISION_TF32], 0, 0);
    assert_float_equal(c.ranks, 8, 0);
    CHECK_INT_EQ(c.n_layers, 1);
    CHECK_INT_EQ(c.layers[0].rows, 4);
    FILE *f = fdopen(mkstemp(path), "w");
    assert_non_null(f);
    CHECK_OK(pp_cluster_write(&c, f));
    fclose(f);
    CHECK_OK(pp_cluster_read(path, &again));
    unlink(path);
    assert_float_equal(again.within.byte, c.within.byte, 0);
    assert_float_equal(again.between.byte, 0, 0);
    assert_string_equal(again.layers[0].name, "h.0");
    assert_float_equal(again.layers[0].t[2], 3e-3, 0);
    assert_float_equal(again.layers[0].work, 123456789012, 0);
    pp_cluster_fini(&c);
    pp_cluster_fini(&again);
}

TEST(what_is_missing_or_absurd_is_named_with_its_line)
{
    refused("memory", NULL, "device.memory is missing: bytes for one rank, such as 80G");
    refused("bandwidth = 1G", "bandwidth = 3.35",
            ":5: device.bandwidth: '3.35' is not possible; write");
    refused("f32", "f32 = fast", ":3: device.f32: 'fast' is not possible");
    refused("f32", "f32 = -1G", "is not possible");
    refused("f32", "f32 = 1Gx", "is not possible");
    refused("product", "product = 1.5", "share of the peak");
    refused("ranks", "ranks = 2.5", "is not possible");
    refused("ranks", "ranks = 4\nranks = 8", ":14: host.ranks is given twice");
    refused("launch", "lunch = 1", "unknown key device.lunch in a machine file");
    refused("[host]", "[hosts]", ":12: unknown section [hosts]; did you mean [host]?");
    refused("ranks", "ranks 4", ":13: 'ranks 4' has no '='");
    refused("ranks", "ranks = 4 # of them", "'#' begins a comment only at the start of a line");
    refused("ranks", "ranks = 4\n[layers]\nh.0 = 4 1e-3 2e-3", "a layer is NAME = ROWS F I W");
    refused("ranks", "ranks = 4\n[layers]\nh.0 = 4 1 1 1 -1", "a layer is NAME = ROWS F I W");
    refused("ranks", "ranks = 4\n[layers]\nh.0 = 4 1 1 1 1 1", "a layer is NAME = ROWS F I W");
}

/* A row of 8 ranks' all-reduce: 2 * 7 hops, busbw 14 / 8 of algbw; a message between two. */
TEST(links_are_read_from_nccl_tests)
{
    static const char head[] =
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 8589934592 step: 2(factor)\n"
        "#       size         count      type   redop    root     time   algbw   "
        "busbw #wrong\n#        (B)    (elements)\n";
    static const struct {
        const char *rows;
        double latency, bandwidth;
    } tables[] = {
        {"           8             2     float     sum      -1    28.00    0.00    0.00      0\n"
         "  1073741824     268435456     float     sum      -1   5160.2  208.08  364.14      0\n"
         "# Avg bus bandwidth    : 182\n",
         2e-6, 364.14e9},
        {"           8             2     float    none      -1     9.50    0.00    0.00    N/A\n"
         "   134217728      33554432     float    none      -1   3050.4   44.00   44.00    N/A\n",
         9.5e-6, 44e9},
        {"[1,0]<stdout>:  8  2  float  sum  -1  28.00  0.00  0.00  0\n"
         "[1,0]<stdout>:  1073741824  268435456  float  sum  -1  5160.2  208.08  364.14  0\n",
         2e-6, 364.14e9},
        {"0:  8  2  float  sum  -1  28.00  0.00  0.00  0\n"
         "0:  1073741824  268435456  float  sum  -1  5160.2  208.08  364.14  0\n",
         2e-6, 364.14e9},
        {"size,count,type,redop,root,time,algbw,busbw,#wrong\r\n8,2,float,sum,-1,28.00,0,0,0\r\n"
         "1073741824,268435456,float,sum,-1,5160.2,208.08,364.14,0\r\n",
         2e-6, 364.14e9},
        {"{\"results\": [{\"size\": 8, \"redop\": \"sum\", \"out_of_place\": {\"time\": 28.0,"
         " \"alg_bw\": 0.0, \"bus_bw\": 0.0}}, {\"size\": 1073741824, \"redop\": \"sum\","
         " \"out_of_place\": null, \"in_place\": {\"time\": 5160.2, \"alg_bw\": 208.08,"
         " \"bus_bw\": 364.14}}]}",
         2e-6, 364.14e9},
    };
    for (size_t i = 0; i < LEN(tables); i++) {
        struct pp_cluster c;
        char path[] = "/tmp/ppcli-links-XXXXXX", text[200];
        FILE *f = fdopen(mkstemp(path), "w");
        assert_non_null(f);
        fprintf(f, "%s%s", strchr("{s", tables[i].rows[0]) ? "" : head, tables[i].rows);
        fclose(f);
        snprintf(text, sizeof(text), "ranks = 4\n[between]\nnccl_tests = %s", path + 5);
        CHECK_OK(read_changed("ranks", text, &c));
        assert_float_equal(c.between.latency, tables[i].latency, tables[i].latency * 1e-4);
        assert_float_equal(1 / c.between.byte, tables[i].bandwidth, 1);
        pp_cluster_fini(&c);
        refused("ranks", strcat(text, "\nlatency = 1"), "between.latency is given twice");
        unlink(path);
        CHECK_INT_EQ(read_changed("ranks", text, &c), PP_ENOINPUT);
    }
    refused("ranks", "ranks = 4\n[between]\nnccl_tests = /dev/null", "no rows of nccl-tests");
}

/* Two layers, 8 -> 4 -> 2. */
static struct pp_model *model_of(void)
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    struct pp_model *m = NULL;
    assert_non_null(cfg);
    snprintf(cfg->model.type, sizeof(cfg->model.type), "mlp");
    cfg->model.n_sizes = 3;
    memcpy(cfg->model.sizes, (int[]){8, 4, 2}, 3 * sizeof(int));
    CHECK_OK(pp_model_create(cfg, NULL, &m));
    return m;
}

TEST(a_layer_takes_what_is_longer_flops_or_bytes)
{
    PP_OWN(pp_model_destroy) struct pp_model *m = model_of();
    struct pp_cluster c;
    struct pp_costs *costs = NULL;
    CHECK_OK(read_text(good, &c));
    c.launch = 0;
    c.peak[PP_PRECISION_F32] = 64; /* half of it reached: 32 flop/s */
    struct pp_cluster_use use = {.model = m, .optimizer = PP_OPT_ADAMW, .rows = 4, .ranks = 4};
    CHECK_OK(pp_costs_of_cluster(&c, &use, &costs));
    assert_float_equal(pp_costs_layer(costs, 0, 1).f, 2, 1e-6); /* 2 * 8 * 4 / 32 */
    assert_float_equal(pp_costs_layer(costs, 0, 4).w, 8, 1e-6);
    assert_float_equal(pp_costs_layer(costs, 0, 1).i, 0, 1e-6); /* nobody asks */
    assert_float_equal(pp_costs_layer(costs, 1, 2).i, 1, 1e-6);
    pp_costs_destroy(&costs);

    c.peak[PP_PRECISION_F32] = 1e18;
    c.bandwidth = 8; /* half of it: 4 bytes, a float a second */
    c.launch = 10;
    CHECK_OK(pp_costs_of_cluster(&c, &use, &costs));
    double weights = (double)m->layers[0].n_floats;
    assert_float_equal(pp_costs_layer(costs, 0, 1).f, 10 + 12 + weights, 1e-6);
    assert_float_equal(pp_costs_layer(costs, 0, 4).f, 10 + 48 + weights, 1e-6);
    assert_float_equal(costs->optimizer, 7, 1e-9); /* value and two moments twice, gradient once */
    assert_float_equal(costs->near.byte, 0.5e-6, 1e-12);
    pp_costs_destroy(&costs);

    use.precision = PP_PRECISION_TF32;
    CHECK_INT_EQ(pp_costs_of_cluster(&c, &use, &costs), PP_ECONFIG);
    pp_cluster_fini(&c);
}

TEST(a_measured_layer_takes_what_was_measured)
{
    PP_OWN(pp_model_destroy) struct pp_model *m = model_of();
    struct pp_cluster c;
    PP_OWN(pp_costs_destroy) struct pp_costs *costs = NULL;
    CHECK_OK(
        read_changed("ranks", "ranks = 1\n[layers]\nlayers.0 = 4 8 12 16\nlayers.0 = 1 1 1 1", &c));
    struct pp_cluster_use use = {.model = m, .optimizer = PP_OPT_SGD, .rows = 8, .ranks = 1};
    CHECK_OK(pp_costs_of_cluster(&c, &use, &costs));
    assert_float_equal(pp_costs_layer(costs, 0, 1).w, 1, 1e-9);
    assert_float_equal(pp_costs_layer(costs, 0, 4).i, 12, 1e-9);
    assert_float_equal(pp_costs_layer(costs, 0, 8).f, 16, 1e-9); /* in proportion */
    assert_true(pp_costs_layer(costs, 1, 4).f > 0);              /* from the shares */
    pp_cluster_fini(&c);
}

/* Names are layers.0, h.0, ... in every model: one of another width is not what was measured. */
TEST(a_layer_of_another_shape_is_computed)
{
    struct pp_model *m = model_of();
    struct pp_cluster c;
    struct pp_costs *costs = NULL;
    char lines[200];
    snprintf(lines, sizeof(lines),
             "ranks = 1\n[layers]\nlayers.0 = 1 100 100 100 %.17g\n"
             "layers.1 = 1 100 100 100 %.17g",
             pp_layer_work(m, 0), pp_layer_work(m, 1) + 1);
    CHECK_OK(read_changed("ranks", lines, &c));
    struct pp_cluster_use use = {.model = m, .optimizer = PP_OPT_SGD, .rows = 8, .ranks = 1};
    CHECK_OK(pp_costs_of_cluster(&c, &use, &costs));
    assert_float_equal(pp_costs_layer(costs, 0, 1).w, 100, 1e-9);
    assert_true(pp_costs_layer(costs, 1, 1).w < 1);
    pp_costs_destroy(&costs);
    pp_cluster_fini(&c);
    pp_model_destroy(&m);
}

/* Processors have bf16 products, too: only tf32 tells that the ranks of a machine are devices. */
TEST(processors_with_bf16_are_not_taken_for_devices)
{
    PP_OWN(pp_model_destroy) struct pp_model *m = model_of();
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    struct pp_machine_plan p = {.cfg = cfg, .model = m, .ranks = 1, .batch = 4};
    struct pp_row row = {.d = {.stages = 1, .replicas = 1, .microbatches = 1}};
    struct pp_cluster_use use = {
        .model = m, .precision = PP_PRECISION_BF16, .optimizer = PP_OPT_SGD, .rows = 4, .ranks = 1};
    assert_non_null(cfg);
    p.space = pp_space_of(cfg, m, 4, 0);
    CHECK_OK(read_text(good, &p.cluster));
    for (int device = 0; device < 2; device++) {
        struct pp_costs *costs = NULL;
        p.cluster.peak[PP_PRECISION_TF32] = device ? 1e10 : 0;
        CHECK_OK(pp_costs_of_cluster(&p.cluster, &use, &costs));
        assert_float_equal(costs->value_bytes, device ? 2 : 4, 0);
        pp_costs_destroy(&costs);
        struct pp_space spec = pp_machine_plan_spec(&p, &row, 1);
        const struct pp_backend_ops *named = spec.training.backend.named;
        if (!device)
            assert_true(!named || !named->own_memory);
    }
    pp_cluster_fini(&p.cluster);
}
