/* SPDX-License-Identifier: Apache-2.0 */
/* The part of `ppcli plan CONFIG` that measures: --best, --memory and --check. */
#ifndef PPCLI_CLI_PLAN_BEST_H
#define PPCLI_CLI_PLAN_BEST_H

#include <stdbool.h>

#include "command.h"
#include "ppcli/best.h"

enum {
    PLAN_BEST_SHOWN = 20, /* lines of the table */
    PLAN_BEST_CHECKED = 3
};
#define PLAN_BEST_MIB (1024.0 * 1024.0)

struct plan_best {
    bool best;          /* --best; --check asks for it too */
    bool check;         /* --check: the first three for real */
    const char *memory; /* --memory: bytes as written; NULL: any number */
};

/*
 * Measure, search, print the table and the winner's lines. word: the CONFIG, NULL when there was
 * none. format: "grid" (the command's default) for people, or "json".
 */
int plan_best(const char *word, const struct pp_cli_settings *settings, const struct plan_best *how,
              const char *format);

/* What was found. */
struct plan_best_result {
    struct pp_best_spec spec;
    struct pp_model *model;
    struct pp_costs *costs;
    struct pp_best best;
    struct pp_prediction checked[PLAN_BEST_CHECKED]; /* as measured; step 0: not checked */
    char advice[PP_ADVICE_MAX];
    int batch, ranks; /* most ranks of any candidate */
};

/* For people; checks: with those that were run. */
int plan_best_text(const struct plan_best_result *r, bool checks);
void plan_best_json(const struct plan_best_result *r);

#endif
