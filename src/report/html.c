/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame of a report. Colours are variables, so that one set of rules serves light pages, dark
 * pages and paper; those of the pipeline's ops are the ones of `ppcli plan --format svg`.
 */
#include "html.h"

#include <math.h>
#include <string.h>

#include "ppcli/clock.h"
#include "ppcli/draw.h"
#include "ppcli/text.h"

static const char *const rules =
    ":root{color-scheme:light dark;--page:#fff;--ink:#1f2328;--dim:#59636e;--card:#f6f8fa;"
    "--line:#d1d9e0;--idle:#eef1f4;--wait:#b6bfc9;--send:#57606a;--update:#c9a5ea;"
    "--reduce:#eba3c4;--a:#0757ba;--b:#b04300;--c:#11702f;--bad:#a40e26;--badbg:#fff0ee}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#0d1117;--ink:#f0f6fc;--dim:#a3acb6;"
    "--card:#151b23;--line:#3d444d;--idle:#1b2129;--wait:#59636e;--send:#c8d1da;"
    "--update:#c9a5ea;--reduce:#eba3c4;--a:#6cb0ff;--b:#ffa057;--c:#56d364;--bad:#ff9d94;"
    "--badbg:#2d1214}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"
    "'Segoe UI',Helvetica,Arial,sans-serif;-webkit-text-size-adjust:100%}\n"
    "main{max-width:1216px;margin:0 auto;padding:20px 24px 48px}\n"
    "h1{font-size:26px;line-height:1.25;margin:2px 0 4px;overflow-wrap:anywhere}\n"
    "h2{font-size:18px;margin:36px 0 4px}h3{font-size:14px;margin:0 0 4px}\n"
    "p{margin:4px 0 10px}.dim,figcaption,th{color:var(--dim)}.kicker{margin:0;font-size:13px}\n"
    "a{color:var(--a)}code,.mono{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"
    "monospace;overflow-wrap:anywhere}\n"
    ".note{border:1px solid var(--line);background:var(--card);border-radius:6px;padding:8px 14px;"
    "margin:12px 0}.note p{margin:2px 0}.warn{border:1px solid "
    "var(--bad);background:var(--badbg);border-radius:6px;"
    "padding:8px 14px;margin:12px 0}.warn p{margin:2px 0}.warn b{color:var(--bad)}\n"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(210px,1fr));gap:12px;"
    "margin:16px 0 8px}\n"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:8px;"
    "padding:10px 14px}.card .big{font-size:28px;line-height:1.25;font-weight:650;"
    "font-variant-numeric:tabular-nums}.card p{margin:0;font-size:13px}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(260px,100%),1fr));"
    "gap:20px 24px}figure{margin:12px 0 4px;min-width:0}.charts>figure{display:grid;grid-row:span "
    "3;"
    "grid-template-rows:subgrid;row-gap:0;align-content:start}figure>svg{width:100%;height:auto;"
    "display:block}\n"
    "svg text{font:11px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;"
    "fill:var(--dim)}svg .ink{fill:var(--ink)}svg .mid{text-anchor:middle}"
    "svg .end{text-anchor:end}svg .grid{stroke:var(--line);stroke-width:1}"
    "svg .soft{stroke:var(--line);stroke-width:1;stroke-dasharray:2 4}\n"
    ".s0{stroke:var(--a)}.s1{stroke:var(--b)}.s2{stroke:var(--c)}.s3{stroke:var(--dim)}"
    "svg .curve{fill:none;stroke-width:1.7;stroke-linejoin:round}"
    "circle.s0{fill:var(--a)}circle.s1{fill:var(--b)}"
    "circle.s2{fill:var(--c)}circle.s3{fill:var(--dim)}svg .dash{stroke-dasharray:6 4}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px;color:var(--ink);"
    "margin:4px 0}.legend span{white-space:nowrap}.legend svg{vertical-align:-2px;"
    "margin-right:6px}\n"
    ".gantt{display:flex;margin:8px 0 4px}.gantt>svg{flex:none;display:block}"
    ".scroll{overflow-x:auto;min-width:0;scrollbar-width:thin}.scroll svg{display:block}\n"
    ".gantt .row{fill:var(--idle)}.gantt .wait{fill:var(--wait)}.gantt .send{fill:var(--send)}"
    ".update{fill:var(--update)}.reduce{fill:var(--reduce)}.gantt .over{stroke:var(--ink);"
    "stroke-width:1.5;stroke-dasharray:3 3}svg .l{fill:#14181d;text-anchor:middle;"
    "pointer-events:none}.legend .wait{fill:var(--wait)}.legend .send{fill:var(--send)}"
    ".legend .row{fill:var(--idle)}\n"
    "table{border-collapse:collapse;width:100%;font-size:14px;margin:6px 0}"
    "th,td{text-align:left;padding:4px 10px 4px 0;border-bottom:1px solid var(--line);"
    "vertical-align:top}th{font-weight:500;font-size:13px}"
    ".n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    "td.v{overflow-wrap:anywhere}.wide{overflow-x:auto}\n"
    ".bars td{vertical-align:middle}.bars .bar{width:50%;min-width:110px}"
    ".bar i{float:left;height:14px;min-width:0;print-color-adjust:exact;"
    "-webkit-print-color-adjust:exact}.bar{overflow:hidden}"
    ".bar>div{background:var(--idle);height:14px;border-radius:3px;overflow:hidden;"
    "print-color-adjust:exact;-webkit-print-color-adjust:exact}\n"
    ".k{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:6px;"
    "vertical-align:-1px;print-color-adjust:exact;-webkit-print-color-adjust:exact}"
    ".busy{background:var(--a)}.m0{background:#5b9bd5}.m1{background:#9cc6ea}.m2{background:#"
    "e08a3c}"
    ".m3{background:#8fbf6a}.m4{background:#b58ad6}.m5{background:#d9c04a}"
    ".m6{background:#8c959f}\n"
    "details{margin:6px 0}summary{cursor:pointer;color:var(--dim);font-size:13px}"
    "details table{font-size:13px}\n"
    "@media(max-width:560px){main{padding:14px 14px 40px}h1{font-size:22px}"
    ".card .big{font-size:24px}.cards{grid-template-columns:repeat(auto-fit,"
    "minmax(150px,1fr))}th,td{padding-right:6px}.config th:last-child{display:none}.config tr{"
    "display:flex;flex-wrap:wrap;justify-content:space-between;border-bottom:1px solid "
    "var(--line)}.config td{border:0;padding:2px 0}.config td:last-child{width:100%;"
    "font-size:12px}}\n"
    "@media print{main{max-width:none;padding:0}h2{break-after:avoid}figure,.card,tr{"
    "break-inside:avoid}.gantt{zoom:.62}.scroll{overflow:visible}body{font-size:12px}"
    "svg *{print-color-adjust:exact;-webkit-print-color-adjust:exact}}\n";

void html_begin(FILE *f, const char *title)
{
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>",
          f);
    html_text(f, title);
    fputs("</title>\n<style>\n", f);
    fputs(rules, f);
    for (int op = 0; op < 4; op++) {
        for (int shade = 0; shade < PP_DRAW_SHADES; shade++) {
            fprintf(f, ".%c%d{fill:%s}", "FIWB"[op], shade, pp_draw_fills[op][shade]);
        }
    }
    fputs("\n</style>\n</head>\n<body>\n<main>\n", f);
}

void html_end(FILE *f)
{
    char now[32];
    fprintf(f, "<p class=\"dim kicker\" style=\"margin-top:40px\">Written by ppcli %s, %s.</p>\n",
            PP_VERSION, pp_clock_utc(now, sizeof(now)));
    fputs("</main>\n</body>\n</html>\n", f);
}

void html_text(FILE *f, const char *text)
{
    for (const char *p = text; *p;) {
        int n = pp_utf8_length(p);
        unsigned char c = (unsigned char)*p;
        if (n == 0 || (pp_text_control(p) && c != '\t' && c != '\n')) {
            fputs("\xef\xbf\xbd", f);
            n = n ? n : 1;
        } else if (strchr("<>&\"'", c)) {
            fprintf(f, "&#%d;", c);
        } else {
            fwrite(p, 1, (size_t)n, f);
        }
        p += n;
    }
}

char *html_number(double value, int decimals, char out[HTML_NUMBER_MAX])
{
    if (!isfinite(value)) {
        return strcpy(out, "\xe2\x80\x93");
    }
    if (fabs(value) >= 1e15) {
        snprintf(out, HTML_NUMBER_MAX, "%.3g", value);
        return out;
    }
    char plain[HTML_NUMBER_MAX];
    snprintf(plain, sizeof(plain), "%.*f", decimals, value);
    const char *from = plain;
    char *to = out;
    if (*from == '-' && strspn(from + 1, "0.") == strlen(from + 1)) {
        from++; /* a hair below nothing is nothing */
    } else if (*from == '-') {
        *to++ = *from++;
    }
    size_t whole = strcspn(from, ".");
    for (size_t i = 0; i < whole; i++) {
        if (i > 0 && (whole - i) % 3 == 0) {
            *to++ = ',';
        }
        *to++ = from[i];
    }
    strcpy(to, from + whole);
    return out;
}

/* A number with what it counts, or only the dash. */
static char *with_unit(double value, int decimals, const char *unit, char out[HTML_NUMBER_MAX])
{
    html_number(value, decimals, out);
    if (isfinite(value)) {
        size_t used = strlen(out);
        snprintf(out + used, HTML_NUMBER_MAX - used, "%s", unit);
    }
    return out;
}

char *html_percent(double share, int decimals, char out[HTML_NUMBER_MAX])
{
    return with_unit(share * 100, decimals, " %", out);
}

char *html_bytes(double bytes, char out[HTML_NUMBER_MAX])
{
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB"};
    int i = 0;
    while (bytes >= 1024 && i < 4) {
        bytes /= 1024;
        i++;
    }
    return with_unit(bytes, i == 0 || bytes >= 100 ? 0 : 1, units[i], out);
}

char *html_seconds(double seconds, char out[HTML_NUMBER_MAX])
{
    if (isfinite(seconds) && seconds >= 120 && seconds < 1e9) {
        return pp_clock_duration(seconds, out, HTML_NUMBER_MAX);
    }
    return with_unit(seconds, seconds < 10 ? 2 : 1, " s", out);
}

char *html_figures(double value, int digits, char out[HTML_NUMBER_MAX])
{
    if (!isfinite(value)) {
        return html_number(value, 0, out);
    }
    snprintf(out, HTML_NUMBER_MAX, "%.*g", digits, value);
    return out;
}

char *html_short(double value, double largest, char out[HTML_NUMBER_MAX])
{
    static const char *const letters[] = {"", "k", "M", "G", "T"};
    int i = 0;
    while (largest >= 9999.5 && i < 4 && value != 0) {
        largest /= 1000;
        value /= 1000;
        i++;
    }
    if (!isfinite(value)) {
        return html_number(value, 0, out);
    }
    snprintf(out, HTML_NUMBER_MAX, "%.4g%s", value, letters[i]);
    return out;
}

void html_cell(FILE *f, const char *number)
{
    fprintf(f, "<td class=\"n\">%s</td>", number);
}
