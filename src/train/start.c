/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the ranks of a config, as threads or under mpirun, and reports how they ended. */
#include "train.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/cluster/launch.h"
#include "ppcli/base/base.h"
#include "ppcli/plan/search.h"

#define TELL_S "60" /* used as run.hang_timeout if there is no config */

/* Checks the config for errors that every process would report, and then starts mpirun. */
static int launch_processes(struct pp_config *cfg, const char *word,
                            const struct pp_train_options *options)
{
    struct pp_run run;
    if (options->stop) /* only a training has it */
        PP_TRY(pp_run_check(cfg));
    if (!pp_choose_wanted(cfg) && !pp_layout_runs_program(cfg)) { /* rank 0 runs the program */
        PP_TRY(pp_run_prepare(cfg, PP_RUN_EXPLAIN, &run));
        pp_run_fini(&run);
    }
    if (cfg->run.retries == 0 || !options->stop)
        return pp_launch_mpirun(cfg, word, cfg->pipeline.stages * cfg->pipeline.replicas);
    return pp_launch_retry(cfg, word, options->resume, options->stop);
}

int pp_start_same(struct pp_config *const *configs, int n, const char *given, char **out)
{
    char program[PP_SHA256_HEX] = "";
    size_t bytes;
    *out = NULL;
    if (pp_mpi_launched())
        PP_TRY(pp_path_digest("/proc/self/exe", program));
    FILE *f = open_memstream(out, &bytes);
    if (!f)
        return pp_fail_errno(PP_ERESOURCE, "cannot write the config into memory");
    fprintf(f, "program = %s, sha256 %.16s\n%s", PP_VERSION, program, given);
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = pp_config_write_same(configs[i], f);
    PP_TRY(pp_text_close(f, out, "the config"));
    PP_TRY_UNDO(rc, free(*out));
    return 0;
}

enum pp_start_others pp_start_others = PP_START_ALONE;

int pp_start_tell_others(int rc, pp_lost *lost)
{
    struct pp_world world;
    bool waits = pp_start_others == PP_START_JOIN && pp_mpi_launched() && !pp_world_was_opened();
    PP_OWN_MEMORY struct pp_config *cfg = waits ? pp_alloc(1, sizeof(*cfg)) : NULL;
    if (!cfg)
        return rc;
    if (pp_config_with(cfg, "run.hang_timeout", TELL_S, cfg) < 0)
        return rc;
    return pp_world_open(cfg, rc, "", lost, &world);
}

bool pp_start_told_others(void)
{
    return pp_start_others == PP_START_KNOW || pp_world_was_opened();
}

int pp_start_check(const struct pp_config *cfg)
{
    int rc = pp_launch_check(cfg, 0);
    if (rc < 0)
        pp_start_others = PP_START_KNOW;
    return rc;
}

int pp_start_begin(const char *word, struct pp_config *cfg, const char *given,
                   struct pp_train_options *options, struct pp_start *out)
{
    *out = (struct pp_start){.speaks = true};
    PP_TRY(pp_start_check(cfg));
    if (pp_launch_wanted(cfg)) {
        return strcmp(word, "-") == 0
                   ? pp_fail(PP_EUSAGE, "a config on standard input cannot reach several "
                                        "processes: give a file")
                   : launch_processes(cfg, word, options);
    }
    options->name = pp_config_name(cfg);
    options->quiet = pp_log_level() == PP_LOG_QUIET;
    char *same;
    PP_TRY(pp_start_same(&cfg, 1, given, &same));
    int rc = pp_world_open(cfg, 0, same, options->lost, &out->world);
    free(same);
    PP_TRY(rc);
    out->open = true;
    pp_deadline_heed(out->world.deadline, options->stop);
    options->pulse = out->world.pulse;
    rc = options->stop ? pp_run_check(cfg) : 0;
    if (out->world.tp)
        rc = pp_transport_agree(out->world.tp, rc);
    rc = rc < 0 ? rc : pp_world_check_size(cfg, out->world.tp);
    rc = rc < 0 ? rc : pp_choose(cfg, PP_RUN_REAL, out->world.tp);
    pp_world_ready(&out->world);
    out->works = rc == 0;
    out->speaks = rc == 0 || !out->world.tp || out->world.tp->rank == 0;
    return rc;
}
