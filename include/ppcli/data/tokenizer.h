/* SPDX-License-Identifier: Apache-2.0 */
/* Texts as tokens. */
#ifndef PPCLI_DATA_TOKENIZER_H
#define PPCLI_DATA_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ppcli/dev/kernels.h"

/* ---- vocabulary */

/*
 * What the tokens of a text are: its bytes, its characters (UTF-8 code points, numbered in
 * ascending order), or subwords. Where samples are padded, token 0 is padding and the others follow.
 * A vocabulary is kept with a checkpoint as one text: all characters in order, or a tokenizer.json.
 */

struct pp_config;

struct pp_vocabulary {
    int n;           /* tokens, padding included; 0: none */
    int first;       /* token of the first byte or character: 1 with padding, else 0 */
    uint32_t *codes; /* [n - first] code points, ascending; NULL: a token is a byte; owned */
    struct pp_tokenizer *bpe; /* subwords in place of both; owned */
};

/* Room for a character and its NUL. */
#define PP_TOKEN_TEXT 5

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

/* ---- tokenizer */

/*
 * Subword vocabularies: byte-level BPE (GPT-2, Llama 3, Qwen) and BPE of characters with bytes for
 * those that have no token (Llama 2), as tokenizer.json has them, or vocab.json and merges.txt.
 * Ids are those of the library `tokenizers` with add_special_tokens=False: added and special tokens
 * in the text are found, but none is put around it.
 */

struct pp_token {
    const char *text;  /* as the file spells it, "\xc4\xa0the"; "" where a number has no token */
    const char *bytes; /* what it stands for, " the"; may hold NULs */
    uint32_t n;        /* of them */
    bool added;        /* looked for in the text before everything else */
    bool special;      /* of these: a mark such as <|endoftext|>, no text */
    bool byte;         /* <0x41>: a byte of a character without a token */
};

struct pp_merge { /* two tokens, one after the other, become one */
    uint32_t left, right, into;
};

struct pp_tokenizer {
    int n; /* tokens, numbers that have none included */
    struct pp_token *tokens;
    int n_merges;
    struct pp_merge *merges; /* the one that is done first comes first */
    int bos, eos, unk;       /* by their usual names; -1: none */
    bool byte_level;         /* tokens are bytes, in GPT-2's spelling; else characters */
    bool opens_with_space;   /* a blank is put before the text, and belongs not to it */
    char *steps;             /* what is done to a text before its merges, a line each, such as
                                "NFC" and "isolated PATTERN"; "": nothing */
    char *json;              /* all of it, as tokenizer.json */
    struct tokenizer_work *work;
};

struct pp_ids {
    uint32_t *at; /* pp_free() */
    size_t n, room;
};

/* A folder with one of these, or a tokenizer.json. Errors: PP_ENOINPUT, PP_EFORMAT (damaged, or
 * something that is not done here, by its name), PP_ERESOURCE (no PCRE2). The caller owns *out. */
int pp_tokenizer_open(const char *path, struct pp_tokenizer **out);
bool pp_tokenizer_is_in(const char *dir);

/* The same from the text of a tokenizer.json; label: for messages. */
void pp_tokenizer_destroy(struct pp_tokenizer **t); /* accepts NULL inside */

/* Append the ids of a text; long ones on all cores. One thread at a time. Errors: PP_EFORMAT,
 * beginning with `label`, for what is not UTF-8 or has no token; PP_ERESOURCE. */
int pp_tokenizer_encode(struct pp_tokenizer *t, const char *label, const char *text, size_t bytes,
                        struct pp_ids *ids);

/* ppcli tokenize */
struct pp_tokenize {
    int n_paths;
    const char **paths;    /* of texts, plain or gzip */
    const char *dir;       /* for train.bin, val.bin, tokenizer.json; it is made */
    const char *tokenizer; /* as pp_tokenizer_open() takes it */
    int train;             /* make a vocabulary of so many tokens instead; 0: no */
    double validation;     /* share of the tokens, the last ones */
};
struct pp_tokenized {
    int vocabulary, token_bytes;
    uint64_t bytes, tokens, validation; /* of the texts; all; those of them in val.bin */
    double seconds;                     /* of the texts' way to tokens alone */
};
/* Errors: those of pp_tokenizer_open(), _encode() and of files; PP_ECONFIG: dir has another
 * tokenizer. What was there stays then. */
int pp_tokenize(const struct pp_tokenize *job, struct pp_tokenized *out);

#endif
