/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is wrong with a table, said by somebody who has only read what the format is: everything by
 * searching, nothing at the first mistake.
 */
#ifndef PPCLI_TESTS_SCHED_CSV_JUDGE_H
#define PPCLI_TESTS_SCHED_CSV_JUDGE_H

#include "test_sched_sim.h"

enum { /* what is wrong with a table, as bits */
    SYNTAX = 1,
    MIXED = 2,
    IDLE = 4,
    PLACE = 8,
    MISSING = 16,
    TWICE = 32,
    EARLY = 64,
    CROSSED = 128,
    STUCK = 256,
    MESSAGE = 512,
    HANGS = 1024,
};

/* The judge's table. */
enum {
    SEND_F = 4,
    RECV_F,
    SEND_B,
    RECV_B,
    FULL, /* BW */
    CELLS_MAX = 2000,
};

struct judged {
    struct {
        int type, stage, mb, row; /* type: enum pp_op or one of the above */
    } cells[CELLS_MAX];
    int n, rows, stages, mbs;
    bool idle, pairs, messages;
    int rank_of[CELLS_MAX];
};

/* 0: not a cell; 1: a cell; 2: one to pass over */
static inline int judge_simple(const char *s, int *type, int *stage, int *mb)
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

static inline void judge_add(struct judged *t, int type, int stage, int mb)
{
    assert_true(t->n < CELLS_MAX);
    t->cells[t->n].type = type;
    t->cells[t->n].stage = stage;
    t->cells[t->n].mb = mb;
    t->cells[t->n++].row = t->rows;
    t->messages |= type >= SEND_F && type <= RECV_B;
}

static inline bool judge_text(struct judged *t, char *s)
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
        if (judge_simple(s + 1, &type[0], &stage[0], &mb[0]) != 1 || type[0] != PP_OP_F ||
            judge_simple(middle + 1, &type[1], &stage[1], &mb[1]) != 1 || type[1] != PP_OP_B)
            return false;
        judge_add(t, type[0], stage[0], mb[0]);
        judge_add(t, type[1], stage[1], mb[1]);
        t->pairs = true;
        return true;
    }
    int is = judge_simple(s, &type[0], &stage[0], &mb[0]);
    if (is == 1)
        judge_add(t, type[0], stage[0], mb[0]);
    return is > 0;
}

static inline bool judge_syntax(struct judged *t, const char *text, size_t n)
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
            int before = t->n;
            for (char *at = line; good && at;) {
                char *comma = at; /* or a semicolon, which a pair has too */
                for (bool open = false; *comma && *comma != ',' && (*comma != ';' || open); comma++)
                    open = (open || *comma == '(') && *comma != ')';
                comma = *comma ? comma : NULL;
                if (comma)
                    *comma = '\0';
                good = judge_text(t, at);
                at = comma ? comma + 1 : NULL;
            }
            free(line);
            if (!good || t->n == before)
                return false;
            t->rows++;
        }
        text += all;
        n -= all;
    }
    return t->rows > 0;
}

/* How many cells (type, stage, mb), and the place of the first. */
static inline int count(const struct judged *t, int type, int stage, int mb, int *at)
{
    int n = 0;
    for (int i = 0; i < t->n; i++)
        if (t->cells[i].type == type && t->cells[i].stage == stage && t->cells[i].mb == mb)
            *at = n++ == 0 ? i : *at;
    return n;
}

static inline unsigned judge_cell(const struct judged *t, int s, int mb)
{
    int at[4] = {-1, -1, -1, -1};
    int n[4];
    unsigned wrong = 0;
    for (int op = 0; op < 4; op++) {
        n[op] = count(t, op, s, mb, &at[op]);
        wrong |= n[op] > 1 ? TWICE : 0;
    }
    bool split = n[PP_OP_I] || n[PP_OP_W];
    wrong |= n[PP_OP_B] && split ? TWICE : 0;
    wrong |= !n[PP_OP_F] || !(n[PP_OP_B] || n[PP_OP_W]) || n[PP_OP_I] != n[PP_OP_W] ? MISSING : 0;
    for (int op = PP_OP_I; op <= PP_OP_B; op++)
        wrong |= at[op] >= 0 && at[op] < at[PP_OP_F] ? EARLY : 0;
    return wrong | (at[PP_OP_W] >= 0 && at[PP_OP_W] < at[PP_OP_I] ? EARLY : 0);
}

static inline bool is_backward(int type)
{
    return type == PP_OP_I || type == PP_OP_B;
}

/* Do two neighbours take micro-batches in one order? Only asked when all cells are there. */
static inline bool crosses(const struct judged *t, int s, bool backward)
{
    int a = -1;
    int b = -1;
    for (int i = 0; i < t->mbs; i++) {
        do {
            a++;
        } while (t->cells[a].stage != s ||
                 (backward ? !is_backward(t->cells[a].type) : t->cells[a].type != PP_OP_F));
        do {
            b++;
        } while (t->cells[b].stage != s + 1 ||
                 (backward ? !is_backward(t->cells[b].type) : t->cells[b].type != PP_OP_F));
        if (t->cells[a].mb != t->cells[b].mb)
            return true;
    }
    return false;
}

/* The cell that cell i of the table needs the result of, -1: none. */
static inline int producer(const struct judged *t, int i)
{
    int type = t->cells[i].type;
    int at = -1;
    if (type == PP_OP_F) {
        count(t, PP_OP_F, t->cells[i].stage - 1, t->cells[i].mb, &at);
    } else if (is_backward(type)) {
        count(t, PP_OP_B, t->cells[i].stage + 1, t->cells[i].mb, &at);
        if (at < 0)
            count(t, PP_OP_I, t->cells[i].stage + 1, t->cells[i].mb, &at);
    }
    return at;
}

/* The other half of the SEND or RECV in cell i; -1: none, or several. */
static inline int other_half(const struct judged *t, int i)
{
    static const int others[] = {RECV_F, SEND_F, RECV_B, SEND_B};
    static const int steps[] = {1, -1, -1, 1};
    int type = t->cells[i].type - SEND_F;
    int at = -1;
    int n = count(t, others[type], t->cells[i].stage + steps[type], t->cells[i].mb, &at);
    return n == 1 && at >= 0 ? at : -1;
}

static inline bool is_send(int type)
{
    return type == SEND_F || type == SEND_B;
}

/* Are the halves of all messages there, once, on their ranks, behind and before their cells? */
static inline bool messages_are_right(const struct judged *t)
{
    int halves = 0;
    int hand_overs = 0;
    for (int i = 0; i < t->n; i++) {
        int type = t->cells[i].type;
        int s = t->cells[i].stage;
        if (type >= SEND_F) {
            halves++;
            int at = -1;
            int other = other_half(t, i);
            bool forward = type == SEND_F || type == RECV_F;
            if (s >= t->stages || t->cells[i].mb >= t->mbs || t->rank_of[s] != t->cells[i].row ||
                other < 0 || other_half(t, other) != i || t->cells[other].row == t->cells[i].row)
                return false;
            if (forward || count(t, PP_OP_B, s, t->cells[i].mb, &at) == 0)
                count(t, forward ? PP_OP_F : PP_OP_I, s, t->cells[i].mb, &at);
            if (is_send(type) ? at > i : at < i)
                return false;
        } else {
            int from = producer(t, i);
            hand_overs += from >= 0 && t->cells[from].row != t->cells[i].row;
        }
    }
    return halves == 2 * hand_overs;
}

/* Run the rows; a SEND and its RECV together, or, without messages, hand-overs at once. */
static inline bool comes_to_an_end(const struct judged *t, bool messages)
{
    int at[CELLS_MAX];
    bool done[CELLS_MAX] = {false};
    int n_done = 0;
    for (int i = t->n - 1; i >= 0; i--)
        at[t->cells[i].row] = i;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < t->rows; r++) {
            int i = at[r];
            if (i >= t->n || t->cells[i].row != r)
                continue;
            int type = t->cells[i].type;
            int from = type < SEND_F ? producer(t, i) : -1;
            bool go = true;
            if (type >= SEND_F && messages) {
                int other = other_half(t, i);
                go = done[other] || at[t->cells[other].row] == other;
                if (go && !done[other]) {
                    done[other] = true;
                    at[t->cells[other].row]++;
                    n_done++;
                }
            } else if (from >= 0) {
                go = done[from];
            }
            if (go) {
                done[i] = true;
                n_done++;
                at[r]++;
                moved = true;
            }
        }
    }
    return n_done == t->n;
}

static inline unsigned judge_places(struct judged *t)
{
    unsigned wrong = 0;
    int held[CELLS_MAX] = {0};
    memset(t->rank_of, 0xff, sizeof(t->rank_of));
    for (int i = 0; i < t->n; i++) {
        int s = t->cells[i].stage;
        if (t->cells[i].type < SEND_F) {
            wrong |= t->rank_of[s] >= 0 && t->rank_of[s] != t->cells[i].row ? PLACE : 0;
            t->rank_of[s] = t->cells[i].row;
        }
    }
    for (int s = 0; s < t->stages; s++) {
        if (t->rank_of[s] < 0)
            return wrong | MISSING;
        held[t->rank_of[s]]++;
    }
    for (int r = 0; r < t->rows; r++)
        wrong |= held[r] != held[0] ? PLACE : 0;
    return wrong;
}

static inline unsigned judge_dialect(struct judged *t)
{
    int n[FULL + 1] = {0};
    for (int i = 0; i < t->n; i++)
        n[t->cells[i].type]++;
    if (n[FULL] && (n[PP_OP_I] || t->pairs))
        return MIXED;
    bool old = n[FULL] || (n[PP_OP_W] && !n[PP_OP_I] && !t->pairs);
    for (int i = 0; old && i < t->n; i++) {
        int *type = &t->cells[i].type;
        *type = *type == FULL ? PP_OP_B : *type == PP_OP_B ? PP_OP_I : *type;
    }
    return t->idle && t->messages ? IDLE : 0;
}

static inline unsigned judge(const char *text, size_t n)
{
    static struct judged t; /* large */
    memset(&t, 0, sizeof(t));
    if (!judge_syntax(&t, text, n))
        return SYNTAX;
    unsigned wrong = judge_dialect(&t);
    if (wrong)
        return wrong;
    int64_t compute = 0;
    for (int i = 0; i < t.n; i++) {
        if (t.cells[i].type < SEND_F) {
            compute++;
            t.stages = t.cells[i].stage >= t.stages ? t.cells[i].stage + 1 : t.stages;
            t.mbs = t.cells[i].mb >= t.mbs ? t.cells[i].mb + 1 : t.mbs;
        }
    }
    if ((int64_t)t.stages * t.mbs > compute || compute == 0)
        return MISSING;
    wrong = judge_places(&t);
    for (int s = 0; s < t.stages; s++)
        for (int mb = 0; mb < t.mbs; mb++)
            wrong |= judge_cell(&t, s, mb);
    for (int s = 0; !wrong && s + 1 < t.stages; s++)
        wrong |= crosses(&t, s, false) || crosses(&t, s, true) ? CROSSED : 0;
    if (!wrong && !comes_to_an_end(&t, false))
        wrong = STUCK;
    if (!wrong && t.messages)
        wrong = !messages_are_right(&t) ? MESSAGE : comes_to_an_end(&t, true) ? 0 : HANGS;
    return wrong;
}

#endif
