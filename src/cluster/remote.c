/* SPDX-License-Identifier: Apache-2.0 */
/* Asks helpers on other hosts. Everything has a deadline, because hosts that are down and agents
 * that wait for a password are common. */
#include "hosts.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ppcli/conf/config.h"
#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"

#define WORDS_MAX 64
#define LINE_MAX_BYTES 32768 /* all that the agent carries */

extern char **environ;

/* Adds a word to a command line, quoted for the remote shell. Leaves it out if it does not fit. */
static void add_word(char *to, size_t bytes, const char *word)
{
    size_t n = strlen(to);
    if (n + 4 * strlen(word) + 4 >= bytes)
        return;
    pp_text_shell(word, to + n, bytes - n);
    pp_text_add(to, bytes, " ");
}

/* Text that args point into. */
struct carried {
    char line[LINE_MAX_BYTES], words[PP_TEXT_MAX];
};

/* Writes to args[WORDS_MAX] the command that starts a helper on a host. */
static void set_words(const char *host, const char *agent, const char *exe, struct carried *c,
                      const char **args)
{
    const size_t bytes = sizeof(c->line);
    int n = 0;
    snprintf(c->words, sizeof(c->words), "%s", agent);
    for (char *rest = c->words, *word; (word = strsep(&rest, " ")) && n < WORDS_MAX - 8;)
        if (word[0])
            args[n++] = word;
    const char *slash = strrchr(args[0], '/');
    if (strcmp(slash ? slash + 1 : args[0], "ssh") == 0) {
        args[n++] = "-xoBatchMode=yes";
        args[n++] = "-oConnectTimeout=4";
    }
    snprintf(c->line, bytes, "exec env ");
    for (char **e = environ; *e; e++)
        if (pp_host_variable(*e) &&
            strncmp(*e, PP_CONFIG_PINNED, sizeof(PP_CONFIG_PINNED) - 1) != 0)
            add_word(c->line, bytes - 2 * (size_t)PP_PATH_MAX, *e);
    add_word(c->line, bytes - 64, exe);
    pp_text_add(c->line, bytes, "env --hosts -");
    args[n++] = host;
    args[n++] = c->line;
    args[n] = NULL;
}

void remote_start(struct remote *r, const char *agent, bool here)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    char exe[PP_PATH_MAX] = "";
    const char *args[WORDS_MAX] = {exe, "env", "--hosts", "-"};
    struct carried c;
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL); /* for the agent */
    bool fine = readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0 && pipe2(in, O_CLOEXEC) == 0 &&
                pipe2(out, O_CLOEXEC) == 0;
    int rc = fine ? 0 : pp_fail_errno(PP_ERESOURCE, "cannot start a process");
    if (!here)
        set_words(r->name, agent, exe, &c, args);
    if (rc < 0 || pp_child_start(args, in[0], out[1], out[1], &none, &r->pid) < 0) {
        snprintf(r->wrong, sizeof(r->wrong), "%.500s", pp_error_get()->text);
        r->pid = 0;
    }
    signal(SIGPIPE, SIG_IGN);
    close(in[0]);
    close(out[1]);
    r->to = in[1];
    r->from = out[0];
}

/* Processes a line that the helper, its agent or a login shell wrote. Only a line of the helper is
 * an answer; the last line of the others is kept for error messages. */
static void take_helper_line(struct remote *r, char *line)
{
    bool good = strncmp(line, HOSTS_GOOD, 4) == 0;
    char *text = NULL;
    line[strcspn(line, "\r")] = '\0'; /* ssh may end lines as for a terminal */
    if (!good && strncmp(line, HOSTS_BAD, 4) != 0) {
        if (line[strspn(line, " \t")])
            pp_text_shown(line, r->last, sizeof(r->last));
        return;
    }
    uint64_t now = pp_clock_ns(), trip = now - r->asked_ns;
    double there = strtod(line + 4, &text);
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (r->trip_ns == 0 || trip < r->trip_ns) {
        r->trip_ns = trip;
        r->clock_s = there - ((double)t.tv_sec + (double)t.tv_nsec * 1e-9 - (double)trip * 0.5e-9);
    }
    r->good = good;
    r->asked = false;
    pp_text_shown(text + (*text == '\t'), r->answer, sizeof(r->answer));
}

static void take_answer(struct remote *r)
{
    ssize_t n = read(r->from, r->text + r->used, sizeof(r->text) - 1 - r->used);
    if (n <= 0) {
        r->asked = false;
        snprintf(r->wrong, sizeof(r->wrong), "%s", r->last[0] ? r->last : "its agent ended");
    }
    r->used += n > 0 ? (size_t)n : 0;
    r->text[r->used] = '\0';
    char *line = r->text;
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        take_helper_line(r, line);
    }
    r->used = strlen(line);
    memmove(r->text, line, r->used + 1);
    if (r->used + 1 == sizeof(r->text))
        r->used = 0; /* no answer is that long */
}

void remote_ask(struct remote *r, int n, double seconds)
{
    uint64_t start = pp_clock_ns(), limit = (uint64_t)(seconds * 1e9), passed;
    for (int i = 0; i < n; i++) {
        r[i].good = false;
        r[i].answer[0] = '\0';
        r[i].asked = r[i].question[0] && !r[i].wrong[0];
        r[i].asked_ns = pp_clock_ns();
        if (r[i].asked) /* a helper that has ended is found below */
            (void)!write(r[i].to, r[i].question, strlen(r[i].question));
        r[i].question[0] = '\0';
    }
    while ((passed = pp_clock_ns() - start) < limit) {
        struct pollfd fds[PP_HOSTS_MAX];
        bool any = false;
        for (int i = 0; i < n; i++) {
            fds[i] = (struct pollfd){.fd = r[i].asked ? r[i].from : -1, .events = POLLIN};
            any = any || r[i].asked;
        }
        if (!any)
            return;
        int got = poll(fds, (nfds_t)n, (int)((limit - passed) / 1000000) + 1);
        for (int i = 0; i < n && got > 0; i++)
            if (fds[i].revents)
                take_answer(&r[i]);
    }
    for (int i = 0; i < n; i++) {
        if (r[i].asked)
            snprintf(r[i].wrong, sizeof(r[i].wrong), "no answer for %.3g s%s%s", seconds,
                     r[i].last[0] ? "; the last that it said: " : "", r[i].last);
        r[i].asked = false;
    }
}

void remote_end(struct remote *r, int n, double seconds)
{
    uint64_t start = pp_clock_ns();
    for (int i = 0; i < n; i++)
        if (r[i].pid > 0)
            close(r[i].to);
    for (int i = 0; i < n; i++) {
        while (r[i].pid > 0 && waitpid(r[i].pid, NULL, WNOHANG) == 0) {
            if (r[i].wrong[0] || (double)(pp_clock_ns() - start) > seconds * 1e9)
                kill(-r[i].pid, SIGKILL);
            pp_clock_nap(2000000);
        }
        if (r[i].pid > 0)
            close(r[i].from);
        r[i].pid = 0;
    }
}
