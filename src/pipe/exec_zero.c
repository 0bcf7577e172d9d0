/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train.zero: each replica sums and updates its piece of every bucket, and keeps the optimizer
 * state of it.
 *
 *   begin    posts the receives of gradients
 *   post     sends a bucket's gradients when they are complete, often long before the end of the
 *            step
 *   reduce   adds up this rank's pieces in the order of the replicas; sends the sums to all if
 *            others need them
 *   update   runs the optimizer over this rank's pieces and sends them to all
 *
 * A deadlock is impossible: reduce waits for posts and update for reduces, and no action of the
 * plan waits for either. The owner of a piece overwrites our copy of the parameters only after it
 * has our gradients of them, so after the last pass that reads them.
 */
#include "exec_internal.h"
#include "layout.h"

#include "ppcli/base/base.h"
#include "ppcli/conf/config.h"

#define BUCKET_FLOATS ((size_t)1 << 16) /* at least, except for the first layers of a stage */

static size_t align_floats(size_t floats, size_t most)
{
    const size_t unit = PP_ALIGN / sizeof(float);
    floats = (floats + unit - 1) / unit * unit;
    return floats < most ? floats : most;
}

/* Returns whether the bucket has a part of a tied tensor. A bucket may include the first floats of
 * the layer after its last. */
static bool holds_tied_tensor(const struct pp_layout *l, const struct exec_bucket *b)
{
    const struct pp_layer *first = &l->model->layers[b->first], *next = first + b->last - b->first;
    next += b->last < l->last[b->stage];
    int from = first->first_param, to = next->first_param + next->n_params;
    bool has = false;
    for (int i = 0; i < l->n_ties; i++) {
        int copy = l->tied[i], owner = l->model->params[copy].tied_to - 1;
        has = has || (from <= copy && copy < to) || (from <= owner && owner < to);
    }
    return has;
}

/* Returns the end of the matrix that a cut at float `at` of stage s would divide, if Muon updates
 * it as a whole; 0 if there is none. */
static size_t end_of_divided_matrix(const struct pp_exec *x, int s, size_t at)
{
    const struct pp_layout *l = x->layout;
    const struct pp_layer *last = &l->model->layers[l->last[s]];
    const struct pp_param *first = &l->model->params[l->model->layers[l->first[s]].first_param];
    const struct pp_param *past = &l->model->params[last->first_param + last->n_params];
    if (x->cfg->train.optimizer != PP_OPT_MUON)
        return 0;
    for (const struct pp_param *p = first; p < past && p->at - first->at < at; p++) {
        size_t end = p->at - first->at + pp_param_floats(p);
        if (end > at && p->matrix)
            return end;
    }
    return 0;
}

/* Returns the first float from `at` on where a cut is allowed; `most` if there is none. */
static size_t find_cut(const struct pp_exec *x, int s, size_t at, size_t most)
{
    for (at = align_floats(at, most); at < most && end_of_divided_matrix(x, s, at);)
        at = align_floats(end_of_divided_matrix(x, s, at), most);
    return at;
}

/* Adds a bucket with floats `at` to to - 1 and divides it among the replicas. Elements are summed
 * in the order of the replicas wherever the cuts are, so a cut changes no bit. */
static void add_bucket(struct pp_exec *x, struct exec_bucket made, size_t at, size_t to)
{
    size_t d = (size_t)x->layout->replicas, each = (to - at) / d;
    struct exec_bucket *b = &x->zero.buckets[x->zero.n];
    made.number = x->layout->first[made.stage] + x->layout->last[made.stage] - made.last;
    made.after_ties = holds_tied_tensor(x->layout, &made);
    made.state = exec_zero_floats(x, made.stage);
    made.shards = x->zero.shards + d * (size_t)x->zero.n++;
    made.own = &made.shards[x->replica];
    *b = made;
    for (size_t k = 0; k < d; k++) {
        size_t end = k + 1 == d ? to : find_cut(x, made.stage, at + each * (k + 1), to);
        b->shards[k].from = k == 0 ? at : b->shards[k - 1].from + b->shards[k - 1].n;
        b->shards[k].n = end - b->shards[k].from;
    }
}

int exec_zero_create(struct pp_exec *x)
{
    const struct pp_layout *l = x->layout;
    const struct pp_model *m = l->model;
    if (l->division.zero == 0 || l->replicas == 1 ||
        pp_optimizer_moments(x->cfg->train.optimizer) == 0)
        return 0;
    PP_ALLOC(x->zero.buckets, m->n_layers);
    PP_ALLOC(x->zero.shards, (size_t)m->n_layers * (size_t)l->replicas);
    for (int k = 0; k < x->n_stages; k++) {
        int s = x->stages[k].s;
        size_t start = pp_layout_floats(l, s), to = start;
        for (int i = l->last[s], last = i; i >= l->first[s]; i--) {
            start -= m->layers[i].n_floats;
            size_t at = align_floats(start, to);
            if (i > l->first[s] && (at + BUCKET_FLOATS > to || end_of_divided_matrix(x, s, at)))
                continue;
            add_bucket(x, (struct exec_bucket){.stage = s, .first = i, .last = last}, at, to);
            last = i - 1;
            to = at;
        }
    }
    x->zero.shares_sums = pp_layout_shares_sums(l);
    return 0;
}

size_t exec_zero_floats(const struct pp_exec *x, int s)
{
    size_t n = 0;
    for (int i = 0; i < x->zero.n; i++)
        n += x->zero.buckets[i].stage == s ? x->zero.buckets[i].own->n : 0;
    return n;
}

void exec_zero_memory(struct pp_exec *x, struct pp_arena *a)
{
    for (int i = 0; i < x->zero.n; i++) {
        struct exec_bucket *b = &x->zero.buckets[i];
        b->chunk = x->stages[x->layout->plans[0].plan->chunk_of[b->stage]].chunk;
        for (int d = 0; d < x->layout->replicas; d++)
            if (d != x->replica)
                b->shards[d].sums = pp_arena_take(a, b->own->n, sizeof(float));
    }
}

/* ---- messages */

/* Returns the address of the *n floats that are sent to replica d (`out`) or received from it. If
 * the transport shares slots, the floats sent to d also lie in memory of d. */
static float *piece_of_replica(const struct exec_bucket *b, enum exec_shard_kind kind, int d,
                               bool out, size_t *n)
{
    const struct exec_shard *of = out == (kind == SHARD_GRADS) ? &b->shards[d] : b->own;
    *n = of->n;
    if (kind == SHARD_GRADS && !out)
        return b->shards[d].sums;
    return (kind == SHARD_PARAMS ? b->chunk->params : b->chunk->grads) + of->from;
}

void exec_zero_channels(struct pp_exec *x, struct pp_channel_spec *specs, void **memory, int *n)
{
    int replicas = x->layout->replicas, pairs = replicas * replicas;
    int n_buckets = pp_transport_has_exchanges(x->tp) ? 0 : x->zero.n;
    for (int i = 0; i < n_buckets * SHARD_KINDS * pairs; i++) {
        const struct exec_bucket *b = &x->zero.buckets[i / pairs / SHARD_KINDS];
        enum exec_shard_kind kind = (enum exec_shard_kind)(i / pairs % SHARD_KINDS);
        int src = i % pairs / replicas, dst = i % replicas;
        bool out = src == x->replica;
        if (src == dst || (!out && dst != x->replica))
            continue;
        struct exec_shard *s = &b->shards[out ? dst : src];
        /* unique in the run, and ascending */
        int id = (b->number * SHARD_KINDS + (int)kind) * replicas + src;
        id = id * (replicas - 1) + dst - (dst > src) + replicas * x->layout->n_channels;
        int *spec = out ? &s->out[kind] : &s->in[kind];
        size_t floats, bytes;
        void *at = piece_of_replica(b, kind, out ? dst : src, out, &floats);
        bytes = (floats * sizeof(float) + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN;
        *spec = -1;
        if (floats == 0 || (kind == SHARD_SUMS && !x->zero.shares_sums))
            continue;
        specs[*n] = (struct pp_channel_spec){x->group[src], x->group[dst], id, 1, bytes};
        memory[*n] = out && x->tp->caps.shared_slots ? NULL : at;
        *spec = (*n)++;
    }
}

/* A message to or from one replica: its channel, and the floats in this rank's memory. */
struct shard_message {
    int ch;
    enum exec_shard_kind kind;
    float *at;
    size_t n;
};

static int expect_message(struct pp_exec *x, const struct shard_message *m)
{
    return pp_transport_post_recv(x->tp, m->ch, 0, m->n * sizeof(*m->at), m->kind);
}

static int send_message(struct pp_exec *x, const struct shard_message *m)
{
    float *slot = pp_transport_slot(x->tp, m->ch, 0);
    PP_TRY(pp_transport_acquire(x->tp, m->ch, 0));
    PP_TRY(slot == m->at ? 0 : pp_backend_copy(x->be, slot, m->at, m->n * sizeof(*m->at)));
    return pp_transport_post_send(x->tp, m->ch, 0, m->n * sizeof(*m->at), m->kind);
}

static int wait_for_message(struct pp_exec *x, const struct shard_message *m)
{
    return pp_transport_wait_recv(x->tp, m->ch, 0);
}

static int release_message(struct pp_exec *x, const struct shard_message *m)
{
    return pp_transport_release(x->tp, m->ch, 0);
}

/* Waits until a message that was sent has left, so that its memory may change. */
static int regain_memory(struct pp_exec *x, const struct shard_message *m)
{
    return pp_transport_acquire(x->tp, m->ch, 0);
}

/* Calls `act` for the messages of a bucket: with `out` for those to every other replica, else for
 * those from every other replica. */
static int for_each_message(struct pp_exec *x, const struct exec_bucket *b,
                            enum exec_shard_kind kind, bool out,
                            int (*act)(struct pp_exec *x, const struct shard_message *m))
{
    for (int d = 0; d < x->layout->replicas; d++) {
        const struct exec_shard *s = &b->shards[d];
        struct shard_message m = {.ch = out ? s->out[kind] : s->in[kind], .kind = kind};
        m.at = piece_of_replica(b, kind, d, out, &m.n);
        if (d != x->replica && m.ch >= 0)
            PP_TRY(act(x, &m));
    }
    return 0;
}

/* Posts all messages of a bucket, in both directions, as one exchange, which runs while the device
 * computes. */
static int post_exchange(struct pp_exec *x, const struct exec_bucket *b, enum exec_shard_kind kind)
{
    struct pp_exchange *peers = x->tp->exchanges;
    int n = 0;
    for (int d = 0; d < x->layout->replicas; d++) {
        size_t to, from;
        float *out = piece_of_replica(b, kind, d, true, &to),
              *in = piece_of_replica(b, kind, d, false, &from);
        if (d != x->replica) {
            peers[n++] =
                (struct pp_exchange){x->group[d], out, to * sizeof(*out), in, from * sizeof(*in)};
        }
    }
    return pp_transport_post_exchange(x->tp, (int)(b - x->zero.buckets), peers, n);
}

/* The five parts of a transfer of a bucket's pieces, in this order. Where the transport has
 * exchanges, sending posts one and waiting waits for it, and the others do nothing. */

static int expect_pieces(struct pp_exec *x, const struct exec_bucket *b, enum exec_shard_kind kind)
{
    return pp_transport_has_exchanges(x->tp) ? 0
                                             : for_each_message(x, b, kind, false, expect_message);
}

static int send_pieces(struct pp_exec *x, const struct exec_bucket *b, enum exec_shard_kind kind)
{
    return pp_transport_has_exchanges(x->tp) ? post_exchange(x, b, kind)
                                             : for_each_message(x, b, kind, true, send_message);
}

static int wait_for_pieces(struct pp_exec *x, const struct exec_bucket *b,
                           enum exec_shard_kind kind)
{
    return pp_transport_has_exchanges(x->tp)
               ? pp_transport_wait_exchange(x->tp, (int)(b - x->zero.buckets))
               : for_each_message(x, b, kind, false, wait_for_message);
}

static int release_pieces(struct pp_exec *x, const struct exec_bucket *b, enum exec_shard_kind kind)
{
    return pp_transport_has_exchanges(x->tp) ? 0
                                             : for_each_message(x, b, kind, false, release_message);
}

static int regain_pieces(struct pp_exec *x, const struct exec_bucket *b, enum exec_shard_kind kind)
{
    return pp_transport_has_exchanges(x->tp) ? 0
                                             : for_each_message(x, b, kind, true, regain_memory);
}

/* Sends this rank's pieces to all other replicas and receives theirs into the memory from which
 * this rank's gradients were sent. */
static int share_pieces(struct pp_exec *x, enum exec_shard_kind kind, enum pp_event_kind event,
                        int64_t t)
{
    exec_event_begin(x, event, t);
    for (int i = 0; i < x->zero.n; i++) {
        const struct exec_bucket *b = &x->zero.buckets[i];
        PP_TRY(regain_pieces(x, b, SHARD_GRADS));
        PP_TRY(expect_pieces(x, b, kind));
        PP_TRY(send_pieces(x, b, kind));
    }
    for (int i = 0; i < x->zero.n; i++) {
        PP_TRY(wait_for_pieces(x, &x->zero.buckets[i], kind));
        PP_TRY(release_pieces(x, &x->zero.buckets[i], kind));
    }
    for (int i = 0; i < x->zero.n; i++)
        PP_TRY(regain_pieces(x, &x->zero.buckets[i], kind));
    exec_action_end(x);
    return 0;
}

/* ---- a step */

int exec_zero_begin(struct pp_exec *x)
{
    for (int i = 0; i < x->zero.n; i++)
        PP_TRY(expect_pieces(x, &x->zero.buckets[i], SHARD_GRADS));
    return 0;
}

int exec_zero_post(struct pp_exec *x, const struct exec_bucket *b, int64_t t)
{
    exec_event_begin(x, PP_EVENT_REDUCE, t);
    PP_TRY(send_pieces(x, b, SHARD_GRADS));
    exec_action_end(x);
    return 0;
}

/* Sums the gradients of all replicas for this rank's piece, in the order of the replicas: ((x0 +
 * x1) + x2) + ... Its own are among its gradients, the others' in their slots. */
static int sum_shards(struct pp_exec *x, const struct exec_bucket *b)
{
    float *own = b->chunk->grads + b->own->from, *sum = own;
    for (int d = 0; d < x->layout->replicas; d++) {
        bool ours = d == x->replica;
        float *next = ours ? own : b->shards[d].sums;
        if (d > 0)
            PP_TRY(pp_backend_add(x->be, b->own->n, ours ? sum : next, ours ? own : sum));
        sum = d == 0 || ours ? next : sum;
    }
    return 0;
}

int exec_zero_reduce(struct pp_exec *x, int64_t t)
{
    for (int i = 0; i < x->zero.n; i++) {
        const struct exec_bucket *b = &x->zero.buckets[i];
        exec_event_begin(x, PP_EVENT_REDUCE, t);
        PP_TRY(wait_for_pieces(x, b, SHARD_GRADS));
        PP_TRY(b->own->n > 0 ? sum_shards(x, b) : 0);
        PP_TRY(release_pieces(x, b, SHARD_GRADS));
        exec_action_end(x);
    }
    return x->zero.shares_sums ? share_pieces(x, SHARD_SUMS, PP_EVENT_REDUCE, t) : 0;
}

int exec_zero_update(struct pp_exec *x, int64_t t)
{
    exec_event_begin(x, PP_EVENT_UPDATE, t);
    for (int i = 0; i < x->zero.n; i++) {
        const struct exec_bucket *b = &x->zero.buckets[i];
        PP_TRY(pp_chunk_update_shard(b->chunk, x->be, x->args, b->own->from,
                                     b->own->from + b->own->n, b->state));
    }
    exec_action_end(x);
    PP_TRY(share_pieces(x, SHARD_PARAMS, PP_EVENT_GATHER, t));
    exec_event_begin(x, PP_EVENT_GATHER, t);
    for (int k = 0; k < x->n_stages; k++)
        PP_TRY(pp_chunk_optimizer_step(x->stages[k].chunk, x->be, x->args));
    exec_action_end(x);
    return 0;
}
