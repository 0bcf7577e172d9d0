/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint or safetensors file holds. The answer first, then the table. */
#include "results.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

#define NAME_BYTES 1024 /* that are shown */

struct counts {
    uint64_t parameters, values; /* what is learned; everything */
};

static struct counts count_ckpt_values(const struct pp_ckpt *ck)
{
    struct counts c = {0};
    for (int i = 0; i < ck->n_tensors; i++) {
        const struct pp_st_tensor *t = pp_ckpt_tensor(ck, i, NULL);
        c.values += t->elements;
        c.parameters += pp_ckpt_is_parameter(t) ? t->elements : 0;
    }
    return c;
}

/* ---- the tensors */

struct tensor_row {
    const struct pp_st_tensor *t;
    const char *name, *type, *file;
    char shown[NAME_BYTES], shape[PP_ST_SHAPE_BYTES];
    uint64_t bytes;
    bool is_readable;
};

/* Writes the name of a tensor so that it is safe on a terminal, in quotes if its end could not be
 * seen. */
static void show_name(const struct pp_st_tensor *t, char out[NAME_BYTES])
{
    char plain[NAME_BYTES - 2];
    pp_text_shown(t->name, plain, sizeof(plain));
    bool quoted = plain[0] == '\0' || strchr(plain, ' ');
    snprintf(out, NAME_BYTES, quoted ? "\"%s\"" : "%s", plain);
}

static void make_tensor_rows(const struct pp_ckpt *ck, struct tensor_row *rows)
{
    for (int i = 0; i < ck->n_tensors; i++) {
        struct tensor_row *r = &rows[i];
        r->t = pp_ckpt_tensor(ck, i, &r->file);
        r->name = r->t->name;
        r->type = pp_st_dtype_name(r->t->dtype);
        r->bytes = r->t->end - r->t->begin;
        r->is_readable = pp_ckpt_is_readable(r->t);
        show_name(r->t, r->shown);
        pp_st_shape(r->t->n_dims, r->t->dims, r->shape);
    }
}

static void put_shape(const void *row, const char *key, struct pp_json *j)
{
    const struct pp_st_tensor *t = ((const struct tensor_row *)row)->t;
    pp_json_array(j, key);
    for (int d = 0; d < t->n_dims; d++)
        pp_json_int(j, NULL, t->dims[d]);
    pp_json_end(j);
}

#define TENSOR(m) PP_FIELD(struct tensor_row, m)
static const struct pp_column tensor_columns[] = {
    {NULL, "tensor", TENSOR(shown)},
    {"name", TENSOR(name), .help = "of the tensor"},
    {"dtype", "type", TENSOR(type), .help = "type of its values"},
    {NULL, "shape", TENSOR(shape)},
    {"shape", .put = put_shape, .type = "numbers", .help = "its dimensions"},
    {"bytes", "bytes", TENSOR(bytes), .help = "its size"},
    {"file", "file", TENSOR(file), .nullable = true, .help = "where it lies"},
    {"readable", TENSOR(is_readable), .help = "ppcli can train with this type"},
    {0}};

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

/* Prints how many tensors have types from which ppcli cannot read a parameter, and each of these
 * types once. */
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
    struct counts c = count_ckpt_values(ck);
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
    PP_TAKE(struct tensor_row, rows, ck->n_tensors + 1);
    make_tensor_rows(ck, rows);
    pp_listing_print(tensor_columns, &(struct pp_listing){rows, sizeof(*rows), ck->n_tensors},
                     PP_LISTING_TEXT, 0, f);
    print_unreadable(ck, f);
    return 0;
}

/* ---- for programs */

struct ckpt_document {
    const char *path, *kind, *config;
    struct counts counts;
    uint64_t bytes;
    int files;
    bool has_state;
    char seed[32]; /* as text: 64 bits */
    struct pp_ckpt_state s;
    struct pp_listing tensors;
};

PP_HAS(has_state, struct ckpt_document, row->has_state)

static void put_numbers(const void *document, const char *key, struct pp_json *j)
{
    const struct pp_ckpt_state *s = &((const struct ckpt_document *)document)->s;
    pp_json_object(j, key);
    for (int i = 0; i < s->n_numbers; i++)
        pp_json_dbl(j, s->numbers[i].name, s->numbers[i].value);
    pp_json_end(j);
}

#define CKPT(m) PP_FIELD(struct ckpt_document, m)
#define STATE(m) CKPT(m), .has = has_state
const struct pp_column pp_inspect_columns[] = {
    PP_SCHEMA(1),
    {"path", CKPT(path), .help = "what was read"},
    {"kind", CKPT(kind), .help = "\"checkpoint\" or \"safetensors\""},
    {"parameters", CKPT(counts.parameters), .help = "values that are learned"},
    {"values", CKPT(counts.values), .help = "values of all tensors"},
    {"bytes", CKPT(bytes), .help = "size of all files"},
    {"files", CKPT(files), .help = "files with tensors"},
    {"step", STATE(s.step), .help = "of a checkpoint: steps that were trained"},
    {"epoch", STATE(s.epoch), .help = "the running epoch, from 1"},
    {"epoch_steps", STATE(s.epoch_steps), .help = "steps of it that were trained"},
    {"samples", STATE(s.samples), .help = "samples that were trained"},
    {"seed", STATE(seed), .help = "run.seed"},
    {"config_hash", STATE(s.config_hash), .help = "digest of the config"},
    {"fingerprint", STATE(s.fingerprint), .help = "digest of the model"},
    {"ppcli", STATE(s.ppcli), .help = "version that wrote it"},
    {"numbers", .put = put_numbers, .type = "number by name", .has = has_state,
     .help = "state of the run, by name"},
    {"config", STATE(config), .help = "the config, as text"},
    {"tensors", CKPT(tensors), .inner = tensor_columns, .help = "in the order of the files"},
    {0}};

static int print_ckpt_json(const struct pp_ckpt *ck, FILE *f)
{
    const struct pp_ckpt_state *s = pp_ckpt_state(ck);
    PP_TAKE(struct tensor_row, rows, ck->n_tensors + 1);
    PP_TAKE(struct ckpt_document, d, 1);
    make_tensor_rows(ck, rows);
    *d = (struct ckpt_document){.path = ck->path,
                                .kind = s ? "checkpoint" : "safetensors",
                                .config = ck->config,
                                .counts = count_ckpt_values(ck),
                                .bytes = ck->bytes,
                                .files = ck->n_parts,
                                .has_state = s,
                                .tensors = {rows, sizeof(*rows), ck->n_tensors}};
    if (s) {
        d->s = *s;
        snprintf(d->seed, sizeof(d->seed), "%" PRIu64, s->seed);
    }
    pp_document_json(pp_inspect_columns, d, f);
    return 0;
}

int pp_ckpt_print(const struct pp_ckpt *ck, bool json, FILE *f)
{
    return json ? print_ckpt_json(ck, f) : print_ckpt(ck, f);
}
