/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a machine plan that other systems train: every division of a transformer, priced by a
 * formula; the best of each kind is then simulated. And the order of all rows: groups that the model
 * cannot tell apart, in each the simplest first.
 */
#include <stdlib.h>
#include <string.h>

#include "estimate.h"
#include "machine.h"
#include "ppcli/base/base.h"

#define SIMULATED 48   /* rows */
#define SHOWN 20       /* rows of the table */
#define CHUNKS_MAX 20  /* of a rank */
#define ROWS_MAX 16    /* of a micro-batch */
#define LONG_TEXT 8192 /* positions: from there on context parallelism is tried by itself */

struct search {
    struct pp_machine_plan *p;
    struct pp_estimate_spec spec;
    struct pp_rows kinds; /* the best row of each kind */
};

bool asked_has(const struct pp_asked_list *list, int value)
{
    bool has = list->n == 0;
    for (int i = 0; i < list->n; i++)
        has = has || list->at[i] == value;
    return has;
}

/* Is it a number that is tried by itself, or asked for? */
static bool is_tried(const struct pp_asked_list *asked, int value, bool by_itself)
{
    return asked->n > 0 ? asked_has(asked, value) : by_itself;
}

/* ---- divisions */

static struct pp_row make_row(const struct pp_machine_plan *p, const struct pp_division *d,
                              const struct pp_estimate *e)
{
    return (struct pp_row){.d = *d,
                           .e = *e,
                           .time.step = e->step,
                           .peak_bytes = (size_t)e->bytes,
                           .over = e->bytes > (double)p->space.memory};
}

/* Returns whether a system is to be asked for this division: the one that --only names, or any other
 * than ppcli, whose own rows machine_own.c makes. What no system runs is priced where ppcli does
 * not train it either. */
static bool is_for_others(const struct search *s, const struct pp_division *p)
{
    static const char *const others[] = {"megatron", "torchtitan", "deepspeed"};
    const struct pp_machine_plan *plan = s->p;
    bool own = pp_parallel_runs_on(p, "ppcli") && plan->cfg->model.experts == 0 && !s->spec.fp8;
    if (plan->asked.only)
        return pp_parallel_runs_on(p, plan->asked.only);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        own = own && !pp_parallel_runs_on(p, others[i]);
    return !own;
}

static int price_division(struct search *s, const struct pp_division *p, int rows)
{
    struct pp_machine_plan *plan = s->p;
    struct pp_estimate e;
    if (!is_for_others(s, p))
        return 0;
    if (parallel_check(&s->spec, p, rows) < 0) {
        pp_error_clear();
        return 0;
    }
    plan->found.tried++;
    PP_TRY(pp_estimate(&s->spec, p, true, &e));
    struct pp_row row = make_row(plan, p, &e);
    return rows_add(&s->kinds, &row, rows_are_one_kind);
}

static int try_schedules(struct search *s, struct pp_division *p, int rows)
{
    const char *const *names = pp_schedule_names();
    const char *asked = s->p->asked.schedules;
    for (int i = 0; names[i]; i++) {
        bool by_itself = strcmp(names[i], p->chunks > 1 ? "interleaved" : "1f1b") == 0;
        if (asked[0] ? !pp_has_word(asked, names[i]) : !by_itself)
            continue;
        p->schedule = pp_schedule_find(names[i]);
        PP_TRY(price_division(s, p, rows));
    }
    return 0;
}

/* What is sharded over the replicas, and what is computed again. */
static int try_shards(struct search *s, struct pp_division *p, int rows)
{
    static const char *const redos[] = {"none", "selective", "full"};
    const struct pp_asked *a = &s->p->asked;
    for (int zero = 0; zero <= 3; zero++) {
        bool shares = p->replicas * p->context > 1;
        if (!is_tried(&a->zero, zero, zero == (shares ? 1 : 0) || (zero == 3 && p->stages == 1)))
            continue;
        for (int redo = PP_REDO_NONE; redo <= PP_REDO_FULL; redo++) {
            if (a->redos[0] && !pp_has_word(a->redos, redos[redo]))
                continue;
            p->zero = zero;
            p->redo = (enum pp_redo)redo;
            PP_TRY(try_schedules(s, p, rows));
        }
    }
    return 0;
}

static int try_rows(struct search *s, struct pp_division *p)
{
    const struct pp_asked *a = &s->p->asked;
    int share = s->p->batch / p->replicas, rows;
    for (rows = 1; rows <= share && rows <= ROWS_MAX; rows *= 2) {
        p->microbatches = share / rows;
        if (asked_has(&a->microbatches, p->microbatches))
            PP_TRY(try_shards(s, p, rows));
    }
    for (int i = 0; i < a->microbatches.n; i++) {
        rows = share / a->microbatches.at[i];
        bool power = (rows & (rows - 1)) == 0 && rows <= ROWS_MAX;
        p->microbatches = rows > 0 ? share / rows : 0;
        if (rows > 0 && !power)
            PP_TRY(try_shards(s, p, rows));
    }
    return 0;
}

static int try_stages(struct search *s, struct pp_division *p)
{
    const struct pp_asked *a = &s->p->asked;
    int rest = s->p->ranks / (p->tensor * p->context), blocks = s->p->cfg->model.n_layer;
    for (p->stages = 1; p->stages <= rest && p->stages <= blocks; p->stages++) {
        p->replicas = rest / p->stages;
        if (rest % p->stages != 0 || !asked_has(&a->stages, p->stages) ||
            !asked_has(&a->replicas, p->replicas) || p->replicas > s->p->batch)
            continue;
        if (a->layout) {
            PP_TRY(blocks_read(s->p->cfg, a->layout, p));
            PP_TRY(try_rows(s, p));
            continue;
        }
        for (p->chunks = 1; p->chunks <= (p->stages > 1 ? CHUNKS_MAX : 1); p->chunks++)
            if (asked_has(&a->chunks, p->chunks) && (blocks % pp_division_pieces(p) == 0 ||
                                                     (blocks + 2) % pp_division_pieces(p) == 0)) {
                PP_TRY(parallel_cut(s->p->cfg, p));
                PP_TRY(try_rows(s, p));
            }
    }
    return 0;
}

static int try_experts(struct search *s, struct pp_division *p)
{
    int experts = s->p->cfg->model.experts;
    for (p->expert = 1; p->expert <= (experts > 1 ? experts : 1); p->expert *= 2)
        if (asked_has(&s->p->asked.expert, p->expert) && s->p->ranks % p->expert == 0)
            PP_TRY(try_stages(s, p));
    return 0;
}

static int try_all(struct search *s)
{
    const struct pp_asked *a = &s->p->asked;
    struct pp_division p = {.expert = 1, .threads = 1};
    bool text = s->p->cfg->model.block_size >= LONG_TEXT;
    for (p.tensor = 1; p.tensor <= s->p->ranks; p.tensor *= 2) {
        if (!is_tried(&a->tensor, p.tensor, p.tensor <= s->p->cluster.ranks))
            continue;
        for (p.context = 1; p.tensor * p.context <= s->p->ranks; p.context *= 2)
            if (s->p->ranks % (p.tensor * p.context) == 0 &&
                is_tried(&a->context, p.context, p.context == 1 || (text && p.context <= 8)))
                PP_TRY(try_experts(s, &p));
        pp_log_progress("divisions: tp = %d, %ld looked at", p.tensor, s->p->found.tried);
    }
    return 0;
}

/* Simulates the best rows of all kinds. */
static int simulate_kinds(struct search *s)
{
    struct pp_machine_plan *p = s->p;
    int n = PP_MIN(s->kinds.n, SIMULATED);
    rows_sort(&s->kinds);
    for (int i = 0; i < n; i++) {
        struct pp_estimate e;
        const struct pp_division *d = &s->kinds.items[i].d;
        pp_log_progress("simulating %d of %d", i + 1, n);
        PP_TRY(pp_estimate(&s->spec, d, false, &e));
        struct pp_row row = make_row(p, d, &e);
        PP_TRY(row.over ? 0 : rows_add(&p->found, &row, NULL));
    }
    p->found.too_large += s->kinds.too_large;
    return 0;
}

int machine_others(struct pp_machine_plan *p)
{
    struct search s = {.p = p, .spec = pp_machine_plan_estimates(p)};
    int rc = try_all(&s);
    rc = rc < 0 ? rc : simulate_kinds(&s);
    pp_rows_fini(&s.kinds);
    return rc;
}

/* ---- the order */

/* New words that a reader has to learn, roughly. */
static int count_words(const struct pp_row *r)
{
    const struct pp_division *p = &r->d;
    const char *s = pp_division_schedule(p);
    int schedule = pp_has_word("1f1b gpipe naive", s) ? 0
                   : strcmp(s, "interleaved") == 0    ? 3
                   : strncmp(s, "zb-fit", 6) == 0     ? 8
                                                      : 6;
    return schedule + (p->redo != PP_REDO_NONE ? 2 : 0) + (p->tensor > 1 ? 1 : 0) +
           (p->stages > 1 ? 1 : 0) + (p->context > 1 ? 2 : 0) + (p->expert > 1 ? 2 : 0) +
           (p->zero > 1 ? 2 : 0) + (p->zero > 0 ? 1 : 0);
}

static int by_group(const void *a, const void *b)
{
    const struct pp_row *x = a, *y = b;
    int words = count_words(x) - count_words(y);
    return x->group != y->group ? x->group - y->group : words != 0 ? words : rows_compare(a, b);
}

/* A group shows one row of each division, the simplest, and the fastest row. The first that ppcli
 * trains is always there. */
static void drop_alike(struct pp_machine_plan *p)
{
    int kept = 0, own = -1;
    for (int i = p->found.n - 1; i >= 0; i--)
        own = p->found.items[i].own ? i : own;
    for (int i = 0; i < p->found.n; i++) {
        const struct pp_row *r = &p->found.items[i];
        bool known = kept >= SHOWN - (own > i);
        for (int k = 0; k < kept && !known; k++) {
            const struct pp_row *o = &p->found.items[k];
            known = o->group == r->group && o->d.tensor == r->d.tensor &&
                    o->d.stages == r->d.stages && o->d.context == r->d.context &&
                    o->d.expert == r->d.expert && o->own == r->own;
        }
        if (!known || i == own || (r->fastest && kept < SHOWN))
            p->found.items[kept++] = *r;
    }
    p->found.n = kept;
}

void machine_rank(struct pp_machine_plan *p)
{
    int group = 0;
    double first = 0;
    rows_sort(&p->found);
    for (int i = 0; i < p->found.n; i++) {
        struct pp_row *r = &p->found.items[i];
        r->fastest = i == 0 || r->e.step > (1 + PP_PLAN_ERROR) * first;
        first = r->fastest ? r->e.step : first;
        group += r->fastest;
        r->group = group;
    }
    if (p->found.n > 1)
        qsort(p->found.items, (size_t)p->found.n, sizeof(*p->found.items), by_group);
    drop_alike(p);
}
