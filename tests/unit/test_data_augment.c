/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures: every op, resizing and whole chains against the bytes that torchvision makes, of which
 * tests/golden/augment.txt has the digests; and that they do not depend on who asks, and when. */
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "ppcli/data/dataset.h"
#include "ppcli/base/base.h"
#include "../../src/data/picture.h"
#include "../../src/dev/numbers.h"

#define BOTH (PP_DATA_IMAGES | PP_DATA_LABELS)
#define SEED 11
#define EPOCH 3

static const char *const op_names[] = {
    "ShearX",   "ShearY",    "TranslateX", "TranslateY", "Rotate",       "Brightness", "Color",
    "Contrast", "Sharpness", "Posterize",  "Solarize",   "AutoContrast", "Equalize",   "Invert"};

static const char *const steps_names[] = {"crop", "flip", "autoaugment"};

/* Pictures after each other. */
struct pictures {
    int n;
    struct pp_shape shape;
    uint8_t *at; /* owned, unless of a data set */
};

static struct pp_dataset *sample; /* test pictures of cifar10-sample */

static struct pp_config *config(void)
{
    static struct pp_config cfg;
    memset(&cfg, 0, sizeof(cfg));
    snprintf(cfg.data.dataset, sizeof(cfg.data.dataset), "cifar10-sample");
    snprintf(cfg.data.path, sizeof(cfg.data.path), "%s/data/cifar10-sample",
             getenv("PPCLI_SOURCE_DIR"));
    cfg.train.seed = SEED;
    return &cfg;
}

static int open_sample(void **state)
{
    const struct pp_shape shape = pp_shape_image(32, 32, 3);
    return pp_dataset_open(config(), PP_SPLIT_TEST, BOTH, &shape, 10, &sample);
}

static int close_sample(void **state)
{
    pp_dataset_destroy(&sample);
    return 0;
}

/* One of bytes that hardly anything is alike in, and one of a single value. */
static struct pictures noise(int high, int wide, int channels)
{
    struct pictures p = {2, pp_shape_image(high, wide, channels), NULL};
    size_t bytes = pp_shape_floats(&p.shape);
    uint32_t x = 1;
    p.at = pp_alloc(2, bytes);
    for (size_t i = 0; i < bytes; i++) {
        x = x * 1664525u + 1013904223u;
        p.at[i] = (uint8_t)(x >> 24);
    }
    memset(p.at + bytes, 77, bytes);
    return p;
}

static struct pictures set_of(const char *name)
{
    if (strcmp(name, "odd") == 0)
        return noise(20, 45, 3);
    if (strcmp(name, "grey") == 0)
        return noise(28, 28, 1);
    if (strcmp(name, "tiny") == 0)
        return noise(5, 3, 3);
    struct pictures p = {20, sample->shape, pp_alloc(20, 3072)};
    memcpy(p.at, sample->images, 20 * 3072);
    return p;
}

static int number_of(const char *name, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    fail_msg("what is %s?", name);
    return -1;
}

static void add(struct pp_sha256 *sha, const uint8_t *out, size_t bytes)
{
    pp_sha256_update(sha, out, bytes);
}

/* Pictures of all levels, of both signs where there are two. */
static void run_op(const char *words, struct pp_sha256 *sha)
{
    char set[16], name[16], signs[3];
    int levels;
    assert_int_equal(sscanf(words, "%15s %15s %d %2s", set, name, &levels, signs), 4);
    struct pictures p = set_of(set);
    size_t bytes = pp_shape_floats(&p.shape);
    PP_OWN_MEMORY uint8_t *out = pp_alloc(bytes, 1);
    enum picture_op op = (enum picture_op)number_of(name, op_names, 14);
    for (int level = 0; level < levels; level++) {
        for (const char *sign = signs; *sign; sign++) {
            double much = augment_magnitude(op, level, *sign == '-', &p.shape);
            for (int i = 0; i < p.n; i++) {
                picture_op(op, much, &p.shape, p.at + (size_t)i * bytes, out);
                add(sha, out, bytes);
            }
        }
    }
    pp_free(p.at);
}

static void run_resize(const char *words, struct pp_sha256 *sha)
{
    char set[16];
    struct pp_config *cfg = config();
    struct augment a;
    assert_int_equal(sscanf(words, "%15s %d", set, &cfg->data.resize), 2);
    struct pictures p = set_of(set);
    CHECK_OK(augment_init(&a, cfg, &p.shape));
    size_t to = pp_shape_floats(&a.to);
    uint8_t *out = pp_alloc(to, 1);
    for (int i = 0; i < p.n; i++) {
        augment_make(&a, false, 0, (uint32_t)i, p.at + (size_t)i * pp_shape_floats(&p.shape), out);
        add(sha, out, to);
    }
    augment_fini(&a);
    pp_free(out);
    pp_free(p.at);
}

static struct pp_config *chain_of(const char *words)
{
    struct pp_config *cfg = config();
    int at = 0, n;
    char name[16];
    assert_int_equal(sscanf(words, "%d%n", &cfg->data.resize, &at), 1);
    for (; sscanf(words + at, "%15s%n", name, &n) == 1; at += n)
        cfg->data.augment.at[cfg->data.augment.n++] = number_of(name, steps_names, 3);
    return cfg;
}

/* Of all pictures of the sample; or of those of a set in turns, where the words name one. */
static void run_chain(const char *words, struct pp_sha256 *sha)
{
    struct augment a;
    struct pictures p = {sample->n, sample->shape, sample->images};
    char set[16] = "";
    int at = 0;
    if (sscanf(words, "%15[a-z]%n", set, &at) == 1)
        p = set_of(set);
    CHECK_OK(augment_init(&a, chain_of(words + at), &p.shape));
    size_t from = pp_shape_floats(&p.shape), to = pp_shape_floats(&a.to);
    uint8_t *out = pp_alloc(to, (size_t)sample->n);
    for (int i = sample->n - 1; i >= 0; i--) /* the order is not the samples' */
        augment_make(&a, true, EPOCH, (uint32_t)i, p.at + (size_t)(i % p.n) * from,
                     out + (size_t)i * to);
    add(sha, out, to * (size_t)sample->n);
    augment_fini(&a);
    pp_free(out);
    if (set[0])
        pp_free(p.at);
}

TEST(the_bytes_are_those_of_torchvision)
{
    static const struct {
        const char *kind;
        void (*run)(const char *words, struct pp_sha256 *sha);
    } kinds[] = {{"op ", run_op}, {"resize ", run_resize}, {"chain ", run_chain}};
    char path[4096], line[256], hex[PP_SHA256_HEX];
    int cases = 0, bad = 0;
    snprintf(path, sizeof(path), "%s/tests/golden/augment.txt", getenv("PPCLI_SOURCE_DIR"));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        char *is = strstr(line, " = ");
        for (int k = 0; is && k < 3; k++) {
            size_t n = strlen(kinds[k].kind);
            if (strncmp(line, kinds[k].kind, n) != 0)
                continue;
            struct pp_sha256 sha;
            uint8_t digest[PP_SHA256_BYTES];
            pp_sha256_init(&sha);
            *is = '\0';
            kinds[k].run(line + n, &sha);
            pp_sha256_final(&sha, digest);
            cases++;
            if (strncmp(is + 3, pp_sha256_hex(digest, hex), 64) != 0) {
                print_message("%s = %s\n", line, pp_sha256_hex(digest, hex));
                bad++;
            }
        }
    }
    fclose(f);
    CHECK_INT_EQ(bad, 0);
    assert_true(cases > 60);
}

/* ---- a step ahead */

/* A share's pictures are those of its samples, each made for itself. */
static void check_share(struct pp_ahead *ahead, const struct pp_loader *ld, enum pp_split split,
                        uint64_t epoch, int step)
{
    struct augment a;
    const uint32_t *index;
    const uint8_t *made = pp_ahead_take(ahead, ld, split, epoch, step);
    CHECK_OK(augment_init(&a, chain_of("24 crop flip autoaugment"), &sample->shape));
    size_t bytes = pp_shape_floats(&a.to);
    PP_OWN_MEMORY uint8_t *want = pp_alloc(bytes, 1);
    pp_loader_microbatch(ld, step, 0, &index);
    for (int r = 0; r < pp_loader_share_rows(ld, step); r++) {
        augment_make(&a, split == PP_SPLIT_TRAIN, epoch, index[r],
                     sample->images + (size_t)index[r] * 3072, want);
        if (memcmp(made + (size_t)r * bytes, want, bytes) != 0)
            fail_msg("split %d, epoch %d, step %d, row %d", split, (int)epoch, step, r);
    }
    augment_fini(&a);
}

TEST(the_order_of_asking_changes_no_byte)
{
    static const struct {
        int split, epoch, step;
    } asked[] = {{0, 0, 0}, {0, 0, 1}, {0, 0, 2}, {1, 0, 0}, {1, 0, 1}, {0, 0, 3}, {0, 0, 1},
                 {0, 0, 1}, {0, 0, 2}, {0, 1, 0}, {0, 1, 1}, {0, 1, 2}, {0, 0, 3}, {1, 5, 2}};
    for (int replica = 0; replica < 3; replica++) {
        struct pp_loader *ld[2];
        struct pp_ahead *ahead = NULL;
        uint8_t *buffers[3];
        for (int i = 0; i < 3; i++)
            buffers[i] = pp_alloc(32, 24 * 24 * 3);
        for (int i = 0; i < 2; i++)
            CHECK_OK(pp_loader_create(100, 32, 3, replica, 2, i == 0, SEED, &ld[i]));
        CHECK_OK(pp_ahead_create(chain_of("24 crop flip autoaugment"), sample, sample, buffers,
                                 2 + replica % 2, &ahead));
        int epoch = -1;
        pp_loader_start_epoch(ld[1], 0);
        for (int i = 0; i < (int)(sizeof(asked) / sizeof(asked[0])); i++) {
            if (asked[i].split == 0 && asked[i].epoch != epoch) {
                epoch = asked[i].epoch;
                pp_ahead_rest(ahead);
                pp_loader_start_epoch(ld[0], (uint64_t)epoch);
            }
            check_share(ahead, ld[asked[i].split], (enum pp_split)asked[i].split,
                        (uint64_t)asked[i].epoch, asked[i].step);
        }
        pp_ahead_destroy(&ahead);
        for (int i = 0; i < 3; i++)
            pp_free(buffers[i]);
        for (int i = 0; i < 2; i++)
            pp_loader_destroy(&ld[i]);
    }
}

TEST(it_ends_whatever_is_being_made)
{
    uint8_t *buffers[2];
    struct pp_loader *ld = NULL;
    for (int i = 0; i < 2; i++)
        buffers[i] = pp_alloc(50, 224 * 224 * 3);
    CHECK_OK(pp_loader_create(100, 50, 1, 0, 2, true, SEED, &ld));
    pp_loader_start_epoch(ld, 0);
    for (int i = 0; i < 6; i++) {
        struct pp_ahead *ahead = NULL;
        CHECK_OK(pp_ahead_create(chain_of(i < 3 ? "16 crop" : "224 flip"), sample, NULL, buffers, 2,
                                 &ahead));
        if (i % 3 > 0)
            pp_ahead_take(ahead, ld, PP_SPLIT_TRAIN, 0, 0);
        if (i % 3 > 1)
            pp_ahead_rest(ahead);
        pp_ahead_destroy(&ahead);
        assert_null(ahead);
    }
    pp_loader_destroy(&ld);
    pp_free(buffers[0]);
    pp_free(buffers[1]);
}

/* By what kernels on a device call; the last shape is smaller than what crop moves it by. */
TEST(crop_and_flip_are_one_move)
{
    static const char *const chains[] = {"0 crop", "0 flip", "0 crop flip", "0 flip crop"};
    const struct pp_shape shapes[] = {pp_shape_image(32, 32, 3), pp_shape_image(7, 9, 2),
                                      pp_shape_image(3, 4, 1)};
    for (int k = 0; k < 4 * 3; k++) {
        const struct pp_shape *s = &shapes[k / 4];
        struct pp_config *cfg = chain_of(chains[k % 4]);
        int H = s->dims[0], W = s->dims[1], C = s->dims[2], bytes = H * W * C;
        uint8_t want[3072], made[3072];
        struct augment a;
        CHECK_OK(augment_init(&a, cfg, s));
        assert_true(pp_ahead_moves(cfg, PP_SPLIT_TRAIN));
        for (uint32_t i = 0; i < 100; i++) {
            uint32_t move;
            const uint8_t *from = sample->images + i * 3072;
            pp_ahead_move(cfg, EPOCH, 1, &i, &move);
            augment_make(&a, true, EPOCH, i, from, want);
            for (int e = 0; e < bytes; e++) {
                int at = moved_from(move, H, W, e / C / W, e / C % W);
                made[e] = at < 0 ? 0 : from[at * C + e % C];
            }
            if (memcmp(made, want, (size_t)bytes) != 0)
                fail_msg("'%s', %d x %d x %d, sample %u", chains[k % 4], H, W, C, i);
        }
        augment_fini(&a);
    }
    assert_false(pp_ahead_moves(chain_of("0 crop autoaugment"), PP_SPLIT_TRAIN));
    assert_false(pp_ahead_moves(chain_of("32 crop"), PP_SPLIT_TRAIN));
    assert_false(pp_ahead_moves(chain_of("0 crop"), PP_SPLIT_TEST));
}

TEST(what_does_not_fit_is_one_line)
{
    const struct pp_shape grey = pp_shape_image(28, 28, 1), flat = pp_shape_flat(12);
    struct pp_config *cfg = chain_of("0 crop flip");
    cfg->data.path[0] = '\0';
    snprintf(cfg->data.dataset, sizeof(cfg->data.dataset), "mnist-sample");
    CHECK_OK(pp_dataset_check(cfg, &grey, 10));
    cfg->data.augment.at[1] = PP_AUGMENT_AUTO;
    CHECK_FAILS(pp_dataset_check(cfg, &grey, 10), PP_ECONFIG,
                "data.augment: autoaugment is for pictures of 3 channels; a sample of mnist-sample "
                "is 28 x 28 x 1");
    cfg = chain_of("16");
    CHECK_FAILS(pp_dataset_check(cfg, &sample->shape, 10), PP_ECONFIG,
                "a sample of cifar10-sample has 16 x 16 x 3 = 768 values");
    snprintf(cfg->data.dataset, sizeof(cfg->data.dataset), "synthetic");
    CHECK_FAILS(pp_dataset_check(cfg, &flat, 10), PP_ECONFIG, "data.resize");
}

TEST(the_models_input_is_known_from_the_data)
{
    struct pp_data_input in;
    CHECK_OK(pp_dataset_input(config(), &in));
    CHECK_INT_EQ(pp_shape_floats(&in.shape), 3072);
    CHECK_INT_EQ(in.classes, 10);
    CHECK_OK(pp_dataset_input(chain_of("224"), &in));
    CHECK_INT_EQ(in.shape.dims[0], 224);
    struct pp_config *cfg = chain_of("40");
    snprintf(cfg->data.path, sizeof(cfg->data.path), "/nowhere");
    snprintf(cfg->data.dataset, sizeof(cfg->data.dataset), "mnist");
    CHECK_OK(pp_dataset_input(cfg, &in)); /* not there, but known */
    CHECK_INT_EQ(pp_shape_floats(&in.shape), 1600);
    cfg->data.resize = 0;
    snprintf(cfg->data.dataset, sizeof(cfg->data.dataset), "synthetic");
    CHECK_OK(pp_dataset_input(cfg, &in));
    CHECK_INT_EQ(in.shape.n, 0);
}

int main(void)
{
    return tests_run(open_sample, close_sample);
}
