/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans by the name that a table has for them, and lists of cells that no schedule of ours makes,
 * typed in as CSV or made from a plan's, for tests of the passes themselves.
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
    for (int s = 0; s < p * v; s++)
        l->rank_of[s] = pp_place(placement, p, s);
}

static inline void lists_free(struct lists *l)
{
    for (int r = 0; r < RANKS_MAX; r++)
        free(l->cells[r]);
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
        if (*at == ' ')
            r++;
        at += *at != '\0';
    }
    assert_int_equal(r, p - 1);
}

static inline int least(int a, int b)
{
    return a < b ? a : b;
}

/* One of a kind: the next micro-batch of (op, stage), dropped when past the last. */
static inline void next_of(struct lists *l, int r, enum pp_op op, int stage, int *n)
{
    if (*n < l->g.microbatches)
        add(l, r, op, stage, *n);
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
        while (af < 2 * (p - r) - 1)
            next_of(l, r, PP_OP_F, a, &af);
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
            if (af < n)
                next_of(l, r, PP_OP_F, a, &af);
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
        while (zw < n)
            next_of(l, r, PP_OP_W, z, &zw);
        while (aw < n)
            next_of(l, r, PP_OP_W, a, &aw);
    }
}

/*
 * The geometry that a table's name stands for: "interleaved v4" is interleaved with 4 chunks,
 * "2-eager 1f1b" is 1f1b-eager with k = 2. Gives the schedule's name.
 */
static inline const char *geometry_named(const char *name, int p, int m, struct pp_geometry *g)
{
    static char plain[64];
    int n = 0;
    *g = (struct pp_geometry){.stages = p, .microbatches = m};
    if (sscanf(name, "%d-eager 1f1b%n", &g->eager, &n) == 1 && name[n] == '\0') {
        g->chunks = 1;
        return "1f1b-eager";
    }
    snprintf(plain, sizeof(plain), "%s", name);
    char *v = strstr(plain, " v");
    if (v) {
        *v = '\0';
        g->chunks = atoi(v + 2);
    } else {
        const struct pp_schedule_ops *ops = pp_schedule_find(plain);
        g->chunks = ops ? pp_schedule_default_chunks(ops) : 1;
    }
    return plain;
}

/* A schedule of ours, or one of the lists above. */
static inline struct pp_plan *plan_named(const char *name, int p, int m)
{
    struct pp_plan *plan = NULL;
    struct pp_geometry g;
    const char *schedule = geometry_named(name, p, m, &g);
    if (pp_schedule_find(schedule)) {
        CHECK_OK(pp_plan_build(schedule, &g, &plan));
        return plan;
    }
    struct lists l;
    CHECK_STR_EQ(name, "zb-v");
    list_zb_v(&l, p, m);
    CHECK_OK(lists_plan(&l, &plan));
    lists_free(&l);
    return plan;
}

/* The cells of a plan, for tests that change them. */
static inline void list_named(struct lists *l, const char *name, int p, int m)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named(name, p, m);
    memset(l, 0, sizeof(*l));
    assert_true(p <= RANKS_MAX && plan->n_virtual <= STAGES_MAX);
    l->g = plan->geometry;
    memcpy(l->rank_of, plan->rank_of, (size_t)plan->n_virtual * sizeof(int));
    for (int r = 0; r < p; r++) {
        for (int k = 0; k < plan->ranks[r].n_actions; k++) {
            const struct pp_action *a = &plan->ranks[r].actions[k];
            add(l, r, (enum pp_op)a->op, a->stage, a->mb);
        }
    }
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

static inline void check_plan_text(const struct pp_plan *plan,
                                   int (*print)(const struct pp_plan *, FILE *),
                                   const char *expected)
{
    PP_OWN_MEMORY char *text = printed(plan, print);
    CHECK_STR_EQ(text, expected);
}

static inline unsigned crc_of(const struct pp_plan *plan)
{
    PP_OWN_MEMORY char *text = printed(plan, pp_plan_print_csv);
    unsigned crc = (unsigned)crc32(0, (const Bytef *)text, (uInt)strlen(text));
    return crc;
}

/* Give a channel only n slots, in turn, whatever that does. */
static inline void squeeze(struct pp_plan *plan, int channel, int n)
{
    int m = plan->geometry.microbatches;
    int32_t first = pp_plan_message(plan, channel, 0);
    plan->channels[channel].slots = n;
    for (int mb = 0; mb < m; mb++) {
        struct pp_message *msg = &plan->messages[first + mb];
        msg->slot = mb % n;
        msg->first_in_slot = mb < n;
        msg->next_in_slot = mb + n < m ? first + mb + n : -1;
    }
}

#endif
