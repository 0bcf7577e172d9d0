/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out from the environment alone whether an MPI launcher started this process: asking MPI
 * would initialise it, which costs 0.3 s and is wrong for commands that need no ranks.
 */
#include "ppcli/comm/transport.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/conf/config.h"

/* Returns whether a launcher started this process: it sets both variables, `rank` and either `with`
 * or Slurm's. A variable with a rank alone was left over in a shell. */
static bool has_rank(const char *rank, const char *with)
{
    return getenv(rank) && (getenv(with) || getenv("SLURM_STEP_NUM_TASKS"));
}

bool pp_mpi_launched(void)
{
    /* mpirun of Open MPI; mpiexec of MPICH, srun --mpi=pmi2; srun --mpi=pmix, prun. SLURM_PROCID
     * alone means nothing: every batch script has it. */
    if (getenv("OMPI_COMM_WORLD_SIZE"))
        return true;
    /* A shell that srun started alone has these variables too; its ranks are threads. */
    bool alone = getenv("SLURM_STEP_NUM_TASKS") && pp_launch_processes() == 1;
    return !alone && (has_rank("PMI_RANK", "PMI_SIZE") || has_rank("PMIX_RANK", "PMIX_NAMESPACE"));
}

/* Returns how many processes the launcher started; 0 if it does not tell. */
static int known_processes(void)
{
    /* of the step, not of the job: a batch script is one process of a job of many tasks */
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        if (value && value[0])
            return atoi(value);
    }
    return 0;
}

int pp_launch_processes(void)
{
    int n = known_processes();
    return n > 0 ? n : 1;
}

/* Returns whether this is the only rank of a run and can be a thread instead of an MPI process: a
 * thread can do more, such as replay recorded steps. */
static bool is_alone(const struct pp_config *cfg)
{
    return cfg->pipeline.stages * cfg->pipeline.replicas == 1 && known_processes() == 1 &&
           cfg->run.launch == PP_LAUNCH_AUTO && pp_transport_joins(cfg->run.transport, false);
}

bool pp_mpi_used(const struct pp_config *cfg)
{
    return pp_mpi_launched() && cfg->run.launch != PP_LAUNCH_THREADS && !is_alone(cfg);
}

/* Returns whether MPI would find the other processes. Open MPI supports PMI-1 and PMI-2, the
 * interfaces of older launchers, only if it was built for them; then the user names the
 * component. */
static bool can_connect(void)
{
    bool only_pmi = getenv("PMI_RANK") && !getenv("PMIX_RANK") && getenv("SLURM_STEP_NUM_TASKS");
    return pp_mpi_launched() &&
           !(only_pmi && !getenv("OMPI_COMM_WORLD_SIZE") && !getenv("OMPI_MCA_pmix") &&
             strncmp(pp_world_version(), "Open MPI", 8) == 0);
}

/* Refuses to run as one of several processes that torchrun, accelerate or deepspeed started. They
 * find each other by RANK and WORLD_SIZE, which ppcli does not use. */
static int check_other_launchers(void)
{
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    int n = rank && rank[0] && size && !pp_mpi_launched() ? atoi(size) : 0;
    if (n <= 1)
        return 0;
    return pp_fail(PP_EUSAGE,
                   "%s started %d processes (RANK and WORLD_SIZE are set), and each would train a "
                   "whole copy; run ppcli without it: ppcli starts its own ranks, as threads, or "
                   "as processes with --launch mpirun (if the variables are left over: unset RANK "
                   "WORLD_SIZE)",
                   getenv("ACCELERATE_MIXED_PRECISION") ? "accelerate"
                   : getenv("TORCHELASTIC_RUN_ID")      ? "torchrun"
                                                        : "a launcher",
                   n);
}

int pp_launch_check(const struct pp_config *cfg, int connected)
{
    int n = pp_launch_processes();
    bool threads = cfg->run.launch == PP_LAUNCH_THREADS;
    if (n <= 1 && connected <= 1)
        return check_other_launchers();
    if (n <= 1 || connected == n || (connected == 0 && !threads && can_connect()))
        return 0;
    bool slurm = getenv("SLURM_STEP_NUM_TASKS") && !getenv("OMPI_COMM_WORLD_SIZE");
    if (threads) {
        return pp_fail(PP_ECONFIG,
                       "run.launch = threads, but %s started %d processes: each would train by "
                       "itself; use --launch auto, or start one process",
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
