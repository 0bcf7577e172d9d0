/* SPDX-License-Identifier: Apache-2.0 */
#include "start.h"

#include <string.h>

#include "ppcli/best.h"
#include "ppcli/err.h"
#include "ppcli/log.h"
#include "command.h"
#include "last_words.h"
#include "launch.h"

int start_run(const char *word, struct pp_config *cfg, struct pp_train_options *options,
              int (*work)(struct pp_config *cfg, struct pp_train_options *options, bool *speaks,
                          void *ctx),
              void *ctx)
{
    if (cfg->run.launch == PP_LAUNCH_MPIRUN && !pp_mpi_launched(NULL)) {
        return strcmp(word, "-") == 0
                   ? pp_fail(PP_EUSAGE, "a config on standard input cannot reach several "
                                        "processes: give a file")
                   : launch_mpirun(cfg->pipeline.stages * cfg->pipeline.replicas);
    }
    void (*leave)(int rc) = pp_cli_leave();
    struct pp_world world;
    bool speaks = true;
    options->name = pp_config_name(cfg);
    options->quiet = pp_log_level() == PP_LOG_QUIET;
    options->before_abort = last_words_before_abort;
    options->lost = leave ? last_words_lost : NULL;
    options->ctx = &leave;
    PP_TRY(pp_world_open(cfg, options->lost, options->ctx, &world));
    int rc = pp_choose(cfg, PP_RUN_REAL, world.tp);
    pp_world_ready(&world);
    if (rc == 0) {
        rc = work(cfg, options, &speaks, ctx);
    } else {
        speaks = !world.tp || world.tp->rank == 0;
    }
    pp_world_close(&world);
    if (rc == PP_ECONFIG && speaks && pp_config_problem_count(cfg) > 0) {
        rc = pp_cli_config_verdict(cfg);
    }
    return rc;
}
