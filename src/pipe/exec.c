/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and destroys the executor: channels, loaders, initial weights. */
#include "exec_internal.h"
#include "layout.h"

#include "ppcli/base/base.h"

static int open_exec_channels(struct pp_exec *x)
{
    const struct pp_layout *l = x->layout;
    int n = 0;
    size_t most =
        (size_t)l->n_channels + 2 * (size_t)x->zero.n * SHARD_KINDS * (size_t)(l->replicas - 1);
    PP_OWN_MEMORY struct pp_channel_spec *specs = pp_alloc(most, sizeof(*specs));
    PP_OWN_MEMORY void **memory = pp_alloc(most, sizeof(*memory));
    PP_TRY(pp_transport_agree(x->tp, specs && memory ? 0 : PP_ERESOURCE));
    pp_assert(specs != NULL && memory != NULL); /* else the ranks had not agreed */
    int base = x->replica * l->stages;
    for (int c = 0; c < l->n_channels; c++) {
        int src = l->plans[0].plan->channels[c].src_rank;
        int dst = l->plans[0].plan->channels[c].dst_rank;
        if (x->channels[c].id < 0 || src == dst || l->channel_slots[c] == 0)
            continue;
        specs[n] = (struct pp_channel_spec){.src = base + src,
                                            .dst = base + dst,
                                            .id = x->replica * l->n_channels + c,
                                            .slots = l->channel_slots[c],
                                            .bytes = pp_layout_slot_bytes(l, c)};
        memory[n] = x->channels[c].memory;
        x->channels[c].spec = n++;
    }
    exec_zero_channels(x, specs, memory, &n);
    PP_TRY(pp_transport_open_channels(x->tp, specs, n, memory));
    bool exchanges = x->zero.n > 0 && pp_transport_has_exchanges(x->tp);
    return exchanges ? pp_transport_open_exchanges(x->tp, x->zero.n) : 0;
}

/* Finds for each plan the receives that are posted before the first action, and the last input
 * gradient of this rank. */
static int find_first_and_last(struct pp_exec *x)
{
    const struct pp_layout *l = x->layout;
    size_t slots = 0;
    for (int c = 0; c < l->n_channels; c++) {
        bool receives = l->plans[0].plan->channels[c].dst_rank == x->pipeline_rank;
        slots += receives ? (size_t)l->channel_slots[c] : 0;
    }
    for (int i = 0; i < l->n_plans; i++) {
        const struct pp_plan *plan = l->plans[i].plan;
        struct exec_first *first = &x->first[i];
        if (!(first->messages = pp_alloc(slots, sizeof(*first->messages))))
            return PP_ERESOURCE;
        for (int m = 0; m < plan->n_messages; m++) {
            const struct pp_message *msg = &plan->messages[m];
            if (msg->first_in_slot && plan->channels[msg->channel].dst_rank == x->pipeline_rank) {
                pp_assert((size_t)first->n < slots);
                first->messages[first->n++] = m;
            }
        }
        const struct pp_rank_plan *mine = &plan->ranks[x->pipeline_rank];
        for (int k = 0; k < mine->n_actions; k++)
            if (mine->actions[k].op == PP_OP_I || mine->actions[k].op == PP_OP_B)
                first->last_i = &mine->actions[k];
    }
    return 0;
}

static int open_loaders(struct pp_exec *x)
{
    const struct pp_layout *l = x->layout;
    const struct pp_config *cfg = x->cfg;
    for (int split = 0; split < 2; split++) {
        bool train = split == PP_SPLIT_TRAIN;
        int n = train ? l->training.train_all : l->test_n;
        if (n > 0) {
            PP_TRY(pp_loader_create(n, l->training.batch, l->replicas, x->replica,
                                    l->division.microbatches, train && cfg->data.shuffle,
                                    cfg->train.seed, &x->loader[split]));
            x->loader[split]->n = train ? l->train_n : n;
            if (train && x->data[split] && x->data[split]->starts > 0)
                pp_loader_windows(x->loader[split], x->data[split]->starts);
        }
    }
    if (x->loader[PP_SPLIT_TEST])
        pp_loader_start_epoch(x->loader[PP_SPLIT_TEST], 0);
    return 0;
}

/* Does all of the set-up that can fail on one rank alone, before the first message. */
static int create_local(struct pp_exec *x, const struct pp_exec_spec *spec)
{
    PP_TRY(exec_memory_take(x, spec));
    PP_TRY(pp_backend_zero(x->be, x->before, sizeof(*x->before)));
    PP_TRY(exec_finite_create(x));
    PP_TRY(find_first_and_last(x));
    PP_TRY(open_loaders(x));
    if (!x->tp->be)
        PP_TRY(pp_transport_bind(x->tp, x->be));
    PP_TRY(exec_flights_create(x));
    PP_TRY(exec_input_open(x));
    for (int k = 0; k < x->n_stages; k++)
        PP_TRY(pp_chunk_init(x->stages[k].chunk, x->be, x->cfg->train.seed));
    return exec_drain(x);
}

int pp_exec_create(const struct pp_exec_spec *spec, struct pp_backend *be, struct pp_transport *tp,
                   const struct pp_dataset *train, const struct pp_dataset *test,
                   struct pp_exec **out)
{
    struct pp_exec *x = pp_alloc(1, sizeof(*x));
    int rc = x ? 0 : PP_ERESOURCE;
    if (x) {
        x->be = be;
        x->tp = tp;
        x->ring = spec->ring;
        x->data[PP_SPLIT_TRAIN] = train;
        x->data[PP_SPLIT_TEST] = test;
        rc = create_local(x, spec);
    }
    rc = pp_transport_agree(tp, rc);
    if (rc == 0) {
        pp_assert(x != NULL);
        rc = open_exec_channels(x);
    }
    PP_TRY_UNDO(rc, pp_exec_destroy(&x));
    *out = x;
    return 0;
}

void pp_exec_destroy(struct pp_exec **exec)
{
    struct pp_exec *x = *exec;
    if (!x)
        return;
    pp_ahead_destroy(&x->input.ahead);
    if (!exec_flights_destroy(x))
        x->arena.base = NULL;
    else
        exec_input_free_host(x);
    pp_loader_destroy(&x->loader[PP_SPLIT_TRAIN]);
    pp_loader_destroy(&x->loader[PP_SPLIT_TEST]);
    exec_memory_free(x);
    pp_free(x);
    *exec = NULL;
}

uint64_t pp_exec_events_per_step(const struct pp_layout *l)
{
    /*
     * Events of each action. F: wait, slot, F, send; I: the same and release; W: W, release; R: R; G: slot, G,
     * send; T: wait, T, release. Then a step has reduce, vote, clip, update, meet, report; after an
     * epoch, meet and report again; on a device, launch. With train.zero each bucket has W, post
     * and sum; then sums, statistics, gather.
     */
    static const uint64_t of_op[] = {[PP_OP_F] = 5, [PP_OP_I] = 5, [PP_OP_W] = 2, [PP_OP_B] = 6,
                                     [PP_OP_R] = 1, [PP_OP_G] = 3, [PP_OP_T] = 3};
    uint64_t most = 0;
    for (int i = 0; i < l->n_plans; i++) {
        for (int r = 0; r < l->stages; r++) {
            const struct pp_rank_plan *p = &l->plans[i].plan->ranks[r];
            uint64_t n = 13 + (l->division.zero ? 3 * (uint64_t)l->model->n_layers : 0);
            for (int k = 0; k < p->n_actions; k++)
                n += of_op[p->actions[k].op];
            most = n > most ? n : most;
        }
    }
    return most;
}

int pp_exec_train_steps(const struct pp_exec *x)
{
    return pp_loader_steps(x->loader[PP_SPLIT_TRAIN]);
}

int pp_exec_test_steps(const struct pp_exec *x)
{
    return x->layout->test_n > 0 ? pp_loader_steps(x->loader[PP_SPLIT_TEST]) : 0;
}

const struct pp_exec_bytes *pp_exec_bytes(const struct pp_exec *x)
{
    return &x->bytes;
}
