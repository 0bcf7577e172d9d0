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

bool pp_mpi_used(const struct pp_config *cfg)
{
    return pp_mpi_launched() && cfg->run.launch != PP_LAUNCH_THREADS;
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
