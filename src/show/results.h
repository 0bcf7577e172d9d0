/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/show/results.h that only this module uses. */
#ifndef PPCLI_SRC_SHOW_RESULTS_H
#define PPCLI_SRC_SHOW_RESULTS_H

#include "ppcli/show/columns.h"
#include "ppcli/show/results.h"

/* Returns what a candidate recomputes: "off", "all", or how many of the chunks, as in "1 of 4". */
const char *pp_candidate_recompute(const struct pp_row *c, char out[32]);

extern const struct pp_column pp_bubble_columns[]; /* of struct pp_bubble */
/* Of the documents. */
extern const struct pp_column pp_plan_columns[], pp_mark_columns[], pp_best_columns[],
    pp_machine_columns[], pp_profile_columns[], pp_against_columns[], pp_explain_columns[],
    pp_inspect_columns[], pp_env_columns[], pp_hosts_columns[], pp_archive_columns[],
    pp_operators_columns[];

/* A PyTorch program in a document. */
struct graph_document {
    struct pp_archive a; /* a copy, which owns nothing */
    struct pp_listing problems;
};
extern const struct pp_column pp_graph_columns[];
void graph_document_make(const struct pp_archive *a, struct graph_document *out);
void graph_document_print(const struct graph_document *d, FILE *f);

#endif
