/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a training from its prepared run: starts the ranks, each of which runs rank.c. */

#include <stdlib.h>
#include <string.h>

#include "rank.h"
#include "train.h"

/* ---- all ranks as threads of this process */

static int run_rank_thread(struct pp_transport **tp, int rank, void *ctx, uint64_t *failed_ns)
{
    struct rank_spec *spec = &((struct rank_spec *)ctx)[rank];
    pp_watchdog_expect(spec->watchdog, rank);
    PP_TRY(seats_connect(spec->run, tp));
    int rc = rank_main(spec, *tp);
    *failed_ns = spec->failed_ns;
    return rc;
}

static void free_rank_thread(int rank, void *ctx)
{
    rank_free(&((struct rank_spec *)ctx)[rank]);
}

static int train_threads(const struct pp_run *run, const struct pp_train_options *options,
                         struct pp_deadline *deadline)
{
    pp_assert(run->layout != NULL);
    int n = run->layout->ranks, rc = 0;
    struct pp_dataset *data[2] = {NULL, NULL};
    struct pp_watchdog *watchdog = NULL;
    PP_TRY(fit_check(run, options, NULL));
    PP_TAKE(struct rank_spec, ranks, n);
    pp_deadline_enter(deadline, PP_DEADLINE_DATA);
    for (int split = 0; rc == 0 && split < 2; split++) {
        if (!options->data[split]) {
            rc = pp_dataset_open(run->cfg, (enum pp_split)split, PP_DATA_IMAGES | PP_DATA_LABELS,
                                 &run->model->values[0], run->model->classes, &data[split]);
        }
    }
    if (rc == 0)
        rc = pp_watchdog_start(run, options->lost, options->out, NULL, &watchdog);
    if (rc == 0) {
        pp_deadline_enter(deadline, PP_DEADLINE_NONE); /* the watchdog takes over */
        for (int r = 0; r < n; r++) {
            ranks[r] = (struct rank_spec){.run = run,
                                          .options = options,
                                          .rank = r,
                                          .shared = {options->data[0] ? options->data[0] : data[0],
                                                     options->data[1] ? options->data[1] : data[1]},
                                          .watchdog = watchdog};
        }
        rc = pp_threads_run(
            n, &(struct pp_threads_job){run_rank_thread, free_rank_thread, ranks, &run->places});
    }
    pp_watchdog_stop(&watchdog);
    pp_dataset_destroy(&data[0]);
    pp_dataset_destroy(&data[1]);
    return rc;
}

/* ---- this process as one MPI rank */

int pp_world_check_size(const struct pp_config *cfg, const struct pp_transport *tp)
{
    int ranks = cfg->pipeline.stages * cfg->pipeline.replicas;
    if (!tp || tp->size == ranks)
        return 0;
    return pp_fail(PP_ECONFIG,
                   "started with %d process%s, but pipeline.stages = %d times pipeline.replicas = "
                   "%d needs %d: use mpirun -np %d or srun -n %d, or change the stages",
                   tp->size, tp->size == 1 ? "" : "es", cfg->pipeline.stages,
                   cfg->pipeline.replicas, ranks, ranks, ranks);
}

static int train_mpi(struct pp_config *cfg, const struct pp_train_options *options,
                     struct pp_deadline *deadline, bool *speaks)
{
    struct pp_transport *tp = NULL;
    struct pp_run run = {0};
    *speaks = true;
    pp_deadline_enter(deadline, PP_DEADLINE_MPI_START);
    PP_TRY(pp_transport_open_world(&tp));
    pp_deadline_enter(deadline, PP_DEADLINE_PREPARE);
    pp_deadline_watch_waits(deadline, tp);
    *speaks = tp->rank == 0;
    int rc = pp_world_check_size(cfg, tp);
    rc = rc < 0 ? rc : pp_layout_share_table(cfg, tp);
    if (rc == 0)
        rc = pp_transport_agree(tp, pp_run_prepare(cfg, PP_RUN_REAL, &run));
    if (rc == 0)
        rc = pp_run_compare(&run, tp);
    if (rc == 0)
        rc = seats_take(&run, tp);
    if (rc == 0)
        rc = fit_check(&run, options, tp);
    struct pp_watchdog *watchdog = NULL;
    if (rc == 0)
        rc = pp_transport_agree(
            tp, pp_watchdog_start(&run, options->lost, options->out, options->pulse, &watchdog));
    pp_watchdog_heed(watchdog, options->stop);
    if (rc == 0) {
        struct rank_spec spec = {.run = &run,
                                 .options = options,
                                 .rank = tp->rank,
                                 .shared = {options->data[0], options->data[1]},
                                 .watchdog = watchdog};
        pp_deadline_enter(deadline, PP_DEADLINE_NONE); /* the watchdog takes over */
        pp_watchdog_expect(watchdog, tp->rank);
        rc = seats_connect(&run, &tp);
        rc = rc < 0 ? rc : rank_main(&spec, tp);
        pp_deadline_enter(deadline, PP_DEADLINE_MPI_END);
        pp_transport_destroy(&tp); /* may hold marks in the backend that rank_free() closes */
        rank_free(&spec);
    }
    pp_watchdog_stop(&watchdog);
    pp_run_fini(&run);
    pp_deadline_enter(deadline, PP_DEADLINE_MPI_END);
    pp_transport_destroy(&tp);
    return rc;
}

/* Prepares a run whose ranks are threads, before they start: checks the config, lays out the model,
 * and assigns devices and processors. */
static int prepare_threads(struct pp_config *cfg, struct pp_run *run)
{
    if (!pp_transport_joins(cfg->run.transport, false)) {
        return pp_config_problem(cfg, "run.transport",
                                 "transport '%s' needs processes: start with --launch mpirun, or "
                                 "under mpirun or srun",
                                 cfg->run.transport);
    }
    PP_TRY(pp_run_prepare(cfg, PP_RUN_REAL, run));
    return seats_take(run, NULL);
}

int pp_train(struct pp_config *cfg, const struct pp_train_options *options, bool *speaks)
{
    struct pp_deadline *deadline = NULL;
    *speaks = true;
    bool processes = pp_mpi_used(cfg);
    PP_TRY(pp_deadline_start(cfg, options->lost, &deadline));
    int rc;
    if (processes) {
        rc = train_mpi(cfg, options, deadline, speaks);
    } else {
        PP_OWN(pp_run_fini) struct pp_run run = {0};
        pp_deadline_enter(deadline, PP_DEADLINE_PREPARE);
        rc = prepare_threads(cfg, &run);
        if (rc == 0)
            rc = train_threads(&run, options, deadline);
    }
    pp_deadline_stop(&deadline);
    return rc;
}

/* ---- MPI processes before and between trainings */

/* Makes rank 0 listen for heartbeats if the ranks are on several hosts and no launcher listens.
 * Collective. */
static int listen_here(struct pp_world *w, double timeout)
{
    char mine[PP_HOST_MAX], address[PP_PULSE_ADDRESS] = "";
    int size = w->tp->size;
    PP_OWN_MEMORY char(*all)[PP_HOST_MAX] = pp_alloc((size_t)size, sizeof(*all));
    bool several = false;
    pp_host_name(mine);
    PP_TRY(pp_transport_agree(w->tp, all ? 0 : PP_ERESOURCE));
    pp_assert(all != NULL); /* else the ranks had not agreed */
    PP_TRY(pp_transport_allgather(w->tp, mine, sizeof(mine), all));
    for (int r = 0; r < size; r++)
        several |= strcmp(all[r], mine) != 0;
    if (!several)
        return 0;
    int rc = w->tp->rank == 0 ? pp_listener_open(size, 0, 0, &w->listener) : 0;
    if (rc == 0)
        snprintf(address, sizeof(address), "%s", pp_listener_address(w->listener));
    PP_TRY(pp_transport_from_first(w->tp, rc, address, sizeof(address)));
    return pp_transport_agree(w->tp,
                              pp_pulse_open(address, w->tp->rank, timeout, all[0], &w->pulse));
}

static int open_world(const struct pp_config *cfg, int rc, const char *same, struct pp_world *w)
{
    const char *address = getenv(PP_PULSE_ENV);
    double timeout = cfg->run.hang_timeout;
    bool beats = w->deadline && pp_mpi_launched();
    if (beats && address)
        PP_TRY(pp_pulse_open(address, pp_mpi_given_rank(), timeout, NULL, &w->pulse));
    pp_deadline_beat(w->deadline, w->pulse, NULL);
    pp_deadline_enter(w->deadline, PP_DEADLINE_MPI_START);
    PP_TRY(pp_transport_open_world(&w->tp));
    pp_deadline_watch_waits(w->deadline, w->tp);
    PP_TRY(pp_launch_check(cfg, w->tp->size));
    PP_TRY(pp_transport_same(w->tp, rc, same));
    if (beats && !address) {
        PP_TRY(listen_here(w, timeout));
        pp_deadline_beat(w->deadline, w->pulse, w->listener);
    }
    return 0;
}

int pp_world_open(const struct pp_config *cfg, int rc, const char *same, pp_lost *lost,
                  struct pp_world *out)
{
    *out = (struct pp_world){0};
    PP_TRY(pp_deadline_start(cfg, lost, &out->deadline));
    bool ranks = pp_mpi_used(cfg);
    rc = rc < 0 || ranks ? rc : pp_launch_check(cfg, 1);
    PP_TRY_UNDO(ranks ? open_world(cfg, rc, same, out) : rc, pp_world_close(out));
    pp_deadline_enter(out->deadline, PP_DEADLINE_PREPARE);
    return 0;
}

void pp_world_ready(struct pp_world *w)
{
    if (w->tp)
        pp_deadline_enter(w->deadline, PP_DEADLINE_NONE);
    else
        pp_deadline_stop(&w->deadline);
}

void pp_world_close(struct pp_world *w)
{
    pp_deadline_enter(w->deadline, PP_DEADLINE_MPI_END);
    pp_transport_destroy(&w->tp);
    pp_deadline_stop(&w->deadline);
    pp_pulse_close(&w->pulse);
    pp_listener_close(&w->listener);
}
