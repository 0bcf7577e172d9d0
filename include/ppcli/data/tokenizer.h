/* SPDX-License-Identifier: Apache-2.0 */
/* Texts as tokens. */
#ifndef PPCLI_DATA_TOKENIZER_H
#define PPCLI_DATA_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ppcli/dev/kernels.h"

/* ---- vocabularies */

/*
 * The tokens of a text are its bytes, its characters (UTF-8 code points, numbered in ascending
 * order), or subwords. If samples are padded, token 0 is padding and the others follow. A
 * checkpoint stores a vocabulary as one text: all characters in order, or a tokenizer.json.
 */

struct pp_config;

struct pp_vocabulary {
    int n;           /* number of tokens, padding included; 0: there is no vocabulary */
    int first;       /* token of the first byte or character: 1 with padding, else 0 */
    uint32_t *codes; /* [n - first] code points, ascending; NULL: a token is a byte; owned */
    struct pp_tokenizer *bpe; /* subwords, instead of first and codes; owned */
};

/* Bytes of a character and its NUL. */
#define PP_TOKEN_TEXT 5

/* Makes the vocabulary from a text that pp_vocabulary_text() returned. `label` names it in
 * messages. */
int pp_vocabulary_from(const char *label, const char *text, struct pp_vocabulary *out);
/* Opens the vocabulary of the tokenizer in folder `path`, or in the folder of file `path`. Its n is
 * 0 if there is none. */
int pp_vocabulary_beside(const char *path, struct pp_vocabulary *out);
void pp_vocabulary_fini(struct pp_vocabulary *v); /* accepts a zeroed vocabulary */

/* Returns the vocabulary as a text: all characters in order, as UTF-8; "" for bytes; else a
 * tokenizer.json. The caller frees it with pp_free(). NULL means PP_ERESOURCE. */
char *pp_vocabulary_text(const struct pp_vocabulary *v);

/* Prints the vocabulary, without padding, as a tokenizer.json. The caller frees *out with
 * pp_free(). */
int pp_vocabulary_json(const struct pp_vocabulary *v, char **out);

/* Encodes text[bytes], which a NUL follows, into at most `most` tokens of type `element`; *out_n is
 * how many there are. Errors: PP_EFORMAT, beginning with `label`, for a character that is not in
 * the vocabulary, and for text that is not UTF-8. */
int pp_vocabulary_encode(const struct pp_vocabulary *v, const char *label, const char *text,
                         size_t bytes, enum pp_element element, size_t most, void *out,
                         size_t *out_n);

/*
 * Checks that tokens have the same meaning as in the checkpoint, file or folder `path`. `then` and
 * `now` are the texts of its vocabulary and of cfg's, NULL if there is none; `kinds` is the number
 * of cfg's tokens. `plain`: the file comes from another program, and its vocabulary is that of a
 * tokenizer in its folder; if there is none, a different number of tokens only gives a warning.
 * Errors: PP_EFORMAT.
 */
int pp_vocabulary_check(const struct pp_config *cfg, const char *path, bool plain, const char *then,
                        const char *now, int kinds);

/* Returns the bytes of a token; *out_n is their number, 0 for padding. `buffer` is memory for the
 * bytes of a character. */
const char *pp_vocabulary_decode(const struct pp_vocabulary *v, int token,
                                 char buffer[PP_TOKEN_TEXT], size_t *out_n);

/* Opens the vocabulary of cfg's data set from its files. Its n is 0 if the tokens are numbers or
 * the data are not a text. Errors: those of pp_dataset_look(). The caller calls
 * pp_vocabulary_fini(). */
int pp_dataset_vocabulary(const struct pp_config *cfg, struct pp_vocabulary *out);

/* ---- tokenizers */

/*
 * Subword vocabularies: byte-level BPE (GPT-2, Llama 3, Qwen) and BPE of characters with bytes for
 * characters without a token (Llama 2), from tokenizer.json, or vocab.json and merges.txt. Ids are
 * those of the library `tokenizers` with add_special_tokens=False: added and special tokens in the
 * text are found, but none is added around it.
 */

struct pp_token {
    const char *text;  /* as the file spells it, "\xc4\xa0the"; "" if a number has no token */
    const char *bytes; /* the bytes that it stands for, " the"; may contain NULs */
    uint32_t n;        /* length of bytes */
    bool added;        /* an added token, which is searched in the text before everything else */
    bool special;      /* an added token that is a mark such as <|endoftext|>, not text */
    bool byte;         /* <0x41>: one byte of a character without a token */
};

struct pp_merge { /* joins two adjacent tokens into one */
    uint32_t left, right, into;
};

struct pp_tokenizer {
    int n; /* number of tokens, numbers without one included */
    struct pp_token *tokens;
    int n_merges;
    struct pp_merge *merges; /* in the order in which they apply */
    int bos, eos, unk;       /* ids of the usual marks; -1: none */
    bool byte_level;         /* tokens are bytes, in GPT-2's spelling; else characters */
    bool opens_with_space;   /* a blank is put before the text, and is not part of it */
    /* changes of a text before its merges, a line each, such as "NFC" and "isolated PATTERN"; "":
     * none */
    char *steps;
    char *json; /* the whole tokenizer as tokenizer.json */
    struct tokenizer_work *work;
};

struct pp_ids {
    uint32_t *at; /* pp_free() */
    size_t n, capacity;
};

/* Opens a tokenizer.json, or a folder that contains a tokenizer. Errors: PP_ENOINPUT, PP_EFORMAT
 * (damaged, or a feature that is not supported, by its name), PP_ERESOURCE (no PCRE2). The caller
 * owns *out. */
int pp_tokenizer_open(const char *path, struct pp_tokenizer **out);
bool pp_tokenizer_is_in(const char *dir);

/* Destroys a tokenizer and sets *t to NULL. */
void pp_tokenizer_destroy(struct pp_tokenizer **t); /* accepts NULL inside */

/* Appends the ids of a text; long texts use all cores. One thread at a time. Errors: PP_EFORMAT,
 * beginning with `label`, for text that is not UTF-8 or has no token; PP_ERESOURCE. */
int pp_tokenizer_encode(struct pp_tokenizer *t, const char *label, const char *text, size_t bytes,
                        struct pp_ids *ids);

/* The job of ppcli tokenize. */
struct pp_tokenize {
    int n_paths;
    const char **paths;    /* text files, plain or gzip */
    const char *dir;       /* folder for train.bin, val.bin, tokenizer.json; it is created */
    const char *tokenizer; /* path for pp_tokenizer_open() */
    int train;             /* train a vocabulary of so many tokens instead; 0: no */
    double validation;     /* share of the tokens for validation, from the end */
};
struct pp_tokenized {
    int vocabulary, token_bytes;
    uint64_t bytes, tokens, validation; /* bytes of the texts, all tokens, and those in val.bin */
    double seconds;                     /* time of encoding alone */
};
/* Runs the job. Errors: those of pp_tokenizer_open(), _encode() and of files; PP_ECONFIG: dir has
 * another tokenizer, which is then kept. */
int pp_tokenize(const struct pp_tokenize *job, struct pp_tokenized *out);

#endif
