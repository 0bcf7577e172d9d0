/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli report: run folders and traces as one HTML page. */
#include <string.h>
#include <sys/stat.h>

#include "ppcli/err.h"
#include "ppcli/io.h"
#include "ppcli/report.h"
#include "ppcli/text.h"
#include "command.h"

static void help(FILE *f)
{
    fputs(
        "  ppcli report runs/mnist-20260131-120000      write report.html into the run folder\n"
        "  ppcli report runs/a -o - > page.html         to standard output\n"
        "  ppcli report runs/a runs/b runs/c            runs compared on one page\n"
        "  ppcli report trace.json                      one step of a trace of train or plan\n"
        "\n"
        "Writes one HTML file that needs no network, and prints its path. It shows results,\n"
        "curves, one step of the pipeline measured and simulated (zoom with the wheel, drag,\n"
        "hover), time and memory of every rank, the config with its origins, and the environment.\n"
        "A run that was stopped or is still running is shown as far as it got.\n"
        "The page of several runs is compare.html in the folder of the last one.\n",
        f);
}

static int write_page(struct pp_report *const *runs, int n, const char *path)
{
    if (strcmp(path, "-") == 0)
        return pp_report_write(runs, n, stdout);
    struct pp_file_write w;
    PP_TRY(pp_file_create(path, &w));
    int rc = pp_report_write(runs, n, w.f);
    if (rc < 0) {
        pp_file_abandon(&w);
        return rc;
    }
    PP_TRY(pp_file_commit(&w));
    char shown[PP_PATH_MAX];
    puts(pp_text_shown(path, shown, sizeof(shown)));
    return 0;
}

/* Where the page goes when nobody says it: into the folder of the last run, beside a trace. */
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

static int run(int argc, char **argv)
{
    const char *output = NULL;
    bool compare = false;
    const struct pp_cli_option options[] = {
        {"output", 'o', PP_CLI_STRING, &output, "FILE", "where to write; - is standard output"},
        {"compare", 0, PP_CLI_FLAG, &compare, NULL, "require at least two runs"},
        {0},
    };
    const char *words[PP_REPORT_RUNS_MAX];
    struct pp_report *runs[PP_REPORT_RUNS_MAX] = {NULL};
    char path[PP_PATH_MAX];
    int n = 0, rc = 0;
    PP_TRY(pp_cli_parse(argc, argv, &command_report, options, NULL, words, PP_REPORT_RUNS_MAX));
    if (!words[0]) {
        return pp_fail(PP_EUSAGE, "report on which run? Give its folder, as in: ppcli report "
                                  "runs/mnist-20260131-120000");
    }
    if (compare && !words[1])
        return pp_fail(PP_EUSAGE, "--compare wants at least two run folders");
    for (; rc == 0 && n < PP_REPORT_RUNS_MAX && words[n]; n++)
        rc = pp_report_open(words[n], &runs[n]);
    if (rc == 0 && !output) {
        rc = default_path(words[n - 1], n > 1, path);
        output = path;
    }
    if (rc == 0)
        rc = write_page(runs, n, output);
    for (int i = 0; i < n; i++)
        pp_report_close(&runs[i]);
    return rc;
}

const struct pp_command command_report = {
    .name = "report",
    .summary = "show a run, or compare several, as one HTML page",
    .words = "RUN [RUN...]",
    .one_rank = true,
    .run = run,
    .help = help,
};
