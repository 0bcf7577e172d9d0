/* SPDX-License-Identifier: Apache-2.0 */
/* A table that was marked. */
#include "ppcli/show/results.h"

#include "ppcli/base/files.h"

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

static int json_mark(const struct pp_mark *m, FILE *f)
{
    struct pp_json j = pp_json_begin(f, 2);
    pp_json_str(&j, "type", "mark");
    pp_json_int(&j, "schema", 1);
    pp_json_str(&j, "file", m->file);
    pp_json_bool(&j, "passed", !m->reason[0]);
    pp_json_bool(&j, "legal", m->g != NULL);
    pp_json_str(&j, "reason", m->reason[0] ? m->reason : NULL);
    if (m->g) {
        pp_json_int(&j, "stages", m->g->stages);
        pp_json_int(&j, "chunks", m->g->chunks);
        pp_json_int(&j, "microbatches", m->g->microbatches);
        pp_json_str(&j, "schedule", m->like);
        pp_json_dbl(&j, "makespan", m->makespan);
        pp_json_str(&j, "par", m->par);
        if (m->par)
            pp_json_dbl(&j, "par_makespan", m->least);
        pp_json_dbl(&j, "peak", m->peak);
        pp_json_int(&j, "peak_rank", m->rank);
        if (m->cap > 0)
            pp_json_dbl(&j, "memory_cap", m->cap);
        pp_json_str(&j, "schedule_sha256", m->digest);
    }
    pp_json_end(&j);
    return 0;
}

int pp_mark_print(const struct pp_mark *m, bool json, FILE *f)
{
    return json ? json_mark(m, f) : print_mark(m, f);
}
