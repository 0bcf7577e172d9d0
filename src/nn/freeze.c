/* SPDX-License-Identifier: Apache-2.0 */
/* train.freeze: marks the parameters of the named layers as frozen, before the model is complete. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "nn.h"
#include "ppcli/base/base.h"

#define SEPARATORS " ,\t"
#define KEY "train.freeze"

/* Returns whether a pattern names `name`, or a module that contains it: "layer1" contains
 * "layer1.0". */
static bool covers_name(const char *pattern, const char *name)
{
    char inside[PP_PARAM_NAME_MAX];
    snprintf(inside, sizeof(inside), "%s.*", pattern);
    return fnmatch(pattern, name, 0) == 0 || fnmatch(inside, name, 0) == 0;
}

/* Sets named[i] for each parameter that the pattern names, or whose layer it names or has the number
 * of; returns how many these are. Buffers count, because a module may have nothing else. */
static int mark_named(const struct pp_model *m, const char *pattern, bool *named)
{
    int n = 0;
    bool number = strspn(pattern, "0123456789") == strlen(pattern);
    for (int k = 0; k < m->n_nodes; k++) {
        const struct pp_node *node = &m->nodes[k];
        bool layer = number ? atol(pattern) == node->layer
                            : covers_name(pattern, m->layers[node->layer].name);
        for (int i = node->first_param; i < node->first_param + node->n_params; i++) {
            bool is = layer || (!number && covers_name(pattern, m->params[i].name));
            named[i] |= is;
            n += is;
        }
    }
    return n;
}

static int fail_unknown(struct builder *b, const char *pattern)
{
    const struct pp_model *m = b->m;
    const char **names;
    PP_ALLOC(names, (size_t)m->n_layers + 1);
    for (int i = 0; i < m->n_layers; i++) {
        names[i] = m->layers[i].name;
        if (strcmp(pattern, names[i]) == 0) {
            pp_free(names);
            return refuse(b, KEY ": layer %s has no parameters; leave it out", pattern);
        }
    }
    const char *near = pp_nearest(pattern, names);
    pp_free(names);
    if (near)
        return refuse(b, KEY ": no layer or parameter is named '%s'; did you mean '%s'?", pattern,
                      near);
    return refuse(b,
                  KEY ": no layer or parameter is named '%s'; the layers are %s to %s (ppcli "
                      "explain prints them), and * stands for any part of a name",
                  pattern, m->layers[0].name, m->layers[m->n_layers - 1].name);
}

/* Freezes the parameters i with named[i] != rest. Holders of one tensor are frozen together. Returns
 * how many parameters still learn. */
static int freeze_named(struct pp_model *m, bool *named, bool rest)
{
    int n = 0;
    for (int i = 0; i < m->n_params; i++) {
        int owner = m->params[i].tied_to - 1;
        if (owner >= 0 && named[i] != rest)
            named[owner] = !rest;
    }
    for (int i = 0; i < m->n_params; i++) {
        struct pp_param *p = &m->params[i];
        bool is = named[p->tied_to > 0 ? p->tied_to - 1 : i] != rest;
        p->kind = is && pp_param_learns(p) ? PP_PARAM_FROZEN : p->kind;
        n += pp_param_learns(p);
    }
    return n;
}

int freeze_params(struct builder *b)
{
    static const char but[] = "all but ";
    const char *p = b->cfg->train.freeze;
    bool rest = strncmp(p, but, sizeof(but) - 1) == 0;
    p += rest ? sizeof(but) - 1 : 0;
    p += strspn(p, SEPARATORS);
    if (b->rc < 0 || !*p)
        return b->rc;
    PP_TAKE(bool, named, (size_t)b->m->n_params + 1);
    for (size_t n; *p && b->rc == 0; p += n, p += strspn(p, SEPARATORS)) {
        char pattern[PP_PARAM_NAME_MAX];
        n = strcspn(p, SEPARATORS);
        snprintf(pattern, sizeof(pattern), "%.*s", (int)n, p);
        if (mark_named(b->m, pattern, named) == 0)
            PP_TRY(fail_unknown(b, pattern));
    }
    if (b->rc == 0 && freeze_named(b->m, named, rest) == 0)
        refuse(b, KEY " = %s freezes every parameter; leave out the layers to train, such as %s",
               b->cfg->train.freeze, b->m->layers[b->m->n_layers - 1].name);
    return b->rc;
}
