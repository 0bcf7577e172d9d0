/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files of GGUF share: gguf_keys.c has keys and the tokenizer's, gguf.c the model's. */
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
    uint64_t at; /* of the next tensor in the data */
    struct pp_io_file file;
};

/* Keys: general.* and tokenizer.* as they are, others after the architecture. */
void gguf_u32(struct gguf *g, const char *name, int64_t value);
void gguf_f32(struct gguf *g, const char *name, double value);
void gguf_text(struct gguf *g, const char *name, const char *text);
void gguf_string(struct pp_bytes *b, const char *text, size_t n);

/* The keys of the tokenizer, for a model of `vocabulary` tokens. Errors: PP_ECONFIG, PP_ERESOURCE. */
int gguf_tokenizer(struct gguf *g, int vocabulary);

#endif
