/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns texts into files of tokens: all texts one after the other, the last part for validation,
 * with the tokenizer in the same folder. Only one text is in memory at a time, except while a
 * vocabulary is trained.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"
#include "ops.h"
#include "tokenizer.h"

#define PIECE ((size_t)1 << 20)

/* ---- training a vocabulary */

struct texts {
    int n;
    char **at; /* owned, and so are the texts */
    size_t *bytes;
};

static void texts_fini(struct texts *t)
{
    for (int i = 0; i < t->n; i++)
        pp_free(t->at[i]);
    pp_free(t->at);
    pp_free(t->bytes);
}

static int make_vocabulary(const struct pp_tokenize *job, struct pp_tokenizer **out)
{
    PP_OWN(texts_fini) struct texts t = {0};
    PP_OWN_MEMORY char *json = NULL;
    PP_ALLOC(t.at, job->n_paths);
    PP_ALLOC(t.bytes, job->n_paths);
    for (; t.n < job->n_paths; t.n++)
        PP_TRY(pp_source_text(job->paths[t.n], &t.at[t.n], &t.bytes[t.n]));
    PP_TRY(
        pp_tokenizer_train(t.n, job->paths, (const char *const *)t.at, t.bytes, job->train, &json));
    PP_TRY(pp_tokenizer_parse("the new vocabulary", json, strlen(json), out));
    if ((*out)->n < job->train)
        pp_log_warn("the texts have no more than %d tokens; %d were asked for", (*out)->n,
                    job->train);
    return 0;
}

/* Writes the vocabulary to the folder, or checks that the one there is the same. A different one is
 * never replaced, because existing files depend on it. */
static int keep_vocabulary(const struct pp_tokenize *job, const struct pp_tokenizer *t)
{
    PP_OWN(pp_tokenizer_destroy) struct pp_tokenizer *there = NULL;
    if (pp_tokenizer_is_in(job->dir)) {
        PP_TRY(pp_tokenizer_open(job->dir, &there));
        return pp_tokenizer_same(there, t)
                   ? 0
                   : pp_fail(PP_ECONFIG, "%s has another tokenizer; name a new folder", job->dir);
    }
    return pp_file_write_text(job->dir, "tokenizer.json", t->json);
}

/* ---- tokens */

static int put_tokens(const struct pp_ids *ids, size_t each, FILE *f)
{
    uint16_t narrow[4096];
    if (each == sizeof(*ids->at)) {
        fwrite(ids->at, each, ids->n, f);
        return ferror(f) ? PP_EIO : 0;
    }
    for (size_t first = 0, n; first < ids->n; first += n) {
        n = ids->n - first < 4096 ? ids->n - first : 4096;
        for (size_t i = 0; i < n; i++)
            narrow[i] = (uint16_t)ids->at[first + i]; /* the vocabulary has no larger token */
        fwrite(narrow, each, n, f);
    }
    return ferror(f) ? PP_EIO : 0;
}

static int encode_files(const struct pp_tokenize *job, struct pp_tokenizer *t, size_t each, FILE *f,
                        struct pp_tokenized *out)
{
    PP_OWN_MEMORY uint32_t *at = NULL;
    struct pp_ids ids = {0};
    for (int i = 0; i < job->n_paths; i++) {
        PP_OWN_MEMORY char *text = NULL;
        size_t bytes;
        PP_TRY(pp_source_text(job->paths[i], &text, &bytes));
        uint64_t start = pp_clock_ns();
        ids.n = 0;
        int rc = pp_tokenizer_encode(t, job->paths[i], text, bytes, &ids);
        at = ids.at;
        PP_TRY(rc);
        out->seconds += (double)(pp_clock_ns() - start) * 1e-9;
        out->bytes += bytes;
        out->tokens += ids.n;
        if (put_tokens(&ids, each, f) < 0)
            return pp_fail_errno(PP_EIO, "cannot write %s/train.bin", job->dir);
    }
    return 0;
}

/* Moves bytes `first` to `end` - 1, the last of a file that is being written, to another file. */
static int move_tail(struct pp_file_write *from, uint64_t first, uint64_t end,
                     struct pp_file_write *to)
{
    int fd = -1;
    uint64_t bytes;
    PP_TAKE(char, piece, PIECE);
    if (fflush(from->f) != 0)
        return pp_fail_errno(PP_EIO, "cannot write %s", from->to.path);
    PP_TRY(pp_open_regular(from->to.temp, &fd, &bytes));
    int rc = 0;
    for (uint64_t at = first; rc == 0 && at < end; at += PIECE) {
        size_t n = end - at < PIECE ? (size_t)(end - at) : PIECE;
        rc = pp_fd_read_at(fd, from->to.temp, at, piece, n);
        if (rc == 0 && fwrite(piece, 1, n, to->f) != n)
            rc = pp_fail_errno(PP_EIO, "cannot write %s", to->to.path);
    }
    close(fd);
    if (rc == 0 && ftruncate(fileno(from->f), (off_t)first) != 0)
        rc = pp_fail_errno(PP_EIO, "cannot shorten %s", from->to.path);
    return rc;
}

static int write_files(const struct pp_tokenize *job, struct pp_tokenizer *t,
                       struct pp_tokenized *out)
{
    PP_OWN(pp_file_abandon) struct pp_file_write train = {0};
    PP_OWN(pp_file_abandon) struct pp_file_write val = {0};
    char path[PP_PATH_MAX];
    uint64_t each = (uint64_t)out->token_bytes;
    train.to.fd = val.to.fd = -1;
    PP_TRY(pp_path_format(path, "%s/train.bin", job->dir));
    PP_TRY(pp_file_create(path, &train));
    PP_TRY(encode_files(job, t, (size_t)each, train.f, out));
    if (out->tokens < 2)
        return pp_fail(PP_EFORMAT,
                       "%s%s: %" PRIu64 " token%s in all, and training needs at least 2: one to "
                       "read and the next one to learn",
                       job->paths[0], job->n_paths > 1 ? " and the other texts" : "", out->tokens,
                       pp_plural(out->tokens));
    out->validation = out->tokens - (uint64_t)((double)out->tokens * (1 - job->validation));
    /* if there are so few tokens, training gets all of them */
    if (out->validation > out->tokens - 2)
        out->validation = 0;
    PP_TRY(pp_path_format(path, "%s/val.bin", job->dir));
    if (out->validation > 0) {
        PP_TRY(pp_file_create(path, &val));
        PP_TRY(move_tail(&train, (out->tokens - out->validation) * each, out->tokens * each, &val));
        PP_TRY(pp_file_commit(&val));
    }
    return pp_file_commit(&train);
}

int pp_tokenize(const struct pp_tokenize *job, struct pp_tokenized *out)
{
    PP_OWN(pp_tokenizer_destroy) struct pp_tokenizer *t = NULL;
    *out = (struct pp_tokenized){0};
    PP_TRY(job->train > 0 ? make_vocabulary(job, &t) : pp_tokenizer_open(job->tokenizer, &t));
    PP_TRY(pp_dir_create(job->dir));
    PP_TRY(keep_vocabulary(job, t));
    out->vocabulary = t->n;
    out->token_bytes = t->n <= 1 << 16 ? 2 : 4;
    return write_files(job, t, out);
}
