/* SPDX-License-Identifier: Apache-2.0 */
/* Reads schedules that are tables: file:TABLE.csv, and exec:PROGRAM, which prints one. */
#include "ppcli/pipe/layout.h"

#include <string.h>

#include "ppcli/sched/plan.h"
#include "ppcli/base/base.h"
#include "ppcli/comm/transport.h"

#define PREFIX (sizeof(PP_SCHEDULE_FILE) - 1)

bool pp_layout_runs_program(const struct pp_config *cfg)
{
    return strncmp(cfg->pipeline.schedule, PP_SCHEDULE_EXEC, PREFIX) == 0;
}

static struct pp_program make_program(const struct pp_config *cfg)
{
    return (struct pp_program){.path = cfg->pipeline.schedule + PREFIX,
                               .stages = cfg->pipeline.stages,
                               .chunks = cfg->pipeline.chunks,
                               .microbatches = cfg->pipeline.microbatches};
}

bool pp_layout_is_table(const struct pp_config *cfg)
{
    return pp_layout_runs_program(cfg) ||
           strncmp(cfg->pipeline.schedule, PP_SCHEDULE_FILE, PREFIX) == 0;
}

int pp_layout_read_table(const struct pp_config *cfg, const char *const costs[4],
                         struct pp_plan **out)
{
    const char *path = cfg->pipeline.schedule + PREFIX;
    PP_OWN(pp_fclose_at) FILE *f = NULL;
    uint64_t bytes = 0;
    if (pp_layout_runs_program(cfg)) {
        struct pp_program p = make_program(cfg);
        for (int i = 0; costs && i < 4; i++)
            p.costs[i] = costs[i];
        return pp_plan_read_program(&p, out);
    }
    if (pp_file_open(path, &f, &bytes) < 0)
        return pp_error_context("schedule table");
    return pp_plan_read_csv(f, path, out);
}

int pp_layout_share_table(const struct pp_config *cfg, struct pp_transport *tp)
{
    if (!pp_layout_runs_program(cfg))
        return 0;
    const struct pp_program p = make_program(cfg);
    const char *text = "";
    size_t bytes = 0;
    int rc = tp->rank == 0 ? pp_program_print(&p, &text, &bytes) : 0;
    PP_TRY(pp_transport_from_first(tp, rc, &bytes, sizeof(bytes)));
    PP_OWN_MEMORY char *copy = pp_alloc(bytes + 1, 1);
    PP_TRY(pp_transport_agree(tp, copy ? 0 : PP_ERESOURCE));
    pp_assert(copy != NULL); /* else the ranks had not agreed */
    memcpy(copy, text, tp->rank == 0 ? bytes : 0);
    PP_TRY(pp_transport_from_first(tp, 0, copy, bytes));
    return pp_transport_agree(tp, tp->rank == 0 ? 0 : pp_program_keep(&p, copy, bytes));
}
