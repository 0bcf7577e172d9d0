/* SPDX-License-Identifier: Apache-2.0 */
/* How numbers look to people. Local to cli/. */
#ifndef PPCLI_CLI_SHOW_H
#define PPCLI_CLI_SHOW_H

#include <stdint.h>

#define SHOW_BYTES 32

/* "812 bytes", "1.4 MB"; returns out. */
const char *show_size(uint64_t bytes, char out[SHOW_BYTES]);

#endif
