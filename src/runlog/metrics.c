/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports the progress of a run. Log lines have fixed fields in a fixed order; metrics.jsonl has
 * the same numbers (one object a line, flushed), and so does summary.json (complete or absent).
 */
#include "parts.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"
#include "ppcli/ckpt/checkpoint.h"

#define PRINT_NS 2000000000u /* least time between two printed lines if run.log_every is 0 */

struct pp_metrics {
    const struct pp_run *run;
    struct pp_metrics_start from;
    FILE *jsonl;
    int lost;            /* errno of the first write that failed; 0: no failure */
    struct board *board; /* NULL: not configured */
    bool live;           /* a status line is redrawn on stderr */
    bool out_is_tty;     /* log lines of steps would disturb the status line */
    uint64_t start_ns;
    uint64_t printed_ns; /* when a line was printed last */
};

/* ---- log lines */

static bool out_is_ready(const struct pp_metrics *m)
{
    return fileno(m->from.out) != STDOUT_FILENO || pp_log_ready(STDOUT_FILENO);
}

/* Returns " ppl=17.45" for a model of text, with `name` for ppl; else "". */
static const char *perplexity_text(const struct pp_metrics *m, const char *name, double loss,
                                   char out[32])
{
    out[0] = '\0';
    if (pp_model_text_targets(m->run->model) > 0 && !isnan(loss))
        snprintf(out, 32, " %s=%.4g", name, exp(loss));
    return out;
}

/* Returns " tps=12345", the tokens per second, for a model of text; else "". `sps` is samples per
 * second. */
static const char *tokens_text(const struct pp_metrics *m, double sps, char out[32])
{
    int targets = pp_model_text_targets(m->run->model);
    out[0] = '\0';
    if (targets > 0)
        snprintf(out, 32, " tps=%.0f", sps * targets);
    return out;
}

static void perplexity_json(const struct pp_metrics *m, struct pp_json *j, const char *key,
                            double loss)
{
    if (pp_model_text_targets(m->run->model) > 0)
        pp_json_dbl(j, key, exp(loss));
}

static void speed_json(const struct pp_metrics *m, struct pp_json *j, double sps)
{
    int targets = pp_model_text_targets(m->run->model);
    pp_json_dbl(j, "samples_per_second", sps);
    if (targets > 0)
        pp_json_dbl(j, "tokens_per_second", sps * targets);
}

/* Adds " norm=0.8123 clipped=12.5%", the mean norm of the gradients and the share of steps that were
 * clipped, to a line, if they are known. */
static void add_norm_text(const struct pp_metrics *m, const struct pp_norm_sums *n, char *line,
                          size_t bytes)
{
    if (n->steps == 0)
        return;
    pp_text_add(line, bytes, " norm=%.4g", n->sum / (double)n->steps);
    if (m->run->cfg->train.clip_norm > 0)
        pp_text_add(line, bytes, " clipped=%.1f%%", 100 * (double)n->clipped / (double)n->steps);
}

/* Writes a line such as "epoch=1 step=120/937 loss=0.3121 acc=0.9103 sps=81234 bubble=14.2%
 * eta=00:08". */
static void write_step_line(const struct pp_metrics *m, const struct pp_window *w, int steps,
                            char *line, size_t bytes)
{
    double elapsed = (double)(pp_clock_ns() - m->start_ns) * 1e-9;
    double eta = elapsed / (double)(w->t - m->from.step) * (double)(m->from.total_steps - w->t);
    double sps = (double)w->samples / w->seconds;
    char text[16], ppl[32], tps[32], loss[16], scores[PP_SCORES_TEXT];
    snprintf(line, bytes, "epoch=%d step=%d/%d loss=%s%s%s sps=%.*f%s bubble=%.1f%% eta=%s",
             w->epoch, w->step, steps, pp_mean_text(w->loss, loss),
             perplexity_text(m, "ppl", w->loss, ppl),
             scores_line(m->run->cfg->train.loss, "", &w->scores, scores), sps < 10 ? 2 : 0, sps,
             tokens_text(m, sps, tps), w->bubble * 100, pp_clock_duration(eta, text, sizeof(text)));
    if (w->skipped > 0)
        pp_text_add(line, bytes, " skipped=%lld", (long long)w->skipped);
    if (w->paused > 0)
        pp_text_add(line, bytes, " paused=%.1fs", w->paused);
    add_norm_text(m, &w->norms, line, bytes);
}

/* ---- metrics.jsonl */

static struct pp_json begin_record(struct pp_metrics *m, const char *type)
{
    struct pp_json j = pp_json_begin(m->jsonl, 0);
    pp_json_str(&j, "type", type);
    return j;
}

/* Flushes metrics.jsonl and keeps the first errno, because a stream only remembers that a write
 * failed. */
static void flush_records(struct pp_metrics *m)
{
    errno = 0;
    if ((fflush(m->jsonl) != 0 || ferror(m->jsonl)) && m->lost == 0)
        m->lost = errno != 0 ? errno : EIO;
}

static void end_record(struct pp_metrics *m, struct pp_json *j)
{
    pp_json_end(j);
    flush_records(m);
}

#ifdef __FAST_MATH__
#define BUILD __VERSION__ ", -ffast-math"
#else
#define BUILD __VERSION__
#endif

/* Writes what the run reads, so that a run that repeats it can tell whether it reads the same. */
static void write_data_crc(const uint32_t (*crc)[2], struct pp_json *j)
{
    static const char *const names[2][2] = {{"train_images_crc32", "train_labels_crc32"},
                                            {"test_images_crc32", "test_labels_crc32"}};
    for (int i = 0; i < 4; i++)
        if (crc[i / 2][i % 2] != 0)
            pp_json_uint(j, names[i / 2][i % 2], crc[i / 2][i % 2]);
}

static int write_environment(const struct pp_metrics *m, struct pp_json *j,
                             const struct pp_backend *be, const struct pp_transport *tp)
{
    const struct pp_layout *l = m->run->layout;
    const struct pp_config *cfg = m->run->cfg;
    char hash[65], host[256] = "", now[32];
    PP_TRY(pp_config_hash(cfg, hash));
    (void)gethostname(host, sizeof(host) - 1);
    pp_json_int(j, "schema", PP_METRICS_SCHEMA);
    pp_json_str(j, "ppcli", PP_VERSION);
    pp_json_str(j, "time", pp_clock_utc(now, sizeof(now)));
    pp_json_str(j, "host", host);
    pp_json_str(j, "config_hash", hash);
    pp_json_uint(j, "seed", cfg->train.seed);
    pp_json_str(j, "dataset", cfg->data.dataset);
    pp_json_str(j, "backend", be->description);
    pp_json_int(j, "threads", be->choice.threads);
    pp_json_str(j, "transport", tp->ops->name);
    if (m->run->mpi)
        pp_json_str(j, "mpi", pp_world_version());
    pp_json_int(j, "stages", l->stages);
    pp_json_int(j, "replicas", l->replicas);
    pp_json_int(j, "microbatches", cfg->pipeline.microbatches);
    pp_json_str(j, "schedule", cfg->pipeline.schedule);
    pp_json_bool(j, "exact", cfg->train.exact);
    pp_json_int(j, "coalesce", l->coalesce);
    pp_json_int(j, "parameters", (int64_t)pp_model_floats(m->run->model));
    pp_json_int(j, "train_samples", l->training.train_all);
    pp_json_int(j, "test_samples", l->test_n);
    pp_json_int(j, "total_steps", m->from.total_steps);
    pp_json_str(j, "build", PP_VERSION ", " BUILD);
    write_data_crc(m->from.data_crc, j);
    seats_json(m->run, m->from.graphs, j);
    return 0;
}

/* ---- life */

static void announce_run(const struct pp_metrics *m, const struct pp_backend *be)
{
    const struct pp_layout *l = m->run->layout;
    const struct pp_config *cfg = m->run->cfg;
    char team[32] = "";
    if (pp_backend_members(&be->choice) > 1)
        snprintf(team, sizeof(team), ", %d threads%s", be->choice.threads,
                 l->ranks > 1 ? " each" : "");
    pp_log_info("ppcli %s: %s, %d layers, %zu parameters; %d training and %d test samples (%s)",
                PP_VERSION, cfg->model.type, m->run->model->n_layers,
                pp_model_floats(m->run->model), l->training.train_all, l->test_n,
                cfg->data.dataset);
    pp_log_info(
        "%d stage%s x %d replica%s as %s, schedule %s, %d micro-batch%s of %d samples; %s%s",
        l->stages, pp_plural(l->stages), l->replicas, pp_plural(l->replicas),
        m->run->mpi ? "MPI processes" : "threads", pp_layout_schedule(l), l->plans[0].m,
        l->plans[0].m == 1 ? "" : "es", l->max_rows, be->description, team);
    seats_announce(m->run, m->from.graphs);
    if (!cfg->train.exact && l->coalesce > 1) {
        pp_log_info("train.exact = off: weight gradients of %d micro-batches at a time; bits may "
                    "differ from train.exact = true",
                    l->coalesce);
    }
    if (m->from.dir[0])
        pp_log_info("run folder %s", m->from.dir);
    struct pp_lr_remarks rates;
    pp_run_lr_remark(m->run, m->from.step, &rates);
    if (rates.n > 0)
        pp_log_warn("%s", rates.rates);
    else if (rates.rates[0] && pp_lr_changes(cfg))
        pp_log_info("%s", rates.rates);
    for (int i = 0; i < rates.n; i++)
        pp_log_warn("%s", rates.text[i]);
    char batch[256];
    if (pp_run_batch_remark(m->run, batch)[0])
        pp_log_warn("%s", batch);
    for (int split = 0; split < 2; split++) {
        const struct pp_dataset *ds = m->from.data[split];
        for (int i = 0; ds && (split == PP_SPLIT_TRAIN || ds->windows) && i < ds->n_remarks; i++)
            pp_log_warn("%s", ds->remarks[i]);
    }
}

static void record_change(void *ctx, const struct pp_change *c)
{
    struct pp_metrics *m = ctx;
    struct pp_json j = begin_record(m, "change");
    pp_json_int(&j, "step", c->step);
    pp_json_str(&j, "key", c->key);
    pp_json_str(&j, "was", c->was);
    pp_json_str(&j, "is", c->is);
    end_record(m, &j);
}

/* Opens metrics.jsonl, empty or to append for a resumed run, and writes a line that describes the
 * run. */
static int open_jsonl(struct pp_metrics *m, const struct pp_backend *be,
                      const struct pp_transport *tp)
{
    char path[PP_PATH_MAX];
    PP_TRY(pp_path_format(path, "%s/metrics.jsonl", m->from.dir));
    PP_TRY(pp_file_append(path, (m->from.goes_on ? O_APPEND : O_TRUNC) | O_NOFOLLOW, &m->jsonl));
    struct pp_json j = begin_record(m, m->from.goes_on ? "resume" : "header");
    if (m->from.goes_on)
        pp_json_int(&j, "step", m->from.step);
    PP_TRY(write_environment(m, &j, be, tp));
    end_record(m, &j);
    return pp_changes_visit(m->from.changes, record_change, m);
}

int pp_metrics_open(const struct pp_backend *be, const struct pp_transport *tp,
                    const struct pp_metrics_start *from, struct pp_metrics **out)
{
    struct pp_metrics *m;
    PP_ALLOC(m, 1);
    m->run = from->run;
    m->from = *from;
    m->live = !m->from.quiet && from->run->cfg->run.progress != PP_CHOICE_OFF &&
              pp_log_level() >= PP_LOG_INFO && pp_term_live(STDERR_FILENO);
    m->out_is_tty = isatty(fileno(m->from.out));
    int rc = pace_create(m->run->layout, &m->from.pace);
    rc = rc == 0 && m->from.dir[0] ? open_jsonl(m, be, tp) : rc;
    rc = rc == 0 ? board_open(&m->from, &m->board) : rc;
    PP_TRY_UNDO(rc, pp_metrics_close(&m));
    announce_run(m, be);
    m->start_ns = m->printed_ns = pp_clock_ns();
    *out = m;
    return 0;
}

/* Closes the event file of TensorBoard. `s` is NULL if the run ended early; then the run's error is
 * kept, because it matters more than a later one. */
static int close_board(struct pp_metrics *m, const struct pp_summary *s)
{
    struct pp_error cause = *pp_error_get();
    int rc = board_close(&m->board);
    if (!s)
        pp_error_adopt(&cause);
    return rc;
}

void pp_metrics_close(struct pp_metrics **metrics)
{
    struct pp_metrics *m = *metrics;
    if (!m)
        return;
    pp_log_progress(NULL);
    close_board(m, NULL);
    pp_free(m->from.pace);
    if (m->jsonl)
        fclose(m->jsonl);
    pp_free(m);
    *metrics = NULL;
}

void pp_metrics_sync(struct pp_metrics *m)
{
    if (m->jsonl) {
        flush_records(m);
        /* pipes and devices cannot be synchronized */
        if (fdatasync(fileno(m->jsonl)) != 0 && errno != EINVAL && errno != EROFS && m->lost == 0)
            m->lost = errno;
    }
}

static void report_pace(void *ctx, int r, const struct pace_rank *now)
{
    struct pp_metrics *m = ctx;
    const char *host = m->run->seats[r].host_name;
    pp_log_progress(NULL);
    if (now->factor > 1)
        pp_log_info("since step %lld rank %d (%s) takes %.1f times its expected time; is another "
                    "program running there?",
                    (long long)now->from, r, host, now->factor);
    else
        pp_log_info("since step %lld rank %d (%s) is as fast as expected again",
                    (long long)now->from, r, host);
    if (m->jsonl) {
        struct pp_json j = begin_record(m, "pace");
        pp_json_int(&j, "step", now->from);
        pp_json_int(&j, "rank", r);
        pp_json_str(&j, "host", host);
        pp_json_dbl(&j, "slower", now->factor);
        end_record(m, &j);
    }
}

void pp_metrics_window(struct pp_metrics *m, const struct pp_window *w, int steps, bool record)
{
    char line[384];
    uint64_t now = pp_clock_ns();
    bool print = record && (m->run->cfg->run.log_every > 0 || now - m->printed_ns >= PRINT_NS);
    write_step_line(m, w, steps, line, sizeof(line));
    if (print && !m->from.quiet && !(m->live && m->out_is_tty) && out_is_ready(m)) {
        m->printed_ns = now;
        pp_log_progress(NULL);
        fprintf(m->from.out, "%s\n", line);
        fflush(m->from.out);
    }
    if (m->live)
        pp_log_progress("%s", line);
    pace_window(m->from.pace, w, report_pace, m);
    if (record)
        board_window(m->board, w);
    if (record && m->jsonl) {
        struct pp_json j = begin_record(m, "step");
        pp_json_int(&j, "step", w->t);
        pp_json_int(&j, "epoch", w->epoch);
        pp_json_int(&j, "epoch_step", w->step);
        pp_json_int(&j, "epoch_steps", steps);
        pp_json_dbl(&j, "loss", w->loss);
        perplexity_json(m, &j, "perplexity", w->loss);
        pp_scores_json(m->run->cfg->train.loss, "", &w->scores, &j);
        pp_json_int(&j, "samples", w->samples);
        pp_json_dbl(&j, "lr", w->lr);
        speed_json(m, &j, (double)w->samples / w->seconds);
        pp_json_dbl(&j, "bubble_measured", w->bubble);
        if (w->skipped > 0)
            pp_json_int(&j, "skipped_steps", w->skipped);
        if (w->paused > 0)
            pp_json_dbl(&j, "paused_seconds", w->paused);
        norm_json(&w->norms, &j);
        pp_json_dbl(&j, "seconds", (double)(now - m->start_ns) * 1e-9);
        end_record(m, &j);
    }
}

void pp_metrics_nonfinite(struct pp_metrics *m, int epoch, int64_t t, int64_t to, const char *why)
{
    pp_log_progress(NULL);
    if (to < 0)
        pp_log_warn("%s; the batch is skipped", why);
    else
        pp_log_warn("%s; back to the weights of step %lld", why, (long long)to);
    if (m->jsonl) {
        struct pp_json j = begin_record(m, to < 0 ? "skip" : "rewind");
        pp_json_int(&j, "step", t);
        pp_json_int(&j, "epoch", epoch);
        if (to >= 0)
            pp_json_int(&j, "to", to);
        pp_json_str(&j, "why", why);
        end_record(m, &j);
    }
}

void pp_metrics_end(struct pp_metrics *m, int64_t t, bool stopped)
{
    if (m && m->jsonl) {
        struct pp_json j = begin_record(m, "end");
        pp_json_int(&j, "step", t);
        pp_json_bool(&j, "finished", false);
        pp_json_str(&j, "how", stopped ? "stopped" : "failed");
        pp_json_str(&j, "why", pp_error_get()->text);
        end_record(m, &j);
    }
}

/* Writes the record of an epoch into the open object of j. */
static void write_epoch(const struct pp_metrics *m, const struct pp_epoch_result *e,
                        struct pp_json *j)
{
    pp_json_int(j, "epoch", e->epoch);
    pp_json_int(j, "step", e->t);
    pp_json_dbl(j, "train_loss", e->train_loss);
    perplexity_json(m, j, "train_perplexity", e->train_loss);
    pp_scores_json(m->run->cfg->train.loss, "train_", &e->train_scores, j);
    if (e->tested) {
        pp_json_dbl(j, "test_loss", e->test_loss);
        perplexity_json(m, j, "test_perplexity", e->test_loss);
        pp_scores_json(m->run->cfg->train.loss, "test_", &e->test_scores, j);
    }
    if (m->run->cfg->checkpoint.best != PP_METRIC_OFF)
        pp_json_bool(j, "best", e->best);
    speed_json(m, j, (double)e->samples / e->seconds);
    pp_json_dbl(j, "bubble_measured", e->bubble);
    pp_json_dbl(j, "seconds", e->seconds);
    if (e->paused > 0)
        pp_json_dbl(j, "paused_seconds", e->paused);
    norm_json(&e->norms, j);
}

static void call_on_epoch(const struct pp_metrics *m, const struct pp_epoch_result *e)
{
    char *record = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&record, &bytes);
    if (!f)
        return;
    struct pp_json j = pp_json_begin(f, 0);
    pp_json_str(&j, "type", "epoch");
    write_epoch(m, e, &j);
    pp_json_end(&j);
    if (pp_text_close(f, &record, "run.on_epoch") == 0) {
        pp_log_progress(NULL);
        on_epoch_run(m->run->cfg, e->epoch, record);
    } else {
        pp_error_clear(); /* the run does not depend on it */
    }
    free(record);
}

void pp_metrics_epoch(struct pp_metrics *m, const struct pp_epoch_result *e)
{
    m->printed_ns = pp_clock_ns();
    board_epoch(m->board, e);
    if (!m->from.quiet && out_is_ready(m)) {
        pp_log_progress(NULL);
        char text[16], ppl[32], tps[32], loss[16], test[PP_SCORES_TEXT + 96] = "", paused[96] = "";
        char train[PP_SCORES_TEXT], scores[PP_SCORES_TEXT];
        enum pp_loss_kind kind = m->run->cfg->train.loss;
        if (e->paused > 0)
            snprintf(paused, sizeof(paused), " paused=%.1fs", e->paused);
        add_norm_text(m, &e->norms, paused, sizeof(paused));
        if (e->tested) {
            snprintf(test, sizeof(test), " test_loss=%s%s%s", pp_mean_text(e->test_loss, loss),
                     perplexity_text(m, "test_ppl", e->test_loss, ppl),
                     scores_line(kind, "test_", &e->test_scores, scores));
        }
        double sps = (double)e->samples / e->seconds;
        fprintf(m->from.out, "epoch=%d/%d loss=%s%s%s%s sps=%.*f%s bubble=%.1f%% time=%s%s%s\n",
                e->epoch, m->from.epochs, pp_mean_text(e->train_loss, loss),
                perplexity_text(m, "ppl", e->train_loss, ppl),
                scores_line(kind, "", &e->train_scores, train), test, sps < 10 ? 2 : 0, sps,
                tokens_text(m, sps, tps), e->bubble * 100,
                pp_clock_duration(e->seconds, text, sizeof(text)), paused, e->best ? " best" : "");
        fflush(m->from.out);
    }
    if (m->jsonl) {
        struct pp_json j = begin_record(m, "epoch");
        write_epoch(m, e, &j);
        end_record(m, &j);
    }
    if (m->run->cfg->run.on_epoch[0])
        call_on_epoch(m, e);
}

/* ---- the end */

static int write_summary(const struct pp_metrics *m, const struct pp_summary *s)
{
    char path[PP_PATH_MAX];
    struct pp_file_write w;
    PP_TRY(pp_path_format(path, "%s/summary.json", m->from.dir));
    PP_TRY(pp_file_create(path, &w));
    struct pp_json j = pp_json_begin(w.f, 2);
    summary_json(&m->from, s, &j);
    pp_json_end(&j);
    return pp_file_commit(&w);
}

int pp_metrics_finish(struct pp_metrics *m, const struct pp_summary *s)
{
    pp_log_progress(NULL);
    int rc = 0;
    if (m->jsonl) {
        struct pp_json j = begin_record(m, "summary");
        summary_json(&m->from, s, &j);
        end_record(m, &j);
        if (fclose(m->jsonl) != 0 && m->lost == 0)
            m->lost = errno;
        m->jsonl = NULL;
        errno = m->lost;
        if (m->lost != 0)
            rc = pp_fail_errno(PP_EIO, "cannot write %s/metrics.jsonl", m->from.dir);
    }
    if (rc == 0 && m->from.dir[0])
        rc = pp_lock_check(m->from.lock);
    if (rc == 0 && m->from.dir[0])
        rc = write_summary(m, s);
    int lost = close_board(m, s);
    summary_print(&m->from, s);
    return rc < 0 ? rc : lost;
}
