/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting ppcli again under mpirun. The command line is taken from the kernel as it was given, so
 * that every rank sees the words the user typed.
 */
#include "launch.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/err.h"
#include "ppcli/file.h"
#include "ppcli/log.h"
#include "ppcli/mem.h"
#include "ppcli/transport.h"
#include "command.h"
#include "supervise.h"

#define COMMAND_LINE_MAX ((size_t)2 << 20) /* bytes; the kernel's own limit on arguments */
#define WORDS_MAX 4096

bool launch_speaks(void)
{
    return !pp_mpi_launched(NULL) || pp_mpi_given_rank() == 0;
}

bool launch_announces(void)
{
    return launch_speaks() && !getenv(SUPERVISE_ASKED); /* or its parent has told */
}

struct command_line {
    char *text; /* owned: words with their NULs */
    char *words[WORDS_MAX + 1];
    int n;
};

static void free_command_line(struct command_line *c)
{
    pp_free(c->text);
    c->text = NULL;
}

static int read_command_line(struct command_line *out)
{
    memset(out, 0, sizeof(*out));
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return pp_fail_errno(PP_ERESOURCE, "cannot read the own command line");
    char *text = pp_alloc(COMMAND_LINE_MAX + 1, 1);
    size_t used = 0;
    ssize_t n = text ? 1 : 0;
    while (n > 0 && used < COMMAND_LINE_MAX) {
        n = read(fd, text + used, COMMAND_LINE_MAX - used);
        used += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    if (!text)
        return PP_ERESOURCE;
    out->text = text;
    size_t i = 0;
    for (; i < used && out->n < WORDS_MAX; i += strlen(text + i) + 1)
        out->words[out->n++] = text + i;
    if (n < 0 || i < used) {
        free_command_line(out);
        return pp_fail(PP_ERESOURCE, "cannot pass on a command line of more than %d words",
                       WORDS_MAX);
    }
    return 0;
}

/* The first processor of the core that `cpu` is a hardware thread of. */
static int first_of_core(int cpu)
{
    char path[96];
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             cpu);
    char text[32] = "";
    FILE *f = fopen(path, "re");
    if (f) {
        if (!fgets(text, sizeof(text), f))
            text[0] = '\0';
        fclose(f);
    }
    char *end;
    long first = strtol(text, &end, 10);
    return end > text && first >= 0 && first < CPU_SETSIZE ? (int)first : cpu;
}

/* How many ranks can be bound to a core each. Open MPI counts cores, not hardware threads. */
static int cores(void)
{
    cpu_set_t usable, first;
    CPU_ZERO(&first);
    if (sched_getaffinity(0, sizeof(usable), &usable) != 0)
        return 1;
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &usable))
            CPU_SET(first_of_core(c), &first);
    return CPU_COUNT(&first);
}

int launch_mpirun(int ranks)
{
    if (!pp_world_version()[0]) {
        return pp_fail(PP_ERESOURCE, "this ppcli was built without MPI; leave out --launch mpirun "
                                     "to run the ranks as threads");
    }
    static struct command_line self; /* too large for a small stack */
    PP_TRY(read_command_line(&self));
    char count[16], exe[PP_PATH_MAX];
    snprintf(count, sizeof(count), "%d", ranks);
    ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (len < 0) {
        free_command_line(&self);
        return pp_fail_errno(PP_ERESOURCE, "cannot find the own program file");
    }
    exe[len] = '\0';
    bool open_mpi = strncmp(pp_world_version(), "Open MPI", 8) == 0;
    bool crowded = ranks > cores();
    static const char *args[WORDS_MAX + 32];
    int n = 0;
    args[n++] = "mpirun";
    args[n++] = "-np";
    args[n++] = count;
    if (open_mpi) {
        args[n++] = "--quiet"; /* ppcli says itself what went wrong */
        args[n++] = "--bind-to";
        args[n++] = crowded ? "none" : "core";
        if (crowded)
            args[n++] = "--oversubscribe";
        /* Ranks of one machine: shared memory only, without the copy mechanism that containers
         * forbid. Whoever needs something else starts mpirun directly. */
        static const char *const mca[][2] = {
            {"pml", "ob1"},
            {"btl", "self,vader"},
            {"btl_vader_single_copy_mechanism", "none"},
            /* When a rank is lost the others cannot save: no grace. */
            {"odls_base_sigkill_timeout", "0"}};
        for (size_t i = 0; i < sizeof(mca) / sizeof(mca[0]); i++) {
            args[n++] = "--mca";
            args[n++] = mca[i][0];
            args[n++] = mca[i][1];
        }
        if (geteuid() == 0) {
            pp_log_info("starting mpirun as root: giving it the consent it asks for");
            setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
            setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
        }
    }
    args[n++] = exe;
    for (int i = 1; i < self.n; i++)
        args[n++] = self.words[i];
    args[n] = NULL;
    if (pp_log_level() >= PP_LOG_DEBUG) {
        char line[1024] = "";
        for (int i = 0; i < n; i++) {
            size_t used = strlen(line);
            snprintf(line + used, sizeof(line) - used, "%s%s", i > 0 ? " " : "", args[i]);
        }
        pp_log_debug("%s", line);
    }
    fflush(NULL);
    int code = 0, rc = supervise(args, &code);
    free_command_line(&self);
    if (rc == PP_ENOINPUT) {
        return pp_fail(PP_ERESOURCE, "mpirun is not installed (Debian: openmpi-bin); leave out "
                                     "--launch mpirun to run the ranks as threads");
    }
    PP_TRY(rc);
    if (code != 0) {
        /* The rank that knows has said it. */
        void (*leave)(int rc) = pp_cli_leave();
        pp_assert(leave != NULL);
        leave(-code);
    }
    return 0;
}
