/* SPDX-License-Identifier: Apache-2.0 */
/* --set SECTION.KEY=VALUE, one a line: an accepted value prints as text that gives it again. */
#include "fuzz.h"
#include "ppcli/conf/config.h"
#include "command.h"

#define LINES_MAX 8

static int split(char *text, struct pp_setting out[LINES_MAX])
{
    int n = 0;
    for (char *line = strtok(text, "\n"); line && n < LINES_MAX; line = strtok(NULL, "\n")) {
        char *equals = strchr(line, '=');
        if (equals) {
            *equals = '\0';
            out[n++] = (struct pp_setting){.key = line, .value = equals + 1, .said = "--set"};
        }
    }
    return n;
}

static void same_again(const struct pp_config *a, const struct pp_setting *items, int n)
{
    static char was[LINES_MAX][PP_CONFIG_VALUE_MAX], is[PP_CONFIG_VALUE_MAX];
    struct pp_setting again[LINES_MAX];
    PP_OWN(pp_config_destroy) struct pp_config *b = NULL;
    int at[LINES_MAX];
    for (int k = 0; k < n; k++) {
        at[k] = 0;
        while (strcmp(pp_config_key_name(at[k]), items[k].key) != 0)
            at[k]++;
        pp_assert(pp_config_key_value(a, at[k], was[k], sizeof(was[k])) == 0);
        again[k] = (struct pp_setting){items[k].key, was[k], "--set"};
    }
    pp_assert(pp_config_load(NULL, again, n, pp_cli_names(), &b) == 0);
    for (int k = 0; k < n; k++) {
        pp_assert(pp_config_key_value(b, at[k], is, sizeof(is)) == 0);
        pp_assert(strcmp(was[k], is) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pp_setting items[LINES_MAX];
    struct pp_config *cfg = NULL;
    char *text = strndup((const char *)data, size);
    pp_assert(text != NULL);
    int n = split(text, items);
    int rc = pp_config_load(NULL, items, n, pp_cli_names(), &cfg);
    if (rc < 0)
        fuzz_refused(rc);
    else
        same_again(cfg, items, n);
    pp_config_destroy(&cfg);
    free(text);
    return 0;
}
