/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of tokens that another program made: whole numbers of two or four bytes, as nanoGPT writes
 * them, or after a header of 256 numbers, as llm.c does. They may be larger than memory, so they
 * are mapped. A thread checks all tokens before the first step (token_check.c).
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "ppcli/base/base.h"
#include "tokenizer.h"
#include "ops.h"

#define HEADER_BYTES 1024 /* 256 numbers: magic, version, tokens, zeros */
#define HEAD_BYTES 65536  /* bytes of a file that are inspected before it is mapped */
#define PAIRS_MIN 32      /* fewer prove nothing, ... */
#define TEXT_MIN 64       /* ... nor do fewer characters */
#define HIGH_MAX 4        /* bound of the high halves of 4-byte tokens: 262,144 tokens */

/* The files of llm.c; what: those that do not contain tokens. */
static const struct kind {
    uint32_t magic, version;
    enum pp_element element;
    const char *what;
} kinds[] = {{20240520, 1, PP_U16, NULL},
             {20240801, 7, PP_U32, NULL},
             {20240326, 0, PP_U8, "a model"},
             {20240327, 0, PP_U8, "a state for debugging"},
             {20240328, 0, PP_U8, "a tokenizer"},
             {20240522, 0, PP_U8, "a multiple-choice evaluation"},
             {20240527, 0, PP_U8, "the state of an optimizer"}};

struct look {
    const char *path;
    int fd;
    uint64_t bytes;
    const struct pp_config *cfg;
    size_t n_head;
    uint8_t head[HEAD_BYTES + 1];
};

static int inspect_header(const struct look *l, const struct kind *k, const uint32_t *header,
                          struct pp_dataset *ds, uint64_t *out_n)
{
    uint64_t each = pp_element_bytes(k->element);
    if (k->what) {
        return pp_fail(PP_EFORMAT,
                       "%s: %s of llm.c's (magic %u), not tokens; expected a .bin file "
                       "of its data scripts, or plain numbers",
                       l->path, k->what, k->magic);
    }
    if (header[1] != k->version) {
        return pp_fail(PP_EFORMAT, "%s: version %u of llm.c's format, expected %u", l->path,
                       header[1], k->version);
    }
    if (l->bytes != HEADER_BYTES + each * header[2]) {
        return pp_fail(PP_EFORMAT,
                       "%s: its header announces %u tokens of %" PRIu64
                       " bytes, which is a file of %" PRIu64 " bytes; it has %" PRIu64,
                       l->path, header[2], each, HEADER_BYTES + each * header[2], l->bytes);
    }
    ds->element = k->element;
    *out_n = header[2];
    return 0;
}

/* Returns whether the beginning of the file looks like whole numbers of `width` bytes: all their
 * upper halves are near 0, but not all their lower halves. */
static bool holds_numbers_of(const struct look *l, size_t width)
{
    size_t half = width / 2, pairs = l->n_head / width, telling = 0;
    bool wide = l->bytes % width == 0 && pairs >= PAIRS_MIN;
    for (size_t i = 0; i < pairs && wide; i++) {
        uint32_t of[2] = {0, 0};
        memcpy(&of[0], l->head + i * width, half);
        memcpy(&of[1], l->head + i * width + half, half);
        wide = of[1] < HIGH_MAX;
        telling += of[0] >= HIGH_MAX;
    }
    return wide && telling >= pairs / 8;
}

static bool is_text(const struct look *l)
{
    const char *head = (const char *)l->head; /* a NUL follows it */
    size_t at = 0, n = 1;
    while (at < l->n_head && n > 0 && ((uint8_t)head[at] >= ' ' || strchr("\t\n\r\f", head[at]))) {
        n = head[at] ? (size_t)pp_utf8_length(head + at) : 0;
        at += n;
    }
    return l->n_head >= TEXT_MIN && at + 4 > l->n_head; /* the last character may be cut */
}

/* Refuses a file that looks like numbers of more than `each` bytes, or like text; both could be
 * read as tokens. */
static int check_width(const struct look *l, size_t each)
{
    if (each > 1 && is_text(l)) {
        return pp_fail(PP_EFORMAT,
                       "%s: text, not tokens; use data.dataset = text, or write token "
                       "numbers, as nanoGPT's prepare.py does",
                       l->path);
    }
    for (size_t width = 8; width > each; width /= 2) {
        if (!holds_numbers_of(l, width))
            continue;
        return pp_fail(PP_EFORMAT, "%s: numbers of %zu bytes, but data.token_bytes = %zu; %s",
                       l->path, width, each,
                       width == 8   ? "write them as uint16 or uint32 (x.astype('uint32'))"
                       : width == 4 ? "use data.token_bytes = 4"
                                    : "use data.token_bytes = 2");
    }
    return 0;
}

/* Finds how many tokens the file has and the offset of the first one. */
static int inspect_tokens(const struct look *l, struct pp_dataset *ds, uint64_t *out_first,
                          uint64_t *out_n)
{
    uint32_t header[3] = {0};
    size_t each = (size_t)l->cfg->data.token_bytes;
    ds->element = each == 1 ? PP_U8 : each == 2 ? PP_U16 : PP_U32;
    memcpy(header, l->head, l->n_head >= sizeof(header) ? sizeof(header) : 0);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        *out_first = HEADER_BYTES;
        if (header[0] == kinds[i].magic)
            return inspect_header(l, &kinds[i], header, ds, out_n);
    }
    *out_first = 0;
    *out_n = l->bytes / each;
    if (l->bytes == 0)
        return pp_fail(PP_EFORMAT, "%s: empty file", l->path);
    PP_TRY(pp_data_foreign(l->path, l->head, l->n_head,
                           PP_FOREIGN_ANY | PP_FOREIGN_DATA | PP_FOREIGN_NUMBERS));
    if (l->bytes % each != 0) {
        return pp_fail(PP_EFORMAT,
                       "%s: %" PRIu64
                       " bytes are not a whole number of tokens of %zu bytes (data.token_bytes)",
                       l->path, l->bytes, each);
    }
    return check_width(l, each);
}

/* Refuses tokens of two bytes if the vocabulary is too large for them: larger tokens would have
 * wrapped around when they were written. */
static int check_vocabulary(const struct pp_config *cfg, const char *path,
                            const struct pp_dataset *ds)
{
    if (ds->element != PP_U16 || cfg->model.vocab_size <= 1 << 16)
        return 0;
    return pp_fail(PP_ECONFIG,
                   "data.token_bytes: the vocabulary has %d tokens (model.vocab_size), but those "
                   "of %s have 2 bytes, which hold numbers up to 65535; write it with 4 bytes a "
                   "token and use data.token_bytes = 4",
                   cfg->model.vocab_size, path);
}

static int inspect_file(const char *path, int fd, uint64_t bytes, const struct pp_config *cfg,
                        struct pp_dataset *ds, uint64_t *out_first, uint64_t *out_n)
{
    PP_TAKE(struct look, l, 1);
    *l = (struct look){.path = path, .fd = fd, .bytes = bytes, .cfg = cfg};
    l->n_head = bytes < HEAD_BYTES ? (size_t)bytes : HEAD_BYTES;
    PP_TRY(pp_fd_read_at(fd, path, 0, l->head, l->n_head));
    PP_TRY(inspect_tokens(l, ds, out_first, out_n));
    return check_vocabulary(cfg, path, ds);
}

/* Returns a checksum of the file's length, beginning and end. It identifies a file that may be too
 * large to be read whole. */
static uint32_t compute_digest(const uint8_t *tokens, uint64_t n)
{
    size_t some = n < 1 << 20 ? (size_t)n : 1 << 20;
    uLong crc = crc32_z(crc32_z(0, tokens, some), tokens + (n - some), some);
    return (uint32_t)crc32_z(crc, (const uint8_t *)&n, sizeof(n));
}

static int find_tokens_file(const struct pp_config *cfg, enum pp_split split,
                            char path[PP_PATH_MAX])
{
    const char *named = split == PP_SPLIT_TRAIN ? cfg->data.train_file : cfg->data.test_file;
    if (named[0])
        return pp_path_format(path, "%s", named);
    if (!cfg->data.path[0]) {
        return pp_fail(PP_ECONFIG, "data.path: names no folder, but data.dataset = tokens needs "
                                   "one with train.bin and val.bin (or data.train_file and "
                                   "data.test_file)");
    }
    return pp_path_format(path, "%s/%s.bin", cfg->data.path,
                          split == PP_SPLIT_TRAIN ? "train" : "val");
}

/* Opens the tokenizer of the files: the one in their folder or the one that the config names; if
 * both exist they must be equal. If it is of an unsupported kind, the tokens are shown as
 * numbers. */
static int vocabulary_of_tokens(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                                struct pp_vocabulary *out)
{
    PP_OWN(pp_vocabulary_fini) struct pp_vocabulary other = {0};
    const char *dir = cfg->data.path, *named = cfg->data.tokenizer;
    bool beside = dir[0] && pp_tokenizer_is_in(dir);
    *out = (struct pp_vocabulary){0};
    int rc = !beside && !named[0] ? 0 : pp_vocabulary_open(beside ? dir : named, false, out);
    if (rc == 0 && beside && named[0])
        rc = pp_vocabulary_open(named, false, &other);
    if (rc == PP_EFORMAT || rc == PP_ERESOURCE) {
        pp_log_warn("%s; its tokens are shown as numbers", pp_error_get()->text);
        pp_error_clear();
        pp_vocabulary_fini(out);
        return 0;
    }
    if (rc == 0 && other.bpe && !pp_tokenizer_same(out->bpe, other.bpe)) {
        char word[2 * PP_PATH_MAX];
        pp_vocabulary_fini(out);
        return pp_fail(PP_ECONFIG,
                       "data.tokenizer: the files were not made with %s but with the tokenizer in "
                       "%s; make them with: ppcli tokenize --tokenizer %s",
                       named, dir, pp_text_shell(named, word, sizeof(word)));
    }
    return rc;
}

static int open_tokens(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                       enum pp_split split, int parts, const struct pp_shape *model_input,
                       int model_classes, struct pp_dataset *ds)
{
    char path[PP_PATH_MAX];
    uint64_t bytes, first, n;
    PP_OWN(pp_close_at) int fd = -1;
    PP_TRY(find_tokens_file(cfg, split, path));
    PP_TRY(pp_open_regular(path, &fd, &bytes));
    PP_TRY(inspect_file(path, fd, bytes, cfg, ds, &first, &n));
    PP_TRY(pp_windows(cfg, split, path, n, ds));
    if (parts != 0) {
        int mapped = fd;
        fd = -1;
        PP_TRY(pp_mapping_open(path, mapped, (size_t)bytes, false, &ds->map));
    }
    ds->map_first = (size_t)first;
    ds->images = ds->map ? ds->map->at + first : NULL;
    uint32_t crc = ds->map ? compute_digest(ds->images, n * pp_element_bytes(ds->element)) : 0;
    ds->images_crc = parts & PP_DATA_IMAGES ? crc : 0;
    ds->labels_crc = parts & PP_DATA_LABELS ? crc : 0;
    ds->unchecked = true;
    if (cfg->model.vocab_size == 0) { /* as many as the data have */
        PP_OWN(pp_vocabulary_fini) struct pp_vocabulary v = {0};
        PP_TRY(vocabulary_of_tokens(self, cfg, &v));
        ds->vocabulary = v.n;
        ds->subwords = v.n > 0;
    }
    return pp_path_format(ds->origin, "%s", path);
}

extern const struct pp_dataset_ops dataset_tokens;

const struct pp_dataset_ops dataset_tokens = {
    .info = {.name = "tokens",
             .help = "files of tokens, train.bin and val.bin in data.path, as nanoGPT and llm.c "
                     "have them",
             .element = PP_U16,
             .windows = true,
             .mapped = true},
    .keys = PP_KEYS_FILES,
    .open = open_tokens,
    .numbers = true,
    .vocabulary = vocabulary_of_tokens,
};
