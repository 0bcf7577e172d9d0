/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli plan CONFIG --machine FILE: what is asked for becomes a search (ppcli/plan/machine_plan.h), whose
 * rows are printed. --measure: a machine file of this machine.
 */
#include "plan.h"

#include <string.h>

#include "ppcli/bench/bench.h"
#include "ppcli/base/files.h"
#include "ppcli/show/results.h"
#include "ppcli/base/base.h"

#define SEARCHED                                                                                   \
    "pipeline.assignment pipeline.split_at pipeline.group pipeline.eager pipeline.memory_cap "     \
    "pipeline.costs run.rank_order run.hosts"

/* ---- what is fixed or listed */

static const struct list {
    const char *key;
    size_t at; /* in struct pp_asked */
    int least, most;
} lists[] = {
    {"pipeline.stages", offsetof(struct pp_asked, stages), 1, PP_STAGES_MAX},
    {"pipeline.replicas", offsetof(struct pp_asked, replicas), 1, PP_STAGES_MAX *PP_REPLICAS_MAX},
    {"pipeline.chunks", offsetof(struct pp_asked, chunks), 1, PP_STAGES_MAX},
    {"pipeline.microbatches", offsetof(struct pp_asked, microbatches), 1, PP_MICROBATCHES_MAX},
    {"train.zero", offsetof(struct pp_asked, zero), 0, 3},
    {"--tensor", offsetof(struct pp_asked, tensor), 1, PP_STAGES_MAX},
    {"--context", offsetof(struct pp_asked, context), 1, PP_STAGES_MAX},
    {"--experts-on", offsetof(struct pp_asked, expert), 1, PP_STAGES_MAX},
};

/* "4,8" */
static int read_list(const struct list *l, const char *said, const char *text, struct pp_asked *a)
{
    struct pp_asked_list *out = (void *)((char *)a + l->at);
    PP_OWN_MEMORY char *copy = pp_strdup(text);
    PP_TRY(copy ? 0 : PP_ERESOURCE);
    out->n = 0;
    for (char *rest = copy, *word; (word = strsep(&rest, ","));) {
        int64_t x;
        if (!pp_whole_parse(word, &x) || x < l->least || x > l->most || out->n == PP_ASKED_MAX)
            return pp_fail(PP_EUSAGE, "%s wants numbers from %d to %d, such as 4 or 4,8, not '%s'",
                           said, l->least, l->most, word);
        out->at[out->n++] = (int)x;
    }
    return 0;
}

/* Words between commas, each of which is one of `known`; all of them, with blanks between, in out. */
static int read_words(const char *said, const char *text, const char *const *known, char *out,
                      size_t bytes)
{
    PP_OWN_MEMORY char *copy = pp_strdup(text);
    PP_TRY(copy ? 0 : PP_ERESOURCE);
    out[0] = '\0';
    for (char *rest = copy, *word; (word = strsep(&rest, ","));) {
        int i = 0;
        while (known[i] && strcmp(known[i], word) != 0)
            i++;
        if (!known[i])
            return pp_fail(PP_EUSAGE, "%s: there is no '%s'%s", said, word,
                           pp_did_you_mean(word, known).s);
        pp_text_add(out, bytes, "%s%s", out[0] ? " " : "", word);
    }
    return 0;
}

/* A setting that the search looks for by itself is a limit of the search. *taken: it was one. */
static int take_setting(const struct pp_setting *s, struct pp_asked *a, bool *taken)
{
    static const char *const redos[] = {"none", "selective", "full", "off", "all", NULL};
    *taken = true;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        if (strcmp(lists[i].key, s->key) == 0)
            return read_list(&lists[i], s->said, s->value, a);
    if (strcmp(s->key, "pipeline.schedule") == 0)
        return read_words(s->said, s->value, pp_schedule_names(), a->schedules,
                          sizeof(a->schedules));
    if (strcmp(s->key, "pipeline.recompute") == 0) {
        PP_TRY(read_words(s->said, s->value, redos, a->redos, sizeof(a->redos)));
        const char *also = pp_has_word(a->redos, "off") ? " none" : "";
        pp_text_add(a->redos, sizeof(a->redos), "%s%s", also,
                    pp_has_word(a->redos, "all") ? " full" : "");
        return 0;
    }
    *taken = false;
    return pp_has_word(SEARCHED, s->key)
               ? pp_fail(PP_EUSAGE, "%s: --machine chooses %s itself", s->said, s->key)
               : 0;
}

/* ---- the config */

/* Is the config right as it is? */
static bool is_legal(const char *word, const struct pp_cli_settings *settings)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    char path[PP_PATH_MAX];
    bool legal = strcmp(word, "-") == 0 ||
                 (pp_cli_find_config(word, path) == 0 &&
                  pp_config_load(path, settings->items, settings->n, pp_cli_names(), &cfg) == 0);
    pp_error_clear();
    return legal;
}

/* What the file says of what is searched for does not matter: a batch may be too small for the file's
 * micro-batches. */
static int load_open(const struct plan_asked *w, struct pp_asked *a, struct pp_config **out)
{
    static const char *const open[][2] = {
        {"pipeline.microbatches", "1"}, {"pipeline.replicas", "1"}, {"run.rank_order", "stages"}};
    const int n = sizeof(open) / sizeof(open[0]);
    PP_OWN_MEMORY struct pp_cli_settings *all = pp_alloc(1, sizeof(*all));
    PP_TRY(all ? 0 : PP_ERESOURCE);
    for (int i = 0; i < w->settings.n; i++) {
        bool taken;
        PP_TRY(take_setting(&w->settings.items[i], a, &taken));
        if (!taken)
            all->items[all->n++] = w->settings.items[i];
    }
    bool legal = is_legal(w->config, all);
    for (int i = 0; i < n && !legal && all->n < PP_CLI_SETTINGS_MAX; i++)
        all->items[all->n++] = (struct pp_setting){open[i][0], open[i][1], "--machine"};
    return pp_cli_load_config(w->config, all, out);
}

/* ---- the command */

static int prepare(const struct plan_asked *w, struct pp_machine_plan *p)
{
    char path[PP_PATH_MAX];
    PP_TRY(plan_check_file("--html", w->html));
    for (size_t i = 0; i < PLAN_MACHINE_LISTS; i++)
        if (w->lists[i])
            PP_TRY(read_list(&lists[5 + i], lists[5 + i].key, w->lists[i], &p->asked));
    PP_TRY(pp_cli_find_machine(w->machine, path));
    PP_TRY(pp_cluster_read(path, &p->cluster));
    p->asked.only = w->only < 0                 ? NULL
                    : w->only < PP_PLAN_SYSTEMS ? pp_plan_systems[w->only]
                                                : pp_plan_systems[2]; /* torch */
    p->asked.layout = w->layout;
    p->fp8 = w->fp8;
    p->ranks = w->ranks > 0 ? w->ranks : (int)p->cluster.ranks;
    p->memory = (size_t)(p->cluster.memory - p->cluster.reserve);
    if (w->memory && !pp_bytes_parse(w->memory, &p->memory))
        return pp_fail(PP_EUSAGE, "--memory wants " PP_BYTES_FORMS ", not '%s'", w->memory);
    if (p->ranks > p->cluster.ranks && p->cluster.between.bandwidth <= 0)
        return pp_fail(PP_ECONFIG,
                       "%s is one host of %.0f ranks: --ranks %d needs its [between], "
                       "the link between hosts",
                       path, p->cluster.ranks, p->ranks);
    return 0;
}

static int find_rows(const struct plan_asked *a, struct pp_machine_plan *p)
{
    PP_TRY(prepare(a, p));
    PP_TRY(load_open(a, &p->asked, &p->cfg));
    PP_TRY(pp_machine_plan_load(p));
    return a->compare ? pp_machine_plan_price(p, a->compare) : pp_machine_plan_find(p);
}

int plan_machine(const struct plan_asked *a)
{
    PP_OWN(pp_machine_plan_fini) struct pp_machine_plan p = {.n = 0};
    bool json;
    if (!a->config)
        return pp_fail(PP_EUSAGE, "--machine needs a config. For example: ppcli plan llama-70b.ini "
                                  "--machine 8xh100-nvlink --ranks 64");
    if (!plan_prints_result(a, &json))
        return pp_fail(PP_EUSAGE,
                       "--machine prints a table, --format json, or --html FILE, not '%s'",
                       pp_format_name(a->format));
    int rc = find_rows(a, &p);
    if (rc == 0)
        rc = a->emit >= 0 ? pp_machine_plan_emit(&p, pp_plan_systems[a->emit], stdout)
                          : pp_machine_plan_print(&p, json, stdout);
    rc = rc == 0 && a->html ? pp_machine_plan_page(&p, a->html) : rc;
    return pp_cli_look_verdict(p.cfg, rc);
}

int plan_measure(const struct plan_asked *a)
{
    PP_OWN(pp_machine_plan_fini) struct pp_machine_plan p = {.n = 0};
    if (!a->config)
        return pp_fail(
            PP_EUSAGE,
            "--measure needs a config. For example: ppcli plan mnist.ini --measure -o here.ini");
    PP_TRY(plan_check_file("-o", a->output));
    PP_TRY(pp_cli_load_config(a->config, &a->settings, &p.cfg));
    int rc = pp_bench_machine(&p);
    rc = rc < 0 ? rc : pp_bench_machine_write(a->config, p.cfg, &p.cluster, a->output);
    return pp_cli_config_verdict(p.cfg, rc);
}
