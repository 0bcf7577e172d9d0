/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.devices: "auto", or numbers and ranges such as "0 2-3" (blanks and commas separate), in the
 * order in which ranks take the devices. Which of them there are is a question for src/dev.
 */
#include "conf.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool take_number(const char **p, int *out)
{
    int n = 0;
    if (!isdigit((unsigned char)**p)) {
        return false;
    }
    for (; isdigit((unsigned char)**p); (*p)++) {
        n = 10 * n + (**p - '0');
        if (n >= PP_DEVICES_MAX) {
            return false;
        }
    }
    *out = n;
    return true;
}

/* "2" or "2-3", up to a blank, a comma or the end. */
static bool take_entry(const char **p, int *first, int *last)
{
    if (!take_number(p, first)) {
        return false;
    }
    *last = *first;
    if (**p == '-') {
        (*p)++;
        if (!take_number(p, last)) {
            return false;
        }
    }
    return *first <= *last && (**p == '\0' || strchr(" \t,", **p));
}

int conf_devices_parse(const char *text, struct pp_config *cfg, char why[CONF_WHY_MAX])
{
    int list[PP_DEVICES_MAX], n = 0;
    bool seen[PP_DEVICES_MAX] = {false};
    const char *p = strcmp(text, "auto") == 0 ? "" : text;
    while (*p) {
        const char *entry = p;
        int first, last;
        if (!take_entry(&p, &first, &last)) {
            snprintf(why, CONF_WHY_MAX,
                     "'%s' is not a device; write auto, or numbers and ranges of 0 to %d such as "
                     "0 2-3",
                     conf_quote(entry, strcspn(entry, " \t,")).s, PP_DEVICES_MAX - 1);
            return -1;
        }
        for (int d = first; d <= last; d++) {
            if (seen[d]) {
                snprintf(why, CONF_WHY_MAX,
                         "device %d is there twice; write each once: with fewer devices than ranks "
                         "the ranks share them",
                         d);
                return -1;
            }
            seen[d] = true;
            list[n++] = d;
        }
        p += strspn(p, " \t");
        if (*p == ',') {
            p++;
            p += strspn(p, " \t");
            if (*p == '\0') {
                snprintf(why, CONF_WHY_MAX, "nothing after the last comma");
                return -1;
            }
        }
    }
    memset(cfg->run.devices, 0, sizeof(cfg->run.devices));
    for (int i = 0; i < n; i++) {
        cfg->run.devices[i] = list[i];
    }
    cfg->run.n_devices = n;
    return 0;
}

int conf_devices_print(const struct pp_config *cfg, char *out, size_t bytes)
{
    const int *list = cfg->run.devices;
    size_t used = (size_t)snprintf(out, bytes, "%s", cfg->run.n_devices == 0 ? "auto" : "");
    for (int i = 0, run; i < cfg->run.n_devices && used < bytes; i += run) {
        for (run = 1; i + run < cfg->run.n_devices && list[i + run] == list[i] + run; run++) {
        }
        run = run == 2 ? 1 : run; /* "0 1", but "0-2" */
        const char *space = i > 0 ? " " : "";
        used += (size_t)(run > 1 ? snprintf(out + used, bytes - used, "%s%d-%d", space, list[i],
                                            list[i] + run - 1)
                                 : snprintf(out + used, bytes - used, "%s%d", space, list[i]));
    }
    return used < bytes ? 0 : -1;
}
