/* SPDX-License-Identifier: Apache-2.0 */
/* The writers that a run has asked for, in one place for metrics.c to call. */
#include "parts.h"

#include <string.h>

static const struct output_ops *const writers[OUTPUTS_MAX] = {&output_tensorboard,
                                                              &output_prometheus};

int outputs_open(const struct pp_metrics_start *start, struct outputs *out)
{
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < OUTPUTS_MAX; i++) {
        int rc = writers[i]->open(start, &out->self[i]);
        if (rc < 0) {
            outputs_close(out, NULL);
            return rc;
        }
    }
    return 0;
}

void outputs_window(const struct outputs *o, const struct pp_window *w, bool record)
{
    for (int i = 0; i < OUTPUTS_MAX; i++)
        if (o->self[i])
            writers[i]->window(o->self[i], w, record);
}

void outputs_epoch(const struct outputs *o, const struct pp_epoch_result *e)
{
    for (int i = 0; i < OUTPUTS_MAX; i++)
        if (o->self[i])
            writers[i]->epoch(o->self[i], e);
}

int outputs_close(struct outputs *o, const struct pp_summary *s)
{
    struct pp_error cause = *pp_error_get(); /* what ended the run says more than what follows */
    int rc = 0;
    for (int i = 0; i < OUTPUTS_MAX; i++) {
        int one = o->self[i] ? writers[i]->close(&o->self[i], s) : 0;
        rc = rc < 0 ? rc : one;
    }
    if (!s)
        pp_error_adopt(&cause);
    return rc;
}
