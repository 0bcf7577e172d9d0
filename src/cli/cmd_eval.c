/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli eval: how good are the weights of a checkpoint? */
#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "command.h"

static int print_text(const struct pp_evaluation *e, enum pp_loss_kind kind)
{
    char from[PP_PATH_MAX], loss[16], scores[PP_SCORES_TEXT];
    if (e->targets > 0) {
        printf("test loss        %s   (perplexity %.4g, %s, %d windows of %d tokens)\n",
               pp_mean_text(e->loss, loss), exp(e->loss), pp_scores_text(kind, &e->scores, scores),
               e->samples, e->targets);
    } else {
        pp_scores_print(kind, &e->scores, e->loss, e->samples, stdout);
    }
    printf("weights_sha256   %s\n", e->weights_sha256);
    printf("checkpoint       %s\n", pp_text_shown(e->from, from, sizeof(from)));
    return e->outcome ? pp_outcome_print(e->outcome, stdout) : 0;
}

static int print_json(const struct pp_evaluation *e, const struct pp_config *cfg)
{
    struct pp_json j = pp_json_begin(stdout, 2);
    pp_json_int(&j, "schema", 1);
    pp_json_str(&j, "checkpoint", e->from);
    pp_scores_json(cfg->train.loss, "test_", &e->scores, &j);
    pp_json_dbl(&j, "test_loss", e->loss);
    if (e->targets > 0)
        pp_json_dbl(&j, "test_perplexity", exp(e->loss));
    pp_json_int(&j, "test_samples", e->samples);
    pp_json_str(&j, "dataset", cfg->data.dataset);
    pp_json_str(&j, "weights_sha256", e->weights_sha256);
    PP_TRY(e->outcome ? pp_outcome_json(e->outcome, &j) : 0);
    pp_json_end(&j);
    return 0;
}

int cmd_eval(int argc, char **argv)
{
    struct pp_train_options train = pp_cli_train_options();
    const char *weights = NULL;
    struct pp_cli_settings settings = {0};
    struct pp_evaluation e = {.threshold = 0.5};
    int json = 0;
    const struct pp_cli_option options[] = {
        {"checkpoint", 0, PP_CLI_STRING, &weights, "PATH",
         "a checkpoint, a run, or weights from elsewhere"},
        {"predictions", 0, PP_CLI_STRING, &e.predictions, "FILE.csv",
         "write label, prediction, logits, probabilities"},
        {"threshold", 0, PP_CLI_AMOUNT, &e.threshold, "P",
         "train.loss = bce: yes above this probability; 0.5"},
        {"format", 0, PP_CLI_CHOICE, &json, "text|json", "how to print; text"},
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_eval, options, &settings, words, 1));
    bool is_run = false;
    PP_TRY(pp_cli_is_run(words[0], &is_run));
    weights = !weights && is_run ? words[0] : weights;
    if (words[0] && !weights)
        return pp_cli_refuse_run(words[0], "add --checkpoint, or name a run");
    if (!words[0] || !weights || !weights[0]) {
        return pp_fail(PP_EUSAGE, "name a run, or a config and a checkpoint. For example: "
                                  "ppcli eval runs/a, or ppcli eval mnist.ini --checkpoint runs/a");
    }
    if (e.predictions && !pp_text_ends(e.predictions, ".csv")) {
        return pp_fail(PP_EUSAGE, "--predictions %s: the name of the file must end in .csv",
                       e.predictions);
    }
    if (e.threshold >= 1)
        return pp_fail(PP_EUSAGE, "--threshold needs a probability below 1");
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_TRY(pp_cli_load_config(words[0], &settings, &cfg));
    struct pp_start start;
    int rc = pp_start_begin(words[0], cfg, pp_cli_given(), &train, &start);
    if (start.works)
        rc = pp_evaluate(cfg, &train, weights, &e, &start.speaks);
    if (start.works && rc == 0 && start.speaks)
        rc = json ? print_json(&e, cfg) : print_text(&e, cfg->train.loss);
    pp_outcome_destroy(&e.outcome);
    return pp_cli_end(&start, cfg, rc);
}
