/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli eval: how good are the weights of a checkpoint? */
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/log.h"
#include "ppcli/run.h"
#include "command.h"
#include "last_words.h"
#include "launch.h"

static void help(FILE *f)
{
    fputs("  ppcli eval mnist.ini --checkpoint runs/a                 its newest checkpoint\n"
          "  ppcli eval mnist.ini --checkpoint weights.safetensors    weights from elsewhere\n"
          "  ppcli eval mnist.ini --checkpoint runs/a --stages 4      on four ranks\n"
          "\n"
          "Tests the weights with the test set of the config's data: accuracy and loss, the same\n"
          "for any number of stages. Nothing is trained and nothing is written.\n",
          f);
}

static int run(int argc, char **argv)
{
    struct pp_train_options eval = {.out = stdout, .before_abort = last_words_before_abort};
    struct pp_cli_settings settings = {0};
    const char *format = "text";
    void (*leave)(int rc) = pp_cli_leave();
    eval.lost = leave ? last_words_lost : NULL;
    eval.ctx = &leave;
    const struct pp_cli_option options[] = {
        {"checkpoint", 0, PP_CLI_STRING, &eval.evaluate, "PATH",
         "checkpoint, run folder or safetensors file"},
        {"format", 0, PP_CLI_STRING, &format, "text|json", "how the answer looks; text"},
        {0},
    };
    const char *words[1];
    bool done;
    PP_TRY(pp_cli_parse(argc, argv, &command_eval, options, &settings, words, 1, &done));
    if (done) {
        return 0;
    }
    if (!words[0] || !eval.evaluate || !eval.evaluate[0]) {
        return pp_fail(PP_EUSAGE, "evaluate what? For example: ppcli eval mnist.ini "
                                  "--checkpoint runs/a");
    }
    eval.json = strcmp(format, "json") == 0;
    if (!eval.json && strcmp(format, "text") != 0) {
        return pp_fail(PP_EUSAGE, "no format '%s'; there are text and json", format);
    }
    struct pp_config *cfg = NULL;
    PP_TRY(pp_cli_load_config(words[0], &settings, &cfg));
    bool speaks = true;
    int rc;
    if (cfg->run.launch == PP_LAUNCH_MPIRUN && !pp_mpi_launched(NULL)) {
        rc = launch_mpirun(cfg->pipeline.stages * cfg->pipeline.replicas);
    } else {
        eval.name = pp_config_name(cfg);
        eval.quiet = pp_log_level() == PP_LOG_QUIET;
        rc = pp_train(cfg, &eval, &speaks);
        if (rc == PP_ECONFIG && speaks && pp_config_problem_count(cfg) > 0) {
            rc = pp_cli_config_verdict(cfg);
        }
    }
    pp_config_destroy(&cfg);
    return rc;
}

const struct pp_command command_eval = {
    .name = "eval",
    .summary = "test the weights of a checkpoint",
    .words = "CONFIG",
    .run = run,
    .help = help,
};
