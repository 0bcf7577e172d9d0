/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Translates patterns of Oniguruma (the Ruby syntax that `tokenizers` uses) into patterns of PCRE2.
 * The whole syntax is parsed: each piece is copied if both libraries read it in the same way,
 * rewritten if PCRE2 would read it differently, and refused by name if PCRE2 has no equivalent.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "tokenizer.h"

#define GROUPS_MAX 64
/* above it, several letters may be equal to one when case is ignored */
#define ICASE_LETTER_MAX 0xff

#define SPACE "\\p{Z}\\x09-\\x0d\\x85"
#define NOT_SPACE                                                                                  \
    "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Cn}\\p{Co}\\p{Cs}\\x00-\\x08\\x0e-\\x1f"             \
    "\\x7f-\\x84\\x86-\\x9f"
#define GRAPH "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}"
#define NOT_GRAPH "\\p{Z}\\p{Cc}\\p{Cn}\\p{Cs}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* members of \w, but not of [:word:] and [\w] */
#define FRACTIONS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

/* Named classes: the text between the brackets of the class, and of its opposite (NULL: the
 * opposite cannot be written as one class). */
static const struct named_class {
    const char *name, *text, *opposite;
} classes[] = {{"alnum", "\\p{Alphabetic}\\p{Nd}", NULL},
               {"alpha", "\\p{Alphabetic}", "\\P{Alphabetic}"},
               {"ascii", "\\x00-\\x7f", "\\x{80}-\\x{10ffff}"},
               {"blank", "\\p{Zs}\\x09", NULL},
               {"cntrl", "\\p{Cc}", "\\P{Cc}"},
               {"digit", "\\p{Nd}", "\\P{Nd}"},
               {"graph", GRAPH, NOT_GRAPH},
               {"lower", "\\p{Lowercase}", "\\P{Lowercase}"},
               {"print", GRAPH "\\p{Zs}", "\\p{Zl}\\p{Zp}\\p{Cc}\\p{Cn}\\p{Cs}"},
               {"punct", "\\p{P}\\p{S}", "\\p{L}\\p{M}\\p{N}\\p{Z}\\p{C}"},
               {"space", SPACE, NOT_SPACE},
               {"upper", "\\p{Uppercase}", "\\P{Uppercase}"},
               {"xdigit", "0-9A-Fa-f", "\\x00-/:-@G-`g-\\x{10ffff}"},
               {"word", WORD, NULL}};
static const struct named_class shape_w = {"\\w", WORD FRACTIONS, NULL},
                                shape_punct = {"Punct", "\\p{P}", "\\P{P}"};

/* Long names of Unicode categories, which PCRE2 does not know. */
static const char categories[] =
    " letter=L uppercaseletter=Lu lowercaseletter=Ll titlecaseletter=Lt modifierletter=Lm"
    " otherletter=Lo mark=M nonspacingmark=Mn spacingmark=Mc enclosingmark=Me number=N"
    " decimalnumber=Nd letternumber=Nl othernumber=No punctuation=P connectorpunctuation=Pc"
    " dashpunctuation=Pd openpunctuation=Ps closepunctuation=Pe initialpunctuation=Pi"
    " finalpunctuation=Pf otherpunctuation=Po symbol=S mathsymbol=Sm currencysymbol=Sc"
    " modifiersymbol=Sk othersymbol=So separator=Z spaceseparator=Zs lineseparator=Zl"
    " paragraphseparator=Zp other=C control=Cc format=Cf privateuse=Co unassigned=Cn ";

struct group {
    size_t at;    /* its start in the output */
    int closes;   /* number of isolated options, (?i), which end with the group */
    bool ignores; /* whether case is ignored outside of it */
};

struct translation {
    const char *label, *regex, *p; /* p: the rest of the pattern */
    struct pp_bytes *out;
    struct group groups[GROUPS_MAX];
    int depth;
    int captures;
    bool named;    /* a group has a name, so groups without one are not counted */
    bool ignores;  /* whether case is ignored */
    bool has_atom; /* a quantifier may follow */
    size_t atom;   /* start of the last atom in the output */
    uint32_t last; /* the letter before, 0: something else */
};

__attribute__((format(printf, 2, 3))) static int refuse(const struct translation *t,
                                                        const char *fmt, ...)
{
    char what[160], shown[120];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    return pp_fail(PP_EFORMAT, "%s: pattern '%s': %s", t->label,
                   pp_text_shown(t->regex, shown, sizeof(shown)), pp_text_make_plain(what));
}

static void put_text(struct translation *t, const char *text)
{
    pp_bytes_put(t->out, text, strlen(text));
}

/* Encloses the output from offset `at` on in (?: and ). */
static void wrap_from(struct translation *t, size_t at)
{
    static const char open[] = "(?:";
    size_t n = t->out->n, m = strlen(open);
    put_text(t, "(?:)");
    if (t->out->lost)
        return;
    memmove(t->out->at + at + m, t->out->at + at, n - at);
    memcpy(t->out->at + at, open, m);
    t->out->at[n + m] = ')';
}

static void begin_atom(struct translation *t)
{
    t->atom = t->out->n;
    t->has_atom = true;
    t->last = 0;
}

/* ---- letters */

/* Refuses letters that Oniguruma, when it ignores case, also matches with other letters: 'ss'
 * matches the German sharp s. */
static int check_case(struct translation *t, uint32_t code)
{
    static const char pairs[][3] = {"ff", "fi", "fl", "ss", "st"};
    uint32_t small = code < 0x80 ? (uint32_t)tolower((int)code) : code;
    if (!t->ignores)
        return 0;
    if (code > ICASE_LETTER_MAX || code == 0xdf)
        return refuse(t, "letter U+%04X without regard to case is not supported", (unsigned)code);
    for (int i = 0; i < 5; i++)
        if (t->last == (uint32_t)pairs[i][0] && small == (uint32_t)pairs[i][1])
            return refuse(t,
                          "'%s' without regard to case is not supported, as it is also equal to "
                          "one letter",
                          pairs[i]);
    return 0;
}

static void put_code(struct translation *t, uint32_t code)
{
    char text[16];
    if (code < 0x80 && isalnum((int)code)) {
        pp_bytes_little(t->out, code, 1);
        return;
    }
    snprintf(text, sizeof(text), "\\x{%x}", (unsigned)code);
    put_text(t, text);
}

static int put_letter(struct translation *t, uint32_t code)
{
    PP_TRY(check_case(t, code));
    uint32_t last = code < 0x80 ? (uint32_t)tolower((int)code) : code;
    begin_atom(t);
    put_code(t, code);
    t->last = last;
    return 0;
}

/* Reads the character at t->p and moves t->p after it. */
static int read_character(struct translation *t, uint32_t *out)
{
    const unsigned char *s = (const unsigned char *)t->p;
    int n = pp_utf8_length(t->p);
    if (n == 0)
        return refuse(t, "it is not UTF-8");
    *out = n < 2 ? s[0] : s[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++)
        *out = *out << 6 | (s[i] & 0x3fu);
    t->p += n;
    return 0;
}

/* Reads up to `most` digits of base `base`; returns how many there were. */
static int read_digits(struct translation *t, int base, int most, uint32_t *out)
{
    int n = 0;
    for (*out = 0; n < most; n++, t->p++) {
        int c = tolower((unsigned char)*t->p);
        int digit = isdigit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
        if (digit >= base)
            break;
        *out = *out * (uint32_t)base + (uint32_t)digit;
    }
    return n;
}

/* Reads an escape that stands for one character; t->p is after the backslash. *out_any tells
 * whether there was such an escape. */
static int read_escaped(struct translation *t, bool *out_any, uint32_t *out)
{
    static const char letters[] = "abefnrtv", codes[] = "\a\b\033\f\n\r\t\v";
    const char *known = *t->p ? strchr(letters, *t->p) : NULL;
    int n;
    *out_any = true;
    if (!*t->p)
        return refuse(t, "it ends with a backslash");
    if (known) {
        t->p++;
        *out = (uint32_t)codes[known - letters];
        return 0;
    }
    switch (*t->p) {
    case '0':
        read_digits(t, 8, 3, out);
        return 0;
    case 'x':
        if (t->p[1] == '{') {
            t->p += 2;
            n = read_digits(t, 16, 8, out);
            return n > 0 && *t->p++ == '}' && *out <= 0x10ffff
                       ? 0
                       : refuse(t, "\\x{...} is not one number");
        }
        t->p++;
        n = read_digits(t, 16, 2, out);
        return n > 0 && *out < 0x80
                   ? 0
                   : refuse(t, "\\x of a byte from 80 on is not supported; write \\x{...}");
    case 'u':
        t->p++;
        return read_digits(t, 16, 4, out) == 4 ? 0 : refuse(t, "\\u without four digits");
    default: /* a letter without a meaning stands for itself: \pL is "pL" */
        *out_any = !isalnum((unsigned char)*t->p) || strchr("EFIiJjLlmpPQqTUV", *t->p);
        return *out_any ? read_character(t, out) : 0;
    }
}

/* ---- classes */

static const struct named_class *class_called(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        if (strlen(classes[i].name) == n && strncmp(classes[i].name, name, n) == 0)
            return &classes[i];
    return NULL;
}

/* Refuses a class in brackets where case is ignored: Oniguruma adds the other case of each letter
 * to the class, PCRE2 does not. */
static int refuse_cased(const struct translation *t, const char *name)
{
    return refuse(t, "%s in a class without regard to case is not supported", name);
}

static int put_class(struct translation *t, const struct named_class *c, bool opposite,
                     bool in_class)
{
    if (!in_class) {
        put_text(t, opposite ? "[^" : "[");
        put_text(t, c->text);
        put_text(t, "]");
        return 0;
    }
    if (t->ignores && !pp_has_word("space digit xdigit punct", c->name))
        return refuse_cased(t, c->name);
    if (opposite && !c->opposite)
        return refuse(t, "the opposite of %s in a class is not supported", c->name);
    put_text(t, opposite ? c->opposite : c->text);
    return 0;
}

/* Translates \p{Name}; t->p is at the '{'. In names blanks, '_', '-' and case are ignored. */
static int put_property(struct translation *t, bool opposite, bool in_class)
{
    char name[48] = "", text[64];
    const char *at = t->p + 1, *end = strchr(at, '}');
    size_t n = 0;
    if (!end || (size_t)(end - at) >= sizeof(name))
        return refuse(t, "a property without its end");
    if (*at == '^') {
        opposite = !opposite;
        at++;
    }
    for (t->p = end + 1; at < end; at++)
        if (!strchr(" _-", *at))
            name[n++] = (char)tolower((unsigned char)*at);
    const struct named_class *c = strcmp(name, "word") == 0    ? &shape_w
                                  : strcmp(name, "punct") == 0 ? &shape_punct
                                                               : class_called(name, n);
    if (c)
        return put_class(t, c, opposite, in_class);
    if (n > 0 && n <= 2)
        name[0] = (char)toupper((unsigned char)name[0]);
    char known[sizeof(name)], key[sizeof(name) + 3];
    snprintf(key, sizeof(key), " %s=", name);
    const char *category = strstr(categories, key);
    category = category ? category + strlen(key) : name;
    snprintf(known, sizeof(known), "%.*s", (int)strcspn(category, " "), category);
    if (in_class && t->ignores && !pp_has_word("L N P S Z", known))
        return refuse_cased(t, name);
    if (in_class && t->ignores && opposite && *known == 'L')
        return refuse_cased(t, name);
    /* a script name alone means all characters that use it in PCRE2 from 10.40 on */
    snprintf(text, sizeof(text), "\\p{sc:%s}", known);
    snprintf(text, sizeof(text), "\\%c{%s%s}", opposite ? 'P' : 'p',
             pattern_is_known(text) ? "sc:" : "", known);
    put_text(t, text);
    if (in_class && t->ignores && *known == 'L')
        put_text(t, "\\x{345}"); /* a mark whose capital is a letter */
    return 0;
}

/* Translates an escape that stands for a class of characters, such as \s. *out_any tells whether
 * there was such an escape. */
static int put_shorthand(struct translation *t, bool in_class, bool *out_any)
{
    char c = *t->p, small = (char)tolower((unsigned char)c);
    const struct named_class *class = small == 's'   ? class_called("space", 5)
                                      : small == 'd' ? class_called("digit", 5)
                                      : small == 'h' ? class_called("xdigit", 6)
                                      : small == 'w' ? in_class ? class_called("word", 4) : &shape_w
                                                     : NULL;
    bool property = small == 'p' && t->p[1] == '{';
    *out_any = class || property;
    t->p += *out_any;
    return property ? put_property(t, c == 'P', in_class)
           : class  ? put_class(t, class, c != small, in_class)
                    : 0;
}

/* Translates a named class such as "[:alpha:]" inside brackets. */
static int put_posix(struct translation *t)
{
    const char *at = t->p + 2, *end = strstr(at, ":]");
    bool opposite = *at == '^';
    at += opposite;
    const struct named_class *c = end && end > at ? class_called(at, (size_t)(end - at)) : NULL;
    if (!c)
        return refuse(t, "a class in a class is not supported");
    t->p = end + 2;
    return put_class(t, c, opposite, true);
}

/* Reads one character of a class in brackets into *out. If a class stands there instead, translates
 * it and sets *out_many. */
static int read_member(struct translation *t, bool *out_many, uint32_t *out)
{
    bool any = true;
    *out_many = false;
    if (*t->p == '[' && t->p[1] == ':') {
        *out_many = true;
        return put_posix(t);
    }
    if (*t->p == '[')
        return refuse(t, "a class in a class is not supported");
    if (*t->p == '&' && t->p[1] == '&')
        return refuse(t, "&& in a class is not supported");
    if (*t->p != '\\')
        return read_character(t, out);
    t->p++;
    PP_TRY(put_shorthand(t, true, out_many));
    if (*out_many)
        return 0;
    PP_TRY(read_escaped(t, &any, out));
    return any ? 0 : refuse(t, "\\%c in a class is not supported", *t->p);
}

/* Translates a class in brackets; t->p is after '['. */
static int translate_class(struct translation *t)
{
    bool many;
    begin_atom(t);
    put_text(t, "[");
    if (*t->p == '^') {
        put_text(t, "^");
        t->p++;
    }
    uint32_t low = 0, high = 0;
    for (bool first = true; first || *t->p != ']'; first = false) {
        if (!*t->p)
            return refuse(t, "a class without its end");
        PP_TRY(read_member(t, &many, &low));
        if (many)
            continue;
        t->last = 0;
        PP_TRY(check_case(t, low));
        put_code(t, low);
        if (*t->p != '-' || t->p[1] == ']' || !t->p[1])
            continue;
        t->p++;
        PP_TRY(read_member(t, &many, &high));
        if (many)
            return refuse(t, "a range in a class that ends with a class is not supported");
        t->last = 0;
        PP_TRY(check_case(t, high));
        if (t->ignores && low < 0xdf && high > 0xdf)
            PP_TRY(check_case(t, 0xdf));
        put_text(t, "-");
        put_code(t, high);
    }
    t->p++;
    put_text(t, "]");
    t->last = 0;
    return 0;
}

/* ---- escapes outside of a class */

static int put_boundary(struct translation *t, bool opposite)
{
    static const char w[] = "[" WORD FRACTIONS "]";
    char text[400];
    snprintf(text, sizeof(text), "(?:(?<=%s)(?%c%s)|(?<!%s)(?%c%s))", w, opposite ? '=' : '!', w, w,
             opposite ? '!' : '=', w);
    put_text(t, text);
    return 0;
}

static int translate_escape(struct translation *t)
{
    char c = *t->p;
    bool any;
    uint32_t code = 0;
    if (c == 'b' || c == 'B') {
        t->p++;
        begin_atom(t);
        return put_boundary(t, c == 'B');
    }
    if (c && strchr("AzZRNO", c)) {
        const char *text = c == 'O' ? "(?s:.)" : c == 'N' ? "[^\\n]" : NULL;
        char same[3] = {'\\', c, '\0'};
        t->p++;
        begin_atom(t);
        put_text(t, text ? text : same);
        return 0;
    }
    if (c >= '1' && c <= '9') {
        if (t->named || c - '0' > t->captures || isdigit((unsigned char)t->p[1]))
            return refuse(t, "reference \\%c is not supported", c);
        begin_atom(t);
        pp_bytes_put(t->out, t->p - 1, 2);
        t->p++;
        return 0;
    }
    uint32_t last = t->last;
    begin_atom(t);
    PP_TRY(put_shorthand(t, false, &any));
    if (any)
        return 0;
    t->last = last;
    PP_TRY(read_escaped(t, &any, &code));
    if (!any)
        return refuse(t, "\\%c is not supported", c);
    return put_letter(t, code);
}

/* ---- groups */

static int open_group(struct translation *t)
{
    if (t->depth + 1 == GROUPS_MAX)
        return refuse(t, "groups deeper than %d are not done here", GROUPS_MAX);
    t->groups[++t->depth] = (struct group){.at = t->out->n, .ignores = t->ignores};
    t->has_atom = false;
    return 0;
}

/* Translates (?im-i:...), and (?im-i), whose options last to the end of the enclosing group.
 * Oniguruma's option m is PCRE2's option s. */
static int open_options(struct translation *t)
{
    const char *p = t->p + 1;
    char text[16] = "(?";
    bool on = true, ignores = t->ignores;
    for (; *p && strchr("im-", *p); p++) {
        on = on && *p != '-';
        ignores = *p == 'i' ? on : ignores;
        pp_text_add(text, sizeof(text), "%c", *p == 'm' ? 's' : *p);
    }
    if (*p != ')' && *p != ':')
        return refuse(t, "group '(?%.4s' is not supported", t->p + 1);
    if (*p == ':')
        PP_TRY(open_group(t));
    else
        t->groups[t->depth].closes++;
    t->has_atom = false;
    put_text(t, text);
    put_text(t, ":");
    t->ignores = ignores;
    t->p = p + 1;
    return 0;
}

/* Translates the beginning of a group; t->p is after '('. */
static int translate_group(struct translation *t)
{
    static const char *const heads[] = {"?:", "?=", "?!", "?>", "?<=", "?<!"};
    if (*t->p == '*')
        return refuse(t, "'(*' is not supported");
    if (strncmp(t->p, "?#", 2) == 0) {
        const char *end = strchr(t->p, ')');
        if (!end)
            return refuse(t, "a comment without its end");
        t->p = end + 1;
        return 0;
    }
    for (int i = 0; i < 6; i++) {
        size_t n = strlen(heads[i]);
        if (strncmp(t->p, heads[i], n) == 0) {
            PP_TRY(open_group(t));
            put_text(t, "(");
            put_text(t, heads[i]);
            t->p += n;
            return 0;
        }
    }
    if (strncmp(t->p, "?<", 2) == 0 && (isalpha((unsigned char)t->p[2]) || t->p[2] == '_')) {
        t->named = true;
        t->captures++;
        PP_TRY(open_group(t));
        size_t n = strcspn(t->p, ">") + 1;
        if (!t->p[n - 1])
            return refuse(t, "a name without its end");
        put_text(t, "(");
        pp_bytes_put(t->out, t->p, n);
        t->p += n;
        return 0;
    }
    if (*t->p == '?')
        return open_options(t);
    t->captures++;
    PP_TRY(open_group(t));
    put_text(t, "(");
    return 0;
}

static void close_options(struct translation *t)
{
    for (int i = 0; i < t->groups[t->depth].closes; i++)
        put_text(t, ")");
}

static int close_group(struct translation *t)
{
    if (t->depth == 0)
        return refuse(t, "a ')' without its '('");
    close_options(t);
    put_text(t, ")");
    t->atom = t->groups[t->depth].at;
    t->has_atom = true;
    t->ignores = t->groups[t->depth--].ignores;
    return 0;
}

/* ---- quantifiers */

/* Reads "{n}", "{n,}", "{,m}" or "{n,m}"; returns false if the '{' is an ordinary character.
 * *out_fixed: the form was "{n}". */
static bool read_interval(struct translation *t, char out[40], bool *out_fixed)
{
    const char *from = t->p;
    uint32_t low, high;
    t->p++;
    int a = read_digits(t, 10, 6, &low), b = 0;
    *out_fixed = *t->p == '}';
    if (*t->p == ',') {
        t->p++;
        b = read_digits(t, 10, 6, &high);
    }
    if (*t->p != '}' || a + b == 0) {
        t->p = from;
        return false;
    }
    t->p++;
    if (b > 0)
        snprintf(out, 40, "{%u,%u}", (unsigned)low, (unsigned)high);
    else
        snprintf(out, 40, *out_fixed ? "{%u}" : "{%u,}", (unsigned)low);
    return true;
}

/* Writes a quantifier and the '?' or '+' that modifies it. A '+' after an interval and a '?' after
 * {n} do not modify it: they are quantifiers of their own. */
static int translate_quantifier(struct translation *t, const char *text, bool interval, bool fixed)
{
    char lazy[2] = {*t->p, '\0'};
    if (!t->has_atom)
        return refuse(t, "'%s' has nothing to repeat", text);
    if (t->ignores && t->last && strchr("fs", (int)t->last))
        return refuse(t, "a repeated '%c' without regard to case is not supported", (int)t->last);
    put_text(t, text);
    if ((*t->p == '?' && !fixed) || (*t->p == '+' && !interval)) {
        put_text(t, lazy);
        t->p++;
    }
    if (*t->p && strchr("*+?{", *t->p))
        wrap_from(t, t->atom);
    t->last = 0;
    return 0;
}

/* ---- the whole pattern */

static int translate_next(struct translation *t)
{
    char c = *t->p, interval[40], once[2] = {c, '\0'};
    uint32_t code = 0;
    bool fixed;
    if (c == '{' && read_interval(t, interval, &fixed))
        return translate_quantifier(t, interval, true, fixed);
    if (c == '\\' || c == '[' || c == '(' || c == ')' || strchr("*+?.^$|", c))
        t->p++;
    switch (c) {
    case '\\':
        return translate_escape(t);
    case '[':
        return translate_class(t);
    case '(':
        return translate_group(t);
    case ')':
        return close_group(t);
    case '*':
    case '+':
    case '?':
        return translate_quantifier(t, once, false, false);
    case '.':
    case '^':
    case '$':
    case '|':
        begin_atom(t);
        t->has_atom = c == '.';
        put_text(t, once);
        return 0;
    default:
        PP_TRY(read_character(t, &code));
        return put_letter(t, code);
    }
}

int pattern_translate(const char *label, const char *regex, struct pp_bytes *out)
{
    PP_TAKE(struct translation, t, 1);
    *t = (struct translation){.label = label, .regex = regex, .p = regex, .out = out};
    while (*t->p)
        PP_TRY(translate_next(t));
    if (t->depth > 0)
        return refuse(t, "a '(' without its ')'");
    close_options(t);
    pp_bytes_put(out, "", 1);
    return out->lost ? pp_fail(PP_ERESOURCE, "%s: out of memory", label) : 0;
}
