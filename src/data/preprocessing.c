/* SPDX-License-Identifier: Apache-2.0 */
/* The one reader of the text that says how files become samples. Strings stay in the parsed JSON,
 * which the struct owns. */
#include "ppcli/data/preprocessing.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ops.h"

static int fail_format(const char *label, const char *what)
{
    return pp_fail(PP_EFORMAT, "%s: preprocessing: %s; train again with this ppcli", label, what);
}

/* Reads an array of strings; the pointers belong to the JSON. */
static int read_names(const char *label, const json_t *array, const char ***out, int *out_n)
{
    size_t n = json_array_size(array);
    if (n == 0)
        return 0;
    const char **names;
    PP_ALLOC(names, n);
    *out = names;
    *out_n = (int)n;
    for (size_t i = 0; i < n; i++) {
        names[i] = json_string_value(json_array_get(array, i));
        if (!names[i])
            return fail_format(label, "a name is not a text");
    }
    return 0;
}

static double read_number(const json_t *object, const char *key, double otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

static int read_column(const char *label, const json_t *from, struct pp_table_column *c)
{
    c->name = json_string_value(json_object_get(from, "name"));
    c->at = (int)read_number(from, "at", -1);
    c->nth = (int)read_number(from, "nth", 0);
    c->is_category = json_object_get(from, "kinds") != NULL;
    c->is_scaled = json_object_get(from, "std") != NULL;
    c->marks_missing = json_is_true(json_object_get(from, "marks_missing"));
    c->mean = read_number(from, "mean", 0);
    c->std = read_number(from, "std", 1);
    if (!c->name || c->at < 0 || !(c->std > 0) || !isfinite(c->mean))
        return fail_format(label, "a column without its name, place or numbers");
    PP_TRY(read_names(label, json_object_get(from, "kinds"), &c->kinds, &c->n_kinds));
    c->n_inputs = (c->is_category ? c->n_kinds : 1) + c->marks_missing;
    return 0;
}

static int read_columns(const char *label, struct pp_preprocessing *p)
{
    const json_t *array = json_object_get(p->root, "columns");
    const size_t n = json_array_size(array);
    if (n > 0)
        PP_ALLOC(p->columns, n);
    for (size_t i = 0; i < n; i++) {
        struct pp_table_column *c = &p->columns[p->n_columns++];
        PP_TRY(read_column(label, json_array_get(array, i), c));
        c->first = p->n_inputs;
        p->n_inputs += c->n_inputs;
    }
    return 0;
}

static int read_targets(const char *label, struct pp_preprocessing *p)
{
    const json_t *array = json_object_get(p->root, "targets");
    const size_t n = json_array_size(array);
    if (n > 0)
        PP_ALLOC(p->targets, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *from = json_array_get(array, i);
        p->targets[i] = (struct pp_target){.name = json_string_value(json_object_get(from, "name")),
                                           .at = (int)read_number(from, "at", -1),
                                           .mean = read_number(from, "mean", 0),
                                           .std = read_number(from, "std", 1)};
        if (!p->targets[i].name || !(p->targets[i].std > 0))
            return fail_format(label, "a target without its name or numbers");
        p->n_targets++;
    }
    return 0;
}

static int read_all(const char *label, struct pp_preprocessing *p)
{
    static const char *const missing[] = {"stop", "mean", "category"};
    const char *word = json_string_value(json_object_get(p->root, "missing"));
    p->kind = json_string_value(json_object_get(p->root, "kind"));
    p->label = json_string_value(json_object_get(p->root, "label"));
    p->label_at = (int)read_number(p->root, "label_at", -1);
    p->width = (int)read_number(p->root, "width", 0);
    p->has_header = json_is_true(json_object_get(p->root, "header"));
    p->yes_no = json_is_true(json_object_get(p->root, "yes_no"));
    for (int i = 0; word && i < 3; i++)
        p->missing = strcmp(word, missing[i]) == 0 ? (enum pp_missing)i : p->missing;
    if (!p->kind)
        return fail_format(label, "no kind");
    PP_TRY(read_names(label, json_object_get(p->root, "classes"), &p->classes, &p->n_classes));
    PP_TRY(read_targets(label, p));
    return read_columns(label, p);
}

int pp_preprocessing_parse(const char *label, const char *text, struct pp_preprocessing *out)
{
    PP_OWN(pp_preprocessing_fini) struct pp_preprocessing p = {0};
    json_error_t e;
    PP_TRY(pp_json_load(text, strlen(text), JSON_REJECT_DUPLICATES, &e, &p.root));
    if (!json_is_object(p.root))
        return fail_format(label, "not a JSON object");
    PP_TRY(read_all(label, &p));
    *out = p;
    p = (struct pp_preprocessing){0};
    return 0;
}

void pp_preprocessing_fini(struct pp_preprocessing *p)
{
    for (int i = 0; i < p->n_columns; i++)
        pp_free(p->columns[i].kinds);
    pp_free(p->columns);
    pp_free(p->targets);
    pp_free(p->classes);
    json_decref(p->root);
    *p = (struct pp_preprocessing){0};
}

int pp_preprocessing_unit(const char *text, double *out)
{
    PP_OWN(pp_preprocessing_fini) struct pp_preprocessing p = {.kind = NULL};
    PP_TRY(text ? pp_preprocessing_parse("data", text, &p) : 0);
    *out = p.n_targets == 1 ? p.targets[0].std : 1;
    return 0;
}

const char *pp_class_name(const struct pp_preprocessing *p, int class, char number[16])
{
    if (class >= 0 && class < p->n_classes)
        return p->classes[class];
    snprintf(number, 16, "%d", class);
    return number;
}

int pp_dataset_preprocessing(const struct pp_config *cfg, const struct pp_dataset *ds, char **out)
{
    PP_OWN(pp_dataset_destroy) struct pp_dataset *opened = NULL;
    const struct pp_dataset_ops *ops;
    *out = NULL;
    PP_TRY(pp_dataset_ops_of(cfg->data.dataset, &ops));
    if (!ds && ops->describes) {
        PP_TRY(pp_dataset_look(cfg, PP_SPLIT_TRAIN, &opened));
        ds = opened;
    }
    if (!ds || !ds->preprocessing)
        return 0;
    *out = pp_strdup(ds->preprocessing);
    return *out ? 0 : PP_ERESOURCE;
}

/* ---- comparison */

static int compare_names(const char *path, const char *what, int n, const char *const *then, int m,
                         const char *const *now)
{
    int i = 0;
    while (i < n && i < m && strcmp(then[i], now[i]) == 0)
        i++;
    if (i == n && i == m)
        return 0;
    return pp_fail(PP_EFORMAT,
                   "%s was trained with %d %s, and the data have %d: %s%.40s%s is now %s%.40s%s; "
                   "use the data and keys of that run",
                   path, n, what, m, i < n ? "'" : "", i < n ? then[i] : "nothing",
                   i < n ? "'" : "", i < m ? "'" : "", i < m ? now[i] : "nothing",
                   i < m ? "'" : "");
}

static int compare_numbers(const char *path, const char *name, const double then[2],
                           const double now[2])
{
    for (int i = 0; i < 2; i++) {
        if (then[i] < now[i] || then[i] > now[i])
            return pp_fail(PP_EFORMAT,
                           "%s was trained with other rows: the %s of '%.40s' was %.9g and is %.9g "
                           "in the data now; use the data and keys of that run",
                           path, i == 0 ? "mean" : "deviation", name, then[i], now[i]);
    }
    return 0;
}

static int compare_parsed(const char *path, const struct pp_preprocessing *a,
                          const struct pp_preprocessing *b)
{
    PP_TRY(compare_names(path, "classes", a->n_classes, a->classes, b->n_classes, b->classes));
    for (int i = 0; i < a->n_columns && i < b->n_columns; i++) {
        const struct pp_table_column *x = &a->columns[i], *y = &b->columns[i];
        PP_TRY(compare_names(path, "columns", 1, &x->name, 1, &y->name));
        PP_TRY(
            compare_names(path, "kinds in a column", x->n_kinds, x->kinds, y->n_kinds, y->kinds));
        PP_TRY(compare_numbers(path, x->name, (double[]){x->mean, x->std},
                               (double[]){y->mean, y->std}));
    }
    for (int i = 0; i < a->n_targets && i < b->n_targets; i++) {
        const struct pp_target *x = &a->targets[i], *y = &b->targets[i];
        PP_TRY(compare_names(path, "targets", 1, &x->name, 1, &y->name));
        PP_TRY(compare_numbers(path, x->name, (double[]){x->mean, x->std},
                               (double[]){y->mean, y->std}));
    }
    return pp_fail(
        PP_EFORMAT,
        "%s was trained with other columns, targets or keys of [data]; use those of that "
        "run",
        path);
}

int pp_preprocessing_check(const char *path, const char *then, const char *now)
{
    PP_OWN(pp_preprocessing_fini) struct pp_preprocessing a = {0}, b = {0};
    if (!then || !now || strcmp(then, now) == 0)
        return 0;
    PP_TRY(pp_preprocessing_parse(path, then, &a));
    PP_TRY(pp_preprocessing_parse("data", now, &b));
    return compare_parsed(path, &a, &b);
}
