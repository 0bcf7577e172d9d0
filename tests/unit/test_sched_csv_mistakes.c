/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables with random mistakes: what the reader says of them must agree with a judge that shares
 * none of its ideas, and what it accepts must come back from its own tables.
 */
#include "test_sched_csv_judge.h"
#include "test_sched_csv_mutate.h"

/* First that fits; more special words first. */
static const struct {
    const char *words;
    unsigned wrong;
} sayings[] = {
    {"is not a cell", SYNTAX},
    {"is too large", SYNTAX},
    {"the parenthesis is not closed", SYNTAX},
    {"a pair is one F", SYNTAX},
    {"there is no '('", SYNTAX},
    {"a NUL byte", SYNTAX},
    {"carriage return", SYNTAX},
    {"more than 79 characters", SYNTAX},
    {"a line without cells", SYNTAX},
    {"no line with cells", SYNTAX},
    {"both I and BW", MIXED},
    {"pair in a table with BW", MIXED},
    {"an idle cell in a table", IDLE},
    {"no F and no B cells", MISSING},
    {"are at least", MISSING},
    {"all cells of a stage are on one rank", PLACE},
    {"no line has cells of stage", MISSING},
    {"must hold as many", PLACE},
    {"this rank has no", MESSAGE},
    {"no neighbour on that side", MESSAGE},
    {"moves nothing", MESSAGE},
    {"comes before the cell that makes it", MESSAGE},
    {"there is no ", MESSAGE},
    {"comes twice, first in", TWICE},
    {"comes twice", MESSAGE},
    {", but there is", TWICE},
    {"comes before its", EARLY},
    {" has no ", MISSING},
    {"first; use one order in both rows", CROSSED},
    {"with synchronous sends", HANGS},
    {"wait for each other", STUCK},
    {"waits forever", STUCK},
};

static struct pp_plan *accept(const char *text, size_t n)
{
    struct pp_plan *plan = NULL;
    FILE *f = fmemopen((void *)(uintptr_t)text, n, "r");
    assert_non_null(f);
    if (pp_plan_read_csv(f, "t.csv", &plan) < 0)
        assert_null(plan);
    fclose(f);
    return plan;
}

static void check_verdict(const char *text, size_t n, int *n_legal, int *hits)
{
    unsigned wrong = judge(text, n);
    struct pp_plan *plan = accept(text, n);
    const char *said = pp_error_get()->text;
    if (!wrong) {
        if (!plan)
            fail_msg("%.*s\nis legal, but: %s", (int)n, text, said);
        char *once = printed(plan, pp_plan_print_csv);
        struct pp_plan *again = accept(once, strlen(once));
        assert_non_null(again);
        char *twice = printed(again, pp_plan_print_csv);
        CHECK_STR_EQ(once, twice);
        free(once);
        free(twice);
        pp_plan_destroy(&again);
        pp_plan_destroy(&plan);
        (*n_legal)++;
        return;
    }
    if (plan)
        fail_msg("%.*s\nwas read, but is wrong (%#x)", (int)n, text, wrong);
    CHECK_INT_EQ(pp_error_get()->code, PP_EFORMAT);
    for (size_t i = 0; i < LEN(sayings); i++) {
        if (strstr(said, sayings[i].words)) {
            if (!(sayings[i].wrong & wrong))
                fail_msg("%.*s\n'%s' is not what is wrong (%#x)", (int)n, text, said, wrong);
            hits[i]++;
            return;
        }
    }
    fail_msg("'%s' is no known reason", said);
}

TEST(mistakes_in_tables_are_refused_for_the_right_reason)
{
    int hits[LEN(sayings)] = {0};
    int n_legal = 0;
    int n = 0;
    for (size_t i = 0; i < N_BASES; i++) {
        struct text base = base_table(i);
        int legal = 0;
        check_verdict(base.bytes, base.n, &legal, hits);
        if (legal != 1)
            fail_msg("table %zu is not legal itself", i);
        for (int round = 0; round < 1200; round++, n++) {
            struct text t = {.bytes = need(base.n + ROOM, 1), .n = base.n};
            memcpy(t.bytes, base.bytes, base.n);
            for (int mistakes = 1 + random_below(2); mistakes > 0; mistakes--)
                mutate(&t);
            if (t.n > 0)
                check_verdict(t.bytes, t.n, &n_legal, hits);
            free(t.bytes);
        }
        free(base.bytes);
    }
    print_message("# %d tables, %d of them still legal\n", n, n_legal);
    assert_true(n_legal > n / 30 && n_legal < n / 2);
    for (size_t i = 0; i < LEN(sayings); i++) {
        print_message("# %5d %s\n", hits[i], sayings[i].words);
        assert_true(hits[i] > 0 || strcmp(sayings[i].words, "no F and no B cells") == 0);
    }
}

/* Every SEND and RECV of a row at every other place of it. */
static void move_all(const char *text, int *n_legal, int *hits)
{
    const char *cells[200], *ends[200];
    int row_of[200], n = 0, row = 0;
    for (const char *at = text; *at; at++) {
        row_of[n] = row;
        cells[n] = at;
        at += strcspn(at, ",\n");
        row += *at == '\n';
        ends[n++] = at;
        assert_true(n < 200);
    }
    size_t bytes = strlen(text);
    char *moved = need(bytes + 1, 1);
    for (int i = 0; i < n; i++) {
        bool message = memchr(cells[i], '_', (size_t)(ends[i] - cells[i]));
        for (int to = 0; to < n && message; to++) {
            if (row_of[to] != row_of[i])
                continue;
            char *at = moved;
            for (int k = 0; k < n; k++) {
                int from = k == to ? i : k > to && k <= i ? k - 1 : k < to && k >= i ? k + 1 : k;
                size_t length = (size_t)(ends[from] - cells[from]);
                memcpy(at, cells[from], length);
                at += length;
                *at++ = *ends[k];
            }
            check_verdict(moved, bytes, n_legal, hits);
        }
    }
    free(moved);
}

TEST(moved_messages_are_judged_as_a_simulation_judges_them)
{
    static const struct {
        const char *name;
        int p, v, m;
    } table[] = {
        {"1f1b", 2, 1, 3},        {"1f1b", 3, 1, 3}, {"gpipe", 3, 1, 2}, {"zb-h1", 2, 1, 3},
        {"interleaved", 2, 2, 2}, {"zb-v", 2, 2, 2}, {"v-min", 3, 2, 2}, {"zb-h2", 3, 1, 3},
    };
    int hits[LEN(sayings)] = {0};
    int n_legal = 0;
    for (size_t i = 0; i < LEN(table); i++) {
        struct pp_geometry g = {
            .stages = table[i].p, .chunks = table[i].v, .microbatches = table[i].m};
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
        CHECK_OK(pp_plan_build(table[i].name, &g, &plan));
        PP_OWN_MEMORY char *text = printed(plan, pp_plan_print_csv_comms);
        move_all(text, &n_legal, hits);
    }
    int hang = 0;
    for (size_t i = 0; i < LEN(sayings); i++)
        hang += sayings[i].wrong == HANGS ? hits[i] : 0;
    print_message("# %d legal, %d hang\n", n_legal, hang);
    assert_true(n_legal > 200 && hang > 200);
}
