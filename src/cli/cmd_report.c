/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli report: run folders as one HTML page. */
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/report.h"
#include "ppcli/text.h"
#include "command.h"

static void help(FILE *f)
{
    fputs("  ppcli report runs/mnist-20260131-120000      write report.html into the run folder\n"
          "  ppcli report runs/a -o - | less              to standard output\n"
          "  ppcli report --compare runs/a runs/b         two runs on one page\n"
          "\n"
          "The page needs no network and no script: accuracy, throughput and bubble, the curves,\n"
          "the measured pipeline above the simulated one, memory of every rank, the config with\n"
          "its origins, the environment. A run that was stopped or is still going is shown as far\n"
          "as it got. Prints the path of the page; with --compare it is the second run's\n"
          "compare.html unless -o says another.\n",
          f);
}

static int write_page(const struct pp_report *a, const struct pp_report *b, const char *path)
{
    if (strcmp(path, "-") == 0) {
        return b ? pp_report_compare(a, b, stdout) : pp_report_write(a, stdout);
    }
    struct pp_file_write w;
    PP_TRY(pp_file_create(path, &w));
    int rc = b ? pp_report_compare(a, b, w.f) : pp_report_write(a, w.f);
    if (rc < 0) {
        pp_file_abandon(&w);
        return rc;
    }
    PP_TRY(pp_file_commit(&w));
    char shown[PP_PATH_MAX];
    puts(pp_text_shown(path, shown, sizeof(shown)));
    return 0;
}

static int run(int argc, char **argv)
{
    const char *output = NULL;
    bool compare = false;
    const struct pp_cli_option options[] = {
        {"output", 'o', PP_CLI_STRING, &output, "FILE", "where to write; - is standard output"},
        {"compare", 0, PP_CLI_FLAG, &compare, NULL, "two runs on one page"},
        {0},
    };
    const char *words[2];
    bool done;
    PP_TRY(pp_cli_parse(argc, argv, &command_report, options, NULL, words, 2, &done));
    if (done) {
        return 0;
    }
    if (!words[0]) {
        return pp_fail(PP_EUSAGE, "report on which run? Give its folder, as in: ppcli report "
                                  "runs/mnist-20260131-120000");
    }
    if (compare && !words[1]) {
        return pp_fail(PP_EUSAGE, "--compare wants two run folders");
    }
    if (!compare && words[1]) {
        return pp_fail(PP_EUSAGE, "two run folders: did you mean 'ppcli report --compare %s %s'?",
                       words[0], words[1]);
    }
    struct pp_report *a = NULL, *b = NULL;
    char path[PP_PATH_MAX];
    int rc = pp_report_open(words[0], &a);
    if (rc == 0 && compare) {
        rc = pp_report_open(words[1], &b);
    }
    if (rc == 0 && !output) {
        const char *dir = compare ? words[1] : words[0];
        size_t n = strlen(dir);
        while (n > 1 && dir[n - 1] == '/') {
            n--;
        }
        rc = pp_path_format(path, "%.*s/%s.html", (int)n, dir, compare ? "compare" : "report");
        output = path;
    }
    if (rc == 0) {
        rc = write_page(a, b, output);
    }
    pp_report_close(&a);
    pp_report_close(&b);
    return rc;
}

const struct pp_command command_report = {
    .name = "report",
    .summary = "show a run, or compare two, as one HTML page",
    .words = "RUN [RUN2]",
    .one_rank = true,
    .run = run,
    .help = help,
};
