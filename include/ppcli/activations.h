/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of the activations. Contracts store one as an int, so that a new row of activations.def
 * rebuilds only the files that name an activation. */
#ifndef PPCLI_ACTIVATIONS_H
#define PPCLI_ACTIVATIONS_H

enum pp_activation {
    PP_ACT_NONE,
#define PP_ACTIVATION(NAME, ...) PP_ACT_##NAME,
#include "ppcli/activations.def"
};

#endif
