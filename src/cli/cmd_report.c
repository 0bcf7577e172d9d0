/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli report: run folders, traces and results of bench as one HTML page, or one picture of
 * them; any number of run folders as a table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ppcli/base/files.h"
#include "ppcli/ckpt/checkpoint.h"
#include "ppcli/show/report.h"
#include "ppcli/base/base.h"
#include "command.h"

/* Writes the default path of the page: in the folder of the last run, or next to a file. */
static int default_path(const char *word, bool compare, char out[PP_PATH_MAX])
{
    struct stat st;
    size_t n = strlen(word);
    if (stat(word, &st) == 0 && !S_ISDIR(st.st_mode))
        return pp_path_format(out, "%s.html", word);
    while (n > 1 && word[n - 1] == '/')
        n--;
    return pp_path_format(out, "%.*s/%s.html", (int)n, word, compare ? "compare" : "report");
}

static int write_result(const struct pp_report_view *v, const char *word, const char *output)
{
    char path[PP_PATH_MAX];
    if (v->figure >= 0)
        return pp_cli_name_file(pp_picture_write(output, NULL, pp_report_draw, v), output);
    if (!output)
        PP_TRY(default_path(word, v->n > 1, path));
    output = output ? output : path;
    return pp_cli_name_file(pp_file_draw(output, pp_report_write, v), output);
}

struct table {
    const char *const *paths;
    int n, form;
};

static int draw_table(const void *ctx, FILE *f)
{
    const struct table *t = ctx;
    return pp_runs_print(t->paths, t->n, (enum pp_listing_form)t->form, f);
}

static int write_table(const struct table *t, const char *output)
{
    return output ? pp_cli_name_file(pp_file_draw(output, draw_table, t), output)
                  : draw_table(t, stdout);
}

static int check_table(const struct pp_report_view *v, bool compare)
{
    return v->figure < 0 && !compare
               ? 0
               : pp_fail(PP_EUSAGE, "--table cannot be combined with --figure or --compare");
}

/* ---- the test of a single run, made again for its page */

#define TEST_FLOPS 2e11 /* a few seconds on a few cores */

enum test_when {
    TEST_AUTO, /* of a finished run, if it takes a few seconds */
    TEST_ON,
    TEST_OFF
};

static int judge_run(const char *run, enum test_when when, struct pp_outcome **out)
{
    char config[PP_PATH_MAX];
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_OWN(pp_predictor_destroy) struct pp_predictor *p = NULL;
    PP_TRY(pp_run_dir_config(run, config));
    if (!config[0])
        return pp_fail(PP_ENOINPUT, "%s is not a run folder", run);
    PP_TRY(pp_config_load(config, NULL, 0, pp_cli_names(), &cfg));
    PP_TRY(pp_predictor_create(cfg, run, false, &p));
    return pp_predictor_test(p, when == TEST_ON ? HUGE_VAL : TEST_FLOPS, out);
}

/* Makes the JSON of a test; *out is NULL if there is none. With TEST_AUTO no failure is one of the
 * report. */
static int test_run(const char *run, enum test_when when, char **out)
{
    char summary[PP_PATH_MAX];
    struct stat st;
    size_t bytes = 0;
    PP_OWN(pp_outcome_destroy) struct pp_outcome *o = NULL;
    PP_TRY(pp_path_format(summary, "%s/summary.json", run));
    if (when == TEST_OFF || (when == TEST_AUTO && stat(summary, &st) != 0))
        return 0;
    int rc = judge_run(run, when, &o);
    if (when == TEST_AUTO && rc < 0) {
        pp_log_debug("no test for the page: %s", pp_error_get()->text);
        pp_error_clear();
        return 0;
    }
    PP_TRY(rc);
    FILE *f = o ? open_memstream(out, &bytes) : NULL;
    if (!o || !f)
        return o ? pp_fail(PP_ERESOURCE, "report: out of memory") : 0;
    struct pp_json j = pp_json_begin(f, 0);
    rc = pp_outcome_json(o, &j);
    pp_json_end(&j);
    int closed = pp_text_close(f, out, "report");
    return rc < 0 ? rc : closed;
}

static int open_runs(const char *const *words, int n, struct pp_report **runs)
{
    for (int i = 0; i < n; i++)
        PP_TRY(pp_report_open(words[i], &runs[i]));
    return 0;
}

int cmd_report(int argc, char **argv)
{
    int test = TEST_AUTO;
    char *judged = NULL;
    const char *output = NULL;
    bool compare = false;
    struct pp_report *runs[PP_REPORT_RUNS_MAX] = {NULL};
    struct pp_report_view v = {.runs = runs, .figure = -1, .over = -1};
    struct table table = {.form = -1};
    const struct pp_cli_option options[] = {
        {"output", 'o', PP_CLI_STRING, &output, "FILE", "where to write; - is standard output"},
        {"compare", 0, PP_CLI_FLAG, &compare, NULL, "require at least two runs"},
        {"figure", 0, PP_CLI_CHOICE, &v.figure, PP_FIGURES,
         "one picture instead: -o FILE.svg, .pdf or .png"},
        {"over", 0, PP_CLI_CHOICE, &v.over, PP_SWEEP_KEYS, "a result of bench: what is along x"},
        {"table", 0, PP_CLI_CHOICE, &table.form, "csv|markdown|text",
         "runs as rows; mean, deviation over seeds"},
        {"test", 0, PP_CLI_CHOICE, &test, "auto|on|off", "matrix and mistakes; auto: if quick"},
        {"width", 0, PP_CLI_INT, &v.look.width, "N", "--figure: pixels, 96 are an inch"},
        {"title", 0, PP_CLI_STRING, &v.look.title, "TEXT",
         "--figure: instead of its own; '': none"},
        {0},
    };
    int rc = 0;
    PP_TAKE(const char *, words, argc + 1);
    PP_TRY(pp_cli_parse(argc, argv, &command_report, options, NULL, words, argc));
    if (!words[0]) {
        return pp_fail(
            PP_EUSAGE,
            "name the folder of a run. For example: ppcli report runs/mnist-20260131-120000");
    }
    if (compare && !words[1])
        return pp_fail(PP_EUSAGE, "--compare needs at least two run folders");
    if (v.figure < 0 && (v.over >= 0 || v.look.title || v.look.width))
        return pp_fail(PP_EUSAGE, "--over, --width and --title need --figure " PP_FIGURES);
    PP_TRY(pp_look_check(&v.look));
    for (table.paths = words; words[table.n];)
        table.n++;
    if (table.form >= 0) {
        PP_TRY(check_table(&v, compare));
        return write_table(&table, output);
    }
    if (table.n > PP_REPORT_RUNS_MAX) {
        return pp_fail(PP_EUSAGE,
                       "a page compares at most %d runs, not %d; --table csv lists any "
                       "number",
                       PP_REPORT_RUNS_MAX, table.n);
    }
    v.n = table.n;
    rc = open_runs(words, v.n, runs);
    if (rc == 0 && v.n == 1 && v.figure < 0)
        rc = test_run(words[0], (enum test_when)test, &judged);
    v.test = judged;
    if (rc == 0)
        rc = write_result(&v, words[v.n - 1], output);
    free(judged);
    for (int i = 0; i < v.n; i++)
        pp_report_close(&runs[i]);
    return rc;
}
