/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether an MPI launcher started this process, from its environment alone: asking MPI would mean
 * initialising it, which costs 0.3 s and is wrong for commands that need no ranks.
 */
#include "ppcli/transport.h"

#include <limits.h>
#include <stdlib.h>

/* A positive number in full, else 0: a launcher that says nonsense says nothing. */
static int number_of(const char *name)
{
    const char *text = getenv(name);
    if (!text || *text == '\0')
        return 0;
    char *end;
    long n = strtol(text, &end, 10);
    return *end == '\0' && n > 0 && n <= INT_MAX ? (int)n : 0;
}

bool pp_mpi_launched(int *size)
{
    bool launched = true;
    int n = 0;
    if (getenv("OMPI_COMM_WORLD_SIZE")) { /* mpirun of Open MPI */
        n = number_of("OMPI_COMM_WORLD_SIZE");
    } else if (getenv("PMI_RANK")) { /* mpiexec of MPICH, srun --mpi=pmi2 */
        n = number_of("PMI_SIZE");
    } else if (getenv("PMIX_RANK")) { /* srun --mpi=pmix, prun */
        n = 0;
    } else {
        /* SLURM_PROCID alone is no sign: every batch script has it. */
        launched = false;
    }
    if (launched && n == 0 && getenv("SLURM_PROCID"))
        n = number_of("SLURM_NTASKS");
    if (size)
        *size = n;
    return launched;
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
