/* SPDX-License-Identifier: Apache-2.0 */
/* What a benchmark ran on: the lines above its table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "ppcli/clock.h"
#include "ppcli/err.h"

/* The value of the first line of a file that begins with `key`, "" when there is none. */
static void read_value(const char *path, const char *key, char *out, size_t bytes)
{
    char line[512];
    FILE *f = fopen(path, "re");
    out[0] = '\0';
    while (f && out[0] == '\0' && fgets(line, sizeof(line), f)) {
        if (strncmp(line, key, strlen(key)) == 0) {
            const char *colon = key[0] ? strchr(line, ':') : NULL;
            const char *value = colon ? colon + 1 : line;
            value += strspn(value, " \t");
            snprintf(out, bytes, "%.*s", (int)strcspn(value, "\n"), value);
        }
    }
    if (f) {
        fclose(f);
    }
}

/* "0, 1": where threads are bound to; "0-15" for a whole range. */
static void describe_cores(const int *cores, int n, char *out, size_t bytes)
{
    bool range = n > 2 && cores[n - 1] - cores[0] == n - 1;
    size_t used = 0;
    if (range) {
        snprintf(out, bytes, "%d-%d", cores[0], cores[n - 1]);
        return;
    }
    out[0] = '\0';
    for (int i = 0; i < n && used + 16 < bytes; i++) {
        used += (size_t)snprintf(out + used, bytes - used, "%s%d", i > 0 ? ", " : "", cores[i]);
    }
}

/* "784-512x16-10": equal neighbours together. */
static void describe_model(const struct pp_config *cfg, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0, n; i < cfg->model.n_sizes && used + 32 < bytes; i += n) {
        n = 1;
        while (i + n < cfg->model.n_sizes && cfg->model.sizes[i + n] == cfg->model.sizes[i]) {
            n++;
        }
        used += (size_t)snprintf(out + used, bytes - used, "%s%d", i > 0 ? "-" : "",
                                 cfg->model.sizes[i]);
        if (n > 1) {
            used += (size_t)snprintf(out + used, bytes - used, "x%d", n);
        }
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

void pp_bench_describe(const struct pp_config *cfg, bool whole_machine, struct pp_bench_header *out)
{
    static _Thread_local char date[32];
    int cores[PP_CEILING_CORES_MAX];
    double load;
    out->date = pp_clock_utc(date, sizeof(date));
    out->load = getloadavg(&load, 1) == 1 ? load : -1;
    out->cores = pp_ceiling_cores(whole_machine, cores, PP_CEILING_CORES_MAX);
    describe_cores(cores, out->cores, out->binding, sizeof(out->binding));
    read_value("/proc/cpuinfo", "model name", out->cpu, sizeof(out->cpu));
    read_value("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "", out->governor,
               sizeof(out->governor));
    if (!out->cpu[0]) {
        snprintf(out->cpu, sizeof(out->cpu), "unknown");
    }
    out->host[0] = '\0';
    (void)gethostname(out->host, sizeof(out->host) - 1);
    pp_blas_describe(out->blas, sizeof(out->blas));
    describe_backend(cfg, out);
    snprintf(out->mpi, sizeof(out->mpi), "%s", pp_mpi_built() ? pp_mpi_version() : "not built in");
    snprintf(out->gpu, sizeof(out->gpu), "none");
    snprintf(out->dataset, sizeof(out->dataset), "%s", cfg->data.dataset);
    snprintf(out->optimizer, sizeof(out->optimizer), "%s", pp_optimizer_name(cfg->train.optimizer));
    const char *name = pp_config_name(cfg);
    snprintf(out->config, sizeof(out->config), "%.*s", PP_NAME_MAX - 1,
             strcmp(name, "run") == 0 ? "built in" : name);
    describe_model(cfg, out->model, sizeof(out->model));
}
