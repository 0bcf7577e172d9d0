/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a page that show one run or two in the same way: notes, curves, timelines. */
#include <math.h>
#include <string.h>

#include "html.h"
#include "ppcli/err.h"
#include "report.h"

#define TABLE_ROWS 60 /* of a curve's numbers */

void report_section_notes(const struct pp_report *r, const char *who, FILE *f)
{
    if (r->n_notes == 0) {
        return;
    }
    fputs("<div class=\"note\">", f);
    for (int i = 0; i < r->n_notes; i++) {
        fputs("<p>", f);
        if (who) {
            fprintf(f, "%s: ", who);
        }
        html_text(f, r->notes[i]);
        fputs("</p>", f);
    }
    fputs("</div>\n", f);
}

/* --- curves ------------------------------------------------------------------------------------
 */

#define STEPS(r, member)                                                                           \
    .x = (r)->n_steps ? &(r)->steps->step : NULL, .y = (r)->n_steps ? &(r)->steps->member : NULL,  \
    .stride = sizeof(struct report_step), .n = (r)->n_steps
#define EPOCHS(r, member)                                                                          \
    .x = (r)->n_epochs ? &(r)->epochs->step : NULL,                                                \
    .y = (r)->n_epochs ? &(r)->epochs->member : NULL, .stride = sizeof(struct report_epoch),       \
    .n = (r)->n_epochs

static bool tested(const struct pp_report *r)
{
    for (int i = 0; i < r->n_epochs; i++) {
        if (!isnan(r->epochs[i].test_loss)) {
            return true;
        }
    }
    return false;
}

enum measure {
    LOSS,
    ACCURACY,
    SPS,
    BUBBLE
};

/* Training as a line over log records where there are some, else over epochs; the test set as dots
 * on a dashed line. */
static void add_series(struct report_chart *c, const struct pp_report *r, enum measure what,
                       int number, bool alone)
{
    static const char *const train[2][2] = {{"training", "training"},
                                            {"1: training", "2: training"}};
    static const char *const test[2][2] = {{"test", "test"}, {"1: test", "2: test"}};
    static const char *const run[2] = {"run 1", "run 2"};
    bool by_epoch = r->n_steps < 2;
    bool curve = what == LOSS || what == ACCURACY;
    const struct report_series steps[] = {
        {STEPS(r, loss)}, {STEPS(r, accuracy)}, {STEPS(r, sps)}, {STEPS(r, bubble)}};
    const struct report_series epochs[] = {
        {EPOCHS(r, loss)}, {EPOCHS(r, accuracy)}, {EPOCHS(r, sps)}, {EPOCHS(r, bubble)}};
    struct report_series s = by_epoch ? epochs[what] : steps[what];
    s.name = curve ? train[!alone][number] : alone ? c->title : run[number];
    s.color = number;
    s.dots = by_epoch;
    c->series[c->n++] = s;
    if (curve && tested(r)) {
        const struct report_series tests[] = {{EPOCHS(r, test_loss)}, {EPOCHS(r, test_accuracy)}};
        s = tests[what];
        s.name = test[!alone][number];
        s.color = alone ? 1 : number;
        s.dots = true;
        s.dashed = true;
        c->series[c->n++] = s;
    }
}

static void numbers_of(const struct pp_report *r, const char *title, FILE *f)
{
    char n[HTML_NUMBER_MAX];
    if (r->n_epochs == 0 && r->n_steps == 0) {
        return;
    }
    fprintf(f, "<details><summary>%s</summary>\n", title);
    if (r->n_epochs > 0) {
        fputs("<div class=\"wide\"><table><tr><th class=\"n\">epoch</th><th class=\"n\">training "
              "loss</th><th class=\"n\">accuracy</th><th class=\"n\">test loss</th><th "
              "class=\"n\">test accuracy</th><th class=\"n\">samples/s</th><th class=\"n\">bubble"
              "</th><th class=\"n\">time</th></tr>\n",
              f);
        int every = r->n_epochs / TABLE_ROWS + 1;
        for (int i = (r->n_epochs - 1) % every; i < r->n_epochs; i += every) {
            const struct report_epoch *e = &r->epochs[i];
            fputs("<tr>", f);
            html_cell(f, html_number(e->epoch, 0, n));
            html_cell(f, html_figures(e->loss, 5, n));
            html_cell(f, html_percent(e->accuracy, 2, n));
            html_cell(f, html_figures(e->test_loss, 5, n));
            html_cell(f, html_percent(e->test_accuracy, 2, n));
            html_cell(f, html_number(e->sps, 0, n));
            html_cell(f, html_percent(e->bubble, 1, n));
            html_cell(f, html_seconds(e->seconds, n));
            fputs("</tr>\n", f);
        }
        fputs("</table></div>\n", f);
    }
    if (r->n_steps > 0) {
        fputs("<div class=\"wide\"><table><tr><th class=\"n\">step</th><th class=\"n\">epoch</th>"
              "<th class=\"n\">loss</th><th class=\"n\">accuracy</th><th class=\"n\">samples/s</th>"
              "<th class=\"n\">bubble</th><th class=\"n\">learning rate</th></tr>\n",
              f);
        int every = r->n_steps / TABLE_ROWS + 1;
        for (int i = (r->n_steps - 1) % every; i < r->n_steps; i += every) {
            const struct report_step *s = &r->steps[i];
            fputs("<tr>", f);
            html_cell(f, html_number(s->step, 0, n));
            html_cell(f, html_number(s->epoch, 0, n));
            html_cell(f, html_figures(s->loss, 5, n));
            html_cell(f, html_percent(s->accuracy, 2, n));
            html_cell(f, html_number(s->sps, 0, n));
            html_cell(f, html_percent(s->bubble, 1, n));
            html_cell(f, html_figures(s->lr, 5, n));
            fputs("</tr>\n", f);
        }
        fputs("</table></div>\n", f);
    }
    fputs("</details>\n", f);
}

int report_section_curves(const struct pp_report *const *runs, int n, FILE *f)
{
    struct report_chart charts[] = {
        [LOSS] = {.title = "Loss", .unit = "", .may_log = true},
        [ACCURACY] = {.title = "Accuracy", .unit = "", .share = true},
        [SPS] = {.title = "Throughput", .unit = "samples/s", .from_zero = true},
        [BUBBLE] = {.title = "Bubble", .unit = "", .share = true, .from_zero = true},
    };
    bool any = false;
    for (int k = 0; k < n; k++) {
        any = any || runs[k]->n_steps > 0 || runs[k]->n_epochs > 0;
    }
    if (!any) {
        return 0;
    }
    fprintf(f,
            "<h2>Training</h2>\n<p class=\"dim\">Over optimizer steps%s.</p>\n"
            "<div class=\"charts\">\n",
            n == 1 && runs[0]->n_epochs > 1 ? "; dotted lines are ends of epochs" : "");
    for (int c = LOSS; c <= BUBBLE; c++) {
        for (int k = 0; k < n; k++) {
            add_series(&charts[c], runs[k], (enum measure)c, k, n == 1);
        }
        if (n == 1) {
            charts[c].epochs = runs[0]->epochs;
            charts[c].n_epochs = runs[0]->n_epochs;
        }
        PP_TRY(report_chart(&charts[c], f));
    }
    fputs("</div>\n", f);
    numbers_of(runs[0], n == 1 ? "the numbers" : "the numbers of run 1", f);
    if (n > 1) {
        numbers_of(runs[1], "the numbers of run 2", f);
    }
    return 0;
}

/* --- timelines ---------------------------------------------------------------------------------
 */

struct spent { /* seconds of one rank in one step */
    double kinds[REPORT_KINDS];
};

static struct spent spent_by(const struct report_half *h, int rank)
{
    struct spent t = {{0}};
    for (int i = 0; i < h->n; i++) {
        if (h->slices[i].rank == rank) {
            t.kinds[h->slices[i].kind] += h->slices[i].length;
        }
    }
    return t;
}

static void spent_table(const struct report_lane *lane, FILE *f)
{
    static const char *const names[REPORT_KINDS] = {"F",         "I",   "W",       "B",
                                                    "optimizer", "sum", "waiting", "handing over"};
    const struct report_half *h = lane->half;
    struct spent all = {{0}};
    char n[HTML_NUMBER_MAX];
    int shown = h->ranks < TABLE_ROWS ? h->ranks : TABLE_ROWS;
    for (int i = 0; i < h->n; i++) {
        all.kinds[h->slices[i].kind] += h->slices[i].length;
    }
    fputs("<h3>", f);
    html_text(f, lane->title);
    fputs("</h3>\n<div class=\"wide\"><table><tr><th>rank</th>", f);
    for (int k = 0; k < REPORT_KINDS; k++) {
        if (all.kinds[k] > 0) {
            fprintf(f, "<th class=\"n\">%s, ms</th>", names[k]);
        }
    }
    fputs("</tr>\n", f);
    for (int r = 0; r < shown; r++) {
        struct spent t = spent_by(h, r);
        fprintf(f, "<tr><td>%d</td>", r);
        for (int k = 0; k < REPORT_KINDS; k++) {
            if (all.kinds[k] > 0) {
                html_cell(f, html_number(t.kinds[k] * 1e3, 3, n));
            }
        }
        fputs("</tr>\n", f);
    }
    fputs("</table></div>\n", f);
}

static void title_of(const struct pp_report *r, int number, bool simulated, char *out, size_t bytes)
{
    const json_t *head = r->timeline.head;
    double seconds = report_number(head, simulated ? "simulated_step_seconds" : "step_seconds");
    double bubble = report_number(head, simulated ? "bubble_predicted" : "bubble_measured");
    double step = r->timeline.step;
    char ms[HTML_NUMBER_MAX], share[HTML_NUMBER_MAX], of[64] = "", which[48] = "";
    if (isnan(seconds)) {
        seconds = simulated ? r->timeline.simulated.span : r->timeline.measured.span;
    }
    if (number > 0) {
        snprintf(which, sizeof(which), "run %d, ", number);
    }
    if (!simulated && !isnan(step)) {
        snprintf(of, sizeof(of), ", step %.0f", step);
    }
    int n = snprintf(out, bytes, "%s%s%s: %s ms from step to step", which,
                     simulated ? "simulated from measured times" : "measured", of,
                     html_number(seconds * 1e3, 3, ms));
    if (!isnan(bubble) && n > 0 && (size_t)n < bytes) {
        snprintf(out + n, bytes - (size_t)n, ", bubble %s", html_percent(bubble, 1, share));
    }
}

void report_section_timeline(const struct pp_report *const *runs, int n, FILE *f)
{
    struct report_lane lanes[REPORT_LANES_MAX];
    char titles[REPORT_LANES_MAX][192];
    int used = 0;
    for (int half = 0; half < 2; half++) { /* what was measured side by side */
        for (int k = 0; k < n; k++) {
            const struct report_timeline *t = &runs[k]->timeline;
            const struct report_half *h = half == 0 ? &t->measured : &t->simulated;
            if (h->span > 1e-12) { /* else there is no scale to draw it on */
                title_of(runs[k], n > 1 ? k + 1 : 0, half == 1, titles[used], sizeof(titles[0]));
                lanes[used] = (struct report_lane){h, titles[used]};
                used++;
            }
        }
    }
    if (used == 0) {
        return;
    }
    fputs("<h2>One step of the pipeline</h2>\n", f);
    report_gantt_legend(lanes, used, f);
    report_gantt(lanes, used, f);
    fputs("<details><summary>the numbers</summary>\n", f);
    for (int k = 0; k < used; k++) {
        spent_table(&lanes[k], f);
    }
    fputs("</details>\n", f);
}
