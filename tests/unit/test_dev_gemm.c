/* SPDX-License-Identifier: Apache-2.0 */
/* What providers of matrix products promise besides their numbers, which checkops compares; and which
 * one computes follows from the config alone. */
#include "dev_inputs.h"

#include "../../src/dev/cpu/gemm.h"

struct products {
    int B, I, O;
    float *x, *W, *b, *dz; /* inputs */
    float *y, *dx, *dW;    /* results */
    float *packed;         /* room for a copy of W */
    float *memory;         /* owned */
    size_t n_y, n_dx, n_dW;
};

/* Every array `shift` floats off its alignment, the results full of NaN but for dW. */
static void make(struct products *p, int B, int I, int O, size_t shift)
{
    size_t bi = (size_t)B * I, bo = (size_t)B * O, oi = (size_t)O * I, room = ((size_t)O + 15) * I;
    size_t sizes[] = {bi, oi, (size_t)O, bo, bo, bi, oi, room}, total = 0;
    float **arrays[] = {&p->x, &p->W, &p->b, &p->dz, &p->y, &p->dx, &p->dW, &p->packed};
    const char *names[] = {"x", "W", "b", "dz", NULL, NULL, "dW", NULL};
    *p = (struct products){.B = B, .I = I, .O = O, .n_y = bo, .n_dx = bi, .n_dW = oi};
    for (int a = 0; a < COUNT(sizes); a++)
        total += (sizes[a] + 31) / 16 * 16;
    p->memory = nans(total);
    float *at = p->memory;
    for (int a = 0; a < COUNT(sizes); a++) {
        *arrays[a] = at + shift;
        at += (sizes[a] + 31) / 16 * 16;
        if (names[a]) {
            PP_OWN_MEMORY float *from = noise(names[a], sizes[a]);
            memcpy(*arrays[a], from, sizes[a] * sizeof(float));
        }
    }
}

static void run(const struct cpu_gemm *g, struct products *p, bool packed, float beta)
{
    struct pp_weight_part part = {.B = p->B, .dz = p->dz, .x = p->x};
    if (packed)
        g->pack(p->O, p->I, p->W, p->packed);
    g->forward(p->B, p->I, p->O, (size_t)p->O, p->x, p->W, packed ? p->packed : NULL, p->b, true,
               p->y);
    g->backward_input(p->B, p->I, p->O, (size_t)p->I, p->dz, p->W, p->dx);
    g->backward_weight(1, &part, p->I, p->O, &(struct cpu_block){0, p->O, 0, p->I}, beta, p->dW);
}

TEST(with_beta_0_the_old_gradient_is_not_read)
{
    for (int n = 0; cpu_gemm_own(n); n++) {
        struct products p;
        make(&p, 9, 40, 17, 0);
        for (size_t i = 0; i < p.n_dW; i++)
            p.dW[i] = NAN;
        run(cpu_gemm_own(n), &p, true, 0);
        for (size_t i = 0; i < p.n_dW; i++)
            assert_false(isnan(p.dW[i]));
        pp_free(p.memory);
    }
}

/* What makes coalesced weight gradients as exact as separate ones. */
TEST(own_weight_gradients_do_not_depend_on_how_rows_are_spread_over_parts)
{
    enum {
        B = 600,
        I = 37,
        O = 21,
        PARTS = 50
    };
    for (int n = 0; cpu_gemm_own(n); n++) {
        const struct cpu_gemm *g = cpu_gemm_own(n);
        struct products p;
        make(&p, B, I, O, 0);
        run(g, &p, false, 0);
        struct pp_weight_part parts[PARTS];
        int at = 0;
        for (int k = 0; k < PARTS; k++) { /* of 0 to 24 rows each */
            int rows = k == PARTS - 1 ? B - at : k * 7 % 25;
            parts[k] = (struct pp_weight_part){
                .B = rows, .dz = p.dz + (size_t)at * O, .x = p.x + (size_t)at * I};
            at += rows;
        }
        assert_true(at == B);
        float *together = nans(p.n_dW), *apart = nans(p.n_dW);
        const struct cpu_block all = {0, O, 0, I};
        g->backward_weight(PARTS, parts, I, O, &all, 0, together);
        g->backward_weight(1, &parts[1], I, O, &all, 0, apart);
        for (int k = 2; k < PARTS; k++)
            g->backward_weight(1, &parts[k], I, O, &all, 1, apart);
        assert_memory_equal(together, p.dW, p.n_dW * sizeof(float));
        assert_memory_equal(apart, p.dW, p.n_dW * sizeof(float));
        pp_free(together);
        pp_free(apart);
        pp_free(p.memory);
    }
}

TEST(relu_keeps_a_nan)
{
    for (int n = 0; cpu_gemm_own(n); n++) {
        struct products p;
        make(&p, 2, 3, 5, 0);
        p.x[0] = NAN;
        run(cpu_gemm_own(n), &p, true, 0);
        for (int o = 0; o < 5; o++)
            assert_true(isnan(p.y[o]) && !isnan(p.y[5 + o]));
        pp_free(p.memory);
    }
}

static struct pp_backend *open_with(const char *name, enum pp_gemm gemm, int threads)
{
    struct pp_backend_choice choice = {.threads = threads, .gemm = gemm};
    struct pp_backend *be = NULL;
    CHECK_OK(pp_backend_resolve(name, &choice.ops));
    CHECK_OK(pp_backend_open_choice(&choice, &be));
    return be;
}

TEST(the_config_decides_who_multiplies)
{
    char blas[96];
    pp_blas_describe(blas, sizeof(blas));
    if (!cblas_loads())
        skip();
    struct pp_backend *be = open_with("cpu", PP_GEMM_CBLAS, 1);
    assert_non_null(strstr(be->description, blas));
    CHECK_INT_EQ(pp_backend_packed_floats(&be->choice, 100, 100), 0);
    pp_backend_close(&be);
    be = open_with("cpu", PP_GEMM_AUTO, 1);
    print_message("# %s\n", be->description);
    if (cpu_gemm_own(0)) {
        assert_non_null(strstr(be->description, "own products ("));
        CHECK_INT_EQ(pp_backend_packed_floats(&be->choice, 100, 100), 112 * 100);
    } else {
        assert_non_null(strstr(be->description, blas));
    }
    pp_backend_close(&be);
}
