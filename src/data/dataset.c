/* SPDX-License-Identifier: Apache-2.0 */
/* The list of data sets, and the parts that do not depend on which one it is. */
#include "ppcli/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/file.h"
#include "ppcli/mem.h"
#include "ops.h"

#define PP_DATASET(symbol) extern const struct pp_dataset_ops dataset_##symbol;
#include "datasets.def"
#undef PP_DATASET

static const struct pp_dataset_ops *const all[] = {
#define PP_DATASET(symbol) &dataset_##symbol,
#include "datasets.def"
#undef PP_DATASET
};

#define N_ALL ((int)(sizeof(all) / sizeof(all[0])))

const char *const *pp_dataset_names(void)
{
    /* Filled anew by every caller thread: cheap, and needs no lock. */
    static _Thread_local const char *names[N_ALL + 1];
    for (int i = 0; i < N_ALL; i++) {
        names[i] = all[i]->info.name;
    }
    return names;
}

static const struct pp_dataset_ops *find(const char *name)
{
    for (int i = 0; i < N_ALL; i++) {
        if (strcmp(all[i]->info.name, name) == 0) {
            return all[i];
        }
    }
    return NULL;
}

static int need(const char *name, const struct pp_dataset_ops **out)
{
    *out = find(name);
    if (*out) {
        return 0;
    }
    char known[256] = "";
    for (int i = 0; i < N_ALL; i++) {
        strncat(known, i > 0 ? ", " : "", sizeof(known) - strlen(known) - 1);
        strncat(known, all[i]->info.name, sizeof(known) - strlen(known) - 1);
    }
    return pp_fail(PP_ECONFIG, "data.dataset: unknown data set '%s' (known: %s)", name, known);
}

const struct pp_dataset_info *pp_dataset_info(const char *name)
{
    const struct pp_dataset_ops *ops = find(name);
    return ops ? &ops->info : NULL;
}

int pp_dataset_open(const struct pp_config *cfg, enum pp_split split, int parts, int model_inputs,
                    int model_classes, struct pp_dataset **out)
{
    const struct pp_dataset_ops *ops;
    PP_TRY(need(cfg->data.dataset, &ops));
    struct pp_dataset *ds = pp_alloc(1, sizeof(*ds));
    if (!ds) {
        return PP_ERESOURCE;
    }
    ds->name = ops->info.name;
    int rc = ops->open(ops, cfg, split, parts, model_inputs, model_classes, ds);
    if (rc < 0) {
        pp_dataset_destroy(&ds);
        return rc;
    }
    *out = ds;
    return 0;
}

void pp_dataset_destroy(struct pp_dataset **ds)
{
    if (!*ds) {
        return;
    }
    pp_free((*ds)->images);
    pp_free((*ds)->labels);
    pp_free(*ds);
    *ds = NULL;
}

int pp_dataset_count(const struct pp_config *cfg, enum pp_split split, int *out)
{
    const struct pp_dataset_ops *ops;
    PP_TRY(need(cfg->data.dataset, &ops));
    return ops->count(ops, cfg, split, out);
}

static const char *env(const char *name)
{
    const char *v = getenv(name);
    return v && v[0] != '\0' ? v : NULL;
}

int pp_data_dir(const char *name, char out[PP_PATH_MAX])
{
    const char *base = env("PPCLI_DATA_DIR");
    if (base) {
        return pp_path_format(out, "%s/%s", base, name);
    }
    /* The XDG base directory specification says to ignore a relative path. */
    base = env("XDG_DATA_HOME");
    if (base && base[0] == '/') {
        return pp_path_format(out, "%s/ppcli/%s", base, name);
    }
    base = env("HOME");
    if (base) {
        return pp_path_format(out, "%s/.local/share/ppcli/%s", base, name);
    }
    return pp_fail(PP_ECONFIG, "no place for data sets: none of PPCLI_DATA_DIR, XDG_DATA_HOME and "
                               "HOME is set (set one, or data.path)");
}
