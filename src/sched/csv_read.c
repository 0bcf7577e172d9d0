/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the bytes of a table. Each cell is read byte by byte into a fixed buffer, so that no line
 * is too long and memory grows with the cells in the file, not with the numbers in them.
 */
#include "csv.h"

#include <ctype.h>
#include <string.h>

#include "ppcli/base/base.h"

enum {
    CELL_MAX = 79,         /* the longest is a pair of numbers of ten digits */
    CELLS_MAX = 1 << 26,   /* in a table */
    COLUMNS_MAX = 1 << 28, /* in a line, idle cells too */
    SHOWN_MAX = 32         /* characters of a bad cell that are quoted */
};

struct reader {
    FILE *f;
    struct pp_csv *csv;
    struct pp_csv_position at;
};

int pp_csv_fail(const char *name, struct pp_csv_position at, const char *fmt, ...)
{
    char text[PP_ERROR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return pp_fail(PP_EFORMAT, "%s:%d:%d: %s", name, at.line, at.column, text);
}

#define FAIL(rd, ...) pp_csv_fail((rd)->csv->name, (rd)->at, __VA_ARGS__)

/* Longest first where one is a prefix of another. UNSHARD and the like belong to sharded
 * parameters, which ppcli does not have; they do not affect the order. */
static const struct {
    const char *word;
    int type; /* -1: ignored */
} types[] = {
    {"F", PP_CSV_F},           {"I", PP_CSV_I},           {"W", PP_CSV_W},
    {"BW", PP_CSV_BW},         {"B", PP_CSV_B},           {"SEND_F", PP_CSV_SEND_F},
    {"RECV_F", PP_CSV_RECV_F}, {"SEND_B", PP_CSV_SEND_B}, {"RECV_B", PP_CSV_RECV_B},
    {"UNSHARD", -1},           {"RESHARD", -1},           {"REDUCE_GRAD", -1},
    {"R", PP_CSV_R},
};

enum {
    N_TYPES = sizeof(types) / sizeof(types[0])
};

static const char *word_of_cell(int type)
{
    int i = 0;
    while (types[i].type != type)
        i++;
    return types[i].word;
}

const char *pp_csv_cell_name(const struct pp_csv_cell *c, char name[PP_CSV_NAME_MAX])
{
    snprintf(name, PP_CSV_NAME_MAX, "%d%s%d", c->stage, word_of_cell(c->type), c->mb);
    return name;
}

void pp_csv_print(struct pp_csv_printer *p, int type, int stage, int mb, bool overlap)
{
    fprintf(p->f, "%s%s%d%s%d%s",
            p->overlaps ? ";"
            : p->open   ? ","
                        : "",
            overlap ? "(" : "", stage, word_of_cell(type), mb, p->overlaps ? ")OVERLAP_F_B" : "");
    p->open = true;
    p->overlaps = overlap;
}

int pp_csv_add(struct pp_csv_row *row, const struct pp_csv_cell *c)
{
    if (row->n > INT32_MAX / 2 - 16)
        return pp_fail(PP_ERESOURCE, "a list of %d cells is too long", row->n);
    PP_RESERVE(row->cells, row->n, row->capacity);
    row->cells[row->n++] = *c;
    return 0;
}

/* Copies the start of a bad cell to `shown`, safe to print on a terminal, and returns it. */
static const char *quote_cell(const char *text, char shown[SHOWN_MAX + 8])
{
    bool cut = strlen(text) > SHOWN_MAX;
    snprintf(shown, SHOWN_MAX + 8, "%.*s%s", SHOWN_MAX, text, cut ? "..." : "");
    return pp_text_make_plain(shown);
}

static int fail_cell(const struct reader *rd, const char *cell)
{
    char shown[SHOWN_MAX + 8];
    return FAIL(rd,
                "'%s' is not a cell: write <stage><type><micro-batch>, as in 0F3, with type F, I, "
                "W, B, R, SEND_F, RECV_F, SEND_B or RECV_B, or a pair, (0F3;3B1)OVERLAP_F_B",
                quote_cell(cell, shown));
}

/* Parses a decimal number at *at and moves *at past it. Returns 1, 0 if there is no number, or an
 * error. */
static int parse_decimal(const struct reader *rd, const char **at, int32_t *out)
{
    const char *s = *at;
    int64_t x = 0;
    for (; isdigit((unsigned char)*s); s++) {
        x = 10 * x + (*s - '0');
        if (x >= INT32_MAX) {
            char shown[SHOWN_MAX + 8];
            return FAIL(rd,
                        "the number at '%s' is too large: stages and micro-batches count from "
                        "0 without gaps",
                        quote_cell(*at, shown));
        }
    }
    if (s == *at)
        return 0;
    *out = (int32_t)x;
    *at = s;
    return 1;
}

/* Parses one cell without parentheses at *at, and moves *at past it. Errors quote `cell`. Returns
 * 1, 0 for a cell that is ignored, or an error. */
static int parse_cell(const struct reader *rd, const char *cell, const char **at,
                      struct pp_csv_cell *out)
{
    int32_t stage = 0;
    int32_t mb = 0;
    int rc = parse_decimal(rd, at, &stage);
    if (rc <= 0)
        return rc < 0 ? rc : fail_cell(rd, cell);
    int i = 0;
    while (i < N_TYPES && strncmp(*at, types[i].word, strlen(types[i].word)) != 0)
        i++;
    if (i == N_TYPES)
        return fail_cell(rd, cell);
    *at += strlen(types[i].word);
    rc = parse_decimal(rd, at, &mb);
    if (rc < 0)
        return rc;
    if (types[i].type < 0)
        return 0;
    if (rc == 0)
        return fail_cell(rd, cell);
    out->type = (uint8_t)types[i].type;
    out->stage = stage;
    out->mb = mb;
    out->column = rd->at.column;
    out->overlap = false;
    return 1;
}

static int add_cell(struct reader *rd, const struct pp_csv_cell *c)
{
    struct pp_csv *csv = rd->csv;
    struct pp_csv_row *row = &csv->rows[csv->n_rows - 1];
    if (csv->n_cells == CELLS_MAX)
        return FAIL(rd, "the table has more than %d cells, which is all that is read", CELLS_MAX);
    PP_TRY(pp_csv_add(row, c));
    csv->n_cells++;
    if (csv->type[c->type].line == 0)
        csv->type[c->type] = rd->at;
    if (c->type >= PP_CSV_SEND_F && csv->message.line == 0)
        csv->message = rd->at;
    return 0;
}

/* Reads an overlapped pair such as "(0F3;3B1)OVERLAP_F_B". */
static int read_pair(struct reader *rd, const char *cell)
{
    char shown[SHOWN_MAX + 8];
    struct pp_csv_cell f = {0};
    struct pp_csv_cell b = {0};
    const char *at = cell + 1;
    if (!strchr(cell, ')'))
        return FAIL(rd, "'%s': the parenthesis is not closed", quote_cell(cell, shown));
    int rc = parse_cell(rd, cell, &at, &f);
    if (rc < 0)
        return rc;
    if (rc > 0 && *at == ';') {
        at++;
        rc = parse_cell(rd, cell, &at, &b);
        if (rc < 0)
            return rc;
    }
    if (rc == 0 || strcmp(at, ")OVERLAP_F_B") != 0 || f.type != PP_CSV_F || b.type != PP_CSV_B) {
        return FAIL(rd,
                    "'%s': a pair is one F and then one B, (<stage>F<micro-batch>;<stage>B"
                    "<micro-batch>)OVERLAP_F_B",
                    quote_cell(cell, shown));
    }
    if (rd->csv->pair.line == 0)
        rd->csv->pair = rd->at;
    f.overlap = true;
    PP_TRY(add_cell(rd, &f));
    return add_cell(rd, &b);
}

static int take_cell(struct reader *rd, char *text)
{
    char *end = text + strlen(text);
    while (end > text && (end[-1] == ' ' || end[-1] == '\t'))
        *--end = '\0';
    text += strspn(text, " \t");
    if (*text == '\0') {
        if (rd->csv->idle.line == 0)
            rd->csv->idle = rd->at;
        return 0;
    }
    if (*text == '(')
        return read_pair(rd, text);
    if (strchr(text, ')')) {
        char shown[SHOWN_MAX + 8];
        return FAIL(rd, "'%s': there is no '(' for its ')'", quote_cell(text, shown));
    }
    struct pp_csv_cell c;
    const char *at = text;
    int rc = parse_cell(rd, text, &at, &c);
    if (rc < 0)
        return rc;
    if (*at != '\0')
        return fail_cell(rd, text);
    return rc > 0 ? add_cell(rd, &c) : 0;
}

static int begin_row(struct reader *rd)
{
    struct pp_csv *csv = rd->csv;
    PP_RESERVE(csv->rows, csv->n_rows, csv->capacity);
    csv->rows[csv->n_rows++] = (struct pp_csv_row){.line = rd->at.line};
    return 0;
}

/* Returns whether the character c ends the cell `text`. A semicolon ends a cell too, because
 * spreadsheets write it where the comma is the decimal sign, but not inside the parentheses of a
 * pair. */
static bool ends_cell(int c, const char *text, size_t n)
{
    bool is_open = memchr(text, '(', n) && !memchr(text, ')', n);
    return c == ',' || c == '\n' || c == EOF || (c == ';' && !is_open);
}

/* Reads the cell that begins with byte c. Sets *out_c to the byte after it: a comma, a semicolon,
 * '\n' or EOF. */
static int read_cell(struct reader *rd, int c, char text[CELL_MAX + 1], int *out_c)
{
    size_t n = 0;
    for (; !ends_cell(c, text, n); c = getc_unlocked(rd->f)) {
        if (c == '\r') {
            int next = getc_unlocked(rd->f);
            if (next == '\n' || next == EOF) {
                c = next;
                break;
            }
            return FAIL(rd, "a carriage return that ends no line");
        }
        if (c == '\0')
            return FAIL(rd, "a NUL byte: this is not a text file");
        if (n == CELL_MAX) {
            char shown[SHOWN_MAX + 8];
            text[n] = '\0';
            return FAIL(rd, "'%s': a cell of more than %d characters; are commas missing?",
                        quote_cell(text, shown), CELL_MAX);
        }
        text[n++] = (char)c;
    }
    text[n] = '\0';
    *out_c = c;
    return 0;
}

/* Reads the line of the table that begins with byte c. */
static int read_row(struct reader *rd, int c)
{
    char text[CELL_MAX + 1];
    PP_TRY(begin_row(rd));
    for (rd->at.column = 1;; rd->at.column++) {
        if (rd->at.column == COLUMNS_MAX)
            return FAIL(rd, "a line of more than %d cells, which is all that is read", COLUMNS_MAX);
        PP_TRY(read_cell(rd, c, text, &c));
        PP_TRY(take_cell(rd, text));
        if (c != ',' && c != ';')
            break;
        c = getc_unlocked(rd->f);
    }
    struct pp_csv_row *row = &rd->csv->rows[rd->csv->n_rows - 1];
    row->columns = rd->at.column;
    if (row->n == 0 && !ferror(rd->f)) {
        rd->at.column = 1;
        return FAIL(rd, "a line without cells: every rank has a line, and something to do; delete "
                        "the line, or begin it with # if it is a comment");
    }
    return 0;
}

/* Skips a byte order mark at the start of the file, whose first byte is c. Returns the first byte
 * after it. */
static int skip_bom(struct reader *rd, int c)
{
    bool bom = c == 0xef && getc_unlocked(rd->f) == 0xbb && getc_unlocked(rd->f) == 0xbf;
    return bom ? getc_unlocked(rd->f) : c;
}

int pp_csv_read(FILE *f, const char *name, struct pp_csv *out)
{
    *out = (struct pp_csv){.name = name};
    struct reader rd = {.f = f, .csv = out};
    /* Unlocked for speed: a table may have a hundred megabytes, and no other thread reads the
     * file. */
    for (int c = skip_bom(&rd, getc_unlocked(f)); c != EOF; c = getc_unlocked(f)) {
        if (rd.at.line == INT32_MAX)
            return FAIL(&rd, "the file has more lines than can be counted");
        rd.at = (struct pp_csv_position){.line = rd.at.line + 1, .column = 1};
        if (c == '#') {
            while (c != '\n' && c != EOF)
                c = getc_unlocked(f);
            continue;
        }
        PP_TRY(read_row(&rd, c));
    }
    if (ferror(f))
        return pp_fail(PP_EIO, "cannot read %s", name);
    if (out->n_rows == 0) {
        rd.at = (struct pp_csv_position){.line = rd.at.line + 1, .column = 1};
        return FAIL(&rd, "there is no line with cells");
    }
    return 0;
}

void pp_csv_fini(struct pp_csv *csv)
{
    for (int r = 0; r < csv->n_rows; r++)
        pp_free(csv->rows[r].cells);
    pp_free(csv->rows);
    *csv = (struct pp_csv){0};
}
