/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Downloads one file over HTTP into its .part. libcurl resumes, follows redirects and enforces time
 * limits; this file decides what the answer means: start over, try again, or leave this server.
 */
#include "fetch_http.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <curl/curl.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

struct transfer {
    CURL *curl;
    FILE *part;
    const char *url;
    /* bytes of the .part: start of the request, current end, maximum */
    uint64_t offset, at, bytes_max;
    bool live; /* show the progress */
    char why[CURL_ERROR_SIZE];
};

/* Allows a request or refuses it; libcurl calls this before it sends the request. Plain http is
 * allowed only to this machine, whatever a name or redirect resolves to. */
static int on_connected(void *user, char *ip, char *local_ip, int port, int local_port)
{
    const struct transfer *t = user;
    char *scheme = NULL;
    curl_easy_getinfo(t->curl, CURLINFO_SCHEME, &scheme);
    bool here = strncmp(ip, "127.", 4) == 0 || strcmp(ip, "::1") == 0;
    return here || !scheme || strcasecmp(scheme, "http") != 0 ? CURL_PREREQFUNC_OK
                                                              : CURL_PREREQFUNC_ABORT;
}

static size_t on_body(char *data, size_t size, size_t count, void *user)
{
    struct transfer *t = user;
    size_t n = size * count;
    if (t->at + n > t->bytes_max)
        return 0;
    t->at += n;
    return fwrite(data, 1, n, t->part);
}

static int on_progress(void *user, curl_off_t most, curl_off_t now, curl_off_t up, curl_off_t sent)
{
    const struct transfer *t = user;
    char done[PP_COUNT_TEXT], all[PP_COUNT_TEXT];
    const char *name = strrchr(t->url, '/');
    if (t->at > 0)
        pp_log_progress("%s of %s, %s", pp_text_size(t->at, done),
                        most > 0 ? pp_text_size(t->offset + (uint64_t)most, all) : "?",
                        name ? name + 1 : t->url);
    return 0;
}

/* Sets the protocols that a URL and its redirects may use: by number before libcurl 7.85, by name
 * since. */
static void allow_protocols(CURL *c, bool http, bool file)
{
#if CURL_AT_LEAST_VERSION(7, 85, 0)
    const char *protocols = http ? "http,https" : "https";
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, file ? "file" : protocols);
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, protocols);
#else
    long protocols = http ? CURLPROTO_HTTP | CURLPROTO_HTTPS : CURLPROTO_HTTPS;
    curl_easy_setopt(c, CURLOPT_PROTOCOLS, file ? (long)CURLPROTO_FILE : protocols);
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS, protocols);
#endif
}

static void set_options(struct transfer *t, const struct pp_fetch_limits *l)
{
    CURL *c = t->curl;
    curl_easy_reset(c); /* keeps connections */
    curl_easy_setopt(c, CURLOPT_URL, t->url);
    allow_protocols(c, l->http, strncmp(t->url, "file:", 5) == 0);
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, 5L);
    curl_easy_setopt(c, CURLOPT_PREREQFUNCTION, on_connected);
    curl_easy_setopt(c, CURLOPT_PREREQDATA, t);
    if (strncmp(t->url, "http:", 5) == 0)
        /* for a proxy "this machine" would be the proxy's */
        curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "ppcli/" PP_VERSION);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)(l->connect_s * 1000));
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1024L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)l->low_speed_s);
    curl_easy_setopt(c, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)t->offset);
    curl_easy_setopt(c, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)t->bytes_max);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, t->live ? 0L : 1L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->why);
}

/* Decides from an answer, or a missing one, how to continue. Every result but PP_HTTP_DONE comes
 * with a recorded error. */
static enum pp_http_end classify_answer(const struct transfer *t, CURLcode rc)
{
    long status = 0;
    char *type = NULL;
    curl_off_t asked_us = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(t->curl, CURLINFO_CONTENT_TYPE, &type);
    curl_easy_getinfo(t->curl, CURLINFO_PRETRANSFER_TIME_T, &asked_us);
    pp_fail(PP_EIO, "%s", t->why[0] ? t->why : curl_easy_strerror(rc));
    switch (rc) {
    case CURLE_OK:
    case CURLE_HTTP_RETURNED_ERROR:
        if (status == 200 || status == 206 || status == 0) /* 0: a file:// URL */
            return PP_HTTP_DONE;
        pp_fail(PP_EIO, "server answered %ld (%.60s)", status, type ? type : "nothing");
        if (status == 408 || status == 429 || status >= 500)
            return PP_HTTP_AGAIN;
        return status == 416 ? PP_HTTP_START_OVER : PP_HTTP_FAILED;
    case CURLE_RANGE_ERROR:
    case CURLE_BAD_DOWNLOAD_RESUME:
        return PP_HTTP_START_OVER;
    case CURLE_WRITE_ERROR:
    case CURLE_FILESIZE_EXCEEDED:
        if (ferror(t->part)) {
            pp_fail_errno(0, "cannot write the file");
            return PP_HTTP_LOCAL;
        }
        pp_fail(PP_EFORMAT, "file is larger than %" PRIu64 " bytes", t->bytes_max);
        return PP_HTTP_FAILED;
    case CURLE_OPERATION_TIMEDOUT:
        /* A server (or firewall) that has sent nothing will send nothing: do not wait a second
         * time. */
        pp_fail(PP_EIO, "stalled after %" PRIu64 " bytes", t->at);
        return t->at == t->offset ? PP_HTTP_UNREACHABLE : PP_HTTP_AGAIN;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        pp_fail(PP_EIO, "connection broke after %" PRIu64 " bytes", t->at);
        return PP_HTTP_AGAIN;
    case CURLE_ABORTED_BY_CALLBACK:
        pp_fail(PP_EIO, "http:// is only for this machine");
        return PP_HTTP_FAILED;
    default: /* no request was sent: no such host, no connection, a bad certificate */
        return asked_us == 0 ? PP_HTTP_UNREACHABLE : PP_HTTP_FAILED;
    }
}

static enum pp_http_end attempt_transfer(struct transfer *t, const char *part,
                                         const struct pp_fetch_limits *l)
{
    if (pp_file_append(part, O_APPEND | O_NOFOLLOW, &t->part) < 0)
        return PP_HTTP_LOCAL;
    fseeko(t->part, 0, SEEK_END);
    t->offset = t->at = (uint64_t)ftello(t->part);
    t->why[0] = '\0';
    set_options(t, l);
    CURLcode code = curl_easy_perform(t->curl);
    pp_log_progress(NULL);
    enum pp_http_end end = classify_answer(t, code);
    if (fclose(t->part) != 0 && end != PP_HTTP_LOCAL) {
        pp_fail_errno(0, "cannot write %s", part);
        end = PP_HTTP_LOCAL;
    }
    /* the content is not that of the file */
    bool other = end == PP_HTTP_FAILED && t->at > t->offset;
    if (other || end == PP_HTTP_START_OVER || (end != PP_HTTP_DONE && t->at == 0))
        (void)unlink(part);
    return end;
}

static void pause_before_retry(const struct transfer *t, const struct pp_fetch_limits *l, int retry)
{
    curl_off_t asked = 0;
    double s = ldexp(l->retry_first_s, retry);
    curl_easy_getinfo(t->curl, CURLINFO_RETRY_AFTER, &asked);
    s = fmax(s, fmin((double)asked, l->retry_after_max_s));
    pp_log_info("%s: %s; again in %.3g s", t->url, pp_error_get()->text, s);
    struct timespec pause = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - floor(s)) * 1e9)};
    while (nanosleep(&pause, &pause) != 0 && errno == EINTR) {
    }
}

enum pp_http_end pp_http_get(const char *url, const char *part, uint64_t bytes_max,
                             const struct pp_fetch_limits *limits, bool *out_resumed)
{
    struct transfer t = {.url = url,
                         .bytes_max = bytes_max,
                         .curl = curl_easy_init(),
                         .live = pp_log_level() >= PP_LOG_INFO && pp_term_live(STDERR_FILENO)};
    if (!t.curl) {
        pp_fail(PP_ERESOURCE, "libcurl does not start");
        return PP_HTTP_LOCAL;
    }
    enum pp_http_end end;
    for (int retry = 0, restarts = 0;;) {
        end = attempt_transfer(&t, part, limits);
        if (end == PP_HTTP_AGAIN && retry < limits->retries)
            pause_before_retry(&t, limits, retry++);
        else if (end != PP_HTTP_START_OVER || restarts++)
            break;
    }
    curl_easy_cleanup(t.curl);
    *out_resumed = t.offset > 0;
    return end == PP_HTTP_AGAIN || end == PP_HTTP_START_OVER ? PP_HTTP_FAILED : end;
}
