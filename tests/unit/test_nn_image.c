/* SPDX-License-Identifier: Apache-2.0 */
/* Image models as descriptions: torchvision's names and sizes, the words of a sequential model, and
 * what is refused. */
#include "nn_models.h"
#include "../../src/nn/model.h"

static const struct pp_shape cifar = {3, {32, 32, 3}}, large = {3, {224, 224, 3}};

static struct pp_config *resnet(int depth, enum pp_stem stem)
{
    struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    snprintf(cfg->model.type, sizeof(cfg->model.type), "resnet");
    cfg->model.depth = depth;
    cfg->model.stem = stem;
    cfg->model.norm_momentum = 0.1;
    return cfg;
}

static size_t learnt(const struct pp_model *m)
{
    size_t n = 0;
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].kind != PP_PARAM_BUFFER)
            n += pp_param_floats(&m->params[i]);
    return n;
}

static const struct pp_param *param(const struct pp_model *m, const char *name)
{
    for (int i = 0; i < m->n_params; i++)
        if (strcmp(m->params[i].name, name) == 0)
            return &m->params[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

static const struct pp_node *last_node(const struct pp_model *m, const char *layer)
{
    int i = pp_model_find_layer(m, layer);
    assert_true(i >= 0);
    return &m->nodes[m->layers[i].last_node];
}

/* Figures of torchvision.models, of its CIFAR relatives by arithmetic. */
TEST(resnets_have_torchvisions_names_and_sizes)
{
    const struct {
        int depth, classes;
        enum pp_stem stem;
        const struct pp_shape *image;
        size_t params;
        int layers;
        double gflop; /* of an image, forward, no padding: torch's convolutions of ones by ones */
    } nets[] = {
        {18, 1000, PP_STEM_IMAGENET, &large, 11689512, 13, 3.36078},
        {34, 1000, PP_STEM_IMAGENET, &large, 21797672, 21, 6.74984},
        {50, 1000, PP_STEM_IMAGENET, &large, 25557032, 21, 7.89650},
        {101, 1000, PP_STEM_IMAGENET, &large, 44549160, 38, 14.95552},
        {50, 10, PP_STEM_IMAGENET, &cifar, 23528522, 21, 0.13346},
        {18, 10, PP_STEM_CIFAR, &cifar, 11173962, 12, 0.96372},
    };
    for (int i = 0; i < COUNT(nets); i++) {
        PP_OWN_MEMORY struct pp_config *cfg = resnet(nets[i].depth, nets[i].stem);
        PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
        CHECK_OK(pp_model_create(
            cfg, &(struct pp_data_input){.shape = *nets[i].image, .classes = nets[i].classes}, &m));
        CHECK_INT_EQ(learnt(m), nets[i].params);
        CHECK_INT_EQ(m->n_layers, nets[i].layers);
        CHECK_INT_EQ(m->classes, nets[i].classes);
        double flops = 0;
        for (int l = 0; l < m->n_layers; l++)
            flops += pp_layer_cost(m, l).flops_f;
        assert_float_equal(flops / 1e9, nets[i].gflop, 1e-5);
        param(m, "conv1.weight");
        param(m, "bn1.running_var");
        param(m, "layer3.1.bn2.num_batches_tracked");
        param(m, "layer4.0.downsample.0.weight");
        CHECK_INT_EQ(param(m, "fc.bias")->dims[0], nets[i].classes);
    }
}

/* A batch norm ends with a single float, the number of batches. */
TEST(the_parameters_of_every_node_begin_at_16_bytes)
{
    PP_OWN_MEMORY struct pp_config *cfg = resnet(50, PP_STEM_IMAGENET);
    PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
    size_t floats = 0;
    CHECK_OK(pp_model_create(cfg, &(struct pp_data_input){.shape = cifar, .classes = 10}, &m));
    for (int i = 0; i < m->n_nodes; i++)
        if (m->nodes[i].n_params > 0)
            CHECK_INT_EQ(m->params[m->nodes[i].first_param].at * sizeof(float) % 16, 0);
    for (int i = 0; i < m->n_params; i++)
        floats += pp_param_floats(&m->params[i]);
    CHECK_INT_EQ(pp_model_floats(m), floats);
    CHECK_INT_EQ(m->n_padding, 3 * 53 + 2); /* after each norm, and after fc's ten biases */
}

TEST(the_stride_and_the_padding_are_where_they_are_asked_for)
{
    for (int paper = 0; paper < 2; paper++) {
        PP_OWN_MEMORY struct pp_config *cfg = resnet(50, PP_STEM_IMAGENET);
        PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
        cfg->model.stride = paper ? PP_STRIDE_1X1 : PP_STRIDE_3X3;
        cfg->model.padding = paper ? PP_PAD_SAME : PP_PAD_SYMMETRIC;
        CHECK_OK(pp_model_create(cfg, &(struct pp_data_input){.shape = large, .classes = 10}, &m));
        CHECK_INT_EQ(last_node(m, "conv1")->window.conv.pad_top, paper ? 2 : 3);
        CHECK_INT_EQ(last_node(m, "maxpool")->window.conv.pad_left, paper ? 0 : 1);
        CHECK_INT_EQ(last_node(m, "maxpool")->window.conv.OH, 56);
        for (int i = 0; i < m->n_nodes; i++) {
            const struct pp_node *n = &m->nodes[i];
            if (n->window.conv.kh == 1 && n->window.conv.stride == 2 && n->n_params > 0)
                assert_true(paper || n->window.conv.O == 2 * n->window.conv.C); /* a projection */
            if (n->window.conv.kh == 3 && n->n_params > 0)
                CHECK_INT_EQ(n->window.conv.stride == 2,
                             !paper && n->window.conv.H == 2 * n->window.conv.OH);
        }
    }
}

static int build(const char *words, const struct pp_shape *image, struct pp_model **m)
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    snprintf(cfg->model.type, sizeof(cfg->model.type), "sequential");
    snprintf(cfg->model.layers, sizeof(cfg->model.layers), "%s", words);
    cfg->model.norm_momentum = 0.1;
    int rc = pp_model_create(cfg, &(struct pp_data_input){.shape = *image, .classes = 10}, m);
    return rc;
}

TEST(words_become_layers)
{
    PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
    CHECK_OK(build("conv:8x3 relu conv:16x5/2,pad=same,groups=2,bias=off batchnorm relu maxpool:2 "
                   "conv:16x3 groupnorm:4 gelu add:3 avgpool:2 dropout:0.1 flatten linear:32 tanh "
                   "linear:10",
                   &cifar, &m));
    static const char *const names[] = {"layers.0", "layers.2", "layers.6", "layers.13",
                                        "layers.15"};
    CHECK_INT_EQ(m->n_layers, COUNT(names));
    for (int i = 0; i < COUNT(names); i++)
        CHECK_STR_EQ(m->layers[i].name, names[i]);
    CHECK_INT_EQ(param(m, "layers.2.weight")->dims[3], 4);
    CHECK_INT_EQ(m->nodes[1].window.conv.OH, 16);
    CHECK_INT_EQ(m->nodes[1].bias, false);
    CHECK_INT_EQ(m->nodes[0].activation, PP_ACT_RELU);
    /* what is behind a flatten has its columns in another order in files */
    const struct pp_param *w = param(m, "layers.13.weight");
    CHECK_INT_EQ(w->dims[1], 4 * 4 * 16);
    CHECK_INT_EQ(w->columns.n, 3);
    CHECK_INT_EQ(param(m, "layers.15.weight")->columns.n, 0);
    const struct pp_node *sum = NULL;
    for (int i = 0; i < m->n_nodes; i++)
        sum = m->nodes[i].n_x == 2 ? &m->nodes[i] : sum;
    assert_non_null(sum);
    CHECK_INT_EQ(sum->x[1], m->layers[2].x);
    assert_true(sum->shared[1] && !sum->shared[0]);
}

TEST(what_cannot_be_is_refused_in_one_line)
{
    static const struct {
        const char *words, *says;
    } bad[] = {
        {"", "names no layer"},
        {"conv:8x3 relu", "the last word must be a linear"},
        {"conv:8x3 convolution:3 linear:10", "word 1, 'convolution:3', is none of conv, linear"},
        {"conv relu linear:10", "word 0, 'conv', is not understood; write such as conv:32x3"},
        {"maxpool linear:10", "such as maxpool:2"},
        {"relu add linear:10", "such as add:4"},
        {"linear", "such as linear:10"},
        {"flatten conv:8x3 linear:10", "word 1, 'conv:8x3', is for images"},
        {"flatten tanh layernorm linear:10", "word 2, 'layernorm', is for images"},
        {"conv:16777216x3 linear:10", "32 x 32 x 16777216 is larger than 2^31 - 1 numbers"},
        {"conv:2000000x3 conv:8x40,pad=same linear:10", "sums 40 x 40 x 2000000 numbers"},
        {"conv:8 linear:10", "word 0, 'conv:8', is not understood; write such as conv:32x3"},
        {"conv:8x3/0 linear:10", "is not understood"},
        {"conv:8x3,pad=3 linear:10", "with a pad below the kernel"},
        {"maxpool:2,pad=2 linear:10", "with a pad below the kernel"},
        {"relu conv:8x3,pad=1,pad=2 linear:10",
         "word 1, 'conv:8x3,pad=1,pad=2', has an option twice; write such as conv:32x3"},
        {"conv:8x3,groups=1,pad=1,groups=1 linear:10", "has an option twice"},
        {"conv:8x3,bias=off,bias=off linear:10", "has an option twice"},
        {"maxpool:3,pad=same,pad=1 linear:10", "has an option twice; write such as maxpool:2"},
        {"dropout:1 linear:10", "such as dropout:0.1"},
        {"dropout:1e-39 linear:10", "such as dropout:0.1"}, /* 0 as a float */
        {"relu:3 linear:10", "such as relu"},
        {"maxpool:40 linear:10", "reduces an image of 32 x 32 x 3 to nothing"},
        {"maxpool:2 maxpool:2 maxpool:2 maxpool:2 maxpool:2 maxpool:2 linear:10", "to nothing"},
        {"relu conv:8x3,groups=2 linear:10",
         "word 1, 'conv:8x3,groups=2': a convolution: 2 groups"},
        {"conv:8x3 relu groupnorm:3 linear:10", "word 2, 'groupnorm:3': layers.2: 3 groups"},
        {"add:1 linear:10", "reaches before the first word"},
        {"conv:8x3 add:1 linear:10", "32 x 32 x 3"},
        {"linear:10 conv:8x3 linear:10", "needs an image, but gets 10"},
    };
    for (int i = 0; i < COUNT(bad); i++) {
        struct pp_model *m = NULL;
        CHECK_FAILS(build(bad[i].words, &cifar, &m), PP_ECONFIG, bad[i].says);
        assert_null(m);
    }
    struct pp_model *m = NULL;
    PP_OWN_MEMORY struct pp_config *cfg = resnet(18, PP_STEM_CIFAR);
    CHECK_FAILS(pp_model_create(cfg, NULL, &m), PP_ECONFIG, "reads the shape of a sample");
    static const struct pp_shape flat = {1, {3072, 1, 1}};
    CHECK_FAILS(pp_model_create(cfg, &(struct pp_data_input){.shape = flat, .classes = 10}, &m),
                PP_ECONFIG, "needs an image, but gets 3072");
}

/* Whether the words of two sequential models are the same function. */
static bool same_words(const char *a, const char *b)
{
    PP_OWN(pp_model_destroy) struct pp_model *x = NULL, *y = NULL;
    CHECK_OK(build(a, &cifar, &x));
    CHECK_OK(build(b, &cifar, &y));
    bool same = pp_model_same_function(x, y);
    return same;
}

TEST(models_that_compute_the_same_are_told_from_others)
{
    static const char base[] = "conv:8x3 relu maxpool:2 groupnorm:2 linear:10";
    static const struct {
        const char *words;
        bool same;
    } rows[] = {{"conv:8x3,pad=1 relu maxpool:2/2 groupnorm:2 linear:10", true},
                {"conv:4x3 relu maxpool:2 groupnorm:2 linear:10", true}, /* but for sizes */
                {"conv:8x3 gelu maxpool:2 groupnorm:2 linear:10", false},
                {"conv:8x3 relu avgpool:2 groupnorm:2 linear:10", false},
                {"conv:8x3 relu maxpool:2 groupnorm:4 linear:10", false},
                {"conv:8x3,pad=0 relu maxpool:2 groupnorm:2 linear:10", false},
                {"conv:8x3 relu maxpool:3/2,pad=1 groupnorm:2 linear:10", false},
                {"conv:8x3,bias=off relu maxpool:2 groupnorm:2 linear:10", false},
                {"conv:8x3 relu maxpool:2 groupnorm:2 linear:10 relu linear:10", false}};
    for (int i = 0; i < COUNT(rows); i++)
        if (same_words(base, rows[i].words) != rows[i].same)
            fail_msg("'%s' and '%s'", base, rows[i].words);
    /* the first window lies at the same place, but there is one more */
    assert_false(
        same_words("conv:8x2,pad=same maxpool:3 linear:10", "conv:8x2,pad=0 maxpool:3 linear:10"));
    PP_OWN_MEMORY struct pp_config *cfg = resnet(50, PP_STEM_IMAGENET);
    struct pp_model *m[5] = {NULL};
    for (int i = 0; i < 5; i++) {
        cfg->model.stride = i == 1 ? PP_STRIDE_1X1 : PP_STRIDE_3X3;
        cfg->model.padding = i == 2 ? PP_PAD_SAME : PP_PAD_SYMMETRIC;
        cfg->model.norm = i == 3 ? PP_NORM_GROUP : PP_NORM_BATCH;
        cfg->model.norm_momentum = i == 4 ? 0.5 : 0.1; /* of training */
        CHECK_OK(
            pp_model_create(cfg, &(struct pp_data_input){.shape = large, .classes = 10}, &m[i]));
        CHECK_INT_EQ(pp_model_same_function(m[0], m[i]), i == 0 || i == 4);
    }
    for (int i = 0; i < 5; i++)
        pp_model_destroy(&m[i]);
}
