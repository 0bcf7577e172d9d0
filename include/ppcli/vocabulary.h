/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tokens of a text are: its bytes, its characters (UTF-8 code points, numbered in
 * ascending order), or subwords. Where samples are padded, token 0 is padding and the others follow.
 * A vocabulary is kept with a checkpoint as one text: all characters in order, or a tokenizer.json.
 */
#ifndef PPCLI_VOCABULARY_H
#define PPCLI_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ppcli/kernels.h"
#include "ppcli/tokenizer.h"

struct pp_config;

struct pp_vocabulary {
    int n;           /* tokens, padding included; 0: none */
    int first;       /* token of the first byte or character: 1 with padding, else 0 */
    uint32_t *codes; /* [n - first] code points, ascending; NULL: a token is a byte; owned */
    struct pp_tokenizer *bpe; /* subwords in place of both; owned */
};

/* Room for a character and its NUL. */
#define PP_TOKEN_TEXT 5

/* That of bytes. */
struct pp_vocabulary pp_vocabulary_bytes(bool padded);

/* That of all characters of n texts, which end with a NUL. paths: for messages. Errors: PP_EFORMAT
 * (no UTF-8, or a NUL inside), PP_ERESOURCE. Caller: pp_vocabulary_fini(). Local. */
int pp_vocabulary_of(int n, const char *const *paths, const char *const *texts, const size_t *bytes,
                     bool padded, struct pp_vocabulary *out);
/* The subwords of a folder or a tokenizer.json. Errors: those of pp_tokenizer_open(). */
int pp_vocabulary_open(const char *path, bool padded, struct pp_vocabulary *out);
/* That of a text of pp_vocabulary_text(); label: for messages. */
int pp_vocabulary_from(const char *label, const char *text, struct pp_vocabulary *out);
/* That of a tokenizer in folder `path`, or in the folder of file `path`; n 0: there is none. */
int pp_vocabulary_beside(const char *path, struct pp_vocabulary *out);
void pp_vocabulary_fini(struct pp_vocabulary *v); /* accepts a zeroed one */

/* All characters in order, as UTF-8; "" for bytes; a tokenizer.json. Caller pp_free()s; NULL:
 * PP_ERESOURCE. */
char *pp_vocabulary_text(const struct pp_vocabulary *v);

/* All of it as a tokenizer.json; without padding. pp_free(). */
int pp_vocabulary_json(const struct pp_vocabulary *v, char **out);

/* The narrowest type that has all its tokens. */
enum pp_element pp_vocabulary_element(const struct pp_vocabulary *v);

/* The tokens of text[bytes], after which there is a NUL, one after the other, at most `most` of them,
 * as `element`; *out_n: how many. Errors: PP_EFORMAT, beginning with `label`, for a character that it has not, and for what
 * is not UTF-8. */
int pp_vocabulary_encode(const struct pp_vocabulary *v, const char *label, const char *text,
                         size_t bytes, enum pp_element element, size_t most, void *out,
                         size_t *out_n);

/*
 * A token must mean what it meant in the checkpoint, file or folder `path`: then, now: texts of its
 * vocabulary and of cfg's, NULL where there is none; kinds: tokens of cfg's. plain: it is of another
 * program, and its vocabulary is that of a tokenizer beside it; where there is none, another count of
 * tokens is worth a warning. Errors: PP_EFORMAT.
 */
int pp_vocabulary_check(const struct pp_config *cfg, const char *path, bool plain, const char *then,
                        const char *now, int kinds);

/* The bytes of a token; room: for those of a character. Padding has none. */
const char *pp_vocabulary_decode(const struct pp_vocabulary *v, int token, char room[PP_TOKEN_TEXT],
                                 size_t *out_n);

/* That of cfg's data set, from its files; n 0: its tokens are numbers, or it is not a text. Errors:
 * those of pp_dataset_look(). Caller: pp_vocabulary_fini(). */
int pp_dataset_vocabulary(const struct pp_config *cfg, struct pp_vocabulary *out);

#endif
