/* SPDX-License-Identifier: Apache-2.0 */
/* What commands print of what they found. */
#ifndef PPCLI_SHOW_RESULTS_H
#define PPCLI_SHOW_RESULTS_H

#include <stdio.h>

#include "ppcli/ckpt/checkpoint.h"
#include "ppcli/cluster/hosts.h"
#include "ppcli/data/dataset.h"
#include "ppcli/measure/profile.h"
#include "ppcli/nn/archive.h"
#include "ppcli/plan/machine_plan.h"
#include "ppcli/plan/search.h"
#include "ppcli/show/report.h"
#include "ppcli/sim/sim.h"

/* ---- formats */

/* What `ppcli plan` prints of a plan. */

/* Formats, by their number in `ppcli plan --format`. */
bool pp_format_times(int format);        /* it draws the times of every action */
bool pp_format_draws(int format);        /* it is a picture */
int pp_format_of_file(const char *path); /* by its ending; 0 where it has no known one */

struct pp_planned { /* nothing is owned */
    const struct pp_plan *plan;
    const struct pp_sim_costs *costs;
    const size_t *bytes; /* memory of each rank, or NULL */
    double memory_cap;   /* forwards that a rank may hold; 0: any number */
};

/* Simulates the plan and prints it to `path` (NULL: standard output). Errors: PP_ERESOURCE, PP_EIO,
 * those of pp_picture_write(). Local. */
int pp_format_print(int format, const struct pp_planned *p, const struct pp_look *look,
                    const char *path);

/* A page (share/workbench/) in which a struct pp_planned can be edited. Errors: PP_EUSAGE for two
 * copies of the weights, which a table cannot describe; PP_EIO, PP_ERESOURCE. Local. */
int pp_workbench_write(const void *planned, FILE *f);

/* ---- results */

/*
 * What commands print of their results: text for people, or (json) an object for programs, onto f.
 * Nothing is computed here that the result does not hold. Errors, where there are any: PP_ECONFIG,
 * PP_EIO, PP_ERESOURCE. Local.
 */

/* ---- tune */

int pp_best_result_print(const struct pp_best_result *r, bool json, FILE *f);

/* ---- estimate */

int pp_machine_plan_print(const struct pp_machine_plan *p, bool json, FILE *f);
/* Writes the result as a page: that of a report, with the rows above the timeline of the first
 * one. */
int pp_machine_plan_page(const struct pp_machine_plan *p, const char *path);
/* Prints the first row that a system can run in the words of that system; for ppcli as sections of
 * a config. */
int pp_machine_plan_emit(const struct pp_machine_plan *p, const char *system, FILE *f);

/* What trains a row: "ppcli", then the systems of pp_estimate_emit(). */
#define PP_PLAN_SYSTEMS 4
extern const char *const pp_plan_systems[PP_PLAN_SYSTEMS];

/* ---- explain */

struct pp_explained {
    const struct pp_archive *archive; /* of model.type = graph, else NULL; not owned */
    struct pp_run run;
    struct pp_exec_bytes *ranks; /* [ranks]; owned */
    struct pp_exec_bytes *other; /* [stages] if pipeline.recompute were off, or, where it is, all;
                                    owned; NULL: of a schedule that cannot recompute */
    double ideal, equal;         /* bubble of the textbook, of this plan */
    struct pp_bubble bubble;     /* by flops */
    char advice[PP_ADVICE_MAX];
};

/* Prints what explain shows. With -v the text has every key. Remarks of the run become warnings. */
int pp_explained_print(const struct pp_explained *e, bool json, FILE *f);

/* Prints what becomes of a PyTorch program, and its layers; m NULL: it cannot be trained. */
int pp_archive_print(const struct pp_archive *a, const struct pp_model *m, bool json, FILE *f);

/* Prints the operators of PyTorch programs by what they become. */
int pp_operators_print(bool json, FILE *f);

/* ---- profile */

struct pp_profiled { /* nothing is owned */
    const struct pp_profile *p;
    const struct pp_profile_fit *f;
    const struct pp_rows *others; /* what else would have run */
    /* Another profile, and what p predicts for it. NULL: `others` are printed. */
    const struct pp_profile *to;
    double measured, predicted; /* its step */
    const double *memory;       /* [stages] predicted; NULL: unknown */
};

int pp_profiled_print(const struct pp_profiled *s, bool json, FILE *f);
int pp_profiled_page(const void *profiled, FILE *f);

/* ---- mark */

struct pp_mark {                 /* nothing is owned */
    const char *file, *reason;   /* why it does not pass; "": it passes */
    const struct pp_geometry *g; /* NULL: it is not legal, and nothing below is known */
    const char *like;            /* the schedule that it is; NULL: an order of its own */
    const char *asked, *par;     /* what it is compared with; NULL: that holds more than the cap */
    double makespan, least;      /* of it, of par */
    double peak, cap;            /* micro-batches of activations; cap 0: any number */
    int rank;                    /* that holds them */
    const char *digest;
};

int pp_mark_print(const struct pp_mark *m, bool json, FILE *f);

/* ---- env */

struct pp_build { /* nothing is owned */
    const char *version, *commit;
    const struct pp_build_fact { /* what NULL ends them */
        const char *what, *text; /* "zlib", "1.2.13"; text "no...": is not in this build */
        const char *missing;     /* a sentence more about that; NULL: absent */
    } * facts;
};

/* Prints the build, this machine, and what there is to compute on and to connect ranks with; it
 * tries each of these. */
int pp_build_print(const struct pp_build *b, bool json, FILE *f);
int pp_preflight_print(const struct pp_preflight *p, bool json, FILE *f);

/* ---- init */

struct pp_first_config {                   /* nothing is owned */
    const char *dataset, *const *keys;     /* NULL: none is known; of the files, NULL-terminated */
    const char *const *files, *folder;     /* folder: before relative names, "" or ending in '/' */
    const struct pp_table_proposal *table; /* of tables; else NULL */
    const char *label;                     /* of tables for a program; else NULL */
    const struct pp_dataset *train, *test; /* NULL: not there, or not looked at */
    const struct pp_images_proposal *images; /* of a folder of pictures; else NULL */
    const char *program;          /* PyTorch program that is trained; NULL: a perceptron is */
    const struct pp_config *cfg;  /* program, pictures: the config for two stages, */
    const struct pp_model *model; /* and its model */
};

/* Writes model.layers of a small convolutional network for pictures to out[bytes]. */
void pp_init_layers(const struct pp_dataset *train, char *out, size_t bytes);

int pp_first_config_print(const struct pp_first_config *i, const struct pp_names *names, FILE *f);

/* ---- inspect */

int pp_ckpt_print(const struct pp_ckpt *ck, bool json, FILE *f);

#endif
