/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of the optimizers. Contracts store one as an int, so that a new row of optimizers.def
 * rebuilds only the files that name an optimizer. */
#ifndef PPCLI_OPTIMIZERS_H
#define PPCLI_OPTIMIZERS_H

enum pp_optimizer_kind {
#define PP_OPTIMIZER(NAME, ...) PP_OPT_##NAME,
#include "ppcli/optimizers.def"
};
enum {
    PP_OPTIMIZERS = 0
#define PP_OPTIMIZER(...) +1
#include "ppcli/optimizers.def"
};

#endif
