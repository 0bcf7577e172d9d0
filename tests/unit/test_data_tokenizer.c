/* SPDX-License-Identifier: Apache-2.0 */
/* Subwords: ids that `tokenizers` gave (tests/golden/tokenizers, made by tests/text/tokenizers_test.py),
 * and what is refused. */
#include "test_data_files.h"

#include "ppcli/base/files.h"
#include "../../src/data/tokenizer.h"

static bool has_patterns(const struct pp_error *e)
{
    return !strstr(e->text, "built without PCRE2");
}

static void encode_case(struct pp_tokenizer *t, const char *name, const json_t *each)
{
    struct pp_ids ids = {0};
    const char *text = json_string_value(json_array_get(each, 0));
    const json_t *want = json_array_get(each, 1);
    CHECK_OK(pp_tokenizer_encode(t, name, text, strlen(text), &ids));
    for (size_t i = 0; i < ids.n && i < json_array_size(want); i++)
        CHECK_INT_EQ(ids.at[i], json_integer_value(json_array_get(want, i)));
    CHECK_INT_EQ(ids.n, json_array_size(want));
    pp_free(ids.at);
}

static json_t *read_golden(const char *name)
{
    static const struct pp_json_limits limits = {16, 1 << 20, 1 << 16};
    char path[PP_PATH_MAX];
    PP_OWN_MEMORY char *text = NULL;
    size_t bytes;
    json_t *golden;
    CHECK_OK(pp_path_format(path, "%s/tests/golden/tokenizers/%s.json", getenv("PPCLI_SOURCE_DIR"),
                            name));
    CHECK_OK(pp_file_read(path, 1 << 20, &text, &bytes));
    CHECK_OK(pp_json_read(path, text, bytes, &limits, &golden));
    return golden;
}

static int parse_json(const char *name, const json_t *tokenizer, struct pp_tokenizer **out)
{
    size_t bytes = json_dumpb(tokenizer, NULL, 0, 0);
    char *json = calloc(bytes + 1, 1);
    json_dumpb(tokenizer, json, bytes, 0);
    int rc = pp_tokenizer_parse(name, json, strlen(json), out);
    free(json);
    return rc;
}

/* Each with what it takes from ours: the tokenizer and cases of [text, ids]. */
static void encode_golden(const char *name)
{
    struct pp_tokenizer *t = NULL;
    json_t *golden = read_golden(name);
    if (parse_json(name, json_object_get(golden, "tokenizer"), &t) < 0) {
        assert_false(has_patterns(pp_error_get()));
        print_message("skipped: %s\n", pp_error_get()->text);
    }
    size_t i;
    const json_t *each;
    assert_true(json_array_size(json_object_get(golden, "cases")) > 50);
    json_array_foreach(json_object_get(golden, "cases"), i, each) if (t) encode_case(t, name, each);
    pp_tokenizer_destroy(&t);
    json_decref(golden);
}

TEST(ids_are_those_of_tokenizers)
{
    static const char *const names[] = {
        "gpt2", "llama3", "qwen", "digits", "llama2", "metaspace-first", "metaspace-always"};
    for (int i = 0; i < COUNT(names); i++)
        encode_golden(names[i]);
}

/* The tokenizer with this pattern in place of its own. */
static int parse_pattern(json_t *golden, const json_t *regex, struct pp_tokenizer **out)
{
    json_t *tokenizer = json_object_get(golden, "tokenizer"),
           *split = json_array_get(
               json_object_get(json_object_get(tokenizer, "pre_tokenizer"), "pretokenizers"), 0);
    json_object_set_new(json_object_get(split, "pattern"), "Regex", json_copy((json_t *)regex));
    return parse_json("t.json", tokenizer, out);
}

TEST(patterns_mean_what_oniguruma_reads)
{
    json_t *golden = read_golden("patterns");
    const json_t *each, *texts = json_object_get(golden, "texts");
    size_t i, k;
    json_array_foreach(json_object_get(golden, "patterns"), i, each)
    {
        struct pp_tokenizer *t = NULL;
        const json_t *regex = json_array_get(each, 0), *ids = json_array_get(each, 1), *text;
        int rc = parse_pattern(golden, regex, &t);
        if (rc == PP_ERESOURCE && !has_patterns(pp_error_get()))
            break;
        CHECK_OK(rc);
        json_array_foreach(texts, k, text)
        {
            json_t *both = json_pack("[OO]", text, json_array_get(ids, k));
            encode_case(t, json_string_value(regex), both);
            json_decref(both);
        }
        pp_tokenizer_destroy(&t);
    }
    json_array_foreach(json_object_get(golden, "refused"), i, each)
    {
        struct pp_tokenizer *t = NULL;
        int rc = parse_pattern(golden, each, &t);
        if (rc == PP_ERESOURCE && !has_patterns(pp_error_get()))
            break;
        CHECK_FAILS(rc, PP_EFORMAT, "t.json: pattern '");
    }
    json_decref(golden);
}

/* Without a pattern, so that they are the same without PCRE2. */
#define MODEL(more) "{\"model\":{\"type\":\"BPE\"," more "}}"
#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}"

TEST(what_is_no_tokenizer_is_refused_in_one_line)
{
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"", "its JSON is damaged"},
        {"[]", "not an object"},
        {"{}", "no model of type BPE"},
        {"{\"model\":{\"type\":\"WordPiece\"}}", "model 'WordPiece' is not done here"},
        {"{\"model\":{\"type\":\"Unigram\"}}", "model 'Unigram' is not done here"},
        {MODEL("\"merges\":[]"), "no model.vocab"},
        {MODEL("\"vocab\":[],\"merges\":[]"), "no model.vocab"},
        {MODEL("\"vocab\":{},\"merges\":[]"), "no tokens"},
        {MODEL("\"vocab\":{\"a\":-1},\"merges\":[]"), "no tokens"},
        {MODEL("\"vocab\":{\"a\":\"0\",\"b\":1},\"merges\":[]"), "'a' has no number from 0 to 1"},
        {MODEL("\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]"), "two tokens have the number 0"},
        {MODEL("\"vocab\":{\"a\":0,\"b\":99999999},\"merges\":[]"), "far beyond"},
        {MODEL("\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]"), "duplicate"},
        {MODEL(VOCAB), "no model.merges"},
        {MODEL(VOCAB ",\"merges\":[\"ab\"]"), "merge 1, 'ab', is not of two tokens"},
        {MODEL(VOCAB ",\"merges\":[\"a b\",\"b a\"]"), "merge 2, 'b a', is not of two tokens"},
        {MODEL(VOCAB ",\"merges\":[[\"a\"]]"), "merge 1, 'a', is not of two tokens"},
        {MODEL(VOCAB ",\"merges\":[7]"), "merge 1, 'none', is not of two tokens"},
        {MODEL(VOCAB ",\"merges\":[],\"unk_token\":\"<unk>\""), "unk_token is not in its vocab"},
        {MODEL(VOCAB ",\"merges\":[],\"dropout\":0.1"), "dropout of a BPE"},
        {MODEL(VOCAB ",\"merges\":[],\"end_of_word_suffix\":\"</w>\""),
         "end_of_word_suffix '</w>' is not done here"},
        {MODEL(VOCAB ",\"merges\":[],\"continuing_subword_prefix\":\"##\""),
         "continuing_subword_prefix '##' is not done here"},
        {"{\"added_tokens\":[{\"id\":0,\"content\":\"x\"}],\"model\":{" VOCAB ",\"merges\":[]}}",
         "two tokens have the number 0"},
        {"{\"added_tokens\":[{\"id\":9,\"content\":\"x\"}],\"model\":{" VOCAB ",\"merges\":[]}}",
         "added token 'x' has number 9, but the next free number is 3"},
        {"{\"added_tokens\":[{\"id\":3,\"content\":\"x\"},{\"id\":4,\"content\":\"x\"}],\"model\":"
         "{" VOCAB ",\"merges\":[]}}",
         "added token 'x' has two numbers, 3 and 4"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\","
         "\"add_prefix_space\":false,\"use_regex\":false},{\"type\":\"Digits\"}]},\"model\":{" VOCAB
         ",\"merges\":[]}}",
         "pre_tokenizer 'Digits' after ByteLevel is not supported"},
        {"{\"added_tokens\":[{\"id\":3}],\"model\":{" VOCAB ",\"merges\":[]}}",
         "an added token without content"},
        {"{\"added_tokens\":[{\"id\":3,\"content\":\"x\",\"single_word\":true}],\"model\":{" VOCAB
         ",\"merges\":[]}}",
         "single_word of added token 'x' is not done here"},
        {"{\"normalizer\":{\"type\":\"Lowercase\"},\"model\":{" VOCAB ",\"merges\":[]}}",
         "normalizer 'Lowercase' is not done here"},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"\"},"
         "\"model\":{" VOCAB ",\"merges\":[]}}",
         "normalizer 'Replace of a Regex' is not done here"},
        {"{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"model\":{" VOCAB ",\"merges\":[]}}",
         "pre_tokenizer 'BertPreTokenizer' is not done here"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\"},\"model\":{" VOCAB ",\"merges\":[]}}",
         "a Sequence without its parts"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":"
         "\"Isolated\"},\"model\":{" VOCAB ",\"merges\":[]}}",
         "a Split without a pattern"},
        {"{\"decoder\":{\"type\":\"WordPiece\"},\"model\":{" VOCAB ",\"merges\":[]}}",
         "decoder 'WordPiece' is not done here"},
        {"{\"model\":{" VOCAB ",\"merges\":[]}", "its JSON is damaged"},
        {"{\"model\":{" VOCAB ",\"merges\":[]}} x", "its JSON is damaged"},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        struct pp_tokenizer *t = NULL;
        int rc = pp_tokenizer_parse("t.json", cases[i].json, strlen(cases[i].json), &t);
        const char *text = pp_error_get()->text;
        if (rc != PP_EFORMAT || strncmp(text, "t.json: ", 8) != 0 || !strstr(text, cases[i].says))
            fail_msg("%s: %d, '%s', not '%s'", cases[i].json, rc, text, cases[i].says);
        assert_null(t);
    }
}

TEST(patterns_that_would_mean_something_else_are_refused)
{
    static const struct {
        const char *regex, *says;
    } cases[] = {{"a(", "a '(' without its ')'"},
                 {"[a&&b]", "&& in a class is not supported"},
                 {"[[a]b]", "a class in a class is not supported"},
                 {"[\\\\W]", "the opposite of word in a class"},
                 {"(?i:ss)", "'ss' without regard to case"},
                 {"\\\\X", "\\X is not supported"},
                 {"a*", "matches nothing"}};
    for (int i = 0; i < COUNT(cases); i++) {
        char json[512];
        struct pp_tokenizer *t = NULL;
        snprintf(
            json, sizeof(json),
            "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":"
            "\"Isolated\"},\"model\":{" VOCAB ",\"merges\":[]}}",
            cases[i].regex);
        int rc = pp_tokenizer_parse("t.json", json, strlen(json), &t);
        if (rc == PP_ERESOURCE && !has_patterns(pp_error_get()))
            skip();
        CHECK_FAILS(rc, PP_EFORMAT, cases[i].says);
    }
}

static struct pp_tokenizer *small(const char *more, const char *tokens)
{
    char json[512];
    struct pp_tokenizer *t = NULL;
    snprintf(json, sizeof(json),
             "{%s\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2%s},\"merges\":[\"a b\"]}}", more,
             tokens);
    CHECK_OK(pp_tokenizer_parse("t.json", json, strlen(json), &t));
    return t;
}

TEST(text_that_has_no_tokens_is_refused_with_its_label)
{
    struct pp_tokenizer *t = small("", "");
    struct pp_ids ids = {0};
    CHECK_OK(pp_tokenizer_encode(t, "x", "abba", 4, &ids));
    CHECK_INT_EQ(ids.n, 3);
    CHECK_INT_EQ(ids.at[0], 2);
    CHECK_FAILS(pp_tokenizer_encode(t, "x", "abc", 3, &ids), PP_EFORMAT, "'c'");
    CHECK_FAILS(pp_tokenizer_encode(t, "x", "ab\xff", 3, &ids), PP_EFORMAT,
                "x: byte 2 (0xff) begins no character of UTF-8");
    CHECK_FAILS(pp_tokenizer_encode(t, "x", "ab\xc3", 3, &ids), PP_EFORMAT, "x: byte 2 (0xc3)");
    pp_free(ids.at);
    pp_tokenizer_destroy(&t);
}

TEST(numbers_may_have_gaps_and_added_tokens_their_blanks)
{
    struct pp_tokenizer *t = small(
        "\"added_tokens\":[{\"id\":70000,\"content\":\"<m>\",\"special\":true,\"lstrip\":true,"
        "\"rstrip\":true}],",
        ",\"<m>\":70000");
    struct pp_ids ids = {0};
    CHECK_INT_EQ(t->n, 70001);
    CHECK_STR_EQ(t->tokens[3].text, "");
    CHECK_OK(pp_tokenizer_encode(t, "x", "ab \xc2\xa0<m>\n\xe3\x80\x80 b", 14, &ids));
    CHECK_INT_EQ(ids.n, 3);
    CHECK_INT_EQ(ids.at[1], 70000); /* not 4464 */
    CHECK_INT_EQ(ids.at[2], 1);
    pp_free(ids.at);
    pp_tokenizer_destroy(&t);
}

TEST(tokens_that_are_added_again_keep_their_numbers)
{
    struct pp_tokenizer *t = small("\"added_tokens\":[{\"id\":7,\"content\":\"b\"}],", "");
    struct pp_ids ids = {0};
    CHECK_INT_EQ(t->n, 3);
    CHECK_OK(pp_tokenizer_encode(t, "x", "aba", 3, &ids));
    CHECK_INT_EQ(ids.n, 3);
    CHECK_INT_EQ(ids.at[1], 1);
    pp_free(ids.at);
    pp_tokenizer_destroy(&t);
}

TEST(a_folder_without_one_says_how_to_make_it)
{
    struct pp_tokenizer *t = NULL;
    CHECK_FAILS(pp_tokenizer_open("/proc/self/task", &t), PP_ENOINPUT, "has no tokenizer.json");
    CHECK_FAILS(pp_tokenizer_open("/no/such", &t), PP_ENOINPUT, "/no/such");
}

TEST(a_vocabulary_of_ones_own_grows_from_what_is_frequent)
{
    static const char *const label[] = {"text"}, *const text[] = {"low lower lowest low low new"};
    size_t bytes[] = {strlen(text[0])};
    PP_OWN_MEMORY char *json = NULL;
    struct pp_tokenizer *t = NULL;
    struct pp_ids ids = {0};
    int rc = pp_tokenizer_train(1, label, text, bytes, 262, &json);
    if (rc < 0) {
        assert_false(has_patterns(pp_error_get()));
        skip();
    }
    CHECK_OK(pp_tokenizer_parse("made", json, strlen(json), &t));
    CHECK_INT_EQ(t->n, 262);
    CHECK_STR_EQ(t->tokens[256].bytes, "lo"); /* 5 times, as "ow", but first in numbers */
    CHECK_STR_EQ(t->tokens[257].bytes, "low");
    CHECK_STR_EQ(t->tokens[258].bytes, " low");
    CHECK_STR_EQ(t->tokens[261].text, "<|endoftext|>");
    CHECK_INT_EQ(t->eos, 261);
    CHECK_OK(pp_tokenizer_encode(t, "x", "low low<|endoftext|>", 20, &ids));
    CHECK_INT_EQ(ids.n, 3);
    CHECK_INT_EQ(ids.at[2], 261);
    pp_free(ids.at);
    pp_tokenizer_destroy(&t);
}
