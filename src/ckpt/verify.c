/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a checkpoint folder. MANIFEST has the digest of every file and ends with its own, and the
 * parts repeat the data that identifies their checkpoint. Only names made by ppcli are opened, and
 * no links.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "impl.h"
#include "safetensors.h"
#include "ppcli/base/base.h"

#define CONFIG_BYTES_MAX ((uint64_t)1 << 20)
#define PIECE_BYTES ((size_t)1 << 18)

struct verifier {
    struct pp_ckpt *ck;
    enum pp_ckpt_check check;
    int dir; /* descriptor of the folder */
    struct manifest m;
    uint8_t *piece; /* [PIECE_BYTES] */
};

/* ---- files */

/* Opens a file of the checkpoint's folder, which must be a regular file and no link. `label` gets
 * its path for messages. */
static int open_plain_file(const struct verifier *v, const char *name, char label[PP_PATH_MAX],
                           int *out_fd, uint64_t *out_bytes)
{
    struct stat st;
    PP_TRY(pp_path_format(label, "%s/%s", v->ck->path, name));
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    int fd = openat(v->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        if (errno == ENOENT)
            return pp_fail(PP_EFORMAT, "%s: is missing", label);
        if (errno == ELOOP)
            return pp_fail(PP_EFORMAT, "%s: is a symbolic link, expected a regular file", label);
        return pp_fail_errno(0, "cannot read %s", label);
    }
    int rc = fstat(fd, &st) != 0    ? pp_fail_errno(PP_EIO, "cannot read %s", label)
             : !S_ISREG(st.st_mode) ? pp_fail(PP_EFORMAT, "%s: is not a regular file", label)
                                    : 0;
    PP_TRY_UNDO(rc, close(fd));
    *out_fd = fd;
    *out_bytes = (uint64_t)st.st_size;
    return 0;
}

static int digest_file(const struct verifier *v, const char *label, int fd, uint64_t bytes,
                       char out[PP_SHA256_HEX])
{
    struct pp_sha256 s;
    uint8_t digest[PP_SHA256_BYTES];
    pp_sha256_init(&s);
    for (uint64_t at = 0; at < bytes;) {
        uint64_t left = bytes - at;
        size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        PP_TRY(pp_fd_read_at(fd, label, at, v->piece, n));
        pp_sha256_update(&s, v->piece, n);
        at += n;
    }
    pp_sha256_final(&s, digest);
    pp_sha256_hex(digest, out);
    return 0;
}

/* Reads a small file as a string and checks it against its entry in MANIFEST. For MANIFEST itself
 * `expected` is NULL. */
static int read_text(const struct verifier *v, const char *name, uint64_t bytes_max,
                     const struct manifest_entry *expected, char label[PP_PATH_MAX],
                     char **out_text, size_t *out_bytes)
{
    int fd = -1;
    uint64_t bytes = 0;
    char *text = NULL;
    PP_TRY(open_plain_file(v, name, label, &fd, &bytes));
    int rc = 0;
    if (expected && bytes != expected->bytes) {
        rc = pp_fail(PP_EFORMAT, "%s: %" PRIu64 " bytes, " NAME_MANIFEST " lists %" PRIu64, label,
                     bytes, expected->bytes);
    } else {
        rc = pp_fd_read(fd, label, bytes_max, &text, out_bytes);
    }
    close(fd);
    PP_TRY(rc);
    char found[PP_SHA256_HEX];
    manifest_digest(text, *out_bytes, found);
    if (expected && strcmp(found, expected->sha256) != 0) {
        pp_free(text);
        return pp_fail(PP_EFORMAT, "%s: damaged: its digest is not the one in " NAME_MANIFEST,
                       label);
    }
    *out_text = text;
    return 0;
}

/* ---- MANIFEST, state, config */

static int read_manifest(struct verifier *v)
{
    char label[PP_PATH_MAX];
    PP_OWN_MEMORY char *text = NULL;
    size_t bytes = 0;
    PP_TRY(read_text(v, NAME_MANIFEST, MANIFEST_BYTES_MAX, NULL, label, &text, &bytes));
    PP_TRY(manifest_parse(label, text, bytes, &v->m));
    v->ck->bytes = bytes + v->m.config.bytes + v->m.state.bytes;
    for (int i = 0; i < v->m.n_parts; i++)
        if (__builtin_add_overflow(v->ck->bytes, v->m.parts[i].bytes, &v->ck->bytes))
            return pp_fail(PP_EFORMAT, "%s: sizes that cannot be", label);
    return 0;
}

static int read_state(struct verifier *v)
{
    char label[PP_PATH_MAX];
    PP_OWN_MEMORY char *text = NULL;
    size_t bytes = 0;
    struct pp_ckpt_state *s = &v->ck->state;
    PP_TRY(read_text(v, NAME_STATE, STATE_BYTES_MAX, &v->m.state, label, &text, &bytes));
    PP_TRY(state_parse(label, text, bytes, s));
    if (s->step == v->m.step && strcmp(s->config_hash, v->m.config_hash) == 0)
        return 0;
    return pp_fail(PP_EFORMAT,
                   "%s: of step %" PRId64 ", " NAME_MANIFEST " is of step %" PRId64
                   " or of another config",
                   label, s->step, v->m.step);
}

static int read_config(struct verifier *v)
{
    char label[PP_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    PP_TRY(read_text(v, NAME_CONFIG, CONFIG_BYTES_MAX, &v->m.config, label, &text, &bytes));
    pp_assert(text != NULL);
    v->ck->config = text;
    if (memchr(text, '\0', bytes))
        return pp_fail(PP_EFORMAT, "%s: has a NUL character", label);
    return 0;
}

/* ---- parts */

/* Returns an error that tells where a part differs from MANIFEST, as precisely as it can. Closes
 * `fd`. */
static int locate_damage(const char *label, int fd, uint64_t bytes, const char *what)
{
    PP_OWN(pp_st_close) struct pp_st_file *f = NULL;
    int checked = 0;
    /* An error that names a tensor or a part of the header is more precise than `what`. */
    PP_TRY(pp_st_open_fd(label, fd, bytes, &f));
    PP_TRY(pp_st_check_data(f, &checked));
    return pp_fail(PP_EFORMAT, "%s: damaged: %s; its tensors are intact", label, what);
}

static bool has_meta(const struct pp_st_header *h, const char *key, const char *value)
{
    const char *found = pp_st_meta_value(h, key);
    return found && strcmp(found, value) == 0;
}

/* Checks that an undamaged part belongs to this checkpoint: its metadata must have the same step,
 * config and number. MANIFEST may have been edited to match another part. */
static int check_ties(const struct verifier *v, const char *label, int index,
                      const struct pp_st_header *h)
{
    char step[32], part[32];
    snprintf(step, sizeof(step), "%" PRId64, v->m.step);
    snprintf(part, sizeof(part), "%d of %d", index, v->m.n_parts);
    if (!has_meta(h, META_STEP, step) || !has_meta(h, META_HASH, v->m.config_hash) ||
        !has_meta(h, META_PART, part)) {
        return pp_fail(PP_EFORMAT,
                       "%s: is not part %s of step %s of this run: files of several checkpoints "
                       "were mixed",
                       label, part, step);
    }
    return 0;
}

static int open_part(struct verifier *v, int index)
{
    char name[NAME_BYTES], label[PP_PATH_MAX], found[PP_SHA256_HEX];
    const struct manifest_entry *e = &v->m.parts[index];
    int fd = -1;
    uint64_t bytes = 0;
    name_part(name, index, v->m.n_parts);
    PP_TRY(open_plain_file(v, name, label, &fd, &bytes));
    if (bytes != e->bytes) {
        char what[128];
        snprintf(what, sizeof(what), "%" PRIu64 " bytes, " NAME_MANIFEST " lists %" PRIu64, bytes,
                 e->bytes);
        return locate_damage(label, fd, bytes, what);
    }
    if (v->check == PP_CKPT_VERIFY) {
        PP_TRY_UNDO(digest_file(v, label, fd, bytes, found), close(fd));
        if (strcmp(found, e->sha256) != 0)
            return locate_damage(label, fd, bytes, "its digest is not the one in " NAME_MANIFEST);
    }
    struct pp_st_file **part = &v->ck->parts[index];
    PP_TRY(pp_st_open_fd(label, fd, bytes, part));
    v->ck->checked += v->check == PP_CKPT_VERIFY ? (*part)->header->n_tensors : 0;
    return check_ties(v, label, index, (*part)->header);
}

static int open_parts(struct verifier *v)
{
    struct pp_ckpt *ck = v->ck;
    ck->parts = pp_alloc((size_t)v->m.n_parts, sizeof(struct pp_st_file *));
    if (!ck->parts)
        return pp_error_context("%s", ck->path);
    ck->n_parts = v->m.n_parts;
    for (int i = 0; i < v->m.n_parts; i++)
        PP_TRY(open_part(v, i));
    PP_TRY(ckpt_build_index(ck));
    if (ck->n_tensors != v->m.tensors) {
        return pp_fail(PP_EFORMAT, "%s/" NAME_MANIFEST ": %" PRId64 " tensors, the files have %d",
                       ck->path, v->m.tensors, ck->n_tensors);
    }
    return 0;
}

static int check_all(struct verifier *v)
{
    v->piece = pp_alloc(PIECE_BYTES, 1);
    if (!v->piece)
        return pp_error_context("%s", v->ck->path);
    PP_TRY(read_manifest(v));
    PP_TRY(read_state(v));
    PP_TRY(read_config(v));
    return open_parts(v);
}

int ckpt_open_folder(struct pp_ckpt *ck, enum pp_ckpt_check check)
{
    struct verifier v = {.ck = ck, .check = check};
    v.dir = open(ck->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (v.dir < 0) {
        struct stat st;
        int rc = pp_fail_errno(0, "cannot read folder %s", ck->path);
        PP_TRY(rc == PP_ENOINPUT ? pp_path_stat(ck->path, false, &st) : rc);
        return st.st_mode == 0
                   ? pp_fail(PP_ENOINPUT, "%s does not exist any more", ck->path)
                   : pp_fail(PP_EFORMAT, "%s: is not a folder, or a link that leads nowhere",
                             ck->path);
    }
    int rc = check_all(&v);
    close(v.dir);
    manifest_fini(&v.m);
    pp_free(v.piece);
    return rc;
}
