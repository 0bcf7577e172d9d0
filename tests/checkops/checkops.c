/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   checkops [--only TARGET] [--kernel NAME] [--rounds N] [--seed N]   compare; TAP on stdout
 *   checkops --time [--only TARGET] [--kernel NAME]                    microseconds of one call
 *
 * The same seed makes the same samples on every machine. Exit code 77: no such target here.
 */
#include "checkops.h"
#include "../../src/dev/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

#ifndef CHECKOPS_ONLY
#define CHECKOPS_ONLY "" /* all targets */
#endif
#define TARGETS_MAX 16
#define TIMED_NS 20000000u
#define TIMES_MAX 64

extern const struct pp_backend_ops backend_reference;

/* ---- the table of kernels */

struct kernel {
    const char *name;
    void (*make)(struct sample *s);
    void (*bound)(struct sample *s, struct outputs *o);
    int (*call)(struct pp_backend *be, const struct image *image);
};

static int call_largest(struct pp_backend *be, const struct pp_largest *a)
{
    return pp_backend_find_largest(be, a->n, a->x, a->io);
}

#define PP_KERNEL(name, type)                                                                      \
    static int call_##name(struct pp_backend *be, const struct type *a)                            \
    {                                                                                              \
        return pp_backend_##name(be, a);                                                           \
    }
#include "ppcli/dev/kernels.def"

#define PP_KERNEL(name, type)                                                                      \
    static void make_sample_##name(struct sample *s)                                               \
    {                                                                                              \
        make_##name(s, &s->image.a.name);                                                          \
    }                                                                                              \
    static void bound_sample_##name(struct sample *s, struct outputs *o)                           \
    {                                                                                              \
        bound_##name(&s->image.a.name, o);                                                         \
    }                                                                                              \
    static int call_image_##name(struct pp_backend *be, const struct image *image)                 \
    {                                                                                              \
        return call_##name(be, &image->a.name);                                                    \
    }
#include "kernels.def"

static const struct kernel kernels[] = {
#define PP_KERNEL(name, type) {#name, make_sample_##name, bound_sample_##name, call_image_##name},
#include "kernels.def"
};

#define N_KERNELS (int)(sizeof(kernels) / sizeof(kernels[0]))

/* Its number in the list of the product; -1: it is an entry, which every backend has. */
static int number_of(const struct kernel *k)
{
    int i = 0;
    while (i < PP_KERNELS && strcmp(pp_kernel_name((enum pp_kernel)i), k->name) != 0)
        i++;
    return i < PP_KERNELS ? i : -1;
}

/* Whether it is made of products, or multiplies and adds at once as these do. */
static bool is_fused(const struct kernel *k)
{
    return !strncmp(k->name, "linear_", 7) || !strncmp(k->name, "conv_", 5) ||
           !strncmp(k->name, "attention_", 10);
}

static bool has_kernel(const struct target *t, const struct kernel *k)
{
    int number = number_of(k);
    if (!strcmp(k->name, "largest"))
        return !t->be->caps.async;
    return number < 0 || pp_backend_has_kernel(&t->be->choice, (enum pp_kernel)number);
}

/* Whether it makes gradients of weights, which a device may leave to a sum that waits. */
static bool is_collected(const struct kernel *k)
{
    return strstr(k->name, "backward_weight") != NULL;
}

/* ---- one sample on one target */

static void make_sample(const struct kernel *k, struct pp_backend *plain, uint64_t seed, bool large,
                        struct sample *s)
{
    *s = (struct sample){.plain = plain, .seed = seed, .large = large};
    k->make(s);
}

/* What the plain version makes of s; o is what it wrote. */
static int run_plain(const struct kernel *k, const struct sample *s, struct sample *want,
                     struct outputs *o)
{
    PP_TRY(sample_copy(s, want));
    void *scratch = NULL;
    if (s->scratch_floats > 0) {
        scratch = calloc(s->scratch_floats, sizeof(float));
        memcpy((char *)&want->image + s->scratch_at, &scratch, sizeof(scratch));
    }
    k->bound(want, o);
    int rc = k->call(s->plain, &want->image);
    free(scratch);
    return rc;
}

/* `first`: what the first own target made of s; n 0: it did not run yet. */
static int check_bits(const struct kernel *k, const struct target *t, const struct sample *got,
                      struct sample *first)
{
    if (!t->is_own || (is_fused(k) && !t->is_fused))
        return 0;
    if (first->n == 0)
        return sample_copy(got, first);
    for (int i = 0; i < got->n; i++) {
        const struct array *a = &got->arrays[i];
        if (memcmp(a->data, first->arrays[i].data, a->n * a->size) != 0)
            return pp_fail(PP_ECHECK, "%s: %s has other bits than the first target's", k->name,
                           a->name);
    }
    return 0;
}

static int run_target(const struct kernel *k, const struct target *t, const struct sample *s,
                      int shift, struct sample *got)
{
    struct instance in;
    int rc = instance_create(&in, s, t, shift);
    rc = rc < 0 || !is_collected(k) ? rc : pp_backend_collect(t->be, PP_COLLECT_WEIGHTS);
    rc = rc < 0 ? rc : k->call(t->be, &in.image);
    rc = rc < 0 ? rc : pp_backend_collect(t->be, PP_COLLECT_NOTHING);
    rc = rc < 0 ? rc : pp_backend_synchronize(t->be);
    rc = rc < 0 ? rc : instance_fetch(&in, s, t, got);
    instance_destroy(&in, t);
    return rc;
}

/* A sample with what the plain version makes of it. */
struct oracle {
    struct sample s, want;
    struct outputs o;
};

static int make_oracle(const struct kernel *k, const struct sample *s, const struct target *t,
                       struct oracle *out)
{
    PP_TRY(sample_copy(s, &out->s));
    if (t)
        sample_round(&out->s, t);
    return run_plain(k, &out->s, &out->want, &out->o);
}

static void oracle_fini(struct oracle *o)
{
    sample_fini(&o->s);
    sample_fini(&o->want);
}

static int check_target(const struct kernel *k, const struct target *t, const struct oracle *o,
                        int shift, struct sample *first)
{
    struct sample got = {0};
    int rc = run_target(k, t, &o->s, shift, &got);
    rc = rc < 0 ? rc : check_outputs(k->name, &o->want, &got, &o->o, t->part);
    rc = rc < 0 ? rc : check_bits(k, t, &got, first);
    sample_fini(&got);
    return rc;
}

/* Values in bfloat16 are others: the plain version computes with these. */
static int check_rounded(const struct kernel *k, const struct target *t, const struct sample *s)
{
    struct oracle rounded = {0};
    int rc = make_oracle(k, s, t, &rounded);
    rc = rc < 0 ? rc : check_target(k, t, &rounded, 0, NULL);
    oracle_fini(&rounded);
    return rc;
}

/* ---- the check itself must find what is wrong */

/* Change a number that the plain version wrote by a thousandth of the largest, or by one. */
static bool spoil(struct sample *s, const struct outputs *o)
{
    for (int i = 0; i < o->n; i++) {
        void *p;
        memcpy(&p, o->of[i].at, sizeof(p));
        if (!p || o->of[i].n == 0)
            continue;
        if (o->of[i].size == sizeof(float))
            *(float *)p += (float)(0.001 * greatest_of(o->of[i].n, p) + 0.1);
        else if (o->of[i].size == sizeof(double))
            *(double *)p = 1.001 * *(double *)p + 1e-6;
        else
            ((unsigned char *)p)[o->of[i].size - 1] ^= 0x40;
        return true;
    }
    return false;
}

static int check_spoiled(const struct kernel *k, struct pp_backend *plain, uint64_t seed)
{
    for (int tries = 0; tries < 50; tries++) {
        struct sample s, want = {0}, got = {0};
        struct outputs o = {0};
        make_sample(k, plain, seed + (uint64_t)tries, false, &s);
        int rc = run_plain(k, &s, &want, &o);
        bool has_output = rc == 0 && sample_copy(&want, &got) == 0 && spoil(&want, &o);
        int found = has_output ? check_outputs(k->name, &want, &got, &o, 0) : PP_ECHECK;
        sample_fini(&s);
        sample_fini(&want);
        sample_fini(&got);
        if (rc < 0 || found != PP_ECHECK)
            return rc < 0 ? rc : pp_fail(PP_EINTERNAL, "a wrong element was not found");
        pp_error_clear();
        if (has_output)
            return 0;
    }
    return pp_fail(PP_EINTERNAL, "no sample has a result");
}

/* ---- all */

struct request {
    const char *only, *kernel;
    uint64_t seed;
    int rounds;
    bool time;
};

static int n_lines, n_failed;

static void tell(int rc, const char *kernel, const char *target, const char *more)
{
    printf("%s %d - %s: %s\n", rc < 0 ? "not ok" : "ok", ++n_lines, kernel, target);
    if (rc < 0)
        printf("# %s%s\n", pp_error_get()->text, more);
    n_failed += rc < 0;
    fflush(stdout);
    pp_error_clear();
}

static void check_kernel(const struct kernel *k, struct pp_backend *plain, const struct target *t,
                         int n_targets, const struct request *q)
{
    tell(check_spoiled(k, plain, q->seed), k->name, "a wrong element is found", "");
    int rc[TARGETS_MAX] = {0};
    char more[TARGETS_MAX][64] = {""};
    struct pp_error why[TARGETS_MAX];
    for (int round = 0; round < q->rounds; round++) {
        uint64_t seed = q->seed + (uint64_t)round;
        struct sample s, first = {0};
        struct oracle o = {0};
        make_sample(k, plain, seed, false, &s);
        int made = make_oracle(k, &s, NULL, &o);
        for (int i = 0; i < n_targets; i++) {
            if (rc[i] < 0 || !has_kernel(&t[i], k))
                continue;
            bool rounds = pp_backend_value_bytes(&t[i].be->choice) < sizeof(float);
            int shift = t[i].part > 0 ? 0 : i * 3 % 16;
            rc[i] = made < 0 ? made
                    : rounds ? check_rounded(k, &t[i], &s)
                             : check_target(k, &t[i], &o, shift, &first);
            why[i] = *pp_error_get();
            snprintf(more[i], sizeof(more[i]), " (--seed %llu)", (unsigned long long)seed);
        }
        oracle_fini(&o);
        sample_fini(&s);
        sample_fini(&first);
    }
    for (int i = 0; i < n_targets; i++) {
        if (rc[i] < 0)
            pp_error_adopt(&why[i]);
        if (has_kernel(&t[i], k))
            tell(rc[i], k->name, t[i].name, more[i]);
    }
}

/* The median of many calls, in microseconds. */
static double time_call(const struct kernel *k, const struct target *t, const struct sample *s)
{
    double times[TIMES_MAX];
    struct instance in;
    int n = 0, rc = instance_create(&in, s, t, 0);
    uint64_t start = pp_clock_ns();
    rc = rc < 0 ? rc : k->call(t->be, &in.image);
    rc = rc < 0 ? rc : pp_backend_synchronize(t->be);
    while (rc == 0 && n < TIMES_MAX && (n < 3 || pp_clock_ns() - start < TIMED_NS)) {
        uint64_t from = pp_clock_ns();
        rc = k->call(t->be, &in.image);
        rc = rc < 0 ? rc : pp_backend_synchronize(t->be);
        times[n++] = (double)(pp_clock_ns() - from) / 1e3;
    }
    instance_destroy(&in, t);
    if (rc < 0)
        fprintf(stderr, "checkops: %s on %s: %s\n", k->name, t->name, pp_error_get()->text);
    return n > 0 ? pp_median(times, n) : 0;
}

static void time_kernels(struct pp_backend *plain, const struct target *t, int n,
                         const struct request *q)
{
    const struct target of_plain = {.be = plain};
    printf("%-28s %12s", "us a call", "plain");
    for (int i = 0; i < n; i++)
        printf(" %14s", t[i].name);
    printf("\n");
    for (int k = 0; k < N_KERNELS; k++) {
        struct sample s;
        if (q->kernel && strcmp(q->kernel, kernels[k].name) != 0)
            continue;
        make_sample(&kernels[k], plain, q->seed, true, &s);
        printf("%-28s %12.1f", kernels[k].name, time_call(&kernels[k], &of_plain, &s));
        for (int i = 0; i < n; i++)
            printf(" %14.1f",
                   has_kernel(&t[i], &kernels[k]) ? time_call(&kernels[k], &t[i], &s) : 0);
        printf("\n");
        fflush(stdout);
        sample_fini(&s);
    }
}

static int parse(int argc, char **argv, struct request *q)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--time"))
            q->time = true;
        else if (!value)
            return -1;
        else if (!strcmp(argv[i], "--only"))
            q->only = argv[++i];
        else if (!strcmp(argv[i], "--kernel"))
            q->kernel = argv[++i];
        else if (!strcmp(argv[i], "--seed"))
            q->seed = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--rounds"))
            q->rounds = atoi(argv[++i]);
        else
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct request q = {.only = CHECKOPS_ONLY, .seed = 1, .rounds = 60};
    static struct target targets[TARGETS_MAX];
    struct pp_backend *plain;
    if (parse(argc, argv, &q) < 0) {
        fprintf(stderr, "usage: checkops [--time] [--only TARGET] [--kernel NAME] [--rounds N] "
                        "[--seed N]\n");
        return 2;
    }
    if (pp_backend_open(&backend_reference, 1, &plain) < 0)
        return 1;
    int n = targets_open(targets, TARGETS_MAX, q.only);
    if (n == 0) {
        printf("1..0 # SKIP no target '%s' can run here\n", q.only);
        return 77;
    }
    if (q.time)
        time_kernels(plain, targets, n, &q);
    for (int k = 0; k < N_KERNELS && !q.time; k++)
        if (!q.kernel || !strcmp(q.kernel, kernels[k].name))
            check_kernel(&kernels[k], plain, targets, n, &q);
    if (!q.time)
        printf("1..%d\n", n_lines);
    targets_close(targets, n);
    pp_backend_close(&plain);
    return n_failed > 0;
}
