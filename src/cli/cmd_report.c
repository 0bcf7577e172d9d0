/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli report: run folders, traces and results of bench as one HTML page, or one picture of
 * them. */
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

int cmd_report(int argc, char **argv)
{
    const char *output = NULL;
    bool compare = false;
    struct pp_report *runs[PP_REPORT_RUNS_MAX] = {NULL};
    struct pp_report_view v = {.runs = runs, .figure = -1, .over = -1};
    const struct pp_cli_option options[] = {
        {"output", 'o', PP_CLI_STRING, &output, "FILE", "where to write; - is standard output"},
        {"compare", 0, PP_CLI_FLAG, &compare, NULL, "require at least two runs"},
        {"figure", 0, PP_CLI_CHOICE, &v.figure, PP_FIGURES,
         "one picture instead: -o FILE.svg, .pdf or .png"},
        {"over", 0, PP_CLI_CHOICE, &v.over, PP_SWEEP_KEYS, "a result of bench: what is along x"},
        {"width", 0, PP_CLI_INT, &v.look.width, "N", "--figure: pixels, 96 are an inch"},
        {"title", 0, PP_CLI_STRING, &v.look.title, "TEXT",
         "--figure: instead of its own; '': none"},
        {0},
    };
    const char *words[PP_REPORT_RUNS_MAX];
    int rc = 0;
    PP_TRY(pp_cli_parse(argc, argv, &command_report, options, NULL, words, PP_REPORT_RUNS_MAX));
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
    for (; rc == 0 && v.n < PP_REPORT_RUNS_MAX && words[v.n]; v.n++)
        rc = pp_report_open(words[v.n], &runs[v.n]);
    if (rc == 0)
        rc = write_result(&v, words[v.n - 1], output);
    for (int i = 0; i < v.n; i++)
        pp_report_close(&runs[i]);
    return rc;
}
