/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What arrives, as it arrives: headers worth remembering, and the body into the .part, begun anew
 * or continued. Whatever cannot be the file is stopped at its first bytes.
 */
#include "fetch_answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "open.h"

#define OTHER_BODY_MAX 65536 /* of an error page or redirect, read so that the connection lives */

/* The value of header `name` in this line, blanks trimmed; false when it is another header or does
 * not fit (a cut ETag would be a wrong one). */
static bool header_value(const char *line, size_t n, const char *name, char *out, size_t bytes)
{
    size_t k = strlen(name);
    if (n <= k || line[k] != ':' || strncasecmp(line, name, k) != 0) {
        return false;
    }
    const char *p = line + k + 1, *end = line + n;
    while (p < end && (*p == ' ' || *p == '\t')) {
        p++;
    }
    while (end > p && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    if ((size_t)(end - p) >= bytes) {
        return false;
    }
    for (size_t i = 0; p + i < end; i++) {
        out[i] = p[i] >= ' ' && p[i] <= '~' ? p[i] : '?'; /* it may be printed */
    }
    out[end - p] = '\0';
    return true;
}

size_t pp_answer_on_header(char *line, size_t size, size_t count, void *user)
{
    struct pp_answer *a = user;
    size_t n = size * count;
    char value[256];
    if (n > 5 && strncmp(line, "HTTP/", 5) == 0) {
        a->etag[0] = a->type[0] = '\0'; /* after a 100 or a proxy's answer the real one follows */
        a->have_range = false;
    } else if (header_value(line, n, "ETag", value, sizeof(value))) {
        snprintf(a->etag, sizeof(a->etag), "%s", value);
    } else if (header_value(line, n, "Content-Type", value, sizeof(a->type))) {
        snprintf(a->type, sizeof(a->type), "%.63s", value);
    } else if (header_value(line, n, "Content-Range", value, sizeof(value))) {
        a->have_range = sscanf(value, "bytes %" SCNu64 "-", &a->range_first) == 1;
    }
    return n;
}

bool pp_answer_read_etag(const struct pp_store *st, const char *url, char etag[256])
{
    char of[PP_PATH_MAX];
    FILE *f = fopen(st->etag, "re");
    if (!f) {
        return false;
    }
    bool good = fgets(etag, 256, f) && fgets(of, sizeof(of), f);
    fclose(f);
    if (!good) {
        return false;
    }
    etag[strcspn(etag, "\n")] = '\0';
    of[strcspn(of, "\n")] = '\0';
    return etag[0] == '"' && strcmp(of, url) == 0;
}

/* Only a hint for the next run: when it is lost or wrong, the digest still decides. */
static void write_etag(const struct pp_answer *a)
{
    (void)unlink(a->st->etag);
    if (a->etag[0] != '"') {
        return; /* none, or a weak one, which promises the meaning but not the bytes */
    }
    FILE *f = fopen(a->st->etag, "wxe");
    if (f) {
        fprintf(f, "%s\n%s\n", a->etag, a->url);
        fclose(f);
    }
}

bool pp_answer_begin(struct pp_answer *a)
{
    a->begun = true;
    if (a->status == 206) {
        if (a->offset == 0 || !a->have_range || a->range_first != a->offset) {
            a->stop = WRONG_RANGE;
            return false;
        }
        a->at = a->offset;
    } else {
        a->at = 0;
        if (ftruncate(a->fd, 0) != 0) {
            a->stop = WRITE_FAILED;
            a->write_errno = errno;
            return false;
        }
        write_etag(a);
    }
    if (lseek(a->fd, (off_t)a->at, SEEK_SET) < 0) {
        a->stop = WRITE_FAILED;
        a->write_errno = errno;
        return false;
    }
    return true;
}

/* The first bytes tell an error page from data, long before a digest could. */
static bool head_is_data(struct pp_answer *a, const char *data, size_t n)
{
    if (a->at >= sizeof(a->head)) {
        return true;
    }
    size_t take = sizeof(a->head) - a->at < n ? sizeof(a->head) - a->at : n;
    memcpy(a->head + a->at, data, take);
    size_t have = a->at + take;
    if (a->offset > 0 && a->status == 206) {
        return true; /* its beginning was seen by an earlier request */
    }
    enum pp_magic m = pp_magic_of(a->head, have);
    return have < 2 || m == PP_MAGIC_GZIP || m == PP_MAGIC_IDX;
}

size_t pp_answer_on_body(char *data, size_t size, size_t count, void *user)
{
    struct pp_answer *a = user;
    size_t n = size * count;
    curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &a->status);
    if (a->status != 200 && a->status != 206) {
        a->other += n;
        a->stop = a->other > OTHER_BODY_MAX ? OTHER_BODY : GO_ON;
        return a->stop == GO_ON ? n : 0;
    }
    if (!a->begun && !pp_answer_begin(a)) {
        return 0;
    }
    if (!head_is_data(a, data, n)) {
        a->stop = NOT_DATA;
        return 0;
    }
    if (a->at + n > a->bytes_max) {
        a->stop = TOO_LARGE;
        return 0;
    }
    for (size_t done = 0; done < n;) {
        ssize_t w = write(a->fd, data + done, n - done);
        if (w < 0 && errno == EINTR) {
            continue;
        }
        if (w < 0) {
            a->stop = WRITE_FAILED;
            a->write_errno = errno;
            return 0;
        }
        done += (size_t)w;
    }
    a->at += n;
    curl_off_t length = 0;
    curl_easy_getinfo(a->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    uint64_t before = a->status == 206 ? a->offset : 0;
    pp_progress_show(a->pg, a->at, length > 0 ? before + (uint64_t)length : 0);
    return n;
}
