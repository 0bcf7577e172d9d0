/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace events (the JSON array that Perfetto and chrome://tracing read): a thread for every rank, a
 * slice for every action, an arrow from the action that sends a message to the one that takes it.
 */
#include "draw_impl.h"

#define TS_PER_UNIT 1000.0 /* time stamps are microseconds */

static void name_thread(FILE *f, int rank)
{
    fprintf(f,
            ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":"
            "\"rank %d\"}},\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,"
            "\"args\":{\"sort_index\":%d}}",
            rank, rank, rank, rank);
}

/* Arrows are bound to the slice around their time stamp: a little before the end of the sender,
 * the start of the receiver. */
static void print_arrow(FILE *f, bool start, int32_t message, int rank, double t)
{
    fprintf(f,
            ",\n{\"name\":\"message\",\"cat\":\"message\",\"ph\":\"%s\",\"id\":%d,\"pid\":0,"
            "\"tid\":%d,\"ts\":%.10g%s}",
            start ? "s" : "f", message, rank, t * TS_PER_UNIT, start ? "" : ",\"bp\":\"e\"");
}

static void print_action(const struct pp_drawing *d, int rank, int k, FILE *f)
{
    const struct pp_action *a = &d->plan->ranks[rank].actions[k];
    double start = d->result->start[rank][k];
    double took = d->result->end[rank][k] - start;
    char label[DRAW_LABEL_MAX];
    draw_label(d->plan, a, DRAW_LABEL_MAX, label);
    fprintf(f,
            ",\n{\"name\":\"%s\",\"cat\":\"%c\",\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%.10g,"
            "\"dur\":%.10g,\"args\":{\"stage\":%d,\"chunk\":%d,\"microbatch\":%d}}",
            label, draw_letters[a->op], rank, start * TS_PER_UNIT, took * TS_PER_UNIT, a->stage,
            d->plan->chunk_of[a->stage], a->mb);
    if (a->recv >= 0) {
        print_arrow(f, false, a->recv, rank, start);
    }
    if (a->send >= 0) {
        print_arrow(f, true, a->send, rank, start + 0.999 * took);
    }
}

int pp_draw_trace(const struct pp_drawing *d, FILE *f)
{
    char shape[128];
    draw_shape(d->plan, shape, sizeof(shape));
    fprintf(f,
            "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"%s: %s\"}}",
            draw_name(d->plan), shape);
    for (int r = 0; r < d->plan->geometry.stages; r++) {
        name_thread(f, r);
    }
    for (int r = 0; r < d->plan->geometry.stages; r++) {
        for (int k = 0; k < d->plan->ranks[r].n_actions; k++) {
            print_action(d, r, k, f);
        }
    }
    fputs("\n]\n", f);
    return draw_written(f);
}
