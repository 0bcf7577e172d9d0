/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli bench: speed with a verdict. What is measured and how: src/bench. */
#include <stdlib.h>
#include <string.h>

#include "ppcli/bench/bench.h"
#include "ppcli/base/files.h"
#include "build_info.h"
#include "commit.h"
#include "command.h"

#define REPEAT_MAX 1000
#define SECONDS_MAX 3600.0

struct request {
    int repeat, warmup, format; /* format -1: by the name of the file */
    double seconds, min_sps;
    const char *compare, *output, *trace;
    bool no_ceilings, handover, ops;
};

#define FORMATS "md|json|csv" /* enum pp_bench_format, in its order */

static enum pp_bench_format format_of(const struct request *q)
{
    static const char *const endings[] = {".json", ".csv"};
    const char *dot = q->output ? strrchr(q->output, '.') : NULL;
    if (q->format >= 0)
        return (enum pp_bench_format)q->format;
    for (int i = 0; dot && i < 2; i++)
        if (strcmp(dot, endings[i]) == 0)
            return (enum pp_bench_format)(PP_BENCH_JSON + i);
    return PP_BENCH_MD;
}

/* Checks that the name of the output does not promise a picture or a page, which bench does not
 * write. */
static int refuse_picture(const struct request *q)
{
    const char *dot = q->output ? strrchr(q->output, '.') : NULL;
    return !dot || q->format >= 0 || !pp_has_word(".pdf .svg .png .html .tex", dot)
               ? 0
               : pp_fail(
                     PP_EUSAGE,
                     "-o %s: bench writes .md, .json or .csv; ppcli report RESULT.json --figure "
                     "speed draws a picture of a .json",
                     q->output);
}

/* Puts the settings of bench without a config in front of the user's, which win. */
static int add_defaults(struct pp_cli_settings *s)
{
    static const struct pp_setting plain[] = {
        {"model.sizes", "784 512*16 10", "bench"}, {"data.dataset", "synthetic", "bench"},
        {"train.optimizer", "sgd", "bench"},       {"train.lr", "0.01", "bench"},
        {"train.batch_size", "512", "bench"},      {"pipeline.microbatches", "16", "bench"},
        {"pipeline.stages", "2", "bench"},         {"pipeline.schedule", "1f1b", "bench"},
    };
    const int n = sizeof(plain) / sizeof(plain[0]);
    if (s->n + n > PP_CLI_SETTINGS_MAX)
        return pp_fail(PP_EUSAGE, "too many settings; put them into a config file");
    memmove(s->items + n, s->items, (size_t)s->n * sizeof(s->items[0]));
    memcpy(s->items, plain, sizeof(plain));
    s->n += n;
    return 0;
}

/* Completes the output file, or abandons it if the result is not complete; it is not open if
 * results go to standard output. Returns rc: a result that fails a check (PP_ECHECK, PP_ECONFIG) is
 * written all the same. */
static int close_output(struct pp_file_write *file, int rc, bool complete)
{
    if (!complete)
        pp_file_abandon(file);
    else if (file->f)
        PP_TRY(pp_file_commit(file));
    return rc;
}

static int run_rows(const struct request *q, const struct pp_sweep *s, const char *same,
                    struct pp_bench *bench)
{
    struct pp_bench ceilings = {.n = 0};
    struct pp_bench_spec spec = {.repeat = q->repeat,
                                 .warmup = q->warmup,
                                 .seconds = q->seconds,
                                 .trace = q->trace,
                                 .stop = &pp_process_stop,
                                 .same = same,
                                 .before_abort = last_words_before_abort,
                                 .lost = pp_process_leave ? last_words_lost : NULL};
    PP_TRY(pp_bench_check(s->configs, s->n));
    if (!pp_mpi_launched())
        pp_signals_catch("ppcli: stopping after this measurement; Ctrl-C again quits without "
                         "the results\n");
    /* Before MPI starts: until this process joins in, the others sleep. */
    if (pp_launch_is_speaker() && !q->no_ceilings)
        PP_TRY(pp_bench_ceilings(s->configs[0], false, &ceilings));
    spec.ceilings = q->no_ceilings ? NULL : &ceilings;
    PP_TRY(pp_bench_run(s->configs, s->n, &spec, bench));
    bench->ceilings = ceilings.ceilings;
    bench->device = ceilings.device;
    return 0;
}

static void free_text(char **text)
{
    free(*text);
}

static int count_measured_rows(const struct pp_bench *b)
{
    int rows = 0;
    for (int i = 0; i < b->n; i++)
        rows += !b->rows[i].skipped[0];
    return rows;
}

/* Fails with a message that says what an interrupted bench has measured. */
static int tell_stopped(const struct request *q, const struct pp_bench *b)
{
    int rows = count_measured_rows(b);
    const char *file = q->output && rows > 0 ? q->output : "";
    return pp_fail(
        PP_ESTOPPED, "by a signal after %d of %d rounds; %d of %d rows were measured%s%s",
        rows > 0 ? b->repeat : 0, q->repeat, rows, b->n, file[0] ? " and are in " : "", file);
}

/* Measures rows, transfers or ops. Opens the file first, so that a result which cannot be written
 * costs no time. Only the process that prints for all writes anything. */
static int measure_rows(const struct request *q, const struct pp_sweep *s)
{
    enum pp_bench_format format = format_of(q);
    struct pp_bench_header header = {.version = PP_VERSION, .commit = PP_COMMIT};
    PP_OWN(pp_bench_fini) struct pp_bench bench = {.n = 0};
    struct pp_file_write file = {.f = NULL};
    bool speaks = pp_launch_is_speaker(), is_file = q->output && speaks;
    PP_OWN(free_text) char *same = NULL;
    PP_TRY(pp_start_same(s->configs, s->n, pp_cli_given(), &same));
    if (is_file)
        PP_TRY(pp_file_create(q->output, &file));
    if (speaks)
        pp_bench_describe(s->configs[0], pp_mpi_launched(), &header);
    if (q->handover || q->ops) {
        FILE *f = is_file ? file.f : stdout;
        int rc = q->handover
                     ? pp_bench_handover(&header, same, format, f)
                     : pp_bench_ops(s->configs[0], q->seconds, !q->no_ceilings, &header, format, f);
        return close_output(&file, rc, rc == 0 || rc == PP_ECHECK);
    }
    int rc = run_rows(q, s, same, &bench);
    if (rc == 0 && bench.stopped && count_measured_rows(&bench) == 0)
        rc = tell_stopped(q, &bench);
    if (rc == 0 && bench.speaks && is_file)
        rc = pp_bench_print(&bench, &header, format, file.f);
    rc = close_output(&file, rc, rc == 0);
    if (rc == 0 && bench.speaks)
        rc = pp_bench_print(&bench, &header, is_file ? PP_BENCH_MD : format, stdout);
    if (rc == 0 && bench.stopped)
        return tell_stopped(q, &bench);
    if (rc == 0 && bench.speaks)
        rc = pp_bench_verdict(&bench, q->min_sps);
    return rc;
}

static int sweep_and_measure(const char *word, struct pp_cli_settings *settings,
                             const struct request *q)
{
    PP_OWN(pp_sweep_fini) struct pp_sweep s = {.n = 0};
    if (word && strcmp(word, "-") == 0)
        return pp_fail(
            PP_EUSAGE,
            "bench reads its config once for every row: give a file, not standard input");
    if (!word)
        PP_TRY(add_defaults(settings));
    PP_TRY(pp_cli_load_sweep(word, settings, &s));
    PP_TRY(pp_start_check(s.configs[0]));
    return pp_launch_wanted(s.configs[0]) ? pp_launch_mpirun(s.configs[0], word, pp_sweep_ranks(&s))
                                          : measure_rows(q, &s);
}

int cmd_bench(int argc, char **argv)
{
    struct request q = {.repeat = 5, .warmup = -1, .format = -1, .seconds = 1};
    struct pp_cli_settings settings = {0};
    const struct pp_cli_option options[] = {
        {"repeat", 0, PP_CLI_INT, &q.repeat, "N", "rounds; 5"},
        {"warmup", 0, PP_CLI_INT, &q.warmup, "STEPS",
         "untimed steps at first; a tenth, at least 2"},
        {"time", 0, PP_CLI_AMOUNT, &q.seconds, "SECONDS",
         "about how long one measurement takes; 1"},
        {"format", 0, PP_CLI_CHOICE, &q.format, FORMATS, "what to print"},
        {"output", 'o', PP_CLI_STRING, &q.output, "FILE",
         "write the result there and a table to stdout"},
        {"min-sps", 0, PP_CLI_AMOUNT, &q.min_sps, "N", "exit 1 when a row has fewer samples/s"},
        {"compare", 0, PP_CLI_STRING, &q.compare, "OLD.json",
         "NEW.json: compare two results instead"},
        {"handover", 0, PP_CLI_FLAG, &q.handover, NULL,
         "instead: what a message between two ranks costs"},
        {"ops", 0, PP_CLI_FLAG, &q.ops, NULL, "instead: the cost of F, I and W of each op"},
        {"trace", 0, PP_CLI_STRING, &q.trace, "FILE", "also trace 20 untimed steps of every row"},
        {"no-ceilings", 0, PP_CLI_FLAG, &q.no_ceilings, NULL, "do not measure the ceilings"},
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_bench, options, &settings, words, 1));
    if (q.output && strcmp(q.output, "-") == 0)
        q.output = NULL;
    if (q.compare) {
        if (!words[0])
            return pp_fail(PP_EUSAGE, "--compare needs two files: --compare OLD.json NEW.json");
        return pp_launch_is_speaker() ? pp_bench_compare(q.compare, words[0], stdout) : 0;
    }
    PP_TRY(refuse_picture(&q));
    if (q.repeat < 1 || q.repeat > REPEAT_MAX)
        return pp_fail(PP_EUSAGE, "--repeat needs 1 to %d, not %d", REPEAT_MAX, q.repeat);
    if (q.seconds > SECONDS_MAX)
        return pp_fail(PP_EUSAGE, "--time takes at most %g seconds, not %g", SECONDS_MAX,
                       q.seconds);
    if (q.warmup < -1)
        return pp_fail(PP_EUSAGE, "--warmup needs 0 or more steps, not %d", q.warmup);
    return sweep_and_measure(words[0], &settings, &q);
}
