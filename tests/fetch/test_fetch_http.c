/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Downloading from servers that misbehave: whatever the answer, the final name appears only with
 * the pinned content, and a good server afterwards mends whatever was left behind.
 *
 *   test_fetch_http PYTHON BAD_SERVER
 */
#include "fetch_set.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "ppcli/base/base.h"

static struct fetch_set fs;
static char log_path[128];
static int http_port, https_port, expired_port;

static struct pp_fetch_limits quick(int retries)
{
    struct pp_fetch_limits o = pp_fetch_limits;
    o.connect_s = 3;
    o.low_speed_s = 1;
    o.retries = retries;
    o.retry_first_s = 0.01;
    o.retry_after_max_s = 1;
    o.http = true;
    return o;
}

static const char *url_of(const char *mode, const char *token)
{
    static char url[4][256];
    static int at;
    char *u = url[at++ % 4];
    snprintf(u, sizeof(url[0]), "http://127.0.0.1:%d/%s/%s/", http_port, mode, token);
    return u;
}

/* How many requests of /mode/token/ contain `words`. */
static int requests(const char *mode, const char *token, const char *words)
{
    char line[1024], begin[256];
    int n = 0;
    snprintf(begin, sizeof(begin), "/%s/%s/", mode, token);
    FILE *f = fopen(log_path, "r");
    while (f && fgets(line, sizeof(line), f))
        n += strncmp(line, begin, strlen(begin)) == 0 && strstr(line, words) != NULL;
    if (f)
        fclose(f);
    return n;
}

static int fetch(const char *mode, const char *token, const char *to, int retries)
{
    const struct pp_fetch_limits o = quick(retries);
    return pp_fetch(&fs.set, url_of(mode, token), to, &o);
}

struct answer {
    const char *mode;
    int rc;
    const char *words; /* in the error */
    int requests;
    int retries;
};

/* One row: the promised result, then a good server mends the same folder. */
static void check_answer(void **state, const struct answer *t)
{
    const char *to = in_folder(state, t->mode);
    int rc = fetch(t->mode, "a", to, t->retries);
    if (rc != t->rc || (rc < 0 && !strstr(pp_error_get()->text, t->words))) {
        fail_msg("%s: %d, expected %d; said '%s', expected '%s' in it", t->mode, rc, t->rc,
                 rc < 0 ? pp_error_get()->text : "", t->words);
    }
    if (requests(t->mode, "a", "") != t->requests)
        fail_msg("%s: %d requests, expected %d", t->mode, requests(t->mode, "a", ""), t->requests);
    if (rc == 0) {
        check_complete(&fs, to);
        return;
    }
    assert_null(strchr(pp_error_get()->text, '\n'));
    assert_non_null(strstr(pp_error_get()->text, "--from DIR"));
    check_nothing(to);
    CHECK_OK(fetch("good", t->mode, to, 0));
    check_complete(&fs, to);
}

TEST_IN_FOLDER(good_answers_are_taken)
{
    static const struct answer table[] = {
        {"good", 0, "", 1, 0},      {"chunked", 0, "", 1, 0},       {"nolength", 0, "", 1, 0},
        {"plain", 0, "", 1, 0},     {"redirect", 0, "", 1, 0},      {"hops-5", 0, "", 1, 0},
        {"twice500", 0, "", 3, 3},  {"thirds", 0, "", 3, 3},        {"resetonce", 0, "", 2, 1},
        {"cutignore", 0, "", 3, 1}, {"cutwrongrange", 0, "", 3, 1}, {"cutchanged", 0, "", 3, 1},
        {"416", 0, "", 3, 1},       {"wrongrange", 0, "", 1, 3},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        check_answer(state, &table[i]);
}

TEST_IN_FOLDER(bad_answers_leave_nothing_under_the_name)
{
    static const struct answer table[] = {
        {"404", PP_EIO, "server answered 404 (text/plain)", 1, 3},
        {"403html", PP_EIO, "server answered 403 (text/html)", 1, 3},
        {"200html", PP_EFORMAT, "begins with 3c 21 64 6f (a web page?)", 1, 3},
        {"endless404", PP_EIO, "server answered 404", 1, 3},
        {"always500", PP_EIO, "server answered 500", 4, 3},
        {"empty", PP_EFORMAT, "empty file", 1, 3},
        {"onebyte", PP_EFORMAT, "begins with 1f", 1, 3},
        {"wrong", PP_EFORMAT, "damaged gzip data", 1, 3},
        {"encoded", PP_EFORMAT, "not the right file: sha256", 1, 3},
        {"hugelength", PP_EFORMAT, "larger than 64164 bytes", 1, 3},
        {"endless", PP_EFORMAT, "larger than 64164 bytes", 1, 3},
        {"trailing", PP_EFORMAT, "trailing bytes", 1, 3},
        {"nohttp", PP_EIO, "", 1, 0},
        {"short", PP_EIO, "connection broke after", 3, 1},
        {"shortnolength", PP_EFORMAT, "cut short", 1, 3},
        {"reset", PP_EIO, "connection broke after", 3, 1},
        {"hangup", PP_EIO, "connection broke after 0 bytes", 2, 1},
        {"cutbad", PP_EFORMAT, "damaged gzip data", 3, 3},
        {"loop", PP_EIO, "Maximum (5) redirects followed", 6, 3},
        {"hops-6", PP_EIO, "Maximum (5) redirects followed", 1, 3},
        {"tohttp", PP_EIO, "example.invalid", 1, 3},
        {"tofile", PP_EIO, "Protocol \"file\" not supported", 1, 3},
        {"toftp", PP_EIO, "Protocol \"ftp\" not supported", 1, 3},
        {"nowhere", PP_EIO, "server answered 302", 1, 3},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        check_answer(state, &table[i]);
}

/* Each waits for the low-speed limit of one second. A silent one is not asked again. */
TEST_IN_FOLDER(stalled_and_crawling_servers_are_left)
{
    static const struct answer table[] = {
        {"stall", PP_EIO, "stalled after 100 bytes", 1, 0},
        {"silent", PP_EIO, "stalled after 0 bytes", 1, 3},
        {"drip", PP_EIO, "stalled after", 1, 0},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        check_answer(state, &table[i]);
}

TEST_IN_FOLDER(retry_after_is_obeyed_up_to_a_limit)
{
    uint64_t t0 = pp_clock_ns();
    CHECK_OK(fetch("later-1000", "a", in_folder(state, "to"), 1));
    double s = (double)(pp_clock_ns() - t0) * 1e-9;
    check_complete(&fs, in_folder(state, "to"));
    CHECK_INT_EQ(requests("later-1000", "a", ""), 2);
    print_message("# waited %.2f s\n", s);
    assert_true(s >= 1.0); /* not 0.01; 1000 would be the time limit of the test */
}

TEST_IN_FOLDER(the_request_names_ppcli)
{
    CHECK_OK(fetch("good", "agent", in_folder(state, "to"), 0));
    CHECK_INT_EQ(requests("good", "agent", "agent=ppcli/"), 1);
}

TEST_IN_FOLDER(a_cut_at_any_byte_is_resumed)
{
    for (int i = 0; i < 50; i++) {
        char mode[32], token[32], range[64];
        int k = i < 5 ? i : (int)((size_t)i * fs.gz.n / 50);
        snprintf(mode, sizeof(mode), "cut-%d", k);
        snprintf(token, sizeof(token), "t%d", i);
        const char *to = in_folder(state, token);
        CHECK_FAILS(fetch(mode, token, to, 0), PP_EIO, "connection broke after");
        check_nothing(to);
        CHECK_OK(fetch(mode, token, to, 0));
        check_complete(&fs, to);
        snprintf(range, sizeof(range), k > 0 ? "range=%d " : "range=- ", k);
        CHECK_INT_EQ(requests(mode, token, range), k > 0 ? 1 : 2);
        folder_empty(to);
    }
}

/* Of another file too: its digest is wrong then, and the file is fetched whole. */
TEST_IN_FOLDER(a_part_of_another_url_is_resumed)
{
    const char *to = in_folder(state, "to");
    CHECK_FAILS(fetch("cut-5000", "other", to, 0), PP_EIO, "broke after 5000 bytes");
    assert_true(has(to, ".gz.part"));
    CHECK_OK(fetch("good", "other", to, 0));
    CHECK_INT_EQ(requests("good", "other", "range=5000"), 1);
    check_complete(&fs, to);
    unlink(in_folder(state, "to/" FETCH_NAME ".gz"));
    file_write(in_folder(state, "to/" FETCH_NAME ".gz.part"), "something else", 14);
    CHECK_OK(fetch("good", "mixed", to, 0));
    CHECK_INT_EQ(requests("good", "mixed", "range=14"), 1);
    CHECK_INT_EQ(requests("good", "mixed", "range=- "), 1);
    check_complete(&fs, to);
}

TEST_IN_FOLDER(a_killed_download_is_resumed)
{
    int resumed = 0;
    for (int i = 0; i < 10; i++) {
        char token[32];
        snprintf(token, sizeof(token), "k%d", i);
        const char *to = in_folder(state, token);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(fetch("slowonce", token, to, 0) == 0 ? 0 : 1);
        const struct timespec pause = {.tv_nsec = (10 + 20 * i) * 1000000L};
        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status)); /* it takes 240 ms, so it never got to its end */
        check_nothing(to);
        CHECK_OK(fetch("slowonce", token, to, 3));
        check_complete(&fs, to);
        resumed += requests("slowonce", token, "range=-") < requests("slowonce", token, "");
    }
    print_message("# %d of 10 resumed\n", resumed);
    assert_true(resumed >= 3);
}

static int fetch_mirrors(const char *to, const char *a, const char *b, const char *c)
{
    struct pp_fetch_limits o = quick(0);
    struct pp_fetch_set set = fs.set;
    set.mirrors[0] = a;
    set.mirrors[1] = b;
    set.mirrors[2] = c;
    return pp_fetch(&set, NULL, to, &o);
}

TEST_IN_FOLDER(mirrors_are_tried_in_order)
{
    const char *to = in_folder(state, "to");
    CHECK_OK(
        fetch_mirrors(to, url_of("wrong", "m"), url_of("cut-30000", "m"), url_of("good", "m")));
    check_complete(&fs, to);
    CHECK_INT_EQ(requests("wrong", "m", ""), 1);
    CHECK_INT_EQ(requests("cut-30000", "m", "range=-"), 1);
    CHECK_INT_EQ(requests("good", "m", "range=30000"), 1);
}

TEST_IN_FOLDER(an_unreachable_mirror_is_asked_once)
{
    const char *to = in_folder(state, "to");
    CHECK_OK(fetch_mirrors(to, "http://127.0.0.1:1/", url_of("good", "u"), NULL));
    check_complete(&fs, to);
}

TEST_IN_FOLDER(every_mirror_says_why)
{
    const char *to = in_folder(state, "to");
    int rc = fetch_mirrors(to, url_of("404", "w"), url_of("wrong", "w"), "http://127.0.0.1:1/x/");
    CHECK_INT_EQ(rc, PP_EIO);
    const char *text = pp_error_get()->text;
    print_message("# %s\n", text);
    assert_non_null(strstr(text, "/404/w/" FETCH_NAME ".gz: server answered 404"));
    assert_non_null(strstr(text, "/wrong/w/" FETCH_NAME ".gz: damaged gzip data"));
    assert_non_null(strstr(text, "http://127.0.0.1:1/x/" FETCH_NAME ".gz: Failed to connect"));
    assert_non_null(strstr(text, "--from DIR"));
    assert_null(strstr(text, ".part"));
    check_nothing(to);
}

TEST_IN_FOLDER(http_is_refused_unless_asked_for)
{
    struct pp_fetch_limits o = quick(0);
    o.http = false;
    struct pp_fetch_set set = fs.set;
    set.mirrors[0] = url_of("good", "plainhttp");
    int rc = pp_fetch(&set, NULL, in_folder(state, "to"), &o);
    CHECK_FAILS(rc, PP_EIO, "Protocol \"http\" not supported");
    CHECK_INT_EQ(requests("good", "plainhttp", ""), 0);
}

/* The connection tells, not the URL: only 127.* and ::1 count (and no IPv6 is a refusal too). */
TEST_IN_FOLDER(http_is_spoken_with_this_machine_only)
{
    char url[256];
    struct pp_fetch_limits o = quick(0);
    snprintf(url, sizeof(url), "http://127.0.0.1@[::ffff:127.0.0.1]:%d/good/else/", http_port);
    CHECK_FAILS(pp_fetch(&fs.set, url, in_folder(state, "to"), &o), PP_EIO, "");
    print_message("# %s\n", pp_error_get()->text);
    CHECK_INT_EQ(requests("good", "else", ""), 0);
}

/* Refused before anything is asked. */
static void check_certificate(void **state, int port, const char *token)
{
    if (port == 0) {
        print_message("# no openssl to make a certificate\n");
        skip();
    }
    char url[128];
    struct pp_fetch_limits o = quick(0);
    const char *to = in_folder(state, token);
    snprintf(url, sizeof(url), "https://127.0.0.1:%d/good/%s/", port, token);
    CHECK_FAILS(pp_fetch(&fs.set, url, to, &o), PP_EIO, "certificate");
    CHECK_INT_EQ(requests("good", token, ""), 0);
    check_nothing(to);
}

TEST_IN_FOLDER(a_certificate_that_nobody_signed_is_refused)
{
    check_certificate(state, https_port, "tls");
}

TEST_IN_FOLDER(an_expired_certificate_is_refused)
{
    check_certificate(state, expired_port, "expired");
}

TEST_IN_FOLDER(tls_is_not_spoken_with_a_plain_server)
{
    char url[128];
    struct pp_fetch_limits o = quick(0);
    snprintf(url, sizeof(url), "https://127.0.0.1:%d/good/nottls/", http_port);
    CHECK_FAILS(pp_fetch(&fs.set, url, in_folder(state, "to"), &o), PP_EIO, "SSL");
    check_nothing(in_folder(state, "to"));
}

/* The server lives as long as the pipe to its standard input. */
static pid_t start_server(const char *python, const char *script, const char *file, int *out_stdin)
{
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execlp(python, python, script, file, log_path, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    FILE *f = fdopen(out[0], "r");
    if (!f || fscanf(f, "%d %d %d", &http_port, &https_port, &expired_port) != 3)
        http_port = 0;
    if (f)
        fclose(f);
    *out_stdin = in[1];
    return child;
}

int main(int argc, char **argv)
{
    if (argc != 3 || argv[1][0] == '\0') {
        puts("1..0 # SKIP no python3 to run the server, or no libcurl to ask it");
        return 0;
    }
    void *folder = NULL;
    int server_stdin = -1;
    char file[128];
    folder_create(&folder);
    fetch_set_init(&fs);
    pp_log_set_level(PP_LOG_QUIET);
    snprintf(log_path, sizeof(log_path), "%s/log", (char *)folder);
    snprintf(file, sizeof(file), "%s/file.gz", (char *)folder);
    file_write(file, fs.gz.p, fs.gz.n);
    pid_t server = start_server(argv[1], argv[2], file, &server_stdin);
    int failed = 1;
    if (http_port == 0) {
        puts("1..0 # SKIP the server does not start");
        failed = 0;
    } else {
        failed = tests_run(NULL, NULL);
    }
    close(server_stdin);
    waitpid(server, NULL, 0);
    fetch_set_fini(&fs);
    folder_remove(&folder);
    return failed;
}
