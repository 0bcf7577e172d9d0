/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a program with other values. Only the bytes of weights change in the archive: names, shapes
 * and strides stay, so the graph is the same.
 */
#include "archive.h"

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"

struct writing {
    const struct pt_program *p;
    int (*fill)(void *ctx, const struct pt_weight *w, void *values);
    void *ctx;
};

static size_t count_elements(const struct pt_weight *w)
{
    size_t n = 1;
    for (int i = 0; i < w->n_dims; i++)
        n *= (size_t)w->dims[i];
    return n;
}

/* Moves the elements of a weight between its storage and values[elements]. */
static void move_elements(const struct pt_weight *w, uint8_t *storage, uint8_t *values, bool store)
{
    size_t bytes = pt_dtype_bytes(w->dtype), n = count_elements(w);
    int64_t index[PT_DIMS] = {0}, at = w->offset;
    for (size_t i = 0; i < n; i++) {
        uint8_t *s = storage + (size_t)at * bytes, *v = values + i * bytes;
        memcpy(store ? s : v, store ? v : s, bytes);
        for (int d = w->n_dims - 1; d >= 0; d--) {
            at += w->strides[d];
            if (++index[d] < w->dims[d])
                break;
            at -= w->dims[d] * w->strides[d];
            index[d] = 0;
        }
    }
}

static int fill_weight(const struct writing *s, const struct pt_weight *w, uint8_t *storage)
{
    size_t n = count_elements(w);
    PP_OWN_MEMORY uint8_t *values = pp_alloc(n, pt_dtype_bytes(w->dtype));
    if (!values)
        return pp_error_context("%s: weight %s", s->p->file, w->name);
    move_elements(w, storage, values, false);
    PP_TRY(s->fill(s->ctx, w, values));
    move_elements(w, storage, values, true);
    return 0;
}

/* Fills the weights in one entry of the archive, for pp_zip_copy(). */
static int fill_storage(void *ctx, const struct pp_zip_entry *e, uint8_t *content)
{
    const struct writing *s = ctx;
    for (int i = 0; i < s->p->n_weights; i++) {
        const struct pt_weight *w = &s->p->weights[i];
        if (w->storage == e->name && w->kind != PT_CONSTANT && w->dtype != PT_OTHER &&
            w->same_as < 0)
            PP_TRY(fill_weight(s, w, content));
    }
    return 0;
}

int pt_program_write(const struct pt_program *p, const char *path,
                     int (*fill)(void *ctx, const struct pt_weight *w, void *values), void *ctx)
{
    struct writing s = {p, fill, ctx};
    for (int i = 0; i < p->n_weights; i++) {
        const struct pt_weight *w = &p->weights[i];
        if (w->bytes == 0 && count_elements(w) > 0) {
            return pp_fail(PP_EFORMAT,
                           "%s: weight %s has no data, as on the device \"meta\": export the model "
                           "on another device",
                           p->file, w->name);
        }
    }
    return pp_zip_copy(p->zip, path, fill_storage, &s);
}
