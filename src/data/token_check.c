/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks all tokens of a mapped file once, in a thread, while the ranks set themselves up: a run
 * must not fail in step 107 at a token that its model does not have. Whoever needs the result waits
 * for it.
 */
#include "ops.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"

#define PIECE ((size_t)1 << 18) /* tokens between two checks of `stop` */

struct pp_token_check {
    const struct pp_dataset *ds;
    size_t n;
    uint32_t limit;
    pthread_t thread;
    bool stop;
    pthread_mutex_t lock; /* protects the following members */
    pthread_cond_t done_now;
    bool done;
    struct pp_error why; /* code 0: all tokens are below the limit */
};

#define LARGEST(type)                                                                              \
    static uint32_t largest_##type(const void *tokens, size_t n)                                   \
    {                                                                                              \
        const type *t = tokens;                                                                    \
        type most = 0;                                                                             \
        for (size_t i = 0; i < n; i++)                                                             \
            most = t[i] > most ? t[i] : most;                                                      \
        return most;                                                                               \
    }
LARGEST(uint8_t)
LARGEST(uint16_t)
LARGEST(uint32_t)

static uint32_t largest_token(enum pp_element element, const void *tokens, size_t n)
{
    return element == PP_U8    ? largest_uint8_t(tokens, n)
           : element == PP_U16 ? largest_uint16_t(tokens, n)
                               : largest_uint32_t(tokens, n);
}

static int check_tokens(const struct pp_token_check *c)
{
    size_t each = pp_element_bytes(c->ds->element);
    for (size_t at = 0; at < c->n; at += PIECE) {
        size_t n = c->n - at < PIECE ? c->n - at : PIECE;
        const uint8_t *piece = c->ds->images + at * each;
        if (__atomic_load_n(&c->stop, __ATOMIC_RELAXED))
            return 0;
        bool all_good = largest_token(c->ds->element, piece, n) < c->limit;
        for (size_t i = 0; i < n && !all_good; i++) {
            uint32_t token = largest_token(c->ds->element, piece + i * each, 1);
            if (token >= c->limit)
                return pp_token_refuse(c->ds, at + i, token, (int)c->limit);
        }
    }
    return 0;
}

static void *run_check(void *arg)
{
    struct pp_token_check *c = arg;
    const struct pp_error none = {.code = 0};
    madvise(c->ds->map->at, c->ds->map->bytes, MADV_SEQUENTIAL);
    int rc = check_tokens(c);
    /* a change of the file explains more than a bad token that it caused */
    int changed = pp_mapping_check(c->ds->map);
    rc = changed < 0 ? changed : rc;
    madvise(c->ds->map->at, c->ds->map->bytes, MADV_NORMAL);
    pthread_mutex_lock(&c->lock);
    c->why = rc < 0 ? *pp_error_get() : none;
    c->done = true;
    pthread_cond_broadcast(&c->done_now);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

int pp_token_check_begin(struct pp_dataset *ds, size_t n, int limit)
{
    struct pp_token_check *c;
    pthread_condattr_t monotonic;
    PP_ALLOC(c, 1);
    *c = (struct pp_token_check){.ds = ds, .n = n, .limit = (uint32_t)limit};
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->done_now, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pp_thread_start(&c->thread, run_check, c) != 0) {
        pp_free(c);
        return pp_fail(PP_ERESOURCE, "cannot start a thread that checks %s", ds->origin);
    }
    ds->check = c;
    return 0;
}

void pp_token_check_end(struct pp_token_check **check)
{
    struct pp_token_check *c = *check;
    if (!c)
        return;
    __atomic_store_n(&c->stop, true, __ATOMIC_RELAXED);
    pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->done_now);
    pthread_mutex_destroy(&c->lock);
    pp_free(c);
    *check = NULL;
}

static int wait_for_check(struct pp_token_check *c, const struct timespec *until, bool *out_done)
{
    pthread_mutex_lock(&c->lock);
    while (!c->done && pthread_cond_timedwait(&c->done_now, &c->lock, until) == 0)
        continue;
    *out_done = c->done;
    const struct pp_error *why = c->done && c->why.code != 0 ? &c->why : NULL;
    pthread_mutex_unlock(&c->lock);
    return why ? pp_error_adopt(why) : 0;
}

int pp_dataset_ready(const struct pp_dataset *const data[2], int seconds, bool *out_ready)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    bool done, all = true;
    for (int split = 0; split < 2; split++) {
        if (!data[split] || !data[split]->check)
            continue;
        PP_TRY(wait_for_check(data[split]->check, &until, &done));
        all = all && done;
    }
    *out_ready = all;
    return 0;
}
