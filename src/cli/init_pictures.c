/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of pictures for ppcli init: read as the printed config reads it, so that the first run
 * finds the decoded pictures, and the model that the config will have. */
#include "command.h"

#include "ppcli/data/dataset.h"
#include "ppcli/base/base.h"
#include "ppcli/show/results.h"

#define SETTINGS_MAX 16

static int load_settings(const struct pp_setting *settings, int n, struct pp_config **out)
{
    int rc = pp_config_load(NULL, settings, n, pp_cli_names(), out);
    return pp_cli_config_verdict(*out, rc);
}

static int open_split(const struct pp_config *cfg, enum pp_split split, struct pp_dataset **out)
{
    PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
    PP_TRY(pp_dataset_look(cfg, split, &ds));
    return pp_dataset_open(cfg, split, PP_DATA_IMAGES, &ds->input, ds->classes, out);
}

int pp_cli_look_at_pictures(const char *folder, struct pp_images_proposal *proposal,
                            struct pp_dataset **train, struct pp_dataset **test,
                            struct pp_config **cfg, struct pp_model **model)
{
    struct pp_setting settings[SETTINGS_MAX] = {{"data.dataset", "images", "init"},
                                                {"data.path", folder, "init"}};
    char side[16], layers[512];
    int n = 2;
    PP_OWN(pp_config_destroy) struct pp_config *plain = NULL;
    PP_OWN(pp_config_destroy) struct pp_config *sized = NULL;
    PP_TRY(load_settings(settings, n, &plain));
    PP_TRY(pp_images_propose(plain, proposal));
    snprintf(side, sizeof(side), "%d", proposal->side);
    if (proposal->splits)
        settings[n++] = (struct pp_setting){"data.split", PP_INIT_SPLIT, "init"};
    if (proposal->side > 0) {
        settings[n++] = (struct pp_setting){"data.resize", side, "init"};
        settings[n++] = (struct pp_setting){"data.crop", side, "init"};
    }
    PP_TRY(load_settings(settings, n, &sized));
    PP_TRY(open_split(sized, PP_SPLIT_TRAIN, train));
    PP_TRY(open_split(sized, PP_SPLIT_TEST, test));
    for (int i = 0; i < (*train)->n_remarks; i++)
        pp_log_warn("%s", (*train)->remarks[i]);
    pp_init_layers(*train, layers, sizeof(layers));
    settings[n++] = (struct pp_setting){"model.type", "sequential", "init"};
    settings[n++] = (struct pp_setting){"model.layers", layers, "init"};
    settings[n++] = (struct pp_setting){"pipeline.stages", "2", "init"};
    settings[n++] = (struct pp_setting){"pipeline.microbatches", PP_INIT_MICROBATCHES, "init"};
    settings[n++] = (struct pp_setting){"pipeline.schedule", PP_INIT_SCHEDULE, "init"};
    settings[n++] =
        (struct pp_setting){"train.batch_size", (*train)->n < 5000 ? "32" : "64", "init"};
    PP_TRY(load_settings(settings, n, cfg));
    return pp_run_model(*cfg, model);
}
