/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of a run in the formats of other programs, as far as the config asks for them:
 * TensorBoard's event files, a Prometheus text file. Rank 0 only. Monitoring never stops a run that
 * has begun: what cannot be opened is refused at the start, what is lost later is told at the end.
 */
#ifndef PPCLI_RUNLOG_OUTPUTS_H
#define PPCLI_RUNLOG_OUTPUTS_H

#include "ppcli/runlog.h"

struct output_ops {
    /* *out stays NULL when the config does not ask for it. Errors: PP_EIO, PP_EPERM, PP_ENOINPUT,
     * PP_ERESOURCE. */
    int (*open)(const struct pp_metrics_start *start, void **out);
    /* record: one that metrics.jsonl gets too. */
    void (*window)(void *self, const struct pp_window *w, bool record);
    void (*epoch)(void *self, const struct pp_epoch_result *e);
    /* s: NULL when the run did not come to its end. Errors: PP_EIO. */
    int (*close)(void **self, const struct pp_summary *s);
};

extern const struct output_ops output_tensorboard, output_prometheus;

#define OUTPUTS_MAX 2

struct outputs {
    void *self[OUTPUTS_MAX]; /* NULL: not asked for */
};

/* On failure nothing is open. */
int outputs_open(const struct pp_metrics_start *start, struct outputs *out);
void outputs_window(const struct outputs *o, const struct pp_window *w, bool record);
void outputs_epoch(const struct outputs *o, const struct pp_epoch_result *e);
int outputs_close(struct outputs *o, const struct pp_summary *s); /* a second call does nothing */

#endif
