/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations inside conf: the rows of the option table, the origins and the problem list of a
 * struct pp_config, and the steps of pp_config_load():
 *
 *   bytes -> ini.c (lines, sections, keys) -> expand.c (${VAR}) -> value.c (text to value)
 *         -> check.c (checks of several keys)
 *
 * A problem never stops a step: it is added to the list and the step continues with the next line.
 */
#ifndef PPCLI_CONF_CONF_H
#define PPCLI_CONF_CONF_H

#include "ppcli/conf/cluster.h"

#define CONF_WHY_MAX 1024       /* bytes of one sentence about a value */
#define CONF_FILE_MAX (1 << 20) /* bytes of a config file */
#define CONF_PROBLEMS_MAX 1000  /* problems that are kept; further ones are only counted */

enum conf_type {
    CONF_INT,      /* int */
    CONF_INT64,    /* int64_t */
    CONF_BYTES,    /* int64_t, a size with its unit */
    CONF_UINT64,   /* uint64_t, the whole range */
    CONF_FLOAT,    /* double */
    CONF_DURATION, /* double, seconds; 0 is always legal */
    CONF_BOOL,     /* bool */
    CONF_ENUM,     /* int-sized enum, by choices */
    CONF_NAME,     /* char[PP_NAME_MAX], one of a list of struct pp_names */
    CONF_PATH,     /* char[PP_PATH_MAX], made absolute; may be empty */
    CONF_TEXT,     /* char[PP_TEXT_MAX], any text; may be empty */
    CONF_SIZES,    /* model.sizes and model.n_sizes */
    CONF_ASSIGNMENT,
    /* pipeline.split_at, recompute; def: the word for an empty list; word: ranges are allowed */
    CONF_LAYERS,
    CONF_DEVICES, /* run.devices and run.n_devices */
    CONF_NUMBERS, /* struct pp_numbers */
    CONF_FLOATS,  /* struct pp_floats; word: a word in place of the numbers */
    CONF_CHOICES, /* struct pp_augments: some of the choices, each at most once */
};

struct conf_choice {
    const char *name; /* NULL ends the list */
    int value;
};

/* The values of another key with which a key has an effect: words, or "!0" for all but 0. */
struct conf_need {
    const char *key, *with;
};
#define CONF_NEEDS_MAX 2

struct conf_option {
    const char *name; /* "train.lr" */
    const char *section;
    const char *key;
    enum conf_type type;
    const char *def; /* default, as written in a file */
    size_t offset;   /* offset in struct pp_config */
    /* limits of numbers (CONF_SIZES: of each entry); whole numbers are below 2^53 */
    double min, max;
    bool above, below;                 /* min, max themselves are illegal */
    const struct conf_choice *choices; /* CONF_ENUM, CONF_CHOICES */
    size_t names;                      /* CONF_NAME: offset of the list in struct pp_names */
    /* offset in struct pp_names of a line of help for each name; 0: none */
    size_t lines;
    const char *note; /* help for these words */
    /* CONF_PATH, CONF_NAME: a word with its own meaning; CONF_INT: the word for 0; NULL:
     * none */
    const char *word;
    const char *alias, *means; /* CONF_NAME: the word alias is read as means; NULL: none */
    /* CONF_NAME: "file:PATH" is allowed; the member has PP_PATH_MAX bytes */
    bool file;
    /* CONF_NUMBERS: printed in groups of three, in any order; else they ascend */
    bool threes;
    bool free;        /* CONF_NAME: any name is allowed; `word` has its own meaning */
    bool apart;       /* ranks may differ: each uses its own value, or rank 0's counts */
    bool numbers;     /* can change the numbers of a run: part of the hash */
    bool allowed;     /* numbers: a resumed run may change it if --allow names it */
    const char *unit; /* NULL when it has none */
    bool sweeps;      /* a column that identifies the rows of a sweep */
    const char *of;   /* types of model that use it; setting it for another type is a problem */
    struct conf_need needs[CONF_NEEDS_MAX];
    const char *help; /* one line of help */
};

/* Return the number of rows of the table of keys, row i in print order, and the row of a key. */
int conf_option_count(void);
const struct conf_option *conf_option(int i);
int conf_option_index(const char *name); /* "train.lr"; -1 when unknown */
/* Formats "; did you mean 'train.lr'?", or "", for a word that is not a key. */
struct pp_did_you_mean conf_key_hint(const char *key);
int conf_option_find(const char *section, const char *key);

/* compare.c: returns whether other keys make the key have no effect on the numbers. */
bool conf_option_keeps_bits(const struct pp_config *cfg, const struct conf_option *o);
/* check.c: returns the first need of a key that is not met, so that the key has no effect; NULL if
 * all are met. cfg may be a copy. */
const struct conf_need *conf_unmet_need(const struct pp_config *cfg, const struct conf_option *o);

/* Lists all section names, NULL-terminated. */
#define CONF_SECTIONS_MAX 8
void conf_sections(const char *out[CONF_SECTIONS_MAX]);

/* Formats the legal values for people ("1 to 1024 stages", "relu | tanh"). */
const char *conf_range_text(const struct conf_option *o, const struct pp_names *names, char *out,
                            size_t bytes);
/* Returns the list of names that a CONF_NAME option accepts; NULL if `names` is NULL or has no such
 * list. */
const char *const *conf_names_of(const struct conf_option *o, const struct pp_names *names);
/* Returns the help of every value: a name, its line, the next name, ...; NULL if there is none. */
const char *const *conf_lines_of(const struct conf_option *o, const struct pp_names *names);

/* Where a value or a problem comes from. The problem list is sorted in this order. */
enum conf_from {
    CONF_FROM_FILE,
    CONF_FROM_SETTING,
    CONF_FROM_DEFAULT
};

struct conf_position {
    enum conf_from from;
    int number;       /* line of the file (0: the whole file); number of the setting */
    const char *said; /* setting: "--set" */
};

struct conf_problem {
    struct conf_position place; /* `said` is not kept */
    char *text;                 /* owned */
};

struct conf_problems {
    struct conf_problem *items;
    int n, capacity;
    int more; /* problems found but not kept */
};

struct conf_origin {
    enum conf_from from;
    int number;
    char *text; /* "mnist.ini:14"; owned; NULL for a default */
    bool bad;   /* the value was refused: the struct holds an earlier value */
};

struct pp_config_source {
    char *file;                  /* path as the user wrote it, "<stdin>", or NULL: no file */
    char *path, *text;           /* path and content of that file; NULL: no file */
    char *name;                  /* "mnist" of configs/mnist.ini */
    char file_dir[PP_PATH_MAX];  /* absolute; base of relative paths in the file */
    char cwd[PP_PATH_MAX];       /* base of relative paths in settings; empty if unknown */
    struct conf_origin *origins; /* [conf_option_count()] */
    struct conf_problems problems;
    struct conf_problems notes;
    bool no_memory; /* memory ran out for a problem or an origin */
};

/* Returns whether `name` was a key of an older version. Adds a problem unless it has its old
 * default, because files of old runs contain every key. */
bool conf_was_key(struct pp_config *cfg, struct conf_position place, const char *name,
                  const char *value);
/* Returns advice for a word that the key had in another version; NULL if there is none. */
const char *conf_was_word(const char *name, const char *word);

/* load.c: returns whether this process has the text of a config from pp_config_pin() for `word`;
 * sets `out` to its path. */
bool conf_find_pinned(const char *word, char out[PP_PATH_MAX]);

/* problem.c */
void conf_problem(struct pp_config *cfg, struct conf_position place, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void conf_note(struct pp_config *cfg, int option, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void conf_problems_fini(struct conf_problems *list);
struct conf_position conf_position_of(const struct pp_config *cfg, int option);

/* A text of the user for a message: cut to a readable length, control bytes replaced. */
struct conf_quoted {
    char s[80];
};
struct conf_quoted conf_quote(const char *text, size_t bytes);

/* Formats a reason into `why` and returns -1. */
int conf_why(char why[CONF_WHY_MAX], const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A text buffer that grows piece by piece; conf_put_end(): 0, or -1 when the text did not fit. */
struct conf_text {
    char *out;
    size_t bytes, used;
};
void conf_put(struct conf_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int conf_put_end(const struct conf_text *t);

/* ini.c: the receiver of an INI text: a config or a machine file. */
struct conf_ini {
    void *ctx;
    const char *const *sections; /* legal names, NULL-terminated */
    const char *help;            /* ends messages about sections */
    void (*problem)(void *ctx, int line, const char *text);
    /* section: "" before the first header */
    void (*key)(void *ctx, int line, const char *section, const char *key, const char *value);
};
/* Splits a text into keys and calls key() or problem() for each line in order. Errors: PP_ERESOURCE,
 * PP_EINTERNAL. */
int conf_ini_parse(const char *text, size_t bytes, const struct conf_ini *to);

/* ini.c: reads a whole file's text into cfg. Errors: PP_ERESOURCE, PP_EINTERNAL. */
int conf_ini_read(struct pp_config *cfg, const char *text, size_t bytes,
                  const struct pp_names *names);

/* Checks that a text may be in a config: UTF-8, and no control bytes but tab. Returns 0, or -1 with
 * the reason in `why`. */
int conf_text_check(const char *text, size_t bytes, char why[CONF_WHY_MAX]);

/* expand.c: expands ${VAR} and ${VAR:-default}. Returns 0, or -1 with the reason in `why`. */
int conf_expand(const char *text, char *out, size_t out_bytes, char why[CONF_WHY_MAX]);

/* value.c: parses `text` into the option's member of cfg, which is untouched on failure. Relative
 * paths begin at the folder `dir`. Returns 0, or -1 with the reason in `why`, a sentence that
 * follows "train.lr: ". */
int conf_value_parse(const struct conf_option *o, const char *text, const char *dir,
                     const struct pp_names *names, struct pp_config *cfg, char why[CONF_WHY_MAX]);
/* Prints the canonical text of a value, cut to `bytes`. Returns the length of the whole text
 * without the NUL. */
size_t conf_value_print(const struct conf_option *o, const struct pp_config *cfg, char *out,
                        size_t bytes);

/* The parser and printer of one type. */
struct conf_reading {
    const struct conf_option *o;
    const char *dir;
    const struct pp_names *names;
    char *why; /* [CONF_WHY_MAX] */
};
typedef int conf_parse(const struct conf_reading *r, const char *text, struct pp_config *cfg);
typedef void conf_print(const struct conf_option *o, const struct pp_config *cfg,
                        struct conf_text *t);
struct conf_type_ops {
    const char *name; /* "int", "choice", ... */
    conf_parse *parse;
    conf_print *print;
};
const struct conf_type_ops *conf_type(const struct conf_option *o);

/* list.c: parse the values that are lists. */
conf_parse conf_sizes_parse, conf_assignment_parse, conf_layers_parse, conf_devices_parse;
conf_parse conf_list_parse;
conf_print conf_sizes_print, conf_assignment_print, conf_devices_print, conf_list_print;

/* Functions that value.c and list.c share. conf_number_parse: a whole number with its suffix, sign
 * apart. */
enum conf_number {
    CONF_NUMBER_OK,
    CONF_NUMBER_BAD,
    CONF_NUMBER_BIG
};
enum conf_number conf_number_parse(const char *text, bool *out_negative, uint64_t *out);

/* Parses a number with its unit at *text, such as 80G, 3.35T, 1e9 or 512MiB, and moves *text past
 * it: k to P are powers of 1000, or of 1024 with an i. Returns false if there is none. */
bool conf_scaled_parse(const char **text, double *out);
const char *conf_choice_name(const struct conf_choice *choices, int value); /* "none": unknown */

/* Parses a decimal number as in the C locale, within the range of `o`. *out is untouched on
 * failure. */
int conf_float_parse(const struct conf_option *o, const char *text, double *out,
                     char why[CONF_WHY_MAX]);
void conf_float_print(double value, struct conf_text *t);

/* duration.c: parses a duration such as "90s", "1.5m" or "500ms"; durations are printed in
 * seconds. */
int conf_duration_parse(const struct conf_option *o, const char *text, double *out,
                        char why[CONF_WHY_MAX]);

/* load.c: expands, converts and stores one value; a later one replaces an earlier one. */
void conf_assign(struct pp_config *cfg, int option, const char *raw, struct conf_position place,
                 const struct pp_names *names);

/* check.c: checks the rules that several keys have together. Adds problems and notes. */
void conf_check(struct pp_config *cfg, const struct pp_names *names);

/* nccl_tests.c: computes latency and time per byte of a link from a file with the output of
 * nccl-tests. Errors: those of reading a file; PP_ECONFIG if it has no rows of results. */
int conf_nccl_tests_read(const char *path, struct pp_link *out);

/* Returns whether a sweep may list values of the key; sets *out_numbers to whether they are
 * numbers. */
bool conf_sweeps(const char *key, bool *out_numbers);

#endif
