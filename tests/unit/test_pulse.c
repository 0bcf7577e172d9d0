/* SPDX-License-Identifier: Apache-2.0 */
/* Signs of life over the loopback of this machine: who is there, who died first, who is to end. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ppcli/dev/devices.h"
#include "../../src/cluster/pulse.h"
#include "test.h"

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

/* A rank that beats until it is told to end; dies: or is torn out of its work before that. */
static pid_t start_rank(const struct pp_listener *l, int rank, bool dies)
{
    pid_t pid = fork();
    if (pid == 0) {
        char text[PP_PULSE_TEXT];
        struct pp_pulse *p = NULL;
        bool end = pp_pulse_open(pp_listener_address(l), rank, 60, NULL, &p) < 0;
        pp_pulse_say(p, rank == 0, 0, rank == 0 ? "recv from rank 1" : "F of micro-batch 3");
        for (int k = 0; !end && !(dies && k > 50); k++) {
            end = pp_pulse_beat(p, text) == PP_PULSE_END;
            nap();
        }
        if (!dies)
            pp_pulse_close(&p);
        _exit(dies || end ? 0 : 1);
    }
    return pid;
}

static bool hears(struct pp_listener *l, int n)
{
    char text[PP_PULSE_TEXT];
    for (int k = 0; k < 3000 && pp_listener_connected(l) != n; k++) {
        assert_false(pp_listener_find_loss(l, text));
        nap();
    }
    return pp_listener_connected(l) == n;
}

TEST(who_dies_in_the_middle_of_work_is_named)
{
    PP_OWN(pp_listener_close) struct pp_listener *l = NULL;
    char text[PP_PULSE_TEXT];
    int status;
    CHECK_OK(pp_listener_open(2, 0, 0, &l));
    pid_t well = start_rank(l, 0, false);
    assert_true(hears(l, 1));
    CHECK_STR_EQ(pp_listener_first_lost(l, text), "");
    pid_t dies = start_rank(l, 1, true);
    assert_true(hears(l, 2));
    assert_true(hears(l, 1));
    assert_non_null(strstr(pp_listener_first_lost(l, text), "rank 1 (host "));
    assert_non_null(strstr(text, "in F of micro-batch 3)"));
    assert_int_equal(waitpid(dies, &status, 0), dies);
    pp_listener_end(l);
    assert_int_equal(waitpid(well, &status, 0), well);
    CHECK_INT_EQ(status, 0);
    assert_true(hears(l, 0));
    assert_non_null(strstr(pp_listener_first_lost(l, text), "rank 1 "));
}

/* One beat, at once, is enough to have been there. */
TEST(who_has_not_come_is_named)
{
    PP_OWN(pp_listener_close) struct pp_listener *l = NULL;
    PP_OWN(pp_pulse_close) struct pp_pulse *p = NULL;
    char text[PP_PULSE_TEXT];
    CHECK_OK(pp_listener_open(2, 0, 0, &l));
    pp_listener_expect(l, 0, "near", 60);
    pp_listener_expect(l, 1, "far", 60);
    CHECK_STR_EQ(pp_listener_first_lost(l, text), "");
    CHECK_OK(pp_pulse_open(pp_listener_address(l), 0, 60, NULL, &p));
    assert_true(hears(l, 1));
    CHECK_STR_EQ(pp_listener_first_lost(l, text), "rank 1 (host far, in its start)");
}

/* Also when it ends before it has read an answer: a config that is refused at once. */
TEST(who_ends_in_order_is_not_lost)
{
    PP_OWN(pp_listener_close) struct pp_listener *l = NULL;
    struct pp_pulse *p = NULL;
    char text[PP_PULSE_TEXT];
    CHECK_OK(pp_listener_open(1, 0, 0, &l));
    CHECK_OK(pp_pulse_open(pp_listener_address(l), 0, 60, NULL, &p));
    assert_true(hears(l, 1));
    pp_pulse_close(&p);
    assert_true(hears(l, 0));
    CHECK_STR_EQ(pp_listener_first_lost(l, text), "");
}

TEST(an_address_that_is_none_is_refused)
{
    struct pp_pulse *p = NULL;
    CHECK_FAILS(pp_pulse_open("", 0, 1, NULL, &p), PP_EFORMAT, "is not an address of a listener");
    CHECK_FAILS(pp_pulse_open("1f:80", 0, 1, NULL, &p), PP_EFORMAT,
                "is not an address of a listener");
    CHECK_FAILS(pp_pulse_open("1f:80:here", 0, 1, NULL, &p), PP_EFORMAT, "has no IP address");
}

/* ---- connections that are none of the run's */

static int connect_to(const struct pp_listener *l)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const char *port = strchr(pp_listener_address(l), ':');
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_non_null(port);
    at.sin_port = htons((uint16_t)atoi(port + 1));
    CHECK_INT_EQ(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

/* Far more than a listener of one rank has places, some of which talk: nothing of it concerns a rank. */
TEST(connections_that_say_nothing_do_not_keep_a_rank_out)
{
    PP_OWN(pp_listener_close) struct pp_listener *l = NULL;
    PP_OWN(pp_pulse_close) struct pp_pulse *p = NULL;
    char text[PP_PULSE_TEXT];
    int fds[300];
    CHECK_OK(pp_listener_open(1, 0, 0, &l));
    for (int i = 0; i < 300; i++) {
        fds[i] = connect_to(l);
        if (i % 3 == 0)
            CHECK_INT_EQ(send(fds[i], "GET / HTTP/1.0\r\n\r\n", i % 2 ? 18 : 3, 0), i % 2 ? 18 : 3);
    }
    CHECK_OK(pp_pulse_open(pp_listener_address(l), 0, 60, NULL, &p));
    for (int i = 0; i < 300; i++)
        if (i % 2 == 0)
            close(fds[i]);
    assert_true(hears(l, 1));
    CHECK_INT_EQ(pp_pulse_beat(p, text), PP_PULSE_WELL);
    for (int k = 0; k < 20; k++) { /* the rank stays */
        assert_false(pp_listener_find_loss(l, text));
        CHECK_INT_EQ(pp_listener_connected(l), 1);
    }
    for (int i = 1; i < 300; i += 2)
        close(fds[i]);
}

/* No host is blamed where only the process that listened is no more. */
TEST(a_listener_that_has_ended_is_not_a_lost_host)
{
    struct pp_listener *l = NULL;
    PP_OWN(pp_pulse_close) struct pp_pulse *p = NULL;
    char text[PP_PULSE_TEXT], address[PP_PULSE_ADDRESS];
    CHECK_OK(pp_listener_open(1, 0, 0, &l));
    snprintf(address, sizeof(address), "%s", pp_listener_address(l));
    CHECK_OK(pp_pulse_open(address, 0, 0.2, NULL, &p));
    assert_true(hears(l, 1));
    (void)pp_pulse_beat(p, text);
    pp_listener_close(&l);
    enum pp_pulse_news news = PP_PULSE_WELL;
    for (int k = 0; k < 3000 && news == PP_PULSE_WELL; k++) {
        nap();
        news = pp_pulse_beat(p, text);
    }
    CHECK_INT_EQ(news, PP_PULSE_LOST);
    assert_non_null(strstr(text, "the process there that watches has ended"));
    assert_null(strstr(text, "down"));
}

/* Under srun rank 0 listens: stopped, it is named, as another rank is. */
TEST(rank_0_that_listens_and_is_stopped_is_named)
{
    PP_OWN(pp_listener_close) struct pp_listener *l = NULL;
    PP_OWN(pp_pulse_close) struct pp_pulse *p = NULL;
    char text[PP_PULSE_TEXT];
    CHECK_OK(pp_listener_open(2, 0, 0, &l));
    CHECK_OK(pp_pulse_open(pp_listener_address(l), 1, 0.2, "h7", &p));
    assert_true(hears(l, 1));
    enum pp_pulse_news news = PP_PULSE_WELL;
    for (int k = 0; k < 3000 && news == PP_PULSE_WELL; k++) {
        nap();
        news = pp_pulse_beat(p, text);
    }
    CHECK_INT_EQ(news, PP_PULSE_LOST);
    assert_non_null(strstr(text, "rank 0 (host h7) sends no heartbeat for "));
    assert_non_null(strstr(text, "; rank 1 (host "));
}

/* Slurm asks those who are left to end, and kills them half a minute later. */
TEST(a_run_that_is_asked_to_end_does_not_wait_for_who_is_gone)
{
    PP_OWN(pp_listener_close) struct pp_listener *l = NULL;
    PP_OWN(pp_pulse_close) struct pp_pulse *p = NULL;
    char text[PP_PULSE_TEXT];
    int status;
    CHECK_OK(pp_listener_open(2, 0, 0, &l));
    pp_listener_expect(l, 1, "elsewhere", 60);
    pid_t dies = start_rank(l, 0, true);
    assert_true(hears(l, 1));
    assert_true(hears(l, 0));
    assert_int_equal(waitpid(dies, &status, 0), dies);
    assert_false(pp_listener_find_loss(l, text));
    pp_listener_hurry(l);
    bool lost = false;
    for (int k = 0; k < 500 && !lost; k++, nap())
        lost = pp_listener_find_loss(l, text);
    assert_true(lost);
    assert_non_null(strstr(text, "rank 0 (host "));
    assert_non_null(strstr(text, "is gone for "));
    pp_listener_close(&l);
    CHECK_OK(pp_listener_open(2, 0, 0, &l));
    CHECK_OK(pp_pulse_open(pp_listener_address(l), 1, 60, "h7", &p));
    assert_true(hears(l, 1));
    CHECK_INT_EQ(pp_pulse_beat(p, text), PP_PULSE_WELL);
    pp_listener_close(&l);
    pp_pulse_hurry(p);
    enum pp_pulse_news news = PP_PULSE_WELL;
    for (int k = 0; k < 500 && news == PP_PULSE_WELL; k++, nap())
        news = pp_pulse_beat(p, text);
    CHECK_INT_EQ(news, PP_PULSE_LOST);
    assert_non_null(strstr(text, "rank 0 (host h7) is gone for "));
}

/* Orted's keeper comes before the ranks of its host. */
TEST(a_host_that_is_lost_before_its_ranks_come_is_named)
{
    PP_OWN(pp_listener_close) struct pp_listener *l = NULL;
    PP_OWN(pp_pulse_close) struct pp_pulse *p = NULL;
    char text[PP_PULSE_TEXT];
    CHECK_OK(pp_listener_open(2, 0, 0, &l));
    CHECK_OK(pp_pulse_open(pp_listener_address(l), PP_PULSE_KEEPER, 0.2, NULL, &p));
    assert_true(hears(l, 1));
    bool lost = false;
    for (int k = 0; k < 1000 && !lost; k++, nap())
        lost = pp_listener_find_loss(l, text);
    assert_true(lost);
    assert_non_null(strstr(text, " sends no heartbeat for "));
    assert_non_null(strstr(text, ", before its ranks have begun"));
    /* no other host is heard: it may be this one that is cut off */
    assert_non_null(strstr(text, " is down or cut off"));
}

TEST(an_orted_that_was_killed_is_named_with_its_host)
{
    PP_OWN(pp_listener_close) struct pp_listener *l = NULL;
    struct pp_pulse *p = NULL;
    char text[PP_PULSE_TEXT], host[PP_HOST_MAX], named[PP_HOST_MAX + 32];
    CHECK_OK(pp_listener_open(2, 0, 0, &l));
    CHECK_OK(pp_pulse_open(pp_listener_address(l), PP_PULSE_KEEPER, 60, NULL, &p));
    assert_true(hears(l, 1));
    CHECK_STR_EQ(pp_listener_first_lost(l, text), "");
    pp_pulse_say(p, false, 0, "killed");
    pp_pulse_close(&p);
    bool lost = false;
    for (int k = 0; k < 1000 && !lost; k++, nap())
        lost = pp_listener_find_loss(l, text);
    pp_host_name(host);
    snprintf(named, sizeof(named), "orted (host %s) was killed", host);
    CHECK_STR_EQ(text, named);
}
