/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli version: what was built in; the first thing a bug report needs. */
#include "ppcli/err.h"
#include "build_facts.h"
#include "build_info.h"
#include "command.h"

static void help(FILE *f)
{
    fputs("Prints the version and the libraries this ppcli was built with.\n", f);
}

static int run(int argc, char **argv)
{
    PP_TRY(pp_cli_parse(argc, argv, &command_version, NULL, NULL, NULL, 0));
    printf("ppcli %s\n", PP_VERSION);
    for (const struct build_fact *b = build_facts(); b->what; b++)
        printf("%s: %s\n", b->what, b->text);
    return 0;
}

const struct pp_command command_version = {
    .name = "version",
    .summary = "print the version and what was built in",
    .one_rank = true,
    .run = run,
    .help = help,
};
