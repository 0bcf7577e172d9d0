/* SPDX-License-Identifier: Apache-2.0 */
/* What the linear layer's ops promise on a device in every precision; checkops compares their
 * results. */
#include "gpu.h"

/* B, O, I; also rows, columns and depths that are no multiple of anything. The last
 * is for a weight gradient that is cut into slices. */
static const int gpu_shapes[][3] = {{1, 1, 1},  {3, 5, 7},    {17, 10, 123}, {8, 33, 1},
                                    {5, 1, 64}, {16, 24, 32}, {2048, 16, 12}};

struct layer {
    int B, I, O;
    float *x, *W, *b, *dz;                                 /* of the host */
    struct array dx, dW, db, dx_in, w, bias, z_in, packed; /* of the device; _in: factors */
};

static void open_layer(struct pp_backend *be, const int *shape, int off, struct layer *l)
{
    size_t bi, bo, oi;
    *l = (struct layer){.B = shape[0], .O = shape[1], .I = shape[2]};
    bi = (size_t)l->B * l->I;
    bo = (size_t)l->B * l->O;
    oi = (size_t)l->O * l->I;
    l->x = noise("x", bi);
    l->W = noise("w", oi);
    l->b = noise("b", (size_t)l->O);
    l->dz = noise("dz", bo);
    l->dx_in = values_on_device(be, l->x, bi, off);
    l->w = on_device(be, l->W, oi, off);
    l->bias = on_device(be, l->b, (size_t)l->O, off);
    l->z_in = values_on_device(be, l->dz, bo, off);
    l->dx = unset_values(be, bi, off);
    l->dW = unset(be, oi, off);
    l->db = unset(be, (size_t)l->O, off);
    size_t packed = pp_backend_packed_floats(&be->choice, l->O, l->I);
    if (packed > 0) {
        l->packed = unset(be, packed, 0);
        CHECK_OK(pp_backend_pack_weights(be, l->O, l->I, l->w.at, l->bias.at, l->packed.at));
    }
}

static void close_layer(struct pp_backend *be, struct layer *l)
{
    struct array *arrays[] = {&l->dx_in, &l->w,  &l->bias, &l->z_in,
                              &l->dx,    &l->dW, &l->db,   &l->packed};
    for (int i = 0; i < COUNT(arrays); i++)
        drop(be, arrays[i]);
    pp_free(l->x);
    pp_free(l->W);
    pp_free(l->b);
    pp_free(l->dz);
}

/* All three products of one layer, whose arrays lie `off` floats behind a boundary. */
struct results {
    struct array y, dx, dW, db;
};

static void compute(struct pp_backend *be, const int *shape, int off, bool packed,
                    struct results *r)
{
    struct layer l;
    open_layer(be, shape, off, &l);
    float *copy = packed ? l.packed.at : NULL;
    r->y = unset_values(be, (size_t)l.B * l.O, off);
    CHECK_OK(pp_backend_linear_forward(
        be, &(struct pp_linear_forward){l.B, l.I, l.O, l.dx_in.at, l.w.at, copy, l.bias.at,
                                        PP_ACT_RELU, NULL, r->y.at, 0}));
    CHECK_OK(pp_backend_linear_backward_input(
        be,
        &(struct pp_linear_backward_input){l.B, l.I, l.O, l.z_in.at, l.w.at, copy, l.dx.at, 0}));
    struct pp_weight_part part = {.B = l.B, .dz = l.z_in.at, .x = l.dx_in.at};
    CHECK_OK(pp_backend_linear_backward_weight(
        be, &(struct pp_linear_backward_weight){1, &part, l.I, l.O, 0, l.dW.at, l.db.at, 0}));
    CHECK_OK(pp_backend_linear_backward_weight(
        be, &(struct pp_linear_backward_weight){1, &part, l.I, l.O, 1, l.dW.at, l.db.at, 0}));
    r->dx = l.dx;
    r->dW = l.dW;
    r->db = l.db;
    l.dx = l.dW = l.db = (struct array){0};
    close_layer(be, &l);
}

static void check_same_results(struct pp_backend *a, struct results *x, struct pp_backend *b,
                               struct results *y)
{
    struct array *xs[] = {&x->y, &x->dx, &x->dW, &x->db};
    struct array *ys[] = {&y->y, &y->dx, &y->dW, &y->db};
    static const char *const names[] = {"y", "dx", "dW", "db"};
    for (int i = 0; i < COUNT(xs); i++) {
        check_same_bits(a, xs[i], ys[i], names[i]);
        drop(a, xs[i]);
        drop(b, ys[i]);
    }
}

TEST(the_same_call_gives_the_same_bits_whatever_the_addresses)
{
    for (int p = 0; p < COUNT(precisions); p++) {
        for (int exact = 0; exact <= 1; exact++) {
            struct pp_backend *be = open_gpu(precisions[p].precision, exact);
            for (int s = 0; s < COUNT(gpu_shapes); s++) {
                struct results a, b, c;
                compute(be, gpu_shapes[s], 0, true, &a);
                compute(be, gpu_shapes[s], 1, false, &b);
                check_same_results(be, &a, be, &b);
                compute(be, gpu_shapes[s], 2, true, &a);
                compute(be, gpu_shapes[s], 0, false, &c);
                check_same_results(be, &a, be, &c);
            }
            pp_backend_close(&be);
        }
    }
}

/* What a rank computes does not depend on who else is there: the bits of any number of stages. */
TEST(exact_gives_the_same_bits_on_another_rank_and_a_part_of_the_device)
{
    struct pp_backend *whole = open_gpu(PP_PRECISION_F32, true), *part = NULL;
    struct pp_backend_choice choice = whole->choice;
    choice.partition = 1;
    choice.partitions = 2;
    int rc = pp_backend_open_choice(&choice, &part);
    if (rc < 0) {
        print_message("no parts of this device: %s\n", pp_error_get()->text);
        pp_error_clear();
        choice.partitions = 0;
        CHECK_OK(pp_backend_open_choice(&choice, &part));
    } else {
        assert_non_null(strstr(part->description, " SMs"));
    }
    for (int s = 0; s < COUNT(gpu_shapes); s++) {
        struct results a, b;
        compute(whole, gpu_shapes[s], 0, false, &a);
        compute(part, gpu_shapes[s], 0, false, &b);
        check_same_results(whole, &a, part, &b);
    }
    pp_backend_close(&part);
    pp_backend_close(&whole);
}

/* W, b and their gradients lie `off` floats behind a boundary, as those behind an odd layer do. */
static void check_prepared(enum pp_precision precision, bool exact, int off)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_gpu(precision, exact);
    struct layer rows, weights;
    const int shape[] = {20, 7, 33};
    open_layer(be, shape, 0, &rows);
    open_layer(be, shape, off, &weights);
    struct array y = unset_values(be, (size_t)20 * 7, 0);
    struct array z = unset_values(be, (size_t)20 * 7, 0);
    struct pp_linear_use use = {.B = 20,
                                .I = 33,
                                .O = 7,
                                .act = PP_ACT_GELU,
                                .keeps_z = true,
                                .dx = true,
                                .W = weights.w.at,
                                .packed = weights.packed.at,
                                .b = weights.bias.at,
                                .dW = weights.dW.at,
                                .db = weights.db.at};
    CHECK_OK(pp_backend_prepare_linear(be, &use));
    uint64_t before = pp_alloc_count();
    struct pp_weight_part parts[] = {{.B = 20, .dz = rows.z_in.at, .x = rows.dx_in.at},
                                     {.B = 20, .dz = rows.z_in.at, .x = rows.dx_in.at}};
    CHECK_OK(pp_backend_linear_forward(be, &(struct pp_linear_forward){20, 33, 7, rows.dx_in.at,
                                                                       use.W, use.packed, use.b,
                                                                       use.act, z.at, y.at, 0}));
    CHECK_OK(pp_backend_linear_backward_input(
        be, &(struct pp_linear_backward_input){20, 33, 7, rows.z_in.at, use.W, use.packed,
                                               rows.dx.at, 0}));
    CHECK_OK(pp_backend_linear_backward_weight(
        be, &(struct pp_linear_backward_weight){2, parts, 33, 7, 0, use.dW, use.db, 0}));
    CHECK_OK(pp_backend_prepare_linear(be, &use));
    CHECK_INT_EQ(pp_alloc_count(), before);
    drop(be, &y);
    drop(be, &z);
    close_layer(be, &rows);
    close_layer(be, &weights);
}

TEST(what_was_prepared_takes_no_memory_later)
{
    for (int p = 0; p < COUNT(precisions); p++) {
        for (int off = 0; off <= 1; off++) {
            check_prepared(precisions[p].precision, true, off);
            check_prepared(precisions[p].precision, false, off);
        }
    }
}

TEST(without_rows_a_weight_gradient_is_zero_or_stays)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_gpu(PP_PRECISION_F32, true);
    const float some[] = {1, 2, 3, 4, 5, 6}, zeros[6] = {0};
    struct pp_weight_part parts[] = {{.B = 0, .dz = NULL, .x = NULL},
                                     {.B = 0, .dz = NULL, .x = NULL}};
    struct array dW = on_device(be, some, 6, 0), db = on_device(be, some, 2, 0);
    CHECK_OK(pp_backend_linear_backward_weight(
        be, &(struct pp_linear_backward_weight){2, parts, 3, 2, 1, dW.at, db.at, 0}));
    check_near(be, &dW, some, 0, "dW");
    check_near(be, &db, some, 0, "db");
    CHECK_OK(pp_backend_linear_backward_weight(
        be, &(struct pp_linear_backward_weight){2, parts, 3, 2, 0, dW.at, db.at, 0}));
    check_near(be, &dW, zeros, 0, "dW");
    check_near(be, &db, zeros, 0, "db");
    CHECK_OK(
        pp_backend_linear_forward(be, &(struct pp_linear_forward){0, 3, 2, NULL, dW.at, NULL, db.at,
                                                                  PP_ACT_RELU, NULL, NULL, 0}));
    CHECK_OK(pp_backend_linear_backward_input(
        be, &(struct pp_linear_backward_input){0, 3, 2, NULL, dW.at, NULL, NULL, 0}));
    CHECK_OK(back_in_place(be, 0, PP_ACT_RELU, NULL, NULL));
    drop(be, &dW);
    drop(be, &db);
}

TEST(a_nan_comes_through_every_activation)
{
    for (int p = 0; p < COUNT(precisions); p++) {
        for (int exact = 0; exact <= 1; exact++) {
            struct pp_backend *be = open_gpu(precisions[p].precision, exact);
            for (int a = 0; a < COUNT(activations); a++) {
                struct layer l;
                open_layer(be, (const int[]){4, 8, 16}, 0, &l);
                l.x[16] = NAN; /* of row 1 */
                send_values(be, &l.dx_in, l.x);
                struct array y = unset_values(be, 32, 0);
                CHECK_OK(pp_backend_linear_forward(
                    be, &(struct pp_linear_forward){4, 16, 8, l.dx_in.at, l.w.at, NULL, l.bias.at,
                                                    activations[a], NULL, y.at, 0}));
                float *host = from_device(be, &y);
                for (int i = 0; i < 32; i++)
                    CHECK_INT_EQ(isnan(host[i]) != 0, i / 8 == 1);
                pp_free(host);
                drop(be, &y);
                close_layer(be, &l);
            }
            pp_backend_close(&be);
        }
    }
}

/* A layer's padded logits, against those that are not: NaN lies between the rows. */
static void rows_are_near(struct pp_backend *be, struct pp_backend *plain, int B, int O, int I,
                          double part)
{
    int row = pp_backend_logits_row(&be->choice, O);
    struct layer l;
    open_layer(be, (const int[]){B, O, I}, 0, &l);
    size_t all = (size_t)B * (size_t)row, dense = (size_t)B * (size_t)O;
    PP_OWN_MEMORY float *apart = nans(all), *y = nans(dense), *dx = nans((size_t)B * (size_t)I);
    PP_OWN_MEMORY float *dW = nans((size_t)O * (size_t)I), *got = nans(dense), *d = nans(dense);
    for (int r = 0; r < B; r++)
        memcpy(apart + r * row, l.dz + r * O, (size_t)O * sizeof(*apart));
    struct array dz = values_on_device(be, apart, all, 0), logits = unset_values(be, all, 0);
    const struct pp_weight_part host = {.B = B, .dz = l.dz, .x = l.x};
    const struct pp_weight_part there = {.B = B, .dz = dz.at, .x = l.dx_in.at};
    const struct pp_linear_use use = {.B = B,
                                      .I = I,
                                      .O = O,
                                      .dx = true,
                                      .W = l.w.at,
                                      .packed = l.packed.at,
                                      .dW = l.dW.at,
                                      .row = row};
    CHECK_INT_EQ(row % 64, 0);
    assert_in_range(row, O + 1, O + 63);
    CHECK_OK(pp_backend_prepare_linear(be, &use));
    CHECK_OK(
        pp_backend_linear_forward(plain, &(struct pp_linear_forward){B, I, O, l.x, l.W, NULL, NULL,
                                                                     PP_ACT_NONE, NULL, y, 0}));
    CHECK_OK(pp_backend_linear_forward(
        be, &(struct pp_linear_forward){B, I, O, l.dx_in.at, l.w.at, l.packed.at, NULL, PP_ACT_NONE,
                                        NULL, logits.at, row}));
    CHECK_OK(pp_backend_linear_backward_input(
        plain, &(struct pp_linear_backward_input){B, I, O, l.dz, l.W, NULL, dx, 0}));
    CHECK_OK(pp_backend_linear_backward_input(
        be, &(struct pp_linear_backward_input){B, I, O, dz.at, l.w.at, l.packed.at, l.dx.at, row}));
    check_near(be, &l.dx, dx, part, "dx");
    for (int beta = 0; beta <= 1; beta++) {
        CHECK_OK(pp_backend_linear_backward_weight(
            plain, &(struct pp_linear_backward_weight){1, &host, I, O, (float)beta, dW, NULL, 0}));
        CHECK_OK(pp_backend_linear_backward_weight(
            be,
            &(struct pp_linear_backward_weight){1, &there, I, O, (float)beta, l.dW.at, NULL, row}));
        check_near(be, &l.dW, dW, part, "dW");
    }
    CHECK_OK(pp_backend_rows_to_host(be, got, logits.at, (size_t)B, O, row));
    struct array copy = on_device(be, got, dense, 0);
    check_near(be, &copy, y, part, "logits");
    drop(be, &copy);

    PP_OWN_MEMORY int32_t *targets = pp_alloc((size_t)B, sizeof(*targets));
    struct pp_loss_sums sums[2] = {0};
    void *of_device, *at;
    for (int r = 0; r < B; r++)
        targets[r] = r % 5 == 3 ? -1 : r * 37 % O;
    CHECK_OK(pp_backend_alloc(be, sizeof(sums[0]), &of_device));
    CHECK_OK(pp_backend_alloc(be, (size_t)B * sizeof(*targets), &at));
    CHECK_OK(pp_backend_to_device(be, at, targets, (size_t)B * sizeof(*targets)));
    struct pp_softmax_cross_entropy loss = {1,        B, O,    got, targets, 0.25f, 0.1f,
                                            &sums[0], d, NULL, 0,   0,       NULL};
    CHECK_OK(pp_backend_softmax_cross_entropy(plain, &loss));
    loss.logits = loss.dlogits = logits.at;
    loss.targets = at;
    loss.sums = of_device;
    loss.row = row;
    CHECK_OK(pp_backend_softmax_cross_entropy(be, &loss));
    CHECK_OK(pp_backend_to_host(be, &sums[1], of_device, sizeof(sums[1])));
    CHECK_OK(pp_backend_rows_to_host(be, got, logits.at, (size_t)B, O, row));
    copy = on_device(be, got, dense, 0);
    check_near(be, &copy, d, part > 1e-2 ? part : 1e-5, "dlogits");
    assert_true(fabs(sums[0].loss - sums[1].loss) <= 1e-5 * sums[0].loss);
    CHECK_INT_EQ(sums[1].correct, sums[0].correct);
    CHECK_INT_EQ(sums[1].targets, sums[0].targets);
    pp_backend_free(be, of_device, sizeof(sums[0]));
    pp_backend_free(be, at, (size_t)B * sizeof(*targets));
    struct array *arrays[] = {&copy, &dz, &logits};
    for (int i = 0; i < COUNT(arrays); i++)
        drop(be, arrays[i]);
    close_layer(be, &l);
}

TEST(padded_rows_of_logits_give_what_dense_ones_do)
{
    PP_OWN(pp_backend_close) struct pp_backend *plain = open_backend("reference");
    for (int p = 0; p < COUNT(precisions); p++) {
        for (int exact = 0; exact <= 1; exact++) {
            struct pp_backend *be = open_gpu(precisions[p].precision, exact);
            rows_are_near(be, plain, 7, 1031, 9, precisions[p].part);
            rows_are_near(be, plain, 1024, 1026, 8, precisions[p].part); /* slices */
            CHECK_INT_EQ(pp_backend_logits_row(&be->choice, 1001), 1001);
            CHECK_INT_EQ(pp_backend_logits_row(&be->choice, 50264), 50264);
            CHECK_INT_EQ(pp_backend_logits_row(&plain->choice, 50257), 50257);
            pp_backend_close(&be);
        }
    }
}

int main(void)
{
    int rc = no_gpu();
    return rc ? rc : tests_run(NULL, NULL);
}
