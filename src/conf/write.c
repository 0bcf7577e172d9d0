/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the config as text: canonical values, the resolved INI that loads back to the same values,
 * and the hash over everything that decides the numbers of a run.
 */
#include "conf.h"

#include <string.h>

#include "ppcli/base/base.h"

int pp_config_key_count(void)
{
    return conf_option_count();
}

const char *pp_config_key_name(int i)
{
    return conf_option(i)->name;
}

int pp_config_key_value(const struct pp_config *cfg, int i, char *out, size_t bytes)
{
    size_t n = conf_value_print(conf_option(i), cfg, out, bytes);
    if (n >= bytes) {
        return pp_fail(PP_ECONFIG, "%s: the value is %zu bytes, too long to show",
                       conf_option(i)->name, n);
    }
    return 0;
}

int pp_config_write(const struct pp_config *cfg, FILE *f)
{
    PP_TAKE(char, value, PP_CONFIG_VALUE_MAX);
    char hash[65];
    PP_TRY(pp_config_hash(cfg, hash));
    fprintf(f,
            "; every key of a ppcli run and where its value came from; train it again with\n"
            ";   ppcli train THIS-FILE\n"
            "; config hash %s\n",
            hash);
    const char *section = "";
    for (int i = 0; i < conf_option_count(); i++) {
        const struct conf_option *o = conf_option(i);
        const char *origin = pp_config_origin(cfg, o->name);
        PP_TRY(pp_config_key_value(cfg, i, value, PP_CONFIG_VALUE_MAX));
        if (strcmp(section, o->section) != 0) {
            fprintf(f, "\n[%s]\n", o->section);
            section = o->section;
        }
        fprintf(f, "; %s%s\n", strcmp(origin, "default") == 0 ? "" : "from ", origin);
        fprintf(f, "%s =%s%s\n", o->key, value[0] ? " " : "", value);
    }
    if (fflush(f) != 0 || ferror(f))
        return pp_fail_errno(PP_EIO, "cannot write the resolved config");
    return 0;
}

int pp_config_text(const struct pp_config *cfg, char **out)
{
    size_t bytes;
    FILE *f = open_memstream(out, &bytes);
    if (!f)
        return pp_fail_errno(PP_ERESOURCE, "cannot write the config into memory");
    int rc = pp_config_write(cfg, f);
    PP_TRY(pp_text_close(f, out, "the config"));
    return rc;
}

int pp_config_write_same(const struct pp_config *cfg, FILE *f)
{
    PP_TAKE(char, value, PP_CONFIG_VALUE_MAX);
    for (int i = 0; i < conf_option_count(); i++) {
        if (conf_option(i)->apart)
            continue;
        PP_TRY(pp_config_key_value(cfg, i, value, PP_CONFIG_VALUE_MAX));
        fprintf(f, "%s = %s\n", conf_option(i)->name, value);
    }
    return 0;
}

int pp_config_hash(const struct pp_config *cfg, char out[65])
{
    PP_TAKE(char, value, PP_CONFIG_VALUE_MAX);
    uint8_t digest[PP_SHA256_BYTES];
    struct pp_sha256 sha;
    pp_sha256_init(&sha);
    for (int i = 0; i < conf_option_count(); i++) {
        const struct conf_option *o = conf_option(i);
        if (!o->numbers)
            continue;
        conf_value_print(o, cfg, value, PP_CONFIG_VALUE_MAX);
        pp_sha256_update(&sha, o->name, strlen(o->name));
        pp_sha256_update(&sha, "=", 1);
        const char *counts = conf_option_keeps_bits(cfg, o) ? o->def : value;
        pp_sha256_update(&sha, counts, strlen(counts));
        pp_sha256_update(&sha, "\n", 1);
    }
    pp_sha256_final(&sha, digest);
    pp_sha256_hex(digest, out);
    return 0;
}

int pp_config_copy(const struct pp_config *cfg, struct pp_config **out)
{
    PP_ALLOC(*out, 1);
    **out = *cfg;
    (*out)->source = NULL;
    return 0;
}

int pp_config_with(const struct pp_config *cfg, const char *key, const char *value,
                   struct pp_config *out)
{
    char why[CONF_WHY_MAX];
    int option = conf_option_index(key);
    pp_assert(option >= 0);
    *out = *cfg;
    out->source = NULL;
    if (conf_value_parse(conf_option(option), value, "/", NULL, out, why) < 0)
        return pp_fail(PP_ECONFIG, "%s: %s", key, why);
    return 0;
}

void pp_config_number(double value, char *out, size_t bytes)
{
    struct conf_text text = {.out = out, .bytes = bytes};
    conf_float_print(value, &text);
}
