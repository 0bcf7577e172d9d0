/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines of earlier versions: what was `ppcli plan --best` is `ppcli tune`. */
#include "command.h"

#include <string.h>

#include "ppcli/base/base.h"

/*
 * Options of `plan` that have become commands; the first row that a command line has counts. The
 * option `dropped` goes, and its value becomes the word of the command; a flag goes as it is.
 */
static const struct old_option {
    const char *name; /* "--par" */
    const struct pp_command *command;
    const char *dropped; /* NULL: every option stays */
} old_options[] = {
    {"--profile", &command_profile, "--profile"},
    {"--measure", &command_estimate, NULL},
    {"--machine", &command_estimate, NULL},
    {"--best", &command_tune, "--best"},
    {"--check", &command_tune, NULL},
    {"--par", &command_mark, "--csv"},
};

/* Returns whether `word` is the option, alone or with "=value". */
static bool is_option(const char *word, const char *option)
{
    size_t n = strlen(option);
    return strncmp(word, option, n) == 0 && (!word[n] || word[n] == '=');
}

static const struct old_option *find_old_option(char **words)
{
    for (size_t i = 0; i < sizeof(old_options) / sizeof(old_options[0]); i++)
        for (char **word = words; *word && strcmp(*word, "--") != 0; word++)
            if (is_option(*word, old_options[i].name))
                return &old_options[i];
    return NULL;
}

static void announce_command(const struct old_option *old, char **words)
{
    char text[PP_ERROR_TEXT_MAX] = "", quoted[2 * PP_PATH_MAX];
    for (; *words; words++)
        pp_text_add(text, sizeof(text), " %s", pp_text_shell(*words, quoted, sizeof(quoted)));
    if (pp_launch_announces())
        pp_log_warn("plan %s is now: ppcli %s%s", old->name, old->command->name, text);
}

int pp_cli_translate(int *argc, char ***argv, int at, const struct pp_command **command)
{
    static char name[PP_NAME_MAX];
    const struct old_option *old = find_old_option(*argv + at + 1);
    if (*command != &command_plan || !old)
        return 0;
    char **to = pp_alloc((size_t)*argc + 1, sizeof(*to)); /* for as long as the process lives */
    PP_TRY(to ? 0 : PP_ERESOURCE);
    int n = 0;
    for (; n < at; n++)
        to[n] = (*argv)[n];
    to[n++] = name;
    snprintf(name, sizeof(name), "%s", old->command->name);
    for (char **word = *argv + at + 1; *word; word++) {
        char *value = strchr(*word, '=');
        if (!old->dropped || !is_option(*word, old->dropped))
            to[n++] = *word;
        else if (value)
            to[n++] = value + 1;
    }
    announce_command(old, to + at + 1);
    *argc = n;
    *argv = pp_process_argv = to;
    *command = old->command;
    return 0;
}
