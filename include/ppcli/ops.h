/* SPDX-License-Identifier: Apache-2.0 */
/* The ops by name, op_linear and so on: to compare with a node's, for whoever writes a model down in
 * another form. */
#ifndef PPCLI_OPS_H
#define PPCLI_OPS_H

#include "ppcli/model.h"

#define PP_OP(x) extern const struct pp_node_op op_##x;
#include "ppcli/ops.def"
#undef PP_OP

#endif
