/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass 2, check: tests whether each rank's list alone is part of a legal training step. On the rank
 * that holds the stage, each (virtual stage, micro-batch) has one F and then either one B, or one I
 * and later one W; it may have one R between F and I. W (or B) ascends. A forward-only list has one
 * F for each, and F ascends. How the lists wait for each other is left to the proof.
 *
 * Errors in a list that was read from a table name line, column and the letters of the file.
 */
#include "csv.h"

#include <string.h>

#include "ppcli/base/base.h"

struct checker {
    const struct pp_plan *plan;
    const struct pp_table *table; /* the table that the lists were read from, or NULL */
    int rank;
    uint8_t *saw; /* [V][M] of the current rank: bit 1 << op for each op seen */
    int32_t *
        /* [V] of the current rank: micro-batch of the last W or B (eval: of the last F), or -1 */
        last;
    bool descends;
};

#define SAW(op) (1u << (op))

/* Reports an error at action k of the current rank, or at the end of its list if k = n_actions. */
static int fail_at(const struct checker *c, int k, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int fail_at(const struct checker *c, int k, const char *fmt, ...)
{
    char text[PP_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (c->table)
        return PP_TABLE_FAIL(c->table, c->rank, pp_table_nth(c->table, c->rank, k), "%s", text);
    return pp_fail(PP_EFORMAT, "rank %d: %s", c->rank, text);
}

static const char *op_letters(const struct checker *c, int op)
{
    static const char *const own[] = {"F", "I", "W", "B", "R"};
    return c->table ? pp_table_letters(c->table, (enum pp_op)op) : own[op];
}

static const char *format_cell_name(const struct checker *c, int op, int stage, int mb,
                                    char name[PP_CELL_NAME_MAX])
{
    snprintf(name, PP_CELL_NAME_MAX, "%d%s%d", stage, op_letters(c, op), mb);
    return name;
}

/* Returns the position of another action `op` of (stage, mb) in the current list than `not_k`; -1
 * if there is none. Slow, because it is used for errors only. */
static int find_action(const struct checker *c, int not_k, int op, int stage, int mb)
{
    const struct pp_rank_plan *list = &c->plan->ranks[c->rank];
    for (int k = 0; k < list->n_actions; k++) {
        const struct pp_action *a = &list->actions[k];
        if (k != not_k && a->op == op && a->stage == stage && a->mb == mb)
            return k;
    }
    return -1;
}

/* Returns the position of an action, counted from 1, as errors name it: its cell in the line of the
 * table, or its place in the list if there is no table. */
static int action_column(const struct checker *c, int k)
{
    return c->table
               ? pp_table_position(c->table, c->rank, pp_table_nth(c->table, c->rank, k)).column
               : k + 1;
}

/* Reports that action k needs an action `need` of the same stage and micro-batch before it. */
static int fail_needs(const struct checker *c, int k, int need)
{
    const struct pp_action *a = &c->plan->ranks[c->rank].actions[k];
    char name[PP_CELL_NAME_MAX], other[PP_CELL_NAME_MAX];
    int at = find_action(c, k, need, a->stage, a->mb);
    format_cell_name(c, a->op, a->stage, a->mb, name);
    format_cell_name(c, need, a->stage, a->mb, other);
    return at < 0 ? fail_at(c, k, "%s has no %s on its rank", name, other)
                  : fail_at(c, k, "%s comes before its %s (cell %d)", name, other,
                            action_column(c, at));
}

static int fail_both(const struct checker *c, int k, int op)
{
    const struct pp_action *a = &c->plan->ranks[c->rank].actions[k];
    char name[PP_CELL_NAME_MAX], other[PP_CELL_NAME_MAX];
    return fail_at(c, k,
                   "%s, but there is %s too (cell %d): a micro-batch of a stage has one %s, or one "
                   "%s and one %s",
                   format_cell_name(c, a->op, a->stage, a->mb, name),
                   format_cell_name(c, op, a->stage, a->mb, other),
                   action_column(c, find_action(c, k, op, a->stage, a->mb)), op_letters(c, PP_OP_B),
                   op_letters(c, PP_OP_I), op_letters(c, PP_OP_W));
}

/* Checks that the op, stage and micro-batch of action k are legal in this geometry, and that its
 * rank is the one that holds the stage. */
static int check_place(const struct checker *c, int k)
{
    const struct pp_plan *plan = c->plan;
    const struct pp_rank_plan *list = &plan->ranks[c->rank];
    const struct pp_action *a = &list->actions[k];
    char name[PP_CELL_NAME_MAX];
    if (a->op > PP_OP_R)
        return fail_at(c, k, "cell %d is neither F, I, W, B nor R (op %d)", k + 1, a->op);
    format_cell_name(c, a->op, a->stage, a->mb, name);
    if (a->stage < 0 || a->stage >= plan->n_virtual)
        return fail_at(c, k, "%s: stages are 0..%d", name, plan->n_virtual - 1);
    if (a->mb < 0 || a->mb >= plan->geometry.microbatches)
        return fail_at(c, k, "%s: micro-batches are 0..%d", name, plan->geometry.microbatches - 1);
    if (plan->rank_of[a->stage] != c->rank)
        return fail_at(c, k, "%s belongs to rank %d", name, plan->rank_of[a->stage]);
    if (plan->kind == PP_PLAN_EVAL && a->op != PP_OP_F)
        return fail_at(c, k, "%s in a forward-only plan", name);
    bool pair = a->op == PP_OP_F && k + 1 < list->n_actions && a[1].op == PP_OP_B;
    if (a->overlap && !pair)
        return fail_at(c, k, "%s is marked to overlap, but is not an F right before a B", name);
    return 0;
}

static int check_order(struct checker *c, int k)
{
    const struct pp_action *a = &c->plan->ranks[c->rank].actions[k];
    int32_t *last = &c->last[c->plan->chunk_of[a->stage]];
    bool may_descend = c->table || (c->plan->schedule && c->plan->schedule->descends);
    if (a->mb < *last && !may_descend) {
        char name[PP_CELL_NAME_MAX];
        return fail_at(c, k,
                       "%s comes after micro-batch %d of its stage: gradients must be added in "
                       "ascending order",
                       format_cell_name(c, a->op, a->stage, a->mb, name), *last);
    }
    c->descends |= a->mb < *last;
    *last = a->mb;
    return 0;
}

static int check_cell(struct checker *c, int k)
{
    PP_TRY(check_place(c, k));
    const struct pp_action *a = &c->plan->ranks[c->rank].actions[k];
    size_t row = (size_t)c->plan->chunk_of[a->stage] * (size_t)c->plan->geometry.microbatches;
    uint8_t *saw = &c->saw[row + (size_t)a->mb];

    if (*saw & SAW(a->op)) {
        char name[PP_CELL_NAME_MAX];
        return fail_at(c, k, "%s comes twice, first in cell %d",
                       format_cell_name(c, a->op, a->stage, a->mb, name),
                       action_column(c, find_action(c, k, a->op, a->stage, a->mb)));
    }
    if (a->op == PP_OP_B && *saw & (SAW(PP_OP_I) | SAW(PP_OP_W)))
        return fail_both(c, k, *saw & SAW(PP_OP_I) ? PP_OP_I : PP_OP_W);
    if ((a->op == PP_OP_I || a->op == PP_OP_W) && *saw & SAW(PP_OP_B))
        return fail_both(c, k, PP_OP_B);
    if (a->op == PP_OP_W && !(*saw & SAW(PP_OP_I)))
        return fail_needs(c, k, PP_OP_I);
    if (a->op == PP_OP_R && *saw & (SAW(PP_OP_I) | SAW(PP_OP_B))) {
        int later = *saw & SAW(PP_OP_I) ? PP_OP_I : PP_OP_B;
        char name[PP_CELL_NAME_MAX], other[PP_CELL_NAME_MAX];
        return fail_at(c, k, "%s comes after its %s (cell %d), which reads what it makes",
                       format_cell_name(c, a->op, a->stage, a->mb, name),
                       format_cell_name(c, later, a->stage, a->mb, other),
                       action_column(c, find_action(c, k, later, a->stage, a->mb)));
    }
    if (a->op != PP_OP_F && a->op != PP_OP_W && !(*saw & SAW(PP_OP_F)))
        return fail_needs(c, k, PP_OP_F);
    *saw |= (uint8_t)SAW(a->op);
    bool adds = a->op == PP_OP_W || a->op == PP_OP_B;
    return adds || c->plan->kind == PP_PLAN_EVAL ? check_order(c, k) : 0;
}

/* Checks that the current list misses no action. Called when all its actions were found to be in
 * order, so the report blames the end of the list. */
static int check_complete(const struct checker *c)
{
    const struct pp_plan *plan = c->plan;
    int m = plan->geometry.microbatches;
    unsigned done = plan->kind == PP_PLAN_EVAL ? SAW(PP_OP_F) : SAW(PP_OP_B) | SAW(PP_OP_W);
    for (int i = 0; i < plan->geometry.chunks * m; i++) {
        unsigned saw = c->saw[i];
        if (saw & done)
            continue;
        int s = 0;
        while (plan->rank_of[s] != c->rank || plan->chunk_of[s] != i / m)
            s++;
        int op = !(saw & SAW(PP_OP_F)) ? PP_OP_F : saw & SAW(PP_OP_I) ? PP_OP_W : PP_OP_B;
        char name[PP_CELL_NAME_MAX];
        return fail_at(c, plan->ranks[c->rank].n_actions,
                       "stage %d has no %s%s: there are micro-batches 0..%d", s,
                       format_cell_name(c, op, s, i % m, name),
                       op == PP_OP_W   ? " for its input gradient"
                       : op == PP_OP_B ? ", nor a backward in two cells"
                                       : "",
                       m - 1);
    }
    return 0;
}

static int check_rank(struct checker *c)
{
    size_t chunks = (size_t)c->plan->geometry.chunks;
    memset(c->saw, 0, chunks * (size_t)c->plan->geometry.microbatches);
    memset(c->last, 0xff, chunks * sizeof(*c->last));
    for (int k = 0; k < c->plan->ranks[c->rank].n_actions; k++)
        PP_TRY(check_cell(c, k));
    return 0;
}

/* Checks the lists of all ranks. Reports a wrong cell in preference to a missing one, because both
 * may be the same mistake. */
static int check_all(struct checker *c)
{
    struct pp_error missing = {0};
    for (; c->rank < c->plan->geometry.stages; c->rank++) {
        PP_TRY(check_rank(c));
        if (missing.code == 0 && check_complete(c) < 0)
            missing = *pp_error_get();
    }
    return missing.code < 0 ? pp_error_adopt(&missing) : 0;
}

int pp_pass_check(const struct pp_plan *plan, const struct pp_table *table, bool *out_descends)
{
    PP_TAKE(uint8_t, saw, (size_t)plan->geometry.chunks * (size_t)plan->geometry.microbatches);
    PP_TAKE(int32_t, last, plan->geometry.chunks);
    struct checker c = {.plan = plan, .table = table, .saw = saw, .last = last};
    PP_TRY(check_all(&c));
    *out_descends = c.descends;
    return 0;
}
