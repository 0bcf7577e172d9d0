/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli cite: how to name ppcli in a paper, with this very version. */
#include "build_info.h"
#include "commit.h"
#include "command.h"

int cmd_cite(int argc, char **argv)
{
    int bibtex = 0;
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &bibtex, "text|bibtex", "what to print"}, {0}};
    PP_TRY(pp_cli_parse(argc, argv, &command_cite, options, NULL, NULL, 0));
    printf(bibtex ? "@misc{ppcli,\n  author = {{%s}},\n  title = {%s},\n"
                    "  note = {Version %s, commit %s}\n}\n"
                  : "%s. %s. Version %s, commit %s.\n",
           PP_AUTHORS, PP_TITLE, PP_VERSION, PP_COMMIT);
    return 0;
}
