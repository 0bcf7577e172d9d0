/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli env: this build and this machine, in one page for a bug report; or the hosts of a run. */
#include <stdlib.h>
#include <string.h>

#include "ppcli/show/results.h"
#include "build_info.h"
#include "command.h"
#include "commit.h"

/* Checks hosts as the preflight of a run does, and prints what it found; nothing is run. "-" for
 * `hosts` answers another host's questions instead. */
static int ask_hosts(const char *hosts, const char *word, bool json)
{
    struct pp_cli_settings settings = {.items = {{"run.hosts", hosts, "--hosts"}}, .n = 1};
    static struct pp_hosts list; /* too large for a small stack */
    PP_OWN(pp_preflight_fini) struct pp_preflight p = {0};
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    char path[PP_PATH_MAX];
    if (strcmp(hosts, "-") == 0)
        return pp_hosts_answer();
    if (word)
        PP_TRY(pp_cli_find_config(word, path));
    PP_TRY(pp_cli_load_config(word ? path : NULL, &settings, &cfg));
    PP_TRY(pp_hosts_parse(hosts, 0, &list));
    int rc = pp_preflight(cfg, word ? path : NULL, &list, true, &p);
    if (p.hosts)
        (void)pp_preflight_print(&p, json, stdout);
    return rc;
}

int cmd_env(int argc, char **argv)
{
    int json = 0;
    const char *hosts = NULL, *words[1];
    const struct pp_cli_option options[] = {
        {"hosts", 0, PP_CLI_STRING, &hosts, "H,...|file:PATH",
         "instead: can a run of CONFIG over these begin?"},
        {"format", 0, PP_CLI_CHOICE, &json, "text|json", "how to print; text"},
        {0},
    };
    if (argc > 4 && strcmp(argv[1], "--keep") == 0) /* mpirun is the caller: see launch.c */
        return pp_supervise_orted(argv[2], atof(argv[3]), argv + 4);
    PP_TRY(pp_cli_parse(argc, argv, &command_env, options, NULL, words, 1));
    if (hosts)
        return ask_hosts(hosts, words[0], json);
    if (words[0])
        return pp_fail(PP_EUSAGE, "unexpected word '%s': a config is for --hosts", words[0]);
    const struct pp_build build = {PP_VERSION, PP_COMMIT, build_facts()};
    return pp_build_print(&build, json, stdout);
}
