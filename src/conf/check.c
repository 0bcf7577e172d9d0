/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that involve several keys. A check runs only when all its keys hold a legal value, else it
 * would complain about values that the user did not write. It blames the key that the user set last
 * and says what would work.
 */
#include "conf.h"

#include <string.h>

#include "ppcli/conf/config.h"
#include "ppcli/base/base.h"

static int option_index(const char *key)
{
    int i = conf_option_index(key);
    pp_assert(i >= 0);
    return i;
}

static bool keys_are_good(const struct pp_config *cfg, const char *const *keys)
{
    for (int i = 0; keys[i]; i++)
        if (cfg->source->origins[option_index(keys[i])].bad)
            return false;
    return true;
}

/* Adds a problem of several keys at the place of one: of the key that the user set last on the
 * command line, else of one in the file, else of the first key. */
__attribute__((format(printf, 3, 4))) static void
blame(struct pp_config *cfg, const char *const *keys, const char *fmt, ...)
{
    static const enum conf_from order[] = {CONF_FROM_FILE, CONF_FROM_SETTING};
    const char *key = keys[0];
    char text[CONF_WHY_MAX];
    va_list args;
    for (int o = 0; o < 2; o++)
        for (int i = 0, found = 0; keys[i] && !found; i++)
            if ((found = cfg->source->origins[option_index(keys[i])].from == order[o]))
                key = keys[i];
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    pp_config_problem(cfg, key, "%s: %s", key, text);
}

static void check_batch(struct pp_config *cfg)
{
    static const char *const keys[] = {"pipeline.microbatches", "pipeline.replicas",
                                       "train.batch_size", NULL};
    static const char *const copies[] = {"pipeline.replicas", "train.batch_size", NULL};
    if (!keys_are_good(cfg, keys))
        return;
    int m = cfg->pipeline.microbatches, d = cfg->pipeline.replicas, b = cfg->train.batch_size;
    int share = b / d; /* rows of the smallest replica */
    if (share >= m)
        return;
    if (share == 0) {
        blame(cfg, copies,
              "a batch of %d has no sample for each of %d replicas; use "
              "train.batch_size = %lld or more, or pipeline.replicas = %d or fewer%s",
              b, d, (long long)m * d, b < m ? b : b / m,
              b < m ? " with pipeline.microbatches = 1" : "");
        return;
    }
    blame(cfg, keys,
          "each of %d replica%s has %d sample%s of a batch of %d, too few for %d "
          "micro-batches; use pipeline.microbatches = %d or fewer, or "
          "train.batch_size = %lld or more",
          d, pp_plural(d), share, pp_plural(share), b, m, share, (long long)m * d);
}

/* Checks that an explicit cut is given by one key only and has one piece for each chunk. */
static void check_cut(struct pp_config *cfg)
{
    static const char *const keys[] = {"pipeline.assignment", "pipeline.split_at", NULL};
    static const char *const counts[] = {"pipeline.stages", "pipeline.chunks", NULL};
    bool split = cfg->pipeline.split_at[0];
    const char *key = keys[split], *text = split ? cfg->pipeline.split_at : cfg->pipeline.ranges;
    if (!keys_are_good(cfg, keys))
        return;
    if (split && cfg->pipeline.assignment != PP_ASSIGN_AUTO) {
        blame(cfg, keys, "assignment and split_at both define the cut; use only one");
        return;
    }
    if (split)
        cfg->pipeline.assignment = PP_ASSIGN_EXPLICIT;
    if (!keys_are_good(cfg, counts) || cfg->pipeline.assignment != PP_ASSIGN_EXPLICIT)
        return;
    int stages = cfg->pipeline.stages, chunks = cfg->pipeline.chunks, n = 1 + split;
    for (; *text; text++)
        n += *text == (split ? ' ' : '|');
    if (chunks == 0 && stages > 1 && n % stages == 0)
        chunks = n / stages; /* the layout checks the chunks of the schedule */
    const char *what = split ? "piece" : "range", *plural = pp_plural(n);
    if (chunks > 1 && n != stages * chunks) {
        pp_config_problem(cfg, key, "%s: %d %s%s for %d stages of %d chunks; %s", key, n, what,
                          plural, stages, chunks,
                          split ? "name the first layer of every chunk but the first"
                                : "write one for each chunk, in model order");
    } else if (chunks <= 1 && n != stages) {
        pp_config_problem(cfg, key, "%s: %d %s%s for %d stage%s; %s, or pipeline.stages = %d", key,
                          n, what, plural, stages, pp_plural(stages),
                          split ? "name the first layer of every stage but the first"
                                : "write one for each stage",
                          n);
    }
}

static void check_slower(struct pp_config *cfg)
{
    static const char *const keys[] = {"pipeline.slower", "pipeline.stages", NULL};
    int n = cfg->pipeline.slower.n, stages = cfg->pipeline.stages;
    if (keys_are_good(cfg, keys) && n > 0 && n != stages)
        blame(cfg, keys, "%d numbers for %d stages; write one for each", n, stages);
}

static void check_nonfinite(struct pp_config *cfg)
{
    static const char *const keys[] = {"train.nonfinite", "run.dir", NULL};
    if (keys_are_good(cfg, keys) && cfg->train.nonfinite == PP_NONFINITE_REWIND &&
        cfg->run.dir[0] == '\0') {
        blame(cfg, keys,
              "rewind goes back to a checkpoint, and without a run folder there "
              "is none; use train.nonfinite = skip, or name a run.dir");
    }
}

static void check_launch(struct pp_config *cfg, const struct pp_names *names)
{
    static const char *const hosts[] = {"run.hosts", "run.launch", NULL};
    if (cfg->run.hosts[0] && cfg->run.launch == PP_LAUNCH_AUTO)
        cfg->run.launch = PP_LAUNCH_MPIRUN;
    if (cfg->run.hosts[0] && cfg->run.launch == PP_LAUNCH_THREADS)
        blame(cfg, hosts,
              "threads have no hosts; use run.launch = mpirun, or no hosts (--hosts '')");
    static const char *const keys[] = {"run.transport", "run.launch", NULL};
    if (!keys_are_good(cfg, keys) || !names || !names->joins)
        return;
    const char *transport = cfg->run.transport;
    if (cfg->run.launch == PP_LAUNCH_THREADS && !names->joins(transport, false)) {
        blame(cfg, keys,
              "transport = %s needs a process for each rank, but launch = threads "
              "starts none; use run.launch = mpirun or run.transport = auto",
              transport);
    }
    if (cfg->run.launch == PP_LAUNCH_MPIRUN && !names->joins(transport, true)) {
        blame(cfg, keys,
              "launch = mpirun makes each rank a process, which transport = "
              "%s cannot connect; use run.transport = auto or run.launch = threads",
              transport);
    }
}

static void check_outputs(struct pp_config *cfg)
{
    static const char *const board[] = {"run.tensorboard", "run.dir", NULL};
    if (keys_are_good(cfg, board) && cfg->run.tensorboard && !cfg->run.dir[0]) {
        conf_note(cfg, option_index(board[0]),
                  "%s has no effect without a run folder (run.dir is empty)", board[0]);
    }
}

/* Checks that a batch has at least as many micro-batches as train.coalesce sums weight gradients of
 * at once. */
static void check_coalesce(struct pp_config *cfg)
{
    static const char *const counts[] = {"train.coalesce", "pipeline.microbatches", NULL};
    int k = cfg->train.coalesce, m = cfg->pipeline.microbatches;
    if (keys_are_good(cfg, counts) && k > m) {
        blame(cfg, counts,
              "weight gradients of %d micro-batches at a time, but a batch has %d; "
              "use train.coalesce = %d or fewer, or more pipeline.microbatches",
              k, m, m);
    }
}

/* Returns whether somebody set the key to a value other than its default. The config that a run
 * saves sets all keys, so it is not enough that a key is set. */
static bool is_set(const struct pp_config *cfg, const char *key)
{
    char value[PP_NAME_MAX]; /* no default is longer */
    const struct conf_option *o = conf_option(option_index(key));
    const struct conf_origin *origin = &cfg->source->origins[option_index(key)];
    return !origin->bad && origin->from != CONF_FROM_DEFAULT &&
           (conf_value_print(o, cfg, value, sizeof(value)) >= sizeof(value) ||
            strcmp(value, o->def) != 0);
}

static bool meets_need(const char *value, const char *with)
{
    return with[0] == '!' ? strcmp(value, with + 1) != 0 : pp_has_word(with, value);
}

const struct conf_need *conf_unmet_need(const struct pp_config *cfg, const struct conf_option *o)
{
    bool warms_up = cfg->train.warmup_steps > 0 || cfg->train.warmup_epochs > 0;
    if (warms_up && strcmp(o->name, "train.lr_by") == 0)
        return NULL;
    static const struct conf_need device = {"run.backend", "auto cuda"};
    if (strcmp(o->name, "run.precision") == 0 && cfg->run.precision == PP_PRECISION_TF32 &&
        !pp_has_word(device.with, cfg->run.backend))
        return &device;
    for (int i = 0; i < CONF_NEEDS_MAX && o->needs[i].key; i++) {
        char value[PP_NAME_MAX];
        conf_value_print(conf_option(option_index(o->needs[i].key)), cfg, value, sizeof(value));
        if (!meets_need(value, o->needs[i].with))
            return &o->needs[i];
    }
    return NULL;
}

/* Warns about keys that are set but have no effect. A key that only other types of models use is an
 * error. */
static void check_needs(struct pp_config *cfg)
{
    static const char *const type[] = {"model.type", NULL};
    for (int i = 0; i < conf_option_count(); i++) {
        const struct conf_option *o = conf_option(i);
        const struct conf_need *need = conf_unmet_need(cfg, o);
        char value[PP_NAME_MAX], words[128];
        if (!is_set(cfg, o->name))
            continue;
        if (o->of && keys_are_good(cfg, type) && !pp_has_word(o->of, cfg->model.type)) {
            pp_config_problem(cfg, o->name, "%s is not used by model.type = %s (only by %s)",
                              o->name, cfg->model.type, pp_text_list(o->of, words, sizeof(words)));
        } else if (need && keys_are_good(cfg, (const char *const[]){need->key, NULL})) {
            const char *with = need->with + (strncmp(need->with, "auto ", 5) == 0 ? 5 : 0);
            conf_value_print(conf_option(option_index(need->key)), cfg, value, sizeof(value));
            conf_note(cfg, i, "%s has no effect with %s = %s, only with %s", o->name, need->key,
                      value, *with == '!' ? "more" : pp_text_list(with, words, sizeof(words)));
        }
    }
}

/* Checks that the keys of the learning rate agree: warm-up is given in steps or in epochs, and not
 * in steps if lr_by = epoch; lr_schedule = multistep has milestones, wsd has decay_steps; and
 * lr_floor is not above lr. */
static void check_learning_rate(struct pp_config *cfg)
{
    static const char *const warm[] = {"train.warmup_steps", "train.warmup_epochs", "train.lr_by",
                                       NULL};
    static const char *const falls[] = {"train.lr_milestones", "train.lr_schedule", NULL};
    if (keys_are_good(cfg, warm) && cfg->train.warmup_steps > 0) {
        if (cfg->train.warmup_epochs > 0)
            blame(cfg, warm, "a warm-up has steps or epochs; use one of the two keys");
        else if (cfg->train.lr_by == PP_LR_BY_EPOCH)
            blame(cfg, warm,
                  "lr_by = epoch changes the learning rate between epochs only; use "
                  "train.warmup_epochs, or train.lr_by = step");
    }
    if (keys_are_good(cfg, falls) && cfg->train.lr_schedule == PP_LR_MULTISTEP &&
        cfg->train.lr_milestones.n == 0)
        blame(cfg, falls, "multistep changes nothing without train.lr_milestones");
    static const char *const decay[] = {"train.decay_steps", "train.lr_schedule", NULL};
    if (keys_are_good(cfg, decay) && cfg->train.lr_schedule == PP_LR_WSD &&
        cfg->train.decay_steps == 0)
        blame(cfg, decay,
              "wsd changes nothing without train.decay_steps, such as a tenth of the run's steps");
    static const char *const floors[] = {"train.lr_floor", "train.lr", "train.lr_schedule", NULL};
    if (keys_are_good(cfg, floors) && cfg->train.lr_floor > cfg->train.lr &&
        !conf_unmet_need(cfg, conf_option(option_index(floors[0]))))
        blame(cfg, floors, "lr_floor is above lr, so the learning rate cannot fall to it");
}

/* Checks that muon can run: it has no bf16 products, and muon_lr needs an lr above 0. */
static void check_muon(struct pp_config *cfg)
{
    static const char *const keys[] = {"train.optimizer", "run.precision", NULL};
    static const char *const rates[] = {"train.muon_lr", "train.lr", NULL};
    if (keys_are_good(cfg, keys) && cfg->train.optimizer == PP_OPT_MUON &&
        cfg->run.precision == PP_PRECISION_BF16)
        blame(cfg, keys, "muon has no bf16 products; use run.precision = f32 or tf32");
    if (keys_are_good(cfg, rates) && cfg->train.muon_lr > 0 && !(cfg->train.lr > 0))
        blame(cfg, rates, "muon_lr follows the schedule of lr, which is 0; use a lr above 0");
}

/* Checks that the metric of checkpoint.best is one of the loss. */
static void check_metric(struct pp_config *cfg)
{
    static const char *const keys[] = {"checkpoint.best", "train.loss", NULL};
    if (!keys_are_good(cfg, keys))
        return;
    enum pp_metric metric = cfg->checkpoint.best;
    bool errors = metric == PP_METRIC_R2 || metric == PP_METRIC_MAE || metric == PP_METRIC_RMSE,
         numbers = pp_loss_takes_numbers(cfg->train.loss) && cfg->train.loss != PP_LOSS_BCE;
    if (errors && !numbers)
        blame(cfg, keys, "r2, mae and rmse are of numbers, but the loss is %s; use %s",
              pp_loss_name(cfg->train.loss), "checkpoint.best = test_loss or accuracy");
    if (metric == PP_METRIC_ACCURACY && numbers)
        blame(cfg, keys, "accuracy is of classes, but the loss is %s; use %s",
              pp_loss_name(cfg->train.loss), "checkpoint.best = test_loss, r2, mae or rmse");
}

/* Checks that ranks can share the GPUs as run.partition_sms asks. Checks nothing while run.backend
 * is auto, because it is not yet known whether there are GPUs. */
static void check_devices(struct pp_config *cfg)
{
    const struct conf_option *o = conf_option(option_index("run.partition_sms"));
    static const char *const parts[] = {
        "run.partition_sms", "run.launch",        "run.devices", "run.backend",
        "pipeline.stages",   "pipeline.replicas", NULL};
    static const char *const launch[] = {"run.partition_sms", "run.launch", NULL};
    if (!keys_are_good(cfg, parts) || !cfg->run.partition_sms || conf_unmet_need(cfg, o))
        return;
    int ranks = cfg->pipeline.stages * cfg->pipeline.replicas;
    if (cfg->run.launch == PP_LAUNCH_MPIRUN) {
        blame(cfg, launch,
              "processes that share a GPU take turns on the whole of it, only "
              "threads of one process can have parts; use run.launch = threads or "
              "run.partition_sms = off");
    } else if (ranks == 1 || cfg->run.n_devices >= ranks) {
        conf_note(cfg, option_index(parts[0]), "%s has no effect: %s", parts[0],
                  ranks == 1 ? "one rank has the whole GPU" : "each rank has a GPU of its own");
    }
}

void conf_check(struct pp_config *cfg, const struct pp_names *names)
{
    check_batch(cfg);
    check_cut(cfg);
    check_launch(cfg, names);
    check_slower(cfg);
    check_nonfinite(cfg);
    check_outputs(cfg);
    check_coalesce(cfg);
    check_learning_rate(cfg);
    check_muon(cfg);
    check_metric(cfg);
    check_devices(cfg);
    check_needs(cfg);
}
