/* SPDX-License-Identifier: Apache-2.0 */
/* INI text: whatever is accepted prints as an INI that reads back as the same. */
#include "fuzz.h"
#include "ppcli/conf/config.h"
#include "command.h"

static struct fuzz_file first = {-1, ""}, second = {-1, ""};

static char *print(const struct pp_config *cfg, size_t *out_bytes)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, out_bytes);
    pp_assert(f != NULL);
    int rc = pp_config_write(cfg, f);
    fclose(f);
    if (rc < 0) {
        fuzz_refused(rc);
        free(text);
        return NULL;
    }
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pp_config *a = NULL, *b = NULL;
    char *text = NULL;
    size_t bytes = 0;
    int rc = pp_config_load(fuzz_file(&first, data, size), NULL, 0, pp_cli_names(), &a);
    if (rc < 0) {
        fuzz_refused(rc);
        pp_assert(a && pp_config_problem_count(a) > 0);
        goto out;
    }
    text = print(a, &bytes);
    if (!text) /* a value too long for a line */
        goto out;
    rc = pp_config_load(fuzz_file(&second, text, bytes), NULL, 0, pp_cli_names(), &b);
    pp_assert(rc == 0);
    for (int i = 0; i < pp_config_key_count(); i++) {
        static char was[PP_CONFIG_VALUE_MAX], is[PP_CONFIG_VALUE_MAX];
        pp_assert(pp_config_key_value(a, i, was, sizeof(was)) == 0);
        pp_assert(pp_config_key_value(b, i, is, sizeof(is)) == 0);
        pp_assert(strcmp(was, is) == 0);
    }
out:
    free(text);
    pp_config_destroy(&a);
    pp_config_destroy(&b);
    return 0;
}
