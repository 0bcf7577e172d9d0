/* SPDX-License-Identifier: Apache-2.0 */
/* Properties over many configs: what is written loads back, what is damaged is refused cleanly, the
 * corpus says exactly what it always said, and the shipped configs load. */
#include "test_conf.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>

static const char *source_dir(void)
{
    const char *dir = getenv("PPCLI_SOURCE_DIR");
    return dir ? dir : ".";
}

/* splitmix64: any fixed sequence will do here */
static uint64_t random_state;

static uint64_t next_random(void)
{
    uint64_t z = (random_state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static int below(int n)
{
    return (int)(next_random() % (uint64_t)n);
}

static const char *one_of(const char *const *words)
{
    int n = 0;
    while (words[n])
        n++;
    return words[below(n)];
}

/* Any double in (0, 1) that is neither 0 nor 1 as a float: random bits, and a wide range of exponents. */
static double random_fraction(void)
{
    uint64_t bits = ((uint64_t)(1023 - 1 - below(120)) << 52) | (next_random() >> 12);
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static void print_sizes(FILE *f, int layers)
{
    int width = 1 + below(5000);
    fprintf(f, "sizes = ");
    for (int i = 0; i <= layers; i++) {
        width = below(2) ? width : 1 + below(5000);
        fprintf(f, "%s%d", i == 0 ? "" : below(2) ? ", " : " ", width);
    }
    fputc('\n', f);
}

static void print_assignment(FILE *f, int layers, int stages)
{
    static const char *const words[] = {"auto", "equal", "flops", "params", "time", NULL};
    if (below(2)) {
        fprintf(f, "assignment = %s\n", one_of(words));
        return;
    }
    fprintf(f, "assignment = ");
    for (int s = 0, first = 0; s < stages; s++) {
        int room = layers - first - (stages - s - 1);
        int last = s == stages - 1 ? layers - 1 : first + below(room);
        fprintf(f, "%s%d", s ? "|" : "", first);
        if (first != last || below(2))
            fprintf(f, "-%d", last);
        first = last + 1;
    }
    fputc('\n', f);
}

/* A random legal config: every key, or about half of them. */
static void print_random_config(FILE *f)
{
    static const char *const activations[] = {
#define PP_ACTIVATION(NAME, word, ...) #word,
#include "ppcli/conf/activations.def"
        NULL};
    static const char *const optimizers[] = {
#define PP_OPTIMIZER(NAME, word, moments) #word,
#include "ppcli/conf/optimizers.def"
        NULL};
    static const char *const metrics[] = {"off", "test_loss", "accuracy", "train_loss", NULL};
    static const char *const losses[] = {"cross_entropy", "bce", NULL};
    static const char *const class_weights[] = {"none", "balanced", "1 2.5", "0.5 0 1e3", NULL};
    static const char *const lr_schedules[] = {"constant", "linear", "cosine", "plateau", NULL};
    static const char *const milestones[] = {"none", "30", "30, 60 90", "1 2,3", NULL};
    static const char *const launches[] = {"auto", "threads", "mpirun", NULL};
    static const char *const paths[] = {"",        "auto",  "out", "../x y", "/abs/p\xC3\xA9",
                                        "./a#b;c", "a=b:c", "[d]", NULL};
    int layers = 1 + below(12), stages = 1 + below(layers);
    int m = 1 + below(64), d = 1 + below(8);
#define MAYBE(...) (below(4) ? (void)fprintf(f, __VA_ARGS__) : (void)0)
    fprintf(f, "[model]\n");
    print_sizes(f, layers);
    MAYBE("activation = %s\n", one_of(activations));
    MAYBE("init = %s\n", below(2) ? "torch" : "xavier_normal");
    fprintf(f, "[pipeline]\nstages = %d\nreplicas = %d\nmicrobatches = %d\n", stages, d, m);
    print_assignment(f, layers, stages);
    MAYBE("schedule = %s\n", one_of(test_schedules));
    fprintf(f, "[train]\nbatch_size = %d\n", m * d + below(1000));
    MAYBE("epochs = %d\n", 1 + below(1000000));
    MAYBE("max_steps = %dk\n", below(1000));
    MAYBE("optimizer = %s\n", one_of(optimizers));
    MAYBE("lr = %.*g\n", 1 + below(17), random_fraction());
    MAYBE("momentum = %.17g\n", random_fraction());
    MAYBE("nesterov = %s\n", below(2) ? "true" : "off");
    MAYBE("beta1 = %.17g\n", random_fraction());
    MAYBE("beta2 = %.17g\n", random_fraction());
    MAYBE("eps = %.17g\n", random_fraction());
    MAYBE("weight_decay = %.17g\n", 1000 * random_fraction());
    MAYBE("decay = %s\n", below(2) ? "weights" : "all");
    MAYBE("lr_schedule = %s\n", one_of(lr_schedules));
    MAYBE("lr_milestones = %s\n", one_of(milestones));
    MAYBE("lr_gamma = %.17g\n", random_fraction());
    MAYBE("lr_patience = %d\n", below(1000000));
    MAYBE("decay_steps = %dKi\n", below(1000));
    MAYBE("decay_shape = %s\n", below(2) ? "sqrt" : "linear");
    MAYBE("test_every = %d\n", 1 + below(1000000));
    MAYBE("patience = %d\n", below(1000000));
    MAYBE("min_delta = %.17g\n", random_fraction());
    MAYBE("warmup_steps = %dKi\n", below(1000));
    MAYBE("clip_norm = %.17g\n", random_fraction());
    MAYBE("seed = %llu\n", (unsigned long long)next_random());
    MAYBE("loss = %s\n", one_of(losses));
    MAYBE("class_weights = %s\n", one_of(class_weights));
    MAYBE("label_smoothing = %.17g\n", random_fraction());
    MAYBE("microbatch_loss = %s\n", below(2) ? "sum" : "mean");
    fprintf(f, "[data]\n");
    MAYBE("dataset = %s\n", one_of(test_datasets));
    MAYBE("path = %s\n", one_of(paths));
    MAYBE("train_samples = %d\n", below(INT_MAX));
    MAYBE("test_samples = %d\n", INT_MAX);
    MAYBE("shuffle = %s\n", below(2) ? "off" : "true");
    MAYBE("drop_last = %s\n", below(2) ? "on" : "false");
    fprintf(f, "[checkpoint]\n");
    MAYBE("best = %s\n", one_of(metrics));
    fprintf(f, "[run]\n");
    MAYBE("progress = %s\n", below(2) ? "off" : "auto");
    MAYBE("on_epoch = ./program --of %d\n", below(1000));
    MAYBE("backend = %s\n", one_of(test_backends));
    MAYBE("launch = %s\n", one_of(launches));
    MAYBE("dir = %s\n", one_of(paths));
    MAYBE("log_every = %d\n", below(1000000));
    MAYBE("threads = %d\n", 1 + below(1024));
#undef MAYBE
}

static void check_same(const struct pp_config *a, const struct pp_config *b, const char *text)
{
    static char x[PP_CONFIG_VALUE_MAX], y[PP_CONFIG_VALUE_MAX];
    for (int i = 0; i < pp_config_key_count(); i++) {
        CHECK_OK(pp_config_key_value(a, i, x, sizeof(x)));
        CHECK_OK(pp_config_key_value(b, i, y, sizeof(y)));
        if (strcmp(x, y) != 0)
            fail_msg("%s: '%s' became '%s' in\n%s", pp_config_key_name(i), x, y, text);
    }
    /* the texts agree; the bits must too */
    size_t values = offsetof(struct pp_config, source);
    assert_memory_equal(a, b, values);
}

static char *written(const struct pp_config *cfg)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    CHECK_OK(pp_config_write(cfg, f));
    fclose(f);
    return text;
}

TEST(a_written_config_loads_back_to_the_same_values)
{
    random_state = 1;
    for (int i = 0; i < 600; i++) {
        FILE *f = fopen("t.ini", "w");
        assert_non_null(f);
        print_random_config(f);
        fclose(f);
        PP_OWN(pp_config_destroy) struct pp_config *a = NULL, *b = NULL;
        int rc = pp_config_load("t.ini", NULL, 0, &test_names, &a);
        if (rc < 0) {
            show_problems(a);
            fail_msg("config %d: %s", i, pp_error_get()->text);
        }
        PP_OWN_MEMORY char *text = written(a);
        put_text("t.ini", text);
        CHECK_OK(pp_config_load("t.ini", NULL, 0, &test_names, &b));
        check_same(a, b, text);
        char ha[65], hb[65];
        pp_config_hash(a, ha);
        pp_config_hash(b, hb);
        CHECK_STR_EQ(ha, hb);
    }
}

TEST(the_resolved_config_names_the_origin_of_every_value)
{
    struct pp_config *cfg = good("[train]\nlr = 0.5\n", "train.epochs=7", NULL);
    PP_OWN_MEMORY char *text = written(cfg);
    assert_non_null(strstr(text, "\n; from --set\nepochs = 7\n"));
    assert_non_null(strstr(text, "\n; from t.ini:2\nlr = 0.5\n"));
    assert_non_null(strstr(text, "\n; default\nseed = 1\n"));
    pp_config_destroy(&cfg);
}

TEST(lines_of_any_length_are_written_and_read_back)
{
    char sizes[2048] = "model.sizes=1", ranges[1024] = "pipeline.assignment=0", dir[512];
    for (int i = 1; i < 100; i++) {
        char one[16];
        strcat(sizes, i % 2 ? " 12" : " 13");
        snprintf(one, sizeof(one), " | %d", i);
        strcat(ranges, i < 99 ? one : "");
    }
    snprintf(dir, sizeof(dir), "run.dir=/%0300d/%0150d", 7, 7);
    struct pp_config *cfg = good(NULL, sizes, "pipeline.stages=99", ranges, dir, NULL);
    char *text = written(cfg);
    put_text("t.ini", text);
    struct pp_config *back = NULL;
    CHECK_OK(pp_config_load("t.ini", NULL, 0, &test_names, &back));
    check_same(cfg, back, text);
    free(text);
    pp_config_destroy(&back);
    pp_config_destroy(&cfg);
}

TEST(a_full_disk_is_an_io_error)
{
    FILE *f = fopen("/dev/full", "w");
    if (!f) {
        print_message("# skipped: no /dev/full here\n");
        skip();
    }
    PP_OWN(pp_config_destroy) struct pp_config *cfg = good(NULL, NULL);
    CHECK_FAILS(pp_config_write(cfg, f), PP_EIO, "cannot write the resolved config");
    fclose(f);
}

/* One random edit: flip, delete, insert, repeat or swap lines, cut. */
static size_t mutate(char *text, size_t n, size_t capacity)
{
    static const char spice[] = "[]=;#:\n\r\t \0,|*-.\"'$\\{}~\xFF\xEF\xC3k9";
    size_t at = n > 0 ? (size_t)below((int)n) : 0;
    size_t len = n - at > 0 ? 1 + (size_t)below((int)(n - at < 40 ? n - at : 40)) : 0;
    switch (below(6)) {
    case 0:
        if (n > 0)
            text[at] ^= (char)(1 << below(8));
        return n;
    case 1:
        memmove(text + at, text + at + len, n - at - len);
        return n - len;
    case 2:
        if (n + 1 < capacity) {
            memmove(text + at + 1, text + at, n - at);
            text[at] = spice[below((int)sizeof(spice) - 1)];
            return n + 1;
        }
        return n;
    case 3: /* double a piece */
        if (n + len < capacity) {
            memmove(text + at + len, text + at, n - at);
            return n + len;
        }
        return n;
    case 4:
        if (n > 0)
            text[at] = spice[below((int)sizeof(spice) - 1)];
        return n;
    default:
        return below(10) ? n : at;
    }
}

TEST(damaged_files_load_or_give_problems_and_never_crash)
{
    char good_text[8192], text[8192];
    char *made = NULL;
    size_t n_good = 0, n_made = 0;
    int loaded = 0, refused = 0;
    random_state = 7;
    for (int i = 0; i < 2500; i++) {
        if (i % 100 == 0) {
            FILE *f = open_memstream(&made, &n_made);
            print_random_config(f);
            fclose(f);
            n_good = n_made;
            memcpy(good_text, made, n_good);
            free(made);
        }
        size_t n = n_good;
        memcpy(text, good_text, n);
        for (int edits = 1 + below(6); edits > 0; edits--)
            n = mutate(text, n, sizeof(text));
        put_file("t.ini", text, n);
        PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
        int rc = pp_config_load("t.ini", NULL, 0, &test_names, &cfg);
        assert_non_null(cfg);
        if (rc == 0) {
            loaded++;
            CHECK_INT_EQ(pp_config_problem_count(cfg), 0);
            /* and what is accepted survives the round trip */
            char *back = written(cfg);
            struct pp_config *again = NULL;
            put_text("t.ini", back);
            CHECK_OK(pp_config_load("t.ini", NULL, 0, &test_names, &again));
            check_same(cfg, again, back);
            pp_config_destroy(&again);
            free(back);
        } else {
            refused++;
            CHECK_INT_EQ(rc, PP_ECONFIG);
            assert_true(pp_config_problem_count(cfg) > 0);
            for (int k = 0; k < pp_config_problem_count(cfg); k++) {
                const char *p = pp_config_problem_text(cfg, k);
                CHECK_INT_EQ(strncmp(p, "t.ini:", 6), 0);
                assert_null(strpbrk(p, "\n\r\x1B"));
            }
        }
    }
    print_message("# %d loaded, %d refused\n", loaded, refused);
    assert_true(loaded > 50 && refused > 500);
}

/* What a corpus file comes to: its problems, or the keys it sets. */
static char *outcome(const char *name)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    int rc = pp_config_load(name, NULL, 0, &test_names, &cfg);
    assert_non_null(cfg);
    for (int i = 0; i < pp_config_problem_count(cfg); i++)
        fprintf(f, "%s\n", pp_config_problem_text(cfg, i));
    for (int i = 0; rc == 0 && i < pp_config_key_count(); i++) {
        const char *key = pp_config_key_name(i);
        if (strcmp(pp_config_origin(cfg, key), "default") != 0)
            fprintf(f, "%s = %s (%s)\n", key, value_of(cfg, key), pp_config_origin(cfg, key));
    }
    fclose(f);
    return text;
}

static int is_ini(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 4 && strcmp(e->d_name + n - 4, ".ini") == 0;
}

TEST(the_corpus_says_what_it_always_said)
{
    char dir[PP_PATH_MAX], name[PP_PATH_MAX], expected[16384];
    struct dirent **files = NULL;
    CHECK_OK(pp_path_format(dir, "%s/tests/golden/ini", source_dir()));
    assert_int_equal(chdir(dir), 0);
    int n = scandir(".", &files, is_ini, alphasort);
    assert_true(n >= 20);
    for (int i = 0; i < n; i++) {
        CHECK_OK(pp_path_format(name, "%.*s.expected", (int)strlen(files[i]->d_name) - 4,
                                files[i]->d_name));
        char *found = outcome(files[i]->d_name);
        if (getenv("PPCLI_GOLDEN_WRITE")) /* after a change of texts: then read the diff */
            put_text(name, found);
        FILE *f = fopen(name, "r");
        if (!f)
            fail_msg("%s is missing", name);
        size_t bytes = fread(expected, 1, sizeof(expected) - 1, f);
        expected[bytes] = '\0';
        fclose(f);
        CHECK_STR_EQ(found, expected);
        free(found);
        free(files[i]);
    }
    free(files);
    assert_int_equal(chdir(test_dir), 0);
}

TEST(the_shipped_configs_load_and_say_how_to_run_them)
{
    char dir[PP_PATH_MAX], path[PP_PATH_MAX], text[4096], command[512];
    PP_OWN_MEMORY struct dirent **files = NULL;
    /* the schedules that they use; all of them live in a module above this test */
    static const char *const schedules[] = {"1f1b", "zb-h1", "zb-h2", "gpipe", "naive", NULL};
    static const char *const models[] = {"mlp",   "sequential", "resnet",  "gpt",
                                         "llama", "encoder",    "decoder", NULL};
    static const char *const datasets[] = {
        "mnist",       "mnist-sample",     "cifar10",     "fashion-mnist",
        "synthetic",   "synthetic-ones",   "shakespeare", "tokens",
        "text-labels", "synthetic-tokens", NULL};
    struct pp_names names = test_names;
    names.schedules = schedules;
    names.models = models;
    names.datasets = datasets;
    CHECK_OK(pp_path_format(dir, "%s/configs", source_dir()));
    int n = scandir(dir, &files, is_ini, alphasort);
    assert_true(n >= 6);
    for (int i = 0; i < n; i++) {
        struct pp_config *cfg = NULL;
        CHECK_OK(pp_path_format(path, "%s/%s", dir, files[i]->d_name));
        CHECK_OK(pp_config_load(path, NULL, 0, &names, &cfg));
        CHECK_INT_EQ(pp_config_note_count(cfg), 0);
        pp_config_destroy(&cfg);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
        fclose(f);
        assert_true(strncmp(text, "; ", 2) == 0);
        bool says = false;
        for (int k = 0; k < 2; k++) {
            snprintf(command, sizeof(command), "\n;   ppcli %s %s", k ? "estimate" : "train",
                     files[i]->d_name);
            says |= strstr(text, command) != NULL;
        }
        if (!says)
            fail_msg("%s does not say 'ppcli train %s', or estimate", path, files[i]->d_name);
        int lines = 0; /* that say something: a tutorial of a ResNet has some twenty keys */
        for (const char *p = text; *p; p++)
            lines += *p == '\n' && p[1] && !strchr(";\n[", p[1]);
        assert_in_range(lines, 3, 24);
        free(files[i]);
    }
}
