/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacks files from a tar archive: only the part of the format that data sets use. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "ops.h"

#define BLOCK 512 /* bytes; a header has one block, and a member whole blocks */
#define CHUNK ((size_t)1 << 16)

/* Offsets of header fields. */
#define NAME 0
#define SIZE 124
#define TYPE 156

/* Copies the member's bytes to `file`, or skips them if it is NULL, and skips the rest of the last
 * block. */
static int copy_member(struct pp_source *s, uint64_t bytes, uint8_t *chunk, struct pp_io_file *file)
{
    for (uint64_t left = (bytes + BLOCK - 1) / BLOCK * BLOCK; left > 0;) {
        size_t n = left < CHUNK ? (size_t)left : CHUNK;
        PP_TRY(pp_source_pull(s, chunk, n, "archive"));
        left -= n;
        uint64_t ours = bytes < n ? bytes : n;
        if (file && ours > 0)
            PP_TRY(pp_io_write(file, chunk, (size_t)ours));
        bytes -= ours;
    }
    return 0;
}

static int take_member(struct pp_source *s, const char *dir, const char *name, uint64_t bytes,
                       uint8_t *chunk)
{
    char path[PP_PATH_MAX];
    struct stat st;
    struct pp_io_file file;
    PP_TRY(pp_path_format(path, "%s/%s", dir, name));
    if (stat(path, &st) == 0 && (uint64_t)st.st_size == bytes)
        return copy_member(s, bytes, chunk, NULL);
    PP_TRY(pp_io_create(&pp_io_system, path, &file));
    PP_TRY_UNDO(copy_member(s, bytes, chunk, &file), pp_io_abandon(&file));
    return pp_io_commit(&file, NULL);
}

static int unpack_members(struct pp_source *s, const char *path, const char *dir,
                          const char *suffix, uint8_t *chunk)
{
    for (;;) {
        char head[BLOCK + 1] = "", *end;
        size_t got = 0;
        PP_TRY(pp_source_read(s, head, BLOCK, &got));
        if (got == 0 || head[NAME] == '\0')
            return 0;
        bool file = head[TYPE] == '0' || head[TYPE] == '\0';
        head[TYPE - 1] = '\0'; /* ends the numbers before the type */
        unsigned long long bytes = strtoull(head + SIZE, &end, 8);
        if (got < BLOCK || end == head + SIZE || bytes > (uint64_t)1 << 40)
            return pp_fail(PP_EFORMAT, "%s: not a tar archive", path);
        head[NAME + 100] = '\0';
        const char *slash = strrchr(head, '/'), *name = slash ? slash + 1 : head;
        bool wanted = file && pp_text_ends(name, suffix);
        PP_TRY(wanted ? take_member(s, dir, name, bytes, chunk)
                      : copy_member(s, bytes, chunk, NULL));
    }
}

int pp_tar_unpack(const char *path, const char *dir, const char *suffix)
{
    PP_OWN(pp_source_close) struct pp_source *s = NULL;
    PP_TAKE(uint8_t, chunk, CHUNK);
    PP_TRY(pp_source_open(path, PP_SOURCE_INFLATED, &s));
    return unpack_members(s, path, dir, suffix, chunk);
}
