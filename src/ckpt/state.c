/* SPDX-License-Identifier: Apache-2.0 */
/* state.json. JSON readers cannot hold all unsigned 64-bit numbers, so the seed is a string. */
#include "impl.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

void pp_ckpt_set(struct pp_ckpt_state *s, const char *name, double value)
{
    int i = 0;
    while (i < s->n_numbers && strcmp(s->numbers[i].name, name) != 0)
        i++;
    pp_assert(i < PP_CKPT_NUMBERS_MAX && strlen(name) < sizeof(s->numbers[i].name));
    strcpy(s->numbers[i].name, name);
    s->numbers[i].value = value;
    s->n_numbers = i == s->n_numbers ? i + 1 : s->n_numbers;
}

double pp_ckpt_get(const struct pp_ckpt_state *s, const char *name, double otherwise)
{
    for (int i = 0; i < s->n_numbers; i++)
        if (strcmp(s->numbers[i].name, name) == 0)
            return s->numbers[i].value;
    return otherwise;
}

int state_print(const struct pp_ckpt_state *s, char **out_text, size_t *out_bytes)
{
    for (int i = 0; i < s->n_numbers; i++) {
        if (!isfinite(s->numbers[i].value)) {
            return pp_fail(PP_EINTERNAL, NAME_STATE ": %s is not a finite number",
                           s->numbers[i].name);
        }
    }
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f)
        return pp_fail(PP_ERESOURCE, NAME_STATE ": out of memory");
    char seed[32];
    snprintf(seed, sizeof(seed), "%" PRIu64, s->seed);
    struct pp_json j = pp_json_begin(f, 2);
    pp_json_int(&j, "format", PP_CKPT_VERSION);
    pp_json_str(&j, "ppcli", s->ppcli);
    pp_json_int(&j, "step", s->step);
    pp_json_int(&j, "epoch", s->epoch);
    pp_json_int(&j, "epoch_steps", s->epoch_steps);
    pp_json_int(&j, "samples", s->samples);
    pp_json_str(&j, "seed", seed);
    pp_json_str(&j, "config_hash", s->config_hash);
    pp_json_str(&j, "fingerprint", s->fingerprint);
    if (s->vocabulary)
        pp_json_str(&j, "vocabulary", s->vocabulary);
    if (s->preprocessing)
        pp_json_str(&j, "preprocessing", s->preprocessing);
    if (s->changes)
        pp_json_str(&j, "changes", s->changes);
    pp_json_object(&j, "numbers");
    for (int i = 0; i < s->n_numbers; i++)
        pp_json_dbl(&j, s->numbers[i].name, s->numbers[i].value);
    pp_json_end(&j);
    pp_json_end(&j);
    PP_TRY(pp_text_close(f, &text, NAME_STATE));
    *out_text = text;
    *out_bytes = bytes;
    return 0;
}

/* ---- reading */

struct reader {
    const char *label;
    const json_t *root;
    size_t found; /* keys read so far */
};

static int read_int(struct reader *r, const char *key, int64_t least, int64_t *out)
{
    const json_t *v = json_object_get(r->root, key);
    if (!json_is_integer(v) || json_integer_value(v) < least) {
        return pp_fail(PP_EFORMAT, "%s: %s is missing or not a whole number from %" PRId64 " on",
                       r->label, key, least);
    }
    r->found++;
    *out = json_integer_value(v);
    return 0;
}

/* Reads a text of printable ASCII. Other characters are refused, because the text is shown on
 * terminals. */
static int read_text(struct reader *r, const char *key, char *out, size_t bytes)
{
    const char *text = json_string_value(json_object_get(r->root, key));
    bool good = text && strlen(text) < bytes;
    for (const char *p = text; good && *p; p++)
        good = *p >= 0x20 && *p < 0x7f;
    if (!good) {
        return pp_fail(PP_EFORMAT, "%s: %s is missing or not a text of at most %zu characters",
                       r->label, key, bytes - 1);
    }
    r->found++;
    memcpy(out, text, strlen(text) + 1);
    return 0;
}

static int read_seed(struct reader *r, uint64_t *out)
{
    char text[32], printed[32];
    PP_TRY(read_text(r, "seed", text, sizeof(text)));
    errno = 0;
    *out = strtoull(text, NULL, 10);
    snprintf(printed, sizeof(printed), "%" PRIu64, *out);
    if (errno != 0 || strcmp(text, printed) != 0)
        return pp_fail(PP_EFORMAT, "%s: seed '%s' is not a number", r->label, text);
    return 0;
}

static int read_hash(struct reader *r, char out[PP_SHA256_HEX])
{
    PP_TRY(read_text(r, "config_hash", out, PP_SHA256_HEX));
    if (strspn(out, "0123456789abcdef") != PP_SHA256_HEX - 1)
        return pp_fail(PP_EFORMAT, "%s: config_hash is not a SHA-256 digest", r->label);
    return 0;
}

static int read_numbers(struct reader *r, struct pp_ckpt_state *s)
{
    json_t *numbers = json_object_get(r->root, "numbers");
    if (!json_is_object(numbers) || json_object_size(numbers) > PP_CKPT_NUMBERS_MAX) {
        return pp_fail(PP_EFORMAT, "%s: numbers is missing or not an object of at most %d values",
                       r->label, PP_CKPT_NUMBERS_MAX);
    }
    r->found++;
    const char *key;
    json_t *value;
    json_object_foreach(numbers, key, value)
    {
        char shown[PP_JSON_SHOWN];
        if (!json_is_number(value) || key[0] == '\0' || strlen(key) >= sizeof(s->numbers[0].name) ||
            strcmp(pp_json_shown(key, shown), key) != 0) {
            return pp_fail(PP_EFORMAT, "%s: numbers: '%s' is not the name of a number", r->label,
                           pp_json_shown(key, shown));
        }
        pp_ckpt_set(s, key, json_number_value(value));
    }
    return 0;
}

/* Reads the list of changes, or NULL if there is none. It may only have lines of printable ASCII
 * with tabs, because it is shown on terminals. */
static int read_changes(struct reader *r, char **out)
{
    const char *text = json_string_value(json_object_get(r->root, "changes"));
    *out = NULL;
    if (!text)
        return 0;
    r->found++;
    for (const char *p = text; *p; p++)
        if ((*p < 0x20 || *p > 0x7e) && *p != '\t' && *p != '\n')
            return pp_fail(PP_EFORMAT, "%s: changes is not plain text", r->label);
    *out = pp_strdup(text);
    return *out ? 0 : PP_ERESOURCE;
}

static int read_state(struct reader *r, struct pp_ckpt_state *s)
{
    int64_t format = 0;
    PP_TRY(read_int(r, "format", 0, &format));
    if (format != PP_CKPT_VERSION) {
        return pp_fail(PP_EFORMAT, "%s: format %" PRId64 ", this ppcli reads %d", r->label, format,
                       PP_CKPT_VERSION);
    }
    PP_TRY(read_text(r, "ppcli", s->ppcli, sizeof(s->ppcli)));
    PP_TRY(read_int(r, "step", 0, &s->step));
    PP_TRY(read_int(r, "epoch", 0, &s->epoch));
    PP_TRY(read_int(r, "epoch_steps", 0, &s->epoch_steps));
    PP_TRY(read_int(r, "samples", 0, &s->samples));
    PP_TRY(read_seed(r, &s->seed));
    PP_TRY(read_hash(r, s->config_hash));
    PP_TRY(read_text(r, "fingerprint", s->fingerprint, sizeof(s->fingerprint)));
    PP_TRY(read_numbers(r, s));
    const char *vocabulary = json_string_value(json_object_get(r->root, "vocabulary"));
    const char *preprocessing = json_string_value(json_object_get(r->root, "preprocessing"));
    r->found += (vocabulary != NULL) + (preprocessing != NULL);
    PP_TRY(read_changes(r, &s->changes));
    if (r->found != json_object_size(r->root)) {
        return pp_fail(PP_EFORMAT, "%s: has keys that format %d does not know", r->label,
                       PP_CKPT_VERSION);
    }
    s->vocabulary = vocabulary ? pp_strdup(vocabulary) : NULL;
    s->preprocessing = preprocessing ? pp_strdup(preprocessing) : NULL;
    return (vocabulary && !s->vocabulary) || (preprocessing && !s->preprocessing) ? PP_ERESOURCE
                                                                                  : 0;
}

int state_parse(const char *label, const char *text, size_t bytes, struct pp_ckpt_state *out)
{
    static const struct pp_json_limits limits = {2, 64, PP_CKPT_NUMBERS_MAX};
    struct pp_ckpt_state s = {0};
    json_t *root = NULL;
    PP_TRY(pp_json_read(label, text, bytes, &limits, &root));
    struct reader r = {.label = label, .root = root};
    int rc = read_state(&r, &s);
    json_decref(root);
    if (rc == 0) {
        *out = s;
    } else {
        pp_free(s.vocabulary);
        pp_free(s.preprocessing);
        pp_free(s.changes);
    }
    return rc;
}
