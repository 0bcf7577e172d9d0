/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the archive of a PyTorch program: which torch wrote it, the tensors it holds, and the
 * signature of the graph, which says where the inputs, weights and outputs are. Everything that is
 * named is found by name; the order of the file's parts does not matter.
 */
#include "archive_impl.h"

#include <inttypes.h>

#include "ppcli/base/files.h"

#define MODEL_MAX ((size_t)1 << 30) /* bytes of models/model.json */
#define VALUES_MAX 4000000
#define SCHEMA 8
#define STRIDED 7 /* PyTorch's number of the layout of plain tensors */
#define ADVICE "save it again with torch 2.10 or newer"
#define PROGRAM "torch.export.save(torch.export.export(model, ...), FILE)"

/* ---- types */

static const struct {
    const char *name;
    size_t bytes;
    int code; /* in the schema */
} dtypes[] = {
    [PT_F32] = {"float32", 4, 7},    [PT_F64] = {"float64", 8, 8},  [PT_F16] = {"float16", 2, 6},
    [PT_BF16] = {"bfloat16", 2, 13}, [PT_I64] = {"int64", 8, 5},    [PT_I32] = {"int32", 4, 4},
    [PT_I16] = {"int16", 2, 3},      [PT_I8] = {"int8", 1, 2},      [PT_U8] = {"uint8", 1, 1},
    [PT_BOOL] = {"bool", 1, 12},     [PT_OTHER] = {"other", 0, -1},
};

size_t pt_dtype_bytes(enum pt_dtype t)
{
    return dtypes[t].bytes;
}

const char *pt_dtype_name(enum pt_dtype t)
{
    return dtypes[t].name;
}

enum pt_dtype pt_dtype_of(const json_t *code)
{
    int t = 0;
    while (t < PT_OTHER && (!json_is_integer(code) || json_integer_value(code) != dtypes[t].code))
        t++;
    return (enum pt_dtype)t;
}

/* ---- sizes and shapes */

/* Copies the name of the symbol that an expression consists of, "Symbol('s77', positive=True)";
 * returns what follows its name, or NULL if it is none. */
static const char *read_symbol(const char *text, char *out, size_t bytes)
{
    const char *name = text + 8, *end = NULL;
    if (strncmp(text, "Symbol('", 8) == 0)
        end = strchr(name, '\'');
    if (end)
        snprintf(out, bytes, "%.*s", (int)PP_MIN((size_t)(end - name), bytes - 1), name);
    return end;
}

/* Reads what sympy's srepr() prints: a symbol, a number, or Mul(Integer(2), Symbol('s77')). */
static void read_expression(const struct pt_reading *r, const char *text, struct pt_size *out)
{
    char symbol[PT_NAME_MAX] = "";
    int64_t n = 1;
    int used = 0;
    bool product = strncmp(text, "Mul(", 4) == 0;
    *out = (struct pt_size){-1, true};
    text += product ? 4 : 0;
    if (sscanf(text, "Integer(%" SCNd64 ")%n", &n, &used) == 1 && used > 0) {
        if (!product && text[used] == '\0')
            *out = (struct pt_size){.n = n};
        if (!product || strncmp(text + used, ", ", 2) != 0)
            return;
        text += used + 2;
    }
    const char *end = read_symbol(text, symbol, sizeof(symbol));
    /* Symbols have no brackets, so the first one ends it; a product with more factors goes on. */
    end = end ? strchr(end, ')') : NULL;
    if (end && strcmp(end, product ? "))" : ")") == 0 && n > 0 &&
        pt_names_find(&r->symbols, symbol) > 0)
        *out = (struct pt_size){n, true};
}

int pt_read_size(struct pt_reading *r, const json_t *j, struct pt_size *out)
{
    const json_t *number = json_object_get(j, "as_int");
    const json_t *text = json_object_get(json_object_get(j, "as_expr"), "expr_str");
    if (json_is_integer(number))
        *out = (struct pt_size){.n = json_integer_value(number)};
    else if (json_is_string(text))
        read_expression(r, json_string_value(text), out);
    else
        return pp_fail(PP_EFORMAT, "%s: a size is neither a number nor an expression", r->where);
    return 0;
}

static int read_shape(struct pt_reading *r, const json_t *meta, struct pt_tensor *out)
{
    const json_t *sizes = json_object_get(meta, "sizes");
    int64_t elements = 1;
    if (!json_is_array(sizes) || json_array_size(sizes) > PT_DIMS) {
        return pp_fail(PP_EFORMAT, "%s: it has %zu dimensions; at most %d can be read", r->where,
                       json_array_size(sizes), PT_DIMS);
    }
    out->dtype = pt_dtype_of(json_object_get(meta, "dtype"));
    out->n_dims = (int)json_array_size(sizes);
    for (int i = 0; i < out->n_dims; i++) {
        struct pt_size *d = &out->dims[i];
        PP_TRY(pt_read_size(r, json_array_get(sizes, (size_t)i), d));
        if (d->n < 0 && !d->batch)
            return pp_fail(PP_EFORMAT, "%s: dimension %d is negative", r->where, i);
        if (d->n > 0 &&
            (__builtin_mul_overflow(elements, d->n, &elements) || elements > PT_ELEMENTS))
            return pp_fail(PP_EFORMAT, "%s: its shape is too large to be true", r->where);
    }
    return 0;
}

/* ---- entries of the archive */

static const struct pp_zip_entry *find_entry(const struct pt_reading *r, const char *name)
{
    char path[2 * PT_NAME_MAX];
    if (snprintf(path, sizeof(path), "%s%s", r->root, name) >= (int)sizeof(path))
        return NULL;
    return pp_zip_find(r->p->zip, path);
}

/* Returns whether an entry holds this text, with or without a line end. */
static bool entry_is(const struct pp_zip_entry *e, const char *text)
{
    size_t n = strlen(text);
    return e->method == 0 && e->bytes >= n && e->bytes <= n + 1 && memcmp(e->data, text, n) == 0;
}

/* Refuses an archive without the mark of a program, and says what it is. */
static int refuse_archive(const struct pt_reading *r)
{
    const struct pp_zip *z = r->p->zip;
    bool pickle = false, script = false;
    if (pp_zip_find(z, "serialized_exported_program.json"))
        return pp_fail(PP_EFORMAT, "%s: saved by torch 2.7 or older: " ADVICE, r->file);
    for (int i = 0; i < z->n; i++) {
        pickle = pickle || pp_text_ends(z->entries[i].name, "/data.pkl");
        script = script || pp_text_ends(z->entries[i].name, "/constants.pkl");
    }
    return pp_fail(PP_EFORMAT, "%s: %s: save the program with " PROGRAM, r->file,
                   script   ? "a TorchScript file, which has been given up"
                   : pickle ? "a file of torch.save(), which has weights but no program"
                            : "not an archive of torch.export.save()");
}

/* Finds the folder that all entries are in, and checks the marks there. */
static int find_root(struct pt_reading *r)
{
    const struct pp_zip *z = r->p->zip;
    static const char mark[] = "archive_format";
    int at = 0;
    while (at < z->n && strcmp(z->entries[at].name, mark) != 0 &&
           !pp_text_ends(z->entries[at].name, "/archive_format"))
        at++;
    if (at == z->n || !entry_is(&z->entries[at], "pt2"))
        return refuse_archive(r);
    char root[PP_PATH_MAX];
    PP_TRY(pp_path_format(root, "%s", z->entries[at].name));
    root[strlen(root) - (sizeof(mark) - 1)] = '\0';
    r->root = pt_keep(r, root);
    if (!r->root)
        return PP_ERESOURCE;
    const struct pp_zip_entry *order = find_entry(r, "byteorder");
    if (order && !entry_is(order, "little"))
        return pp_fail(PP_EFORMAT, "%s: saved on a big-endian machine: save it on another",
                       r->file);
    return 0;
}

/* Reads an entry that holds JSON, which must be stored; *out stays in the archive. */
static int read_json_entry(struct pt_reading *r, const char *name, struct pt_text *out)
{
    const struct pp_zip_entry *e = find_entry(r, name);
    if (!e) {
        return pp_fail(PP_EFORMAT, "%s: it has no %s: save the program with " PROGRAM, r->file,
                       name);
    }
    if (e->bytes > MODEL_MAX) {
        return pp_fail(PP_EFORMAT, "%s: %s has %zu bytes; at most %zu can be read", r->file, name,
                       e->bytes, MODEL_MAX);
    }
    if (e->method != 0) {
        return pp_fail(PP_EFORMAT,
                       "%s: %s is compressed: leave the archive as torch.export.save() wrote it",
                       r->file, name);
    }
    *out = (struct pt_text){(const char *)e->data, e->bytes};
    snprintf(r->where, sizeof(r->where), "%s: %s", r->file, name);
    return pp_zip_check(r->p->zip, e);
}

/* ---- the tensors of the archive */

/* Returns the bytes that a weight needs in its storage; SIZE_MAX: its form is damaged. */
static size_t count_bytes(const struct pt_weight *w)
{
    int64_t end = w->offset, part = 0;
    size_t bytes = 0;
    bool fits = w->offset >= 0;
    for (int i = 0; i < w->n_dims; i++) {
        if (w->dims[i] == 0)
            return 0;
        fits = fits && w->strides[i] >= 0 &&
               !__builtin_mul_overflow(w->dims[i] - 1, w->strides[i], &part) &&
               !__builtin_add_overflow(end, part, &end);
    }
    fits = fits && end < INT64_MAX &&
           !__builtin_mul_overflow((size_t)end + 1, pt_dtype_bytes(w->dtype), &bytes);
    return fits ? bytes : SIZE_MAX;
}

static int read_strides(struct pt_reading *r, const json_t *meta, struct pt_weight *w)
{
    struct pt_tensor t = {0};
    struct pt_size offset = {0};
    PP_TRY(read_shape(r, meta, &t));
    const json_t *strides = json_object_get(meta, "strides");
    if (json_array_size(strides) != (size_t)t.n_dims)
        return pp_fail(PP_EFORMAT, "%s: its sizes and strides differ in number", r->where);
    PP_TRY(pt_read_size(r, json_object_get(meta, "storage_offset"), &offset));
    bool varies = offset.batch;
    w->dtype = t.dtype;
    w->n_dims = t.n_dims;
    w->offset = offset.n;
    for (int i = 0; i < t.n_dims; i++) {
        struct pt_size stride = {0};
        PP_TRY(pt_read_size(r, json_array_get(strides, (size_t)i), &stride));
        w->dims[i] = t.dims[i].n;
        w->strides[i] = stride.n;
        varies = varies || stride.batch || t.dims[i].batch;
    }
    if (varies)
        return pp_fail(PP_EFORMAT, "%s: the shape of a weight depends on the data", r->where);
    return 0;
}

/* Reads one tensor of a list in the folder `folder`. */
static int read_stored(struct pt_reading *r, const char *folder, const json_t *j,
                       struct pt_weight *w)
{
    const json_t *meta = json_object_get(j, "tensor_meta");
    const json_t *layout = json_object_get(meta, "layout");
    const char *path = json_string_value(json_object_get(j, "path_name"));
    char name[2 * PT_NAME_MAX];
    PP_TRY(read_strides(r, meta, w));
    if (layout && json_integer_value(layout) != STRIDED)
        return pp_fail(PP_EFORMAT, "%s: a sparse tensor: only dense ones can be read", r->where);
    w->requires_grad = json_is_true(json_object_get(meta, "requires_grad"));
    const struct pp_zip_entry *e = NULL;
    if (path && snprintf(name, sizeof(name), "data/%s/%s", folder, path) < (int)sizeof(name))
        e = find_entry(r, name);
    if (!e)
        return pp_fail(PP_EFORMAT, "%s: its data is missing in the archive", r->where);
    if (e->method != 0) {
        return pp_fail(PP_EFORMAT,
                       "%s: its data is compressed: leave the archive as torch.export.save() "
                       "wrote it",
                       r->where);
    }
    size_t bytes = count_bytes(w);
    if (e->bytes > 0 && bytes > e->bytes) {
        return pp_fail(PP_EFORMAT, "%s: its shape needs more than the %zu bytes of %s", r->where,
                       e->bytes, e->name);
    }
    if (bytes == SIZE_MAX)
        return pp_fail(PP_EFORMAT, "%s: its shape is too large to be true", r->where);
    w->storage = e->name;
    w->bytes = e->bytes;
    w->data = e->bytes > 0 ? e->data : NULL;
    return 0;
}

/* Decodes the key of an object. */
static int read_key(struct pt_reading *r, struct pt_text key, const char **out)
{
    json_auto_t *j = NULL;
    PP_TRY(pp_json_load(key.at - 1, key.bytes + 2, JSON_DECODE_ANY, NULL, &j));
    return pt_keep_name(r, json_string_value(j), out);
}

/* Reads the list of the tensors in the folder data/FOLDER. */
static int read_config(struct pt_reading *r, const char *folder)
{
    char name[80], label[sizeof(r->where)];
    struct pt_text text, key, value;
    struct pt_walk w;
    snprintf(name, sizeof(name), "data/%s/model_%s_config.json", folder, folder);
    PP_TRY(read_json_entry(r, name, &text));
    struct pt_member config = {.name = "config"};
    PP_TRY(pt_members_find(r->where, text, &config, 1));
    memcpy(label, r->where, sizeof(label));
    PP_TRY(pt_walk_begin(label, config.text, '{', &w));
    int rc = 0;
    while ((rc = pt_walk_next(&w, &key, &value)) > 0) {
        json_auto_t *j = NULL;
        struct pt_weight stored = {.value = -1, .same_as = -1};
        memcpy(r->where, label, sizeof(label));
        PP_TRY(read_key(r, key, &stored.name));
        snprintf(r->where, sizeof(r->where), "%s: weight %s", r->file, stored.name);
        if (pt_names_find(&r->stored_names, stored.name) >= 0)
            return pp_fail(PP_EFORMAT, "%s: it is stored twice", r->where);
        PP_TRY(pt_text_parse(r->where, value, &j));
        bool pickled = json_is_true(json_object_get(j, "use_pickle"));
        if (!pickled)
            PP_TRY(read_stored(r, folder, j, &stored));
        PP_RESERVE(r->stored, r->n_stored, r->stored_capacity);
        PP_TRY(pt_names_add(&r->stored_names, stored.name, (int)r->n_stored));
        r->stored[r->n_stored++] = stored;
    }
    return rc;
}

static int read_configs(struct pt_reading *r)
{
    if (!find_entry(r, "data/weights/model_weights_config.json") &&
        find_entry(r, "data/weights/model.pt")) {
        return pp_fail(PP_EFORMAT, "%s: saved by torch %s, which pickles the weights: " ADVICE,
                       r->file, r->p->torch);
    }
    PP_TRY(read_config(r, "weights"));
    return read_config(r, "constants");
}

/* ---- values */

int pt_find_value(struct pt_reading *r, const json_t *name, int *out)
{
    const char *text = json_string_value(name);
    int at = text ? pt_names_find(&r->values, text) : -1;
    if (at < 0 || r->p->values[at].index < 0) {
        char shown[PP_JSON_SHOWN];
        return pp_fail(PP_EFORMAT, "%s: it uses value %s, which %s", r->where,
                       text ? pp_json_shown(text, shown) : "without a name",
                       at < 0 ? "the program does not have" : "is not made before");
    }
    *out = at;
    return 0;
}

/* Reads the names of all values; *out gets the text of each one's shape. */
static int read_value_names(struct pt_reading *r, struct pt_text object, struct pt_text **out)
{
    struct pt_program *p = r->p;
    struct pt_walk w;
    struct pt_text key, text;
    size_t room = 0, texts = 64;
    PP_TAKE(struct pt_text, metas, texts);
    PP_TRY(pt_walk_begin(r->where, object, '{', &w));
    int rc = 0;
    while ((rc = pt_walk_next(&w, &key, &text)) > 0) {
        struct pt_value v = {.index = -1};
        PP_TRY(read_key(r, key, &v.name));
        if (p->n_values == VALUES_MAX)
            return pp_fail(PP_EFORMAT, "%s: more than %d values", r->where, VALUES_MAX);
        if (pt_names_find(&r->values, v.name) >= 0)
            return pp_fail(PP_EFORMAT, "%s: two values are named %s", r->where, v.name);
        PP_RESERVE(metas, (size_t)p->n_values, texts);
        PP_RESERVE(p->values, (size_t)p->n_values, room);
        PP_TRY(pt_names_add(&r->values, v.name, p->n_values));
        metas[p->n_values] = text;
        p->values[p->n_values++] = v;
    }
    PP_TRY(rc);
    *out = metas;
    metas = NULL;
    return 0;
}

/* Finds the symbols among the sizes of an input. The first one is the batch: of every input, because
 * a step gives all of them the same number of samples, whatever the export knew of that. */
static int find_symbols(struct pt_reading *r, const json_t *meta)
{
    size_t i;
    bool first = true;
    const json_t *d, *sizes = json_object_get(meta, "sizes");
    json_array_foreach(sizes, i, d)
    {
        char name[PT_NAME_MAX];
        const char *text =
            json_string_value(json_object_get(json_object_get(d, "as_expr"), "expr_str"));
        if (!text || !read_symbol(text, name, sizeof(name)))
            continue;
        if (pt_names_find(&r->symbols, name) < 0) {
            const char *kept = pt_keep(r, name);
            PP_TRY(kept ? pt_names_add(&r->symbols, kept, first) : PP_ERESOURCE);
            r->p->n_symbols += !first || !r->p->batch;
            r->p->batch = r->p->batch ? r->p->batch : kept;
        }
        first = false;
    }
    return 0;
}

static int find_batch(struct pt_reading *r, const struct pt_text *metas)
{
    for (int i = 0; i < r->p->n_inputs; i++) {
        json_auto_t *j = NULL;
        if (r->p->inputs[i].value < 0)
            continue;
        PP_TRY(pt_text_parse(r->where, metas[r->p->inputs[i].value], &j));
        PP_TRY(find_symbols(r, j));
    }
    return 0;
}

/* Reads the shapes of all values, and checks those of the weights. */
static int read_shapes(struct pt_reading *r, const struct pt_text *metas)
{
    struct pt_program *p = r->p;
    for (int i = 0; i < p->n_values; i++) {
        json_auto_t *j = NULL;
        struct pt_value *v = &p->values[i];
        snprintf(r->where, sizeof(r->where), "%s: value %s", r->file, v->name);
        PP_TRY(pt_text_parse(r->where, metas[i], &j));
        PP_TRY(read_shape(r, j, &v->type));
        if (v->index < 0 || v->origin != PT_FROM_WEIGHT)
            continue;
        const struct pt_weight *w = &p->weights[v->index];
        bool same = w->dtype == v->type.dtype && w->n_dims == v->type.n_dims;
        for (int d = 0; same && d < w->n_dims; d++)
            same = !v->type.dims[d].batch && v->type.dims[d].n == w->dims[d];
        if (!same)
            return pp_fail(PP_EFORMAT, "%s: its shape is not that of weight %s", r->where, w->name);
    }
    return 0;
}

/* Reads the sizes that nodes compute: {"sym_size_int": {"as_expr": ...}}. */
static int read_sizes(struct pt_reading *r, struct pt_text object)
{
    struct pt_walk w;
    struct pt_text key, text;
    snprintf(r->where, sizeof(r->where), "%s: sym_int_values", r->file);
    PP_TRY(object.at ? pt_walk_begin(r->where, object, '{', &w) : 0);
    int rc = 0;
    while (object.at && (rc = pt_walk_next(&w, &key, &text)) > 0) {
        json_auto_t *j = NULL;
        const char *name = NULL;
        PP_TRY(read_key(r, key, &name));
        if (r->sizes.n == VALUES_MAX || pt_names_find(&r->sizes, name) >= 0)
            return pp_fail(PP_EFORMAT, "%s: two sizes are named %s", r->where, name);
        PP_TRY(pt_text_parse(r->where, text, &j));
        PP_RESERVE(r->size_list, r->sizes.n, r->size_capacity);
        PP_TRY(pt_read_size(r, j, &r->size_list[r->sizes.n]));
        PP_TRY(pt_names_add(&r->sizes, name, (int)r->sizes.n));
    }
    return rc;
}

/* ---- the signature */

/* Makes `name` the value of an input or weight. */
static int place_value(struct pt_reading *r, const json_t *name, enum pt_origin origin, int index,
                       int *out)
{
    const char *text = json_string_value(name);
    int at = text ? pt_names_find(&r->values, text) : -1;
    if (at < 0 || r->p->values[at].index >= 0)
        return pp_fail(PP_EFORMAT, "%s: input %s is %s", r->where,
                       at < 0 ? "" : r->p->values[at].name,
                       at < 0 ? "none of the values" : "repeated");
    r->p->values[at].origin = origin;
    r->p->values[at].index = index;
    *out = at;
    return 0;
}

/* Finds the first weight with the same elements. */
static int find_tie(struct pt_reading *r, struct pt_weight *w)
{
    char key[3 * PT_NAME_MAX];
    int n = snprintf(key, sizeof(key), "%s %d %" PRId64, w->storage, (int)w->dtype, w->offset);
    for (int i = 0; i < w->n_dims; i++)
        n += snprintf(key + n, sizeof(key) - (size_t)n, " %" PRId64 "/%" PRId64, w->dims[i],
                      w->strides[i]);
    if (w->bytes == 0)
        return 0;
    w->same_as = pt_names_find(&r->ties, key);
    if (w->same_as >= 0)
        return 0;
    const char *kept = pt_keep(r, key);
    return kept ? pt_names_add(&r->ties, kept, r->p->n_weights) : PP_ERESOURCE;
}

/* Takes a weight from the tensors of the archive. */
static int read_weight(struct pt_reading *r, const json_t *spec, const char *key,
                       enum pt_weight_kind kind)
{
    const char *name = json_string_value(json_object_get(spec, key));
    int at = name ? pt_names_find(&r->stored_names, name) : -1;
    if (at < 0) {
        char shown[PP_JSON_SHOWN];
        return pp_fail(PP_EFORMAT, "%s: weight %s is missing in the archive", r->file,
                       name ? pp_json_shown(name, shown) : "without a name");
    }
    struct pt_weight *stored = &r->stored[at], w = *stored;
    if (!w.storage) {
        return pp_fail(PP_EFORMAT,
                       "%s: %s is pickled (a subclass of Tensor, or no tensor): make it a plain "
                       "tensor before torch.export.export()",
                       r->file, w.name);
    }
    if (stored->value >= 0)
        return pp_fail(PP_EFORMAT, "%s: weight %s is the value of two inputs", r->file, w.name);
    w.kind = kind;
    w.persistent = kind == PT_PARAMETER || json_is_true(json_object_get(spec, "persistent"));
    PP_TRY(place_value(r, json_object_get(json_object_get(spec, "arg"), "name"), PT_FROM_WEIGHT,
                       r->p->n_weights, &w.value));
    stored->value = w.value;
    PP_TRY(find_tie(r, &w));
    r->p->weights[r->p->n_weights++] = w;
    return 0;
}

/* Reads an input that the data gives, or that the export made a constant. */
static int read_input(struct pt_reading *r, const json_t *spec)
{
    struct pt_program *p = r->p;
    const json_t *tensor = json_object_get(json_object_get(spec, "arg"), "as_tensor");
    const json_t *name = json_object_get(tensor ? tensor : spec, "name");
    char number[32];
    struct pt_input in = {.value = -1};
    snprintf(number, sizeof(number), "input_%d", p->n_inputs);
    if (tensor)
        PP_TRY(place_value(r, name, PT_FROM_INPUT, p->n_inputs, &in.value));
    PP_TRY(pt_keep_name(r, json_is_string(name) ? json_string_value(name) : number, &in.name));
    p->inputs[p->n_inputs++] = in;
    return 0;
}

static int read_input_spec(struct pt_reading *r, json_t *spec)
{
    json_t *j = NULL;
    if ((j = json_object_get(spec, "parameter")))
        return read_weight(r, j, "parameter_name", PT_PARAMETER);
    if ((j = json_object_get(spec, "buffer")))
        return read_weight(r, j, "buffer_name", PT_BUFFER);
    if ((j = json_object_get(spec, "tensor_constant")))
        return read_weight(r, j, "tensor_constant_name", PT_CONSTANT);
    if ((j = json_object_get(spec, "user_input")) || (j = json_object_get(spec, "constant_input")))
        return read_input(r, j);
    const char *kind = json_object_iter_key(json_object_iter(spec));
    char shown[PP_JSON_SHOWN];
    return pp_fail(PP_EFORMAT, "%s: an input is a %s: only tensors and numbers can be read",
                   r->file, kind ? pp_json_shown(kind, shown) : "damaged one");
}

static int read_inputs(struct pt_reading *r, struct pt_text list)
{
    struct pt_walk w;
    struct pt_text key, text;
    int weights = 0, inputs = 0, rc = 0;
    snprintf(r->where, sizeof(r->where), "%s: input_specs", r->file);
    PP_TRY(pt_walk_begin(r->where, list, '[', &w));
    while ((rc = pt_walk_next(&w, &key, &text)) > 0) {
        json_auto_t *spec = NULL;
        PP_TRY(pt_text_parse(r->where, text, &spec));
        PP_RESERVE(r->p->weights, r->p->n_weights, weights);
        PP_RESERVE(r->p->inputs, r->p->n_inputs, inputs);
        PP_TRY(read_input_spec(r, spec));
    }
    return rc;
}

/* Names the inputs as forward() does, if each argument of it is one input. */
static int read_input_names(struct pt_reading *r, struct pt_text list)
{
    struct pt_walk w;
    struct pt_text key, text;
    json_auto_t *root = NULL;
    snprintf(r->where, sizeof(r->where), "%s: module_call_graph", r->file);
    PP_TRY(pt_walk_begin(r->where, list, '[', &w));
    int rc = pt_walk_next(&w, &key, &text);
    if (rc <= 0)
        return rc;
    PP_TRY(pt_text_parse(r->where, text, &root)); /* the first one is the model itself */
    const json_t *names = json_object_get(json_object_get(root, "signature"), "forward_arg_names");
    if (json_array_size(names) != (size_t)r->p->n_inputs)
        return 0;
    for (int i = 0; i < r->p->n_inputs; i++)
        PP_TRY(pt_keep_name(r, json_string_value(json_array_get(names, (size_t)i)),
                            &r->p->inputs[i].name));
    return 0;
}

static int read_outputs_of_program(struct pt_reading *r, struct pt_text list)
{
    struct pt_program *p = r->p;
    struct pt_walk w;
    struct pt_text key, text;
    int room = 0, rc = 0;
    snprintf(r->where, sizeof(r->where), "%s: output_specs", r->file);
    PP_TRY(pt_walk_begin(r->where, list, '[', &w));
    while ((rc = pt_walk_next(&w, &key, &text)) > 0) {
        json_auto_t *spec = NULL;
        int value = -1;
        PP_TRY(pt_text_parse(r->where, text, &spec));
        const json_t *user = json_object_get(spec, "user_output");
        if (!user) {
            const char *kind = json_object_iter_key(json_object_iter(spec));
            char shown[PP_JSON_SHOWN];
            return pp_fail(PP_EFORMAT,
                           "%s: a decomposed program (output %s): save the one that "
                           "torch.export.export() gave",
                           r->file, kind ? pp_json_shown(kind, shown) : "without a kind");
        }
        const json_t *tensor = json_object_get(json_object_get(user, "arg"), "as_tensor");
        if (tensor)
            PP_TRY(pt_find_value(r, json_object_get(tensor, "name"), &value));
        PP_RESERVE(p->outputs, p->n_outputs, room);
        p->outputs[p->n_outputs++] = value;
    }
    return rc;
}

/* ---- the whole */

static int read_version(struct pt_reading *r, struct pt_text version)
{
    json_auto_t *j = NULL;
    PP_TRY(pt_text_parse(r->where, version, &j));
    json_int_t major = json_integer_value(json_object_get(j, "major"));
    json_int_t minor = json_integer_value(json_object_get(j, "minor"));
    if (major != SCHEMA || minor < 0 || minor > INT32_MAX) {
        return pp_fail(PP_EFORMAT,
                       "%s: its schema is %" JSON_INTEGER_FORMAT ".%" JSON_INTEGER_FORMAT
                       ", %d can be read: %s",
                       r->file, major, minor, SCHEMA,
                       major < SCHEMA ? ADVICE : "save it with an older torch, 2.10 to 2.15");
    }
    r->p->schema_minor = (int)minor;
    return 0;
}

/* Checks that the program is as export() gave it: what run_decompositions() makes of it cannot be
 * trained, because an operator's backward needs what the parts of it do not give. */
static int check_verifiers(struct pt_reading *r, struct pt_text list)
{
    json_auto_t *j = NULL;
    PP_TRY(pp_json_load(list.at, list.bytes, 0, NULL, &j));
    char names[128] = "";
    size_t i;
    const json_t *v;
    json_array_foreach(j, i, v)
    {
        const char *name = json_string_value(v);
        if (name && strcmp(name, "TRAINING") == 0)
            return 0;
        char shown[PP_JSON_SHOWN];
        pp_text_add(names, sizeof(names), "%s%s", i > 0 ? ", " : "",
                    name ? pp_json_shown(name, shown) : "?");
    }
    return pp_fail(PP_EFORMAT,
                   "%s: a decomposed program (verifier %s): save the one that "
                   "torch.export.export() gave",
                   r->file, names[0] ? names : "none");
}

/* Reads the version of torch, which messages of what follows name. */
static int read_torch(struct pt_reading *r, struct pt_text text)
{
    json_auto_t *j = NULL;
    if (text.at)
        PP_TRY(pp_json_load(text.at, text.bytes, JSON_DECODE_ANY, NULL, &j));
    r->p->torch = pt_keep(r, json_is_string(j) ? json_string_value(j) : "?");
    return r->p->torch ? 0 : PP_ERESOURCE;
}

enum {
    G_GRAPH,
    G_SIGNATURE,
    G_CALLS,
    G_MEMBERS
};
enum {
    T_NODES,
    T_VALUES,
    T_SIZES,
    T_MEMBERS
};
enum {
    S_INPUTS,
    S_OUTPUTS,
    S_MEMBERS
};

static int read_graph(struct pt_reading *r, struct pt_text module)
{
    struct pt_member g[] = {
        {.name = "graph"}, {.name = "signature"}, {.name = "module_call_graph", .optional = true}};
    struct pt_member t[] = {
        {.name = "nodes"}, {.name = "tensor_values"}, {.name = "sym_int_values", .optional = true}};
    struct pt_member s[] = {{.name = "input_specs"}, {.name = "output_specs"}};
    PP_OWN_MEMORY struct pt_text *metas = NULL;
    PP_TRY(pt_members_find(r->where, module, g, G_MEMBERS));
    PP_TRY(pt_members_find(r->where, g[G_GRAPH].text, t, T_MEMBERS));
    PP_TRY(pt_members_find(r->where, g[G_SIGNATURE].text, s, S_MEMBERS));
    PP_TRY(read_value_names(r, t[T_VALUES].text, &metas));
    pp_assert(metas != NULL); /* the analyser loses it in the loops that follow */
    PP_TRY(read_inputs(r, s[S_INPUTS].text));
    PP_TRY(find_batch(r, metas));
    PP_TRY(read_shapes(r, metas));
    PP_TRY(read_sizes(r, t[T_SIZES].text));
    PP_TRY(g[G_CALLS].text.at ? read_input_names(r, g[G_CALLS].text) : 0);
    PP_TRY(pt_read_nodes(r, t[T_NODES].text));
    return read_outputs_of_program(r, s[S_OUTPUTS].text);
}

enum {
    M_MODULE,
    M_SCHEMA,
    M_VERIFIERS,
    M_TORCH,
    M_MEMBERS
};

static int read_program(struct pt_reading *r)
{
    struct pt_member m[] = {{.name = "graph_module"},
                            {.name = "schema_version"},
                            {.name = "verifiers"},
                            {.name = "torch_version", .optional = true}};
    struct pt_text model;
    PP_TRY(find_root(r));
    PP_TRY(read_json_entry(r, "models/model.json", &model));
    PP_TRY(pt_members_find(r->where, model, m, M_MEMBERS));
    PP_TRY(read_torch(r, m[M_TORCH].text));
    PP_TRY(read_version(r, m[M_SCHEMA].text));
    PP_TRY(check_verifiers(r, m[M_VERIFIERS].text));
    PP_TRY(read_configs(r));
    snprintf(r->where, sizeof(r->where), "%s: models/model.json", r->file);
    PP_TRY(read_graph(r, m[M_MODULE].text));
    return r->p->zip->map ? pp_mapping_check(r->p->zip->map) : 0;
}

int pt_program_read_zip(struct pp_zip *zip, struct pt_program **out)
{
    PP_OWN(pp_zip_close) struct pp_zip *owned = zip;
    PP_OWN(pt_program_destroy) struct pt_program *p = NULL;
    PP_OWN_MEMORY struct pt_reading *r = NULL;
    PP_ALLOC(p, 1);
    p->zip = owned;
    owned = NULL;
    PP_ALLOC(r, 1);
    p->file = zip->path;
    r->p = p;
    r->file = p->file;
    int rc = read_program(r);
    struct pt_names *names[] = {&r->texts,   &r->values,       &r->sizes, &r->symbols,
                                &r->modules, &r->stored_names, &r->ties};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        pt_names_fini(names[i]);
    pp_free(r->size_list);
    pp_free(r->stored);
    PP_TRY(rc);
    *out = p;
    p = NULL;
    return 0;
}

int pt_program_read(const char *path, struct pt_program **out)
{
    struct pp_zip *zip = NULL;
    PP_TRY(pp_zip_open(path, &zip));
    return pt_program_read_zip(zip, out);
}

void pt_program_destroy(struct pt_program **program)
{
    struct pt_program *p = *program;
    if (!p)
        return;
    pp_zip_close(&p->zip);
    for (struct pt_block *b = p->blocks, *next = NULL; b; b = next) {
        next = b->next;
        pp_free(b);
    }
    pp_free(p->values);
    pp_free(p->nodes);
    pp_free(p->weights);
    pp_free(p->modules);
    pp_free(p->inputs);
    pp_free(p->outputs);
    pp_free(p);
    *program = NULL;
}

int pt_program_check(const struct pt_program *p)
{
    for (int i = 0; i < p->n_weights; i++)
        if (p->weights[i].same_as < 0)
            PP_TRY(pp_zip_check(p->zip, pp_zip_find(p->zip, p->weights[i].storage)));
    return p->zip->map ? pp_mapping_check(p->zip->map) : 0;
}

const struct pt_arg *pt_arg_find(const struct pt_node *node, const char *name)
{
    for (int i = 0; i < node->n_args; i++)
        if (strcmp(node->args[i].name, name) == 0)
            return &node->args[i];
    return NULL;
}
