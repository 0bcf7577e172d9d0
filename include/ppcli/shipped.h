/* SPDX-License-Identifier: Apache-2.0 */
/* Where configs and sample data that come with ppcli may lie. */
#ifndef PPCLI_SHIPPED_H
#define PPCLI_SHIPPED_H

#include "ppcli/file.h"

#define PP_SHIPPED_MAX 6

/* Folders that may have what is `below` share/ppcli ("configs", "data/mnist-sample"), the nearest
 * first: beside the program, wherever it was moved to; where it is installed; and of a program in
 * its build folder, the source. Absolute; they need not exist. Returns how many. Any thread. */
int pp_shipped_folders(const char *below, char out[PP_SHIPPED_MAX][PP_PATH_MAX]);

#endif
