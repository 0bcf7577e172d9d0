/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli explain: what a config would do, before it is paid for. */
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/nn/archive.h"
#include "ppcli/show/results.h"
#include "command.h"

/* Predicts the memory with the other choice for pipeline.recompute: off if something is recomputed,
 * else all. A schedule that cannot recompute has no other choice. */
static int predict_other(struct pp_explained *e)
{
    const struct pp_layout *l = e->run.layout;
    if (e->run.division.schedule && e->run.division.schedule->proves)
        return 0;
    PP_OWN(pp_layout_destroy) struct pp_layout *other = NULL;
    struct pp_division d = e->run.division;
    bool redo = d.redo == PP_REDO_NONE;
    const char *key;
    PP_ALLOC(e->other, l->stages);
    d.redo = redo ? PP_REDO_FULL : PP_REDO_NONE;
    for (int s = 0; s < pp_division_pieces(&d); s++)
        d.recompute[s] = redo;
    PP_TRY(pp_layout_create(l->model, &d, &l->training, &other, &key));
    return pp_run_bytes(&e->run, other, l->stages, e->other);
}

static int predict_memory(struct pp_explained *e)
{
    const struct pp_layout *l = e->run.layout;
    PP_ALLOC(e->ranks, l->ranks);
    PP_TRY(pp_run_bytes(&e->run, l, l->ranks, e->ranks));
    PP_TRY(predict_other(e));
    PP_TRY(pp_predict_flops(l, &e->bubble, e->advice));
    PP_TRY(pp_bubble_equal(l->plans[0].plan, &e->equal));
    return pp_bubble_ideal(l->plans[0].plan, &e->ideal);
}

/* Prints the remarks about the values in the user's own data files, if the files exist. */
static int warn_of_data(const struct pp_explained *e)
{
    const struct pp_config *cfg = e->run.cfg;
    PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
    bool windows = pp_dataset_info(cfg->data.dataset)->windows;
    if (windows || (!cfg->data.train_file[0] && !cfg->data.train_images[0]))
        return 0;
    int rc = pp_dataset_open(cfg, PP_SPLIT_TRAIN, PP_DATA_IMAGES, &e->run.model->values[0],
                             e->run.model->classes, &ds);
    if (rc == PP_ENOINPUT) {
        pp_error_clear();
        return 0;
    }
    PP_TRY(rc);
    for (int i = 0; i < ds->n_remarks; i++)
        pp_log_warn("%s", ds->remarks[i]);
    return 0;
}

/* Warns that memory is counted incompletely if the config is for a device that is not here. */
static void warn_of_device(const struct pp_config *cfg)
{
    const struct pp_backend_choice choice = pp_backend_choice_of(cfg);
    if (!choice.ops)
        pp_log_warn(
            "run.backend = %s cannot run here, so what only a device holds is not counted: the "
            "data set, pixels of convolutions, weights in bf16",
            cfg->run.backend);
}

/* Finds what becomes of the PyTorch program that is the model, if it is one. With problems it prints
 * them all, and fails. */
static int look_at_archive(const struct pp_config *cfg, bool json, struct pp_archive **out)
{
    PP_OWN(pp_archive_destroy) struct pp_archive *a = NULL;
    const char *file = cfg->model.from;
    if (strcmp(cfg->model.type, "graph") != 0 || !file[0])
        return 0;
    PP_TRY(pp_archive_look(file, cfg->model.fuse, &a));
    if (a->n_problems > 0) {
        PP_TRY(pp_archive_print(a, NULL, json, stdout));
        return pp_fail(PP_ECONFIG, "%s: cannot be trained: %d problem%s", file, a->n_problems,
                       pp_plural(a->n_problems));
    }
    *out = a;
    a = NULL;
    return 0;
}

static void free_explained(struct pp_explained *e)
{
    pp_free(e->ranks);
    pp_free(e->other);
    pp_run_fini(&e->run);
}

static int explain_config(struct pp_config *cfg, bool json)
{
    PP_OWN(free_explained) struct pp_explained e = {0};
    PP_OWN(pp_archive_destroy) struct pp_archive *archive = NULL;
    PP_TRY(look_at_archive(cfg, json, &archive));
    e.archive = archive;
    PP_TRY(pp_run_check(cfg));
    PP_TRY(pp_choose(cfg, PP_RUN_EXPLAIN, NULL));
    PP_TRY(pp_run_prepare(cfg, PP_RUN_EXPLAIN, &e.run));
    PP_TRY(predict_memory(&e));
    PP_TRY(warn_of_data(&e));
    warn_of_device(cfg);
    return pp_explained_print(&e, json, stdout);
}

/* Shows a PyTorch program without a config. */
static int explain_archive(const char *file, struct pp_cli_settings *settings, bool json)
{
    const struct pp_data_input unknown = {0};
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_OWN(pp_archive_destroy) struct pp_archive *a = NULL;
    PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
    int positions;
    PP_TRY(pp_archive_positions(file, &positions)); /* not a program: not an error of a config */
    pp_assert(settings->n < PP_CLI_SETTINGS_MAX);
    settings->items[settings->n++] = (struct pp_setting){"model.from", file, file};
    PP_TRY(pp_cli_load_config(NULL, settings, &cfg));
    PP_TRY(look_at_archive(cfg, json, &a));
    int rc = pp_model_create(cfg, &unknown, &m);
    PP_TRY(rc == 0 || rc == PP_ECONFIG ? pp_archive_print(a, m, json, stdout) : rc);
    PP_TRY(rc);
    if (!json)
        pp_log_info("a config for it: ppcli init %s DATA -o my.ini", file);
    return 0;
}

int cmd_explain(int argc, char **argv)
{
    struct pp_cli_settings settings = {0};
    int json = 0;
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &json, "text|json", "how to print; text"},
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_explain, options, &settings, words, 1));
    if (!words[0])
        return pp_fail(PP_EUSAGE, "name a config. For example: ppcli explain mnist.ini");
    if (pp_archive_is(words[0]))
        return explain_archive(words[0], &settings, json);
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_TRY(pp_cli_load_config(words[0], &settings, &cfg));
    return pp_cli_look_verdict(cfg, explain_config(cfg, json));
}
