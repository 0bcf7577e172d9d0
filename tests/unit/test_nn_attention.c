/* SPDX-License-Identifier: Apache-2.0 */
/* The attention op: keys and values kept while a text is generated, and what does not fit. */
#include "ppcli/nn/chunk.h"
#include "../../src/nn/nn.h"
#include "dev_inputs.h"
#include "ppcli/base/base.h"

enum {
    T = 7,
    C = 20, /* 3 query heads and 1 of keys and values, of 4 */
    Y = 12
};

static int causal(struct builder *b, int x)
{
    return attention(b, "a", x, -1, &(struct heads){3, 1, 4, true, true, 0});
}

static struct pp_model *build(int positions, int cached)
{
    static const struct pp_config cfg;
    struct pp_model *m = pp_alloc(1, sizeof(*m));
    struct builder b = {.m = m, .cfg = &cfg, .cached = cached};
    CHECK_OK(build_begin(&b, (struct pp_shape){2, {positions, C, 1}}));
    layer(&b, "l");
    CHECK_OK(build_finish(&b, activate(&b, "t", causal(&b, 0), PP_ACT_GELU)));
    return m;
}

struct net {
    struct pp_model *m;
    struct pp_chunk *c;
    struct pp_arena arena;
};

static struct net set_up_model(struct pp_backend *be, struct pp_model *m, int rows)
{
    struct net t = {.m = m};
    struct pp_chunk_spec spec = {.max_rows = rows, .state_slots = 1, .backend = &be->choice};
    struct pp_arena dry = pp_arena_dry();
    CHECK_OK(pp_chunk_create(t.m, &spec, &dry, &t.c));
    CHECK_OK(pp_arena_create(dry.used, &t.arena));
    CHECK_OK(pp_chunk_create(t.m, &spec, &t.arena, &t.c));
    return t;
}

static struct net set_up(struct pp_backend *be, int rows, int positions, int cached)
{
    return set_up_model(be, build(positions, cached), rows);
}

static void tear_down(struct net *t)
{
    pp_chunk_destroy(&t->c);
    pp_arena_destroy(&t->arena);
    pp_model_destroy(&t->m);
}

/* Position by position, or several at once, it gives what the whole text gives. */
TEST(kept_keys_and_values_continue_a_text)
{
    enum {
        ROWS = 2
    };
    const char *const backends[] = {"cpu", "reference"};
    for (int k = 0; k < COUNT(backends); k++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(backends[k]);
        PP_OWN_MEMORY float *x = noise("x", ROWS * T * C), *want = nans(ROWS * T * Y);
        struct net whole = set_up(be, ROWS, T, 0);
        CHECK_OK(pp_chunk_forward(whole.c, be, 0, &(struct pp_pass){.rows = ROWS}, x, want));
        tear_down(&whole);
        for (int step = 1; step <= T; step += T - 1) {
            struct net t = set_up(be, step, 1, T);
            float y[T * Y];
            for (int r = 0; r < ROWS; r++) { /* another text in the same memory */
                for (int at = 0; at + step <= T; at += step) {
                    struct pp_pass pass = {.rows = step, .position = at};
                    CHECK_OK(pp_chunk_forward(t.c, be, 0, &pass, x + (r * T + at) * C, y));
                    for (int i = 0; i < step * Y; i++)
                        assert_float_equal(y[i], want[(r * T + at) * Y + i], 1e-6);
                }
            }
            tear_down(&t);
        }
    }
}

/* ---- views */

static struct pp_model *build_of(int (*call)(struct builder *b, int x))
{
    static const struct pp_config cfg;
    struct pp_model *m = pp_alloc(1, sizeof(*m));
    struct builder b = {.m = m, .cfg = &cfg};
    CHECK_OK(build_begin(&b, (struct pp_shape){2, {T, C, 1}}));
    layer(&b, "l");
    CHECK_OK(build_finish(&b, activate(&b, "t", call(&b, 0), PP_ACT_GELU)));
    return m;
}

static int same_as_causal(struct builder *b, int x)
{
    return attention_of(b, "a", x, x, x, -1,
                        &(struct attention_view){.heads = {3, 1, 4, true, true, 0},
                                                 .queries = T,
                                                 .keys = T,
                                                 .q = {0, C, 4, 0},
                                                 .k = {12, C, 4, 0},
                                                 .v = {16, C, 4, 0}});
}

/* Queries, keys and values in values of their own. */
static int in_pieces(struct builder *b, int x)
{
    int q = activate(b, "q", x, PP_ACT_NONE), k = activate(b, "k", x, PP_ACT_NONE);
    return attention_of(b, "a", q, k, x, -1,
                        &(struct attention_view){.heads = {3, 1, 4, true, true, 0},
                                                 .queries = T,
                                                 .keys = T,
                                                 .scale = 0.5f, /* 1 / sqrt(4) */
                                                 .q = {0, C, 4, 0},
                                                 .k = {12, C, 4, 0},
                                                 .v = {16, C, 4, 0}});
}

TEST(views_have_the_bits_of_an_attention_that_is_laid_out_for_it)
{
    enum {
        ROWS = 2
    };
    int (*const calls[])(struct builder * b, int x) = {causal, same_as_causal, in_pieces};
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("cpu");
    PP_OWN_MEMORY float *x = noise("x", ROWS * T * C), *want = nans(ROWS * T * Y);
    PP_OWN_MEMORY float *y = nans(ROWS * T * Y);
    for (int i = 0; i < COUNT(calls); i++) {
        struct net t = set_up_model(be, build_of(calls[i]), ROWS);
        CHECK_OK(pp_chunk_forward(t.c, be, 0, &(struct pp_pass){.rows = ROWS}, x, i ? y : want));
        tear_down(&t);
        if (i > 0)
            assert_memory_equal(want, y, ROWS * T * Y * sizeof(*y));
    }
}

/* ---- what does not fit */

static int refused(int (*call)(struct builder *b, int x), struct pp_shape input, int cached)
{
    PP_OWN(pp_model_destroy) struct pp_model *m = pp_alloc(1, sizeof(*m));
    static const struct pp_config cfg;
    struct builder b = {.m = m, .cfg = &cfg, .cached = cached};
    CHECK_OK(build_begin(&b, input));
    layer(&b, "l");
    int rc = build_finish(&b, call(&b, 0));
    return rc;
}

static int uneven(struct builder *b, int x)
{
    return attention(b, "a", x, -1, &(struct heads){3, 2, 4, true, true, 0});
}

static int over_rows(struct builder *b, int x)
{
    return attention(b, "a", x, -1, &(struct heads){3, 1, 4, true, false, 0});
}

static int both_ways(struct builder *b, int x)
{
    return attention(b, "a", x, -1, &(struct heads){3, 1, 4, false, true, 0});
}

static int two(struct builder *b, int x)
{
    return attention(b, "a", x, x, &(struct heads){5, 5, 4, false, true, 0});
}

static int outside(struct builder *b, int x)
{
    return attention_of(b, "a", x, x, x, -1,
                        &(struct attention_view){.heads = {3, 1, 4, false, true, 0},
                                                 .queries = T,
                                                 .keys = T,
                                                 .q = {0, C, 4, 0},
                                                 .k = {12, C, 4, 0},
                                                 .v = {17, C, 4, 0}});
}

static int repeated(struct builder *b, int x)
{
    return attention_of(b, "a", x, x, x, -1,
                        &(struct attention_view){.heads = {3, 1, 4, false, true, 0},
                                                 .queries = T,
                                                 .keys = T,
                                                 .q = {0, C, 3, 0},
                                                 .k = {12, C, 4, 0},
                                                 .v = {16, C, 4, 0}});
}

static int to_fewer(struct builder *b, int x)
{
    return attention_of(b, "a", x, x, x, -1,
                        &(struct attention_view){.heads = {3, 1, 4, true, true, 0},
                                                 .queries = T,
                                                 .keys = T - 1,
                                                 .q = {0, C, 4, 0},
                                                 .k = {12, C, 4, 0},
                                                 .v = {16, C, 4, 0}});
}

static int masked_over_rows(struct builder *b, int x)
{
    return attention_of(b, "a", x, x, x, x,
                        &(struct attention_view){.heads = {3, 1, 4, false, false, 0},
                                                 .queries = 1,
                                                 .keys = 1,
                                                 .q = {0, 0, 4, 0},
                                                 .k = {12, 0, 4, 0},
                                                 .v = {16, 0, 4, 0}});
}

static int cross(struct builder *b, int x)
{
    return cross_linear(b, "p", x, global_avg_pool(b, "q", x), 4);
}

TEST(what_does_not_fit_is_refused_in_a_line)
{
    const struct pp_shape text = {2, {T, C, 1}};
    CHECK_FAILS(refused(uneven, text, 0), PP_ECONFIG,
                "l.a: 3 heads do not share 2 heads of keys and values evenly");
    CHECK_FAILS(refused(causal, pp_shape_flat(C), 0), PP_ECONFIG, "do not fit a value of shape 20");
    CHECK_FAILS(refused(causal, (struct pp_shape){2, {T, C + 1, 1}}, 0), PP_ECONFIG,
                "l.a: 3 heads of 4 numbers, and keys and values of 1, do not fit a value of shape "
                "7 x 21");
    CHECK_FAILS(refused(two, text, 0), PP_ECONFIG,
                "do not fit a value of shape 7 x 20 with one of 7 x 20");
    CHECK_FAILS(refused(over_rows, text, 0), PP_ECONFIG, "over the positions of one text");
    CHECK_FAILS(refused(both_ways, text, T), PP_ECONFIG, "only a model whose attention is causal");
    CHECK_FAILS(refused(outside, text, 0), PP_ECONFIG,
                "l.a: attention of 3 heads reads outside of a value, or a number of it twice");
    CHECK_FAILS(refused(repeated, text, 0), PP_ECONFIG, "or a number of it twice");
    CHECK_FAILS(refused(to_fewer, text, 0), PP_ECONFIG,
                "l.a: causal attention of 7 positions to 6; use a mask");
    CHECK_FAILS(refused(masked_over_rows, text, 0), PP_ECONFIG, "over samples has no mask");
    CHECK_FAILS(refused(same_as_causal, text, T), PP_ECONFIG, "cannot continue a text");
    CHECK_FAILS(refused(cross, pp_shape_image(2, 2, 4), 0), PP_ECONFIG,
                "cross projections need two texts of one shape, not 2 x 2 x 4 and 4");
}
