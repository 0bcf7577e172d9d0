/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli reproduce: train the config of a run again, and compare every checkpoint and loss. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"
#include "ppcli/show/report.h"
#include "command.h"

/* The new run. */
struct again {
    const char *word; /* the original */
    char dir[PP_PATH_MAX];
    bool temporary;        /* the folder is removed at the end */
    struct pp_config *cfg; /* owned: config of the part that was trained last */
    struct pp_train_options options;
};

/* ---- the folder */

/* Removes a folder and what is in it; links are not followed. */
static int remove_tree(const char *path)
{
    PP_OWN_MEMORY char **names = NULL;
    struct stat st;
    PP_TRY(pp_path_stat(path, false, &st));
    if (!S_ISDIR(st.st_mode))
        return unlink(path) == 0 ? 0 : pp_fail_errno(0, "cannot remove %s", path);
    PP_TRY(pp_dir_names(path, &names));
    for (char **name = names; *name; name++) {
        char one[PP_PATH_MAX];
        PP_TRY(pp_path_format(one, "%s/%s", path, *name));
        PP_TRY(remove_tree(one));
    }
    return rmdir(path) == 0 ? 0 : pp_fail_errno(0, "cannot remove %s", path);
}

/* Takes the folder of --dir, or makes a temporary one. */
static int take_folder(const struct pp_cli_settings *settings, struct again *a)
{
    const char *tmp = getenv("TMPDIR");
    for (int i = 0; i < settings->n; i++)
        if (strcmp(settings->items[i].key, "run.dir") == 0)
            snprintf(a->dir, sizeof(a->dir), "%s", settings->items[i].value);
    if (a->dir[0])
        return 0;
    if (pp_mpi_launched())
        return pp_fail(PP_EUSAGE, "several processes need one folder for the new run: add --dir");
    PP_TRY(pp_path_format(a->dir, "%s/ppcli-reproduce-XXXXXX", tmp && tmp[0] ? tmp : "/tmp"));
    if (!mkdtemp(a->dir))
        return pp_fail_errno(0, "cannot make a folder %s", a->dir);
    a->temporary = true;
    return 0;
}

/* Removes the temporary folder; keeps the error record. */
static void leave_folder(struct again *a)
{
    struct pp_error why = *pp_error_get();
    if (a->temporary && remove_tree(a->dir) < 0)
        pp_log_warn("%s is left: %s", a->dir, pp_error_get()->text);
    pp_error_adopt(&why);
}

/* ---- training */

/* Loads the config of a part: that of the run, what was different then, what the user wants. */
static int load_part(const struct pp_original *o, const struct pp_original_part *part,
                     const struct pp_cli_settings *user, struct again *a)
{
    PP_TAKE(struct pp_cli_settings, all, 1);
    const struct pp_setting own[] = {
        {"run.on_epoch", "", NULL}, {"run.dir", a->dir, NULL}, {"run.retries", "0", NULL}};
    for (int i = 0; i < part->n_settings; i++)
        all->items[all->n++] = part->settings[i];
    for (int i = 0; i < user->n && all->n < PP_CLI_SETTINGS_MAX - 3; i++)
        all->items[all->n++] = user->items[i];
    for (int i = 0; i < 3; i++)
        all->items[all->n++] = own[i];
    pp_config_destroy(&a->cfg);
    PP_TRY(pp_cli_load_config(a->word, all, &a->cfg));
    if (a->temporary && pp_launch_wanted(a->cfg))
        return pp_fail(PP_EUSAGE,
                       "several processes need one folder for the new run: add --dir, or "
                       "--launch threads");
    return pp_original_check(o, a->cfg);
}

/* Trains a part. *out_done: this process has trained it, and reports. */
static int train_part(const struct pp_original_part *part, bool is_first, struct again *a,
                      bool *out_done)
{
    struct pp_start start;
    a->options.replay = &part->replay;
    a->options.allow = part->allow;
    a->options.resume = is_first ? NULL : "auto";
    int rc = pp_start_begin(a->word, a->cfg, pp_cli_given(), &a->options, &start);
    a->options.quiet = true;
    if (start.works)
        rc = pp_train(a->cfg, &a->options, &start.speaks);
    *out_done = start.works && start.speaks;
    rc = pp_cli_end(&start, a->cfg, rc);
    /* the original stopped there, or diverged there, too */
    bool as_told = rc == PP_ESTOPPED && pp_process_stop == 0;
    if (start.works && (as_told || rc == PP_EDIVERGED)) {
        if (!as_told)
            pp_log_info("%s", pp_error_get()->text);
        pp_error_clear();
        return 0;
    }
    return rc;
}

static int reproduce(const struct pp_original *o, const struct pp_cli_settings *user,
                     struct again *a)
{
    struct pp_original_part part;
    bool done = false;
    for (int i = 0; pp_original_part(o, i, &part); i++) {
        PP_TRY(load_part(o, &part, user, a));
        PP_TRY(train_part(&part, i == 0, a, &done));
    }
    return done ? pp_original_compare(o, a->cfg, a->dir, stdout) : 0;
}

int cmd_reproduce(int argc, char **argv)
{
    struct again a = {.options = pp_cli_train_options()};
    PP_TAKE(struct pp_cli_settings, settings, 1);
    const struct pp_cli_option none[] = {{0}};
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_reproduce, none, settings, words, 1));
    if (!words[0])
        return pp_fail(PP_EUSAGE, "name a run folder. For example: ppcli reproduce runs/a");
    bool is_run = false;
    PP_TRY(pp_cli_is_run(words[0], &is_run));
    if (!is_run)
        return pp_cli_refuse_run(words[0], "name the folder of a run");
    PP_OWN(pp_original_close) struct pp_original *o = NULL;
    PP_TRY(pp_original_open(words[0], &o));
    a.word = words[0];
    a.options.stop = &pp_process_stop;
    PP_OWN(pp_fclose_at) FILE *nowhere = fopen("/dev/null", "w");
    if (!nowhere)
        return pp_fail_errno(0, "/dev/null");
    a.options.out = nowhere;
    PP_TRY(take_folder(settings, &a));
    int rc = reproduce(o, settings, &a);
    leave_folder(&a);
    pp_config_destroy(&a.cfg);
    return rc;
}
