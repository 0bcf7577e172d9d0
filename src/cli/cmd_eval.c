/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli eval: how good are the weights of a checkpoint? */
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/json.h"
#include "ppcli/text.h"
#include "command.h"
#include "start.h"

static void help(FILE *f)
{
    fputs("  ppcli eval mnist.ini --checkpoint runs/a                 its newest checkpoint\n"
          "  ppcli eval mnist.ini --checkpoint weights.safetensors    weights from elsewhere\n"
          "  ppcli eval mnist.ini --checkpoint runs/a --stages 4      on four ranks\n"
          "\n"
          "Computes accuracy and loss of the weights on the test set of the config. The result is\n"
          "the same for any number of stages. Trains nothing and writes nothing but the file of\n"
          "--predictions.\n",
          f);
}

static void print_text(const struct pp_evaluation *e)
{
    char from[PP_PATH_MAX];
    printf("test accuracy    %.4f   (loss %.4f, %d samples)\n", e->accuracy, e->loss, e->samples);
    printf("weights_sha256   %s\n", e->weights_sha256);
    printf("checkpoint       %s\n", pp_text_shown(e->from, from, sizeof(from)));
}

static void print_json(const struct pp_evaluation *e, const struct pp_config *cfg)
{
    struct pp_json j;
    pp_json_init(&j, stdout, 2);
    pp_json_object(&j, NULL);
    pp_json_int(&j, "schema", 1);
    pp_json_str(&j, "checkpoint", e->from);
    pp_json_dbl(&j, "test_accuracy", e->accuracy);
    pp_json_dbl(&j, "test_loss", e->loss);
    pp_json_int(&j, "test_samples", e->samples);
    pp_json_str(&j, "dataset", cfg->data.dataset);
    pp_json_str(&j, "weights_sha256", e->weights_sha256);
    pp_json_end(&j);
}

static int run(int argc, char **argv)
{
    struct pp_train_options train = {.out = stdout};
    const char *weights = NULL;
    struct pp_cli_settings settings = {0};
    struct pp_evaluation e = {0};
    int json = 0;
    const struct pp_cli_option options[] = {
        {"checkpoint", 0, PP_CLI_STRING, &weights, "PATH",
         "checkpoint, run folder or safetensors file"},
        {"predictions", 0, PP_CLI_STRING, &e.predictions, "FILE.csv",
         "write label, prediction and logits of each test sample"},
        {"format", 0, PP_CLI_CHOICE, &json, "text|json", "how to print; text"},
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_eval, options, &settings, words, 1));
    if (!words[0] || !weights || !weights[0]) {
        return pp_fail(PP_EUSAGE, "evaluate what? For example: ppcli eval mnist.ini "
                                  "--checkpoint runs/a");
    }
    size_t n = e.predictions ? strlen(e.predictions) : 0;
    if (e.predictions && (n < 5 || strcmp(e.predictions + n - 4, ".csv") != 0)) {
        return pp_fail(PP_EUSAGE, "--predictions %s: the name of the file must end in .csv",
                       e.predictions);
    }
    struct pp_config *cfg = NULL;
    PP_TRY(pp_cli_load_config(words[0], &settings, &cfg));
    struct start start;
    int rc = start_begin(words[0], cfg, &train, &start);
    if (start.works)
        rc = pp_evaluate(cfg, &train, weights, &e, &start.speaks);
    if (start.works && rc == 0 && start.speaks) {
        if (json)
            print_json(&e, cfg);
        else
            print_text(&e);
    }
    rc = start_end(&start, cfg, rc);
    pp_config_destroy(&cfg);
    return rc;
}

const struct pp_command command_eval = {
    .name = "eval",
    .summary = "test the weights of a checkpoint",
    .words = "CONFIG",
    .without = "epochs max-steps optimizer lr dir log-every",
    .run = run,
    .help = help,
};
