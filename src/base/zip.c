/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zip archives (PKWARE's APPNOTE 6.3, with zip64). Only the directory at the end says what is in an
 * archive: local headers may leave sizes and CRC open until after the data. They are read for where
 * the data begins, because their extra fields differ from those of the directory.
 */
#include "zip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "ppcli/base/base.h"

#define LOCAL_BYTES 30     /* fixed part of the header before the data of an entry */
#define DIRECTORY_BYTES 46 /* fixed part of an entry of the directory */
#define END_BYTES 22       /* fixed part of the record at the end */
#define END64_BYTES 56
#define LOCATOR_BYTES 20 /* before the record at the end: where the 64-bit one is */
#define COMMENT_MAX 65535
#define NAME_MAX_BYTES 512
#define ENTRIES_MAX (1 << 22)
#define ENCRYPTED 1 /* bits of an entry's flags */
#define CRC_AFTER 8 /* its CRC and sizes follow the data */
#define PIECE_BYTES ((size_t)1 << 20)

struct directory {
    uint64_t n, bytes, offset;
};

static uint64_t little(const uint8_t *p, int n)
{
    uint64_t x = 0;
    while (n-- > 0)
        x = x << 8 | p[n];
    return x;
}

static bool begins_with(const uint8_t *p, uint8_t a, uint8_t b)
{
    return p[0] == 'P' && p[1] == 'K' && p[2] == a && p[3] == b;
}

/* Returns whether `bytes` bytes from `offset` on lie in the archive. */
static bool lies_in(const struct pp_zip *z, uint64_t offset, uint64_t bytes)
{
    return offset <= z->bytes && bytes <= z->bytes - offset;
}

/* ---- the directory */

static int refuse_kind(const struct pp_zip *z)
{
    if (z->bytes >= 4 && begins_with(z->at, 3, 4)) {
        return pp_fail(PP_EFORMAT,
                       "%s: a zip archive without its end: it was cut short; copy it again",
                       z->path);
    }
    if (z->bytes >= 8 && memcmp(z->at, "version ", 8) == 0) {
        return pp_fail(PP_EFORMAT,
                       "%s: a Git LFS pointer, not the file: run git lfs pull in its folder",
                       z->path);
    }
    return pp_fail(PP_EFORMAT, "%s: not a zip archive", z->path);
}

static int find_directory64(const struct pp_zip *z, uint64_t end, struct directory *out)
{
    const uint8_t *p = z->at + end - LOCATOR_BYTES;
    if (end < LOCATOR_BYTES || !begins_with(p, 6, 7))
        return 0; /* the 32-bit numbers are meant as they are */
    uint64_t at = little(p + 8, 8);
    if (!lies_in(z, at, END64_BYTES) || !begins_with(z->at + at, 6, 6)) {
        return pp_fail(PP_EFORMAT, "%s: its directory is not where its end says: it is damaged",
                       z->path);
    }
    p = z->at + at;
    *out = (struct directory){little(p + 32, 8), little(p + 40, 8), little(p + 48, 8)};
    return 0;
}

/* Finds the record at the end: the last one whose comment fills the rest of the archive. */
static int find_directory(const struct pp_zip *z, struct directory *out)
{
    for (size_t back = END_BYTES; back <= z->bytes && back <= END_BYTES + COMMENT_MAX; back++) {
        const uint8_t *p = z->at + z->bytes - back;
        if (!begins_with(p, 5, 6) || little(p + 20, 2) != back - END_BYTES)
            continue;
        struct directory d = {little(p + 10, 2), little(p + 12, 4), little(p + 16, 4)};
        if (little(p + 4, 2) != little(p + 6, 2))
            return pp_fail(PP_EFORMAT, "%s: one part of an archive in several files", z->path);
        if (d.n == UINT16_MAX || d.bytes == UINT32_MAX || d.offset == UINT32_MAX)
            PP_TRY(find_directory64(z, z->bytes - back, &d));
        if (!lies_in(z, d.offset, d.bytes) || d.n > d.bytes / DIRECTORY_BYTES ||
            d.n > ENTRIES_MAX) {
            return pp_fail(PP_EFORMAT,
                           "%s: a directory of %" PRIu64 " entries in %" PRIu64 " bytes at %" PRIu64
                           " of %zu: it is damaged or cut short",
                           z->path, d.n, d.bytes, d.offset, z->bytes);
        }
        *out = d;
        return 0;
    }
    return refuse_kind(z);
}

/* Replaces the numbers that do not fit in 32 bits by those of the extra field, in their order. */
static bool read_extra64(const uint8_t *extra, size_t bytes, uint64_t *numbers[3])
{
    bool wanted = false;
    for (int i = 0; i < 3; i++)
        wanted = wanted || *numbers[i] == UINT32_MAX;
    for (size_t at = 0; wanted && bytes - at >= 4;) {
        size_t n = (size_t)little(extra + at + 2, 2);
        const uint8_t *p = extra + at + 4, *end = p + n;
        if (n > bytes - at - 4)
            return false;
        at += 4 + n;
        if (little(p - 4, 2) != 1)
            continue;
        for (int i = 0; i < 3; i++) {
            if (*numbers[i] != UINT32_MAX)
                continue;
            if (end - p < 8)
                return false;
            *numbers[i] = little(p, 8);
            p += 8;
        }
        return true;
    }
    return true;
}

/* Finds the data of an entry behind its local header. */
static int find_data(const struct pp_zip *z, uint64_t offset, uint64_t stored, uint64_t end,
                     struct pp_zip_entry *e)
{
    const uint8_t *p = z->at + offset;
    uint64_t begin = 0;
    if (offset <= end && end - offset >= LOCAL_BYTES && begins_with(p, 3, 4))
        begin = offset + LOCAL_BYTES + little(p + 26, 2) + little(p + 28, 2);
    if (begin == 0 || begin > end || stored > end - begin) {
        return pp_fail(PP_EFORMAT,
                       "%s: entry %s has %" PRIu64 " bytes at %" PRIu64
                       ", which are not there: it is damaged or cut short",
                       z->path, e->name, stored, offset);
    }
    e->header = (size_t)offset;
    e->data = z->at + begin;
    e->stored = (size_t)stored;
    return 0;
}

/* Reads the entry of the directory at `at`. Its name is copied to *names, which is moved. */
static int read_entry(const struct pp_zip *z, const struct directory *d, uint64_t *at, char **names,
                      struct pp_zip_entry *e)
{
    const uint8_t *p = z->at + *at;
    uint64_t left = d->offset + d->bytes - *at;
    if (left < DIRECTORY_BYTES || !begins_with(p, 1, 2))
        return pp_fail(PP_EFORMAT, "%s: its directory is damaged at byte %" PRIu64, z->path, *at);
    size_t name = (size_t)little(p + 28, 2), extra = (size_t)little(p + 30, 2);
    uint64_t whole = DIRECTORY_BYTES + name + extra + little(p + 32, 2);
    uint64_t stored = little(p + 20, 4), bytes = little(p + 24, 4), offset = little(p + 42, 4);
    if (whole > left || name > NAME_MAX_BYTES ||
        !read_extra64(p + DIRECTORY_BYTES + name, extra, (uint64_t *[]){&bytes, &stored, &offset}))
        return pp_fail(PP_EFORMAT, "%s: its directory is damaged at byte %" PRIu64, z->path, *at);
    memcpy(*names, p + DIRECTORY_BYTES, name);
    e->name = *names;
    (*names)[name] = '\0';
    bool plain = strlen(e->name) == name;
    pp_text_make_plain(*names);
    if (!plain || memcmp(e->name, p + DIRECTORY_BYTES, name) != 0) {
        return pp_fail(PP_EFORMAT, "%s: the name of an entry has control characters: %s", z->path,
                       e->name);
    }
    *names += name + 1;
    e->directory = (size_t)*at;
    e->method = (int)little(p + 10, 2);
    e->crc = (uint32_t)little(p + 16, 4);
    e->bytes = (size_t)bytes;
    *at += whole;
    if (little(p + 8, 2) & ENCRYPTED)
        return pp_fail(PP_EFORMAT, "%s: entry %s is encrypted", z->path, e->name);
    if (e->method == 0 && bytes != stored)
        return pp_fail(PP_EFORMAT, "%s: entry %s has two sizes: it is damaged", z->path, e->name);
    return find_data(z, offset, stored, d->offset, e);
}

static int compare_names(const void *a, const void *b)
{
    const struct pp_zip_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int compare_places(const void *a, const void *b)
{
    const struct pp_zip_entry *const *x = a, *const *y = b;
    return ((*x)->header > (*y)->header) - ((*x)->header < (*y)->header);
}

/* Checks that no two entries overlap or have one name; sorts by_name. */
static int check_entries(struct pp_zip *z)
{
    const struct pp_zip_entry **e = z->by_name;
    for (int i = 0; i < z->n; i++)
        e[i] = &z->entries[i];
    qsort(e, (size_t)z->n, sizeof(struct pp_zip_entry *), compare_places);
    for (int i = 1; i < z->n; i++) {
        if (e[i]->header < (size_t)(e[i - 1]->data - z->at) + e[i - 1]->stored) {
            return pp_fail(PP_EFORMAT, "%s: entries %s and %s overlap", z->path, e[i - 1]->name,
                           e[i]->name);
        }
    }
    qsort(e, (size_t)z->n, sizeof(struct pp_zip_entry *), compare_names);
    for (int i = 1; i < z->n; i++)
        if (strcmp(e[i - 1]->name, e[i]->name) == 0)
            return pp_fail(PP_EFORMAT, "%s: two entries are named %s", z->path, e[i]->name);
    return 0;
}

static int read_directory(struct pp_zip *z)
{
    struct directory d = {0};
    PP_TRY(find_directory(z, &d));
    PP_ALLOC(z->entries, d.n);
    PP_ALLOC(z->by_name, d.n);
    PP_ALLOC(z->names, d.bytes + 1); /* a name and its NUL are shorter than an entry */
    char *names = z->names;
    uint64_t at = d.offset;
    for (uint64_t i = 0; i < d.n; i++)
        PP_TRY(read_entry(z, &d, &at, &names, &z->entries[z->n++]));
    return check_entries(z);
}

/* ---- opening, finding and checking */

int pp_zip_parse(const char *path, const void *data, size_t bytes, struct pp_zip **out)
{
    PP_OWN(pp_zip_close) struct pp_zip *z = NULL;
    PP_ALLOC(z, 1);
    PP_TRY(pp_path_format(z->path, "%s", path));
    z->at = data;
    z->bytes = bytes;
    PP_TRY(read_directory(z));
    *out = z;
    z = NULL;
    return 0;
}

int pp_zip_open(const char *path, struct pp_zip **out)
{
    int fd = -1;
    uint64_t bytes = 0;
    PP_OWN(pp_mapping_close) struct pp_mapping *map = NULL;
    PP_TRY(pp_open_regular(path, &fd, &bytes));
    if (bytes == 0) {
        pp_close_at(&fd);
        return pp_fail(PP_EFORMAT, "%s: empty, not a zip archive", path);
    }
    PP_TRY(pp_mapping_open(path, fd, (size_t)bytes, false, &map));
    PP_TRY(pp_zip_parse(path, map->at, map->bytes, out));
    (*out)->map = map;
    map = NULL;
    return 0;
}

void pp_zip_close(struct pp_zip **zip)
{
    struct pp_zip *z = *zip;
    if (!z)
        return;
    pp_mapping_close(&z->map);
    pp_free(z->entries);
    pp_free(z->by_name);
    pp_free(z->names);
    pp_free(z);
    *zip = NULL;
}

const struct pp_zip_entry *pp_zip_find(const struct pp_zip *z, const char *name)
{
    const struct pp_zip_entry wanted = {.name = name}, *at = &wanted;
    const struct pp_zip_entry **found =
        z->n == 0
            ? NULL
            : bsearch(&at, z->by_name, (size_t)z->n, sizeof(struct pp_zip_entry *), compare_names);
    return found ? *found : NULL;
}

static uint32_t compute_crc(const uint8_t *data, size_t bytes)
{
    uLong crc = crc32(0, NULL, 0);
    for (size_t at = 0; at < bytes; at += PP_MIN(bytes - at, PIECE_BYTES))
        crc = crc32(crc, data + at, (uInt)PP_MIN(bytes - at, PIECE_BYTES));
    return (uint32_t)crc;
}

int pp_zip_check(const struct pp_zip *z, const struct pp_zip_entry *e)
{
    if (e->method != 0)
        return pp_fail(PP_EFORMAT, "%s: entry %s is compressed", z->path, e->name);
    uint32_t crc = compute_crc(e->data, e->stored);
    if (crc == e->crc)
        return 0;
    return pp_fail(PP_EFORMAT,
                   "%s: entry %s is damaged: its bytes have CRC-32 %08" PRIx32 ", %08" PRIx32
                   " was written",
                   z->path, e->name, crc, e->crc);
}

/* ---- copying */

struct copying {
    const struct pp_zip *z;
    struct pp_io_file file;
    uint64_t at; /* all before it is written */
    uint8_t *content;
    uint8_t *head; /* [HEAD_MAX] */
    uint8_t *tail; /* the directory and what follows it */
};

#define HEAD_MAX (LOCAL_BYTES + 2 * (size_t)UINT16_MAX)

static void put_crc(uint8_t *p, uint32_t crc)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(crc >> 8 * i);
}

/* Copies the archive up to `end`. */
static int copy_up_to(struct copying *c, uint64_t end)
{
    if (end < c->at)
        return pp_fail(PP_EFORMAT, "%s: its entries overlap: it is damaged", c->z->path);
    PP_TRY(pp_io_write(&c->file, c->z->at + c->at, (size_t)(end - c->at)));
    c->at = end;
    return 0;
}

/* Copies what follows the data of an entry: nothing, or its CRC, with or without a mark. */
static int copy_crc_after(struct copying *c, const struct pp_zip_entry *e, uint32_t crc)
{
    const uint8_t *p = c->z->at + c->at;
    uint8_t word[4];
    if (!(little(c->z->at + e->header + 6, 2) & CRC_AFTER))
        return 0;
    if (lies_in(c->z, c->at, 8) && begins_with(p, 7, 8) && little(p + 4, 4) == e->crc)
        PP_TRY(copy_up_to(c, c->at + 4));
    else if (!lies_in(c->z, c->at, 4) || little(p, 4) != e->crc)
        return pp_fail(PP_EFORMAT, "%s: entry %s has no CRC-32 after its data", c->z->path,
                       e->name);
    put_crc(word, crc);
    c->at += sizeof(word);
    return pp_io_write(&c->file, word, sizeof(word));
}

/* Copies an entry with what change() makes of its content. */
static int copy_entry(struct copying *c, const struct pp_zip_entry *e,
                      int (*change)(void *ctx, const struct pp_zip_entry *e, uint8_t *content),
                      void *ctx)
{
    const uint8_t *header = c->z->at + e->header;
    size_t head = (size_t)(e->data - header);
    memcpy(c->content, e->data, e->stored);
    PP_TRY(change(ctx, e, c->content));
    uint32_t crc = compute_crc(c->content, e->stored);
    memcpy(c->head, header, head);
    if (!(little(header + 6, 2) & CRC_AFTER))
        put_crc(c->head + 14, crc);
    PP_TRY(copy_up_to(c, e->header));
    PP_TRY(pp_io_write(&c->file, c->head, head));
    PP_TRY(pp_io_write(&c->file, c->content, e->stored));
    c->at += head + e->stored;
    put_crc(c->tail + (e->directory - c->z->entries[0].directory) + 16, crc);
    return copy_crc_after(c, e, crc);
}

/* Copies all entries in the order of their data, then the directory. */
static int copy_entries(struct copying *c, const struct pp_zip_entry **places,
                        int (*change)(void *ctx, const struct pp_zip_entry *e, uint8_t *content),
                        void *ctx)
{
    const struct pp_zip *z = c->z;
    size_t begin = z->n > 0 ? z->entries[0].directory : z->bytes, largest = 0;
    for (int i = 0; i < z->n; i++) {
        places[i] = &z->entries[i];
        largest = PP_MAX(largest, z->entries[i].stored);
        PP_TRY(z->entries[i].method == 0 ? pp_zip_check(z, &z->entries[i]) : 0);
    }
    qsort(places, (size_t)z->n, sizeof(struct pp_zip_entry *), compare_places);
    PP_ALLOC(c->content, largest);
    PP_ALLOC(c->head, HEAD_MAX);
    PP_ALLOC(c->tail, z->bytes - begin);
    memcpy(c->tail, z->at + begin, z->bytes - begin);
    for (int i = 0; i < z->n; i++)
        if (places[i]->method == 0)
            PP_TRY(copy_entry(c, places[i], change, ctx));
    PP_TRY(copy_up_to(c, begin));
    PP_TRY(pp_io_write(&c->file, c->tail, z->bytes - begin));
    return z->map ? pp_mapping_check(z->map) : 0;
}

int pp_zip_copy(const struct pp_zip *z, const char *path,
                int (*change)(void *ctx, const struct pp_zip_entry *e, uint8_t *content), void *ctx)
{
    PP_TAKE(struct copying, c, 1);
    PP_TAKE(const struct pp_zip_entry *, places, z->n);
    c->z = z;
    int rc = pp_io_create(&pp_io_system, path, &c->file);
    if (rc == 0)
        rc = copy_entries(c, places, change, ctx);
    if (rc == 0)
        rc = pp_io_commit(&c->file, NULL);
    pp_io_abandon(&c->file);
    pp_free(c->content);
    pp_free(c->head);
    pp_free(c->tail);
    return rc;
}
