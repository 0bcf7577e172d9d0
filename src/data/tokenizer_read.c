/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the text of a tokenizer.json. A feature that is not supported is refused by name, so no
 * text ever gets other ids than `tokenizers` gives it.
 */
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "tokenizer.h"

#define LETTERS 324 /* 256 and the 68 without a letter of their own */

const char tokenizer_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct reader {
    const char *label;
    const json_t *vocab;
    struct pp_tokenizer *t;
    struct tokenizer_work *w;
    char *texts;              /* end of the used part of the buffer */
    int16_t byte_of[LETTERS]; /* -1: none */
    const char *blank;        /* what stands for a blank in a token; NULL: the blank itself */
    struct pp_bytes steps;    /* see struct pp_tokenizer */
};

uint32_t tokenizer_byte_letter(int byte)
{
    uint32_t letter = 255;
    if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174)
        return (uint32_t)byte;
    for (int b = 0; b <= byte; b++)
        letter += b < 33 || (b > 126 && b < 161) || b == 173;
    return letter;
}

static const char *shown_or_none(const char *text, char out[PP_JSON_SHOWN])
{
    return text ? pp_json_shown(text, out) : "none";
}

static int refuse_part(const struct reader *r, const char *part, const char *what)
{
    char name[PP_JSON_SHOWN];
    return pp_fail(PP_EFORMAT, "%s: %s '%s' is not done here", r->label, part,
                   shown_or_none(what, name));
}

static int fail_damaged(const struct reader *r, const char *what)
{
    return pp_fail(PP_EFORMAT, "%s: %s", r->label, what);
}

static const char *get_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static bool get_bool(const json_t *object, const char *key, bool otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

static char *keep_text(struct reader *r, const char *text)
{
    size_t n = strlen(text) + 1;
    char *at = memcpy(r->texts, text, n);
    r->texts += n;
    return at;
}

/* Appends a line to the tokenizer's steps: `what`, or `what` and `detail`. */
static void list_step(struct reader *r, const char *what, const char *detail)
{
    pp_bytes_put(&r->steps, what, strlen(what));
    if (detail) {
        pp_bytes_put(&r->steps, " ", 1);
        pp_bytes_put(&r->steps, detail, strlen(detail));
    }
    pp_bytes_put(&r->steps, "\n", 1);
}

/* Calls take() for each part of a Sequence, or for the one part; there may be none. */
typedef int take_part(struct reader *r, const json_t *part, const char *type);
static int take_parts(struct reader *r, const json_t *all, const char *list, take_part *take)
{
    const char *type = get_text(all, "type");
    if (!all || json_is_null(all))
        return 0;
    if (!type)
        return fail_damaged(r, "a part has no type");
    if (strcmp(type, "Sequence") != 0)
        return take(r, all, type);
    if (!json_is_array(json_object_get(all, list)))
        return fail_damaged(r, "a Sequence without its parts");
    for (size_t i = 0; i < json_array_size(json_object_get(all, list)); i++)
        PP_TRY(take_parts(r, json_array_get(json_object_get(all, list), i), list, take));
    return 0;
}

/* ---- changes of a text before BPE */

static int take_change(struct reader *r, const json_t *part, const char *type)
{
    const char *text = get_text(part, "prepend"), *from = NULL;
    bool form = unicode_form_is(type);
    if (strcmp(type, "Replace") == 0) {
        text = get_text(part, "content");
        from = get_text(json_object_get(part, "pattern"), "String");
        if (!from || !from[0])
            return refuse_part(r, "normalizer", "Replace of a Regex");
    } else if (form || strcmp(type, "Prepend") != 0) {
        text = type;
    }
    if ((!from && !form && strcmp(type, "Prepend") != 0) || r->w->n_changes == TOKENIZER_STEPS)
        return refuse_part(r, "normalizer", type);
    if (!text)
        return fail_damaged(r, "a normalizer without its text");
    r->w->changes[r->w->n_changes++] = (struct change){
        .from = from ? keep_text(r, from) : NULL, .to = keep_text(r, text), .form = form};
    list_step(r, form ? type : from ? "replace" : "prepend", form ? NULL : from ? from : text);
    if (from)
        list_step(r, "by", text);
    if (from && strcmp(from, " ") == 0)
        r->blank = r->w->changes[r->w->n_changes - 1].to;
    r->t->opens_with_space = r->t->opens_with_space || (!from && !form);
    return 0;
}

static int add_step(struct reader *r, const char *regex, const char *word, enum step_rest rest,
                    bool invert)
{
    struct tokenizer_work *w = r->w;
    if (w->n_steps == TOKENIZER_STEPS)
        return fail_damaged(r, "too many steps in its pre_tokenizer");
    static const char *const rests[] = {"isolated", "removed", "with previous", "with next"};
    struct split_step *s = &w->steps[w->n_steps++];
    if (invert)
        list_step(r, "inverted", NULL);
    list_step(r, rests[rest], regex ? regex : word);
    *s = (struct split_step){
        .word = word ? keep_text(r, word) : NULL, .rest = rest, .invert = invert};
    return regex ? pattern_create(r->label, regex, &s->pattern) : 0;
}

static int take_split(struct reader *r, const json_t *part)
{
    static const char *const rests[] = {"Isolated", "Removed", "MergedWithPrevious",
                                        "MergedWithNext"};
    const json_t *pattern = json_object_get(part, "pattern");
    const char *behavior = get_text(part, "behavior"), *regex = get_text(pattern, "Regex"),
               *word = get_text(pattern, "String");
    int rest = 0;
    while (behavior && rest < 4 && strcmp(behavior, rests[rest]) != 0)
        rest++;
    bool invert = get_bool(part, "invert", false);
    if (!behavior || rest == 4 || (invert && rest > STEP_REMOVED))
        return refuse_part(r, "behavior of a Split", behavior);
    if (!regex && (!word || !word[0]))
        return fail_damaged(r, "a Split without a pattern");
    return add_step(r, regex, regex ? NULL : word, (enum step_rest)rest, invert);
}

static int take_metaspace(struct reader *r, const json_t *part)
{
    const char *scheme = get_text(part, "prepend_scheme"), *blank = get_text(part, "replacement");
    bool older = get_bool(part, "add_prefix_space", true);
    scheme = scheme ? scheme : older ? "always" : "never";
    if (!blank || !blank[0] || r->w->n_steps > 0)
        return refuse_part(r, "pre_tokenizer", "Metaspace after others, or without a replacement");
    if (strcmp(scheme, "always") != 0 && strcmp(scheme, "first") != 0 &&
        strcmp(scheme, "never") != 0)
        return refuse_part(r, "prepend_scheme", scheme);
    r->blank = r->w->blank = keep_text(r, blank);
    r->w->prefix = strcmp(scheme, "never") != 0 ? r->w->blank : NULL;
    r->w->prefix_first = strcmp(scheme, "first") == 0;
    list_step(r, "blank", blank);
    list_step(r, "blank first", scheme);
    return get_bool(part, "split", true) ? add_step(r, NULL, blank, STEP_WITH_NEXT, false) : 0;
}

static int take_pre_tokenizer(struct reader *r, const json_t *part, const char *type)
{
    if (r->t->byte_level) {
        return pp_fail(PP_EFORMAT,
                       "%s: pre_tokenizer '%s' after ByteLevel is not supported: it would cut the "
                       "letters that stand for bytes",
                       r->label, type);
    }
    if (strcmp(type, "Split") == 0)
        return take_split(r, part);
    if (strcmp(type, "Metaspace") == 0)
        return take_metaspace(r, part);
    if (strcmp(type, "Digits") == 0)
        return add_step(r, get_bool(part, "individual_digits", false) ? "\\p{N}" : "\\p{N}+", NULL,
                        STEP_ISOLATED, false);
    if (strcmp(type, "ByteLevel") != 0)
        return refuse_part(r, "pre_tokenizer", type);
    r->t->byte_level = true;
    if (get_bool(part, "add_prefix_space", true)) {
        if (r->w->n_steps > 0 || r->w->blank)
            return refuse_part(r, "pre_tokenizer", "ByteLevel with add_prefix_space after others");
        r->w->prefix = keep_text(r, " ");
        list_step(r, "blank first", "always");
    }
    return get_bool(part, "use_regex", true)
               ? add_step(r, tokenizer_gpt2_pattern, NULL, STEP_ISOLATED, false)
               : 0;
}

static int take_decoder(struct reader *r, const json_t *part, const char *type)
{
    return pp_has_word("ByteLevel Metaspace Replace ByteFallback Fuse Strip", type)
               ? 0
               : refuse_part(r, "decoder", type);
}

/* ---- tokens */

/* Converts a token written in GPT-2's letters, each of which stands for a byte, to its bytes;
 * returns false if it has other characters. */
static bool spell_bytes(const struct reader *r, const char *text, char *out, uint32_t *out_n)
{
    uint32_t n = 0;
    for (const unsigned char *s = (const unsigned char *)text; *s; n++) {
        uint32_t code = s[0] < 0x80 ? s[0] : (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
        if (s[0] >= 0xe0 || code >= LETTERS || r->byte_of[code] < 0)
            return false;
        out[n] = (char)r->byte_of[code];
        s += s[0] < 0x80 ? 1 : 2;
    }
    *out_n = n;
    return true;
}

static int64_t id_of(const struct reader *r, const char *text)
{
    const json_t *v = json_object_get(r->vocab, text);
    return v ? json_integer_value(v) : -1;
}

static void find_bytes(struct reader *r, uint32_t id)
{
    struct pp_token *token = &r->t->tokens[id];
    unsigned byte = 0;
    int end = 0;
    char *out = r->texts;
    size_t m = r->blank ? strlen(r->blank) : 0;
    token->bytes = out;
    /* an added token may also be one of the model */
    bool of_model = id_of(r, token->text) == (int64_t)id;
    if (of_model && r->t->byte_level && spell_bytes(r, token->text, out, &token->n)) {
        *text_table_find(&r->w->words, out, token->n) = (struct text_slot){out, token->n, id};
        if (token->n == 1)
            r->w->of_byte[(unsigned char)out[0]] = id + 1;
    } else if (r->w->byte_fallback && sscanf(token->text, "<0x%2X>%n", &byte, &end) == 1 &&
               end == 6 && !token->text[6]) {
        *out = (char)byte;
        token->n = 1;
        token->byte = true;
        r->w->of_byte[byte] = id + 1;
    } else {
        const char *p = token->text;
        while (*p) {
            bool blank = m > 0 && !token->added && strncmp(p, r->blank, m) == 0;
            out[token->n++] = blank ? ' ' : *p;
            p += blank ? m : 1;
        }
    }
    out[token->n] = '\0';
    r->texts += token->n + 1;
    if (!r->t->byte_level && of_model)
        *text_table_find(&r->w->words, token->text, strlen(token->text)) =
            (struct text_slot){token->text, (uint32_t)strlen(token->text), id};
}

static int set_token(struct reader *r, const char *text, const json_t *number, bool added)
{
    char name[PP_JSON_SHOWN];
    json_int_t id = json_is_integer(number) ? json_integer_value(number) : -1;
    if (id < 0 || id >= r->t->n)
        return pp_fail(PP_EFORMAT, "%s: token '%s' has no number from 0 to %d", r->label,
                       shown_or_none(text, name), r->t->n - 1);
    struct pp_token *token = &r->t->tokens[id];
    if (token->text[0] && !(added && strcmp(token->text, text) == 0)) {
        return pp_fail(PP_EFORMAT, "%s: two tokens have the number %lld, '%s' is one", r->label,
                       (long long)id, shown_or_none(text, name));
    }
    if (!token->text[0])
        token->text = keep_text(r, text);
    token->added = added;
    return 0;
}

/* Counts the tokens and allocates their table. Their numbers may have gaps, but not gaps so large
 * that a small file would need much memory. */
static int count_tokens(struct reader *r, const json_t *added)
{
    json_int_t most = -1, last = 4 * (json_int_t)json_object_size(r->vocab) + (1 << 18);
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)r->vocab, key, value) most =
        json_integer_value(value) > most ? json_integer_value(value) : most;
    json_array_foreach(added, i, value)
    {
        const char *text = get_text(value, "content");
        json_int_t id = json_integer_value(json_object_get(value, "id"));
        most = id > most && !(text && id_of(r, text) >= 0) ? id : most;
    }
    if (most < 0 || most > last)
        return fail_damaged(r,
                            most < 0 ? "no tokens" : "a token's number is far beyond their count");
    r->t->n = (int)most + 1;
    PP_ALLOC(r->t->tokens, r->t->n);
    for (int k = 0; k < r->t->n; k++)
        r->t->tokens[k].text = r->t->tokens[k].bytes = "";
    return 0;
}

static int by_length(const void *a, const void *b)
{
    const struct added *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n ? 1 : -1) : (x->id > y->id) - (x->id < y->id);
}

/* Finds the number of an added token as `tokenizers` does, whatever the file says: a token of the
 * vocabulary keeps its number there, the others get the next numbers in order. */
static int number_added(const struct reader *r, const char *text, const json_t *each, json_t **out)
{
    char name[PP_JSON_SHOWN];
    json_int_t id = json_integer_value(json_object_get(each, "id")),
               next = (json_int_t)json_object_size(r->vocab);
    *out = json_object_get(r->vocab, text);
    if (*out)
        return 0;
    *out = json_object_get(each, "id");
    for (int i = 0; i < r->w->n_added; i++) {
        json_int_t other = r->w->added[i].id;
        bool twice = strcmp(r->w->added[i].text, text) == 0;
        if (twice && other == id)
            return 0;
        if (twice)
            return pp_fail(PP_EFORMAT, "%s: added token '%s' has two numbers, %lld and %lld",
                           r->label, shown_or_none(text, name), (long long)other, (long long)id);
        next = other >= next ? other + 1 : next;
    }
    if (!json_is_integer(*out) || id == next || r->t->tokens[id].text[0])
        return 0; /* set_token() reports what is wrong */
    return pp_fail(PP_EFORMAT,
                   "%s: added token '%s' has number %lld, but the next free number is %lld, which "
                   "is what tokenizers gives it; renumber it",
                   r->label, shown_or_none(text, name), (long long)id, (long long)next);
}

static int take_added(struct reader *r, const json_t *all)
{
    struct tokenizer_work *w = r->w;
    const json_t *each;
    json_t *number;
    size_t i;
    PP_ALLOC(w->added, json_array_size(all));
    json_array_foreach(all, i, each)
    {
        const char *text = get_text(each, "content");
        bool special = get_bool(each, "special", false);
        if (!text || !text[0])
            return fail_damaged(r, "an added token without content");
        if (get_bool(each, "single_word", false))
            return refuse_part(r, "single_word of added token", text);
        PP_TRY(number_added(r, text, each, &number));
        PP_TRY(set_token(r, text, number, true));
        uint32_t id = (uint32_t)json_integer_value(number);
        r->t->tokens[id].special = special;
        w->added[w->n_added++] =
            (struct added){.id = id,
                           .text = keep_text(r, text),
                           .n = strlen(text),
                           .normalized = get_bool(each, "normalized", !special),
                           .lstrip = get_bool(each, "lstrip", false),
                           .rstrip = get_bool(each, "rstrip", false)};
    }
    return 0;
}

/* Refuses byte_fallback with ByteLevel if a byte's letter has no token: the letter would become
 * tokens such as <0xC4>. */
static int check_letters(const struct reader *r, bool fallback)
{
    for (int byte = 0; fallback && r->t->byte_level && byte < 256; byte++)
        if (r->w->of_byte[byte] == 0 && id_of(r, "<0xC4>") >= 0)
            return refuse_part(r, "byte_fallback", "of a ByteLevel vocabulary without all bytes");
    return 0;
}

static int take_tokens(struct reader *r, const json_t *model, const json_t *added)
{
    static const char *const refused[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *key, *unk = get_text(model, "unk_token");
    json_t *value;
    for (int i = 0; i < 2; i++)
        if (get_text(model, refused[i]) && get_text(model, refused[i])[0])
            return refuse_part(r, refused[i], get_text(model, refused[i]));
    if (json_number_value(json_object_get(model, "dropout")) > 0)
        return fail_damaged(r, "dropout of a BPE would give other ids each time; set it to null");
    r->vocab = json_object_get(model, "vocab");
    if (!json_is_object(r->vocab))
        return fail_damaged(r, "no model.vocab");
    PP_TRY(count_tokens(r, added));
    json_object_foreach((json_t *)(uintptr_t)r->vocab, key, value)
        PP_TRY(set_token(r, key, value, false));
    PP_TRY(take_added(r, added));
    r->w->fuse_unk = get_bool(model, "fuse_unk", false);
    r->w->ignore_merges = get_bool(model, "ignore_merges", false);
    if (r->w->ignore_merges)
        list_step(r, "ignore_merges", NULL);
    r->w->byte_fallback = get_bool(model, "byte_fallback", false) && !r->t->byte_level;
    PP_TRY(text_table_create((size_t)r->t->n, &r->w->words));
    for (int id = 0; id < r->t->n; id++)
        if (r->t->tokens[id].text[0])
            find_bytes(r, (uint32_t)id);
    PP_TRY(check_letters(r, get_bool(model, "byte_fallback", false)));
    value = unk ? json_object_get(r->vocab, unk) : NULL;
    if (unk && !value)
        return fail_damaged(r, "its unk_token is not in its vocabulary");
    r->t->unk = value ? (int)json_integer_value(value) : -1;
    return 0;
}

static int take_merge(struct reader *r, const json_t *each, size_t i, char *both)
{
    char name[PP_JSON_SHOWN];
    const char *line = json_string_value(each), *second = line ? strchr(line, ' ') : NULL;
    const char *of[2] = {json_string_value(json_array_get(each, 0)),
                         json_string_value(json_array_get(each, 1))};
    if (second) {
        of[0] = memcpy(both, line, (size_t)(second - line));
        both[second - line] = '\0';
        of[1] = second + 1;
    }
    int64_t left = of[0] ? id_of(r, of[0]) : -1, right = of[1] ? id_of(r, of[1]) : -1, into = -1;
    if (left >= 0 && right >= 0) {
        memmove(both, of[0], strlen(of[0]));
        strcpy(both + strlen(r->t->tokens[left].text), of[1]);
        into = id_of(r, both);
    }
    if (into < 0) {
        return pp_fail(PP_EFORMAT,
                       "%s: merge %zu, '%s', is not of two tokens that together are a third one",
                       r->label, i + 1, shown_or_none(line ? line : of[0], name));
    }
    r->t->merges[i] = (struct pp_merge){(uint32_t)left, (uint32_t)right, (uint32_t)into};
    struct pair_slot *slot = pair_table_find(&r->w->pairs, (uint32_t)left, (uint32_t)right);
    *slot =
        (struct pair_slot){(uint64_t)left << 32 | (uint64_t)right, (uint32_t)into, (uint32_t)i + 1};
    return 0;
}

static int take_merges(struct reader *r, const json_t *all, size_t longest)
{
    size_t i;
    const json_t *each;
    if (!json_is_array(all))
        return fail_damaged(r, "no model.merges");
    PP_TAKE(char, both, longest + 1);
    PP_ALLOC(r->t->merges, json_array_size(all));
    PP_TRY(pair_table_create(json_array_size(all), &r->w->pairs));
    r->t->n_merges = (int)json_array_size(all);
    json_array_foreach(all, i, each) PP_TRY(take_merge(r, each, i, both));
    return 0;
}

/* Returns the special token, such as the end of a text, that has one of `names`; -1 if there is
 * none. A tokenizer.json does not tell which token is used for which purpose. */
static int find_mark(const struct pp_tokenizer *t, const char *names)
{
    for (int i = 0; i < t->n; i++)
        if (t->tokens[i].added && pp_has_word(names, t->tokens[i].text))
            return i;
    return -1;
}

static int read_tokenizer(struct reader *r, const json_t *root, size_t bytes)
{
    const json_t *model = json_object_get(root, "model");
    const char *type = get_text(model, "type");
    if (!model || (type && strcmp(type, "BPE") != 0) ||
        (!type && !json_object_get(model, "merges")))
        return type ? refuse_part(r, "model", type) : fail_damaged(r, "no model of type BPE");
    for (int i = 0; i < LETTERS; i++)
        r->byte_of[i] = -1;
    for (int byte = 0; byte < 256; byte++)
        r->byte_of[tokenizer_byte_letter(byte)] = (int16_t)byte;
    r->w->texts = r->texts = pp_alloc(3 * bytes + 4096, 1);
    PP_TRY(r->texts ? 0 : PP_ERESOURCE);
    PP_TRY(take_parts(r, json_object_get(root, "normalizer"), "normalizers", take_change));
    PP_TRY(
        take_parts(r, json_object_get(root, "pre_tokenizer"), "pretokenizers", take_pre_tokenizer));
    PP_TRY(take_parts(r, json_object_get(root, "decoder"), "decoders", take_decoder));
    r->t->opens_with_space = r->t->opens_with_space || r->w->prefix;
    PP_TRY(take_tokens(r, model, json_object_get(root, "added_tokens")));
    PP_TRY(take_merges(r, json_object_get(model, "merges"), bytes));
    pp_bytes_put(&r->steps, "", 1);
    r->t->steps = r->steps.lost ? NULL : pp_strdup((const char *)r->steps.at);
    PP_TRY(r->t->steps ? 0 : PP_ERESOURCE);
    r->t->eos = find_mark(r->t, "<|endoftext|> </s> <|end_of_text|> <|im_end|> <eos> <|eot_id|>");
    r->t->bos = find_mark(r->t, "<s> <|begin_of_text|> <bos> <|startoftext|>");
    PP_TRY(tokenizer_shape(r->label, r->t));
    qsort(r->w->added, (size_t)r->w->n_added, sizeof(*r->w->added), by_length);
    return 0;
}

int pp_tokenizer_parse(const char *label, const char *json, size_t bytes, struct pp_tokenizer **out)
{
    static const struct pp_json_limits limits = {16, 1 << 23, 1 << 16};
    json_auto_t *root = NULL;
    struct pp_tokenizer *t;
    PP_TRY(pp_json_read(label, json, bytes, &limits, &root));
    PP_ALLOC(t, 1);
    t->work = pp_alloc(1, sizeof(*t->work));
    t->json = pp_strdup(json);
    PP_TAKE(struct reader, r, 1);
    *r = (struct reader){.label = label, .t = t, .w = t->work};
    int rc = t->work && t->json ? read_tokenizer(r, root, bytes) : PP_ERESOURCE;
    pp_bytes_fini(&r->steps);
    PP_TRY_UNDO(rc, pp_tokenizer_destroy(&t));
    *out = t;
    return 0;
}
