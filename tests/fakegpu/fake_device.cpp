/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated devices: how many, how large, what went wrong on them; and what the environment asks
 * for:
 *   PPCLI_FAKE_GPUS     how many devices (1); 0: none; none: no driver either
 *   PPCLI_FAKE_SMS      multiprocessors of each (132)
 *   PPCLI_FAKE_NAME     their name
 *   PPCLI_FAKE_CAPABILITY  compute capabilities, one a device, the last of all others ("75 90"; 90)
 *   PPCLI_FAKE_MODE     their compute mode (0)
 *   PPCLI_FAKE_COUNT    what cudaGetDeviceCount gives at every call: an error
 *   PPCLI_FAKE_HERE     1: the machine has a GPU, whatever CUDA says
 *   PPCLI_FAKE_DRIVER   what CUDA the driver is for (13000)
 *   PPCLI_FAKE_MEMORY   bytes of each (4294967296)
 *   PPCLI_FAKE_FAIL     FUNCTION:N:CODE[,...]: the N-th call of it fails; kernel:N:CODE: the N-th
 *                       kernel that runs breaks its device
 *   PPCLI_FAKE_CALLS    file that gets how often each function was called, one a line
 *   PPCLI_FAKE_JITTER   seed: streams pause at random, so that what is not ordered changes order
 *   CUDA_DEVICE_MAX_CONNECTIONS at the first call: among the calls, as "queues"
 *   CUDA_MODULE_LOADING EAGER at the first call: kernels are loaded; else a kernel's first launch waits
 *                       for its device, as the real one may
 *   PPCLI_FAKE_ORDER    reverse: threads of a block run last first
 * What is left of device memory, events, streams and graphs when a program exits with 0 is printed,
 * and the exit code becomes 99.
 */
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <csignal>
#include <ctime>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

std::mutex fake_lock;

static thread_local int current;
static thread_local cudaError_t last_error;

struct Fault {
    std::string name;
    long call;
    int code;
};

static struct State {
    int devices = 1;
    bool driver = true;
    Device list[FAKE_MOST_DEVICES];
    std::vector<Fault> faults;
    std::map<std::string, long> calls;
    std::map<std::string, int> alive;
    bool lazy = true; /* as the environment was at the first call */
} * state;

void fake_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fflush(stdout);
    fprintf(stderr, "fake GPU: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    abort();
}

static long number_of(const char *name, long otherwise)
{
    const char *text = getenv(name);
    if (text == NULL || *text == '\0')
        return otherwise;
    char *end;
    long n = strtol(text, &end, 10);
    if (*end != '\0' || n < 0)
        fake_die("%s = %s is no number", name, text);
    return n;
}

static int capability_of(int device)
{
    const char *text = getenv("PPCLI_FAKE_CAPABILITY");
    int n = 90;
    for (std::istringstream all(text != NULL ? text : ""); device-- >= 0 && all >> n;)
        ;
    return n;
}

/* src/dev/nvidia.c, which looks for files of the driver. */
extern "C" bool __wrap_nvidia_is_here(void)
{
    return number_of("PPCLI_FAKE_HERE", fake_devices() > 0) != 0;
}

/* A page of a device was touched by a thread that must not. */
static void on_touch(int, siginfo_t *info, void *)
{
    static const char text[] =
        "fake GPU: memory of a device touched by the host, or by a device without peer access\n";
    if (info->si_code == SEGV_PKUERR)
        (void)!write(STDERR_FILENO, text, sizeof text - 1);
    signal(SIGSEGV, SIG_DFL);
}

/* An emulated library lies beside the program. PPCLI_FAKE_FAIL=libcudnn.so.9:1:1: it is not there. */
extern "C" void *__real_dlopen(const char *name, int flags);
extern "C" void *__wrap_dlopen(const char *name, int flags)
{
    int code;
    if (name == NULL || fake_fails(name, &code))
        return NULL;
    auto beside = std::filesystem::read_symlink("/proc/self/exe").replace_filename(name);
    void *library = __real_dlopen(beside.c_str(), flags);
    return library != NULL ? library : __real_dlopen(name, flags);
}

static void write_calls()
{
    const char *path = getenv("PPCLI_FAKE_CALLS");
    FILE *out = path != NULL ? fopen(path, "w") : NULL;
    if (out == NULL)
        return;
    for (const auto &c : state->calls)
        fprintf(out, "%s %ld\n", c.first.c_str(), c.second);
    fclose(out);
}

/* Streams and their work may still be there, so nothing is torn down. */
static void at_exit(int status, void *)
{
    std::lock_guard<std::mutex> hold(fake_lock);
    write_calls();
    bool left = false;
    for (const auto &a : state->alive)
        if (a.second != 0 && status == 0) {
            fprintf(stderr, "fake GPU: left at exit: %d %s\n", a.second, a.first.c_str());
            left = true;
        }
    if (left) {
        fflush(NULL);
        _exit(99);
    }
}

static void read_faults(const char *text)
{
    std::string all = text != NULL ? text : "";
    for (size_t at = 0; at < all.size();) {
        size_t end = std::min(all.find(',', at), all.size());
        char name[64];
        Fault f;
        if (sscanf(all.substr(at, end - at).c_str(), "%63[^:]:%ld:%d", name, &f.call, &f.code) != 3)
            fake_die("PPCLI_FAKE_FAIL = %s: not FUNCTION:N:CODE", text);
        f.name = name;
        state->faults.push_back(f);
        at = end + 1;
    }
}

static void start()
{
    state = new State;
    const char *gpus = getenv("PPCLI_FAKE_GPUS");
    state->driver = gpus == NULL || strcmp(gpus, "none") != 0;
    state->devices = state->driver ? (int)number_of("PPCLI_FAKE_GPUS", 1) : 0;
    if (state->devices > FAKE_MOST_DEVICES)
        fake_die("at most %d devices", FAKE_MOST_DEVICES);
    read_faults(getenv("PPCLI_FAKE_FAIL"));
    const char *loading = getenv("CUDA_MODULE_LOADING");
    state->calls["queues"] = number_of("CUDA_DEVICE_MAX_CONNECTIONS", 8);
    state->lazy = loading == NULL || strcmp(loading, "EAGER") != 0;
    for (int d = 0; d < state->devices; d++)
        state->list[d] = {d, pkey_alloc(0, PKEY_DISABLE_ACCESS), 0, 0, cudaSuccess, NULL};
    struct sigaction action = {};
    action.sa_sigaction = on_touch;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    on_exit(at_exit, NULL);
}

static State *get()
{
    static std::once_flag once;
    std::call_once(once, start);
    return state;
}

int fake_devices()
{
    return get()->devices;
}

Device *fake_device(int number)
{
    return number >= 0 && number < get()->devices ? &state->list[number] : NULL;
}

Device *fake_current()
{
    return fake_device(current);
}

bool fake_first_launch(const char *name, const Device *d)
{
    std::lock_guard<std::mutex> hold(fake_lock);
    return state->lazy &&
           state->calls["load " + std::string(name) + std::to_string(d->number)]++ == 0;
}

int fake_driver()
{
    return state->driver ? (int)number_of("PPCLI_FAKE_DRIVER", 13000) : 0;
}

int fake_sms()
{
    return (int)number_of("PPCLI_FAKE_SMS", 132);
}

size_t fake_memory()
{
    return (size_t)number_of("PPCLI_FAKE_MEMORY", 1L << 32);
}

uint64_t fake_now_ns()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool fake_fails(const char *name, int *code)
{
    get();
    std::lock_guard<std::mutex> hold(fake_lock);
    long call = ++state->calls[name];
    for (const Fault &f : state->faults)
        if (f.call == call && f.name == name) {
            *code = f.code;
            return true;
        }
    return false;
}

void fake_count(const char *what, int by)
{
    static std::mutex lock; /* things end wherever the last of their users does */
    get();
    std::lock_guard<std::mutex> hold(lock);
    state->alive[what] += by;
}

void fake_rights(const Device *d, bool all)
{
    for (int i = 0; i < state->devices; i++) {
        const Device *other = &state->list[i];
        bool may = all || (d != NULL && (i == d->number || (d->peers >> i & 1)));
        if (other->key >= 0)
            pkey_set(other->key, may ? 0 : PKEY_DISABLE_ACCESS);
    }
}

cudaError_t fake_enter(const char *name)
{
    int code;
    if (fake_fails(name, &code))
        return (cudaError_t)code;
    if (fake_driver() / 1000 < CUDART_VERSION / 1000)
        return cudaErrorInsufficientDriver;
    if (state->devices == 0)
        return cudaErrorNoDevice;
    std::lock_guard<std::mutex> hold(fake_lock);
    return fake_current()->error;
}

cudaError_t fake_leave(cudaError_t error)
{
    if (error != cudaSuccess) /* "not ready" too, as the runtime does it */
        last_error = error;
    return error;
}

/* ---- the runtime's calls */
extern "C" {

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

const char *cudaGetErrorString(cudaError_t error)
{
    static const std::map<int, const char *> texts = {
        {cudaErrorMemoryAllocation, "out of memory"},
        {cudaErrorInsufficientDriver,
         "CUDA driver version is insufficient for CUDA runtime version"},
        {cudaErrorNoDevice, "no CUDA-capable device is detected"},
        {cudaErrorIllegalAddress, "an illegal memory access was encountered"}};
    static thread_local char text[40];
    snprintf(text, sizeof text, "fake error %d", (int)error);
    return texts.count(error) > 0 ? texts.at(error) : text;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    FAKE_ENTER();
    cudaError_t e = (cudaError_t)number_of("PPCLI_FAKE_COUNT", cudaSuccess);
    if (e != cudaSuccess)
        return fake_leave(e);
    *count = fake_devices();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int number)
{
    FAKE_ENTER();
    if (fake_device(number) == NULL)
        return fake_leave(cudaErrorInvalidDevice);
    current = number;
    std::lock_guard<std::mutex> hold(fake_lock);
    return fake_leave(fake_current()->error);
}

cudaError_t cudaGetDevice(int *number)
{
    FAKE_ENTER();
    *number = current;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    get();
    *version = fake_driver(); /* no driver is no error here */
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int number)
{
    FAKE_ENTER();
    if (fake_device(number) == NULL)
        return fake_leave(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    const char *name = getenv("PPCLI_FAKE_NAME");
    snprintf(p->name, sizeof p->name, "%s", name != NULL ? name : "emulated GPU");
    memset(p->uuid.bytes, 0x10 + number, sizeof p->uuid.bytes);
    p->totalGlobalMem = fake_memory();
    p->major = capability_of(number) / 10;
    p->minor = capability_of(number) % 10;
    p->multiProcessorCount = fake_sms();
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int number)
{
    FAKE_ENTER();
    if (fake_device(number) == NULL)
        return fake_leave(cudaErrorInvalidDevice);
    const std::map<int, int> known = {
        {cudaDevAttrMultiProcessorCount, fake_sms()},
        {cudaDevAttrComputeMode, (int)number_of("PPCLI_FAKE_MODE", 0)},
        {cudaDevAttrComputeCapabilityMajor, capability_of(number) / 10},
        {cudaDevAttrComputeCapabilityMinor, capability_of(number) % 10}};
    if (known.count(attribute) == 0)
        fake_die("cudaDeviceGetAttribute(%d): not known here yet", (int)attribute);
    *value = known.at(attribute);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int number)
{
    FAKE_ENTER();
    if (fake_device(number) == NULL)
        return fake_leave(cudaErrorInvalidDevice);
    snprintf(text, (size_t)bytes, "0000:%02x:00.0", 1 + number);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    FAKE_ENTER();
    if (fake_device(device) == NULL || fake_device(peer) == NULL)
        return fake_leave(cudaErrorInvalidDevice);
    *can = device != peer && number_of("PPCLI_FAKE_PEERS", 1) != 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    FAKE_ENTER();
    if (fake_device(peer) == NULL || peer == current)
        return fake_leave(cudaErrorInvalidDevice);
    if (number_of("PPCLI_FAKE_PEERS", 1) == 0)
        return fake_leave(cudaErrorPeerAccessUnsupported);
    std::lock_guard<std::mutex> hold(fake_lock);
    Device *d = fake_current();
    if (d->peers >> peer & 1)
        return fake_leave(cudaErrorPeerAccessAlreadyEnabled);
    d->peers |= 1u << peer;
    return flags == 0 ? cudaSuccess : fake_leave(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    FAKE_ENTER();
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
}
