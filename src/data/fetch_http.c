/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One file over HTTP into its .part. libcurl does TLS and HTTP; what is decided here is what an
 * answer means: append, start over, try again, or leave this source. Redirects are followed by hand
 * because every hop must pass pp_url_allowed(), which libcurl's protocol list cannot express.
 */
#include "fetch_answer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ppcli/err.h"
#include "ppcli/log.h"
#include "ppcli/mem.h"
#include "open.h"

struct pp_http {
    CURL *curl;
    const struct pp_fetch_options *opt;
};

/* What follows from an answer. */
enum outcome {
    COMPLETE,
    LEAVE,
    LEAVE_ALL,
    AGAIN_LATER,
    AGAIN_FROM_START,
    BROKEN_HERE
};

int pp_http_open(const struct pp_fetch_options *opt, struct pp_http **out)
{
    struct pp_http *h = pp_alloc(1, sizeof(*h));
    if (!h) {
        return PP_ERESOURCE;
    }
    h->opt = opt;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0) {
        pp_free(h);
        return pp_fail(PP_ERESOURCE, "libcurl does not start");
    }
    h->curl = curl_easy_init();
    if (!h->curl) {
        pp_http_close(&h);
        return pp_fail(PP_ERESOURCE, "libcurl does not start");
    }
    *out = h;
    return 0;
}

void pp_http_close(struct pp_http **http)
{
    if (!*http) {
        return;
    }
    curl_easy_cleanup((*http)->curl);
    curl_global_cleanup();
    pp_free(*http);
    *http = NULL;
}

/* --- one request ------------------------------------------------------------------------------ */

static struct curl_slist *set_options(struct pp_http *h, struct pp_answer *a, const char *url,
                                      const char *if_range)
{
    CURL *c = h->curl;
    const struct pp_fetch_options *o = h->opt;
    struct curl_slist *headers = NULL;
    curl_easy_reset(c); /* keeps connections */
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, o->loopback_http ? "http,https" : "https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "ppcli/" PP_VERSION);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)(o->connect_s * 1000));
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, (long)o->low_speed_bytes);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)o->low_speed_s);
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)(o->total_s * 1000));
    curl_easy_setopt(c, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)a->bytes_max);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, pp_answer_on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, a);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, pp_answer_on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, a);
    if (strncmp(url, "http:", 5) == 0) {
        curl_easy_setopt(c, CURLOPT_NOPROXY, "*"); /* this machine: a proxy would mean its own */
    }
    if (a->offset > 0) {
        char text[300];
        snprintf(text, sizeof(text), "%" PRIu64 "-", a->offset);
        curl_easy_setopt(c, CURLOPT_RANGE, text);
        snprintf(text, sizeof(text), "If-Range: %s", if_range);
        headers = curl_slist_append(headers, text);
        curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    }
    return headers;
}

static enum outcome judge_status(const struct pp_answer *a)
{
    long s = a->status;
    if (s == 416 && a->offset > 0) {
        pp_fail(PP_EIO, "server has no rest of the file");
        return AGAIN_FROM_START;
    }
    pp_fail(PP_EIO, "server answered %ld%s%s%s", s, a->type[0] ? " (" : "", a->type,
            a->type[0] ? ")" : "");
    return s == 408 || s == 429 || (s >= 500 && s <= 599) ? AGAIN_LATER : LEAVE;
}

static enum outcome judge_stop(const struct pp_answer *a)
{
    char found[64];
    switch (a->stop) {
    case TOO_LARGE:
        pp_store_discard(a->st);
        pp_fail(PP_EFORMAT, "file is larger than %" PRIu64 " bytes", a->bytes_max);
        return LEAVE;
    case NOT_DATA:
        pp_store_discard(a->st);
        pp_fail(PP_EFORMAT, "server sent %s beginning with %s, expected gzip (1f 8b) or IDX",
                a->type[0] ? a->type : "something",
                pp_magic_text(a->head, 4, found, sizeof(found)));
        return LEAVE;
    case WRONG_RANGE:
        pp_fail(PP_EIO, "server sent another piece of the file than asked for");
        return a->offset > 0 ? AGAIN_FROM_START : LEAVE;
    case WRITE_FAILED:
        errno = a->write_errno;
        pp_fail_errno(0, "cannot write %s", a->st->part);
        return BROKEN_HERE;
    default:
        return judge_status(a);
    }
}

static enum outcome judge(const struct pp_answer *a, CURLcode rc)
{
    curl_off_t sent_us = 0;
    if (rc != CURLE_OK && rc != CURLE_WRITE_ERROR && a->status >= 400) {
        return judge_status(a); /* how its error page broke off does not matter */
    }
    switch (rc) {
    case CURLE_OK:
        return a->status == 200 || a->status == 206 ? COMPLETE : judge_status(a);
    case CURLE_WRITE_ERROR:
        return judge_stop(a);
    case CURLE_FILESIZE_EXCEEDED:
        pp_fail(PP_EFORMAT, "file is larger than %" PRIu64 " bytes", a->bytes_max);
        return LEAVE;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        pp_fail(PP_EIO, "%s", curl_easy_strerror(rc));
        return LEAVE_ALL;
    case CURLE_OPERATION_TIMEDOUT:
        curl_easy_getinfo(a->curl, CURLINFO_PRETRANSFER_TIME_T, &sent_us);
        if (sent_us == 0) {
            /* A firewall that swallows packets will go on doing so: no second wait. */
            pp_fail(PP_EIO, "cannot connect in time");
            return LEAVE_ALL;
        }
        pp_fail(PP_EIO, "stalled after %" PRIu64 " bytes", a->at);
        return AGAIN_LATER;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        pp_fail(PP_EIO, "connection broke after %" PRIu64 " bytes", a->at);
        return AGAIN_LATER;
    case CURLE_OUT_OF_MEMORY:
        pp_fail(PP_ERESOURCE, "libcurl is out of memory");
        return BROKEN_HERE;
    default:
        pp_fail(PP_EIO, "%s", curl_easy_strerror(rc));
        return LEAVE;
    }
}

/* One request, redirects followed. */
static enum outcome request(struct pp_http *h, struct pp_answer *a, const char *if_range)
{
    char url[PP_PATH_MAX];
    if (pp_path_format(url, "%s", a->url) < 0) {
        return LEAVE;
    }
    for (int hop = 0;; hop++) {
        if (!pp_url_allowed(url, h->opt->loopback_http)) {
            pp_fail(PP_EIO, "%s %.200s, which is not https", hop > 0 ? "redirects to" : "is", url);
            return LEAVE;
        }
        struct curl_slist *headers = set_options(h, a, url, if_range);
        CURLcode rc = curl_easy_perform(h->curl);
        curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, &a->status);
        curl_slist_free_all(headers);
        char *next = NULL;
        curl_easy_getinfo(h->curl, CURLINFO_REDIRECT_URL, &next);
        if (a->status < 300 || a->status > 399 || !next) {
            if (rc == CURLE_OK && !a->begun && (a->status == 200 || a->status == 206) &&
                !pp_answer_begin(a)) {
                rc = CURLE_WRITE_ERROR; /* an empty body: the .part must become empty too */
            }
            return judge(a, rc);
        }
        if (hop >= h->opt->redirects_max) {
            pp_fail(PP_EIO, "more than %d redirects", h->opt->redirects_max);
            return LEAVE;
        }
        if (pp_path_format(url, "%s", next) < 0) {
            return LEAVE;
        }
        a->stop = GO_ON;
        a->other = 0;
    }
}

static enum outcome attempt(struct pp_http *h, struct pp_answer *a, bool *out_resumed)
{
    char if_range[256] = "";
    a->fd = open(a->st->part, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (a->fd < 0) {
        pp_fail_errno(0, "cannot write %s", a->st->part);
        return BROKEN_HERE;
    }
    off_t have = lseek(a->fd, 0, SEEK_END);
    if (have > 0 && pp_answer_read_etag(a->st, a->url, if_range)) {
        a->offset = (uint64_t)have;
    }
    enum outcome end = request(h, a, if_range);
    *out_resumed = a->status == 206;
    close(a->fd);
    if (end != COMPLETE && have == 0 && a->at == 0) {
        pp_store_discard(a->st); /* an error page leaves nothing behind */
    }
    return end;
}

/* --- tries ------------------------------------------------------------------------------------ */

static void pause_for(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds,
                         .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}

static double pause_length(const struct pp_http *h, int failures)
{
    double s = ldexp(h->opt->retry_first_s, failures);
    curl_off_t asked = 0;
    curl_easy_getinfo(h->curl, CURLINFO_RETRY_AFTER, &asked);
    if ((double)asked > s) {
        s = (double)asked < h->opt->retry_after_max_s ? (double)asked : h->opt->retry_after_max_s;
    }
    return s;
}

enum pp_http_end pp_http_get(struct pp_http *http, const char *url, const struct pp_store *st,
                             uint64_t bytes_max, struct pp_progress *pg, bool *out_resumed)
{
    bool started_over = false;
    for (int failures = 0;;) {
        struct pp_answer a = {
            .st = st, .url = url, .pg = pg, .curl = http->curl, .fd = -1, .bytes_max = bytes_max};
        enum outcome end = attempt(http, &a, out_resumed);
        pp_progress_end(pg);
        switch (end) {
        case COMPLETE:
            return PP_HTTP_DONE;
        case BROKEN_HERE:
            return PP_HTTP_LOCAL;
        case LEAVE_ALL:
            return PP_HTTP_UNREACHABLE;
        case AGAIN_FROM_START:
            pp_store_discard(st);
            if (started_over) {
                return PP_HTTP_FAILED;
            }
            started_over = true;
            break;
        case AGAIN_LATER:
            if (failures >= http->opt->retries) {
                return PP_HTTP_FAILED;
            }
            double s = pause_length(http, failures++);
            pp_log_info("%s: %s; again in %.3g s", url, pp_error_get()->text, s);
            pause_for(s);
            break;
        case LEAVE:
        default:
            return PP_HTTP_FAILED;
        }
    }
}
