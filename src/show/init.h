/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of ppcli init's config share. */
#ifndef PPCLI_SHOW_INIT_H
#define PPCLI_SHOW_INIT_H

#include "ppcli/show/results.h"

/* Prints the keys of [data] that follow the folder of pictures. */
void init_print_pictures(const struct pp_first_config *i, FILE *f);

#endif
