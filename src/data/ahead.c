/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the pictures of one step at a time. The thread makes those of the step after the one that
 * was taken; a caller that asks for another step makes it itself. The two never work at once, so
 * they share the scratch memory.
 */
#include "ppcli/data/dataset.h"

#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"
#include "ops.h"
#include "picture.h"

struct job {
    const struct pp_loader *ld;
    enum pp_split split;
    uint64_t epoch;
    int step, buffer;
};

enum state {
    RESTING, /* the thread has no job */
    ASKED,   /* `job` is requested or being made */
    MADE,
    ENDING
};

struct pp_ahead {
    struct augment augment;
    const struct pp_dataset *data[2];
    uint8_t *const *buffers;
    int n_buffers;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum state state;
    bool working, drop; /* working: the thread makes a job; drop: it should stop */
    struct job job;
};

int pp_resize_later(const struct pp_config *cfg)
{
    const struct pp_dataset_info *info = pp_dataset_info(cfg->data.dataset);
    return info && info->sized ? 0 : cfg->data.resize;
}

bool pp_ahead_makes(const struct pp_config *cfg, enum pp_split split)
{
    return pp_resize_later(cfg) > 0 || (split == PP_SPLIT_TRAIN && cfg->data.augment.n > 0);
}

bool pp_ahead_moves(const struct pp_config *cfg, enum pp_split split)
{
    bool moves = pp_ahead_makes(cfg, split) && pp_resize_later(cfg) == 0;
    for (int i = 0; i < cfg->data.augment.n; i++)
        moves = moves && cfg->data.augment.at[i] != PP_AUGMENT_AUTO;
    return moves;
}

void pp_ahead_move(const struct pp_config *cfg, uint64_t epoch, int n, const uint32_t *index,
                   uint32_t *moves)
{
    for (int r = 0; r < n; r++)
        moves[r] = augment_move(&cfg->data.augment, cfg->train.seed, epoch, index[r]);
}

/* Makes the pictures of a job; returns false if the job was dropped. With `ask` it checks before
 * each picture, holding the lock, whether to continue. */
static bool make_step(struct pp_ahead *a, const struct job *j, bool ask)
{
    const struct pp_dataset *ds = a->data[j->split];
    size_t from = pp_shape_floats(&a->augment.from), to = pp_shape_floats(&a->augment.to);
    const uint32_t *index;
    int rows = pp_loader_share_rows(j->ld, j->step);
    if (rows > 0)
        pp_loader_microbatch(j->ld, j->step, 0, &index);
    for (int r = 0; r < rows; r++) {
        bool drop = false;
        if (ask) {
            pthread_mutex_lock(&a->lock);
            drop = a->drop;
            pthread_mutex_unlock(&a->lock);
        }
        if (drop)
            return false;
        augment_make(&a->augment, j->split == PP_SPLIT_TRAIN, j->epoch, index[r],
                     ds->images + index[r] * from, a->buffers[j->buffer] + (size_t)r * to);
    }
    return true;
}

static void *make_steps(void *ahead)
{
    struct pp_ahead *a = ahead;
    pthread_mutex_lock(&a->lock);
    while (a->state != ENDING) {
        if (a->state != ASKED) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        struct job j = a->job;
        a->working = true;
        pthread_mutex_unlock(&a->lock);
        bool whole = make_step(a, &j, true);
        pthread_mutex_lock(&a->lock);
        a->working = false;
        if (a->state == ASKED)
            a->state = whole ? MADE : RESTING;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* Stops the thread's current job and sets the state to `then`. The caller holds the lock. */
static void stop_work(struct pp_ahead *a, enum state then)
{
    a->drop = true;
    a->state = then;
    pthread_cond_broadcast(&a->changed);
    while (a->working)
        pthread_cond_wait(&a->changed, &a->lock);
    a->drop = false;
}

int pp_ahead_create(const struct pp_config *cfg, const struct pp_dataset *train,
                    const struct pp_dataset *test, uint8_t *const *buffers, int n_buffers,
                    struct pp_ahead **out)
{
    struct pp_ahead *a;
    PP_ALLOC(a, 1);
    *a = (struct pp_ahead){.data = {train, test}, .buffers = buffers, .n_buffers = n_buffers};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    int rc = augment_init(&a->augment, cfg, &train->shape);
    int e = rc == 0 ? pp_thread_start(&a->thread, make_steps, a) : 0;
    if (e != 0)
        rc = pp_fail_errno(e, "cannot start the thread that prepares images");
    a->started = rc == 0;
    PP_TRY_UNDO(rc, pp_ahead_destroy(&a));
    *out = a;
    return 0;
}

void pp_ahead_destroy(struct pp_ahead **ahead)
{
    struct pp_ahead *a = *ahead;
    if (!a)
        return;
    if (a->started) {
        pthread_mutex_lock(&a->lock);
        stop_work(a, ENDING);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->thread, NULL);
    }
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    augment_fini(&a->augment);
    pp_free(a);
    *ahead = NULL;
}

void pp_ahead_rest(struct pp_ahead *a)
{
    pthread_mutex_lock(&a->lock);
    stop_work(a, RESTING);
    pthread_mutex_unlock(&a->lock);
}

uint8_t *pp_ahead_take(struct pp_ahead *a, const struct pp_loader *ld, enum pp_split split,
                       uint64_t epoch, int step)
{
    struct job *j = &a->job;
    pthread_mutex_lock(&a->lock);
    if (a->state != RESTING && j->split == split && j->epoch == epoch && j->step == step) {
        while (a->state == ASKED)
            pthread_cond_wait(&a->changed, &a->lock);
    } else {
        stop_work(a, RESTING);
        *j = (struct job){ld, split, epoch, step, j->buffer};
        (void)make_step(a, j, false);
    }
    uint8_t *made = a->buffers[j->buffer];
    j->buffer = (j->buffer + 1) % a->n_buffers;
    j->step++;
    a->state = j->step < pp_loader_steps(ld) ? ASKED : RESTING;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    return made;
}
