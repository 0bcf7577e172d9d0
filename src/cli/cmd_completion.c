/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli completion: a completion script for bash, zsh or fish, written from the command table, the
 * option tables and the key list, so that it cannot name what this ppcli does not have.
 */
#include "completion.h"

#include <string.h>

#include "ppcli/backend.h"
#include "ppcli/err.h"
#include "ppcli/schedule.h"
#include "ppcli/transport.h"

static const char *const shell_names[] = {"bash", "zsh", "fish", NULL};

void completion_print_keys(FILE *f, const char *before, const char *after)
{
    for (int i = 0; i < pp_config_key_count(); i++) {
        fprintf(f, "%s%s%s", before, pp_config_key_name(i), after);
    }
}

/* The names of a module's list, for keys whose values live there. */
static const char *const *names_of(const char *key)
{
    if (strcmp(key, "pipeline.schedule") == 0) {
        return pp_schedule_names();
    }
    if (strcmp(key, "run.backend") == 0) {
        return pp_backend_names();
    }
    if (strcmp(key, "run.transport") == 0) {
        return pp_transport_names();
    }
    return NULL;
}

bool completion_values(const struct pp_cli_option *o, char *out, size_t bytes)
{
    out[0] = '\0';
    if (!o->arg) {
        return false;
    }
    if (strchr(o->arg, '|')) {
        snprintf(out, bytes, "%s", o->arg);
        for (char *bar; (bar = strchr(out, '|'));) {
            *bar = ' ';
        }
        return true;
    }
    const char *const *names = o->kind == PP_CLI_KEY ? names_of(o->target) : NULL;
    size_t used = 0;
    for (; names && *names; names++) {
        int n = snprintf(out + used, bytes - used, "%s%s", used ? " " : "", *names);
        pp_assert(n > 0 && (size_t)n < bytes - used);
        used += (size_t)n;
    }
    return used > 0;
}

enum completion_words completion_words(const struct pp_command *command, bool config)
{
    const char *words = pp_cli_words(command, config);
    static const struct {
        const char *in;
        enum completion_words kind;
    } kinds[] = {
        {"CONFIG", WORDS_CONFIG}, {"PATH", WORDS_PATH},       {"RUN", WORDS_PATH},
        {"KEY", WORDS_KEY},       {"COMMAND", WORDS_COMMAND}, {"SHELL", WORDS_SHELL},
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strstr(words, kinds[i].in)) {
            return kinds[i].kind;
        }
    }
    return WORDS_NONE;
}

void completion_quote(FILE *f, const char *text, const char *special)
{
    for (; *text; text++) {
        if (*text == '\'') {
            fputs("'\\''", f);
        } else {
            if (strchr(special, *text)) {
                fputc('\\', f);
            }
            fputc(*text, f);
        }
    }
}

static void help(FILE *f)
{
    fputs("  ppcli completion bash > ~/.local/share/bash-completion/completions/ppcli\n"
          "  ppcli completion zsh > ~/.zfunc/_ppcli          (a folder of $fpath)\n"
          "  ppcli completion fish > ~/.config/fish/completions/ppcli.fish\n"
          "\n"
          "Installing ppcli puts the same scripts into the usual places.\n",
          f);
}

static int run(int argc, char **argv)
{
    const char *words[1];
    bool done;
    PP_TRY(pp_cli_parse(argc, argv, &command_completion, NULL, NULL, words, 1, &done));
    if (done) {
        return 0;
    }
    if (!words[0]) {
        return pp_fail(PP_EUSAGE, "which shell? bash, zsh or fish");
    }
    static int (*const writers[])(FILE *) = {completion_bash, completion_zsh, completion_fish};
    for (int i = 0; shell_names[i]; i++) {
        if (strcmp(words[0], shell_names[i]) == 0) {
            return writers[i](stdout);
        }
    }
    return pp_fail(PP_EUSAGE, "no completions for '%s'; there are bash, zsh and fish", words[0]);
}

const struct pp_command command_completion = {
    .name = "completion",
    .summary = "print a completion script for bash, zsh or fish",
    .words = "SHELL",
    .one_rank = true,
    .run = run,
    .help = help,
};
