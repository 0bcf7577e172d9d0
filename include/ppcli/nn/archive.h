/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch programs, the files of torch.export.save() that model.from names, for commands that
 * describe them: what becomes of a program, what ppcli lacks for it, and which operators it has.
 */
#ifndef PPCLI_NN_ARCHIVE_H
#define PPCLI_NN_ARCHIVE_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether a name is that of a PyTorch program: it ends in .pt2. */
bool pp_archive_is(const char *file);

/* Sets *out to the tokens of a sample that the PyTorch program in `file` takes;
 * 0: its input is not tokens. Errors: PP_EFORMAT, the file is not such an archive; those of reading a
 * file. */
int pp_archive_positions(const char *file, int *out);

/* A reason why a program cannot be trained. */
struct pp_archive_problem {
    const char *text;                   /* what was found, and what would work */
    const char *module, *source, *code; /* "layers.0", "net.py:12", that line; "": not known */
    int count;                          /* nodes with this problem */
};

struct pp_archive {
    const char *torch; /* the version that wrote it */
    int schema_minor;
    /* nodes of the program, and what becomes of them: they only compute sizes; are computed once,
     * on the host; only change how a value is seen; are computed for every sample; and, with
     * problems, the rest, which were not lowered because an input of theirs is missing */
    int nodes, sizes, folded, views, computed, left_out;
    /* nodes of the model that compute the samples, after fusion; of these, how many are elementwise
     * programs and not one of the fast ops. 0 with problems */
    int ops, general;
    int evaluated; /* dropouts and batch norms that were exported in evaluation mode */
    char input[160], output[160]; /* "x: [batch] x 3 x 32 x 32 of float32" */
    struct pp_archive_problem *problems;
    int n_problems;
    struct pp_archive_parts *parts; /* owns the texts */
};

/*
 * Reads a program and finds what becomes of it; `fuse`: as model.fuse. The shape of the data is not
 * compared. The caller owns *out. Errors: PP_ECONFIG, PP_EFORMAT if nothing can be said about its
 * nodes: one line with the file; those of reading a file; PP_ERESOURCE. Local.
 */
int pp_archive_look(const char *file, bool fuse, struct pp_archive **out);
void pp_archive_destroy(struct pp_archive **a); /* accepts NULL in *a */

/*
 * Writes a copy of a program with other weights, which torch.export.load() runs. read() gets each
 * tensor of state_dict() that may have changed, under one of its names, and writes its values in the
 * order of its dims. Whole or not at all. Errors: those of read(), of reading the program and of
 * writing.
 */
int pp_archive_write(const char *file, const char *path,
                     int (*read)(void *ctx, const char *name, int n_dims, const int64_t *dims,
                                 float *values),
                     void *ctx);

/* Names operator i of the operators that ppcli takes, "add.Tensor", and what it becomes, "view".
 * Returns false if i is at least the number of operators. */
bool pp_archive_operator(int i, const char **name, const char **becomes);

#endif
