/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Did you mean": Damerau-Levenshtein distance (optimal string alignment: insertion, deletion,
 * substitution, swap of neighbours, each once) without regard to case.
 */
#include "ppcli/config.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX 64 /* longer words get no suggestion: they are not a slip of one of ours */

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* `limit` or more is told as `limit`: it is given up as soon as that is certain. */
static int distance(const char *a, int n, const char *b, int m, int limit)
{
    if (abs(n - m) >= limit)
        return limit;
    /* d[j] of rows i-2, i-1 and i: d[i][j] = distance of the first i bytes of a and j of b */
    int rows[3][WORD_MAX + 1];
    int *before = rows[0], *last = rows[1], *now = rows[2];
    for (int j = 0; j <= m; j++) {
        last[j] = j;
        before[j] = 0;
    }
    int least_before = 0;
    for (int i = 1; i <= n; i++) {
        int least = now[0] = i;
        for (int j = 1; j <= m; j++) {
            int ca = tolower((unsigned char)a[i - 1]);
            int cb = tolower((unsigned char)b[j - 1]);
            int d = smaller(smaller(last[j] + 1, now[j - 1] + 1), last[j - 1] + (ca != cb));
            if (i > 1 && j > 1 && ca == tolower((unsigned char)b[j - 2]) &&
                cb == tolower((unsigned char)a[i - 2]))
                d = smaller(d, before[j - 2] + 1);
            now[j] = d;
            least = smaller(least, d);
        }
        /* What comes is at least this row's least, or, by a swap, the last row's and one. */
        if (least >= limit && least_before + 1 >= limit)
            return limit;
        least_before = least;
        int *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[m];
}

const char *pp_nearest(const char *word, const char *const *names)
{
    const char *best = NULL;
    int best_distance = 3;
    size_t n = strlen(word);
    if (n > WORD_MAX || !names)
        return NULL;
    for (int i = 0; names[i]; i++) {
        size_t m = strlen(names[i]);
        if (m > WORD_MAX)
            continue;
        int d = distance(word, (int)n, names[i], (int)m, best_distance);
        if (d < best_distance && 2 * d < (int)n) {
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}

struct pp_did_you_mean pp_did_you_mean(const char *word, const char *const *names)
{
    struct pp_did_you_mean hint = {""};
    const char *near = pp_nearest(word, names);
    if (near)
        snprintf(hint.s, sizeof(hint.s), "; did you mean '%s'?", near);
    return hint;
}
