/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli report: run folders and traces as one HTML page. */
#include <string.h>
#include <sys/stat.h>

#include "ppcli/io.h"
#include "ppcli/report.h"
#include "ppcli/text.h"
#include "command.h"

static int write_page(struct pp_report *const *runs, int n, const char *path)
{
    if (strcmp(path, "-") == 0)
        return pp_report_write(runs, n, stdout);
    PP_OWN(pp_file_abandon) struct pp_file_write w = {.f = NULL};
    PP_TRY(pp_file_create(path, &w));
    PP_TRY(pp_report_write(runs, n, w.f));
    PP_TRY(pp_file_commit(&w));
    char shown[PP_PATH_MAX];
    puts(pp_text_shown(path, shown, sizeof(shown)));
    return 0;
}

/* Where the page goes when it is not given: into the folder of the last run, beside a trace. */
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

int cmd_report(int argc, char **argv)
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
        return pp_fail(
            PP_EUSAGE,
            "name the folder of a run. For example: ppcli report runs/mnist-20260131-120000");
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
