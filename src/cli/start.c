/* SPDX-License-Identifier: Apache-2.0 */
#include "start.h"

#include <string.h>

#include "ppcli/best.h"
#include "ppcli/err.h"
#include "ppcli/log.h"
#include "command.h"
#include "last_words.h"
#include "launch.h"

/* What no process can run is said once, before any is started. */
static int launch(struct pp_config *cfg)
{
    struct pp_run run;
    if (!pp_choose_wanted(cfg)) {
        int rc = pp_run_prepare(cfg, PP_RUN_EXPLAIN, &run);
        if (rc == PP_ECONFIG && pp_config_problem_count(cfg) > 0)
            return pp_cli_config_verdict(cfg);
        PP_TRY(rc);
        pp_run_fini(&run);
    }
    return launch_mpirun(cfg->pipeline.stages * cfg->pipeline.replicas);
}

int start_begin(const char *word, struct pp_config *cfg, struct pp_train_options *options,
                struct start *out)
{
    *out = (struct start){.speaks = true, .leave = pp_cli_leave()};
    if (cfg->run.launch == PP_LAUNCH_MPIRUN && !pp_mpi_launched(NULL)) {
        return strcmp(word, "-") == 0
                   ? pp_fail(PP_EUSAGE, "a config on standard input cannot reach several "
                                        "processes: give a file")
                   : launch(cfg);
    }
    options->name = pp_config_name(cfg);
    options->quiet = pp_log_level() == PP_LOG_QUIET;
    options->before_abort = last_words_before_abort;
    options->lost = out->leave ? last_words_lost : NULL;
    options->ctx = &out->leave;
    PP_TRY(pp_world_open(cfg, options->lost, options->ctx, &out->world));
    out->open = true;
    int rc = pp_choose(cfg, PP_RUN_REAL, out->world.tp);
    pp_world_ready(&out->world);
    out->works = rc == 0;
    out->speaks = rc == 0 || !out->world.tp || out->world.tp->rank == 0;
    return rc;
}

int start_end(struct start *s, struct pp_config *cfg, int rc)
{
    if (!s->open)
        return rc;
    pp_world_close(&s->world);
    if (rc == PP_ECONFIG && s->speaks && pp_config_problem_count(cfg) > 0)
        rc = pp_cli_config_verdict(cfg);
    return rc;
}
