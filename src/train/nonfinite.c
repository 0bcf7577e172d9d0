/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles a step whose numbers were not finite. The executor has found it on every rank and changed
 * nothing. The decisions here depend only on values that all ranks share, so all ranks do the same.
 */
#include "loop.h"

#include <math.h>

#include "ppcli/base/base.h"

#define CHANGE_MAX 160

/* Puts the place of the error in front of its text: "step 412 (epoch 2, batch 37 of 469)". */
static int add_step_to_error(const struct trainer *tr)
{
    return pp_error_context("step %lld (epoch %d, batch %d of %d)", (long long)tr->t, tr->epoch_no,
                            tr->epoch_step + 1, pp_exec_train_steps(tr->x));
}

/* Goes back to the weights of the newest checkpoint. The run continues with the next batch; it does
 * not repeat the batches since the checkpoint. */
static int rewind_weights(struct trainer *tr, int64_t *out_step)
{
    struct pp_error why = *pp_error_get();
    PP_TRY(resume_rewind(tr, out_step));
    tr->nonfinite.rewinds++;
    (void)pp_error_adopt(&why);
    return 0;
}

int nonfinite_step(struct trainer *tr)
{
    const struct pp_config *cfg = tr->run->cfg;
    int rc = add_step_to_error(tr);
    bool rewind = cfg->train.nonfinite == PP_NONFINITE_REWIND;
    int64_t before = rewind ? tr->nonfinite.rewinds : tr->nonfinite.in_a_row;
    if (cfg->train.nonfinite == PP_NONFINITE_STOP || before + 1 >= cfg->train.nonfinite_limit)
        return rc;
    int64_t to = -1;
    tr->nonfinite.in_a_row++;
    if (rewind)
        PP_TRY(rewind_weights(tr, &to));
    if (tr->m)
        pp_metrics_nonfinite(tr->m, tr->epoch_no, tr->t, to, pp_error_get()->text);
    pp_error_clear();
    return 0;
}

/* Writes to `out` that the weights were saved, or why not. Returns whether they were saved. */
static bool describe_saving(const struct trainer *tr, char *out, size_t bytes)
{
    bool saved = tr->saver && tr->saved == tr->t;
    if (saved)
        snprintf(out, bytes, "they are saved");
    else if (tr->saver && saver_error(tr->saver))
        snprintf(out, bytes, "they could not be saved: %.512s", saver_error(tr->saver)->text);
    else
        snprintf(out, bytes, "they were not saved: there is no run folder");
    return saved;
}

/* Writes what the user should change first. Before the first step this is not the learning rate,
 * because it has no influence on the output of the first weights. */
static const char *write_first_advice(const struct trainer *tr, char out[CHANGE_MAX])
{
    if (tr->t > 0)
        snprintf(out, CHANGE_MAX, "Lower train.lr (it is %g)", tr->run->cfg->train.lr);
    else if (pp_model_text_targets(tr->run->model) > 0)
        snprintf(out, CHANGE_MAX,
                 "No step was made, so another train.lr does not help; use other "
                 "first weights (train.init)");
    else
        snprintf(out, CHANGE_MAX,
                 "No step was made, so another train.lr does not help; set "
                 "data.mean and data.std for samples near -1 to 1");
    return out;
}

int nonfinite_fail(const struct trainer *tr, const char *why)
{
    const struct pp_config *cfg = tr->run->cfg;
    char kept[PP_PATH_MAX + 128], advice[2 * PP_PATH_MAX + 256], word[2 * PP_PATH_MAX];
    char change[CHANGE_MAX], limit[64] = "";
    bool saved = describe_saving(tr, kept, sizeof(kept));
    if (cfg->train.nonfinite != PP_NONFINITE_STOP) {
        snprintf(limit, sizeof(limit), " (number %d%s: train.nonfinite_limit)",
                 cfg->train.nonfinite_limit,
                 cfg->train.nonfinite == PP_NONFINITE_SKIP ? " in a row" : "");
        snprintf(advice, sizeof(advice), "%s or set train.clip_norm",
                 write_first_advice(tr, change));
    } else {
        snprintf(advice, sizeof(advice), "%s, set train.clip_norm, or %s%s%s",
                 write_first_advice(tr, change),
                 saved ? "continue without this batch: --resume " : "",
                 saved ? pp_text_shell(tr->dir, word, sizeof(word)) : "",
                 saved ? " --set train.nonfinite=skip" : "train.nonfinite = skip");
    }
    return pp_fail(PP_EDIVERGED,
                   "training diverged: %s%s. The weights are those of step %lld; %s. %s", why,
                   limit, (long long)tr->t, kept, advice);
}

int nonfinite_data(const struct trainer *tr, const char *why)
{
    char kept[PP_PATH_MAX + 128];
    bool saved = describe_saving(tr, kept, sizeof(kept));
    return pp_fail(PP_EFORMAT, "%s. The weights are those of step %lld; %s. Restore the file%s%s",
                   why, (long long)tr->t, kept,
                   saved ? ", then continue with the same command and --resume " : "",
                   saved ? tr->dir : "");
}

int nonfinite_test(const struct trainer *tr, const char *why, bool all)
{
    char kept[PP_PATH_MAX + 128];
    describe_saving(tr, kept, sizeof(kept));
    return pp_fail(PP_EDIVERGED,
                   "step %lld (epoch %d): %s. The weights are those of this step; %s. %sower "
                   "train.lr (it is %g) or set train.clip_norm",
                   (long long)tr->t, tr->epoch_no, why, kept,
                   all ? "L" : "Look at the samples of these batches, l", tr->run->cfg->train.lr);
}
