/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli report: run folders, traces and results of bench as one HTML page, or one picture of
 * them; any number of run folders as a table. */
#include <string.h>
#include <sys/stat.h>

#include "ppcli/base/files.h"
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

int cmd_report(int argc, char **argv)
{
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
    for (; rc == 0 && words[v.n]; v.n++)
        rc = pp_report_open(words[v.n], &runs[v.n]);
    if (rc == 0)
        rc = write_result(&v, words[v.n - 1], output);
    for (int i = 0; i < v.n; i++)
        pp_report_close(&runs[i]);
    return rc;
}
