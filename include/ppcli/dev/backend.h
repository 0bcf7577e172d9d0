/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend is one compute device of one rank: memory, ops, streams, scratch.
 *
 * Ops are stream ordered: a call enqueues work on the rank's compute stream and may return before
 * it is done (the CPU simply does it). Set-up may allocate; a training step allocates nothing and
 * never waits for the device. Every op has a plain default (src/dev/plain, the oracle: double
 * arithmetic in index order, host memory only); a backend's table may leave an entry NULL to get
 * it. Ask what a backend can do (caps), never which one it is.
 *
 * All matrices are row-major f32, leading dimension = columns, but for *values* (pp_value): what samples
 * have (x, y, z, their gradients, the copies of them that ops keep; not statistics, sums or
 * log-sum-exps) is bf16 where pp_backend_value_bytes() is 2. B rows of a
 * micro-batch, I inputs, O outputs. W[O][I] and b[O] as PyTorch's nn.Linear stores them. B may be 0
 * (a replica without samples): nothing is read, and a weight gradient with beta 0 becomes zero. A
 * NaN in goes out as a NaN (relu included), so that a diverged run is seen; only where relu gave 0
 * the gradient is 0 whatever comes in, as in PyTorch. The same call with the same values gives the
 * same bits, whatever the addresses.
 */
#ifndef PPCLI_DEV_BACKEND_H
#define PPCLI_DEV_BACKEND_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ppcli/conf/config.h"
#include "ppcli/dev/kernels.h"

struct pp_backend;
struct pp_backend_ops;

/* A row of ppcli/conf/activations.def, which says what they mean. */
struct pp_activation_facts {
    bool saves_z; /* else y */
    double gain, steepest;
};

const struct pp_activation_facts *pp_activation_facts(int activation);

/* Which backend, set up how. */
struct pp_backend_choice {
    const struct pp_backend_ops *ops;   /* NULL: none that runs here */
    const struct pp_backend_ops *named; /* by the config, also where it does not; NULL: none */
    int threads;                        /* of each rank */
    /* Where its threads are: see ppcli/base/cores.h. */
    int processors;  /* that they may use; 0: as many as threads */
    const int *cpus; /* [threads], that of the rank's own thread first; NULL: not pinned */
    bool crowded;
    enum pp_gemm gemm;
    enum pp_conv_by conv;
    enum pp_precision precision; /* of products; the reference ignores it, the CPU tf32 */
    bool unpacked; /* no copies of weights: pp_backend_packed_floats() and its like are 0 */
    bool exact;    /* the same call gives the same bits in every run and on any number of stages */
    int device;    /* number of the device, from 0 on */
    int partition; /* this rank computes on piece `partition` of `partitions` equal pieces of ... */
    int partitions; /* ... the device's multiprocessors; 0: on all of them */
};

/* Sums over the samples of micro-batches; accumulated by the loss op in memory of the device, read and
 * zeroed with pp_backend_to_host and pp_backend_to_device. */
struct pp_loss_sums {
    double loss;     /* sum of the targets' losses: without smoothing -log p(target) */
    int64_t correct; /* targets that are the arg max */
    int64_t rows;    /* samples */
    int64_t targets; /* that are not ignored */
};

static inline void pp_loss_sums_add(struct pp_loss_sums *to, const struct pp_loss_sums *a)
{
    to->loss += a->loss;
    to->correct += a->correct;
    to->rows += a->rows;
    to->targets += a->targets;
}

/* One of its sums, divided by the number of targets; NaN where every target is ignored. */
static inline double pp_loss_sums_mean(const struct pp_loss_sums *s, double sum)
{
    return s->targets > 0 ? sum / (double)s->targets : (double)NAN;
}

/* One optimizer pass over a whole parameter buffer, the same on every rank. In memory of the
 * device, read when the work is done, so that a captured step can be replayed with other values. */
struct pp_optimizer_args {
    int kind;           /* enum pp_optimizer_kind */
    float lr;           /* of this step, schedule and warm-up included */
    float momentum;     /* momentum: v = momentum*v + g; p -= lr*v (PyTorch, dampening 0) */
    float beta1, beta2; /* adam, adamw */
    float eps;
    float weight_decay; /* sgd/momentum/adam: g += wd*p; adamw, muon: p -= lr*wd*p first */
    float grad_scale;   /* every gradient is multiplied by it first (clipping); 1 = untouched */
    int64_t step;       /* 1, 2, ...: bias correction */
    bool skip;          /* nothing is changed */
    int64_t t;          /* the run's step that judge shall name */
    bool nesterov;      /* momentum: p -= lr*(g + momentum*v) */
    float loss_scale; /* for losses where targets are ignored: 1 / those of the step that are not */
};

/* What became of a step; in memory of the device, written by judge. */
struct pp_step_verdict {
    int64_t step;      /* args->t */
    int64_t bad_step;  /* the first one that was not finite since the host zeroed this; 0: none */
    int32_t bad_rank;  /* of that step: the first rank ... */
    int32_t bad_index; /* ... and which of its values */
    double bad_value;  /* finite: the sum of all squares, which is over `most` */
    double norm;       /* of all gradients of `step`, before clipping */
    float grad_scale;  /* what they were multiplied by */
    bool skipped;      /* the weights were not changed by `step` */
};

/* The verdict on a step, after its gradients are summed over the replicas and before the optimizer. Bad
 * is a value of votes that is not finite, or their squares' sum over `most`. norm = sqrt of the sum
 * over i of (the sum of votes[r][i] over the ranks r < stages, in order), in order; grad_scale =
 * min(1, clip_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_. A step is skipped when it is
 * bad or, with halt, when an earlier one was. The same votes give the same bits everywhere. The
 * pointers are memory of the device, the rest is the host's. */
struct pp_judgement {
    int ranks, stages;   /* of the run; rank d * stages + r: replica d */
    int n;               /* sums of squares of each rank */
    double clip_norm;    /* 0: no clipping */
    double most;         /* that the squares may sum to; 0: any finite number */
    bool halt;           /* after a bad step no later one changes weights, until the host says so */
    const double *votes; /* [ranks][n + 1]: sums of squares, 0 where another stage has them; then a
                            loss, or 0 */
    const struct pp_loss_sums *before; /* loss sums before the step; NULL: not on this rank */
    struct pp_loss_sums *sums;         /* with the step's; become *before when it is skipped */
    struct pp_optimizer_args *args;    /* grad_scale and skip are set */
    struct pp_step_verdict *verdict;   /* that of the step before comes in */
};

/* Ops of which many calls, each on an array of its own, can be one pass of the device. */
enum pp_collect {
    PP_COLLECT_NOTHING,
    PP_COLLECT_SQUARES,
    PP_COLLECT_UPDATES, /* optimizer, running statistics */
    PP_COLLECT_WEIGHTS  /* gradients of biases and of norms' weights */
};

/* What one micro-batch adds to a weight gradient: dz[B][O], x[B][I]. Products read these; x1 is an
 * op's second input, keep and grad_keep are what it left from F and from I. */
struct pp_weight_part {
    int B;
    const pp_value *dz, *x, *x1, *keep, *grad_keep;
};

/* y[B][O] = act(x[B][I] * W[O][I]^T + b[O]). Of a layer without b, act and z, `row`
 * elements lie between the starts of two rows of y, and of dz: pp_backend_logits_row(); 0: O. */
struct pp_linear_forward {
    int B, I, O;
    const pp_value *x;
    const float *W;
    const float *packed; /* what pack_weights made of W, or NULL: the same bits */
    const float *b;      /* NULL: no bias */
    int act;             /* enum pp_activation */
    pp_value *z; /* [B][O], when not NULL: the value before act (gelu's backward needs it) */
    pp_value *y;
    int row;
};

struct pp_linear_backward_input { /* dx[B][I] = dz[B][O] * W[O][I] */
    int B, I, O;
    const pp_value *dz;
    const float *W, *packed; /* as in pp_linear_forward */
    pp_value *dx;
    int row;
};

/* dW[O][I] = beta*dW + sum over the n >= 1 parts, in order, of dz^T * x; db[O] = beta*db + column
 * sums of their dz, db NULL: no bias. beta is 0 or 1; with 0 the old content is never read. One part
 * gives the same bits whatever else was called; several parts need not give the bits of as many
 * calls, but for the same parts always the same, wherever they lie. */
struct pp_linear_backward_weight {
    int n;
    const struct pp_weight_part *parts;
    int I, O;
    float beta;
    float *dW, *db;
    int row;
};

/* *out (memory of the device) = sum of squares of g[n] in double, in a fixed order that depends on
 * n only. */
struct pp_sum_squares {
    size_t n;
    const float *g;
    double *out;
};

/* p[n] updated from g[n], unless args->skip; decay false: without args->weight_decay; m[n] and v[n]
 * are the optimizer's state (NULL where the kind has none: sgd none; momentum m; adam, adamw m and
 * v). Muon is adamw here, its matrices are not (kernel muon). Element-wise: any split of the buffer
 * gives the same bits. */
struct pp_optimizer_step {
    size_t n;
    const struct pp_optimizer_args *args;
    bool decay;
    const float *g;
    float *m, *v, *p;
};

/* What the ops of a linear layer will be called with. W, packed, b, dW and db: these very arrays,
 * memory of the device; those of rows will start at PP_ALIGN boundaries. */
struct pp_linear_use {
    int B, I, O;
    int act;                     /* enum pp_activation */
    bool keeps_z;                /* linear_forward gives z too */
    bool dx;                     /* linear_backward_input is called */
    bool adds;                   /* its product may be added to what dx holds, for a convolution */
    const float *W, *packed, *b; /* b NULL: no bias, db is NULL too */
    float *dW, *db;              /* dW NULL: linear_backward_weight is not called */
    int row;
};

/* The same of a convolution of B samples. */
struct pp_conv_use {
    const struct pp_conv *g;
    int B;
    bool relu, dx, adds; /* adds: conv_backward_input is also called with `add` */
    const float *W, *packed, *b;
    float *dW, *db;
};

/* A device of this process, as its driver describes it. */
struct pp_device {
    int number;       /* what pp_backend_choice calls `device` */
    char name[64];    /* "NVIDIA H200" */
    char uuid[48];    /* "GPU-8f0c...": of one device in every process and container */
    int processors;   /* multiprocessors */
    int capability;   /* 90: compute capability 9.0 */
    uint64_t bytes;   /* of its memory */
    char problem[96]; /* why no run can use it; empty: one can */
};

struct pp_backend_caps {
    bool host_visible; /* arena pointers may be read and written by the host: !own_memory */
    bool async;        /* ops may return before they are done */
    bool graphs;       /* a whole step can be captured and replayed; its marks join streams */
    bool thread_safe;  /* several ranks may be threads of this process */
};

struct pp_backend_ops {
    const char *name;
    const char *help;
    bool own_memory; /* alloc gives memory that the host must not touch; then alloc, to_device,
                        to_host, zero and copy are there */
    /* 0 and *why = what it found ("OpenBLAS 0.3.21 (SkylakeX)"), or PP_ERESOURCE with the reason
     * and what would work in *why. Records no failure: "auto" asks several. Never NULL. */
    int (*probe)(char *why, size_t bytes);
    /* Whether the machine has a device of its kind, usable or not, that the user has not hidden. NULL
     * entry: it has none. */
    bool (*is_here)(void);
    /* What a run can choose from, all of it Local and without an open backend. NULL entries: the
     * backend computes on the processor and there is nothing to choose. */
    /* The devices this process can use, numbers 0, 1, ...: *n of them, the first `max` described.
     * As probe: PP_ERESOURCE and the reason in *why when there are none, no failure recorded. */
    int (*devices)(struct pp_device *out, int max, int *n, char *why, size_t bytes);
    /* Whether kernels on device `from` may read and write memory of device `to`. */
    bool (*reaches)(int from, int to);
    /* Bytes of its memory that nobody has taken now. Starts the device for this process. */
    int (*free_bytes)(int device, uint64_t *out);
    /* About how many bytes of a device's memory each rank takes beside what is allocated, for libraries
     * and work of the backend's own. NULL entry: none. A pure function of its argument. */
    size_t (*own_bytes)(const struct pp_backend_choice *choice);
    /* Driver and libraries, one call each: ("CUDA driver", "13.0"); what is not there is said in
     * `text`. Never fails. */
    void (*versions)(void (*visit)(void *ctx, const char *what, const char *text), void *ctx);
    /* Set up this rank's device, in the thread that will use it. be->impl is the backend's. */
    int (*open)(struct pp_backend *be, int threads);
    void (*close)(struct pp_backend *be);
    /* One block of device memory, zeroed, PP_ALIGN aligned. NULL entry: host pages. */
    int (*alloc)(struct pp_backend *be, size_t bytes, void **out);
    void (*free)(struct pp_backend *be, void *p, size_t bytes);
    /* Host <-> device, ordered on the stream; on return the host's side may be used. NULL: memcpy.
     */
    int (*to_device)(struct pp_backend *be, void *dst, const void *src, size_t bytes);
    int (*to_host)(struct pp_backend *be, void *dst, const void *src, size_t bytes);
    int (*synchronize)(struct pp_backend *be);
    /* p[bytes] = 0 and dst[bytes] = src[bytes], ordered on the stream; they do not overlap. src may
     * be memory of another backend of this process, also of another device. NULL: memset, memcpy.
     */
    int (*zero)(struct pp_backend *be, void *p, size_t bytes);
    int (*copy)(struct pp_backend *be, void *dst, const void *src, size_t bytes);

    /* ---- streams; all NULL where ops are done when they return (caps.async is false) */
    /* Memory of the host that upload reads without a copy of its own. NULL: any memory. */
    int (*host_alloc)(struct pp_backend *be, size_t bytes, void **out);
    void (*host_free)(struct pp_backend *be, void *p, size_t bytes);
    /* As to_device from memory of host_alloc, but returns at once: src must stay as it is until a
     * mark set after it is done. May be captured. */
    int (*upload)(struct pp_backend *be, void *dst, const void *src, size_t bytes);
    /* As to_host into memory of host_alloc, but returns at once: dst is there when a mark set
     * after it is done. May be captured. */
    int (*download)(struct pp_backend *be, void *dst, const void *src, size_t bytes);
    /* The stream itself, of the type that the device's own libraries take (a cudaStream_t). */
    void *(*native_stream)(struct pp_backend *be);
    /* A mark is a point in a stream: what was enqueued on be when it was set last. Another backend
     * of this process, also on another device, can make its later work wait for it (mark_wait; the
     * host does not wait). A mark never set counts as reached. timed: mark_elapsed may be asked. */
    int (*mark_create)(struct pp_backend *be, bool timed, void **mark);
    void (*mark_destroy)(struct pp_backend *be, void *mark);
    int (*mark_set)(struct pp_backend *be, void *mark);
    int (*mark_wait)(struct pp_backend *be, void *mark);
    /* Whether it is reached; where the device failed meanwhile, what it said. Never waits. */
    int (*mark_reached)(struct pp_backend *be, void *mark, bool *reached);
    /* Device time between two timed marks of this device, both reached. Nanoseconds. */
    int (*mark_elapsed)(struct pp_backend *be, void *from, void *to, uint64_t *ns);
    /* Between the two, work enqueued on be is recorded and not done. Streams of other backends of
     * this process join by waiting for a mark of be, from any thread, and must have been waited
     * for by be before the end. The thread that begins ends. */
    int (*capture_begin)(struct pp_backend *be);
    int (*capture_end)(struct pp_backend *be, void **graph);
    /* Do all of it, after what is enqueued on be. */
    int (*graph_launch)(struct pp_backend *be, void *graph);
    void (*graph_destroy)(struct pp_backend *be, void *graph);
    /* Name what is enqueued until range_pop in a profiler's timeline. */
    void (*range_push)(struct pp_backend *be, const char *name);
    void (*range_pop)(struct pp_backend *be);

    /* Bytes of an element of a value: 4, or 2 for bfloat16. A pure function of its argument, also where
     * the backend cannot run. NULL entry: 4. */
    size_t (*value_bytes)(const struct pp_backend_choice *choice);
    /* Rows of 1,024 logits and more whose number is no multiple of 8 begin at multiples of so many
     * elements, so that each can be read 16 bytes at a time; 0: rows have no gaps between them. */
    int logits_unit;
    /* Whether a weight gradient has the same bits however its rows are spread over calls and parts. A
     * pure function of its arguments and the machine. NULL entry: it does not. */
    bool (*sums_in_order)(const struct pp_backend_choice *choice);
    /* Do for the layer's ops what they would do when they see such a
     * shape first (choose algorithms, take scratch), so that a step that calls them takes neither
     * memory nor time for it. Cheap when it was done before. NULL entry: there is nothing to do. */
    int (*prepare_linear)(struct pp_backend *be, const struct pp_linear_use *use);
    /* Floats of the copy of W[O][I] that the products read faster than W itself; 0, or NULL
     * entry: none. A pure function of its arguments and the machine. */
    size_t (*packed_floats)(const struct pp_backend_choice *choice, int O, int I);
    /* packed = that copy, with the b (NULL: none) of the calls that read it. Due whenever they have
     * changed. */
    int (*pack_weights)(struct pp_backend *be, int O, int I, const float *W, const float *b,
                        float *packed);
    /* *io (host) = the largest of *io and |x[i]|, n elements, where a NaN is larger than Inf: what
     * comes out is finite exactly when all of it is. Only where ops are done when they return. */
    int (*largest)(struct pp_backend *be, size_t n, const float *x, float *io);
    /* From `what` to PP_COLLECT_NOTHING calls of its ops may wait, to be done together by the call
     * with PP_COLLECT_NOTHING: nothing else reads or writes their arrays in between. A copy of
     * weights that pack_weights or conv_pack makes may wait with their update. NULL entry: no call
     * waits. */
    int (*collect)(struct pp_backend *be, enum pp_collect what);
    /* As packed_floats and pack_weights, for the weights of a convolution. */
    size_t (*conv_packed_floats)(const struct pp_backend_choice *choice, const struct pp_conv *g);
    int (*conv_pack)(struct pp_backend *be, const struct pp_conv *g, const float *W, const float *b,
                     float *packed);
    /* Floats of scratch that each of the three kernels of a convolution may use with at most B
     * samples; 0, or NULL entry: none. A pure function of its arguments and the machine. */
    size_t (*conv_scratch_floats)(const struct pp_backend_choice *choice, const struct pp_conv *g,
                                  int B);
    /* As prepare_linear, for a convolution. */
    int (*prepare_conv)(struct pp_backend *be, const struct pp_conv_use *use);
    /* ---- those of ppcli/dev/kernels.h */
#define PP_KERNEL(name, type) int (*name)(struct pp_backend * be, const struct type *a);
#include "ppcli/dev/kernels.def"
};

struct pp_backend {
    const struct pp_backend_ops *ops;
    struct pp_backend_choice choice;
    struct pp_backend_caps caps;
    uint64_t quiet_ns;     /* what is enqueued may take so long: see pp_backend_is_quiet() */
    void *impl;            /* owned by the backend, freed by ops->close */
    char description[128]; /* "cpu: OpenBLAS 0.3.21 (SkylakeX), 1 thread" */
};

/* Threads of a rank that compute pieces of one kernel at the same time, each in a scratch of its own. */
static inline int pp_backend_members(const struct pp_backend_choice *choice)
{
    bool divides = choice && choice->threads > 1 && choice->gemm != PP_GEMM_CBLAS;
    return divides && !(choice->ops && choice->ops->own_memory) ? choice->threads : 1;
}

/* Those of backends.def, i = 0..count-1. */
int pp_backend_count(void);
const struct pp_backend_ops *pp_backend_at(int i);

const char *const *pp_backend_names(void); /* of backends.def, "auto" first, NULL-terminated */

/* The backend that "auto" means here (cuda where it can run, else cpu), or `name` itself.
 * PP_ERESOURCE when it cannot run here, with the reason and what would work; PP_ECONFIG when there
 * is none of that name. */
int pp_backend_resolve(const char *name, const struct pp_backend_ops **out);

/* Where "auto" left a device unused that is in this machine, warn why; once for the process. `taken` is
 * what `name` was resolved to. */
void pp_backend_warn_unused(const char *name, const struct pp_backend_ops *taken);

/* What a rank of cfg asks of a backend: on the first device that cfg allows, the whole of it. Which
 * device a rank of several gets: ppcli/dev/devices.h. ops may be NULL. */
struct pp_backend_choice pp_backend_choice_with(const struct pp_backend_ops *ops,
                                                const struct pp_config *cfg);

/* The same with what cfg's run.backend is here; ops NULL when it cannot run. Records no failure. */
struct pp_backend_choice pp_backend_choice_of(const struct pp_config *cfg);

/* Local, in the thread of the rank, which also closes it: the CPU backends flush denormals to zero
 * in that thread in between. The caller owns *out: pp_backend_close(). */
int pp_backend_open_choice(const struct pp_backend_choice *choice, struct pp_backend **out);
void pp_backend_close(struct pp_backend **be);

/*
 * Callers use pp_backend_alloc() and so on, with the arguments of the table's entry. Each falls
 * back to the plain default where the table has NULL. Those of streams do nothing where ops are
 * done when they return (a mark is NULL then and always reached; upload and download copy).
 * Capturing needs caps.graphs.
 */
#define PP_ENTRY(x) __typeof__(*((struct pp_backend_ops *)0)->x) pp_backend_##x;
#include "ppcli/dev/backend_entries.def"
#define PP_KERNEL(name, type) int pp_backend_##name(struct pp_backend *be, const struct type *a);
#include "ppcli/dev/kernels.def"

/*
 * Before freeing memory that the device uses, also after a failure: set the mark and wait for it on
 * the host. False when it is not reached in 2 s, or in be->quiet_ns where that is more: the device hangs
 * and may still use the memory, and freeing that could wait forever. A device that has failed is quiet.
 * Keeps the thread's error.
 */
bool pp_backend_is_quiet(struct pp_backend *be, void *mark);

bool pp_backend_sums_in_order(const struct pp_backend_choice *choice);

/* choice NULL: of the processor. */
size_t pp_backend_value_bytes(const struct pp_backend_choice *choice);

/* Elements from one row of C logits to the next: C, or more where the backend pads them. What is in
 * the gap between two rows means nothing. choice NULL: of the processor. */
int pp_backend_logits_row(const struct pp_backend_choice *choice, int C);

/* Floats that hold n elements of a value. */
static inline size_t pp_value_floats(const struct pp_backend_choice *choice, size_t n)
{
    return (n * pp_backend_value_bytes(choice) + sizeof(float) - 1) / sizeof(float);
}

/* Element i of a value. Not to be read through: of a device, and perhaps bf16. */
static inline pp_value *pp_value_at(const struct pp_backend *be, const pp_value *values, size_t i)
{
    char *p = (char *)values;
    return p ? (pp_value *)(void *)(p + i * pp_backend_value_bytes(&be->choice)) : NULL;
}

/* Values as f32, on the host. May be captured by nobody. */
int pp_backend_values_to_host(struct pp_backend *be, float *dst, const pp_value *src, size_t n);
/* The same of B rows of C, `row` elements from one to the next; dst[B][C]. */
int pp_backend_rows_to_host(struct pp_backend *be, float *dst, const pp_value *src, size_t B, int C,
                            int row);

/* g[n] += a, parameters or their gradients: replica reduction in fixed order. */
static inline int pp_backend_add(struct pp_backend *be, size_t n, const float *a, float *g)
{
    const struct pp_sum s = {n, g, a, false, g, true};
    return pp_backend_sum(be, &s);
}

int pp_backend_largest(struct pp_backend *be, size_t n, const float *x, float *io);

/* The CBLAS in use: "OpenBLAS 0.3.21 (SkylakeX)", or the file name of a library that does not tell
 * its version. */
void pp_blas_describe(char *out, size_t bytes);

#endif
