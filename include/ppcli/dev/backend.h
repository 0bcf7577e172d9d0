/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend is the compute device of one rank: memory, ops, streams, scratch.
 *
 * Ops are ordered by a stream: a call enqueues work on the rank's compute stream and may return
 * before it is complete (the CPU completes it). Set-up may allocate; a training step allocates
 * nothing and never waits for the device. Every op has a plain default (src/dev/plain, the
 * reference: double arithmetic in index order, host memory only), which a backend uses for entries
 * that are NULL. Ask what a backend can do (caps), never which one it is.
 *
 * All matrices are row-major f32 with leading dimension = columns, except *values* (pp_value):
 * per-sample data (x, y, z, their gradients, the copies of them that ops keep; not statistics, sums
 * or log-sum-exps) is bf16 if pp_backend_value_bytes() is 2. B rows of a micro-batch, I inputs, O
 * outputs. W[O][I] and b[O] as PyTorch's nn.Linear stores them. B may be 0 (a replica without
 * samples): nothing is read, and a weight gradient with beta 0 becomes zero. A NaN in gives a NaN
 * out (also through relu), so that a diverged run is noticed; only where relu gave 0 the gradient
 * is always 0, as in PyTorch. The same call with the same values gives the same bits at every
 * address.
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

/* A row of ppcli/conf/activations.def, which explains the members. */
struct pp_activation_facts {
    bool saves_z; /* false: saves y */
    double gain, steepest;
};

const struct pp_activation_facts *pp_activation_facts(int activation);

/* A backend and its settings. */
struct pp_backend_choice {
    const struct pp_backend_ops *ops;   /* NULL: no backend can run here */
    const struct pp_backend_ops *named; /* as the config names it, even if it cannot run here; NULL:
                                           unknown name */
    int threads;                        /* of each rank */
    /* Processors of the threads: see ppcli/base/cores.h. */
    int processors;  /* that they may use; 0: as many as threads */
    const int *cpus; /* [threads] the first is that of the rank's own thread; NULL: not pinned */
    bool crowded;
    enum pp_gemm gemm;
    enum pp_conv_by conv;
    enum pp_precision precision; /* of products; the reference ignores it, the CPU ignores tf32 */
    bool unpacked;  /* make no copies of weights: pp_backend_packed_floats() and similar functions
                      return 0 */
    bool exact;     /* the same call gives the same bits in every run and on any number of stages */
    int device;     /* number of the device, from 0 on */
    int partition;  /* this rank computes on piece `partition` of ... */
    int partitions; /* ... `partitions` equal pieces of the device's multiprocessors; 0: on all of
                       them */
};

/* Sums over the samples of micro-batches. The loss op adds to them in device memory; read and reset
 * them with pp_backend_to_host() and pp_backend_to_device(). */
struct pp_loss_sums {
    double loss;     /* sum of the targets' losses; without smoothing, -log p(target) */
    int64_t correct; /* targets that are the arg max; bce: on their side of 0.5 */
    int64_t rows;    /* samples */
    int64_t targets; /* targets that are not ignored; of numbers, one for each output */
    double weight;   /* sum of their weights, which is their number unless classes have weights */
    /* numbers: sums of the squared and absolute errors, of the targets and of their squares */
    double squares, absolutes, sum, sum_squares;
};

static inline void pp_loss_sums_add(struct pp_loss_sums *to, const struct pp_loss_sums *a)
{
    to->loss += a->loss;
    to->correct += a->correct;
    to->rows += a->rows;
    to->targets += a->targets;
    to->weight += a->weight;
    to->squares += a->squares;
    to->absolutes += a->absolutes;
    to->sum += a->sum;
    to->sum_squares += a->sum_squares;
}

/* Returns the mean loss, weighted if classes have weights; NaN if nothing counts. */
static inline double pp_loss_sums_loss(const struct pp_loss_sums *s)
{
    return s->weight > 0 ? s->loss / s->weight : (double)NAN;
}

/* Returns one of the other sums divided by the number of targets; NaN if every target is
 * ignored. */
static inline double pp_loss_sums_mean(const struct pp_loss_sums *s, double sum)
{
    return s->targets > 0 ? sum / (double)s->targets : (double)NAN;
}

/* Arguments of an optimizer pass over a whole parameter buffer; the same on every rank. In device
 * memory, and read when the work runs, so that a captured step can be replayed with other
 * values. */
struct pp_optimizer_args {
    int kind;           /* enum pp_optimizer_kind */
    float lr;           /* of this step, with schedule and warm-up */
    float momentum;     /* momentum: v = momentum*v + g; p -= lr*v (PyTorch, dampening 0) */
    float beta1, beta2; /* adam, adamw */
    float eps;
    float weight_decay; /* sgd/momentum/adam: g += wd*p; adamw, muon: p -= lr*wd*p first */
    float grad_scale;   /* factor of every gradient, applied first (clipping); 1: unchanged */
    int64_t step;       /* 1, 2, ...: for bias correction */
    bool skip;          /* change nothing */
    int64_t t;          /* step of the run, for judge */
    bool nesterov;      /* momentum: p -= lr*(g + momentum*v) */
    float loss_scale;   /* if targets are ignored or weighted: 1 / the weight of the step's */
};

/* The result of a step; device memory, written by judge. */
struct pp_step_verdict {
    int64_t step;      /* args->t */
    int64_t bad_step;  /* first step that was bad since the host zeroed this; 0: none */
    int32_t bad_rank;  /* the first bad rank of that step */
    int32_t bad_index; /* which of its values is bad */
    double bad_value;  /* the bad value; if finite, the sum of all squares, which is over `most` */
    double norm;       /* of all gradients of `step`, before clipping */
    float grad_scale;  /* the factor applied to them */
    bool skipped;      /* `step` did not change the weights */
};

/*
 * Decides whether a step is bad, after its gradients are summed over the replicas and before the
 * optimizer. Bad is a value of votes that is not finite, or a sum of squares over `most`. norm =
 * sqrt of the sum over i of (the sum of votes[r][i] over the ranks r < stages, in order), in order;
 * grad_scale = min(1, clip_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_. A step is
 * skipped if it is bad or, with halt, if an earlier one was. The same votes give the same bits
 * everywhere. Pointers are device memory, other members the host's.
 */
struct pp_judgement {
    int ranks, stages;   /* of the run; rank d * stages + r belongs to replica d */
    int n;               /* sums of squares per rank */
    double clip_norm;    /* 0: no clipping */
    double most;         /* most that the squares may sum to; 0: any finite number */
    bool halt;           /* after a bad step no later one changes weights until the host zeroes the
                            verdict */
    const double *votes; /* [ranks][n + 1] sums of squares, 0 for other stages'; then a loss, or
                            0 */
    const struct pp_loss_sums *before; /* loss sums before the step; NULL: not on this rank */
    struct pp_loss_sums *sums;         /* with the step's; become *before if the step is skipped */
    struct pp_optimizer_args *args;    /* out: grad_scale and skip */
    struct pp_step_verdict *verdict;   /* in: that of the step before; out: this step's */
};

/* Kinds of ops whose calls, each on its own array, the backend may combine into one pass. */
enum pp_collect {
    PP_COLLECT_NOTHING,
    PP_COLLECT_SQUARES,
    PP_COLLECT_UPDATES, /* optimizer, running statistics */
    PP_COLLECT_WEIGHTS  /* gradients of biases and of norms' weights */
};

/* The contribution of one micro-batch to a weight gradient: dz[B][O], x[B][I] for products; x1 is
 * an op's second input, keep and grad_keep are what it kept in F and in I. */
struct pp_weight_part {
    int B;
    const pp_value *dz, *x, *x1, *keep, *grad_keep;
};

/* y[B][O] = act(x[B][I] * W[O][I]^T + b[O]). `row`: elements from one row of y, and of dz, to the
 * next, for a layer without b, act and z: pp_backend_logits_row(); 0: O. */
struct pp_linear_forward {
    int B, I, O;
    const pp_value *x;
    const float *W;
    const float *packed; /* the result of pack_weights for W, or NULL; the bits are the same */
    const float *b;      /* NULL: no bias */
    int act;             /* enum pp_activation */
    pp_value *z; /* [B][O] unless NULL: receives the value before act (gelu's backward pass needs
                    it) */
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

/*
 * dW[O][I] = beta*dW + the sum over the n >= 1 parts, in order, of dz^T * x; db[O] = beta*db +
 * column sums of their dz, db NULL: no bias. beta is 0 or 1; with 0 the old content is never read.
 * One part gives the same bits whatever else was called. Several parts need not give the bits of as
 * many calls, but the same parts always give the same bits, wherever they lie.
 */
struct pp_linear_backward_weight {
    int n;
    const struct pp_weight_part *parts;
    int I, O;
    float beta;
    float *dW, *db;
    int row;
};

/* *out (device memory) = the sum of squares of g[n] in double, in a fixed order that depends on n
 * only. */
struct pp_sum_squares {
    size_t n;
    const float *g;
    double *out;
};

/* Updates p[n] from g[n], unless args->skip; decay false: without args->weight_decay. m[n] and
 * v[n]: the optimizer's state (NULL if it has none: sgd none; momentum m; adam, adamw m and v). For
 * Muon this is adamw; its matrices use kernel muon. Element-wise: any split of the buffer gives the
 * same bits. */
struct pp_optimizer_step {
    size_t n;
    const struct pp_optimizer_args *args;
    bool decay;
    const float *g;
    float *m, *v, *p;
};

/* The arguments that the ops of a linear layer will be called with. W, packed, b, dW and db: these
 * very arrays, device memory; arrays of rows will start at PP_ALIGN boundaries. */
struct pp_linear_use {
    int B, I, O;
    int act;                     /* enum pp_activation */
    bool keeps_z;                /* linear_forward also writes z */
    bool dx;                     /* linear_backward_input is called */
    bool adds;                   /* for a convolution: its product may be added to dx */
    const float *W, *packed, *b; /* b NULL: no bias, and db is NULL */
    float *dW, *db;              /* dW NULL: linear_backward_weight is not called */
    int row;
};

/* As pp_linear_use, for a convolution of B samples. */
struct pp_conv_use {
    const struct pp_conv *g;
    int B;
    bool relu, dx, adds; /* adds: conv_backward_input is also called with `add` */
    const float *W, *packed, *b;
    float *dW, *db;
};

/* A device of this process, as its driver describes it. */
struct pp_device {
    int number;       /* `device` of pp_backend_choice */
    char name[64];    /* "NVIDIA H200" */
    char uuid[48];    /* "GPU-8f0c...": identifies the device in every process and container */
    int processors;   /* multiprocessors */
    int capability;   /* 90: compute capability 9.0 */
    uint64_t bytes;   /* of its memory */
    char problem[96]; /* why no run can use it; "": it can be used */
};

struct pp_backend_caps {
    bool host_visible; /* the host may read and write arena pointers: !own_memory */
    bool async;        /* ops may return before they are complete */
    bool graphs;       /* a whole step can be captured and replayed; its marks join streams */
    bool thread_safe;  /* several ranks may be threads of this process */
};

/*
 * A backend. src/dev/skeleton.c is a template. Hooks are called by the thread that opened the
 * backend, unless they say otherwise. An entry that is NULL uses the plain default, or does
 * nothing.
 */
struct pp_backend_ops {
    const char *name;
    const char *help;
    bool own_memory; /* the host must not touch memory of alloc; requires alloc, free, to_device,
                        to_host, zero and copy */
    /* Required. Finds whether the backend can run here: 0, and a description in *why ("OpenBLAS
     * 0.3.21 (SkylakeX)"); or PP_ERESOURCE, and the reason and advice in *why. Called before open,
     * by any thread, and often: it must not record a failure, because "auto" asks several
     * backends. */
    int (*probe)(char *why, size_t bytes);
    /* Whether the machine has a device of this kind, usable or not, that the user has not hidden;
     * for a warning. Any thread. NULL: false. */
    bool (*is_here)(void);
    /* ---- devices; called before open, by any thread. NULL: the backend computes on the
     * processor. */
    /* Lists the devices that this process can use, numbers 0, 1, ...: *n devices, the first `max`
     * described. As probe: PP_ERESOURCE and the reason in *why if there are none; records no
     * failure. */
    int (*devices)(struct pp_device *out, int max, int *n, char *why, size_t bytes);
    /* Whether kernels on device `from` may read and write memory of device `to`. */
    bool (*reaches)(int from, int to);
    /* Returns the free bytes of a device's memory. Starts the device for this process. */
    int (*free_bytes)(int device, uint64_t *out);
    /* Returns about how many bytes of a device's memory each rank uses besides allocations, for
     * libraries and the backend's own work. NULL: 0. A pure function of its argument. */
    size_t (*own_bytes)(const struct pp_backend_choice *choice);
    /* Visits the versions of driver and libraries: ("CUDA driver", "13.0"); `text` says so if one
     * is missing. Never fails. */
    void (*versions)(void (*visit)(void *ctx, const char *what, const char *text), void *ctx);
    /* Sets up this rank's device, in the rank's thread. The backend owns be->impl. */
    int (*open)(struct pp_backend *be, int threads);
    void (*close)(struct pp_backend *be);
    /* Allocates a zeroed block of device memory, aligned to PP_ALIGN. At set-up. NULL: host
     * pages. */
    int (*alloc)(struct pp_backend *be, size_t bytes, void **out);
    void (*free)(struct pp_backend *be, void *p, size_t bytes);
    /* Copies between host and device, ordered by the stream; on return the host's memory may be
     * reused. NULL: memcpy. */
    int (*to_device)(struct pp_backend *be, void *dst, const void *src, size_t bytes);
    int (*to_host)(struct pp_backend *be, void *dst, const void *src, size_t bytes);
    int (*synchronize)(struct pp_backend *be);
    /* Zeroes p[bytes]; copies src[bytes] to dst, which do not overlap. Ordered by the stream. src
     * may belong to another backend of this process, also on another device. NULL: memset,
     * memcpy. */
    int (*zero)(struct pp_backend *be, void *p, size_t bytes);
    int (*copy)(struct pp_backend *be, void *dst, const void *src, size_t bytes);

    /* ---- streams; all NULL if ops are complete when they return (caps.async is false); else all
     * required */
    /* Allocates host memory that upload reads without a copy of its own. NULL: any memory. */
    int (*host_alloc)(struct pp_backend *be, size_t bytes, void **out);
    void (*host_free)(struct pp_backend *be, void *p, size_t bytes);
    /* As to_device from memory of host_alloc, but returns at once: src must not change until a mark
     * set after it is reached. May be captured. */
    int (*upload)(struct pp_backend *be, void *dst, const void *src, size_t bytes);
    /* As to_host into memory of host_alloc, but returns at once: dst is complete when a mark set
     * after it is reached. May be captured. */
    int (*download)(struct pp_backend *be, void *dst, const void *src, size_t bytes);
    /* Returns the stream, in the type of the device's own libraries (a cudaStream_t). */
    void *(*native_stream)(struct pp_backend *be);
    /* A mark is a point in a stream: it is reached when the work enqueued on be before the last
     * mark_set is complete. mark_wait makes the later work of another backend of this process, also
     * on another device, wait for it; the host does not wait. A mark that was never set counts as
     * reached. timed: for mark_elapsed. */
    int (*mark_create)(struct pp_backend *be, bool timed, void **mark);
    void (*mark_destroy)(struct pp_backend *be, void *mark);
    int (*mark_set)(struct pp_backend *be, void *mark);
    int (*mark_wait)(struct pp_backend *be, void *mark);
    /* Whether the mark is reached; returns the error if the device failed. Never waits. */
    int (*mark_reached)(struct pp_backend *be, void *mark, bool *reached);
    /* Returns the device time between two timed marks of this device that are reached, in
     * nanoseconds. */
    int (*mark_elapsed)(struct pp_backend *be, void *from, void *to, uint64_t *ns);
    /* Between begin and end, work enqueued on be is recorded and not run. Streams of other backends
     * of this process join by waiting for a mark of be, from any thread, and be must have waited
     * for them before the end. The thread that begins must end. */
    int (*capture_begin)(struct pp_backend *be);
    int (*capture_end)(struct pp_backend *be, void **graph);
    /* Runs all recorded work, after what is enqueued on be. */
    int (*graph_launch)(struct pp_backend *be, void *graph);
    void (*graph_destroy)(struct pp_backend *be, void *graph);
    /* Names what is enqueued until range_pop in a profiler's timeline. NULL: nothing. */
    void (*range_push)(struct pp_backend *be, const char *name);
    void (*range_pop)(struct pp_backend *be);

    /* Returns the bytes of an element of a value: 4, or 2 for bfloat16. A pure function of its
     * argument, also if the backend cannot run. NULL: 4. */
    size_t (*value_bytes)(const struct pp_backend_choice *choice);
    /* Rows of 1,024 logits or more, if their number is not a multiple of 8, begin at multiples of
     * this many elements, so that each can be read 16 bytes at a time; 0: no gaps between rows. */
    int logits_unit;
    /* Whether a weight gradient has the same bits however its rows are divided among calls and
     * parts. A pure function of its argument and the machine. NULL: false. */
    bool (*sums_in_order)(const struct pp_backend_choice *choice);
    /* Does for the layer's ops what they would do at their first call with such a shape (choose
     * algorithms, take scratch), so that a step allocates nothing. Called before steps; cheap if
     * done before. NULL: nothing to do. */
    int (*prepare_linear)(struct pp_backend *be, const struct pp_linear_use *use);
    /* Returns the floats of a copy of W[O][I] that products read faster than W; 0: no copy. A pure
     * function of its arguments and the machine. NULL: 0. */
    size_t (*packed_floats)(const struct pp_backend_choice *choice, int O, int I);
    /* Writes that copy, with the b (NULL: no bias) of the calls that read it. Called whenever they
     * have changed. Required with packed_floats. */
    int (*pack_weights)(struct pp_backend *be, int O, int I, const float *W, const float *b,
                        float *packed);
    /* Sets *io (host) to the largest of *io and |x[i]|, n elements; a NaN is larger than Inf, so
     * the result is finite exactly if all values are. Only for backends whose ops are complete when
     * they return. */
    int (*largest)(struct pp_backend *be, size_t n, const float *x, float *io);
    /* From `what` until PP_COLLECT_NOTHING, calls of such ops may be delayed and run together by
     * the call with PP_COLLECT_NOTHING; no other op reads or writes their arrays in between. A copy
     * of weights by pack_weights or conv_pack may be delayed with their update. NULL: no call is
     * delayed. */
    int (*collect)(struct pp_backend *be, enum pp_collect what);
    /* As packed_floats and pack_weights, for the weights of a convolution. */
    size_t (*conv_packed_floats)(const struct pp_backend_choice *choice, const struct pp_conv *g);
    int (*conv_pack)(struct pp_backend *be, const struct pp_conv *g, const float *W, const float *b,
                     float *packed);
    /* Returns the floats of scratch that each of a convolution's three kernels may use with at most
     * B samples. A pure function of its arguments and the machine. NULL: 0. */
    size_t (*conv_scratch_floats)(const struct pp_backend_choice *choice, const struct pp_conv *g,
                                  int B);
    /* As prepare_linear, for a convolution. */
    int (*prepare_conv)(struct pp_backend *be, const struct pp_conv_use *use);
    /* ---- the kernels of ppcli/dev/kernels.h; NULL: the plain version, which needs host memory */
#define PP_KERNEL(name, type) int (*name)(struct pp_backend * be, const struct type *a);
#include "ppcli/dev/kernels.def"
};

struct pp_backend {
    const struct pp_backend_ops *ops;
    struct pp_backend_choice choice;
    struct pp_backend_caps caps;
    uint64_t quiet_ns;     /* longest time that enqueued work may take: see pp_backend_is_quiet() */
    void *impl;            /* owned by the backend, freed by ops->close */
    char description[128]; /* "cpu: OpenBLAS 0.3.21 (SkylakeX), 1 thread" */
};

/* Returns the threads of a rank that compute pieces of one kernel at the same time, each with its
 * own scratch. */
static inline int pp_backend_members(const struct pp_backend_choice *choice)
{
    bool divides = choice && choice->threads > 1 && choice->gemm != PP_GEMM_CBLAS;
    return divides && !(choice->ops && choice->ops->own_memory) ? choice->threads : 1;
}

/* Return the backends of backends.def, i = 0..count-1. */
int pp_backend_count(void);
const struct pp_backend_ops *pp_backend_at(int i);

const char *const *pp_backend_names(void); /* of backends.def, "auto" first, NULL-terminated */

/* Finds the backend that `name` means here ("auto": cuda if it can run, else cpu). PP_ERESOURCE: it
 * cannot run here; the text has the reason and advice. PP_ECONFIG: no backend has that name. */
int pp_backend_resolve(const char *name, const struct pp_backend_ops **out);

/* Warns, once per process, if "auto" does not use a device of this machine, and why. taken: what
 * `name` was resolved to. */
void pp_backend_warn_unused(const char *name, const struct pp_backend_ops *taken);

/* Returns the settings of a rank of cfg: on the first device that cfg allows, all of it.
 * ppcli/dev/devices.h assigns devices to several ranks. ops may be NULL. */
struct pp_backend_choice pp_backend_choice_with(const struct pp_backend_ops *ops,
                                                const struct pp_config *cfg);

/* Returns the settings as pp_backend_choice_with() does, with the backend of cfg's run.backend; ops
 * is NULL if it cannot run. Records no failure. */
struct pp_backend_choice pp_backend_choice_of(const struct pp_config *cfg);

/* Opens a backend, in the rank's thread, which must also close it: in between, the CPU backends
 * flush denormals to zero in that thread. Local. The caller owns *out: pp_backend_close(). */
int pp_backend_open_choice(const struct pp_backend_choice *choice, struct pp_backend **out);
void pp_backend_close(struct pp_backend **be);

/*
 * Code calls pp_backend_alloc() and so on, with the arguments of the table's entry. Each uses the
 * plain default if the entry is NULL. Those of streams do nothing if ops are complete when they
 * return (a mark is then NULL and always reached; upload and download copy). Capturing needs
 * caps.graphs.
 */
#define PP_ENTRY(x) __typeof__(*((struct pp_backend_ops *)0)->x) pp_backend_##x;
#include "ppcli/dev/backend_entries.def"
#define PP_KERNEL(name, type) int pp_backend_##name(struct pp_backend *be, const struct type *a);
#include "ppcli/dev/kernels.def"

/*
 * Before memory that the device uses is freed, also after a failure: sets the mark and waits for it
 * on the host. Returns false if it is not reached within 2 s, or within be->quiet_ns if that is
 * longer: the device hangs and may still use the memory, and freeing it could wait forever. A
 * device that has failed counts as quiet. Keeps the thread's error.
 */
bool pp_backend_is_quiet(struct pp_backend *be, void *mark);

bool pp_backend_sums_in_order(const struct pp_backend_choice *choice);

/* Returns the bytes of an element of a value. choice NULL: on the processor. */
size_t pp_backend_value_bytes(const struct pp_backend_choice *choice);

/* Returns the elements from one row of C logits to the next: C, or more if the backend pads rows;
 * the gaps are undefined. choice NULL: of the processor. */
int pp_backend_logits_row(const struct pp_backend_choice *choice, int C);

/* Returns how many floats hold n elements of a value. */
static inline size_t pp_value_floats(const struct pp_backend_choice *choice, size_t n)
{
    return (n * pp_backend_value_bytes(choice) + sizeof(float) - 1) / sizeof(float);
}

/* Returns the address of element i of a value. Do not read through it: it may be device memory, and
 * bf16. */
static inline pp_value *pp_value_at(const struct pp_backend *be, const pp_value *values, size_t i)
{
    char *p = (char *)values;
    return p ? (pp_value *)(void *)(p + i * pp_backend_value_bytes(&be->choice)) : NULL;
}

/* Copies values to the host as f32. A captured step must not contain it. */
int pp_backend_values_to_host(struct pp_backend *be, float *dst, const pp_value *src, size_t n);
/* Copies B rows of C values, whose beginnings are `row` elements apart, to dst[B][C] on the host as
 * f32. A captured step must not contain it. */
int pp_backend_rows_to_host(struct pp_backend *be, float *dst, const pp_value *src, size_t B, int C,
                            int row);

/* Adds a to g[n], parameters or their gradients: for the reduction over replicas in fixed order. */
static inline int pp_backend_add(struct pp_backend *be, size_t n, const float *a, float *g)
{
    const struct pp_sum s = {n, g, a, false, g, true};
    return pp_backend_sum(be, &s);
}

int pp_backend_find_largest(struct pp_backend *be, size_t n, const float *x, float *io);

/* Describes the CBLAS in use: "OpenBLAS 0.3.21 (SkylakeX)", or the file name of a library that does
 * not tell its version. */
void pp_blas_describe(char *out, size_t bytes);

#endif
