/* SPDX-License-Identifier: Apache-2.0 */
/* What follows when a step's numbers were not finite: the policy train.nonfinite. */
#ifndef PPCLI_TRAIN_NONFINITE_H
#define PPCLI_TRAIN_NONFINITE_H

#include "loop.h"

/*
 * Collective: step tr->t was bad, as this thread's error record says. 0: the step is done, without
 * an update, and the run continues with the next batch. PP_EDIVERGED: the run ends; the record says
 * which step it was, and nothing else has happened. Other errors: of the rewind.
 */
int nonfinite_step(struct trainer *tr);

/* The text of a run that ends: why, where the weights are, what would work. Returns PP_EDIVERGED.
 * saved: the weights before the step are in the newest checkpoint; not_saved: why not, or "". */
int nonfinite_fail(const struct trainer *tr, const char *why, bool saved, const char *not_saved);

/* Local: the test set's loss was not finite. Returns PP_EDIVERGED. */
int nonfinite_test(const struct trainer *tr, double loss);

#endif
