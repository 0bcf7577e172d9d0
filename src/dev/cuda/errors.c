/* SPDX-License-Identifier: Apache-2.0 */
/* Translates the codes of CUDA and cuBLASLt: which call failed on which device, what the code
 * means, and a way out. */
#include "cuda_impl.h"

#include <string.h>

#include "ppcli/dev/devices.h"

struct meaning {
    cudaError_t e;
    int code;
    const char *advice;
};

static const struct meaning meanings[] = {
    {cudaErrorMemoryAllocation, PP_ERESOURCE,
     "use fewer slots or smaller micro-batches, or a device with more free memory"},
    {cudaErrorNoDevice, PP_ERESOURCE, "use run.backend = cpu"},
    {cudaErrorInsufficientDriver, PP_ERESOURCE, "install a newer driver, or run.backend = cpu"},
    {cudaErrorInvalidDevice, PP_ERESOURCE, "see ppcli env for the devices there are"},
    {cudaErrorDevicesUnavailable, PP_ERESOURCE,
     "another process may have it for itself; see nvidia-smi"},
    {cudaErrorSystemNotReady, PP_ERESOURCE,
     "start the fabric manager (systemctl start nvidia-fabricmanager)"},
    {cudaErrorSystemDriverMismatch, PP_ERESOURCE,
     "the kernel module and the libraries of the driver differ: restart the machine"},
    {cudaErrorCompatNotSupportedOnDevice, PP_ERESOURCE,
     "CUDA's compatibility libraries need a data-centre GPU: install a newer driver"},
    {cudaErrorOperatingSystem, PP_ERESOURCE, "see the permissions of /dev/nvidia*"},
    {cudaErrorInitializationError, PP_ERESOURCE, "see nvidia-smi, and dmesg"},
    {cudaErrorNoKernelImageForDevice, PP_ERESOURCE,
     "this build has no kernels for it; configure with -Dgpu_arch"},
    {cudaErrorUnsupportedPtxVersion, PP_ERESOURCE,
     "the driver is older than the toolkit of this build; install a newer driver"},
    {cudaErrorNotSupported, PP_ERESOURCE, "use run.graphs = off and run.partition_sms = off"},
    {cudaErrorECCUncorrectable, PP_ELOST, "the device's memory failed; resume on another"},
    {cudaErrorNvlinkUncorrectable, PP_ELOST, "a link between devices failed; resume without it"},
    {cudaErrorUnknown, PP_ELOST,
     "the device may have left the bus: see dmesg, and resume on another"},
    {(cudaError_t)226 /* cudaErrorContained, of CUDA 12.8 */, PP_ELOST,
     "the device's memory failed; resume from the last checkpoint"},
    {cudaErrorHardwareStackError, PP_ELOST, "resume from the last checkpoint"},
    {cudaErrorLaunchTimeout, PP_ELOST, "resume from the last checkpoint"},
    {cudaErrorLaunchFailure, PP_ELOST, "resume from the last checkpoint"},
};

int pp_cuda_meaning(int error, const char **advice)
{
    for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
        if ((int)meanings[i].e == error) {
            *advice = meanings[i].advice;
            return meanings[i].code;
        }
    }
    *advice = "please report this";
    return PP_EINTERNAL;
}

int cuda_code(int device, const char *call, cudaError_t e, const char *file, int line)
{
    if (e == cudaSuccess)
        return 0;
    const char *advice;
    int code = pp_cuda_meaning((int)e, &advice);
    pp_error_set(code, file, line, "cuda device %d: %.*s: %s (%d); %s", device,
                 (int)strcspn(call, "("), call, cudaGetErrorString(e), (int)e, advice);
    cudaGetLastError(); /* or the next launch would report this one again */
    return code;
}

int cuda_blas_failed(int device, const struct cuda_blas *blas, const char *call, cublasStatus_t s,
                     const char *file, int line)
{
    int code = s == CUBLAS_STATUS_ALLOC_FAILED || s == CUBLAS_STATUS_NOT_INITIALIZED ||
                       s == CUBLAS_STATUS_ARCH_MISMATCH
                   ? PP_ERESOURCE
               : s == CUBLAS_STATUS_EXECUTION_FAILED ? PP_ELOST
                                                     : PP_EINTERNAL;
    const char *advice = code == PP_ERESOURCE ? "free some memory of the device, or run.backend = "
                                                "cpu"
                         : code == PP_ELOST   ? "resume from the last checkpoint"
                                              : "please report this";
    return pp_error_set(code, file, line, "cuda device %d: %.*s: %s; %s", device,
                        (int)strcspn(call, "("), call, blas->GetStatusString(s), advice);
}

int cuda_no_memory(int device, size_t bytes, cudaError_t e, const char *file, int line)
{
    if (e != cudaErrorMemoryAllocation)
        return cuda_code(device, "cudaMalloc(", e, file, line);
    cudaGetLastError();
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess)
        cudaGetLastError();
    return pp_error_set(PP_ERESOURCE, file, line,
                        "cuda device %d: out of memory: %.1f MiB asked, %.1f of %.1f MiB free; use "
                        "smaller micro-batches, more stages on other devices, or run.backend = cpu",
                        device, (double)bytes / 1048576, (double)free / 1048576,
                        (double)total / 1048576);
}
