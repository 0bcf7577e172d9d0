/* SPDX-License-Identifier: Apache-2.0 */
/* Random sizes and arrays. All is drawn from (seed, how many were drawn): a seed is a sample. */
#include "checkops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

uint32_t draw(struct sample *s, uint32_t n)
{
    return pp_rng_u32(s->seed, 7, s->drawn++) % n;
}

int odd(struct sample *s, int most)
{
    static const int list[] = {1,  2,  3,  5,   7,   8,   15,  16,  17,  23,  31,   32,   33,  47,
                               63, 64, 65, 100, 127, 128, 129, 255, 257, 600, 1030, 1200, 5003};
    int n = 0;
    while (n < (int)(sizeof(list) / sizeof(list[0])) && list[n] <= most)
        n++;
    if (s->large)
        return most;
    return flip(s) ? list[draw(s, (uint32_t)n)] : 1 + (int)draw(s, (uint32_t)most);
}

int some_rows(struct sample *s, int most)
{
    return !s->large && draw(s, 12) == 0 ? 0 : odd(s, most);
}

int part_rows(struct sample *s, int each)
{
    int most = 3000 / each, sliced = 16 / each > 0 && 16 % each == 0 ? 16 / each : 16;
    if (each > 187 || draw(s, 3) > 0)
        return some_rows(s, most > 1 ? most : 1);
    int least = (1024 / each + sliced - 1) / sliced;
    return sliced * (least + (int)draw(s, (uint32_t)(most / sliced - least + 1)));
}

static void *place_pointer(struct sample *s, const void *field, struct array *array, size_t element)
{
    size_t at = (size_t)((const char *)field - (const char *)&s->image);
    void *p = (char *)array->data + element * array->size;
    pp_assert(at < sizeof(s->image) && array->n_places < 3);
    array->places[array->n_places].at = at;
    array->places[array->n_places++].element = element;
    memcpy((char *)&s->image + at, &p, sizeof(p));
    return p;
}

void *give(struct sample *s, const char *name, const void *field, size_t n, size_t size,
           bool is_value, enum content content)
{
    struct array *array = &s->arrays[s->n++];
    pp_assert(s->n <= ARRAYS_MAX);
    *array = (struct array){.name = name, .n = n, .size = size, .is_value = is_value};
    array->data = calloc(n + 1, size);
    pp_assert(array->data);
    if (content == NOISE)
        pp_rng_uniform(s->seed, 100 + (uint64_t)s->n, 0, -1, 1, n, array->data);
    for (size_t i = 0; content == UNSET && i < n * size; i++)
        ((unsigned char *)array->data)[i] = 0xff; /* as floats, NaN */
    return place_pointer(s, field, array, 0);
}

void *give_also(struct sample *s, const void *field, size_t element)
{
    return place_pointer(s, field, &s->arrays[s->n - 1], element);
}

void point_inside(struct sample *s, const void *field, const void *target)
{
    memcpy((char *)&s->image + ((const char *)field - (const char *)&s->image), &target,
           sizeof(target));
}

void sample_fini(struct sample *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->arrays[i].data);
    s->n = 0;
}

void image_move(struct image *image, const struct image *from)
{
    for (size_t at = 0; at + sizeof(char *) <= sizeof(image->a); at += sizeof(char *)) {
        const char *p;
        memcpy(&p, (char *)&image->a + at, sizeof(p));
        if (p == (const char *)&from->g || p == (const char *)&from->expr ||
            p == (const char *)from->parts) {
            p += (const char *)image - (const char *)from;
            memcpy((char *)&image->a + at, &p, sizeof(p));
        }
    }
}

int sample_copy(const struct sample *s, struct sample *out)
{
    *out = *s;
    image_move(&out->image, &s->image);
    for (int i = 0; i < s->n; i++) {
        struct array *array = &out->arrays[i];
        array->data = malloc((array->n + 1) * array->size);
        if (!array->data)
            return pp_fail(PP_ERESOURCE, "checkops: out of memory");
        memcpy(array->data, s->arrays[i].data, array->n * array->size);
        for (int k = 0; k < array->n_places; k++) {
            void *p = (char *)array->data + array->places[k].element * array->size;
            memcpy((char *)&out->image + array->places[k].at, &p, sizeof(p));
        }
    }
    return 0;
}
