/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli init: a commented config to begin with, with the sizes of one's own data. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/data/preprocessing.h"
#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "ppcli/nn/archive.h"
#include "ppcli/show/results.h"
#include "command.h"

#define FILES_MAX 4

struct kind {
    const char *dataset;
    const char *keys[FILES_MAX + 1]; /* NULL-terminated; of the files, in the order of the words */
};

#define FOUR                                                                                       \
    {                                                                                              \
        "data.train_images", "data.train_labels", "data.test_images", "data.test_labels"           \
    }
static const struct kind csv = {"csv", {"data.train_file", "data.test_file"}};
static const struct kind npy = {"npy", FOUR}, idx = {"idx", FOUR};
static const struct kind pictures = {"images", {"data.path"}};
/* of programs only, and not looked at before the program is */
static const struct kind text = {"text", {"data.train_file", "data.test_file"}};
static const struct kind labelled = {"text-labels", {"data.train_file", "data.test_file"}};
static const struct kind tokens = {"tokens", {"data.path"}};

static bool has_suffix(const char *file, const char *suffix)
{
    size_t n = strlen(file), m = strlen(suffix);
    n -= n > 3 && strcmp(file + n - 3, ".gz") == 0 ? 3 : 0;
    return n >= m && strncmp(file + n - m, suffix, m) == 0;
}

/* Returns the kind of the files: a folder holds pictures; others by the name of the first one
 * (NAME.csv.gz counts as NAME.csv) or, because a table may have any name, by the number of files. */
static const struct kind *kind_of(const char *const *files)
{
    struct stat st;
    if (stat(files[0], &st) == 0 && S_ISDIR(st.st_mode))
        return &pictures;
    if (has_suffix(files[0], ".npy") || has_suffix(files[0], ".npz") || strstr(files[0], ".npz:"))
        return &npy;
    return files[1] && files[2] && !has_suffix(files[0], ".csv") ? &idx : &csv;
}

/* Sets *out to the kind of data for a program: the word is a data set, a folder of tokens or a text;
 * NULL: another file. Without a word random samples are made. */
static int kind_for_program(const char *program, const char *const *files, struct kind *named,
                            const struct kind **out)
{
    struct stat st;
    int positions = 0;
    *out = named;
    PP_TRY(pp_archive_positions(program, &positions));
    if (!files[0]) {
        named->dataset = positions > 0 ? "synthetic-tokens" : "synthetic";
        return 0;
    }
    if (pp_dataset_info(files[0])) {
        named->dataset = files[0];
        return files[1] ? pp_fail(PP_EUSAGE, "unexpected word '%s'", files[1]) : 0;
    }
    PP_TRY(pp_path_stat(files[0], true, &st));
    *out = S_ISDIR(st.st_mode)            ? &tokens
           : has_suffix(files[0], ".txt") ? &text
           : has_suffix(files[0], ".tsv") ? &labelled
                                          : NULL;
    return 0;
}

/* Reads a whole split, so that what a run would refuse is refused now. */
static int read_split(const struct pp_config *cfg, enum pp_split split, struct pp_dataset **out)
{
    PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
    PP_TRY(pp_dataset_look(cfg, split, &ds));
    return pp_dataset_open(cfg, split, PP_DATA_IMAGES, &ds->input, ds->classes, out);
}

/* Sets the settings that a proposal for a table stands for; returns how many. */
static int use_proposal(const struct pp_table_proposal *t, bool one_file, struct pp_setting *out)
{
    int n = 0;
    out[n++] = (struct pp_setting){t->predicts_numbers ? "data.target" : "data.label", t->output,
                                   "--label"};
    if (t->predicts_numbers)
        out[n++] = (struct pp_setting){"train.loss", "mse", "init"};
    if (one_file)
        out[n++] = (struct pp_setting){"data.split", PP_INIT_SPLIT, "init"};
    if (t->drop[0])
        out[n++] = (struct pp_setting){"data.drop", t->drop, "init"};
    if (t->missing != PP_MISSING_STOP)
        out[n++] = (struct pp_setting){"data.missing", "mean", "init"};
    out[n++] = (struct pp_setting){"data.scale", "standard", "init"};
    return n;
}

/* Opens the files and checks that training and test data agree. `table` is the proposal for a table,
 * or NULL. */
static int open_files(const struct kind *k, const char *const *files,
                      const struct pp_table_proposal *table, struct pp_dataset **train,
                      struct pp_dataset **test)
{
    struct pp_setting settings[FILES_MAX + 8] = {{"data.dataset", k->dataset, "init"}};
    int n = 1, n_files = 0;
    for (int i = 0; k->keys[i]; i++) {
        if (!files[i] && table && i == 1)
            break;
        if (!files[i])
            return pp_fail(PP_EUSAGE,
                           "%s needs four files: training samples, their labels, test samples, "
                           "their labels",
                           k->dataset);
        settings[n++] = (struct pp_setting){k->keys[i], files[i], "init"};
        n_files++;
    }
    if (files[n_files])
        return pp_fail(PP_EUSAGE, "unexpected word '%s'", files[n_files]);
    if (table)
        n += use_proposal(table, n_files == 1, settings + n);
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    int rc = pp_config_load(NULL, settings, n, pp_cli_names(), &cfg);
    PP_TRY(pp_cli_config_verdict(cfg, rc));
    PP_TRY(read_split(cfg, PP_SPLIT_TRAIN, train));
    PP_TRY(read_split(cfg, PP_SPLIT_TEST, test));
    for (int i = 0; i < (*train)->n_remarks; i++)
        pp_log_warn("%s", (*train)->remarks[i]);
    return pp_dataset_same_shape(*train, *test);
}

/* Loads a config of two stages that trains a program, and makes its model, so that data which do not
 * fit the program are refused. */
static int load_program(const char *program, const struct kind *k, const char *const *files,
                        const char *label, struct pp_config **cfg, struct pp_model **model)
{
    struct pp_setting settings[FILES_MAX + 7] = {
        {"data.dataset", k->dataset, "init"},
        {"model.from", program, program},
        {"pipeline.stages", "2", "init"},
        {"pipeline.microbatches", PP_INIT_MICROBATCHES, "init"},
        {"pipeline.schedule", PP_INIT_SCHEDULE, "init"},
        {"train.batch_size", "32", "init"}};
    int n = 6;
    for (int i = 0; k->keys[i] && files[i]; i++)
        settings[n++] = (struct pp_setting){k->keys[i], files[i], files[i]};
    if (k == &csv)
        settings[n++] = (struct pp_setting){"data.label", label, "--label"};
    int rc = pp_config_load(NULL, settings, n, pp_cli_names(), cfg);
    return pp_cli_config_verdict(*cfg, rc < 0 ? rc : pp_run_model(*cfg, model));
}

int cmd_init(int argc, char **argv)
{
    const char *out = NULL, *label = NULL, *words[FILES_MAX + 2] = {NULL};
    const struct pp_cli_option options[] = {
        {"label", 0, PP_CLI_STRING, &label, "COLUMN",
         "tables: column to predict: first, last or a name"},
        {"output", 'o', PP_CLI_STRING, &out, "FILE", "write there; refused if it exists"},
        {0},
    };
    PP_TRY(pp_cli_parse(argc, argv, &command_init, options, NULL, words, FILES_MAX + 1));
    const char *program = words[0] && pp_archive_is(words[0]) ? words[0] : NULL;
    bool named = program || (words[0] && strcmp(words[0], "mlp") == 0);
    const char *const *files = words + named;
    struct kind set = {NULL, {NULL}};
    const struct kind *k = NULL;
    if (program)
        PP_TRY(kind_for_program(program, files, &set, &k));
    bool read = !k && files[0];
    k = read ? kind_of(files) : k;
    char folder[PP_PATH_MAX] = "";
    PP_OWN(pp_dataset_destroy) struct pp_dataset *train = NULL, *test = NULL;
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_OWN(pp_model_destroy) struct pp_model *model = NULL;
    PP_OWN(pp_table_proposal_fini) struct pp_table_proposal table = {0};
    struct pp_images_proposal found;
    struct pp_file_write w = {.f = stdout};
    bool proposes = read && k == &csv;
    if (proposes)
        PP_TRY(pp_table_propose(files[0], label, &table));
    label = label ? label : "last";
    if (k == &pictures && files[1])
        return pp_fail(PP_EUSAGE, "unexpected word '%s'", files[1]);
    if (k == &pictures)
        PP_TRY(pp_cli_look_at_pictures(files[0], &found, &train, &test, &cfg, &model));
    else if (read)
        PP_TRY(open_files(k, files, proposes ? &table : NULL, &train, &test));
    if (program)
        PP_TRY(load_program(program, k, files, label, &cfg, &model));
    if (out && access(out, F_OK) == 0)
        return pp_fail(PP_EUSAGE, "%s exists; name another file", out);
    /* Relative names count from the config's folder, which need not be this one. */
    if (out && strchr(out, '/') && !getcwd(folder, sizeof(folder) - 1))
        return pp_fail_errno(0, "the current folder");
    if (folder[0])
        strcat(folder, "/");
    PP_TRY(out ? pp_file_create(out, &w) : 0);
    const struct pp_first_config init = {.dataset = k ? k->dataset : NULL,
                                         .keys = k ? k->keys : NULL,
                                         .files = files,
                                         .program = program,
                                         .cfg = cfg,
                                         .model = model,
                                         .folder = folder,
                                         .table = proposes ? &table : NULL,
                                         .label = program && k == &csv ? label : NULL,
                                         .images = k == &pictures ? &found : NULL,
                                         .train = train,
                                         .test = test};
    int rc = pp_first_config_print(&init, pp_cli_names(), w.f);
    if (rc < 0 && out)
        pp_file_abandon(&w);
    PP_TRY(rc);
    return out ? pp_cli_name_file(pp_file_commit(&w), out) : 0;
}
