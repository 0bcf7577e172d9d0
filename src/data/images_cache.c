/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes all pictures of a folder once, into a file that processes map. Threads decode; the caller
 * takes their pictures in order and appends them, so that the file is the same for any number of
 * threads. The file is in the user's cache folder, or in memory (memfd), and is made again when a
 * picture or a key that matters has changed.
 */
#include "images.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <zlib.h>

#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"
#include "ppcli/base/files.h"
#include "picture.h"

#define MAGIC "ppimage1"
#define FILE_MAX ((uint64_t)1 << 30)      /* bytes of a picture file */
#define WAITING_BYTES ((size_t)256 << 20) /* of decoded pictures that wait to be written */
#define WINDOW 512                        /* pictures that are claimed and not yet written */
#define THREADS_MAX 64
#define WARNINGS_MAX 50
#define NAP_NS 100000000U
#define LINE_NS 200000000U /* between two lines of progress */

/* ---- one picture */

static int read_bytes(const char *path, struct images_buffer *b, size_t *out_bytes)
{
    PP_OWN(pp_close_at) int fd = -1;
    uint64_t bytes = 0;
    PP_TRY(pp_open_regular(path, &fd, &bytes));
    if (bytes > FILE_MAX)
        return pp_fail(PP_EFORMAT, "a file of %" PRIu64 " bytes; at most 1 GiB is read", bytes);
    if (bytes > b->capacity) {
        PP_GROW(b->data, bytes + bytes / 4);
        b->capacity = (size_t)(bytes + bytes / 4);
    }
    PP_TRY(bytes > 0 ? pp_fd_read_at(fd, path, 0, b->data, (size_t)bytes) : 0);
    *out_bytes = (size_t)bytes;
    return 0;
}

static int resize_raster(struct raster *r, int h, int w)
{
    PP_OWN(picture_axis_fini) struct picture_axis y = {0};
    PP_OWN(picture_axis_fini) struct picture_axis x = {0};
    if (h == r->h && w == r->w)
        return 0;
    PP_TRY(picture_axis_init(&y, r->h, h));
    PP_TRY(picture_axis_init(&x, r->w, w));
    PP_TAKE(uint8_t, between, (size_t)r->h * (size_t)w * (size_t)r->c);
    uint8_t *to;
    PP_ALLOC(to, (size_t)h * (size_t)w * (size_t)r->c);
    picture_resize(&y, &x, r->c, r->bytes, between, to);
    pp_free(r->bytes);
    r->bytes = to;
    r->h = h;
    r->w = w;
    return 0;
}

/* Returns the first row or column of the middle `to` of `from`, as torchvision's CenterCrop rounds:
 * half to even. If `to` is larger it is minus the zeros that go before. */
static int middle_of(int from, int to)
{
    int d = from - to;
    return d < 0 ? -((-d) / 2) : d / 2 + (d % 4 == 3);
}

static int crop_raster(struct raster *r, int side)
{
    int top = middle_of(r->h, side), left = middle_of(r->w, side);
    size_t c = (size_t)r->c;
    int first = left < 0 ? -left : 0, n = r->w < side ? r->w : side;
    uint8_t *to;
    PP_ALLOC(to, (size_t)side * (size_t)side * c);
    for (int y = 0; y < side; y++)
        if (y + top >= 0 && y + top < r->h)
            memcpy(to + ((size_t)y * (size_t)side + (size_t)first) * c,
                   r->bytes +
                       ((size_t)(y + top) * (size_t)r->w + (size_t)(left < 0 ? 0 : left)) * c,
                   (size_t)n * c);
    pp_free(r->bytes);
    r->bytes = to;
    r->h = r->w = side;
    return 0;
}

/* Brings a picture to the size of data.resize and data.crop. */
static int fit_raster(const struct pp_config *cfg, struct raster *r)
{
    int h = cfg->data.resize, w = h, crop = cfg->data.crop;
    if (h > 0 && crop > 0) {
        int64_t longer = r->h > r->w ? r->h : r->w, shorter = r->h > r->w ? r->w : r->h;
        longer = h * longer / shorter;
        if (longer * h > (int64_t)RASTER_PIXELS_MAX)
            return pp_fail(PP_EFORMAT, "a picture of %d x %d pixels is too narrow for data.crop",
                           r->w, r->h);
        w = r->w > r->h ? (int)longer : h;
        h = r->h > r->w ? (int)longer : h;
    }
    PP_TRY(h > 0 ? resize_raster(r, h, w) : 0);
    return crop > 0 ? crop_raster(r, crop) : 0;
}

int images_read(const struct pp_config *cfg, const char *path, struct images_buffer *buffer,
                struct raster *out)
{
    PP_OWN(raster_fini) struct raster r = {0};
    size_t bytes = 0;
    PP_TRY(read_bytes(path, buffer, &bytes));
    PP_TRY(raster_decode(buffer->data, bytes, &r));
    if (cfg->data.channels > 0)
        PP_TRY(raster_convert(&r, cfg->data.channels));
    PP_TRY(fit_raster(cfg, &r));
    *out = r;
    r = (struct raster){0};
    return 0;
}

/* ---- where decoded pictures go */

struct sink {
    int memory; /* descriptor of memory; -1: a file */
    struct pp_file_write to;
    uint64_t bytes;
    bool failed; /* the last error is about this sink */
};

static void abandon_sink(struct sink *s)
{
    if (s->memory >= 0 && s->to.f)
        (void)fclose(s->to.f);
    else
        pp_file_abandon(&s->to);
    pp_close_at(&s->memory);
    *s = (struct sink){.memory = -1};
}

/* Opens a sink: the file `path`, or memory if it is "". */
static int open_sink(const char *path, struct sink *out)
{
    *out = (struct sink){.memory = -1, .failed = true};
    if (path[0])
        return pp_file_create(path, &out->to);
    out->memory = memfd_create("ppcli-images", MFD_CLOEXEC);
    PP_OWN(pp_close_at) int fd = out->memory >= 0 ? fcntl(out->memory, F_DUPFD_CLOEXEC, 0) : -1;
    out->to.f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!out->to.f)
        return pp_fail_errno(PP_ERESOURCE, "memory for pictures");
    fd = -1;
    return 0;
}

static int write_sink(struct sink *s, const void *data, size_t bytes)
{
    s->failed = fwrite(data, 1, bytes, s->to.f) != bytes;
    s->bytes += bytes;
    if (!s->failed)
        return 0;
    return s->memory >= 0 ? pp_fail_errno(PP_ERESOURCE, "memory for pictures")
                          : pp_fail_errno(0, "cannot write %s", s->to.to.path);
}

/* Makes a file durable under its name; *out_fd is the memory, or -1. */
static int commit_sink(struct sink *s, int *out_fd)
{
    s->failed = true;
    *out_fd = -1;
    if (s->memory < 0)
        return pp_file_commit(&s->to);
    int rc = fclose(s->to.f);
    s->to.f = NULL;
    if (rc != 0)
        return pp_fail_errno(PP_ERESOURCE, "memory for pictures");
    *out_fd = s->memory;
    s->memory = -1;
    return 0;
}

/* ---- decoding */

struct slot {
    bool done;
    int rc;
    char text[256]; /* why it failed */
    struct raster r;
};

struct work {
    const struct pp_config *cfg;
    const struct images_list *list;
    int channels; /* 0: as each picture has them */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int claimed, written, window, threads;
    bool stop;
    struct slot slots[WINDOW];
};

/* Decodes picture i into its slot, outside of the lock. */
static void decode_one(struct work *w, int i, struct images_buffer *buffer)
{
    struct slot *s = &w->slots[i % WINDOW];
    char path[PP_PATH_MAX];
    int rc = images_path(w->list, &w->list->files[i], path);
    rc = rc == 0 ? images_read(w->cfg, path, buffer, &s->r) : rc;
    if (rc == 0 && w->channels > 0)
        rc = raster_convert(&s->r, w->channels);
    if (rc < 0)
        snprintf(s->text, sizeof(s->text), "%.255s", pp_error_get()->text);
    s->rc = rc;
}

static void *decode_pictures(void *work)
{
    struct work *w = work;
    struct images_buffer buffer = {0};
    pthread_mutex_lock(&w->lock);
    while (!w->stop && w->claimed < w->list->n) {
        if (w->claimed >= w->written + w->window) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        int i = w->claimed++;
        pthread_mutex_unlock(&w->lock);
        decode_one(w, i, &buffer);
        pthread_mutex_lock(&w->lock);
        w->slots[i % WINDOW].done = true;
        if (i == w->written)
            pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    pp_free(buffer.data);
    return NULL;
}

/* What has been written so far. */
struct output {
    struct sink sink;
    struct images_footer footer;
    uint32_t *labels; /* [n_train + n_test] */
    int n_bad;
    char remark[PP_REMARK_BYTES];
    char first[256]; /* path of the first picture, for a message */
    uint64_t line_ns;
};

static void finish_output(struct output *o)
{
    abandon_sink(&o->sink);
    pp_free(o->labels);
    o->labels = NULL;
}

/* Returns a side that suits pictures of h x w pixels. */
static int propose_side(int h, int w)
{
    int shorter = h < w ? h : w;
    return shorter >= 224 ? 224 : shorter >= 32 ? shorter / 32 * 32 : 32;
}

static int refuse_size(const struct work *w, const struct output *o, int i, const struct raster *r)
{
    const struct images_footer *f = &o->footer;
    int side =
        propose_side((int)f->h < r->h ? (int)f->h : r->h, (int)f->w < r->w ? (int)f->w : r->w);
    return pp_fail(
        PP_ECONFIG,
        "data.resize: %s is %d x %d pixels, but %s is %u x %u; to make all the same size "
        "write data.resize = %d",
        w->list->text + w->list->files[i].path, r->w, r->h, o->first, f->w, f->h, side);
}

/* Notes a picture that cannot be read: named now, and in a remark that later runs show too. */
static int note_bad(const struct work *w, struct output *o, int i, const struct slot *s)
{
    const struct images_file *f = &w->list->files[i];
    char path[PP_PATH_MAX], more[300];
    PP_TRY(images_path(w->list, f, path));
    bool broken = s->rc == PP_EFORMAT || s->rc == PP_EPERM || s->rc == PP_ENOINPUT;
    if (!broken || w->cfg->data.on_bad == PP_BAD_STOP)
        return pp_fail(s->rc, "%s: %s%s", path, s->text,
                       broken ? " (data.on_bad = skip leaves such files out)" : "");
    if (o->n_bad++ < WARNINGS_MAX)
        pp_log_warn("%s: %s; left out", path, s->text);
    snprintf(more, sizeof(more), "%s%.100s (%.60s)", o->remark[0] ? ", " : "",
             w->list->text + f->path, s->text);
    if (o->n_bad <= 3 && strlen(o->remark) + strlen(more) < sizeof(o->remark) - 100)
        pp_text_add(o->remark, sizeof(o->remark), "%s", more);
    return 0;
}

/* Refuses pictures that memory cannot hold, once their size is known. */
static int check_memory(const struct work *w, const struct output *o, size_t sample)
{
    struct pp_memory_left left;
    const char *what;
    char need[PP_COUNT_TEXT], have[PP_COUNT_TEXT];
    if (o->sink.memory < 0)
        return 0;
    pp_memory_left_find("", &left);
    uint64_t bytes = left.bytes[pp_memory_left_least(&left, &what)];
    if (sample * (uint64_t)w->list->n <= bytes)
        return 0;
    return pp_fail(
        PP_ERESOURCE,
        "data.cache: the decoded pictures take %s of memory, but %s is %s; name a folder on "
        "a disk in data.cache",
        pp_text_size(sample * (uint64_t)w->list->n, need), what, pp_text_size(bytes, have));
}

/* Appends picture i; `r` is converted if needed. */
static int put_picture(struct work *w, struct output *o, int i, struct raster *r)
{
    struct images_footer *f = &o->footer;
    bool first = f->n_train + f->n_test == 0, test = i >= w->list->n_train;
    if (first) {
        f->h = (uint32_t)r->h;
        f->w = (uint32_t)r->w;
        f->c = (uint32_t)r->c;
        snprintf(o->first, sizeof(o->first), "%s", w->list->text + w->list->files[i].path);
    }
    if (r->h != (int)f->h || r->w != (int)f->w)
        return refuse_size(w, o, i, r);
    PP_TRY(raster_convert(r, (int)f->c));
    size_t bytes = (size_t)r->h * (size_t)r->w * (size_t)r->c;
    PP_TRY(first ? check_memory(w, o, bytes) : 0);
    o->labels[f->n_train + f->n_test] = w->list->files[i].label;
    f->n_train += !test;
    f->n_test += test;
    f->crc[test] = (uint32_t)crc32_z(f->crc[test], r->bytes, bytes);
    return write_sink(&o->sink, r->bytes, bytes);
}

static void show_progress(struct output *o, int done, int n)
{
    uint64_t now = pp_clock_ns();
    if (now - o->line_ns < LINE_NS)
        return;
    o->line_ns = now;
    char a[PP_COUNT_TEXT], b[PP_COUNT_TEXT];
    pp_log_progress("decoding pictures: %s of %s", pp_text_commas(done, a), pp_text_commas(n, b));
}

/* Takes the pictures in order. *out_again: grey pictures were followed by one with colours, so that
 * all have to be made with 3 channels. */
static int take_pictures(struct work *w, struct output *o, bool *out_again)
{
    for (int i = 0; i < w->list->n; i++) {
        struct slot *s = &w->slots[i % WINDOW];
        pthread_mutex_lock(&w->lock);
        while (!s->done)
            pthread_cond_wait(&w->changed, &w->lock);
        pthread_mutex_unlock(&w->lock);
        if (pp_process_stop)
            return pp_fail(PP_ESTOPPED, "stopped while pictures were decoded");
        *out_again = s->rc == 0 && s->r.c == 3 && o->footer.c == 1;
        if (*out_again)
            return 0;
        PP_TRY(s->rc == 0 ? put_picture(w, o, i, &s->r) : note_bad(w, o, i, s));
        size_t bytes = (size_t)o->footer.h * o->footer.w * o->footer.c;
        raster_fini(&s->r);
        show_progress(o, i + 1, w->list->n);
        pthread_mutex_lock(&w->lock);
        s->done = false;
        w->written++;
        if (bytes > 0)
            w->window =
                (int)PP_MIN((size_t)WINDOW, PP_MAX((size_t)w->threads, WAITING_BYTES / bytes));
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
    }
    return 0;
}

/* Decodes all pictures into o. */
static int decode_all(struct work *w, struct output *o, bool *out_again)
{
    pthread_t threads[THREADS_MAX];
    int cores[THREADS_MAX], started = 0, e = 0;
    int wanted = PP_MIN(pp_machine_cores(false, cores, THREADS_MAX), w->list->n);
    w->claimed = w->written = 0;
    w->stop = false;
    w->window = w->threads = wanted;
    while (started < wanted && (e = pp_thread_start(&threads[started], decode_pictures, w)) == 0)
        started++;
    int rc = started > 0 ? take_pictures(w, o, out_again)
                         : pp_fail_errno(e, "cannot start a thread that decodes pictures");
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < WINDOW; i++) {
        raster_fini(&w->slots[i].r);
        w->slots[i].done = false;
    }
    pp_log_progress(NULL);
    return rc;
}

static int check_output(const struct work *w, const struct output *o)
{
    const struct images_footer *f = &o->footer;
    if (f->n_train > 0 && f->n_test > 0)
        return 0;
    return pp_fail(PP_EFORMAT, "%s: no picture of the %s set can be read: %s",
                   f->n_train == 0 || !w->list->roots.test[0] ? w->list->roots.train
                                                              : w->list->roots.test,
                   f->n_train == 0 ? "training" : "test", o->remark);
}

/* Writes labels, names of classes, remarks and the footer after the pictures. */
static int put_end(struct work *w, struct output *o)
{
    struct images_footer *f = &o->footer;
    char remark[PP_REMARK_BYTES + 128] = "";
    static const uint8_t zeros[8];
    PP_TRY(write_sink(&o->sink, zeros, (size_t)(-o->sink.bytes & 7)));
    f->labels_at = o->sink.bytes;
    PP_TRY(write_sink(&o->sink, o->labels, (f->n_train + f->n_test) * sizeof(*o->labels)));
    f->text_at = o->sink.bytes;
    for (int i = 0; i < w->list->n_classes; i++) {
        const char *name = w->list->text + w->list->classes[i];
        PP_TRY(write_sink(&o->sink, name, strlen(name) + 1));
    }
    if (o->n_bad > 0) {
        snprintf(remark, sizeof(remark), "%d of %d pictures left out (data.on_bad = skip): %s%s",
                 o->n_bad, w->list->n, o->remark, o->n_bad > 3 ? ", ..." : "");
        PP_TRY(write_sink(&o->sink, remark, strlen(remark) + 1));
    }
    if (w->list->n_ignored > 0) {
        snprintf(remark, sizeof(remark), "%d file%s without a name of a picture ignored: %.200s%s",
                 w->list->n_ignored, pp_plural(w->list->n_ignored),
                 w->list->text + w->list->ignored, w->list->n_ignored > 1 ? ", ..." : "");
        PP_TRY(write_sink(&o->sink, remark, strlen(remark) + 1));
    }
    f->n_remarks = (uint32_t)((o->n_bad > 0) + (w->list->n_ignored > 0));
    f->n_classes = (uint32_t)w->list->n_classes;
    memcpy(f->magic, MAGIC, sizeof(f->magic));
    return write_sink(&o->sink, f, sizeof(*f));
}

/* Decodes into the file `path`, or into memory if it is "". *out_fd is the memory, -1 for a file. */
static int fill_cache(struct work *w, const char *path, const char *digest, int *out_fd,
                      bool *out_sink_failed)
{
    PP_OWN(finish_output) struct output o = {.sink = {.memory = -1}};
    bool again = true;
    w->channels = 0;
    PP_ALLOC(o.labels, w->list->n);
    while (again) {
        uint32_t *labels = o.labels;
        again = false;
        abandon_sink(&o.sink);
        o = (struct output){.labels = labels};
        memcpy(o.footer.digest, digest, PP_SHA256_HEX);
        int rc = open_sink(path, &o.sink);
        rc = rc == 0 ? decode_all(w, &o, &again) : rc;
        rc = rc == 0 && !again ? check_output(w, &o) : rc;
        rc = rc == 0 && !again ? put_end(w, &o) : rc;
        rc = rc == 0 && !again ? commit_sink(&o.sink, out_fd) : rc;
        *out_sink_failed = rc < 0 && o.sink.failed;
        PP_TRY(rc);
        w->channels = 3;
    }
    return 0;
}

/* ---- the cache */

/* Computes the digest of the keys that matter, and of `more`. */
static void digest_keys(const struct pp_config *cfg, const struct images_roots *roots,
                        const char *more, char out[PP_SHA256_HEX])
{
    uint8_t digest[PP_SHA256_BYTES];
    char text[256];
    struct pp_sha256 s;
    snprintf(text, sizeof(text), "%d %d %d %d %.17g %d %d", cfg->data.resize, cfg->data.crop,
             cfg->data.channels, (int)cfg->data.on_bad, cfg->data.split, cfg->data.train_samples,
             cfg->data.test_samples);
    pp_sha256_init(&s);
    pp_sha256_update(&s, text, strlen(text) + 1);
    pp_sha256_update(&s, roots->train, strlen(roots->train) + 1);
    pp_sha256_update(&s, roots->test, strlen(roots->test) + 1);
    pp_sha256_update(&s, more, strlen(more));
    pp_sha256_final(&s, digest);
    pp_sha256_hex(digest, out);
}

static void digest_list(const struct images_list *l, const char *keys, char out[PP_SHA256_HEX])
{
    uint8_t digest[PP_SHA256_BYTES];
    struct pp_sha256 s;
    pp_sha256_init(&s);
    pp_sha256_update(&s, keys, strlen(keys));
    for (int i = 0; i < l->n_classes; i++)
        pp_sha256_update(&s, l->text + l->classes[i], strlen(l->text + l->classes[i]) + 1);
    for (int i = 0; i < l->n; i++) {
        const struct images_file *f = &l->files[i];
        const uint64_t numbers[] = {f->label, f->test, f->bytes, (uint64_t)f->modified_ns};
        pp_sha256_update(&s, l->text + f->path, strlen(l->text + f->path) + 1);
        pp_sha256_update(&s, numbers, sizeof(numbers));
    }
    pp_sha256_final(&s, digest);
    pp_sha256_hex(digest, out);
}

/* Reads the footer of a cache; false if it is not whole or of other pictures. */
static bool read_footer(int fd, const char *digest, struct images_footer *out)
{
    struct images_footer f;
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof(f) ||
        pread(fd, &f, sizeof(f), st.st_size - (off_t)sizeof(f)) != (ssize_t)sizeof(f))
        return false;
    uint64_t n = (uint64_t)f.n_train + f.n_test, end = (uint64_t)st.st_size - sizeof(f);
    uint64_t images = n * f.h * f.w * f.c;
    if (memcmp(f.magic, MAGIC, sizeof(f.magic)) != 0 || f.digest[PP_SHA256_HEX - 1] != '\0' ||
        strcmp(f.digest, digest) != 0 || f.labels_at < images || f.labels_at > end ||
        f.text_at != f.labels_at + 4 * n || f.text_at >= end)
        return false;
    *out = f;
    return true;
}

/* Opens an existing cache of these pictures; *out_fd is -1 if there is none. */
static int open_existing(const char *path, const char *digest, struct images_footer *out,
                         int *out_fd)
{
    struct stat st;
    uint64_t bytes;
    *out_fd = -1;
    PP_TRY(pp_path_stat(path, true, &st));
    if (!S_ISREG(st.st_mode))
        return 0;
    PP_TRY(pp_open_regular(path, out_fd, &bytes));
    if (!read_footer(*out_fd, digest, out)) {
        close(*out_fd);
        *out_fd = -1;
    }
    return 0;
}

/* Sets `out` to the cache's file, "" for memory. Makes its folder. */
static int find_path(const struct pp_config *cfg, const char *keys, char out[PP_PATH_MAX])
{
    const char *cache = cfg->data.cache, *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char dir[PP_PATH_MAX];
    bool is_auto = strcmp(cache, "auto") == 0;
    out[0] = '\0';
    if (strcmp(cache, "off") == 0 || !cache[0])
        return 0;
    if (!is_auto)
        PP_TRY(pp_path_format(dir, "%s", cache));
    else if (xdg && xdg[0] == '/')
        PP_TRY(pp_path_format(dir, "%s/ppcli", xdg));
    else if (home && home[0] == '/')
        PP_TRY(pp_path_format(dir, "%s/.cache/ppcli", home));
    else
        return 0;
    int rc = pp_dir_create(dir);
    if (rc < 0 && is_auto) {
        pp_error_clear();
        return 0;
    }
    PP_TRY(rc);
    return pp_path_format(out, "%s/images-%.16s.bin", dir, keys);
}

/* Waits until no other process makes this cache; *out_fd holds the lock, or -1 if the file system
 * has none. */
static int lock_cache(const char *path, int *out_fd)
{
    char name[PP_PATH_MAX];
    PP_TRY(pp_path_format(name, "%s.lock", path));
    *out_fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    while (*out_fd >= 0 && flock(*out_fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        if (pp_process_stop)
            return pp_fail(PP_ESTOPPED, "stopped while another process decodes the pictures");
        pp_log_progress("another process decodes the pictures");
        pp_clock_nap(NAP_NS);
    }
    return 0;
}

/* Makes the cache, in memory if data.cache = auto and it cannot be written. *out_fd is open. */
static int make_cache(const struct pp_config *cfg, const struct images_list *list,
                      const char *digest, char path[PP_PATH_MAX], struct images_footer *out,
                      int *out_fd)
{
    PP_TAKE(struct work, w, 1);
    bool sink_failed = false;
    w->cfg = cfg;
    w->list = list;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    int rc = fill_cache(w, path, digest, out_fd, &sink_failed);
    if (rc < 0 && sink_failed && path[0] && strcmp(cfg->data.cache, "auto") == 0) {
        pp_log_warn("%s; the decoded pictures stay in memory (data.cache names another folder)",
                    pp_error_get()->text);
        path[0] = '\0';
        rc = fill_cache(w, path, digest, out_fd, &sink_failed);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    PP_TRY(rc);
    if (path[0])
        PP_TRY(open_existing(path, digest, out, out_fd));
    else if (!read_footer(*out_fd, digest, out))
        return pp_fail(PP_EINTERNAL, "pictures in memory without an end");
    return *out_fd >= 0 ? 0 : pp_fail(PP_EIO, "%s: changed while it was written", path);
}

/* Lists the pictures, and opens or makes their cache. */
static int find_cache(const struct pp_config *cfg, const struct images_roots *roots,
                      char path[PP_PATH_MAX], struct images_footer *out, int *out_fd)
{
    PP_OWN(images_list_fini) struct images_list list = {0};
    PP_OWN(pp_close_at) int lock = -1;
    char keys[PP_SHA256_HEX], digest[PP_SHA256_HEX], locked[PP_PATH_MAX];
    PP_TRY(images_list_make(cfg, roots, &list));
    PP_TRY(images_check_parts(&list));
    digest_keys(cfg, roots, "", keys);
    digest_list(&list, keys, digest);
    PP_TRY(find_path(cfg, keys, path));
    if (path[0]) {
        PP_TRY(open_existing(path, digest, out, out_fd));
        if (*out_fd >= 0)
            return 0;
        PP_TRY(lock_cache(path, &lock));
        PP_TRY(pp_path_format(locked, "%s", path));
        PP_TRY(open_existing(path, digest, out, out_fd)); /* another process may have made it */
        if (*out_fd >= 0)
            return 0;
    }
    char name[PP_PATH_MAX];
    int rc = make_cache(cfg, &list, digest, path, out, out_fd);
    if (lock >= 0 && pp_path_format(name, "%s.lock", locked) == 0)
        (void)unlink(name);
    return rc;
}

/* The caches that this process has opened, so that a command lists a folder once. Keys: the digest
 * of folders and settings. */
#define KNOWN 4
static struct known {
    char key[PP_SHA256_HEX], path[PP_PATH_MAX];
    int fd;
    struct images_footer footer;
} known[KNOWN];
static int n_known;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

static int open_known(const struct pp_config *cfg, const struct images_roots *roots,
                      const char *key, struct known **out)
{
    for (int i = 0; i < PP_MIN(n_known, KNOWN); i++) {
        *out = &known[i];
        if (strcmp(known[i].key, key) == 0)
            return 0;
    }
    struct known k = {.fd = -1};
    PP_TRY(find_cache(cfg, roots, k.path, &k.footer, &k.fd));
    memcpy(k.key, key, sizeof(k.key));
    *out = &known[n_known % KNOWN];
    if (n_known++ >= KNOWN)
        close((*out)->fd);
    **out = k;
    return 0;
}

int images_cache_open(const struct pp_config *cfg, struct images_footer *out, int *out_fd,
                      char path[PP_PATH_MAX])
{
    struct images_roots roots;
    char folders[PP_SHA256_HEX], key[PP_SHA256_HEX];
    struct known *k = NULL;
    PP_TRY(images_find_roots(cfg, &roots));
    PP_TRY(images_check_split(cfg, &roots));
    PP_TRY(images_folders_digest(&roots, folders));
    pthread_mutex_lock(&known_lock);
    digest_keys(cfg, &roots, folders, key);
    int rc = open_known(cfg, &roots, key, &k);
    if (rc == 0) {
        *out = k->footer;
        *out_fd = fcntl(k->fd, F_DUPFD_CLOEXEC, 0);
        snprintf(path, PP_PATH_MAX, "%s", k->path[0] ? k->path : roots.train);
        rc = *out_fd >= 0 ? 0 : pp_fail_errno(0, "%s", path);
    }
    pthread_mutex_unlock(&known_lock);
    return rc;
}
