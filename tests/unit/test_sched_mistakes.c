/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists with random mistakes: what the passes say of them must agree with a checker that shares
 * none of their ideas, and what they accept must run.
 */
#include "test_sched_sim.h"

enum { /* what is wrong with a list, as bits */
    PLACE = 1,
    TWICE = 2,
    MISSING = 4,
    EARLY = 8,
    DESCENDS = 16,
    CROSSED = 32,
    STUCK = 64,
};

static const struct {
    const char *words;
    unsigned wrong;
} sayings[] = {
    {"belongs to rank", PLACE},
    {"stages are 0..", PLACE},
    {"micro-batches are 0..", PLACE},
    {"comes twice", TWICE},
    {", but there is", TWICE},
    {"has no", MISSING},
    {"comes before its", EARLY},
    {"ascending order", DESCENDS},
    {"use one order in both rows", CROSSED},
    {"wait for each other", STUCK},
    {"waits forever", STUCK},
};

/* Place of the n-th `op` of (stage, mb) on its rank, -1: none. */
static int find(const struct lists *l, int op, int stage, int mb, int n)
{
    int r = l->rank_of[stage];
    for (int k = 0; k < l->n[r]; k++) {
        const struct pp_cell *c = &l->cells[r][k];
        if (c->op == op && c->stage == stage && c->mb == mb && n-- == 0)
            return k;
    }
    return -1;
}

static unsigned judge_cell(const struct lists *l, int stage, int mb)
{
    unsigned wrong = 0;
    int at[4];
    for (int op = 0; op < 4; op++) {
        at[op] = find(l, op, stage, mb, 0);
        wrong |= find(l, op, stage, mb, 1) >= 0 ? TWICE : 0;
    }
    bool fused = at[PP_OP_B] >= 0;
    bool split = at[PP_OP_I] >= 0 || at[PP_OP_W] >= 0;
    bool whole = at[PP_OP_I] >= 0 && at[PP_OP_W] >= 0;
    wrong |= fused && split ? TWICE : 0;
    wrong |= at[PP_OP_F] < 0 || (!fused && !whole) || (split && !whole) ? MISSING : 0;
    for (int op = PP_OP_I; op <= PP_OP_B; op++)
        wrong |= at[op] >= 0 && at[op] < at[PP_OP_F] ? EARLY : 0;
    wrong |= at[PP_OP_W] >= 0 && at[PP_OP_W] < at[PP_OP_I] ? EARLY : 0;
    return wrong;
}

static unsigned judge_descent(const struct lists *l, int stage)
{
    int last = -1;
    int r = l->rank_of[stage];
    unsigned wrong = 0;
    for (int k = 0; k < l->n[r]; k++) {
        const struct pp_cell *c = &l->cells[r][k];
        if (c->stage == stage && (c->op == PP_OP_W || c->op == PP_OP_B)) {
            wrong |= c->mb < last ? DESCENDS : 0;
            last = c->mb;
        }
    }
    return wrong;
}

/* The micro-batch of the n-th F (or, backward, the n-th I or B) of a stage. */
static int nth(const struct lists *l, int stage, bool backward, int n)
{
    int r = l->rank_of[stage];
    for (int k = 0; k < l->n[r]; k++) {
        const struct pp_cell *c = &l->cells[r][k];
        bool is = backward ? c->op == PP_OP_I || c->op == PP_OP_B : c->op == PP_OP_F;
        if (is && c->stage == stage && n-- == 0)
            return c->mb;
    }
    return -1;
}

static unsigned judge_crossing(const struct lists *l, int boundary)
{
    for (int n = 0; n < l->g.microbatches; n++) {
        for (int backward = 0; backward < 2; backward++)
            if (nth(l, boundary, backward, n) != nth(l, boundary + 1, backward, n))
                return CROSSED;
    }
    return 0;
}

/* Is everything before place k of rank r, and the cell's input, done? done[r]: cells run so far. */
static bool may_run(const struct lists *l, const int *done, int r)
{
    const struct pp_cell *c = &l->cells[r][done[r]];
    int from = c->op == PP_OP_F ? c->stage - 1 : c->op == PP_OP_W ? -1 : c->stage + 1;
    if (from < 0 || from >= l->g.stages * l->g.chunks)
        return true;
    int other = l->rank_of[from];
    int at = find(l, c->op == PP_OP_F ? PP_OP_F : PP_OP_B, from, c->mb, 0);
    if (at < 0)
        at = find(l, PP_OP_I, from, c->mb, 0);
    return at >= 0 && at < done[other];
}

static unsigned judge_progress(const struct lists *l)
{
    int done[RANKS_MAX] = {0};
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < l->g.stages; r++) {
            if (done[r] < l->n[r] && may_run(l, done, r)) {
                done[r]++;
                moved = true;
            }
        }
    }
    for (int r = 0; r < l->g.stages; r++)
        if (done[r] < l->n[r])
            return STUCK;
    return 0;
}

static unsigned judge(const struct lists *l)
{
    unsigned wrong = 0;
    int stages = l->g.stages * l->g.chunks;
    for (int r = 0; r < l->g.stages; r++) {
        for (int k = 0; k < l->n[r]; k++) {
            const struct pp_cell *c = &l->cells[r][k];
            bool inside =
                c->stage >= 0 && c->stage < stages && c->mb >= 0 && c->mb < l->g.microbatches;
            wrong |= !inside || l->rank_of[c->stage] != r ? PLACE : 0;
        }
    }
    for (int s = 0; s < stages; s++) {
        for (int mb = 0; mb < l->g.microbatches; mb++)
            wrong |= judge_cell(l, s, mb);
        wrong |= judge_descent(l, s);
        wrong |= s > 0 ? judge_crossing(l, s - 1) : 0;
    }
    return wrong ? wrong : judge_progress(l);
}

static void drop(struct lists *l, int r, int k)
{
    l->n[r]--;
    memmove(&l->cells[r][k], &l->cells[r][k + 1], (size_t)(l->n[r] - k) * sizeof(struct pp_cell));
}

static void insert(struct lists *l, int r, int k, struct pp_cell c)
{
    add(l, r, PP_OP_F, 0, 0);
    memmove(&l->cells[r][k + 1], &l->cells[r][k],
            (size_t)(l->n[r] - 1 - k) * sizeof(struct pp_cell));
    l->cells[r][k] = c;
}

static void mutate(struct lists *l)
{
    int r = random_below(l->g.stages);
    int k = random_below(l->n[r]);
    struct pp_cell *c = &l->cells[r][k];
    struct pp_cell copy = *c;
    int other = random_below(l->n[r]);
    switch (random_below(8)) {
    case 0: /* swap any two */
        *c = l->cells[r][other];
        l->cells[r][other] = copy;
        break;
    case 1: /* swap neighbours: most often still legal */
        other = k > 0 ? k - 1 : 0;
        *c = l->cells[r][other];
        l->cells[r][other] = copy;
        break;
    case 2:
        drop(l, r, k);
        break;
    case 3:
        insert(l, r, other, copy);
        break;
    case 4:
        c->mb = random_below(l->g.microbatches + 2) - 1;
        break;
    case 5:
        c->stage = random_below(l->g.stages * l->g.chunks + 2) - 1;
        break;
    case 6:
        c->op = (uint8_t)random_below(4);
        break;
    default: /* move: earlier or later, or to another rank */
        drop(l, r, k);
        r = random_below(4) ? r : random_below(l->g.stages);
        insert(l, r, random_below(l->n[r] + 1), copy);
        break;
    }
}

/* hits[i]: how often sayings[i] was the reason */
static void check_verdict(const struct lists *l, int *n_legal, int *hits)
{
    struct pp_plan *plan = NULL;
    unsigned wrong = judge(l);
    int rc = lists_plan(l, &plan);
    if (!wrong) {
        CHECK_OK(rc);
        run(plan, SHARED, BURSTS);
        run(plan, COPIES, EVEN);
        pp_plan_destroy(&plan);
        (*n_legal)++;
        return;
    }
    const char *text = pp_error_get()->text;
    if (rc != PP_EFORMAT)
        fail_msg("a list with mistakes %#x was not refused (%d)", wrong, rc);
    assert_null(plan);
    for (size_t i = 0; i < LEN(sayings); i++) {
        if ((sayings[i].wrong & wrong) && strstr(text, sayings[i].words)) {
            hits[i]++;
            return;
        }
    }
    fail_msg("'%s' is not what is wrong (%#x)", text, wrong);
}

TEST(mistakes_are_refused_for_the_right_reason)
{
    static const char *const names[] = {
        "zb-h1", "zb-v", "interleaved v2", "interleaved-zb v2", "zb-h2", "2-eager 1f1b"};
    int hits[LEN(sayings)] = {0};
    int n_legal = 0;
    int n = 0;
    for (size_t i = 0; i < LEN(names); i++) {
        for (int round = 0; round < 1500; round++, n++) {
            struct lists l;
            int p = 2 + random_below(3);
            list_named(&l, names[i], p, p * (1 + random_below(2)));
            for (int mistakes = 1 + random_below(2); mistakes > 0; mistakes--)
                mutate(&l);
            check_verdict(&l, &n_legal, hits);
            lists_free(&l);
        }
    }
    print_message("# %d lists, %d of them still legal\n", n, n_legal);
    assert_true(n_legal > n / 20 && n_legal < n / 2);
    for (size_t i = 0; i < LEN(sayings); i++) {
        print_message("# %5d %s\n", hits[i], sayings[i].words);
        assert_true(hits[i] > 0);
    }
}

/* Backward channels with too few slots: the sender's own backward needs nothing in them. */
TEST(scarce_slots_are_judged_as_an_interpreter_judges_them)
{
    static const char *const names[] = {"1f1b", "gpipe", "zb-h1", "zb-h2"};
    int n_stuck = 0;
    for (int round = 0; round < 2000; round++) {
        struct pp_plan *plan =
            plan_named(names[round % (int)LEN(names)], 2 + random_below(4), 1 + random_below(9));
        for (int i = 0; i < 2; i++) {
            int channel = 2 * random_below(plan->n_channels / 2) + 1;
            squeeze(plan, channel, 1 + random_below(plan->channels[channel].slots));
        }
        int rc = pp_plan_prove(plan);
        CHECK_INT_EQ(rc == 0, all_done(plan, SHARED, EVEN));
        n_stuck += rc == PP_EFORMAT;
        pp_plan_destroy(&plan);
    }
    print_message("# %d of 2000 stuck\n", n_stuck);
    assert_in_range(n_stuck, 100, 1900);
}
