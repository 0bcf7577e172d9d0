/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli diagnose: what the ranks of a run are doing or did last, and who holds the others up. */
#include <string.h>
#include <unistd.h>

#include "ppcli/watch/diagnose.h"
#include "ppcli/base/base.h"
#include "ppcli/pipe/layout.h"
#include "command.h"

/* Rebuilds the plan that the messages are about, from the config that the run has stored. If this
 * fails, a caller can still show everything else. */
static int rebuild_plan(const char *dir, struct pp_config **cfg, struct pp_run *run)
{
    char path[PP_PATH_MAX];
    PP_TRY(pp_path_format(path, "%s/config.resolved.ini", dir));
    PP_TRY(pp_config_load(path, NULL, 0, pp_cli_names(), cfg));
    return pp_run_prepare(*cfg, PP_RUN_EXPLAIN, run);
}

/* Reads why the watchdog ended the run, from the file that it left, up to the first empty line; ""
 * if it did not end the run. The file is right even if the ranks show another state, because they
 * may have continued for a moment afterwards. */
static void read_hang(const char *dir, char *out, size_t bytes)
{
    char path[PP_PATH_MAX];
    size_t n = 0;
    uint64_t whole = 0;
    FILE *f = NULL;
    if (pp_path_format(path, "%s/hang.txt", dir) == 0 && pp_file_open(path, &f, &whole) == 0) {
        n = fread(out, 1, bytes - 1, f);
        fclose(f);
    }
    pp_error_clear();
    out[n] = '\0';
    char *end = strstr(out, "\n\n");
    if (end)
        end[1] = '\0';
    for (char *rest = out, *line; (line = strsep(&rest, "\n"));) {
        pp_text_make_plain(line);
        if (rest)
            rest[-1] = '\n';
    }
}

/* Returns whether the run has ended without a summary, so that it did not do all of its steps. */
static bool is_unfinished(const char *dir, const struct pp_diagnosis *d)
{
    char path[PP_PATH_MAX];
    return !d->live && pp_path_format(path, "%s/summary.json", dir) == 0 && access(path, F_OK) != 0;
}

static int diagnose_run(const char *dir, bool json)
{
    static const size_t hang_bytes = 16384;
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_OWN(pp_run_fini) struct pp_run run = {0};
    struct pp_diagnosis d;
    struct pp_error why = {0};
    if (rebuild_plan(dir, &cfg, &run) < 0) {
        why = *pp_error_get();
        pp_error_clear();
    }
    PP_OWN_MEMORY char *hang = pp_alloc(hang_bytes, 1);
    double timeout = run.layout ? cfg->run.hang_timeout : 0;
    int rc = hang ? pp_diagnosis_open(&d, run.layout, timeout, dir) : PP_ERESOURCE;
    if (rc == 0) {
        if (why.text[0])
            pp_log_warn("the plan of this run cannot be rebuilt, so who waits for whom is a "
                        "guess: %s",
                        why.text);
        read_hang(dir, hang, hang_bytes);
        if (json) {
            pp_diagnosis_print_json(&d, dir, hang, stdout);
        } else {
            if (is_unfinished(dir, &d))
                puts("this run did not finish: it has no summary.json");
            if (hang[0])
                printf("the watchdog ended this run: %s", hang);
            else
                pp_diagnosis_print(&d, "", stdout);
            fputc('\n', stdout);
            pp_diagnosis_print_ranks(&d, stdout);
        }
        pp_diagnosis_fini(&d);
    }
    return rc;
}

int cmd_diagnose(int argc, char **argv)
{
    int json = 0;
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &json, "text|json", "how to print; text"},
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_diagnose, options, NULL, words, 1));
    if (!words[0])
        return pp_fail(PP_EUSAGE, "name the folder of a run: ppcli diagnose runs/NAME");
    return diagnose_run(words[0], json);
}
