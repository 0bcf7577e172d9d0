/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Separates what mpirun writes to standard error from what its ranks write. In a successful run
 * mpirun's text is noise (a warning of setpgid, a rank that ended); if no rank starts, it holds the
 * cause.
 */
#include "hosts.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/base/base.h"

enum line_kind {
    OPEN, /* undecided until more of the line is read */
    MPIRUN,
    RANK
};

/* Decides by its bracket who wrote a line: "[host:123] " comes from the libraries of Open MPI,
 * "[mpiexec@host] " and "[proxy:0:0@host] " from MPICH. */
static enum line_kind classify_bracket(const char *line, size_t n)
{
    const char *end = memchr(line, ']', n);
    if (!end)
        return n < 128 ? OPEN : RANK;
    const char *colon = memchr(line, ':', (size_t)(end - line));
    if (memchr(line, '@', (size_t)(end - line)))
        return MPIRUN;
    size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
    return digits > 0 && colon + 1 + digits == end ? MPIRUN : RANK;
}

/* Returns whether mpirun or a rank wrote a line, or OPEN if its beginning does not show this
 * yet. */
static enum line_kind classify_line(const struct pp_complaints *c, const char *line, size_t n)
{
    static const char *const begins[] = {"*** ", "***    ", "mpirun", "orterun", "prterun"};
    if (c->in_block)
        return MPIRUN;
    if (line[0] == '[')
        return classify_bracket(line, n);
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
        size_t m = strlen(begins[i]);
        if (memcmp(line, begins[i], n < m ? n : m) == 0)
            return n < m ? OPEN : MPIRUN;
    }
    size_t dashes = 0;
    while (dashes < n && line[dashes] == '-')
        dashes++;
    return dashes >= PP_BLOCK_DASHES ? MPIRUN : dashes == n ? OPEN : RANK;
}

static void write_to_stderr(const char *text, size_t n)
{
    for (ssize_t done; n > 0 && (done = write(STDERR_FILENO, text, n)) > 0; n -= (size_t)done)
        text += done;
}

static void end_line(struct pp_complaints *c)
{
    bool dashes = c->used >= PP_BLOCK_DASHES && strspn(c->line, "-") >= PP_BLOCK_DASHES;
    if (c->kind == MPIRUN) {
        pthread_mutex_lock(&c->lock);
        pp_text_add(c->kept, sizeof(c->kept), "%s\n", c->line);
        pthread_mutex_unlock(&c->lock);
        c->in_block = dashes ? !c->in_block : c->in_block;
    } else if (c->kind == OPEN && c->used > 0) { /* empty lines surround mpirun's blocks */
        write_to_stderr(c->line, c->used);
        write_to_stderr("\n", 1);
    } else if (c->kind == RANK) {
        write_to_stderr("\n", 1);
    }
    c->used = 0;
    c->line[0] = '\0';
    c->kind = OPEN;
}

/* Processes the beginning of the n bytes at text, and returns how many bytes that was. Text of a
 * rank is passed on at once, because its line may never end. */
static size_t take_text(struct pp_complaints *c, const char *text, size_t n)
{
    const char *newline = memchr(text, '\n', n);
    size_t m = newline ? (size_t)(newline - text) : n;
    if (m == 0) {
        end_line(c);
        return 1;
    }
    if (c->kind == RANK) {
        write_to_stderr(text, m);
        return m;
    }
    if (c->used < sizeof(c->line) - 1) {
        c->line[c->used++] = *text;
        c->line[c->used] = '\0';
    }
    if (c->kind == OPEN)
        c->kind = classify_line(c, c->line, c->used);
    if (c->kind == RANK)
        write_to_stderr(c->line, c->used);
    return 1;
}

size_t pp_take_rank_mark(char *text, size_t n, atomic_bool *seen)
{
    const size_t bytes = strlen(PP_RANK_MARK);
    char *mark = *seen ? NULL : memmem(text, n, PP_RANK_MARK, bytes);
    if (!mark)
        return n;
    *seen = true;
    n -= bytes;
    memmove(mark, mark + bytes, n - (size_t)(mark - text));
    return n;
}

void *pp_complaints_relay(void *arg)
{
    struct pp_complaints *c = arg;
    char block[4096];
    ssize_t got;
    while ((got = read(c->from, block, sizeof(block))) > 0) {
        size_t n = pp_take_rank_mark(block, (size_t)got, c->started);
        if (c->all)
            write_to_stderr(block, n);
        for (size_t i = 0; i < n && !c->all;)
            i += take_text(c, block + i, n - i);
    }
    if (c->kind == OPEN)
        write_to_stderr(c->line, c->used);
    return NULL;
}

bool pp_complaints_have(struct pp_complaints *c, const char *text)
{
    pthread_mutex_lock(&c->lock);
    bool found = strcasestr(c->kept, text) != NULL;
    pthread_mutex_unlock(&c->lock);
    return found;
}

/* Writes mpirun's first complaint as one line: the sentences of its first block between dashes or,
 * if it wrote no block, its first line. */
const char *pp_complaints_first(struct pp_complaints *c, char out[PP_COMPLAINT_MAX])
{
    pthread_mutex_lock(&c->lock);
    const char *block = strstr(c->kept, "----------\n"), *p = block ? block + 11 : c->kept;
    const char *end = block ? strstr(p, "\n-----") : strchr(p, '\n');
    if (!block && *p == '[' && strstr(p, "] "))
        p = strstr(p, "] ") + 2;
    size_t used = 0;
    for (; *p && (!end || p < end) && used < PP_COMPLAINT_MAX - 1; p++) {
        char byte = *p == '\n' || *p == '\t' ? ' ' : *p;
        if (byte != ' ' || (used > 0 && out[used - 1] != ' '))
            out[used++] = byte;
    }
    out[used] = '\0';
    pthread_mutex_unlock(&c->lock);
    while (used > 0 && strchr(" .:;", out[used - 1]))
        out[--used] = '\0';
    return out;
}
