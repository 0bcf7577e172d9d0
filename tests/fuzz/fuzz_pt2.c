/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Archives of torch.export.save(): what is accepted has indices, texts and weights that can be used
 * without a further check. A change of the bytes is mostly found by a CRC-32, so the same bytes are
 * read a second time with the CRC of each entry put right.
 */
#include <zlib.h>

#include "fuzz.h"
#include "../../src/base/zip.h"
#include "../../src/nn/graph/archive.h"

static size_t seen; /* so that every text is read to its end */

static void look_value(const struct pt_program *p, int value, bool may_be_none)
{
    pp_assert(value < p->n_values && (value >= 0 || (may_be_none && value == -1)));
    pp_assert(value < 0 || p->values[value].index >= 0);
}

static void look_arg(const struct pt_program *p, const struct pt_arg *a)
{
    seen += strlen(a->name);
    if (a->kind == PT_TENSOR)
        look_value(p, a->value, false);
    for (int i = 0; i < a->n; i++)
        if (a->kind == PT_TENSORS)
            look_value(p, a->values[i], true);
        else if (a->kind == PT_INTS)
            seen += a->sizes[i].batch;
        else if (a->kind == PT_FLOATS)
            seen += a->numbers[i] > 0;
        else if (a->kind == PT_BOOLS)
            seen += a->flags[i];
        else
            pp_assert(false);
    if (a->kind == PT_STRING || a->kind == PT_DEVICE || a->kind == PT_OTHER_ARG)
        seen += strlen(a->text);
}

static void look_weight(const struct pt_program *p, int index)
{
    const struct pt_weight *w = &p->weights[index];
    int64_t last = w->offset;
    look_value(p, w->value, false);
    pp_assert(p->values[w->value].origin == PT_FROM_WEIGHT && p->values[w->value].index == index);
    pp_assert(w->same_as < index && w->n_dims <= PT_DIMS);
    seen += strlen(w->name) + strlen(w->storage);
    for (int i = 0; i < w->n_dims; i++) {
        if (w->dims[i] == 0)
            return;
        last += (w->dims[i] - 1) * w->strides[i];
    }
    size_t bytes = pt_dtype_bytes(w->dtype);
    pp_assert(w->bytes == 0 || ((size_t)last + 1) * bytes <= w->bytes);
    if (w->bytes > 0 && bytes > 0)
        seen += ((const uint8_t *)w->data)[((size_t)last + 1) * bytes - 1];
}

static void look(const struct pt_program *p)
{
    for (int i = 0; i < p->n_values; i++) {
        const struct pt_value *v = &p->values[i];
        int n = v->origin == PT_FROM_NODE    ? p->n_nodes
                : v->origin == PT_FROM_INPUT ? p->n_inputs
                                             : p->n_weights;
        pp_assert(v->index < n && v->type.n_dims <= PT_DIMS);
        seen += strlen(v->name);
    }
    for (int i = 0; i < p->n_weights; i++)
        look_weight(p, i);
    for (int i = 0; i < p->n_inputs; i++) {
        look_value(p, p->inputs[i].value, true);
        seen += strlen(p->inputs[i].name);
    }
    for (int i = 0; i < p->n_nodes; i++) {
        const struct pt_node *n = &p->nodes[i];
        for (int k = 0; k < n->n_args; k++)
            look_arg(p, &n->args[k]);
        for (int k = 0; k < n->n_outputs; k++) {
            look_value(p, n->outputs[k], true);
            pp_assert(n->outputs[k] < 0 || p->values[n->outputs[k]].index == i);
        }
        for (int k = 0; k < n->n_stack; k++)
            pp_assert(n->stack[k] >= 0 && n->stack[k] < p->n_modules);
        seen += strlen(n->target) + strlen(n->path) + strlen(n->source) + strlen(n->code);
    }
    for (int i = 0; i < p->n_outputs; i++)
        look_value(p, p->outputs[i], true);
}

/* Reads a program from bytes in a block of their own size. */
static void read_program(const uint8_t *data, size_t size)
{
    struct pp_zip *z = NULL;
    struct pt_program *p = NULL;
    int rc = pp_zip_parse("x.pt2", data, size, &z);
    if (rc == 0)
        rc = pt_program_read_zip(z, &p);
    if (rc == 0) {
        look(p);
        rc = pt_program_check(p);
    }
    if (rc < 0) {
        fuzz_refused(rc);
        pp_assert(strstr(pp_error_get()->text, "x.pt2"));
    }
    pt_program_destroy(&p);
}

/* Puts right the CRC-32 of every stored entry. Returns whether one was wrong. */
static bool repair(uint8_t *data, size_t size)
{
    struct pp_zip *z = NULL;
    bool wrong = false;
    if (pp_zip_parse("x.pt2", data, size, &z) < 0)
        return false;
    for (int i = 0; i < z->n; i++) {
        const struct pp_zip_entry *e = &z->entries[i];
        uint32_t crc = (uint32_t)crc32(crc32(0, NULL, 0), e->data, (uInt)e->stored);
        wrong = wrong || crc != e->crc;
        for (int k = 0; k < 4; k++)
            data[e->directory + 16 + (size_t)k] = (uint8_t)(crc >> 8 * k);
    }
    pp_zip_close(&z);
    return wrong;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    pp_assert(copy != NULL);
    memcpy(copy, data, size);
    read_program(copy, size);
    if (repair(copy, size))
        read_program(copy, size);
    free(copy);
    return 0;
}
