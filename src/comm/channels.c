/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of channels that is the same for all transports: their ends, and the order of calls on a
 * slot. A plan is proved before it runs, so no check should ever fail; if one does, it must be an
 * error that names the place, not a hang or a wrong number.
 */
#include "impl.h"

#include <string.h>

#include "ppcli/base/base.h"

#define TAGS 65536
#define SLOTS 65536

static int check_one(const struct pp_transport *tp, const struct pp_channel_spec *c, int previous)
{
    if (c->id < 0 || c->id <= previous) {
        return pp_fail(PP_EINTERNAL, "channel %d after channel %d: ids are ascending from 0", c->id,
                       previous);
    }
    if (c->src < 0 || c->src >= tp->size || c->dst < 0 || c->dst >= tp->size || c->src == c->dst) {
        return pp_fail(PP_EINTERNAL, "channel %d goes from rank %d to rank %d of %d", c->id, c->src,
                       c->dst, tp->size);
    }
    if (c->src != tp->rank && c->dst != tp->rank) {
        return pp_fail(PP_EINTERNAL, "channel %d (rank %d to %d) is not one of rank %d", c->id,
                       c->src, c->dst, tp->rank);
    }
    if (c->slots < 1 || c->slots > SLOTS || c->bytes == 0 || c->bytes % PP_ALIGN != 0) {
        return pp_fail(PP_EINTERNAL, "channel %d has %d slots of %zu bytes", c->id, c->slots,
                       c->bytes);
    }
    return 0;
}

static bool is_same_spec(const struct pp_channel_spec *a, const struct pp_channel_spec *b)
{
    return a->src == b->src && a->dst == b->dst && a->id == b->id && a->slots == b->slots &&
           a->bytes == b->bytes;
}

/* Checks that each of this rank's n specs is equal to its peer's spec of the same channel.
 * all[size][most] has the specs of all ranks; an entry with slots == 0 ends a list that is shorter
 * than `most`. */
static int check_peers(const struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                       const struct pp_channel_spec *all, int most)
{
    for (int i = 0; i < n; i++) {
        const struct pp_channel_spec *c = &specs[i];
        int peer = c->src == tp->rank ? c->dst : c->src;
        const struct pp_channel_spec *theirs = &all[(size_t)peer * (size_t)most];
        int k = 0;
        while (k < most && theirs[k].slots != 0 && theirs[k].id != c->id)
            k++;
        if (k == most || theirs[k].slots == 0) {
            return pp_fail(PP_EINTERNAL, "channel %d: rank %d has it, rank %d does not", c->id,
                           tp->rank, peer);
        }
        if (!is_same_spec(c, &theirs[k])) {
            return pp_fail(PP_EINTERNAL,
                           "channel %d: rank %d has %d slots of %zu bytes from %d to %d, rank %d "
                           "has %d of %zu from %d to %d",
                           c->id, tp->rank, c->slots, c->bytes, c->src, c->dst, peer,
                           theirs[k].slots, theirs[k].bytes, theirs[k].src, theirs[k].dst);
        }
    }
    return 0;
}

int pp_channels_gather(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                       struct pp_channel_spec **out, int *out_most)
{
    int32_t mine = n, most = 1;
    PP_TRY(pp_transport_allgather(tp, &mine, sizeof(mine), tp->verdicts));
    for (int r = 0; r < tp->size; r++)
        most = tp->verdicts[r] > most ? tp->verdicts[r] : most;
    PP_OWN_MEMORY struct pp_channel_spec *padded = pp_alloc((size_t)most, sizeof(*padded));
    PP_OWN_MEMORY struct pp_channel_spec *all =
        pp_alloc((size_t)most * (size_t)tp->size, sizeof(*all));
    PP_TRY(pp_transport_agree(tp, padded && all ? 0 : PP_ERESOURCE));
    pp_assert(padded != NULL && all != NULL); /* else agree() would have failed */
    if (n > 0)
        memcpy(padded, specs, (size_t)n * sizeof(*specs));
    PP_TRY(pp_transport_allgather(tp, padded, (size_t)most * sizeof(*padded), all));
    *out = all;
    *out_most = most;
    all = NULL;
    return 0;
}

/* Collective. Checks that the specs are legal, and that both ends of each channel have the same
 * spec. Every rank gets the same result. Needs only allgather, send and recv of the transport. */
static int check_specs(struct pp_transport *tp, const struct pp_channel_spec *specs, int n)
{
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = check_one(tp, &specs[i], i > 0 ? specs[i - 1].id : -1);
    PP_TRY(pp_transport_agree(tp, rc));
    PP_OWN_MEMORY struct pp_channel_spec *all = NULL;
    int most = 0;
    PP_TRY(pp_channels_gather(tp, specs, n, &all, &most));
    return pp_transport_agree(tp, check_peers(tp, specs, n, all, most));
}

static int fail_out_of_turn(const struct pp_channel_spec *c, int slot, const char *what,
                            enum pp_turn t)
{
    static const char *const names[] = {"free", "acquired", "waited for", "being read"};
    return pp_fail(PP_EINTERNAL, "channel %d (rank %d to %d) slot %d: %s while it is %s", c->id,
                   c->src, c->dst, slot, what, names[t]);
}

static int check_size(const struct pp_channel_spec *c, int slot, size_t bytes, int tag)
{
    if (bytes > c->bytes || tag < 0 || tag >= TAGS) {
        return pp_fail(PP_EINTERNAL,
                       "channel %d (rank %d to %d) slot %d of %zu bytes: message of %zu bytes, tag "
                       "%d",
                       c->id, c->src, c->dst, slot, c->bytes, bytes, tag);
    }
    return 0;
}

/* ---- ends */

static int make_end(const struct pp_transport *tp, const struct pp_channel_spec *spec, void *memory,
                    struct pp_channel_end *e)
{
    size_t slots = (size_t)spec->slots;
    e->spec = *spec;
    e->memory = memory;
    if ((spec->dst == tp->rank || !tp->caps.shared_slots) &&
        (!memory || (uintptr_t)memory % PP_ALIGN != 0)) {
        return pp_fail(PP_EINTERNAL, "channel %d: rank %d gives no aligned memory", spec->id,
                       tp->rank);
    }
    e->slots = pp_alloc(slots, sizeof(*e->slots));
    e->own = pp_alloc(1, tp->ops->end_bytes);
    e->own_slots = pp_alloc(slots, tp->ops->slot_bytes);
    return e->slots && e->own && e->own_slots ? 0 : PP_ERESOURCE;
}

static int make_ends(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                     void *const *memory)
{
    PP_ALLOC(tp->ends, n);
    tp->n_ends = n;
    for (int i = 0; i < n; i++)
        PP_TRY(make_end(tp, &specs[i], memory[i], &tp->ends[i]));
    return 0;
}

void pp_ends_free(struct pp_transport *tp)
{
    for (int i = 0; i < tp->n_ends; i++) {
        pp_free(tp->ends[i].slots);
        pp_free(tp->ends[i].own);
        pp_free(tp->ends[i].own_slots);
    }
    pp_free(tp->ends);
}

int pp_transport_open_channels(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                               void *const *memory)
{
    pp_assert(!tp->ends);
    PP_TRY(check_specs(tp, specs, n));
    PP_TRY(pp_transport_agree(tp, make_ends(tp, specs, n, memory)));
    return pp_transport_agree(tp, tp->ops->open_channels(tp, specs, n, memory));
}

/* ---- messages */

static struct pp_channel_end *get_channel_end(const struct pp_transport *tp, int ch, int slot)
{
    pp_assert(ch >= 0 && ch < tp->n_ends && slot >= 0 && slot < tp->ends[ch].spec.slots);
    return &tp->ends[ch];
}

void *pp_transport_slot(struct pp_transport *tp, int ch, int slot)
{
    return pp_slot_memory(get_channel_end(tp, ch, slot), slot);
}

int pp_transport_acquire(struct pp_transport *tp, int ch, int slot)
{
    struct pp_channel_end *e = get_channel_end(tp, ch, slot);
    pp_assert(e->spec.src == tp->rank);
    PP_TRY(tp->ops->acquire(tp, e, slot));
    e->slots[slot].turn = PP_TURN_ACQUIRED;
    return 0;
}

int pp_transport_post_send(struct pp_transport *tp, int ch, int slot, size_t bytes, int tag)
{
    struct pp_channel_end *e = get_channel_end(tp, ch, slot);
    struct pp_slot_end *s = &e->slots[slot];
    if (s->turn != PP_TURN_ACQUIRED)
        return fail_out_of_turn(&e->spec, slot, "send", s->turn);
    PP_TRY(check_size(&e->spec, slot, bytes, tag));
    s->turn = PP_TURN_FREE;
    PP_TRY(tp->ops->post_send(tp, e, slot, bytes, tag));
    s->count++;
    return 0;
}

int pp_transport_post_recv(struct pp_transport *tp, int ch, int slot, size_t bytes, int tag)
{
    struct pp_channel_end *e = get_channel_end(tp, ch, slot);
    struct pp_slot_end *s = &e->slots[slot];
    pp_assert(e->spec.dst == tp->rank);
    if (s->turn != PP_TURN_FREE)
        return fail_out_of_turn(&e->spec, slot, "receive", s->turn);
    PP_TRY(check_size(&e->spec, slot, bytes, tag));
    s->turn = PP_TURN_POSTED;
    s->bytes = bytes;
    s->tag = (uint32_t)tag;
    return tp->ops->post_recv ? tp->ops->post_recv(tp, e, slot, bytes) : 0;
}

int pp_transport_wait_recv(struct pp_transport *tp, int ch, int slot)
{
    struct pp_channel_end *e = get_channel_end(tp, ch, slot);
    struct pp_slot_end *s = &e->slots[slot];
    size_t bytes = s->bytes;
    uint32_t tag = s->tag;
    if (s->turn != PP_TURN_POSTED)
        return fail_out_of_turn(&e->spec, slot, "wait", s->turn);
    PP_TRY(tp->ops->wait_recv(tp, e, slot, &bytes, &tag));
    if (tag != s->tag || bytes != s->bytes) {
        return pp_fail(PP_EINTERNAL,
                       "channel %d (rank %d to %d) slot %d: expected tag %u with %zu bytes, found "
                       "tag %u with %zu bytes",
                       e->spec.id, e->spec.src, e->spec.dst, slot, s->tag, s->bytes, tag, bytes);
    }
    s->turn = PP_TURN_HELD;
    return 0;
}

int pp_transport_release(struct pp_transport *tp, int ch, int slot)
{
    struct pp_channel_end *e = get_channel_end(tp, ch, slot);
    struct pp_slot_end *s = &e->slots[slot];
    if (s->turn != PP_TURN_HELD)
        return fail_out_of_turn(&e->spec, slot, "release", s->turn);
    s->turn = PP_TURN_FREE;
    PP_TRY(tp->ops->release ? tp->ops->release(tp, e, slot) : 0);
    s->count++;
    return 0;
}
