/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a tokenizer: the content of a tokenizer.json, and how a text becomes ids. */
#ifndef PPCLI_SRC_DATA_TOKENIZER_H
#define PPCLI_SRC_DATA_TOKENIZER_H

#include "ppcli/base/files.h"
#include "ppcli/data/tokenizer.h"

#define TOKENIZER_STEPS 8

/*
 * ---- pattern.c with PCRE2, pattern_stub.c without
 *
 * Regular expressions over UTF-8, whose classes are those of Oniguruma, which `tokenizers` uses.
 */
struct pattern;
struct pattern_match; /* used by one thread */

/* Compiles a pattern. Errors: PP_EFORMAT (not a pattern, or one that means something else in
 * PCRE2), PP_ERESOURCE. */
int pattern_create(const char *label, const char *regex, struct pattern **out);
void pattern_destroy(struct pattern **p);
int pattern_match_create(struct pattern_match **out);
void pattern_match_destroy(struct pattern_match **m);

bool pattern_is_known(const char *text); /* whether PCRE2 accepts it unchanged */

/* ---- pattern_translate.c: writes the same pattern for PCRE2, with a NUL, in which ^ and $ match
 * at lines. Errors: PP_EFORMAT (PCRE2 has no equivalent), PP_ERESOURCE. */
int pattern_translate(const char *label, const char *regex, struct pp_bytes *out);

/* Finds the first non-empty match in text[end] that begins at `from` or later; *out_at is `end`
 * when there is none. */
int pattern_find(const struct pattern *p, struct pattern_match *m, const char *text, size_t end,
                 size_t from, size_t *out_at, size_t *out_to);

/*
 * ---- unicode_form.c: text in a form of Unicode, NFC, NFKC, NFD or NFKD
 */
/* Converts a text; *out is NULL if text[bytes] certainly has that form; else pp_free(). Errors:
 * PP_ERESOURCE (the library libunistring is missing). */
int unicode_form(const char *label, const char *form, const char *text, size_t bytes, char **out,
                 size_t *out_bytes);
bool unicode_form_is(const char *form);

struct text_table { /* maps texts, which are stored elsewhere, to numbers */
    struct text_slot {
        const char *text; /* NULL: free entry */
        uint32_t n, value;
    } * slots;
    size_t mask, n;
};
int text_table_create(size_t n, struct text_table *out); /* capacity n */
struct text_slot *text_table_find(const struct text_table *t, const char *text, size_t n);

struct pair_table { /* maps two numbers to a third, and to the order of insertion */
    struct pair_slot {
        uint64_t key;
        uint32_t value, place; /* place + 1; 0: free entry */
    } * slots;
    size_t mask, n;
};
int pair_table_create(size_t n, struct pair_table *out); /* capacity n */
struct pair_slot *pair_table_find(const struct pair_table *t, uint32_t a, uint32_t b);
uint64_t text_hash(const char *text, size_t n);

enum step_rest { /* what to do with a match, or with the text between two */
    STEP_ISOLATED,
    STEP_REMOVED,
    STEP_WITH_PREVIOUS,
    STEP_WITH_NEXT
};

struct split_step { /* a step that cuts a text into pieces */
    struct pattern *pattern;
    char *word; /* used in place of a pattern */
    enum step_rest rest;
    bool invert;
};

struct change { /* a change of a text before it is cut */
    char *from; /* NULL: `to` is put before the text; or the name of a form of Unicode */
    char *to;
    bool form;
};

struct added {
    uint32_t id;
    const char *text;
    size_t n;
    char *made; /* normalized tokens: `text` after all changes, if there are any; owned */
    bool normalized, lstrip, rstrip;
};

struct tokenizer_work {
    char *texts; /* buffer of all texts of tokens */
    struct text_table words;
    struct pair_table pairs;
    struct change changes[TOKENIZER_STEPS];
    int n_changes;
    struct split_step steps[TOKENIZER_STEPS];
    int n_steps;
    /* Metaspace: replacement of a blank, and what is put before the text; or NULL */
    char *blank, *prefix;
    bool prefix_first;   /* only at the beginning of the whole text */
    struct added *added; /* longest first */
    int n_added;
    bool begins[2][256]; /* first bytes of added tokens: not normalized, and normalized */
    bool fuse_unk, ignore_merges, byte_fallback;
    uint32_t of_byte[256]; /* 1 + token; 0: none */
    /* [256][256] bits: two bytes that are side by side in some token; NULL: a text without pattern
     * is one piece */
    uint8_t *joined;
    struct crew *crew; /* tokenizer_bpe.c */
};

/* Computes the tables that follow from the tokens: those of added tokens, and `joined`. Errors:
 * PP_ERESOURCE. */
int tokenizer_shape(const char *label, struct pp_tokenizer *t);

/* Receives the pieces of a text in order, one a call. If `each` is NULL, the pieces go through BPE
 * and become ids. */
typedef int tokenizer_piece(void *ctx, const char *piece, size_t n);
struct tokenizer_out {
    struct pp_ids *ids;
    tokenizer_piece *each;
    void *ctx;
};
int tokenizer_pieces(struct pp_tokenizer *t, const char *label, const char *text, size_t bytes,
                     const struct tokenizer_out *out);

/* ---- tokenizer_bpe.c: encodes a text without added tokens and further changes */
int tokenizer_run(struct pp_tokenizer *t, const char *label, const char *text, size_t n,
                  const struct tokenizer_out *out);
void tokenizer_stop(struct tokenizer_work *w);

extern const char tokenizer_gpt2_pattern[];
#define TOKENIZER_BYTE_LEVEL(regex)                                                                \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_"              \
    "regex\":" regex "}"
uint32_t tokenizer_byte_letter(int byte); /* returns GPT-2's character for a byte */

/* ---- vocabulary.c: formats the character at `at` for messages, as "'é' (U+00E9)" or "a tab
 * (U+0009)" */
#define CHARACTER_SHOWN 64
const char *character_shown(const char *at, char out[CHARACTER_SHOWN]);

/* ---- tokenizer_write.c: begins a tokenizer.json and leaves its object `model` open for the vocab.
 * mark: a special token, or NULL; before, after: its pre_tokenizer and its decoder. */
struct pp_json tokenizer_begin_json(FILE *f, const char *mark, int64_t id, const char *before,
                                    const char *after);
/* Closes all objects. *out gets the text that was printed into *text by open_memstream(); the
 * caller frees it with pp_free(). */
int tokenizer_end_json(struct pp_json *j, char **text, char **out);

/* Returns the vocabulary of bytes. */
struct pp_vocabulary pp_vocabulary_bytes(bool padded);

/* Makes the vocabulary of all characters that occur in n texts, each of which ends with a NUL.
 * `paths` name them in messages. Errors: PP_EFORMAT (not UTF-8, or a NUL inside), PP_ERESOURCE. The
 * caller calls pp_vocabulary_fini(). Local. */
int pp_vocabulary_of(int n, const char *const *paths, const char *const *texts, const size_t *bytes,
                     bool padded, struct pp_vocabulary *out);
/* Opens the vocabulary of subwords in a folder or a tokenizer.json. Errors: those of
 * pp_tokenizer_open(). */
int pp_vocabulary_open(const char *path, bool padded, struct pp_vocabulary *out);

/* Returns the narrowest type that holds all tokens of the vocabulary. */
enum pp_element pp_vocabulary_element(const struct pp_vocabulary *v);
int pp_tokenizer_parse(const char *label, const char *json, size_t bytes,
                       struct pp_tokenizer **out);

/* Trains a byte-level vocabulary of n tokens, 257 or more, on these texts and prints it as
 * tokenizer.json: the bytes, the most frequent sequences, <|endoftext|>. It has fewer tokens if the
 * texts are too short. The caller frees *out_json with pp_free(). */
int pp_tokenizer_train(int n_texts, const char *const *labels, const char *const *texts,
                       const size_t *bytes, int n, char **out_json);

/* Returns whether both have the same tokens with the same numbers. */
bool pp_tokenizer_same(const struct pp_tokenizer *a, const struct pp_tokenizer *b);

#endif
