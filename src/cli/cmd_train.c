/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli train: load the config, start the ranks, report. */
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/log.h"
#include "ppcli/run.h"
#include "command.h"
#include "launch.h"

static void help(FILE *f)
{
    fputs("  ppcli train mnist.ini                        train as the config says\n"
          "  ppcli train mnist.ini --stages 4 --epochs 1  the same with other values\n"
          "  ppcli train mnist.ini --launch mpirun        one process per rank\n"
          "  mpirun -np 2 ppcli train mnist.ini           the same, started by hand\n"
          "\n"
          "Trains, evaluates after every epoch, and leaves metrics.jsonl, summary.json and\n"
          "config.resolved.ini in the run folder (runs/NAME-TIME unless --dir says another;\n"
          "--dir '' writes nothing). Log lines and the summary go to stdout, the story of the\n"
          "run and the live status line to stderr.\n",
          f);
}

static void print_before_abort(void)
{
    fprintf(stderr, "ppcli: error: %s\n", pp_error_get()->text);
}

static int run(int argc, char **argv)
{
    struct pp_train_options train = {.out = stdout, .before_abort = print_before_abort};
    struct pp_cli_settings settings = {0};
    const struct pp_cli_option options[] = {
        {"overwrite", 0, PP_CLI_FLAG, &train.overwrite, NULL,
         "write into a run folder that is not empty"},
        {0},
    };
    const char *words[1];
    bool done;
    PP_TRY(pp_cli_parse(argc, argv, &command_train, options, &settings, words, 1, &done));
    if (done) {
        return 0;
    }
    if (!words[0]) {
        return pp_fail(PP_EUSAGE, "train which config? For example: ppcli train mnist.ini");
    }
    struct pp_config *cfg = NULL;
    PP_TRY(pp_cli_load_config(words[0], &settings, &cfg));
    int rc;
    if (cfg->run.launch == PP_LAUNCH_MPIRUN && !pp_mpi_launched(NULL)) {
        rc = strcmp(words[0], "-") == 0
                 ? pp_fail(PP_EUSAGE, "a config on standard input cannot reach several processes: "
                                      "give a file")
                 : launch_mpirun(cfg->pipeline.stages * cfg->pipeline.replicas);
    } else {
        bool speaks = true;
        train.name = pp_config_name(cfg);
        train.quiet = pp_log_level() == PP_LOG_QUIET;
        rc = pp_train(cfg, &train, &speaks);
        if (rc == PP_ECONFIG && speaks && pp_config_problem_count(cfg) > 0) {
            rc = pp_cli_config_verdict(cfg);
        }
    }
    pp_config_destroy(&cfg);
    return rc;
}

const struct pp_command command_train = {
    .name = "train",
    .summary = "train a config; report loss, accuracy, throughput and bubble",
    .words = "CONFIG",
    .run = run,
    .help = help,
};
