/* SPDX-License-Identifier: Apache-2.0 */
/* Suggestions, the option table in print, the hash. */
#include "test_conf.h"
#include "ppcli/conf/config.h"

static const char *const fruit[] = {"apple", "banana", "cherry", "fig", "grape", NULL};

TEST(the_nearest_word_is_suggested_when_it_is_near)
{
    CHECK_STR_EQ(pp_nearest("aple", fruit), "apple");     /* one missing */
    CHECK_STR_EQ(pp_nearest("bananaa", fruit), "banana"); /* one too many */
    CHECK_STR_EQ(pp_nearest("chorry", fruit), "cherry");  /* one wrong */
    CHECK_STR_EQ(pp_nearest("garpe", fruit), "grape");    /* two swapped */
    CHECK_STR_EQ(pp_nearest("BANANA", fruit), "banana");
    CHECK_STR_EQ(pp_nearest("banan_s", fruit), "banana");
    CHECK_STR_EQ(pp_nearest("fig", fruit), "fig");
}

TEST(a_far_word_is_not_suggested)
{
    assert_null(pp_nearest("bnn", fruit));
    assert_null(pp_nearest("fog_", fruit)); /* 2 of 4 letters */
    static const char *const keys[] = {"muon_lr", "seed", "train.muon_lr", "train.lr", NULL};
    assert_null(pp_nearest("min_lr", keys)); /* 2 of 6 */
    assert_null(pp_nearest("sched", keys));
    assert_null(pp_nearest("train.min_lr", keys));
    CHECK_STR_EQ(pp_nearest("train.lrr", keys), "train.lr");
    CHECK_STR_EQ(pp_nearest("trian.muon_lr", keys), "train.muon_lr");
    CHECK_STR_EQ(pp_nearest("muno_rl", keys), "muon_lr");
    assert_null(pp_nearest("", fruit));
    assert_null(pp_nearest("x", fruit));
    assert_null(pp_nearest("cherryxyz", fruit));
    assert_null(pp_nearest("apple", fruit + 5));
    assert_null(pp_nearest("apple", NULL));
    char word[300];
    memset(word, 'a', 299);
    word[299] = '\0';
    assert_null(pp_nearest(word, fruit));
}

TEST(a_swap_of_neighbours_costs_one)
{
    static const char *const words[] = {"abcd", NULL};
    CHECK_STR_EQ(pp_nearest("bacd", words), "abcd"); /* 1 < 4/2; as two substitutions it is not */
    CHECK_STR_EQ(pp_nearest("abdc", words), "abcd");
    assert_null(pp_nearest("badc", words));
}

static char *printed(const char *section, enum pp_keys_format format)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    CHECK_OK(pp_config_print_keys(f, section, &test_names, format));
    fclose(f);
    return text;
}

TEST(keys_are_printed_aligned_by_section)
{
    char *text = printed("pipeline", PP_KEYS_TEXT);
    const char *expected =
        "[pipeline]\n"
        "  stages        int         1                1 to 1024 stages\n"
        "                pieces the model is cut into; each runs on a rank of its own\n"
        "  replicas      int         1                1 to 1024 replicas\n";
    text[strlen(expected)] = '\0';
    CHECK_STR_EQ(text, expected);
    free(text);
    text = printed(NULL, PP_KEYS_TEXT);
    assert_non_null(strstr(text, "\n\n[run]\n"));
    for (int i = 0; i < pp_config_key_count(); i++)
        assert_non_null(strstr(text, strchr(pp_config_key_name(i), '.') + 1));
    free(text);
    text = printed("train.lr_schedule", PP_KEYS_TEXT);
    CHECK_STR_EQ(
        text,
        "[train]\n  lr_schedule  choice      constant\n"
        "               constant | linear | cosine | multistep | wsd | plateau\n"
        "               how the learning rate falls over the run; cosine: to lr_floor, as "
        "PyTorch's\n"
        "               CosineAnnealingLR; multistep: at lr_milestones, as its MultiStepLR; wsd: "
        "not\n"
        "               before the last decay_steps; plateau: when the metric of checkpoint.best "
        "stops to\n               improve, as its ReduceLROnPlateau\n");
    free(text);
}

TEST(the_schema_is_json)
{
    char *text = printed("pipeline.schedule", PP_KEYS_JSON);
    const char *expected =
        "{\n  \"schema\": 1,\n  \"keys\": [\n    {\n"
        "      \"name\": \"pipeline.schedule\",\n"
        "      \"section\": \"pipeline\",\n      \"key\": \"schedule\",\n"
        "      \"type\": \"name\",\n      \"default\": \"1f1b\",\n"
        "      \"values\": [\n        \"auto\",\n        \"naive\",\n        \"gpipe\",\n"
        "        \"1f1b\"\n      ],\n      \"value_help\": {\n        \"naive\": \"slow\",\n"
        "        \"gpipe\": \"holds - M\"\n      },\n      \"unit\": \"\",\n"
        "      \"in_hash\": false,\n"
        "      \"help\": \"order of forward and backward passes; auto: measure, and take the "
        "fastest; file:TABLE.csv: from a table (ppcli plan --format csv); exec:./PROGRAM: from a "
        "table that a program prints\"\n"
        "    }\n  ]\n}\n";
    CHECK_STR_EQ(text, expected);
    free(text);
    text = printed("train.beta1", PP_KEYS_JSON);
    assert_non_null(strstr(text, "\"min\": 0,\n      \"max\": 1,\n      \"min_is_legal\": true,\n"
                                 "      \"max_is_legal\": false,"));
    free(text);
    text = printed("train.seed", PP_KEYS_JSON);
    assert_non_null(strstr(text, "\"max\": 18446744073709551615,"));
    free(text);
}

TEST(the_list_is_every_key_once)
{
    char *text = printed(NULL, PP_KEYS_LIST);
    const char *p = text;
    for (int i = 0; i < pp_config_key_count(); i++) {
        size_t n = strlen(pp_config_key_name(i));
        assert_memory_equal(p, pp_config_key_name(i), n);
        assert_int_equal(p[n], '\n');
        p += n + 1;
    }
    assert_int_equal(*p, '\0');
    free(text);
}

TEST(keys_have_their_words)
{
    const char *optimizer_words = ""
#define PP_OPTIMIZER(NAME, word, moments) " " #word
#include "ppcli/conf/optimizers.def"
        ;
    char words[1024];
    int n = 0;
    for (int i = 0; i < pp_config_key_count(); i++) {
        pp_config_key_words(i, NULL, words, sizeof(words));
        n += words[0] != '\0';
        assert_null(strstr(words, "  "));
        assert_null(strchr(words, '|'));
        if (strcmp(pp_config_key_name(i), "train.optimizer") == 0)
            CHECK_STR_EQ(words, optimizer_words + 1);
        if (strcmp(pp_config_key_name(i), "pipeline.recompute") == 0)
            CHECK_STR_EQ(words, "off all auto");
        if (strcmp(pp_config_key_name(i), "train.lr") == 0)
            CHECK_STR_EQ(words, "");
    }
    assert_true(n > 20);
}

TEST(names_of_other_programs_lead_to_keys)
{
    CHECK_STR_EQ(pp_config_key_like("learning_rate"), "train.lr");
    CHECK_STR_EQ(pp_config_key_like("Learning-Rate"), "train.lr");
    CHECK_STR_EQ(pp_config_key_like("train.learning_rate"), "train.lr");
    CHECK_STR_EQ(pp_config_key_like("gradient_accumulation_steps"), "pipeline.microbatches");
    CHECK_STR_EQ(pp_config_key_like("gpus"), "pipeline.stages");
    assert_null(pp_config_key_like("lr"));
    assert_null(pp_config_key_like(""));
}

TEST(the_manual_pages_body_has_balanced_lists_and_no_stray_macro)
{
    char *text = printed(NULL, PP_KEYS_MDOC);
    int open = 0, items = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        assert_true(strlen(line) <= 80);
        open += strncmp(line, ".Bl", 3) == 0;
        open -= strncmp(line, ".El", 3) == 0;
        items += strncmp(line, ".It", 3) == 0;
        if (line[0] == '.') {
            static const char known[] = ".Ss .Bl .El .It .br ";
            char macro[5] = "";
            memcpy(macro, line, 3);
            strcat(macro, " ");
            assert_non_null(strstr(known, macro));
        }
    }
    CHECK_INT_EQ(open, 0);
    CHECK_INT_EQ(items, pp_config_key_count() + 2); /* and two schedules */
    free(text);
    text = printed("pipeline.schedule", PP_KEYS_MDOC);
    assert_non_null(strstr(text, ".It Cm naive\nslow\n.It Cm gpipe\nholds \\- M\n.El\n"));
    free(text);
    text = printed("pipeline.schedule", PP_KEYS_TEXT);
    assert_non_null(strstr(text, "\n    naive           slow\n    gpipe           holds - M\n"));
    free(text);
}

TEST(an_unknown_section_is_a_usage_error_with_a_suggestion)
{
    CHECK_FAILS(pp_config_print_keys(stderr, "trian", NULL, PP_KEYS_TEXT), PP_EUSAGE, "'train'");
    CHECK_FAILS(pp_config_print_keys(stderr, "lr", NULL, PP_KEYS_TEXT), PP_EUSAGE, "'train.lr'");
    CHECK_FAILS(pp_config_print_keys(stderr, "pipeline.stags", NULL, PP_KEYS_JSON), PP_EUSAGE,
                "'pipeline.stages'");
    CHECK_FAILS(pp_config_print_keys(stderr, "zzz", NULL, PP_KEYS_TEXT), PP_EUSAGE, "'zzz'");
}

static void hash_of(char out[65], const char *setting)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = good("[train]\nepochs = 3\n", setting, NULL);
    pp_config_hash(cfg, out);
}

TEST(the_hash_follows_the_numbers_of_a_run_and_nothing_else)
{
    static const char *const same[] = {"pipeline.stages=2",
                                       "pipeline.schedule=gpipe",
                                       "pipeline.assignment=equal",
                                       "run.dir=/elsewhere",
                                       "run.threads=4",
                                       "run.backend=cpu",
                                       "data.path=/data",
                                       "train.lr=1e-3",
                                       "train.epochs=3",
                                       "train.coalesce=2", /* of exact sums */
                                       NULL};
    static const char *const other[] = {
        "train.lr=2e-3",           "train.epochs=4",         "train.seed=2",
        "pipeline.microbatches=8", "pipeline.replicas=2",    "model.sizes=784 10",
        "model.activation=tanh",   "data.dataset=synthetic", "data.train_samples=10",
        "train.optimizer=sgd",     "train.clip_norm=1",      "train.max_steps=5",
        "train.batch_size=64",     "train.exact=off",        NULL};
    char base[65], hash[65];
    hash_of(base, NULL);
    CHECK_INT_EQ(strlen(base), 64);
    for (int i = 0; same[i]; i++) {
        hash_of(hash, same[i]);
        CHECK_STR_EQ(hash, base);
    }
    for (int i = 0; other[i]; i++) {
        hash_of(hash, other[i]);
        assert_string_not_equal(hash, base);
    }
    hash_of(base, "train.exact=off");
    struct pp_config *cfg = good("[train]\nepochs = 3\nexact = off\n", "train.coalesce=2", NULL);
    pp_config_hash(cfg, hash);
    assert_string_not_equal(hash, base);
    pp_config_destroy(&cfg);
}

TEST(enum_values_have_words)
{
    CHECK_STR_EQ(pp_activation_name(PP_ACT_GELU), "gelu");
    CHECK_STR_EQ(pp_activation_name(PP_ACT_NONE), "none");
    CHECK_STR_EQ(pp_optimizer_name(PP_OPT_ADAMW), "adamw");
}
