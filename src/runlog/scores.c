/* SPDX-License-Identifier: Apache-2.0 */
/* The scores of a run: what they are called, and which a loss has. Everything that prints scores
 * goes over this table. */
#include "parts.h"

#include "ppcli/base/base.h"

static const struct {
    const char *key, *word, *name; /* in JSON, in a line, in a sentence */
    bool numbers;                  /* of mse, mae and huber; else of classes and yes or no */
} table[PP_SCORES] = {
    [PP_SCORE_ACCURACY] = {"accuracy", "acc", "accuracy", false},
    [PP_SCORE_R2] = {"r2", "r2", "R2", true},
    [PP_SCORE_MAE] = {"mae", "mae", "mean absolute error", true},
    [PP_SCORE_RMSE] = {"rmse", "rmse", "root mean squared error", true},
};

const char *pp_score_key(enum pp_score score)
{
    return table[score].key;
}

bool score_applies(enum pp_score score, enum pp_loss_kind kind)
{
    return table[score].numbers == (pp_loss_takes_numbers(kind) && kind != PP_LOSS_BCE);
}

struct pp_scores pp_scores_of(const struct pp_loss_sums *sums, double unit)
{
    double n = (double)sums->targets, spread = sums->sum_squares - sums->sum * sums->sum / n;
    return (struct pp_scores){
        .of = {[PP_SCORE_ACCURACY] = pp_loss_sums_mean(sums, (double)sums->correct),
               [PP_SCORE_R2] = spread > 0 ? 1 - sums->squares / spread : (double)NAN,
               [PP_SCORE_MAE] = unit * pp_loss_sums_mean(sums, sums->absolutes),
               [PP_SCORE_RMSE] = unit * sqrt(pp_loss_sums_mean(sums, sums->squares))}};
}

static const char *value_text(enum pp_score score, double x, char out[16])
{
    if (!table[score].numbers || isnan(x))
        return pp_mean_text(x, out);
    snprintf(out, 16, "%.5g", x);
    return out;
}

const char *scores_line(enum pp_loss_kind kind, const char *prefix, const struct pp_scores *s,
                        char out[PP_SCORES_TEXT])
{
    char value[16];
    out[0] = '\0';
    for (int i = 0; i < PP_SCORES; i++)
        if (score_applies((enum pp_score)i, kind))
            pp_text_add(out, PP_SCORES_TEXT, " %s%s=%s", prefix, table[i].word,
                        value_text((enum pp_score)i, s->of[i], value));
    return out;
}

const char *pp_scores_text(enum pp_loss_kind kind, const struct pp_scores *s,
                           char out[PP_SCORES_TEXT])
{
    char value[16];
    out[0] = '\0';
    for (int i = 0; i < PP_SCORES; i++)
        if (score_applies((enum pp_score)i, kind))
            pp_text_add(out, PP_SCORES_TEXT, "%s%s %s", out[0] ? ", " : "", table[i].name,
                        value_text((enum pp_score)i, s->of[i], value));
    return out;
}

void pp_scores_print(enum pp_loss_kind kind, const struct pp_scores *s, double loss, int n, FILE *f)
{
    char value[16], name[32];
    int first = 0;
    while (!score_applies((enum pp_score)first, kind))
        first++;
    snprintf(name, sizeof(name), "test %s", table[first].name);
    fprintf(f, "%-17s%s   (", name, value_text((enum pp_score)first, s->of[first], value));
    for (int i = first + 1; i < PP_SCORES; i++)
        if (score_applies((enum pp_score)i, kind))
            fprintf(f, "%s %s, ", table[i].name, value_text((enum pp_score)i, s->of[i], value));
    fprintf(f, "loss %s, %d samples)\n", pp_mean_text(loss, value), n);
}

void pp_scores_json(enum pp_loss_kind kind, const char *prefix, const struct pp_scores *s,
                    struct pp_json *j)
{
    char key[32];
    for (int i = 0; i < PP_SCORES; i++) {
        snprintf(key, sizeof(key), "%s%s", prefix, table[i].key);
        if (score_applies((enum pp_score)i, kind))
            pp_json_dbl(j, key, s->of[i]);
    }
}
