/* SPDX-License-Identifier: Apache-2.0 */
#include "ppcli/cpus.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/mem.h"

#define BYTES_MAX ((size_t)1 << 16) /* half a million processors */

/* EINVAL: the kernel's sets are larger. */
bool pp_cpus_get(size_t least, struct pp_cpus *out)
{
    *out = (struct pp_cpus){NULL, least > sizeof(cpu_set_t) ? least : sizeof(cpu_set_t)};
    for (; out->bytes <= BYTES_MAX; out->bytes *= 2) {
        out->set = pp_alloc(out->bytes, 1);
        if (!out->set || sched_getaffinity(0, out->bytes, out->set) == 0)
            return out->set != NULL;
        int e = errno;
        pp_cpus_fini(out);
        if (e != EINVAL)
            return false;
    }
    return false;
}

void pp_cpus_fini(struct pp_cpus *cpus)
{
    pp_free(cpus->set);
    cpus->set = NULL;
}

void pp_cpus_use(const struct pp_cpus *cpus)
{
    if (cpus->set)
        (void)sched_setaffinity(0, cpus->bytes, cpus->set);
}

void pp_cpus_use_all(void)
{
    PP_OWN(pp_cpus_fini) struct pp_cpus all = {NULL, 0};
    if (pp_cpus_get(0, &all)) {
        memset(all.set, 0xff, all.bytes); /* the kernel leaves what this container may use */
        pp_cpus_use(&all);
    }
}

bool pp_cpus_has(const struct pp_cpus *cpus, size_t cpu)
{
    return cpus->set && CPU_ISSET_S(cpu, cpus->bytes, (const cpu_set_t *)cpus->set);
}

int pp_cpus_count(const struct pp_cpus *cpus)
{
    return cpus->set ? CPU_COUNT_S(cpus->bytes, (const cpu_set_t *)cpus->set) : 0;
}

int pp_cpus_usable(void)
{
    PP_OWN(pp_cpus_fini) struct pp_cpus mine = {NULL, 0};
    int n = pp_cpus_get(0, &mine) ? pp_cpus_count(&mine) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? n : 1;
}
