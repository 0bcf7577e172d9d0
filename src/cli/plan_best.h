/* SPDX-License-Identifier: Apache-2.0 */
/* The part of `ppcli plan CONFIG` that measures: --best, --memory and --check. */
#ifndef PPCLI_CLI_PLAN_BEST_H
#define PPCLI_CLI_PLAN_BEST_H

#include <stdbool.h>

#include "command.h"

struct plan_best {
    bool best;          /* --best; --check asks for it too */
    bool check;         /* --check: the first three for real */
    const char *memory; /* --memory: bytes as written; NULL: any number */
};

/* "4Gi", "500M", "1000000" -> bytes, at least 1. PP_EUSAGE. */
int plan_best_memory(const char *text, size_t *out);

/*
 * Measure, search, print the table and the winner's lines. word: the CONFIG, NULL when there was
 * none. format: "grid" (the command's default) for people, or "json".
 */
int plan_best(const char *word, const struct pp_cli_settings *settings, const struct plan_best *how,
              const char *format);

#endif
