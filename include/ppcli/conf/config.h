/* SPDX-License-Identifier: Apache-2.0 */
/* A config: what a user wrote, const after it is loaded. */
#ifndef PPCLI_CONF_CONFIG_H
#define PPCLI_CONF_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"

/* ---- activations */

/* Numbers of the activations. Contracts store one as an int, so that a new row of activations.def
 * rebuilds only the files that name an activation. */

enum pp_activation {
    PP_ACT_NONE,
#define PP_ACTIVATION(NAME, ...) PP_ACT_##NAME,
#include "ppcli/conf/activations.def"
};

/* ---- optimizers */

/* Numbers of the optimizers. Contracts store one as an int, so that a new row of optimizers.def
 * rebuilds only the files that name an optimizer. */

enum pp_optimizer_kind {
#define PP_OPTIMIZER(NAME, ...) PP_OPT_##NAME,
#include "ppcli/conf/optimizers.def"
};
enum {
    PP_OPTIMIZERS = 0
#define PP_OPTIMIZER(...) +1
#include "ppcli/conf/optimizers.def"
};

/* ---- config */

/*
 * The settings of a run: plain data, validated, never changed after pp_config_load(). One option
 * table (keys_*.def) defines the keys of the INI file, --set section.key=value, the short flags,
 * `ppcli keys`, the completions, ppcli.ini(5) and <run>/config.resolved.ini.
 *
 * Precedence: --set and short flags > file > built-in default. The model that model.from names
 * replaces defaults, and must not contradict the other sources.
 *
 * The INI dialect: UTF-8 (a byte order mark and CRLF are allowed). "[section]" and "key = value",
 * one a line, with any indentation; there are no continuation lines, and ':' does not separate. A
 * comment is a line that begins with ';' or '#', or what follows ' ;'; a ' #' inside a line is an
 * error. Unknown and duplicate keys and sections are errors. ${VAR} is the environment's VAR, an
 * error when unset; ${VAR:-default} is `default` when VAR is unset or empty. Whole numbers may end
 * in k, M, G (1000) or Ki, Mi, Gi (1024). A duration is a number and ms, s, m or h. A relative path
 * starts at the folder of the INI file, in standard input and --set at the current folder; '~' is
 * not expanded: write ${HOME}. There is no quoting, so a path cannot contain " ;" or " #". A file
 * has at most 1 MiB, a value at most PP_CONFIG_VALUE_MAX bytes.
 */

#define PP_NAME_MAX 64          /* bytes of a name value (schedule, dataset, ...) with the NUL */
#define PP_MODEL_SIZES_MAX 4097 /* widths of a model after repeats are expanded */
#define PP_STAGES_MAX 1024
#define PP_REPLICAS_MAX 1024
#define PP_MICROBATCHES_MAX 65536
#define PP_DEVICES_MAX 64                      /* of one machine: numbers 0 to 63 */
#define PP_NUMBERS_MAX (3 * PP_STAGES_MAX + 1) /* numbers in a list */
#define PP_CUT_MAX 16384                       /* bytes of the text of a cut with the NUL */
#define PP_CHANNELS_MAX 16                     /* channels of a sample with a number each */
#define PP_FLOATS_MAX 1024                     /* numbers in such a list */
#define PP_TEXT_MAX 2048                       /* bytes of a text with the NUL */
#define PP_SCHEDULE_FILE "file:"
#define PP_SCHEDULE_EXEC "exec:"  /* as long as PP_SCHEDULE_FILE */
#define PP_CONFIG_VALUE_MAX 65536 /* bytes of any value's text with the NUL */
/* Buffers of that size are static per thread, because stacks may be as small as 128 KiB. */

enum pp_init_rule { /* initial weights of products */
    PP_INIT_KAIMING_UNIFORM,
    PP_INIT_KAIMING_NORMAL,
    PP_INIT_XAVIER_UNIFORM,
    PP_INIT_XAVIER_NORMAL,
    PP_INIT_TORCH,
    PP_INIT_TORCHVISION
};
enum pp_stem {        /* first layers of a ResNet */
    PP_STEM_IMAGENET, /* 7x7 convolution of stride 2, max pool of stride 2 */
    PP_STEM_CIFAR     /* 3x3 convolution of stride 1 */
};
enum pp_norm {
    PP_NORM_BATCH,
    PP_NORM_GROUP
};
enum pp_block_stride { /* the convolution of a bottleneck that has the stride */
    PP_STRIDE_3X3,     /* torchvision, "v1.5" */
    PP_STRIDE_1X1      /* the first one, as in the paper */
};
enum pp_padding {
    PP_PAD_SYMMETRIC, /* half the kernel on each side, as torchvision writes it */
    PP_PAD_SAME       /* "same" of TensorFlow and MindSpore: an odd rest goes to the end */
};
enum pp_choice { /* a switch whose best setting depends on other keys */
    PP_CHOICE_AUTO,
    PP_CHOICE_ON,
    PP_CHOICE_OFF
};
enum pp_attention_bias { /* projections of attention that have a bias */
    PP_ATTENTION_BIAS_OFF,
    PP_ATTENTION_BIAS_QKV, /* Qwen2 */
    PP_ATTENTION_BIAS_ALL
};
enum pp_pooling { /* positions that a classifier of texts reads */
    PP_POOLING_MEAN,
    PP_POOLING_FIRST
};
enum pp_assignment {
    PP_ASSIGN_AUTO,
    PP_ASSIGN_EQUAL,
    PP_ASSIGN_PARAMS,
    PP_ASSIGN_EXPLICIT,
    PP_ASSIGN_FLOPS, /* the meaning of auto */
    PP_ASSIGN_TIME   /* measured; becomes explicit ranges once a run is prepared */
};
enum pp_decay { /* parameters that have weight decay */
    PP_DECAY_ALL,
    PP_DECAY_WEIGHTS
};
enum pp_lr_schedule {
    PP_LR_CONSTANT,
    PP_LR_LINEAR,
    PP_LR_COSINE,
    PP_LR_MULTISTEP,
    PP_LR_WSD,    /* warm-up, stable, decay */
    PP_LR_PLATEAU /* falls by results: see train/progress.h */
};
enum pp_decay_shape {
    PP_DECAY_LINEAR,
    PP_DECAY_SQRT
};
enum pp_metric { /* what checkpoint.best goes by; checkpoints store the number: add at the end */
    PP_METRIC_OFF,
    PP_METRIC_TEST_LOSS,
    PP_METRIC_ACCURACY,
    PP_METRIC_TRAIN_LOSS,
    PP_METRIC_R2,
    PP_METRIC_MAE,
    PP_METRIC_RMSE
};
enum pp_lr_by {
    PP_LR_BY_STEP,
    PP_LR_BY_EPOCH
};
enum pp_loss_kind {
    PP_LOSS_CROSS_ENTROPY,
    PP_LOSS_MSE,
    PP_LOSS_MAE,
    PP_LOSS_HUBER,
    PP_LOSS_BCE /* binary cross-entropy of each output's sigmoid */
};

/* Returns whether targets are numbers, one for each output of the model, and not classes. */
static inline bool pp_loss_takes_numbers(enum pp_loss_kind kind)
{
    return kind != PP_LOSS_CROSS_ENTROPY;
}

enum pp_microbatch_loss {
    PP_LOSS_MEAN,
    PP_LOSS_SUM
};
enum pp_precision { /* precision of products */
    PP_PRECISION_F32,
    PP_PRECISION_TF32, /* f32 in memory, 10 bits of mantissa in the products */
    PP_PRECISION_BF16  /* bfloat16 factors, f32 sums and f32 parameters */
};

enum pp_graphs { /* steps recorded once and replayed, on a device that supports it */
    PP_GRAPHS_AUTO,
    PP_GRAPHS_ON, /* the run is refused if it is not supported */
    PP_GRAPHS_OFF
};

/* Whether threads are bound to processors. */
enum pp_pinning {
    PP_PIN_AUTO,
    PP_PIN_OFF
};

/* Matrix products of the cpu backend. */
enum pp_gemm {
    PP_GEMM_AUTO, /* fma: a rule, no timing */
    PP_GEMM_FMA,  /* own kernels for the few rows of a micro-batch */
    PP_GEMM_CBLAS
};

/* Implementation of convolutions in the cuda backend. */
enum pp_conv_by {
    PP_CONV_OWN,
    PP_CONV_CUDNN
};

/* What to do when the loss or a gradient of a step is not finite. */
enum pp_nonfinite {
    PP_NONFINITE_STOP,
    PP_NONFINITE_SKIP,
    PP_NONFINITE_REWIND
};

enum pp_on_bad { /* a picture that cannot be read */
    PP_BAD_SKIP,
    PP_BAD_STOP
};
enum pp_on_corrupt {
    PP_CORRUPT_PREVIOUS,
    PP_CORRUPT_STOP
};

/* The ranks that share a host, if ppcli places them. */
enum pp_rank_order {
    PP_ORDER_STAGES,  /* stages of a replica */
    PP_ORDER_REPLICAS /* replicas of a stage */
};

enum pp_launch {
    PP_LAUNCH_AUTO,
    PP_LAUNCH_THREADS,
    PP_LAUNCH_MPIRUN
};

struct pp_numbers {
    int n;
    int64_t at[PP_NUMBERS_MAX]; /* 0 from index n on */
};

/* Changes of training pictures, in the order of the list. */
enum pp_augment {
    PP_AUGMENT_CROP,
    PP_AUGMENT_FLIP,
    PP_AUGMENT_AUTO
};
#define PP_AUGMENT_MAX 3

struct pp_augments {
    int n, at[PP_AUGMENT_MAX]; /* enum pp_augment, each once */
};

enum pp_tokens {
    PP_TOKENS_CHARS,
    PP_TOKENS_BYTES,
    PP_TOKENS_BPE
};

enum pp_layout_of { /* order of the values of a picture in a file */
    PP_LAYOUT_AUTO,
    PP_LAYOUT_CHANNELS_LAST,
    PP_LAYOUT_CHANNELS_FIRST
};

enum pp_missing { /* what a missing cell of a table does */
    PP_MISSING_STOP,
    PP_MISSING_MEAN,
    PP_MISSING_CATEGORY
};

enum pp_scale { /* how the columns of a table are scaled */
    PP_SCALE_NONE,
    PP_SCALE_STANDARD
};

#define PP_FLOATS_WORD (-1)

struct pp_floats { /* one number for each channel, column, rank or class */
    int n;         /* PP_FLOATS_WORD: the key's word stands in their place */
    double at[PP_FLOATS_MAX];
};

/* The members are made from the rows of the option table; their help, also in `ppcli keys`, says
 * what each means. A path is absolute, or empty; a list has n entries in `at`. */
#define PP_MEMBER_INT(k) int k;
#define PP_MEMBER_INT64(k) int64_t k;
#define PP_MEMBER_BYTES(k) int64_t k;
#define PP_MEMBER_UINT64(k) uint64_t k;
#define PP_MEMBER_FLOAT(k) double k;
#define PP_MEMBER_DURATION(k) double k; /* seconds */
#define PP_MEMBER_BOOL(k) bool k;
#define PP_MEMBER_NAME(k) char k[PP_NAME_MAX];
#define PP_MEMBER_PATH(k) char k[PP_PATH_MAX];
#define PP_MEMBER_FILE(k) char k[PP_PATH_MAX]; /* a name, or PP_SCHEDULE_FILE and a path */
#define PP_MEMBER_TEXT(k) char k[PP_TEXT_MAX];
#define PP_MEMBER_SIZES(k) int k[PP_MODEL_SIZES_MAX], n_##k;
#define PP_MEMBER_DEVICES(k) int k[PP_DEVICES_MAX], n_##k; /* numbers; n 0: all devices */
#define PP_MEMBER_NUMBERS(k) struct pp_numbers k;
#define PP_MEMBER_FLOATS(k) struct pp_floats k;
#define PP_MEMBER_CHOICES(k) struct pp_augments k;
/* Layers are names or numbers; pp_partition() checks that the model has them. */
#define PP_MEMBER_LAYERS(k) char k[PP_CUT_MAX]; /* "layer3.0"; "": none */
#define PP_MEMBER_ASSIGNMENT(k)                                                                    \
    enum pp_assignment k;                                                                          \
    char ranges[PP_CUT_MAX]; /* PP_ASSIGN_EXPLICIT without split_at: "conv1-layer2.3 | fc" */
#define PP_KEY(section, TYPE, k, ...) PP_MEMBER_##TYPE(k)
#define PP_CHOICE(section, type, k, ...) type k;

struct pp_config {
    struct {
#include "ppcli/conf/keys_data.def"
    } data;
    struct {
#include "ppcli/conf/keys_model.def"
        bool planned; /* never computed here: values may have more numbers than kernels count */
        /* the tokens come from model.from's tokenizer. (model.from itself is empty once the other
         * keys are set from it, unless it is the model: an archive.) */
        bool is_foreign;
    } model;
    struct {
#include "ppcli/conf/keys_pipeline.def"
    } pipeline;
    struct {
#include "ppcli/conf/keys_train.def"
    } train;
    struct {
#include "ppcli/conf/keys_checkpoint.def"
    } checkpoint;
    struct {
#include "ppcli/conf/keys_run.def"
        int cores; /* of this machine; run.threads = auto divides them among the ranks */
    } run;
    struct pp_config_source *source; /* origins and raw texts; owned by conf */
};
#undef PP_KEY
#undef PP_CHOICE

/* Names from .def lists of higher modules, which the command fills in. Arrays end with NULL. */
struct pp_names {
    const char *const *models;
    const char *const *datasets;
    const char *const *schedules;
    /* a name, its line of help, the next name, ...; may be NULL */
    const char *const *schedule_help;
    const char *const *backends;   /* "auto" included */
    const char *const *transports; /* "auto" included */
    /* for ranks that are threads, or processes */
    bool (*joins)(const char *transport, bool processes);
    /* Calls pp_config_adopt() for the keys that model.from defines; adds problems. NULL: model.from
     * stays. */
    void (*from)(struct pp_config *cfg, const struct pp_names *names);
};

/* One --set or short flag, in the order of the command line (a later one wins). */
struct pp_setting {
    const char *key;   /* "train.lr" */
    const char *value; /* raw text */
    const char *said;  /* the option as the user wrote it, for messages: "--set", "--stages" */
};

/*
 * Reads, overrides, converts and checks a config. path NULL: no file (defaults and settings only);
 * "-" is standard input. All problems of the file and the settings are collected; they are in the
 * problem list (pp_config_problems) of *out, which is then returned too, with rc PP_ECONFIG and an
 * error text that is the summary line. A file that cannot be opened, a folder or a pipe gives
 * PP_ENOINPUT or PP_EPERM and *out = NULL (also PP_EIO, PP_ERESOURCE); PP_ECONFIG always comes with
 * *out set. Local. Ownership: caller, pp_config_destroy().
 */
int pp_config_load(const char *path, const struct pp_setting *settings, int n_settings,
                   const struct pp_names *names, struct pp_config **out);
void pp_config_destroy(struct pp_config **cfg);

/*
 * Adds a problem of one key ("pipeline.stages") that a higher module found, with the key's origin
 * in front of the text ("mnist.ini:14: error: "). In a copy whose source is NULL there is no list,
 * so the text is recorded as a failure. Returns PP_ECONFIG.
 */
int pp_config_problem(struct pp_config *cfg, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Return the problems in file order, each one line without newline. The count is 0 for a good
 * config. */
int pp_config_problem_count(const struct pp_config *cfg);
const char *pp_config_problem_text(const struct pp_config *cfg, int i);

/* Returns 0, or PP_ECONFIG with the summary line recorded when there are problems. */
int pp_config_verdict(const struct pp_config *cfg);

/* Return the warnings, such as "train.momentum has no effect with ...", as the functions above
 * return problems. */
int pp_config_note_count(const struct pp_config *cfg);
const char *pp_config_note_text(const struct pp_config *cfg, int i);

/* Returns "mnist" for configs/mnist.ini, "run" without a file: the name of the automatic run
 * directory. */
const char *pp_config_name(const struct pp_config *cfg);

/* Returns where a key's value came from: "mnist.ini:14", "--set", "--stages", "default". */
const char *pp_config_origin(const struct pp_config *cfg, const char *key);
/* Returns whether the value of the key came from the file or the command line. */
bool pp_config_was_set(const struct pp_config *cfg, const char *key);

/*
 * Sets the value of a key to one that the program chose, `value` as written in a file. The key's
 * origin becomes "chosen (mnist.ini:14)". On an error cfg is unchanged. Errors: PP_ECONFIG (a value
 * that the key cannot have), PP_ERESOURCE.
 */
int pp_config_choose(struct pp_config *cfg, const char *key, const char *value);
/* Says that the model of the config is only planned and never computed (model.planned). */
void pp_config_plan_only(struct pp_config *cfg);

/* A value for a key from another file, which replaces the default. A value that the user set must
 * be the same, unless it is free. */
struct pp_theirs {
    const char *key;         /* "model.from", the key that names the file */
    const char *file, *name; /* the file, and the name of the value there */
    bool free;               /* the user may choose another value */
};
void pp_config_adopt(struct pp_config *cfg, const char *key, const char *value,
                     const struct pp_theirs *theirs, const struct pp_names *names);

/* Prints a number as values are printed, in the C locale. */
void pp_config_number(double value, char *out, size_t bytes);

/* Return the number of keys, and the name and the canonical text of the value of key i in table
 * order; reading that text gives the same value. PP_CONFIG_VALUE_MAX bytes always suffice. Errors:
 * PP_ECONFIG if the text does not fit. */
int pp_config_key_count(void);
const char *pp_config_key_name(int i); /* "train.lr" */
int pp_config_key_value(const struct pp_config *cfg, int i, char *out, size_t bytes);
/* Lists the words that the key accepts, separated by blanks; "" if it accepts numbers, paths or the
 * like. */
void pp_config_key_words(int i, const struct pp_names *names, char *out, size_t bytes);

/* Writes the whole config as an INI that reproduces it (absolute paths, every key, origin
 * comments). Errors: PP_EIO. */
int pp_config_write(const struct pp_config *cfg, FILE *f);
/* Writes "section.key = value" for every key that must be equal on all ranks of a run: not paths,
 * whose files are compared themselves, nor keys of one rank (run.devices). */
int pp_config_write_same(const struct pp_config *cfg, FILE *f);
/* Returns what pp_config_write() prints as a text that the caller owns: free(). PP_ERESOURCE. */
int pp_config_text(const struct pp_config *cfg, char **out);

/* Computes the SHA-256 hex over "key=value\n" of all keys that can change the numbers: of [run]
 * only precision, no paths, and not stages, schedule and assignment, which give the same bits by
 * design. PP_ERESOURCE. */
int pp_config_hash(const struct pp_config *cfg, char out[65]);

/* Gets the value of a key from a config that pp_config_write() wrote, maybe of an older ppcli; the
 * default if the key is missing; cut to `bytes`. */
void pp_config_written(const char *text, const char *name, char *out, size_t bytes);
/* Calls visit() for every key of the hash whose value in `text` differs from cfg's. Keys that have
 * no effect in cfg, such as train.momentum with Adam, do not differ. PP_ERESOURCE. */
int pp_config_compare(const struct pp_config *cfg, const char *text,
                      void (*visit)(void *ctx, const char *key, const char *there,
                                    const char *here),
                      void *ctx);

/* Checks comma-separated keys of train --allow: keys that a resumed run may change although they
 * change its numbers. Errors: PP_EUSAGE for an unknown key, for one that cannot change, and for one
 * that needs no --allow. pp_config_allows() returns whether `words` has the key, and
 * pp_config_may_allow() whether --allow accepts it. */
int pp_config_check_allow(const char *words);
bool pp_config_allows(const char *words, const char *key); /* words may be NULL */
bool pp_config_may_allow(const char *key);

/* Copies cfg for a run that differs from it. The copy has no source, so a problem of the copy is a
 * failure. Errors: PP_ERESOURCE. The caller owns *out: pp_free(). */
int pp_config_copy(const struct pp_config *cfg, struct pp_config **out);

/* Sets *out to cfg with this value, as written in a file, for the key. *out has no source and needs
 * no destruction. PP_ECONFIG for a value that the key cannot have. */
int pp_config_with(const struct pp_config *cfg, const char *key, const char *value,
                   struct pp_config *out);

enum pp_keys_format {
    PP_KEYS_TEXT, /* for people */
    PP_KEYS_JSON, /* the published schema */
    PP_KEYS_MDOC, /* the body of ppcli.ini(5)'s KEYS section */
    PP_KEYS_LIST, /* one "section.key" a line: completions */
};

/* Prints the option table (section NULL: all; or "train", or "train.lr"). PP_EUSAGE for an unknown
 * section or key. */
int pp_config_print_keys(FILE *f, const char *section, const struct pp_names *names,
                         enum pp_keys_format format);

/* Returns the name of `names` (NULL-terminated) that is nearest to `word` by Damerau-Levenshtein
 * distance, ignoring case, or the first of equally near ones. Returns NULL if no name is near
 * enough to suggest: the distance must be below 3 and below half of the word. */
const char *pp_nearest(const char *word, const char *const *names);

/* Returns the key, such as "train.lr", that other programs call `word` ("learning_rate", also with
 * '-' for '_' or after a section and a dot). Returns NULL if it is unknown. */
const char *pp_config_key_like(const char *word);

/* Formats "; did you mean 'apple'?", or "". */
struct pp_did_you_mean {
    char s[PP_NAME_MAX + 24];
};
struct pp_did_you_mean pp_did_you_mean(const char *word, const char *const *names);

/* Parses "4GiB", "4Gi", "0.5G" or "1e9" as bytes; false for any other text and for less than 1. */
#define PP_BYTES_FORMS "bytes such as 500M, 0.5G, 4GiB or 1e9"
bool pp_bytes_parse(const char *text, size_t *out);

/* Return the words of enum values, such as "relu", "adamw", "cosine"; static storage. */
const char *pp_activation_name(int activation);
const char *pp_optimizer_name(int optimizer);
const char *pp_loss_name(enum pp_loss_kind kind);
const char *pp_precision_name(enum pp_precision p);

/* Returns the values that an optimizer keeps for each parameter: 0, 1 (first moment or momentum),
 * or 2. */
int pp_optimizer_moments(int optimizer);

/* ---- files of configs and machines */

/* Finds the files of configs and machines by the words that users type, lists those that are
 * installed, and keeps a config that outlives its file. */

#define PP_SHIPPED_NAMES 256
struct pp_shipped { /* large: not for the stack */
    char folders[PP_SHIPPED_MAX][PP_PATH_MAX], storage[PP_SHIPPED_NAMES][PP_NAME_MAX];
    const char *names[PP_SHIPPED_NAMES + 1]; /* NULL-terminated, sorted */
    const char *folder;                      /* the folder that contains them */
    int n;
};

/* Lists the installed configs ("mnist.ini") or machine files ("laptop"). Errors: PP_ERESOURCE. */
int pp_shipped_read(bool machines, struct pp_shipped *out);

/*
 * Finds a config: the word itself if it is a file ("-" is standard input), else an installed config
 * (*shipped). If ppcli runs from its build folder, the configs of the source tree count as
 * installed. Errors: PP_ENOINPUT with the places searched and the nearest name; PP_EUSAGE for a
 * file that is not a config.
 */
int pp_config_find(const char *word, bool *shipped, char out[PP_PATH_MAX]);
/* Finds a machine file as pp_config_find() finds a config; ".ini" may be left out of the name of an
 * installed one. */
int pp_machine_find(const char *word, bool *shipped, char out[PP_PATH_MAX]);

/*
 * Makes processes that this one starts read a stored text in place of the file of `word`, as the
 * user wrote it: the text of cfg, which came from a file. So they get the same config even if the
 * file was edited. The text is stored in their environment. Errors: PP_ECONFIG (too long),
 * PP_ERESOURCE. Local.
 */
#define PP_CONFIG_PINNED "PPCLI_PINNED_CONFIG"
int pp_config_pin(const struct pp_config *cfg, const char *word);

/* ---- sweeps */

/* Option values that are lists: `--stages 1,2 --schedule gpipe,1f1b` gives four configs. */

#define PP_SWEEP_ROWS_MAX 4096

struct pp_settings { /* in command-line order; owns nothing */
    const struct pp_setting *items;
    int n;
};

struct pp_sweep {
    struct pp_config **configs; /* [n] owned; each has its own problem list */
    int n;
};

/*
 * Loads a config for every combination of the values that `settings` lists (its path is what
 * find(word) returns; word NULL: the defaults); the first list varies slowest. Only keys that
 * change how a run is laid out accept lists, not paths and the like. Errors: PP_EUSAGE for a text
 * that is not a list, PP_ECONFIG when no combination is legal: the first one has the reason; as of
 * pp_config_load(). Call pp_sweep_fini() even then.
 */
int pp_sweep_load(int (*find)(const char *word, char *out), const char *word,
                  const struct pp_settings *settings, const struct pp_names *names,
                  struct pp_sweep *out);
int pp_sweep_ranks(const struct pp_sweep *s); /* of the combination with the most ranks */
void pp_sweep_fini(struct pp_sweep *s);

#endif
