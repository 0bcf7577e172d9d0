/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes TensorBoard's event file: records of {u64 length, masked CRC-32C of the length, bytes,
 * masked CRC-32C of the bytes}, little endian. Each record is a protobuf message Event:
 *
 *   Event   { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
 *             SessionLog session_log = 7; }
 *   Summary { repeated Value value = 1; }
 *   Value   { string tag = 1; float simple_value = 2; }
 *   SessionLog { Status status = 1; }  START, 1: earlier records of this and later steps are void
 *
 * The first record has the file version, every other one the scalars of a log record or an epoch.
 * The file is flushed after each record, so that TensorBoard shows a run in progress.
 */
#include "parts.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ppcli/base/files.h"

#define SCALARS_MAX 12
#define TAG_BYTES 32

struct board {
    enum pp_loss_kind loss;
    FILE *f;
    char path[PP_PATH_MAX];
    int64_t last_step; /* step of the last record */
    int lost;          /* errno of the first write that failed; 0: no failure */
    bool is_text;
};

struct scalar {
    const char *tag;
    double value;
};

/* Computes the checksum CRC-32C (Castagnoli), reflected, four bits at a time. */
static uint32_t compute_crc32c(const uint8_t *data, size_t n)
{
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                       0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                       0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= data[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

/* Computes the masked checksum that records store: the plain CRC of data that contain CRCs is
 * weak. */
static uint32_t masked_crc(const struct pp_bytes *b)
{
    uint32_t crc = compute_crc32c(b->at, b->n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- events */

static void begin_event(struct pp_bytes *event)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof(bits));
    pp_bytes_key(event, 1, PP_WIRE_FIXED64);
    pp_bytes_little(event, bits, 8);
}

static void write_record(struct board *t, const struct pp_bytes *event)
{
    PP_OWN(pp_bytes_fini) struct pp_bytes head = {0}, tail = {0};
    pp_bytes_little(&head, event->n, 8);
    pp_bytes_little(&head, masked_crc(&head), 4);
    pp_bytes_little(&tail, masked_crc(event), 4);
    if (event->lost || head.lost || tail.lost) /* out of memory: skip the record */
        return;
    fwrite(head.at, 1, head.n, t->f);
    fwrite(event->at, 1, event->n, t->f);
    fwrite(tail.at, 1, tail.n, t->f);
    errno = 0;
    if ((fflush(t->f) != 0 || ferror(t->f)) && t->lost == 0)
        t->lost = errno != 0 ? errno : EIO;
}

static void write_scalars(struct board *t, int64_t step, const struct scalar *scalars, int n)
{
    PP_OWN(pp_bytes_fini) struct pp_bytes event = {0}, summary = {0};
    for (int i = 0; i < n; i++) {
        PP_OWN(pp_bytes_fini) struct pp_bytes value = {0};
        if (!isfinite((float)scalars[i].value)) /* no target counted, or a perplexity beyond
                                                   floats */
            continue;
        pp_bytes_text(&value, 1, scalars[i].tag);
        pp_bytes_float(&value, 2, (float)scalars[i].value);
        pp_bytes_part(&summary, 1, value.at, value.n);
    }
    begin_event(&event);
    pp_bytes_int(&event, 2, step);
    pp_bytes_part(&event, 5, summary.at, summary.n);
    write_record(t, &event);
    t->last_step = step;
}

/* ---- the writer */

/* Creates a new event file. TensorBoard reads every file of the folder with "tfevents" in its name,
 * the oldest first. */
static int open_board(const char *run_dir, struct board *t)
{
    char host[64] = "", dir[PP_PATH_MAX];
    (void)gethostname(host, sizeof(host) - 1);
    for (char *slash; (slash = strchr(host, '/'));)
        *slash = '_';
    PP_TRY(pp_path_format(dir, "%s/tensorboard", run_dir));
    PP_TRY(pp_dir_create(dir));
    PP_TRY(pp_path_format(t->path, "%s/events.out.tfevents.%lld.%s.%ld", dir, (long long)time(NULL),
                          host, (long)getpid()));
    t->f = fopen(t->path, "wxe");
    return t->f ? 0 : pp_fail_errno(0, "cannot create %s", t->path);
}

int board_open(const struct pp_metrics_start *start, struct board **out)
{
    static const char version[] = "brain.Event:2";
    if (!start->run->cfg->run.tensorboard || !start->dir[0])
        return 0;
    struct board *t;
    PP_ALLOC(t, 1);
    PP_TRY_UNDO(open_board(start->dir, t), pp_free(t));
    PP_OWN(pp_bytes_fini) struct pp_bytes event = {0};
    begin_event(&event);
    pp_bytes_text(&event, 3, version);
    write_record(t, &event);
    if (start->goes_on && start->step > 0) { /* else TensorBoard would show repeated steps twice */
        static const uint8_t began[] = {1 << 3 | PP_WIRE_VARINT, 1};
        event.n = 0;
        begin_event(&event);
        pp_bytes_int(&event, 2, start->step + 1);
        pp_bytes_part(&event, 7, began, sizeof(began));
        write_record(t, &event);
    }
    t->loss = start->run->cfg->train.loss;
    t->is_text = pp_model_text_targets(start->run->model) > 0;
    *out = t;
    return 0;
}

/* Appends the scores of the run's loss; the names are in `names`, which the caller keeps. */
static int add_scores(const struct board *t, const char *prefix, const struct pp_scores *s,
                      char names[PP_SCORES][TAG_BYTES], struct scalar *scalars, int n)
{
    for (int i = 0; i < PP_SCORES; i++) {
        if (!score_applies((enum pp_score)i, t->loss))
            continue;
        snprintf(names[i], TAG_BYTES, "%s%s", prefix, pp_score_key((enum pp_score)i));
        scalars[n++] = (struct scalar){names[i], s->of[i]};
    }
    return n;
}

void board_window(struct board *t, const struct pp_window *w)
{
    if (!t)
        return;
    char names[PP_SCORES][TAG_BYTES];
    struct scalar scalars[SCALARS_MAX] = {{"loss", w->loss}};
    int n = add_scores(t, "", &w->scores, names, scalars, 1);
    scalars[n++] = (struct scalar){"lr", w->lr};
    scalars[n++] = (struct scalar){"samples_per_second", (double)w->samples / w->seconds};
    scalars[n++] = (struct scalar){"bubble", w->bubble};
    if (t->is_text)
        scalars[n++] = (struct scalar){"perplexity", exp(w->loss)};
    if (w->norms.steps > 0) {
        double steps = (double)w->norms.steps;
        scalars[n++] = (struct scalar){"grad_norm", w->norms.sum / steps};
        scalars[n++] = (struct scalar){"clipped_share", (double)w->norms.clipped / steps};
    }
    write_scalars(t, w->t, scalars, n);
}

void board_epoch(struct board *t, const struct pp_epoch_result *e)
{
    if (!t)
        return;
    char train[PP_SCORES][TAG_BYTES], test[PP_SCORES][TAG_BYTES];
    struct scalar scalars[SCALARS_MAX] = {{"train_loss", e->train_loss}};
    int n = add_scores(t, "train_", &e->train_scores, train, scalars, 1);
    if (e->tested) {
        scalars[n++] = (struct scalar){"test_loss", e->test_loss};
        n = add_scores(t, "test_", &e->test_scores, test, scalars, n);
    }
    if (t->is_text)
        scalars[n++] = (struct scalar){"train_perplexity", exp(e->train_loss)};
    if (t->is_text && e->tested)
        scalars[n++] = (struct scalar){"test_perplexity", exp(e->test_loss)};
    if (t->last_step != e->t) { /* else a log record has these for this step */
        scalars[n++] = (struct scalar){"samples_per_second", (double)e->samples / e->seconds};
        scalars[n++] = (struct scalar){"bubble", e->bubble};
    }
    write_scalars(t, e->t, scalars, n);
}

int board_close(struct board **board)
{
    struct board *t = *board;
    if (!t)
        return 0;
    if (fclose(t->f) != 0 && t->lost == 0)
        t->lost = errno;
    errno = t->lost;
    int rc = t->lost != 0 ? pp_fail_errno(PP_EIO, "cannot write %s", t->path) : 0;
    pp_free(t);
    *board = NULL;
    return rc;
}
