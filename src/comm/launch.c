/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether an MPI launcher started this process, from its environment alone: asking MPI would mean
 * initialising it, which costs 0.3 s and is wrong for commands that need no ranks.
 */
#include "ppcli/transport.h"

#include <stdlib.h>

#include "ppcli/config.h"

bool pp_mpi_launched(void)
{
    /* mpirun of Open MPI; mpiexec of MPICH, srun --mpi=pmi2; srun --mpi=pmix, prun. SLURM_PROCID alone is
     * no sign: every batch script has it. */
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_RANK") || getenv("PMIX_RANK");
}

int pp_launch_processes(void)
{
    /* of the step, not of the job: a batch script is one process of a job of many tasks */
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        if (value && value[0])
            return atoi(value);
    }
    return 1;
}

/* A shell that srun started alone has PMIX_RANK too: its ranks are threads. */
bool pp_mpi_used(const struct pp_config *cfg)
{
    int ranks = cfg->pipeline.stages * cfg->pipeline.replicas;
    bool alone = !getenv("OMPI_COMM_WORLD_SIZE") && getenv("SLURM_STEP_NUM_TASKS") &&
                 pp_launch_processes() == 1 && ranks > 1;
    return pp_mpi_launched() && cfg->run.launch != PP_LAUNCH_THREADS &&
           !(alone && cfg->run.launch == PP_LAUNCH_AUTO);
}

int pp_launch_check(const struct pp_config *cfg, int connected)
{
    int n = pp_launch_processes();
    if (n <= 1 || connected == n)
        return 0;
    bool slurm = getenv("SLURM_STEP_NUM_TASKS") && !getenv("OMPI_COMM_WORLD_SIZE");
    if (cfg->run.launch == PP_LAUNCH_THREADS) {
        return pp_fail(PP_ECONFIG,
                       "run.launch = threads, but %s started %d processes: each would train by "
                       "itself; leave --launch threads out, or start one process",
                       slurm ? "srun" : "mpirun", n);
    }
    return pp_fail(PP_ECONFIG,
                   "%d processes were started that cannot talk to each other: each would train by "
                   "itself; %s",
                   n, slurm ? "use srun --mpi=pmix" : "start them with the mpirun of this MPI");
}

int pp_mpi_launch_programs(void)
{
    const char *n = getenv("OMPI_NUM_APP_CTX");
    return n ? atoi(n) : 1;
}

int pp_mpi_given_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        if (value && value[0])
            return atoi(value);
    }
    return 0;
}
