/* SPDX-License-Identifier: Apache-2.0 */
/* The completion scripts of three shells. Errors: those of pp_cli_describe(). Local to cli/. */
#ifndef PPCLI_CLI_COMPLETION_H
#define PPCLI_CLI_COMPLETION_H

#include <stdio.h>

int completion_bash(FILE *f);
int completion_zsh(FILE *f);
int completion_fish(FILE *f);

#endif
