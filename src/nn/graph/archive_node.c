/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes of a program: operators with their arguments and outputs, and where they are from. A
 * node that computes only sizes is left out, because the archive has the sizes of all values.
 */
#include "archive_impl.h"

#include <math.h>
#include <stdlib.h>

#include "ppcli/base/files.h"

#define NODES_MAX 1000000
#define CODE_BYTES 200 /* of a line of code */

/* ---- arguments */

static int refuse_arg(const struct pt_reading *r, const struct pt_arg *a, const char *kind)
{
    return pp_fail(PP_EFORMAT, "%s: argument %s: its %s is damaged", r->where, a->name, kind);
}

/* Reads an int, or a size that a node computes: {"as_int": 3}, {"as_name": "sym_size_int"}. */
static bool read_sym_int(const struct pt_reading *r, const json_t *j, struct pt_size *out)
{
    const json_t *number = json_is_integer(j) ? j : json_object_get(j, "as_int");
    const char *name = json_string_value(json_object_get(j, "as_name"));
    int at = name ? pt_names_find(&r->sizes, name) : -1;
    if (json_is_integer(number))
        *out = (struct pt_size){.n = json_integer_value(number)};
    else if (at >= 0)
        *out = r->size_list[at];
    return json_is_integer(number) || at >= 0;
}

/* Reads a number, or a text for those that JSON does not have. */
static bool read_float(const json_t *j, double *out)
{
    const char *text = json_string_value(j);
    if (json_is_number(j))
        *out = json_number_value(j);
    else if (text && strcmp(text, "Infinity") == 0)
        *out = INFINITY;
    else if (text && strcmp(text, "-Infinity") == 0)
        *out = -INFINITY;
    else if (text && strcmp(text, "NaN") == 0)
        *out = NAN;
    else
        return false;
    return true;
}

/* Reads a value or None: {"name": "x"}, {"as_tensor": {"name": "x"}}, {"as_none": true}. */
static int read_optional_tensor(struct pt_reading *r, const json_t *j, int *out)
{
    const json_t *tensor = json_object_get(j, "as_tensor");
    *out = -1;
    if (json_object_get(j, "as_none"))
        return 0;
    return pt_find_value(r, json_object_get(tensor ? tensor : j, "name"), out);
}

static int read_arg_none(struct pt_reading *r, const json_t *j, struct pt_arg *a)
{
    (void)r;
    (void)j;
    (void)a;
    return 0;
}

static int read_arg_tensor(struct pt_reading *r, const json_t *j, struct pt_arg *a)
{
    PP_TRY(read_optional_tensor(r, j, &a->value));
    if (a->value < 0)
        a->kind = PT_NONE;
    return 0;
}

/* Takes the memory of a list; its length goes to a->n. */
static int take_list(struct pt_reading *r, const json_t *j, size_t size, struct pt_arg *a,
                     void **out)
{
    if (!json_is_array(j))
        return refuse_arg(r, a, "list");
    a->n = (int)json_array_size(j);
    *out = pt_take(r, (size_t)a->n, size);
    return *out ? 0 : PP_ERESOURCE;
}

static int read_arg_tensors(struct pt_reading *r, const json_t *j, struct pt_arg *a)
{
    void *at = NULL;
    PP_TRY(take_list(r, j, sizeof(int), a, &at));
    int *values = at;
    for (int i = 0; i < a->n; i++)
        PP_TRY(read_optional_tensor(r, json_array_get(j, (size_t)i), &values[i]));
    a->values = values;
    return 0;
}

static int read_arg_int(struct pt_reading *r, const json_t *j, struct pt_arg *a)
{
    if (!read_sym_int(r, j, &a->size))
        return refuse_arg(r, a, "whole number");
    a->number = (double)a->size.n;
    return 0;
}

static int read_arg_ints(struct pt_reading *r, const json_t *j, struct pt_arg *a)
{
    void *at = NULL;
    PP_TRY(take_list(r, j, sizeof(struct pt_size), a, &at));
    struct pt_size *sizes = at;
    for (int i = 0; i < a->n; i++)
        if (!read_sym_int(r, json_array_get(j, (size_t)i), &sizes[i]))
            return refuse_arg(r, a, "list of whole numbers");
    a->sizes = sizes;
    return 0;
}

static int read_arg_float(struct pt_reading *r, const json_t *j, struct pt_arg *a)
{
    return read_float(j, &a->number) ? 0 : refuse_arg(r, a, "number");
}

static int read_arg_floats(struct pt_reading *r, const json_t *j, struct pt_arg *a)
{
    void *at = NULL;
    PP_TRY(take_list(r, j, sizeof(double), a, &at));
    double *numbers = at;
    for (int i = 0; i < a->n; i++)
        if (!read_float(json_array_get(j, (size_t)i), &numbers[i]))
            return refuse_arg(r, a, "list of numbers");
    a->numbers = numbers;
    return 0;
}

static int read_arg_bool(struct pt_reading *r, const json_t *j, struct pt_arg *a)
{
    a->flag = json_is_true(j);
    return json_is_boolean(j) ? 0 : refuse_arg(r, a, "yes or no");
}

static int read_arg_bools(struct pt_reading *r, const json_t *j, struct pt_arg *a)
{
    void *at = NULL;
    PP_TRY(take_list(r, j, sizeof(bool), a, &at));
    bool *flags = at;
    for (int i = 0; i < a->n; i++)
        flags[i] = json_is_true(json_array_get(j, (size_t)i));
    a->flags = flags;
    return 0;
}

static int read_arg_string(struct pt_reading *r, const json_t *j, struct pt_arg *a)
{
    if (!json_is_string(j))
        return refuse_arg(r, a, "text");
    a->text = pt_keep(r, json_string_value(j));
    return a->text ? 0 : PP_ERESOURCE;
}

static int read_arg_dtype(struct pt_reading *r, const json_t *j, struct pt_arg *a)
{
    (void)r;
    a->dtype = pt_dtype_of(j);
    return 0;
}

static int read_arg_device(struct pt_reading *r, const json_t *j, struct pt_arg *a)
{
    return read_arg_string(r, json_object_get(j, "type"), a);
}

static const struct {
    const char *name;
    enum pt_kind kind;
    int (*read)(struct pt_reading *r, const json_t *j, struct pt_arg *a);
} kinds[] = {
    {"as_none", PT_NONE, read_arg_none},
    {"as_tensor", PT_TENSOR, read_arg_tensor},
    {"as_optional_tensor", PT_TENSOR, read_arg_tensor},
    {"as_tensors", PT_TENSORS, read_arg_tensors},
    {"as_optional_tensors", PT_TENSORS, read_arg_tensors},
    {"as_int", PT_INT, read_arg_int},
    {"as_sym_int", PT_INT, read_arg_int},
    {"as_ints", PT_INTS, read_arg_ints},
    {"as_sym_ints", PT_INTS, read_arg_ints},
    {"as_float", PT_FLOAT, read_arg_float},
    {"as_floats", PT_FLOATS, read_arg_floats},
    {"as_bool", PT_BOOL_ARG, read_arg_bool},
    {"as_bools", PT_BOOLS, read_arg_bools},
    {"as_string", PT_STRING, read_arg_string},
    {"as_scalar_type", PT_DTYPE, read_arg_dtype},
    {"as_device", PT_DEVICE, read_arg_device},
    {"as_layout", PT_LAYOUT, read_arg_int},
    {"as_memory_format", PT_MEMORY_FORMAT, read_arg_int},
};

/* Finds the one member of a union: {"as_int": 3}. NULL: the union is empty. */
static const char *find_kind(json_t *tagged, json_t **out)
{
    const char *key;
    json_t *j;
    json_object_foreach(tagged, key, j)
    {
        if (!json_is_null(j)) {
            *out = j;
            return key;
        }
    }
    return NULL;
}

static int read_arg(struct pt_reading *r, const json_t *named, struct pt_arg *a)
{
    json_t *j = NULL;
    const char *name = json_string_value(json_object_get(named, "name"));
    a->name = "";
    if (name && name[0] != '\0')
        PP_TRY(pt_keep_name(r, name, &a->name));
    const char *kind = find_kind(json_object_get(named, "arg"), &j);
    if (!kind)
        return refuse_arg(r, a, "value");
    a->value = -1;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kind, kinds[i].name) == 0) {
            a->kind = kinds[i].kind;
            return kinds[i].read(r, j, a);
        }
    }
    a->kind = PT_OTHER_ARG;
    return pt_keep_name(r, kind, &a->text);
}

/* ---- outputs */

/* Makes a value the next output of a node; -1: there is none at this place. */
static int make_output(struct pt_reading *r, const json_t *name, int *outputs, struct pt_node *node)
{
    const char *text = json_string_value(name);
    int at = text ? pt_names_find(&r->values, text) : -1;
    outputs[node->n_outputs++] = at;
    if (at < 0 || r->p->values[at].index >= 0) {
        char shown[PP_JSON_SHOWN];
        return pp_fail(PP_EFORMAT, "%s: output %s is %s", r->where,
                       text ? pp_json_shown(text, shown) : "without a name",
                       at < 0 ? "none of the values" : "made twice");
    }
    r->p->values[at].origin = PT_FROM_NODE;
    r->p->values[at].index = r->p->n_nodes;
    return 0;
}

static int read_outputs(struct pt_reading *r, const json_t *list, struct pt_node *node)
{
    size_t n = json_array_size(list);
    for (size_t i = 0; i < json_array_size(list); i++)
        n += json_array_size(json_object_get(json_array_get(list, i), "as_tensors"));
    int *outputs = pt_take(r, n, sizeof(*outputs));
    if (!outputs)
        return PP_ERESOURCE;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i), *tensor = json_object_get(o, "as_tensor");
        const json_t *tensors = json_object_get(o, "as_tensors");
        if (tensor)
            PP_TRY(make_output(r, json_object_get(tensor, "name"), outputs, node));
        for (size_t k = 0; k < json_array_size(tensors); k++)
            PP_TRY(
                make_output(r, json_object_get(json_array_get(tensors, k), "name"), outputs, node));
        if (!tensor && !tensors)
            outputs[node->n_outputs++] = -1;
    }
    node->outputs = outputs;
    return 0;
}

/* ---- where a node is from */

/* Returns the number after the last '@' of a text, which is cut off there; 0: none. */
static int cut_call(char *text)
{
    char *at = strrchr(text, '@');
    if (!at || at[1] == '\0' || strspn(at + 1, "0123456789") != strlen(at + 1))
        return 0;
    *at = '\0';
    return (int)strtol(at + 1, NULL, 10);
}

/* Finds the module of one part of a stack, "L__self__fc@1,fc,torch.nn.modules.linear.Linear", or
 * adds it. */
static int find_module(struct pt_reading *r, char *part, int *out)
{
    struct pt_program *p = r->p;
    char *path = strchr(part, ','), *type = strrchr(part, ',');
    if (!path || path == type)
        return pp_fail(PP_EFORMAT, "%s: its nn_module_stack is damaged", r->where);
    *path++ = *type++ = '\0';
    int call = PP_MAX(cut_call(part), cut_call(path));
    char key[2 * PT_NAME_MAX];
    if (strlen(path) > PT_NAME_MAX)
        return pp_fail(PP_EFORMAT, "%s: the path of a module is too long", r->where);
    snprintf(key, sizeof(key), "%s@%d", path, call);
    *out = pt_names_find(&r->modules, key);
    if (*out >= 0)
        return 0;
    const char *kept = pt_keep(r, key), *dot = strrchr(type, '.');
    PP_RESERVE(p->modules, (size_t)p->n_modules, r->module_capacity);
    struct pt_module m = {pt_keep(r, path), pt_keep(r, dot ? dot + 1 : type), call};
    if (!kept || !m.path || !m.type)
        return PP_ERESOURCE;
    *out = p->n_modules;
    p->modules[p->n_modules++] = m;
    return pt_names_add(&r->modules, kept, *out);
}

static int read_stack(struct pt_reading *r, const char *text, struct pt_node *node)
{
    if (!text || strncmp(text, "_empty_nn_module_stack", 22) == 0)
        text = "";
    const char *kept = pt_keep(r, text);
    PP_OWN_MEMORY char *parts = pp_strdup(text);
    if (!kept || !parts)
        return PP_ERESOURCE;
    if (kept != r->stack_text) {
        int n = 1, depth = 0;
        for (const char *c = parts; *c; c++)
            n += *c == ';';
        int *stack = pt_take(r, (size_t)n, sizeof(*stack));
        if (!stack)
            return PP_ERESOURCE;
        char *left = NULL;
        for (char *s = strtok_r(parts, ";", &left); s; s = strtok_r(NULL, ";", &left))
            PP_TRY(find_module(r, s, &stack[depth++]));
        r->stack_text = kept;
        r->stack = stack;
        r->n_stack = depth;
    }
    node->stack = r->stack;
    node->n_stack = r->n_stack;
    node->path = r->n_stack > 0 ? r->p->modules[r->stack[r->n_stack - 1]].path : "";
    return 0;
}

/* Finds the innermost frame of a stack trace, before those of PyTorch itself. */
static const char *find_frame(const char *trace)
{
    const char *last = NULL, *own = NULL;
    for (const char *f = trace; f && (f = strstr(f, "File \"")); f++) {
        const char *name = f + 6, *end = strchr(name, '"'), *torch = strstr(name, "torch/");
        bool within = end && torch && torch < end && (torch == name || torch[-1] == '/');
        last = name;
        if (!within)
            own = name;
    }
    return own ? own : last;
}

/* Reads 'File "net.py", line 12, in forward\n    x = self.fc(x)'. */
static int read_trace(struct pt_reading *r, const char *trace, struct pt_node *node)
{
    char source[PT_NAME_MAX] = "", code[CODE_BYTES] = "";
    const char *name = find_frame(trace), *end = name ? strchr(name, '"') : NULL;
    if (end && strncmp(end, "\", line ", 8) == 0) {
        for (const char *c = name; c < end; c++)
            name = *c == '/' || *c == '\\' ? c + 1 : name;
        snprintf(source, sizeof(source), "%.*s:%ld", (int)PP_MIN(end - name, PT_NAME_MAX / 2), name,
                 strtol(end + 8, NULL, 10));
        const char *line = strchr(end, '\n');
        line = line ? line + strspn(line, "\n ") : "";
        snprintf(code, sizeof(code), "%.*s", (int)PP_MIN(strcspn(line, "\n"), (size_t)CODE_BYTES),
                 line);
    }
    node->source = pt_keep(r, source);
    node->code = pt_keep(r, code);
    return node->source && node->code ? 0 : PP_ERESOURCE;
}

/* ---- nodes */

/* Returns whether an argument is a number, a size or the like, which no tensor is needed for. */
static bool is_plain_arg(const json_t *named)
{
    static const char *const plain[] = {"as_sym_int",   "as_int",   "as_sym_bool", "as_bool",
                                        "as_sym_float", "as_float", "as_string",   "as_none"};
    bool found = false;
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        found = found || json_object_get(json_object_get(named, "arg"), plain[i]);
    return found;
}

/* Returns whether a node only computes or checks sizes. */
static bool is_size_node(const char *target, const json_t *inputs, const json_t *outputs)
{
    bool plain = true;
    for (size_t i = 0; i < json_array_size(outputs); i++) {
        const json_t *o = json_array_get(outputs, i);
        if (json_object_get(o, "as_tensor") || json_object_get(o, "as_tensors"))
            return false;
    }
    for (size_t i = 0; i < json_array_size(inputs); i++)
        plain = plain && is_plain_arg(json_array_get(inputs, i));
    return plain || strncmp(target, "aten.sym_", 9) == 0 ||
           strncmp(target, "aten._assert", 12) == 0;
}

static int read_node(struct pt_reading *r, const json_t *j)
{
    struct pt_program *p = r->p;
    struct pt_node node = {0};
    const json_t *inputs = json_object_get(j, "inputs"), *outputs = json_object_get(j, "outputs");
    const json_t *metadata = json_object_get(j, "metadata");
    const char *target = json_string_value(json_object_get(j, "target"));
    if (target && strncmp(target, "torch.ops.", 10) == 0)
        target += 10;
    PP_TRY(pt_keep_name(r, target, &node.target));
    if (!json_is_array(inputs) || !json_is_array(outputs))
        return pp_fail(PP_EFORMAT, "%s: %s has no inputs or no outputs", r->where, node.target);
    if (is_size_node(node.target, inputs, outputs)) {
        p->n_sizes++;
        return 0;
    }
    node.n_args = (int)json_array_size(inputs);
    struct pt_arg *args = pt_take(r, (size_t)node.n_args, sizeof(*args));
    if (!args)
        return PP_ERESOURCE;
    for (int i = 0; i < node.n_args; i++)
        PP_TRY(read_arg(r, json_array_get(inputs, (size_t)i), &args[i]));
    node.args = args;
    PP_TRY(read_outputs(r, outputs, &node));
    PP_TRY(read_stack(r, json_string_value(json_object_get(metadata, "nn_module_stack")), &node));
    PP_TRY(read_trace(r, json_string_value(json_object_get(metadata, "stack_trace")), &node));
    p->nodes[p->n_nodes++] = node;
    return 0;
}

int pt_read_nodes(struct pt_reading *r, struct pt_text nodes)
{
    struct pt_walk w;
    struct pt_text key, text;
    int capacity = 0, number = 0;
    char label[sizeof(r->where)];
    memcpy(label, r->where, sizeof(label));
    PP_TRY(pt_walk_begin(label, nodes, '[', &w));
    int rc = 0;
    while ((rc = pt_walk_next(&w, &key, &text)) > 0) {
        json_auto_t *node = NULL;
        snprintf(r->where, sizeof(r->where), "%s: node %d", r->file, number++);
        if (number > NODES_MAX)
            return pp_fail(PP_EFORMAT, "%s: more than %d nodes", r->file, NODES_MAX);
        PP_RESERVE(r->p->nodes, r->p->n_nodes, capacity);
        PP_TRY(pt_text_parse(r->where, text, &node));
        PP_TRY(read_node(r, node));
    }
    return rc;
}
