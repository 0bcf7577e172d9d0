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

#include "ppcli/sched/plan.h"
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

static inline struct pp_plan *plan_named(const char *name, int p, int m)
{
    struct pp_plan *plan = NULL;
    struct pp_geometry g;
    const char *schedule = geometry_named(name, p, m, &g);
    CHECK_OK(pp_plan_build(schedule, &g, &plan));
    return plan;
}

static inline struct pp_plan *build_plan(const char *schedule, int p, int v, int m)
{
    const struct pp_geometry g = {.stages = p, .chunks = v, .microbatches = m};
    struct pp_plan *plan = NULL;
    CHECK_OK(pp_plan_build(schedule, &g, &plan));
    return plan;
}

/* Most activations that rank r holds at once, in micro-batches of one chunk, from F to W. */
static inline int peak_of(const struct pp_plan *plan, int r)
{
    int live = 0;
    int peak = 0;
    for (int k = 0; k < plan->ranks[r].n_actions; k++) {
        int op = plan->ranks[r].actions[k].op;
        live += op == PP_OP_F ? 1 : op == PP_OP_I ? 0 : -1;
        peak = live > peak ? live : peak;
    }
    return peak;
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
