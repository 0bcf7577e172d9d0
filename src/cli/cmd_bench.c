/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli bench: speed with a verdict. What is measured and how: src/bench. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/bench.h"
#include "ppcli/err.h"
#include "ppcli/io.h"
#include "ppcli/log.h"
#include "build_info.h"
#include "command.h"
#include "last_words.h"
#include "commit.h"
#include "launch.h"
#include "sweep.h"

#define REPEAT_MAX 1000
#define SECONDS_MAX 3600.0

static void help(FILE *f)
{
    fputs("  ppcli bench                                     a clean 2-stage pipeline, no files\n"
          "  ppcli bench --microbatches 4,8,16 --stages 1,2 --schedule gpipe,1f1b,zb-h1\n"
          "  ppcli bench mnist.ini --stages 1,2 -o new.json  a table, and all samples in a file\n"
          "  ppcli bench --compare old.json new.json         what has changed, and how sure\n"
          "  ppcli bench mnist.ini --min-sps 50000           exit 1 when a row is slower\n"
          "  ppcli bench --launch mpirun                     one process per rank\n"
          "  ppcli bench --handover                          a message between two ranks\n"
          "  ppcli bench --engine                            the engine against a plain loop\n"
          "\n"
          "Options that shape a run take lists; every combination is a row. bench first measures\n"
          "the ceilings of this machine. Then it trains every row for the same steps, in rounds,\n"
          "every second round backwards.\n"
          "The weights of a row must be those of the run with one stage, bit for bit. A row that\n"
          "fails is INVALID: it shows no speed and the exit code is 1. A row that its schedule\n"
          "refuses is skipped and says why.\n"
          "Without CONFIG: model 784-512x16-10, synthetic data, batch 512, 16 micro-batches,\n"
          "2 stages, 1f1b.\n",
          f);
}

/* ---- words */

struct request {
    int repeat, warmup;
    const char *time, *format, *min_sps, *compare, *output, *trace;
    bool no_ceilings, handover, engine;
};

static int read_number(const char *option, const char *text, double most, double *out)
{
    char *end;
    errno = 0;
    double x = strtod(text, &end);
    if (end == text || *end || errno || !(x > 0 && x <= most)) {
        return pp_fail(PP_EUSAGE, "--%s wants a number above 0 and up to %g, not '%s'", option,
                       most, text);
    }
    *out = x;
    return 0;
}

static const char *const format_names[] = {[PP_BENCH_MD] = "md",
                                           [PP_BENCH_JSON] = "json",
                                           [PP_BENCH_JSONL] = "jsonl",
                                           [PP_BENCH_CSV] = "csv",
                                           NULL};

/* What --format says, else what the name of the file ends in, else Markdown. */
static int find_format(const struct request *q, enum pp_bench_format *out)
{
    const char *dot = q->output ? strrchr(q->output, '.') : NULL;
    const char *name = q->format ? q->format : dot ? dot + 1 : "md";
    for (int i = 0; format_names[i]; i++) {
        if (strcmp(format_names[i], name) == 0) {
            *out = (enum pp_bench_format)i;
            return 0;
        }
    }
    if (!q->format) {
        *out = PP_BENCH_MD;
        return 0;
    }
    const char *near = pp_nearest(name, format_names);
    return pp_fail(PP_EUSAGE, "unknown format '%s'; %s%s%s", name,
                   near ? "did you mean '" : "there are md, json, jsonl and csv", near ? near : "",
                   near ? "'?" : "");
}

/* In front of what the user said, which wins. */
static int add_defaults(struct pp_cli_settings *s, bool config)
{
    static const struct pp_setting plain[] = {
        {"model.sizes", "784 512*16 10", "bench"}, {"data.dataset", "synthetic", "bench"},
        {"train.optimizer", "sgd", "bench"},       {"train.lr", "0.01", "bench"},
        {"train.batch_size", "512", "bench"},      {"pipeline.microbatches", "16", "bench"},
        {"pipeline.stages", "2", "bench"},         {"pipeline.schedule", "1f1b", "bench"},
    };
    int n = config ? 0 : (int)(sizeof(plain) / sizeof(plain[0]));
    if (s->n + n > PP_CLI_SETTINGS_MAX)
        return pp_fail(PP_EUSAGE, "too many settings; put them into a config file");
    memmove(s->items + n, s->items, (size_t)s->n * sizeof(s->items[0]));
    if (n > 0)
        memcpy(s->items, plain, sizeof(plain));
    s->n += n;
    return 0;
}

/* ---- measuring */

static void wipe(void)
{
    fputs("\r\033[K", stderr);
    fflush(stderr);
}

static void progress(void *ctx, int round, int rounds, int row, int rows,
                     const struct pp_bench_row *what)
{
    (void)ctx;
    fprintf(stderr, "\r\033[Kround %d/%d, row %d/%d: stages %d, %s, %d micro-batches", round,
            rounds, row, rows, what->stages, what->schedule, what->microbatches);
    fflush(stderr);
}

static int most_ranks(const struct sweep *s)
{
    int most = 1;
    for (int i = 0; i < s->n; i++) {
        int ranks = s->configs[i]->pipeline.stages * s->configs[i]->pipeline.replicas;
        most = ranks > most ? ranks : most;
    }
    return most;
}

/* What the figures mean for the exit code. */
static int verdict(const struct pp_bench *b, double min_sps)
{
    int invalid = pp_bench_invalid(b), slow = 0, ran = 0;
    for (int i = 0; i < b->n; i++) {
        struct pp_bench_figures f;
        pp_bench_figures(b, &b->rows[i], &f);
        ran += !b->rows[i].skipped[0];
        slow += f.valid && f.sps_mean < min_sps;
    }
    if (ran == 0)
        return pp_fail(PP_ECONFIG, "no row can run: %s", b->rows[0].skipped);
    if (invalid > 0) {
        return pp_fail(PP_ECHECK, "%d of %d row%s INVALID", invalid, b->n,
                       b->n == 1 ? " is" : "s are");
    }
    if (slow > 0) {
        return pp_fail(PP_ECHECK, "%d of %d row%s slower than %g samples/s", slow, b->n,
                       b->n == 1 ? " is" : "s are", min_sps);
    }
    return 0;
}

/* Opened before anything is measured: what cannot be written is not worth the time. f is the file,
 * or standard output; the processes that do not speak write nothing. */
struct output {
    struct pp_file_write file;
    FILE *f;
    bool is_file;
};

static int output_open(const struct request *q, struct output *out)
{
    *out = (struct output){.f = stdout, .is_file = q->output && launch_speaks()};
    if (out->is_file) {
        PP_TRY(pp_file_create(q->output, &out->file));
        out->f = out->file.f;
    }
    return 0;
}

/* A verdict about what was measured (PP_ECHECK, PP_ECONFIG) does not keep it from being written. */
static int output_close(struct output *out, int rc, bool complete)
{
    if (out->is_file && complete)
        PP_TRY(pp_file_commit(&out->file));
    else if (out->is_file)
        pp_file_abandon(&out->file);
    return rc;
}

/* Of the device that the first row begins with, where there is one. */
static int measure_device(const struct pp_config *cfg, struct pp_device_ceilings *out)
{
    struct pp_backend_choice choice = pp_backend_choice_of(cfg);
    return choice.ops && choice.ops->devices ? pp_device_ceilings_measure(&choice, 0, out) : 0;
}

static int run_rows(const struct request *q, const struct sweep *s, double seconds,
                    struct pp_bench *bench)
{
    bool live = pp_term_live(STDERR_FILENO), processes = pp_mpi_launched(NULL);
    struct pp_ceilings ceilings = {0};
    struct pp_device_ceilings device = {.name = ""};
    void (*leave)(int rc) = pp_cli_leave();
    PP_TRY(pp_bench_check(s->configs, s->n));
    if (launch_speaks() && !q->no_ceilings) {
        /* before MPI starts: until this process joins in, the others sleep */
        struct pp_ceiling_spec spec = {.whole_machine = processes, .scale = 1};
        PP_TRY(pp_ceilings_measure(&spec, &ceilings));
        PP_TRY(measure_device(s->configs[0], &device));
    }
    struct pp_bench_spec spec = {.repeat = q->repeat,
                                 .warmup = q->warmup,
                                 .seconds = seconds,
                                 .trace = q->trace,
                                 .progress = live ? progress : NULL,
                                 .before_abort = last_words_before_abort,
                                 .lost = leave ? last_words_lost : NULL,
                                 .lost_ctx = &leave};
    int rc = pp_bench_run(s->configs, s->n, &spec, bench);
    if (live)
        wipe();
    PP_TRY(rc);
    bench->ceilings = ceilings;
    bench->device = device;
    return 0;
}

static int measure(const struct request *q, const struct sweep *s)
{
    enum pp_bench_format format;
    double min_sps = 0, seconds = 1;
    struct pp_bench_header header = {.version = PP_VERSION, .commit = PP_COMMIT};
    struct pp_bench bench;
    struct output out;
    PP_TRY(find_format(q, &format));
    if (q->time)
        PP_TRY(read_number("time", q->time, SECONDS_MAX, &seconds));
    if (q->min_sps)
        PP_TRY(read_number("min-sps", q->min_sps, 1e15, &min_sps));
    PP_TRY(output_open(q, &out));
    if (launch_speaks())
        pp_bench_describe(s->configs[0], pp_mpi_launched(NULL), &header);
    int rc = run_rows(q, s, seconds, &bench);
    if (rc < 0)
        return output_close(&out, rc, false);
    if (bench.speaks && out.is_file)
        rc = pp_bench_print(&bench, &header, format, out.f);
    rc = output_close(&out, rc, rc == 0);
    if (rc == 0 && bench.speaks)
        rc = pp_bench_print(&bench, &header, out.is_file ? PP_BENCH_MD : format, stdout);
    if (rc == 0 && bench.speaks)
        rc = verdict(&bench, min_sps);
    pp_bench_fini(&bench);
    return rc;
}

/* Next to nothing to compute: what is left is the engine. */
static int load_tiny(struct pp_config **out)
{
    static const struct pp_setting plain[] = {
        {"model.sizes", "8 8 8", "bench"},       {"data.dataset", "synthetic", "bench"},
        {"data.train_samples", "8192", "bench"}, {"data.test_samples", "64", "bench"},
        {"train.optimizer", "sgd", "bench"},     {"pipeline.microbatches", "1", "bench"},
    };
    return pp_config_load(NULL, plain, (int)(sizeof(plain) / sizeof(plain[0])), pp_cli_names(),
                          out);
}

static int engine(const struct request *q, const struct pp_config *cfg,
                  const struct pp_bench_header *header, enum pp_bench_format format, FILE *f)
{
    struct pp_config *tiny = NULL;
    void (*leave)(int rc) = pp_cli_leave();
    struct pp_bench_engine_spec spec = {.cfg = cfg,
                                        .repeat = q->repeat,
                                        .seconds = 1,
                                        .lost = leave ? last_words_lost : NULL,
                                        .lost_ctx = &leave};
    if (pp_mpi_launched(NULL))
        return pp_fail(PP_EUSAGE, "--engine runs its ranks as threads: leave out mpirun");
    if (q->time)
        PP_TRY(read_number("time", q->time, SECONDS_MAX, &spec.seconds));
    int rc = load_tiny(&tiny);
    if (rc == 0) {
        tiny->run = cfg->run;
        spec.tiny = tiny;
        rc = pp_bench_engine(&spec, header, format, f);
    }
    pp_config_destroy(&tiny);
    return rc;
}

/* --handover and --engine: to the file, or to standard output. */
static int other(const struct request *q, const struct sweep *s)
{
    enum pp_bench_format format;
    struct pp_bench_header header = {.version = PP_VERSION, .commit = PP_COMMIT};
    struct output out;
    bool speaks = launch_speaks();
    PP_TRY(find_format(q, &format));
    PP_TRY(output_open(q, &out));
    if (speaks)
        pp_bench_describe(s->configs[0], pp_mpi_launched(NULL), &header);
    int rc = q->handover ? pp_bench_handover(&header, format, speaks, out.f)
                         : engine(q, s->configs[0], &header, format, out.f);
    return output_close(&out, rc, rc == 0 || rc == PP_ECHECK);
}

static int sweep_and_measure(const char *word, struct pp_cli_settings *settings,
                             const struct request *q)
{
    struct sweep s;
    if (word && strcmp(word, "-") == 0)
        return pp_fail(PP_EUSAGE, "bench loads its config once for every row: give a file");
    PP_TRY(add_defaults(settings, word != NULL));
    PP_TRY(sweep_load(word, settings, &s));
    int rc = s.configs[0]->run.launch == PP_LAUNCH_MPIRUN && !pp_mpi_launched(NULL)
                 ? launch_mpirun(most_ranks(&s))
             : q->handover || q->engine ? other(q, &s)
                                        : measure(q, &s);
    sweep_fini(&s);
    return rc;
}

static int run(int argc, char **argv)
{
    struct request q = {.repeat = 5, .warmup = -1};
    struct pp_cli_settings settings = {0};
    const struct pp_cli_option options[] = {
        {"repeat", 0, PP_CLI_INT, &q.repeat, "N", "rounds; 5"},
        {"warmup", 0, PP_CLI_INT, &q.warmup, "STEPS",
         "steps before the clock starts; a tenth, at least 2"},
        {"time", 0, PP_CLI_STRING, &q.time, "SECONDS", "about how long one measurement takes; 1"},
        {"format", 0, PP_CLI_STRING, &q.format, "md|json|jsonl|csv", "what to print"},
        {"output", 'o', PP_CLI_STRING, &q.output, "FILE",
         "write the result there and a table to stdout"},
        {"min-sps", 0, PP_CLI_STRING, &q.min_sps, "N", "exit 1 when a row has fewer samples/s"},
        {"compare", 0, PP_CLI_STRING, &q.compare, "OLD.json",
         "NEW.json: compare two results instead"},
        {"handover", 0, PP_CLI_FLAG, &q.handover, NULL,
         "instead: what a message between two ranks costs"},
        {"engine", 0, PP_CLI_FLAG, &q.engine, NULL,
         "instead: what the engine costs beyond computing"},
        {"trace", 0, PP_CLI_STRING, &q.trace, "FILE",
         "also trace 20 untimed steps of every row, for ui.perfetto.dev"},
        {"no-ceilings", 0, PP_CLI_FLAG, &q.no_ceilings, NULL, "do not measure the ceilings"},
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_bench, options, &settings, words, 1));
    if (q.output && strcmp(q.output, "-") == 0)
        q.output = NULL;
    if (q.compare) {
        if (!words[0])
            return pp_fail(PP_EUSAGE, "--compare wants two files: --compare OLD.json NEW.json");
        return launch_speaks() ? pp_bench_compare(q.compare, words[0], stdout) : 0;
    }
    if (q.repeat < 1 || q.repeat > REPEAT_MAX)
        return pp_fail(PP_EUSAGE, "--repeat wants 1 to %d, not %d", REPEAT_MAX, q.repeat);
    if (q.warmup < -1)
        return pp_fail(PP_EUSAGE, "--warmup wants 0 or more steps, not %d", q.warmup);
    return sweep_and_measure(words[0], &settings, &q);
}

const struct pp_command command_bench = {
    .name = "bench",
    .summary = "measure speed, with ceilings and a check of the weights",
    .words = "[CONFIG]",
    .run = run,
    .help = help,
};
