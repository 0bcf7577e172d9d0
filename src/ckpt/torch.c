/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes model.py, which is used with model.safetensors: a torch.nn.Module with the modules and
 * names of PyTorch, whose forward() has a line for each node, and load(), which reads the tensors
 * with strict=True.
 */
#include <string.h>

#include "export.h"
#include "ppcli/conf/config.h"
#include "ppcli/nn/model.h"
#include "ppcli/base/base.h"

struct script {
    FILE *f;
    const struct pp_model *m;
    const struct pp_config *cfg;
};

/* Writes the name of the module that has a node's parameter i: "layers.0" for layers.0.weight. */
static void module_name(const struct pp_model *m, const struct pp_node *n, int i,
                        char out[PP_PARAM_NAME_MAX])
{
    snprintf(out, PP_PARAM_NAME_MAX, "%s", m->params[n->first_param + i].name);
    char *dot = strrchr(out, '.');
    if (dot)
        *dot = '\0';
}

/* Returns whether the node is the input projection of a torch.nn.MultiheadAttention. */
static bool is_projection(const struct pp_model *m, const struct pp_node *n)
{
    return strstr(m->params[n->first_param].name, ".in_proj_weight");
}

/* Computes how many zeros a window reads below and to the right of the image. */
static void print_pads(const struct pp_conv *w, int *bottom, int *right)
{
    *bottom = (w->OH - 1) * w->stride + w->kh - w->H - w->pad_top;
    *right = (w->OW - 1) * w->stride + w->kw - w->W - w->pad_left;
}

/* Returns whether the padding is the same on opposite sides, as PyTorch requires. If not, the image
 * is padded before. */
static bool is_even(const struct pp_conv *w)
{
    int bottom, right;
    print_pads(w, &bottom, &right);
    return bottom <= w->pad_top && right <= w->pad_left;
}

static const char *bool_of(bool yes)
{
    return yes ? "True" : "False";
}

/* ---- modules */

static void print_embedding(const struct script *s, const struct pp_node *n)
{
    for (int i = 0; i < n->n_params; i++) {
        const struct pp_param *p = &s->m->params[n->first_param + i];
        char name[PP_PARAM_NAME_MAX];
        module_name(s->m, n, i, name);
        fprintf(s->f, "    yield '%s', nn.Embedding(%d, %d)\n", name, p->dims[0], p->dims[1]);
    }
}

static void print_conv(const struct script *s, const struct pp_node *n)
{
    const struct pp_conv *w = &n->window.conv;
    bool even = is_even(w);
    fprintf(s->f, "nn.Conv2d(%d, %d, %d, %d, (%d, %d), groups=%d, bias=%s)\n", w->C, w->O, w->kh,
            w->stride, even ? w->pad_top : 0, even ? w->pad_left : 0, w->groups, bool_of(n->bias));
}

static int print_module(const struct script *s, const struct pp_node *n)
{
    const struct pp_param *p = &s->m->params[n->first_param];
    char name[PP_PARAM_NAME_MAX];
    int C = pp_shape_channels(&n->out);
    if (n->n_params == 0)
        return 0;
    module_name(s->m, n, 0, name);
    const char *end = strrchr(name, '.');
    if (n->op == &op_embedding)
        print_embedding(s, n);
    if (n->op == &op_embedding || (end && strcmp(end, ".out_proj") == 0))
        return 0;
    fprintf(s->f, "    yield '%s', ", name);
    if (n->op == &op_linear && is_projection(s->m, n))
        fprintf(s->f, "nn.MultiheadAttention(%d, %d)\n", p->dims[1], n[1].attention.heads);
    else if (n->op == &op_linear)
        fprintf(s->f, "nn.Linear(%d, %d, bias=%s)\n", p->dims[1], p->dims[0], bool_of(n->bias));
    else if (n->op == &op_conv2d)
        print_conv(s, n);
    else if (n->op == &op_batch_norm)
        fprintf(s->f, "nn.BatchNorm%dd(%d, %.9g, %.9g)\n", n->out.n == 3 ? 2 : 1, C,
                (double)n->norm.eps, (double)n->norm.momentum);
    else if (n->op == &op_group_norm)
        fprintf(s->f, "nn.GroupNorm(%d, %d, %.9g)\n", n->norm.groups, C, (double)n->norm.eps);
    else if (n->op == &op_row_norm)
        fprintf(s->f, "nn.LayerNorm(%d, %.9g)\n", C, (double)n->norm.eps);
    else
        return pp_fail(PP_ECONFIG, "PyTorch: a %s is not exported", n->op->name);
    return 0;
}

/* ---- forward() */

/* Prints the call of torch.nn.functional that pools the image x, after padding it with the value
 * `outside`. */
static void print_pool(const struct script *s, const struct pp_node *n, const char *call,
                       const char *outside)
{
    const struct pp_conv *w = &n->window.conv;
    int bottom, right;
    char image[128], pads[64];
    print_pads(w, &bottom, &right);
    snprintf(pads, sizeof(pads), "(%d, %d, %d, %d), value=%s", w->pad_left, right > 0 ? right : 0,
             w->pad_top, bottom > 0 ? bottom : 0, outside);
    snprintf(image, sizeof(image), "F.pad(x%d, %s)", n->x[0], pads);
    fprintf(s->f, "%s(%s, (%d, %d), %d)", call, image, w->kh, w->kw, w->stride);
    if (n->op == &op_avg_pool && !n->window.count_padding)
        fprintf(s->f, " / F.avg_pool2d(F.pad(torch.ones_like(x%d), %s), (%d, %d), %d)", n->x[0],
                pads, w->kh, w->kw, w->stride);
}

static void print_average(const struct script *s, const struct pp_node *n)
{
    if (n->in.n == 2)
        fprintf(s->f, n->window.conv.kh == n->in.dims[0] ? "x%d.mean(1)" : "x%d[:, 0]", n->x[0]);
    else if (n->out.n == 1)
        fprintf(s->f, "x%d.mean((2, 3))", n->x[0]);
    else
        print_pool(s, n, "F.avg_pool2d", "0");
}

static void print_weighted(const struct script *s, const struct pp_node *n)
{
    const struct pp_conv *w = &n->window.conv;
    char name[PP_PARAM_NAME_MAX];
    int x = n->x[0], bottom, right;
    module_name(s->m, n, 0, name);
    if (n->op == &op_linear && is_projection(s->m, n)) {
        fprintf(s->f, "F.linear(x%d, m('%s').in_proj_weight, m('%s').in_proj_bias)", x, name, name);
    } else if (n->op == &op_conv2d && !is_even(w)) {
        print_pads(w, &bottom, &right);
        fprintf(s->f, "m('%s')(F.pad(x%d, (%d, %d, %d, %d)))", name, x, w->pad_left, right,
                w->pad_top, bottom);
    } else if (n->op == &op_row_norm && n->in.n == 3) {
        fprintf(s->f, "m('%s')(x%d.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)", name, x);
    } else {
        bool flat = n->op == &op_linear && n->in.n == 3;
        fprintf(s->f, "m('%s')(x%d%s)", name, x, flat ? ".flatten(1)" : "");
    }
    if (n->op == &op_embedding && n->n_params > 1) {
        module_name(s->m, n, 1, name);
        fprintf(s->f, " + m('%s').weight", name);
    }
}

/* Returns the name of an activation in PyTorch; NULL if it needs no call. The switch has no
 * default, so that a compiler warns about a new row. */
static const char *activation_call(int act)
{
    switch ((enum pp_activation)act) {
    case PP_ACT_RELU:
        return "F.relu";
    case PP_ACT_TANH:
        return "torch.tanh";
    case PP_ACT_GELU:
    case PP_ACT_GELU_TANH:
        return "F.gelu";
    case PP_ACT_SILU:
        return "F.silu";
    case PP_ACT_NONE:
        break;
    }
    return NULL;
}

static int print_line(const struct script *s, const struct pp_node *n)
{
    const char *call = activation_call(n->activation);
    if (n->activation != PP_ACT_NONE && !call)
        return pp_fail(PP_ECONFIG, "PyTorch: the activation %s is not exported",
                       pp_activation_name(n->activation));
    if (n->op == &op_attention)
        fprintf(s->f,
                "        q, k, v = (t.unflatten(-1, (%d, %d)).transpose(1, 2) for t in "
                "x%d.chunk(3, -1))\n",
                n->attention.heads, n->attention.width, n->x[0]);
    fprintf(s->f, "        x%d = ", n->y);
    if (n->op == &op_attention)
        fputs("F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)", s->f);
    else if (n->op == &op_max_pool)
        print_pool(s, n, "F.max_pool2d", "-torch.inf");
    else if (n->op == &op_avg_pool)
        print_average(s, n);
    else if (n->op == &op_dropout)
        fprintf(s->f, "F.dropout(x%d, %.9g, self.training)", n->x[0], (double)n->dropout.p);
    else if (n->n_params > 0)
        print_weighted(s, n);
    else if (n->op == &op_activate || n->op == &op_add)
        fprintf(s->f, "x%d", n->x[0]);
    else
        return pp_fail(PP_ECONFIG, "PyTorch: a %s is not exported", n->op->name);
    if (n->n_x == 2)
        fprintf(s->f, " + x%d", n->x[1]);
    if (n->activation != PP_ACT_NONE) {
        const char *more = n->activation == PP_ACT_GELU_TANH ? ", approximate='tanh'" : "";
        fprintf(s->f, "\n        x%d = %s(x%d%s)", n->y, call, n->y, more);
    }
    fputs("\n", s->f);
    return 0;
}

/* Prints the line that applies data.mean or data.std, one number for each channel or one for all.
 * In a picture without its shape, as an mlp takes it, the values of a pixel's channels are
 * adjacent. */
static void print_scaling(const struct script *s, const struct pp_floats *list, const char *op)
{
    const struct pp_shape *input = &s->m->values[0];
    if (list->n == 0)
        return;
    fprintf(s->f, "        x0 = x0 %s torch.tensor([", op);
    for (int i = 0; i < list->n; i++)
        fprintf(s->f, "%s%.9g", i > 0 ? ", " : "", list->at[i]);
    fputs("])", s->f);
    if (input->n == 3)
        fputs(".view(-1, 1, 1)", s->f);
    else if (list->n > 1 && list->n < input->dims[0])
        fprintf(s->f, ".repeat(%d)", input->dims[0] / list->n);
    fputs(".to(x0)\n", s->f);
}

static int print_script(const struct script *s)
{
    const struct pp_model *m = s->m;
    fprintf(
        s->f,
        "# Made by ppcli: a model of type %s. Its input is %s.\n%s"
        "import os\n\nimport torch\nfrom safetensors.torch import load_file\nfrom torch import nn\n"
        "from torch.nn import functional as F\n\n\ndef modules():\n",
        s->cfg->model.type,
        m->tokens ? "[N][T] tokens"
        : m->values[0].n == 3
            ? "[N][C][H][W], pixels as 0 to 1"
            : "[N][values], bytes as 0 to 1; of pictures row by row, the channels "
              "of each pixel together",
        s->cfg->data.resize > 0 ? "# Pictures are not resized here, as data.resize does.\n" : "");
    for (int i = 0; i < m->n_nodes; i++)
        PP_TRY(print_module(s, &m->nodes[i]));
    fputs("\n\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
          "        for name, module in modules():\n            *path, last = name.split('.')\n"
          "            at = self\n            for word in path:\n"
          "                if not hasattr(at, word):\n"
          "                    at.add_module(word, nn.Module())\n"
          "                at = getattr(at, word)\n            at.add_module(last, module)\n\n"
          "    def forward(self, x0):\n        m = self.get_submodule\n",
          s->f);
    print_scaling(s, &s->cfg->data.mean, "-");
    print_scaling(s, &s->cfg->data.std, "/");
    for (int i = 0; i < m->n_nodes; i++)
        PP_TRY(print_line(s, &m->nodes[i]));
    fprintf(s->f,
            "        return x%d\n\n\n"
            "def load(folder=os.path.dirname(os.path.abspath(__file__))):\n    model = Model()\n"
            "    tensors = load_file(os.path.join(folder, 'model.safetensors'))\n"
            "    model.load_state_dict(tensors, strict=True)\n    return model.eval()\n",
            m->n_values - 1);
    return 0;
}

int export_torch(struct exporter *e, const struct pp_export *x, const char *path)
{
    struct pp_file_write file;
    PP_TRY(pp_file_create(path, &file));
    const struct script s = {file.f, x->model, e->cfg};
    PP_TRY_UNDO(print_script(&s), pp_file_abandon(&file));
    return pp_file_commit(&file);
}
