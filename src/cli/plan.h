/* SPDX-License-Identifier: Apache-2.0 */
/* What `ppcli plan` is asked for, and what it finds. Local to cli/. */
#ifndef PPCLI_CLI_PLAN_H
#define PPCLI_CLI_PLAN_H

#include "ppcli/machine_plan.h"
#include "ppcli/stage_costs.h"
#include "ppcli/tune.h"
#include "command.h"

/* ---- plan_request.c
 *
 * What `ppcli plan` was asked to plan: from options, from a config with options on top, or from a
 * table, with costs for every stage.
 */

struct plan_words {
    const char *config, *csv;
    const char *par;             /* --par: the table is marked; NULL: not */
    const char *costs[PP_COSTS]; /* as written; NULL: not given */
};

struct plan_request {
    struct pp_plan *plan;        /* proved */
    struct pp_stage_costs costs; /* of its stages and boundaries */
    double memory_cap;           /* forwards that a rank may hold; 0: any number */
    size_t *bytes;               /* [stages] memory of each rank of a config's run; else NULL */
};

/* Errors: PP_EUSAGE; PP_ERESOURCE when the plan is larger than the memory that is left; those of
 * the config, the table and the schedule. plan_request_fini() whatever it returns. */
int plan_request_make(const struct plan_words *words, const struct pp_cli_settings *settings,
                      bool times, struct plan_request *out);
void plan_request_fini(struct plan_request *q);

/* ---- plan_mark.c
 *
 * --csv with --par: is the table legal, as fast as the schedule `par` ("best": as the fastest that fits)
 * of its shape, and within --memory-cap? format: "grid" or "json". PP_ECHECK when it does not pass;
 * else as plan_request_make(). */
int plan_mark(const struct plan_words *words, const struct pp_cli_settings *settings,
              const char *format);

/* ---- plan_best.c: the part of `ppcli plan CONFIG` that measures: --best, --memory and --check */

#define PLAN_CORES_MAX 1024 /* as run.threads */

struct plan_best {
    bool best;         /* --best; --check asks for it too */
    const char *check; /* --check: how many to run for real, as written; "auto": without a number */
    const char *memory; /* --memory: bytes as written; NULL: any number */
    int cores;          /* --cores; INT_MIN: those that are there */
};

/*
 * Measure, search, print the table and the winner's lines. word: the CONFIG, NULL when there was
 * none. format: "grid" (the command's default) for people, or "json".
 */
int plan_best(const char *word, const struct pp_cli_settings *settings, const struct plan_best *how,
              const char *format);

/* ---- plan_machine.c: what to run on a machine that is not here */

#define PLAN_MACHINE_LISTS 3
extern const char *const plan_machine_lists[PLAN_MACHINE_LISTS]; /* their options */

struct plan_machine_words {
    const char *machine; /* --machine: a machine file or the name of one that is installed */
    int ranks;           /* --ranks; less than 1: those of one host */
    const char *memory;  /* --memory; NULL: what the file says */
    const char *html;    /* --html: a page with table and timeline; NULL: absent */
    const char *lists[PLAN_MACHINE_LISTS]; /* --tensor, --context, --experts-on; NULL: any */
    const char *layout, *compare;          /* NULL: absent */
    const char *only, *emit;               /* systems; NULL: all, none */
    bool fp8;
};

int plan_machine(const char *word, const struct pp_cli_settings *settings,
                 const struct plan_machine_words *words, const char *format);

/* Tokens a second and rank of the division that --compare names, or of the first row. */
int plan_machine_price(const char *word, const struct pp_cli_settings *settings,
                       const struct plan_machine_words *words, double *tokens);

/* Words that mean nothing without --machine. Errors: PP_EUSAGE. */
int plan_machine_check(const struct plan_machine_words *words);

/* Can the file be written, before the work whose result it shall hold? */
int plan_check_file(const char *option, const char *path);

/* ---- plan_profile.c: a pipeline that was measured elsewhere */

struct plan_profile_words {
    const char *path;    /* --profile */
    const char *against; /* --against; NULL: absent */
    const char *memory;  /* --memory; NULL: any */
    const char *html;    /* --html; NULL: no page */
};

/* Errors: PP_EUSAGE, as of pp_profile_read(). format: "grid" or "json". */
int plan_profile(const struct plan_profile_words *words, const char *format);

/* `plan CONFIG --measure`: a machine file of this machine, with the times of the config's layers. */
int plan_measure(const char *word, const struct pp_cli_settings *settings, const char *path);

#endif
