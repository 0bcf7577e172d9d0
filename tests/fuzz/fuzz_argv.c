/* SPDX-License-Identifier: Apache-2.0 */
/* Words of a command line, one a line, against a table with every kind of option. */
#include "fuzz.h"
#include "command.h"

#define WORDS_MAX 64

static const struct pp_command command = {.name = "fuzz", .words = "[WORD]"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pp_cli_settings settings;
    char *argv[WORDS_MAX + 2], name[] = "fuzz";
    int argc = 1;
    bool flag = false;
    const char *string = NULL, *optional = NULL, *words[2];
    int number = 0;
    const struct pp_cli_option options[] = {
        {"flag", 'f', PP_CLI_FLAG, &flag, NULL, "a flag"},
        {"string", 's', PP_CLI_STRING, &string, "TEXT", "a text"},
        {"optional", 0, PP_CLI_OPTIONAL, &optional, "[TEXT]", "a text or none"},
        {"number", 'n', PP_CLI_INT, &number, "N", "a number"},
        {0},
    };
    char *text = strndup((const char *)data, size);
    pp_assert(text != NULL);
    argv[0] = name;
    for (char *w = strtok(text, "\n"); w && argc <= WORDS_MAX; w = strtok(NULL, "\n")) {
        if (strcmp(w, "--help") == 0 || (w[0] == '-' && w[1] != '-' && strchr(w, 'h')))
            goto out; /* prints pages */
        argv[argc++] = w;
    }
    argv[argc] = NULL;
    settings.n = 0;
    int rc = pp_cli_parse(argc, argv, &command, options, &settings, words, 2);
    if (rc < 0) {
        pp_assert(rc == PP_EUSAGE);
        fuzz_refused(rc);
        goto out;
    }
    pp_assert(settings.n <= PP_CLI_SETTINGS_MAX && (words[0] || !words[1]));
    for (int i = 0; i < settings.n; i++)
        pp_assert(strlen(settings.items[i].key) < PP_NAME_MAX && settings.items[i].value);
out:
    free(text);
    return 0;
}
