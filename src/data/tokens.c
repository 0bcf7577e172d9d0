/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of tokens that another program made: whole numbers of two or four bytes after each other,
 * as nanoGPT writes them, or after a header of 256 numbers, as llm.c does. They may be larger than
 * memory: they are mapped, never read whole, and each window's tokens are checked when it is used.
 */
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

#include <zlib.h>

#include "ops.h"

#define HEADER_BYTES 1024 /* 256 numbers: magic, version, tokens, zeros */

static const struct kind {
    uint32_t magic, version;
    enum pp_element element;
} kinds[] = {{20240520, 1, PP_U16}, {20240801, 7, PP_U32}};

/* Tokens of the file, and where they begin. */
static int look(const char *path, int fd, uint64_t bytes, const struct pp_config *cfg,
                struct pp_dataset *ds, uint64_t *out_first, uint64_t *out_n)
{
    uint32_t header[3] = {0};
    uint64_t each = (uint64_t)cfg->data.token_bytes;
    ds->element = each == 1 ? PP_U8 : each == 2 ? PP_U16 : PP_U32;
    if (bytes >= sizeof(header))
        PP_TRY(pp_fd_read_at(fd, path, 0, header, sizeof(header)));
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const struct kind *k = &kinds[i];
        if (header[0] != k->magic)
            continue;
        each = pp_element_bytes(k->element);
        ds->element = k->element;
        *out_first = HEADER_BYTES;
        *out_n = header[2];
        if (header[1] != k->version) {
            return pp_fail(PP_EFORMAT, "%s: version %u of llm.c's format, expected %u", path,
                           header[1], k->version);
        }
        if (bytes != HEADER_BYTES + each * header[2]) {
            return pp_fail(PP_EFORMAT,
                           "%s: its header announces %u tokens of %" PRIu64
                           " bytes, which is a file of %" PRIu64 " bytes; it has %" PRIu64,
                           path, header[2], each, HEADER_BYTES + each * header[2], bytes);
        }
        return 0;
    }
    *out_first = 0;
    *out_n = bytes / each;
    if (bytes % each != 0) {
        return pp_fail(PP_EFORMAT,
                       "%s: %" PRIu64 " bytes are no whole number of tokens of %" PRIu64
                       " bytes (data.token_bytes)",
                       path, bytes, each);
    }
    return bytes > 0 ? 0 : pp_fail(PP_EFORMAT, "%s: empty file", path);
}

static int map(const char *path, int fd, uint64_t bytes, struct pp_dataset *ds)
{
    void *p =
        bytes <= SIZE_MAX ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (p == MAP_FAILED)
        return pp_fail_errno(PP_ERESOURCE, "%s: cannot map %" PRIu64 " bytes", path, bytes);
    ds->map = p;
    ds->map_bytes = (size_t)bytes;
    return 0;
}

/* What tells a file, which may be too large to be read, from another: length, beginning and end. */
static uint32_t digest(const uint8_t *tokens, uint64_t n)
{
    size_t some = n < 1 << 20 ? (size_t)n : 1 << 20;
    uLong crc = crc32_z(crc32_z(0, tokens, some), tokens + (n - some), some);
    return (uint32_t)crc32_z(crc, (const uint8_t *)&n, sizeof(n));
}

static int find_file(const struct pp_config *cfg, enum pp_split split, char path[PP_PATH_MAX])
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

static int open_tokens(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                       enum pp_split split, int parts, const struct pp_shape *model_input,
                       int model_classes, struct pp_dataset *ds)
{
    char path[PP_PATH_MAX];
    uint64_t bytes, first, n;
    int fd = -1;
    PP_TRY(find_file(cfg, split, path));
    PP_TRY(pp_open_regular(path, &fd, &bytes));
    int rc = look(path, fd, bytes, cfg, ds, &first, &n);
    rc = rc == 0 ? pp_windows(cfg, split, path, n, ds) : rc;
    rc = rc == 0 && parts != 0 ? map(path, fd, bytes, ds) : rc;
    close(fd);
    PP_TRY(rc);
    ds->images = ds->map ? (uint8_t *)ds->map + first : NULL;
    uint32_t crc = ds->map ? digest(ds->images, n * pp_element_bytes(ds->element)) : 0;
    ds->images_crc = parts & PP_DATA_IMAGES ? crc : 0;
    ds->labels_crc = parts & PP_DATA_LABELS ? crc : 0;
    ds->unchecked = true;
    return pp_path_format(ds->origin, "%s", path);
}

extern const struct pp_dataset_ops dataset_tokens;

const struct pp_dataset_ops dataset_tokens = {
    .info = {.name = "tokens",
             .help = "files of tokens, train.bin and val.bin in data.path, as nanoGPT and llm.c "
                     "have them",
             .element = PP_U16,
             .windows = true},
    .keys = PP_KEYS_FILES,
    .open = open_tokens,
};
