/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tied tensors in whole trainings of a network of equal layers, two weights of which are one: where
 * they are, what travels, and that norms and sums count the weight once. The bits: tests/bits.
 */
#include "train_run.h"
#include "../../src/nn/model.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "../../src/pipe/exec_internal.h"

enum {
    WIDE = 9,
    OWNER = 2, /* parameters of the model: the weights of layers 1 and 6 of 8, and of 3 and 4 */
    COPY = 12,
    PARAMS = 16,
    RANKS_MOST = 8
};

#define PLAIN "train.optimizer=sgd", "train.lr_schedule=constant"
#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

/* What the next runs do, and what the last one left. */
static int
    ties; /* 1: one weight is another's copy; 4: four have it; -1: the two weights begin alike,
                    but are two; -4: the same of five */
static const int copies[] = {COPY, 4, 6, 10};
static bool huge;
static float weights[PARAMS][WIDE * 12], start[PARAMS][WIDE * 12];
static size_t n_floats[PARAMS], messages[RANKS_MOST];
static int tied_stages[2];

int __real_pp_model_create(const struct pp_config *cfg, const struct pp_data_input *data,
                           struct pp_model **out);
int __wrap_pp_model_create(const struct pp_config *cfg, const struct pp_data_input *data,
                           struct pp_model **out);
int __wrap_pp_model_create(const struct pp_config *cfg, const struct pp_data_input *data,
                           struct pp_model **out)
{
    int rc = __real_pp_model_create(cfg, data, out);
    if (rc < 0)
        return rc;
    CHECK_INT_EQ((*out)->n_params, PARAMS);
    for (int i = 0; i < ties; i++)
        pp_model_tie(*out, OWNER, copies[i]);
    for (int i = 0; i < -ties; i++) {
        size_t at = (*out)->params[copies[i]].at;
        (*out)->params[copies[i]] = (*out)->params[OWNER];
        (*out)->params[copies[i]].at = at;
    }
    return rc;
}

/* At the end of a run every rank comes here. */
int __real_pp_exec_weights_sha256(struct pp_exec *x, char out[65]);
int __wrap_pp_exec_weights_sha256(struct pp_exec *x, char out[65]);
int __wrap_pp_exec_weights_sha256(struct pp_exec *x, char out[65])
{
    const struct pp_model *m = x->layout->model;
    int rc = __real_pp_exec_weights_sha256(x, out);
    for (int i = 0; rc == 0 && i < pp_exec_tensor_count(x); i++) {
        struct pp_exec_tensor t;
        pp_exec_tensor(x, i, &t);
        int p = (int)(t.param - m->params);
        if (t.kind == PP_EXEC_PARAM && x->replica == 0 && t.n <= COUNT(weights[p])) {
            n_floats[p] = t.n;
            rc = pp_exec_tensor_get(x, &t, 0, weights[p], t.n);
            pp_param_init(t.param, x->cfg->train.seed, start[p]);
        }
    }
    if (x->rank < RANKS_MOST)
        messages[x->rank] = pp_exec_bytes(x)->messages;
    if (x->layout->n_ties > 0 && x->rank == 0) {
        tied_stages[0] = x->layout->ties[0].owner;
        tied_stages[1] = x->layout->ties[0].copy;
    }
    return rc;
}

int __real_pp_chunk_backward_weight(struct pp_chunk *c, struct pp_backend *be, int n,
                                    const int *slots, const int *gslots, bool first);
int __wrap_pp_chunk_backward_weight(struct pp_chunk *c, struct pp_backend *be, int n,
                                    const int *slots, const int *gslots, bool first);
int __wrap_pp_chunk_backward_weight(struct pp_chunk *c, struct pp_backend *be, int n,
                                    const int *slots, const int *gslots, bool first)
{
    static const int which[] = {OWNER, COPY};
    int rc = __real_pp_chunk_backward_weight(c, be, n, slots, gslots, first);
    for (int i = 0; i < 2 && huge; i++) {
        size_t offset, floats;
        int at = which[i] - c->model->layers[c->first].first_param;
        if (at >= 0 && at < pp_chunk_param_count(c)) {
            pp_chunk_param(c, at, &offset, &floats);
            c->grads[offset] = 0.6f * FLT_MAX;
        }
    }
    return rc;
}

static void run(int how, const char *const *more, struct outcome *out)
{
    const char *list[40] = {"model.sizes=12 9*7 5",    "model.activation=tanh",
                            "data.train_samples=150",  "data.test_samples=40",
                            "train.batch_size=32",     "train.epochs=2",
                            "train.lr=0.05",           "run.log_every=1",
                            "pipeline.microbatches=4", "checkpoint.every_epochs=0",
                            "checkpoint.at_end=false", "run.backend=cpu"};
    int n = 12;
    for (int i = 0; more[i]; i++)
        list[n++] = more[i];
    list[n] = NULL;
    ties = how;
    train_run(list, out);
}

static void must(int how, const char *const *more, struct outcome *out)
{
    run(how, more, out);
    if (out->rc < 0)
        fail_msg("%s, %s: %s", more[0], more[1], pp_error_get()->text);
}

/* Of the first and of the last layers, of neighbours, of one stage, of two stages of a rank. */
TEST(ties_lie_where_the_layers_are)
{
    struct outcome out;
    must(1, LIST("pipeline.stages=1", "train.max_steps=1"), &out);
    CHECK_INT_EQ(tied_stages[1] - tied_stages[0], 0);
    must(1, LIST("pipeline.stages=2", "train.max_steps=1"), &out);
    CHECK_INT_EQ(tied_stages[1] - tied_stages[0], 1);
    must(1,
         LIST("pipeline.stages=4", "pipeline.schedule=zb-v", "pipeline.assignment=equal",
              "train.max_steps=1"),
         &out);
    CHECK_INT_EQ(tied_stages[0], 1);
    CHECK_INT_EQ(tied_stages[1], 6); /* both on rank 1: nothing travels */
    size_t tied_v = messages[1];
    must(0,
         LIST("pipeline.stages=4", "pipeline.schedule=zb-v", "pipeline.assignment=equal",
              "train.max_steps=1"),
         &out);
    CHECK_INT_EQ(tied_v, messages[1]);
}

TEST(each_of_two_ranks_receives_a_whole_tensor)
{
    struct outcome out;
    size_t with[2], bytes = (sizeof(float) * WIDE * WIDE + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN;
    must(1, LIST("pipeline.stages=2", "train.max_steps=1"), &out);
    memcpy(with, messages, sizeof(with));
    must(0, LIST("pipeline.stages=2", "train.max_steps=1"), &out);
    CHECK_INT_EQ(with[0] - messages[0], bytes);
    CHECK_INT_EQ(with[1] - messages[1], bytes);
}

/* ---- numbers */

/* One step of plain descent from the same start: w - lr (g + h) = (w - lr g) + (w - lr h) - w. */
TEST(the_step_is_that_of_the_sum_of_both_gradients)
{
    struct outcome out;
    float alone[2][WIDE * WIDE];
    must(-1, LIST("pipeline.stages=2", "train.max_steps=1", PLAIN, "train.lr=0.5"), &out);
    memcpy(alone[0], weights[OWNER], sizeof(alone[0]));
    memcpy(alone[1], weights[COPY], sizeof(alone[1]));
    assert_memory_equal(start[OWNER], start[COPY], sizeof(alone[0]));
    must(1, LIST("pipeline.stages=2", "train.max_steps=1", PLAIN, "train.lr=0.5"), &out);
    double moved = 0;
    for (int i = 0; i < WIDE * WIDE; i++) {
        double w = start[OWNER][i], sum = alone[0][i] + (double)alone[1][i] - w;
        assert_true(fabs(weights[OWNER][i] - sum) < 1e-6);
        moved = fmax(moved, fmin(fabs(alone[0][i] - w), fabs(alone[1][i] - w)));
    }
    assert_true(moved > 1e-3); /* both have a part in it */
}

TEST(the_step_of_five_holders_is_that_of_the_sum_of_their_gradients)
{
    struct outcome out;
    float alone[5][WIDE * WIDE];
    static const int holders[] = {OWNER, COPY, 4, 6, 10};
    must(-4, LIST("pipeline.stages=3", "train.max_steps=1", PLAIN, "train.lr=0.5"), &out);
    for (int k = 0; k < 5; k++)
        memcpy(alone[k], weights[holders[k]], sizeof(alone[k]));
    must(4, LIST("pipeline.stages=3", "train.max_steps=1", PLAIN, "train.lr=0.5"), &out);
    for (int i = 0; i < WIDE * WIDE; i++) {
        double w = start[OWNER][i], sum = w;
        for (int k = 0; k < 5; k++)
            sum += alone[k][i] - w;
        assert_true(fabs(weights[OWNER][i] - sum) < 1e-6);
        for (int k = 0; k < 5; k++) /* to the bit */
            assert_true(memcmp(&weights[holders[k]][i], &weights[OWNER][i], sizeof(float)) == 0);
    }
}

/* Holders on one stage, on all stages, on stages of one rank; sums in pieces of replicas. */
TEST(where_five_holders_are_changes_no_bit)
{
    static const char *const where[][2] = {
        {"pipeline.stages=1", "pipeline.schedule=gpipe"},
        {"pipeline.stages=2", "pipeline.schedule=gpipe"},
        {"pipeline.stages=3", "pipeline.schedule=1f1b"},
        {"pipeline.stages=4", "pipeline.schedule=zb-h1"},
        {"pipeline.stages=4", "pipeline.schedule=zb-v"},
        {"pipeline.stages=2", "pipeline.schedule=zb-v"},
        {"pipeline.stages=4", "pipeline.schedule=interleaved"},
        {"pipeline.stages=2", "pipeline.schedule=interleaved"},
    };
    static float first[2][PARAMS][WIDE * 12];
    for (int replicas = 1; replicas <= 2; replicas++) {
        for (int k = 0; k < COUNT(where) * replicas; k++) {
            struct outcome out;
            int row = k / replicas;
            char words[32];
            snprintf(words, sizeof(words), "pipeline.replicas=%d", replicas);
            must(4,
                 LIST(where[row][0], where[row][1], words, "train.optimizer=adam",
                      "pipeline.assignment=equal", k % replicas ? "train.zero=1" : "train.zero=0",
                      strstr(where[row][1], "interleaved") ? "pipeline.chunks=2"
                                                           : "pipeline.chunks=0"),
                 &out);
            if (k == 0)
                memcpy(first[replicas - 1], weights, sizeof(weights));
            assert_memory_equal(first[replicas - 1], weights, sizeof(weights));
        }
    }
}

/* A piece has 2^20 floats; the holders are on ranks 0, 1, 1, 1 and 0. */
TEST(a_large_sum_of_five_holders_travels_in_pieces)
{
    struct outcome one, two;
    must(4, LIST("model.sizes=12 1030*7 5", "pipeline.stages=1", "train.max_steps=1"), &one);
    must(4,
         LIST("model.sizes=12 1030*7 5", "pipeline.stages=2", "pipeline.schedule=zb-v",
              "pipeline.assignment=equal", "train.max_steps=1"),
         &two);
    CHECK_STR_EQ(one.sha, two.sha);
}

/* Clipped to 0.05, all weights together, each tied one once, move by 0.05 in a step of lr 1. */
TEST(the_norm_counts_a_tied_gradient_once)
{
    for (int p = 1; p <= 4; p++) {
        struct outcome out;
        char stages[32];
        double moved = 0;
        snprintf(stages, sizeof(stages), "pipeline.stages=%d", p);
        must(1, LIST(stages, "train.max_steps=1", PLAIN, "train.lr=1", "train.clip_norm=0.05"),
             &out);
        for (int k = 0; k < PARAMS; k++)
            for (size_t i = 0; i < n_floats[k] && k != COPY; i++)
                moved += pow((double)weights[k][i] - (double)start[k][i], 2);
        assert_true(fabs(sqrt(moved) - 0.05) < 2e-5);
    }
}

/* 0.6 of the largest float twice: either gradient is finite, the sum is not. */
TEST(a_sum_that_overflows_is_found_before_any_weight_changes)
{
    for (int p = 1; p <= 4; p++) {
        struct outcome out;
        char stages[32];
        snprintf(stages, sizeof(stages), "pipeline.stages=%d", p);
        huge = true;
        run(1, LIST(stages, "train.read_gradients=true"), &out);
        CHECK_INT_EQ(out.rc, PP_EDIVERGED);
        assert_non_null(
            strstr(pp_error_get()->text, "the gradient of layers.1.weight is not finite"));
        run(-1, /* Adam could not keep its square */
            LIST(stages, "train.read_gradients=true", "train.max_steps=1", "train.lr=1e-30", PLAIN),
            &out);
        huge = false;
        CHECK_INT_EQ(out.rc, 0);
    }
}
