/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks a config for errors that depend on neither data nor devices: `train` calls this before
 * anything starts, `explain` and `plan` report the same messages.
 */
#include "ppcli/base/base.h"
#include "ppcli/pipe/layout.h"

/* Checks that run.transport is for threads or processes as this run has them. If it names a
 * transport and the ranks compute on the processor, also checks that it can connect them. */
static int check_transport(struct pp_config *cfg, const struct pp_backend_choice *choice,
                           bool processes)
{
    const struct pp_transport_ops *t = pp_transport_find(cfg->run.transport);
    const struct pp_seat seat = {.device.number = -1};
    const struct pp_paths paths = {.processes = processes, .seats = &seat, .n = 1};
    char why[PP_TRANSPORT_WHY_MAX];
    if (!processes && !pp_transport_joins(cfg->run.transport, false)) {
        return pp_config_problem(cfg, "run.transport",
                                 "transport '%s' needs processes: start with --launch mpirun, or "
                                 "under mpirun or srun",
                                 cfg->run.transport);
    }
    bool processor = choice->ops && !choice->ops->devices;
    if (!t || !processor || pp_transport_fits(t, &paths, why))
        return 0;
    return pp_config_problem(cfg, "run.transport",
                             "transport '%s': %s (run.backend = %s); use run.transport = auto",
                             t->name, why, choice->ops->name);
}

int pp_run_check(struct pp_config *cfg)
{
    const struct pp_backend_choice choice = pp_backend_choice_of(cfg);
    bool processes = cfg->run.launch == PP_LAUNCH_MPIRUN || pp_mpi_used(cfg);
    PP_TRY(check_transport(cfg, &choice, processes));
    if (cfg->run.retries > 0 && !processes) {
        return pp_fail(PP_ECONFIG, "run.retries: threads of one process end together; use --launch "
                                   "mpirun or --hosts, or run.retries = 0");
    }
    if (cfg->checkpoint.copies > 0 && cfg->run.dir[0] && !processes) {
        return pp_fail(PP_ECONFIG, "checkpoint.copies = %d needs %d hosts, but all ranks are on 1",
                       cfg->checkpoint.copies, cfg->checkpoint.copies + 1);
    }
    return 0;
}
