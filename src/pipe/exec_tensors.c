/* SPDX-License-Identifier: Apache-2.0 */
/* The state of training that a rank holds, tensor by tensor, for those who save and restore it; and
 * the hash of all ranks' weights. */
#include "exec_internal.h"

#include <limits.h>
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"
#include "ppcli/sha256.h"

/* What the optimizer keeps beside every parameter of a chunk, the parameter itself first. */
static int values_and_moments(const struct pp_chunk *c, float *out[3])
{
    int n = 0;
    out[n++] = c->params;
    if (c->opt_m)
        out[n++] = c->opt_m;
    if (c->opt_v) {
        pp_assert(n == 2); /* a second moment has a first */
        out[n++] = c->opt_v;
    }
    return n;
}

/* Tensor *i of a chunk; false, with *i less by all the chunk has: it is not among them. */
static bool find(const struct pp_chunk *c, int *i, struct pp_exec_tensor *out)
{
    float *of[3];
    int kinds = values_and_moments(c, of);
    size_t offset = 0;
    out->param = &c->model->params[c->model->layers[c->first].first_param];
    for (int p = 0; p < pp_chunk_param_count(c); p++, out->param++) {
        int n = out->param->kind == PP_PARAM_BUFFER ? 1 : kinds;
        out->n = pp_param_floats(out->param);
        if (*i < n) {
            out->kind = (enum pp_exec_kind) * i;
            out->values = of[*i] + offset;
            return true;
        }
        *i -= n;
        offset += out->n;
    }
    return false;
}

int pp_exec_tensor_count(const struct pp_exec *x)
{
    struct pp_exec_tensor t;
    int left = INT_MAX;
    for (int k = 0; k < x->n_stages; k++)
        find(x->stages[k].chunk, &left, &t);
    return INT_MAX - left;
}

void pp_exec_tensor(const struct pp_exec *x, int i, struct pp_exec_tensor *out)
{
    for (int k = 0; k < x->n_stages; k++)
        if (find(x->stages[k].chunk, &i, out))
            return;
    pp_assert(!"tensor of the rank");
}

int pp_exec_tensor_get(struct pp_exec *x, const struct pp_exec_tensor *t, size_t first, float *host,
                       size_t n)
{
    pp_assert(first <= t->n && n <= t->n - first);
    return pp_backend_to_host(x->be, host, t->values + first, n * sizeof(*host));
}

int pp_exec_tensor_put(struct pp_exec *x, const struct pp_exec_tensor *t, size_t first,
                       const float *host, size_t n)
{
    pp_assert(first <= t->n && n <= t->n - first);
    PP_TRY(pp_backend_to_device(x->be, t->values + first, host, n * sizeof(*host)));
    return pp_backend_synchronize(x->be); /* the caller reuses its memory */
}

int pp_exec_tensors_changed(struct pp_exec *x)
{
    for (int k = 0; k < x->n_stages; k++)
        PP_TRY(pp_chunk_weights_changed(x->stages[k].chunk, x->be));
    return 0;
}

/* ---- the hash of the weights */

/* Every replica must hold the bits of replica 0: anything else is a bug of the reduction.
 * host[largest chunk], all[ranks][PP_SHA256_BYTES]: scratch. */
static int check_replicas(struct pp_exec *x, float *host, uint8_t *all)
{
    const struct pp_layout *l = x->layout;
    uint8_t mine[PP_SHA256_BYTES];
    struct pp_sha256 h;
    pp_assert(host && all);
    pp_sha256_init(&h);
    int rc = 0;
    for (int k = 0; rc == 0 && k < x->n_stages; k++) {
        const struct pp_chunk *c = x->stages[k].chunk;
        rc = pp_backend_to_host(x->be, host, c->params, c->n_floats * sizeof(float));
        pp_sha256_update(&h, host, c->n_floats * sizeof(float));
    }
    pp_sha256_final(&h, mine);
    if (rc == 0)
        rc = pp_transport_allgather(x->tp, mine, sizeof(mine), all);
    for (int r = l->stages; rc == 0 && r < l->ranks; r++) {
        if (memcmp(all + (size_t)r * sizeof(mine), all + (size_t)(r % l->stages) * sizeof(mine),
                   sizeof(mine)) != 0) {
            rc = pp_fail(PP_EINTERNAL,
                         "replica %d of stage rank %d holds other weights than "
                         "replica 0; please report this",
                         r / l->stages, r % l->stages);
        }
    }
    return rc;
}

int pp_exec_weights_sha256(struct pp_exec *x, char out[65])
{
    const struct pp_layout *l = x->layout;
    size_t largest = 0;
    for (int s = 0; s < l->n_virtual; s++) {
        size_t n = pp_layout_floats(l, s);
        largest = n > largest ? n : largest;
    }
    PP_TRY(pp_transport_agree(x->tp, pp_exec_finish(x, 0)));
    float *host = pp_alloc(largest, sizeof(*host));
    uint8_t *all = pp_alloc((size_t)l->ranks, PP_SHA256_BYTES);
    int rc = pp_transport_agree(x->tp, host && all ? 0 : PP_ERESOURCE);
    if (rc == 0 && l->replicas > 1)
        rc = check_replicas(x, host, all);
    struct pp_sha256 h;
    pp_sha256_init(&h);
    out[0] = '\0';
    for (int s = 0; rc == 0 && x->replica == 0 && s < l->n_virtual; s++) {
        int owner = l->rank_of[s];
        size_t bytes = pp_layout_floats(l, s) * sizeof(float);
        if (owner == x->rank) {
            const struct pp_chunk *c = x->stages[l->plans[0].plan->chunk_of[s]].chunk;
            rc = pp_backend_to_host(x->be, host, c->params, bytes);
            if (rc == 0 && owner != 0)
                rc = pp_transport_send(x->tp, 0, host, bytes);
        } else if (x->rank == 0) {
            rc = pp_transport_recv(x->tp, owner, host, bytes);
        }
        if (rc == 0 && x->rank == 0)
            pp_sha256_update(&h, host, bytes);
    }
    if (rc == 0 && x->rank == 0) {
        uint8_t digest[PP_SHA256_BYTES];
        pp_sha256_final(&h, digest);
        pp_sha256_hex(digest, out);
    }
    pp_free(host);
    pp_free(all);
    return rc;
}
