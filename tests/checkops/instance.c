/* SPDX-License-Identifier: Apache-2.0 */
/* A sample in the memory of a target, between guards that show writes outside. */
#include "checkops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

#define GUARD 64 /* bytes before and after an array */

/* As values of `size` bytes; where they are bfloat16, the host's are rounded too. */
static void pack_values(void *out, float *host, size_t n, size_t size)
{
    uint16_t *half = out;
    if (size == sizeof(*host)) {
        memcpy(out, host, n * size);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &host[i], sizeof(bits));
        if (!isnan(host[i]))
            bits += 0x7fff + (bits >> 16 & 1);
        half[i] = (uint16_t)(bits >> 16);
        bits = (uint32_t)half[i] << 16;
        memcpy(&host[i], &bits, sizeof(bits));
    }
}

void sample_round(struct sample *s, const struct target *t)
{
    size_t size = pp_backend_value_bytes(&t->be->choice);
    for (int i = 0; i < s->n; i++) {
        struct array *a = &s->arrays[i];
        PP_OWN_MEMORY void *packed = pp_alloc(a->n + 1, size);
        if (a->is_value && packed)
            pack_values(packed, a->data, a->n, size);
    }
}

/* A block of guards around `bytes`, all of it 0xff but what `data` has. */
static int make_block(struct instance *in, const struct target *t, size_t before, size_t bytes,
                      const void *data, void **out)
{
    size_t all = before + bytes + GUARD;
    int i = in->n++;
    PP_OWN_MEMORY unsigned char *block = pp_alloc(all, 1);
    if (!block)
        return PP_ERESOURCE;
    memset(block, 0xff, all);
    if (data)
        memcpy(block + before, data, bytes);
    PP_TRY(pp_backend_alloc(t->be, all, &in->blocks[i]));
    in->bytes[i] = all;
    PP_TRY(pp_backend_to_device(t->be, in->blocks[i], block, all));
    *out = (char *)in->blocks[i] + before;
    return 0;
}

static int make_array(struct instance *in, const struct sample *s, const struct target *t, int i,
                      int shift)
{
    const struct array *a = &s->arrays[i];
    size_t size = a->is_value ? pp_backend_value_bytes(&t->be->choice) : a->size;
    PP_OWN_MEMORY void *packed = pp_alloc(a->n + 1, size);
    PP_OWN_MEMORY void *host = pp_alloc(a->n + 1, a->size);
    if (!packed || !host)
        return PP_ERESOURCE;
    memcpy(host, a->data, a->n * a->size);
    if (a->is_value)
        pack_values(packed, host, a->n, size);
    void *at;
    in->sizes[i] = size;
    in->before[i] = GUARD + (a->size == sizeof(float) ? (size_t)shift * sizeof(float) : 0);
    PP_TRY(make_block(in, t, in->before[i], a->n * size, a->is_value ? packed : host, &at));
    for (int k = 0; k < a->n_places; k++) {
        void *p = (char *)at + a->places[k].element * size;
        memcpy((char *)&in->image + a->places[k].at, &p, sizeof(p));
    }
    return 0;
}

/* Scratch, and the copy of the weights that products read. */
static int make_memory_of_products(struct instance *in, const struct sample *s,
                                   const struct target *t)
{
    size_t floats[2] = {target_scratch(t, s), target_packed(t, s)};
    const size_t at[2] = {s->scratch_at, s->packed_at};
    for (int k = 0; k < 2; k++) {
        void *p = NULL;
        if (at[k] > 0 && floats[k] > 0) {
            PP_TRY(make_block(in, t, GUARD, floats[k] * sizeof(float), NULL, &p));
            memcpy((char *)&in->image + at[k], &p, sizeof(p));
        }
        if (k == 1 && p) {
            const float *W, *b = NULL;
            memcpy(&W, (char *)&in->image + s->W_at, sizeof(W));
            if (s->b_at > 0)
                memcpy(&b, (char *)&in->image + s->b_at, sizeof(b));
            PP_TRY(s->O > 0 ? pp_backend_pack_weights(t->be, s->O, s->I, W, b, p)
                            : pp_backend_conv_pack(t->be, &in->image.g, W, b, p));
        }
    }
    return 0;
}

int instance_create(struct instance *in, const struct sample *s, const struct target *t, int shift)
{
    *in = (struct instance){.image = s->image};
    image_move(&in->image, &s->image);
    for (int i = 0; i < s->n; i++)
        PP_TRY(make_array(in, s, t, i, shift));
    return make_memory_of_products(in, s, t);
}

void instance_destroy(struct instance *in, const struct target *t)
{
    for (int i = 0; i < in->n; i++)
        pp_backend_free(t->be, in->blocks[i], in->bytes[i]);
    in->n = 0;
}

static int check_guards(const struct instance *in, const struct target *t, int i, const char *name,
                        size_t bytes)
{
    size_t before = in->before[i];
    PP_OWN_MEMORY unsigned char *block = pp_alloc(in->bytes[i], 1);
    if (!block)
        return PP_ERESOURCE;
    PP_TRY(pp_backend_to_host(t->be, block, in->blocks[i], in->bytes[i]));
    for (size_t k = 0; k < in->bytes[i]; k++) {
        if ((k < before || k >= before + bytes) && block[k] != 0xff)
            return pp_fail(PP_ECHECK, "%s: byte %td of %zu was written", name,
                           (ptrdiff_t)k - (ptrdiff_t)before, bytes);
    }
    return 0;
}

int instance_fetch(const struct instance *in, const struct sample *s, const struct target *t,
                   struct sample *out)
{
    PP_TRY(sample_copy(s, out));
    for (int i = 0; i < s->n; i++) {
        struct array *a = &out->arrays[i];
        const char *from = (const char *)in->blocks[i] + in->before[i];
        PP_TRY(check_guards(in, t, i, a->name, a->n * in->sizes[i]));
        if (a->n > 0)
            PP_TRY(a->is_value ? pp_backend_values_to_host(t->be, a->data, (const void *)from, a->n)
                               : pp_backend_to_host(t->be, a->data, from, a->n * a->size));
    }
    return 0;
}
