/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this machine can do at most, measured in about a second: arithmetic, matrix products, memory
 * and the way from core to core. A benchmark prints these beside its own figures, because a rate
 * says nothing without the limit that held in the same minute.
 */
#ifndef PPCLI_CEILING_H
#define PPCLI_CEILING_H

#include <stdbool.h>
#include <stddef.h>

#include "ppcli/backend.h"
#include "ppcli/machine.h"

struct pp_ceilings {
    int cores;                             /* that this process may use */
    const char *isa;                       /* of the arithmetic loop: "avx512" */
    double fma_core[PP_MACHINE_CORES_MAX]; /* flop/s, float, each core alone; 0: not asked */
    int fma_cores;                         /* how many of them were measured alone */
    double fma_all;                        /* flop/s, all cores at once */
    int gemm_n;                            /* width of the square product */
    double blas_core, blas_all;            /* flop/s of the CBLAS; 0: none loads */
    double own_core, own_all;              /* flop/s of ppcli's products; 0: none run here */
    double gemm_core, gemm_all;            /* the better of them: what counts as the peak */
    size_t triad_bytes;                    /* of the three arrays together */
    double triad_core, triad_all;          /* bytes/s read and written */
    double ping_pong;                      /* seconds one way, cores 0 and 1; 0: one core */
    double took;                           /* seconds that measuring took */
};

struct pp_ceiling_spec {
    /* Use the cores of the machine even where this process is bound to one of them, as an MPI
     * launcher does: what several processes may use together. */
    bool whole_machine;
    bool cpu_time; /* of one core alone: without the time that others have it */
    double scale;  /* 1: about a second in all on two cores; tests take less */
};

/*
 * Measure with one pinned thread a core, medians of a few repeats. Nothing else of this process may
 * be computing. Local. Sets the CBLAS of this process to one thread. Errors: PP_ERESOURCE.
 */
int pp_ceilings_measure(const struct pp_ceiling_spec *spec, struct pp_ceilings *out);

/* The matrix-product rate that `ranks` ranks have between them: as many cores as there are ranks,
 * at most all. 0 when it was not measured. */
double pp_ceiling_gemm(const struct pp_ceilings *c, int ranks);

/* The same of a device of its own: through the calls that a run makes, so that what they cost is in
 * it. */
struct pp_device_ceilings {
    char name[128];    /* of the backend, as it describes itself; empty: not measured */
    int gemm_n;        /* width of the square product */
    double gemm[3];    /* by enum pp_precision: flop/s, factors as a run gives them */
    size_t copy_bytes; /* of the block that is copied inside the device's memory */
    double copy;       /* bytes/s, read and written */
    double launch;     /* seconds that the host takes to enqueue the smallest op */
    double op;         /* seconds of the device for each of many of them in a row */
    int nodes;         /* of them that one graph has; 0: no graphs here */
    double node;       /* seconds of the device for each of them in the graph */
    double took;       /* seconds that measuring took */
};

/*
 * Measure the device of `choice`; its precision is ignored, all are measured. Takes about a second
 * and 2 GiB, less where the device is slow or has less free. gemm_n: the width of the product, at
 * most; 0: 8192. Nothing else may be computing there. Local. Errors: those of the backend.
 */
int pp_device_ceilings_measure(const struct pp_backend_choice *choice, int gemm_n,
                               struct pp_device_ceilings *out);

#endif
