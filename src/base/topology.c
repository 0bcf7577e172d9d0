/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the topology from hwloc; topology_stub.c replaces this file in a build without its
 * header. */
#include <dlfcn.h>
#include <hwloc.h>
#include <hwloc/cpukinds.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "topology.h"
#include "cores.h"

#define CALLS(ROW)                                                                                 \
    ROW(get_api_version)                                                                           \
    ROW(topology_init)                                                                             \
    ROW(topology_load)                                                                             \
    ROW(topology_destroy)                                                                          \
    ROW(get_type_depth)                                                                            \
    ROW(get_nbobjs_by_depth)                                                                       \
    ROW(get_obj_by_depth)                                                                          \
    ROW(bitmap_first)                                                                              \
    ROW(cpukinds_get_by_cpuset)

#define POINTER(x) __typeof__(&hwloc_##x) x;
static struct {
    CALLS(POINTER)
} hw;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char source[128] = "no hwloc";
static bool loaded;
static hwloc_topology_t keeps_plugins;

static void load_hwloc(void)
{
    /* the library name of all versions 2.x */
    void *library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
    bool complete = library != NULL;
#define LOOK_UP(x)                                                                                 \
    *(void **)&hw.x = complete ? dlsym(library, "hwloc_" #x) : NULL;                               \
    complete = complete && hw.x;
    CALLS(LOOK_UP)
    loaded = complete;
    if (complete) {
        /* Never destroyed: hwloc unloads its plugins with the last topology, and each read would
         * load them again. */
        hw.topology_init(&keeps_plugins);
        unsigned v = hw.get_api_version();
        snprintf(source, sizeof(source), "hwloc, API %u.%u", v >> 16, v >> 8 & 0xff);
    } else {
        snprintf(source, sizeof(source), "not known: libhwloc.so.15 %s (Debian: libhwloc15)",
                 library ? "is older than 2.4" : "is not installed");
    }
}

static void describe_cpu(hwloc_topology_t t, hwloc_obj_t pu, struct pp_cpu *out)
{
    out->number = (int)pu->os_index;
    out->core = out->number;
    int kind = hw.cpukinds_get_by_cpuset(t, pu->cpuset, 0);
    out->speed = kind > 0 ? kind : 0;
    out->share[PP_SHARE_CACHE] = -1 - out->number;
    out->share[PP_SHARE_NUMA] = hw.bitmap_first(pu->nodeset);
    for (hwloc_obj_t o = pu->parent; o; o = o->parent) {
        int id = (int)o->gp_index;
        if (o->type == HWLOC_OBJ_CORE)
            out->core = hw.bitmap_first(o->cpuset);
        else if (o->type >= HWLOC_OBJ_L1CACHE && o->type <= HWLOC_OBJ_L5CACHE)
            out->share[PP_SHARE_CACHE] = id;
        else if (o->type == HWLOC_OBJ_PACKAGE)
            out->share[PP_SHARE_PACKAGE] = id;
    }
}

static int read_machine(hwloc_topology_t t, const struct pp_cpu_mask *mask, struct pp_cpu *out)
{
    int n = 0, depth = hw.get_type_depth(t, HWLOC_OBJ_PU);
    unsigned there = hw.get_nbobjs_by_depth(t, depth);
    for (unsigned i = 0; i < there; i++) {
        hwloc_obj_t pu = hw.get_obj_by_depth(t, depth, i);
        if (pu->os_index >= PP_MACHINE_CORES_MAX || !pp_mask_has(mask, (int)pu->os_index))
            continue;
        out[n] = (struct pp_cpu){.at = n};
        describe_cpu(t, pu, &out[n]);
        n++;
    }
    return n;
}

/* Returns whether hwloc has a source to read. Without a source hwloc prints errors to standard
 * error. */
static bool has_source(void)
{
    return getenv("HWLOC_XMLFILE") || getenv("HWLOC_SYNTHETIC") || getenv("HWLOC_FSROOT") ||
           access("/sys/devices/system/cpu", F_OK) == 0;
}

int topology_read_all(const struct pp_cpu_mask *mask, struct pp_cpu *out)
{
    hwloc_topology_t t;
    int n = 0;
    pthread_once(&once, load_hwloc);
    if (!loaded || !has_source() || hw.topology_init(&t) != 0)
        return 0;
    if (hw.topology_load(t) == 0)
        n = read_machine(t, mask, out);
    hw.topology_destroy(t);
    return n;
}

const char *pp_topology_source(void)
{
    pthread_once(&once, load_hwloc);
    return source;
}
