/* SPDX-License-Identifier: Apache-2.0 */
/* What `ppcli explain` prints. Local to cli/. */
#ifndef PPCLI_CLI_EXPLAIN_H
#define PPCLI_CLI_EXPLAIN_H

#include "ppcli/tune.h"

struct explained {
    struct pp_run run;
    struct pp_exec_bytes *ranks; /* [ranks]; owned */
    size_t *other;           /* [stages] activations if pipeline.recompute were off, or, where it
                                    is, all; owned */
    double ideal, equal;     /* bubble of the textbook, of this plan */
    struct pp_bubble bubble; /* by flops */
    char advice[PP_ADVICE_MAX];
};

/* Onto standard output. Errors: PP_ECONFIG. */
int explain_text(const struct explained *e);
int explain_json(const struct explained *e);

#endif
