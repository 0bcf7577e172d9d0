/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the two files of GGUF share: gguf_keys.c writes the keys, also of the
 * tokenizer, gguf.c the model. */
#ifndef PPCLI_CKPT_GGUF_H
#define PPCLI_CKPT_GGUF_H

#include "export.h"
#include "ppcli/base/files.h"

enum value {
    U32 = 4,
    I32 = 5,
    F32 = 6,
    BOOL = 7,
    STRING = 8,
    ARRAY = 9
};

struct gguf {
    struct exporter *e;
    const struct pp_export *x;
    const char *arch;
    struct pp_bytes keys, list; /* written one after the other */
    int n_keys, n_tensors;
    uint64_t at; /* offset of the next tensor in the data */
    struct pp_io_file file;
};

/* Write keys: general.* and tokenizer.* as they are, others with the architecture in front. */
void gguf_u32(struct gguf *g, const char *name, int64_t value);
void gguf_f32(struct gguf *g, const char *name, double value);
void gguf_text(struct gguf *g, const char *name, const char *text);
void gguf_string(struct pp_bytes *b, const char *text, size_t n);

/* Writes the keys of the tokenizer for a model of `vocabulary` tokens. Errors: PP_ECONFIG,
 * PP_ERESOURCE. */
int gguf_tokenizer(struct gguf *g, int vocabulary);

#endif
