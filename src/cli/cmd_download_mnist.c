/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli download-mnist: put a data set where training looks for it; its folder goes to stdout. */
#include <string.h>

#include "ppcli/dataset.h"
#include "ppcli/err.h"
#include "command.h"

static void help(FILE *f)
{
    fputs("  ppcli download-mnist                        MNIST, 11 MB\n"
          "  ppcli download-mnist --dataset fashion-mnist\n"
          "  ppcli download-mnist --from /mnt/stick      from a folder with the four .gz files\n"
          "  ppcli download-mnist --from https://host/mnist\n"
          "\n"
          "Files are checked against built-in SHA-256 digests before they get their names; those\n"
          "that are there and good are left alone. Without --dir they go to\n"
          "$PPCLI_DATA_DIR/DATASET, else ${XDG_DATA_HOME:-~/.local/share}/ppcli/DATASET, where\n"
          "training looks for them. The folder is printed on stdout.\n",
          f);
}

static int check_dataset(const char *name)
{
    const struct pp_dataset_info *info = pp_dataset_info(name);
    if (info && info->fetch_command) {
        return 0;
    }
    if (info) {
        return pp_fail(PP_EUSAGE, "data set '%s' needs no download", name);
    }
    const char *near = pp_nearest(name, pp_dataset_names());
    return near ? pp_fail(PP_EUSAGE, "unknown data set '%s'; did you mean '%s'?", name, near)
                : pp_fail(PP_EUSAGE, "unknown data set '%s'; see 'ppcli keys data.dataset'", name);
}

static int run(int argc, char **argv)
{
    const char *dir = NULL;
    const char *from = NULL;
    const char *dataset = "mnist";
    const struct pp_cli_option options[] = {
        {"dataset", 0, PP_CLI_STRING, &dataset, "mnist|fashion-mnist", "which one (mnist)"},
        {"dir", 0, PP_CLI_STRING, &dir, "DIR", "put the files here"},
        {"from", 0, PP_CLI_STRING, &from, "URL-or-DIR", "take them from here, not from a mirror"},
        {0},
    };
    bool done;
    PP_TRY(pp_cli_parse(argc, argv, &command_download_mnist, options, NULL, NULL, 0, &done));
    if (done) {
        return 0;
    }
    PP_TRY(check_dataset(dataset));
    char standard[PP_PATH_MAX];
    if (!dir) {
        PP_TRY(pp_data_dir(dataset, standard));
        dir = standard;
    }
    PP_TRY(pp_fetch_dataset(dataset, from, dir));
    printf("%s\n", dir);
    return 0;
}

const struct pp_command command_download_mnist = {
    .name = "download-mnist",
    .summary = "fetch MNIST or Fashion-MNIST, checked by digest",
    .one_rank = true,
    .run = run,
    .help = help,
};
