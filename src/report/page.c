/* SPDX-License-Identifier: Apache-2.0 */
/* The page of one run, from the answer down to the environment. */
#include <math.h>
#include <string.h>

#include "html.h"
#include "ppcli/err.h"
#include "report.h"

#define DEVICES_SHOWN 16 /* ranks */

/* --- the answer --------------------------------------------------------------------------------
 */

double report_steps_done(const struct pp_report *r)
{
    double done = report_number(r->summary, "steps");
    for (int i = 0; i < r->n_steps; i++) {
        done = fmax(done, r->steps[i].step);
    }
    for (int i = 0; i < r->n_epochs; i++) {
        done = fmax(done, r->epochs[i].step);
    }
    return done;
}

double report_bubble_predicted(const struct pp_report *r)
{
    double own = report_number(r->summary, "bubble_predicted");
    return isnan(own) ? report_number(r->timeline.head, "bubble_predicted") : own;
}

/* "zb-v, 8 stages, 16 micro-batches, mnist; 2026-01-31T12:00:00Z on host" */
static void print_what(const struct pp_report *r, FILE *f)
{
    const json_t *from = r->header ? r->header : r->summary;
    double stages = report_number(from, "stages"), replicas = report_number(from, "replicas");
    char n[HTML_NUMBER_MAX];
    fputs("<p class=\"dim\">", f);
    html_text(f, report_text(from, "schedule"));
    fprintf(f, ", %s stage%s", html_number(stages, 0, n), stages == 1 ? "" : "s");
    if (replicas > 1) {
        fprintf(f, " x %s replicas", html_number(replicas, 0, n));
    }
    fprintf(f, ", %s micro-batches", html_number(report_number(from, "microbatches"), 0, n));
    if (r->header) {
        fputs("; ", f);
        html_text(f, report_text(r->header, "dataset"));
        fprintf(f, ", %s samples", html_number(report_number(r->header, "train_samples"), 0, n));
        fprintf(f, "; %s parameters", html_number(report_number(r->header, "parameters"), 0, n));
        fputs("; ", f);
        html_text(f, report_text(r->header, "time"));
        fputs(" on ", f);
        html_text(f, report_text(r->header, "host"));
    }
    fputs("</p>\n", f);
}

static void unfinished(const struct pp_report *r, FILE *f)
{
    char done[HTML_NUMBER_MAX], all[HTML_NUMBER_MAX];
    double total = report_number(r->header, "total_steps"), steps = report_steps_done(r);
    static const char *const said[] = {
        [REPORT_END_UNKNOWN] =
            "did not finish.</b> It was stopped, failed, or is still going: no summary.json.",
        [REPORT_RUNNING] = "is not finished.</b> It was at work when this page was written.",
        [REPORT_KILLED] = "did not finish.</b> Its process was killed.",
        [REPORT_FAILED] = "did not finish.</b> It ended with an error.",
        [REPORT_STOPPED] = "did not finish.</b> It was stopped.",
    };
    fprintf(f, "<div class=\"warn\"><p><b>This run %s ", said[r->end]);
    if (steps > 0) {
        fprintf(f, "What it had recorded by step %s", html_number(steps, 0, done));
        if (total > 0) {
            fprintf(f, " of %s (%.0f %%)", html_number(total, 0, all),
                    fmin(100, floor(100 * steps / total)));
        }
        fputs(" is shown.", f);
    } else {
        fputs("It recorded no step.", f);
    }
    if (r->end != REPORT_END_UNKNOWN) {
        fputs(" <code>ppcli diagnose</code> tells what each rank did last.", f);
    }
    fputs("</p></div>\n", f);
}

static void card(FILE *f, const char *title, const char *big)
{
    fprintf(f, "<div class=\"card\"><p class=\"dim\">%s</p><div class=\"big\">%s</div>", title,
            big);
}

static void card_quality(const struct pp_report *r, FILE *f)
{
    const struct report_epoch *last = r->n_epochs ? &r->epochs[r->n_epochs - 1] : NULL;
    const struct report_step *step = r->n_steps ? &r->steps[r->n_steps - 1] : NULL;
    double accuracy = report_number(r->summary, "test_accuracy");
    double loss = report_number(r->summary, "test_loss");
    double train = report_number(r->summary, "train_loss");
    char title[64] = "test accuracy", a[HTML_NUMBER_MAX], b[HTML_NUMBER_MAX], c[HTML_NUMBER_MAX];
    if (!r->summary && last) {
        accuracy = last->test_accuracy;
        loss = last->test_loss;
        snprintf(title, sizeof(title), "test accuracy after epoch %.0f", last->epoch);
    }
    if (!r->summary) {
        train = step ? step->loss : last ? last->loss : NAN;
    }
    if (isnan(accuracy)) {
        card(f, "training loss", html_figures(train, 4, a));
        fputs("<p>not tested</p></div>\n", f);
        return;
    }
    card(f, title, html_percent(accuracy, 2, a));
    fprintf(f, "<p>test loss %s, training loss %s%s</p></div>\n", html_figures(loss, 4, b),
            html_figures(train, 4, c), !r->summary && step ? " at last" : "");
}

static double last_sps(const struct pp_report *r)
{
    if (r->summary) {
        return report_number(r->summary, "samples_per_second");
    }
    return r->n_steps > 0    ? r->steps[r->n_steps - 1].sps
           : r->n_epochs > 0 ? r->epochs[r->n_epochs - 1].sps
                             : NAN;
}

static void card_speed(const struct pp_report *r, FILE *f)
{
    char a[HTML_NUMBER_MAX], b[HTML_NUMBER_MAX];
    double ms =
        report_number(r->summary, "train_seconds") / report_number(r->summary, "steps") * 1e3;
    card(f, "samples per second", html_number(last_sps(r), 0, a));
    if (!isnan(ms)) {
        fprintf(f, "<p>%s ms a step</p>", html_number(ms, 3, b));
    }
    fputs("</div>\n", f);
}

static void card_bubble(const struct pp_report *r, FILE *f)
{
    char a[HTML_NUMBER_MAX];
    double measured = report_number(r->summary, "bubble_measured");
    double predicted = report_bubble_predicted(r);
    double ideal = report_number(r->summary, "bubble_ideal");
    if (!r->summary && r->n_steps > 0) {
        measured = r->steps[r->n_steps - 1].bubble;
    }
    card(f, "bubble, measured", html_percent(measured, 1, a));
    fputs("<p>", f);
    if (!isnan(predicted)) {
        fprintf(f, "%s predicted from measured times", html_percent(predicted, 1, a));
    }
    if (!isnan(ideal)) {
        fprintf(f, "%s%s ideal", isnan(predicted) ? "" : ", ", html_percent(ideal, 1, a));
    }
    fputs("</p></div>\n", f);
}

static void card_time(const struct pp_report *r, FILE *f)
{
    char a[HTML_NUMBER_MAX], b[HTML_NUMBER_MAX], c[HTML_NUMBER_MAX];
    double wall = report_number(r->summary, "wall_seconds");
    if (!r->summary && r->n_steps > 0) {
        wall = r->steps[r->n_steps - 1].seconds;
    }
    card(f, r->summary ? "wall time" : "time until then", html_seconds(wall, a));
    fprintf(f, "<p>%s steps", html_number(report_steps_done(r), 0, b));
    if (r->summary) {
        double epochs = report_number(r->summary, "epochs");
        fprintf(f, ", %s epoch%s", html_number(epochs, 0, c), epochs == 1 ? "" : "s");
    }
    fputs("</p></div>\n", f);
}

static void section_answer(const struct pp_report *r, FILE *f)
{
    fputs("<p class=\"kicker dim\">ppcli report</p>\n<h1>", f);
    html_text(f, r->name);
    fputs("</h1>\n", f);
    if (r->header || r->summary) {
        print_what(r, f);
    }
    if (!r->summary) {
        unfinished(r, f);
    }
    report_section_notes(r, NULL, f);
    fputs("<div class=\"cards\">\n", f);
    card_quality(r, f);
    card_speed(r, f);
    card_bubble(r, f);
    card_time(r, f);
    fputs("</div>\n", f);
    if (report_text(r->summary, "weights_sha256")[0]) {
        fputs("<p><span class=\"dim\">weights_sha256</span> <code>", f);
        html_text(f, report_text(r->summary, "weights_sha256"));
        fputs("</code></p>\n", f);
    }
}

/* --- ranks -------------------------------------------------------------------------------------
 */

#define RANKS_SHOWN 64

static void busy_table(const struct pp_report *r, int shown, FILE *f)
{
    char n[HTML_NUMBER_MAX];
    fputs("<h3>Time spent computing; the rest is the rank's bubble</h3>\n<table "
          "class=\"bars\"><tr><th>rank</th><th>busy</th>"
          "<th class=\"n\">busy</th><th class=\"n\">idle</th></tr>\n",
          f);
    for (int i = 0; i < shown; i++) {
        double busy = r->ranks[i].busy;
        fprintf(f,
                "<tr><td>%d</td><td class=\"bar\"><div><i class=\"busy\" "
                "style=\"width:%.1f%%\"></i></div></td>",
                i, fmin(fmax(isnan(busy) ? 0 : busy, 0), 1) * 100);
        html_cell(f, html_percent(busy, 1, n));
        html_cell(f, html_percent(1 - busy, 1, n));
        fputs("</tr>\n", f);
    }
    fputs("</table>\n", f);
}

static void memory_table(const struct pp_report *r, int shown, FILE *f)
{
    static const char *const names[REPORT_PARTS] = {
        "parameters", "packed copy", "gradients", "optimizer", "activations", "messages", "other"};
    char n[HTML_NUMBER_MAX];
    double most = 0;
    bool used[REPORT_PARTS] = {false};
    for (int i = 0; i < r->n_ranks; i++) {
        most = fmax(most, isnan(r->ranks[i].total) ? 0 : r->ranks[i].total);
        for (int p = 0; p < REPORT_PARTS; p++) {
            used[p] = used[p] || r->ranks[i].parts[p] > 0;
        }
    }
    if (!(most > 0)) {
        return;
    }
    fputs("<h3>Memory</h3>\n<div class=\"legend\">", f);
    for (int p = 0; p < REPORT_PARTS; p++) {
        if (used[p]) {
            fprintf(f, "<span><i class=\"k m%d\"></i>%s</span>", p, names[p]);
        }
    }
    fputs("</div>\n<table class=\"bars\"><tr><th>rank</th><th>at most</th><th class=\"n\">total"
          "</th></tr>\n",
          f);
    for (int i = 0; i < shown; i++) {
        fprintf(f, "<tr><td>%d</td><td class=\"bar\"><div>", i);
        for (int p = 0; p < REPORT_PARTS; p++) {
            double bytes = r->ranks[i].parts[p];
            if (bytes > 0) {
                fprintf(f, "<i class=\"m%d\" style=\"width:%.2f%%\" title=\"%s %s\"></i>", p,
                        bytes / most * 99.9, names[p], html_bytes(bytes, n));
            }
        }
        fputs("</div></td>", f);
        html_cell(f, html_bytes(r->ranks[i].total, n));
        fputs("</tr>\n", f);
    }
    fputs("</table>\n<details><summary>the numbers</summary><div class=\"wide\"><table><tr>"
          "<th>rank</th>",
          f);
    for (int p = 0; p < REPORT_PARTS; p++) {
        if (used[p]) {
            fprintf(f, "<th class=\"n\">%s</th>", names[p]);
        }
    }
    fputs("</tr>\n", f);
    for (int i = 0; i < shown; i++) {
        fprintf(f, "<tr><td>%d</td>", i);
        for (int p = 0; p < REPORT_PARTS; p++) {
            if (used[p]) {
                html_cell(f, html_bytes(r->ranks[i].parts[p], n));
            }
        }
        fputs("</tr>\n", f);
    }
    fputs("</table></div></details>\n", f);
}

static void section_ranks(const struct pp_report *r, FILE *f)
{
    if (r->n_ranks == 0) {
        return;
    }
    int shown = r->n_ranks < RANKS_SHOWN ? r->n_ranks : RANKS_SHOWN;
    int most = 0, least = 0;
    char a[HTML_NUMBER_MAX], b[HTML_NUMBER_MAX];
    for (int i = 0; i < r->n_ranks; i++) {
        most = r->ranks[i].busy > r->ranks[most].busy ? i : most;
        least = r->ranks[i].busy < r->ranks[least].busy ? i : least;
    }
    fputs("<h2>Ranks</h2>\n", f);
    if (r->n_ranks > 1 && !isnan(r->ranks[most].busy) && !isnan(r->ranks[least].busy)) {
        fprintf(f, "<p>Rank %d computes most of the time (%s), rank %d least (%s).", most,
                html_percent(r->ranks[most].busy, 1, a), least,
                html_percent(r->ranks[least].busy, 1, b));
        if (shown < r->n_ranks) {
            fprintf(f, " The first %d of %d ranks are shown.", shown, r->n_ranks);
        }
        fputs("</p>\n", f);
    }
    fputs("<div class=\"charts\" style=\"grid-template-columns:repeat(auto-fit,minmax("
          "min(420px,100%),1fr))\"><div>\n",
          f);
    busy_table(r, shown, f);
    fputs("</div><div>\n", f);
    memory_table(r, shown, f);
    fputs("</div></div>\n", f);
}

/* --- config, environment ------------------------------------------------------------------------
 */

static void key_rows(const struct pp_report *r, bool defaults, FILE *f)
{
    fputs("<table class=\"config\"><tr><th>key</th><th>value</th><th>from</th></tr>\n", f);
    for (int i = 0; i < r->n_keys; i++) {
        const struct report_key *k = &r->keys[i];
        if ((strcmp(k->origin, "default") == 0) != defaults) {
            continue;
        }
        fputs("<tr><td><code>", f);
        html_text(f, k->name);
        fputs("</code></td><td class=\"v\"><code>", f);
        html_text(f, k->value);
        fputs("</code></td><td class=\"v dim\">", f);
        html_text(f, k->origin);
        fputs("</td></tr>\n", f);
    }
    fputs("</table>\n", f);
}

static void section_config(const struct pp_report *r, FILE *f)
{
    int defaults = 0;
    for (int i = 0; i < r->n_keys; i++) {
        defaults += strcmp(r->keys[i].origin, "default") == 0;
    }
    if (r->n_keys == 0) {
        return;
    }
    fputs("<h2>Config</h2>\n", f);
    if (defaults < r->n_keys) {
        key_rows(r, false, f);
    }
    fprintf(f, "<details><summary>%d key%s with their defaults</summary>\n", defaults,
            defaults == 1 ? "" : "s");
    key_rows(r, true, f);
    fputs("</details>\n", f);
}

static void environment_devices(const struct pp_report *r, FILE *f)
{
    const json_t *devices = json_object_get(r->header, "devices");
    for (size_t i = 0; i < json_array_size(devices) && i < DEVICES_SHOWN; i++) {
        const json_t *d = json_array_get(devices, i);
        fprintf(f, "<tr><th>rank %zu</th><td class=\"v\">", i);
        html_text(f, report_text(d, "text"));
        fputs("</td></tr>\n", f);
    }
}

static void section_environment(const struct pp_report *r, FILE *f)
{
    static const char *const rows[][2] = {
        {"ppcli", "version"},
        {"time", "started"},
        {"host", "host"},
        {"backend", "backend"},
        {"transport", "ranks talk through"},
        {"transport_why", "because"},
        {"precision", "precision of products"},
        {"graphs", "steps recorded"},
        {"mpi", "MPI"},
        {"config_hash", "config hash"},
    };
    if (!r->header) {
        return;
    }
    fputs("<h2>Environment</h2>\n<table>\n", f);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *value = report_text(r->header, rows[i][0]);
        if (value[0]) {
            fprintf(f, "<tr><th>%s</th><td class=\"v\">", rows[i][1]);
            html_text(f, value);
            fputs("</td></tr>\n", f);
        }
    }
    environment_devices(r, f);
    fputs("<tr><th>launch</th><td class=\"v\">", f);
    fputs(json_object_get(r->header, "mpi") ? "a process for each rank"
                                            : "one process, a thread for each rank",
          f);
    fputs("</td></tr>\n<tr><th>run folder</th><td class=\"v\">", f);
    html_text(f, r->dir);
    fputs("</td></tr>\n</table>\n", f);
}

int pp_report_write(const struct pp_report *r, FILE *f)
{
    html_begin(f, r->name);
    section_answer(r, f);
    PP_TRY(report_section_curves(&r, 1, f));
    report_section_timeline(&r, 1, f);
    section_ranks(r, f);
    section_config(r, f);
    section_environment(r, f);
    html_end(f);
    return ferror(f) ? pp_fail_errno(PP_EIO, "cannot write the report") : 0;
}
