/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of elementwise nodes: their gradients, what they load, and what is refused. */
#include "../../src/nn/program.h"
#include "dev_inputs.h"

#define A_MAX 24

/* A program of n numbers of up to three inputs, and its gradient. */
struct both {
    struct program f, g;
    struct pp_expr forward, back;
    int in[PP_EXPR_INPUTS], in_back[PP_EXPR_INPUTS];
};

static void make_both(int n_inputs, int n_steps, const struct expr_step *steps, uint64_t wanted,
                      struct both *t)
{
    struct expr_operand operands[3];
    struct expr_step copy[A_MAX];
    for (int i = 0; i < 3; i++)
        operands[i] = (struct expr_operand){.input = i, .stride = {1}, .table_axis = -1};
    memcpy(copy, steps, (size_t)n_steps * sizeof(*steps));
    const struct expr_piece piece = {.n_axes = 1,
                                     .size = {1},
                                     .n_operands = n_inputs,
                                     .operands = operands,
                                     .n_steps = n_steps,
                                     .steps = copy,
                                     .result = {.stride = {1}, .table_axis = -1}};
    program_of_piece(&piece, NULL, &t->f);
    program_derive(&t->f, wanted, &t->g);
    assert_true(expr_fits(&piece));
    assert_true(program_complete(&t->f, NULL, &t->forward, t->in));
    assert_true(program_complete(&t->g, NULL, &t->back, t->in_back));
}

static float value_of(struct pp_backend *be, const struct both *t, const float *x)
{
    float y = NAN;
    struct pp_expr_run run = {.B = 1, .e = &t->forward, .y = {&y}};
    for (int k = 0; k < t->forward.n_in; k++)
        run.x[k] = &x[t->in[k]];
    CHECK_OK(pp_backend_expr(be, &run));
    return y;
}

/* Sets dx[3] to the gradients for dy, 0 where there is none. */
static void gradient_of(struct pp_backend *be, const struct both *t, const float *x, float dy,
                        float *dx)
{
    struct pp_expr_run run = {.B = 1, .e = &t->back};
    for (int j = 0; j < 3; j++)
        dx[j] = 0;
    for (int k = 0; k < t->back.n_in; k++)
        run.x[k] = t->in_back[k] == PROGRAM_DY ? &dy : &x[t->in_back[k]];
    for (int k = 0; k < t->back.n_out; k++)
        run.y[k] = &dx[t->g.out[k].at.input];
    CHECK_OK(pp_backend_expr(be, &run));
}

/* The gradient of step i of the steps' last one, against differences. */
static void check_slopes(struct pp_backend *be, const struct both *t, const char *what,
                         const float *x)
{
    const float h = 0x1p-9f, dy = 0.75f;
    float dx[3], at[3];
    gradient_of(be, t, x, dy, dx);
    for (int j = 0; j < 3; j++) {
        memcpy(at, x, sizeof(at));
        at[j] = x[j] + h;
        double above = value_of(be, t, at);
        at[j] = x[j] - h;
        double slope = (double)dy * (above - value_of(be, t, at)) / (2 * (double)h);
        if (!(fabs(slope - dx[j]) < 2e-3 * (1 + fabs(slope))))
            fail_msg("%s at (%g, %g, %g): the difference of input %d is %g, the gradient %g", what,
                     (double)x[0], (double)x[1], (double)x[2], j, slope, (double)dx[j]);
    }
}

static const struct {
    const char *name;
    enum pp_expr_code code;
    int which;
    float number;
} steps_of_all[] = {
    {"ADD", PP_EXPR_ADD, 0, 0},        {"SUB", PP_EXPR_SUB, 0, 0},
    {"MUL", PP_EXPR_MUL, 0, 0},        {"DIV", PP_EXPR_DIV, 0, 0},
    {"MAX", PP_EXPR_MAX, 0, 0},        {"MIN", PP_EXPR_MIN, 0, 0},
    {"LT", PP_EXPR_LT, 0, 0},          {"LE", PP_EXPR_LE, 0, 0},
    {"EQ", PP_EXPR_EQ, 0, 0},          {"NEG", PP_EXPR_NEG, 0, 0},
    {"ABS", PP_EXPR_ABS, 0, 0},        {"FLOOR", PP_EXPR_FLOOR, 0, 0},
    {"TRUNC", PP_EXPR_TRUNC, 0, 0},    {"SQRT", PP_EXPR_SQRT, 0, 0},
    {"RSQRT", PP_EXPR_RSQRT, 0, 0},    {"EXP", PP_EXPR_EXP, 0, 0},
    {"LOG", PP_EXPR_LOG, 0, 0},        {"EXPM1", PP_EXPR_EXPM1, 0, 0},
    {"LOG1P", PP_EXPR_LOG1P, 0, 0},    {"SIN", PP_EXPR_SIN, 0, 0},
    {"COS", PP_EXPR_COS, 0, 0},        {"TANH", PP_EXPR_TANH, 0, 0},
    {"ERF", PP_EXPR_ERF, 0, 0},        {"SIGMOID", PP_EXPR_SIGMOID, 0, 0},
    {"POW 2.5", PP_EXPR_POW, 0, 2.5f}, {"POW -1.5", PP_EXPR_POW, 0, -1.5f},
    {"SELECT", PP_EXPR_SELECT, 0, 0},
#define PP_ACTIVATION(NAME, word, ...) {"ACT " #word, PP_EXPR_ACT, PP_ACT_##NAME, 0},
#include "ppcli/conf/activations.def"
};

TEST(the_derivative_of_each_step_is_its_slope)
{
    static const float points[][3] = {{0.7f, 1.3f, -0.6f}, {1.6f, 0.4f, 2.2f}, {2.3f, 2.7f, 0.3f}};
    struct pp_backend *be = open_backend("reference");
    for (int i = 0; i < COUNT(steps_of_all); i++) {
        const struct expr_step steps[] = {{.code = PP_EXPR_LOAD},
                                          {.code = PP_EXPR_LOAD, .a = 1},
                                          {.code = PP_EXPR_LOAD, .a = 2},
                                          {.code = steps_of_all[i].code,
                                           .which = steps_of_all[i].which,
                                           .a = 0,
                                           .b = 1,
                                           .c = 2,
                                           .number = steps_of_all[i].number}};
        struct both t;
        make_both(3, COUNT(steps), steps, 7, &t);
        for (int k = 0; k < COUNT(points); k++)
            check_slopes(be, &t, steps_of_all[i].name, points[k]);
    }
    pp_backend_close(&be);
}

/* Each formula is of the step before it and of one before that. */
TEST(the_gradient_of_a_formula_is_its_slope)
{
    struct pp_backend *be = open_backend("reference");
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct expr_step steps[A_MAX] = {{.code = PP_EXPR_LOAD},
                                         {.code = PP_EXPR_LOAD, .a = 1},
                                         {.code = PP_EXPR_LOAD, .a = 2},
                                         {.code = PP_EXPR_FILL, .number = 1.25f}};
        int n = 4;
        char text[160] = "";
        while (n < 12) { /* numbers stay within 0.3 and 3: 0.3 + 2.7 sigmoid(step) */
            int k = (int)(pp_rng_u32(seed, 1, (uint64_t)n) % COUNT(steps_of_all));
            enum pp_expr_code code = steps_of_all[k].code;
            if (code == PP_EXPR_FLOOR || code == PP_EXPR_TRUNC || code == PP_EXPR_LT ||
                code == PP_EXPR_LE || code == PP_EXPR_EQ || code == PP_EXPR_MAX ||
                code == PP_EXPR_MIN) /* has jumps or kinks */
                code = PP_EXPR_MUL;
            int before = (int)(pp_rng_u32(seed, 2, (uint64_t)n) % (uint32_t)n);
            steps[n] = (struct expr_step){.code = code,
                                          .which = steps_of_all[k].which,
                                          .a = n - 1,
                                          .b = before,
                                          .c = (n + before) % n,
                                          .number = steps_of_all[k].number};
            steps[n + 1] = (struct expr_step){.code = PP_EXPR_SIGMOID, .a = n};
            steps[n + 2] = (struct expr_step){.code = PP_EXPR_ADD, .a = n + 1, .b = 3};
            size_t used = strlen(text);
            snprintf(text + used, sizeof(text) - used, "%s ", steps_of_all[k].name);
            n += 3;
        }
        struct both t;
        make_both(3, n, steps, 7, &t);
        check_slopes(be, &t, text, (const float[]){0.7f, 1.3f, 0.6f});
    }
    pp_backend_close(&be);
}

/* ---- PyTorch's derivatives where there is none */

static float derivative(enum pp_expr_code code, int which, float a, float b, int of)
{
    const struct expr_step steps[] = {{.code = PP_EXPR_LOAD},
                                      {.code = PP_EXPR_LOAD, .a = 1},
                                      {.code = code, .which = which, .a = 0, .b = 1}};
    const float x[3] = {a, b, 0};
    float dx[3];
    struct both t;
    struct pp_backend *be = open_backend("cpu");
    make_both(2, COUNT(steps), steps, 3, &t);
    gradient_of(be, &t, x, 1, dx);
    pp_backend_close(&be);
    return dx[of];
}

TEST(at_a_kink_derivatives_are_those_of_pytorch)
{
    assert_true(derivative(PP_EXPR_ABS, 0, 0, 0, 0) == 0);
    assert_true(derivative(PP_EXPR_ABS, 0, -2, 0, 0) == -1);
    assert_true(derivative(PP_EXPR_ACT, PP_ACT_RELU, 0, 0, 0) == 0);
    assert_true(derivative(PP_EXPR_MAX, 0, 2, 2, 0) == 0.5f);
    assert_true(derivative(PP_EXPR_MAX, 0, 2, 2, 1) == 0.5f);
    assert_true(derivative(PP_EXPR_MIN, 0, 1, 2, 0) == 1);
    assert_true(derivative(PP_EXPR_MIN, 0, 1, 2, 1) == 0);
    assert_true(isinf(derivative(PP_EXPR_SQRT, 0, 0, 0, 0)));
}

/* ---- what is loaded */

static bool loads(const struct both *t, int input)
{
    bool yes = false;
    for (int k = 0; k < t->back.n_in; k++)
        yes = yes || t->in_back[k] == input;
    return yes;
}

TEST(a_gradient_loads_only_what_it_needs)
{
    const struct expr_step sum[] = {{.code = PP_EXPR_LOAD},
                                    {.code = PP_EXPR_LOAD, .a = 1},
                                    {.code = PP_EXPR_SUB, .a = 0, .b = 1}};
    const struct expr_step product[] = {{.code = PP_EXPR_LOAD},
                                        {.code = PP_EXPR_LOAD, .a = 1},
                                        {.code = PP_EXPR_MUL, .a = 0, .b = 1}};
    const struct expr_step scaled[] = {{.code = PP_EXPR_LOAD},
                                       {.code = PP_EXPR_FILL, .number = 3},
                                       {.code = PP_EXPR_MUL, .a = 0, .b = 1}};
    struct both t;
    make_both(2, 3, sum, 3, &t);
    assert_true(loads(&t, PROGRAM_DY) && !loads(&t, 0) && !loads(&t, 1));
    CHECK_INT_EQ(t.back.n_out, 2);
    make_both(2, 3, product, 1, &t);
    assert_true(loads(&t, PROGRAM_DY) && !loads(&t, 0) && loads(&t, 1));
    CHECK_INT_EQ(t.back.n_out, 1);
    make_both(1, 3, scaled, 1, &t);
    assert_true(loads(&t, PROGRAM_DY) && !loads(&t, 0));
    CHECK_INT_EQ(t.back.n_steps, 3); /* load, multiply, store */
}

TEST(equal_steps_are_computed_once)
{
    const struct expr_step steps[] = {{.code = PP_EXPR_LOAD},
                                      {.code = PP_EXPR_LOAD, .a = 0},
                                      {.code = PP_EXPR_EXP, .a = 0},
                                      {.code = PP_EXPR_EXP, .a = 1},
                                      {.code = PP_EXPR_FILL, .number = 1},
                                      {.code = PP_EXPR_MUL, .a = 2, .b = 4},
                                      {.code = PP_EXPR_ADD, .a = 5, .b = 3}};
    struct both t;
    make_both(1, COUNT(steps), steps, 1, &t);
    CHECK_INT_EQ(t.forward.n_steps, 4); /* load, exp, add, store */
}

/* ---- what does not fit */

static int build_piece(const struct expr_piece *piece, int n_pieces)
{
    PP_OWN(pp_model_destroy) struct pp_model *m = pp_alloc(1, sizeof(*m));
    static const struct pp_config cfg;
    struct builder b = {.m = m, .cfg = &cfg};
    CHECK_OK(build_begin(&b, pp_shape_flat(6)));
    layer(&b, "l");
    return build_finish(
        &b, expr(&b, "n", 1, (const int[]){0}, n_pieces, piece, NULL, pp_shape_flat(6), 0));
}

TEST(pieces_that_do_not_fit_are_refused_in_a_line)
{
    struct expr_operand operand = {.stride = {1}, .table_axis = -1};
    struct expr_step load = {.code = PP_EXPR_LOAD}, many[160] = {load};
    struct expr_piece piece[2] = {{.n_axes = 1,
                                   .size = {6},
                                   .n_operands = 1,
                                   .operands = &operand,
                                   .n_steps = 1,
                                   .steps = &load,
                                   .result = operand}};
    CHECK_OK(build_piece(piece, 1));
    piece[1] = piece[0];
    CHECK_FAILS(build_piece(piece, 2), PP_ECONFIG, "l.n: two pieces write the same element");
    operand.offset = 1;
    CHECK_FAILS(build_piece(piece, 1), PP_ECONFIG, "l.n: an index is outside of its array");
    operand.offset = 0;
    for (int i = 1; i < COUNT(many); i++)
        many[i] = (struct expr_step){.code = i % 2 ? PP_EXPR_SIN : PP_EXPR_TANH, .a = i - 1};
    piece[0].steps = many;
    piece[0].n_steps = COUNT(many);
    assert_false(expr_fits(piece));
    CHECK_FAILS(build_piece(piece, 1), PP_ECONFIG,
                "l.n: a formula has more steps than one program takes");
}
