/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli download: put data sets where training looks for them; their folders go to stdout. */
#include <string.h>

#include "ppcli/data/dataset.h"
#include "command.h"

#define SETS_MAX 16

static int list_sets(void)
{
    for (const struct pp_fetch_set *set = pp_fetch_sets; set->name; set++) {
        char dir[PP_PATH_MAX];
        int files = 0;
        PP_TRY(pp_data_dir(set->name, dir));
        int there = pp_fetch_there(set, dir, &files);
        printf("%-16s %s\n%16s %s: %d of %d files there\n%16s wants", set->name, set->help, "", dir,
               there, files, "");
        for (int i = 0; i < files; i++)
            printf("%s%*s %s",
                   i == 0       ? ""
                   : i % 2 == 0 ? ",\n"
                                : ",",
                   i > 0 && i % 2 == 0 ? 22 : 0, "", set->files[i].name);
        printf("\n");
    }
    return 0;
}

static int find_set(const char *name, const struct pp_fetch_set **out)
{
    const char *names[SETS_MAX] = {NULL};
    for (int i = 0; pp_fetch_sets[i].name; i++) {
        names[i] = pp_fetch_sets[i].name;
        if (strcmp(names[i], name) == 0) {
            *out = &pp_fetch_sets[i];
            return 0;
        }
    }
    const char *near = pp_nearest(name, names);
    return pp_dataset_info(name) ? pp_fail(PP_EUSAGE, "data set '%s' needs no download", name)
           : near ? pp_fail(PP_EUSAGE, "unknown data set '%s'; did you mean '%s'?", name, near)
                  : pp_fail(PP_EUSAGE, "unknown data set '%s'; 'ppcli download' lists them", name);
}

int cmd_download(int argc, char **argv)
{
    const char *dir = NULL, *from = NULL, *dataset = NULL, *words[SETS_MAX] = {NULL};
    const struct pp_fetch_set *sets[SETS_MAX] = {NULL};
    const struct pp_cli_option options[] = {
        {"dataset", 0, PP_CLI_STRING, &dataset, "NAME", "the same as the word NAME"},
        {"dir", 0, PP_CLI_STRING, &dir, "DIR", "put the files here"},
        {"from", 0, PP_CLI_STRING, &from, "URL-or-DIR",
         "take the files from here, not from a mirror"},
        {0},
    };
    PP_TRY(pp_cli_parse(argc, argv, &command_download, options, NULL, words, SETS_MAX - 1));
    if (!words[0])
        words[0] = dataset ? dataset : strcmp(argv[0], "download") != 0 ? "mnist" : NULL;
    if (!words[0] && !dir && !from)
        return list_sets();
    bool all = words[0] && strcmp(words[0], "all") == 0;
    for (int i = 0; all ? pp_fetch_sets[i].name != NULL : words[i] != NULL; i++)
        PP_TRY(find_set(all ? pp_fetch_sets[i].name : words[i], &sets[i]));
    if (!sets[0] || (sets[1] && (dir || from)))
        return pp_fail(PP_EUSAGE, "--dir and --from need the name of one data set, such as mnist");
    for (int i = 0; sets[i]; i++) {
        char standard[PP_PATH_MAX];
        PP_TRY(dir ? 0 : pp_data_dir(sets[i]->name, standard));
        PP_TRY(pp_fetch(sets[i], from, dir ? dir : standard, &pp_fetch_limits));
        printf("%s\n", dir ? dir : standard);
    }
    return 0;
}
