/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of ppcli/kernels.h: each goes to the entry of the backend's table or, where that is
 * NULL, to the plain default. */
#include "ppcli/backend.h"

extern const struct pp_backend_ops pp_plain_ops;

#define PP_KERNEL(name, type)                                                                      \
    int pp_backend_##name(struct pp_backend *be, const struct type *a)                             \
    {                                                                                              \
        return (be->ops->name ? be->ops->name : pp_plain_ops.name)(be, a);                         \
    }
#include "ppcli/kernels.def"
#undef PP_KERNEL
