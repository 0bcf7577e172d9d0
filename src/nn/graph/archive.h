/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch programs as torch.export.save() writes them (.pt2): the operators of a model, its values
 * with their shapes, and its weights, which stay in the mapped file. Nothing is unpickled. The
 * reader checks the form of an archive; what its operators mean is for others.
 */
#ifndef PPCLI_SRC_NN_GRAPH_ARCHIVE_H
#define PPCLI_SRC_NN_GRAPH_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pp_zip;

enum pt_dtype {
    PT_F32,
    PT_F64,
    PT_F16,
    PT_BF16,
    PT_I64,
    PT_I32,
    PT_I16,
    PT_I8,
    PT_U8,
    PT_BOOL,
    PT_OTHER
};

#define PT_DIMS 8
#define PT_ELEMENTS ((int64_t)1 << 40) /* of a tensor, at most */

/* A size: n, or n times the number of samples in the batch. {-1, true}: another expression. The
 * sizes of a tensor are at least 0 otherwise; an argument may be any number. */
struct pt_size {
    int64_t n;
    bool batch;
};

struct pt_tensor {
    enum pt_dtype dtype;
    int n_dims;
    struct pt_size dims[PT_DIMS];
};

/* What makes a value: an operator, the data, or a parameter, buffer or constant of the archive. */
enum pt_origin {
    PT_FROM_NODE,
    PT_FROM_INPUT,
    PT_FROM_WEIGHT
};

struct pt_value {
    const char *name; /* unique, "conv2d_3" */
    struct pt_tensor type;
    enum pt_origin origin;
    int index; /* of the node, input or weight that makes it; -1: nothing does, or uses it */
};

enum pt_weight_kind {
    PT_PARAMETER,
    PT_BUFFER,
    PT_CONSTANT
};

struct pt_weight {
    const char *name; /* unique, "layers.0.linear1.weight", as in state_dict() */
    enum pt_weight_kind kind;
    bool persistent; /* is in state_dict(); false: a constant, or a buffer that is not saved */
    bool requires_grad;
    enum pt_dtype dtype;
    int n_dims;
    int64_t dims[PT_DIMS];
    int64_t strides[PT_DIMS]; /* elements, at least 0 */
    int64_t offset;           /* elements from the start of the storage to the first one */
    int value;                /* its value */
    const char *storage;      /* entry of the archive with its bytes; one for tied tensors */
    const void *data;         /* the storage, in the mapped file: aligned to 1 byte only */
    size_t bytes;             /* of the storage; 0: no data (made on the device "meta") */
    int same_as;              /* the first weight with the same elements of one storage; -1 */
};

/* Kinds of arguments. A None is PT_NONE. */
enum pt_kind {
    PT_NONE,
    PT_TENSOR,
    PT_TENSORS,
    PT_INT,
    PT_INTS,
    PT_FLOAT,
    PT_FLOATS,
    PT_BOOL_ARG,
    PT_BOOLS,
    PT_STRING,
    PT_DTYPE,
    PT_DEVICE,
    PT_LAYOUT,
    PT_MEMORY_FORMAT,
    PT_OTHER_ARG
};

struct pt_arg {
    const char *name; /* in the operator's schema, "input"; "": it has none (higher_order) */
    enum pt_kind kind;
    int n;                       /* length of a list */
    int value;                   /* PT_TENSOR: a value of the program */
    const int *values;           /* PT_TENSORS: [n]; -1: None */
    struct pt_size size;         /* PT_INT; PT_LAYOUT, PT_MEMORY_FORMAT: n is PyTorch's number */
    const struct pt_size *sizes; /* PT_INTS: [n] */
    double number;               /* PT_FLOAT; PT_INT too if it is plain */
    const double *numbers;       /* PT_FLOATS: [n] */
    bool flag;                   /* PT_BOOL_ARG */
    const bool *flags;           /* PT_BOOLS: [n] */
    const char *text;    /* PT_STRING, PT_DEVICE ("cpu"); PT_OTHER_ARG: its kind in the file */
    enum pt_dtype dtype; /* PT_DTYPE */
};

struct pt_node {
    const char *target; /* "aten.batch_norm.default" */
    int n_args, n_outputs;
    const struct pt_arg *args; /* without those that equal their default */
    const int *outputs;        /* values; a list of tensors (chunk) is flattened; -1: none */
    int n_stack;
    const int *stack;   /* [n_stack] modules whose forward() runs, the model itself first */
    const char *path;   /* name of the innermost, "layers.0.linear1"; "": the model itself */
    const char *source; /* "net.py:12"; "": not known */
    const char *code;   /* the line of code; "": not known */
};

/* A module that some node runs in. */
struct pt_module {
    const char *path; /* "layers.0"; "": the model itself */
    const char *type; /* "TransformerEncoderLayer" */
    int call;         /* 0; 1 for the second time that its forward() runs, and so on */
};

/* An argument of forward(). */
struct pt_input {
    const char *name; /* "x"; "states_0" for one of a list */
    int value;        /* -1: a number, None or the like, which is fixed by the export */
};

struct pt_program {
    const char *file;  /* its path, for messages */
    const char *torch; /* version that wrote it, "2.15.0" */
    int schema_minor;  /* of schema 8 */
    const char *batch; /* symbol of the batch, "s77"; NULL: every size is a number */
    int n_symbols;     /* free sizes of the inputs; 1: only the batch is free */
    struct pt_value *values;
    int n_values;
    struct pt_node *nodes; /* [n_nodes] in their order */
    int n_nodes;
    int n_sizes; /* nodes left out because they compute only sizes, or check them */
    struct pt_weight *weights;
    int n_weights;
    struct pt_module *modules; /* [n_modules] in the order of their first node */
    int n_modules;
    struct pt_input *inputs;
    int n_inputs;
    int *outputs; /* [n_outputs] values of what forward() returns, flattened; -1: not a tensor */
    int n_outputs;
    struct pp_zip *zip;      /* owned */
    struct pt_block *blocks; /* owned: texts and lists */
};

/*
 * Reads a program. Immutable then: any thread may read it. The caller owns *out. Errors: those of
 * pp_zip_open(); PP_EFORMAT in one line that names the file and what would work. Local, as all
 * functions here.
 */
int pt_program_read(const char *path, struct pt_program **out);
/* Reads a program from an open archive, which it takes over, also on failure. */
int pt_program_read_zip(struct pp_zip *zip, struct pt_program **out);
void pt_program_destroy(struct pt_program **p); /* accepts NULL in *p */

/* Checks the CRC-32 of all weights, and that the file was not changed since it was opened. Reads
 * all of it. Errors: PP_EFORMAT, PP_EIO. */
int pt_program_check(const struct pt_program *p);

/*
 * Writes a copy of the archive with other values, which torch.export.load() runs. fill() may
 * overwrite the values of a parameter or buffer: values[elements] in its dtype, in the order of its
 * dims without gaps, which hold the old ones. It is not called for weights with `same_as`. Whole or
 * not at all; the name is durable after pp_io_sync_dir() of its folder. Errors: those of
 * pp_zip_copy() and of fill(); PP_EFORMAT if the archive has no values.
 */
int pt_program_write(const struct pt_program *p, const char *path,
                     int (*fill)(void *ctx, const struct pt_weight *w, void *values), void *ctx);

/* Returns an argument of a node by its name; NULL if it was left out, so that its default holds. */
const struct pt_arg *pt_arg_find(const struct pt_node *node, const char *name);

/* Bytes of an element; 0 for PT_OTHER. Its name, "float32". */
size_t pt_dtype_bytes(enum pt_dtype t);
const char *pt_dtype_name(enum pt_dtype t);

#endif
