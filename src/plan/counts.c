/* SPDX-License-Identifier: Apache-2.0 */
/* The micro-batch counts that a search looks at, their sizes, and what is measured for them. */
#include "search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"

#define BUSY 3.0 /* load that two ranks that were measured do not make */

enum {
    SIZES_MAX = 10, /* micro-batch sizes that are measured; the others lie between */
    ROWS_MIN = 4,
    SUMS_MAX = 12, /* of one size: with W of 1, 2, 4, ... together, and as it is by itself */
    COUNT_MAX = 64,
    COUNT_MAX_PER_STAGE = 8,
};

int best_share(const struct pp_space *spec, int replica)
{
    const struct pp_training *t = &spec->training;
    int first, count, batch = t->train_n > 0 && t->train_n < t->batch ? t->train_n : t->batch;
    pp_balanced_piece(batch, spec->base.replicas, replica, &first, &count);
    return count;
}

int pp_best_rows(const struct pp_space *spec, int m)
{
    int first, count;
    pp_balanced_piece(best_share(spec, 0), m, 0, &first, &count);
    return count;
}

int best_most_stages(const struct pp_space *spec)
{
    int most = spec->n_shapes > 0 ? 1 : spec->base.stages;
    for (int i = 0; i < spec->n_shapes; i++)
        most = spec->shapes[i].stages > most ? spec->shapes[i].stages : most;
    return most;
}

int pp_best_counts(const struct pp_space *spec, int *out, int max)
{
    int own = spec->base.microbatches, n = 0;
    int share = best_share(spec, spec->base.replicas - 1);
    int most = COUNT_MAX_PER_STAGE * best_most_stages(spec);
    most = most > COUNT_MAX ? most : COUNT_MAX;
    bool own_in = false;
    for (int m = 1; spec->all_m && m <= most && n < max - 1; m++) {
        bool power = (m & (m - 1)) == 0;
        int least =
            spec->training.backend.unpacked ? 1 : ROWS_MIN; /* off: where memory is what counts */
        if (m == own || (!power && share % m != 0) || (m > 1 && share / m < least))
            continue;
        /* a power of two is kept; another divisor only where it is far from what there is */
        int next_power = 1;
        while (next_power < m)
            next_power *= 2;
        bool near =
            (n > 0 && 6 * (m - out[n - 1]) < out[n - 1]) || (6 * (next_power - m) < m && !power);
        if (near)
            continue;
        if (m > own && !own_in) {
            out[n++] = own;
            own_in = true;
        }
        out[n++] = m;
    }
    if (!own_in && n < max)
        out[n++] = own;
    return n;
}

/* ---- measuring */

static int add_size(int *sizes, int n, int rows)
{
    int at = 0;
    while (at < n && sizes[at] < rows)
        at++;
    if (at < n && sizes[at] == rows)
        return n;
    memmove(sizes + at + 1, sizes + at, (size_t)(n - at) * sizeof(*sizes));
    sizes[at] = rows;
    return n + 1;
}

/* Lists the numbers of rows with which layers are measured, and returns how many there are. If the
 * search needs more than SIZES_MAX, it keeps a selection in which the config's own number stays.
 * `sizes` has space for SUMS_MAX numbers for every count of micro-batches. */
static int sizes_of(const struct pp_space *spec, int *sizes)
{
    int counts[PP_BEST_COUNTS_MAX], n = 0;
    int own = pp_best_rows(spec, spec->base.microbatches);
    struct pp_division d = spec->base;
    int n_counts = pp_best_counts(spec, counts, PP_BEST_COUNTS_MAX);
    for (int i = 0; i < n_counts; i++) {
        int rows = pp_best_rows(spec, counts[i]);
        n = add_size(sizes, n, rows);
        /* of the weight gradients of several */
        d.microbatches = counts[i];
        n = add_size(sizes, n, rows * pp_layout_coalesce(&d, &spec->training, spec->model));
        for (int k = 2; k <= best_most_sums(spec, counts[i]); k *= 2)
            n = add_size(sizes, n, rows * k);
    }
    while (n > SIZES_MAX) {
        int least = -1;
        for (int i = 1; i + 1 < n; i++) {
            double gap = (double)sizes[i + 1] / sizes[i - 1];
            if (sizes[i] != own && (least < 0 || gap < (double)sizes[least + 1] / sizes[least - 1]))
                least = i;
        }
        memmove(sizes + least, sizes + least + 1, (size_t)(n - least - 1) * sizeof(*sizes));
        n--;
    }
    return n;
}

/* Returns whether the search has a shape with this number of threads. */
static bool has_threads(const struct pp_space *spec, int threads)
{
    bool has = threads == spec->one_threads || threads == spec->base.threads;
    for (int i = 0; i < spec->n_shapes; i++)
        has = has || spec->shapes[i].threads == threads;
    return has;
}

/* Copies from `one` to *c what does not depend on the number of threads: the links, the overhead of
 * an action and the size of a value. `one` has the fewest threads, so that its transfers were
 * measured with the most ranks at once. */
static void share_links(const struct pp_costs *one, struct pp_costs *c)
{
    c->near = one->near;
    c->action = one->action;
    c->value_bytes = one->value_bytes;
}

/* Measures the costs with each number of threads that the search needs, ascending. For more threads
 * than this machine has cores, it scales measured costs. *out gets the costs found so far even if
 * this fails. */
static int measure_all(const struct pp_space *spec, struct pp_measure_spec *m,
                       struct pp_costs **out)
{
    struct pp_costs **to = out, *last = NULL;
    int here = pp_machine_whole_cores(), cores = pp_best_cores(spec);
    int own = spec->base.threads, most = cores > own ? cores : own;
    bool scales = cores > here && spec->n_shapes > 0;
    m->ranks = spec->links          ? spec->links->beside
               : spec->n_shapes > 0 ? cores
                                    : spec->base.stages * spec->base.replicas;
    for (int t = 1; t <= most; t++) {
        struct pp_measure_spec now = *m;
        if (!has_threads(spec, t) && !(scales && (t == 1 || t == here)))
            continue;
        now.backend.threads = t;
        now.seconds = to == out ? m->seconds : m->seconds / 2;
        PP_TRY(scales && t > here ? pp_costs_scale(*out, last, t, to) : pp_costs_measure(&now, to));
        PP_TRY(spec->links ? pp_links_put(spec->links, *to) : 0);
        (*to)->cores = cores;
        if (to != out && (*out)->near.unsteady > 0)
            share_links(*out, *to);
        (*out)->took += to != out ? (*to)->took : 0;
        last = (*to)->measured > 0 ? last : *to;
        to = &(*to)->next;
    }
    return 0;
}

int pp_best_measure(const struct pp_space *spec, double seconds, struct pp_costs **out)
{
    const struct pp_config *cfg = spec->cfg;
    struct pp_backend_choice backend = spec->training.backend;
    int sizes[SUMS_MAX * PP_BEST_COUNTS_MAX];
    PP_TRY(pp_backend_resolve(cfg->run.backend, &backend.ops));
    struct pp_measure_spec m = {.model = spec->model,
                                .backend = backend,
                                .optimizer = cfg->train.optimizer,
                                .samples = spec->training.train_n,
                                .sizes = sizes,
                                .n_sizes = sizes_of(spec, sizes),
                                .seconds = seconds};
    pp_log_progress("measuring layers and transfers, %g s", seconds);
    int rc = measure_all(spec, &m, out);
    pp_log_progress(NULL);
    PP_TRY_UNDO(rc, pp_costs_destroy(out));
    double load = 0;
    if ((*out)->next && (*out)->next->measured == 0 && getloadavg(&load, 1) == 1 && load > BUSY)
        pp_log_warn("other programs use this machine (load %.1f): times of several threads are too "
                    "long",
                    load);
    double unsteady = fmax((*out)->near.unsteady, (*out)->far.unsteady);
    if (unsteady > PP_LINK_STEADY)
        pp_log_warn("transfers differ %.1f times: this machine is busy, predictions may be off",
                    unsteady);
    return 0;
}
