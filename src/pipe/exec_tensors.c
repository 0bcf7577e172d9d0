/* SPDX-License-Identifier: Apache-2.0 */
/* Copies the training state of a rank, tensor by tensor, for saving and restoring; and computes the
 * hash of all ranks' weights. */
#include "exec_internal.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* Lists the arrays of a chunk that have one float for each parameter: the weights, then the
 * optimizer's moments. Returns their number. */
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

/* Finds tensor *i of a chunk. If the chunk has fewer tensors, returns false and subtracts their
 * number from *i. */
static bool find_tensor(const struct pp_chunk *c, int *i, struct pp_exec_tensor *out)
{
    float *of[3];
    int kinds = values_and_moments(c, of);
    out->param = &c->model->params[c->model->layers[c->first].first_param];
    for (int p = 0; p < pp_chunk_param_count(c); p++, out->param++) {
        int n = kinds == 1 ? 1 : 1 + pp_param_moments(out->param, c->optimizer);
        out->n = pp_param_floats(out->param);
        if (*i < n) {
            out->kind = (enum pp_exec_kind) * i;
            out->at = pp_chunk_offset(c, out->param);
            out->values = of[*i] + out->at;
            return true;
        }
        *i -= n;
    }
    return false;
}

int pp_exec_tensor_count(const struct pp_exec *x)
{
    struct pp_exec_tensor t;
    int left = INT_MAX;
    for (int k = 0; k < x->n_stages; k++)
        find_tensor(x->stages[k].chunk, &left, &t);
    return INT_MAX - left;
}

void pp_exec_tensor(const struct pp_exec *x, int i, struct pp_exec_tensor *out)
{
    for (int k = 0; k < x->n_stages; k++) {
        if (find_tensor(x->stages[k].chunk, &i, out)) {
            out->stage = k;
            if (out->kind != PP_EXEC_PARAM && x->zero.n > 0)
                out->values = NULL;
            return;
        }
    }
    pp_assert(!"tensor of the rank");
}

/* ---- optimizer state in pieces */

#define REQUEST_FLOATS ((size_t)1 << 14)

/* A request of replica 0 to another replica: floats of the optimizer state of one of its
 * buckets. */
struct request {
    int32_t bucket, kind;
    uint64_t at, n; /* at: float of the chunk; n = 0: the last request */
};

static float *optimizer_state_at(const struct exec_bucket *b, int kind, size_t at)
{
    return (kind == PP_EXEC_OPT_M ? b->chunk->opt_m : b->chunk->opt_v) + b->state + at -
           b->own->from;
}

/* Finds who has floats `first` to end - 1 of a tensor. Returns the request for the first of them
 * and those after it in the same piece; *d is the replica that has the piece. */
static struct request locate_floats(const struct pp_exec *x, const struct pp_exec_tensor *t,
                                    size_t first, size_t end, int *d)
{
    const struct exec_bucket *b = x->zero.buckets;
    size_t at = t->at + first, n = end - first < REQUEST_FLOATS ? end - first : REQUEST_FLOATS;
    while (b->stage != x->stages[t->stage].s || at < b->shards->from)
        b++;
    for (*d = 0; at >= b->shards[*d].from + b->shards[*d].n;)
        ++*d;
    size_t left = b->shards[*d].from + b->shards[*d].n - at;
    return (struct request){(int32_t)(b - x->zero.buckets), t->kind, at, n < left ? n : left};
}

/* Answers the requests of replica 0 for pieces of the optimizer state, until it has all of them.
 * After a failure this rank still answers, because replica 0 waits, and returns the error at the
 * end. */
int pp_exec_serve(struct pp_exec *x)
{
    struct request r = {.n = 0};
    float host[REQUEST_FLOATS];
    int rc = 0;
    for (int d = 1; d < x->layout->replicas && x->replica == 0 && x->zero.n > 0; d++)
        PP_TRY(pp_transport_send(x->tp, x->group[d], &r, sizeof(r)));
    while (x->replica > 0 && x->zero.n > 0) {
        PP_TRY(pp_transport_recv(x->tp, x->group[0], &r, sizeof(r)));
        if (r.n == 0)
            break;
        if (rc == 0)
            rc = pp_backend_to_host(x->be, host,
                                    optimizer_state_at(&x->zero.buckets[r.bucket], r.kind, r.at),
                                    r.n * sizeof(*host));
        PP_TRY(pp_transport_send(x->tp, x->group[0], host, r.n * sizeof(*host)));
    }
    return rc;
}

/* Copies n floats of a tensor from the replicas that have them to `host`, and checks that they are
 * finite, since no other code sees them. With `put` instead copies those that this replica keeps
 * from `put` to the device. */
static int copy_pieces(struct pp_exec *x, const struct pp_exec_tensor *t, size_t first, size_t n,
                       float *host, const float *put)
{
    int d;
    for (size_t done = 0, end; done < n; done = end) {
        struct request r = locate_floats(x, t, first + done, first + n, &d);
        float *here = optimizer_state_at(&x->zero.buckets[r.bucket], r.kind, r.at),
              *to = host + done;
        end = done + r.n;
        if (put) {
            PP_TRY(d != x->replica
                       ? 0
                       : pp_backend_to_device(x->be, here, put + done, r.n * sizeof(*put)));
            continue;
        }
        if (d == x->replica) {
            PP_TRY(pp_backend_to_host(x->be, to, here, r.n * sizeof(*to)));
        } else {
            PP_TRY(pp_transport_send(x->tp, x->group[d], &r, sizeof(r)));
            PP_TRY(pp_transport_recv(x->tp, x->group[d], to, r.n * sizeof(*to)));
        }
        for (; to < host + end; to++)
            if (!isfinite(*to))
                return pp_fail(PP_EDIVERGED, "the optimizer's state of %s is not finite",
                               t->param->name);
    }
    return 0;
}

int pp_exec_tensor_get(struct pp_exec *x, const struct pp_exec_tensor *t, size_t first, float *host,
                       size_t n)
{
    pp_assert(first <= t->n && n <= t->n - first);
    return t->values ? pp_backend_to_host(x->be, host, t->values + first, n * sizeof(*host))
                     : copy_pieces(x, t, first, n, host, NULL);
}

int pp_exec_tensor_put(struct pp_exec *x, const struct pp_exec_tensor *t, size_t first,
                       const float *host, size_t n)
{
    pp_assert(first <= t->n && n <= t->n - first);
    PP_TRY(t->values ? pp_backend_to_device(x->be, t->values + first, host, n * sizeof(*host))
                     : copy_pieces(x, t, first, n, NULL, host));
    return pp_backend_synchronize(x->be); /* the caller reuses `host` */
}

int pp_exec_tensors_changed(struct pp_exec *x)
{
    for (int k = 0; k < x->n_stages; k++)
        PP_TRY(pp_chunk_weights_changed(x->stages[k].chunk, x->be));
    return 0;
}

/* ---- the hash of the weights */

#define HASH_FLOATS ((size_t)1 << 18) /* hashed at a time, which bounds the memory */

/* Adds floats `from` to end - 1 of the chunk's weights to a hash. host[HASH_FLOATS] is scratch. */
static int hash_floats(struct pp_exec *x, const struct pp_chunk *c, size_t from, size_t end,
                       float *host, struct pp_sha256 *h)
{
    for (size_t at = from, n; at < end; at += n) {
        n = end - at < HASH_FLOATS ? end - at : HASH_FLOATS;
        PP_TRY(pp_backend_to_host(x->be, host, c->params + at, n * sizeof(*host)));
        pp_sha256_update(h, host, n * sizeof(*host));
    }
    return 0;
}

/* Checks that every replica holds weights with the bits of replica 0; a difference is a bug in the
 * reduction. `host` and all[ranks][PP_SHA256_BYTES] are scratch. */
static int check_replicas(struct pp_exec *x, float *host, uint8_t *all)
{
    const struct pp_layout *l = x->layout;
    uint8_t mine[PP_SHA256_BYTES];
    struct pp_sha256 h;
    pp_sha256_init(&h);
    int rc = 0;
    for (int k = 0; rc == 0 && k < x->n_stages; k++)
        rc = hash_floats(x, x->stages[k].chunk, 0, x->stages[k].chunk->n_floats, host, &h);
    pp_sha256_final(&h, mine);
    if (rc == 0)
        rc = pp_transport_allgather(x->tp, mine, sizeof(mine), all);
    for (int r = l->stages; rc == 0 && r < l->ranks; r++) {
        if (memcmp(all + (size_t)r * sizeof(mine), all + (size_t)(r % l->stages) * sizeof(mine),
                   sizeof(mine)) != 0) {
            rc = pp_fail(PP_EINTERNAL,
                         "replica %d of stage rank %d holds weights that differ from "
                         "replica 0; please report this",
                         r / l->stages, r % l->stages);
        }
    }
    return rc;
}

/* Adds floats `from` to end - 1 of the weights of stage s, which is counted over all chunks, to
 * rank 0's hash; the rank that owns the stage sends them. */
static int hash_param(struct pp_exec *x, int s, size_t from, size_t end, float *host,
                      struct pp_sha256 *h)
{
    const struct pp_layout *l = x->layout;
    int owner = l->rank_of[s];
    const struct pp_chunk *c = x->stages[l->plans[0].plan->chunk_of[s]].chunk;
    if (owner == 0)
        return x->rank == 0 ? hash_floats(x, c, from, end, host, h) : 0;
    for (size_t at = from, bytes; at < end; at += bytes / sizeof(*host)) {
        bytes = (end - at < HASH_FLOATS ? end - at : HASH_FLOATS) * sizeof(*host);
        if (x->rank == owner) {
            PP_TRY(pp_backend_to_host(x->be, host, c->params + at, bytes));
            PP_TRY(pp_transport_send(x->tp, 0, host, bytes));
        } else if (x->rank == 0) {
            PP_TRY(pp_transport_recv(x->tp, owner, host, bytes));
            pp_sha256_update(h, host, bytes);
        }
    }
    return 0;
}

int pp_exec_weights_sha256(struct pp_exec *x, char out[65])
{
    const struct pp_layout *l = x->layout;
    PP_TRY(pp_transport_agree(x->tp, pp_exec_finish(x)));
    PP_OWN_MEMORY float *host = pp_alloc(HASH_FLOATS, sizeof(*host));
    PP_OWN_MEMORY uint8_t *all = pp_alloc((size_t)l->ranks, PP_SHA256_BYTES);
    PP_TRY(pp_transport_agree(x->tp, host && all ? 0 : PP_ERESOURCE));
    if (l->replicas > 1)
        PP_TRY(check_replicas(x, host, all));
    struct pp_sha256 h;
    pp_sha256_init(&h);
    out[0] = '\0';
    for (int s = 0; x->replica == 0 && s < l->n_virtual; s++) {
        const struct pp_layer *first = &l->model->layers[l->first[s]],
                              *last = &l->model->layers[l->last[s]];
        for (int i = first->first_param; i < last->first_param + last->n_params; i++) {
            const struct pp_param *p = &l->model->params[i];
            size_t at = p->at - l->model->params[first->first_param].at;
            PP_TRY(p->tied_to == 0 ? hash_param(x, s, at, at + pp_param_floats(p), host, &h) : 0);
        }
    }
    if (x->rank == 0) {
        uint8_t digest[PP_SHA256_BYTES];
        pp_sha256_final(&h, digest);
        pp_sha256_hex(digest, out);
    }
    return 0;
}
