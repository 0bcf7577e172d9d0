/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The promise of equal bits, as a table: rows.txt, whose head explains its columns. A row is a
 * training. It must end with the weights and the losses of its reference: the same model and the
 * same number of replicas, trained by threads on one stage.
 *   bits ROWS SECTION...      PPCLI: the program that processes run, MACHINES: starts hosts
 */
#include "../pipe/train_run.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ppcli/conf/config.h"
#include "ppcli/sched/plan.h"
#include "ppcli/base/files.h"
#include "ppcli/sched/schedule.h"

enum column {
    BITS,
    MODEL,
    SCHEDULE,
    STAGES,
    REPLICAS,
    ZERO,
    RECOMPUTE,
    THREADS,
    TRANSPORT,
    DEVICE,
    SAVED,
    OTHER,
    COLUMNS
};

enum {
    LINE_MAX_BYTES = 1024,
    ROWS_MAX = 400,
    MODELS_MAX = 60,
    LIST_MAX = 60,
    REFERENCES_MAX = 256
};

static struct model {
    char name[32], settings[LINE_MAX_BYTES];
} models[MODELS_MAX];
static int n_models;
static struct CMUnitTest rows[ROWS_MAX];
static int n_rows;

/* ---- settings */

struct list {
    char text[8 * LINE_MAX_BYTES];
    size_t used;
    const char *items[LIST_MAX + 1];
    int n;
};

/* Adds "section.key=value". */
__attribute__((format(printf, 2, 3))) static void add_setting(struct list *list, const char *format,
                                                              ...)
{
    va_list args;
    va_start(args, format);
    assert_true(list->n < LIST_MAX);
    char *text = list->text + list->used;
    int bytes = vsnprintf(text, sizeof(list->text) - list->used, format, args);
    va_end(args);
    list->used += (size_t)bytes + 1;
    assert_true(list->used < sizeof(list->text));
    list->items[list->n++] = text;
    list->items[list->n] = NULL;
}

/* The text without the blanks around it; cuts the end off. */
static char *trim_text(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    for (size_t n = strlen(text); n > 0 && isspace((unsigned char)text[n - 1]); n--)
        text[n - 1] = '\0';
    return text;
}

/* Adds settings separated by ';'; a word without '=' is the name of a model. */
static void add_settings(struct list *list, const char *cell)
{
    char copy[LINE_MAX_BYTES], *rest = copy;
    snprintf(copy, sizeof(copy), "%s", cell);
    for (char *part = strsep(&rest, ";"); part; part = strsep(&rest, ";")) {
        part = trim_text(part);
        if (strchr(part, '=')) {
            add_setting(list, "%s", part);
        } else if (*part && strcmp(part, "-") != 0) {
            int i = 0;
            while (i < n_models && strcmp(models[i].name, part) != 0)
                i++;
            if (i == n_models)
                fail_msg("no model is named %s", part);
            add_settings(list, models[i].settings);
        }
    }
}

static void add_backend(struct list *list, const char *device)
{
    bool is_cuda = strcmp(device, "gpu") == 0 || strcmp(device, "lazy") == 0;
    add_setting(list, "run.backend=%s", is_cuda ? "cuda" : device);
}

/* Writes the table of a schedule "NAME:CHUNKS" into the folder, and adds it as the schedule. */
static void add_table(struct list *list, const char *dir, const char *const *cells,
                      const char *schedule, bool comms)
{
    char name[PP_NAME_MAX], path[PP_PATH_MAX], microbatches[32] = "4";
    const char *colon = strchr(schedule, ':');
    assert_non_null(colon);
    snprintf(name, sizeof(name), "%.*s", (int)(colon - schedule), schedule);
    for (int i = 0; i < list->n; i++)
        sscanf(list->items[i], "pipeline.microbatches=%31s", microbatches);
    struct pp_geometry g = {.stages = atoi(cells[STAGES]),
                            .chunks = atoi(colon + 1),
                            .microbatches = atoi(microbatches)};
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    CHECK_OK(pp_plan_build(name, &g, &plan));
    CHECK_OK(pp_path_format(path, "%s/table.csv", dir));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    CHECK_OK(comms ? pp_plan_print_csv_comms(plan, f) : pp_plan_print_csv(plan, f));
    fclose(f);
    add_setting(list, "pipeline.schedule=file:%s", path);
}

/* A schedule is "NAME", "NAME:CHUNKS", "table:NAME:CHUNKS" or "comms:NAME:CHUNKS". */
static void add_schedule(struct list *list, const char *dir, const char *const *cells)
{
    const char *schedule = cells[SCHEDULE], *colon = strchr(schedule, ':');
    if (strncmp(schedule, "table:", 6) == 0 || strncmp(schedule, "comms:", 6) == 0) {
        add_table(list, dir, cells, schedule + 6, *schedule == 'c');
        return;
    }
    add_setting(list, "pipeline.schedule=%.*s", colon ? (int)(colon - schedule) : 64, schedule);
    if (colon)
        add_setting(list, "pipeline.chunks=%s", colon + 1);
}

/* ---- runs */

/* Runs `ppcli train` with these settings as processes: under mpirun, or on as many hosts as `hosts`
 * says, each with `slots` ranks. */
static void train_processes(const char *dir, const struct list *list, int hosts, int slots,
                            struct outcome *out)
{
    const char *words[2 * LIST_MAX + 16];
    char n_hosts[16], names[128] = "";
    int n = 0, used = 0;
    const char *program = getenv("PPCLI"), *machines = getenv("MACHINES");
    assert_true(program && (hosts == 0 || machines));
    if (hosts > 0) {
        snprintf(n_hosts, sizeof(n_hosts), "%d", hosts);
        words[n++] = machines;
        words[n++] = n_hosts;
        for (int i = 0; i < hosts; i++)
            used += snprintf(names + used, sizeof(names) - (size_t)used, "h%d:%d,", i, slots);
    }
    char config[PP_PATH_MAX], story[PP_PATH_MAX];
    CHECK_OK(pp_path_format(config, "%s.ini", dir));
    CHECK_OK(pp_path_format(story, "%s.out", dir));
    FILE *ini = fopen(config, "w");
    assert_non_null(ini);
    fputs("[data]\ndataset = synthetic\n", ini);
    fclose(ini);
    words[n++] = program;
    words[n++] = "train";
    words[n++] = config;
    words[n++] = "-q";
    words[n++] = "--dir";
    words[n++] = dir;
    words[n++] = hosts > 0 ? "--hosts" : "--launch";
    words[n++] = hosts > 0 ? names : "mpirun";
    for (int i = 0; i < list->n; i++) {
        words[n++] = "--set";
        words[n++] = list->items[i];
    }
    words[n] = NULL;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (!freopen(story, "w", stdout) || dup2(1, 2) < 0 || !freopen("/dev/null", "r", stdin))
            _exit(126);
        execvp(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    int status = -1;
    assert_true(waitpid(pid, &status, 0) == pid);
    char said[2048] = "";
    FILE *f = fopen(story, "r");
    if (f) {
        said[fread(said, 1, sizeof(said) - 1, f)] = '\0';
        fclose(f);
    }
    if (status != 0)
        fail_msg("%s ends with status 0x%x: %s", words[0], status, said);
    memset(out, 0, sizeof(*out));
    read_outcome(dir, out);
}

static bool can_launch(const char *transport)
{
    static int has_mpirun = -1, has_hosts = -1;
    if (strcmp(transport, "mpi") == 0) {
        if (has_mpirun < 0)
            has_mpirun = system("command -v mpirun >/dev/null 2>&1") == 0;
        return has_mpirun;
    }
    if (has_hosts < 0)
        has_hosts = system("\"$MACHINES\" 1 true >/dev/null 2>&1") == 0;
    return has_hosts;
}

/* The reference of a row, trained once for all rows that have it. */
static const struct outcome *find_reference(const char *const *cells)
{
    static struct {
        char key[4 * LINE_MAX_BYTES];
        struct outcome out;
    } * known[REFERENCES_MAX];
    static int n_known;
    struct list list = {0};
    char key[4 * LINE_MAX_BYTES] = "";
    add_settings(&list, cells[MODEL]);
    add_setting(&list, "pipeline.replicas=%s", cells[REPLICAS]);
    add_backend(&list, strcmp(cells[DEVICE], "lazy") == 0 ? "cpu" : cells[DEVICE]);
    for (int i = 0; i < list.n; i++)
        snprintf(key + strlen(key), sizeof(key) - strlen(key), "%s;", list.items[i]);
    add_setting(&list, "pipeline.stages=1");
    add_setting(&list, "pipeline.schedule=gpipe");
    add_setting(&list, "run.threads=1");
    for (int i = 0; i < n_known; i++)
        if (strcmp(known[i]->key, key) == 0)
            return &known[i]->out;
    assert_true(n_known < REFERENCES_MAX);
    known[n_known] = calloc(1, sizeof(*known[0]));
    assert_non_null(known[n_known]);
    train_ok(list.items, &known[n_known]->out);
    memcpy(known[n_known]->key, key, sizeof(key));
    return &known[n_known++]->out;
}

/* Trains STEPS:STAGES of the row into `dir`.from. */
static void train_first_part(const char *dir, const struct list *list, const char *saved)
{
    struct outcome out;
    struct list first = {0};
    const char *colon = strchr(saved, ':');
    assert_non_null(colon);
    for (int i = 0; i < list->n; i++)
        add_setting(&first, "%s", list->items[i]);
    add_setting(&first, "train.max_steps=%.*s", (int)(colon - saved), saved);
    add_setting(&first, "pipeline.stages=%s", colon + 1);
    add_setting(&first, "pipeline.schedule=1f1b");
    add_setting(&first, "pipeline.chunks=0");
    train_in(dir, NULL, first.items, &out);
    if (out.rc < 0)
        fail_msg("until it is saved: %s", pp_error_get()->text);
}

static void train_row(const char *const *cells, struct outcome *out)
{
    char dir[] = "bits-XXXXXX", run[32], from[32];
    struct list list = {0};
    const char *transport = cells[TRANSPORT];
    bool is_saved = strcmp(cells[SAVED], "-") != 0;
    assert_non_null(mkdtemp(dir));
    snprintf(run, sizeof(run), "%s/run", dir);
    snprintf(from, sizeof(from), "%s/from", dir);
    add_settings(&list, cells[MODEL]);
    add_setting(&list, "pipeline.stages=%s", cells[STAGES]);
    add_setting(&list, "pipeline.replicas=%s", cells[REPLICAS]);
    add_setting(&list, "train.zero=%s", cells[ZERO]);
    add_setting(&list, "pipeline.recompute=%s", cells[RECOMPUTE]);
    add_setting(&list, "run.threads=%s", cells[THREADS]);
    add_backend(&list, cells[DEVICE]);
    add_settings(&list, cells[OTHER]);
    add_schedule(&list, dir, cells);
    if (is_saved)
        train_first_part(from, &list, cells[SAVED]);
    if (strcmp(transport, "mpi") == 0 || strncmp(transport, "hosts:", 6) == 0) {
        int hosts = *transport == 'h' ? atoi(transport + 6) : 0;
        int ranks = atoi(cells[STAGES]) * atoi(cells[REPLICAS]);
        train_processes(run, &list, hosts, hosts > 0 ? ranks / hosts : 0, out);
    } else {
        add_setting(&list, "run.transport=%s", transport);
        train_in(run, is_saved ? from : NULL, list.items, out);
    }
    remove_folder(dir);
}

/* Both ended alike; near: the losses differ by at most this part. The steps before a run was saved
 * are not in its records. */
static void compare_outcomes(const char *what, const struct outcome *out,
                             const struct outcome *reference, double near, bool is_saved)
{
    int before = is_saved ? reference->n_steps - out->n_steps : 0;
    const double *steps = reference->step_loss + before;
    if (near == 0 && strcmp(out->sha, reference->sha) != 0)
        fail_msg("%s: weights %.8s, expected %.8s", what, out->sha, reference->sha);
    if (out->n_steps > 0 && reference->n_steps > 0) {
        CHECK_INT_EQ(out->n_steps + before, reference->n_steps);
        for (int t = 0; t < out->n_steps; t++)
            if (!(fabs(out->step_loss[t] - steps[t]) <= near * steps[t]))
                fail_msg("%s, step %d: loss %.9g, expected %.9g", what, t + before + 1,
                         out->step_loss[t], steps[t]);
    }
    if (!(fabs(out->test_loss - reference->test_loss) <= near * reference->test_loss))
        fail_msg("%s: test loss %.9g, expected %.9g", what, out->test_loss, reference->test_loss);
    if (near == 0 && out->test_accuracy != reference->test_accuracy)
        fail_msg("%s: accuracy %g, expected %g", what, out->test_accuracy,
                 reference->test_accuracy);
}

/* Trains one expanded row and compares it with its reference. */
static void check_case(const char *const *cells)
{
    struct outcome out;
    char what[LINE_MAX_BYTES];
    const char *transport = cells[TRANSPORT];
    if ((strcmp(transport, "mpi") == 0 || strncmp(transport, "hosts:", 6) == 0) &&
        !can_launch(transport)) {
        print_message("# SKIP no %s here\n", transport);
        return;
    }
    snprintf(what, sizeof(what), "%s, %s stages, %s", cells[SCHEDULE], cells[STAGES], cells[OTHER]);
    const struct outcome *reference = find_reference(cells);
    train_row(cells, &out);
    if (out.rc < 0)
        fail_msg("%s: %s", what, pp_error_get()->text);
    const char *near = strchr(cells[BITS], '~');
    if (*cells[BITS] == '!')
        assert_string_not_equal(out.sha, reference->sha);
    if (near || *cells[BITS] == '=')
        compare_outcomes(what, &out, reference, near ? atof(near + 1) : 0,
                         strcmp(cells[SAVED], "-") != 0);
}

/* Every schedule that may run this shape, with its default number of chunks or that of the cell
 * "all:CHUNKS". Returns how many did. */
static int check_all_schedules(const char *const *cells)
{
    int ran = 0;
    const char *chunks = strchr(cells[SCHEDULE], ':');
    struct list list = {0};
    int microbatches = 4, stages = atoi(cells[STAGES]);
    add_settings(&list, cells[MODEL]);
    for (int i = 0; i < list.n; i++)
        sscanf(list.items[i], "pipeline.microbatches=%d", &microbatches);
    for (const char *const *name = pp_schedule_names(); *name; name++) {
        const struct pp_schedule_ops *ops = pp_schedule_find(*name);
        struct pp_geometry g = {.stages = stages,
                                .chunks =
                                    chunks ? atoi(chunks + 1) : pp_schedule_default_chunks(ops),
                                .microbatches = microbatches};
        struct pp_plan *plan = NULL;
        bool is_recomputed = strcmp(cells[RECOMPUTE], "off") != 0;
        if (pp_schedule_check(ops, &g) < 0 || (is_recomputed && pp_schedule_find(*name)->proves) ||
            pp_plan_build(*name, &g, &plan) < 0)
            continue;
        pp_plan_destroy(&plan);
        char schedule[2 * PP_NAME_MAX];
        const char *with[COLUMNS];
        snprintf(schedule, sizeof(schedule), "%s:%d", *name, g.chunks);
        memcpy(with, cells, sizeof(with));
        with[SCHEDULE] = schedule;
        check_case(with);
        ran++;
    }
    return ran;
}

/* ---- the table */

/* Checks the line with each of the words of its first {A,B,...}, and so on for the other braces.
 * Returns how many trainings there were. */
static int check_line(const char *line)
{
    const char *open = strchr(line, '{'), *end = open ? strchr(open, '}') : NULL;
    int n = 0;
    if (!end) {
        char copy[LINE_MAX_BYTES], *rest = copy;
        const char *cells[COLUMNS];
        int k = 0;
        snprintf(copy, sizeof(copy), "%s", line);
        for (char *cell = strsep(&rest, "|"); cell && k < COLUMNS; cell = strsep(&rest, "|"))
            cells[k++] = trim_text(cell);
        if (k != COLUMNS || rest)
            fail_msg("a row needs %d columns: %s", COLUMNS, line);
        if (strncmp(cells[SCHEDULE], "all", 3) == 0)
            return check_all_schedules(cells);
        check_case(cells);
        return 1;
    }
    for (const char *word = open + 1; word < end;) {
        size_t bytes = strcspn(word, ",}");
        char with[LINE_MAX_BYTES];
        snprintf(with, sizeof(with), "%.*s%.*s%s", (int)(open - line), line, (int)bytes, word,
                 end + 1);
        n += check_line(with);
        word += bytes + 1;
    }
    return n;
}

static void check_row(void **state)
{
    int n = check_line(*state);
    if (n == 0)
        fail_msg("no schedule can run this shape");
}

/* Reads models, and the rows of the sections. */
static void read_rows(const char *path, char **sections)
{
    char line[LINE_MAX_BYTES];
    bool wanted = false;
    FILE *f = fopen(path, "r");
    if (!f) {
        perror(path);
        exit(66);
    }
    while (fgets(line, sizeof(line), f)) {
        char *text = trim_text(line);
        if (strncmp(text, "model ", 6) == 0 && n_models < MODELS_MAX) {
            char *settings = strstr(text, " = ");
            *settings = '\0';
            snprintf(models[n_models].name, sizeof(models[0].name), "%s", trim_text(text + 6));
            snprintf(models[n_models++].settings, sizeof(models[0].settings), "%s", settings + 3);
        } else if (strncmp(text, "section ", 8) == 0) {
            wanted = false;
            for (char **section = sections; *section; section++)
                wanted = wanted || strcmp(*section, trim_text(text + 8)) == 0;
        } else if (wanted && *text && *text != '#' && n_rows < ROWS_MAX) {
            char *copy = strdup(text);
            rows[n_rows++] = (struct CMUnitTest){copy, check_row, NULL, NULL, copy};
        }
    }
    fclose(f);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bits ROWS SECTION...\n");
        return 64;
    }
    read_rows(argv[1], argv + 2);
    if (n_rows == 0) {
        fprintf(stderr, "bits: no rows in these sections\n");
        return 64;
    }
    return _cmocka_run_group_tests("bits", rows, (size_t)n_rows, NULL, NULL);
}
