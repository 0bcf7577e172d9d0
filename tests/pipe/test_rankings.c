/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tune ranks when its costs are given: every row of a search, with its cut, what it
 * recomputes, its step and its memory, against rows that are kept in rankings.txt. A changed line is a
 * changed search. `test_rankings kept` prints them anew
 * after a change that is meant.
 */
#include "train_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../runner.h"
#include "command.h"
#include "ppcli/base/base.h"
#include "../../src/plan/search.h"

#define SHOWN 12 /* rows of a case */

static const struct ranking {
    const char *name, *config, *machine, *settings[8]; /* "section.key=value" */
    int cores, stages, replicas;                       /* stages, replicas: 0: all that fit */
    size_t memory;
    bool
        kept; /* in rankings.txt: with the config's own micro-batches, on the reference backend, whose memory is the same everywhere */
} rankings[] = {
#define PLAIN "run.backend=reference"
#define VOCAB "model.vocab_size=65"
    {"mlp", "mlp-16x1024", "laptop", {PLAIN}, 4, 0, 0, 0, true},
    {"mlp-small", "mlp-16x1024", "laptop", {PLAIN}, 4, 4, 1, 130u << 20, true},
    {"mlp-slower", "mlp-16x1024", "laptop", {PLAIN, "pipeline.slower=1 1 2 1"}, 4, 4, 1, 0, true},
    {"mnist", "mnist", "laptop", {PLAIN}, 4, 2, 0, 0, true},
    {"gpt-char", "gpt-char", "laptop", {PLAIN, VOCAB, "pipeline.schedule=auto"}, 2, 2, 1, 0, true},
    {"gpt-char-small", "gpt-char", "laptop", {PLAIN, VOCAB}, 2, 2, 1, 13u << 20, true},
    {"cut", "mlp-16x1024", "laptop", {PLAIN, "pipeline.split_at=3 9 12"}, 4, 4, 1, 0, true},
    {"mlp-cpu", "mlp-16x1024", "2xepyc", {0}, 8, 0, 0, 0, false},
    {"mlp-cpu-32m", "mlp-16x1024", "2xepyc", {0}, 8, 4, 0, 32u << 20, false},
    {"mlp-zero", "mlp-16x1024", "laptop", {"train.zero=1"}, 4, 2, 2, 0, false},
    {"mlp-sgd", "mlp-16x1024", "laptop", {"train.optimizer=sgd"}, 8, 0, 1, 0, false},
    {"shallow", "shallowspeed", "2xepyc", {0}, 4, 0, 0, 0, false},
    {"sample", "mnist-sample", "laptop", {0}, 4, 0, 0, 0, false},
    {"char-large", "gpt-char-large", "laptop", {VOCAB}, 4, 4, 1, 0, false},
    {"char-large-small", "gpt-char-large", "laptop", {VOCAB}, 4, 4, 1, 150u << 20, false},
    {"llama-small", "llama-small", "2xepyc", {VOCAB}, 4, 4, 1, 0, false},
    {"resnet", "resnet18-cifar10", "laptop", {0}, 4, 0, 1, 0, false},
    {"chunks", "mlp-16x1024", "laptop", {"pipeline.chunks=2"}, 4, 4, 1, 0, false},
    {"inexact",
     "gpt-char",
     "laptop",
     {VOCAB, "train.exact=off", "run.gemm=cblas"},
     4,
     2,
     0,
     0,
     false},
    {"char-cpu", "gpt-char", "laptop", {VOCAB}, 4, 0, 0, 0, false},
    {"too-small", "mlp-16x1024", "laptop", {0}, 4, 4, 1, 1u << 20, false},
};
#define RANKINGS (sizeof(rankings) / sizeof(rankings[0]))

static const char *in_source(const char *folder, const char *name, char out[PP_PATH_MAX])
{
    const char *source = getenv("PPCLI_SOURCE_DIR");
    snprintf(out, PP_PATH_MAX, "%s/%s/%s", source ? source : ".", folder, name);
    return out;
}

/* Costs as a machine file has them; with more threads they follow by Amdahl's rule. */
static void find_costs(const struct ranking *r, const struct pp_space *spec, struct pp_costs **out)
{
    char name[64], path[PP_PATH_MAX];
    struct pp_cluster cluster;
    snprintf(name, sizeof(name), "%s.ini", r->machine);
    CHECK_OK(pp_cluster_read(in_source("configs/machines", name, path), &cluster));
    struct pp_cluster_use use = {.model = spec->model,
                                 .precision = PP_PRECISION_F32,
                                 .optimizer = spec->cfg->train.optimizer,
                                 .rows = spec->cfg->train.batch_size,
                                 .ranks = r->cores};
    CHECK_OK(pp_costs_of_cluster(&cluster, &use, out));
    struct pp_costs **to = &(*out)->next;
    for (int t = 2; t <= r->cores; t++, to = &(*to)->next) {
        CHECK_OK(pp_costs_scale(*out, *out, t, to));
        (*to)->cores = r->cores;
        (*to)->near.latency = (*out)->near.latency;
        (*to)->near.byte = (*out)->near.byte;
    }
    pp_cluster_fini(&cluster);
}

static void print_row(const struct pp_space *spec, const struct pp_costs *costs, struct pp_row *c,
                      FILE *f)
{
    if (c->time.step == 0) {
        fprintf(f, "cannot run\n");
        return;
    }
    const struct pp_division *d = &c->d;
    fprintf(f, "%s", pp_division_schedule(d));
    if (c->also[0])
        fprintf(f, " (%s)", c->also);
    fprintf(f, " p%d d%d t%d m%d v%d", d->stages, d->replicas, d->threads, d->microbatches,
            d->chunks);
    if (d->schedule->eager && d->eager > 0)
        fprintf(f, " k%d", d->eager);
    if (c->fitted)
        fprintf(f, " cap%g", d->memory_cap);
    fprintf(f, " w%d", c->together);
    if (c->timed)
        for (int s = 0; s < pp_division_pieces(d); s++)
            fprintf(f, "%s%d", s ? "," : " cut ", d->last[s]);
    if (memchr(d->recompute, true, sizeof(d->recompute))) {
        fprintf(f, " again ");
        for (int s = 0; s < pp_division_pieces(d); s++)
            fprintf(f, "%d", d->recompute[s]);
    }
    CHECK_OK(pp_best_explain(spec, costs, c, NULL));
    fprintf(f, " %.9g s %zu bytes, idle %.6g %.6g %.6g\n", c->time.step, c->peak_bytes,
            c->time.bubble.schedule, c->time.bubble.imbalance, c->time.bubble.waiting);
}

static void print_ranking(const struct ranking *r, FILE *f)
{
    static char keys[8][PP_NAME_MAX];
    struct pp_setting list[8];
    char name[64], path[PP_PATH_MAX];
    struct pp_config *cfg = NULL;
    struct pp_model *model = NULL;
    struct pp_costs *costs = NULL;
    struct pp_rows best;
    struct pp_division *shapes = NULL;
    int n = 0;
    for (; r->settings[n]; n++) {
        const char *eq = strchr(r->settings[n], '=');
        snprintf(keys[n], sizeof(keys[n]), "%.*s", (int)(eq - r->settings[n]), r->settings[n]);
        list[n] = (struct pp_setting){keys[n], eq + 1, "test"};
    }
    char stages[16];
    snprintf(stages, sizeof(stages), "%d", r->stages > 0 ? r->stages : 1);
    list[n++] = (struct pp_setting){"pipeline.stages", stages, "test"};
    snprintf(name, sizeof(name), "%s.ini", r->config);
    CHECK_OK(pp_config_load(in_source("configs", name, path), list, n, pp_cli_names(), &cfg));
    CHECK_OK(pp_run_model(cfg, &model));
    struct pp_space spec = pp_space_of(cfg, model, 3000, 100);
    spec.cores = r->cores;
    spec.memory = r->memory;
    spec.all_m = !r->kept && !pp_model_mixes_samples(model);
    spec.cuts = spec.recompute = spec.coalesce = true;
    CHECK_OK(pp_best_shapes(&spec, r->stages, r->replicas, &shapes, &spec.n_shapes));
    spec.shapes = shapes;
    find_costs(r, &spec, &costs);
    CHECK_OK(pp_search(&spec, costs, &best));
    fprintf(f, "%s: %d rows, %ld tried, %d same, %d refused, %ld too large\n", r->name, best.n,
            best.tried, best.same, best.refused, best.too_large);
    for (int i = 0; i < best.n && i < SHOWN; i++)
        print_row(&spec, costs, &best.items[i], f);
    fprintf(f, "one ");
    print_row(&spec, costs, &best.one, f);
    fprintf(f, "as is ");
    print_row(&spec, costs, &best.as_is, f);
    pp_rows_fini(&best);
    pp_free(shapes);
    pp_costs_destroy(&costs);
    pp_model_destroy(&model);
    pp_config_destroy(&cfg);
}

TEST(the_rows_of_a_search_are_those_that_are_kept)
{
    char path[PP_PATH_MAX];
    char *text = NULL, *kept = NULL;
    size_t bytes = 0, n = 0;
    FILE *f = open_memstream(&text, &bytes);
    for (size_t i = 0; i < RANKINGS; i++)
        if (rankings[i].kept)
            print_ranking(&rankings[i], f);
    fclose(f);
    f = fopen(in_source("tests/pipe", "rankings.txt", path), "r");
    assert_non_null(f);
    char *line = text;
    for (int number = 1; getline(&kept, &n, f) > 0; number++) {
        size_t length = strlen(kept);
        if (strncmp(line, kept, length) != 0)
            fail_msg("rankings.txt:%d:\n%snow:\n%.*s", number, kept, (int)strcspn(line, "\n"),
                     line);
        line += length;
    }
    assert_true(*line == '\0');
    fclose(f);
    free(kept);
    free(text);
}

/* test_rankings NAME: print that case; all: each of them; kept: what belongs into rankings.txt. */
int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < RANKINGS; i++)
        if (strcmp(argv[1], rankings[i].name) == 0 || strcmp(argv[1], "all") == 0 ||
            (strcmp(argv[1], "kept") == 0 && rankings[i].kept))
            print_ranking(&rankings[i], stdout);
    return argc == 2 ? 0 : tests_run(NULL, NULL);
}
