/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From samples to figures: means, quantiles, ratios of what was measured in the same round, and the
 * confidence in a difference.
 */
#include <math.h>

#include "bench.h"
#include "ppcli/base/base.h"

#define ROUNDS_MAX 1000
#define PIECES 400 /* of an integral */

static bool is_good(const struct pp_bench *b, const struct pp_bench_row *row)
{
    bool good = row->samples && !row->skipped[0] && !row->invalid[0];
    for (int k = 0; good && k < b->repeat; k++)
        good = row->samples[k].valid;
    return good;
}

int pp_bench_invalid(const struct pp_bench *b)
{
    int n = 0;
    for (int i = 0; i < b->n; i++)
        n += !b->rows[i].skipped[0] && !is_good(b, &b->rows[i]);
    return n;
}

/* Returns the median over the rounds of a number that is `offset` bytes into every sample of the
 * row. */
static double median_of(const struct pp_bench *b, const struct pp_bench_row *row, size_t offset)
{
    double values[ROUNDS_MAX];
    int n = b->repeat < ROUNDS_MAX ? b->repeat : ROUNDS_MAX;
    for (int k = 0; k < n; k++)
        values[k] = *(const double *)(const void *)((const char *)&row->samples[k] + offset);
    return pp_median(values, n);
}

/* Returns the bubble of the round whose idle time is nearest the median; medians of its parts, each
 * taken alone, would not add up. */
static struct pp_bubble median_bubble(const struct pp_bench *b, const struct pp_bench_row *row)
{
    double median = median_of(b, row, offsetof(struct pp_bench_sample, bubble.idle));
    int near = 0;
    for (int k = 1; k < b->repeat; k++) {
        double away = fabs(row->samples[k].bubble.idle - median);
        near = away < fabs(row->samples[near].bubble.idle - median) ? k : near;
    }
    return row->samples[near].bubble;
}

/* Returns the median ratio of two rows over the rounds. Both ran in the same minute of a round, so
 * what disturbed the machine slowed down both. */
static double median_ratio(const struct pp_bench *b, const struct pp_bench_row *row,
                           const struct pp_bench_row *to)
{
    double values[ROUNDS_MAX];
    int n = b->repeat < ROUNDS_MAX ? b->repeat : ROUNDS_MAX;
    for (int k = 0; k < n; k++)
        values[k] = row->samples[k].samples_per_second / to->samples[k].samples_per_second;
    return pp_median(values, n);
}

static void mean_and_deviation(const struct pp_bench *b, const struct pp_bench_row *row,
                               struct pp_bench_figures *out)
{
    double sum = 0, squares = 0;
    for (int k = 0; k < b->repeat; k++)
        sum += row->samples[k].samples_per_second;
    out->sps_mean = sum / b->repeat;
    for (int k = 0; k < b->repeat; k++) {
        double d = row->samples[k].samples_per_second - out->sps_mean;
        squares += d * d;
    }
    out->sps_sd = b->repeat > 1 ? sqrt(squares / (b->repeat - 1)) : 0;
}

const char *bench_name_limit(const struct bench_top *top, double flops, double bytes)
{
    if (top->flops <= 0 || top->bytes <= 0)
        return "";
    return flops / top->flops >= bytes / top->bytes ? "arithmetic" : "memory";
}

void pp_bench_figures(const struct pp_bench *b, const struct pp_bench_row *row,
                      struct pp_bench_figures *out)
{
    *out = (struct pp_bench_figures){.valid = is_good(b, row)};
    if (!out->valid)
        return;
    mean_and_deviation(b, row, out);
    out->step_p50 = median_of(b, row, offsetof(struct pp_bench_sample, step_p50));
    out->step_p99 = median_of(b, row, offsetof(struct pp_bench_sample, step_p99));
    out->bubble = median_bubble(b, row);
    out->bubble_predicted = median_of(b, row, offsetof(struct pp_bench_sample, bubble_predicted));
    out->bound = median_of(b, row, offsetof(struct pp_bench_sample, bound));
    out->waited = median_of(b, row, offsetof(struct pp_bench_sample, waited));
    double sps = median_of(b, row, offsetof(struct pp_bench_sample, samples_per_second));
    int cores = row->ranks * row->threads;
    struct bench_top top = {pp_ceiling_gemm(&b->ceilings, cores),
                            pp_ceiling_memory(&b->ceilings, cores)};
    if (row->devices > 0) {
        top.flops = row->devices * b->device.gemm[row->cfg->run.precision];
        top.bytes = row->devices * b->device.copy;
    }
    out->flops = sps * row->flops;
    out->bytes = sps * row->bytes;
    out->of_peak = top.flops > 0 ? out->flops / top.flops : 0;
    out->limit = bench_name_limit(&top, out->flops, out->bytes);
    if (out->limit[0])
        out->of_limit = fmax(out->of_peak, out->bytes / top.bytes);
    const struct pp_bench_row *one = bench_reference(b, row->reference);
    out->x1 = is_good(b, one) ? median_ratio(b, row, one) : 0;
    for (int i = 0; i < b->n && out->relative == 0; i++)
        out->relative = is_good(b, &b->rows[i]) ? median_ratio(b, row, &b->rows[i]) : 0;
}

/* ---- confidence */

/* Returns the probability that Student's t with df degrees of freedom is between -t and t. It
 * integrates by Simpson's rule over the angle, where the density has no tails. */
static double probability_between(double t, double df)
{
    double end = atan(t / sqrt(df)), h = end / PIECES, sum = 0;
    for (int i = 0; i <= PIECES; i++) {
        double f = pow(cos(i * h), df - 1);
        sum += f * (i == 0 || i == PIECES ? 1 : i % 2 ? 4 : 2);
    }
    double log_scale = lgamma((df + 1) / 2) - lgamma(df / 2);
    return 2 * sum * h / 3 * exp(log_scale) / sqrt(M_PI);
}

/* Returns the t for which 95 % of the probability is between -t and t. df must be at least 1. */
static double find_critical_t(double df)
{
    double low = 1.9, high = 13;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (probability_between(middle, df) < 0.95)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

static void compute_moments(const double *values, int n, double *mean, double *variance)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        sum += log(values[i]);
    *mean = sum / n;
    for (int i = 0; i < n; i++) {
        double d = log(values[i]) - *mean;
        squares += d * d;
    }
    *variance = n > 1 ? squares / (n - 1) / n : 0; /* of the mean */
}

bool pp_bench_change(const double *old_values, int n_old, const double *new_values, int n_new,
                     double *change, double *low, double *high)
{
    double old_mean, old_var, new_mean, new_var;
    compute_moments(old_values, n_old, &old_mean, &old_var);
    compute_moments(new_values, n_new, &new_mean, &new_var);
    double difference = new_mean - old_mean, variance = old_var + new_var;
    *change = expm1(difference);
    if (n_old < 2 || n_new < 2)
        return false;
    double df = n_old + n_new - 2.0;
    if (variance > 0) {
        df = variance * variance /
             (old_var * old_var / (n_old - 1) + new_var * new_var / (n_new - 1));
    }
    double reach = find_critical_t(df < 1 ? 1 : df) * sqrt(variance);
    *low = expm1(difference - reach);
    *high = expm1(difference + reach);
    return true;
}

int pp_bench_verdict(const struct pp_bench *b, double min_sps)
{
    const char *s = b->n == 1 ? " is" : "s are";
    int invalid = pp_bench_invalid(b), slow = 0, ran = 0;
    for (int i = 0; i < b->n; i++) {
        struct pp_bench_figures f;
        pp_bench_figures(b, &b->rows[i], &f);
        ran += !b->rows[i].skipped[0];
        slow += i >= b->added && f.valid && f.sps_mean < min_sps;
    }
    if (ran == 0)
        return pp_fail(PP_ECONFIG, "no row can run: %s", b->rows[0].skipped);
    if (invalid > 0)
        return pp_fail(PP_ECHECK, "%d of %d row%s INVALID", invalid, b->n, s);
    return slow == 0 ? 0
                     : pp_fail(PP_ECHECK, "%d of %d row%s slower than %g samples/s", slow, b->n, s,
                               min_sps);
}
