/* SPDX-License-Identifier: Apache-2.0 */
/* The mark of a table (ppcli mark). */
#include "results.h"

static int print_mark(const struct pp_mark *m, FILE *f)
{
    fprintf(f, "legal            %s\n", m->g ? "yes, proved to finish" : "no");
    if (m->g) {
        fprintf(f, "shape            %d ranks x %d chunk%s, %d micro-batches\n", m->g->stages,
                m->g->chunks, pp_plural(m->g->chunks), m->g->microbatches);
        fprintf(f, "schedule         %s\n", m->like ? m->like : "an order of its own");
        fprintf(f, "step             %g", m->makespan);
        if (m->par)
            fprintf(f, ", par %g (%s)\n", m->least, m->par);
        else
            fprintf(f, "; no par: %s of this shape holds more than the cap\n", m->asked);
        fprintf(f, "holds            %g micro-batches on rank %d", m->peak, m->rank);
        if (m->cap > 0)
            fprintf(f, ", cap %g", m->cap);
        fprintf(f, "\ndigest           %s\n", m->digest);
    }
    fprintf(f, "mark             %s%s\n", m->reason[0] ? "failed: " : "passed", m->reason);
    return 0;
}

PP_HAS(is_legal, struct pp_mark, row->g)

static bool has_par(const void *mark)
{
    return is_legal(mark) && ((const struct pp_mark *)mark)->par;
}

static bool has_cap(const void *mark)
{
    return is_legal(mark) && ((const struct pp_mark *)mark)->cap > 0;
}

struct mark_document {
    struct pp_mark m;
    struct pp_geometry g; /* of a legal table */
    const char *type;
    bool is_legal, passed;
};

#define MARK(m) PP_FIELD(struct mark_document, m)
#define LEGAL(m) MARK(m), .has = is_legal
const struct pp_column pp_mark_columns[] = {
    PP_SCHEMA(1),
    {"type", MARK(type), .help = "\"mark\""},
    {"file", MARK(m.file), .help = "the table"},
    {"passed", MARK(passed), .help = "the mark"},
    {"legal", MARK(is_legal), .help = "the table can run"},
    {"reason", MARK(m.reason), .nullable = true, .help = "why it does not pass"},
    {"stages", LEGAL(g.stages), .help = "of a legal table"},
    {"chunks", LEGAL(g.chunks)},
    {"microbatches", LEGAL(g.microbatches)},
    {"schedule", LEGAL(m.like), .nullable = true,
     .help = "the known schedule that it is; null: an order of its own"},
    {"makespan", LEGAL(m.makespan), .help = "its step, in the unit of the costs"},
    {"par", LEGAL(m.par), .nullable = true,
     .help = "the schedule that it is compared with; null: that holds more than the cap"},
    {"par_makespan", MARK(m.least), .has = has_par, .help = "the step of that schedule"},
    {"peak", LEGAL(m.peak), .help = "micro-batches of activations that a rank holds at most"},
    {"peak_rank", LEGAL(m.rank), .help = "the rank that holds them"},
    {"memory_cap", MARK(m.cap), .has = has_cap, .help = "micro-batches that a rank may hold"},
    {"schedule_sha256", LEGAL(m.digest), .help = "digest of the table"},
    {0}};

int pp_mark_print(const struct pp_mark *m, bool json, FILE *f)
{
    struct mark_document d = {.m = *m, .type = "mark", .is_legal = m->g, .passed = !m->reason[0]};
    if (!json)
        return print_mark(m, f);
    if (m->g)
        d.g = *m->g;
    pp_document_json(pp_mark_columns, &d, f);
    return 0;
}
