/* SPDX-License-Identifier: Apache-2.0 */
/* Runs mpirun as a child. Signals are received one at a time where this process waits: no handler,
 * and no race with the end of the child. The user's signal is stored in memory that the ranks can
 * read, because mpirun passes on only USR1. */

#include "asker.h"
#include "leftovers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pulse.h"
#include "ppcli/base/base.h"
#include "hosts.h"
#include "ppcli/base/files.h"
#include "ppcli/base/cores.h"
#include "ppcli/comm/transport.h"

/* mpirun forgets a USR1 that comes before it has started its ranks, so it is sent again. It may
 * also hang at its own end (4.1.4, of a job that lost a rank), so it is checked as often. */
#define LOOKS 4 /* checks per second */
/* Seconds in which mpirun may have no rank: before it has started one, here or on hosts, and
 * after. */
#define EMPTY_BEFORE 120
#define EMPTY_HOSTS 60
#define EMPTY_ASK 8    /* on hosts: after this time they are asked whether they answer */
#define EMPTY_WRONG 10 /* before a rank has started, if mpirun complains */
#define EMPTY_AFTER 10
#define END_S 2 /* time for mpirun after a rank is lost, and for an orted after mpirun is lost */

/* Adds a signal to the set of signals to wait for, unless it is ignored: what is ignored on purpose
 * (by nohup, or in a shell's background job) stays ignored. */
static void add_waited(int number, sigset_t *set)
{
    struct sigaction now;
    if (sigaction(number, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
        sigaddset(set, number);
}

static void waited_signals(sigset_t *out)
{
    static const int numbers[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    signal(SIGCHLD, SIG_DFL); /* so that the end of children can be waited for */
    sigemptyset(out);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        add_waited(numbers[i], out);
}

/* Signals at which mpirun kills its ranks before they could save. mpirun is started with them
 * blocked, because whoever stops a service, a job or a machine sends them to all processes. The
 * ranks do not have them blocked: mpirun unblocks all signals in them, and pp_supervise_started()
 * does so for another MPI. */
static const int fatal[] = {SIGTERM, SIGINT, SIGHUP};

static sigset_t with_fatal(const sigset_t *set)
{
    sigset_t out = *set;
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
        sigaddset(&out, fatal[i]);
    return out;
}

/* Returns the first fatal signal that is pending in a process, which blocks these signals; 0 if
 * none is. */
static int pending_fatal(pid_t pid)
{
    char path[64], line[128];
    unsigned long long pending = 0;
    snprintf(path, sizeof(path), "/proc/%ld/status", (long)pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "ShdPnd: %llx", &pending) == 1)
            break;
    if (f)
        fclose(f);
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
        if (pending >> (fatal[i] - 1) & 1)
            return fatal[i];
    return 0;
}

/* ---- its standard output */

#define RELAY_SECONDS 5 /* for what is left in the pipe when mpirun has ended */

struct relay {
    int from;
    atomic_bool started;
};

/* Copies, as a thread, a pipe to stdout until the pipe is closed. Write errors are left to stdout,
 * which remembers them: a run outlives its reader. */
static void *relay_stdout(void *arg)
{
    struct relay *r = arg;
    char block[4096];
    ssize_t n;
    while ((n = read(r->from, block, sizeof(block))) > 0) {
        fwrite(block, 1, pp_take_rank_mark(block, (size_t)n, &r->started), stdout);
        fflush(stdout);
    }
    return NULL;
}

/* Waits for a relay thread to end and closes its pipe. Returns false if the thread does not end in
 * time; then its pipe and its memory must stay for good. */
static bool end_relay(pthread_t thread, int from)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += RELAY_SECONDS;
    bool ended = pthread_timedjoin_np(thread, NULL, &end) == 0;
    if (ended)
        close(from);
    else
        pthread_detach(thread); /* a process that mpirun left behind holds the pipe */
    return ended;
}

/* ---- its life */

/* Returns a living child of `pid`, 0 if it has none, or -1 if the kernel does not tell. */
static pid_t find_child(pid_t pid)
{
    char path[64];
    long child = 0;
    snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", (long)pid, (long)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return -1;
    while (fscanf(f, "%ld", &child) == 1 && !pp_process_lives(child))
        child = 0;
    fclose(f);
    return (pid_t)child;
}

/* Returns whether the environment of a process has this variable with this value. */
static bool has_variable(pid_t pid, const char *name, const char *value)
{
    char path[64], *word = NULL;
    size_t bytes = 0, n = strlen(name);
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%ld/environ", (long)pid);
    FILE *f = fopen(path, "re");
    while (f && !found && getdelim(&word, &bytes, '\0', f) > 0)
        found = strncmp(word, name, n) == 0 && word[n] == '=' && strcmp(word + n + 1, value) == 0;
    free(word);
    if (f)
        fclose(f);
    return found;
}

/* Returns whether a process is the guard of a keeper; a guard ends by itself when it has removed
 * files. */
static bool is_guard(pid_t pid)
{
    char path[64], name[32] = "";
    snprintf(path, sizeof(path), "/proc/%ld/comm", (long)pid);
    FILE *f = fopen(path, "re");
    bool is = f && fgets(name, sizeof(name), f) && strcmp(name, PP_GUARD_NAME "\n") == 0;
    if (f)
        fclose(f);
    return is;
}

/* Returns a child of this process that mpirun has left behind; 0 if there is none. Children of the
 * program that this process was before exec do not count: only those of mpirun have the
 * variable. */
static pid_t find_orphan(void)
{
    char path[64];
    const char *asked = getenv(PP_SUPERVISE_ASKED);
    long child = 0;
    bool found = false;
    snprintf(path, sizeof(path), "/proc/self/task/%ld/children", (long)getpid());
    FILE *f = asked ? fopen(path, "re") : NULL;
    while (f && !found && fscanf(f, "%ld", &child) == 1)
        found = pp_process_lives(child) && !is_guard((pid_t)child) &&
                has_variable((pid_t)child, PP_SUPERVISE_ASKED, asked);
    if (f)
        fclose(f);
    return found ? (pid_t)child : 0;
}

/* Kills the processes that mpirun left behind; the kernel makes them children of this process,
 * because supervise() asks for that. The agent of a host that is cut off would otherwise wait a
 * quarter of an hour and keep our output open. */
static void end_orphans(void)
{
    for (pid_t orphan; (orphan = find_orphan()) > 0;) {
        kill(orphan, SIGKILL);
        waitpid(orphan, NULL, 0);
    }
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

/* Ends this process by the signal itself, as it would end without mpirun. */
static void end_by_signal(int number, const sigset_t *waited)
{
    signal(number, SIG_DFL);
    raise(number);
    sigprocmask(SIG_UNBLOCK, waited, NULL);
}

/* Ends mpirun and this process at once, because the user does not want to wait. */
static void end_at_once(pid_t child, const sigset_t *waited)
{
    kill(-child, SIGKILL); /* its ranks die with it */
    waitpid(child, NULL, 0);
    end_by_signal(SIGINT, waited);
}

/* Creates the file in which ranks read the user's signal, and sets PP_SUPERVISE_ASKED to its path.
 * Returns -1 on failure; then ranks report SIGUSR1, as ranks on other hosts do. */
static int make_asked_file(void)
{
    int fd = memfd_create(PP_SUPERVISE_FILE, MFD_CLOEXEC);
    char path[64];
    snprintf(path, sizeof(path), "/proc/%ld/fd/%d", (long)getpid(), fd);
    return setenv(PP_SUPERVISE_ASKED, path, 1) == 0 ? fd : -1;
}

void pp_supervise_started(void)
{
    sigset_t set;
    if (!getenv(PP_SUPERVISE_ASKED) || !pp_mpi_launched())
        return;
    sigemptyset(&set);
    set = with_fatal(&set);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    if (pp_mpi_given_rank() == 0)
        (void)!write(STDOUT_FILENO, PP_RANK_MARK, strlen(PP_RANK_MARK));
}

/* The mpirun child and its state. */
struct mpirun {
    pid_t pid;
    bool had_ranks, hangs;
    int empty; /* successive checks without a rank */
    struct pp_listener *listener;
    struct asker asker;
    bool host_lost;           /* the asker reports it */
    int ending;               /* checks since a rank was found lost; 0: no rank is lost */
    char lost[PP_PULSE_TEXT]; /* which rank is lost, and how */
    /* Belongs to this try; the threads that read stdout and stderr may outlive it: end_relay(). */
    struct relay *relay; /* its `started`: rank 0 has begun; a child may be an agent */
    struct pp_complaints *complaints;
    pthread_t relayer, complainer;
    bool relays, complains;
    int ends[2], errors[2]; /* the pipes */
    sigset_t waited, before;
    int word;       /* file of make_asked_file() */
    pid_t guard;    /* process of pp_guard_start() */
    int guarded;    /* pipe that keeps the guard waiting */
    int stop, asks; /* the user's first signal; checks since then */
    int status;     /* of waitpid() */
};

static void check_mpirun(struct mpirun *m)
{
    bool has = m->listener && !m->had_ranks ? m->relay->started : find_child(m->pid) != 0;
    m->had_ranks = m->had_ranks || has;
    m->empty = has ? 0 : m->empty + 1;
    if (m->ending == 0 && pp_listener_find_loss(m->listener, m->lost))
        m->ending = 1;
    if (m->ending == 1)
        pp_listener_end(m->listener);
    m->ending += m->ending > 0;
    if (m->empty == LOOKS * EMPTY_ASK && !m->had_ranks)
        asker_ask(&m->asker);
    m->host_lost = m->host_lost || (asker_found_lost(&m->asker) && !m->had_ranks);
    m->hangs = m->host_lost ||
               m->empty > LOOKS * (m->had_ranks                              ? EMPTY_AFTER
                                   : m->listener                             ? EMPTY_HOSTS
                                   : pp_complaints_have(m->complaints, "\n") ? EMPTY_WRONG
                                                                             : EMPTY_BEFORE);
    if (m->hangs || m->ending > LOOKS * END_S) /* asked to end, it sometimes crashes (4.1.4) */
        kill(-m->pid, SIGKILL);
}

/* Removes the files of mpirun after this process has ended. It runs in the guard: if this process
 * is killed, mpirun dies with it, and only the guard is left. */
static void remove_files_of_mpirun(long pid)
{
    do
        pp_clock_nap(1000000000 / LOOKS);
    while (pp_process_lives(pid));
    leftovers_remove_files("pid", pid);
    leftovers_remove_folder("ompi", (pid_t)pid);
}

/* Tells ranks and orteds on other hosts to end after mpirun has ended, and waits until they are
 * gone, for at most END_S + 1 seconds. */
static void wait_for_others(struct pp_listener *l)
{
    char ignored[PP_PULSE_TEXT];
    for (int k = 0; k < 50 * (END_S + 1); k++) {
        (void)pp_listener_find_loss(l, ignored);
        pp_listener_end(l);
        if (pp_listener_connected(l) == 0)
            break;
        pp_clock_nap(20000000);
    }
}

/* Returns whether an exit code is one of ppcli's own (enum pp_status); a rank that MPI ends has
 * another code. */
static bool is_own(int code)
{
    return code == 0 || code == -PP_ECHECK || (code >= -PP_EUSAGE && code <= -PP_EDIFFERS);
}

/* Fails because mpirun ended before it had started a rank or, if `started`, because MPI did not
 * start in its ranks. */
static int fail_without_rank(const struct mpirun *m, int status, bool started)
{
    char how[64], text[PP_COMPLAINT_MAX];
    const char *why = pp_complaints_first(m->complaints, text);
    if (m->hangs)
        snprintf(how, sizeof(how), "was killed after %d s", m->empty / LOOKS);
    else if (WIFEXITED(status))
        snprintf(how, sizeof(how), "ended with code %d", WEXITSTATUS(status));
    else
        snprintf(how, sizeof(how), "was ended by signal %d", WTERMSIG(status));
    return pp_fail(PP_ERESOURCE,
                   "mpirun %s and %s%s%s%s; use --launch threads to run the ranks as threads", how,
                   started ? "MPI did not start in its ranks" : "has not started a rank",
                   why[0] ? " (it says: " : "", why, why[0] ? ")" : "");
}

static int fail_before_ranks(void)
{
    return pp_fail(PP_ESTOPPED, "before the ranks were ready; start the same command again");
}

/* Returns whether a rank was ended by a signal of the user because it could not catch signals
 * yet. */
static bool ended_by_signal(const struct mpirun *m, int code)
{
    struct sigaction now;
    bool catches = sigaction(SIGUSR1, NULL, &now) == 0 && now.sa_handler != SIG_DFL;
    bool fits = code == 128 + SIGUSR1;
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
        fits = fits || code == 128 + fatal[i];
    return m->stop != 0 && WIFEXITED(m->status) && catches && fits;
}

/* Sets the exit code of the run in *out, or fails with a sentence that says how the run ended. */
static int explain_end(const struct mpirun *m, struct launch_end *out)
{
    const int status = m->status, stop = m->stop;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    const bool started = out->ranks;
    out->full = code == PP_SUPERVISE_FULL;
    code = out->full ? -PP_EIO : code;
    char who[PP_PULSE_TEXT];
    if (m->ending > 0)
        return pp_fail(PP_ELOST, "%s; continue with the same command and --resume", m->lost);
    if (stop != 0 && (!started || ended_by_signal(m, code)))
        return fail_before_ranks();
    if (stop != 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1) {
        out->code = -PP_ESTOPPED; /* it was asked again while it ended; the ranks have reported */
        return 0;
    }
    bool ended_rank = WIFEXITED(status) && code > 128 && code < 128 + NSIG; /* by a signal */
    if (!started && !ended_rank && (!m->listener || m->hangs || is_own(code)))
        return fail_without_rank(m, status, false);
    if (code == -PP_ECHECK && pp_complaints_have(m->complaints, "MPI_Init"))
        return fail_without_rank(m, status, true);
    if (m->hangs) {
        return pp_fail(PP_ELOST,
                       "mpirun did not exit after its ranks had ended; it was killed after %d s; "
                       "continue with the same command and --resume",
                       m->empty / LOOKS);
    }
    pp_listener_first_lost(m->listener, who);
    if (code > 128 && code < 128 + NSIG) {
        bool rank = WIFEXITED(status);
        return pp_fail(
            PP_ELOST,
            "%s was ended by signal %d (%s)%s; continue with the same command and --resume",
            !rank    ? "mpirun"
            : who[0] ? who
                     : "a rank",
            code - 128, strsignal(code - 128),
            rank ? " and the others with it" : " and its ranks with it");
    }
    bool own = is_own(code);
    if (code == -PP_ECHECK) /* else the code is mpirun's own, for an end by a signal */
        own = m->complaints->all || pp_complaints_have(m->complaints, "non-zero") ||
              pp_complaints_have(m->complaints, "exit code");
    if (!own || (code == 0 && who[0])) { /* code 0: Open MPI 5 that has lost a prted */
        return pp_fail(PP_ELOST,
                       "mpirun ended with code %d: a rank or a host is lost%s%s; continue with the "
                       "same command and --resume",
                       code, who[0] ? "; the first to go was " : "", who);
    }
    out->code = code;
    return 0;
}

static int open_pipes(const char *program, struct mpirun *m)
{
    m->relay = pp_alloc(1, sizeof(*m->relay));
    m->complaints = pp_alloc(1, sizeof(*m->complaints));
    PP_TRY(m->relay && m->complaints ? 0 : PP_ERESOURCE);
    if (pipe2(m->ends, O_CLOEXEC) != 0 || pipe2(m->errors, O_CLOEXEC) != 0)
        return pp_fail_errno(PP_ERESOURCE, "cannot start %s", program);
    m->relay->from = m->ends[0];
    *m->complaints = (struct pp_complaints){.from = m->errors[0],
                                            .started = &m->relay->started,
                                            .all = pp_log_level() >= PP_LOG_DEBUG,
                                            .lock = PTHREAD_MUTEX_INITIALIZER};
    return 0;
}

static int start_mpirun(const char *const *args, const struct launch_ask *ask, struct mpirun *m)
{
    sigset_t deaf;
    m->word = make_asked_file();
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    asker_start(ask, &m->asker);
    m->guard = pp_guard_start(remove_files_of_mpirun, &m->guarded);
    waited_signals(&m->waited);
    add_waited(SIGTSTP, &m->waited);
    sigprocmask(SIG_BLOCK, &m->waited, &m->before);
    deaf = with_fatal(&m->before);
    m->relays = (errno = pp_thread_start(&m->relayer, relay_stdout, m->relay)) == 0;
    m->complains = m->relays && (errno = pp_thread_start(&m->complainer, pp_complaints_relay,
                                                         m->complaints)) == 0;
    int rc = m->complains ? 0 : pp_fail_errno(PP_ERESOURCE, "cannot start %s", args[0]);
    /* received before this process waited for signals */
    if (rc == 0 && (m->stop = pp_process_stop) != 0)
        rc = fail_before_ranks();
    if (rc == 0)
        rc = pp_child_start(args, -1, m->ends[1], m->errors[1], &deaf, &m->pid);
    close(m->ends[1]);
    close(m->errors[1]);
    if (rc == 0)
        (void)!write(m->guarded, &(long){m->pid}, sizeof(long));
    return rc;
}

/* Stops the ranks and this process, as SIGTSTP asks, and continues the ranks when this process is
 * continued. */
static void pause_run(const struct mpirun *m)
{
    sigset_t stops;
    sigemptyset(&stops);
    sigaddset(&stops, SIGTSTP);
    kill(m->pid, SIGTSTP); /* mpirun stops its ranks, here and on other hosts */
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stops, NULL); /* the process is stopped here */
    sigprocmask(SIG_BLOCK, &stops, NULL);
    kill(m->pid, SIGCONT);
}

/* Passes signals on to mpirun and checks mpirun until it ends. */
static void serve_signals(struct mpirun *m)
{
    const struct timespec a_while = {.tv_nsec = 1000000000 / LOOKS};
    while (waitpid(m->pid, &m->status, WNOHANG) != m->pid) {
        int got = sigtimedwait(&m->waited, NULL, &a_while);
        bool looks = got < 0 && errno == EAGAIN;
        if (looks && m->stop == 0)
            got = pending_fatal(m->pid);
        bool asked = got > 0 && got != SIGCHLD && got != SIGUSR2 && got != SIGTSTP;
        if (got == SIGUSR2) {
            kill(m->pid, SIGUSR2);
        } else if (got == SIGTSTP) {
            pause_run(m);
        } else if (got == SIGINT && m->stop != 0) {
            end_at_once(m->pid, &m->waited);
        } else if (asked && m->stop == 0) {
            m->stop = got;
            (void)!pwrite(m->word, &m->stop, sizeof(m->stop), 0);
            pp_log_info("stopping after this step and saving; Ctrl-C again quits without saving");
            kill(m->pid, SIGUSR1);
        } else if (looks) {
            check_mpirun(m);
            if (m->stop != 0 && ++m->asks % LOOKS == 0 && (m->empty == 0 || !m->had_ranks))
                kill(m->pid, SIGUSR1); /* this ends an mpirun without ranks */
        }
    }
}

/* Ends everything that is left after mpirun: ranks on other hosts, files, orphans, and the threads
 * that read its pipes. A thread that does not end keeps its pipe. */
static void reap_mpirun(struct mpirun *m, bool started)
{
    asker_end(&m->asker);
    if (started)
        wait_for_others(m->listener);
    if (started && m->status != 0) {
        leftovers_remove_files("pid", (long)m->pid);
        leftovers_remove_folder("ompi", m->pid);
    }
    pp_guard_end(m->guard, m->guarded);
    if (m->status != 0)
        end_orphans();
    if (m->relays)
        m->relays = !end_relay(m->relayer, m->ends[0]);
    else
        close(m->ends[0]);
    if (m->complains)
        m->complains = !end_relay(m->complainer, m->errors[0]);
    else
        close(m->errors[0]);
    if (m->stop != 0 && WIFEXITED(m->status) && WEXITSTATUS(m->status) == 128 + SIGUSR1 &&
        !ended_by_signal(m, 128 + SIGUSR1))
        end_by_signal(m->stop,
                      &m->waited); /* nothing to save: the ranks were ended by what they got */
    sigprocmask(SIG_SETMASK, &m->before, NULL);
    if (m->word >= 0)
        close(m->word);
    unsetenv(PP_SUPERVISE_ASKED); /* what starts next is not a rank */
}

int supervise(const char *const *args, struct pp_listener *listener, const struct launch_ask *ask,
              struct launch_end *out)
{
    struct mpirun m = {.listener = listener};
    PP_TRY(open_pipes(args[0], &m));
    int rc = start_mpirun(args, ask, &m);
    if (rc == 0)
        serve_signals(&m);
    reap_mpirun(&m, rc == 0);
    out->asked = m.stop != 0;
    out->started = rc == 0;
    out->ranks = m.relay->started;
    rc = rc < 0 ? rc : explain_end(&m, out);
    if (!m.relays && !m.complains)
        pp_free(m.relay);
    if (!m.complains)
        pp_free(m.complaints);
    return rc;
}

/* Removes the files of a job. It runs in the guard of a keeper: if the keeper is killed, its orted
 * dies with it, and the ranks die with the orted. */
static void remove_files_after_end(long job)
{
    pp_clock_nap((uint64_t)END_S * 1000000000);
    leftovers_remove_files("jf", job);
}

int pp_supervise_orted(const char *address, double timeout, char **args)
{
    const struct timespec a_while = {.tv_nsec = PP_PULSE_EVERY_NS};
    char text[PP_PULSE_TEXT];
    struct pp_pulse *pulse = NULL;
    sigset_t waited, before, deaf;
    bool asked = false;
    long job = 0;
    int guarded;
    pid_t pid, daemon = 0; /* prted becomes a daemon, for which its first process waits */
    int status, ending = 0;
    for (int i = 0; args[i] && args[i + 1]; i++)
        if (strcmp(args[i], "ess_base_jobid") == 0)
            job = strtol(args[i + 1], NULL, 10) >> 16;
    waited_signals(&waited);
    sigprocmask(SIG_BLOCK, &waited, &before);
    deaf = with_fatal(&before);                                     /* as for mpirun */
    pid_t guard = pp_guard_start(remove_files_after_end, &guarded); /* before there are threads */
    PP_TRY(pp_pulse_open(address, PP_PULSE_KEEPER, timeout, NULL, &pulse));
    int rc =
        pp_child_start((const char *const *)args, -1, STDOUT_FILENO, STDERR_FILENO, &deaf, &pid);
    if (rc == 0)
        (void)!write(guarded, &job, sizeof(job));
    while (rc == 0 && waitpid(pid, &status, WNOHANG) != pid) {
        int got = sigtimedwait(&waited, NULL, &a_while);
        int wish = got > 0 && got != SIGCHLD ? got : asked ? 0 : pending_fatal(pid);
        if (ending == 0 && pp_pulse_beat(pulse, text) != PP_PULSE_WELL)
            ending = 1;
        ending += got < 0 && ending > 0;
        pid_t child = find_child(pid);
        daemon = child > 0 ? child : daemon;
        if (wish > 0 && child > 0)
            asked = kill(child, wish) == 0; /* one rank ends the run, or saves, for all */
        if (ending > LOOKS * END_S) {
            if (child > 0)
                kill(child, SIGKILL);
            kill(-pid, SIGKILL);
        }
    }
    if (rc == 0 && WIFSIGNALED(status) && ending == 0)
        pp_pulse_say(pulse, false, 0, "killed"); /* its last message; the listener names the host */
    if (rc == 0) /* an orted that cannot reach mpirun ends by itself and leaves files */
        leftovers_remove_files("jf", job);
    if (daemon > 0)
        leftovers_remove_folder("prted", daemon);
    pp_guard_end(guard, guarded);
    pp_pulse_close(&pulse);
    /* If we killed it, mpirun's parent reports the loss: exit quietly. */
    if (rc == 0 && ending == 0 && (WIFSIGNALED(status) || WEXITSTATUS(status) != 0))
        pp_process_leave(WIFSIGNALED(status) ? -128 - WTERMSIG(status) : -WEXITSTATUS(status));
    return rc;
}
