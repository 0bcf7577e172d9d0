/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of texts, norms, attention and losses on a device against the plain ones. */
#include "copies.h"

/* ---- element by element, and texts */

TEST(dropout_drops_what_the_plain_one_drops)
{
    const int64_t step = 77;
    float words[2];
    memcpy(words, &step, sizeof(words));
    for (int add = 0; add < 2; add++) {
        START(pp_dropout, .B = 5, .F = 300, .p = 0.3f, .key = 12345, .first_row = 40, .add = add);
        VALUES(step, 2, words);
        ARRAY(x, 1500);
        ARRAY(y, 1500);
        RUN(dropout);
    }
}

TEST(gates_are_the_plain_ones)
{
    for (int add = 0; add < 2; add++) {
        {
            START(pp_gated, .B = 7, .F = 33);
            ARRAY(x, 7 * 66);
            ARRAY(y, 7 * 33);
            RUN(gated_forward);
        }
        START(pp_gated_backward, .B = 7, .F = 33, .add = add);
        ARRAY(x, 7 * 66);
        ARRAY(dy, 7 * 33);
        ARRAY(dx, 7 * 66);
        RUN(gated_backward);
    }
}

TEST(rotary_turns_the_pairs_of_the_chosen_heads)
{
    const struct {
        int heads, width, C, first;
    } of[] = {{2, 8, 24, 0}, {3, 6, 18, 1000}, {1, 140, 141, 5}};
    for (int i = 0; i < 2 * COUNT(of); i++) {
        int k = i / 2, n = 3 * 5 * of[k].C;
        START(pp_rotary, .B = 3, .T = 5, .C = of[k].C, .first = of[k].first, .heads = of[k].heads,
              .width = of[k].width, .base = 10000, .back = i % 2, .add = i % 2);
        ARRAY(x, (size_t)n);
        ARRAY(y, (size_t)n);
        RUN(rotary);
    }
}

TEST(embeddings_add_the_rows_of_a_token_in_order)
{
    enum {
        B = 9,
        T = 140, /* more rows than are sorted at a time */
    };
    /* the last: more tokens than can be sorted */
    const int of[][2] = {{5, 37}, {5, 37}, {2000, 70}, {5, 37}, {530000, 3}};
    float tokens[B * T];
    for (int i = 0; i < COUNT(of); i++) {
        int V = of[i][0], C = of[i][1];
        for (int k = 0; k < B * T; k++)
            tokens[k] = (float)(V > 5 ? k * 31 % (V - 1) : k * k % 7 % V);
        tokens[3] = -1; /* none */
        tokens[300] = NAN;
        {
            START(pp_embedding_forward, .B = B, .T = T, .V = V, .C = C, .first = 2);
            VALUES(x, B * T, tokens);
            ARRAY(W, (size_t)V * C);
            if (i % 2)
                ARRAY(P, (T + 2) * C);
            ARRAY(y, B * T * C);
            RUN(embedding_forward);
        }
        START(pp_embedding_backward_weight, .B = i == 3 ? 0 : B, .T = T, .V = V, .C = C,
              .beta = i == 2);
        VALUES(x, B * T, tokens);
        ARRAY(dy, B * T * C);
        ARRAY(dW, (size_t)V * C);
        if (i % 2)
            ARRAY(dP, T * C);
        RUN(embedding_backward_weight);
    }
}

/* ---- norms */

TEST(rows_are_normalised)
{
    const struct {
        int B, C;
        bool centred;
    } of[] = {{1, 1, false}, {9, 40, true}, {300, 129, true}, {70, 7, false}, {0, 5, true}};
    for (int i = 0; i < COUNT(of); i++) {
        size_t C = (size_t)of[i].C, n = (size_t)of[i].B * C;
        float keep[600];
        for (int r = 0; r < of[i].B; r++) {
            keep[2 * r] = of[i].centred ? 0.01f * (float)r : 0;
            keep[2 * r + 1] = 1.5f;
        }
        {
            START(pp_row_norm_forward, of[i].B, of[i].C, of[i].centred, .eps = 1e-5f);
            ARRAY(x, n);
            ARRAY(gamma, C);
            if (of[i].centred)
                ARRAY(beta, C);
            ARRAY(keep, 2 * (size_t)of[i].B);
            ARRAY(y, n);
            RUN(row_norm_forward);
        }
        {
            START(pp_row_norm_backward_input, of[i].B, of[i].C, of[i].centred, .add = i % 2);
            ARRAY(x, n);
            ARRAY(gamma, C);
            VALUES(keep, 2 * (size_t)of[i].B, keep);
            ARRAY(dy, n);
            ARRAY(dx, n);
            RUN(row_norm_backward_input);
        }
        START(pp_row_norm_backward_weight, of[i].B, of[i].C, .beta = (float)(i % 2));
        ARRAY(x, n);
        VALUES(keep, 2 * (size_t)of[i].B, keep);
        ARRAY(dy, n);
        ARRAY(dgamma, C);
        if (of[i].centred)
            ARRAY(dbeta, C);
        RUN(row_norm_backward_weight);
    }
}

TEST(groups_are_normalised)
{
    for (int i = 0; i < 4; i++) {
        int B = 3, P = i < 2 ? 1 : 130, C = 12, G = i % 2 ? 4 : 3;
        size_t n = (size_t)B * (size_t)P * (size_t)C, k = (size_t)B * (size_t)G;
        bool relu = i % 2, residual = i > 1;
        float keep[24];
        for (int j = 0; j < 24; j++)
            keep[j] = j < (int)k ? 0.01f * (float)j : 1.5f;
        {
            START(pp_group_norm_forward, B, P, C, G, 1e-5f, .relu = relu);
            ARRAY(x, n);
            ARRAY(gamma, 12);
            ARRAY(beta, 12);
            if (residual)
                ARRAY(residual, n);
            ARRAY(keep, 2 * k);
            ARRAY(y, n);
            RUN(group_norm_forward);
        }
        {
            START(pp_group_norm_backward_input, B, P, C, G, .add = relu, .add_residual = !relu);
            ARRAY(x, n);
            ARRAY(gamma, 12);
            VALUES(keep, 2 * k, keep);
            if (relu)
                ARRAY(y, n);
            ARRAY(dy, n);
            if (i > 0)
                ARRAY(dx, n);
            if (residual)
                ARRAY(d_residual, n);
            RUN(group_norm_backward_input);
        }
        START(pp_group_norm_backward_weight, B, P, C, G, .beta = (float)(i % 2));
        ARRAY(x, n);
        VALUES(keep, 2 * k, keep);
        ARRAY(dz, n);
        ARRAY(dgamma, 12);
        ARRAY(dbeta, 12);
        RUN(group_norm_backward_weight);
    }
}

TEST(channels_are_normalised)
{
    const int rows[][2] = {{0, 4}, {2, 1}, {3, 130}, {40, 9}};
    for (int i = 0; i < COUNT(rows); i++) {
        int B = rows[i][0], P = rows[i][1], C = i == 3 ? 70 : 5;
        size_t c_n = (size_t)C, n = (size_t)B * (size_t)P * c_n;
        bool relu = i % 2, residual = i > 1;
        float keep[140];
        for (int j = 0; j < 2 * C; j++)
            keep[j] = j < C ? 0.01f * (float)j : 1.5f;
        for (int running = 0; running < 2; running++) {
            START(pp_batch_norm_forward, B, P, C, 1e-5f, .relu = relu);
            ARRAY(x, n);
            ARRAY(gamma, c_n);
            ARRAY(beta, c_n);
            if (residual)
                ARRAY(residual, n);
            if (running) {
                VALUES(running_mean, c_n, keep);
                VALUES(running_var, c_n, keep + C);
            } else {
                ARRAY(keep, 2 * c_n);
            }
            ARRAY(y, n);
            RUN(batch_norm_forward);
        }
        {
            START(pp_batch_norm_backward_input, B, P, C, .add = relu, .add_residual = !relu);
            ARRAY(x, n);
            ARRAY(gamma, c_n);
            VALUES(keep, 2 * c_n, keep);
            if (relu)
                ARRAY(y, n);
            ARRAY(dy, n);
            ARRAY(sums, 2 * c_n);
            if (i != 1)
                ARRAY(dx, n);
            if (residual)
                ARRAY(d_residual, n);
            RUN(batch_norm_backward_input);
        }
        {
            START(pp_batch_norm_backward_weight, B, P, C, 1e-5f, .beta = (float)(i % 2));
            VALUES(keep, 2 * c_n, keep);
            ARRAY(sums, 2 * c_n);
            ARRAY(dgamma, c_n);
            ARRAY(dbeta, c_n);
            ARRAY(stat_mean, c_n);
            ARRAY(stat_squares, c_n);
            VALUES(stat_n, 1, (const float[]){7});
            RUN(batch_norm_backward_weight);
        }
        {
            START(pp_batch_norm_spread, .C = C);
            ARRAY(stat_mean, c_n);
            VALUES(stat_n, 1, (const float[]){7});
            VALUES(own, c_n + 1, keep);
            RUN(batch_norm_spread);
        }
        const float flag[] = {0}, count[] = {i == 2 ? 0 : 3};
        START(pp_batch_norm_commit, C, .momentum = 0.1f);
        VALUES(skip, 1, flag);
        ARRAY(stat_mean, c_n);
        ARRAY(stat_squares, c_n);
        VALUES(stat_n, 1, count);
        ARRAY(running_mean, c_n);
        ARRAY(running_var, c_n);
        ARRAY(tracked, 1);
        RUN(batch_norm_commit);
    }
}

/* Means of 1e4 deviations; f32, as bfloat16 has no such values. */
TEST(norms_are_right_where_means_are_large)
{
    enum {
        B = 6,
        P = 7,
        C = 70,
        N = B * P * C
    };
    float keep[2 * B * C] = {0}, *x = noise("x", N), one[P * C];
    if (pp_backend_value_bytes(&be->choice) != sizeof(float)) {
        pp_free(x);
        return;
    }
    for (int i = 0; i < N; i++)
        x[i] = 1e4f + 2 * x[i];
    for (int i = 0; i < P * C; i++)
        one[i] = 1;
    for (int i = 0; i < 3; i++) {
        START(pp_batch_norm_forward, .B = i == 0 ? B : 300, .P = i == 0 ? P : 1,
              .C = i == 2 ? 1 : 5, .eps = 1e-5f);
        VALUES(x, N, x);
        ARRAY(gamma, C);
        ARRAY(beta, C);
        VALUES(keep, 2 * C, keep);
        ARRAY(y, N);
        RUN(batch_norm_forward);
    }
    {
        START(pp_group_norm_forward, .B = B, .P = P, .C = C, .G = 5, .eps = 1e-5f);
        VALUES(x, N, x);
        ARRAY(gamma, C);
        ARRAY(beta, C);
        VALUES(keep, 2 * B * 5, keep);
        ARRAY(y, N);
        RUN(group_norm_forward);
    }
    {
        START(pp_row_norm_forward, .B = B, .C = P * C, .eps = 1e-5f, .centred = true);
        VALUES(x, N, x);
        VALUES(gamma, P * C, one);
        ARRAY(beta, P * C);
        VALUES(keep, 2 * B, keep);
        ARRAY(y, N);
        RUN(row_norm_forward);
    }
    pp_free(x);
}

/* ---- attention */

TEST(attention_is_the_plain_one)
{
    const struct {
        int B, queries, keys, heads, kv_heads, width;
        bool causal, of_queries;
        float p;
    } of[] = {{2, 7, 7, 2, 2, 8, true, false, 0},      {1, 130, 130, 2, 1, 5, true, false, 0.2f},
              {1, 3, 70, 2, 2, 72, false, false, 0},   {3, 5, 9, 4, 2, 4, true, true, 0.3f},
              {1, 65, 129, 1, 1, 33, true, false, 0},  {2, 70, 3, 2, 2, 16, false, false, 0.1f},
              {1, 150, 150, 4, 2, 64, true, false, 0}, {2, 33, 70, 2, 1, 80, false, false, 0.2f},
              {1, 70, 100, 3, 1, 96, true, false, 0},  {1, 129, 129, 2, 2, 128, true, true, 0.1f},
              {1, 20, 20, 1, 1, 160, true, false, 0}};
    const int64_t step = 3;
    float words[2];
    memcpy(words, &step, sizeof(words));
    for (int i = 0; i < COUNT(of); i++) {
        size_t D = (size_t)of[i].width, B = (size_t)of[i].B;
        size_t q_line = (size_t)of[i].heads * D, kv_line = (size_t)of[i].kv_heads * D;
        size_t q_n = B * (size_t)of[i].queries * q_line, kv_n = B * (size_t)of[i].keys * kv_line;
        START(pp_attention, of[i].B, of[i].queries, of[i].keys, of[i].heads, of[i].kv_heads,
              of[i].width, of[i].causal, .p = of[i].p, .key = 99, .first_row = 17,
              .of_queries = of[i].of_queries, .add = i % 2, .add_kv = i % 3);
        here.q_at = here.y_at = (struct pp_strides){(size_t)of[i].queries * q_line, q_line};
        here.kv_at = (struct pp_strides){(size_t)of[i].keys * kv_line, kv_line};
        if (of[i].of_queries) { /* position by position, sequences next to each other */
            here.q_at = here.y_at = (struct pp_strides){q_line, B * q_line};
            here.kv_at = (struct pp_strides){kv_line, B * kv_line};
        }
        size_t scratch = pp_attention_scratch_floats(of[i].queries, of[i].keys,
                                                     of[i].heads / of[i].kv_heads, of[i].width);
        there = here;
        here.scratch = pp_alloc(scratch, sizeof(float));
        PP_OWN_MEMORY float *working = here.scratch;
        ARRAY(q, q_n);
        ARRAY(k, kv_n);
        ARRAY(v, kv_n);
        if (of[i].p > 0)
            VALUES(step, 2, words);
        const uint32_t lengths[] = {1, (uint32_t)of[i].keys - 1}, index[] = {1, 0};
        if (!of[i].causal) { /* padding behind them */
            VALUES(lengths, 2, (const float *)(const void *)lengths);
            VALUES(index, 2, (const float *)(const void *)index);
        }
        ARRAY(lse, B * (size_t)of[i].queries * (size_t)of[i].heads);
        ARRAY(y, q_n);
        CHECK_OK(pp_backend_attention_forward(plain, &here));
        CHECK_OK(pp_backend_attention_forward(be, &there));
        for (int j = 0; j < c.n; j++)
            check_near(be, &c.of[j].there, c.of[j].host, part, c.of[j].name);
        ARRAY(dy, q_n);
        ARRAY(dq, q_n);
        ARRAY(dk, kv_n);
        ARRAY(dv, kv_n);
        RUN(attention_backward);
    }
}

/* ---- losses */

TEST(rows_without_a_target_have_no_loss)
{
    enum {
        B = 60,
        P = 5,
        C = 43
    };
    float words[B * P];
    for (int i = 0; i < B * P; i++) {
        int32_t target = i % 4 == 1 ? -100 : i * 7 % C;
        memcpy(&words[i], &target, sizeof(target));
    }
    for (int smooth = 0; smooth < 2; smooth++) {
        struct pp_loss_sums sums[2] = {0};
        void *of_device;
        START(pp_softmax_cross_entropy, B, P, C, .grad_scale = 0.25f,
              .smoothing = 0.1f * (float)smooth, .uncounted = 7 * smooth);
        if (smooth)
            VALUES(scale, 1, &(float){0.375f});
        CHECK_OK(pp_backend_alloc(be, sizeof(sums[0]), &of_device));
        here.sums = &sums[0];
        there.sums = of_device;
        ARRAY(logits, B * P * C);
        struct array targets = on_device(be, words, B * P, 0);
        int32_t plain_targets[B * P];
        memcpy(plain_targets, words, sizeof(words));
        here.targets = plain_targets;
        there.targets = (const int32_t *)(const void *)targets.at;
        ARRAY(dlogits, B * P * C);
        RUN(softmax_cross_entropy);
        CHECK_OK(pp_backend_to_host(be, &sums[1], of_device, sizeof(sums[1])));
        assert_true(fabs(sums[0].loss - sums[1].loss) <= 1e-5 * sums[0].loss);
        CHECK_INT_EQ(sums[1].correct, sums[0].correct);
        CHECK_INT_EQ(sums[1].rows, sums[0].rows);
        CHECK_INT_EQ(sums[1].targets, sums[0].targets);
        drop(be, &targets);
        pp_backend_free(be, of_device, sizeof(sums[0]));
    }
}
