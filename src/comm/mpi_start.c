/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start and end of an MPI rank: arranges that it ends with the launcher, opens MPI for one thread,
 * finds out whether the ranks of this machine share cores, and releases everything at the end.
 */
#include "mpi_impl.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "ppcli/base/cores.h"
#include "ppcli/base/base.h"

/* How many communicators this thread has open. */
static _Thread_local int open_count;

int pp_mpi_failed(int mpi_rc, const char *call, const char *file, int line)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    int class = MPI_ERR_UNKNOWN;
    MPI_Error_string(mpi_rc, text, &n);
    MPI_Error_class(mpi_rc, &class);
    int code = class == MPI_ERR_TRUNCATE ? PP_EINTERNAL : PP_ELOST; /* PP_EIO means a disk */
    return pp_error_set(code, file, line, "%.*s: %s", (int)strcspn(call, "("), call, text);
}

/* Asks the kernel to end this rank with its launcher. Otherwise computing ranks would outlive a
 * launcher that is killed. */
static int die_with_launcher(void)
{
    pid_t launcher = getppid();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return pp_fail_errno(PP_EINTERNAL, "prctl(PR_SET_PDEATHSIG)");
    if (getppid() != launcher)
        return pp_fail(PP_ELOST, "the MPI launcher has ended");
    return 0;
}

/* Collective. Counts the ranks on this machine, and decides whether they are crowded: whether the
 * core sets of all of them together have too few cores. The ranks may share cores or be bound to
 * one each. */
static int count_cores(struct mpi *m, bool *crowded, int *ranks_here)
{
    MPI_Comm local = MPI_COMM_NULL;
    MPI_TRY(MPI_Comm_split_type(m->control, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local));
    int ranks = 1;
    MPI_TRY(MPI_Comm_size(local, &ranks));
    MPI_TRY(MPI_Comm_rank(m->control, &m->host));
    MPI_TRY(MPI_Bcast(&m->host, 1, MPI_INT, 0, local));
    struct pp_cpu_mask mine, any = {0};
    struct pp_quota quota;
    (void)pp_machine_mask(false, &mine);
    MPI_TRY(MPI_Allreduce(&mine, &any, (int)sizeof(mine), MPI_BYTE, MPI_BOR, local));
    MPI_TRY(MPI_Comm_free(&local));
    *ranks_here = ranks;
    pp_quota_here(pp_mask_count(&any), &quota);
    *crowded = quota.limits ? ranks >= quota.cores : ranks > quota.cores;
    return 0;
}

/* Checks that MPI finds as many ranks as the launcher started. If the launcher belongs to another
 * MPI, each process is alone in a world of its own. */
static int check_size(int size)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = getenv(names[i]);
        if (text && atoi(text) != size)
            return pp_fail(PP_ERESOURCE,
                           "the launcher has started %s ranks, and %s finds %d: start them with "
                           "the mpirun of this MPI",
                           text, pp_mpi_version(), size);
    }
    return 0;
}

static int set_up(struct mpi *m, int *rank, int *size, bool *crowded)
{
    int level = MPI_THREAD_SINGLE, here = 1;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_FUNNELED)
        return pp_fail(PP_ERESOURCE, "this MPI does not allow other threads (MPI_THREAD_FUNNELED)");
    MPI_TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Comm_dup(MPI_COMM_WORLD, &m->channels));
    MPI_TRY(MPI_Comm_dup(MPI_COMM_WORLD, &m->control));
    MPI_TRY(MPI_Comm_rank(m->control, rank));
    MPI_TRY(MPI_Comm_size(m->control, size));
    PP_TRY(check_size(*size));
    m->requests = pp_alloc(2 * (size_t)*size, sizeof(*m->requests));
    PP_TRY(m->requests ? count_cores(m, crowded, &here) : PP_ERESOURCE);
    return here < *size && level >= MPI_THREAD_SERIALIZED ? pp_mpi_start_mover(m) : 0;
}

static void end_mover(struct mpi *m)
{
    if (!m->moves)
        return;
    pthread_mutex_lock(&m->lock);
    m->over = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->mover, NULL);
    m->moves = false;
}

/* Cancels the requests of a channel that are still posted after a failure: no message will match
 * them, and MPI_Finalize would wait for them. */
static void cancel_requests(const struct pp_channel_end *e, int rank)
{
    struct mpi_slot *slots = e->own_slots;
    for (int k = 0; slots && k < e->spec.slots; k++) {
        for (int p = 0; p < PARTS; p++) {
            MPI_Request *r = &slots[k].parts[p];
            int done = 1;
            if (*r != MPI_REQUEST_NULL && MPI_Test(r, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
                !done) {
                if (e->spec.dst == rank)
                    MPI_Cancel(r);
                MPI_Request_free(r);
            }
        }
    }
}

static void end_mpi(struct mpi *m)
{
    end_mover(m);
    if (m->channels != MPI_COMM_NULL)
        MPI_Comm_free(&m->channels);
    if (m->control != MPI_COMM_NULL)
        MPI_Comm_free(&m->control);
    if (--open_count == 0)
        pp_mpi_finalize();
    pp_free(m->requests);
}

void pp_mpi_close(struct pp_transport *tp)
{
    end_mover(tp->impl);
    for (int i = 0; i < tp->n_ends; i++)
        cancel_requests(&tp->ends[i], tp->rank);
    end_mpi(tp->impl);
}

#define KERNEL_BYTES "4198400" /* 4 MiB and a header */

/*
 * Raises MPI's eager limits, unless the user has set them. Over TCP a message above the eager limit
 * moves only while both ends are inside MPI, because its sender waits for an answer first. Below
 * the limit the sender gives all bytes to the kernel, which moves them while both ends compute. The
 * mover moves larger messages.
 */
static void set_eager_limits(void)
{
    static const char *const limits[] = {"eager_limit", "rndv_eager_limit", "max_send_size"};
    char name[64];
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        snprintf(name, sizeof(name), "OMPI_MCA_btl_tcp_%s", limits[i]);
        setenv(name, KERNEL_BYTES, 0);
    }
    /* number of buffers of that size to allocate at a time */
    setenv("OMPI_MCA_btl_tcp_free_list_inc", "4", 0);
    setenv("MPIR_CVAR_CH3_EAGER_MAX_MSG_SIZE", KERNEL_BYTES, 0); /* MPICH */
}

static int start(void)
{
    PP_TRY(die_with_launcher());
    set_eager_limits();
    int level = MPI_THREAD_SINGLE;
    int rc = pp_mpi_init(MPI_THREAD_SERIALIZED, &level);
    return rc == MPI_SUCCESS ? 0 : pp_mpi_failed(rc, "MPI_Init_thread", __FILE__, __LINE__);
}

int pp_mpi_open(struct pp_transport *inner, uint64_t timeout_ns, struct pp_transport **out)
{
    if (!pp_mpi_launched()) {
        return pp_fail(PP_ERESOURCE, "this process was not started by an MPI launcher: use "
                                     "'mpirun -np N ppcli ...', or run the ranks as threads "
                                     "(run.transport = threads)");
    }
    PP_TRY(pp_mpi_load());
    int started = 0;
    MPI_TRY(MPI_Initialized(&started));
    if (started && open_count == 0)
        return pp_fail(PP_EINTERNAL, "MPI cannot be opened again once it was closed");
    struct mpi *m;
    PP_ALLOC(m, 1);
    m->channels = MPI_COMM_NULL;
    m->control = MPI_COMM_NULL;
    m->vote = MPI_REQUEST_NULL;
    m->thread = pthread_self();
    int rc = started ? 0 : start();
    PP_TRY_UNDO(rc, pp_free(m));
    open_count++;
    int rank = 0, size = 1;
    bool crowded = false;
    rc = set_up(m, &rank, &size, &crowded);
    if (rc == 0)
        rc = pp_transport_new(&transport_mpi, rank, size, m, out);
    if (rc < 0) {
        end_mpi(m);
        pp_free(m);
        return rc;
    }
    (*out)->crowded = crowded;
    (*out)->host = m->host;
    return 0;
}
