/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulation stops where something is enqueued that a waiting call of the product should have come
 * before. The product orders its own calls, so each race here goes around it, straight to the stream.
 * Each is tried in a program of its own: argv[1] names it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "../../src/dev/cuda/cuda_impl.h"
#include "../gpu/gpu.h"

static const char *self; /* path of this program */

enum {
    ROWS = 1024,
    O = 16,
    I = 8
};

struct layer {
    struct pp_backend *be;
    struct array x, dz, dW, db;
    cudaStream_t stream;
};

/* A sliced gradient, whose sum over slices waits, and that of its bias. */
static struct layer leave_waiting(void)
{
    struct layer l = {.be = open_gpu(PP_PRECISION_F32, true)};
    float *x = noise("x", (size_t)ROWS * I), *dz = noise("dz", (size_t)ROWS * O);
    l.x = values_on_device(l.be, x, (size_t)ROWS * I, 0);
    l.dz = values_on_device(l.be, dz, (size_t)ROWS * O, 0);
    l.dW = unset(l.be, (size_t)O * I, 0);
    l.db = unset(l.be, O, 0);
    l.stream = pp_backend_native_stream(l.be);
    struct pp_weight_part part = {.B = ROWS, .dz = l.dz.at, .x = l.x.at};
    CHECK_OK(pp_backend_collect(l.be, PP_COLLECT_WEIGHTS));
    CHECK_OK(pp_backend_linear_backward_weight(
        l.be, &(struct pp_linear_backward_weight){1, &part, I, O, 0, l.dW.at, l.db.at, 0}));
    return l;
}

static int race(const char *what)
{
    struct layer l = leave_waiting();
    uint16_t *half = (uint16_t *)(void *)l.x.at;
    if (!strcmp(what, "overwritten")) /* dW */
        cudaMemsetAsync(l.dW.at, 0, sizeof(float), l.stream);
    else if (!strcmp(what, "copied")) /* db, too early */
        cudaMemcpyAsync(l.x.at, l.db.at, O * sizeof(float), cudaMemcpyDeviceToDevice, l.stream);
    else if (!strcmp(what, "read")) /* dW, by a kernel */
        kernels_to_bf16(l.stream, (size_t)O * I, l.dW.at, half);
    else if (!strcmp(what, "changed")) /* dz, which the sum of db still reads, by a kernel */
        kernels_noise(l.stream, 100, false, l.dz.at + 40);
    else if (!strcmp(what, "beside")) /* arrays that no waiting call writes */
        kernels_to_bf16(l.stream, 100, l.dz.at, half);
    else
        CHECK_OK(pp_backend_collect(l.be, PP_COLLECT_NOTHING));
    cudaStreamSynchronize(l.stream);
    CHECK_OK(pp_backend_collect(l.be, PP_COLLECT_NOTHING));
    cudaMemsetAsync(l.dW.at, 0, sizeof(float), l.stream);
    cudaStreamSynchronize(l.stream);
    fflush(stdout);
    _Exit(0);
}

static int run_race(const char *what, char *text, size_t bytes)
{
    char line[512];
    snprintf(line, sizeof(line), "exec '%s' %s 2>&1", self, what);
    FILE *p = popen(line, "r");
    assert_non_null(p);
    text[fread(text, 1, bytes - 1, p)] = '\0';
    return pclose(p);
}

static void check_found(const char *what, const char *words)
{
    char text[4096];
    int status = run_race(what, text, sizeof(text));
    if (status == 0 || !strstr(text, words))
        fail_msg("%s: ended with %d and said '%s', expected '%s'", what, status, text, words);
}

TEST(a_copy_that_meets_a_sum_that_waits_is_found)
{
    check_found("overwritten", "cudaMemsetAsync writes 4 bytes that a sum of slices, which waits, "
                               "has still to write");
    check_found("copied", "cudaMemcpyAsync reads 64 bytes that a sum over rows");
}

#ifdef WATCHED
TEST(a_kernel_that_meets_a_sum_that_waits_is_found)
{
    check_found("read", "reads what a sum of slices, which waits, has still to write");
    check_found("changed", "writes what a sum over rows, which waits, has still to read");
}
#endif

TEST(what_meets_none_or_comes_after_it_is_allowed)
{
    char text[4096];
    const char *const all[] = {"beside", "after"};
    for (int i = 0; i < COUNT(all); i++)
        if (run_race(all[i], text, sizeof(text)) != 0)
            fail_msg("%s: %s", all[i], text);
}

int main(int argc, char **argv)
{
    self = argv[0];
    return argc > 1 ? race(argv[1]) : tests_run(NULL, NULL);
}
