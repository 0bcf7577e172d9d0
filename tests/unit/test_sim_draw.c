/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of simulated plans: what is in them, and how wide they are. */
#include "ppcli/draw.h"
#include "test_sim_shapes.h"

static struct pp_drawing drawing;
static struct pp_sim_result result;
static struct pp_plan *plan;
static double arrays[96];

/* `name` at this shape with these costs, simulated, in `drawing`. */
static void prepare(const char *name, int p, int m, double f, double i, double w, double comm)
{
    static struct pp_sim_costs costs;
    plan = plan_of(name, p, m);
    assert_non_null(plan);
    pp_sim_uniform(plan, f, i, w, arrays, &costs);
    costs.latency = comm;
    costs.fused_send = true;
    CHECK_OK(pp_sim_run(plan, &costs, true, &result));
    drawing = (struct pp_drawing){.plan = plan, .result = &result, .costs = &costs};
}

static int tidy(void **state)
{
    pp_sim_result_fini(&result);
    pp_plan_destroy(&plan);
    return 0;
}

#define TEST_TIDY(name) TEST_AROUND(name, NULL, tidy)

static char *drawn(int (*draw)(const struct pp_drawing *, FILE *))
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    CHECK_OK(draw(&drawing, f));
    fclose(f);
    return text;
}

static void check_has(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("no '%s' in:\n%.2000s", words, text);
}

static int count(const char *text, const char *words)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, words)); at += strlen(words))
        n++;
    return n;
}

static size_t longest_line(const char *text)
{
    size_t most = 0;
    while (*text) {
        size_t n = strcspn(text, "\n");
        most = n > most ? n : most;
        text += n + (text[n] == '\n');
    }
    return most;
}

TEST_TIDY(a_grid_is_what_one_draws_on_a_whiteboard)
{
    prepare("1f1b", 2, 3, 1, 1, 1, 0);
    PP_OWN_MEMORY char *text = drawn(pp_draw_grid);
    CHECK_STR_EQ(
        text, "1f1b: 2 stages, 3 micro-batches\nmakespan 12, bubble 25.0 %\nper rank F 1, I 1, W "
              "1; transfer 0; peak in micro-batches a rank holds\n\nrank  peak\n   0     2  F0 F1 "
              ".  .  B0--- F2 B1--- .  B2---\n   1     1  .  F0 B0--- F1 B1--- F2 B2--- .  .\n");
}

TEST_TIDY(cells_are_as_wide_as_they_last)
{
    prepare("1f1b", 1, 2, 1, 1, 2, 0);
    char *text = drawn(pp_draw_grid);
    check_has(text, "   0     1  F0 B0------ F1 B1------\n");
    free(text);
    tidy(NULL);

    prepare("1f1b", 2, 1, 1, 1, 1, 0.5);
    text = drawn(pp_draw_grid);
    check_has(text, "   0     1  F0 .  .  .  .  B0---\n"); /* 1 of F, 4 idle, B from 5 */
    free(text);
}

TEST_TIDY(several_chunks_name_their_stage)
{
    prepare("interleaved v2", 2, 2, 1, 1, 1, 0);
    PP_OWN_MEMORY char *text = drawn(pp_draw_grid);
    check_has(text, "2 stages x 2 chunks, 2 micro-batches");
    check_has(text, "peak in chunks");
    check_has(text, "0F0 0F1 2F0 2F1");
}

TEST_TIDY(a_grid_is_never_wider_than_the_line)
{
    prepare("1f1b", 4, 8, 1, 1, 1, 0);
    char *text = drawn(pp_draw_grid);
    size_t needed = longest_line(text);
    free(text);
    assert_int_equal(needed, 12 + 33 * 3 - 1);
    for (int columns = 80; columns <= 200; columns += 30) {
        drawing.columns = columns;
        text = drawn(pp_draw_grid);
        assert_true(longest_line(text) <= (size_t)columns);
        if ((size_t)columns > needed + 1)
            assert_int_equal(longest_line(text), needed); /* and never wider than needed */
        check_has(text, "F0");
        free(text);
    }
    drawing.columns = 52; /* 39 for 33 units: letters only */
    text = drawn(pp_draw_grid);
    check_has(text, "   0     4  FFFF......B0FB1FB2FB3FB4.B5.B6.B7\n");
    free(text);
}

TEST_TIDY(memory_is_shown_when_it_is_known)
{
    static const size_t bytes[] = {1048576, 3 * 524288};
    prepare("1f1b", 2, 2, 1, 1, 1, 0);
    drawing.bytes = bytes;
    char *text = drawn(pp_draw_grid);
    check_has(text, "rank  peak        MiB\n   0     2      1.000  F0");
    check_has(text, "   1     1      1.500  ");
    free(text);
    text = drawn(pp_draw_json);
    check_has(text, "\"peak_bytes\": 1572864");
    free(text);
}

TEST_TIDY(colours_change_nothing_but_colours)
{
    prepare("zb-h1", 3, 4, 1, 1, 1, 0);
    PP_OWN_MEMORY char *plain = drawn(pp_draw_grid);
    drawing.color = true;
    char *text = drawn(pp_draw_grid);
    check_has(text, "\033[38;5;16;48;5;");
    char *to = text;
    for (char *from = text; *from;)
        if (*from == '\033')
            from += strcspn(from, "m") + 1;
        else
            *to++ = *from++;
    *to = '\0';
    check_has(text, "F0 F1 F2");
    CHECK_INT_EQ(count(text, "W3"), count(plain, "W3"));
    free(text);
}

TEST_TIDY(nothing_to_draw_is_said)
{
    prepare("1f1b", 2, 2, 0, 0, 0, 0);
    CHECK_FAILS(pp_draw_grid(&drawing, stdout), PP_ECONFIG, "nothing takes time");
    char *text = drawn(pp_draw_svg); /* an empty picture is one */
    check_has(text, "</svg>");
    free(text);
}

TEST_TIDY(a_grid_beyond_all_lines_is_refused)
{
    prepare("gpipe", 2, 3, 1, 1, 1, 0);
    result.makespan = 1e30;
    CHECK_FAILS(pp_draw_grid(&drawing, stdout), PP_ECONFIG, "too wide");
}

TEST_TIDY(json_has_every_figure)
{
    prepare("zb-h2", 4, 8, 1, 1, 1, 0);
    PP_OWN_MEMORY char *text = drawn(pp_draw_json);
    check_has(text, "\"schema\": 1");
    check_has(text, "\"schedule\": \"zb-h2\"");
    check_has(text, "\"makespan\": 27,");
    check_has(text, "\"bubble_global\": 0.1111");
    check_has(text, "\"bubble_span\": 0,");
    CHECK_INT_EQ(count(text, "\"peak_chunks\": 7,"), 4);
    CHECK_INT_EQ(count(text, "\"work\": 24,"), 4);
    CHECK_INT_EQ(count(text, "\"idle\": 3,"), 4);
    CHECK_INT_EQ(count(text, "\"message_slots\""), 4);
    CHECK_INT_EQ(count(text, "peak_bytes"), 0);
}

TEST_TIDY(a_picture_has_a_box_for_every_action)
{
    prepare("zb-v", 4, 8, 1, 1, 1, 0);
    PP_OWN_MEMORY char *text = drawn(pp_draw_svg);
    check_has(text, "<svg xmlns=\"http://www.w3.org/2000/svg\"");
    check_has(text, "<title>zb-v: 4 stages x 2 chunks, 8 micro-batches; makespan 25.5,");
    CHECK_INT_EQ(count(text, "prefers-color-scheme"), 0);       /* paper is white */
    CHECK_INT_EQ(count(text, "<rect class=\"F0\""), 4 * 8 + 1); /* and one in the legend */
    CHECK_INT_EQ(count(text, "<rect class=\"W1\""), 4 * 8 + 1);
    CHECK_INT_EQ(count(text, "class=\"c\""), 4 * 2 * 8 * 3); /* all wide enough for their text */
    CHECK_INT_EQ(count(text, "B backward"), 0);
    CHECK_INT_EQ(count(text, "<text"), count(text, "</text>"));
}

TEST_TIDY(narrow_boxes_have_no_text)
{
    prepare("gpipe", 2, 2000, 1, 1, 1, 0);
    PP_OWN_MEMORY char *text = drawn(pp_draw_svg);
    CHECK_INT_EQ(count(text, "class=\"c\""), 0);
    CHECK_INT_EQ(count(text, "<rect class=\"F0\""), 2 * 2000 + 1);
}

TEST_TIDY(a_trace_has_a_slice_for_every_action_and_an_arrow_for_every_message)
{
    prepare("1f1b", 3, 4, 1, 1, 1, 0.5);
    PP_OWN_MEMORY char *text = drawn(pp_draw_trace);
    CHECK_INT_EQ(count(text, "\"cat\":\"F\""), 3 * 4);
    CHECK_INT_EQ(count(text, "\"cat\":\"I\""), 3 * 4); /* a B is an I and a W, as it is measured */
    CHECK_INT_EQ(count(text, "\"cat\":\"W\""), 3 * 4);
    CHECK_INT_EQ(count(text, "\"ph\":\"s\""), 2 * 2 * 4);
    CHECK_INT_EQ(count(text, "\"ph\":\"f\""), 2 * 2 * 4);
    CHECK_INT_EQ(count(text, "\"ph\":\"C\""), 3 * 4 * 2);
    CHECK_INT_EQ(count(text, "\"thread_name\""), 3 * 3);
    check_has(text, "[\n{\"name\":\"ppcli\",\"ph\":\"M\",\"pid\":0,\"args\":{\"schema\":1,"
                    "\"kind\":\"simulated\"");
    check_has(text, "{\"name\":\"rank 1 simulated (stage 1)\"}");
    check_has(text, "\n,{\"name\":\"F0\",\"cat\":\"F\",\"ph\":\"X\",\"pid\":10001,\"tid\":0,"
                    "\"ts\":1500.000,\"dur\":1000.000,"
                    "\"args\":{\"eval\":0,\"stage\":1,\"chunk\":0,\"microbatch\":0}}\n");
    /* rank 1 has nothing to do before the first message */
    check_has(text, "\n,{\"name\":\"recv\",\"cat\":\"recv\",\"ph\":\"X\",\"pid\":10001,\"tid\":2,"
                    "\"ts\":0.000,\"dur\":1500.000,");
}

TEST_TIDY(a_trace_halves_a_backward_pass_where_its_costs_do)
{
    prepare("1f1b", 1, 1, 1, 3, 1, 0);
    PP_OWN_MEMORY char *text = drawn(pp_draw_trace);
    check_has(text, "\"name\":\"I0\",\"cat\":\"I\",\"ph\":\"X\",\"pid\":10000,\"tid\":0,"
                    "\"ts\":1000.000,\"dur\":3000.000");
    check_has(text, "\"name\":\"W0\",\"cat\":\"W\",\"ph\":\"X\",\"pid\":10000,\"tid\":0,"
                    "\"ts\":4000.000,\"dur\":1000.000");
}

TEST_TIDY(a_trace_counts_the_activations_that_are_alive)
{
    prepare("gpipe", 1, 3, 1, 1, 1, 0);
    PP_OWN_MEMORY char *text = drawn(pp_draw_trace);
    static const char *const lines[] = {
        "\"ts\":1000.000,\"args\":{\"chunks\":1}", "\"ts\":2000.000,\"args\":{\"chunks\":2}",
        "\"ts\":3000.000,\"args\":{\"chunks\":3}", "\"ts\":5000.000,\"args\":{\"chunks\":2}",
        "\"ts\":9000.000,\"args\":{\"chunks\":0}"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        check_has(text, lines[i]);
}

TEST_TIDY(a_full_disk_is_an_error)
{
    FILE *f = fopen("/dev/full", "w");
    if (!f)
        skip();
    setvbuf(f, NULL, _IONBF, 0);
    prepare("1f1b", 2, 2, 1, 1, 1, 0);
    CHECK_FAILS(pp_draw_grid(&drawing, f), PP_EIO, "cannot write");
    CHECK_FAILS(pp_draw_svg(&drawing, f), PP_EIO, "cannot write");
    CHECK_FAILS(pp_draw_trace(&drawing, f), PP_EIO, "cannot write");
    CHECK_FAILS(pp_draw_json(&drawing, f), PP_EIO, "cannot write");
    fclose(f);
}
