/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli slurm: the batch script of a run on a Slurm cluster. It is share/cli/sbatch.txt, where
 * @WORD@ stands for a value that is made here; a line whose value is missing is left out.
 */
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/io.h"
#include "ppcli/text.h"
#include "ppcli/transport.h"
#include "command.h"

#define PLAIN "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.,_-"

struct job {
    int nodes, ranks; /* of a node; 0: not given */
    int save;         /* seconds before the end at which the ranks are told to save */
    const char *time, *partition, *account;
};

/* The forms that sbatch takes: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S. 0: none of them. */
static int64_t seconds_of(const char *text)
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

static int check_word(const char *option, const char *text)
{
    return !text || (text[0] && text[strspn(text, PLAIN)] == '\0')
               ? 0
               : pp_fail(PP_EUSAGE, "%s: '%s' is not a name that Slurm accepts", option, text);
}

/* Ranks over nodes, and the time. */
static int check(const struct pp_config *cfg, struct job *j)
{
    int64_t ranks = (int64_t)cfg->pipeline.stages * cfg->pipeline.replicas;
    int64_t seconds = j->time ? seconds_of(j->time) : 0;
    if (seconds <= 0) {
        return pp_fail(PP_EUSAGE,
                       "--time %s: give the limit of a job as Slurm has it: 90 "
                       "(minutes), 1:30:00 or 2-12 (days-hours)",
                       j->time ? j->time : "is missing");
    }
    PP_TRY(check_word("--partition", j->partition));
    PP_TRY(check_word("--account", j->account));
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

struct value {
    const char *name;
    int number;       /* 0: none */
    const char *text; /* NULL: none */
    bool quoted;      /* as one word of a shell */
};

static void quote(FILE *f, const char *text)
{
    fputc('\'', f);
    for (; *text; text++)
        fputs(*text == '\'' ? "'\\''" : (char[]){*text, '\0'}, f);
    fputc('\'', f);
}

/* What --set and its like said goes into the job. The caller frees *out. */
static int settings_text(const struct pp_config *cfg, const struct pp_cli_settings *s, char **out)
{
    size_t bytes;
    FILE *f = open_memstream(out, &bytes);
    if (!f)
        return pp_fail(PP_ERESOURCE, "out of memory");
    for (int i = 0; i < s->n; i++) {
        if (strcmp(s->items[i].key, "run.dir") == 0)
            continue;
        fprintf(f, " \\\n        --set %s=", s->items[i].key);
        quote(f, s->items[i].value);
    }
    if (cfg->run.launch != PP_LAUNCH_AUTO)
        fputs(" \\\n        --set run.launch=auto", f); /* srun has launched */
    return pp_text_close(f, out, "the script");
}

/* The value of the @WORD@ at p; NULL: none begins here. */
static const struct value *value_at(const char *p, const struct value *values)
{
    for (const struct value *v = values; *p == '@' && v->name; v++) {
        size_t n = strlen(v->name);
        if (strncmp(p + 1, v->name, n) == 0 && p[n + 1] == '@')
            return v;
    }
    return NULL;
}

static void print(FILE *f, const struct value *values)
{
    for (const char *line = text_sbatch, *end; *line; line = end) {
        const struct value *v;
        bool whole = true;
        end = strchr(line, '\n') + 1;
        for (const char *p = line; p < end; p++)
            whole = whole && (!(v = value_at(p, values)) || v->number || v->text);
        for (const char *p = line; whole && p < end; p++) {
            if (!(v = value_at(p, values)))
                fputc(*p, f);
            else if (v->quoted)
                quote(f, v->text);
            else
                v->text ? fputs(v->text, f) : fprintf(f, "%d", v->number);
            p += v ? strlen(v->name) + 1 : 0;
        }
    }
}

static int write_script(const struct pp_config *cfg, const struct job *j, const char *config,
                        const struct pp_cli_settings *settings, const char *out)
{
    struct pp_file_write w = {.f = stdout};
    char exe[PATH_MAX], file[PATH_MAX], name[PP_NAME_MAX], *set = NULL;
    const char *dir = strcmp(cfg->run.dir, "auto") != 0 ? cfg->run.dir : NULL;
    bool cuda = strcmp(cfg->run.backend, "cuda") == 0;
    if (!realpath("/proc/self/exe", exe) || !realpath(config, file))
        return pp_fail_errno(0, "%s", config);
    snprintf(name, sizeof(name), "%s", pp_config_name(cfg));
    for (char *p = name; *(p += strspn(p, PLAIN));)
        *p = '_';
    PP_TRY(settings_text(cfg, settings, &set));
    int rc = out ? pp_file_create(out, &w) : 0;
    const struct value values[] = {
        {"stages", cfg->pipeline.stages, NULL, false},
        {"replicas", cfg->pipeline.replicas, NULL, false},
        {"nodes", j->nodes, NULL, false},
        {"ranks", j->ranks, NULL, false},
        {"threads", cfg->run.threads > 0 ? cfg->run.threads : 1, NULL, false},
        {"gpus", cuda ? j->ranks : 0, NULL, false},
        {"save", j->save, NULL, false},
        {"time", 0, j->time, false},
        {"partition", 0, j->partition, false},
        {"account", 0, j->account, false},
        {"name", 0, name, false},
        {"job", 0, dir ? NULL : name, false},
        {"dir", 0, dir, true},
        {"mpi", 0, strncmp(pp_world_version(), "Open MPI", 8) == 0 ? "pmix" : "pmi2", false},
        {"network", 0, strcmp(cfg->run.network, "auto") != 0 ? cfg->run.network : NULL, true},
        {"ppcli", 0, exe, true},
        {"config", 0, file, true},
        {"settings", 0, set, false},
        {0}};
    if (rc == 0)
        print(w.f, values);
    free(set);
    return rc == 0 && out ? pp_file_commit(&w) : rc;
}

int cmd_slurm(int argc, char **argv)
{
    struct job j = {0};
    struct pp_cli_settings settings = {0};
    const char *words[1], *out = NULL;
    const struct pp_cli_option options[] = {
        {"nodes", 0, PP_CLI_INT, &j.nodes, "N", "how many; 1, or what --ranks-per-node needs"},
        {"ranks-per-node", 0, PP_CLI_INT, &j.ranks, "N", "ranks over nodes"},
        {"time", 0, PP_CLI_STRING, &j.time, "TIME", "limit of a job: 90 (minutes), 1:30:00, 2-12"},
        {"save", 0, PP_CLI_INT, &j.save, "SECONDS", "for saving before that; 120"},
        {"partition", 0, PP_CLI_STRING, &j.partition, "NAME", "as sbatch"},
        {"account", 0, PP_CLI_STRING, &j.account, "NAME", "as sbatch"},
        {"output", 'o', PP_CLI_STRING, &out, "FILE", "write there; standard output"},
        {0},
    };
    char config[PP_PATH_MAX];
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_TRY(pp_cli_parse(argc, argv, &command_slurm, options, &settings, words, 1));
    if (!words[0] || strcmp(words[0], "-") == 0) {
        return pp_fail(
            PP_EUSAGE,
            "name a config file. For example: ppcli slurm mnist.ini --nodes 2 --time 1:00:00");
    }
    if (!pp_world_version()[0])
        return pp_fail(PP_ERESOURCE,
                       "this ppcli was built without MPI, which the ranks of a job need");
    PP_TRY(pp_cli_find_config(words[0], config));
    PP_TRY(pp_cli_load_config(config, &settings, &cfg));
    PP_TRY(check(cfg, &j));
    return write_script(cfg, &j, config, &settings, out);
}
