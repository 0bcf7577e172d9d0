/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli keys: the reference of everything a config can say, from the one option table. */
#include <string.h>

#include "ppcli/err.h"
#include "command.h"

static const char *const format_names[] = {"text", "json", "mdoc", "list", NULL};

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

static int format_of(const char *name, enum pp_keys_format *out)
{
    static const enum pp_keys_format formats[] = {PP_KEYS_TEXT, PP_KEYS_JSON, PP_KEYS_MDOC,
                                                  PP_KEYS_LIST};
    for (int i = 0; format_names[i]; i++) {
        if (strcmp(name, format_names[i]) == 0) {
            *out = formats[i];
            return 0;
        }
    }
    const char *near = pp_nearest(name, format_names);
    return pp_fail(PP_EUSAGE, "unknown format '%s'; %s%s%s", name,
                   near ? "did you mean '" : "there are text, json, mdoc and list",
                   near ? near : "", near ? "'?" : "");
}

static int run(int argc, char **argv)
{
    const char *format_name = NULL;
    bool json = false;
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_STRING, &format_name, "text|json|mdoc|list", "how to print"},
        {"json", 0, PP_CLI_FLAG, &json, NULL, "short for --format json"},
        {0},
    };
    const char *words[1];
    bool done;
    PP_TRY(pp_cli_parse(argc, argv, &command_keys, options, NULL, words, 1, &done));
    if (done) {
        return 0;
    }
    if (json && format_name && strcmp(format_name, "json") != 0) {
        return pp_fail(PP_EUSAGE, "--json and --format %s contradict each other", format_name);
    }
    enum pp_keys_format format = json ? PP_KEYS_JSON : PP_KEYS_TEXT;
    if (format_name) {
        PP_TRY(format_of(format_name, &format));
    }
    return pp_config_print_keys(stdout, words[0], pp_cli_names(), format);
}

const struct pp_command command_keys = {
    .name = "keys",
    .summary = "list the keys of a config: meaning, default, range",
    .words = "[SECTION|SECTION.KEY]",
    .one_rank = true,
    .run = run,
    .help = help,
};
