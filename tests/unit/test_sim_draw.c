/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of simulated plans: what is in them, and how wide they are. */
#include <jansson.h>

#include "../../src/show/draw.h"
#include "../../src/sim/sim.h"
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
    pp_sim_make_uniform(plan, f, i, w, arrays, &costs);
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

/* What was drawn as JSON; the caller gives it back. */
static json_t *drawn_json(int (*draw)(const struct pp_drawing *, FILE *))
{
    json_error_t error;
    PP_OWN_MEMORY char *text = drawn(draw);
    json_t *json = json_loads(text, 0, &error);
    if (!json)
        fail_msg("line %d: %s", error.line, error.text);
    return json;
}

/* A number by its path, such as "args" "chunks"; NAN: there is none. */
static double number_at(const json_t *json, const char *key, const char *more)
{
    const json_t *value = json_object_get(json, key);
    value = more ? json_object_get(value, more) : value;
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static bool has_text(const json_t *json, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(json, key));
    return value && strcmp(value, text) == 0;
}

/* How many events of a trace have this text. */
static int count_events(const json_t *events, const char *key, const char *text)
{
    int n = 0;
    for (size_t i = 0; i < json_array_size(events); i++)
        n += has_text(json_array_get(events, i), key, text);
    return n;
}

/* The first slice of a trace with this name on a track. */
static const json_t *find_slice(const json_t *events, const char *name, int pid)
{
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (has_text(event, "name", name) && has_text(event, "ph", "X") &&
            number_at(event, "pid", NULL) == pid)
            return event;
    }
    fail_msg("no slice %s of %d", name, pid);
    return NULL;
}

static void check_slice(const json_t *events, const char *name, int pid, double ts, double dur)
{
    const json_t *slice = find_slice(events, name, pid);
    assert_float_equal(number_at(slice, "ts", NULL), ts, 1e-9);
    assert_float_equal(number_at(slice, "dur", NULL), dur, 1e-9);
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
    json_t *json = drawn_json(pp_draw_json);
    const json_t *last = json_array_get(json_object_get(json, "ranks"), 1);
    assert_float_equal(number_at(last, "peak_bytes", NULL), 1572864, 1e-9);
    json_decref(json);
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
    CHECK_FAILS(pp_draw_grid(&drawing, stdout), PP_ECONFIG, "");
    char *text = drawn(pp_draw_svg); /* an empty picture is one */
    check_has(text, "</svg>");
    free(text);
}

TEST_TIDY(a_grid_beyond_all_lines_is_refused)
{
    prepare("gpipe", 2, 3, 1, 1, 1, 0);
    result.makespan = 1e30;
    CHECK_FAILS(pp_draw_grid(&drawing, stdout), PP_ECONFIG, "");
}

TEST_TIDY(json_has_every_figure)
{
    prepare("zb-h2", 4, 8, 1, 1, 1, 0);
    json_t *json = drawn_json(pp_draw_json);
    const json_t *ranks = json_object_get(json, "ranks");
    assert_true(has_text(json, "schedule", "zb-h2"));
    assert_float_equal(number_at(json, "makespan", NULL), 27, 1e-9);
    assert_float_equal(number_at(json, "bubble_global", NULL), 1 / 9.0, 1e-4);
    assert_float_equal(number_at(json, "bubble_span", NULL), 0, 1e-9);
    CHECK_INT_EQ(json_array_size(ranks), 4);
    for (size_t r = 0; r < 4; r++) {
        const json_t *rank = json_array_get(ranks, r);
        assert_float_equal(number_at(rank, "peak_chunks", NULL), 7, 1e-9);
        assert_float_equal(number_at(rank, "work", NULL), 24, 1e-9);
        assert_float_equal(number_at(rank, "idle", NULL), 3, 1e-9);
        assert_non_null(json_object_get(rank, "message_slots"));
        assert_null(json_object_get(rank, "peak_bytes"));
    }
    json_decref(json);
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
    json_t *events = drawn_json(pp_draw_trace);
    CHECK_INT_EQ(count_events(events, "cat", "F"), 3 * 4);
    CHECK_INT_EQ(count_events(events, "cat", "I"), 3 * 4); /* a B is an I and a W, as measured */
    CHECK_INT_EQ(count_events(events, "cat", "W"), 3 * 4);
    CHECK_INT_EQ(count_events(events, "ph", "s"), 2 * 2 * 4);
    CHECK_INT_EQ(count_events(events, "ph", "f"), 2 * 2 * 4);
    CHECK_INT_EQ(count_events(events, "ph", "C"), 3 * 4 * 2);
    CHECK_INT_EQ(count_events(events, "name", "thread_name"), 3 * 3);
    const json_t *head = json_array_get(events, 0);
    assert_true(has_text(json_object_get(head, "args"), "kind", "simulated"));
    check_slice(events, "F0", 10001, 1500, 1000);
    assert_true(number_at(find_slice(events, "F0", 10001), "args", "stage") == 1);
    assert_true(number_at(find_slice(events, "F0", 10001), "args", "microbatch") == 0);
    /* rank 1 has nothing to do before the first message */
    check_slice(events, "recv", 10001, 0, 1500);
    json_decref(events);
}

TEST_TIDY(a_trace_halves_a_backward_pass_where_its_costs_do)
{
    prepare("1f1b", 1, 1, 1, 3, 1, 0);
    json_t *events = drawn_json(pp_draw_trace);
    check_slice(events, "I0", 10000, 1000, 3000);
    check_slice(events, "W0", 10000, 4000, 1000);
    json_decref(events);
}

TEST_TIDY(a_trace_counts_the_activations_that_are_alive)
{
    static const int chunks[][2] = {{1000, 1}, {2000, 2}, {3000, 3}, {5000, 2}, {9000, 0}};
    prepare("gpipe", 1, 3, 1, 1, 1, 0);
    json_t *events = drawn_json(pp_draw_trace);
    int found = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        for (int k = 0; k < COUNT(chunks); k++)
            found += number_at(event, "ts", NULL) == chunks[k][0] &&
                     number_at(event, "args", "chunks") == chunks[k][1];
    }
    CHECK_INT_EQ(found, COUNT(chunks));
    json_decref(events);
}

TEST_TIDY(a_full_disk_is_an_error)
{
    FILE *f = fopen("/dev/full", "w");
    if (!f)
        skip();
    setvbuf(f, NULL, _IONBF, 0);
    prepare("1f1b", 2, 2, 1, 1, 1, 0);
    CHECK_FAILS(pp_draw_grid(&drawing, f), PP_EIO, "");
    CHECK_FAILS(pp_draw_svg(&drawing, f), PP_EIO, "");
    CHECK_FAILS(pp_draw_trace(&drawing, f), PP_EIO, "");
    CHECK_FAILS(pp_draw_json(&drawing, f), PP_EIO, "");
    fclose(f);
}
