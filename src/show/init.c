/* SPDX-License-Identifier: Apache-2.0 */
/* The config that ppcli init prints: a perceptron for data that were looked at, or a PyTorch program;
 * of floats also what would bring them to where a network learns well. */
#include "init.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/data/preprocessing.h"
#include "ppcli/base/base.h"

#define COMMANDS                                                                                   \
    ";   ppcli explain THIS.ini       what a run would do\n"                                       \
    ";   ppcli train THIS.ini         train, and test after every epoch\n"                         \
    ";   ppcli tune THIS.ini          a better schedule and cut for this machine\n\n"
#define STAGES_ARE "pieces of the model, a core each; any number gives the same weights"
#define MICROBATCHES_ARE " ; pieces of a batch that travel through the stages\n"
#define SCHEDULE "schedule = " PP_INIT_SCHEDULE " ; `ppcli keys pipeline.schedule` lists them\n"

#define NAMES_WIDTH 30 /* of the list of a table's columns */
#define HOLDS_WIDTH 60
#define COLUMNS_SHOWN 60  /* of a wider table only the first and last half of so many */
#define STEPS_ENOUGH 2000 /* of a small table, which takes a few epochs more */
#define EPOCHS_MOST 200
#define ALIKE 3 /* columns of one kind have at least a third of the common range */

struct column {
    double sum, squares, least, most;
};

static void look_at_columns(const struct pp_dataset *ds, int n, struct column *of)
{
    const float *x = (const void *)ds->images;
    for (size_t i = 0; i < (size_t)ds->n * (size_t)n; i++) {
        struct column *c = &of[i % (size_t)n];
        double v = (double)x[i];
        c->sum += v;
        c->least = i < (size_t)n || v < c->least ? v : c->least;
        c->most = i < (size_t)n || v > c->most ? v : c->most;
    }
    for (size_t i = 0; i < (size_t)ds->n * (size_t)n; i++) {
        struct column *c = &of[i % (size_t)n];
        double d = (double)x[i] - c->sum / ds->n;
        c->squares += d * d;
    }
}

/* Returns whether one scale is good enough for all columns: each has at least a third of the range
 * that all have together. A column with only one value does not count. */
static bool are_alike(const struct column *of, int n, double range)
{
    for (int i = 0; i < n; i++)
        if (of[i].least < of[i].most && of[i].most - of[i].least < range / ALIKE)
            return false;
    return true;
}

/* Prints a value with as few digits as bring it within `enough` of the exact one: a mean of
 * 1,700,000,123 with a deviation of 10 takes ten digits. */
static void print_near(FILE *f, double value, double enough)
{
    char text[40];
    int digits = 4;
    do {
        snprintf(text, sizeof(text), "%.*g", digits, value);
    } while (fabs(strtod(text, NULL) - value) > enough && digits++ < 17);
    fprintf(f, " %s", text);
}

/* Prints means[n] and stds[n] as keys of a config, commented out. */
static void print_keys(FILE *f, const double *means, const double *stds, int n)
{
    for (int k = 0; k < 2; k++) {
        fputs(k == 0 ? "; mean =" : "; std =", f);
        for (int i = 0; i < n; i++)
            print_near(f, k == 0 ? means[i] : stds[i], stds[i] / 1000);
        fputc('\n', f);
    }
}

static int print_columns(FILE *f, const struct column *of, int n, int rows)
{
    PP_TAKE(double, means, n);
    PP_TAKE(double, stds, n);
    for (int i = 0; i < n; i++) {
        double std = sqrt(of[i].squares / rows);
        means[i] = of[i].sum / rows;
        stds[i] = std > 0 && of[i].least < of[i].most ? std : 1;
    }
    print_keys(f, means, stds, n);
    return 0;
}

/* Prints the range of the values as a comment, with keys that scale them if the range is wide. */
static int print_range(const struct pp_dataset *ds, FILE *f)
{
    bool flat = ds->shape.n == 1;
    int n = flat ? ds->shape.dims[0] : pp_shape_channels(&ds->shape);
    struct pp_dataset each = *ds; /* rows of n values, whatever the shape */
    PP_TAKE(struct column, of, n);
    each.n = (int)((size_t)ds->n * pp_shape_floats(&ds->shape) / (size_t)n);
    look_at_columns(&each, n, of);
    double least = of[0].least, most = of[0].most;
    for (int i = 1; i < n; i++) {
        least = fmin(least, of[i].least);
        most = fmax(most, of[i].most);
    }
    fprintf(f, "; values from %.4g to %.4g, used as they are: about -1 to 1 is best\n", least,
            most);
    if (!(least < most) || (least >= -4 && most <= 4))
        return 0;
    if (n > 1 && n <= (flat ? PP_FLOATS_MAX : PP_CHANNELS_MAX) && !are_alike(of, n, most - least)) {
        fprintf(f,
                "; these two keys would do that, with a number for each %s (its mean and its "
                "standard deviation):\n",
                flat ? "column" : "channel");
        return print_columns(f, of, n, each.n);
    }
    const double middle = most / 2 + least / 2, half = most / 2 - least / 2;
    fputs("; these two keys would do that:\n", f);
    print_keys(f, &middle, &half, 1);
    return 0;
}

/* Prints the key of a file, whose relative name counts from the config's folder. */
static void print_file(const struct pp_first_config *i, const char *key, const char *file, FILE *f)
{
    fprintf(f, "%s = %s%s\n", key, file[0] == '/' ? "" : i->folder, file);
}

/* Prints a word in a field of this width. */
static void print_field(const char *text, int width, FILE *f)
{
    int blanks = width - pp_text_columns(text);
    fprintf(f, "%s%*s", text, blanks > 2 ? blanks : 2, "");
}

/* Prints what each column of a table was found to hold, and the keys that follow from it. */
static void print_table(const struct pp_table_proposal *t, bool one_file, FILE *f)
{
    int names = 6, holds = 5;
    for (int i = 0; i < t->n; i++) {
        int n = pp_text_columns(t->columns[i].name), h = pp_text_columns(t->columns[i].holds);
        names = n > names && n <= NAMES_WIDTH ? n : names;
        holds = h > holds && h <= HOLDS_WIDTH ? h : holds;
    }
    fputs("; ", f);
    print_field("column", names + 2, f);
    print_field("holds", holds + 2, f);
    fputs("missing cells\n", f);
    for (int i = 0; i < t->n; i++) {
        const struct pp_found_column *c = &t->columns[i];
        if (t->n > COLUMNS_SHOWN && i >= COLUMNS_SHOWN / 2 && i < t->n - COLUMNS_SHOWN / 2) {
            if (i == COLUMNS_SHOWN / 2)
                fprintf(f, "; ... %d more columns\n", t->n - COLUMNS_SHOWN);
            continue;
        }
        fputs("; ", f);
        print_field(c->name, names + 2, f);
        print_field(c->holds, holds + 2, f);
        fprintf(f, "%lld%s%s\n", (long long)c->missing, c->use ? "  " : "", c->use ? c->use : "");
    }
    fprintf(f, "%s = %s ; what the model predicts\n", t->predicts_numbers ? "target" : "label",
            t->output);
    if (one_file)
        fputs("split = " PP_INIT_SPLIT " ; share of the rows that the test takes\n", f);
    if (t->drop[0])
        fprintf(f, "drop = %s\n", t->drop);
    if (t->missing != PP_MISSING_STOP)
        fputs("missing = mean ; what a missing number becomes; or category, which marks it too\n",
              f);
    fputs("scale = standard ; columns of numbers get mean 0 and deviation 1\n", f);
}

/* Prints the section of the data that were looked at, or named. */
static int print_data(const struct pp_first_config *i, FILE *f)
{
    const struct pp_dataset *train = i->train, *test = i->test;
    fprintf(f, "[data]\ndataset = %s\n", i->dataset);
    for (int k = 0; i->keys[k] && i->files[k]; k++)
        print_file(i, i->keys[k] + strlen("data."), i->files[k], f);
    if (i->label)
        fprintf(f, "label = %s\n", i->label);
    if (i->table)
        print_table(i->table, !i->files[1], f);
    if (i->images)
        init_print_pictures(i, f);
    if (!train || !test || i->images)
        return 0;
    char text[48];
    pp_shape_text(&train->shape, text, sizeof(text));
    int classes = test->classes > train->classes ? test->classes : train->classes;
    fprintf(f, "; %d + %d samples of %s values, %d %s\n", train->n, test->n, text, classes,
            !i->table || !i->table->predicts_numbers ? "classes"
            : classes == 1                           ? "number to predict"
                                                     : "numbers to predict");
    if (i->table)
        return 0;
    if (train->element == PP_F32)
        return print_range(train, f);
    fputs("; bytes become 0 to 1\n", f);
    return 0;
}

/* ---- a perceptron */

/* Returns a number of epochs that trains enough: of a small table as many as give the steps that a
 * network of this size takes to learn. */
static int choose_epochs(const struct pp_first_config *i, int batch, bool small)
{
    int epochs = small ? 30 : 10;
    if (!i->table || !small)
        return epochs;
    int steps = (i->train->n + batch - 1) / batch, enough = (STEPS_ENOUGH + steps - 1) / steps;
    return enough > EPOCHS_MOST ? EPOCHS_MOST : enough > epochs ? enough : epochs;
}

/* Writes the optimizer: for a small table with a weight decay, which keeps a network from learning its
 * rows by heart. 400 / rows was measured to be as good as scikit-learn's networks, or better, on its
 * five small tables. */
static const char *write_optimizer(const struct pp_first_config *i, bool small, char out[160])
{
    double decay = i->table && small ? 400.0 / i->train->n : 0;
    if (decay > 0)
        snprintf(out, 160,
                 "optimizer = adamw\n"
                 "weight_decay = %.1g ; keeps weights small: few rows need more of it\n",
                 decay < 3 ? decay : 3);
    else
        snprintf(out, 160, "optimizer = " PP_INIT_OPTIMIZER "\n");
    return out;
}

static int print_perceptron(const struct pp_first_config *i, const struct pp_names *names, FILE *f)
{
    const struct pp_dataset *train = i->train, *test = i->test;
    int features = train ? train->features : 784, classes = train ? train->classes : 10;
    bool small = train && train->n < 5000;
    if (test && test->classes > classes)
        classes = test->classes;
    const int widths[3] = {features, small ? 64 : 256, classes},
              batch = !small                           ? 128
                      : train->n >= 8 && train->n < 32 ? train->n
                                                       : 32;
    int stages = 1;
    char optimizer[160];
    PP_TRY(pp_init_stages(widths, train ? train->n : 6000, batch, names, &stages));
    fputs(
        "; A multi-layer perceptron. Each key is explained by `ppcli keys SECTION.KEY`.\n" COMMANDS,
        f);
    if (train && test)
        PP_TRY(print_data(i, f));
    else
        fputs("[data]\n"
              "dataset = mnist-sample ; 6,000 + 1,000 digits that come with ppcli\n"
              "; your own files: ppcli init samples.csv test.csv\n",
              f);
    fprintf(f,
            "\n[model]\n"
            "type = mlp\n"
            "sizes = %d %d %d %d ; inputs, hidden layers, %s\n"
            "activation = relu ; or tanh, gelu, silu\n"
            "\n[pipeline]\n"
            "stages = %d ; " STAGES_ARE "%s\n"
            "microbatches = " PP_INIT_MICROBATCHES MICROBATCHES_ARE SCHEDULE "\n[train]\n"
            "epochs = %d\n"
            "batch_size = %d\n"
            "%s"
            "lr = 0.001 ; learning rate\n"
            "seed = 1 ; everything random follows from it\n"
            "%s",
            features, widths[1], widths[1], classes,
            i->table && i->table->predicts_numbers ? "numbers" : "classes", stages,
            stages == 1 ? "\n; 2 would hardly be faster, as the layers are short or one has nearly "
                          "all of the work"
                        : "",
            choose_epochs(i, batch, small), batch, write_optimizer(i, small, optimizer),
            i->table && i->table->predicts_numbers ? "loss = mse ; or mae, huber\n" : "");
    return 0;
}

/* ---- a PyTorch program */

#define SAMPLES 1024 /* about, where their number is not known yet */

/* Finds whether a second stage pays, and the layer that it begins with; NULL: it does not. */
static int find_cut(const struct pp_config *cfg, const struct pp_model *m, const char **out)
{
    int samples, first[2], last[2];
    double gain = 1;
    *out = NULL;
    if (m->n_layers < 2)
        return 0;
    if (pp_dataset_count(cfg, PP_SPLIT_TRAIN, &samples) < 0) {
        pp_error_clear();
        samples = SAMPLES;
    }
    PP_TRY(pp_stages_gain(cfg, m, samples, &gain));
    PP_TRY(pp_partition(m, cfg, 2, first, last));
    *out = gain >= PP_STAGES_WORTH ? m->layers[first[1]].name : NULL;
    return 0;
}

static int print_program(const struct pp_first_config *i, FILE *f)
{
    const char *cut;
    PP_TRY(find_cut(i->cfg, i->model, &cut));
    bool windows = pp_dataset_info(i->dataset)->windows;
    fputs("; A PyTorch program. Each key is explained by `ppcli keys SECTION.KEY`.\n" COMMANDS, f);
    PP_TRY(print_data(i, f));
    if (strncmp(i->dataset, "text", strlen("text")) == 0)
        fputs("tokens = chars ; or bytes; or bpe, with data.tokenizer\n", f);
    if (strncmp(i->dataset, "synthetic", strlen("synthetic")) == 0)
        fputs(
            "; random samples, to see whether the model runs; your own: ppcli init PROGRAM DATA\n",
            f);
    fputs("\n[model]\n", f);
    print_file(i, "from", i->program, f);
    fputs("; training begins with its weights\n\n[pipeline]\n", f);
    fprintf(f, "stages = %d ; " STAGES_ARE "\n", cut ? 2 : 1);
    if (cut)
        fprintf(f,
                "; split_at = %s ; where the second one begins; ppcli explain lists the layers\n",
                cut);
    fprintf(f, "microbatches = %s" MICROBATCHES_ARE, cut ? PP_INIT_MICROBATCHES : "1");
    if (pp_model_mixes_samples(i->model))
        fputs("; the samples of a micro-batch meet, in batch norm or attention, so that their "
              "number\n"
              "; changes what is computed\n",
              f);
    fputs(SCHEDULE "\n[train]\n", f);
    fputs(windows ? "max_steps = 1000\neval_interval = 100\n" : "epochs = 10\n", f);
    fprintf(f,
            "batch_size = %d\n"
            "optimizer = adamw\n"
            "lr = 0.001 ; learning rate\n"
            "seed = 1 ; everything random follows from it\n",
            i->cfg->train.batch_size);
    return 0;
}

/* ---- pictures */

static int print_convolutions(const struct pp_first_config *i, FILE *f)
{
    const char *cut;
    bool small = i->train->n < 5000;
    PP_TRY(find_cut(i->cfg, i->model, &cut));
    fputs("; A small convolutional network. Each key is explained by `ppcli keys "
          "SECTION.KEY`.\n" COMMANDS,
          f);
    PP_TRY(print_data(i, f));
    fprintf(f, "\n[model]\ntype = sequential\nlayers = %s\n", i->cfg->model.layers);
    fprintf(f, "\n[pipeline]\nstages = %d ; " STAGES_ARE "\n", cut ? 2 : 1);
    fputs("microbatches = " PP_INIT_MICROBATCHES MICROBATCHES_ARE SCHEDULE "\n[train]\n", f);
    fprintf(f,
            "epochs = %d\n"
            "batch_size = %d\n"
            "optimizer = adamw\n"
            "weight_decay = 0.01\n"
            "lr = 0.001 ; learning rate\n"
            "lr_schedule = cosine ; it falls to 0 until the last epoch\n"
            "seed = 1 ; everything random follows from it\n",
            small ? 30 : 15, i->cfg->train.batch_size);
    return 0;
}

int pp_first_config_print(const struct pp_first_config *i, const struct pp_names *names, FILE *f)
{
    return i->program  ? print_program(i, f)
           : i->images ? print_convolutions(i, f)
                       : print_perceptron(i, names, f);
}
