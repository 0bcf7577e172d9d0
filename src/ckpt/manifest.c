/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads MANIFEST. */
#include "impl.h"

#include <inttypes.h>
#include <string.h>

#include "ppcli/base/base.h"

#define MAGIC "ppcli-checkpoint "
#define END_BYTES (4 + 64 + 1) /* bytes of "end ", digest, line break */

void manifest_digest(const void *data, size_t bytes, char out[PP_SHA256_HEX])
{
    struct pp_sha256 s;
    uint8_t digest[PP_SHA256_BYTES];
    pp_sha256_init(&s);
    pp_sha256_update(&s, data, bytes);
    pp_sha256_final(&s, digest);
    pp_sha256_hex(digest, out);
}

static void print_entry(FILE *f, const char *name, const struct manifest_entry *e)
{
    fprintf(f, "file %s %" PRIu64 " %s\n", name, e->bytes, e->sha256);
}

int manifest_print(const struct manifest *m, char **out_text, size_t *out_bytes)
{
    char *text = NULL;
    size_t bytes = 0;
    char name[NAME_BYTES], digest[PP_SHA256_HEX];
    FILE *f = open_memstream(&text, &bytes);
    if (!f)
        return pp_fail(PP_ERESOURCE, NAME_MANIFEST ": out of memory");
    fprintf(f, MAGIC "%d\nstep %" PRId64 "\nconfig_hash %s\ntensors %" PRId64 "\n", PP_CKPT_VERSION,
            m->step, m->config_hash, m->tensors);
    print_entry(f, NAME_CONFIG, &m->config);
    for (int i = 0; i < m->n_parts; i++) {
        name_part(name, i, m->n_parts);
        print_entry(f, name, &m->parts[i]);
    }
    print_entry(f, NAME_STATE, &m->state);
    if (fflush(f) == 0) {
        manifest_digest(text, bytes, digest);
        fprintf(f, "end %s\n", digest);
    }
    PP_TRY(pp_text_close(f, &text, NAME_MANIFEST));
    *out_text = text;
    *out_bytes = bytes;
    return 0;
}

/* ---- reading */

struct cursor {
    const char *p, *end;
    int line;
};

static bool parse_word(struct cursor *c, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, text, n) != 0)
        return false;
    c->p += n;
    c->line += text[n - 1] == '\n';
    return true;
}

/* Parses a number of 1 to 18 digits without leading zeros; returns false if there is none. */
static bool parse_digits(struct cursor *c, uint64_t *out)
{
    uint64_t v = 0;
    int digits = 0;
    const char *p = c->p;
    for (; p < c->end && *p >= '0' && *p <= '9'; p++) {
        v = v * 10 + (uint64_t)(*p - '0');
        digits++;
    }
    if (digits < 1 || digits > 18 || (digits > 1 && *c->p == '0'))
        return false;
    c->p = p;
    *out = v;
    return true;
}

static bool parse_hex(struct cursor *c, char out[PP_SHA256_HEX])
{
    if (c->end - c->p < 64)
        return false;
    for (int i = 0; i < 64; i++) {
        char d = c->p[i];
        if (!((d >= '0' && d <= '9') || (d >= 'a' && d <= 'f')))
            return false;
    }
    memcpy(out, c->p, 64);
    out[64] = '\0';
    c->p += 64;
    return true;
}

static bool parse_entry(struct cursor *c, const char *name, struct manifest_entry *out)
{
    return parse_word(c, "file ") && parse_word(c, name) && parse_word(c, " ") &&
           parse_digits(c, &out->bytes) && parse_word(c, " ") && parse_hex(c, out->sha256) &&
           parse_word(c, "\n");
}

/* Returns the number of parts that the line of the first part announces in its name; 0 if it is not
 * such a line. */
static int count_parts(const struct cursor *c)
{
    static const char before[] = "file stage-0000-of-";
    size_t n = sizeof(before) - 1;
    if ((size_t)(c->end - c->p) < n + 4 || memcmp(c->p, before, n) != 0)
        return 0;
    int count = 0;
    for (size_t i = n; i < n + 4; i++) {
        if (c->p[i] < '0' || c->p[i] > '9')
            return 0;
        count = count * 10 + (c->p[i] - '0');
    }
    return count;
}

static bool parse_head(struct cursor *c, struct manifest *m)
{
    uint64_t step = 0, tensors = 0;
    if (!(parse_word(c, "step ") && parse_digits(c, &step) && parse_word(c, "\n") &&
          parse_word(c, "config_hash ") && parse_hex(c, m->config_hash) && parse_word(c, "\n") &&
          parse_word(c, "tensors ") && parse_digits(c, &tensors) && parse_word(c, "\n") &&
          parse_entry(c, NAME_CONFIG, &m->config)))
        return false;
    m->step = (int64_t)step;
    m->tensors = (int64_t)tensors;
    m->n_parts = count_parts(c);
    return m->n_parts > 0;
}

static bool parse_tail(struct cursor *c, struct manifest *m)
{
    char name[NAME_BYTES];
    for (int i = 0; i < m->n_parts; i++) {
        name_part(name, i, m->n_parts);
        if (!parse_entry(c, name, &m->parts[i]))
            return false;
    }
    return parse_entry(c, NAME_STATE, &m->state) && c->p == c->end;
}

/* Checks the first line, whose version defines the format, and the digest in the last line. Sets c
 * to the lines between them, which the caller parses. */
static int check_frame(const char *label, const char *text, size_t bytes, struct cursor *c)
{
    uint64_t version = 0;
    if (!parse_word(c, MAGIC) || !parse_digits(c, &version) || !parse_word(c, "\n"))
        return pp_fail(PP_EFORMAT, "%s: line 1 is not '" MAGIC "%d'", label, PP_CKPT_VERSION);
    if (version != PP_CKPT_VERSION) {
        return pp_fail(PP_EFORMAT,
                       "%s: a checkpoint of format %" PRIu64 "; this ppcli reads format %d%s",
                       label, version, PP_CKPT_VERSION,
                       version > PP_CKPT_VERSION ? ": a newer one wrote it" : "");
    }
    char expected[END_BYTES + 1], digest[PP_SHA256_HEX];
    bool cut = bytes < END_BYTES;
    if (!cut) {
        manifest_digest(text, bytes - END_BYTES, digest);
        snprintf(expected, sizeof(expected), "end %s\n", digest);
    }
    if (cut || memcmp(text + bytes - END_BYTES, expected, END_BYTES) != 0) {
        return pp_fail(PP_EFORMAT, "%s: damaged or cut short: it does not end with its own digest",
                       label);
    }
    c->end = text + bytes - END_BYTES;
    return 0;
}

int manifest_parse(const char *label, const char *text, size_t bytes, struct manifest *out)
{
    struct cursor c = {.p = text, .end = text + bytes, .line = 1};
    struct manifest m = {0};
    PP_TRY(check_frame(label, text, bytes, &c));
    bool good = parse_head(&c, &m);
    if (good) {
        m.parts = pp_alloc((size_t)m.n_parts, sizeof(*m.parts));
        if (!m.parts)
            return pp_error_context("%s", label);
        good = parse_tail(&c, &m);
    }
    if (!good) {
        manifest_fini(&m);
        return pp_fail(PP_EFORMAT, "%s: line %d is not what is expected there", label, c.line);
    }
    *out = m;
    return 0;
}

void manifest_fini(struct manifest *m)
{
    pp_free(m->parts);
    m->parts = NULL;
}
