/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: what the plain version means, the CPU's versions against it, and what all promise
 * beyond the numbers. The gradients of the plain one are checked in test_nn_ops.c. */
#include "dev_loops.h"

#include <float.h>

#include "../../src/dev/cpu/gemm.h"

struct shape {
    int B, queries, keys, heads, kv_heads, width;
    bool causal;
};

/* All that a call reads and writes, in arrays of its own. */
struct bed {
    struct pp_attention a;
    int64_t step;
    float *qkv, *kv, *y, *lse, *dy, *dqkv, *scratch;
    size_t n_qkv, n_y, n_lse;
};

enum layout {
    ROWS,  /* q, k and v of a position in one row */
    BLOCKS /* all q of a sequence, then all k and v */
};

static struct bed make(const struct shape *s, enum layout layout)
{
    size_t q = (size_t)(s->heads * s->width), kv = (size_t)(s->kv_heads * s->width);
    size_t width = (size_t)s->width;
    size_t queries = (size_t)s->queries, keys = (size_t)s->keys, B = (size_t)s->B;
    bool rows = layout == ROWS && queries == keys;
    size_t all = queries * q + keys * 2 * kv, row = q + 2 * kv;
    struct bed t = {
        .n_qkv = B * all, .n_y = B * queries * q, .n_lse = B * queries * (size_t)s->heads};
    t.qkv = noise("qkv", t.n_qkv);
    t.y = nans(t.n_y);
    t.lse = nans(t.n_lse);
    t.dy = noise("dy", t.n_y);
    t.dqkv = nans(t.n_qkv);
    t.scratch =
        nans(pp_attention_scratch_floats(s->queries, s->keys, s->heads / s->kv_heads, s->width));
    t.step = 3;
    float *k = t.qkv + (rows ? q : queries * q), *dk = t.dqkv + (rows ? q : queries * q);
    t.a = (struct pp_attention){.B = s->B,
                                .queries = s->queries,
                                .keys = s->keys,
                                .heads = s->heads,
                                .kv_heads = s->kv_heads,
                                .width = s->width,
                                .causal = s->causal,
                                .q = t.qkv,
                                .k = k,
                                .v = k + kv,
                                .q_at = {all, rows ? row : q, width, 0},
                                .k_at = {all, rows ? row : 2 * kv, width, 0},
                                .v_at = {all, rows ? row : 2 * kv, width, 0},
                                .y_at = {queries * q, q, width, 0},
                                .key = 99,
                                .first_row = 4,
                                .scratch = t.scratch,
                                .lse = t.lse,
                                .y = t.y,
                                .dy = t.dy,
                                .dq = t.dqkv,
                                .dk = dk,
                                .dv = dk + kv};
    return t;
}

static void clear(struct bed *t)
{
    float *all[] = {t->qkv, t->y, t->lse, t->dy, t->dqkv, t->scratch};
    for (int i = 0; i < COUNT(all); i++)
        pp_free(all[i]);
}

static void both(struct pp_backend *be, struct bed *t)
{
    CHECK_OK(pp_backend_attention_forward(be, &t->a));
    CHECK_OK(pp_backend_attention_backward(be, &t->a));
}

/* ---- what it means */

static const char *const backends[] = {"reference", "cpu"};

TEST(with_equal_scores_y_is_the_mean_of_the_values_seen)
{
    const struct shape s = {2, 5, 9, 4, 2, 3, true};
    for (int e = 0; e < COUNT(backends); e++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(backends[e]);
        struct bed t = make(&s, BLOCKS);
        for (int b = 0; b < s.B; b++)
            for (int i = 0; i < s.queries * s.heads * s.width; i++)
                t.qkv[(size_t)b * t.a.q_at.sequence + (size_t)i] = 0;
        both(be, &t);
        for (int b = 0; b < s.B; b++) {
            for (int i = 0; i < s.queries; i++) {
                for (int h = 0; h < s.heads; h++) {
                    int seen = s.keys - s.queries + i + 1;
                    size_t line = (size_t)((b * s.queries + i) * s.heads + h);
                    assert_float_equal(t.lse[line], log(seen), 1e-6);
                    for (int d = 0; d < s.width; d++) {
                        double sum = 0;
                        for (int j = 0; j < seen; j++)
                            sum += t.a.v[(size_t)b * t.a.k_at.sequence +
                                         (size_t)j * t.a.k_at.position +
                                         (size_t)(h / 2 * s.width + d)];
                        assert_float_equal(t.y[line * (size_t)s.width + (size_t)d], sum / seen,
                                           1e-6);
                    }
                }
            }
        }
        clear(&t);
    }
}

/* Near `right`, by its largest number or `most`; rows of `width`, `step` apart. */
static void check_near(const char *what, double size, double most, size_t rows, size_t width,
                       size_t step, const float *got, const float *right)
{
    for (size_t i = 0; i < rows * width; i++)
        most = fmax(most, fabs((double)right[i / width * step + i % width]));
    for (size_t i = 0; i < rows * width; i++) {
        size_t at = i / width * step + i % width;
        double allowed = most * (size < 1e8 ? 2e-3 : 1e-5);
        if (!isfinite(right[at]) || !(fabs((double)got[at] - (double)right[at]) <= allowed))
            fail_msg("scores of %g: %s[%zu] is %.9g, right is %.9g", size, what, at, got[at],
                     right[at]);
    }
}

/* Scores of about `size`, apart by as much or all but equal: every loop against the plain version. */
static void check_large_scores(double size, bool apart)
{
    const struct shape s = {2, 70, 70, 4, 2, 5, true};
    const size_t row = 40, positions = 140; /* q of 4 heads, k and v of 2, 5 wide */
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("reference");
    struct bed plain = make(&s, ROWS);
    for (size_t i = 0; i < positions * 30; i++)
        if (apart || i % 5 == 0)
            plain.qkv[i / 30 * row + i % 30] =
                (float)(sqrt(size) * (apart ? plain.qkv[i / 30 * row + i % 30] : 1));
    both(be, &plain);
    for (int i = 0; cpu_kernels_runnable(i); i++) {
        struct bed t = make(&s, ROWS);
        memcpy(t.qkv, plain.qkv, t.n_qkv * sizeof(float));
        chosen = cpu_kernels_runnable(i);
        CHECK_OK(chosen_attention_forward(be, &t.a));
        CHECK_OK(chosen_attention_backward(be, &t.a));
        check_near("y", size, 1, 1, t.n_y, 0, t.y, plain.y);
        check_near("lse", size, 1, 1, t.n_lse, 0, t.lse, plain.lse);
        check_near("dv", size, 1, positions, 10, row, t.dqkv + 30, plain.dqkv + 30);
        if (apart) /* else gradients of about 0 times sqrt(size) are added up */
            check_near("dq and dk", size, sqrt(size), positions, 30, row, t.dqkv, plain.dqkv);
        clear(&t);
    }
    clear(&plain);
}

TEST(scores_of_any_size_give_what_the_plain_version_gives)
{
    static const double sizes[] = {1e3, 1e5, 1e7, 2.6e9, 5.2e9, 1e12, 1e30};
    for (int i = 0; i < COUNT(sizes); i++) {
        check_large_scores(sizes[i], true);
        check_large_scores(sizes[i], false);
    }
}

TEST(a_large_score_takes_all_and_overflows_nothing)
{
    const struct shape s = {1, 6, 6, 1, 1, 4, true};
    for (int e = 0; e < COUNT(backends); e++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(backends[e]);
        struct bed t = make(&s, ROWS);
        for (int i = 0; i < 6; i++)
            for (int d = 0; d < 4; d++) /* each finds itself */
                t.qkv[i * 12 + d] = t.qkv[i * 12 + 4 + d] =
                    d == i % 4 ? 100.0f * (float)(i + 1) : 0;
        both(be, &t);
        for (int i = 0; i < 6; i++)
            for (int d = 0; d < 4; d++)
                assert_float_equal(t.y[i * 4 + d], t.a.v[i * 12 + d], 1e-6);
        for (size_t i = 0; i < t.n_qkv; i++)
            assert_true(isfinite(t.dqkv[i]));
        clear(&t);
    }
}

/* ---- masks */

enum axis { /* that a mask has */
    OF_SEQUENCES = 1,
    OF_HEADS = 2,
    OF_QUERIES = 4,
    OF_KEYS = 8,
    ALL = 15
};

/* Adds a mask with these axes, and its gradient, to a call; the caller frees both. */
static size_t add_mask(struct bed *t, unsigned axes, float **mask, float **dmask)
{
    struct pp_attention *a = &t->a;
    size_t keys = axes & OF_KEYS ? (size_t)a->keys : 1;
    size_t head = keys * (axes & OF_QUERIES ? (size_t)a->queries : 1);
    size_t each = head * (axes & OF_HEADS ? (size_t)a->heads : 1);
    *mask = noise("mask", each * (size_t)a->B);
    *dmask = nans(each * (size_t)a->B);
    a->mask = *mask;
    a->mask_at = (struct pp_strides){axes & OF_SEQUENCES ? each : 0, axes & OF_QUERIES ? keys : 0,
                                     axes & OF_HEADS ? head : 0, each};
    a->mask_key = axes & OF_KEYS ? 1 : 0;
    a->dmask = *dmask;
    return each;
}

/* Checks every float that reaches y: dmask against differences of y . dy. */
static void check_mask_gradient(struct pp_backend *be, unsigned axes)
{
    const struct shape s = {2, 5, 7, 4, 2, 3, true};
    struct bed t = make(&s, BLOCKS);
    float *mask, *dmask;
    size_t each = add_mask(&t, axes, &mask, &dmask);
    t.a.p = 0.2f;
    t.a.step = &t.step;
    t.a.scale = 0.7f;
    both(be, &t);
    for (size_t i = 0; i < each; i++) { /* sequences that share a number: their sum */
        size_t n = axes & OF_SEQUENCES ? 2 : 1;
        for (size_t b = 0; b < n; b++) {
            float old = mask[b * each + i];
            double y[2], right = dmask[b * each + i] + (n == 1 ? dmask[each + i] : 0);
            for (int up = 0; up < 2; up++) {
                mask[b * each + i] = old + (up ? 0x1p-7f : -0x1p-7f);
                CHECK_OK(pp_backend_attention_forward(be, &t.a));
                y[up] = 0;
                for (size_t k = 0; k < t.n_y; k++)
                    y[up] += (double)t.y[k] * (double)t.dy[k];
            }
            mask[b * each + i] = old;
            assert_float_equal((y[1] - y[0]) * 0x1p6, right, 2e-4);
        }
    }
    pp_free(mask);
    pp_free(dmask);
    clear(&t);
}

TEST(the_gradient_of_a_mask_is_the_slope_whatever_axes_it_has)
{
    for (int e = 0; e < COUNT(backends); e++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(backends[e]);
        for (unsigned axes = 0; axes <= ALL; axes++)
            check_mask_gradient(be, axes);
    }
}

TEST(the_gradient_of_a_mask_is_added_if_asked)
{
    const struct shape s = {2, 70, 66, 4, 2, 8, false};
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("cpu");
    for (unsigned axes = 0; axes <= ALL; axes++) {
        struct bed t = make(&s, BLOCKS);
        float *mask, *dmask;
        size_t n = 2 * add_mask(&t, axes, &mask, &dmask);
        both(be, &t);
        PP_OWN_MEMORY float *once = pp_alloc(n, sizeof(*once));
        memcpy(once, dmask, n * sizeof(*once));
        t.a.add_mask = true;
        CHECK_OK(pp_backend_attention_backward(be, &t.a));
        for (size_t i = 0; i < n; i++)
            assert_float_equal(dmask[i], 2 * once[i], 1e-5);
        pp_free(mask);
        pp_free(dmask);
        clear(&t);
    }
}

TEST(a_hidden_key_changes_no_bit_and_has_no_gradient)
{
    const struct shape s = {1, 70, 90, 2, 1, 12, false};
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("cpu");
    struct bed t[2];
    float *mask[2], *dmask[2];
    for (int i = 0; i < 2; i++) {
        t[i] = make(&s, BLOCKS);
        add_mask(&t[i], OF_KEYS, &mask[i], &dmask[i]);
        for (size_t j = 0; j < 90; j++) {
            float *kv = t[i].qkv + (t[i].a.k - t[i].a.q) + j * t[i].a.k_at.position;
            mask[i][j] = j % 3 == 0 ? -INFINITY : mask[i][j];
            for (int d = 0; i == 1 && j % 3 == 0 && d < 24; d++)
                kv[d] = 3 - kv[d];
        }
        both(be, &t[i]);
        for (size_t j = 0; j < 90; j += 3) {
            assert_true(dmask[i][j] == 0);
            for (int d = 0; d < 12; d++)
                assert_true(t[i].a.dk[j * t[i].a.k_at.position + (size_t)d] == 0 &&
                            t[i].a.dv[j * t[i].a.v_at.position + (size_t)d] == 0);
        }
    }
    assert_memory_equal(t[0].y, t[1].y, t[0].n_y * sizeof(float));
    assert_memory_equal(t[0].dqkv, t[1].dqkv, t[0].n_qkv * sizeof(float));
    assert_memory_equal(dmask[0], dmask[1], 90 * sizeof(float));
    for (int i = 0; i < 2; i++) {
        pp_free(mask[i]);
        pp_free(dmask[i]);
        clear(&t[i]);
    }
}

/* As PyTorch: scaled_dot_product_attention() with a bool mask, and a sum with the lowest number. */
TEST(a_query_whose_keys_are_all_hidden_gives_0_or_with_the_lowest_number_the_mean)
{
    const struct shape s = {1, 9, 20, 2, 2, 5, false};
    for (int e = 0; e < COUNT(backends); e++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(backends[e]);
        for (int lowest = 0; lowest < 2; lowest++) {
            struct bed t = make(&s, BLOCKS);
            float *mask, *dmask;
            add_mask(&t, OF_QUERIES | OF_KEYS, &mask, &dmask);
            for (int j = 0; j < 20; j++)
                mask[4 * 20 + j] = lowest ? -FLT_MAX : -INFINITY;
            for (int k = 0; k < 9 * 10; k++) /* no other query has a gradient */
                t.dy[k] = k / 10 == 4 ? t.dy[k] : 0;
            both(be, &t);
            for (int d = 0; d < 10; d++) {
                double mean = 0;
                for (size_t j = 0; j < 20; j++)
                    mean += (double)t.a.v[j * t.a.v_at.position + (size_t)d] / 20;
                assert_float_equal(t.y[4 * 10 + d], lowest ? mean : 0, 1e-6);
                for (size_t j = 0; j < 20; j++)
                    assert_float_equal(t.a.dv[j * t.a.v_at.position + (size_t)d],
                                       lowest ? t.dy[4 * 10 + d] / 20 : 0, 1e-6);
            }
            assert_true(lowest || t.lse[4 * 2] == INFINITY);
            for (size_t i = 0; i < t.n_qkv; i++)
                assert_true(isfinite(t.dqkv[i]));
            pp_free(mask);
            pp_free(dmask);
            clear(&t);
        }
    }
}

TEST(a_nan_of_a_mask_comes_out)
{
    const struct shape s = {1, 9, 20, 2, 2, 5, false};
    for (int e = 0; e < COUNT(backends); e++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(backends[e]);
        struct bed t = make(&s, BLOCKS);
        float *mask, *dmask;
        add_mask(&t, OF_QUERIES | OF_KEYS, &mask, &dmask);
        for (int j = 0; j < 20; j++)
            mask[4 * 20 + j] = j == 7 ? NAN : -INFINITY;
        both(be, &t);
        assert_true(isfinite(t.y[3 * 10]));
        assert_true(isnan(t.y[4 * 10]));
        assert_true(isnan(t.a.dv[0]));
        pp_free(mask);
        pp_free(dmask);
        clear(&t);
    }
}

/* ---- strides and scale */

TEST(heads_in_another_order_have_the_same_bits)
{
    const struct shape s = {2, 70, 90, 4, 2, 24, false};
    const size_t W = 24;
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("cpu");
    struct bed t = make(&s, BLOCKS), other = make(&s, BLOCKS);
    struct pp_attention *a = &other.a;
    size_t k = (size_t)(a->k - a->q), v = k + 90 * 2 * W; /* [heads][positions][W] of each */
    a->q_at = (struct pp_strides){t.a.q_at.sequence, W, 70 * W, 0};
    a->k_at = a->v_at = (struct pp_strides){t.a.k_at.sequence, W, 90 * W, 0};
    a->y_at = (struct pp_strides){t.a.y_at.sequence, W, 70 * W, 0};
    a->v = a->q + v;
    a->dv = a->dq + v;
    const struct {
        const float *from;
        float *to;
        struct pp_strides from_at, to_at;
        int heads, positions;
    } move[] = {{t.a.q, other.qkv, t.a.q_at, a->q_at, 4, 70},
                {t.a.k, other.qkv + k, t.a.k_at, a->k_at, 2, 90},
                {t.a.v, other.qkv + v, t.a.v_at, a->v_at, 2, 90},
                {t.dy, other.dy, t.a.y_at, a->y_at, 4, 70}},
      compare[] = {{t.a.dq, a->dq, t.a.q_at, a->q_at, 4, 70},
                   {t.a.dk, a->dk, t.a.k_at, a->k_at, 2, 90},
                   {t.a.dv, a->dv, t.a.v_at, a->v_at, 2, 90},
                   {t.y, a->y, t.a.y_at, a->y_at, 4, 70}};
    for (int after = 0; after < 2; after++) {
        for (int i = 0; i < 4; i++) {
            for (int n = 0; n < 2 * move[i].heads * move[i].positions; n++) {
                size_t b = (size_t)(n / move[i].heads / move[i].positions);
                size_t p = (size_t)(n / move[i].heads % move[i].positions);
                size_t h = (size_t)(n % move[i].heads);
                const struct pp_strides *f = &move[i].from_at, *to = &move[i].to_at;
                size_t from_at = b * f->sequence + p * f->position + h * f->head;
                size_t to_at = b * to->sequence + p * to->position + h * to->head;
                if (after)
                    assert_memory_equal(compare[i].from + from_at, compare[i].to + to_at,
                                        W * sizeof(float));
                else
                    memcpy(move[i].to + to_at, move[i].from + from_at, W * sizeof(float));
            }
        }
        if (!after) {
            both(be, &t);
            both(be, &other);
        }
    }
    clear(&t);
    clear(&other);
}

TEST(a_scale_of_one_over_the_root_of_the_width_changes_no_bit)
{
    const struct shape s = {2, 70, 70, 4, 2, 24, true};
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("cpu");
    struct bed t = make(&s, ROWS), scaled = make(&s, ROWS);
    scaled.a.scale = (float)(1 / sqrt(24.0));
    both(be, &t);
    both(be, &scaled);
    assert_memory_equal(t.y, scaled.y, t.n_y * sizeof(float));
    assert_memory_equal(t.dqkv, scaled.dqkv, t.n_qkv * sizeof(float));
    clear(&t);
    clear(&scaled);
}

/* ---- bits */

/* The sequences from..to-1 of the bed. */
static struct pp_attention part(const struct bed *t, int from, int to)
{
    struct pp_attention a = t->a;
    size_t b = (size_t)from;
    a.B = to - from;
    a.first_row += (uint32_t)from;
    a.q += b * a.q_at.sequence;
    a.k += b * a.k_at.sequence;
    a.v += b * a.v_at.sequence;
    a.dq += b * a.q_at.sequence;
    a.dk += b * a.k_at.sequence;
    a.dv += b * a.v_at.sequence;
    a.y += b * a.y_at.sequence;
    a.dy += b * a.y_at.sequence;
    a.lse += b * (size_t)(a.queries * a.heads);
    if (a.mask) {
        a.mask += b * a.mask_at.sequence;
        a.dmask += b * a.mask_at.gradient;
    }
    return a;
}

TEST(sequences_do_not_depend_on_those_beside_them)
{
    const struct shape s = {4, 70, 70, 4, 2, 24, true};
    for (int layout = ROWS; layout <= BLOCKS; layout++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("cpu");
        struct bed whole = make(&s, layout), cut = make(&s, layout), rows = make(&s, ROWS);
        whole.a.p = cut.a.p = rows.a.p = 0.3f;
        whole.a.step = cut.a.step = rows.a.step = &whole.step;
        both(be, &whole);
        const int ends[] = {0, 1, 1, 4};
        for (int i = 0; i + 1 < COUNT(ends); i++) {
            struct pp_attention a = part(&cut, ends[i], ends[i + 1]);
            CHECK_OK(pp_backend_attention_forward(be, &a));
            CHECK_OK(pp_backend_attention_backward(be, &a));
        }
        assert_memory_equal(whole.y, cut.y, whole.n_y * sizeof(float));
        assert_memory_equal(whole.lse, cut.lse, whole.n_lse * sizeof(float));
        assert_memory_equal(whole.dqkv, cut.dqkv, whole.n_qkv * sizeof(float));
        clear(&whole);
        clear(&cut);
        clear(&rows);
    }
}

TEST(masked_sequences_do_not_depend_on_those_beside_them)
{
    const struct shape s = {4, 70, 70, 4, 2, 24, true};
    for (unsigned axes = 0; axes <= ALL; axes++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("cpu");
        struct bed whole = make(&s, ROWS), cut = make(&s, ROWS);
        float *mask[2], *dmask[2];
        size_t n = 4 * add_mask(&whole, axes, &mask[0], &dmask[0]);
        add_mask(&cut, axes, &mask[1], &dmask[1]);
        both(be, &whole);
        const int ends[] = {0, 1, 1, 4};
        for (int i = 0; i + 1 < COUNT(ends); i++) {
            struct pp_attention a = part(&cut, ends[i], ends[i + 1]);
            CHECK_OK(pp_backend_attention_forward(be, &a));
            CHECK_OK(pp_backend_attention_backward(be, &a));
        }
        assert_memory_equal(whole.y, cut.y, whole.n_y * sizeof(float));
        assert_memory_equal(whole.dqkv, cut.dqkv, whole.n_qkv * sizeof(float));
        assert_memory_equal(dmask[0], dmask[1], n * sizeof(float));
        for (int i = 0; i < 2; i++) {
            pp_free(mask[i]);
            pp_free(dmask[i]);
        }
        clear(&whole);
        clear(&cut);
    }
}

TEST(a_query_does_not_depend_on_what_comes_later)
{
    const struct shape s = {1, 100, 100, 2, 2, 32, true};
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("cpu");
    struct bed t = make(&s, ROWS);
    size_t row = t.a.y_at.position, n = 50;
    CHECK_OK(pp_backend_attention_forward(be, &t.a));
    float *want = pp_alloc(n * row, sizeof(*want));
    memcpy(want, t.y, n * row * sizeof(*want));
    for (size_t i = n * t.a.q_at.position; i < t.n_qkv; i++)
        t.qkv[i] = 3 * t.qkv[i];
    CHECK_OK(pp_backend_attention_forward(be, &t.a));
    assert_memory_equal(t.y, want, n * row * sizeof(*want));
    pp_free(want);
    clear(&t);
}

TEST(a_nan_comes_out)
{
    const struct shape s = {1, 20, 20, 1, 1, 16, true};
    for (int e = 0; e < COUNT(backends); e++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(backends[e]);
        for (int what = 0; what < 3; what++) { /* of q, k and v of position 10 */
            struct bed t = make(&s, ROWS);
            t.qkv[10 * 48 + what * 16] = NAN;
            both(be, &t);
            assert_true(isfinite(t.y[3 * 16])); /* beside it, 0 * NaN may have come in */
            assert_true(isnan(t.y[10 * 16]));
            assert_true(isnan(t.dqkv[0 * 48 + 16])); /* through the probabilities to all keys */
            clear(&t);
        }
    }
}

TEST(no_sequences_touch_nothing)
{
    const struct shape s = {1, 4, 4, 2, 1, 8, true};
    for (int e = 0; e < COUNT(backends); e++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(backends[e]);
        struct bed t = make(&s, ROWS);
        t.a.B = 0;
        both(be, &t);
        for (size_t i = 0; i < t.n_y; i++)
            assert_true(isnan(t.y[i]));
        clear(&t);
    }
}
