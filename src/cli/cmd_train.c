/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli train: load the config, start the ranks, report. */
#include <string.h>

#include "command.h"
#include "ppcli/base/cores.h"

#define DIGITS_MIN 8

/* Checks that a word is a digest as train prints it, or its first digits. */
static int check_digest(const char *word)
{
    size_t n = strlen(word);
    return strspn(word, "0123456789abcdef") == n && n >= DIGITS_MIN && n < PP_SHA256_HEX
               ? 0
               : pp_fail(
                     PP_EUSAGE,
                     "--expect %s: not a digest; give the weights_sha256 that train printed, or "
                     "at least its first %d digits",
                     word, DIGITS_MIN);
}

int cmd_train(int argc, char **argv)
{
    struct pp_train_options train = pp_cli_train_options();
    struct pp_cli_settings settings = {0};
    const char *steps = NULL;
    char allow[PP_CLI_WORDS_BYTES] = "";
    const struct pp_cli_option options[] = {
        {"overwrite", 0, PP_CLI_FLAG, &train.overwrite, NULL, "use a run folder that is not empty"},
        {"resume", 0, PP_CLI_OPTIONAL, &train.resume, "auto|PATH",
         "continue; auto: the newest checkpoint, if any"},
        {"allow", 0, PP_CLI_WORDS, allow, "KEY,...",
         "with --resume: keys that may have other values"},
        {"expect", 0, PP_CLI_STRING, &train.expect, "SHA",
         "digest of the final weights, or exit 81"},
        {"trace", 0, PP_CLI_STRING, &train.trace.file, "FILE",
         "record what every rank did, for ui.perfetto.dev"},
        {"trace-steps", 0, PP_CLI_STRING, &steps, "A-B", "steps to record; the first 50"},
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_train, options, &settings, words, 1));
    if (!words[0])
        return pp_fail(PP_EUSAGE, "name a config. For example: ppcli train mnist.ini");
    if (allow[0] && !train.resume)
        return pp_fail(PP_EUSAGE, "--allow %s says what may change with --resume; add --resume",
                       allow);
    PP_TRY(allow[0] ? pp_config_check_allow(allow) : 0);
    train.allow = allow;
    PP_TRY(train.expect ? check_digest(train.expect) : 0);
    PP_TRY(pp_cli_trace_steps(train.trace.file, steps, &train.trace.first, &train.trace.last));
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_TRY(pp_cli_load_config(words[0], &settings, &cfg));
    struct pp_start start;
    train.stop = &pp_process_stop;
    train.save = &pp_process_save;
    if (cfg->run.dir[0]) /* otherwise nothing is saved, and signals have their usual effect */
        pp_signals_catch("ppcli: stopping after this step and saving; Ctrl-C again quits without "
                         "saving\n"); /* earlier than MPI, whose start takes a while */
    int rc = pp_start_begin(words[0], cfg, pp_cli_given(), &train, &start);
    if (start.works)
        rc = pp_train(cfg, &train, &start.speaks);
    return pp_cli_end(&start, cfg, rc);
}
