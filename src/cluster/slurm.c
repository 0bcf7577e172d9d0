/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the batch script of a run on a Slurm cluster from a template: @WORD@ stands for a value,
 * and a line whose value is missing is left out.
 */
#include "ppcli/cluster/launch.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "ppcli/comm/transport.h"

#define PLAIN "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.,_-"

/* Returns the seconds of a time that is written as for sbatch: M, M:S, H:M:S, D-H, D-H:M or
 * D-H:M:S. Returns 0 if it is none of these. */
static int64_t parse_slurm_time(const char *text)
{
    static const int units[] = {86400, 3600, 60, 1};
    const char *p = text;
    bool days = strchr(text, '-') != NULL;
    int64_t part[4], sum = 0;
    int n = 0;
    for (char *end = NULL;; p = end + 1) {
        if (n == 4 || !isdigit((unsigned char)*p) || strlen(text) > 16)
            return 0;
        part[n++] = strtoll(p, &end, 10);
        if (*end == '\0')
            break;
        if (*end != (days && n == 1 ? '-' : ':'))
            return 0;
    }
    if (n == (days ? 1 : 4))
        return 0;
    for (int i = 0, first = days ? 0 : n == 3 ? 1 : 2; i < n; i++)
        sum += part[i] * units[first + i];
    return sum;
}

static int check_slurm_name(const char *option, const char *text)
{
    return !text || (text[0] && text[strspn(text, PLAIN)] == '\0')
               ? 0
               : pp_fail(PP_EUSAGE, "%s: '%s' is not a name that Slurm accepts", option, text);
}

int pp_slurm_check(const struct pp_config *cfg, struct pp_slurm_job *j)
{
    int64_t ranks = (int64_t)cfg->pipeline.stages * cfg->pipeline.replicas;
    int64_t seconds = j->time ? parse_slurm_time(j->time) : 0;
    if (seconds <= 0) {
        return pp_fail(PP_EUSAGE,
                       "--time %s: give the limit of a job as Slurm has it: 90 "
                       "(minutes), 1:30:00 or 2-12 (days-hours)",
                       j->time ? j->time : "is missing");
    }
    PP_TRY(check_slurm_name("--partition", j->partition));
    PP_TRY(check_slurm_name("--account", j->account));
    if (j->nodes < 0 || j->ranks < 0 || j->save < 0)
        return pp_fail(PP_EUSAGE, "--nodes, --ranks-per-node and --save are at least 1");
    if (!j->nodes)
        j->nodes = j->ranks ? (int)((ranks + j->ranks - 1) / j->ranks) : 1;
    if (!j->ranks)
        j->ranks = (int)((ranks + j->nodes - 1) / j->nodes);
    if ((int64_t)j->nodes * j->ranks != ranks) {
        return pp_fail(PP_EUSAGE,
                       "%d stages x %d replicas are %lld ranks, which do not fill %d nodes of %d; "
                       "change --nodes, --ranks-per-node, --stages or --replicas",
                       cfg->pipeline.stages, cfg->pipeline.replicas, (long long)ranks, j->nodes,
                       j->ranks);
    }
    if (!j->save)
        j->save = seconds >= 240 ? 120 : (int)(seconds / 2);
    if (j->save >= seconds)
        return pp_fail(PP_EUSAGE, "--save %d: the whole time is %s; give less", j->save, j->time);
    return cfg->run.dir[0] ? 0
                           : pp_fail(PP_ECONFIG, "run.dir is empty: a job without a run folder "
                                                 "could not continue");
}

/* ---- the script */

struct template_value {
    const char *name;
    int number;       /* 0: missing */
    const char *text; /* NULL: missing */
    bool quoted;      /* as one word for a shell */
    const struct pp_config
        *settings; /* with what the command line said of it; NULL: text or number */
};

static void print_quoted(FILE *f, const char *text)
{
    fputc('\'', f);
    for (; *text; text++)
        fputs(*text == '\'' ? "'\\''" : (char[]){*text, '\0'}, f);
    fputc('\'', f);
}

/* Writes the settings of the user's command line into the command of the job. */
static void put_settings(const struct pp_config *cfg, const struct pp_settings *s, FILE *f)
{
    for (int i = 0; i < s->n; i++) {
        if (strcmp(s->items[i].key, "run.dir") == 0)
            continue;
        fprintf(f, " \\\n        --set %s=", s->items[i].key);
        print_quoted(f, s->items[i].value);
    }
    if (cfg->run.launch != PP_LAUNCH_AUTO)
        fputs(" \\\n        --set run.launch=auto", f); /* srun is the launcher */
}

/* Returns the template value whose @WORD@ begins at p, or NULL if none does. */
static const struct template_value *find_template_value(const char *p,
                                                        const struct template_value *values)
{
    for (const struct template_value *v = values; *p == '@' && v->name; v++) {
        size_t n = strlen(v->name);
        if (strncmp(p + 1, v->name, n) == 0 && p[n + 1] == '@')
            return v;
    }
    return NULL;
}

static void print_script(const char *template, const struct template_value *values,
                         const struct pp_settings *settings, FILE *f)
{
    for (const char *line = template, *end; *line; line = end) {
        const struct template_value *v;
        bool whole = true;
        end = strchr(line, '\n') + 1;
        for (const char *p = line; p < end; p++)
            whole = whole &&
                    (!(v = find_template_value(p, values)) || v->number || v->text || v->settings);
        for (const char *p = line; whole && p < end; p++) {
            if (!(v = find_template_value(p, values)))
                fputc(*p, f);
            else if (v->settings)
                put_settings(v->settings, settings, f);
            else if (v->quoted)
                print_quoted(f, v->text);
            else
                v->text ? fputs(v->text, f) : fprintf(f, "%d", v->number);
            p += v ? strlen(v->name) + 1 : 0;
        }
    }
}

int pp_slurm_write(const struct pp_config *cfg, const struct pp_slurm_job *j, const char *template,
                   const char *out)
{
    struct pp_file_write w = {.f = stdout};
    char exe[PATH_MAX], file[PATH_MAX], name[PP_NAME_MAX];
    const char *dir = strcmp(cfg->run.dir, "auto") != 0 ? cfg->run.dir : NULL;
    bool cuda = strcmp(cfg->run.backend, "cuda") == 0;
    if (!realpath("/proc/self/exe", exe) || !realpath(j->config, file))
        return pp_fail_errno(0, "%s", j->config);
    snprintf(name, sizeof(name), "%s", pp_config_name(cfg));
    for (char *p = name; *(p += strspn(p, PLAIN));)
        *p = '_';
    PP_TRY(out ? pp_file_create(out, &w) : 0);
    const struct template_value values[] = {
        {"stages", .number = cfg->pipeline.stages},
        {"replicas", .number = cfg->pipeline.replicas},
        {"nodes", .number = j->nodes},
        {"ranks", .number = j->ranks},
        {"threads", .number = cfg->run.threads > 0 ? cfg->run.threads : 1},
        {"gpus", .number = cuda ? j->ranks : 0},
        {"save", .number = j->save},
        {"time", .text = j->time},
        {"partition", .text = j->partition},
        {"account", .text = j->account},
        {"name", .text = name},
        {"job", .text = dir ? NULL : name},
        {"dir", .text = dir, .quoted = true},
        {"mpi", .text = strncmp(pp_world_version(), "Open MPI", 8) == 0 ? "pmix" : "pmi2"},
        {"network", .text = strcmp(cfg->run.network, "auto") != 0 ? cfg->run.network : NULL,
         .quoted = true},
        {"ppcli", .text = exe, .quoted = true},
        {"config", .text = file, .quoted = true},
        {"settings", .settings = cfg},
        {0}};
    print_script(template, values, &j->settings, w.f);
    return out ? pp_file_commit(&w) : 0;
}
