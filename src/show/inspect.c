/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint or safetensors file holds. The answer first, then the table. */
#include "ppcli/show/results.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

#define WIDTH_MAX 80 /* of a column; longer names push theirs aside */

struct counts {
    uint64_t parameters, values; /* what is learned; everything */
};

static struct counts count(const struct pp_ckpt *ck)
{
    struct counts c = {0};
    for (int i = 0; i < ck->n_tensors; i++) {
        const struct pp_st_tensor *t = pp_ckpt_tensor(ck, i, NULL);
        c.values += t->elements;
        c.parameters += pp_ckpt_is_parameter(t) ? t->elements : 0;
    }
    return c;
}

/* ---- for people */

static void print_state(const struct pp_ckpt_state *s, FILE *f)
{
    fprintf(f, "step         %" PRId64 "\n", s->step);
    fprintf(f, "epoch        %" PRId64 ", %" PRId64 " steps of it done\n", s->epoch,
            s->epoch_steps);
    fprintf(f, "samples      %" PRId64 "\n", s->samples);
    fprintf(f, "seed         %" PRIu64 "\n", s->seed);
    fprintf(f, "config_hash  %s\n", s->config_hash);
    fprintf(f, "fingerprint  %s\n", s->fingerprint);
    fprintf(f, "ppcli        %s\n", s->ppcli);
    for (int i = 0; i < s->n_numbers; i++) {
        double v = s->numbers[i].value;
        bool whole = fabs(v) < 0x1p53 && v == nearbyint(v); /* counts and checksums */
        fprintf(f, "%-20s ", s->numbers[i].name);
        fprintf(f, whole ? "%.0f\n" : "%.9g\n", v);
    }
    fprintf(f, "\n");
}

#define SHOWN_BYTES 1024 /* of a name */

/* The name as a terminal may have it; in quotes where its end could not be seen. */
static const char *show_name(const struct pp_st_tensor *t, char out[SHOWN_BYTES])
{
    char plain[SHOWN_BYTES - 2];
    pp_text_shown(t->name, plain, sizeof(plain));
    bool quoted = plain[0] == '\0' || strchr(plain, ' ');
    snprintf(out, SHOWN_BYTES, quoted ? "\"%s\"" : "%s", plain);
    return out;
}

static int wider(int width, const char *text)
{
    int n = pp_text_columns(text);
    return n > width && n <= WIDTH_MAX ? n : width;
}

static void print_cell(const char *text, int width, FILE *f)
{
    int n = pp_text_columns(text);
    fprintf(f, "%s%*s", text, (n < width ? width - n : 0) + 2, "");
}

static void print_table(const struct pp_ckpt *ck, FILE *f)
{
    int widths[3] = {6, 4, 5};
    char name[SHOWN_BYTES], shape[PP_ST_SHAPE_BYTES];
    for (int i = 0; i < ck->n_tensors; i++) {
        const struct pp_st_tensor *t = pp_ckpt_tensor(ck, i, NULL);
        widths[0] = wider(widths[0], show_name(t, name));
        widths[1] = wider(widths[1], pp_st_dtype_name(t->dtype));
        widths[2] = wider(widths[2], pp_st_shape(t->n_dims, t->dims, shape));
    }
    print_cell("tensor", widths[0], f);
    print_cell("type", widths[1], f);
    print_cell("shape", widths[2], f);
    fprintf(f, "%12s  file\n", "bytes");
    for (int i = 0; i < ck->n_tensors; i++) {
        const char *file = NULL;
        const struct pp_st_tensor *t = pp_ckpt_tensor(ck, i, &file);
        print_cell(show_name(t, name), widths[0], f);
        print_cell(pp_st_dtype_name(t->dtype), widths[1], f);
        print_cell(pp_st_shape(t->n_dims, t->dims, shape), widths[2], f);
        fprintf(f, "%12" PRIu64 "  %s\n", t->end - t->begin, file);
    }
}

/* Types that no parameter can be read from, each once. */
static void print_unreadable(const struct pp_ckpt *ck, FILE *f)
{
    char types[256] = "";
    int n = 0;
    for (int i = 0; i < ck->n_tensors; i++) {
        const struct pp_st_tensor *t = pp_ckpt_tensor(ck, i, NULL);
        const char *type = pp_st_dtype_name(t->dtype);
        if (pp_ckpt_is_readable(t))
            continue;
        n++;
        if (!pp_has_word(types, type))
            pp_text_add(types, sizeof(types), "%s%s", types[0] ? " " : "", type);
    }
    if (n > 0) {
        fprintf(f,
                "\nppcli cannot train with or evaluate %d of the tensors (%s): it reads F32, F16, "
                "BF16 and F64\n",
                n, types);
    }
}

static int print_ckpt(const struct pp_ckpt *ck, FILE *f)
{
    const struct pp_ckpt_state *s = pp_ckpt_state(ck);
    struct counts c = count(ck);
    char size[PP_COUNT_TEXT], path[PP_PATH_MAX];
    pp_text_size(ck->bytes, size);
    pp_text_shown(ck->path, path, sizeof(path));
    if (s) {
        fprintf(f,
                "%s: step %" PRId64 ", epoch %" PRId64 ", %" PRIu64
                " parameters, %s in %d file%s\n\n",
                path, s->step, s->epoch, c.parameters, size, ck->n_parts, pp_plural(ck->n_parts));
        print_state(s, f);
    } else {
        fprintf(f, "%s: %" PRIu64 " parameters in %d tensors, %s, without the state of a run\n\n",
                path, c.parameters, ck->n_tensors, size);
    }
    print_table(ck, f);
    print_unreadable(ck, f);
    return 0;
}

/* ---- for programs */

static void json_state(struct pp_json *j, const struct pp_ckpt_state *s)
{
    char seed[32];
    snprintf(seed, sizeof(seed), "%" PRIu64, s->seed);
    pp_json_int(j, "step", s->step);
    pp_json_int(j, "epoch", s->epoch);
    pp_json_int(j, "epoch_steps", s->epoch_steps);
    pp_json_int(j, "samples", s->samples);
    pp_json_str(j, "seed", seed);
    pp_json_str(j, "config_hash", s->config_hash);
    pp_json_str(j, "fingerprint", s->fingerprint);
    pp_json_str(j, "ppcli", s->ppcli);
    pp_json_object(j, "numbers");
    for (int i = 0; i < s->n_numbers; i++)
        pp_json_dbl(j, s->numbers[i].name, s->numbers[i].value);
    pp_json_end(j);
}

static int json_ckpt(const struct pp_ckpt *ck, FILE *f)
{
    const struct pp_ckpt_state *s = pp_ckpt_state(ck);
    struct counts c = count(ck);
    struct pp_json j = pp_json_begin(f, 2);
    pp_json_int(&j, "schema", 1);
    pp_json_str(&j, "path", ck->path);
    pp_json_str(&j, "kind", s ? "checkpoint" : "safetensors");
    pp_json_uint(&j, "parameters", c.parameters);
    pp_json_uint(&j, "values", c.values);
    pp_json_uint(&j, "bytes", ck->bytes);
    pp_json_int(&j, "files", ck->n_parts);
    if (s) {
        json_state(&j, s);
        pp_json_str(&j, "config", ck->config);
    }
    pp_json_array(&j, "tensors");
    for (int i = 0; i < ck->n_tensors; i++) {
        const char *file = NULL;
        const struct pp_st_tensor *t = pp_ckpt_tensor(ck, i, &file);
        pp_json_object(&j, NULL);
        pp_json_str(&j, "name", t->name);
        pp_json_str(&j, "dtype", pp_st_dtype_name(t->dtype));
        pp_json_array(&j, "shape");
        for (int d = 0; d < t->n_dims; d++)
            pp_json_int(&j, NULL, t->dims[d]);
        pp_json_end(&j);
        pp_json_uint(&j, "bytes", t->end - t->begin);
        pp_json_str(&j, "file", file);
        pp_json_bool(&j, "readable", pp_ckpt_is_readable(t));
        pp_json_end(&j);
    }
    pp_json_end(&j);
    pp_json_end(&j);
    return 0;
}

int pp_ckpt_print(const struct pp_ckpt *ck, bool json, FILE *f)
{
    return json ? json_ckpt(ck, f) : print_ckpt(ck, f);
}
