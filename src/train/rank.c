/* SPDX-License-Identifier: Apache-2.0 */
/* The life of one rank: opens device and data, checks that all ranks have the same data, runs the
 * loop. */
#include "rank.h"

#include <string.h>

#include "loop.h"
#include "ppcli/base/base.h"
#include "ppcli/ckpt/checkpoint.h"
#include "ppcli/data/preprocessing.h"
#include "ppcli/data/tokenizer.h"

#define RING_STEPS 8     /* whole steps that the record of actions keeps, or more for a trace */
#define RING_STEPS_MIN 2 /* fewer steps, but at least these, if they need more than RING_RECORDS */
#define RING_RECORDS (1 << 16) /* 2 MiB */

/* Keeps the texts of the data's vocabulary and preprocessing: checkpoints store them and are compared
 * with them. */
static int keep_texts(struct trainer *tr)
{
    struct pp_vocabulary v;
    PP_TRY(pp_dataset_vocabulary(tr->run->cfg, &v));
    bool kept = v.codes || v.bpe;
    tr->vocabulary = kept ? pp_vocabulary_text(&v) : NULL;
    tr->kinds = v.n;
    pp_vocabulary_fini(&v);
    PP_TRY(kept && !tr->vocabulary ? PP_ERESOURCE : 0);
    PP_TRY(pp_dataset_preprocessing(tr->run->cfg, tr->data[PP_SPLIT_TRAIN], &tr->preprocessing));
    return pp_preprocessing_unit(tr->preprocessing, &tr->unit);
}

/* Opens the data that this rank's stages need, and the device. Local. */
static int set_up_rank(struct trainer *tr)
{
    const struct pp_run *run = tr->run;
    const struct pp_layout *l = run->layout;
    int pipeline_rank = tr->spec->rank % l->stages;
    int parts = (l->rank_of[0] == pipeline_rank ? PP_DATA_IMAGES : 0) |
                (l->rank_of[l->n_virtual - 1] == pipeline_rank ? PP_DATA_LABELS : 0);
    for (int split = 0; split < 2; split++) {
        tr->data[split] = tr->spec->shared[split];
        if (!tr->data[split] && (parts != 0 || run->cfg->model.mask_padding)) {
            PP_TRY(pp_dataset_open(run->cfg, (enum pp_split)split, parts, &run->model->values[0],
                                   run->model->classes, &tr->own[split]));
            tr->data[split] = tr->own[split];
        }
    }
    struct pp_backend_choice choice = seats_choice(run, tr->spec->rank);
    PP_TRY(pp_backend_open_choice(&choice, &tr->be));
    if (!tr->be->caps.thread_safe && !run->mpi && l->ranks > 1) {
        return pp_fail(PP_ERESOURCE,
                       "%s must not be used by several threads of one process; start with "
                       "--launch mpirun, or install a thread-safe build (Debian: "
                       "libopenblas0-pthread)",
                       tr->be->description);
    }
    if (tr->spec->rank == 0)
        PP_TRY(keep_texts(tr));
    bool ready; /* if not ready in 10 s, wait_for_data() waits after the run folder is made */
    PP_TRY(pp_dataset_ready(tr->data, 10, &ready));
    tr->all = pp_alloc((size_t)l->ranks, sizeof(*tr->all));
    tr->busy_ns = pp_alloc((size_t)l->ranks, sizeof(*tr->busy_ns));
    tr->busy = pp_alloc((size_t)l->ranks, sizeof(*tr->busy));
    tr->apart = pp_alloc((size_t)l->ranks, sizeof(*tr->apart));
    return tr->all && tr->busy_ns && tr->busy && tr->apart ? 0 : PP_ERESOURCE;
}

/* Checks that all processes that read the data files themselves have read the same bytes, and lets
 * all know the unit of errors. Collective. */
static int compare_data(struct trainer *tr)
{
    const int n = tr->run->layout->ranks;
    struct sums {
        uint32_t of[2][3]; /* per split: CRC of images, of labels, samples; 0: not read */
        double unit;       /* rank 0 has it */
    } mine = {.unit = tr->unit};
    PP_OWN_MEMORY struct sums *all = pp_alloc((size_t)n, sizeof(*all));
    PP_TRY(pp_transport_agree(tr->tp, all ? 0 : PP_ERESOURCE));
    pp_assert(all != NULL); /* else the ranks had not agreed */
    for (int split = 0; split < 2; split++) {
        const struct pp_dataset *d = tr->data[split];
        if (d)
            memcpy(mine.of[split], (uint32_t[3]){d->images_crc, d->labels_crc, (uint32_t)d->n},
                   sizeof(mine.of[split]));
    }
    PP_TRY(pp_transport_allgather(tr->tp, &mine, sizeof(mine), all));
    tr->unit = all[0].unit;
    for (int i = 0; i < 6; i++) {
        int split = i / 3, what = i % 3, first = -1;
        for (int r = 0; r < n; r++) {
            uint32_t here = all[r].of[split][what];
            if (here == 0)
                continue;
            if (first >= 0 && here != all[first].of[split][what]) {
                return what == 2
                           ? pp_fail(PP_EFORMAT, "rank %d found %u samples, rank %d found %u", r,
                                     here, first, all[first].of[split][2])
                           : pp_fail(PP_EFORMAT,
                                     "rank %d and rank %d read different %s: the files differ "
                                     "between machines or changed while they were read",
                                     r, first, what == 0 ? "images" : "labels");
            }
            first = first >= 0 ? first : r;
            if (what < 2)
                tr->data_crc[split][what] = here;
        }
    }
    return 0;
}

/* Lets rank 0 decide where the run begins and make the run folder; all ranks get the decision.
 * Collective. */
static int begin_run(struct trainer *tr)
{
    if (!tr->spec->options->work)
        PP_TRY(copies_find(tr));
    int rc = tr->spec->rank == 0 ? resume_begin(tr, &tr->begin) : 0;
    tr->begin.locked_ns = tr->lock.since_ns;
    PP_TRY(pp_transport_from_first(tr->tp, rc, &tr->begin, sizeof(tr->begin)));
    tr->dir = tr->begin.dir;
    return tr->spec->options->work ? 0 : copies_begin(tr);
}

/* Returns how many actions the ring of a rank holds. */
static uint64_t ring_records(const struct pp_layout *l, const struct pp_train_options *options)
{
    uint64_t each = pp_exec_events_per_step(l);
    uint64_t steps = (uint64_t)pp_tracer_ring_steps(&options->trace);
    steps = steps > RING_STEPS ? steps : RING_STEPS;
    steps = steps < RING_RECORDS / each ? steps : RING_RECORDS / each;
    steps = steps > RING_STEPS_MIN ? steps : RING_STEPS_MIN;
    return steps * each;
}

size_t rank_ring_bytes(const struct pp_layout *l, const struct pp_train_options *options)
{
    uint64_t wanted = ring_records(l, options), records = 1;
    while (records < wanted)
        records *= 2;
    return 2 * (size_t)records * sizeof(struct pp_event); /* in memory, and in the file's pages */
}

/* Creates the ring of this rank. It is a file in the run folder, so that it outlives this process;
 * it is in memory if there is no folder, or if this host does not see that of rank 0. Local. */
static int make_ring(struct trainer *tr)
{
    const struct pp_layout *l = tr->run->layout;
    char path[PP_PATH_MAX] = "";
    if (tr->dir[0] && !tr->apart[tr->spec->rank])
        PP_TRY(pp_run_dir_ring(tr->dir, tr->spec->rank, path));
    PP_TRY(pp_ring_create(path[0] ? path : NULL, tr->spec->rank, l->ranks,
                          ring_records(l, tr->spec->options), &tr->spec->ring));
    pp_transport_show_waits(tr->tp, &tr->spec->ring->head->waited_ns);
    pp_watchdog_enter(tr->spec->watchdog, tr->spec->rank, tr->spec->ring, path[0] ? tr->dir : "");
    rank_event_begin(tr->spec, PP_EVENT_START, 0);
    return 0;
}

void rank_event_begin(struct rank_spec *spec, enum pp_event_kind kind, int64_t step)
{
    struct pp_event e = {.begin_ns = pp_clock_ns(),
                         .step = (int32_t)step,
                         .message = -1,
                         .stage = -1,
                         .kind = (uint8_t)kind};
    pp_ring_begin(spec->ring, &e);
}

void rank_event_end(struct rank_spec *spec)
{
    pp_ring_end(spec->ring, pp_clock_ns());
}

/* Runs the caller's function in place of training. Collective. */
static int run_work(struct trainer *tr)
{
    struct pp_worker w = {.run = tr->run,
                          .rank = tr->spec->rank,
                          .tp = tr->tp,
                          .be = tr->be,
                          .data = {tr->data[0], tr->data[1]},
                          .x = tr->x,
                          .from = tr->begin.from};
    rank_event_end(tr->spec); /* the set-up */
    int rc = tr->spec->options->work(&w, tr->spec->options->work_ctx);
    tr->spec->failed_alone = w.failed_alone;
    return rc;
}

/* Waits until the data are read, which takes long on slow storage. A new event each second shows
 * progress. */
static int wait_for_data(struct trainer *tr)
{
    bool ready;
    PP_TRY(pp_dataset_ready(tr->data, 1, &ready));
    rank_event_end(tr->spec);
    rank_event_begin(tr->spec, PP_EVENT_START, 0);
    return ready ? 0 : wait_for_data(tr);
}

/* Reads the weights with which the run begins. If another run has removed their checkpoint in the
 * meantime, reads that run's next checkpoint. Collective. */
static int read_weights(struct trainer *tr)
{
    const struct pp_train_options *options = tr->spec->options;
    const char *init = options->weights ? options->weights : tr->run->cfg->train.init;
    for (;;) {
        struct beginning next = tr->begin;
        int rc = pp_transport_agree(tr->tp, resume_read(tr)), found = 0;
        if (rc != PP_ENOINPUT || tr->begin.resume)
            return rc;
        struct pp_error why = *pp_error_get();
        if (tr->spec->rank == 0)
            found = resume_find_weights(init, next.from);
        PP_TRY(pp_transport_from_first(tr->tp, found, &next, sizeof(next)));
        if (strcmp(next.from, tr->begin.from) == 0)
            return pp_error_adopt(&why);
        tr->begin = next;
    }
}

/* Creates the ring and the executor and restores the checkpoint. Collective. */
static int prepare_rank(struct trainer *tr)
{
    const struct rank_spec *spec = tr->spec;
    PP_TRY(pp_transport_agree(tr->tp, make_ring(tr)));
    struct pp_exec_spec exec = {.cfg = tr->run->cfg,
                                .layout = spec->run->layout,
                                .rank = spec->rank,
                                .caps = tr->tp->caps,
                                .ring = spec->ring};
    PP_TRY(pp_exec_create(&exec, tr->be, tr->tp, tr->data[0], tr->data[1], &tr->x));
    int rc = read_weights(tr);
    PP_TRY(pp_transport_agree(tr->tp, rc == 0 ? wait_for_data(tr) : rc));
    rc = resume_take_folder(tr);
    return pp_transport_agree(tr->tp, rc == 0 ? copies_tidy(tr) : rc);
}

int rank_main(struct rank_spec *spec, struct pp_transport *tp)
{
    struct trainer tr = {.spec = spec,
                         .run = spec->run,
                         .tp = tp,
                         .lock = PP_LOCK_NONE,
                         .saved = -1,
                         .epoch_no = 1,
                         .progress = PROGRESS_NONE};
    uint64_t start = pp_clock_ns();
    int rc = pp_transport_agree(tp, set_up_rank(&tr));
    if (rc == 0)
        rc = compare_data(&tr);
    if (rc == 0)
        rc = begin_run(&tr);
    if (rc == 0 && !tr.begin.nothing_left) {
        rc = prepare_rank(&tr);
        if (rc == 0)
            rc = spec->options->work ? run_work(&tr) : loop_train(&tr, start);
    }
    if (rc < 0)
        pp_metrics_end(tr.m, tr.t, rc == PP_ESTOPPED);
    pp_metrics_close(&tr.m);
    saver_destroy(&tr.saver);
    pp_lock_release(&tr.lock);
    pp_timeline_destroy(&tr.timeline);
    pp_tracer_destroy(&tr.tracer);
    if (spec->failed_alone) {
        spec->failed_ns = pp_clock_ns();
        /* The others may wait for a message that will never come. Threads return to the one that
         * reports; a process does not. */
        if (tp->caps.processes && spec->options->before_abort && rc != PP_ELOST)
            spec->options->before_abort();
        pp_transport_abort(tp);
    }
    pp_exec_forget_graphs(tr.x);
    pp_watchdog_leave(spec->watchdog, spec->rank);
    if (spec->ring) {
        pp_transport_show_waits(tp, NULL);
        pp_ring_close(spec->ring, rc < 0 && rc != PP_ESTOPPED ? PP_RING_FAILED : PP_RING_FINISHED);
    }
    spec->x = tr.x;
    spec->be = tr.be;
    pp_dataset_destroy(&tr.own[0]);
    pp_dataset_destroy(&tr.own[1]);
    pp_free(tr.vocabulary);
    pp_free(tr.preprocessing);
    pp_free(tr.changes);
    pp_free(tr.all);
    pp_free(tr.busy_ns);
    pp_free(tr.busy);
    pp_free(tr.apart);
    return rc;
}

void rank_free(struct rank_spec *spec)
{
    pp_exec_destroy(&spec->x);
    pp_ring_destroy(&spec->ring);
    pp_backend_close(&spec->be);
}
