/* SPDX-License-Identifier: Apache-2.0 */
/* See tune.h. */
#include "tune.h"

int link_open(struct pp_transport *tp, int slots, size_t bytes, struct pp_arena *memory)
{
    bool shared = tp->caps.shared_slots; /* then the receiver provides them */
    struct pp_channel_spec specs[2] = {
        {.src = 0, .dst = 1, .id = 0, .slots = slots, .bytes = bytes},
        {.src = 1, .dst = 0, .id = 1, .slots = 1, .bytes = bytes},
    };
    size_t there = (size_t)slots * bytes, back = bytes;
    bool has[2] = {tp->rank == 1 || (tp->rank == 0 && !shared),
                   tp->rank == 0 || (tp->rank == 1 && !shared)};
    size_t total = (has[0] ? there : 0) + (has[1] ? back : 0);
    PP_TRY(pp_transport_agree(tp, total > 0 ? pp_arena_create(total, memory) : 0));
    void *slot_memory[2] = {has[0] ? memory->base : NULL,
                            has[1] ? memory->base + (has[0] ? there : 0) : NULL};
    return pp_transport_open_channels(tp, specs, tp->rank < 2 ? 2 : 0, slot_memory);
}

int link_send(struct pp_transport *tp, int ch, int slot, size_t bytes)
{
    PP_TRY(pp_transport_acquire(tp, ch, slot));
    return pp_transport_post_send(tp, ch, slot, bytes, slot);
}

int link_receive(struct pp_transport *tp, int ch, int slot, size_t bytes)
{
    PP_TRY(pp_transport_post_recv(tp, ch, slot, bytes, slot));
    return pp_transport_wait_recv(tp, ch, slot);
}

int link_swap(struct pp_transport *tp, double *x)
{
    double mine = *x;
    for (int turn = 0; turn < 2; turn++)
        if (tp->rank == turn)
            PP_TRY(pp_transport_send(tp, 1 - turn, &mine, sizeof(mine)));
        else
            PP_TRY(pp_transport_recv(tp, turn, x, sizeof(*x)));
    return 0;
}
