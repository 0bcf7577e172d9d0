/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run that is started again when it loses a rank, a host or mpirun: from its newest checkpoint, on
 * the hosts that answer, with fewer stages where places are missing. Each try is the user's command
 * line and a few words behind it, of which the last ones count.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ppcli/checkpoint.h"
#include "ppcli/hosts.h"
#include "ppcli/log.h"
#include "ppcli/mem.h"
#include "ppcli/tune.h"
#include "command.h"
#include "start.h"

#define WAIT_MAX_S 60

struct again {
    struct pp_config now; /* of this try */
    const struct pp_config *cfg;
    const struct pp_train_options *options;
    char dir[PP_PATH_MAX + 8], resume[32], stages[32], replicas[32], hosts[PP_TEXT_MAX + 8];
    const char *words[8]; /* behind the user's own; NULL-terminated */
};

/* Whether another try may end better. */
static bool may_help(int rc, const struct launch_end *end, int tried)
{
    int code = rc < 0 ? rc : -end->code;
    return !end->asked && (code == PP_ELOST || code == PP_EIO ||
                           (rc == PP_ERESOURCE && (end->started || tried > 0)));
}

/* All tries write into one folder. */
static int name_folder(struct again *a, const char *name)
{
    char when[32];
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(when, sizeof(when), "%Y%m%d-%H%M%S", &tm);
    if (strcmp(a->cfg->run.dir, "auto") == 0 && !a->options->resume)
        PP_TRY(pp_path_format(a->now.run.dir, "runs/%s-%s", name, when));
    snprintf(a->dir, sizeof(a->dir), "--dir=%s", a->now.run.dir);
    return 0;
}

/* The step of the newest checkpoint; -1: there is none. */
static int64_t newest(const char *dir)
{
    int64_t *steps = NULL, step = -1;
    int n = 0;
    if (pp_ckpt_list(dir, &steps, &n) < 0)
        pp_error_clear();
    else if (n > 0)
        step = steps[0];
    pp_free(steps);
    return step;
}

static bool can_run(const struct pp_config *cfg, int stages, int replicas)
{
    struct pp_config *c = pp_alloc(1, sizeof(*c));
    struct pp_run run = {0};
    if (!c)
        return false;
    *c = *cfg;
    c->pipeline.stages = stages;
    c->pipeline.replicas = replicas;
    int rc = pp_choose_wanted(c) ? 0 : pp_run_prepare(c, PP_RUN_EXPLAIN, &run);
    pp_run_fini(&run);
    pp_free(c);
    return rc == 0;
}

/* The most ranks that `places` allow. Replicas stay as they are as long as it goes: with others the
 * sums over them have other bits. */
static bool fit(struct again *a, int places)
{
    const struct pp_config *cfg = a->cfg;
    for (int d = cfg->pipeline.replicas; d >= 1; d--) {
        int most = places / d < cfg->pipeline.stages ? places / d : cfg->pipeline.stages;
        for (int p = most; p >= 1; p--) {
            if (p == cfg->pipeline.stages || can_run(cfg, p, d)) {
                a->now.pipeline.stages = p;
                a->now.pipeline.replicas = d;
                return true;
            }
        }
    }
    return false;
}

/* What is wrong with host i; NULL: it answers, and reaches the hosts before it that do. */
static const char *wrong_with(const struct pp_preflight *p, const struct pp_hosts *hosts, int i)
{
    if (i >= p->n)
        return p->wrong;
    if (p->hosts[i].wrong[0])
        return p->hosts[i].wrong;
    for (int k = 0; k < i; k++) {
        const char *there = p->ways[k * p->n + i], *back = p->ways[i * p->n + k];
        bool no = strncmp(there, "no: ", 4) == 0;
        if (hosts->items[k].ranks > 0 && (no || strncmp(back, "no: ", 4) == 0))
            return (no ? there : back) + 4;
    }
    return NULL;
}

/* Which hosts answer, and what can run on them. */
static int choose_hosts(struct again *a, const char *word)
{
    static struct pp_hosts hosts; /* too large for a small stack */
    struct pp_preflight p = {0};
    const struct pp_config *cfg = a->cfg;
    int places = 0, left = 0;
    char *out = a->now.run.hosts;
    PP_TRY(pp_hosts_parse(cfg->run.hosts, cfg->pipeline.stages * cfg->pipeline.replicas, &hosts));
    (void)pp_preflight(cfg, word, &hosts, true, &p);
    for (int i = 0; i < hosts.n; i++) {
        const char *wrong = wrong_with(&p, &hosts, i);
        if (wrong)
            pp_log_warn("without host %s: %s", hosts.items[i].name, wrong);
        hosts.items[i].ranks = wrong ? 0 : hosts.items[i].ranks;
        places += hosts.items[i].ranks;
    }
    pp_preflight_fini(&p);
    pp_error_clear();
    if (!fit(a, places))
        return pp_fail(PP_ELOST, "no host answers that could go on with the run");
    left = a->now.pipeline.stages * a->now.pipeline.replicas;
    out[0] = '\0';
    for (int i = 0; i < hosts.n && left > 0; i++) {
        int n = hosts.items[i].ranks < left ? hosts.items[i].ranks : left;
        size_t used = strlen(out);
        if (n > 0)
            snprintf(out + used, sizeof(a->now.run.hosts) - used, "%s%s:%d", used > 0 ? "," : "",
                     hosts.items[i].name, n);
        left -= n;
    }
    return 0;
}

/* PP_ESTOPPED when the user does not want to wait for the next try. */
static int wait_for(const struct again *a, int seconds)
{
    const struct timespec a_while = {.tv_nsec = 100000000};
    for (int k = 0; k < 10 * seconds; k++) {
        if (*a->options->stop != 0)
            return pp_fail(PP_ESTOPPED, "between two tries; train continues with --resume");
        nanosleep(&a_while, NULL);
    }
    return 0;
}

static void set_words(struct again *a)
{
    const struct pp_config *c = &a->now;
    int n = 0;
    if (c->run.dir[0] && strcmp(c->run.dir, "auto") != 0)
        a->words[n++] = a->dir;
    if (a->resume[0])
        a->words[n++] = a->resume;
    if (c->pipeline.stages != a->cfg->pipeline.stages ||
        c->pipeline.replicas != a->cfg->pipeline.replicas) {
        snprintf(a->stages, sizeof(a->stages), "--stages=%d", c->pipeline.stages);
        snprintf(a->replicas, sizeof(a->replicas), "--replicas=%d", c->pipeline.replicas);
        a->words[n++] = a->stages;
        a->words[n++] = a->replicas;
    }
    if (c->run.hosts[0]) {
        snprintf(a->hosts, sizeof(a->hosts), "--hosts=%s", c->run.hosts);
        a->words[n++] = a->hosts;
    }
    a->words[n] = NULL;
}

static int prepare_next(struct again *a, const char *word, int tried)
{
    int seconds = tried < 6 ? 1 << tried : WAIT_MAX_S;
    PP_TRY(wait_for(a, seconds));
    if (a->cfg->run.hosts[0])
        PP_TRY(choose_hosts(a, word));
    /* An explicit beginning counts until there is a checkpoint of this run. */
    int64_t step = newest(a->now.run.dir);
    bool named = a->options->resume && strcmp(a->options->resume, "auto") != 0;
    snprintf(a->resume, sizeof(a->resume), "%s",
             !a->now.run.dir[0]  ? ""
             : step < 0 && named ? "--overwrite"
                                 : "--resume=auto");
    char after[48] = "the beginning";
    if (step >= 0)
        snprintf(after, sizeof(after), "step %" PRId64, step);
    pp_log_warn("try %d of %d after %d s, from %s, %d stages%s%s: %s", tried + 2,
                a->cfg->run.retries + 1, seconds, after, a->now.pipeline.stages,
                a->now.run.hosts[0] ? " on " : "", a->now.run.hosts,
                a->now.pipeline.replicas == a->cfg->pipeline.replicas
                    ? "the weights will be those of a run that nothing disturbs"
                    : "with fewer replicas the last bits of the weights will be others");
    return 0;
}

int retry_launch(const struct pp_config *cfg, const char *word,
                 const struct pp_train_options *options, struct launch_end *out)
{
    struct again *a = pp_alloc(1, sizeof(*a));
    if (!a)
        return PP_ERESOURCE;
    a->now = *cfg;
    a->cfg = cfg;
    a->options = options;
    int rc = name_folder(a, pp_config_name(cfg));
    for (int tried = 0; rc == 0; tried++) {
        set_words(a);
        rc = launch_once(&a->now, word, a->now.pipeline.stages * a->now.pipeline.replicas, a->words,
                         out);
        if (tried == cfg->run.retries || !may_help(rc, out, tried))
            break;
        if (rc < 0)
            pp_log_warn("%s", pp_error_get()->text);
        pp_error_clear();
        rc = prepare_next(a, word, tried);
    }
    pp_free(a);
    return rc;
}
