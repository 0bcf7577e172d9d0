/* SPDX-License-Identifier: Apache-2.0 */
/* A plan and its simulation, printed in the formats of `ppcli plan`. */
#include "ppcli/show/results.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "draw.h"
#include "ppcli/sched/plan.h"
#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "report.h"

/* Prints the plan as CSV. A schedule with descending gradients is printed as published, because the
 * plan for training has them in another order. */
static int print_csv(const struct pp_drawing *d, FILE *f)
{
    const struct pp_schedule_ops *schedule = d->plan->schedule;
    bool published = d->plan->geometry.coalesce <= 1;
    for (int s = 0; s < d->plan->n_virtual; s++)
        published = published && !pp_plan_recomputes(d->plan, s);
    return schedule && schedule->descends && published
               ? pp_schedule_print_csv(schedule, &d->plan->geometry, f)
               : pp_plan_print_csv(d->plan, f);
}

static int print_csv_comms(const struct pp_drawing *d, FILE *f)
{
    return pp_plan_print_csv_comms(d->plan, f);
}

static int print_csv_torch(const struct pp_drawing *d, FILE *f)
{
    return pp_plan_print_csv_torch(d->plan, f);
}

static int draw_trace(const void *drawing, FILE *f)
{
    return pp_draw_trace(drawing, f);
}

/* Prints the page of `ppcli report` for the plan's trace. */
static int print_page(const struct pp_drawing *d, FILE *f)
{
    const struct pp_schedule_ops *schedule = d->plan->schedule;
    return report_write_drawn(draw_trace, d, schedule ? pp_schedule_name(schedule) : "table", NULL,
                              f);
}

static const struct format {
    const char *name;
    bool times; /* wants start and end of every action */
    int (*print)(const struct pp_drawing *d, FILE *f);
} formats[] = {
    {"grid", true, pp_draw_grid},
    {"csv", false, print_csv},
    {"csv-comms", false, print_csv_comms},
    {"csv-torch", false, print_csv_torch},
    {"json", false, pp_draw_json},
    {"svg", true, pp_draw_svg},
    {"trace", true, pp_draw_trace},
    {"page", true, print_page},
    {"pdf", true, pp_draw_svg},
    {"png", true, pp_draw_svg},
};

/* Returns the width for a table in columns: COLUMNS if it is set, else the width of the terminal,
 * else 0 for no limit. */
static int find_width(void)
{
    const char *text = getenv("COLUMNS");
    if (text && text[0] != '\0') {
        char *end;
        long n = strtol(text, &end, 10);
        if (!*end && n > 0 && n <= INT_MAX)
            return (int)n;
    }
    struct winsize w;
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0)
        return w.ws_col;
    return 0;
}

bool pp_format_times(int format)
{
    return formats[format].times;
}

bool pp_format_draws(int format)
{
    return formats[format].print == pp_draw_svg;
}

int pp_format_of_file(const char *path)
{
    const char *dot = strrchr(path, '.');
    int i = dot ? (int)(sizeof(formats) / sizeof(formats[0])) - 1 : 0;
    while (i > 0 && strcmp(dot + 1, formats[i].name) != 0)
        i--;
    return i;
}

struct printed {
    const struct format *format;
    struct pp_drawing d;
};

static int print_drawing(const void *printed, FILE *f)
{
    const struct printed *p = printed;
    return p->format->print(&p->d, f);
}

int pp_format_print(int number, const struct pp_planned *q, const struct pp_look *look,
                    const char *path)
{
    const struct format *format = &formats[number];
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    PP_TRY(pp_sim_run(q->plan, q->costs, format->times, &result));
    if (strncmp(format->name, "csv", 3) == 0 && q->plan->copies > 1)
        pp_log_warn("a table cannot say that stages %d to %d are a second copy of the weights: "
                    "neither --csv nor torch can read this one",
                    q->plan->n_virtual / 2, q->plan->n_virtual - 1);
    struct printed p = {format,
                        {.plan = q->plan,
                         .result = &result,
                         .costs = q->costs,
                         .bytes = q->bytes,
                         .columns = path ? 0 : find_width(),
                         .color = !path && pp_term_color(STDOUT_FILENO),
                         .look = look}};
    return pp_format_draws(number) ? pp_picture_write(path, format->name, print_drawing, &p)
                                   : pp_file_draw(path ? path : "-", print_drawing, &p);
}
