/* SPDX-License-Identifier: Apache-2.0 */
/* Saves checkpoints by the protocol of ppcli/ckpt/checkpoint.h, between ranks that may be
 * processes. */
#include "loop.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

#define SMALL_FILES ((uint64_t)256 << 10) /* more than headers, config, state and MANIFEST need */

struct saver_tensor { /* the context of an item */
    struct saver *saver;
    const struct pp_extra *extra; /* NULL: t */
    struct pp_exec_tensor t;
    char name[PP_ST_NAME_MAX + 1];
    size_t row_floats; /* 0: files have the order of memory */
};

struct saver {
    const struct trainer *tr;
    char dir[PP_PATH_MAX]; /* folder of checkpoints */
    char hash[PP_SHA256_HEX];
    char *config; /* rank 0: the config as text; owned, from libc */
    struct saver_tensor *tensors;
    struct pp_st_item *items; /* [n] of this rank; empty outside replica 0 */
    int n;
    float *row;                      /* [2] the largest row, in the order of memory and of a file */
    struct saver_tensor *row_tensor; /* the tensor whose row is in `row`; its first float is
                                        row_first */
    size_t row_first;
    struct pp_ckpt_part *parts; /* rank 0: [stages] */
    bool failed;                /* the last save failed with `error` */
    struct pp_error error;
};

void saver_tensor_name(const struct pp_exec_tensor *t, char out[PP_ST_NAME_MAX + 1])
{
    static const char *const of[] = {
        [PP_EXEC_PARAM] = "", [PP_EXEC_OPT_M] = "optimizer.m.", [PP_EXEC_OPT_V] = "optimizer.v."};
    snprintf(out, PP_ST_NAME_MAX + 1, "%s%s", of[t->kind], t->param->name);
}

/* Reads a piece of a tensor for the file of the checkpoint. `offset` and `bytes` count bytes and
 * are multiples of four. */
static int read_tensor(void *ctx, uint64_t offset, void *dst, size_t bytes)
{
    struct saver_tensor *t = ctx;
    struct pp_exec *x = t->saver->tr->x;
    float *row = t->saver->row, *out = dst;
    size_t first = (size_t)(offset / sizeof(float)), n = bytes / sizeof(float);
    size_t floats = t->row_floats;
    if (floats == 0)
        return pp_exec_tensor_get(x, &t->t, first, out, n);
    while (n > 0) {
        size_t at = first % floats, some = floats - at < n ? floats - at : n;
        /* A row read in several pieces is fetched once; each pass begins with the first piece. */
        if (at == 0 || t->saver->row_tensor != t || t->saver->row_first != first - at) {
            PP_TRY(pp_exec_tensor_get(x, &t->t, first - at, row, floats));
            pp_param_row(t->t.param, true, row, row + floats);
            t->saver->row_tensor = t;
            t->saver->row_first = first - at;
        }
        memcpy(out, row + floats + at, some * sizeof(*out));
        first += some;
        out += some;
        n -= some;
    }
    return 0;
}

/* Reads a count for the file of the checkpoint: it is a float in memory, and an i64 in the file. */
static int read_count(void *ctx, uint64_t offset, void *dst, size_t bytes)
{
    struct saver_tensor *t = ctx;
    float steps = 0;
    pp_assert(offset == 0 && bytes == sizeof(int64_t));
    PP_TRY(pp_exec_tensor_get(t->saver->tr->x, &t->t, 0, &steps, 1));
    int64_t count = (int64_t)steps;
    memcpy(dst, &count, sizeof(count));
    return 0;
}

/* Reads values that never change for the file of the checkpoint. */
static int read_given(void *ctx, uint64_t offset, void *dst, size_t bytes)
{
    const struct saver_tensor *t = ctx;
    const struct pp_given *g = t->extra->given;
    size_t each = t->extra->whole ? sizeof(int64_t) : sizeof(float), first = offset / each;
    for (size_t i = 0; i < bytes / each; i++) {
        float value;
        PP_TRY(g->read(g, first + i, 1, &value));
        int64_t whole = t->extra->whole ? (int64_t)value : 0;
        memcpy((char *)dst + i * each, t->extra->whole ? (void *)&whole : (void *)&value, each);
    }
    return 0;
}

/* Adds the tensors that are saved beside parameter `param` of this rank, the last item; -1: those
 * of no parameter. */
static void list_extras(struct saver *s, int param)
{
    const struct pp_model *m = s->tr->run->layout->model;
    const struct saver_tensor of =
        param < 0 ? (struct saver_tensor){.saver = s} : s->tensors[s->n - 1];
    struct pp_st_item item = {.read = read_given};
    if (param >= 0)
        item = s->items[s->n - 1];
    for (int i = 0; i < m->n_extras; i++) {
        const struct pp_extra *x = &m->extras[i];
        struct saver_tensor *t = &s->tensors[s->n];
        if (x->param != param)
            continue;
        *t = of;
        t->extra = param < 0 ? x : NULL;
        item.name = x->name;
        item.ctx = t;
        if (param < 0) {
            item.dtype = x->whole ? PP_ST_I64 : PP_ST_F32;
            item.n_dims = x->n_dims;
            memcpy(item.dims, x->dims, sizeof(x->dims));
        }
        s->items[s->n++] = item;
    }
}

static int list_tensors(struct saver *s)
{
    const struct pp_model *m = s->tr->run->layout->model;
    size_t n = (size_t)pp_exec_tensor_count(s->tr->x), most = 0;
    PP_ALLOC(s->tensors, n + (size_t)m->n_extras);
    PP_ALLOC(s->items, n + (size_t)m->n_extras);
    for (int i = 0; i < (int)n; i++) {
        struct saver_tensor *t = &s->tensors[s->n];
        struct pp_st_item *item = &s->items[s->n];
        t->saver = s;
        pp_exec_tensor(s->tr->x, i, &t->t);
        if (t->t.param->tied_to > 0)
            continue; /* its owner is saved, and both are read from there */
        s->n++;
        saver_tensor_name(&t->t, t->name);
        *item =
            (struct pp_st_item){.name = t->name, .dtype = PP_ST_F32, .read = read_tensor, .ctx = t};
        t->row_floats = pp_param_in_file(t->t.param, &item->n_dims, item->dims);
        most = t->row_floats > most ? t->row_floats : most;
        if (pp_param_is_count(t->t.param)) {
            item->dtype = PP_ST_I64;
            item->read = read_count;
        } else if (t->row_floats == 0 && s->tr->be->caps.host_visible) {
            item->data = t->t.values; /* NULL if in pieces, which are read */
        }
        if (t->t.kind == PP_EXEC_PARAM)
            list_extras(s, (int)(t->t.param - m->params));
    }
    if (s->tr->tp->rank == 0)
        list_extras(s, -1);
    PP_ALLOC(s->row, 2 * most + 1);
    return 0;
}

static int create_saver(struct saver *s)
{
    PP_TRY(pp_path_format(s->dir, "%s/" PP_CKPT_DIR, s->tr->dir));
    PP_TRY(pp_config_hash(s->tr->run->cfg, s->hash));
    if (s->tr->tp->rank == 0) {
        PP_ALLOC(s->parts, s->tr->run->layout->stages);
        PP_TRY(pp_config_text(s->tr->run->cfg, &s->config));
    }
    return s->tr->tp->rank < s->tr->run->layout->stages ? list_tensors(s) : 0;
}

int saver_create(const struct trainer *tr, struct saver **out)
{
    struct saver *s;
    PP_ALLOC(s, 1);
    s->tr = tr;
    PP_TRY_UNDO(create_saver(s), saver_destroy(&s));
    *out = s;
    return 0;
}

void saver_destroy(struct saver **saver)
{
    struct saver *s = *saver;
    if (s) {
        free(s->config);
        pp_free(s->tensors);
        pp_free(s->items);
        pp_free(s->row);
        pp_free(s->parts);
        pp_free(s);
        *saver = NULL;
    }
}

/* ---- one save */

static uint64_t bytes_of_all(const struct saver *s)
{
    uint64_t kinds = 1 + (uint64_t)pp_optimizer_moments(s->tr->run->cfg->train.optimizer);
    const struct pp_model *m = s->tr->run->layout->model;
    const char *vocabulary = s->tr->vocabulary, *preprocessing = s->tr->preprocessing;
    uint64_t extras = 0;
    for (int i = 0; i < m->n_extras; i++) {
        uint64_t elements = sizeof(int64_t);
        for (int d = 0; d < m->extras[i].n_dims; d++)
            elements *= (uint64_t)m->extras[i].dims[d];
        extras += elements;
    }
    return kinds * pp_model_floats(m) * sizeof(float) + extras + SMALL_FILES +
           (vocabulary ? 2 * strlen(vocabulary) : 0) +
           (preprocessing ? 2 * strlen(preprocessing) : 0);
}

/* Sends `save`, which rank 0 has filled in, to the other ranks that write a part of the
 * checkpoint. */
static int share_save(const struct saver *s, struct pp_ckpt_save *save)
{
    const struct pp_transport *tp = s->tr->tp;
    if (tp->rank >= s->tr->run->layout->stages)
        return 0;
    if (tp->rank != 0)
        return pp_transport_recv(s->tr->tp, 0, save, sizeof(*save));
    for (int r = 1; r < s->tr->run->layout->stages; r++)
        PP_TRY(pp_transport_send(s->tr->tp, r, save, sizeof(*save)));
    return 0;
}

/* Collects the descriptions of all parts on rank 0, and also the files of parts that were written
 * to other disks. *rc gets an error of a disk. */
static int collect_parts(struct saver *s, const struct pp_ckpt_save *save,
                         const struct pp_ckpt_part *mine, int *rc)
{
    struct pp_transport *tp = s->tr->tp;
    const int32_t *apart = s->tr->apart;
    if (tp->rank >= s->tr->run->layout->stages)
        return 0;
    if (tp->rank != 0)
        PP_TRY(pp_transport_send(tp, 0, mine, sizeof(*mine)));
    if (tp->rank != 0)
        return apart[tp->rank] ? copies_send(tp, 0, save->folder, rc) : 0;
    s->parts[0] = *mine;
    for (int r = 1; r < s->tr->run->layout->stages; r++) {
        PP_TRY(pp_transport_recv(tp, r, &s->parts[r], sizeof(s->parts[r])));
        if (apart[r])
            PP_TRY(copies_take(tp, r, save->folder, rc));
    }
    return 0;
}

/* Checks that all tensors are finite, so that no run returns to a checkpoint with a NaN. Tensors
 * that are read in pieces are checked when they are read. Local. */
static int check_finite(const struct saver *s)
{
    for (int i = 0; i < s->n && !s->tr->be->caps.async; i++) {
        const struct pp_exec_tensor *t = &s->tensors[i].t;
        float most = 0;
        PP_TRY(t->values ? pp_backend_find_largest(s->tr->be, t->n, t->values, &most) : 0);
        if (!isfinite(most))
            return pp_fail(PP_EDIVERGED, "%s is not finite", s->tensors[i].name);
    }
    return 0;
}

/* Saves a checkpoint, and its copies on other hosts. Returns 0 if the checkpoint is saved; PP_ELOST
 * is an error of the transport. Collective. */
static int save_all(struct saver *s, int64_t step, const struct pp_ckpt_state *state)
{
    struct pp_transport *tp = s->tr->tp;
    struct pp_ckpt_save save = {.step = step};
    struct pp_ckpt_part part = {0};
    char path[PP_PATH_MAX];
    int stages = s->tr->run->layout->stages, copies = s->tr->run->cfg->checkpoint.copies;
    int rc = check_finite(s);
    if (rc == 0 && tp->rank == 0)
        rc = pp_lock_check(&s->tr->lock);
    if (rc == 0 && tp->rank == 0)
        rc = pp_ckpt_begin(&pp_io_system, s->dir, step, s->hash, bytes_of_all(s), &save);
    PP_TRY(pp_transport_agree(tp, rc));
    PP_TRY(share_save(s, &save));
    bool apart = tp->rank < stages && s->tr->apart[tp->rank], mine = apart || tp->rank == 0;
    if (apart)
        rc = pp_dir_create(s->dir);
    if (apart && rc == 0)
        rc = pp_ckpt_begin(&pp_io_system, s->dir, step, s->hash, 0, &save);
    if (tp->rank < stages && rc == 0)
        rc = pp_ckpt_write_part(&pp_io_system, &save, tp->rank, stages, s->items, s->n, &part);
    int served = pp_exec_serve(s->tr->x);
    rc = pp_transport_agree(tp, rc < 0 ? rc : served);
    int lost = rc < 0 ? 0 : collect_parts(s, &save, &part, &rc);
    if (tp->rank == 0 && rc == 0 && lost == 0)
        rc = pp_ckpt_commit(&pp_io_system, &save, state, s->config, s->parts, stages);
    else if (mine)
        pp_ckpt_abandon(&pp_io_system, &save);
    PP_TRY(lost);
    rc = pp_transport_agree(tp, rc);
    if (rc < 0 || copies == 0)
        return rc;
    PP_TRY(pp_ckpt_step_path(s->dir, step, path));
    rc = copies_give(s->tr, path, copies);
    if (rc == PP_ELOST)
        return rc;
    if (rc < 0 && tp->rank == 0)
        pp_log_warn("step %" PRId64 ": no copy: %s", step, pp_error_get()->text);
    pp_error_clear();
    return 0;
}

void saver_mark_best(const struct trainer *tr)
{
    char dir[PP_PATH_MAX];
    bool marked = true;
    int64_t best = tr->progress.best.step;
    int rc = pp_path_format(dir, "%s/" PP_CKPT_DIR, tr->dir);
    rc = rc < 0 ? rc : pp_ckpt_mark_best(&pp_io_system, dir, best, &marked);
    if (rc < 0)
        pp_log_warn("step %" PRId64 " has the best checkpoint so far, but %s", best,
                    pp_error_get()->text);
    else if (!marked && best >= 0)
        pp_log_warn("the best checkpoint so far was that of step %" PRId64
                    ", which is not in %s: only a better one will be kept",
                    best, dir);
    pp_error_clear();
}

int saver_save(struct saver *s, int64_t step, const struct pp_ckpt_state *state, bool prune)
{
    int rc = save_all(s, step, state);
    if (rc == PP_ELOST)
        return rc;
    s->failed = rc < 0;
    if (rc < 0) {
        s->error = *pp_error_get();
        pp_error_clear();
        if (s->tr->tp->rank == 0)
            pp_log_warn("step %" PRId64 ": no checkpoint saved: %s", step, s->error.text);
        return 0;
    }
    int me = s->tr->tp->rank;
    bool mine = me == 0 || s->tr->apart[me] == me + 1;
    if (mine && s->tr->run->cfg->checkpoint.best != PP_METRIC_OFF &&
        s->tr->progress.best.step == step)
        saver_mark_best(s->tr);
    if (prune && mine &&
        pp_ckpt_prune(&pp_io_system, s->dir, s->tr->run->cfg->checkpoint.keep, s->tr->begin.kept,
                      step) < 0) {
        pp_log_warn("%s", pp_error_get()->text);
        pp_error_clear();
    }
    return 0;
}

const struct pp_error *saver_error(const struct saver *s)
{
    return s->failed ? &s->error : NULL;
}
