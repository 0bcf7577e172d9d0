/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts a run again when it loses a rank, a host or mpirun: from the newest checkpoint that a host
 * has, on the hosts that answer, and if there are too few places, divided as ppcli tune would
 * divide it. A try changes a few values of the config: they are words that follow the user's own
 * command line, because the last of two values for a key counts.
 */
#include "tries.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/ckpt/checkpoint.h"
#include "ppcli/conf/config.h"
#include "ppcli/base/base.h"
#include "hosts.h"
#include "ppcli/plan/search.h"

#define WAIT_MAX_S 60
#define ASK_OFTEN_S 20 /* for this time, hosts that are too few are asked every second, */
#define ASK_EVERY_S 10 /* and later at this interval */
#define MEASURE_S 1.0

struct retry {
    const struct pp_config *cfg;       /* as the user gave it */
    const char *from;                  /* --resume; NULL if not given */
    const volatile sig_atomic_t *stop; /* the signal that asked to end, or 0 */
    char dir[PP_PATH_MAX];             /* run folder of all tries, as in run.dir */
    struct stat before; /* its config.resolved.ini before the first try; st_ino 0 if absent */
    bool taken;         /* a try has begun to write into the run folder */

    /* what the next try changes */
    struct pp_division division;   /* has a cut only if has_other_division() */
    int64_t ticks[PP_NUMBERS_MAX]; /* memory of division.ticks */
    char hosts[PP_TEXT_MAX];       /* as in run.hosts */
    int copies;                    /* as in checkpoint.copies */
    int64_t step;                  /* of the newest checkpoint, or -1 */
    const char *beginning;         /* the option that says where it begins, or NULL */
};

/* Returns whether another try may succeed. A full disk would still be full, and a complete run
 * needs no try. */
static bool can_retry(int rc, const struct launch_end *end, int tried)
{
    int code = rc < 0 ? rc : -end->code;
    return !end->asked && (code == PP_ELOST || (code == PP_EIO && !end->full) ||
                           (rc == PP_ERESOURCE && (end->started || tried > 0)));
}

/* Returns whether the next try has another division than the config, because places are missing.
 * Such a division has fewer stages or replicas. */
static bool has_other_division(const struct retry *retry)
{
    return retry->division.stages != retry->cfg->pipeline.stages ||
           retry->division.replicas != retry->cfg->pipeline.replicas;
}

/* ---- run folder */

/* Names one run folder for all tries. */
static int name_run_folder(struct retry *retry)
{
    if (strcmp(retry->cfg->run.dir, "auto") == 0 && !retry->from)
        return pp_run_dir_name(pp_config_name(retry->cfg), retry->dir);
    return pp_path_format(retry->dir, "%s", retry->cfg->run.dir);
}

/* Sets run.dir of a copy of the config to the run folder of all tries. */
static int set_run_folder(const struct retry *retry, struct pp_config *config)
{
    char here[PP_PATH_MAX], path[PP_PATH_MAX];
    if (strcmp(retry->dir, config->run.dir) == 0)
        return 0;
    if (!getcwd(here, sizeof(here)))
        return pp_fail_errno(PP_ERESOURCE, "cannot find the current folder");
    PP_TRY(pp_path_format(path, "%s/%s", here, retry->dir));
    return pp_config_with(config, "run.dir", path, config);
}

/* Reads the state of the config that a run writes into its folder first; *out is all zero if this
 * machine sees none. */
static void stat_run_config(const struct retry *retry, struct stat *out)
{
    char path[PP_PATH_MAX];
    memset(out, 0, sizeof(*out));
    if (pp_path_format(path, "%s/" PP_RUN_DIR_CONFIG, retry->dir) < 0 || stat(path, out) != 0)
        out->st_ino = 0;
    pp_error_clear();
}

/* Notes whether a try has taken the run folder; until then the files in it are another run's. A
 * folder that only other hosts see counts as taken once rank 0 has begun. */
static void note_taken(struct retry *retry, const struct launch_end *end)
{
    struct stat st;
    stat_run_config(retry, &st);
    bool is_new = st.st_ino != 0 && (st.st_ino != retry->before.st_ino ||
                                     st.st_mtim.tv_sec != retry->before.st_mtim.tv_sec ||
                                     st.st_mtim.tv_nsec != retry->before.st_mtim.tv_nsec);
    bool unseen = retry->cfg->run.hosts[0] && st.st_ino == 0 && retry->before.st_ino == 0;
    retry->taken = retry->taken || is_new || (unseen && end->ranks);
}

/* ---- division */

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

/* Copies the config for fewer ranks, without pipeline.slower, which names ranks that are gone. */
static int copy_for_fewer_ranks(const struct pp_config *cfg, int replicas, struct pp_config **out)
{
    char number[16];
    PP_OWN_MEMORY struct pp_config *copy = NULL;
    snprintf(number, sizeof(number), "%d", replicas);
    PP_TRY(pp_config_copy(cfg, &copy));
    PP_TRY(pp_config_with(copy, "pipeline.slower", "none", copy));
    PP_TRY(pp_config_with(copy, "pipeline.replicas", number, copy));
    *out = copy;
    copy = NULL;
    return 0;
}

/* Sets the division of the next try to the one that ppcli tune would choose, of at most
 * `max_stages`. Keeps the number of micro-batches, because the bits depend on it. Errors:
 * PP_ECONFIG (no division can run). */
static int search_division(struct retry *retry, const struct pp_hosts *hosts,
                           const struct pp_preflight *p, int replicas, int max_stages)
{
    PP_TAKE(struct pp_division, shapes, max_stages);
    PP_OWN(pp_model_destroy) struct pp_model *model = NULL;
    PP_OWN(pp_costs_destroy) struct pp_costs *costs = NULL;
    PP_OWN(pp_rows_fini) struct pp_rows best = {0};
    PP_OWN_MEMORY struct pp_config *config = NULL;
    int train_n, test_n;
    PP_TRY(copy_for_fewer_ranks(retry->cfg, replicas, &config));
    PP_TRY(pp_run_samples(config, PP_RUN_EXPLAIN, PP_SPLIT_TRAIN, &train_n));
    PP_TRY(pp_run_samples(config, PP_RUN_EXPLAIN, PP_SPLIT_TEST, &test_n));
    PP_TRY(pp_run_model(config, &model));
    struct pp_space spec = pp_space_of(config, model, train_n, test_n);
    /* The division outlives this copy of the config. */
    spec.base.ticks = pp_division_shape(retry->cfg).ticks;
    spec.shapes = shapes;
    spec.n_shapes = max_stages;
    spec.memory = pp_preflight_memory(p, hosts, config->run.memory);
    spec.cuts = spec.recompute = true;
    for (int i = 0; i < max_stages; i++) {
        shapes[i] = spec.base;
        shapes[i].stages = i + 1;
    }
    PP_TRY(pp_best_measure(&spec, MEASURE_S, &costs));
    costs->cores = max_stages * replicas;
    PP_TRY(hosts_set_links(costs, hosts, p));
    PP_TRY(pp_search(&spec, costs, &best));
    if (best.n == 0)
        return pp_fail(PP_ECONFIG, "no shape of at most %d stages can run", max_stages);
    return pp_best_division(&spec, costs, &best.items[0], retry->ticks, &retry->division);
}

/* Fits the run to the remaining places. Keeps the number of replicas as long as possible, because
 * with another number the sums over them have other bits. */
static int fit_to_places(struct retry *retry, const struct pp_hosts *hosts,
                         const struct pp_preflight *p, int places)
{
    int stages = retry->cfg->pipeline.stages, d = retry->cfg->pipeline.replicas;
    retry->division = pp_division_shape(retry->cfg);
    if (places >= stages * d)
        return 0;
    for (; d >= 1; d--)
        if (places >= d &&
            search_division(retry, hosts, p, d, places / d < stages ? places / d : stages) == 0)
            return 0;
    struct pp_error why = *pp_error_get();
    return places == 0
               ? pp_fail(PP_ELOST, "no remaining host can continue the run")
               : pp_fail(PP_ELOST, "the remaining hosts cannot continue the run: %s", why.text);
}

/* ---- hosts */

/* Finds the hosts that answer, and fits the run to them. warns: also warns about hosts that do not
 * answer. Errors: PP_ELOST (the run cannot continue on the remaining hosts). */
static int choose_hosts(struct retry *retry, const char *word, bool warns)
{
    static struct pp_hosts hosts; /* too large for a small stack */
    PP_OWN(pp_preflight_fini) struct pp_preflight p = {0};
    PP_OWN_MEMORY struct pp_config *config = NULL;
    const struct pp_config *cfg = retry->cfg;
    int places = 0, used_hosts = 0;
    PP_TRY(pp_config_copy(cfg, &config));
    PP_TRY(set_run_folder(retry, config));
    PP_TRY(
        pp_preflight_left(config, word, cfg->pipeline.stages * cfg->pipeline.replicas, &hosts, &p));
    retry->step = -1;
    for (int i = 0; i < hosts.n; i++) {
        const struct pp_host_facts *h = &p.hosts[i];
        if (h->wrong[0] && warns)
            pp_log_warn("without host %s: %s", h->name, h->wrong);
        places += hosts.items[i].ranks;
        if (!h->wrong[0] && h->newest > retry->step)
            retry->step = h->newest;
    }
    PP_TRY(fit_to_places(retry, &hosts, &p, places));
    retry->hosts[0] = '\0';
    for (int left = retry->division.stages * retry->division.replicas; left > 0; used_hosts++) {
        int best = -1; /* the host with the newest checkpoint is among those that are used */
        for (int i = 0; i < hosts.n; i++)
            if (hosts.items[i].ranks > 0 && (best < 0 || p.hosts[i].newest > p.hosts[best].newest))
                best = i;
        int n = hosts.items[best].ranks < left ? hosts.items[best].ranks : left;
        pp_text_add(retry->hosts, sizeof(retry->hosts), "%s%s:%d", used_hosts > 0 ? "," : "",
                    hosts.items[best].name, n);
        hosts.items[best].ranks = 0;
        left -= n;
    }
    int copies = cfg->checkpoint.copies;
    retry->copies = copies < used_hosts ? copies : used_hosts - 1;
    return 0;
}

static int fail_between_tries(void)
{
    return pp_fail(PP_ESTOPPED, "between two tries; continue with the same command and --resume");
}

/* Waits for `seconds`. Returns PP_ESTOPPED if the user asked to end. */
static int wait_seconds(const struct retry *retry, int seconds)
{
    for (int k = 0; k < 10 * seconds; k++) {
        if (*retry->stop != 0)
            return fail_between_tries();
        pp_clock_nap(100000000);
    }
    return 0;
}

/* Asks the hosts repeatedly, as long as they are too few for the run, because hosts may come back.
 * Adds the time that it waited to *seconds. */
static int wait_for_hosts(struct retry *retry, const char *word, double *seconds)
{
    const double limit = retry->cfg->run.host_wait;
    uint64_t begun = pp_clock_ns();
    double passed = 0;
    for (int asked = 0;; asked++) {
        pp_error_clear();
        int rc = choose_hosts(retry, word, asked == 0);
        passed = (double)(pp_clock_ns() - begun) * 1e-9;
        if (rc != PP_ELOST || passed >= limit) {
            *seconds += passed;
            return rc;
        }
        if (asked == 0)
            pp_log_warn("%s; asking the hosts again for up to %.3g s (run.host_wait)",
                        pp_error_get()->text, limit);
        PP_TRY(wait_seconds(retry, passed < ASK_OFTEN_S ? 1 : ASK_EVERY_S));
    }
}

/* ---- tries */

/* Chooses how the next try begins, after the user's own words. */
static void choose_beginning(struct retry *retry)
{
    /* The user's explicit beginning counts until this run has a checkpoint. */
    bool named = retry->from && strcmp(retry->from, "auto") != 0;
    retry->beginning = !retry->dir[0] || !retry->taken ? NULL
                       : retry->step < 0 && named      ? "--overwrite"
                                                       : "--resume=auto";
    if (!retry->taken && (named || !retry->from))
        retry->step = -1; /* the checkpoints there are another run's */
}

/* Prepares the next try: waits, finds the newest checkpoint and the hosts, and logs the try. */
static int prepare_next_try(struct retry *retry, const char *word, int tried)
{
    int wait = tried < 6 ? 1 << tried : WAIT_MAX_S, n = 0;
    double seconds = wait;
    int64_t *steps = NULL;
    PP_TRY(wait_seconds(retry, wait));
    retry->step = pp_ckpt_list(retry->dir, &steps, &n) == 0 && n > 0 ? steps[0] : -1;
    pp_free(steps);
    if (retry->cfg->run.hosts[0])
        PP_TRY(wait_for_hosts(retry, word, &seconds));
    choose_beginning(retry);
    char after[48] = "the beginning";
    if (retry->step >= 0)
        snprintf(after, sizeof(after), "step %" PRId64, retry->step);
    bool fewer = has_other_division(retry);
    pp_log_warn("try %d of %d after %.0f s, from %s, %d stages%s%s%s%s: %s", tried + 2,
                retry->cfg->run.retries + 1, seconds, after, retry->division.stages,
                fewer ? " of " : "", fewer ? pp_division_schedule(&retry->division) : "",
                retry->hosts[0] ? " on " : "", retry->hosts,
                retry->division.replicas == retry->cfg->pipeline.replicas
                    ? "the weights will be those of an undisturbed run"
                    : "with fewer replicas the last bits of the weights will differ");
    return 0;
}

/* Makes the config of the next try. The caller frees it with pp_free(). */
static int make_try_config(const struct retry *retry, struct pp_config **out)
{
    char copies[16];
    PP_OWN_MEMORY struct pp_config *fewer = NULL, *config = NULL;
    if (has_other_division(retry)) {
        PP_OWN(pp_model_destroy) struct pp_model *model = NULL;
        PP_TRY(copy_for_fewer_ranks(retry->cfg, retry->division.replicas, &fewer));
        PP_TRY(pp_run_model(fewer, &model));
        PP_TRY(pp_division_config(&retry->division, model, fewer, &config));
    } else {
        PP_TRY(pp_config_copy(retry->cfg, &config));
    }
    snprintf(copies, sizeof(copies), "%d", retry->copies);
    PP_TRY(set_run_folder(retry, config));
    PP_TRY(pp_config_with(config, "run.hosts", retry->hosts, config));
    PP_TRY(pp_config_with(config, "checkpoint.copies", copies, config));
    *out = config;
    config = NULL;
    return 0;
}

/* Writes --set for the keys of [pipeline] and checkpoint.copies whose values in the try's config
 * differ from the user's. Other keys that a division has are the same in all tries. */
static int write_changed_keys(const struct retry *retry, const struct pp_config *config, FILE *f)
{
    PP_TAKE(char, value, PP_CONFIG_VALUE_MAX);
    PP_TAKE(char, given, PP_CONFIG_VALUE_MAX);
    for (int k = 0; k < pp_config_key_count(); k++) {
        const char *name = pp_config_key_name(k);
        if (strncmp(name, "pipeline.", 9) != 0 && strcmp(name, "checkpoint.copies") != 0)
            continue;
        PP_TRY(pp_config_key_value(config, k, value, PP_CONFIG_VALUE_MAX));
        PP_TRY(pp_config_key_value(retry->cfg, k, given, PP_CONFIG_VALUE_MAX));
        if (strcmp(value, given) != 0)
            fprintf(f, "--set=%s=%s%c", name, value, '\0');
    }
    return 0;
}

/* Writes the words that follow the user's own in the next try, as launch_once() takes them. */
static int write_words(const struct retry *retry, const struct pp_config *config, FILE *f)
{
    if (retry->dir[0] && strcmp(retry->dir, "auto") != 0)
        fprintf(f, "--dir=%s%c", retry->dir, '\0');
    if (retry->beginning)
        fprintf(f, "%s%c", retry->beginning, '\0');
    PP_TRY(write_changed_keys(retry, config, f));
    if (retry->hosts[0])
        fprintf(f, "--hosts=%s%c", retry->hosts, '\0');
    return 0;
}

/* Runs the next try. */
static int run_try(const struct retry *retry, const char *word, struct launch_end *out)
{
    PP_OWN_MEMORY struct pp_config *config = NULL;
    PP_OWN_MEMORY char *words = NULL;
    size_t bytes;
    *out = (struct launch_end){0};
    PP_TRY(make_try_config(retry, &config));
    FILE *f = open_memstream(&words, &bytes);
    if (!f)
        return pp_fail_errno(PP_ERESOURCE, "cannot write the words of a try into memory");
    int rc = write_words(retry, config, f);
    PP_TRY(pp_text_close(f, &words, "the words of a try"));
    PP_TRY(rc);
    return launch_once(config, word, retry->division.stages * retry->division.replicas, words, out);
}

int pp_launch_retry(const struct pp_config *cfg, const char *word, const char *from,
                    const volatile sig_atomic_t *stop)
{
    struct launch_end end = {0};
    PP_TAKE(struct retry, retry, 1);
    retry->cfg = cfg;
    retry->from = from;
    retry->stop = stop;
    retry->copies = cfg->checkpoint.copies;
    snprintf(retry->hosts, sizeof(retry->hosts), "%s", cfg->run.hosts);
    retry->division = pp_division_shape(retry->cfg);
    PP_TRY(pp_config_pin(cfg, word)); /* all tries are one run */
    PP_TRY(name_run_folder(retry));
    stat_run_config(retry, &retry->before);
    int rc = 0;
    for (int tried = 0; rc == 0; tried++) {
        rc = run_try(retry, word, &end);
        if (rc == PP_ESTOPPED && tried > 0)
            rc = fail_between_tries();
        if (tried == cfg->run.retries || !can_retry(rc, &end, tried))
            break;
        if (rc < 0)
            pp_log_warn("%s", pp_error_get()->text);
        pp_error_clear();
        note_taken(retry, &end);
        rc = prepare_next_try(retry, word, tried);
    }
    return launch_leave(rc, &end);
}
