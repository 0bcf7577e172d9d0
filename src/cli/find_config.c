/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the word a user typed to a checked config: where the file is, and its problems on stderr.
 */
#include "command.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "ppcli/data/dataset.h"
#include "ppcli/conf/config.h"
#include "ppcli/base/base.h"
#include "ppcli/ckpt/checkpoint.h"

int pp_cli_is_run(const char *word, bool *out)
{
    char path[PP_PATH_MAX] = "";
    struct stat st = {0};
    PP_TRY(word ? pp_path_stat(word, true, &st) : 0);
    PP_TRY(S_ISDIR(st.st_mode) ? pp_run_dir_config(word, path) : 0);
    *out = path[0] != '\0';
    return 0;
}

/* Prints which installed file a bare name means, but only once for each file. */
static int announce_path(int rc, const char *what, bool is_shipped, const char *path)
{
    static char said[PP_PATH_MAX]; /* what the user has read already */
    if (rc < 0 || !is_shipped)
        return rc;
    if (pp_launch_announces() && strcmp(said, path) != 0)
        pp_log_info("%s: %s", what, path);
    return pp_path_format(said, "%s", path);
}

int pp_cli_find_config(const char *word, char out[PP_PATH_MAX])
{
    struct stat st;
    bool is_shipped = false;
    PP_TRY(pp_path_stat(word, true, &st));
    if (!S_ISDIR(st.st_mode)) {
        int rc = pp_config_find(word, &is_shipped, out);
        return announce_path(rc, "config", is_shipped, out);
    }
    PP_TRY(pp_run_dir_config(word, out));
    return out[0] ? 0
                  : pp_fail(PP_ENOINPUT,
                            "%s: a folder, but not that of a run: it has no " PP_RUN_DIR_CONFIG
                            "; name a config, or a run folder",
                            word);
}

int pp_cli_refuse_run(const char *word, const char *needs)
{
    char path[PP_PATH_MAX];
    struct stat st;
    bool is_there = stat(word, &st) == 0, is_shipped;
    if (!is_there && !pp_text_ends(word, ".ini"))
        return pp_fail(PP_ENOINPUT, "there is no run '%s': %s", word, strerror(errno));
    PP_TRY(is_there && S_ISDIR(st.st_mode) ? pp_cli_find_config(word, path)
                                           : pp_config_find(word, &is_shipped, path));
    return pp_fail(PP_EUSAGE, "%s is a config: %s", word, needs);
}

int pp_cli_find_machine(const char *word, char out[PP_PATH_MAX])
{
    bool is_shipped = false;
    int rc = pp_machine_find(word, &is_shipped, out);
    return announce_path(rc, "machine", is_shipped, out);
}

static void print_problems(const struct pp_config *cfg)
{
    for (int i = 0; i < pp_config_problem_count(cfg); i++)
        fprintf(stderr, "ppcli: %s\n", pp_config_problem_text(cfg, i));
}

/* Collects the settings in `out`. If the config comes from a run folder, the first of them is that
 * folder's own run.dir, so that `train RUN --resume` continues there; `dir` is memory for its
 * value. */
static int collect_settings(const char *word, const struct pp_cli_settings *settings,
                            struct pp_setting out[PP_CLI_SETTINGS_MAX + 1], char dir[PP_PATH_MAX],
                            int *out_n)
{
    int n = settings ? settings->n : 0;
    bool first = false;
    PP_TRY(pp_cli_is_run(word, &first));
    if (first) {
        PP_TRY(pp_run_dir_of(word, dir));
        if (!dir[0])
            snprintf(dir, PP_PATH_MAX, "%s", word);
        out[0] = (struct pp_setting){"run.dir", dir, word};
    }
    if (n > 0)
        memcpy(out + first, settings->items, (size_t)n * sizeof(*out));
    *out_n = n + first;
    return 0;
}

int pp_cli_load_config(const char *word, const struct pp_cli_settings *settings,
                       struct pp_config **out)
{
    struct pp_setting items[PP_CLI_SETTINGS_MAX + 1];
    char path[PP_PATH_MAX], dir[PP_PATH_MAX];
    int n = 0;
    PP_TRY(collect_settings(word, settings, items, dir, &n));
    if (word)
        PP_TRY(pp_cli_find_config(word, path));
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    int rc = pp_config_load(word ? path : NULL, items, n, pp_cli_names(), &cfg);
    if (rc < 0)
        return pp_cli_config_verdict(cfg, rc);
    for (int i = 0; pp_launch_is_speaker() && i < pp_config_note_count(cfg); i++)
        pp_log_info("ppcli: %s", pp_config_note_text(cfg, i));
    *out = cfg;
    cfg = NULL;
    return 0;
}

int pp_cli_load_sweep(const char *word, const struct pp_cli_settings *settings,
                      struct pp_sweep *out)
{
    const struct pp_settings all = {settings->items, settings->n};
    int rc = pp_sweep_load(pp_cli_find_config, word, &all, pp_cli_names(), out);
    return out->configs ? pp_cli_config_verdict(out->configs[0], rc) : rc;
}

int pp_cli_config_verdict(const struct pp_config *cfg, int rc)
{
    if (rc != PP_ECONFIG || !cfg || pp_config_problem_count(cfg) == 0)
        return rc;
    if (!pp_launch_is_speaker()) /* the rank that speaks reports it */
        return pp_fail(PP_ECONFIG, "%s", pp_config_problem_text(cfg, 0));
    print_problems(cfg);
    return pp_config_verdict(cfg);
}

/* Returns whether the user's own files of a split are missing. */
static bool lacks_files(const struct pp_config *cfg, enum pp_split split)
{
    int n;
    return pp_dataset_count(cfg, split, &n) == PP_ENOINPUT;
}

int pp_cli_look_verdict(const struct pp_config *cfg, int rc)
{
    PP_TRY(rc == PP_ENOINPUT && cfg ? 0 : pp_cli_config_verdict(cfg, rc));
    if (rc != PP_ENOINPUT || !cfg)
        return rc;
    const struct pp_dataset_info *info = pp_dataset_info(cfg->data.dataset);
    const char *type = cfg->model.type, *shape = cfg->data.shape;
    char said[PP_ERROR_TEXT_MAX], keys[160] = "";
    snprintf(said, sizeof(said), "%s", pp_error_get()->text);
    bool lacks[2] = {lacks_files(cfg, PP_SPLIT_TRAIN), lacks_files(cfg, PP_SPLIT_TEST)};
    const struct {
        const char *name;
        bool wanted;
    } of[] = {
        {"data.train_samples", lacks[0] && !info->windows && cfg->data.train_samples == 0},
        {"data.test_samples", lacks[1] && !info->windows && cfg->data.test_samples == 0},
        {"model.vocab_size", lacks[0] && (info->windows || info->element == PP_U16) &&
                                 cfg->model.vocab_size == 0 && cfg->data.tokens != PP_TOKENS_BYTES},
        {"model.classes",
         lacks[0] && pp_has_word("encoder resnet", type) && cfg->model.classes == 0},
        {"data.shape", lacks[0] && pp_has_word("sequential resnet", type) &&
                           (!shape[0] || strcmp(shape, "model") == 0)},
    };
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        if (of[i].wanted)
            pp_text_add(keys, sizeof(keys), "%s%s", keys[0] ? ", " : "", of[i].name);
    return keys[0] ? pp_fail(rc, "%s; set %s to look at this config without its files", said, keys)
                   : pp_fail(rc, "%s", said);
}
