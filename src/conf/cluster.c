/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, checks and writes machine files by one table of keys. */
#include "ppcli/conf/cluster.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "conf.h"

#define AT(member) offsetof(struct pp_cluster, member)

static const struct key {
    const char *section, *name;
    size_t at;
    bool optional;
    enum {
        PLAIN,
        WHOLE,
        INVERSE /* the struct has 1 / x */
    } form;
    double min, max;
    const char *what; /* with an example */
} keys[] = {
    {"device", "f32", AT(peak[PP_PRECISION_F32]), false, PLAIN, 1e8, 1e18, "flop/s, such as 67T"},
    {"device", "tf32", AT(peak[PP_PRECISION_TF32]), true, PLAIN, 1e8, 1e18, "flop/s, such as 495T"},
    {"device", "bf16", AT(peak[PP_PRECISION_BF16]), true, PLAIN, 1e8, 1e18, "flop/s, such as 989T"},
    {"device", "fp8", AT(fp8), true, PLAIN, 1e8, 1e18, "flop/s, such as 1979T"},
    {"device", "bandwidth", AT(bandwidth), false, PLAIN, 1e8, 1e15,
     "bytes/s of memory, such as 3.35T"},
    {"device", "memory", AT(memory), false, PLAIN, 1e6, 1e15, "bytes for one rank, such as 80G"},
    {"device", "reserve", AT(reserve), true, PLAIN, 0, 1e15,
     "bytes that the context, NCCL and fragments take, such as 5G"},
    {"device", "product", AT(product), false, PLAIN, .001, 1, "share of the peak, such as 0.6"},
    {"device", "attention", AT(attention), false, PLAIN, .001, 1, "share of the peak, such as 0.4"},
    {"device", "conv", AT(conv), false, PLAIN, .001, 1, "share of the peak, such as 0.5"},
    {"device", "own_product", AT(own_product), true, PLAIN, .001, 1,
     "share of the peak of ppcli's own kernels, such as 0.6"},
    {"device", "own_attention", AT(own_attention), true, PLAIN, .001, 1,
     "share of the peak of ppcli's own kernels, such as 0.2"},
    {"device", "passes", AT(passes), false, PLAIN, .001, 1, "share of the bandwidth, such as 0.8"},
    {"device", "launch", AT(launch), false, PLAIN, 0, .1, "seconds of an op, such as 4e-6"},
    {"host", "ranks", AT(ranks), false, WHOLE, 1, PP_STAGES_MAX, "ranks of a host, such as 8"},
    {"host", "busy", AT(busy), true, PLAIN, 0, 1e6, "load of other programs when it was measured"},
    {"within", "latency", AT(within.latency), false, PLAIN, 0, 10, "seconds, such as 5e-6"},
    {"within", "bandwidth", AT(within.byte), false, INVERSE, 1e3, 1e15, "bytes/s, such as 450G"},
    {"within", "hidden", AT(hidden), true, PLAIN, 0, 1,
     "share of tensor parallelism's messages that products hide, such as 0.5"},
    {"between", "latency", AT(between.latency), true, PLAIN, 0, 10, "seconds, such as 1e-5"},
    {"between", "bandwidth", AT(between.byte), true, INVERSE, 1e3, 1e15, "bytes/s, such as 50G"},
    {"between", "shared", AT(shared), true, WHOLE, 0, 1, "0, or 1: the ranks of a host share it"},
};
#define KEYS ((int)(sizeof(keys) / sizeof(keys[0])))

static double *place_of_key(struct pp_cluster *c, const struct key *k)
{
    return (double *)(void *)((char *)c + k->at);
}

/* Parses a number with its unit at *text and moves *text past it; returns NAN if there is none. */
static double parse_scaled(const char **text)
{
    double x;
    *text += strspn(*text, " \t");
    return conf_scaled_parse(text, &x) && (!**text || strchr(" \t", **text)) ? x : NAN;
}

struct reader {
    struct pp_cluster c;
    bool seen[KEYS], failed;
    const char *path;
};

static int take_layer(struct pp_cluster *c, const char *name, const char *value)
{
    struct pp_cluster_layer l = {.rows = 0};
    double rows = parse_scaled(&value);
    bool good = rows >= 1 && rows <= INT_MAX && strlen(name) < sizeof(l.name);
    for (int i = 0; i < 3; i++) {
        l.t[i] = parse_scaled(&value);
        good = good && l.t[i] >= 0 && l.t[i] < 1e6;
    }
    l.work = *value ? parse_scaled(&value) : 0;
    if (!good || *value || !(l.work >= 0))
        return pp_fail(PP_ECONFIG, "a layer is NAME = ROWS F I W: rows of a micro-batch and three "
                                   "times in seconds, and perhaps its WORK");
    PP_GROW(c->layers, c->n_layers + 1);
    snprintf(l.name, sizeof(l.name), "%s", name);
    l.rows = (int)rows;
    c->layers[c->n_layers++] = l;
    return 0;
}

/* Sets latency and bandwidth of a section from the file `name`, an output of nccl-tests. A relative
 * path begins at the folder of the machine file. */
static int take_link_table(struct reader *r, const char *section, const char *name)
{
    struct pp_link link;
    char path[PP_PATH_MAX];
    const char *slash = strrchr(r->path, '/');
    int folder = name[0] == '/' || !slash ? 0 : (int)(slash + 1 - r->path);
    if (snprintf(path, sizeof(path), "%.*s%s", folder, r->path, name) >= (int)sizeof(path))
        return pp_fail(PP_ECONFIG, "%s.nccl_tests: the path is too long", section);
    PP_TRY(conf_nccl_tests_read(path, &link));
    for (int i = 0; i < KEYS; i++) {
        bool is_latency = strcmp(keys[i].name, "latency") == 0;
        if (strcmp(keys[i].section, section) != 0 ||
            (!is_latency && strcmp(keys[i].name, "bandwidth") != 0))
            continue;
        if (r->seen[i])
            return pp_fail(PP_ECONFIG, "%s.%s is given twice: by itself and by nccl_tests", section,
                           keys[i].name);
        *place_of_key(&r->c, &keys[i]) = is_latency ? link.latency : link.byte;
        r->seen[i] = true;
    }
    return 0;
}

static int take_value(struct reader *r, const char *section, const char *name, const char *value)
{
    struct conf_quoted said = conf_quote(value, strlen(value));
    if (strcmp(section, "layers") == 0)
        return take_layer(&r->c, name, value);
    if (strcmp(section, "device") == 0 && strcmp(name, "kernels") == 0) {
        bool fits = snprintf(r->c.kernels, sizeof(r->c.kernels), "%s", value) < PP_NAME_MAX;
        return fits ? 0 : pp_fail(PP_ECONFIG, "device.kernels: at most %d bytes", PP_NAME_MAX - 1);
    }
    if (strcmp(name, "nccl_tests") == 0 &&
        (strcmp(section, "within") == 0 || strcmp(section, "between") == 0))
        return take_link_table(r, section, value);
    int i = 0;
    while (i < KEYS && (strcmp(keys[i].section, section) != 0 || strcmp(keys[i].name, name) != 0))
        i++;
    if (i == KEYS)
        return pp_fail(PP_ECONFIG, "unknown key %s.%s in a machine file",
                       conf_quote(section, strlen(section)).s, conf_quote(name, strlen(name)).s);
    const struct key *k = &keys[i];
    double x = parse_scaled(&value);
    if (r->seen[i])
        return pp_fail(PP_ECONFIG, "%s.%s is given twice", k->section, k->name);
    if (!(x >= k->min && x <= k->max) || *value || (k->form == WHOLE && x != floor(x)))
        return pp_fail(PP_ECONFIG, "%s.%s: '%s' is not possible; write %g to %g %s", k->section,
                       k->name, said.s, k->min, k->max, k->what);
    *place_of_key(&r->c, k) = k->form == INVERSE ? 1 / x : x;
    r->seen[i] = true;
    return 0;
}

/* Reports a failure at a line of the machine file, unless one was reported before. */
static void fail_at_line(void *reader, int line, const char *text)
{
    struct reader *r = reader;
    if (!r->failed)
        r->failed = pp_fail(PP_ECONFIG, "%s:%d: %s", r->path, line, text) < 0;
}

static void take_machine_key(void *reader, int line, const char *section, const char *name,
                             const char *value)
{
    struct reader *r = reader;
    if (!r->failed && take_value(r, section, name, value) < 0) {
        pp_error_context("%s:%d", r->path, line);
        r->failed = true;
    }
}

static int read_keys(struct reader *r)
{
    static const char *const sections[] = {"device", "host", "within", "between", "layers", NULL};
    const struct conf_ini to = {r, sections, "", fail_at_line, take_machine_key};
    PP_OWN_MEMORY char *text = NULL;
    size_t bytes;
    PP_TRY(pp_file_read(r->path, CONF_FILE_MAX, &text, &bytes));
    PP_TRY(conf_ini_parse(text, bytes, &to));
    if (r->failed)
        return pp_error_get()->code;
    for (int i = 0; i < KEYS; i++)
        if (!r->seen[i] && !keys[i].optional)
            return pp_fail(PP_ECONFIG, "%s: %s.%s is missing: %s", r->path, keys[i].section,
                           keys[i].name, keys[i].what);
    if (r->c.reserve >= r->c.memory)
        return pp_fail(PP_ECONFIG,
                       "%s: device.reserve = %.4g bytes is all of device.memory = %.4g bytes; "
                       "write less",
                       r->path, r->c.reserve, r->c.memory);
    return 0;
}

int pp_cluster_read(const char *path, struct pp_cluster *out)
{
    struct reader r = {.path = path};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    PP_TRY_UNDO(read_keys(&r), pp_cluster_fini(&r.c));
    snprintf(r.c.name, sizeof(r.c.name), "%.*s", (int)strcspn(name, "."), name);
    *out = r.c;
    return 0;
}

void pp_cluster_fini(struct pp_cluster *c)
{
    pp_free(c->layers);
    *c = (struct pp_cluster){.layers = NULL};
}

int pp_cluster_write(const struct pp_cluster *c, FILE *f)
{
    struct pp_cluster copy = *c;
    const char *section = "";
    for (int i = 0; i < KEYS; i++) {
        const struct key *k = &keys[i];
        double x = *place_of_key(&copy, k);
        if (x <= 0 && k->optional)
            continue;
        x = k->form == INVERSE ? 1 / x : x;
        if (strcmp(k->section, section) != 0)
            fprintf(f, "\n[%s]\n", k->section);
        section = k->section;
        fprintf(f, "%s = %.6g\n", k->name, x);
    }
    if (c->kernels[0])
        fprintf(f, "\n[device]\nkernels = %s\n", c->kernels);
    for (int i = 0; i < c->n_layers; i++) {
        const struct pp_cluster_layer *l = &c->layers[i];
        fprintf(f, "%s%s = %d %.4g %.4g %.4g %.17g\n", i == 0 ? "\n[layers]\n" : "", l->name,
                l->rows, l->t[0], l->t[1], l->t[2], l->work);
    }
    return ferror(f) ? pp_fail(PP_EIO, "machine file: cannot be written") : 0;
}
