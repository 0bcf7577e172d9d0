/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Subword vocabularies: byte-level BPE (GPT-2, Llama 3, Qwen) and BPE of characters with bytes for
 * those that have no token (Llama 2), as tokenizer.json has them, or vocab.json and merges.txt.
 * Ids are those of the library `tokenizers` with add_special_tokens=False: added and special tokens
 * in the text are found, but none is put around it.
 */
#ifndef PPCLI_TOKENIZER_H
#define PPCLI_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
int pp_tokenizer_parse(const char *label, const char *json, size_t bytes,
                       struct pp_tokenizer **out);
void pp_tokenizer_destroy(struct pp_tokenizer **t); /* accepts NULL inside */

/* Append the ids of a text; long ones on all cores. One thread at a time. Errors: PP_EFORMAT,
 * beginning with `label`, for what is not UTF-8 or has no token; PP_ERESOURCE. */
int pp_tokenizer_encode(struct pp_tokenizer *t, const char *label, const char *text, size_t bytes,
                        struct pp_ids *ids);

/* The tokenizer.json of a byte-level vocabulary of n tokens, 257 or more, made of these texts: the
 * bytes, what occurs most often, <|endoftext|>. Fewer where the texts have no more. pp_free(). */
int pp_tokenizer_train(int n_texts, const char *const *labels, const char *const *texts,
                       const size_t *bytes, int n, char **out_json);

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

/* Both have the same tokens with the same numbers. */
bool pp_tokenizer_same(const struct pp_tokenizer *a, const struct pp_tokenizer *b);

#endif
