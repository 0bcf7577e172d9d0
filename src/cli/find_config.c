/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the word a user typed to a checked config: where the file is, and its problems on stderr.
 */
#include "command.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/log.h"
#include "build_info.h"
#include "start.h"

#define NAMES_MAX 256

/* Installed programs must not look into the folder they were once built from. */
static bool runs_from_build_folder(void)
{
    char exe[PP_PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    size_t root = strlen(PP_BUILD_FOLDER);
    return n > 0 && (size_t)n > root && strncmp(exe, PP_BUILD_FOLDER, root) == 0 &&
           exe[root] == '/';
}

static bool is_ini(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && strcmp(name + n - 4, ".ini") == 0;
}

/* The config of `folder` with the name nearest to `word`. */
static struct pp_did_you_mean nearest_config(const char *folder, const char *word)
{
    char storage[NAMES_MAX][PP_NAME_MAX];
    const char *names[NAMES_MAX + 1];
    int n = 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return (struct pp_did_you_mean){""};
    for (struct dirent *e; n < NAMES_MAX && (e = readdir(dir));) {
        if (is_ini(e->d_name) && strlen(e->d_name) < PP_NAME_MAX) {
            strcpy(storage[n], e->d_name);
            names[n] = storage[n];
            n++;
        }
    }
    closedir(dir);
    names[n] = NULL;

    char with_ini[PP_NAME_MAX];
    snprintf(with_ini, sizeof(with_ini), "%.*s.ini", PP_NAME_MAX - 5, word);
    return pp_did_you_mean(is_ini(word) ? word : with_ini, names);
}

/* what: "config"; below: the folder of configs/ that has them, "" or "/machines". */
static int find(const char *word, const char *what, const char *below, char out[PP_PATH_MAX])
{
    if (strcmp(word, "-") == 0 || access(word, F_OK) == 0)
        return pp_path_format(out, "%s", word);
    if (errno != ENOENT && errno != ENOTDIR)
        return pp_fail_errno(0, "%s", word);
    if (!word[0] || strchr(word, '/'))
        return pp_fail(PP_ENOINPUT, "%s: no such %s file", word[0] ? word : "''", what);

    char folders[2][PP_PATH_MAX] = {"", ""};
    PP_TRY(pp_path_format(folders[0], "%s%s", PP_CONFIG_FOLDER, below));
    if (runs_from_build_folder())
        PP_TRY(pp_path_format(folders[1], "%s%s", PP_SOURCE_FOLDER "/configs", below));
    struct pp_did_you_mean hint = {""};
    for (int i = 0; i < 2 && folders[i][0]; i++) {
        char path[PP_PATH_MAX];
        PP_TRY(pp_path_format(path, "%s/%s", folders[i], word));
        if (access(path, F_OK) == 0) {
            if (launch_announces())
                pp_log_info("%s: %s", what, path);
            return pp_path_format(out, "%s", path);
        }
        if (!hint.s[0])
            hint = nearest_config(folders[i], word);
    }
    return pp_fail(PP_ENOINPUT, "%s: no such %s, here or in %s%s%s%s", word, what, folders[0],
                   folders[1][0] ? " or in " : "", folders[1], hint.s);
}

int pp_cli_find_config(const char *word, char out[PP_PATH_MAX])
{
    static const char *const data[] = {".csv", ".tsv", ".npy", ".npz", ".gz"};
    for (size_t i = 0, n = strlen(word), m; i < sizeof(data) / sizeof(*data); i++) {
        m = strlen(data[i]);
        if (n > m && strcmp(word + n - m, data[i]) == 0)
            return pp_fail(PP_EUSAGE, "%s: data, not a config; ppcli init writes one for them",
                           word);
    }
    return find(word, "config", "", out);
}

int pp_cli_find_machine(const char *word, char out[PP_PATH_MAX])
{
    char name[PP_PATH_MAX];
    bool bare = !strchr(word, '/') && !is_ini(word) && access(word, F_OK) != 0;
    PP_TRY(pp_path_format(name, "%s%s", word, bare ? ".ini" : ""));
    return find(name, "machine", "/machines", out);
}

static void print_problems(const struct pp_config *cfg)
{
    if (!launch_speaks())
        return;
    for (int i = 0; i < pp_config_problem_count(cfg); i++)
        fprintf(stderr, "%s\n", pp_config_problem_text(cfg, i));
}

int pp_cli_load_config(const char *word, const struct pp_cli_settings *settings,
                       struct pp_config **out)
{
    char path[PP_PATH_MAX];
    if (word)
        PP_TRY(pp_cli_find_config(word, path));
    struct pp_config *cfg = NULL;
    int rc = pp_config_load(word ? path : NULL, settings ? settings->items : NULL,
                            settings ? settings->n : 0, pp_cli_names(), &cfg);
    if (rc == 0) {
        for (int i = 0; launch_speaks() && i < pp_config_note_count(cfg); i++)
            pp_log_info("%s", pp_config_note_text(cfg, i));
        *out = cfg;
        return 0;
    }
    if (cfg)
        print_problems(cfg);
    pp_config_destroy(&cfg);
    return rc;
}

int pp_cli_config_verdict(const struct pp_config *cfg)
{
    print_problems(cfg);
    return pp_config_verdict(cfg);
}
