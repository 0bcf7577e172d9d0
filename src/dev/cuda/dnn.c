/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls for convolutions that cuDNN has had since version 7. Its manual says of each algorithm
 * whether its bits are the same in every run; algorithm 1 is such a one in all three passes.
 * Everything used of the library is declared here, so that no build needs its headers: handles and
 * descriptors are pointers, and all enumerations are int. The three passes take the same parameters
 * in the same order.
 */
#include "plan.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "ppcli/base/base.h"

#define DNN_FILE "libcudnn.so.9"
#define DNN_NHWC 1
#define DNN_CROSS_CORRELATION 1
#define DNN_F32 0
#define DNN_BF16 9
#define DNN_DEFAULT_MATH 0   /* with float factors: TF32 */
#define DNN_TENSOR_OP_MATH 1 /* bf16 on tensor cores; float is not rounded for them */
#define DNN_FMA_MATH 3
#define DNN_NOT_SUPPORTED 3 /* in thousands, as the other codes */
#define DNN_EXECUTION_FAILED 5
#define ALGORITHM 1 /* IMPLICIT_PRECOMP_GEMM forward, BWD_DATA_ALGO_1, BWD_FILTER_ALGO_1 */

/* The descriptors of a convolution. */
enum thing {
    THE_X,
    THE_Y,
    THE_W,
    THE_CONV,
    THINGS
};

/* The factors and the result of each pass (enum cuda_product). */
static const struct {
    enum thing first, second, result;
} passes[] = {{THE_X, THE_W, THE_Y}, {THE_W, THE_Y, THE_X}, {THE_X, THE_Y, THE_W}};

/* ---- the library */

/* Names of the functions without cudnn, in the order of the members of dnn. */
static const char names[] =
    "GetVersion GetErrorString Create Destroy SetStream CreateTensorDescriptor "
    "CreateTensorDescriptor CreateFilterDescriptor CreateConvolutionDescriptor "
    "DestroyTensorDescriptor DestroyTensorDescriptor DestroyFilterDescriptor "
    "DestroyConvolutionDescriptor SetTensor4dDescriptor SetFilter4dDescriptor "
    "SetConvolution2dDescriptor SetConvolutionGroupCount SetConvolutionMathType "
    "GetConvolutionForwardWorkspaceSize GetConvolutionBackwardDataWorkspaceSize "
    "GetConvolutionBackwardFilterWorkspaceSize ConvolutionForward ConvolutionBackwardData "
    "ConvolutionBackwardFilter";

static struct {
    size_t (*version)(void);
    const char *(*status_text)(int status);
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, cudaStream_t stream);
    int (*make[THINGS])(void **out);
    int (*drop[THINGS])(void *thing);
    int (*set_tensor)(void *tensor, int format, int type, int n, int c, int h, int w);
    int (*set_filter)(void *filter, int type, int format, int k, int c, int h, int w);
    int (*set_conv)(void *conv, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h,
                    int dilation_w, int mode, int type);
    int (*set_groups)(void *conv, int groups);
    int (*set_math)(void *conv, int math);
    int (*workspace[3])(void *handle, void *first, void *second, void *conv, void *result,
                        int algorithm, size_t *bytes);
    int (*run[3])(void *handle, const void *alpha, void *first_is, const void *first,
                  void *second_is, const void *second, void *conv, int algorithm, void *workspace,
                  size_t bytes, const void *beta, void *result_is, void *result);
} dnn;
static pthread_once_t dnn_once = PTHREAD_ONCE_INIT;
static bool dnn_works;
static char dnn_text[256]; /* the version, or why the library does not work */

static void load_dnn(void)
{
    void *library = dlopen(DNN_FILE, RTLD_NOW | RTLD_LOCAL), **to = (void **)&dnn;
    const char *name = names;
    char full[64];
    dnn_works = library != NULL;
    for (size_t i = 0; dnn_works && i < sizeof(dnn) / sizeof(*to); i++) {
        snprintf(full, sizeof(full), "cudnn%.*s", (int)strcspn(name, " "), name);
        name += strcspn(name, " ") + 1;
        to[i] = dlsym(library, full);
        dnn_works = to[i] != NULL;
    }
    size_t v = dnn_works ? dnn.version() : 0; /* 91900 is 9.19.0 */
    snprintf(dnn_text, sizeof(dnn_text), "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    if (!dnn_works)
        snprintf(dnn_text, sizeof(dnn_text),
                 DNN_FILE " cannot be loaded; install cuDNN 9 for CUDA %d or name its folder in "
                          "LD_LIBRARY_PATH, or use run.conv = own",
                 CUDART_VERSION / 1000);
}

int cuda_dnn_probe(char *text, size_t bytes)
{
    pthread_once(&dnn_once, load_dnn);
    snprintf(text, bytes, "%s", dnn_text);
    return dnn_works ? 0 : PP_ERESOURCE;
}

static int dnn_code(const struct cuda *c, const char *call, int status)
{
    if (status == 0)
        return 0;
    bool lost = status / 1000 == DNN_EXECUTION_FAILED;
    cudaGetLastError(); /* or the next launch would report it again */
    return pp_fail(lost ? PP_ELOST : PP_ERESOURCE, "cuda device %d: cuDNN, %s: %s (%d); %s",
                   c->device, call, dnn.status_text(status), status,
                   lost ? "resume from the last checkpoint" : "use run.conv = own");
}

#define DNN_TRY(c, call, ...) PP_TRY(dnn_code(c, #call, dnn.call(__VA_ARGS__)))

/* ---- a rank */

/* A convolution of B samples. */
struct dnn_plan {
    struct pp_conv g;
    int B;
    void *things[THINGS];
    bool works[3];
    size_t workspace[3]; /* bytes */
};

struct cuda_dnn {
    void *handle;
    struct dnn_plan *plans; /* [n] */
    int n, capacity;
};

int cuda_dnn_open(struct cuda *c)
{
    char why[256];
    if (cuda_dnn_probe(why, sizeof(why)) < 0)
        return pp_fail(PP_ERESOURCE, "run.conv = cudnn: %s", why);
    PP_ALLOC(c->dnn, 1);
    DNN_TRY(c, create, &c->dnn->handle);
    DNN_TRY(c, set_stream, c->dnn->handle, c->stream);
    return 0;
}

void cuda_dnn_close(struct cuda *c)
{
    struct cuda_dnn *d = c->dnn;
    if (!d)
        return;
    for (int i = 0; i < d->n * THINGS; i++)
        if (d->plans[i / THINGS].things[i % THINGS])
            dnn.drop[i % THINGS](d->plans[i / THINGS].things[i % THINGS]);
    if (d->handle)
        dnn.destroy(d->handle);
    pp_free(d->plans);
    pp_free(d);
    c->dnn = NULL;
}

/* ---- what a convolution needs */

bool cuda_dnn_takes(const struct pp_backend_choice *choice, const struct pp_conv *g)
{
    bool product = g->kh * g->kw == 1 && g->stride == 1 && g->groups == 1;
    return choice->conv == PP_CONV_CUDNN && !product && /* all sides have the same padding: */
           (g->H + 2 * g->pad_top - g->kh) / g->stride + 1 == g->OH &&
           (g->W + 2 * g->pad_left - g->kw) / g->stride + 1 == g->OW;
}

static size_t count_weights(const struct pp_conv *g)
{
    return (size_t)g->O * (size_t)(g->kh * g->kw) * (size_t)(g->C / g->groups);
}

static size_t align_to_piece(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Returns the floats of scratch for cuDNN: those to reach an aligned address, a copy of the weights
 * or of their gradient, and its workspace. The workspace has copies of x and y in another layout
 * (needed for float), eight sums of a weight gradient, and 4 MiB. */
size_t cuda_dnn_scratch_floats(const struct pp_backend_choice *choice, const struct pp_conv *g,
                               int B)
{
    size_t x = (size_t)g->H * (size_t)g->W * (size_t)g->C;
    size_t y = (size_t)g->OH * (size_t)g->OW * (size_t)g->O;
    size_t floats =
        64 + align_to_piece(count_weights(g)) + 8 * count_weights(g) + ((size_t)1 << 20);
    return cuda_dnn_takes(choice, g) ? floats + pp_value_floats(choice, (size_t)B * (x + y)) : 0;
}

/* Makes the descriptors of a plan, and finds which passes cuDNN computes with a workspace of at
 * most `most` bytes. */
static int fill_plan(struct cuda *c, struct dnn_plan *p, size_t most)
{
    const struct pp_conv *g = &p->g;
    void **t = p->things;
    int type = c->bf16 ? DNN_BF16 : DNN_F32;
    for (int i = 0; i < THINGS; i++)
        DNN_TRY(c, make[i], &t[i]);
    DNN_TRY(c, set_tensor, t[THE_X], DNN_NHWC, type, p->B, g->C, g->H, g->W);
    DNN_TRY(c, set_tensor, t[THE_Y], DNN_NHWC, type, p->B, g->O, g->OH, g->OW);
    DNN_TRY(c, set_filter, t[THE_W], type, DNN_NHWC, g->O, g->C / g->groups, g->kh, g->kw);
    DNN_TRY(c, set_conv, t[THE_CONV], g->pad_top, g->pad_left, g->stride, g->stride, 1, 1,
            DNN_CROSS_CORRELATION, DNN_F32);
    DNN_TRY(c, set_groups, t[THE_CONV], g->groups);
    DNN_TRY(c, set_math, t[THE_CONV],
            c->bf16                            ? DNN_TENSOR_OP_MATH
            : c->precision == PP_PRECISION_F32 ? DNN_FMA_MATH
                                               : DNN_DEFAULT_MATH);
    for (int i = 0; i < 3; i++) {
        int status =
            dnn.workspace[i](c->dnn->handle, t[passes[i].first], t[passes[i].second], t[THE_CONV],
                             t[passes[i].result], ALGORITHM, &p->workspace[i]);
        if (status / 1000 != DNN_NOT_SUPPORTED)
            PP_TRY(dnn_code(c, "workspace", status));
        p->works[i] = status == 0 && p->workspace[i] <= most;
        if (!p->works[i])
            pp_log_debug("cuDNN has no algorithm for pass %d of %d x %d, %d to %d channels in %d "
                         "groups: own kernels",
                         i, g->kh, g->kw, g->C, g->O, g->groups);
    }
    return 0;
}

/* Sets *out to the plan of a shape, or to NULL if our own kernels compute this pass. Makes the plan
 * if the shape is new, which takes memory, and time outside the stream. */
static int dnn_plan_for(struct pp_backend *be, enum cuda_product pass, const struct pp_conv *g,
                        int B, struct dnn_plan **out)
{
    struct cuda *c = cuda_of(be);
    struct cuda_dnn *d = c->dnn;
    int i = 0;
    *out = NULL;
    if (B == 0 || !cuda_dnn_takes(&be->choice, g))
        return 0;
    while (i < d->n && (d->plans[i].B != B || memcmp(&d->plans[i].g, g, sizeof(*g)) != 0))
        i++;
    if (i == d->n) {
        PP_RESERVE(d->plans, d->n, d->capacity);
        d->plans[d->n++] = (struct dnn_plan){.g = *g, .B = B};
        size_t floats = cuda_dnn_scratch_floats(&be->choice, g, B);
        PP_TRY(fill_plan(c, &d->plans[i],
                         (floats - 64 - align_to_piece(count_weights(g))) * sizeof(float)));
    }
    *out = d->plans[i].works[pass] ? &d->plans[i] : NULL;
    return 0;
}

int cuda_dnn_prepare(struct pp_backend *be, const struct pp_conv_use *u)
{
    struct dnn_plan *p = NULL;
    return dnn_plan_for(be, CUDA_FORWARD, u->g, u->B, &p);
}

/* ---- a pass */

/* Runs a pass with cuDNN and sets *done to whether it did. In bf16 cuDNN reads a copy of the
 * weights and rounds their gradient, while sums are float. If a pass turns out not to be supported,
 * nothing was enqueued, and our own kernels compute it from then on. */
int cuda_dnn_run(struct pp_backend *be, const struct cuda_dnn_call *a, bool *done)
{
    struct cuda *c = cuda_of(be);
    struct dnn_plan *p;
    PP_TRY(dnn_plan_for(be, a->pass, a->g, a->B, &p));
    *done = p != NULL;
    if (!p)
        return 0;
    size_t n = count_weights(a->g);
    char *copy = (char *)align_to_piece((uintptr_t)a->scratch);
    bool rounds = c->bf16 && a->pass == CUDA_BACKWARD_WEIGHT;
    void *W = !c->bf16 ? a->W : a->packed ? a->packed : (float *)copy, *at[] = {a->x, a->y, W};
    /* parameters of a node begin at an aligned address */
    pp_assert((uintptr_t)W % CUDA_OPERAND_ALIGN == 0);
    if (W == copy && !rounds) /* there are no packed weights */
        CUDA_TRY(c->device, kernels_to_bf16(c->stream, n, a->W, W));
    if (a->pass == CUDA_BACKWARD_WEIGHT)
        PP_TRY(cuda_settle(c, a->W, n * sizeof(*a->W), true));
    const float one = 1, beta = a->adds && !rounds ? 1 : 0;
    enum thing first = passes[a->pass].first, second = passes[a->pass].second,
               result = passes[a->pass].result;
    int status = dnn.run[a->pass](c->dnn->handle, &one, p->things[first], at[first],
                                  p->things[second], at[second], p->things[THE_CONV], ALGORITHM,
                                  copy + align_to_piece(n) * sizeof(float), p->workspace[a->pass],
                                  &beta, p->things[result], at[result]);
    if (status / 1000 == DNN_NOT_SUPPORTED) {
        p->works[a->pass] = *done = false;
        pp_log_debug("cuDNN does not support pass %d of %d x %d, %d to %d channels: own kernels",
                     a->pass, a->g->kh, a->g->kw, a->g->C, a->g->O);
        cudaGetLastError(); /* or the next launch would report it */
        return 0;
    }
    PP_TRY(dnn_code(c, "run", status));
    return rounds ? CUDA_CALL(be, kernels_add_bf16(c->stream, n, copy, a->adds, a->W)) : 0;
}
