/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli explain: what a config would do, before it is paid for. */
#include "ppcli/err.h"
#include "ppcli/mem.h"
#include "command.h"
#include "explain.h"

static void help(FILE *f)
{
    fputs(
        "  ppcli explain mnist.ini                  what would run\n"
        "  ppcli explain mnist.ini --stages 4       with other values\n"
        "  ppcli explain mnist.ini --format json    for other programs\n"
        "\n"
        "Shows every value of the config with its origin; the layers with shapes, parameters and\n"
        "flops; the stage of each layer; the bytes that cross each boundary; the exact memory of\n"
        "each rank; and the schedule as a picture. Needs no data set and starts no ranks.\n",
        f);
}

static int predict(struct explained *e)
{
    const struct pp_layout *l = e->run.layout;
    e->ranks = pp_alloc((size_t)l->stages, sizeof(*e->ranks));
    if (!e->ranks)
        return PP_ERESOURCE;
    struct pp_transport_caps caps = pp_run_caps(&e->run);
    for (int r = 0; r < l->stages; r++) {
        struct pp_exec_spec spec = {.layout = l, .rank = r, .caps = caps};
        PP_TRY(pp_exec_predict(&spec, &e->ranks[r]));
    }
    PP_TRY(pp_predict_flops(l, &e->bubble, e->advice));
    return pp_bubble_ideal(l->plans[0].plan, &e->ideal);
}

static int explain(struct pp_config *cfg, bool json)
{
    struct explained e = {0};
    int rc = pp_choose(cfg, PP_RUN_EXPLAIN, NULL);
    if (rc == 0)
        rc = pp_run_prepare(cfg, PP_RUN_EXPLAIN, &e.run);
    if (rc == 0)
        rc = predict(&e);
    if (rc == 0)
        rc = json ? explain_json(&e) : explain_text(&e);
    pp_free(e.ranks);
    pp_run_fini(&e.run);
    if (rc == PP_ECONFIG && pp_config_problem_count(cfg) > 0)
        return pp_cli_config_verdict(cfg);
    return rc;
}

static int run(int argc, char **argv)
{
    struct pp_cli_settings settings = {0};
    int json = 0;
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &json, "text|json", "how to print; text"},
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_explain, options, &settings, words, 1));
    if (!words[0])
        return pp_fail(PP_EUSAGE, "explain which config? For example: ppcli explain mnist.ini");
    struct pp_config *cfg = NULL;
    PP_TRY(pp_cli_load_config(words[0], &settings, &cfg));
    int rc = explain(cfg, json);
    pp_config_destroy(&cfg);
    return rc;
}

const struct pp_command command_explain = {
    .name = "explain",
    .summary = "show what a config would do: layers, stages, memory, schedule",
    .words = "CONFIG",
    .one_rank = true,
    .run = run,
    .help = help,
};
