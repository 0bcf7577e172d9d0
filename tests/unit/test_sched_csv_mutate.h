/* SPDX-License-Identifier: Apache-2.0 */
/* Legal tables of all sorts, and mistakes that people and programs make in them. */
#ifndef PPCLI_TESTS_SCHED_CSV_MUTATE_H
#define PPCLI_TESTS_SCHED_CSV_MUTATE_H

#include "ppcli/exchange.h"
#include "test_sched_sim.h"

struct text {
    char *bytes;
    size_t n;
};

enum {
    ROOM = 1000, /* more bytes than all mistakes of one table add */
    N_BASES = 13
};

static inline struct text base_table(size_t i)
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
static inline void splice(struct text *t, size_t at, size_t length, const char *word)
{
    size_t n = strlen(word);
    memmove(t->bytes + at + n, t->bytes + at + length, t->n - at - length);
    memcpy(t->bytes + at, word, n);
    t->n = t->n - length + n;
}

/* Bytes [from, to) of a random cell, without the comma or line end behind it. */
static inline void random_cell(const struct text *t, size_t *from, size_t *to)
{
    size_t at = (size_t)random_below((int)t->n);
    *from = at;
    while (*from > 0 && !strchr(",\n", t->bytes[*from - 1]))
        (*from)--;
    *to = at;
    while (*to < t->n && !strchr(",\n", t->bytes[*to]))
        (*to)++;
}

static inline void copy_cell(const struct text *t, size_t from, size_t to, char word[256])
{
    size_t n = to - from < 250 ? to - from : 250;
    memcpy(word, t->bytes + from, n);
    word[n] = '\0';
}

static inline void drop_line(struct text *t, bool keep_end)
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
static inline void change_byte(struct text *t, const char *of, const char *to)
{
    int n = 0;
    size_t at = 0;
    for (size_t i = 0; i < t->n; i++)
        if (strchr(of, t->bytes[i]) && t->bytes[i] && random_below(++n) == 0)
            at = i;
    if (n > 0)
        t->bytes[at] = to[random_below((int)strlen(to))];
}

static inline void swap_cells(struct text *t, bool neighbours)
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

static inline void mutate(struct text *t)
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

#endif
