/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of images on a device against the plain ones. */
#include "copies.h"

static const struct pp_conv windows[] = {
    {5, 6, 3, 5, 6, 4, 3, 3, 1, 1, 1, 1},  {7, 7, 8, 4, 4, 5, 3, 3, 2, 1, 1, 1},
    {4, 5, 8, 4, 5, 6, 1, 1, 1, 0, 0, 1},  {6, 6, 4, 3, 3, 4, 2, 2, 2, 0, 0, 1},
    {5, 5, 6, 5, 5, 9, 3, 3, 1, 1, 1, 3},  {6, 4, 5, 3, 2, 5, 3, 3, 2, 1, 1, 5},
    {9, 11, 6, 5, 6, 4, 5, 5, 2, 2, 2, 2}, {6, 7, 3, 3, 4, 8, 1, 1, 2, 0, 0, 1},
    {6, 6, 4, 3, 3, 5, 3, 3, 2, 0, 0, 1}, /* padded below and to the right only */
};

static size_t pixels_in(const struct pp_conv *g, int B)
{
    return (size_t)(B * g->H * g->W * g->C);
}

static size_t pixels_out(const struct pp_conv *g, int B)
{
    return (size_t)(B * g->OH * g->OW * g->O);
}

/* Scratch of the device; the plain version needs none. */
static float *working(const struct pp_conv *g, int B, struct array *out)
{
    *out = unset(be, pp_backend_conv_scratch_floats(&be->choice, g, B) + 1, 0);
    return out->at;
}

static void check_convolutions(void)
{
    for (int i = 0; i < COUNT(windows) * 3; i++) {
        const struct pp_conv *g = &windows[i / 3];
        int B = (int[]){0, 1, 9}[i % 3];
        size_t in = pixels_in(g, B), out = pixels_out(g, B), O = (size_t)g->O;
        size_t W = O * (size_t)(g->kh * g->kw * (g->C / g->groups));
        struct array scratch;
        {
            START(pp_conv_forward, .g = g, .B = B, .relu = i % 2);
            there.scratch = working(g, B, &scratch);
            ARRAY(x, in);
            ARRAY(W, W);
            if (i % 3)
                ARRAY(b, O);
            ARRAY(y, out);
            RUN(conv_forward);
            drop(be, &scratch);
        }
        for (int add = 0; add < 2; add++) {
            START(pp_conv_backward_input, .g = g, .B = B, .add = add);
            there.scratch = working(g, B, &scratch);
            ARRAY(dz, out);
            ARRAY(W, W);
            ARRAY(dx, in);
            RUN(conv_backward_input);
            drop(be, &scratch);
        }
        struct copies c = {0};
        struct pp_weight_part parts[2][2] = {0};
        PP_OWN_MEMORY float *dz = noise("dz", out), *x = noise("x", in);
        struct array on_dz = values_on_device(be, dz, out, 0);
        struct array on_x = values_on_device(be, x, in, 0);
        for (int k = 0; k < 2; k++) { /* twice the same */
            parts[0][k] = (struct pp_weight_part){.B = B, .dz = dz, .x = x};
            parts[1][k] = (struct pp_weight_part){.B = B, .dz = on_dz.at, .x = on_x.at};
        }
        struct pp_conv_backward_weight here = {.g = g, .n = 2, .parts = parts[0], .beta = i % 2};
        struct pp_conv_backward_weight there = here;
        there.parts = parts[1];
        there.scratch = working(g, B, &scratch);
        ARRAY(dW, W);
        if (i % 3)
            ARRAY(db, O);
        RUN(conv_backward_weight);
        drop(be, &scratch);
        drop(be, &on_dz);
        drop(be, &on_x);
    }
}

TEST(convolutions_are_the_plain_ones)
{
    check_convolutions();
}

/* Also those that cuDNN does not compute. */
TEST(convolutions_by_cudnn_are_the_plain_ones)
{
    struct pp_backend *own = be, *by_cudnn = NULL;
    struct pp_backend_choice choice = own->choice;
    choice.conv = PP_CONV_CUDNN;
    if (pp_backend_open_choice(&choice, &by_cudnn) < 0) {
        assert_non_null(strstr(pp_error_get()->text, "libcudnn.so.9 cannot be loaded"));
        return;
    }
    be = by_cudnn;
    check_convolutions();
    be = own;
    pp_backend_close(&by_cudnn);
}

TEST(pictures_are_moved_as_by_the_plain_one)
{
    enum {
        B = 5,
        H = 7,
        W = 9,
        C = 3
    };
    const uint32_t index[B] = {3, 0, 2, 2, 1};
    const uint32_t moves[B] = {pp_move(0, 0, false), pp_move(-3, 2, true), pp_move(4, -4, false),
                               pp_move(1, -2, true), pp_move(9, 0, false)};
    START(pp_move_pictures, .B = B, .H = H, .W = W, .C = C);
    VALUES(index, B, (const float *)(const void *)index);
    VALUES(moves, B, (const float *)(const void *)moves);
    uint8_t bytes[4 * H * W * C];
    float words[B * H * W * C];
    for (int i = 0; i < 4 * H * W * C; i++)
        bytes[i] = (uint8_t)(1 + i * 7 % 251);
    memcpy(words, bytes, sizeof(bytes));
    VALUES(data, sizeof(bytes) / 4, words);
    struct array to = unset(be, B * H * W * C / 4 + 1, 0);
    uint8_t want[B * H * W * C], made[B * H * W * C];
    here.pictures = want;
    there.pictures = (uint8_t *)(void *)to.at;
    RUN(move_pictures);
    CHECK_OK(pp_backend_to_host(be, made, to.at, sizeof(made)));
    assert_memory_equal(made, want, sizeof(made));
    drop(be, &to);
}

/* taken comes from the plain pool. */
TEST(pools_are_the_plain_ones)
{
    struct pp_conv g[] = {windows[0], windows[1], windows[3], {9, 8, 5, 1, 1, 5, 9, 8, 1, 0, 0, 5}};
    for (int i = 0; i < 2 * COUNT(g); i++) {
        struct pp_conv *w = &g[i / 2];
        w->O = w->groups = w->C;
        size_t in = pixels_in(w, 3), out = pixels_out(w, 3);
        uint8_t bytes[2][1600];
        float words[400] = {0};
        assert_in_range(out, 1, sizeof(words));
        {
            struct array taken = unset(be, 400, 0);
            START(pp_max_pool_forward, .g = w, .B = 3);
            here.taken = bytes[0];
            there.taken = (uint8_t *)(void *)taken.at;
            ARRAY(x, in);
            c.of[0].host[in / 2] = NAN;
            send_values(be, &c.of[0].there, c.of[0].host);
            ARRAY(y, out);
            RUN(max_pool_forward);
            CHECK_OK(pp_backend_to_host(be, bytes[1], taken.at, out));
            assert_memory_equal(bytes[1], bytes[0], out);
            memcpy(words, bytes[0], out);
            drop(be, &taken);
        }
        {
            START(pp_max_pool_backward, .g = w, .B = 3, .add = i % 2);
            VALUES(taken, out / 4 + 1, words);
            ARRAY(dy, out);
            ARRAY(dx, in);
            RUN(max_pool_backward);
        }
        {
            START(pp_avg_pool, .g = w, .B = 3, .count_padding = i % 2);
            ARRAY(x, in);
            ARRAY(y, out);
            RUN(avg_pool_forward);
        }
        START(pp_avg_pool, .g = w, .B = 3, .count_padding = i % 2, .add = i % 2);
        ARRAY(x, out);
        ARRAY(y, in);
        RUN(avg_pool_backward);
    }
    const struct pp_conv text = {7, 1, 5, 1, 1, 5, 7, 1, 7, 0, 0, 5};
    const uint32_t lengths[] = {9, 3, 7}, index[] = {1, 2, 1};
    for (int back = 0; back < 2; back++) {
        START(pp_avg_pool, .g = &text, .B = 3, .add = back);
        VALUES(lengths, 3, (const float *)(const void *)lengths);
        VALUES(index, 3, (const float *)(const void *)index);
        ARRAY(x, back ? 15 : 105);
        ARRAY(y, back ? 105 : 15);
        if (back)
            RUN(avg_pool_backward);
        else
            RUN(avg_pool_forward);
    }
}
