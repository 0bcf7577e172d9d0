/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The phases of a run that are no actions, as sites of fault.h: the call that is the phase is
 * wrapped, and the fault comes in front of it.
 */
#include "fault.h"

#include "../../src/train/resume.h"
#include "ppcli/plan/search.h"
#include "ppcli/ckpt/checkpoint.h"
#include "ppcli/data/dataset.h"
#include "ppcli/pipe/exec.h"

#define WRAP(site, name, parameters, arguments)                                                    \
    int __real_##name parameters;                                                                  \
    int __wrap_##name parameters;                                                                  \
    int __wrap_##name parameters                                                                   \
    {                                                                                              \
        fault_at(site);                                                                            \
        return __real_##name arguments;                                                            \
    }

/* Choosing what the config leaves open. */
WRAP(FAULT_SETTLE, pp_choose,
     (struct pp_config * cfg, enum pp_run_need need, struct pp_transport *tp), (cfg, need, tp))

/* Reading a split of the data. Threads: before they start, as rank 0. */
WRAP(FAULT_DATA, pp_dataset_open,
     (const struct pp_config *cfg, enum pp_split split, int parts, const struct pp_shape *input,
      int classes, struct pp_dataset **out),
     (cfg, split, parts, input, classes, out))

/* Reading a checkpoint; every rank, also where there is none. */
WRAP(FAULT_RESUME, resume_read, (struct trainer * tr), (tr))

/* A step of an evaluation. */
WRAP(FAULT_TEST, pp_exec_test_step, (struct pp_exec * x, int step), (x, step))

/* Rank 0, when all parts of a checkpoint are written and it has no name yet. */
WRAP(FAULT_COMMIT, pp_ckpt_commit,
     (const struct pp_io *io, const struct pp_ckpt_save *save, const struct pp_ckpt_state *state,
      const char *config, const struct pp_ckpt_part *parts, int n),
     (io, save, state, config, parts, n))

/* Behind the last step: hashes, reports. */
WRAP(FAULT_FINISH, pp_exec_weights_sha256, (struct pp_exec * x, char out[65]), (x, out))

#ifdef FAULT_MPI
WRAP(FAULT_INIT, pp_mpi_init, (int wanted_level, int *out_level), (wanted_level, out_level))

WRAP(FAULT_FINALIZE, pp_mpi_finalize, (void), ())
#endif
