/* SPDX-License-Identifier: Apache-2.0 */
/* Which file from which source: what is there and good stays, the rest is taken from the first
 * source that has it, and in the end every source has said why it could not help. */
#include "fetch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ppcli/clock.h"
#include "ppcli/dataset.h"
#include "ppcli/err.h"
#include "ppcli/log.h"

#define MIRRORS_MAX 8

const struct pp_fetch_options pp_fetch_defaults = {
    .connect_s = 10,
    .low_speed_bytes = 1024,
    .low_speed_s = 30,
    .total_s = 3600,
    .retries = 3,
    .retry_first_s = 1,
    .retry_after_max_s = 60,
    .redirects_max = 5,
};

struct mirror {
    char base[PP_PATH_MAX]; /* URL with '/' at the end */
    bool dead;              /* cannot be reached: not asked for the other files */
};

struct fetch {
    const struct pp_fetch_set *set;
    const struct pp_fetch_options *opt;
    char folder[PP_PATH_MAX]; /* copy from here; empty: from the mirrors */
    struct mirror mirrors[MIRRORS_MAX];
    int n_mirrors;
    struct pp_http *http; /* opened for the first URL */
    int n_kept, n_new;
};

/* Why the mirrors failed, for one message. */
struct reasons {
    char text[2048];
    bool all_format; /* every one had something, and it was not the file */
};

/* `skip`: a path that this reason may begin with and that tells a person nothing. */
static void add_reason(struct reasons *r, const char *url, const char *skip)
{
    const struct pp_error *e = pp_error_get();
    const char *what = e->text;
    size_t used = strlen(r->text), room = sizeof(r->text) - used, k = strlen(skip);
    if (strncmp(what, skip, k) == 0 && strncmp(what + k, ": ", 2) == 0) {
        what += k + 2;
    }
    int n = snprintf(r->text + used, room, "%s%s: %.400s", used > 0 ? "; " : "", url, what);
    if (n < 0 || (size_t)n >= room) {
        r->text[used] = '\0';
    }
    r->all_format = r->all_format && e->code == PP_EFORMAT;
}

/* --- addresses -------------------------------------------------------------------------------- */

static bool has_prefix(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* http:// to exactly this machine. Strict on purpose: user names, other spellings of the address
 * and whatever URL readers disagree on are "not this machine". */
static bool is_loopback(const char *url)
{
    static const char *const hosts[] = {"127.0.0.1", "localhost", "[::1]"};
    const char *host = url + strlen("http://");
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        const char *p = host + strlen(hosts[i]);
        if (!has_prefix(host, hosts[i])) {
            continue;
        }
        if (*p == ':') {
            p += 1 + strspn(p + 1, "0123456789");
        }
        if (*p == '/' || *p == '\0') {
            return true;
        }
    }
    return false;
}

bool pp_url_allowed(const char *url, bool loopback_http)
{
    if (has_prefix(url, "https://")) {
        return true;
    }
    return loopback_http && has_prefix(url, "http://") && is_loopback(url);
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef0123456789ABCDEF";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) % 16 : -1;
}

/* file:///a%20b -> /a b */
static int folder_of_url(const char *url, char out[PP_PATH_MAX])
{
    const char *p = url + strlen("file://");
    if (has_prefix(p, "localhost/")) {
        p += strlen("localhost");
    }
    if (*p != '/' || strlen(p) >= PP_PATH_MAX) {
        return pp_fail(PP_ECONFIG, "--from %s: expected file:///FOLDER", url);
    }
    size_t n = 0;
    for (; *p; p++) {
        int hi = *p == '%' ? hex_digit(p[1]) : -1;
        int lo = hi >= 0 ? hex_digit(p[2]) : -1;
        if (*p == '%' && (lo < 0 || hi * 16 + lo == 0)) {
            return pp_fail(PP_ECONFIG, "--from %s: '%%' needs two hexadecimal digits", url);
        }
        out[n++] = (char)(*p == '%' ? hi * 16 + lo : *p);
        p += *p == '%' ? 2 : 0;
    }
    out[n] = '\0';
    return 0;
}

static int set_folder(struct fetch *f, const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        return pp_fail_errno(0, "--from %s", path);
    }
    if (!S_ISDIR(st.st_mode)) {
        return pp_fail(PP_ENOINPUT, "--from %s: not a folder", path);
    }
    return pp_path_format(f->folder, "%s", path);
}

static int add_mirror(struct fetch *f, const char *url)
{
    pp_assert(f->n_mirrors < MIRRORS_MAX);
    size_t n = strlen(url);
    PP_TRY(pp_path_format(f->mirrors[f->n_mirrors].base, "%s%s", url,
                          n > 0 && url[n - 1] == '/' ? "" : "/"));
    f->n_mirrors++;
    return 0;
}

static int add_sources(struct fetch *f, const char *from)
{
    char folder[PP_PATH_MAX];
    if (!from) {
        for (int i = 0; f->set->mirrors[i]; i++) {
            PP_TRY(add_mirror(f, f->set->mirrors[i]));
        }
        return 0;
    }
    if (has_prefix(from, "file://")) {
        PP_TRY(folder_of_url(from, folder));
        return set_folder(f, folder);
    }
    if (!strstr(from, "://")) {
        return set_folder(f, from);
    }
    if (!pp_url_allowed(from, f->opt->loopback_http)) {
        return pp_fail(PP_ECONFIG,
                       "--from %s: expected https://..., file:///FOLDER or a folder (http:// only "
                       "for this machine)",
                       from);
    }
    return add_mirror(f, from);
}

/* --- one file --------------------------------------------------------------------------------- */

/* 0 when the .part is verified and has its name; *out_verified: it was the right file. */
static int verify_and_commit(const struct pp_pin *pin, const struct pp_store *st,
                             bool *out_verified)
{
    bool gz;
    *out_verified = false;
    PP_TRY(pp_verify_file(st->part, pin, &gz));
    *out_verified = true;
    return pp_store_commit(st, gz);
}

/* From a folder: NAME.gz, else NAME. */
static int get_copy(const char *folder, const struct pp_pin *pin, const struct pp_store *st)
{
    char path[PP_PATH_MAX];
    bool verified;
    PP_TRY(pp_path_format(path, "%s/%s.gz", folder, pin->name));
    int rc = pp_store_copy(st, path, pp_store_bytes_max(pin));
    if (rc == PP_ENOINPUT) {
        PP_TRY(pp_path_format(path, "%s/%s", folder, pin->name));
        rc = pp_store_copy(st, path, pp_store_bytes_max(pin));
    }
    if (rc == PP_ENOINPUT) {
        return pp_fail(PP_ENOINPUT, "%s.gz is missing", path);
    }
    PP_TRY(rc);
    rc = verify_and_commit(pin, st, &verified);
    if (rc < 0 && !verified) {
        pp_store_discard(st);
        return pp_error_context("copy of %s", path);
    }
    return rc;
}

/* From one URL. *out_next: another mirror may help. */
static int get_url(struct fetch *f, struct mirror *m, const char *url, const struct pp_pin *pin,
                   const struct pp_store *st, bool *out_next)
{
    struct pp_progress pg;
    *out_next = false;
    if (!f->http) {
        PP_TRY(pp_http_open(f->opt, &f->http));
    }
    for (;;) {
        bool resumed = false, verified;
        pp_progress_begin(&pg, pin->name);
        enum pp_http_end end =
            pp_http_get(f->http, url, st, pp_store_bytes_max(pin), &pg, &resumed);
        if (end != PP_HTTP_DONE) {
            *out_next = end != PP_HTTP_LOCAL;
            m->dead = end == PP_HTTP_UNREACHABLE;
            return pp_error_get()->code;
        }
        int rc = verify_and_commit(pin, st, &verified);
        if (rc == 0 || verified) {
            return rc;
        }
        pp_store_discard(st);
        if (!resumed) {
            *out_next = rc == PP_EFORMAT;
            return rc;
        }
        /* The file changed between its parts, or its beginning was bad: once more, whole. */
        pp_log_info("%s: the resumed file is not the right one, starting over", url);
    }
}

/* From the first mirror that has it; *out_from is that one. */
static int get_download(struct fetch *f, const struct pp_pin *pin, const struct pp_store *st,
                        const char **out_from)
{
    struct reasons why = {.all_format = true};
    for (int i = 0; i < f->n_mirrors; i++) {
        struct mirror *m = &f->mirrors[i];
        char url[PP_PATH_MAX];
        bool next;
        PP_TRY(pp_path_format(url, "%s%s.gz", m->base, pin->name));
        if (m->dead) {
            pp_fail(PP_EIO, "was not reachable");
        } else {
            int rc = get_url(f, m, url, pin, st, &next);
            if (rc == 0) {
                *out_from = m->base;
                return 0;
            }
            if (!next) {
                return rc;
            }
        }
        add_reason(&why, url, st->part);
    }
    return pp_fail(why.all_format ? PP_EFORMAT : PP_EIO,
                   "cannot download %s.gz: %s. To take the files from a folder: --from DIR",
                   pin->name, why.text);
}

static int get_file(struct fetch *f, const struct pp_pin *pin, const struct pp_store *st)
{
    uint64_t begin_ns = pp_clock_ns();
    const char *from = f->folder;
    bool gz;
    if (from[0]) {
        PP_TRY(get_copy(from, pin, st));
    } else if (pp_verify_file(st->part, pin, &gz) == 0) {
        /* A run was killed between the last byte and the rename. */
        PP_TRY(pp_store_commit(st, gz));
        from = "an earlier download";
    } else {
        PP_TRY(get_download(f, pin, st, &from));
    }
    pp_log_info("%s: from %s in %.1f s, digest good", pin->name, from,
                (double)(pp_clock_ns() - begin_ns) * 1e-9);
    return 0;
}

/* Whether a good file is there already. A bad one stays until a good one takes its place. */
static bool is_there(const struct pp_pin *pin, const struct pp_store *st)
{
    const char *const paths[2] = {st->gz, st->plain};
    for (int i = 0; i < 2; i++) {
        bool gz;
        int rc = pp_verify_file(paths[i], pin, &gz);
        if (rc == 0) {
            pp_log_info("%s: already there", paths[i]);
            return true;
        }
        if (rc != PP_ENOINPUT) {
            pp_log_warn("%s; it will be replaced", pp_error_get()->text);
            return false; /* the reader would take this one first */
        }
    }
    return false;
}

static int get_all(struct fetch *f, const char *dir)
{
    for (int i = 0; i < f->set->n_files; i++) {
        const struct pp_pin *pin = &f->set->files[i];
        struct pp_store st;
        PP_TRY(pp_store_paths(dir, pin, &st));
        if (is_there(pin, &st)) {
            f->n_kept++;
            continue;
        }
        PP_TRY(get_file(f, pin, &st));
        f->n_new++;
    }
    return 0;
}

int pp_fetch_files(const struct pp_fetch_set *set, const char *from, const char *dir,
                   const struct pp_fetch_options *opt)
{
    struct fetch f = {.set = set, .opt = opt};
    int lock = -1;
    PP_TRY(add_sources(&f, from));
    int rc = pp_store_lock(dir, &lock);
    if (rc == 0) {
        rc = get_all(&f, dir);
    }
    pp_http_close(&f.http);
    pp_store_unlock(dir, lock);
    if (rc == 0) {
        pp_log_info("%s is in %s: %d files, all digests good%s", set->name, dir, f.n_kept + f.n_new,
                    f.n_new == 0 ? ", nothing to do" : "");
    }
    return rc;
}

int pp_fetch_dataset(const char *dataset, const char *from, const char *dir)
{
    char standard[PP_PATH_MAX];
    const struct pp_fetch_set *set = pp_fetch_set(dataset);
    if (!set) {
        return pp_fail(PP_ECONFIG,
                       "data set '%s' cannot be downloaded (mnist and fashion-mnist can)", dataset);
    }
    if (!dir) {
        PP_TRY(pp_data_dir(dataset, standard));
        dir = standard;
    }
    struct pp_fetch_options opt = pp_fetch_defaults;
    /* Asked for by name, a server on this machine may speak http. */
    opt.loopback_http = from && has_prefix(from, "http://");
    return pp_fetch_files(set, from, dir, &opt);
}
