/* SPDX-License-Identifier: Apache-2.0 */
/* The processors that a thread may use, on machines of any size: cpu_set_t ends at 1,024. */
#ifndef PPCLI_CPUS_H
#define PPCLI_CPUS_H

#include <stdbool.h>
#include <stddef.h>

struct pp_cpus {
    void *set; /* owned; as sched_getaffinity() has it */
    size_t bytes;
};

/* Those of the calling thread, in a set of at least so many bytes. False: the system does not tell, and
 * *out is empty. Local, as all of these. */
bool pp_cpus_get(size_t least, struct pp_cpus *out);
void pp_cpus_fini(struct pp_cpus *cpus);

/* Let the calling thread use these; all that its container has. Failing is harmless: it stays. */
void pp_cpus_use(const struct pp_cpus *cpus);
void pp_cpus_use_all(void);

bool pp_cpus_has(const struct pp_cpus *cpus, size_t cpu);
int pp_cpus_count(const struct pp_cpus *cpus);

/* How many the calling thread may use, at least 1; where the system does not tell, all. */
int pp_cpus_usable(void);

#endif
