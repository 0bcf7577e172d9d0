/* SPDX-License-Identifier: Apache-2.0 */
/* The page of two runs: what differs first, then both in the same pictures. */
#include <math.h>
#include <string.h>

#include "html.h"
#include "ppcli/err.h"
#include "report.h"

static void run_head(const struct pp_report *r, int number, bool numbers, FILE *f)
{
    fprintf(f, "<th%s>run %d<br><b>", numbers ? " class=\"n\"" : "", number);
    html_text(f, r->name);
    fputs("</b></th>", f);
}

typedef char *format(double value, char out[HTML_NUMBER_MAX]);

static char *as_percent(double value, char out[HTML_NUMBER_MAX])
{
    return html_percent(value, 2, out);
}

static char *as_share(double value, char out[HTML_NUMBER_MAX])
{
    return html_percent(value, 1, out);
}

static char *as_loss(double value, char out[HTML_NUMBER_MAX])
{
    return html_figures(value, 5, out);
}

static char *as_count(double value, char out[HTML_NUMBER_MAX])
{
    return html_number(value, 0, out);
}

static double peak(const struct pp_report *r)
{
    double most = NAN;
    for (int i = 0; i < r->n_ranks; i++) {
        most = fmax(most, r->ranks[i].total);
    }
    return most;
}

static double step_ms(const struct pp_report *r)
{
    return report_number(r->summary, "train_seconds") / report_number(r->summary, "steps") * 1e3;
}

static char *as_ms(double value, char out[HTML_NUMBER_MAX])
{
    html_number(value, 3, out);
    if (isfinite(value)) {
        strcat(out, " ms");
    }
    return out;
}

enum change {
    POINTS, /* percentage points */
    RATIO,
    DIFFERENCE
};

static void row(const char *name, double a, double b, format *show, enum change how, FILE *f)
{
    char n[HTML_NUMBER_MAX], sa[HTML_NUMBER_MAX], sb[HTML_NUMBER_MAX];
    if (isnan(a) && isnan(b)) {
        return;
    }
    show(a, sa);
    show(b, sb);
    fprintf(f, "<tr><th>%s</th>", name);
    html_cell(f, sa);
    html_cell(f, sb);
    if (isnan(a) || isnan(b)) {
        html_cell(f, "");
    } else if (how != RATIO && strcmp(sa, sb) == 0) {
        html_cell(f, "equal");
    } else if (how == RATIO) {
        fprintf(f, "<td class=\"n\">x %s</td>", html_number(b / a, 3, n));
    } else if (how == POINTS) {
        fprintf(f, "<td class=\"n\">%s%s points</td>", b >= a ? "+" : "",
                html_number((b - a) * 100, 2, n));
    } else {
        fprintf(f, "<td class=\"n\">%s%s</td>", b >= a ? "+" : "", html_figures(b - a, 4, n));
    }
    fputs("</tr>\n", f);
}

static void section_result(const struct pp_report *a, const struct pp_report *b, FILE *f)
{
    static const char *const keys[] = {"test_accuracy", "train_accuracy", "test_loss",
                                       "train_loss"};
    static const char *const names[] = {"test accuracy", "training accuracy", "test loss",
                                        "training loss"};
    fputs("<div class=\"wide\"><table><tr><th></th>", f);
    run_head(a, 1, true, f);
    run_head(b, 2, true, f);
    fputs("<th class=\"n\">run 2 against run 1</th></tr>\n", f);
    for (int i = 0; i < 4; i++) {
        row(names[i], report_number(a->summary, keys[i]), report_number(b->summary, keys[i]),
            i < 2 ? as_percent : as_loss, i < 2 ? POINTS : DIFFERENCE, f);
    }
    row("samples per second", report_number(a->summary, "samples_per_second"),
        report_number(b->summary, "samples_per_second"), as_count, RATIO, f);
    row("a step", step_ms(a), step_ms(b), as_ms, RATIO, f);
    row("bubble, measured", report_number(a->summary, "bubble_measured"),
        report_number(b->summary, "bubble_measured"), as_share, POINTS, f);
    row("bubble, predicted", report_bubble_predicted(a), report_bubble_predicted(b), as_share,
        POINTS, f);
    row("bubble, ideal", report_number(a->summary, "bubble_ideal"),
        report_number(b->summary, "bubble_ideal"), as_share, POINTS, f);
    row("memory of the largest rank", peak(a), peak(b), html_bytes, RATIO, f);
    row("wall time", report_number(a->summary, "wall_seconds"),
        report_number(b->summary, "wall_seconds"), html_seconds, RATIO, f);
    row("steps", report_steps_done(a), report_steps_done(b), as_count, DIFFERENCE, f);
    fputs("</table></div>\n", f);
}

/* The project's promise made visible: equal, or not, and whether they should be. */
static void section_weights(const struct pp_report *a, const struct pp_report *b, FILE *f)
{
    const char *wa = report_text(a->summary, "weights_sha256");
    const char *wb = report_text(b->summary, "weights_sha256");
    const char *ca = report_text(a->header, "config_hash"),
               *cb = report_text(b->header, "config_hash");
    bool same_config = ca[0] && strcmp(ca, cb) == 0;
    if (!wa[0] || !wb[0]) {
        fputs("<p>The weights cannot be compared: a run that did not finish has no "
              "<code>weights_sha256</code>.</p>\n",
              f);
        return;
    }
    if (strcmp(wa, wb) == 0) {
        fputs("<p><b>The trained weights are equal, bit for bit</b> (<code>", f);
        html_text(f, wa);
        fputs("</code>).</p>\n", f);
        return;
    }
    fputs("<p><b>The trained weights differ</b> (<code>", f);
    html_text(f, wa);
    fputs("</code>, <code>", f);
    html_text(f, wb);
    fprintf(f, "</code>)%s</p>\n",
            same_config ? ", although the configs promise equal bits: data, library or machine "
                          "must differ."
            : ca[0] && cb[0] ? ": the configs differ in keys that change the numbers."
                             : ".");
}

static void differing_key(const char *name, const char *a, const char *b, FILE *f)
{
    fputs("<tr><td><code>", f);
    html_text(f, name);
    fputs("</code></td><td class=\"v\"><code>", f);
    html_text(f, a);
    fputs("</code></td><td class=\"v\"><code>", f);
    html_text(f, b);
    fputs("</code></td></tr>\n", f);
}

static bool has_key(const struct pp_report *r, const char *name)
{
    for (int i = 0; i < r->n_keys; i++) {
        if (strcmp(r->keys[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static void section_differences(const struct pp_report *a, const struct pp_report *b, FILE *f)
{
    static const char *const facts[] = {"ppcli", "host", "backend", "transport", "mpi"};
    int n = 0;
    fputs("<h2>What differs</h2>\n<table><tr><th>key</th>", f);
    run_head(a, 1, false, f);
    run_head(b, 2, false, f);
    fputs("</tr>\n", f);
    for (int i = 0; i < a->n_keys; i++) {
        const struct report_key *k = &a->keys[i];
        bool there = has_key(b, k->name);
        const char *other = report_key_value(b, k->name);
        if (b->n_keys > 0 && (!there || strcmp(k->value, other) != 0) &&
            strcmp(k->name, "run.dir") != 0) {
            differing_key(k->name, k->value, there ? other : "(no such key)", f);
            n++;
        }
    }
    for (int i = 0; i < b->n_keys; i++) {
        if (a->n_keys > 0 && !has_key(a, b->keys[i].name)) {
            differing_key(b->keys[i].name, "(no such key)", b->keys[i].value, f);
            n++;
        }
    }
    for (size_t i = 0; a->header && b->header && i < sizeof(facts) / sizeof(facts[0]); i++) {
        const char *va = report_text(a->header, facts[i]), *vb = report_text(b->header, facts[i]);
        if (strcmp(va, vb) != 0) {
            differing_key(facts[i], va, vb, f);
            n++;
        }
    }
    fputs("</table>\n", f);
    if (n == 0) {
        fputs("<p>Nothing in config or environment.</p>\n", f);
    }
}

int pp_report_compare(const struct pp_report *a, const struct pp_report *b, FILE *f)
{
    const struct pp_report *const both[2] = {a, b};
    char title[PP_PATH_MAX];
    snprintf(title, sizeof(title), "%.1000s and %.1000s", a->name, b->name);
    html_begin(f, title);
    fputs("<p class=\"kicker dim\">ppcli report --compare</p>\n<h1>", f);
    html_text(f, title);
    fputs("</h1>\n", f);
    for (int k = 0; k < 2; k++) {
        char who[16];
        snprintf(who, sizeof(who), "run %d", k + 1);
        if (!both[k]->summary) {
            fprintf(f,
                    "<div class=\"warn\"><p><b>Run %d did not finish.</b> It left no "
                    "summary.json.</p></div>\n",
                    k + 1);
        }
        report_section_notes(both[k], who, f);
    }
    section_weights(a, b, f);
    section_result(a, b, f);
    section_differences(a, b, f);
    PP_TRY(report_section_curves(both, 2, f));
    report_section_timeline(both, 2, f);
    html_end(f);
    return ferror(f) ? pp_fail_errno(PP_EIO, "cannot write the report") : 0;
}
