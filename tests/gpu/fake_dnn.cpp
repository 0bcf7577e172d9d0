/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The convolutions of cuDNN, on the emulated device, as its own header declares them: f32, TF32 and bf16 in
 * NHWC, sums in f32. The work space is overwritten. The weight gradient of odd groups in bf16 is not
 * supported, so that a caller needs another way.
 */
#include <cstring>
#include <vector>

#include <cudnn.h>

#include "fake_lt.h"

struct cudnnContext {
    int device;
    cudaStream_t stream;
};
/* Of a filter k, c, h, w. */
struct cudnnTensorStruct {
    cudnnDataType_t type;
    int n, c, h, w;
};
struct cudnnFilterStruct : cudnnTensorStruct {
};
struct cudnnConvolutionStruct {
    int pad_h, pad_w, step_h, step_w, groups;
    cudnnMathType_t math;
};

struct Convolution {
    cudnnTensorStruct x, y, w;
    cudnnConvolutionStruct c;
    float alpha, beta;
    void *at[3], *workspace; /* x, y, w */
    size_t bytes;
    int result; /* of them */
};

static size_t count(const cudnnTensorStruct &t)
{
    return (size_t)t.n * t.c * t.h * t.w;
}

static cudaDataType type_of(const cudnnTensorStruct &t)
{
    return t.type == CUDNN_DATA_FLOAT ? CUDA_R_32F : CUDA_R_16BF;
}

/* One loop over all products is each of the passes: the third operand takes the product of the others. */
static void convolve(void *arg)
{
    const Convolution &j = *(const Convolution *)arg;
    const cudnnTensorStruct *of[] = {&j.x, &j.y, &j.w};
    std::vector<float> v[3];
    bool tf32 = j.c.math != CUDNN_FMA_MATH;
    for (int i = 0; i < 3; i++)
        for (size_t k = 0; k < count(*of[i]); k++)
            v[i].push_back(i == j.result ? 0 : load(j.at[i], type_of(*of[i]), k, tf32));
    memset(j.workspace, 0xff, j.bytes);
    int C = j.w.c, O = j.y.c / j.c.groups;
    for (size_t i = 0; i < count(j.y); i++)
        for (size_t t = 0; t < (size_t)j.w.h * j.w.w * C; t++) {
            int o = (int)(i % j.y.c), ox = (int)(i / j.y.c % j.y.w),
                oy = (int)(i / j.y.c / j.y.w % j.y.h);
            int x = ox * j.c.step_w - j.c.pad_w + (int)(t / C % j.w.w);
            int y = oy * j.c.step_h - j.c.pad_h + (int)(t / C / j.w.w);
            if (x < 0 || x >= j.x.w || y < 0 || y >= j.x.h)
                continue;
            size_t n = i / j.y.c / j.y.w / j.y.h, row = (n * j.x.h + y) * j.x.w + x;
            size_t at[] = {row * j.x.c + o / O * C + t % C, i, (size_t)o * j.w.h * j.w.w * C + t};
            int a = j.result == 0 ? 1 : 0, b = j.result == 2 ? 1 : 2;
            v[j.result][at[j.result]] += v[a][at[a]] * v[b][at[b]];
        }
    cudaDataType type = type_of(*of[j.result]);
    for (size_t k = 0; k < v[j.result].size(); k++) {
        float old = j.beta == 0 ? 0 : j.beta * load(j.at[j.result], type, k, false);
        store(j.at[j.result], type, k, j.alpha * v[j.result][k] + old);
    }
}

static cudnnStatus_t check_shape(Convolution *j)
{
    const cudnnTensorStruct &x = j->x, &y = j->y, &w = j->w;
    const cudnnConvolutionStruct &c = j->c;
    if (x.n != y.n || x.c != w.c * c.groups || y.c != w.n || y.c % c.groups || x.type != y.type ||
        x.type != w.type || y.h != (x.h + 2 * c.pad_h - w.h) / c.step_h + 1 ||
        y.w != (x.w + 2 * c.pad_w - w.w) / c.step_w + 1)
        return CUDNN_STATUS_BAD_PARAM;
    bool odd = c.groups > 1 && w.c % 2 && x.type != CUDNN_DATA_FLOAT;
    return j->result == 2 && odd ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
}

static size_t needs(const Convolution &j)
{
    return 256 + 4 * count(j.w) * (size_t)j.result;
}

static void drop(void *arg)
{
    delete (Convolution *)arg;
}

static cudnnStatus_t enqueue(const char *name, cudnnHandle_t h, Convolution j, int algorithm)
{
    cudnnStatus_t s = check_shape(&j);
    int code;
    if (fake_fails(name, &code) || algorithm != 1 || j.bytes < needs(j))
        s = algorithm != 1 || j.bytes < needs(j) ? CUDNN_STATUS_BAD_PARAM : (cudnnStatus_t)code;
    if (s != CUDNN_STATUS_SUCCESS)
        return s;
    const cudnnTensorStruct *of[] = {&j.x, &j.y, &j.w};
    if (j.x.type != CUDNN_DATA_FLOAT && j.c.math != CUDNN_TENSOR_OP_MATH)
        fake_die("%s: bf16 without tensor cores", name);
    if (h->stream == NULL || fake_stream_device(h->stream) != h->device)
        fake_die("%s: the handle has no stream of its device", name);
    for (int i = 0; i < 4; i++) {
        const void *p = i < 3 ? j.at[i] : j.workspace;
        size_t bytes = i < 3 ? count(*of[i]) * bytes_of(type_of(*of[i])) : j.bytes;
        if (!fake_reaches(h->stream, p, bytes) || (uintptr_t)p % (i < 3 ? 16 : 256))
            fake_die("%s: %zu bytes at %p are not memory for it", name, bytes, p);
        fake_touch(name, p, bytes, i == j.result || i == 3);
    }
    cudaError_t e = fake_enqueue(h->stream, false, convolve, new Convolution(j), drop);
    return e == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

static cudnnStatus_t ask(cudnnHandle_t h, const Convolution &asked, int algorithm, size_t *bytes)
{
    Convolution j = asked;
    if (fake_stream_captured(h->stream))
        fake_die("cuDNN is asked for a work space in a step");
    *bytes = needs(j);
    return algorithm == 1 ? check_shape(&j) : CUDNN_STATUS_NOT_SUPPORTED;
}

template <typename T> static cudnnStatus_t make(T **out)
{
    *out = new T();
    fake_count("cuDNN handles and descriptors", 1);
    return CUDNN_STATUS_SUCCESS;
}

template <typename T> static cudnnStatus_t destroy(T *it)
{
    delete it;
    fake_count("cuDNN handles and descriptors", -1);
    return CUDNN_STATUS_SUCCESS;
}

extern "C" {

size_t cudnnGetVersion(void)
{
    return 91002;
}

const char *cudnnGetErrorString(cudnnStatus_t)
{
    return "an emulated failure";
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
    int code, device;
    if (fake_fails(__func__, &code) || cudaGetDevice(&device) != cudaSuccess)
        return CUDNN_STATUS_NOT_INITIALIZED;
    make(out);
    (*out)->device = device;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s)
{
    h->stream = s;
    return CUDNN_STATUS_SUCCESS;
}

#define THING(Name, type)                                                                          \
    cudnnStatus_t cudnnCreate##Name(type *out)                                                     \
    {                                                                                              \
        return make(out);                                                                          \
    }                                                                                              \
    cudnnStatus_t cudnnDestroy##Name(type it)                                                      \
    {                                                                                              \
        return destroy(it);                                                                        \
    }
THING(TensorDescriptor, cudnnTensorDescriptor_t)
THING(FilterDescriptor, cudnnFilterDescriptor_t)
THING(ConvolutionDescriptor, cudnnConvolutionDescriptor_t)

cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
    return destroy(h);
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t t, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w)
{
    *t = {type, n, c, h, w};
    return format == CUDNN_TENSOR_NHWC ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t f, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w)
{
    return cudnnSetTensor4dDescriptor((cudnnTensorDescriptor_t)f, format, type, k, c, h, w);
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w,
                                              int u, int v, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t type)
{
    *d = {pad_h, pad_w, u, v, 1, CUDNN_DEFAULT_MATH};
    return dilation_h == 1 && dilation_w == 1 && mode == CUDNN_CROSS_CORRELATION &&
                   type == CUDNN_DATA_FLOAT
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int groups)
{
    d->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math)
{
    d->math = math;
    return CUDNN_STATUS_SUCCESS;
}

/* A: first, B: second, R: result, each one of x, y and w; X, Y and W the descriptors among them. */
#define PASS(Name, Algo, A, AType, B, BType, R, RType, result)                                     \
    cudnnStatus_t cudnnGetConvolution##Name##WorkspaceSize(                                        \
        cudnnHandle_t h, const AType A, const BType B, const cudnnConvolutionDescriptor_t conv,    \
        const RType R, Algo algo, size_t *bytes)                                                   \
    {                                                                                              \
        return ask(h, {*x, *y, *w, *conv, 0, 0, {}, NULL, 0, result}, algo, bytes);                \
    }                                                                                              \
    cudnnStatus_t cudnnConvolution##Name(                                                          \
        cudnnHandle_t h, const void *alpha, const AType A, const void *A##_at, const BType B,      \
        const void *B##_at, const cudnnConvolutionDescriptor_t conv, Algo algo, void *workspace,   \
        size_t bytes, const void *beta, const RType R, void *R##_at)                               \
    {                                                                                              \
        return enqueue(__func__, h,                                                                \
                       {*x,                                                                        \
                        *y,                                                                        \
                        *w,                                                                        \
                        *conv,                                                                     \
                        *(const float *)alpha,                                                     \
                        *(const float *)beta,                                                      \
                        {(void *)x_at, (void *)y_at, (void *)w_at},                                \
                        workspace,                                                                 \
                        bytes,                                                                     \
                        result},                                                                   \
                       algo);                                                                      \
    }
#define T cudnnTensorDescriptor_t
#define F cudnnFilterDescriptor_t
PASS(Forward, cudnnConvolutionFwdAlgo_t, x, T, w, F, y, T, 1)
PASS(BackwardData, cudnnConvolutionBwdDataAlgo_t, w, F, y, T, x, T, 0)
PASS(BackwardFilter, cudnnConvolutionBwdFilterAlgo_t, x, T, y, T, w, F, 2)
}
