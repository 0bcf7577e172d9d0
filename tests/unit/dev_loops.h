/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of the CPU backend, of every instruction set. */
#ifndef PPCLI_TESTS_DEV_LOOPS_H
#define PPCLI_TESTS_DEV_LOOPS_H

#include "../../src/dev/cpu/kernels.h"
#include "dev_inputs.h"

/* chosen_NAME(): a kernel of these. */
static const struct cpu_kernels *chosen;

#define PP_KERNEL(name, type)
#define PP_LOSS(name, type)
#define PP_LOOP(name, type, of_units, ...)                                                         \
    static inline int chosen_##name(struct pp_backend *be, const struct type *a)                   \
    {                                                                                              \
        const struct pp_piece all = {0, (size_t)(of_units), 0};                                    \
        chosen->name(a, &all);                                                                     \
        return 0;                                                                                  \
    }
#include "ppcli/dev/kernels.def"

#endif
