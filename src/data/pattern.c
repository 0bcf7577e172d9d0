/* SPDX-License-Identifier: Apache-2.0 */
/* Matches patterns with PCRE2. A tokenizer's patterns are written for Oniguruma:
 * pattern_translate.c rewrites them. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "ppcli/base/base.h"
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

static int refuse_pattern(const char *label, const char *regex, const char *what)
{
    char shown[120];
    return pp_fail(PP_EFORMAT, "%s: pattern '%s': %s", label,
                   pp_text_shown(regex, shown, sizeof(shown)), what);
}

static int compile_pattern(const char *label, const char *regex, const char *text,
                           struct pattern *p)
{
    int error = 0;
    PCRE2_SIZE at = 0;
    uint32_t empty = 0;
    char why[160] = "";
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context || pcre2_set_newline(context, PCRE2_NEWLINE_LF) != 0 ||
        pcre2_set_bsr(context, PCRE2_BSR_UNICODE) != 0)
        error = PCRE2_ERROR_NOMEMORY;
    else
        p->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, context);
    pcre2_compile_context_free(context);
    if (!p->code) {
        (void)pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof(why));
        return refuse_pattern(label, regex, why);
    }
    (void)pcre2_pattern_info(p->code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty)
        return refuse_pattern(label, regex, "it matches nothing at all, everywhere");
    /* matching works without it, but slower */
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    return 0;
}

int pattern_create(const char *label, const char *regex, struct pattern **out)
{
    PP_OWN(pp_bytes_fini) struct pp_bytes text = {0};
    struct pattern *p;
    PP_TRY(pattern_translate(label, regex, &text));
    PP_ALLOC(p, 1);
    PP_TRY_UNDO(compile_pattern(label, regex, (const char *)text.at, p), pattern_destroy(&p));
    *out = p;
    return 0;
}

bool pattern_is_known(const char *text)
{
    int error;
    PCRE2_SIZE at;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &at, NULL);
    pcre2_code_free(code);
    return code;
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
