/* SPDX-License-Identifier: Apache-2.0 */
/* What `ppcli plan` prints of a plan, and of published figures. */
#ifndef PPCLI_FORMATS_H
#define PPCLI_FORMATS_H

#include "ppcli/picture.h"
#include "ppcli/sim.h"

/* Formats, by their number in `ppcli plan --format`. */
const char *pp_format_name(int format);
bool pp_format_times(int format);        /* it draws the times of every action */
bool pp_format_draws(int format);        /* it is a picture */
int pp_format_of_file(const char *path); /* by its ending; 0 where it has no known one */

struct pp_planned { /* nothing is owned */
    const struct pp_plan *plan;
    const struct pp_sim_costs *costs;
    const size_t *bytes; /* memory of each rank, or NULL */
    double memory_cap;   /* forwards that a rank may hold; 0: any number */
};

/* Simulate the plan and print it on `path` (NULL: standard output). Errors: PP_ERESOURCE, PP_EIO, those
 * of pp_picture_write(). Local. */
int pp_format_print(int format, const struct pp_planned *p, const struct pp_look *look,
                    const char *path);

/* A page (share/workbench/) in which a struct pp_planned can be edited. Errors: PP_EUSAGE for two
 * copies of the weights, which a table cannot describe; PP_EIO, PP_ERESOURCE. Local. */
int pp_workbench_write(const void *planned, FILE *f);

#define PP_TABLES "zb4|zb5|zb6|zb9|cm|primus|megatron-bridge" /* share/tables */

struct pp_figures {
    double makespan, idle; /* of a schedule: in the unit of its costs; share of the longest span */
    double tokens;         /* of a division on a machine: a second and rank */
};

/* Print the table `index` of PP_TABLES as Markdown. predict: the figures of a command line of
 * `ppcli plan`. Errors: those of predict, PP_ERESOURCE. Local. */
int pp_table_print(int index, int (*predict)(int argc, char **argv, struct pp_figures *out));

#endif
