/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares a run: decides everything that follows from the config, identically on every rank,
 * before any message. */
#include "layout.h"
#include "division.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"

int pp_run_samples(const struct pp_config *cfg, enum pp_run_need need, enum pp_split split,
                   int *out)
{
    int rc = pp_dataset_count(cfg, split, out);
    if (rc == 0 || need == PP_RUN_REAL)
        return rc;
    const struct pp_dataset_info *info = pp_dataset_info(cfg->data.dataset);
    bool train = split == PP_SPLIT_TRAIN;
    int known = !info ? 0 : train ? info->train_n : info->test_n;
    int64_t windows = (int64_t)cfg->train.batch_size * (train ? cfg->train.eval_interval : 1);
    if (rc == PP_ENOINPUT && info && info->windows && windows <= INT_MAX)
        known =
            (int)windows; /* training: as many as the config asks for; test: one batch is enough */
    int limit = train ? cfg->data.train_samples : cfg->data.test_samples;
    if (rc == PP_ENOINPUT && known == 0)
        known = limit; /* the user's own files, which do not exist yet */
    if (known == 0)
        return rc;
    pp_error_clear();
    *out = limit > 0 && limit < known ? limit : known;
    return 0;
}

struct pp_backend_choice pp_run_backend(const struct pp_run *run)
{
    struct pp_backend_choice choice = pp_backend_choice_with(run->backend, run->cfg);
    bool open = run->cfg->run.threads == 0 && pp_backend_sums_in_order(&choice);
    if (open && run->places.processors > 0)
        choice.threads = run->places.processors;
    return choice;
}

int pp_run_model(struct pp_config *cfg, struct pp_model **out)
{
    struct pp_data_input data;
    PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
    PP_TRY(pp_dataset_check_keys(cfg));
    PP_TRY(pp_dataset_blame(cfg, pp_dataset_input(cfg, &data)));
    const char *type = cfg->model.type;
    bool words = strcmp(type, "sequential") == 0;
    int n; /* counting names the absent file */
    if ((data.shape.n == 0 && pp_has_word("sequential resnet", type)) ||
        (data.classes + cfg->model.classes == 0 && pp_has_word("encoder resnet", type)))
        PP_TRY(pp_dataset_count(cfg, PP_SPLIT_TRAIN, &n));
    int rc = pp_model_create(cfg, &data, &m);
    if (rc == PP_ECONFIG)
        return pp_config_problem(cfg, words ? "model.layers" : "model.type", "%s",
                                 pp_error_get()->text);
    PP_TRY(rc);
    bool planned = cfg->model.planned; /* of a text: its outputs may be too many to count */
    int rows = planned ? m->values[m->n_values - 1].dims[0] : pp_model_targets(m);
    int has = data.targets;
    if (has == 0) /* unknown before the model is, or without files */
        has = pp_dataset_info(cfg->data.dataset)->windows ? (int)pp_shape_floats(&m->values[0])
                                                          : rows;
    if (has != rows) {
        return pp_config_problem(cfg, "model.type",
                                 "model.type = %s gives %d row%s of outputs a sample, and "
                                 "data.dataset = %s has %d target%s",
                                 cfg->model.type, rows, pp_plural(rows), cfg->data.dataset, has,
                                 has == 1 ? "" : "s, one for each position");
    }
    PP_TRY(pp_dataset_check(cfg, &m->values[0], m->classes));
    *out = m;
    m = NULL;
    return 0;
}

uint64_t pp_run_sample_bytes(const struct pp_config *cfg, const struct pp_model *model)
{
    const struct pp_dataset_info *info = pp_dataset_info(cfg->data.dataset);
    return info->windows ? 0 : (uint64_t)model->inputs * pp_element_bytes(info->element);
}

bool pp_run_keeps_bits(const struct pp_run *run, const char *key)
{
    const struct pp_backend_choice choice = pp_backend_choice_of(run->cfg);
    bool in_order = pp_backend_sums_in_order(&choice); /* wherever a batch is cut */
    if (pp_has_word("train.exact train.coalesce model.logits_rows", key))
        return in_order;
    if (strcmp(key, "pipeline.microbatches") == 0) {
        return in_order && !pp_model_mixes_samples(run->model) &&
               run->cfg->train.microbatch_loss == PP_LOSS_MEAN;
    }
    if (strcmp(key, "train.eval_interval") == 0)
        return pp_model_text_targets(run->model) == 0;
    if (pp_has_word("data.test_samples train.test_every", key)) /* else results of tests decide */
        return run->cfg->train.lr_schedule != PP_LR_PLATEAU;
    return strcmp(key, "model.init") == 0;
}

/* Returns the steps of an epoch of train_n samples. */
static int64_t epoch_steps(const struct pp_config *cfg, int train_n)
{
    int64_t batch = cfg->train.batch_size;
    return cfg->data.drop_last && train_n >= batch ? train_n / batch
                                                   : (train_n + batch - 1) / batch;
}

int64_t pp_run_steps(const struct pp_config *cfg, int train_n)
{
    int64_t most = cfg->train.max_steps;
    int64_t all = epoch_steps(cfg, train_n) * cfg->train.epochs;
    return most > 0 && most < all ? most : all;
}

const char *pp_run_batch_remark(const struct pp_run *run, char out[256])
{
    int batch = run->cfg->train.batch_size, n = run->layout->train_n;
    out[0] = '\0';
    if (batch > n)
        snprintf(out, 256,
                 "train.batch_size = %d, but there are %d training samples: each step takes all of "
                 "them, and an epoch is one step; use train.batch_size = %d or less",
                 batch, n, n);
    return out;
}

void pp_run_lr_remark(const struct pp_run *run, int64_t done, struct pp_lr_remarks *out)
{
    const struct pp_config *cfg = run->cfg;
    int64_t batch = cfg->train.batch_size, epoch = (run->layout->train_n + batch - 1) / batch;
    const struct pp_lr_span span = {.done = done,
                                    .total = pp_run_steps(cfg, run->layout->train_n),
                                    .all_steps = epoch * cfg->train.epochs,
                                    .epoch_steps = epoch};
    pp_lr_remark(cfg, &span, out);
}

int pp_run_meet_every(const struct pp_config *cfg, int train_n)
{
    int64_t total = pp_run_steps(cfg, train_n), part = total / PP_RUN_RECORDS;
    int64_t epoch = epoch_steps(cfg, train_n);
    bool folder = cfg->run.dir[0] != '\0';
    const int64_t marks[] = {total, cfg->run.log_every, folder ? cfg->checkpoint.every : 0,
                             folder && cfg->run.log_every == 0 ? part > 0 ? part : 1 : 0};
    int64_t n = epoch;
    for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++)
        n = marks[i] > 0 && marks[i] < n ? marks[i] : n;
    return n < INT_MAX ? (int)n : INT_MAX;
}

/* Chooses train.epochs if the config gives only max_steps and the data are windows of a text, for
 * which an epoch is not a pass over the data. A copy of a config, which has no source, keeps the
 * choice. */
static int choose_epochs(struct pp_config *cfg)
{
    const struct pp_dataset_info *info = pp_dataset_info(cfg->data.dataset);
    int64_t each = cfg->train.eval_interval, steps = cfg->train.max_steps;
    char epochs[24];
    if (!cfg->source || !info || !info->windows || info->pairs || steps == 0 ||
        strcmp(pp_config_origin(cfg, "train.epochs"), "default") != 0)
        return 0;
    snprintf(epochs, sizeof(epochs), "%lld", (long long)((steps + each - 1) / each));
    return pp_config_choose(cfg, "train.epochs", epochs);
}

/* Checks that no message is too long for MPI, which carries the messages between processes whose
 * ranks compute on the processor. */
static int check_message_sizes(const struct pp_run *run)
{
    const struct pp_backend_choice choice = pp_backend_choice_of(run->cfg);
    const struct pp_layout *l = run->layout;
    if (pp_run_shares_memory(run) || !choice.ops || choice.ops->devices)
        return 0;
    for (int c = 0; c < l->n_channels; c++) {
        size_t bytes = pp_layout_slot_bytes(l, c);
        const struct pp_channel *ch = &l->plans[0].plan->channels[c];
        if (ch->src_rank != ch->dst_rank && bytes > PP_MPI_MESSAGE_MAX)
            return pp_config_problem(run->cfg, "pipeline.microbatches", PP_MPI_TOO_LONG, bytes,
                                     PP_MPI_MESSAGE_MAX);
    }
    return 0;
}

/* Checks that there are a batch to train on and a test that decides what the config lets a test
 * decide. */
static int check_samples(struct pp_config *cfg, int train_n, int test_n)
{
    enum pp_metric best = cfg->checkpoint.best;
    bool plateau = cfg->train.lr_schedule == PP_LR_PLATEAU;
    const char *key = best != PP_METRIC_OFF ? "checkpoint.best"
                      : plateau             ? "train.lr_schedule"
                                            : "train.patience";
    if (cfg->data.drop_last && train_n < cfg->train.batch_size) {
        return pp_config_problem(cfg, "data.drop_last",
                                 "data.drop_last leaves no batch of train.batch_size = %d: there "
                                 "are %d training samples; use a batch size of %d or less",
                                 cfg->train.batch_size, train_n, train_n);
    }
    if (test_n > 0 || best == PP_METRIC_TRAIN_LOSS ||
        (best == PP_METRIC_OFF && !plateau && cfg->train.patience == 0))
        return 0;
    return pp_config_problem(cfg, key,
                             "%s goes by the results of tests, and data.dataset = %s has no test "
                             "samples; use checkpoint.best = train_loss",
                             key, cfg->data.dataset);
}

static int create_layout(struct pp_run *run, int train_n, int test_n)
{
    const char *key = "pipeline.schedule";
    const struct pp_training training = pp_training_of(run->cfg, train_n, test_n);
    int rc = pp_layout_is_table(run->cfg) ? pp_layout_read_table(run->cfg, NULL, &run->table) : 0;
    if (rc == 0)
        rc = pp_division_of(run->cfg, run->model, run->table, &run->division, &key);
    if (rc == 0)
        rc = pp_layout_create(run->model, &run->division, &training, &run->layout, &key);
    return rc == PP_ECONFIG ? pp_config_problem(run->cfg, key, "%s", pp_error_get()->text) : rc;
}

static int prepare_layout(struct pp_config *cfg, enum pp_run_need need, struct pp_run *run)
{
    PP_TRY(choose_epochs(cfg));
    if (cfg->model.experts > 0)
        return pp_config_problem(
            cfg, "model.experts",
            "model.experts = %d: ppcli trains no mixture of experts; the key is "
            "for ppcli estimate alone",
            cfg->model.experts);
    PP_TRY(pp_run_model(cfg, &run->model));
    int train_n = 0, test_n = 0;
    PP_TRY(pp_run_samples(cfg, need, PP_SPLIT_TRAIN, &train_n));
    PP_TRY(pp_run_samples(cfg, need, PP_SPLIT_TEST, &test_n));
    PP_TRY(check_samples(cfg, train_n, test_n));
    PP_TRY(create_layout(run, train_n, test_n));
    PP_TRY(check_message_sizes(run));
    return need == PP_RUN_REAL ? pp_backend_resolve(cfg->run.backend, &run->backend) : 0;
}

int pp_run_prepare(struct pp_config *cfg, enum pp_run_need need, struct pp_run *out)
{
    memset(out, 0, sizeof(*out));
    out->cfg = cfg;
    out->mpi = pp_mpi_used(cfg);
    PP_TRY_UNDO(prepare_layout(cfg, need, out), pp_run_fini(out));
    pp_assert(out->layout != NULL);
    return 0;
}

bool pp_run_shares_memory(const struct pp_run *run)
{
    return run->cfg->run.launch != PP_LAUNCH_MPIRUN && !run->mpi;
}

struct pp_transport_caps pp_run_caps(const struct pp_run *run)
{
    const struct pp_transport_ops *t =
        run->transport ? run->transport : pp_transport_find(run->cfg->run.transport);
    bool threads = pp_run_shares_memory(run);
    return (struct pp_transport_caps){.shared_slots = threads && (!t || t->caps.shared_slots),
                                      .processes = !threads};
}

void pp_run_fini(struct pp_run *run)
{
    pp_places_fini(&run->places);
    pp_free(run->seats);
    run->seats = NULL;
    pp_layout_destroy(&run->layout);
    pp_plan_destroy(&run->table);
    pp_model_destroy(&run->model);
}
