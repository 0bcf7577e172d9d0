/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli keys: the reference of everything a config can say, from the one option table; and the
 * operators that a PyTorch program may have. */
#include "ppcli/show/results.h"
#include "command.h"

int cmd_keys(int argc, char **argv)
{
    /* in the order of the choices below */
    static const enum pp_keys_format formats[] = {PP_KEYS_TEXT, PP_KEYS_JSON, PP_KEYS_MDOC,
                                                  PP_KEYS_LIST};
    int format = -1;
    bool json = false, operators = false;
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &format, "text|json|mdoc|list", "how to print"},
        {"json", 0, PP_CLI_FLAG, &json, NULL, "short for --format json"},
        {"operators", 0, PP_CLI_FLAG, &operators, NULL, "of PyTorch programs, not keys; text|json"},
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_keys, options, NULL, words, 1));
    if (json && format >= 0 && formats[format] != PP_KEYS_JSON)
        return pp_fail(PP_EUSAGE, "--json and --format contradict each other");
    if (operators && (words[0] || (format >= 0 && formats[format] > PP_KEYS_JSON)))
        return pp_fail(PP_EUSAGE, "--operators takes no section, and --format text or json");
    if (operators)
        return pp_operators_print(json || (format >= 0 && formats[format] == PP_KEYS_JSON), stdout);
    return pp_config_print_keys(stdout, words[0], pp_cli_names(),
                                json         ? PP_KEYS_JSON
                                : format < 0 ? PP_KEYS_TEXT
                                             : formats[format]);
}
