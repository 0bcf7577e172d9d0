/* SPDX-License-Identifier: Apache-2.0 */
/* What a benchmark ran on: the lines above its table. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "ppcli/base/base.h"

/* Describes the model in a word such as "784-512x16-10", in which equal neighbours are counted. */
static void describe_model(const struct pp_config *cfg, char *out, size_t bytes)
{
    out[0] = '\0';
    if (!strcmp(cfg->model.type, "resnet"))
        snprintf(out, bytes, "resnet%d", cfg->model.depth);
    else if (strcmp(cfg->model.type, "mlp") != 0)
        snprintf(out, bytes, "%s", cfg->model.type);
    if (out[0])
        return;
    for (int i = 0, n; i < cfg->model.n_sizes && strlen(out) + 32 < bytes; i += n) {
        n = 1;
        while (i + n < cfg->model.n_sizes && cfg->model.sizes[i + n] == cfg->model.sizes[i])
            n++;
        pp_text_add(out, bytes, "%s%d", i > 0 ? "-" : "", cfg->model.sizes[i]);
        if (n > 1)
            pp_text_add(out, bytes, "x%d", n);
    }
}

static void describe_backend(const struct pp_config *cfg, struct pp_bench_header *out)
{
    struct pp_backend_choice choice = pp_backend_choice_of(cfg);
    struct pp_backend *be = NULL;
    snprintf(out->backend, sizeof(out->backend), "%s", cfg->run.backend);
    if (choice.ops && pp_backend_open_choice(&choice, &be) == 0) {
        snprintf(out->backend, sizeof(out->backend), "%s", be->description);
        pp_backend_close(&be);
    }
    pp_error_clear();
}

/* Describes the GPUs that the rows may use, such as "2 x NVIDIA H200"; "none" if they use no
 * GPU. */
static void describe_gpus(const struct pp_config *cfg, struct pp_bench_header *out)
{
    struct pp_backend_choice choice = pp_backend_choice_of(cfg);
    struct pp_device devices[PP_DEVICES_MAX];
    int n = 0;
    snprintf(out->gpu, sizeof(out->gpu), "none");
    if (choice.ops && pp_devices_find(choice.ops, cfg, devices, &n) == 0 && n > 0) {
        char count[16] = "";
        if (n > 1)
            snprintf(count, sizeof(count), "%d x ", n);
        snprintf(out->gpu, sizeof(out->gpu), "%s%.40s", count, devices[0].name);
    }
    pp_error_clear();
}

void pp_bench_describe(const struct pp_config *cfg, bool whole_machine, struct pp_bench_header *out)
{
    static _Thread_local char date[32];
    struct pp_machine machine;
    double load;
    out->date = pp_clock_utc(date, sizeof(date));
    out->load = getloadavg(&load, 1) == 1 ? load : -1;
    pp_machine_describe(whole_machine, &machine);
    out->cores = machine.cores;
    snprintf(out->binding, sizeof(out->binding), "%s", machine.binding);
    snprintf(out->cpu, sizeof(out->cpu), "%s", machine.cpu[0] ? machine.cpu : "unknown");
    snprintf(out->governor, sizeof(out->governor), "%s", machine.governor);
    snprintf(out->host, sizeof(out->host), "%s", machine.host);
    pp_blas_describe(out->blas, sizeof(out->blas));
    describe_backend(cfg, out);
    const char *mpi = pp_world_version();
    snprintf(out->mpi, sizeof(out->mpi), "%s", mpi[0] ? mpi : "not built in");
    describe_gpus(cfg, out);
    snprintf(out->dataset, sizeof(out->dataset), "%s", cfg->data.dataset);
    snprintf(out->optimizer, sizeof(out->optimizer), "%s", pp_optimizer_name(cfg->train.optimizer));
    const char *name = pp_config_name(cfg);
    snprintf(out->config, sizeof(out->config), "%.*s", PP_NAME_MAX - 1,
             strcmp(name, "run") == 0 ? "built in" : name);
    describe_model(cfg, out->model, sizeof(out->model));
}
