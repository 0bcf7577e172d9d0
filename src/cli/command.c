/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command table and the names that live in the modules: the two lists that only cli/, which
 * may see every module, can put together.
 */
#include "command.h"

#include <string.h>
#include <sys/stat.h>

#include "ppcli/ckpt/checkpoint.h"
#include "ppcli/data/dataset.h"
#include "ppcli/nn/model.h"
#include "ppcli/sched/schedule.h"
#include "ppcli/base/base.h"
#include "ppcli/base/files.h"
#include "ppcli/comm/transport.h"

#define PP_COMMAND(name, ...)                                                                      \
    extern const char text_##name[]; /* made of share/cli */                                       \
    const struct pp_command command_##name = {#name, .run = cmd_##name, .help = text_##name,       \
                                              __VA_ARGS__};
#include "commands.def"

#define PP_COMMAND(name, ...) &command_##name,
const struct pp_command *const pp_commands[] = {
#include "commands.def"
    NULL,
};

#define COMMANDS ((int)(sizeof(pp_commands) / sizeof(pp_commands[0])) - 1)

const struct pp_command *pp_command_find(const char *name)
{
    for (int i = 0; pp_commands[i]; i++) {
        const char *also = pp_commands[i]->also;
        if (strcmp(pp_commands[i]->name, name) == 0 || (also && strcmp(also, name) == 0))
            return pp_commands[i];
    }
    return NULL;
}

int pp_cli_name_file(int rc, const char *path)
{
    char shown[PP_PATH_MAX];
    struct stat st;
    if (rc == 0 && path && stat(path, &st) == 0 && S_ISREG(st.st_mode))
        puts(pp_text_shown(path, shown, sizeof(shown)));
    return rc;
}

int pp_cli_check_output(const char *option, const char *path)
{
    struct pp_file_write w;
    if (!path || strcmp(path, "-") == 0)
        return 0;
    if (!path[0])
        return pp_fail(PP_EUSAGE, "%s needs the name of a file, not ''", option);
    PP_TRY(pp_file_create(path, &w));
    pp_file_abandon(&w);
    return 0;
}

struct pp_did_you_mean pp_command_hint(const char *word)
{
    const char *names[COMMANDS + 1];
    for (int i = 0; i < COMMANDS; i++)
        names[i] = pp_commands[i]->name;
    names[COMMANDS] = NULL;
    return pp_did_you_mean(word, names);
}

const struct pp_names *pp_cli_names(void)
{
    /* The lists are constant; a struct per thread only saves the callers a parameter. */
    static _Thread_local struct pp_names names;
    names.models = pp_model_names();
    names.datasets = pp_dataset_names();
    names.schedules = pp_schedule_names();
    names.schedule_help = pp_schedule_help();
    names.backends = pp_backend_names();
    names.transports = pp_transport_names();
    names.joins = pp_transport_joins;
    names.from = pp_hf_config;
    return &names;
}
