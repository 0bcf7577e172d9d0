/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts ppcli again under mpirun, with the user's own command line.
 */

#include "tries.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hosts.h"
#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"
#include "pulse.h"
#include "ppcli/comm/transport.h"

void (*pp_process_leave)(int rc);
char **pp_process_argv;

#define WORDS_MAX 4096

bool pp_launch_is_speaker(void)
{
    return (!pp_mpi_launched() && pp_launch_processes() <= 1) || pp_mpi_given_rank() == 0;
}

bool pp_launch_wanted(const struct pp_config *cfg)
{
    return cfg->run.launch == PP_LAUNCH_MPIRUN && !pp_mpi_launched() && !getenv(PP_SUPERVISE_ASKED);
}

bool pp_launch_announces(void)
{
    return pp_launch_is_speaker() &&
           !getenv(PP_SUPERVISE_ASKED); /* else its parent has announced it */
}

/* ---- arguments of mpirun */

/* The MPI library of an argument. */
enum {
    OPEN_MPI_4 = 1,
    OPEN_MPI_5 = 2,
    OPEN_MPI = 3,
    MPICH = 4,
    ANY = 7
};

/* The condition of an argument. */
enum {
    ROOT = 1,
    CROWDED = 2,  /* more ranks than cores */
    HOSTS = 4,    /* there are other hosts */
    ETHERNET = 8, /* messages between hosts use TCP; else MPI chooses */
    PORTS = 16,
    REORDER = 32 /* the order differs from mpirun's, which fills its own host first */
};

/* The arguments. %R: number of ranks, %H: hosts, %E: host of each rank, %A: agent, %N: networks,
 * %K: keeper of orted. Ports: mpirun uses those from %F to %G; the ranks those from %P to %L, %C in
 * all. NAME=VALUE sets a variable of mpirun's environment, unless it is set. */
static const struct row {
    int who, when, unless;
    const char *words[3];
} rows[] = {
    {ANY, 0, 0, {"-np", "%R"}},
    {OPEN_MPI, 0, 0, {"--bind-to", "none"}}, /* ranks choose cores themselves: seats.c */
    {OPEN_MPI, CROWDED, HOSTS, {"--oversubscribe"}},
    {OPEN_MPI, HOSTS, REORDER, {"--host", "%H"}},
    {OPEN_MPI, HOSTS | REORDER, 0, {"--map-by", "seq"}},
    {OPEN_MPI, HOSTS | REORDER, 0, {"--host", "%E"}},
    {MPICH, HOSTS, 0, {"-hosts", "%H"}},
    {OPEN_MPI_4, HOSTS, 0, {"--mca", "plm_rsh_agent", "%A"}},
    {OPEN_MPI_5, HOSTS, 0, {"--prtemca", "plm_ssh_agent", "%A"}},
    {MPICH, HOSTS, 0, {"-launcher", "ssh"}},
    {MPICH, HOSTS, 0, {"-launcher-exec", "%A"}},
    {OPEN_MPI_4, HOSTS, 0, {"--mca", "orte_launch_agent", "%Korted"}},
    {OPEN_MPI_4, HOSTS, 0, {"--mca", "oob_tcp_if_include", "%N"}},
    {OPEN_MPI_5, HOSTS, 0, {"--prtemca", "prte_launch_agent", "%Kprted"}},
    {OPEN_MPI_5, HOSTS, 0, {"--prtemca", "prte_if_include", "%N"}},
    {OPEN_MPI, HOSTS | ETHERNET, 0, {"--mca", "btl_tcp_if_include", "%N"}},
    {OPEN_MPI_4, HOSTS | PORTS, 0, {"--mca", "oob_tcp_dynamic_ipv4_ports", "%F-%G"}},
    {OPEN_MPI_5, HOSTS | PORTS, 0, {"--prtemca", "oob_tcp_dynamic_ipv4_ports", "%F-%G"}},
    {OPEN_MPI, HOSTS | PORTS, 0, {"--mca", "btl_tcp_port_min_v4", "%P"}},
    {OPEN_MPI, HOSTS | PORTS, 0, {"--mca", "btl_tcp_port_range_v4", "%C"}},
    {MPICH, HOSTS | PORTS, 0, {"MPIR_CVAR_CH3_PORT_RANGE=%P:%L"}},
    {MPICH, HOSTS | PORTS, 0, {"MPIEXEC_PORT_RANGE=%F:%G"}},
    /* Only shared memory on one machine, TCP between hosts, without the copy mechanism that
     * containers forbid. For anything else, start mpirun directly. */
    {OPEN_MPI, 0, HOSTS, {"--mca", "pml", "ob1"}},
    /* Only this machine, also in an allocation of several. */
    {OPEN_MPI_4, 0, HOSTS, {"--mca", "ras", "^slurm"}},
    {OPEN_MPI_4, 0, HOSTS, {"--mca", "plm", "^slurm"}},
    {OPEN_MPI_5, 0, HOSTS, {"--prtemca", "ras", "^slurm"}},
    {OPEN_MPI_5, 0, HOSTS, {"--prtemca", "plm", "^slurm"}},
    {OPEN_MPI, HOSTS | ETHERNET, 0, {"--mca", "pml", "ob1"}},
    {OPEN_MPI_4, 0, HOSTS, {"--mca", "btl", "self,vader"}},
    {OPEN_MPI_5, 0, HOSTS, {"--mca", "btl", "self,sm"}},
    {OPEN_MPI_4, HOSTS | ETHERNET, 0, {"--mca", "btl", "self,vader,tcp"}},
    {OPEN_MPI_5, HOSTS | ETHERNET, 0, {"--mca", "btl", "self,sm,tcp"}},
    {OPEN_MPI, 0, 0, {"--mca", "btl_vader_single_copy_mechanism", "none"}},
    {OPEN_MPI, HOSTS | CROWDED, 0, {"--mca", "mpi_yield_when_idle", "1"}},
    /* If a rank is lost, the others cannot save: no grace time. On several hosts, a second shows
     * which rank was lost first. */
    {OPEN_MPI, 0, HOSTS, {"--mca", "odls_base_sigkill_timeout", "0"}},
    {OPEN_MPI, HOSTS, 0, {"--mca", "odls_base_sigkill_timeout", "1"}},
    {OPEN_MPI_5, HOSTS, 0, {"--mca", "mpi_abort_delay", "1"}},
    /* Ctrl-Z, which supervise() passes on; version 5 does so by itself. */
    {OPEN_MPI_4, 0, 0, {"--mca", "orte_forward_job_control", "1"}},
    {OPEN_MPI, ROOT, 0, {"OMPI_ALLOW_RUN_AS_ROOT=1"}},
    {OPEN_MPI, ROOT, 0, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}},
};

#define HOSTS_TEXT (1 << 17)

struct mpirun_words {
    const char *args[WORDS_MAX + 256];
    int n;
    char kept[4 * HOSTS_TEXT]; /* text that args point into */
    size_t used;
    const char *value[128]; /* value of each % letter */
    char ranks[16], hosts[HOSTS_TEXT], each[HOSTS_TEXT], ports[5][16];
    char exe[PP_PATH_MAX], keeper[PP_PATH_MAX + PP_PULSE_ADDRESS + 64];
    struct pp_listener *listener; /* listens to ranks on several hosts; owned */
};

/* Copies a word and adds it to the arguments. */
static void add_own_word(struct mpirun_words *w, const char *text)
{
    size_t n = strlen(text) + 1;
    pp_assert(n <= sizeof(w->kept) - w->used && w->n < (int)(sizeof(w->args) / sizeof(w->args[0])));
    w->args[w->n++] = memcpy(w->kept + w->used, text, n);
    w->used += n;
}

static int add_word(struct mpirun_words *w, const char *word)
{
    static char text[HOSTS_TEXT + PP_PATH_MAX];
    size_t used = 0;
    for (const char *p = word; *p; p++)
        if (*p == '%')
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s", w->value[(int)*++p]);
        else
            text[used++] = *p;
    text[used] = '\0';
    size_t name = strcspn(word, "=%"); /* of the row: a value may have any characters */
    if (word[name] != '=') {
        add_own_word(w, text);
        return 0;
    }
    text[name] = '\0';
    return setenv(text, text + name + 1, 0) == 0 ? 0 : PP_ERESOURCE;
}

/* Adds the arguments that make Open MPI carry environment variables to other hosts; without them it
 * carries only its own variables. */
static void carry_environment(struct mpirun_words *w)
{
    extern char **environ;
    add_own_word(w, "-x");
    add_own_word(w, PP_SUPERVISE_ASKED);
    for (char **e = environ; *e && w->n < 192; e++) {
        char name[128];
        size_t n = strcspn(*e, "=");
        if (!pp_host_variable(*e) || n >= sizeof(name) || strncmp(*e, PP_SUPERVISE_ASKED, n) == 0)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)n, *e);
        add_own_word(w, "-x");
        add_own_word(w, name);
    }
}

/* ---- hosts */

/* Returns the host of a rank. `turned` is the config if the list of hosts keeps the replicas of
 * each stage together, and NULL if it does not. */
static const char *host_of_rank(const struct pp_hosts *hosts, int rank,
                                const struct pp_config *turned)
{
    int i = 0, stages = turned ? turned->pipeline.stages : 1;
    int k = turned ? rank % stages * turned->pipeline.replicas + rank / stages : rank;
    for (; k >= hosts->items[i].ranks; i++)
        k -= hosts->items[i].ranks;
    return hosts->items[i].name;
}

/* Checks the hosts of cfg and fills in *w with them. Adds to *when the conditions that hold, which
 * select the arguments of mpirun. */
static int set_up_hosts(const struct pp_config *cfg, const char *word, int ranks,
                        struct mpirun_words *w, int *when)
{
    static struct pp_hosts hosts; /* too large for a small stack */
    struct pp_preflight p = {0};
    static char network[sizeof(p.network)];
    int first, last;
    bool here = true, asked = strcmp(cfg->run.network, "auto") != 0;
    bool order = cfg->run.rank_order == PP_ORDER_REPLICAS &&
                 ranks == cfg->pipeline.stages * cfg->pipeline.replicas;
    const struct pp_config *turned = order ? cfg : NULL;
    PP_TRY(pp_hosts_parse(cfg->run.hosts, ranks, &hosts));
    PP_TRY(pp_ports_parse(cfg->run.ports, &first, &last));
    int rc = pp_preflight(cfg, word, &hosts, false, &p);
    for (int i = 0; i < hosts.n && rc == 0; i++) {
        const struct pp_host *h = &hosts.items[i];
        pp_text_add(w->hosts, HOSTS_TEXT, "%s%s:%d", i > 0 ? "," : "", h->name, h->ranks);
        here = here && p.hosts[i].here;
        *when |= p.hosts[i].here && i > 0 ? REORDER : 0;
        *when |= p.one_machine || h->ranks > p.hosts[i].cores ? CROWDED : 0;
    }
    for (int r = 0; r < ranks && rc == 0; r++)
        pp_text_add(w->each, HOSTS_TEXT, "%s%s", r > 0 ? "," : "", host_of_rank(&hosts, r, turned));
    *when |= turned ? REORDER : 0;
    if (rc == 0 && strlen(w->each) + PP_HOST_NAME_MAX >= HOSTS_TEXT)
        rc = pp_fail(PP_ECONFIG, "run.hosts: too many ranks on hosts with long names");
    memcpy(network, p.network, sizeof(network));
    double seconds = p.seconds;
    pp_preflight_fini(&p);
    if (rc < 0 || here) /* one host, which is this one */
        return rc;
    if (asked)
        snprintf(network, sizeof(network), "%s", cfg->run.network);
    w->value['A'] = pp_host_agent(cfg);
    w->value['N'] = network;
    int half = first + (last - first + 1) / 2;
    if (pp_listener_open(ranks, first ? half : 0, last, &w->listener) < 0)
        return pp_error_context("heartbeats");
    if (setenv(PP_PULSE_ENV, pp_listener_address(w->listener), 1) != 0)
        return PP_ERESOURCE;
    for (int r = 0; r < ranks; r++)
        pp_listener_expect(w->listener, r, host_of_rank(&hosts, r, turned), cfg->run.hang_timeout);
    if (!strpbrk(w->exe, " \t'\"\\$&;()<>|*?")) /* Open MPI and a shell split it at such
                                                   characters */
        snprintf(w->keeper, sizeof(w->keeper), "%s env --keep %s %g ", w->exe,
                 pp_listener_address(w->listener),
                 cfg->run.hang_timeout > 0 ? cfg->run.hang_timeout : 1e6);
    const int ports[] = {first, half - 1, half, last, last - half + 1};
    for (int i = 0; i < 5; i++) {
        snprintf(w->ports[i], sizeof(w->ports[i]), "%d", ports[i]);
        w->value[(int)"FGPLC"[i]] = w->ports[i];
    }
    *when |= HOSTS | (first ? PORTS : 0) | (asked || !pp_fabric_here() ? ETHERNET : 0);
    pp_log_info("hosts: %s over %s (%s), asked in %.1f s", w->hosts, network,
                asked              ? "run.network"
                : *when & ETHERNET ? "the route to them"
                                   : "to start; MPI chooses for messages: there is a fabric",
                seconds);
    return 0;
}

static int collect_words(const struct pp_config *cfg, const char *word, int ranks,
                         struct mpirun_words *w)
{
    const char *version = pp_world_version();
    int who = strncmp(version, "Open MPI", 8) != 0 ? MPICH
              : atoi(version + 9) >= 5             ? OPEN_MPI_5
                                                   : OPEN_MPI_4;
    int when = geteuid() == 0 ? ROOT : 0;
    snprintf(w->ranks, sizeof(w->ranks), "%d", ranks);
    w->value['R'] = w->ranks;
    w->value['H'] = w->hosts;
    w->value['E'] = w->each;
    w->value['K'] = w->keeper;
    if (readlink("/proc/self/exe", w->exe, sizeof(w->exe) - 1) < 0)
        return pp_fail_errno(PP_ERESOURCE, "cannot find the own program file");
    if (cfg->run.hosts[0])
        PP_TRY(set_up_hosts(cfg, word, ranks, w, &when));
    if ((when & REORDER) && who == MPICH && cfg->run.rank_order == PP_ORDER_REPLICAS)
        return pp_fail(PP_ECONFIG, "run.rank_order = replicas needs Open MPI; name the hosts in "
                                   "another order, or use stages");
    if (!(when & HOSTS) && ranks > pp_machine_whole_cores())
        when |= CROWDED;
    w->args[w->n++] = "mpirun";
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *r = &rows[i];
        if ((r->who & who) && (r->when & when) == r->when && !(r->unless & when))
            for (int k = 0; k < 3 && r->words[k]; k++)
                PP_TRY(add_word(w, r->words[k]));
    }
    if ((who & OPEN_MPI) && (when & ROOT))
        pp_log_info("running as root: calling mpirun with --allow-run-as-root");
    if ((who & OPEN_MPI) && (when & HOSTS))
        carry_environment(w);
    add_own_word(w, w->exe);
    for (char **arg = pp_process_argv + 1; *arg; arg++) {
        if (w->n == WORDS_MAX)
            return pp_fail(PP_ERESOURCE, "cannot pass on a command line of more than %d words",
                           WORDS_MAX);
        w->args[w->n++] = *arg;
    }
    return 0;
}

/* Finds the host that does not answer any more, after mpirun was lost before a rank had begun.
 * Fails with its name, or returns rc if all hosts answer. */
static int find_lost_host(const struct pp_config *cfg, const char *word, int ranks, int rc)
{
    static struct pp_hosts hosts; /* too large for a small stack */
    PP_OWN(pp_preflight_fini) struct pp_preflight p = {0};
    struct pp_error before = *pp_error_get();
    const struct pp_host_facts *first = NULL;
    int n = 0;
    PP_TRY(pp_preflight_left(cfg, word, ranks, &hosts, &p));
    for (int i = hosts.n - 1; i >= 0; i--) {
        n += hosts.items[i].ranks == 0;
        first = hosts.items[i].ranks == 0 ? &p.hosts[i] : first;
    }
    (void)pp_error_adopt(&before);
    if (first)
        rc = pp_fail(PP_ELOST, "before its ranks had begun: %s %s: %s",
                     n > 1 && n >= hosts.n - 1 ? "this host is cut off from" : "without host",
                     first->name, first->wrong);
    return rc;
}

struct run_words {
    const struct pp_config *cfg;
    const char *word;
    int ranks;
};

static bool host_lost(const void *ctx)
{
    const struct run_words *run = ctx;
    return find_lost_host(run->cfg, run->word, run->ranks, 0) == PP_ELOST;
}

/* Returns whether mpirun may use any port. Then mpirun's own ports cannot be in the way when hosts
 * are asked. */
static bool uses_any_port(const struct pp_config *cfg)
{
    int first = 1, last;
    return pp_ports_parse(cfg->run.ports, &first, &last) == 0 && first == 0;
}

int launch_once(const struct pp_config *cfg, const char *word, int ranks, const char *added,
                struct launch_end *out)
{
    *out = (struct launch_end){0};
    PP_TRY(pp_world_load());
    if (!cfg->run.hosts[0])
        PP_TRY(pp_mpirun_can_start(ranks));
    static struct mpirun_words w; /* too large for a small stack */
    w = (struct mpirun_words){0};
    int rc = collect_words(cfg, word, ranks, &w);
    for (; *added; added += strlen(added) + 1)
        w.args[w.n++] = added;
    w.args[w.n] = NULL;
    if (rc == 0 && pp_log_level() >= PP_LOG_DEBUG) {
        char line[4096] = "";
        for (int i = 0; i < w.n; i++)
            pp_text_add(line, sizeof(line), "%s%s", i > 0 ? " " : "", w.args[i]);
        pp_log_debug("%s", line);
    }
    if (!w.listener)
        unsetenv(PP_PULSE_ENV); /* of another run, or of an earlier try */
    fflush(NULL);
    bool asked = rc == 0;
    const struct run_words run = {cfg, word, ranks};
    const struct launch_ask ask = {host_lost, &run};
    if (asked)
        rc = supervise(w.args, w.listener, w.listener && uses_any_port(cfg) ? &ask : NULL, out);
    if (rc < 0 && rc != PP_ESTOPPED && w.listener && out->started && !out->ranks)
        rc = find_lost_host(cfg, word, ranks, rc);
    pp_listener_close(&w.listener);
    unsetenv(PP_PULSE_ENV);
    if (asked && rc == PP_ENOINPUT) {
        const struct pp_error why = *pp_error_get();
        return pp_fail(PP_ERESOURCE,
                       "%s; install it (Debian: openmpi-bin), or use --launch threads to run the "
                       "ranks as threads",
                       why.text);
    }
    return rc;
}

int launch_leave(int rc, const struct launch_end *end)
{
    if (rc == 0 && end->code != 0) {
        /* The rank that knows the cause has reported it. */
        pp_assert(pp_process_leave != NULL);
        pp_process_leave(-end->code);
    }
    return rc;
}

int pp_launch_mpirun(const struct pp_config *cfg, const char *word, int ranks)
{
    struct launch_end end;
    int rc = launch_once(cfg, word, ranks, "", &end);
    return launch_leave(rc, &end);
}
