/* SPDX-License-Identifier: Apache-2.0 */
/* Models as descriptions: names, shapes, initial bounds; the learning rate over a run. */
#include "nn_models.h"
#include "../../src/nn/model.h"

#include <math.h>

#include "ppcli/nn/chunk.h"
#include "ppcli/conf/config.h"
#include "ppcli/base/base.h"
#include "../../src/nn/nn.h"

TEST(parameters_are_named_and_shaped_as_pytorch_does)
{
    const int sizes[] = {784, 128, 10};
    struct pp_model *m = make_model(PP_ACT_TANH, sizes, 3);
    CHECK_INT_EQ(m->n_layers, 2);
    CHECK_INT_EQ(m->inputs, 784);
    CHECK_INT_EQ(m->classes, 10);
    CHECK_INT_EQ(pp_model_floats(m), 785 * 128 + 129 * 10);
    const struct pp_param *p = m->params;
    CHECK_INT_EQ(m->n_params, 4);
    CHECK_STR_EQ(p[0].name, "layers.0.weight");
    CHECK_INT_EQ(p[0].n_dims, 2);
    CHECK_INT_EQ(p[0].dims[0], 128);
    CHECK_INT_EQ(p[0].dims[1], 784);
    CHECK_STR_EQ(p[1].name, "layers.0.bias");
    CHECK_INT_EQ(p[1].n_dims, 1);
    CHECK_INT_EQ(p[1].dims[0], 128);
    CHECK_INT_EQ(m->nodes[0].activation, PP_ACT_TANH);
    CHECK_STR_EQ(m->layers[1].name, "layers.1");
    CHECK_STR_EQ(p[2].name, "layers.1.weight");
    CHECK_INT_EQ(m->nodes[1].activation, PP_ACT_NONE);
    struct pp_layer_cost first = pp_layer_cost(m, 0), second = pp_layer_cost(m, 1);
    /* 3 * forward - 2 * d0 * d1: nobody needs the gradient of the images */
    assert_true(first.flops_f + first.flops_i + first.flops_w == 4.0 * 784 * 128);
    assert_true(second.flops_f + second.flops_i + second.flops_w == 6.0 * 128 * 10);
    pp_model_destroy(&m);
    assert_null(m);
}

TEST(initial_bounds_are_kaiming_uniform)
{
    const int sizes[] = {600, 30, 10};
    const struct {
        enum pp_activation act;
        double gain;
    } cases[] = {{PP_ACT_RELU, M_SQRT2}, {PP_ACT_GELU, M_SQRT2}, {PP_ACT_TANH, 5 / 3.0}};
    for (int i = 0; i < COUNT(cases); i++) {
        PP_OWN(pp_model_destroy) struct pp_model *m = make_model(cases[i].act, sizes, 3);
        double bound = cases[i].gain * sqrt(3.0 / 600);
        assert_float_equal(m->params[0].b, (float)bound, 1e-7f);
        assert_float_equal(m->params[0].a, -(float)bound, 1e-7f);
        assert_float_equal(m->params[2].b, (float)sqrt(3.0 / 30), 1e-7f);
        PP_OWN_MEMORY float *p = pp_alloc(m->layers[0].n_floats, sizeof(*p));
        pp_param_init(&m->params[0], 3, p);
        pp_param_init(&m->params[1], 3, p + 18000);
        double squares = 0, most = 0;
        for (int k = 0; k < 18000; k++) {
            squares += (double)p[k] * p[k];
            most = fmax(most, fabs((double)p[k]));
        }
        assert_true(most <= (double)(float)bound && most > 0.999 * bound);
        assert_true(fabs(sqrt(squares / 18000) * sqrt(3) / bound - 1) < 0.01);
        for (int k = 18000; k < 18030; k++)
            assert_true(p[k] == 0);
        /* as model.h says: word e of stream ("init:" + name, 0) */
        float e7;
        pp_rng_uniform(3, pp_rng_stream("init:layers.0.weight", 0), 7, -(float)bound, (float)bound,
                       1, &e7);
        assert_true(p[7] == e7);
    }
}

/* Bounds and deviations of torch.nn.init's functions, and of Linear's own reset_parameters(). */
TEST(initial_values_follow_the_rule_of_the_model)
{
    const int sizes[] = {600, 200, 10};
    const double torch = 1 / sqrt(600);
    const struct {
        enum pp_init_rule rule;
        enum pp_init init;
        double b, bias;
    } cases[] = {{PP_INIT_KAIMING_NORMAL, PP_INIT_NORMAL, sqrt(2 / 600.0), 0},
                 {PP_INIT_XAVIER_UNIFORM, PP_INIT_UNIFORM, sqrt(6 / 800.0), 0},
                 {PP_INIT_XAVIER_NORMAL, PP_INIT_NORMAL, sqrt(2 / 800.0), 0},
                 {PP_INIT_TORCH, PP_INIT_UNIFORM, torch, torch},
                 {PP_INIT_TORCHVISION, PP_INIT_UNIFORM, torch, torch}};
    PP_OWN_MEMORY struct pp_config *cfg = make_config(PP_ACT_RELU, sizes, 3);
    for (int i = 0; i < COUNT(cases); i++) {
        PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
        cfg->model.init = cases[i].rule;
        CHECK_OK(pp_model_create(cfg, NULL, &m));
        const struct pp_param *w = &m->params[0], *bias = &m->params[1];
        bool normal = cases[i].init == PP_INIT_NORMAL;
        assert_true(w->init == cases[i].init);
        assert_float_equal(w->b, (float)cases[i].b, 1e-8f);
        assert_float_equal(w->a, normal ? 0 : -(float)cases[i].b, 1e-8f);
        PP_OWN_MEMORY float *p = pp_alloc(m->layers[0].n_floats, sizeof(*p));
        pp_param_init(w, 3, p);
        pp_param_init(bias, 3, p + 120000);
        double squares = 0, most = 0;
        for (int k = 0; k < 120000; k++)
            squares += (double)p[k] * p[k];
        for (int k = 120000; k < 120200; k++)
            most = fmax(most, fabs((double)p[k]));
        double deviation = cases[i].b / (normal ? 1 : sqrt(3));
        assert_true(fabs(sqrt(squares / 120000) / deviation - 1) < 0.01);
        assert_true(most <= (double)(float)cases[i].bias && most >= 0.9 * cases[i].bias);
    }
}

/* What torchvision's ResNets do: kaiming_normal_(mode="fan_out", nonlinearity="relu"). */
TEST(convolutions_of_torchvision_begin_by_their_outputs)
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    cfg->model.init = PP_INIT_TORCHVISION;
    struct builder b = {.cfg = cfg};
    struct pp_param w = {.n_dims = 4, .dims = {64, 7, 7, 3}};
    init_weight(&b, &w, 147, PP_ACT_NONE);
    assert_true(w.init == PP_INIT_NORMAL && w.a == 0);
    assert_float_equal(w.b, (float)sqrt(2 / (64 * 49.0)), 1e-8f);
    cfg->model.init = PP_INIT_XAVIER_UNIFORM;
    init_weight(&b, &w, 147, PP_ACT_NONE);
    assert_float_equal(w.b, (float)sqrt(6 / (147 + 64 * 49.0)), 1e-8f);
}

TEST(an_unknown_model_is_a_clear_error)
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    struct pp_model *m = NULL;
    snprintf(cfg->model.type, sizeof(cfg->model.type), "cnn");
    CHECK_FAILS(pp_model_create(cfg, NULL, &m), PP_ECONFIG, "'cnn'");
    assert_null(m);
    CHECK_STR_EQ(pp_model_names()[0], "mlp");
}

/* ---- what the optimizer is for */

static void check_decay(const char *backend, bool weights, bool buffer)
{
    const int sizes[] = {12, 8, 4};
    const struct pp_optimizer_args sgd = {
        .kind = PP_OPT_SGD, .lr = 0.5f, .weight_decay = 1, .grad_scale = 1, .step = 1};
    PP_OWN(pp_model_destroy) struct pp_model *m = make_model(PP_ACT_RELU, sizes, 3);
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(backend);
    struct pp_chunk_spec spec = {.last = 1,
                                 .max_rows = 1,
                                 .grad_slots = 1,
                                 .decay_weights = weights,
                                 .backend = &be->choice};
    struct pp_arena dry = pp_arena_dry(), arena;
    PP_OWN(pp_chunk_destroy) struct pp_chunk *c = NULL;
    CHECK_OK(pp_chunk_create(m, &spec, &dry, &c));
    CHECK_OK(pp_arena_create(dry.used, &arena));
    CHECK_OK(pp_chunk_create(m, &spec, &arena, &c));
    if (buffer) { /* a bias counts as a running statistic */
        m->params[1].kind = PP_PARAM_BUFFER;
        for (int i = 0; i < 8; i++)
            c->grads[12 * 8 + i] = NAN;
    }
    for (size_t i = 0; i < c->n_floats; i++)
        c->params[i] = 1;
    CHECK_OK(pp_chunk_optimizer_step(c, be, &sgd));
    for (int p = 0; p < 4; p++) {
        size_t at, n;
        const struct pp_param *param = pp_chunk_param(c, p, &at, &n);
        bool untouched = param->kind == PP_PARAM_BUFFER || (weights && p % 2 == 1);
        for (size_t i = at; i < at + n; i++)
            assert_true(c->params[i] == (untouched ? 1 : 0.5f));
    }
    pp_arena_destroy(&arena);
}

/* The gradients are 0, so that a step is weight decay alone: half of each parameter that has it. */
TEST(weight_decay_and_the_optimizer_are_for_the_kinds_they_are_for)
{
    for (int k = 0; k < 8; k++)
        check_decay(k & 4 ? "cpu" : "reference", k & 1, k & 2);
}

/* ---- learning rate */

TEST(learning_rate_warms_up_and_falls)
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    cfg->train.lr = 0.5;
    assert_float_equal(pp_lr_at(cfg, 1, 10, 5), 0.5, 0);
    assert_float_equal(pp_lr_at(cfg, 10, 10, 5), 0.5, 0);
    cfg->train.warmup_steps = 5;
    assert_float_equal(pp_lr_at(cfg, 1, 25, 5), 0.1, 1e-7);
    assert_float_equal(pp_lr_at(cfg, 5, 25, 5), 0.5, 0);
    cfg->train.lr_schedule = PP_LR_LINEAR;
    assert_float_equal(pp_lr_at(cfg, 5, 25, 5), 0.5, 0);
    assert_float_equal(pp_lr_at(cfg, 6, 25, 5), 0.5, 0);
    assert_float_equal(pp_lr_at(cfg, 16, 25, 5), 0.25, 1e-7);
    cfg->train.lr_steps = 25; /* the length of the run decides nothing */
    assert_float_equal(pp_lr_at(cfg, 16, 99, 5), 0.25, 1e-7);
    cfg->train.lr_steps = 0;
    assert_float_equal(pp_lr_at(cfg, 25, 25, 5), 0.025, 1e-7); /* the last step still learns */
    cfg->train.lr_schedule = PP_LR_COSINE;
    assert_float_equal(pp_lr_at(cfg, 16, 25, 5), 0.25, 1e-7);
    assert_float_equal(pp_lr_at(cfg, 11, 25, 5), 0.5 * 0.8535533906, 1e-7);
    assert_float_equal(pp_lr_at(cfg, 26, 25, 5), 0, 1e-7);
    assert_true(pp_lr_at(cfg, 3, 3, 5) > 0); /* shorter than the warm-up */
    cfg->train.warmup_steps = 0;
    assert_float_equal(pp_lr_at(cfg, 1, 1, 5), 0.5, 0);
}

/* nanoGPT's get_lr(), PyTorch's CosineAnnealingLR and get_wsd_schedule() of transformers. */
TEST(learning_rate_falls_to_its_floor)
{
    static const double cosine[10] = {
        0.5,   0.48898771616640957, 0.45702882373436315, 0.40725168176580645, 0.34452882373436317,
        0.275, 0.20547117626563688, 0.1427483182341936,  0.09297117626563686, 0.06101228383359046};
    static const double wsd[2][8] = {
        {0.5, 0.44375, 0.3875, 0.33125, 0.275, 0.21875, 0.1625, 0.10625000000000001},
        {0.5, 0.34090097423302684, 0.275, 0.2244324039368925, 0.18180194846605358,
         0.1442437632310573, 0.11028856829700263, 0.07906354398793161}};
    static const struct {
        int64_t step;
        double rate;
    } gpt[] = {{101, 0.001},
               {102, 0.000999999907510999},
               {2501, 0.000564423209907245},
               {4001, 0.00018936387015941957},
               {5000, 0.00010000009248900101}};
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    cfg->train.lr = 0.5;
    cfg->train.lr_floor = 0.05;
    cfg->train.lr_schedule = PP_LR_COSINE;
    for (int i = 0; i < 10; i++)
        assert_float_equal(pp_lr_at(cfg, i + 1, 10, 5), cosine[i], 1e-15);
    cfg->train.lr_schedule = PP_LR_LINEAR;
    assert_float_equal(pp_lr_at(cfg, 6, 10, 5), 0.275, 1e-15);
    assert_float_equal(pp_lr_at(cfg, 11, 10, 5), 0.05, 1e-15);
    cfg->train.lr_schedule = PP_LR_WSD;
    cfg->train.decay_steps = 8;
    for (int shape = 0; shape < 2; shape++) {
        cfg->train.decay_shape = shape ? PP_DECAY_SQRT : PP_DECAY_LINEAR;
        for (int i = 0; i < 20; i++)
            assert_float_equal(pp_lr_at(cfg, i + 1, 20, 5), i < 12 ? 0.5 : wsd[shape][i - 12],
                               1e-15);
    }
    cfg->train.warmup_steps = 4;
    assert_float_equal(pp_lr_at(cfg, 1, 20, 5), 0.125, 1e-15);
    cfg->train.lr = 1e-3;
    cfg->train.lr_floor = 1e-4;
    cfg->train.warmup_steps = 100;
    cfg->train.lr_steps = 5000;
    cfg->train.lr_schedule = PP_LR_COSINE;
    for (size_t i = 0; i < sizeof(gpt) / sizeof(gpt[0]); i++)
        assert_float_equal(pp_lr_at(cfg, gpt[i].step, 6000, 250), gpt[i].rate, 1e-15);
    assert_float_equal(pp_lr_at(cfg, 5500, 6000, 250), 1e-4, 1e-15);
}

/* Every key that does nothing and every step without a learning rate is said, and nothing else. Runs
 * have 10 epochs of 10 steps; words NULL: there is nothing to say. */
TEST(learning_rates_without_effect_are_said)
{
    static const struct {
        enum pp_lr_schedule schedule;
        bool by_epoch;
        int64_t lr_steps, warmup, milestone, done, max_steps;
        double lr, gamma;
        const char *words, *rates;
    } table[] = {
        {PP_LR_CONSTANT, false, 0, 0, 0, 0, 0, 1, 0.1, NULL, "1 in every step"},
        {PP_LR_LINEAR, false, 0, 10, 0, 0, 0, 1, 0.1, NULL, "0.1 at step 1, 0.5667 at step 50, "},
        {PP_LR_COSINE, false, 100, 0, 0, 98, 0, 1, 0.1, NULL, "0.0009866 at step 99, 0.0002467 at"},
        {PP_LR_LINEAR, false, 150, 0, 0, 0, 0, 1, 0.1, NULL, "0.34 at step 100"},
        {PP_LR_LINEAR, true, 0, 0, 0, 0, 15, 1, 0.1, NULL, "1 at step 8, 0.5 at step 15"},
        {PP_LR_COSINE, false, 20, 20, 0, 0, 0, 1, 0.1, "lr_steps = 20 ends within the warm-up",
         "1 at step 100"},
        {PP_LR_LINEAR, true, 20, 2, 0, 0, 0, 1, 0.1, "warm-up of 2 epochs", "0.3333 at step 1,"},
        {PP_LR_LINEAR, false, 50, 0, 0, 0, 0, 1, 0.1, "is 0 in steps 51 to 100,",
         ", 0 at step 100"},
        {PP_LR_COSINE, false, 50, 0, 0, 80, 0, 1, 0.1, "is 0 in steps 81 to 100,",
         ": 0 at step 81"},
        {PP_LR_COSINE, true, 45, 0, 0, 0, 0, 1, 0.1, "is 0 in steps 51 to 100,", ", 0 at step 100"},
        {PP_LR_COSINE, false, 1 << 20, 0, 0, 0, 0, 1, 0.1, "so much longer than the run",
         "1 at step 100"},
        {PP_LR_COSINE, true, 0, 0, 0, 0, 10, 1, 0.1, "the run has only one;", "1 at step 10"},
        {PP_LR_COSINE, true, 0, 1, 0, 0, 20, 1, 0.1, "only one after the warm-up;", "1 at step 20"},
        {PP_LR_LINEAR, false, 0, 200, 0, 0, 0, 1, 0.1, "and lr_schedule = linear has no effect",
         "0.5 at step 100"},
        {PP_LR_CONSTANT, false, 0, 200, 0, 0, 0, 1, 0.1, "only rises, to 0.5; use",
         "0.5 at step 100"},
        {PP_LR_CONSTANT, true, 0, 10, 0, 0, 0, 1, 0.1, "the whole run (10 epochs) lies in",
         "0.9091 at"},
        {PP_LR_CONSTANT, false, 0, 1, 0, 0, 0, 1, 0.1, "warmup_steps = 1 has no effect",
         "1 at step 1"},
        {PP_LR_MULTISTEP, false, 0, 0, 100, 0, 0, 1, 0.1, "lr_schedule = multistep has no effect",
         "1 at"},
        {PP_LR_MULTISTEP, true, 0, 0, 50, 0, 0, 1, 0.1, "or lr_by = step if they count steps",
         "1 at"},
        {PP_LR_MULTISTEP, false, 0, 0, 5, 0, 0, 1, 0.1, "if they count epochs, use lr_by = epoch",
         "0.1 at"},
        {PP_LR_MULTISTEP, false, 0, 30, 30, 0, 0, 1, 0.1, "30 lies in the warm-up of 30 steps",
         "0.1 at"},
        {PP_LR_MULTISTEP, false, 0, 0, 50, 0, 0, 1, 1, "lr_gamma = 1: lr_schedule",
         "1 at step 100"},
        {PP_LR_MULTISTEP, false, 0, 0, 50, 0, 0, 1, 1e-39, "which is 0 for a float",
         "1e-39 at step"},
        {PP_LR_LINEAR, false, 0, 0, 0, 0, 0, 1e-39, 0.1, "lr = 1e-39: no step learns anything",
         "1e-39 at"},
        /* keys that the schedule does not read are a matter of the config alone */
        {PP_LR_CONSTANT, false, 1000, 20, 0, 0, 0, 1, 0.1, NULL,
         "0.05 at step 1, 1 at step 50, 1 at"},
        {PP_LR_WSD, false, 50, 51, 0, 0, 0, 1, 0.1, "no part of it is stable", "at step 100"},
        {PP_LR_PLATEAU, false, 0, 0, 0, 0, 0, 1, 0.1, NULL, "if it does not fall: 1 at step 1"},
        {PP_LR_CONSTANT, false, 0, 0, 0, 0, 101, 1, 0.1, "max_steps = 101 has no effect",
         "1 in every"},
    };
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct pp_lr_remarks out;
        int64_t most = table[i].max_steps;
        cfg->train.epochs = 10;
        cfg->train.lr = table[i].lr;
        cfg->train.lr_gamma = table[i].gamma;
        cfg->train.lr_schedule = table[i].schedule;
        cfg->train.lr_by = table[i].by_epoch ? PP_LR_BY_EPOCH : PP_LR_BY_STEP;
        cfg->train.lr_steps = table[i].lr_steps;
        cfg->train.warmup_steps = table[i].by_epoch ? 0 : table[i].warmup;
        cfg->train.warmup_epochs = table[i].by_epoch ? (int)table[i].warmup : 0;
        cfg->train.max_steps = most;
        cfg->train.lr_milestones =
            (struct pp_numbers){.n = table[i].milestone > 0, .at = {table[i].milestone}};
        pp_lr_remark(cfg,
                     &(struct pp_lr_span){.done = table[i].done,
                                          .total = most > 0 && most < 100 ? most : 100,
                                          .all_steps = 100,
                                          .epoch_steps = 10},
                     &out);
        if (out.n != (table[i].words != NULL) || !strstr(out.rates, table[i].rates) ||
            (table[i].words && !strstr(out.text[0], table[i].words)))
            fail_msg("row %zu: %d, '%s', '%s'", i, out.n, out.rates, out.text[0]);
    }
}

/* Rates of PyTorch's MultiStepLR and, by epoch, of its schedulers stepped at the end of epochs. */
TEST(learning_rate_goes_by_step_or_by_epoch)
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    enum {
        EPOCH = 7
    };
    cfg->train.lr = 1;
    cfg->train.lr_gamma = 0.5;
    cfg->train.lr_schedule = PP_LR_MULTISTEP;
    cfg->train.lr_milestones = (struct pp_numbers){.n = 2, .at = {2, 4}};
    const double steps[] = {1, 1, 0.5, 0.5, 0.25, 0.25};
    for (int t = 1; t <= 6; t++)
        assert_float_equal(pp_lr_at(cfg, t, 99, EPOCH), steps[t - 1], 0);
    cfg->train.lr_by = PP_LR_BY_EPOCH;
    for (int t = 1; t <= 6 * EPOCH; t++)
        assert_float_equal(pp_lr_at(cfg, t, 99, EPOCH), steps[(t - 1) / EPOCH], 0);
    /* two epochs, one of them warm-up: half of the rate, then all of it */
    cfg->train.lr = 1e-3;
    cfg->train.warmup_epochs = 1;
    for (int schedule = PP_LR_CONSTANT; schedule <= PP_LR_COSINE; schedule++) {
        cfg->train.lr_schedule = (enum pp_lr_schedule)schedule;
        for (int t = 1; t <= 2 * EPOCH; t++)
            assert_float_equal(pp_lr_at(cfg, t, 2 * EPOCH, EPOCH), t <= EPOCH ? 5e-4 : 1e-3, 0);
    }
    /* CosineAnnealingLR(T_max=4), also where the last epoch is cut short */
    cfg->train.warmup_epochs = 0;
    for (int t = 1; t <= 4 * EPOCH - 3; t++) {
        double want = 1e-3 * 0.5 * (1 + cos(M_PI * ((t - 1) / EPOCH) / 4));
        assert_float_equal(pp_lr_at(cfg, t, 4 * EPOCH - 3, EPOCH), want, 1e-12);
    }
    cfg->train.lr_by = PP_LR_BY_STEP; /* epochs of warm-up are so many steps then */
    cfg->train.warmup_epochs = 2;
    PP_OWN_MEMORY struct pp_config *same = pp_alloc(1, sizeof(*same));
    *same = *cfg;
    same->train.warmup_epochs = 0;
    same->train.warmup_steps = 2 * EPOCH;
    for (int t = 1; t <= 4 * EPOCH; t++)
        assert_true(pp_lr_at(cfg, t, 4 * EPOCH, EPOCH) == pp_lr_at(same, t, 4 * EPOCH, EPOCH));
}

TEST(files_have_pytorchs_order)
{
    /* what the two programs call the same value: 100 * row + 10 * pixel + channel */
    enum {
        PIXELS = 6,
        CHANNELS = 4,
        ROW = PIXELS * CHANNELS
    };
    float memory[ROW], file[ROW], back[ROW];
    for (int i = 0; i < ROW; i++)
        memory[i] = (float)(10 * (i / CHANNELS) + i % CHANNELS);
    const struct pp_param conv = {.n_dims = 4, .dims = {5, 2, 3, CHANNELS}};
    const struct pp_param linear = {
        .n_dims = 2, .dims = {5, ROW}, .columns = pp_shape_image(3, 2, CHANNELS)};
    const struct pp_param *both[] = {&conv, &linear};
    int64_t dims[PP_PARAM_DIMS];
    int n;
    for (int k = 0; k < 2; k++) {
        CHECK_INT_EQ(pp_param_in_file(both[k], &n, dims), ROW);
        CHECK_INT_EQ(dims[0], 5);
        CHECK_INT_EQ(dims[1], k == 0 ? CHANNELS : ROW);
        pp_param_row(both[k], true, memory, file);
        for (int i = 0; i < ROW; i++)
            assert_true(file[i] == (float)(10 * (i % PIXELS) + i / PIXELS));
        pp_param_row(both[k], false, file, back);
        assert_memory_equal(back, memory, sizeof(memory));
    }
    /* transposed: all of it is one row */
    const struct pp_param conv1d = {.n_dims = 2, .dims = {PIXELS, CHANNELS}, .transposed = true};
    CHECK_INT_EQ(pp_param_in_file(&conv1d, &n, dims), ROW);
    CHECK_INT_EQ(dims[0], CHANNELS);
    CHECK_INT_EQ(dims[1], PIXELS);
    pp_param_row(&conv1d, true, memory, back);
    assert_memory_equal(back, file, sizeof(file));
    pp_param_row(&conv1d, false, file, back);
    assert_memory_equal(back, memory, sizeof(memory));
    pp_param_in_file(&conv, &n, dims);
    CHECK_INT_EQ(dims[2], 2);
    CHECK_INT_EQ(dims[3], 3);
    /* one pixel, one channel, no image: as in memory */
    const struct pp_param same[] = {
        {.n_dims = 4, .dims = {8, 1, 1, 3}},
        {.n_dims = 4, .dims = {8, 3, 3, 1}},
        {.n_dims = 2, .dims = {8, 7}},
        {.n_dims = 2, .dims = {8, 9}, .columns = pp_shape_image(1, 1, 9)},
        {.n_dims = 1, .dims = {8}},
        {.n_dims = 2, .dims = {8, 1}, .transposed = true},
    };
    for (int k = 0; k < COUNT(same); k++)
        CHECK_INT_EQ(pp_param_in_file(&same[k], &n, dims), 0);
    pp_param_in_file(&same[1], &n, dims);
    CHECK_INT_EQ(dims[1], 1);
    CHECK_INT_EQ(dims[3], 3);
    struct pp_param count = {
        .name = "bn1.num_batches_tracked", .n_dims = 1, .dims = {1}, .kind = PP_PARAM_BUFFER};
    assert_true(pp_param_is_count(&count));
    count.kind = PP_PARAM_PLAIN;
    assert_false(pp_param_is_count(&count));
    const struct pp_param mean = {
        .name = "bn1.running_mean", .n_dims = 1, .dims = {1}, .kind = PP_PARAM_BUFFER};
    assert_false(pp_param_is_count(&mean));
}

/* Layers of one model that do the same work are measured once; what changes the work tells them apart. */
TEST(layers_that_do_other_work_are_told_apart)
{
    PP_OWN_MEMORY struct pp_config *cfg = make_config(PP_ACT_GELU, (const int[]){1, 1}, 2);
    snprintf(cfg->model.type, sizeof(cfg->model.type), "decoder");
    cfg->model.n_layer = 3;
    cfg->model.n_head = 2;
    cfg->model.n_embd = 8;
    cfg->model.block_size = 4;
    cfg->model.vocab_size = 5;
    cfg->model.dropout = 0.1;
    cfg->model.norm_eps = 1e-5;
    cfg->model.batch_first = true;
    PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
    CHECK_OK(pp_model_create(cfg, NULL, &m));
    const int a = 2, b = 3;
    const struct pp_layer *last = &m->layers[b];
    assert_true(pp_layer_same_work(m, a, b));
    assert_false(pp_layer_same_work(m, 0, b));
    for (int i = last->first_node; i <= last->last_node; i++) {
        struct pp_node *n = &m->nodes[i];
        const struct pp_node was = *n;
#define CHANGES(what)                                                                              \
    do {                                                                                           \
        what;                                                                                      \
        if (pp_layer_same_work(m, a, b))                                                           \
            fail_msg("node %d, a %s: " #what " is not seen", i, n->op->name);                      \
        *n = was;                                                                                  \
        assert_true(pp_layer_same_work(m, a, b));                                                  \
    } while (0)
        CHANGES(n->attention.heads++);
        CHANGES(n->attention.kv_heads++);
        CHANGES(n->attention.width++);
        CHANGES(n->attention.keys++);
        CHANGES(n->attention.causal = !n->attention.causal);
        CHANGES(n->attention.batch_first = !n->attention.batch_first);
        CHANGES(n->attention.k.at.position++);
        CHANGES(n->attention.v.sample++);
        CHANGES(n->attention.mask.one_row = !n->attention.mask.one_row);
        CHANGES(n->attention.masked = !n->attention.masked);
        CHANGES(n->attention.scale += 0.1f);
        CHANGES(n->cached++);
        CHANGES(n->positions++);
        CHANGES(n->embedding.vocabulary++);
        CHANGES(n->norm.groups++);
        CHANGES(n->bias = !n->bias);
        CHANGES(n->window.count_padding = !n->window.count_padding);
        CHANGES(n->activation = n->activation == PP_ACT_TANH ? PP_ACT_GELU : PP_ACT_TANH);
        CHANGES(n->window.conv.stride++);
        CHANGES(n->window.conv.pad_left++);
        CHANGES(n->reads ^= PP_READS_X_IN_W);
        CHANGES(n->in.dims[0]++);
        CHANGES(n->out.dims[0]++);
        CHANGES(n->x[0]++);
        CHANGES(n->wants_dx[0] = !n->wants_dx[0]);
        CHANGES(n->shared[0] = !n->shared[0]);
        CHANGES(n->dropout.p += 0.1f);
        CHANGES(n->attention.dropout += 0.1f);
        CHANGES(n->rotary.base += 1);
        CHANGES(n->n_floats++);
#undef CHANGES
    }
    for (int i = last->first_param; i < last->first_param + last->n_params; i++) {
        m->params[i].dims[0]++;
        assert_false(pp_layer_same_work(m, a, b));
        m->params[i].dims[0]--;
    }
}
