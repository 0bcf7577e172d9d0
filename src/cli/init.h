/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of ppcli init: how many stages its config names, and what it says of the values. */
#ifndef PPCLI_CLI_INIT_H
#define PPCLI_CLI_INIT_H

#include <stdio.h>

#include "command.h"

#define INIT_MICROBATCHES "4"
#define INIT_SCHEDULE "1f1b"
#define INIT_OPTIMIZER "adam"

struct init_shape {
    int inputs, hidden, classes; /* of the perceptron: inputs, hidden, hidden, classes */
    int samples, batch;
};

/*
 * out: 2 where the simulated step of two stages is so much shorter than that of one that a second
 * core pays, else 1. Measures nothing, so that equal data give equal configs. Errors: those of
 * pp_best_try().
 */
int init_stages(const struct init_shape *s, int *out);

/* The range of the samples, which are floats, as comments, with keys where it is wide. Errors:
 * PP_ERESOURCE. */
struct pp_dataset;
int init_print_range(FILE *f, const struct pp_dataset *ds);

#endif
