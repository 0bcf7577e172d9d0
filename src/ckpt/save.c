/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves checkpoints. At every moment the newest folder with a step's name is complete: files are
 * written and flushed in a temporary folder, then the folder is flushed and renamed, then its
 * parent is flushed. A failed flush is never repeated; what it was for is thrown away.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "impl.h"
#include "safetensors.h"
#include "ppcli/base/base.h"

#define SPACE_SPARE ((uint64_t)1 << 20) /* for folders, state and what the log writes meanwhile */

static int check_space(const struct pp_io *io, const char *dir, uint64_t bytes)
{
    uint64_t have = 0;
    if (io->ops->space(io, dir, &have) != 0)
        return pp_fail_errno(0, "cannot see how much space %s has", dir);
    if (bytes > 0 && (have < SPACE_SPARE || have - SPACE_SPARE < bytes)) {
        pp_error_set(PP_EIO, __FILE__, __LINE__,
                     "cannot save into %s: a checkpoint needs %" PRIu64
                     " bytes and 1 MiB to spare, but %" PRIu64 " are free",
                     dir, bytes, have);
        return pp_failed(pp_error_full());
    }
    return 0;
}

int pp_ckpt_begin(const struct pp_io *io, const char *dir, int64_t step, const char *config_hash,
                  uint64_t bytes, struct pp_ckpt_save *out)
{
    struct pp_ckpt_save save = {.step = step};
    char name[NAME_BYTES];
    struct stat st;
    pp_assert(step >= 0 && strlen(config_hash) == PP_SHA256_HEX - 1);
    memcpy(save.config_hash, config_hash, PP_SHA256_HEX);
    name_step(name, step);
    PP_TRY(pp_path_format(save.dir, "%s", dir));
    PP_TRY(pp_path_format(save.folder, "%s/%s.tmp-%ld", dir, name, (long)getpid()));
    PP_TRY(pp_path_stat(dir, true, &st));
    if (st.st_mode == 0) {
        char above[PP_PATH_MAX];
        PP_TRY(pp_path_format(above, "%s/..", dir));
        PP_TRY(pp_io_mkdir(io, dir));
        PP_TRY(pp_io_sync_dir(io, above));
    }
    PP_TRY(check_space(io, dir, bytes));
    PP_TRY(folder_remove(io, save.folder)); /* left by a killed process with the same pid */
    PP_TRY(pp_io_mkdir(io, save.folder));
    *out = save;
    return 0;
}

int pp_ckpt_write_part(const struct pp_io *io, const struct pp_ckpt_save *save, int index,
                       int count, const struct pp_st_item *items, int n, struct pp_ckpt_part *out)
{
    pp_assert(count >= 1 && count <= PP_CKPT_PARTS_MAX && index >= 0 && index < count);
    char name[NAME_BYTES], path[PP_PATH_MAX], step[32], part[32];
    struct pp_ckpt_part p = {.index = index, .count = count, .tensors = n};
    name_part(name, index, count);
    PP_TRY(pp_path_format(path, "%s/%s", save->folder, name));
    snprintf(step, sizeof(step), "%" PRId64, save->step);
    snprintf(part, sizeof(part), "%d of %d", index, count);
    /* Readers of PyTorch weights expect "pt". The rest identifies the checkpoint of the file. */
    const struct pp_st_meta meta[] = {
        {"format", "pt"}, {META_STEP, step}, {META_HASH, save->config_hash}, {META_PART, part}};
    PP_TRY(pp_st_write(io, path, items, n, meta, 4, &p.bytes, p.sha256));
    *out = p;
    return 0;
}

/* ---- commit */

static int write_text(const struct pp_io *io, const struct pp_ckpt_save *save, const char *name,
                      const char *text, size_t bytes, struct manifest_entry *out)
{
    char path[PP_PATH_MAX];
    uint8_t digest[PP_SHA256_BYTES];
    struct pp_io_file f = {.fd = -1};
    PP_TRY(pp_path_format(path, "%s/%s", save->folder, name));
    PP_TRY(pp_io_create(io, path, &f));
    PP_TRY(pp_io_write(&f, text, bytes));
    PP_TRY(pp_io_commit(&f, digest));
    out->bytes = bytes;
    pp_sha256_hex(digest, out->sha256);
    return 0;
}

/* Writes a file of the checkpoint from a text that was printed into memory, as write_text() does,
 * and frees the text. */
static int write_and_free_text(const struct pp_io *io, const struct pp_ckpt_save *save,
                               const char *name, char *text, size_t bytes,
                               struct manifest_entry *out)
{
    int rc = write_text(io, save, name, text, bytes, out);
    free(text);
    return rc;
}

/* Adds the parts of all ranks to the manifest. Checks that each occurs once and that its file is
 * visible here, because another machine may have written it. */
static int take_parts(const struct pp_ckpt_save *save, const struct pp_ckpt_part *parts, int n,
                      struct manifest *m)
{
    m->parts = pp_alloc((size_t)n, sizeof(*m->parts));
    if (!m->parts)
        return pp_error_context("%s", save->folder);
    m->n_parts = n;
    for (int i = 0; i < n; i++) {
        char name[NAME_BYTES], path[PP_PATH_MAX];
        struct stat st;
        const struct pp_ckpt_part *p = &parts[i];
        pp_assert(p->count == n && p->index >= 0 && p->index < n);
        struct manifest_entry *e = &m->parts[p->index];
        pp_assert(e->sha256[0] == '\0');
        e->bytes = p->bytes;
        pp_sha256_hex(p->sha256, e->sha256);
        m->tensors += p->tensors;
        name_part(name, p->index, n);
        PP_TRY(pp_path_format(path, "%s/%s", save->folder, name));
        if (stat(path, &st) != 0)
            return pp_fail_errno(PP_EIO, "cannot find %s, which another rank wrote", path);
        if ((uint64_t)st.st_size != p->bytes) {
            return pp_fail(PP_EIO, "%s has %lld bytes here, its rank wrote %" PRIu64, path,
                           (long long)st.st_size, p->bytes);
        }
    }
    return 0;
}

/* Gives the new folder the name of an existing one; *out_old is where the old folder is then. If
 * the system can swap two names, one call does it. If not, a crash between the two renames leaves
 * no checkpoint of this step; the newest is then that of an earlier step. */
static int replace_folder(const struct pp_io *io, const struct pp_ckpt_save *save, const char *path,
                          char out_old[PP_PATH_MAX])
{
    int rc;
    do {
        rc = io->ops->exchange(io, save->folder, path);
    } while (rc < 0 && errno == EINTR);
    if (rc == 0)
        return pp_path_format(out_old, "%s", save->folder);
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
        return pp_fail_errno(0, "cannot replace %s", path);
    PP_TRY(folder_trash_path(save->dir, save->step, out_old));
    PP_TRY(pp_io_rename(io, path, out_old));
    rc = pp_io_rename(io, save->folder, path);
    if (rc < 0)
        (void)io->ops->rename(io, out_old, path);
    return rc;
}

/* Gives the folder its final name, which makes the checkpoint exist. Then *named is set, and no
 * file of the folder is removed whatever fails later. */
static int rename_folder(const struct pp_io *io, const struct pp_ckpt_save *save, bool *named)
{
    char path[PP_PATH_MAX], old[PP_PATH_MAX] = "";
    struct stat st;
    PP_TRY(folder_step_path(save->dir, save->step, path));
    PP_TRY(pp_io_sync_dir(io, save->folder));
    PP_TRY(pp_path_stat(path, false, &st));
    if (st.st_mode != 0)
        PP_TRY(replace_folder(io, save, path, old));
    else
        PP_TRY(pp_io_rename(io, save->folder, path));
    *named = true;
    PP_TRY(pp_io_sync_dir(io, save->dir));
    /* It is saved. If the checkpoint that it replaced cannot be removed, this is not a failure of
     * the save. */
    if (old[0] && folder_remove(io, old) < 0) {
        pp_log_warn("%s", pp_error_get()->text);
        pp_error_clear();
    }
    return 0;
}

static int finish_checkpoint(const struct pp_io *io, const struct pp_ckpt_save *save,
                             const struct pp_ckpt_state *state, const char *config,
                             const struct pp_ckpt_part *parts, int n, struct manifest *m,
                             bool *named)
{
    char *text = NULL;
    size_t bytes = 0;
    struct manifest_entry ignored;
    PP_TRY(take_parts(save, parts, n, m));
    PP_TRY(write_text(io, save, NAME_CONFIG, config, strlen(config), &m->config));
    PP_TRY(state_print(state, &text, &bytes));
    PP_TRY(write_and_free_text(io, save, NAME_STATE, text, bytes, &m->state));
    PP_TRY(manifest_print(m, &text, &bytes));
    PP_TRY(write_and_free_text(io, save, NAME_MANIFEST, text, bytes, &ignored));
    return rename_folder(io, save, named);
}

int pp_ckpt_commit(const struct pp_io *io, const struct pp_ckpt_save *save,
                   const struct pp_ckpt_state *state, const char *config,
                   const struct pp_ckpt_part *parts, int n)
{
    pp_assert(state->step == save->step && strcmp(state->config_hash, save->config_hash) == 0);
    struct manifest m = {.step = save->step};
    memcpy(m.config_hash, save->config_hash, PP_SHA256_HEX);
    bool named = false;
    int rc = finish_checkpoint(io, save, state, config, parts, n, &m, &named);
    manifest_fini(&m);
    if (rc < 0 && !named)
        pp_ckpt_abandon(io, save);
    return rc;
}

int pp_ckpt_adopt(const struct pp_io *io, const struct pp_ckpt_save *save)
{
    bool named = false;
    int rc = rename_folder(io, save, &named);
    if (rc < 0 && !named)
        pp_ckpt_abandon(io, save);
    return rc;
}

void pp_ckpt_abandon(const struct pp_io *io, const struct pp_ckpt_save *save)
{
    struct pp_error e = *pp_error_get();
    (void)folder_remove(io, save->folder);
    (void)pp_error_adopt(&e);
}
