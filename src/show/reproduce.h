/* SPDX-License-Identifier: Apache-2.0 */
/* A run and the same run again: what reproduce.c and reproduce_cause.c share. */
#ifndef PPCLI_SRC_SHOW_REPRODUCE_H
#define PPCLI_SRC_SHOW_REPRODUCE_H

#include "ppcli/ckpt/checkpoint.h"
#include "report.h"

#define REPRODUCE_PARTS_MAX 16
#define REPRODUCE_TEXT 768

struct pp_original {
    struct pp_report *report; /* owned */
    int64_t *saves, *records; /* owned: steps of its checkpoints and records, ascending */
    int n_saves, n_records;
    char *changes;      /* owned: those that --allow made, as in struct pp_ckpt_state; NULL: none */
    char *config;       /* owned: config in its newest checkpoint; NULL: it has none */
    double data_crc[4]; /* training images and labels, test images and labels, as its newest
                           checkpoint has them; 0: not known */
    struct reproduce_part {
        int64_t end;
        struct pp_setting settings[PP_ORIGINAL_SETTINGS];
        char values[PP_ORIGINAL_SETTINGS][256], keys[PP_ORIGINAL_SETTINGS][64];
        int n;
        char allow[512];
    } parts[REPRODUCE_PARTS_MAX];
    int n_parts;
    bool too_many; /* there are more parts, or more changes in one */
};

/* What differs between a run and the same run again. */
struct reproduce_result {
    const struct pp_report *again;
    int64_t loss_step; /* of the first loss that differs; -1: none */
    int64_t save_step; /* of the first checkpoint that differs; -1: none */
    int64_t equal;     /* last step of a checkpoint that is equal before these; -1: none */
    bool later;        /* what follows that checkpoint, weights or losses, is equal */
    bool end_differs;  /* the digest of the final weights differs */
    bool only_tests;   /* of all losses only those of tests differ */
    struct pp_ckpt_difference d; /* of that checkpoint */
};

/* Writes the likely cause of the difference to `out`. Errors: PP_ERESOURCE, those of
 * pp_run_prepare(). Local. */
int reproduce_cause(const struct pp_original *o, struct pp_config *cfg,
                    const struct reproduce_result *r, char out[REPRODUCE_TEXT]);

#endif
