/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli keys: the reference of everything a config can say, from the one option table. */
#include "ppcli/err.h"
#include "command.h"

static void help(FILE *f)
{
    fputs("  ppcli keys                      all keys of a config, by section\n"
          "  ppcli keys pipeline             one section\n"
          "  ppcli keys train.lr             one key\n"
          "  ppcli keys --format json        the same as a schema for other programs\n"
          "\n"
          "Every key can be set in the INI file and with --set SECTION.KEY=VALUE.\n"
          "Formats: text for people, json for programs, list for one key a line, mdoc for\n"
          "the manual page.\n",
          f);
}

static int run(int argc, char **argv)
{
    /* in the order of the choices below */
    static const enum pp_keys_format formats[] = {PP_KEYS_TEXT, PP_KEYS_JSON, PP_KEYS_MDOC,
                                                  PP_KEYS_LIST};
    int format = -1;
    bool json = false;
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &format, "text|json|mdoc|list", "how to print"},
        {"json", 0, PP_CLI_FLAG, &json, NULL, "short for --format json"},
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_keys, options, NULL, words, 1));
    if (json && format >= 0 && formats[format] != PP_KEYS_JSON)
        return pp_fail(PP_EUSAGE, "--json and --format contradict each other");
    return pp_config_print_keys(stdout, words[0], pp_cli_names(),
                                json         ? PP_KEYS_JSON
                                : format < 0 ? PP_KEYS_TEXT
                                             : formats[format]);
}

const struct pp_command command_keys = {
    .name = "keys",
    .summary = "list the keys of a config: meaning, default, range",
    .words = "[SECTION|SECTION.KEY]",
    .one_rank = true,
    .run = run,
    .help = help,
};
