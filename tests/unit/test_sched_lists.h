/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of cells that no schedule of ours makes: the field's interleaved, zero-bubble and V
 * schedules, written from their papers in the shortest way, and lists typed in as CSV. They show
 * that the plan's passes serve the general case. Each generator is held to a published checksum.
 */
#ifndef PPCLI_TESTS_SCHED_LISTS_H
#define PPCLI_TESTS_SCHED_LISTS_H

#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "ppcli/plan.h"
#include "test.h"

enum {
    RANKS_MAX = 20,
    STAGES_MAX = 64,
};

struct lists {
    struct pp_geometry g;
    int rank_of[STAGES_MAX];
    struct pp_cell *cells[RANKS_MAX];
    int n[RANKS_MAX];
    int room[RANKS_MAX];
};

static inline void lists_init(struct lists *l, int p, int v, int m, enum pp_placement placement)
{
    memset(l, 0, sizeof(*l));
    assert_true(p <= RANKS_MAX && p * v <= STAGES_MAX);
    l->g = (struct pp_geometry){.stages = p, .chunks = v, .microbatches = m};
    for (int s = 0; s < p * v; s++) {
        l->rank_of[s] = pp_place(placement, p, s);
    }
}

static inline void lists_free(struct lists *l)
{
    for (int r = 0; r < RANKS_MAX; r++) {
        free(l->cells[r]);
    }
    memset(l, 0, sizeof(*l));
}

static inline void add(struct lists *l, int r, enum pp_op op, int stage, int mb)
{
    if (l->n[r] == l->room[r]) {
        l->room[r] = 2 * l->room[r] + 16;
        l->cells[r] = realloc(l->cells[r], (size_t)l->room[r] * sizeof(struct pp_cell));
        assert_non_null(l->cells[r]);
    }
    l->cells[r][l->n[r]++] = (struct pp_cell){.op = (uint8_t)op, .stage = stage, .mb = mb};
}

static inline int lists_plan(const struct lists *l, struct pp_plan **out)
{
    return pp_plan_from_cells(&l->g, l->rank_of, (const struct pp_cell *const *)l->cells, l->n,
                              out);
}

/* Rows "0F0,0F1,0B0" separated by blanks. */
static inline void lists_parse(struct lists *l, int p, int v, int m, enum pp_placement placement,
                               const char *rows)
{
    lists_init(l, p, v, m, placement);
    int r = 0;
    for (const char *at = rows; *at;) {
        int stage;
        int mb;
        int n = 0;
        char op;
        assert_int_equal(sscanf(at, "%d%c%d%n", &stage, &op, &mb, &n), 3);
        add(l, r,
            op == 'F'   ? PP_OP_F
            : op == 'I' ? PP_OP_I
            : op == 'W' ? PP_OP_W
                        : PP_OP_B,
            stage, mb);
        at += n;
        if (*at == ' ') {
            r++;
        }
        at += *at != '\0';
    }
    assert_int_equal(r, p - 1);
}

static inline int least(int a, int b)
{
    return a < b ? a : b;
}

/* 1F1B that runs k times as many forwards ahead. */
static inline void list_eager(struct lists *l, int p, int m, int k)
{
    lists_init(l, p, 1, m, PP_PLACE_LOOP);
    for (int r = 0; r < p; r++) {
        int w = least(m, k * (p - 1 - r));
        for (int i = 0; i < m + w; i++) {
            if (i < m) {
                add(l, r, PP_OP_F, r, i);
            }
            if (i >= w) {
                add(l, r, PP_OP_B, r, i - w);
            }
        }
    }
}

/* ZB-H1 (ahead = 1) and ZB-H2 (ahead = 2): W runs `ahead * (p-1)` cells late. */
static inline void list_zb_h(struct lists *l, int p, int m, int ahead)
{
    lists_init(l, p, 1, m, PP_PLACE_LOOP);
    for (int r = 0; r < p; r++) {
        int w = least(m, ahead * (p - 1 - r));
        int n_w = 0;
        int n_f = 0;
        while (n_f < w) {
            add(l, r, PP_OP_F, r, n_f++);
        }
        for (int i = 0; i < m; i++) {
            if (n_f < m) {
                add(l, r, PP_OP_F, r, n_f++);
            }
            add(l, r, PP_OP_I, r, i);
            if (w + i >= ahead * (p - 1)) {
                add(l, r, PP_OP_W, r, n_w++);
            }
        }
        while (n_w < m) {
            add(l, r, PP_OP_W, r, n_w++);
        }
    }
}

/* k-th cell of interleaving in groups of `group` micro-batches: chunk and micro-batch. */
static inline void interleave(int k, int v, int group, int *chunk, int *mb)
{
    int in = k % (v * group);
    *chunk = in / group;
    *mb = k / (v * group) * group + in % group;
}

static inline int group_of(int p, int m)
{
    int rounds = m / p > 1 ? m / p : 1;
    assert_int_equal(m % rounds, 0);
    return m / rounds;
}

static inline void list_interleaved(struct lists *l, int p, int v, int m)
{
    int group = group_of(p, m);
    lists_init(l, p, v, m, PP_PLACE_LOOP);
    for (int r = 0; r < p; r++) {
        int w = least(m * v, (v - 1) * group + 2 * (p - 1 - r));
        for (int k = 0; k < m * v + w; k++) {
            int c;
            int mb;
            if (k < m * v) {
                interleave(k, v, group, &c, &mb);
                add(l, r, PP_OP_F, c * p + r, mb);
            }
            if (k >= w) {
                interleave(k - w, v, group, &c, &mb);
                add(l, r, PP_OP_B, (v - 1 - c) * p + r, mb);
            }
        }
    }
}

static inline void list_interleaved_zb(struct lists *l, int p, int v, int m)
{
    int group = group_of(p, m);
    lists_init(l, p, v, m, PP_PLACE_LOOP);
    for (int r = 0; r < p; r++) {
        int w = least(m * v, (v - 1) * group + p - 1 - r);
        int n_w = 0;
        for (int k = 0; k < m * v + w || n_w < m * v; k++) {
            int c;
            int mb;
            if (k < m * v) {
                interleave(k, v, group, &c, &mb);
                add(l, r, PP_OP_F, c * p + r, mb);
            }
            if (k >= w && k < m * v + w) {
                interleave(k - w, v, group, &c, &mb);
                add(l, r, PP_OP_I, (v - 1 - c) * p + r, mb);
            }
            if (k >= w && k - w >= r && n_w < m * v) {
                interleave(n_w++, v, group, &c, &mb);
                add(l, r, PP_OP_W, (v - 1 - c) * p + r, mb);
            }
        }
    }
}

/* One of a kind: the next micro-batch of (op, stage), dropped when past the last. */
static inline void next_of(struct lists *l, int r, enum pp_op op, int stage, int *n)
{
    if (*n < l->g.microbatches) {
        add(l, r, op, stage, *n);
    }
    (*n)++;
}

static inline void list_zb_v(struct lists *l, int p, int m)
{
    int n = 2 * p - 1 > m ? 2 * p - 1 : m;
    lists_init(l, p, 2, m, PP_PLACE_V);
    for (int r = 0; r < p; r++) {
        int a = r;
        int z = 2 * p - 1 - r;
        int af = 0, ai = 0, aw = 0, zf = 0, zi = 0, zw = 0;
        while (af < 2 * (p - r) - 1) {
            next_of(l, r, PP_OP_F, a, &af);
        }
        for (int i = 0; i < r; i++) {
            next_of(l, r, PP_OP_F, z, &zf);
            next_of(l, r, PP_OP_F, a, &af);
        }
        for (int i = 0; i < p - r; i++) {
            next_of(l, r, PP_OP_F, z, &zf);
            next_of(l, r, PP_OP_I, z, &zi);
            next_of(l, r, PP_OP_W, z, &zw);
        }
        while (zf < af || af < n) {
            if (af < n) {
                next_of(l, r, PP_OP_F, a, &af);
            }
            next_of(l, r, PP_OP_I, a, &ai);
            next_of(l, r, PP_OP_W, a, &aw);
            next_of(l, r, PP_OP_F, z, &zf);
            next_of(l, r, PP_OP_I, z, &zi);
            next_of(l, r, PP_OP_W, z, &zw);
        }
        for (int i = 0; i < r; i++) {
            next_of(l, r, PP_OP_I, a, &ai);
            next_of(l, r, PP_OP_I, z, &zi);
        }
        for (int i = 0; i < p - r; i++) {
            next_of(l, r, PP_OP_I, a, &ai);
            next_of(l, r, PP_OP_W, a, &aw);
        }
        while (zw < n) {
            next_of(l, r, PP_OP_W, z, &zw);
        }
        while (aw < n) {
            next_of(l, r, PP_OP_W, a, &aw);
        }
    }
}

/* By name, for tables. Chunks follow from the name. */
static inline void list_named(struct lists *l, const char *name, int p, int m)
{
    if (strcmp(name, "2-eager 1f1b") == 0) {
        list_eager(l, p, m, 2);
    } else if (strcmp(name, "zb-h1") == 0) {
        list_zb_h(l, p, m, 1);
    } else if (strcmp(name, "zb-h2") == 0) {
        list_zb_h(l, p, m, 2);
    } else if (strcmp(name, "interleaved v2") == 0) {
        list_interleaved(l, p, 2, m);
    } else if (strcmp(name, "interleaved v4") == 0) {
        list_interleaved(l, p, 4, m);
    } else if (strcmp(name, "interleaved-zb v2") == 0) {
        list_interleaved_zb(l, p, 2, m);
    } else {
        CHECK_STR_EQ(name, "zb-v");
        list_zb_v(l, p, m);
    }
}

/* A schedule of ours, or one of the lists above. */
static inline struct pp_plan *plan_named(const char *name, int p, int m)
{
    struct pp_plan *plan = NULL;
    struct pp_geometry g = {.stages = p, .chunks = 1, .microbatches = m};
    if (pp_schedule_find(name)) {
        CHECK_OK(pp_plan_build(name, &g, &plan));
        return plan;
    }
    struct lists l;
    list_named(&l, name, p, m);
    CHECK_OK(lists_plan(&l, &plan));
    lists_free(&l);
    return plan;
}

/* What a printer wrote; the caller frees it. */
static inline char *printed(const struct pp_plan *plan,
                            int (*print)(const struct pp_plan *, FILE *))
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    CHECK_OK(print(plan, f));
    fclose(f);
    return text;
}

static inline unsigned crc_of(const struct pp_plan *plan)
{
    char *text = printed(plan, pp_plan_print_csv);
    unsigned crc = (unsigned)crc32(0, (const Bytef *)text, (uInt)strlen(text));
    free(text);
    return crc;
}

#endif
