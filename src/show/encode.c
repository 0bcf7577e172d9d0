/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step for the page: one text for each rank. An action is its letter, followed only by what
 * differs from the prediction that the rank's last action of that letter and chunk gives:
 *
 *   .C  chunk, when not 0            :M  micro-batch, when not the next one; ":" alone is none
 *   +G  ticks since the end of the   =D  ticks that it takes, when they differ
 *       action before (may be negative)
 *
 * "F=250F+3=248I.1=90" is F0, F1 a little later, and I0 of chunk 1. share/report/data.js reads it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "report.h"

#define RANKS_MAX 256 /* on a page */
#define CHUNKS_MAX 64 /* whose actions are foretold */

enum detail { /* what is kept when a step is too large for the page */
    ALL,
    NO_HANDOVER,
    COMPUTE,
    FEWER_RANKS
};

struct last { /* of a letter and chunk */
    int mb;
    long long ticks;
};

static bool is_kept(const struct report_slice *s, enum detail detail)
{
    return detail == ALL || (detail == NO_HANDOVER ? strchr("sflm-", s->kind) == NULL
                                                   : strchr("FIWBRudc", s->kind) != NULL);
}

static void put_action(const struct report_slice *s, double tick, long long *now, struct last *last,
                       FILE *f)
{
    long long start = llround(s->start / tick), ticks = llround(s->length / tick);
    fputc(s->kind, f);
    if (s->chunk > 0)
        fprintf(f, ".%d", s->chunk);
    if (s->mb < 0)
        fputc(':', f);
    else if (s->mb != last->mb + 1)
        fprintf(f, ":%d", s->mb);
    if (start != *now)
        fprintf(f, "+%lld", start - *now);
    if (ticks != last->ticks)
        fprintf(f, "=%lld", ticks);
    *now = start + ticks;
    *last = (struct last){s->mb, ticks};
}

/* Writes one rank: its actions, the virtual stage of each chunk, the seconds of each kind of
 * action, and the seconds from the first start to the last end. The seconds also count actions that
 * are not written. */
static void put_rank(const struct report_slice *slices, int n, double tick, enum detail detail,
                     struct pp_json *j)
{
    struct last last[128][CHUNKS_MAX];
    double spent[128] = {0}, end = 0;
    int stages[CHUNKS_MAX], chunks = 0;
    long long now = 0;
    memset(last, 0xff, sizeof(last)); /* -1 */
    memset(stages, 0xff, sizeof(stages));
    pp_json_object(j, NULL);
    pp_json_raw(j, "actions", "\"");
    for (int i = 0; i < n; i++) {
        const struct report_slice *s = &slices[i];
        int chunk = s->chunk > 0 ? s->chunk % CHUNKS_MAX : 0;
        spent[(int)s->kind] += s->length;
        end = fmax(end, s->start + s->length);
        if (s->stage >= 0) {
            stages[chunk] = s->stage;
            chunks = chunk >= chunks ? chunk + 1 : chunks;
        }
        if (is_kept(s, detail))
            put_action(s, tick, &now, &last[(int)s->kind][chunk], j->f);
    }
    fputc('"', j->f);
    pp_json_array(j, "stages");
    for (int c = 0; c < chunks; c++)
        pp_json_int(j, NULL, stages[c]);
    pp_json_end(j);
    pp_json_object(j, "spent");
    for (int k = '-'; k < 128; k++)
        if (spent[k] > 0)
            pp_json_dbl(j, (char[]){(char)k, '\0'}, report_short(spent[k]));
    pp_json_dbl(j, "all", n > 0 ? report_short(end - slices[0].start) : 0);
    pp_json_end(j);
    pp_json_end(j);
}

static int put_ranks(const struct report_half *h, int ranks, enum detail detail, char **out)
{
    size_t bytes = 0;
    FILE *f = open_memstream(out, &bytes);
    if (!f)
        return pp_fail(PP_ERESOURCE, "report: out of memory");
    double tick = pow(10, floor(log10(h->span * 2e-6)));
    struct pp_json j = pp_json_begin(f, 0);
    pp_json_dbl(&j, "span", h->span);
    pp_json_dbl(&j, "tick", tick);
    pp_json_int(&j, "step", h->slices[0].step);
    pp_json_int(&j, "all_ranks", h->ranks);
    pp_json_int(&j, "detail", detail);
    pp_json_array(&j, "ranks");
    for (int r = 0, i = 0, first = 0; r < ranks; r++, first = i) {
        while (i < h->n && h->slices[i].rank == r)
            i++;
        put_rank(h->slices + first, i - first, tick, detail, &j);
    }
    pp_json_end(&j);
    pp_json_end(&j);
    return pp_text_close(f, out, "report");
}

int report_put_half(const char *key, const struct report_half *h, size_t budget, struct pp_json *j)
{
    int ranks = h->ranks < RANKS_MAX ? h->ranks : RANKS_MAX;
    enum detail detail = ALL;
    char *text = NULL;
    if (!(h->span > 1e-12))
        return 0; /* no scale to draw it on */
    for (;; free(text)) {
        PP_TRY(put_ranks(h, ranks, detail, &text));
        if (strlen(text) <= budget || ranks == 1)
            break;
        if (detail == FEWER_RANKS) {
            int fit = (int)((size_t)ranks * budget / strlen(text));
            ranks = fit > 0 && fit < ranks ? fit : 1;
        }
        detail = detail < FEWER_RANKS ? detail + 1 : detail;
    }
    pp_json_raw(j, key, text);
    free(text);
    return 0;
}
