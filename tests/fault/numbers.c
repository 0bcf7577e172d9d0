/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where numbers can be made wrong: in the first row of what F gives out, of the gradient that comes
 * into I, and of the weight gradients when W has added to them.
 */
#include "fault.h"
#include "ppcli/nn/chunk.h"

int __real_pp_chunk_forward(struct pp_chunk *c, struct pp_backend *be, int slot,
                            const struct pp_pass *pass, const float *x, float *y);
int __wrap_pp_chunk_forward(struct pp_chunk *c, struct pp_backend *be, int slot,
                            const struct pp_pass *pass, const float *x, float *y);
int __real_pp_chunk_backward_input(struct pp_chunk *c, struct pp_backend *be, int slot, int gslot,
                                   float *dy, float *dx);
int __wrap_pp_chunk_backward_input(struct pp_chunk *c, struct pp_backend *be, int slot, int gslot,
                                   float *dy, float *dx);
int __real_pp_chunk_backward_weight(struct pp_chunk *c, struct pp_backend *be, int n,
                                    const int *slots, const int *gslots, bool first);
int __wrap_pp_chunk_backward_weight(struct pp_chunk *c, struct pp_backend *be, int n,
                                    const int *slots, const int *gslots, bool first);

int __wrap_pp_chunk_forward(struct pp_chunk *c, struct pp_backend *be, int slot,
                            const struct pp_pass *pass, const float *x, float *y)
{
    int rc = __real_pp_chunk_forward(c, be, slot, pass, x, y);
    fault_numbers(y, c->model->layers[c->last].out);
    return rc;
}

int __wrap_pp_chunk_backward_input(struct pp_chunk *c, struct pp_backend *be, int slot, int gslot,
                                   float *dy, float *dx)
{
    fault_numbers(dy, c->model->layers[c->last].out);
    return __real_pp_chunk_backward_input(c, be, slot, gslot, dy, dx);
}

int __wrap_pp_chunk_backward_weight(struct pp_chunk *c, struct pp_backend *be, int n,
                                    const int *slots, const int *gslots, bool first)
{
    int rc = __real_pp_chunk_backward_weight(c, be, n, slots, gslots, first);
    fault_numbers(c->grads, c->model->layers[c->first].in);
    return rc;
}
