/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way in and the only way out: finds the command, runs it, says once what went wrong, and
 * turns the code into the exit status. Results are on stdout, so a stdout that could not be
 * written is a failure of its own.
 */
#include <malloc.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ppcli/base/base.h"
#include "ppcli/comm/transport.h"
#include "command.h"

/* Runs "ppcli -h" and "ppcli --version": options in the place of a command. */
static int run_option(const char *word)
{
    if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0)
        return cmd_help(1, NULL);
    if (strcmp(word, "-V") == 0 || strcmp(word, "--version") == 0)
        return cmd_version(1, NULL);
    const char *const names[] = {"--help", "--version", "--quiet", "--verbose", "--no-color", NULL};
    const char *near = pp_nearest(word, names);
    if (near)
        return pp_fail(PP_EUSAGE, "unknown option '%s'; did you mean '%s'?", word, near);
    return pp_fail(PP_EUSAGE, "'%s' is where a command is expected (ppcli COMMAND %s ...)", word,
                   word);
}

static int unknown_command(const char *word)
{
    if (pp_text_ends(word, ".ini")) {
        char quoted[2 * PP_PATH_MAX];
        return pp_fail(PP_EUSAGE, "'%s' is a config, not a command; did you mean: ppcli train %s",
                       word, pp_text_shell(word, quoted, sizeof(quoted)));
    }
    return pp_fail(PP_EUSAGE, "unknown command '%s'%s", word, pp_command_hint(word).s);
}

/* Finds the command and sets *at to its place in argv. *out stays NULL if there is nothing to
 * run. */
static int find_command(int argc, char **argv, int *at, const struct pp_command **out)
{
    int i = 1;
    while (i < argc && pp_cli_presentation_flag(argv[i]))
        i++;
    bool other_rank = !pp_launch_is_speaker();
    *at = i;
    if (i == argc) {
        if (!other_rank)
            fputs(text_welcome, stdout);
        return 0;
    }
    if (argv[i][0] == '-')
        return other_rank ? 0 : run_option(argv[i]);
    *out = pp_command_find(argv[i]);
    return *out ? 0 : unknown_command(argv[i]);
}

#define STACK_BYTES (128 << 10) /* of the first thread */
#define SPEAKER_SECONDS 5
#define NEXT_NS 500000000 /* between two ranks, when it is not known which others fail */
#define NEXT_MAX 10

static void print_error(int rc, const struct pp_command *command)
{
    const struct pp_error *e = pp_error_get();
    const char *label = rc == PP_ESTOPPED ? "stopped" : "error";
    const char *on = pp_term_color(STDERR_FILENO) ? "\033[1;31m" : "";
    const char *off = on[0] ? "\033[0m" : "";
    if (!pp_log_ready(STDERR_FILENO))
        return;
    fprintf(stderr, "ppcli: %s%s:%s %s\n", on, label, off, e->code ? e->text : pp_status_name(rc));
    if (rc == PP_EUSAGE) {
        bool of_one = command && command != &command_help;
        fprintf(stderr, "ppcli: see 'ppcli help%s%s'\n", of_one ? " " : "",
                of_one ? command->name : "");
    } else if (rc == PP_EINTERNAL) {
        fprintf(stderr,
                "ppcli: this is a mistake in ppcli (%s:%d); please report it together with "
                "what 'ppcli version' prints\n",
                e->file ? e->file : "?", e->line);
    }
}

/* Opens a stand-in for each standard stream that the caller has closed, so that no file opened
 * later becomes stdin, stdout or stderr. The stand-ins fail on use, so that a result which goes
 * nowhere is noticed. */
static void hold_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            int stand_in = open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
            if (stand_in != fd && stand_in >= 0)
                close(stand_in);
        }
    }
}

static bool reader_left(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

/* Closes stdout. Returns the code of the command, or PP_EIO if its result could not be written. */
static int finish_stdout(int rc)
{
    bool gone = reader_left();
    bool failed = ferror(stdout) != 0;
    errno = 0;
    if (fclose(stdout) != 0)
        failed = true;
    if (!failed || rc < 0)
        return rc;
    if (errno == EPIPE || gone)
        return PP_EIO;
    rc = errno ? pp_fail_errno(PP_EIO, "standard output")
               : pp_fail(PP_EIO, "standard output could not be written");
    print_error(rc, NULL);
    return rc;
}

/* Ends the process without flushing and cleaning up. It is for the watchdog, which ends a process
 * whose other threads hang. */
static void leave_at_once(int rc)
{
    _exit(-rc);
}

/* Refuses to run if other processes of this launch run other commands: they would wait for this
 * one, which opens no MPI. */
static int check_company(const struct pp_command *command)
{
    int n = pp_mpi_launch_programs();
    return n < 2 ? 0
                 : pp_fail(PP_EUSAGE,
                           "'ppcli %s' runs in one process, but this launch has %d commands: start "
                           "it by itself",
                           command->name, n);
}

/* Prints the error of this rank, which is not the one that prints for all, unless a process has
 * already told the others that it failed. It waits first, so that ranks print one after another. */
static void tell_alone(int rc, const struct pp_command *command)
{
    int rank = pp_mpi_given_rank();
    if (pp_start_told_others())
        return;
    pp_clock_nap((uint64_t)(rank < NEXT_MAX ? rank : NEXT_MAX) * NEXT_NS);
    if (pp_error_get()->code)
        (void)pp_error_context("rank %d", rank);
    print_error(rc, command);
}

/* Raises the limit of the stack if it is too small. This has an effect at once, because the kernel
 * reads the limit whenever a stack grows. */
static int check_stack(void)
{
    struct rlimit stack;
    if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= STACK_BYTES)
        return 0;
    const unsigned long long given = stack.rlim_cur >> 10;
    stack.rlim_cur = STACK_BYTES;
    if (stack.rlim_max < STACK_BYTES)
        stack.rlim_max = STACK_BYTES;
    return setrlimit(RLIMIT_STACK, &stack) == 0
               ? 0
               : pp_fail(PP_ERESOURCE,
                         "the stack is limited to %llu KiB, and ppcli needs %d: use ulimit -s %d",
                         given, STACK_BYTES >> 10, STACK_BYTES >> 10);
}

int main(int argc, char **argv)
{
    pp_process_leave = leave_at_once;
    pp_process_argv = argv;
    hold_standard_streams();
    /* No step allocates, so threads need no heaps of their own, of 64 MiB of address space each. */
    (void)mallopt(M_ARENA_MAX, 1);
    /* A training run must outlive the program that read its log. */
    signal(SIGPIPE, SIG_IGN);
    /* A file that grows beyond its limit is an error to report, not a signal to die of. */
    signal(SIGXFSZ, SIG_IGN);

    pp_signals_clean();
    pp_supervise_started();
    pp_transport_prepare();
    const struct pp_command *command = NULL;
    int at = 0, rc = check_stack();
    rc = rc < 0 ? rc : find_command(argc, argv, &at, &command);
    if (rc == 0 && command)
        rc = pp_cli_translate(&argc, &argv, at, &command);
    if (rc == 0 && command && !command->all_ranks)
        rc = check_company(command);
    if (command && command->folds)
        pp_cli_fold_lines();
    if (command && command->all_ranks)
        pp_start_others = PP_START_JOIN;
    if (rc == 0 && command && (pp_launch_is_speaker() || command->all_ranks))
        rc = command->run(argc - at, argv + at);
    rc = rc == PP_CLI_DONE ? 0 : rc;
    if (rc < 0)
        rc = pp_start_tell_others(rc, last_words_lost);
    else if (command && command->all_ranks && !pp_world_was_opened())
        rc = check_company(command);
    pp_assert(rc <= 0);
    /* `ppcli keys | head`: the reader has left and needs no error. */
    bool nobody = rc == PP_EIO && ferror(stdout) && reader_left();
    if (rc < 0 && !nobody) {
        fflush(stdout);
        if (pp_launch_is_speaker()) {
            print_error(rc, command);
        } else {
            /* The launcher ends all processes as soon as one fails: not before the one that speaks
             * has spoken, and then at once. */
            sleep(SPEAKER_SECONDS);
            tell_alone(rc, command);
        }
    }
    rc = finish_stdout(rc);
    return rc == PP_EIO && pp_error_get()->full && getenv(PP_SUPERVISE_ASKED) ? PP_SUPERVISE_FULL
                                                                              : -rc;
}
