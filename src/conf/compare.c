/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares two configs of one run: which keys differ and can change its numbers, and which of them
 * a resumed run may change if asked to.
 */
#include "conf.h"

#include <string.h>

#include "ppcli/base/base.h"

/* Returns whether the option cannot change the result because sums are exact: with train.exact they
 * have the same bits whatever train.coalesce is. */
bool conf_option_keeps_bits(const struct pp_config *cfg, const struct conf_option *o)
{
    return cfg->train.exact && strcmp(o->name, "train.coalesce") == 0;
}

/* Returns whether the option has no effect in this config. An option that only lacks another
 * run.backend counts as having an effect. */
static bool has_no_effect(const struct pp_config *cfg, const struct conf_option *o)
{
    const struct conf_need *need = conf_unmet_need(cfg, o);
    return conf_option_keeps_bits(cfg, o) || (need && strcmp(need->key, "run.backend") != 0);
}

void pp_config_written(const char *text, const char *name, char *out, size_t bytes)
{
    const struct conf_option *o = conf_option(conf_option_index(name));
    size_t section = strlen(o->section), key = strlen(o->key);
    bool inside = false;
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        if (line[0] == '[') {
            inside = n == section + 2 && strncmp(line + 1, o->section, section) == 0;
        } else if (inside && n > key + 1 && strncmp(line, o->key, key) == 0 &&
                   strncmp(line + key, " =", 2) == 0) {
            const char *value = line + key + 2;
            size_t left = n - key - 2;
            if (left > 0 && *value == ' ') {
                value++;
                left--;
            }
            snprintf(out, bytes, "%.*s", (int)left, value);
            return;
        }
        line += line[n] ? n + 1 : n;
    }
    snprintf(out, bytes, "%s", o->def);
}

int pp_config_compare(const struct pp_config *cfg, const char *text,
                      void (*visit)(void *ctx, const char *key, const char *there,
                                    const char *here),
                      void *ctx)
{
    PP_TAKE(char, here, PP_CONFIG_VALUE_MAX);
    PP_TAKE(char, there, PP_CONFIG_VALUE_MAX);
    for (int i = 0; i < conf_option_count(); i++) {
        const struct conf_option *o = conf_option(i);
        if (!o->numbers || has_no_effect(cfg, o))
            continue;
        conf_value_print(o, cfg, here, PP_CONFIG_VALUE_MAX);
        pp_config_written(text, o->name, there, PP_CONFIG_VALUE_MAX);
        if (strcmp(here, there) != 0)
            visit(ctx, o->name, there, here);
    }
    return 0;
}

/* ---- keys that --allow may name */

/* Returns whether a resumed run may change the key without --allow, because resuming compares it in
 * its own way (src/train/resume.c). */
static bool is_free(const char *key)
{
    return pp_has_word(
        "train.epochs train.max_steps pipeline.replicas data.test_samples model.init", key);
}

bool pp_config_may_allow(const char *key)
{
    int i = conf_option_index(key);
    return i >= 0 && conf_option(i)->allowed;
}

static int check_allowed(const char *word)
{
    int i = conf_option_index(word);
    if (i < 0)
        return pp_fail(PP_EUSAGE, "--allow %s: unknown key%s", word, conf_key_hint(word).s);
    const struct conf_option *o = conf_option(i);
    if (o->allowed)
        return 0;
    if (!o->numbers || is_free(word)) {
        return pp_fail(PP_EUSAGE,
                       "--allow %s: not needed, a resumed run may change this key as it is", word);
    }
    return pp_fail(PP_EUSAGE,
                   "--allow %s: it cannot change in the middle of a run. For a new run with the "
                   "weights so far: --set train.init=RUN and another --dir, without --resume",
                   word);
}

int pp_config_check_allow(const char *words)
{
    PP_TAKE(char, copy, strlen(words) + 1);
    strcpy(copy, words);
    for (char *rest = copy, *word; (word = strsep(&rest, ","));) {
        word += strspn(word, " ");
        word[strcspn(word, " ")] = '\0';
        if (!word[0])
            return pp_fail(PP_EUSAGE, "--allow needs keys separated by commas, not '%s'", words);
        PP_TRY(check_allowed(word));
    }
    return 0;
}

bool pp_config_allows(const char *words, const char *key)
{
    size_t n = strlen(key);
    for (const char *at = words; at && (at = strstr(at, key)); at += n) {
        bool begins = at == words || strchr(", ", at[-1]);
        if (begins && (at[n] == '\0' || strchr(", ", at[n])))
            return true;
    }
    return false;
}
