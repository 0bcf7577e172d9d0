/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.layers: a list of words, each an op, as torch.nn.Sequential has modules. Word i is named
 * layers.i. A word with weights begins a layer, and the following words belong to it; words that an
 * add:N spans are one layer. A relu right after a convolution or a norm, and an activation right
 * after a linear, are part of that op.
 */
#include "nn.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX (PP_TEXT_MAX / 2) /* each is followed by a space */
#define EPS 1e-5f

enum layer_kind { /* up to AVG_POOL, except LINEAR: ops on the channels of an image */
    CONV,
    LINEAR,
    BATCH_NORM,
    GROUP_NORM,
    LAYER_NORM,
    MAX_POOL,
    AVG_POOL,
    ACTIVATION,
    DROPOUT,
    FLATTEN,
    ADD
};

struct layer_word {
    enum layer_kind kind;
    int n; /* outputs, groups, or how many words back */
    struct window w;
    bool bias, all; /* all: the window is the whole image */
    bool twice;     /* an option was given twice */
    enum pp_activation act;
    float p;
    char text[64];
};

/* The argument that may follow the colon. */
enum word_argument {
    NOTHING,
    NUMBER,       /* linear:10 */
    OUT_WINDOW,   /* conv:32x3/2,pad=1 */
    WINDOW,       /* maxpool:3/2,pad=1 */
    MAYBE_WINDOW, /* avgpool */
    SHARE         /* dropout:0.1 */
};

static const struct {
    const char *name, *example;
    enum layer_kind kind;
    enum word_argument argument;
    enum pp_activation act;
} known[] = {
    {"conv", "conv:32x3 or conv:32x3/2,pad=1, with a pad below the kernel", CONV, OUT_WINDOW,
     PP_ACT_NONE},
    {"linear", "linear:10", LINEAR, NUMBER, PP_ACT_NONE},
    {"batchnorm", "batchnorm", BATCH_NORM, NOTHING, PP_ACT_NONE},
    {"groupnorm", "groupnorm:32", GROUP_NORM, NUMBER, PP_ACT_NONE},
    {"layernorm", "layernorm", LAYER_NORM, NOTHING, PP_ACT_NONE},
    {"maxpool", "maxpool:2 or maxpool:3/2,pad=1, with a pad below the kernel", MAX_POOL, WINDOW,
     PP_ACT_NONE},
    {"avgpool", "avgpool, avgpool:2 or avgpool:3/2,pad=1, with a pad below the kernel", AVG_POOL,
     MAYBE_WINDOW, PP_ACT_NONE},
    {"dropout", "dropout:0.1", DROPOUT, SHARE, PP_ACT_NONE},
    {"flatten", "flatten", FLATTEN, NOTHING, PP_ACT_NONE},
    {"add", "add:4", ADD, NUMBER, PP_ACT_NONE},
#define PP_ACTIVATION(NAME, word, ...) {#word, #word, ACTIVATION, NOTHING, PP_ACT_##NAME},
#include "ppcli/conf/activations.def"
#undef PP_ACTIVATION
};

/* Reads a whole number of at least 1 at *p and moves *p past it. Returns whether there is one. */
static bool read_number(const char **p, int *out)
{
    char *end;
    long n = **p >= '0' && **p <= '9' ? strtol(*p, &end, 10) : 0;
    if (n < 1 || n > 1 << 24)
        return false;
    *p = end;
    *out = (int)n;
    return true;
}

/* Reads a window, KERNEL[/STRIDE][,pad=N|same][,groups=N][,bias=off]. Returns whether it is
 * valid. */
static bool read_window(const char *p, struct layer_word *w)
{
    bool conv = w->kind == CONV;
    if (!read_number(&p, &w->w.kernel))
        return false;
    w->w.stride = conv ? 1 : w->w.kernel;
    w->w.pad = conv ? w->w.kernel / 2 : 0;
    if (*p == '/') {
        p++;
        if (!read_number(&p, &w->w.stride))
            return false;
    }
    for (int said = 0, option = 0; *p == ','; said |= option) {
        static const char same[] = "same";
        if (!strncmp(++p, "pad=", 4)) {
            option = 1;
            p += 4;
            if (!strncmp(p, same, strlen(same))) {
                w->w.pad = PAD_SAME;
                p += strlen(same);
            } else if (*p == '0') {
                w->w.pad = 0;
                p++;
            } else if (!read_number(&p, &w->w.pad) || w->w.pad >= w->w.kernel) {
                return false;
            }
        } else if (conv && !strncmp(p, "groups=", 7)) {
            option = 2;
            p += 7;
            if (!read_number(&p, &w->w.groups))
                return false;
        } else if (conv && !strncmp(p, "bias=off", 8)) {
            option = 4;
            p += 8;
            w->bias = false;
        } else {
            return false;
        }
        w->twice |= said & option;
    }
    return *p == '\0' && !w->twice;
}

static bool read_argument(const char *p, enum word_argument argument, struct layer_word *w)
{
    char *end;
    w->all = argument == MAYBE_WINDOW && !p;
    if (argument == NOTHING || !p)
        return argument == NOTHING ? !p : w->all;
    switch (argument) {
    case NUMBER:
        return read_number(&p, &w->n) && *p == '\0';
    case OUT_WINDOW:
        return read_number(&p, &w->n) && *p++ == 'x' && read_window(p, w);
    case SHARE:
        w->p = strtof(p, &end);
        return end > p && *end == '\0' && (w->p == 0 || w->p >= FLT_MIN) && w->p < 1;
    default:
        return read_window(p, w);
    }
}

static int parse_word(struct builder *b, char *text, int i, struct layer_word *w)
{
    char *colon = strchr(text, ':');
    *w = (struct layer_word){.bias = true, .w.groups = 1};
    snprintf(w->text, sizeof(w->text), "%s", text);
    if (colon)
        *colon = '\0';
    for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
        if (strcmp(text, known[k].name) != 0)
            continue;
        w->kind = known[k].kind;
        w->act = known[k].act;
        if (!read_argument(colon ? colon + 1 : NULL, known[k].argument, w)) {
            return refuse(b, "model.layers: word %d, '%s', %s; write such as %s", i, w->text,
                          w->twice ? "has an option twice" : "is not understood", known[k].example);
        }
        return 0;
    }
    return refuse(
        b,
        "model.layers: word %d, '%s', is none of conv, linear, batchnorm, groupnorm, "
        "layernorm, maxpool, avgpool, flatten, dropout, add, relu, gelu, gelu_tanh, tanh, silu",
        i, w->text);
}

static int parse_layers(struct builder *b, struct layer_word *words)
{
    static const char blanks[] = " \t";
    char text[PP_TEXT_MAX], *rest = NULL;
    int n = 0;
    snprintf(text, sizeof(text), "%s", b->cfg->model.layers);
    for (char *p = strtok_r(text, blanks, &rest); p && b->rc == 0;
         p = strtok_r(NULL, blanks, &rest)) {
        parse_word(b, p, n, &words[n]);
        n++;
    }
    if (n == 0) {
        refuse(b, "model.layers names no layer; write such as conv:32x3 relu maxpool:2 flatten "
                  "linear:10");
    }
    for (int i = 0; i < n; i++) {
        if (words[i].kind == ADD && words[i].n > i)
            refuse(b, "model.layers: word %d, '%s', reaches before the first word", i,
                   words[i].text);
    }
    return n;
}

/* Returns whether word i of the model's words begins a layer, where the model may be cut. */
static bool begins_layer(const struct layer_word *words, int n, int i)
{
    for (int k = i; k < n; k++) /* inside the span of an add */
        if (words[k].kind == ADD && k - words[k].n < i)
            return false;
    return i == 0 || words[i].kind == CONV || words[i].kind == LINEAR;
}

static bool is_next(const struct layer_word *words, int n, int i, enum layer_kind kind)
{
    bool reached = false; /* an add needs the value of word i by itself */
    for (int k = i + 1; k < n; k++)
        reached |= words[k].kind == ADD && k - words[k].n == i + 1;
    return i + 1 < n && words[i + 1].kind == kind && !reached;
}

/* Adds the node of word i, with x as its input, to the model, and moves *i to the last word that is
 * part of the node. */
static int add_word(struct builder *b, const struct layer_word *words, int n, int *i, int x,
                    const int *before)
{
    const struct layer_word *w = &words[*i];
    char name[16] = "";
    int at = *i;
    snprintf(name, sizeof(name), "%d", at);
    enum pp_activation next = is_next(words, n, at, ACTIVATION) ? words[at + 1].act : PP_ACT_NONE;
    bool relu = next == PP_ACT_RELU;
    switch (w->kind) {
    case CONV:
        *i += relu;
        return conv2d(b, name, x, w->n, &w->w, w->bias, relu);
    case LINEAR:
        *i += next != PP_ACT_NONE;
        return linear(b, name, x, w->n, next);
    case BATCH_NORM:
        *i += relu;
        return batch_norm(b, name, x, -1, EPS, (float)b->cfg->model.norm_momentum, relu);
    case GROUP_NORM:
        *i += relu;
        return group_norm(b, name, x, -1, w->n, EPS, relu);
    case LAYER_NORM:
        return layer_norm(b, name, x, EPS, true);
    case MAX_POOL:
        return max_pool(b, name, x, &w->w);
    case AVG_POOL:
        return w->all ? global_avg_pool(b, name, x) : avg_pool(b, name, x, &w->w);
    case ACTIVATION:
        return activate(b, name, x, w->act);
    case DROPOUT:
        return dropout(b, name, x, w->p);
    case FLATTEN: /* a linear takes images unchanged */
        return x;
    case ADD:
        *i += relu;
        return add(b, name, x, before[at - w->n], relu);
    }
    return x;
}

static int build(struct builder *b, int x)
{
    PP_OWN_MEMORY struct layer_word *words = pp_alloc(WORDS_MAX, sizeof(*words));
    int before[WORDS_MAX + 1]; /* the value that word i gets */
    if (!words) {
        b->rc = PP_ERESOURCE;
        return 0;
    }
    const struct pp_model *m = b->m;
    bool flat = false; /* an image after a flatten */
    int n = parse_layers(b, words);
    for (int i = 0; i < n && b->rc == 0; i++) {
        int first = i;
        bool empty = i > 0 && m->layers[m->n_layers - 1].first_node == m->n_nodes;
        if (begins_layer(words, n, i) && !empty)
            layer(b, "layers.%d", i);
        snprintf(b->prefix, sizeof(b->prefix), "layers");
        flat = words[i].kind == FLATTEN ? shape_of(b, x)->n > 1 : flat && words[i].kind != LINEAR;
        if (flat && words[i].kind <= AVG_POOL && words[i].kind != LINEAR) {
            refuse(b, "model.layers: word %d, '%s', is for images, but comes after flatten", i,
                   words[i].text);
        }
        before[i] = x;
        bool said = b->rc < 0; /* and which word it is */
        x = add_word(b, words, n, &i, x, before);
        if (b->rc < 0 && !said)
            pp_error_context("model.layers: word %d, '%s'", first, words[first].text);
        for (int k = first + 1; k <= i; k++)
            before[k] = x;
    }
    if (b->rc == 0 && (words[n - 1].kind != LINEAR || shape_of(b, x)->n != 1)) {
        refuse(b,
               "model.layers ends with '%s'; the last word must be a linear with an output for "
               "each class",
               words[n - 1].text);
    }
    return x;
}

const struct model_builder model_sequential = {.name = "sequential", .build = build};
