/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables with random mistakes: the reader refuses those that the oracle refuses, and what it accepts
 * comes back from its own tables.
 */
#include "ppcli/sched/plan.h"
#include "test_sched_oracle.h"

/* ---- legal tables of all sorts, and mistakes that people and programs make in them */

struct text {
    char *bytes;
    size_t n;
};

enum {
    ROOM = 1000, /* more bytes than all mistakes of one table add */
    N_BASES = 13
};

static struct text base_table(size_t i)
{
    static const struct {
        const char *name;
        int p, v, m, format; /* 0: compute only, 1: with messages, 2: as published */
    } tables[N_BASES] = {
        {"1f1b", 2, 1, 4, 0},
        {"1f1b", 3, 1, 4, 1},
        {"gpipe", 2, 1, 3, 1},
        {"interleaved", 2, 2, 4, 0},
        {"interleaved", 2, 2, 2, 1},
        {"zb-h1", 3, 1, 4, 0},
        {"interleaved-zb", 2, 2, 4, 1},
        {"zb-v", 2, 2, 4, 0},
        {"zb-v", 3, 2, 4, 1},
        {"dualpipev", 2, 2, 4, 0},
        {"dualpipev", 2, 2, 4, 1},
        {"looped-bfs", 2, 2, 3, 2},
        {NULL, 0, 0, 0, 0},
    };
    struct text t = {0};
    if (!tables[i].name) {
        t.bytes =
            strdup("# zero bubble, 2024\r\n0F0,0F1,,0BW0,0B1,0W1\r\n1F0,1BW0,1F1,1B1,1W1\r\n");
        t.n = strlen(t.bytes);
        return t;
    }
    struct pp_geometry g = {
        .stages = tables[i].p, .chunks = tables[i].v, .microbatches = tables[i].m};
    FILE *f = open_memstream(&t.bytes, &t.n);
    if (tables[i].format == 2) {
        CHECK_OK(pp_schedule_print_csv(pp_schedule_find(tables[i].name), &g, f));
    } else {
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
        CHECK_OK(pp_plan_build(tables[i].name, &g, &plan));
        CHECK_OK(tables[i].format == 1 ? pp_plan_print_csv_comms(plan, f)
                                       : pp_plan_print_csv(plan, f));
    }
    fclose(f);
    return t;
}

/* Replace `length` bytes at `at` by a word. */
static void splice(struct text *t, size_t at, size_t length, const char *word)
{
    size_t n = strlen(word);
    memmove(t->bytes + at + n, t->bytes + at + length, t->n - at - length);
    memcpy(t->bytes + at, word, n);
    t->n = t->n - length + n;
}

/* Bytes [from, to) of a random cell, without the comma or line end behind it. */
static void random_cell(const struct text *t, size_t *from, size_t *to)
{
    size_t at = (size_t)random_below((int)t->n);
    *from = at;
    while (*from > 0 && !strchr(",\n", t->bytes[*from - 1]))
        (*from)--;
    *to = at;
    while (*to < t->n && !strchr(",\n", t->bytes[*to]))
        (*to)++;
}

static void copy_cell(const struct text *t, size_t from, size_t to, char word[256])
{
    size_t n = to - from < 250 ? to - from : 250;
    memcpy(word, t->bytes + from, n);
    word[n] = '\0';
}

static void drop_line(struct text *t, bool keep_end)
{
    size_t from = (size_t)random_below((int)t->n);
    size_t to = from;
    while (from > 0 && t->bytes[from - 1] != '\n')
        from--;
    while (to < t->n && t->bytes[to] != '\n')
        to++;
    splice(t, from, to - from + (!keep_end && to < t->n), "");
}

/* A digit or letter that is there becomes another. */
static void change_byte(struct text *t, const char *of, const char *to)
{
    int n = 0;
    size_t at = 0;
    for (size_t i = 0; i < t->n; i++)
        if (strchr(of, t->bytes[i]) && t->bytes[i] && random_below(++n) == 0)
            at = i;
    if (n > 0)
        t->bytes[at] = to[random_below((int)strlen(to))];
}

static void swap_cells(struct text *t, bool neighbours)
{
    size_t a, a_end, b, b_end;
    char first[256];
    char second[256];
    random_cell(t, &a, &a_end);
    random_cell(t, &b, &b_end);
    if (neighbours && a_end + 1 < t->n && t->bytes[a_end] == ',') {
        b = a_end + 1;
        for (b_end = b; b_end < t->n && !strchr(",\n", t->bytes[b_end]);)
            b_end++;
    }
    if (a > b) {
        size_t x = a;
        a = b;
        b = x;
        x = a_end;
        a_end = b_end;
        b_end = x;
    }
    if (a_end <= b) {
        copy_cell(t, a, a_end, first);
        copy_cell(t, b, b_end, second);
        splice(t, b, b_end - b, first);
        splice(t, a, a_end - a, second);
    }
}

static void mutate(struct text *t)
{
    static const char *const words[] = {
        "99999999999999F0",
        "0F2147483647",
        "-1F0",
        "0F-1",
        "0X0",
        "F",
        "7F0",
        "0F7",
        "0B99",
        "900F0",
        "0F",
        "0SEND_F0",
        "1RECV_F0",
        "1SEND_B1",
        "0RECV_B1",
        "0SEND_F9",
        "5RECV_F0",
        "0BW0",
        "1BW1",
        "0I0",
        "1I1",
        "0W1",
        "(0F0;0B0)OVERLAP_F_B",
        "(0F1;0B0)OVERLAP_F_B",
        "(0F0;0B0",
        "0F0)",
        "(0F0;0B0)",
        "((0F0;0B0)OVERLAP_F_B",
        "(0I0;0F0)OVERLAP_F_B",
        "0UNSHARD",
        "1RESHARD",
        "0REDUCE_GRAD",
        "",
        "   ",
        "0f0",
        "\"0F0\"",
        "0F0;1F0",
        "0SEND_F_RECV_B0",
        "\t0F0 ",
        "\r",
        "77777777777777777777777777777777777777777777777777777777777777777777777777777777777777777",
    };
    if (t->n == 0)
        return;
    size_t from, to;
    char word[256];
    random_cell(t, &from, &to);
    switch (random_below(16)) {
    case 0: /* drop a cell */
        splice(t, from, to - from + (to < t->n && t->bytes[to] == ','), "");
        break;
    case 1: /* leave it empty */
        splice(t, from, to - from, "");
        break;
    case 2: /* twice */
        copy_cell(t, from, to, word);
        strcat(word, ",");
        splice(t, from, 0, word);
        break;
    case 3: /* somewhere else */
        copy_cell(t, from, to, word);
        splice(t, from, to - from + (to < t->n && t->bytes[to] == ','), "");
        if (t->n > 0) {
            random_cell(t, &from, &to);
            strcat(word, ",");
            splice(t, from, 0, word);
        }
        break;
    case 4:
        swap_cells(t, false);
        break;
    case 5:
    case 6:
        swap_cells(t, true);
        break;
    case 7: /* another stage or micro-batch */
        change_byte(t, "0123456789", "0123456789");
        break;
    case 8: /* another type */
        change_byte(t, "FIWB", "FIWB");
        break;
    case 9:
    case 10: /* another cell */
        splice(t, from, to - from, words[random_below((int)(sizeof(words) / sizeof(words[0])))]);
        break;
    case 11:
        drop_line(t, false);
        break;
    case 12:
        drop_line(t, true);
        break;
    case 13: /* the file was cut off */
        t->n = (size_t)random_below((int)t->n);
        break;
    case 14: /* a byte went wrong */
        t->bytes[random_below((int)t->n)] = (char)random_below(256);
        break;
    default:
        splice(t, (size_t)random_below((int)t->n), 0,
               (const char *[]){"\n", ",", "#", ";", "("}[random_below(5)]);
        break;
    }
}

/* ---- tables as the format is described */

enum {
    FULL = RECV_B + 1, /* BW */
};

/* What reading a table finds besides its rows. */
struct sheet {
    struct rows rows;
    bool idle, pairs;
};

/* 0: not a cell; 1: a cell; 2: one to pass over */
static int read_cell(const char *s, int *type, int *stage, int *mb)
{
    static const struct {
        const char *word;
        int type;
    } words[] = {{"F", PP_OP_F},     {"I", PP_OP_I},     {"W", PP_OP_W},     {"B", PP_OP_B},
                 {"BW", FULL},       {"SEND_F", SEND_F}, {"RECV_F", RECV_F}, {"SEND_B", SEND_B},
                 {"RECV_B", RECV_B}, {"UNSHARD", -1},    {"RESHARD", -1},    {"REDUCE_GRAD", -1}};
    char letters[16];
    char a[64];
    char b[64] = "";
    int n = 0;
    int m = 0;
    if (strlen(s) > 60 || sscanf(s, "%[0-9]%15[A-Z_]%n%[0-9]%n", a, letters, &n, b, &m) < 2 ||
        s[m > n ? m : n] != '\0')
        return 0;
    if (strtoull(a, NULL, 10) >= INT32_MAX || strtoull(b, NULL, 10) >= INT32_MAX ||
        strlen(a) > 18 || strlen(b) > 18)
        return 0;
    *stage = atoi(a);
    *mb = atoi(b);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(words[i].word, letters) == 0) {
            *type = words[i].type;
            return *type < 0 ? 2 : *b != '\0';
        }
    }
    return 0;
}

static bool read_text(struct sheet *t, char *s)
{
    int type[2], stage[2], mb[2];
    size_t length = strlen(s);
    if (length > 79)
        return false;
    while (length > 0 && strchr(" \t", s[length - 1]))
        s[--length] = '\0';
    s += strspn(s, " \t");
    length = strlen(s);
    if (length == 0) {
        t->idle = true;
        return true;
    }
    char *middle = strchr(s, ';');
    const char tail[] = ")OVERLAP_F_B";
    if (s[0] == '(' && middle && length > strlen(tail) &&
        strcmp(s + length - strlen(tail), tail) == 0) {
        s[length - strlen(tail)] = '\0';
        *middle = '\0';
        if (read_cell(s + 1, &type[0], &stage[0], &mb[0]) != 1 || type[0] != PP_OP_F ||
            read_cell(middle + 1, &type[1], &stage[1], &mb[1]) != 1 || type[1] != PP_OP_B)
            return false;
        add_cell(&t->rows, type[0], stage[0], mb[0], t->rows.n_rows);
        add_cell(&t->rows, type[1], stage[1], mb[1], t->rows.n_rows);
        t->pairs = true;
        return true;
    }
    int is = read_cell(s, &type[0], &stage[0], &mb[0]);
    if (is == 1)
        add_cell(&t->rows, type[0], stage[0], mb[0], t->rows.n_rows);
    return is > 0;
}

static bool read_rows(struct sheet *t, const char *text, size_t n)
{
    while (n > 0) {
        const char *newline = memchr(text, '\n', n);
        size_t all = newline ? (size_t)(newline - text) + 1 : n;
        size_t length = newline ? all - 1 : n;
        if (text[0] != '#') {
            length -= length > 0 && text[length - 1] == '\r';
            char *line = need(length + 1, 1);
            memcpy(line, text, length);
            bool good = memchr(line, '\0', length) == NULL && memchr(line, '\r', length) == NULL;
            int before = t->rows.n;
            for (char *at = line; good && at;) {
                char *comma = at; /* or a semicolon, which a pair has too */
                for (bool open = false; *comma && *comma != ',' && (*comma != ';' || open); comma++)
                    open = (open || *comma == '(') && *comma != ')';
                comma = *comma ? comma : NULL;
                if (comma)
                    *comma = '\0';
                good = read_text(t, at);
                at = comma ? comma + 1 : NULL;
            }
            free(line);
            if (!good || t->rows.n == before)
                return false;
            t->rows.n_rows++;
        }
        text += all;
        n -= all;
    }
    return t->rows.n_rows > 0;
}

/* Tables of two dialects have other words for the same cells; a mixture means nothing. */
static bool settle_dialect(struct sheet *t)
{
    int n[FULL + 1] = {0};
    for (int i = 0; i < t->rows.n; i++)
        n[t->rows.cells[i].type]++;
    if (n[FULL] && (n[PP_OP_I] || t->pairs))
        return false;
    bool old = n[FULL] || (n[PP_OP_W] && !n[PP_OP_I] && !t->pairs);
    t->rows.messages = n[SEND_F] || n[RECV_F] || n[SEND_B] || n[RECV_B];
    for (int i = 0; old && i < t->rows.n; i++) {
        int *type = &t->rows.cells[i].type;
        *type = *type == FULL ? PP_OP_B : *type == PP_OP_B ? PP_OP_I : *type;
    }
    return !t->idle || !t->rows.messages;
}

/* Sizes and ranks as the cells have them; every rank must have as many stages. */
static bool settle_places(struct rows *t)
{
    int64_t compute = 0;
    int held[CELLS_MAX] = {0};
    memset(t->rank_of, 0xff, sizeof(t->rank_of));
    for (int i = 0; i < t->n; i++) {
        if (t->cells[i].type < SEND_F) {
            compute++;
            t->stages = t->cells[i].stage >= t->stages ? t->cells[i].stage + 1 : t->stages;
            t->mbs = t->cells[i].mb >= t->mbs ? t->cells[i].mb + 1 : t->mbs;
        }
    }
    if (compute == 0 || (int64_t)t->stages * t->mbs > compute)
        return false;
    for (int i = 0; i < t->n; i++)
        if (t->cells[i].type < SEND_F)
            t->rank_of[t->cells[i].stage] = t->cells[i].row;
    for (int s = 0; s < t->stages; s++) {
        if (t->rank_of[s] < 0)
            return false;
        held[t->rank_of[s]]++;
    }
    for (int r = 0; r < t->n_rows; r++)
        if (held[r] != held[0])
            return false;
    return true;
}

/* How far a table comes before the oracle finds it wrong. */
enum verdict {
    NO_TABLE,
    NO_CELLS,
    NO_END,
    LEGAL,
    N_VERDICTS
};

static enum verdict judge(const char *text, size_t n)
{
    static struct sheet t; /* large */
    memset(&t, 0, sizeof(t));
    if (!read_rows(&t, text, n) || !settle_dialect(&t))
        return NO_TABLE;
    if (!settle_places(&t.rows) || !cells_are_complete(&t.rows) || !halves_are_right(&t.rows))
        return NO_CELLS;
    return rows_come_to_an_end(&t.rows) ? LEGAL : NO_END;
}

static struct pp_plan *accept(const char *text, size_t n)
{
    struct pp_plan *plan = NULL;
    FILE *f = fmemopen((void *)(uintptr_t)text, n, "r");
    assert_non_null(f);
    if (pp_plan_read_csv(f, "t.csv", &plan) < 0)
        assert_null(plan);
    fclose(f);
    return plan;
}

/* Counts the verdict in hits. */
static void check_verdict(const char *text, size_t n, int *hits)
{
    enum verdict verdict = judge(text, n);
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = accept(text, n);
    hits[verdict]++;
    if (verdict != LEGAL) {
        if (plan)
            fail_msg("%.*s\nwas read, but is wrong (%d)", (int)n, text, verdict);
        CHECK_INT_EQ(pp_error_get()->code, PP_EFORMAT);
        assert_true(*pp_error_get()->text && !strchr(pp_error_get()->text, '\n'));
        return;
    }
    if (!plan)
        fail_msg("%.*s\nis legal, but: %s", (int)n, text, pp_error_get()->text);
    PP_OWN_MEMORY char *once = printed(plan, pp_plan_print_csv);
    PP_OWN(pp_plan_destroy) struct pp_plan *again = accept(once, strlen(once));
    assert_non_null(again);
    check_plan_text(again, pp_plan_print_csv, once);
}

TEST(tables_with_mistakes_are_refused)
{
    int hits[N_VERDICTS] = {0}, n = 0;
    for (size_t i = 0; i < N_BASES; i++) {
        struct text base = base_table(i);
        int own[N_VERDICTS] = {0};
        check_verdict(base.bytes, base.n, own);
        if (own[LEGAL] != 1)
            fail_msg("table %zu is not legal itself", i);
        for (int round = 0; round < 1200; round++, n++) {
            struct text t = {.bytes = need(base.n + ROOM, 1), .n = base.n};
            memcpy(t.bytes, base.bytes, base.n);
            for (int mistakes = 1 + random_below(2); mistakes > 0; mistakes--)
                mutate(&t);
            if (t.n > 0)
                check_verdict(t.bytes, t.n, hits);
            free(t.bytes);
        }
        free(base.bytes);
    }
    for (int i = 0; i < N_VERDICTS; i++)
        assert_in_range(hits[i], n / 50, n / 2);
}

/* Every SEND and RECV of a row at every other place of it. */
static void move_all(const char *text, int *hits)
{
    const char *cells[200], *ends[200];
    int row_of[200], n = 0, row = 0;
    for (const char *at = text; *at; at++) {
        row_of[n] = row;
        cells[n] = at;
        at += strcspn(at, ",\n");
        row += *at == '\n';
        ends[n++] = at;
        assert_true(n < 200);
    }
    size_t bytes = strlen(text);
    char *moved = need(bytes + 1, 1);
    for (int i = 0; i < n; i++) {
        bool message = memchr(cells[i], '_', (size_t)(ends[i] - cells[i]));
        for (int to = 0; to < n && message; to++) {
            if (row_of[to] != row_of[i])
                continue;
            char *at = moved;
            for (int k = 0; k < n; k++) {
                int from = k == to ? i : k > to && k <= i ? k - 1 : k < to && k >= i ? k + 1 : k;
                size_t length = (size_t)(ends[from] - cells[from]);
                memcpy(at, cells[from], length);
                at += length;
                *at++ = *ends[k];
            }
            check_verdict(moved, bytes, hits);
        }
    }
    free(moved);
}

TEST(moved_messages_are_judged_as_a_simulation_judges_them)
{
    static const struct {
        const char *name;
        int p, v, m;
    } table[] = {
        {"1f1b", 2, 1, 3},        {"1f1b", 3, 1, 3}, {"gpipe", 3, 1, 2}, {"zb-h1", 2, 1, 3},
        {"interleaved", 2, 2, 2}, {"zb-v", 2, 2, 2}, {"v-min", 3, 2, 2}, {"zb-h2", 3, 1, 3},
    };
    int hits[N_VERDICTS] = {0};
    for (size_t i = 0; i < LEN(table); i++) {
        struct pp_geometry g = {
            .stages = table[i].p, .chunks = table[i].v, .microbatches = table[i].m};
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
        CHECK_OK(pp_plan_build(table[i].name, &g, &plan));
        PP_OWN_MEMORY char *text = printed(plan, pp_plan_print_csv_comms);
        move_all(text, hits);
    }
    assert_true(hits[LEGAL] > 200 && hits[NO_END] > 200);
}
