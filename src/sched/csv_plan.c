/* SPDX-License-Identifier: Apache-2.0 */
/* From a checked table to a plan: the passes, and the proof of the order of its messages. */
#include "csv.h"

#include "comms.h"
#include "guarantee.h"
#include "ppcli/err.h"
#include "ppcli/mem.h"

/* The compute cells of one rank. Where backwards descend, as the plan wants them. */
static int take_cells(const struct pp_table *t, int rank, const struct pp_plan *stages,
                      struct pp_emit *out)
{
    const struct pp_csv_row *row = &t->csv.rows[rank];
    struct pp_emit as_read = {0};
    int rc = 0;
    for (int k = 0; k < row->n && rc == 0; k++) {
        const struct pp_csv_cell *c = &row->cells[k];
        if (!pp_csv_is_message(c)) {
            rc = pp_emit_cell(&as_read, pp_table_op(t, c), c->stage, c->mb);
            if (rc == 0) {
                as_read.cells[as_read.n - 1].overlap = c->overlap;
            }
        }
    }
    if (rc == 0 && t->descends) {
        rc = pp_cells_ascend(stages, &as_read, out);
        pp_free(as_read.cells);
        return rc;
    }
    *out = as_read;
    return rc;
}

static int build(const struct pp_table *t, const struct pp_plan *stages, struct pp_plan **out)
{
    int p = t->g.stages;
    int rc = PP_ERESOURCE;
    struct pp_emit *lists = pp_alloc((size_t)p, sizeof(*lists));
    const struct pp_cell **cells = pp_alloc((size_t)p, sizeof(*cells));
    int *n = pp_alloc((size_t)p, sizeof(*n));
    if (!lists || !cells || !n) {
        goto out;
    }
    rc = 0;
    for (int r = 0; r < p && rc == 0; r++) {
        rc = take_cells(t, r, stages, &lists[r]);
        cells[r] = lists[r].cells;
        n[r] = (int)lists[r].n;
    }
    if (rc == 0) {
        rc = pp_plan_from_cells(&t->g, t->rank_of, cells, n, out);
        if (rc < 0) {
            pp_error_context("%s", t->csv.name);
        }
    }
out:
    for (int r = 0; lists && r < p; r++) {
        pp_free(lists[r].cells);
    }
    pp_free(lists);
    pp_free(cells);
    pp_free(n);
    return rc;
}

static int build_plan(const struct pp_table *t, struct pp_plan **out)
{
    /* All that making backwards ascend wants to know of a plan. */
    struct pp_plan stages = {.geometry = t->g, .n_virtual = t->n_virtual};
    int *held = pp_alloc((size_t)t->g.stages, sizeof(*held));
    stages.chunk_of = pp_alloc((size_t)t->n_virtual, sizeof(*stages.chunk_of));
    int rc = PP_ERESOURCE;
    if (held && stages.chunk_of) {
        for (int s = 0; s < t->n_virtual; s++) {
            stages.chunk_of[s] = held[t->rank_of[s]]++;
        }
        rc = build(t, &stages, out);
    }
    pp_free(held);
    pp_free(stages.chunk_of);
    return rc;
}

/* The message that a SEND or RECV cell moves; negative: refused. */
static int32_t message_of(const struct pp_table *t, const struct pp_plan *plan, int rank, int k)
{
    const struct pp_csv_cell *c = &t->csv.rows[rank].cells[k];
    char name[PP_CSV_NAME_MAX];
    pp_csv_cell_name(c, name);
    if (c->stage >= t->n_virtual || c->mb >= t->g.microbatches || t->rank_of[c->stage] != rank) {
        return PP_TABLE_FAIL(t, rank, k, "%s: this rank has no %d%s%d", name, c->stage,
                             c->type == PP_CSV_SEND_F || c->type == PP_CSV_RECV_F ? "F" : "B",
                             c->mb);
    }
    int above = 2 * c->stage; /* the forward channel out of the stage; + 1 comes back */
    int channel = c->type == PP_CSV_SEND_F   ? above
                  : c->type == PP_CSV_RECV_F ? above - 2
                  : c->type == PP_CSV_SEND_B ? above - 1
                                             : above + 1;
    int32_t message = pp_plan_message(plan, channel, c->mb);
    if (message < 0) {
        return PP_TABLE_FAIL(t, rank, k, "%s: stage %d has no neighbour on that side", name,
                             c->stage);
    }
    return message;
}

/* The plan's actions up to the one that stands where a cell of the table stands. Where the table's
 * W moved, they come with the next cell that is none: no message depends on them. */
static int add_actions(const struct pp_plan *plan, int rank, bool all, int *next,
                       struct pp_comm_list *list)
{
    const struct pp_rank_plan *actions = &plan->ranks[rank];
    bool is_w = true;
    while (*next < actions->n_actions && (is_w || all)) {
        is_w = actions->actions[*next].op == PP_OP_W;
        PP_TRY(pp_comm_add(list, PP_COMM_RUN, false, (*next)++));
    }
    return 0;
}

static int add_row(const struct pp_table *t, const struct pp_plan *plan, int rank,
                   struct pp_comm_list *list)
{
    const struct pp_csv_row *row = &t->csv.rows[rank];
    int next = 0;
    for (int k = 0; k < row->n; k++) {
        const struct pp_csv_cell *c = &row->cells[k];
        if (c->type == PP_CSV_W) {
            continue;
        }
        if (!pp_csv_is_message(c)) {
            PP_TRY(add_actions(plan, rank, false, &next, list));
            continue;
        }
        int32_t message = message_of(t, plan, rank, k);
        if (message < 0) {
            return (int)message;
        }
        bool sends = c->type == PP_CSV_SEND_F || c->type == PP_CSV_SEND_B;
        PP_TRY(pp_comm_add(list, sends ? PP_COMM_SEND : PP_COMM_RECV, false, message));
    }
    return add_actions(plan, rank, true, &next, list);
}

/* The cell of the table behind cell k of a list with messages. */
static int cell_behind(const struct pp_table *t, const struct pp_comms *comms, int rank, int k)
{
    const struct pp_csv_row *row = &t->csv.rows[rank];
    bool run = comms->ranks[rank].cells[k].kind == PP_COMM_RUN;
    int n = 0; /* cells of its sort up to it; of runs, W do not count */
    for (int i = 0; i <= k; i++) {
        n += (comms->ranks[rank].cells[i].kind == PP_COMM_RUN) == run;
    }
    for (int i = 0; i < row->n; i++) {
        n -= pp_csv_is_message(&row->cells[i]) != run;
        if (n == 0) {
            return i;
        }
    }
    return row->n;
}

static int prove_messages(const struct pp_table *t, const struct pp_plan *plan)
{
    struct pp_comms comms = {0};
    struct pp_comm_place at = {-1, -1};
    PP_TRY(pp_comms_init(t->g.stages, &comms));
    int rc = 0;
    for (int r = 0; r < t->g.stages && rc == 0; r++) {
        rc = add_row(t, plan, r, &comms.ranks[r]);
    }
    if (rc == 0) {
        rc = pp_comms_pair(plan, &comms, &at);
        if (rc == 0) {
            rc = pp_comms_prove(plan, &comms, PP_SEND_SYNCHRONOUS, 0);
        }
        if (rc < 0 && at.rank >= 0) {
            struct pp_csv_place place =
                pp_table_place(t, at.rank, cell_behind(t, &comms, at.rank, at.k));
            pp_error_context("%s:%d:%d", t->csv.name, place.line, place.column);
        } else if (rc < 0) {
            pp_error_context("%s", t->csv.name);
        }
    }
    pp_comms_fini(&comms);
    return rc;
}

int pp_plan_read_csv(FILE *f, const char *name, struct pp_plan **out)
{
    struct pp_table t = {0};
    struct pp_plan *plan = NULL;
    int rc = pp_csv_read(f, name, &t.csv);
    if (rc == 0) {
        rc = pp_table_check(&t);
    }
    if (rc == 0) {
        rc = build_plan(&t, &plan);
    }
    if (rc == 0 && t.csv.message.line > 0) {
        rc = prove_messages(&t, plan);
    }
    if (rc == 0) {
        *out = plan;
        plan = NULL;
    }
    pp_plan_destroy(&plan);
    pp_free(t.rank_of);
    pp_free(t.last);
    pp_free(t.saw);
    pp_csv_fini(&t.csv);
    return rc;
}
