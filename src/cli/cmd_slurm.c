/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli slurm: the batch script of a run on a Slurm cluster, made of share/cli/sbatch.txt. */
#include <string.h>

#include "ppcli/comm/transport.h"
#include "command.h"

int cmd_slurm(int argc, char **argv)
{
    struct pp_slurm_job j = {0};
    struct pp_cli_settings settings = {0};
    const char *words[1], *out = NULL;
    const struct pp_cli_option options[] = {
        {"nodes", 0, PP_CLI_INT, &j.nodes, "N", "how many; 1, or what --ranks-per-node needs"},
        {"ranks-per-node", 0, PP_CLI_INT, &j.ranks, "N", "ranks over nodes"},
        {"time", 0, PP_CLI_STRING, &j.time, "TIME", "limit of a job: 90 (minutes), 1:30:00, 2-12"},
        {"save", 0, PP_CLI_INT, &j.save, "SECONDS", "for saving before that; 120"},
        {"partition", 0, PP_CLI_STRING, &j.partition, "NAME", "as sbatch"},
        {"account", 0, PP_CLI_STRING, &j.account, "NAME", "as sbatch"},
        {"output", 'o', PP_CLI_STRING, &out, "FILE", "write there; standard output"},
        {0},
    };
    char config[PP_PATH_MAX];
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_TRY(pp_cli_parse(argc, argv, &command_slurm, options, &settings, words, 1));
    if (!words[0] || strcmp(words[0], "-") == 0) {
        return pp_fail(
            PP_EUSAGE,
            "name a config file. For example: ppcli slurm mnist.ini --nodes 2 --time 1:00:00");
    }
    if (!pp_world_version()[0])
        return pp_fail(PP_ERESOURCE,
                       "this ppcli was built without MPI, which the ranks of a job need");
    PP_TRY(pp_cli_find_config(words[0], config));
    PP_TRY(pp_cli_load_config(config, &settings, &cfg));
    j.config = config;
    j.settings = (struct pp_settings){settings.items, settings.n};
    PP_TRY(pp_slurm_check(cfg, &j));
    return pp_cli_name_file(pp_slurm_write(cfg, &j, text_sbatch, out), out);
}
