/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns by PCRE2. A tokenizer's are written for Oniguruma: classes that PCRE2 sees otherwise are
 * written out, and what would silently mean something else is refused.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "ppcli/mem.h"
#include "ppcli/text.h"
#include "tokenizer.h"

#define STACK_MAX ((size_t)16 << 20)

struct pattern {
    pcre2_code *code;
};

struct pattern_match {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* In brackets, or within those of a class. */
static const char *class_of(char letter)
{
    return letter == 's' || letter == 'S'   ? "\\p{Z}\\x09-\\x0d\\x85"
           : letter == 'w' || letter == 'W' ? "\\p{L}\\p{M}\\p{N}\\p{Pc}"
                                            : NULL;
}

static int refuse(const char *label, const char *regex, const char *what)
{
    char shown[120];
    return pp_fail(PP_EFORMAT, "%s: pattern '%s': %s", label,
                   pp_text_shown(regex, shown, sizeof(shown)), what);
}

static int translate(const char *label, const char *regex, FILE *f)
{
    bool in_class = false;
    for (const char *p = regex; *p; p++) {
        const char *class = *p == '\\' ? class_of(p[1]) : NULL;
        if (class && in_class && p[1] < 'a')
            return refuse(label, regex, "\\S or \\W in a class is not done here");
        if (*p == '\\' && p[1] && strchr("hHRXKGyYOkg", p[1]))
            return refuse(label, regex, "\\h, \\R, \\X and references are not done here");
        if (in_class && ((*p == '[' && p[1] != ':') || (*p == '&' && p[1] == '&')))
            return refuse(label, regex, "a class in a class, or && in one, is not done here");
        if (class) {
            fprintf(f, in_class ? "%s%s" : "[%s%s]", p[1] < 'a' ? "^" : "", class);
            p++;
            continue;
        }
        in_class = in_class ? *p != ']' : *p == '[';
        fputc(*p, f);
        if (*p == '\\' && p[1])
            fputc(*++p, f);
        else if (in_class && *p == '[' && p[1] == ':')
            for (p++; *p && p[1] != ']'; p++)
                fputc(*p, f);
    }
    return 0;
}

static int compile(const char *label, const char *regex, const char *text, struct pattern *p)
{
    int error = 0;
    PCRE2_SIZE at = 0;
    uint32_t empty = 0;
    char why[160] = "";
    p->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error,
                            &at, NULL);
    if (!p->code) {
        (void)pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof(why));
        return refuse(label, regex, why);
    }
    (void)pcre2_pattern_info(p->code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty)
        return refuse(label, regex, "it matches nothing at all, everywhere");
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* slower without */
    return 0;
}

int pattern_create(const char *label, const char *regex, struct pattern **out)
{
    char *text = NULL;
    size_t bytes = 0;
    struct pattern *p;
    FILE *f = open_memstream(&text, &bytes);
    if (!f)
        return pp_fail(PP_ERESOURCE, "%s: out of memory", label);
    int rc = translate(label, regex, f);
    int end = pp_text_close(f, &text, label);
    p = rc == 0 && end == 0 ? pp_alloc(1, sizeof(*p)) : NULL;
    rc = rc < 0 ? rc : end < 0 ? end : !p ? PP_ERESOURCE : compile(label, regex, text, p);
    free(text);
    PP_TRY_UNDO(rc, pattern_destroy(&p));
    *out = p;
    return 0;
}

void pattern_destroy(struct pattern **p)
{
    if (*p)
        pcre2_code_free((*p)->code);
    pp_free(*p);
    *p = NULL;
}

int pattern_match_create(struct pattern_match **out)
{
    struct pattern_match *m;
    PP_ALLOC(m, 1);
    m->data = pcre2_match_data_create(1, NULL);
    m->context = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create((size_t)32 << 10, STACK_MAX, NULL);
    *out = m;
    if (!m->data || !m->context || !m->stack)
        return pp_fail(PP_ERESOURCE, "out of memory for a pattern");
    pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return 0;
}

void pattern_match_destroy(struct pattern_match **m)
{
    if (*m) {
        pcre2_match_data_free((*m)->data);
        pcre2_match_context_free((*m)->context);
        pcre2_jit_stack_free((*m)->stack);
    }
    pp_free(*m);
    *m = NULL;
}

int pattern_find(const struct pattern *p, struct pattern_match *m, const char *text, size_t end,
                 size_t from, size_t *out_at, size_t *out_to)
{
    char why[160] = "";
    int n =
        pcre2_match(p->code, (PCRE2_SPTR)text, end, from, PCRE2_NO_UTF_CHECK, m->data, m->context);
    *out_at = *out_to = end;
    if (n == PCRE2_ERROR_NOMATCH)
        return 0;
    if (n < 0) {
        (void)pcre2_get_error_message(n, (PCRE2_UCHAR *)why, sizeof(why));
        return pp_fail(PP_ERESOURCE, "a pattern gave up at byte %zu: %s", from, why);
    }
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(m->data);
    *out_at = found[0];
    *out_to = found[1];
    return 0;
}
