/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli estimate CONFIG --machine FILE: rank the ways to run a config on the machine that a file
 * describes (ppcli/plan/machine_plan.h). --measure: write such a file of this machine.
 */
#include "plan.h"

#include <limits.h>
#include <string.h>

#include "ppcli/bench/bench.h"
#include "ppcli/base/files.h"
#include "ppcli/show/results.h"
#include "ppcli/base/base.h"

#define SYSTEMS "ppcli|megatron|torchtitan|deepspeed"
#define SEARCHED                                                                                   \
    "pipeline.assignment pipeline.split_at pipeline.group pipeline.eager pipeline.memory_cap "     \
    "pipeline.costs run.rank_order run.hosts"

enum {
    TENSOR,
    CONTEXT,
    EXPERTS,
    LISTS
};

/* The words of the command line; NULL: not given. */
struct asked {
    struct pp_cli_settings settings;
    const char *config, *machine, *memory, *html, *output, *layout, *compare;
    const char *lists[LISTS]; /* of --tensor and the like */
    bool measure, fp8;
    int ranks;            /* INT_MIN: not given */
    int json, only, emit; /* numbers of choices; only, emit: -1: not given */
};

/* ---- what is fixed or listed */

static const struct list {
    const char *key;
    size_t at;       /* in struct pp_asked */
    int least, most; /* most 0: that of the key */
} lists[] = {
    [TENSOR] = {"--tensor", offsetof(struct pp_asked, tensor), 1, PP_STAGES_MAX},
    [CONTEXT] = {"--context", offsetof(struct pp_asked, context), 1, PP_STAGES_MAX},
    [EXPERTS] = {"--experts-on", offsetof(struct pp_asked, expert), 1, PP_STAGES_MAX},
    {"train.zero", offsetof(struct pp_asked, zero), 0, 3},
    {"pipeline.replicas", offsetof(struct pp_asked, replicas), 1, PP_STAGES_MAX *PP_REPLICAS_MAX},
    {"pipeline.stages", offsetof(struct pp_asked, stages), 1, 0},
    {"pipeline.chunks", offsetof(struct pp_asked, chunks), 1, 0},
    {"pipeline.microbatches", offsetof(struct pp_asked, microbatches), 1, 0},
};

/* Reads a list of numbers such as "4,8". If l->most is 0, cfg checks each number as a value of the
 * key. */
static int read_list(const struct list *l, const char *said, const char *text,
                     struct pp_config *cfg, struct pp_asked *a)
{
    struct pp_asked_list *out = (void *)((char *)a + l->at);
    PP_OWN_MEMORY char *copy = pp_strdup(text);
    PP_TRY(copy ? 0 : PP_ERESOURCE);
    out->n = 0;
    for (char *rest = copy, *word; (word = strsep(&rest, ","));) {
        int64_t x;
        bool is_whole = pp_whole_parse(word, &x) && x >= l->least && out->n < PP_ASKED_MAX;
        if (!is_whole || (l->most > 0 && x > l->most))
            return pp_fail(PP_EUSAGE, "%s needs numbers from %d, such as 4 or 4,8, not '%s'", said,
                           l->least, word);
        if (l->most == 0 && pp_config_choose(cfg, l->key, word) < 0)
            return pp_error_context("%s", said);
        out->at[out->n++] = (int)x;
    }
    return 0;
}

/* Reads a list of words with commas between them, and writes it to `out` with blanks in their
 * place. Each word must be in `known`. */
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
            return pp_fail(PP_EUSAGE, "%s: unknown word '%s'%s", said, word,
                           pp_did_you_mean(word, known).s);
        pp_text_add(out, bytes, "%s%s", out[0] ? " " : "", word);
    }
    return 0;
}

/* Stores a setting that limits the search. *taken is set to whether it does. */
static int take_limit(const struct pp_setting *s, struct pp_config *cfg, struct pp_asked *a,
                      bool *taken)
{
    static const char *const redos[] = {"none", "selective", "full", "off", "all", NULL};
    *taken = true;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        if (strcmp(lists[i].key, s->key) == 0)
            return read_list(&lists[i], s->said, s->value, cfg, a);
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
               ? pp_fail(PP_EUSAGE, "%s: estimate chooses %s itself", s->said, s->key)
               : 0;
}

/* ---- the config */

/* Returns whether the config has no problem with these settings. */
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

/* Loads the config without the settings that limit the search. If it is not legal then, as a batch
 * may be too small for the file's micro-batches, the keys that are searched for get values that are
 * always legal. */
static int load_open(const struct asked *w, struct pp_asked *a, struct pp_config **out)
{
    static const char *const open[][2] = {
        {"pipeline.microbatches", "1"}, {"pipeline.replicas", "1"}, {"run.rank_order", "stages"}};
    const int n = sizeof(open) / sizeof(open[0]);
    PP_OWN_MEMORY struct pp_cli_settings *all = pp_alloc(1, sizeof(*all));
    PP_OWN(pp_config_destroy) struct pp_config *defaults = NULL;
    PP_TRY(all ? 0 : PP_ERESOURCE);
    PP_TRY(pp_config_load(NULL, NULL, 0, pp_cli_names(), &defaults));
    for (int i = 0; i < w->settings.n; i++) {
        bool taken;
        PP_TRY(take_limit(&w->settings.items[i], defaults, a, &taken));
        if (!taken)
            all->items[all->n++] = w->settings.items[i];
    }
    bool legal = is_legal(w->config, all);
    for (int i = 0; i < n && !legal && all->n < PP_CLI_SETTINGS_MAX; i++)
        all->items[all->n++] = (struct pp_setting){open[i][0], open[i][1], "estimate"};
    return pp_cli_load_config(w->config, all, out);
}

/* ---- the command */

static int prepare_search(const struct asked *w, struct pp_machine_plan *p)
{
    char path[PP_PATH_MAX];
    PP_TRY(pp_cli_check_output("--html", w->html));
    for (size_t i = 0; i < LISTS; i++)
        if (w->lists[i])
            PP_TRY(read_list(&lists[i], lists[i].key, w->lists[i], NULL, &p->asked));
    PP_TRY(pp_cli_find_machine(w->machine, path));
    PP_TRY(pp_cluster_read(path, &p->cluster));
    p->asked.only = w->only < 0                 ? NULL
                    : w->only < PP_PLAN_SYSTEMS ? pp_plan_systems[w->only]
                                                : pp_plan_systems[2]; /* torch */
    p->asked.layout = w->layout;
    p->fp8 = w->fp8;
    p->ranks = w->ranks > 0 ? w->ranks : (int)p->cluster.ranks;
    p->space.memory = (size_t)(p->cluster.memory - p->cluster.reserve);
    if (w->memory && !pp_bytes_parse(w->memory, &p->space.memory))
        return pp_fail(PP_EUSAGE, "--memory needs " PP_BYTES_FORMS ", not '%s'", w->memory);
    if (p->ranks > p->cluster.ranks && p->cluster.between.byte <= 0)
        return pp_fail(PP_ECONFIG,
                       "%s is one host of %.0f ranks: --ranks %d needs its [between], "
                       "the link between hosts",
                       path, p->cluster.ranks, p->ranks);
    return 0;
}

static int find_rows(const struct asked *w, struct pp_machine_plan *p)
{
    PP_TRY(prepare_search(w, p));
    PP_TRY(load_open(w, &p->asked, &p->cfg));
    PP_TRY(pp_machine_plan_load(p));
    return w->compare ? pp_machine_plan_price(p, w->compare) : pp_machine_plan_find(p);
}

static int print_rows(const struct asked *w)
{
    PP_OWN(pp_machine_plan_fini) struct pp_machine_plan p = {.ranks = 0};
    int rc = find_rows(w, &p);
    if (rc == 0)
        rc = w->emit >= 0 ? pp_machine_plan_emit(&p, pp_plan_systems[w->emit], stdout)
                          : pp_machine_plan_print(&p, w->json, stdout);
    rc = rc == 0 && w->html ? pp_machine_plan_page(&p, w->html) : rc;
    return pp_cli_look_verdict(p.cfg, rc);
}

/* Measures this machine and writes a machine file of it. */
static int measure_machine(const struct asked *w)
{
    PP_OWN(pp_machine_plan_fini) struct pp_machine_plan p = {.ranks = 0};
    PP_TRY(pp_cli_check_output("-o", w->output));
    PP_TRY(pp_cli_load_config(w->config, &w->settings, &p.cfg));
    int rc = pp_bench_machine(&p, w->config, w->output);
    return pp_cli_config_verdict(p.cfg, rc);
}

static int check_words(const struct asked *w)
{
    bool searches = w->machine || w->ranks != INT_MIN || w->memory || w->html || w->layout ||
                    w->compare || w->fp8 || w->only >= 0 || w->emit >= 0 || w->json ||
                    w->lists[TENSOR] || w->lists[CONTEXT] || w->lists[EXPERTS];
    if (!w->config)
        return pp_fail(PP_EUSAGE, "name a config. For example: ppcli estimate llama-70b.ini "
                                  "--machine 8xh100-nvlink --ranks 64");
    if (w->measure && searches)
        return pp_fail(PP_EUSAGE, "--measure writes a machine file: use it alone, or with -o FILE");
    if (!w->measure && w->output)
        return pp_fail(PP_EUSAGE, "-o is for --measure: leave out -o %s", w->output);
    if (!w->measure && !w->machine)
        return pp_fail(PP_EUSAGE, "name a machine, for example --machine laptop; or write a file "
                                  "of this one with --measure -o here.ini");
    if (w->ranks != INT_MIN && w->ranks < 1)
        return pp_fail(PP_EUSAGE, "--ranks needs a number from 1, not %d", w->ranks);
    return 0;
}

static int parse_words(int argc, char **argv, struct asked *w)
{
    *w = (struct asked){.ranks = INT_MIN, .only = -1, .emit = -1};
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &w->json, "text|json", "how to print; text"},
        {"machine", 0, PP_CLI_STRING, &w->machine, "FILE", "the machine: a file, or its name"},
        {"ranks", 0, PP_CLI_INT, &w->ranks, "N", "ranks; those of one host"},
        {"memory", 0, PP_CLI_STRING, &w->memory, "BYTES", "memory a rank may take (80G)"},
        {"tensor", 0, PP_CLI_STRING, &w->lists[TENSOR], "T,...", "tensor parallelism"},
        {"context", 0, PP_CLI_STRING, &w->lists[CONTEXT], "C,...", "context parallelism"},
        {"experts-on", 0, PP_CLI_STRING, &w->lists[EXPERTS], "E,...", "expert parallelism"},
        {"chunks", 0, PP_CLI_KEY, (void *)"pipeline.chunks", "V,...", "chunks per rank"},
        {"recompute", 0, PP_CLI_KEY, (void *)"pipeline.recompute", "WHAT,...",
         "none, selective, full"},
        {"zero", 0, PP_CLI_KEY, (void *)"train.zero", "Z,...", "ZeRO stages, 0 to 3"},
        {"coalesce", 0, PP_CLI_KEY, (void *)"train.coalesce", "K", "micro-batches in one W"},
        {"fp8", 0, PP_CLI_FLAG, &w->fp8, NULL, "products of blocks at device.fp8"},
        {"layout", 0, PP_CLI_STRING, &w->layout, "WORDS", "cut as Megatron's layout says"},
        {"only", 0, PP_CLI_CHOICE, &w->only, SYSTEMS "|torch", "what this system can run"},
        {"compare", 0, PP_CLI_STRING, &w->compare, "WORDS", "price one, such as 'tp=4 pp=4'"},
        {"emit", 0, PP_CLI_CHOICE, &w->emit, SYSTEMS, "print the first row in its words"},
        {"html", 0, PP_CLI_STRING, &w->html, "FILE", "also write a page of the result"},
        {"measure", 0, PP_CLI_FLAG, &w->measure, NULL, "write a machine file of this machine"},
        {"output", 'o', PP_CLI_STRING, &w->output, "FILE", "--measure: where to write it"},
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_estimate, options, &w->settings, words, 1));
    w->config = words[0];
    return check_words(w);
}

int cmd_estimate(int argc, char **argv)
{
    struct asked w;
    PP_TRY(parse_words(argc, argv, &w));
    return w.measure ? measure_machine(&w) : print_rows(&w);
}
