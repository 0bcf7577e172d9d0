/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a table one of a schedule: which dialect, which shape, is every cell there and in its order.
 * What is judged here could be left to the plan's passes, but only here is known where in the file
 * a cell stands and how the file calls it. What ranks do to each other is the passes' business.
 */
#include "csv.h"

#include "ppcli/err.h"
#include "ppcli/mem.h"

/* What has been seen of one (stage, micro-batch), as bits 1 << enum pp_op. */
#define SAW(op) (1u << (op))

struct pp_csv_place pp_table_place(const struct pp_table *t, int rank, int k)
{
    const struct pp_csv_row *row = &t->csv.rows[rank];
    return (struct pp_csv_place){row->line, k < row->n ? row->cells[k].column : row->columns + 1};
}

enum pp_op pp_table_op(const struct pp_table *t, const struct pp_csv_cell *c)
{
    static const uint8_t now[] = {PP_OP_F, PP_OP_I, PP_OP_W, PP_OP_B};
    if (c->type == PP_CSV_BW) {
        return PP_OP_B;
    }
    return t->old && c->type == PP_CSV_B ? PP_OP_I : (enum pp_op)now[c->type];
}

/* An op in the letters of the file. */
static const char *letters(const struct pp_table *t, enum pp_op op)
{
    static const char *const now[] = {"F", "I", "W", "B"};
    static const char *const old[] = {"F", "B", "W", "BW"};
    return t->old ? old[op] : now[op];
}

static int find_dialect(struct pp_table *t)
{
    const struct pp_csv *csv = &t->csv;
    struct pp_csv_place bw = csv->type[PP_CSV_BW];
    struct pp_csv_place i = csv->type[PP_CSV_I];
    if (bw.line && i.line) {
        bool later = bw.line > i.line || (bw.line == i.line && bw.column > i.column);
        return pp_csv_fail(csv->name, later ? bw : i,
                           "both I and BW cells: I is of the present dialect (I, W, B = both), BW "
                           "of that of 2024 (B, W, BW = both); write the table in one of them");
    }
    if (bw.line && csv->pair.line) {
        return pp_csv_fail(csv->name, csv->pair,
                           "an OVERLAP_F_B pair in a table with BW cells: there were no pairs in "
                           "the dialect of 2024; write BW as B, and B as I");
    }
    t->old = bw.line || (csv->type[PP_CSV_W].line && !i.line && !csv->pair.line);
    if (csv->message.line && csv->idle.line) {
        return pp_csv_fail(csv->name, csv->idle,
                           "an idle cell in a table with SEND or RECV cells: there the order says "
                           "all; leave the idle cells out");
    }
    return 0;
}

/* The cell with the largest stage or micro-batch is the one to blame. */
static int fail_sparse(const struct pp_table *t, int64_t compute, bool by_stage)
{
    for (int r = 0; r < t->csv.n_rows; r++) {
        for (int k = 0; k < t->csv.rows[r].n; k++) {
            const struct pp_csv_cell *c = &t->csv.rows[r].cells[k];
            if (!pp_csv_is_message(c) &&
                (by_stage ? c->stage == t->n_virtual - 1 : c->mb == t->g.microbatches - 1)) {
                char name[PP_CSV_NAME_MAX];
                return PP_TABLE_FAIL(
                    t, r, k,
                    "%s: %d stage%s with %d micro-batch%s are at least %lld cells, the "
                    "table has %lld of F, I, W and B: stages and micro-batches count "
                    "from 0 without gaps",
                    pp_csv_cell_name(c, name), t->n_virtual, t->n_virtual == 1 ? "" : "s",
                    t->g.microbatches, t->g.microbatches == 1 ? "" : "es",
                    2ll * t->n_virtual * t->g.microbatches, (long long)compute);
            }
        }
    }
    return 0;
}

/* Stages, micro-batches: the largest there are, as long as the table is at least half full. */
static int find_shape(struct pp_table *t)
{
    int64_t compute = 0;
    int64_t sum_stage = 0;
    int64_t sum_mb = 0;
    for (int r = 0; r < t->csv.n_rows; r++) {
        for (int k = 0; k < t->csv.rows[r].n; k++) {
            const struct pp_csv_cell *c = &t->csv.rows[r].cells[k];
            if (pp_csv_is_message(c)) {
                continue;
            }
            compute++;
            sum_stage += c->stage;
            sum_mb += c->mb;
            t->n_virtual = c->stage >= t->n_virtual ? c->stage + 1 : t->n_virtual;
            t->g.microbatches = c->mb >= t->g.microbatches ? c->mb + 1 : t->g.microbatches;
        }
    }
    if (compute == 0) {
        return PP_TABLE_FAIL(t, 0, 0, "the table has no F and no B cells");
    }
    if ((int64_t)t->n_virtual * t->g.microbatches > compute) {
        /* Which of the two is out of line? The one further beyond its mean. */
        double stage = (t->n_virtual - 1.0) / ((double)sum_stage / (double)compute + 1.0);
        double mb = (t->g.microbatches - 1.0) / ((double)sum_mb / (double)compute + 1.0);
        return fail_sparse(t, compute, stage > mb);
    }
    t->g.stages = t->csv.n_rows;
    return 0;
}

static uint8_t *saw_of(const struct pp_table *t, int stage, int mb)
{
    return &t->saw[(size_t)stage * (size_t)t->g.microbatches + (size_t)mb];
}

/* The place in its row of the other cell `op` of (stage, mb), -1: none. Only asked for errors. */
static int find_cell(const struct pp_table *t, int rank, int not_k, enum pp_op op, int stage,
                     int mb)
{
    const struct pp_csv_row *row = &t->csv.rows[rank];
    for (int k = 0; k < row->n; k++) {
        const struct pp_csv_cell *c = &row->cells[k];
        if (k != not_k && !pp_csv_is_message(c) && pp_table_op(t, c) == op && c->stage == stage &&
            c->mb == mb) {
            return k;
        }
    }
    return -1;
}

static int fail_needs(const struct pp_table *t, int rank, int k, enum pp_op need)
{
    const struct pp_csv_cell *c = &t->csv.rows[rank].cells[k];
    char name[PP_CSV_NAME_MAX];
    int at = find_cell(t, rank, k, need, c->stage, c->mb);
    if (at >= 0) {
        return PP_TABLE_FAIL(t, rank, k, "%s comes before its %d%s%d (cell %d of this line)",
                             pp_csv_cell_name(c, name), c->stage, letters(t, need), c->mb,
                             pp_table_place(t, rank, at).column);
    }
    return PP_TABLE_FAIL(t, rank, k, "%s has no %d%s%d on its rank", pp_csv_cell_name(c, name),
                         c->stage, letters(t, need), c->mb);
}

static int fail_twice(const struct pp_table *t, int rank, int k, enum pp_op op)
{
    const struct pp_csv_cell *c = &t->csv.rows[rank].cells[k];
    char name[PP_CSV_NAME_MAX];
    return PP_TABLE_FAIL(
        t, rank, k, "%s comes twice, first in cell %d of this line", pp_csv_cell_name(c, name),
        pp_table_place(t, rank, find_cell(t, rank, k, op, c->stage, c->mb)).column);
}

static int fail_both(const struct pp_table *t, int rank, int k, enum pp_op other)
{
    const struct pp_csv_cell *c = &t->csv.rows[rank].cells[k];
    char name[PP_CSV_NAME_MAX];
    return PP_TABLE_FAIL(
        t, rank, k,
        "%s, but there is %d%s%d too (cell %d): a micro-batch of a stage has one %s, or "
        "one %s and one %s",
        pp_csv_cell_name(c, name), c->stage, letters(t, other), c->mb,
        pp_table_place(t, rank, find_cell(t, rank, k, other, c->stage, c->mb)).column,
        letters(t, PP_OP_B), letters(t, PP_OP_I), letters(t, PP_OP_W));
}

/* The rank that most cells of a stage are on, so that the stray one is blamed (majority by vote and
 * counter-vote: one pass, one number per stage). */
static void vote_places(struct pp_table *t, int *votes)
{
    for (int r = 0; r < t->csv.n_rows; r++) {
        for (int k = 0; k < t->csv.rows[r].n; k++) {
            const struct pp_csv_cell *c = &t->csv.rows[r].cells[k];
            if (pp_csv_is_message(c)) {
                continue;
            }
            if (votes[c->stage] == 0) {
                t->rank_of[c->stage] = r;
            }
            votes[c->stage] += t->rank_of[c->stage] == r ? 1 : -1;
        }
    }
}

static int check_places(struct pp_table *t)
{
    for (int s = 0; s < t->n_virtual; s++) {
        t->rank_of[s] = -1;
    }
    vote_places(t, t->last);
    for (int r = 0; r < t->csv.n_rows; r++) {
        for (int k = 0; k < t->csv.rows[r].n; k++) {
            const struct pp_csv_cell *c = &t->csv.rows[r].cells[k];
            if (!pp_csv_is_message(c) && t->rank_of[c->stage] != r) {
                char name[PP_CSV_NAME_MAX];
                int home = t->rank_of[c->stage];
                return PP_TABLE_FAIL(t, r, k,
                                     "%s: there are cells of stage %d on rank %d (line %d): all "
                                     "cells of a stage are on one rank",
                                     pp_csv_cell_name(c, name), c->stage, home,
                                     t->csv.rows[home].line);
            }
        }
    }
    return 0;
}

static int check_cell(struct pp_table *t, int rank, int k)
{
    const struct pp_csv_cell *c = &t->csv.rows[rank].cells[k];
    enum pp_op op = pp_table_op(t, c);
    uint8_t *saw = saw_of(t, c->stage, c->mb);

    if (*saw & SAW(op)) {
        return fail_twice(t, rank, k, op);
    }
    if (op == PP_OP_B && *saw & (SAW(PP_OP_I) | SAW(PP_OP_W))) {
        return fail_both(t, rank, k, *saw & SAW(PP_OP_I) ? PP_OP_I : PP_OP_W);
    }
    if ((op == PP_OP_I || op == PP_OP_W) && *saw & SAW(PP_OP_B)) {
        return fail_both(t, rank, k, PP_OP_B);
    }
    if (op == PP_OP_W && !(*saw & SAW(PP_OP_I))) {
        return fail_needs(t, rank, k, PP_OP_I);
    }
    if ((op == PP_OP_I || op == PP_OP_B) && !(*saw & SAW(PP_OP_F))) {
        return fail_needs(t, rank, k, PP_OP_F);
    }
    if (op == PP_OP_W || op == PP_OP_B) {
        t->descends |= c->mb < t->last[c->stage];
        t->last[c->stage] = c->mb;
    }
    *saw |= (uint8_t)SAW(op);
    return 0;
}

/* Everything seen was in order: what is missing is at the end of its rank's line. */
static int check_complete(const struct pp_table *t)
{
    for (int s = 0; s < t->n_virtual; s++) {
        int r = t->rank_of[s];
        if (r < 0) {
            return PP_TABLE_FAIL(t, t->csv.n_rows - 1, t->csv.rows[t->csv.n_rows - 1].n,
                                 "no line has cells of stage %d, and there are stages up to %d", s,
                                 t->n_virtual - 1);
        }
        for (int mb = 0; mb < t->g.microbatches; mb++) {
            unsigned saw = *saw_of(t, s, mb);
            if (saw & (SAW(PP_OP_B) | SAW(PP_OP_W))) {
                continue;
            }
            enum pp_op op = !(saw & SAW(PP_OP_F)) ? PP_OP_F
                            : saw & SAW(PP_OP_I)  ? PP_OP_W
                                                  : PP_OP_B;
            return PP_TABLE_FAIL(t, r, t->csv.rows[r].n,
                                 "stage %d has no %d%s%d%s: the table has micro-batches 0..%d", s,
                                 s, letters(t, op), mb,
                                 op == PP_OP_W   ? " for its input gradient"
                                 : op == PP_OP_B ? ", nor a backward in two cells"
                                                 : "",
                                 t->g.microbatches - 1);
        }
    }
    return 0;
}

/* Every rank holds V stages. */
static int check_even(struct pp_table *t)
{
    int rc = 0;
    int *held = pp_alloc((size_t)t->g.stages, sizeof(*held));
    if (!held) {
        return PP_ERESOURCE;
    }
    for (int s = 0; s < t->n_virtual; s++) {
        held[t->rank_of[s]]++;
    }
    t->g.chunks = held[0];
    for (int r = 0; r < t->g.stages && rc == 0; r++) {
        if (held[r] != t->g.chunks) {
            rc = PP_TABLE_FAIL(
                t, r, 0,
                "rank %d holds %d stage%s, rank 0 holds %d: every rank must hold as many "
                "as any other",
                r, held[r], held[r] == 1 ? "" : "s", t->g.chunks);
        }
    }
    pp_free(held);
    return rc;
}

int pp_table_check(struct pp_table *t)
{
    PP_TRY(find_dialect(t));
    PP_TRY(find_shape(t));
    t->rank_of = pp_alloc((size_t)t->n_virtual, sizeof(*t->rank_of));
    t->last = pp_alloc((size_t)t->n_virtual, sizeof(*t->last));
    t->saw = pp_alloc((size_t)t->n_virtual, (size_t)t->g.microbatches);
    if (!t->rank_of || !t->last || !t->saw) {
        return PP_ERESOURCE;
    }
    PP_TRY(check_places(t));
    for (int s = 0; s < t->n_virtual; s++) {
        t->last[s] = -1;
    }
    for (int r = 0; r < t->csv.n_rows; r++) {
        for (int k = 0; k < t->csv.rows[r].n; k++) {
            if (!pp_csv_is_message(&t->csv.rows[r].cells[k])) {
                PP_TRY(check_cell(t, r, k));
            }
        }
    }
    PP_TRY(check_complete(t));
    return check_even(t);
}
