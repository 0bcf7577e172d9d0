/* SPDX-License-Identifier: Apache-2.0 */
/* Captures of the lazy device: their rules, and their replay. */
#include "lazy_impl.h"

#include <stdlib.h>

#include "ppcli/base/base.h"

#define all lazy_all

int lazy_capture_begin(struct pp_backend *be)
{
    struct lazy *s = lazy_of(be);
    PP_TRY(lazy_no_capture(be, "a capture"));
    struct capture *c = calloc(1, sizeof(*c));
    pp_assert(c != NULL);
    pthread_mutex_lock(&all.lock);
    c->open = true;
    c->thread = pthread_self();
    c->n_streams = 1;
    c->streams[0] = (struct branch){.stream = s};
    s->capture = c;
    s->branch = 0;
    pthread_mutex_unlock(&all.lock);
    return 0;
}

static void free_capture(struct capture *c)
{
    static struct capture ended; /* what its marks belong to from here on */
    pthread_mutex_lock(&all.lock);
    for (struct lazy_mark *m = all.marks; m; m = m->next)
        m->capture = m->capture == c ? &ended : m->capture;
    pthread_mutex_unlock(&all.lock);
    for (int k = 0; k < c->n_streams; k++)
        free(c->streams[k].items);
    free(c->reached);
    free(c);
}

int lazy_capture_end(struct pp_backend *be, void **graph)
{
    struct lazy *s = lazy_of(be);
    struct capture *c = s->capture;
    int rc = 0;
    if (!c || s->branch != 0 || !pthread_equal(c->thread, pthread_self()))
        return pp_fail(PP_EINTERNAL, "lazy: the end of a capture that this thread did not begin");
    pthread_mutex_lock(&all.lock);
    for (int k = 1; k < c->n_streams; k++)
        if (!c->streams[k].returned && rc == 0)
            rc = pp_fail(PP_EINTERNAL, "lazy: stream %d has not come back to the capture", k);
    for (int k = 0; k < c->n_streams; k++)
        c->streams[k].stream->capture = NULL;
    c->open = false;
    all.captures += rc == 0;
    pthread_mutex_unlock(&all.lock);
    c->reached = calloc((size_t)c->n_nodes + 1, sizeof(*c->reached));
    pp_assert(c->reached != NULL);
    if (rc < 0) {
        free_capture(c);
        return rc;
    }
    *graph = c;
    return 0;
}

int lazy_graph_launch(struct pp_backend *be, void *graph)
{
    struct item it = {.kind = ITEM_REPLAY, .capture = graph};
    PP_TRY(lazy_no_capture(be, "a launch"));
    pthread_mutex_lock(&all.lock);
    all.launches++;
    lazy_enqueue(lazy_of(be), &it);
    pthread_mutex_unlock(&all.lock);
    return 0;
}

void lazy_graph_destroy(struct pp_backend *be, void *graph)
{
    (void)lazy_finish(be);
    free_capture(graph);
}

/* Of the streams whose next piece of work may be done, any: what marks do not order has no order.
 */
void lazy_replay(struct lazy *s, struct capture *c)
{
    int left = 0;
    for (int k = 0; k < c->n_streams; k++) {
        c->streams[k].done = 0;
        left += c->streams[k].n;
    }
    for (int k = 0; k < c->n_nodes; k++)
        c->reached[k] = false;
    while (left > 0) {
        int at = (int)(lazy_draw(&s->seed) % (uint32_t)c->n_streams), tried = 0;
        for (; tried < c->n_streams; tried++, at = (at + 1) % c->n_streams) {
            const struct branch *b = &c->streams[at];
            if (b->done < b->n &&
                (b->items[b->done].kind != ITEM_WAIT || c->reached[b->items[b->done].number]))
                break;
        }
        if (tried == c->n_streams) {
            lazy_note_failure(s, pp_fail(PP_EINTERNAL, "lazy: the graph waits for itself"));
            return;
        }
        struct branch *b = &c->streams[at];
        const struct item *it = &b->items[b->done++];
        if (it->kind == ITEM_SET) {
            c->reached[it->number] = true;
        } else if (it->kind == ITEM_RUN) {
            struct item now = *it;
            now.number = 0;
            lazy_run_item(s, &now);
        }
        left--;
    }
}
