/* SPDX-License-Identifier: Apache-2.0 */
/* Marks between ranks of one device, and steps that are recorded once and replayed. */
#include "gpu.h"

#include "ppcli/base/base.h"

#define N 100000

/* Wait until the mark is reached, on the host; a test that hangs fails. */
static void reach(struct pp_backend *be, void *mark)
{
    bool reached = false;
    uint64_t start = pp_clock_ns();
    while (!reached) {
        CHECK_OK(pp_backend_mark_reached(be, mark, &reached));
        assert_true(pp_clock_ns() - start < 20000000000ull);
    }
}

TEST(a_mark_orders_the_streams_of_two_ranks)
{
    PP_OWN(pp_backend_close) struct pp_backend *a = open_gpu(PP_PRECISION_F32, true);
    PP_OWN(pp_backend_close) struct pp_backend *b = open_gpu(PP_PRECISION_F32, true);
    PP_OWN_MEMORY float *ones = pp_alloc(N, sizeof(*ones));
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    struct array x = on_device(a, ones, N, 0), y = on_device(a, ones, N, 0);
    void *done, *never, *free;
    CHECK_OK(pp_backend_mark_create(a, false, &done));
    CHECK_OK(pp_backend_mark_create(b, false, &free));
    CHECK_OK(pp_backend_mark_create(a, false, &never));
    CHECK_OK(pp_backend_mark_wait(b, never));
    reach(b, never);
    for (int i = 0; i < 10; i++) { /* x doubles on a, y takes it on b */
        CHECK_OK(pp_backend_mark_wait(a, free));
        CHECK_OK(pp_backend_add(a, N, x.at, x.at));
        CHECK_OK(pp_backend_mark_set(a, done));
        CHECK_OK(pp_backend_mark_wait(b, done));
        CHECK_OK(pp_backend_copy(b, y.at, x.at, N * sizeof(float)));
        CHECK_OK(pp_backend_mark_set(b, free));
    }
    reach(b, free);
    for (int i = 0; i < N; i++)
        ones[i] = 1024;
    check_near(a, &y, ones, 0, "y");
    pp_backend_mark_destroy(a, done);
    pp_backend_mark_destroy(a, never);
    pp_backend_mark_destroy(b, free);
    drop(a, &x);
    drop(a, &y);
}

TEST(timed_marks_tell_how_long_the_device_took)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_gpu(PP_PRECISION_F32, true);
    struct array x = on_device(be, NULL, N, 0);
    void *from, *to;
    uint64_t ns;
    CHECK_OK(pp_backend_mark_create(be, true, &from));
    CHECK_OK(pp_backend_mark_create(be, true, &to));
    uint64_t start = pp_clock_ns();
    CHECK_OK(pp_backend_mark_set(be, from));
    for (int i = 0; i < 5; i++)
        CHECK_OK(pp_backend_add(be, N, x.at, x.at));
    CHECK_OK(pp_backend_mark_set(be, to));
    reach(be, to);
    uint64_t all = pp_clock_ns() - start;
    CHECK_OK(pp_backend_mark_elapsed(be, from, to, &ns));
    assert_true(ns > 0);
    assert_true(ns <= all + 1000000); /* the two clocks may differ a little */
    pp_backend_mark_destroy(be, from);
    pp_backend_mark_destroy(be, to);
    drop(be, &x);
}

/* One step of one layer on rank a, whose product rank b adds up: y = relu(x W + b), sum += y. */
struct step {
    struct pp_backend *a, *b;
    struct array x, w, bias, y, sum;
    void *pinned; /* what x is filled with */
    void *fork, *there, *join;
};

static void enqueue(struct step *s)
{
    const struct pp_sum add = {.n = s->y.n, .a = s->sum.at, .b = s->y.at, .y = s->sum.at};
    CHECK_OK(pp_backend_mark_set(s->a, s->fork));
    CHECK_OK(pp_backend_mark_wait(s->b, s->fork));
    CHECK_OK(pp_backend_upload(s->a, s->x.at, s->pinned, s->x.n * s->x.element));
    CHECK_OK(pp_backend_linear_forward(
        s->a, &(struct pp_linear_forward){8, 16, 4, s->x.at, s->w.at, NULL, s->bias.at, PP_ACT_RELU,
                                          NULL, s->y.at, 0}));
    CHECK_OK(pp_backend_mark_set(s->a, s->there));
    CHECK_OK(pp_backend_mark_wait(s->b, s->there));
    CHECK_OK(pp_backend_sum(s->b, &add));
    CHECK_OK(pp_backend_mark_set(s->b, s->join));
    CHECK_OK(pp_backend_mark_wait(s->a, s->join));
}

/* warm: the shape was seen before the capture. */
static void check_replay(enum pp_precision precision, bool exact, bool warm)
{
    struct step s = {.a = open_gpu(precision, exact), .b = open_gpu(precision, exact)};
    float *W = noise("w", 64), *b = noise("b", 4), *x = noise("x", 128), more[128], none[32] = {0};
    s.x = unset_values(s.a, 128, 0);
    s.w = on_device(s.a, W, 64, 0);
    s.bias = on_device(s.a, b, 4, 0);
    s.y = unset_values(s.a, 32, 0);
    s.sum = values_on_device(s.a, none, 32, 0);
    void *graph, *end;
    CHECK_OK(pp_backend_host_alloc(s.a, 128 * sizeof(float), &s.pinned));
    pack_values(s.pinned, x, 128, s.x.element);
    CHECK_OK(pp_backend_mark_create(s.a, false, &s.fork));
    CHECK_OK(pp_backend_mark_create(s.a, false, &s.there));
    CHECK_OK(pp_backend_mark_create(s.b, false, &s.join));
    CHECK_OK(pp_backend_mark_create(s.a, false, &end));
    if (warm) {
        enqueue(&s);
        CHECK_OK(pp_backend_synchronize(s.a));
        CHECK_OK(pp_backend_zero(s.a, s.sum.at, 32 * s.sum.element));
        CHECK_OK(pp_backend_synchronize(s.a));
        pp_backend_mark_destroy(s.a, s.fork); /* set outside, it has no place in a capture */
        CHECK_OK(pp_backend_mark_create(s.a, false, &s.fork));
    }
    CHECK_OK(pp_backend_capture_begin(s.a));
    enqueue(&s);
    CHECK_OK(pp_backend_capture_end(s.a, &graph));
    CHECK_OK(pp_backend_synchronize(s.a));
    struct pp_backend *plain = open_backend("reference");
    float y[32], sum[32] = {0};
    for (int replay = 0; replay < 3; replay++) {
        for (int i = 0; i < 128; i++)
            more[i] = x[i] * (float)(1 << replay);
        pack_values(s.pinned, more, 128, s.x.element);
        CHECK_OK(
            pp_backend_linear_forward(plain, &(struct pp_linear_forward){8, 16, 4, more, W, NULL, b,
                                                                         PP_ACT_RELU, NULL, y, 0}));
        CHECK_OK(pp_backend_add(plain, 32, y, sum));
        CHECK_OK(pp_backend_graph_launch(s.a, graph));
        CHECK_OK(pp_backend_mark_set(s.a, end));
        reach(s.a, end);
    }
    check_near(s.a, &s.sum, sum, precisions[precision].part, "sum");
    pp_backend_close(&plain);
    pp_backend_graph_destroy(s.a, graph);
    void *marks[] = {s.fork, s.there, end};
    for (int i = 0; i < COUNT(marks); i++)
        pp_backend_mark_destroy(s.a, marks[i]);
    pp_backend_mark_destroy(s.b, s.join);
    pp_backend_host_free(s.a, s.pinned, 128 * sizeof(float));
    struct array *arrays[] = {&s.x, &s.w, &s.bias, &s.y, &s.sum};
    for (int i = 0; i < COUNT(arrays); i++)
        drop(s.a, arrays[i]);
    pp_free(W);
    pp_free(b);
    pp_free(x);
    pp_backend_close(&s.b);
    pp_backend_close(&s.a);
}

TEST(a_captured_step_of_two_ranks_replays_with_other_values)
{
    for (int p = 0; p < COUNT(precisions); p++)
        for (int exact = 0; exact <= 1; exact++)
            check_replay(precisions[p].precision, exact, true);
}

TEST(a_shape_may_be_new_inside_a_capture)
{
    check_replay(PP_PRECISION_F32, true, false);
    check_replay(PP_PRECISION_BF16, false, false);
}

TEST(memory_is_copied_from_one_device_to_another)
{
    struct pp_backend_choice choice = {.threads = 1, .device = 1};
    struct pp_device two[2];
    char why[256];
    int n = 0;
    CHECK_OK(pp_backend_resolve("cuda", &choice.ops));
    CHECK_INT_EQ(choice.ops->devices(two, 2, &n, why, sizeof(why)), 0);
    if (n < 2) {
        print_message("there is one device\n");
        skip();
    }
    PP_OWN_MEMORY float *ours = noise("x", N);
    PP_OWN(pp_backend_close) struct pp_backend *a = open_gpu(PP_PRECISION_F32, true), *b = NULL;
    struct array x = on_device(a, ours, N, 0);
    void *filled;
    CHECK_OK(pp_backend_mark_create(a, false, &filled));
    CHECK_OK(pp_backend_mark_set(a, filled));
    CHECK_OK(pp_backend_open_choice(&choice, &b)); /* from here on this thread is that device's */
    struct array y = unset(b, N, 0);
    CHECK_OK(pp_backend_mark_wait(b, filled));
    CHECK_OK(pp_backend_copy(b, y.at, x.at, N * sizeof(float)));
    check_near(b, &y, ours, 0, "y");
    assert_string_not_equal(two[0].uuid, two[1].uuid);
    drop(b, &y);
    drop(a, &x);
    pp_backend_mark_destroy(a, filled);
}

TEST(a_device_that_is_not_there_is_refused)
{
    struct pp_backend_choice choice = {.threads = 1, .device = 63};
    struct pp_backend *be = NULL;
    CHECK_OK(pp_backend_resolve("cuda", &choice.ops));
    CHECK_FAILS(pp_backend_open_choice(&choice, &be), PP_ERESOURCE, "cuda device 63");
    choice.device = 0;
    choice.partitions = 1000;
    CHECK_FAILS(pp_backend_open_choice(&choice, &be), PP_ERESOURCE, "run.partition_sms = off");
}

TEST(more_memory_than_there_is_is_refused_with_both_numbers)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_gpu(PP_PRECISION_F32, true);
    void *p = NULL;
    CHECK_FAILS(pp_backend_alloc(be, (size_t)1 << 50, &p), PP_ERESOURCE, "1073741824.0 MiB asked");
    struct array x = on_device(be, (const float[]){1}, 1, 0); /* and goes on */
    CHECK_OK(pp_backend_add(be, 1, x.at, x.at));
    check_near(be, &x, (const float[]){2}, 0, "x");
    drop(be, &x);
}

int main(void)
{
    int rc = no_gpu();
    return rc ? rc : tests_run(NULL, NULL);
}
