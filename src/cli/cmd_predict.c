/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli predict: what the weights of a checkpoint say of new samples. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"
#include "ppcli/base/files.h"
#include "ppcli/data/preprocessing.h"
#include "command.h"

struct predicting {
    const struct pp_config *cfg;
    const char *weights, *output;
    const char *const *files; /* NULL-terminated */
    int top, json;
    double threshold;
    struct pp_predictor *p;
    const struct pp_preprocessing *names;
    double *probabilities; /* [outputs] */
    int *order;            /* [outputs] classes, the most probable first */
    int outputs;
    int64_t rows;
};

static bool predicts_numbers(const struct predicting *w)
{
    return pp_loss_takes_numbers(w->cfg->train.loss);
}

static const char *output_name(const struct predicting *w, int i, char number[20])
{
    if (i < w->names->n_targets)
        return w->names->targets[i].name;
    snprintf(number, 20, "output%d", i);
    return number;
}

/* ---- rows */

static void write_titles(const struct predicting *w, FILE *f)
{
    char number[20];
    bool lines = pp_has_word("csv text-labels", w->cfg->data.dataset);
    fputs(lines ? "file,line" : "file", f);
    if (!predicts_numbers(w)) {
        fputs(",prediction,probability", f);
        for (int k = 2; k <= w->top; k++)
            fprintf(f, ",prediction%d,probability%d", k, k);
    }
    for (int i = 0; predicts_numbers(w) && i < w->outputs; i++) {
        fputc(',', f);
        pp_text_csv("", output_name(w, i, number), f);
        if (w->cfg->train.loss == PP_LOSS_BCE) {
            fputc(',', f);
            pp_text_csv("probability ", output_name(w, i, number), f);
        }
    }
    fputc('\n', f);
}

/* Puts the w->top most probable classes first, and of equal ones the lower number. */
static void rank_classes(const struct predicting *w, const float *outputs)
{
    for (int i = 0; i < w->outputs; i++)
        w->order[i] = i;
    for (int k = 0; k < w->top; k++) {
        int best = k;
        for (int i = k + 1; i < w->outputs; i++) {
            float a = outputs[w->order[i]], b = outputs[w->order[best]];
            best = a > b || (a >= b && w->order[i] < w->order[best]) ? i : best;
        }
        int class = w->order[best];
        memmove(&w->order[k + 1], &w->order[k], (size_t)(best - k) * sizeof(*w->order));
        w->order[k] = class;
    }
}

static double in_units(const struct predicting *w, int i, float output)
{
    const struct pp_target *t = i < w->names->n_targets ? &w->names->targets[i] : NULL;
    return t ? (double)output * t->std + t->mean : (double)output;
}

static void write_csv(const struct predicting *w, const char *file, int line, const float *outputs,
                      FILE *f)
{
    char number[20];
    pp_text_csv("", file, f);
    if (line > 0)
        fprintf(f, ",%d", line);
    for (int k = 0; !predicts_numbers(w) && k < w->top; k++) {
        fputc(',', f);
        pp_text_csv("", pp_class_name(w->names, w->order[k], number), f);
        fprintf(f, ",%.9g", w->probabilities[w->order[k]]);
    }
    for (int i = 0; predicts_numbers(w) && i < w->outputs; i++)
        if (w->cfg->train.loss == PP_LOSS_BCE)
            fprintf(f, ",%d,%.9g", w->probabilities[i] > w->threshold, w->probabilities[i]);
        else
            fprintf(f, ",%.9g", in_units(w, i, outputs[i]));
    fputc('\n', f);
}

static void write_json_numbers(const struct predicting *w, const float *outputs, struct pp_json *j)
{
    char number[20];
    bool marks = w->cfg->train.loss == PP_LOSS_BCE;
    pp_json_object(j, "prediction");
    for (int i = 0; i < w->outputs; i++)
        if (marks)
            pp_json_bool(j, output_name(w, i, number), w->probabilities[i] > w->threshold);
        else
            pp_json_dbl(j, output_name(w, i, number), in_units(w, i, outputs[i]));
    pp_json_end(j);
    if (!marks)
        return;
    pp_json_object(j, "probability");
    for (int i = 0; i < w->outputs; i++)
        pp_json_dbl(j, output_name(w, i, number), w->probabilities[i]);
    pp_json_end(j);
}

static void write_json(const struct predicting *w, const char *file, int line, const float *outputs,
                       FILE *f)
{
    struct pp_json j = pp_json_begin(f, 0);
    char number[20];
    pp_json_str(&j, "file", file);
    if (line > 0)
        pp_json_int(&j, "line", line);
    if (predicts_numbers(w)) {
        write_json_numbers(w, outputs, &j);
    } else {
        pp_json_str(&j, "prediction", pp_class_name(w->names, w->order[0], number));
        pp_json_dbl(&j, "probability", w->probabilities[w->order[0]]);
    }
    if (!predicts_numbers(w) && w->top > 1) {
        pp_json_array(&j, "top");
        for (int k = 0; k < w->top; k++) {
            pp_json_object(&j, NULL);
            pp_json_str(&j, "prediction", pp_class_name(w->names, w->order[k], number));
            pp_json_dbl(&j, "probability", w->probabilities[w->order[k]]);
            pp_json_end(&j);
        }
        pp_json_end(&j);
    }
    pp_json_end(&j);
}

static int predict_batch(struct predicting *w, const struct pp_dataset *ds, FILE *f)
{
    struct pp_new_samples *samples = pp_predictor_samples(w->p);
    const float *outputs;
    for (int first = 0, rows = 0; first < ds->n; first += rows) {
        PP_TRY(pp_predictor_run(w->p, ds, first, &rows, &outputs));
        for (int r = 0; r < rows; r++, outputs += w->outputs, w->rows++) {
            int line;
            const char *file = pp_new_samples_place(samples, first + r, &line);
            pp_probabilities(w->cfg->train.loss, outputs, w->outputs, w->probabilities);
            if (!predicts_numbers(w))
                rank_classes(w, outputs);
            if (w->json)
                write_json(w, file, line, outputs, f);
            else
                write_csv(w, file, line, outputs, f);
        }
    }
    return ferror(f) ? pp_fail_errno(PP_EIO, "cannot write the predictions") : 0;
}

static int predict_file(struct predicting *w, const char *path, FILE *f)
{
    struct pp_new_samples *samples = pp_predictor_samples(w->p);
    const struct pp_dataset *ds;
    PP_TRY(pp_new_samples_open(samples, path));
    do {
        PP_TRY(pp_new_samples_next(samples, &ds));
        PP_TRY(predict_batch(w, ds, f));
        if (pp_process_stop)
            return pp_fail(PP_ESTOPPED, "stopped after %lld predictions", (long long)w->rows);
    } while (ds->n > 0);
    return 0;
}

static int predict_files(struct predicting *w, FILE *f)
{
    if (!w->json)
        write_titles(w, f);
    for (int i = 0; w->files[i]; i++)
        PP_TRY(predict_file(w, w->files[i], f));
    return 0;
}

static int write_predictions(struct predicting *w)
{
    struct pp_file_write to = {.to.fd = -1};
    if (!w->output || strcmp(w->output, "-") == 0) {
        PP_TRY(predict_files(w, stdout));
        return fflush(stdout) == 0 ? 0 : pp_fail_errno(PP_EIO, "cannot write the predictions");
    }
    PP_TRY(pp_file_create(w->output, &to));
    PP_TRY_UNDO(predict_files(w, to.f), pp_file_abandon(&to));
    return pp_file_commit(&to);
}

static int predict(struct predicting *w)
{
    PP_TRY(pp_predictor_create(w->cfg, w->weights, true, &w->p));
    w->names = pp_predictor_names(w->p);
    w->outputs = pp_predictor_outputs(w->p);
    w->top = w->top < w->outputs ? w->top : w->outputs;
    PP_ALLOC(w->probabilities, w->outputs);
    PP_ALLOC(w->order, w->outputs);
    pp_signals_catch("ppcli: stopping; Ctrl-C again quits at once\n");
    PP_TRY(write_predictions(w));
    const struct pp_new_samples *samples = pp_predictor_samples(w->p);
    long long unknown = (long long)pp_new_samples_unknown(samples),
              broken = (long long)pp_new_samples_broken(samples);
    if (unknown > 0)
        pp_log_warn("%lld cell%s held a word that no training row has: none of the kinds", unknown,
                    pp_plural(unknown));
    if (broken > 0)
        return pp_fail(PP_EFORMAT, "%lld of %lld samples left out; the others are predicted",
                       broken, broken + (long long)w->rows);
    return w->rows > 0 ? 0 : pp_fail(PP_EFORMAT, "%s: no samples", w->files[0]);
}

/* ---- words */

/* Returns whether the first word names a config or a run, and not new samples. */
static int names_config(const char *word, const char *weights, bool *out)
{
    struct stat st;
    PP_TRY(pp_cli_is_run(word, out));
    *out = *out || pp_text_ends(word, ".ini") ||
           (weights && strcmp(word, "-") != 0 && stat(word, &st) != 0);
    return 0;
}

static int take_words(const char *const *words, struct predicting *w, const char **out_config)
{
    bool is_config = false, is_run = false;
    if (words[0])
        PP_TRY(names_config(words[0], w->weights, &is_config));
    *out_config = is_config ? words[0] : w->weights;
    w->files = words + is_config;
    if (is_config && !w->weights) {
        PP_TRY(pp_cli_is_run(words[0], &is_run));
        if (!is_run)
            return pp_cli_refuse_run(words[0], "add --checkpoint, or name a run");
        w->weights = words[0];
    }
    if (!w->weights || !w->weights[0] || !w->files[0])
        return pp_fail(PP_EUSAGE,
                       "name a run (or a config and --checkpoint) and new samples. For example: "
                       "ppcli predict runs/a new.csv");
    if (w->top < 1 || w->threshold >= 1)
        return pp_fail(PP_EUSAGE, "--top needs at least 1, --threshold a probability below 1");
    return 0;
}

int cmd_predict(int argc, char **argv)
{
    struct predicting w = {.top = 1, .threshold = 0.5};
    struct pp_cli_settings settings = {0};
    const char *config = NULL;
    const struct pp_cli_option options[] = {
        {"checkpoint", 0, PP_CLI_STRING, &w.weights, "PATH",
         "a checkpoint, a run, or weights from elsewhere"},
        {"output", 'o', PP_CLI_STRING, &w.output, "FILE", "where to write; standard output"},
        {"format", 0, PP_CLI_CHOICE, &w.json, "csv|jsonl", "a table, or a JSON object a line; csv"},
        {"top", 0, PP_CLI_INT, &w.top, "K", "the K most probable classes; 1"},
        {"threshold", 0, PP_CLI_AMOUNT, &w.threshold, "P",
         "train.loss = bce: yes above this probability; 0.5"},
        {0},
    };
    PP_TAKE(const char *, words, argc + 1);
    PP_TRY(pp_cli_parse(argc, argv, &command_predict, options, &settings, words, argc));
    PP_TRY(take_words(words, &w, &config));
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_TRY(pp_cli_load_config(config, &settings, &cfg));
    w.cfg = cfg;
    int rc = predict(&w);
    pp_predictor_destroy(&w.p);
    pp_free(w.probabilities);
    pp_free(w.order);
    return pp_cli_config_verdict(cfg, rc);
}
