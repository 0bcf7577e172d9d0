/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folds long lines of a result on a narrow terminal: at blanks, under the text of the line. Lines
 * that people copy or read as columns stay whole: commands, settings, tables, drawings, JSON. Files
 * and pipes get every line as it is.
 */
#include "command.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ppcli/base/base.h"

#define NARROWEST 20 /* a smaller width of a terminal is ignored */
#define GAPS 2       /* a line with more of them has columns */
#define LABEL 24     /* columns that "throughput       " has at most */

struct fold {
    FILE *terminal;
    char line[4096]; /* the line that has not ended yet */
    size_t n;
    bool is_open; /* the beginning of a longer line is already printed */
};

static int read_width(void)
{
    struct winsize w;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= NARROWEST ? w.ws_col : 0;
}

/* Returns the text after the next run of at least two blanks; NULL if there is no such run. */
static const char *skip_gap(const char *text)
{
    const char *gap = strstr(text, "  ");
    return gap ? gap + strspn(gap, " ") : NULL;
}

static bool is_prose(const char *text)
{
    const char *second = text + strcspn(text, " ");
    second += strspn(second, " ");
    int gaps = 0;
    for (const char *p = text; (p = skip_gap(p));)
        gaps++;
    return *text && !strchr("{}[]\"|<", *text) && strncmp(second, "= ", 2) != 0 && gaps <= GAPS &&
           !strchr(text, '\033') && strncmp(text, "ppcli ", strlen("ppcli ")) != 0;
}

/* Returns how many bytes of `text` fit into `columns`, up to a blank if there is one. */
static size_t measure_piece(const char *text, int columns)
{
    size_t blank = 0, i = 0;
    for (int used = 0; text[i]; used++) {
        if (used > columns && blank > 0)
            return blank;
        if (text[i] == ' ')
            blank = i;
        int n = pp_utf8_length(text + i);
        i += n > 0 ? (size_t)n : 1;
        if (!text[i] && used < columns)
            return i;
    }
    return blank > 0 ? blank : i;
}

static void print_line(FILE *f, const char *line, int width)
{
    const char *text = line + strspn(line, " ");
    if (width == 0 || pp_text_columns(line) <= width || !is_prose(text)) {
        fprintf(f, "%s\n", line);
        return;
    }
    int indent = (int)(text - line), hang = indent + 2;
    const char *value = skip_gap(text);
    if (value && value - line <= LABEL && value - line < width / 2) {
        hang = (int)(value - line);
        if (!strchr(value, ' ')) { /* a digest or a path stays one word */
            int label = (int)(strstr(text, "  ") - line);
            bool fits = label + 2 + pp_text_columns(value) <= width;
            fprintf(f, "%.*s%*s%s\n", label, line, fits ? 2 : hang - label, "", value);
            return;
        }
    }
    size_t n = measure_piece(text, width - indent);
    fprintf(f, "%*s%.*s\n", indent, "", (int)n, text);
    for (text += n; *(text += strspn(text, " ")); text += n) {
        n = measure_piece(text, width - hang);
        fprintf(f, "%*s%.*s\n", hang, "", (int)n, text);
    }
}

static ssize_t write_folded(void *cookie, const char *bytes, size_t n)
{
    struct fold *f = cookie;
    int width = read_width();
    for (size_t i = 0; i < n; i++) {
        bool is_end = bytes[i] == '\n';
        if (!is_end)
            f->line[f->n++] = bytes[i];
        bool is_full = f->n == sizeof(f->line) - 1;
        f->line[f->n] = '\0';
        if (is_full || (is_end && f->is_open))
            fprintf(f->terminal, "%s%s", f->line, is_end ? "\n" : "");
        else if (is_end)
            print_line(f->terminal, f->line, width);
        f->is_open = !is_end && (f->is_open || is_full);
        f->n = is_end || is_full ? 0 : f->n;
    }
    return fflush(f->terminal) == 0 ? (ssize_t)n : 0;
}

static int close_folded(void *cookie)
{
    struct fold *f = cookie;
    f->line[f->n] = '\0';
    fputs(f->line, f->terminal);
    return fclose(f->terminal);
}

void pp_cli_fold_lines(void)
{
    static struct fold fold;
    if (!pp_term_live(STDOUT_FILENO))
        return;
    FILE *f = fopencookie(&fold, "w",
                          (cookie_io_functions_t){.write = write_folded, .close = close_folded});
    if (!f)
        return;
    fold.terminal = stdout;
    setvbuf(f, NULL, _IOLBF, BUFSIZ);
    stdout = f;
}
