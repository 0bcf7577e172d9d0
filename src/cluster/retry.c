/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts a run again when it loses a rank, a host or mpirun: from the newest checkpoint that a host
 * has, on the hosts that answer, and if there are too few places, divided as ppcli tune would
 * divide it. Each try has the user's command line with a few words added; of two values for one key
 * the last counts.
 */
#include "tries.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "ppcli/ckpt/checkpoint.h"
#include "ppcli/conf/config.h"
#include "ppcli/base/base.h"
#include "hosts.h"
#include "ppcli/plan/search.h"

#define WAIT_MAX_S 60
#define ASK_OFTEN_S 20 /* hosts that are too few are asked every second, then ... */
#define ASK_EVERY_S 10
#define MEASURE_S 1.0
#define KEYS_MAX 32 /* that a try may change */

struct retry {
    struct pp_config now; /* of this try */
    const struct pp_config *cfg;
    const char *from;                  /* --resume; NULL: not given */
    const volatile sig_atomic_t *stop; /* the signal that asked to end; 0: none */
    int64_t step;                      /* of the newest checkpoint; -1: there is none */
    bool taken;                        /* a try has begun to write into the run folder */
    struct stat before; /* its config.resolved.ini before the first try; st_ino 0: none */
    char dir[PP_PATH_MAX + 8], resume[32], hosts[PP_TEXT_MAX + 8];
    char keys[KEYS_MAX][PP_CUT_MAX + 64];
    const char *words[KEYS_MAX + 8]; /* after the user's own; NULL-terminated */
};

/* Whether another try may succeed. A full disk would still be full, and a complete run needs no
 * try. */
static bool can_retry(int rc, const struct launch_end *end, int tried)
{
    int code = rc < 0 ? rc : -end->code;
    return !end->asked && (code == PP_ELOST || (code == PP_EIO && !end->full) ||
                           (rc == PP_ERESOURCE && (end->started || tried > 0)));
}

/* Names one run folder for all tries. */
static int name_run_folder(struct retry *a, const char *name)
{
    if (strcmp(a->cfg->run.dir, "auto") == 0 && !a->from)
        PP_TRY(pp_run_dir_name(name, a->now.run.dir));
    snprintf(a->dir, sizeof(a->dir), "--dir=%s", a->now.run.dir);
    return 0;
}

/* Reads the state of the config that a run writes into its folder first; *out is all zero if this
 * machine sees none. */
static void stat_run_config(const struct retry *a, struct stat *out)
{
    char path[PP_PATH_MAX];
    memset(out, 0, sizeof(*out));
    if (pp_path_format(path, "%s/" PP_RUN_DIR_CONFIG, a->now.run.dir) < 0 || stat(path, out) != 0)
        out->st_ino = 0;
    pp_error_clear();
}

/* Notes whether a try has taken the run folder; until then the files in it are another run's. A
 * folder that only other hosts see counts as taken once rank 0 has begun. */
static void note_taken(struct retry *a, const struct launch_end *end)
{
    struct stat st;
    stat_run_config(a, &st);
    bool is_new = st.st_ino != 0 &&
                  (st.st_ino != a->before.st_ino || st.st_mtim.tv_sec != a->before.st_mtim.tv_sec ||
                   st.st_mtim.tv_nsec != a->before.st_mtim.tv_nsec);
    bool unseen = a->cfg->run.hosts[0] && st.st_ino == 0 && a->before.st_ino == 0;
    a->taken = a->taken || is_new || (unseen && end->ranks);
}

int hosts_set_links(struct pp_costs *c, const struct pp_hosts *hosts, const struct pp_preflight *p)
{
    int n = 0, ranks = 0;
    for (int i = 0; i < p->n * p->n; i++) {
        const struct pp_way *w = &p->ways[i];
        if (w->state == PP_WAY_OPEN && w->link.byte > 0) {
            c->far.latency = fmax(c->far.latency, w->link.latency);
            c->far.byte = fmax(c->far.byte, w->link.byte);
        }
    }
    for (int i = 0; i < hosts->n; i++)
        ranks += hosts->items[i].ranks;
    c->one_wire = true;
    if (c->far.byte <= 0 || ranks == 0)
        return 0;
    PP_TAKE(int, host, ranks);
    for (int i = 0; i < hosts->n; i++)
        for (int k = 0; k < hosts->items[i].ranks; k++)
            host[n++] = i;
    return pp_costs_hosts(c, host, n);
}

/* The shape that ppcli tune would take of at most so many stages; PP_ECONFIG: there is none.
 * Micro-batches stay: the bits depend on them. */
static int search_shape(struct retry *a, const struct pp_hosts *hosts, const struct pp_preflight *p,
                        int most)
{
    PP_TAKE(struct pp_division, shapes, most);
    PP_OWN(pp_model_destroy) struct pp_model *model = NULL;
    PP_OWN(pp_costs_destroy) struct pp_costs *costs = NULL;
    PP_OWN(pp_rows_fini) struct pp_rows best = {0};
    PP_OWN_MEMORY struct pp_config *chosen = NULL;
    int train_n, test_n;
    PP_TRY(pp_run_samples(&a->now, PP_RUN_EXPLAIN, PP_SPLIT_TRAIN, &train_n));
    PP_TRY(pp_run_samples(&a->now, PP_RUN_EXPLAIN, PP_SPLIT_TEST, &test_n));
    PP_TRY(pp_run_model(&a->now, &model));
    struct pp_space spec = pp_space_of(&a->now, model, train_n, test_n);
    spec.shapes = shapes;
    spec.n_shapes = most;
    spec.memory = pp_preflight_memory(p, hosts, a->cfg->run.memory);
    spec.cuts = spec.recompute = true;
    for (int i = 0; i < most; i++) {
        shapes[i] = spec.base;
        shapes[i].stages = i + 1;
    }
    PP_TRY(pp_best_measure(&spec, MEASURE_S, &costs));
    costs->cores = most * a->now.pipeline.replicas;
    PP_TRY(hosts_set_links(costs, hosts, p));
    PP_TRY(pp_search(&spec, costs, &best));
    if (best.n == 0)
        return pp_fail(PP_ECONFIG, "no shape of at most %d stages can run", most);
    PP_TAKE(struct pp_division, d, 1);
    PP_TAKE(int64_t, ticks, PP_NUMBERS_MAX);
    PP_TRY(pp_best_division(&spec, costs, &best.items[0], ticks, d));
    PP_TRY(pp_division_config(d, model, &a->now, &chosen));
    a->now.pipeline = chosen->pipeline;
    return 0;
}

/* Fits the run to the remaining places. Keeps the number of replicas as long as possible, because
 * with another number the sums over them have other bits. */
static int fit_to_places(struct retry *a, const struct pp_hosts *hosts,
                         const struct pp_preflight *p, int places)
{
    int stages = a->cfg->pipeline.stages, d = a->cfg->pipeline.replicas;
    a->now.pipeline = a->cfg->pipeline;
    if (places >= stages * d)
        return 0;
    a->now.pipeline.slower.n = 0; /* of ranks that there are no more */
    for (; d >= 1; d--) {
        a->now.pipeline.replicas = d;
        if (places >= d &&
            search_shape(a, hosts, p, places / d < stages ? places / d : stages) == 0)
            return 0;
    }
    struct pp_error why = *pp_error_get();
    return places == 0
               ? pp_fail(PP_ELOST, "no remaining host can continue the run")
               : pp_fail(PP_ELOST, "the remaining hosts cannot continue the run: %s", why.text);
}

/* Finds the hosts that answer, and what can run on them. PP_ELOST: nothing can. says: warn about
 * hosts that do not answer. */
static int choose_hosts(struct retry *a, const char *word, bool says)
{
    static struct pp_hosts hosts; /* too large for a small stack */
    PP_OWN(pp_preflight_fini) struct pp_preflight p = {0};
    const struct pp_config *cfg = a->cfg;
    int places = 0, left = 0, used_hosts = 0;
    char *out = a->now.run.hosts;
    snprintf(out, sizeof(a->now.run.hosts), "%s", cfg->run.hosts);
    PP_TRY(pp_preflight_left(&a->now, word, cfg->pipeline.stages * cfg->pipeline.replicas, &hosts,
                             &p));
    a->step = -1;
    for (int i = 0; i < hosts.n; i++) {
        const struct pp_host_facts *h = &p.hosts[i];
        if (h->wrong[0] && says)
            pp_log_warn("without host %s: %s", h->name, h->wrong);
        places += hosts.items[i].ranks;
        if (!h->wrong[0] && h->newest > a->step)
            a->step = h->newest;
    }
    int rc = fit_to_places(a, &hosts, &p, places);
    left = a->now.pipeline.stages * a->now.pipeline.replicas;
    for (out[0] = '\0'; rc == 0 && left > 0; used_hosts++) {
        int best = -1; /* the host with the newest checkpoint is among them */
        for (int i = 0; i < hosts.n; i++)
            if (hosts.items[i].ranks > 0 && (best < 0 || p.hosts[i].newest > p.hosts[best].newest))
                best = i;
        int n = hosts.items[best].ranks < left ? hosts.items[best].ranks : left;
        pp_text_add(out, sizeof(a->now.run.hosts), "%s%s:%d", used_hosts > 0 ? "," : "",
                    hosts.items[best].name, n);
        hosts.items[best].ranks = 0;
        left -= n;
    }
    int copies = cfg->checkpoint.copies;
    a->now.checkpoint.copies = copies < used_hosts ? copies : used_hosts - 1;
    return rc;
}

static int fail_between_tries(void)
{
    return pp_fail(PP_ESTOPPED, "between two tries; continue with the same command and --resume");
}

/* Waits. PP_ESTOPPED if the user asked to end. */
static int wait_seconds(const struct retry *a, int seconds)
{
    for (int k = 0; k < 10 * seconds; k++) {
        if (*a->stop != 0)
            return fail_between_tries();
        pp_clock_nap(100000000);
    }
    return 0;
}

/* Asks the hosts repeatedly, as long as they are too few for the run, because hosts may come back.
 * *seconds: increased by the time waited. */
static int wait_for_hosts(struct retry *a, const char *word, double *seconds)
{
    const double limit = a->cfg->run.host_wait;
    uint64_t begun = pp_clock_ns();
    double passed = 0;
    for (int asked = 0;; asked++) {
        pp_error_clear();
        int rc = choose_hosts(a, word, asked == 0);
        passed = (double)(pp_clock_ns() - begun) * 1e-9;
        if (rc != PP_ELOST || passed >= limit) {
            *seconds += passed;
            return rc;
        }
        if (asked == 0)
            pp_log_warn("%s; asking the hosts again for up to %.3g s (run.host_wait)",
                        pp_error_get()->text, limit);
        PP_TRY(wait_seconds(a, passed < ASK_OFTEN_S ? 1 : ASK_EVERY_S));
    }
}

/* Adds words for the keys that have another value in this try. */
static int add_changed_keys(struct retry *a, int n)
{
    static char value[PP_CUT_MAX], given[PP_CUT_MAX];
    for (int k = 0, i = 0; k < pp_config_key_count() && i < KEYS_MAX; k++) {
        const char *name = pp_config_key_name(k);
        if (strncmp(name, "pipeline.", 9) != 0 && strcmp(name, "checkpoint.copies") != 0)
            continue;
        if (pp_config_key_value(&a->now, k, value, sizeof(value)) == 0 &&
            pp_config_key_value(a->cfg, k, given, sizeof(given)) == 0 &&
            strcmp(value, given) != 0) {
            snprintf(a->keys[i], sizeof(a->keys[i]), "--set=%s=%s", name, value);
            a->words[n++] = a->keys[i++];
        }
    }
    return n;
}

static void set_try_words(struct retry *a)
{
    const struct pp_config *c = &a->now;
    int n = 0;
    if (c->run.dir[0] && strcmp(c->run.dir, "auto") != 0)
        a->words[n++] = a->dir;
    if (a->resume[0])
        a->words[n++] = a->resume;
    n = add_changed_keys(a, n);
    if (c->run.hosts[0]) {
        snprintf(a->hosts, sizeof(a->hosts), "--hosts=%s", c->run.hosts);
        a->words[n++] = a->hosts;
    }
    a->words[n] = NULL;
}

/* Chooses how the next try begins, after the user's own words. */
static void choose_beginning(struct retry *a)
{
    /* The user's explicit beginning counts until this run has a checkpoint. */
    bool named = a->from && strcmp(a->from, "auto") != 0;
    snprintf(a->resume, sizeof(a->resume), "%s",
             !a->now.run.dir[0] || !a->taken ? ""
             : a->step < 0 && named          ? "--overwrite"
                                             : "--resume=auto");
    if (!a->taken && (named || !a->from))
        a->step = -1; /* the checkpoints there are another run's */
}

static int prepare_next(struct retry *a, const char *word, int tried)
{
    int wait = tried < 6 ? 1 << tried : WAIT_MAX_S, n = 0;
    double seconds = wait;
    int64_t *steps = NULL;
    PP_TRY(wait_seconds(a, wait));
    a->step = pp_ckpt_list(a->now.run.dir, &steps, &n) == 0 && n > 0 ? steps[0] : -1;
    pp_free(steps);
    if (a->cfg->run.hosts[0])
        PP_TRY(wait_for_hosts(a, word, &seconds));
    choose_beginning(a);
    char after[48] = "the beginning";
    if (a->step >= 0)
        snprintf(after, sizeof(after), "step %" PRId64, a->step);
    bool fewer = a->now.pipeline.stages != a->cfg->pipeline.stages ||
                 a->now.pipeline.replicas != a->cfg->pipeline.replicas;
    pp_log_warn("try %d of %d after %.0f s, from %s, %d stages%s%s%s%s: %s", tried + 2,
                a->cfg->run.retries + 1, seconds, after, a->now.pipeline.stages,
                fewer ? " of " : "", fewer ? a->now.pipeline.schedule : "",
                a->now.run.hosts[0] ? " on " : "", a->now.run.hosts,
                a->now.pipeline.replicas == a->cfg->pipeline.replicas
                    ? "the weights will be those of an undisturbed run"
                    : "with fewer replicas the last bits of the weights will differ");
    return 0;
}

int pp_launch_retry(const struct pp_config *cfg, const char *word, const char *from,
                    const volatile sig_atomic_t *stop)
{
    struct launch_end end = {0};
    struct retry *a;
    PP_ALLOC(a, 1);
    a->now = *cfg;
    a->cfg = cfg;
    a->from = from;
    a->stop = stop;
    int rc = pp_config_pin(cfg, word); /* all tries are one run */
    rc = rc < 0 ? rc : name_run_folder(a, pp_config_name(cfg));
    stat_run_config(a, &a->before);
    for (int tried = 0; rc == 0; tried++) {
        set_try_words(a);
        rc = launch_once(&a->now, word, a->now.pipeline.stages * a->now.pipeline.replicas, a->words,
                         &end);
        if (rc == PP_ESTOPPED && tried > 0)
            rc = fail_between_tries();
        if (tried == cfg->run.retries || !can_retry(rc, &end, tried))
            break;
        if (rc < 0)
            pp_log_warn("%s", pp_error_get()->text);
        pp_error_clear();
        note_taken(a, &end);
        rc = prepare_next(a, word, tried);
    }
    pp_free(a);
    return launch_leave(rc, &end);
}
