/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the dialect of a table, its stages and micro-batches, and which rank holds which stage. */
#include "csv.h"

#include "ppcli/base/base.h"

struct pp_csv_position pp_table_position(const struct pp_table *t, int rank, int k)
{
    const struct pp_csv_row *row = &t->csv.rows[rank];
    return (struct pp_csv_position){row->line,
                                    k < row->n ? row->cells[k].column : row->columns + 1};
}

enum pp_op pp_table_op(const struct pp_table *t, const struct pp_csv_cell *c)
{
    static const uint8_t now[] = {PP_OP_F, PP_OP_I, PP_OP_W, PP_OP_B, PP_OP_R};
    if (c->type == PP_CSV_BW)
        return PP_OP_B;
    return t->old && c->type == PP_CSV_B ? PP_OP_I : (enum pp_op)now[c->type];
}

int pp_table_nth(const struct pp_table *t, int rank, int n)
{
    const struct pp_csv_row *row = &t->csv.rows[rank];
    int k = 0;
    while (k < row->n && (pp_csv_is_message(&row->cells[k]) || n-- > 0))
        k++;
    return k;
}

const char *pp_table_letters(const struct pp_table *t, enum pp_op op)
{
    static const char *const now[] = {"F", "I", "W", "B", "R"};
    static const char *const old[] = {"F", "B", "W", "BW", "R"};
    return t->old ? old[op] : now[op];
}

static int find_dialect(struct pp_table *t)
{
    const struct pp_csv *csv = &t->csv;
    struct pp_csv_position bw = csv->type[PP_CSV_BW];
    struct pp_csv_position i = csv->type[PP_CSV_I];
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

/* Reports that the table has too few cells for its shape, at the cell with the largest stage, or
 * with the largest micro-batch if not `by_stage`. */
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
                    pp_csv_cell_name(c, name), t->n_virtual, pp_plural(t->n_virtual),
                    t->g.microbatches, t->g.microbatches == 1 ? "" : "es",
                    2ll * t->n_virtual * t->g.microbatches, (long long)compute);
            }
        }
    }
    return 0;
}

/* Sets the shape of the table to the largest stage and micro-batch in it, and checks that the table
 * is at least half full. */
static int find_shape(struct pp_table *t)
{
    int64_t compute = 0;
    int64_t sum_stage = 0;
    int64_t sum_mb = 0;
    for (int r = 0; r < t->csv.n_rows; r++) {
        for (int k = 0; k < t->csv.rows[r].n; k++) {
            const struct pp_csv_cell *c = &t->csv.rows[r].cells[k];
            if (pp_csv_is_message(c))
                continue;
            compute++;
            sum_stage += c->stage;
            sum_mb += c->mb;
            t->n_virtual = c->stage >= t->n_virtual ? c->stage + 1 : t->n_virtual;
            t->g.microbatches = c->mb >= t->g.microbatches ? c->mb + 1 : t->g.microbatches;
        }
    }
    if (compute == 0)
        return PP_TABLE_FAIL(t, 0, 0, "the table has no F and no B cells");
    if ((int64_t)t->n_virtual * t->g.microbatches > compute) {
        /* Blame whichever of stage and micro-batch is further beyond its mean. */
        double stage = (t->n_virtual - 1.0) / ((double)sum_stage / (double)compute + 1.0);
        double mb = (t->g.microbatches - 1.0) / ((double)sum_mb / (double)compute + 1.0);
        return fail_sparse(t, compute, stage > mb);
    }
    t->g.stages = t->csv.n_rows;
    return 0;
}

/* Finds the rank that holds most cells of each stage, so that a stray cell on another rank is
 * blamed. Uses the majority vote of Boyer and Moore: one pass, one number per stage. */
static void find_majority_ranks(struct pp_table *t, int *votes)
{
    for (int r = 0; r < t->csv.n_rows; r++) {
        for (int k = 0; k < t->csv.rows[r].n; k++) {
            const struct pp_csv_cell *c = &t->csv.rows[r].cells[k];
            if (pp_csv_is_message(c))
                continue;
            if (votes[c->stage] == 0)
                t->rank_of[c->stage] = r;
            votes[c->stage] += t->rank_of[c->stage] == r ? 1 : -1;
        }
    }
}

static int check_stages(struct pp_table *t)
{
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

/* Checks that every stage is on a rank and that all ranks hold equally many stages. */
static int check_even(struct pp_table *t, int *held)
{
    for (int s = 0; s < t->n_virtual; s++) {
        if (t->rank_of[s] < 0) {
            int last = t->csv.n_rows - 1;
            return PP_TABLE_FAIL(t, last, t->csv.rows[last].n,
                                 "no line has cells of stage %d, and there are stages up to %d", s,
                                 t->n_virtual - 1);
        }
        held[t->rank_of[s]]++;
    }
    t->g.chunks = held[0];
    for (int r = 0; r < t->g.stages; r++) {
        if (held[r] != t->g.chunks) {
            return PP_TABLE_FAIL(
                t, r, 0,
                "rank %d holds %d stage%s, rank 0 holds %d: every rank must hold as many "
                "as any other",
                r, held[r], held[r] == 1 ? "" : "s", t->g.chunks);
        }
    }
    return 0;
}

int pp_table_shape(struct pp_table *t)
{
    PP_TRY(find_dialect(t));
    PP_TRY(find_shape(t));
    t->rank_of = pp_alloc((size_t)t->n_virtual, sizeof(*t->rank_of));
    PP_TRY(t->rank_of ? 0 : PP_ERESOURCE);
    PP_TAKE(int, votes, t->n_virtual);
    PP_TAKE(int, held, t->g.stages);
    for (int s = 0; s < t->n_virtual; s++)
        t->rank_of[s] = -1;
    find_majority_ranks(t, votes);
    PP_TRY(check_stages(t));
    return check_even(t, held);
}
