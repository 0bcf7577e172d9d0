/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at a folder of pictures and proposes the keys that make them samples, for ppcli init. */
#include "images.h"

#include <stdlib.h>

#include "ppcli/base/base.h"
#include "ops.h"

#define LOOKS 200     /* pictures that are decoded */
#define KEPT_MOST 128 /* pixels of a side up to which pictures of one size stay as they are */

static int compare_ints(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Returns the middle of n numbers, which it sorts. */
static int find_median(int *of, int n)
{
    qsort(of, (size_t)n, sizeof(*of), compare_ints);
    return of[n / 2];
}

/* Decodes some pictures of the list and measures their sides. */
static int measure_pictures(const struct pp_config *cfg, const struct images_list *l,
                            struct pp_images_proposal *out)
{
    int h[LOOKS], w[LOOKS], n = 0, step = (l->n + LOOKS - 1) / LOOKS;
    struct images_buffer buffer = {0};
    char path[PP_PATH_MAX];
    out->one_size = true;
    for (int i = 0; i < l->n && n < LOOKS; i += step) {
        PP_OWN(raster_fini) struct raster r = {0};
        int rc = images_path(l, &l->files[i], path);
        rc = rc == 0 ? images_read(cfg, path, &buffer, &r) : rc;
        if (rc == PP_ERESOURCE) {
            pp_free(buffer.data);
            return pp_error_context("%s", path);
        }
        if (rc < 0)
            continue;
        out->one_size = out->one_size && (n == 0 || (r.h == h[0] && r.w == w[0]));
        h[n] = r.h;
        w[n++] = r.w;
    }
    pp_free(buffer.data);
    if (n == 0)
        return pp_fail(PP_EFORMAT, "%s: none of the pictures that were looked at can be read: %s",
                       l->roots.train, pp_error_get()->text);
    out->h = find_median(h, n);
    out->w = find_median(w, n);
    return 0;
}

int pp_images_propose(const struct pp_config *cfg, struct pp_images_proposal *out)
{
    PP_OWN(images_list_fini) struct images_list list = {0};
    struct images_roots roots;
    struct pp_images_proposal p = {0};
    PP_TRY(images_find_roots(cfg, &roots));
    p.splits = !roots.test[0];
    PP_TRY(images_list_make(cfg, &roots, &list));
    PP_TRY(measure_pictures(cfg, &list, &p));
    int shorter = p.h < p.w ? p.h : p.w;
    bool keeps = p.one_size && p.h <= KEPT_MOST && p.w <= KEPT_MOST;
    p.side = keeps ? 0 : shorter >= 64 ? 64 : 32;
    *out = p;
    return 0;
}
