/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of torch.distributed.pipelining: written byte for byte, read back, refused with reasons.
 */
#include "ppcli/sched/plan.h"
#include "test_sched_lists.h"

static int read_bytes(const char *text, size_t n, struct pp_plan **out)
{
    FILE *f = fmemopen((void *)(uintptr_t)text, n, "r");
    assert_non_null(f);
    int rc = pp_plan_read_csv(f, "a.csv", out);
    fclose(f);
    return rc;
}

static int read_text(const char *text, struct pp_plan **out)
{
    return read_bytes(text, strlen(text), out);
}

TEST(the_lowered_example_is_torchs)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    CHECK_OK(read_text("0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1,\n", &plan));
    check_plan_text(plan, pp_plan_print_csv_comms,
                    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                    "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n");
    check_plan_text(plan, pp_plan_print_csv, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
}

TEST(lowered_lists_have_the_published_checksums)
{
    static const struct {
        const char *name;
        int v;
        unsigned p2m8, p4m8, p8m16;
    } table[] = {
        {"1f1b", 1, 0x43d0f093, 0x814b006f, 0x485aa324},
        {"interleaved", 2, 0xf4102cb1, 0x227cd836, 0x26983bc9},
        {"interleaved-zb", 2, 0x30e878ca, 0x4630f6dc, 0x53cf519b},
        {"zb-v", 2, 0x6e90131e, 0x1cebf0b8, 0xa5b957c5},
        {"dualpipev", 2, 0x5972bc02, 0x864be1a6, 0x98ce288b},
    };
    static const struct {
        int p, m;
    } sizes[] = {{2, 8}, {4, 8}, {8, 16}};
    for (size_t i = 0; i < LEN(table); i++) {
        const unsigned published[] = {table[i].p2m8, table[i].p4m8, table[i].p8m16};
        for (size_t j = 0; j < LEN(sizes); j++) {
            struct pp_plan *plan = build_plan(table[i].name, sizes[j].p, table[i].v, sizes[j].m);
            PP_OWN_MEMORY char *text = printed(plan, pp_plan_print_csv_torch);
            unsigned crc = (unsigned)crc32(0, (const Bytef *)text, (uInt)strlen(text));
            if (crc != published[j]) {
                fail_msg("%s p%d m%d: crc %08x, published %08x", table[i].name, sizes[j].p,
                         sizes[j].m, crc, published[j]);
            }
            pp_plan_destroy(&plan);
        }
    }
}

static void check_same_shape(const struct pp_plan *a, const struct pp_plan *b)
{
    CHECK_INT_EQ(a->geometry.stages, b->geometry.stages);
    CHECK_INT_EQ(a->geometry.chunks, b->geometry.chunks);
    CHECK_INT_EQ(a->geometry.microbatches, b->geometry.microbatches);
    for (int s = 0; s < a->n_virtual; s++) {
        CHECK_INT_EQ(a->rank_of[s], b->rank_of[s]);
        CHECK_INT_EQ(a->chunk_of[s], b->chunk_of[s]);
    }
}

/* print -> read -> print gives the same bytes */
static void check_round_trip(const struct pp_plan *plan,
                             int (*print)(const struct pp_plan *, FILE *))
{
    char *first = printed(plan, print);
    struct pp_plan *read = NULL;
    CHECK_OK(read_text(first, &read));
    check_same_shape(plan, read);
    char *second = printed(read, print);
    CHECK_STR_EQ(first, second);
    free(first);
    free(second);
    pp_plan_destroy(&read);
}

/* print -> read gives the same lists of actions, whatever is slow or fast */
static void check_same_actions(const struct pp_plan *plan,
                               int (*print)(const struct pp_plan *, FILE *))
{
    PP_OWN(pp_plan_destroy) struct pp_plan *read = NULL;
    PP_OWN_MEMORY char *text = printed(plan, print);
    CHECK_OK(read_text(text, &read));
    for (int r = 0; r < plan->geometry.stages; r++) {
        const struct pp_rank_plan *a = &plan->ranks[r], *b = &read->ranks[r];
        CHECK_INT_EQ(a->n_actions, b->n_actions);
        for (int k = 0; k < a->n_actions; k++) {
            CHECK_INT_EQ(a->actions[k].op, b->actions[k].op);
            CHECK_INT_EQ(a->actions[k].stage, b->actions[k].stage);
            CHECK_INT_EQ(a->actions[k].mb, b->actions[k].mb);
        }
    }
}

TEST(every_schedule_comes_back_from_its_tables)
{
    int n = 0;
    int refused = 0;
    for (const char *const *name = pp_schedule_names(); *name; name++) {
        for (int p = 1; p <= 8; p++) {
            for (int v = 1; v <= 4; v += v == 2 ? 2 : 1) {
                for (int m = 1; m <= 12; m += m < 4 ? 1 : 4) {
                    struct pp_geometry g = {.stages = p, .chunks = v, .microbatches = m};
                    struct pp_plan *plan = NULL;
                    if (pp_plan_build(*name, &g, &plan) == PP_ECONFIG) {
                        refused++;
                        continue;
                    }
                    assert_non_null(plan);
                    check_round_trip(plan, pp_plan_print_csv);
                    check_round_trip(plan, pp_plan_print_csv_comms);
                    check_round_trip(plan, pp_plan_print_csv_torch);
                    check_same_actions(plan, pp_plan_print_csv_comms);
                    pp_plan_destroy(&plan);
                    n++;
                }
            }
        }
    }
    print_message("# %d plans there and back, %d shapes refused by their schedule\n", n, refused);
    assert_true(n > 500);
}

TEST(files_may_have_comments_blanks_crlf_and_no_last_line_end)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    CHECK_OK(read_text("# a table\r\n0F0, 0F1 ,,0B0,\t0B1\r\n# rank 1\r\n1F0,1B0,1F1,1B1", &plan));
    check_plan_text(plan, pp_plan_print_csv, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
}

/* As spreadsheets of languages whose decimals have a comma write them. */
TEST(a_byte_order_mark_is_passed_over)
{
    struct pp_plan *plan = NULL;
    CHECK_OK(read_text("\xef\xbb\xbf"
                       "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n",
                       &plan));
    check_plan_text(plan, pp_plan_print_csv, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    pp_plan_destroy(&plan);
}

TEST(semicolons_separate_cells_too)
{
    struct pp_plan *plan = NULL;
    CHECK_OK(read_text("0F0;0F1;;0B0;0B1\n1F0;1B0;1F1;1B1\n", &plan));
    check_plan_text(plan, pp_plan_print_csv, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    pp_plan_destroy(&plan);
    CHECK_OK(read_text("0F0;(0F1;0B0)OVERLAP_F_B;0B1\n", &plan));
    check_plan_text(plan, pp_plan_print_csv, "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n");
    pp_plan_destroy(&plan);
}

TEST(cells_of_sharded_parameters_are_passed_over)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    CHECK_OK(read_text("0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
                       "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\n",
                       &plan));
    CHECK_INT_EQ(plan->ranks[0].n_actions, 2);
    CHECK_INT_EQ(plan->ranks[1].n_actions, 2);
}

TEST(a_pair_that_waits_for_itself_has_no_lowered_list)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    /* one after the other they run; together, B1 waits for what F1 sends */
    CHECK_OK(read_text("0F0,0B0,(0F1;0B1)OVERLAP_F_B\n1F0,1B0,1F1,1B1\n", &plan));
    FILE *f = tmpfile();
    assert_non_null(f);
    CHECK_FAILS(pp_plan_print_csv_comms(plan, f), PP_EFORMAT,
                "rank 0: the pair (0F1;0B1) needs two inputs, and one of them only comes after "
                "the pair");
    fclose(f);
}

TEST(tables_of_2024_are_read)
{
    struct pp_plan *plan = NULL;
    CHECK_OK(read_text("0F0,0F1,0BW0,0B1,0W1\n1F0,1BW0,1F1,1B1,1W1\n", &plan));
    check_plan_text(plan, pp_plan_print_csv, "0F0,0F1,0B0,0I1,0W1\n1F0,1B0,1F1,1I1,1W1\n");
    pp_plan_destroy(&plan);
    /* without a BW: a W and no I at all is only legal in 2024 */
    CHECK_OK(read_text("0F0,0F1,0B0,0B1,0W0,0W1\n1F0,1B0,1W0,1F1,1B1,1W1\n", &plan));
    check_plan_text(plan, pp_plan_print_csv, "0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n");
    pp_plan_destroy(&plan);
}

TEST(looped_bfs_as_published_is_read_and_ascends)
{
    for (int p = 1; p <= 4; p++) {
        for (int m = 1; m <= 6; m++) {
            struct pp_geometry g = {.stages = p, .chunks = 2, .microbatches = m};
            char *text = NULL;
            size_t bytes = 0;
            FILE *f = open_memstream(&text, &bytes);
            CHECK_OK(pp_schedule_print_csv(pp_schedule_find("looped-bfs"), &g, f));
            fclose(f);
            struct pp_plan *read = NULL;
            CHECK_OK(read_text(text, &read));
            free(text);
            struct pp_plan *own = build_plan("looped-bfs", p, 2, m);
            char *a = printed(read, pp_plan_print_csv);
            char *b = printed(own, pp_plan_print_csv);
            CHECK_STR_EQ(a, b);
            free(a);
            free(b);
            pp_plan_destroy(&own);
            pp_plan_destroy(&read);
        }
    }
    /* with messages: they keep their places */
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    CHECK_OK(read_text("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B1,0B1,0RECV_B0,0B0\n"
                       "1RECV_F0,1F0,1RECV_F1,1F1,1B1,1SEND_B1,1B0,1SEND_B0\n",
                       &plan));
    check_plan_text(plan, pp_plan_print_csv, "0F0,0F1,0I1,0B0,0W1\n1F0,1F1,1I1,1B0,1W1\n");
}

static const struct {
    const char *text, *words;
} broken[] = {
    {"# nothing\n", "a.csv:2:1: there is no line with cells"},
    {"0F0,0B0\n\n", "a.csv:2:1: a line without cells: every rank has a line"},
    {"\n0F0,0B0\n", "a.csv:1:1: a line without cells"},
    {"0F0,0B0\n,,,\n", "a.csv:2:1: a line without cells"},
    {"0F0,0B0\n0UNSHARD\n", "a.csv:2:1: a line without cells"},
    {"0F0,0X0", "a.csv:1:2: '0X0' is not a cell: write <stage><type><micro-batch>"},
    {"0F0,0\xc3\xa9", "a.csv:1:2: '0\xc3\xa9' is not a cell"},
    {"0F0,0B", "a.csv:1:2: '0B' is not a cell"},
    {"0F0,B0", "a.csv:1:2: 'B0' is not a cell"},
    {"0F0,0b0", "a.csv:1:2: '0b0' is not a cell"},
    {"0F0,0B0x", "a.csv:1:2: '0B0x' is not a cell"},
    {"0F0 0B0", "a.csv:1:1: '0F0 0B0' is not a cell"},
    {"0F0,\"0B0\"", "a.csv:1:2: '\"0B0\"' is not a cell"},
    {"0F0,-1B0", "a.csv:1:2: '-1B0' is not a cell"},
    {"0F0,0B-1", "a.csv:1:2: '0B-1' is not a cell"},
    {"0F0,0SEND_F", "a.csv:1:2: '0SEND_F' is not a cell"},
    {"0F0,0SEND_F_RECV_B0", "a.csv:1:2: '0SEND_F_RECV_B0' is not a cell"},
    {"\xff\x1b[2J,0B0", "a.csv:1:1: '??[2J' is not a cell"},
    {"0F0\r,0B0", "a.csv:1:1: a carriage return that ends no line"},
    {"0F99999999999999999999", "a.csv:1:1: the number at '99999999999999999999' is too large"},
    {"2147483647F0,0B0", "a.csv:1:1: the number at '2147483647F0' is too large"},
    {"0F0,0B2147483646", "a.csv:1:2: 0B2147483646: 1 stage with 2147483647 micro-batches are at "
                         "least 4294967294 cells, the table has 2 of F, I, W and B"},
    {"2147483646F0,0B0", "a.csv:1:1: 2147483646F0: 2147483647 stages with 1 micro-batch"},
    {"0F0,0B0,0F17,0B17", "a.csv:1:3: 0F17: 1 stage with 18 micro-batches are at least 36 cells"},
    {"(0F0;0B0", "a.csv:1:1: '(0F0;0B0': the parenthesis is not closed"},
    {"0F0;0B0)OVERLAP_F_B", "a.csv:1:2: '0B0)OVERLAP_F_B': there is no '('"},
    {"(0F0,0B0)OVERLAP_F_B", "a.csv:1:1: '(0F0': the parenthesis is not closed"},
    {"0F0,(0B0;0F1)OVERLAP_F_B,0B1", "a.csv:1:2: '(0B0;0F1)OVERLAP_F_B': a pair is one F and then"},
    {"0F0,(0F1;0I0)OVERLAP_F_B", "a.csv:1:2: '(0F1;0I0)OVERLAP_F_B': a pair is one F and then"},
    {"0F0,(0F1;0B0)", "a.csv:1:2: '(0F1;0B0)': a pair is"},
    {"0F0,(0F1)OVERLAP_F_B", "a.csv:1:2: '(0F1)OVERLAP_F_B': a pair is"},
    {"0F0,(0F1;0B0;0F2)OVERLAP_F_B", "a pair is one F and then one B"},
    {"0F0,0BW0,0I0", "a.csv:1:3: both I and BW cells"},
    {"0F0,0I0,0BW0", "a.csv:1:3: both I and BW cells"},
    {"0F0,0BW0,(0F1;0B1)OVERLAP_F_B", "a.csv:1:3: an OVERLAP_F_B pair in a table with BW cells"},
    {"0F0,,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0", "a.csv:1:2: an idle cell in a table"},
    {"0SEND_F0", "a.csv:1:1: the table has no F and no B cells"},
    {"0F0,0B0,0F0", "a.csv:1:3: 0F0 comes twice, first in cell 1"},
    {"0F0,,0B0,0B0", "a.csv:1:4: 0B0 comes twice, first in cell 3"},
    {"0B0,0F0", "a.csv:1:1: 0B0 comes before its 0F0 (cell 2)"},
    {"0F0,0W0,0I0", "a.csv:1:2: 0W0 comes before its 0I0 (cell 3)"},
    {"0B0,0B1", "a.csv:1:1: 0B0 has no 0F0 on its rank"},
    {"0F0,0I0,0W0,0F1,0W1", "a.csv:1:5: 0W1 has no 0I1 on its rank"},
    {"0F0,0F1,0BW0,0W1", "a.csv:1:4: 0W1 has no 0B1 on its rank"},
    {"0F0,0I0,0W0,0B0", "a.csv:1:4: 0B0, but there is 0I0 too (cell 2): a micro-batch of a stage "
                        "has one B, or one I and one W"},
    {"0F0,0B0,0I0,0W0", "a.csv:1:3: 0I0, but there is 0B0 too (cell 2)"},
    {"0F0,0B0,0F1", "a.csv:1:4: stage 0 has no 0B1, nor a backward in two cells"},
    {"0F0,0I0,0F1,0I1,0W1", "a.csv:1:6: stage 0 has no 0W0 for its input gradient"},
    {"0F0,0F1,0B0,0B1\n1F0,1B0", "a.csv:2:3: stage 1 has no 1F1: there are micro-batches 0..1"},
    {"1F0,1F1,1B0,1B1", "a.csv:1:5: no line has cells of stage 0, and there are stages up to 1"},
    {"0F0,0B0\n0F0,0B0", "a.csv:2:1: 0F0: there are cells of stage 0 on rank 0 (line 1): all "},
    {"0F0,0B0,1B0\n#\n1F0,1I0,1W0",
     "a.csv:1:3: 1B0: there are cells of stage 1 on rank 1 (line 3)"},
    {"0F0,2F0,2B0,0B0\n1F0,1B0", "a.csv:2:1: rank 1 holds 1 stage, rank 0 holds 2"},
    {"0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1", "a.csv: row 2 cell 1: 1F1 comes before 1F0, but rank 0 "
                                         "sends activations 0 first; use one order in both rows"},
    {"0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1", "a.csv: these ranks wait for each other: 0B0 waits "
                                         "for 1B0; 1F1 waits for 0F1"},
    /* messages */
    {"0F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0", "a.csv:1:2: there is no 0RECV_B0 before 0B0"},
    {"0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0",
     "a.csv:2:1: there is no 0SEND_F0 on rank 0 for 1RECV_F0"},
    {"0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0",
     "a.csv:2:1: there is no 1RECV_F0 before 1F0"},
    {"0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0",
     "a.csv:1:1: 0SEND_F0 comes before the cell that makes it"},
    {"0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0",
     "a.csv:1:3: 0SEND_F0 comes twice"},
    {"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0,1SEND_F0",
     "a.csv:2:5: 1SEND_F0: stage 1 has no neighbour on that side"},
    {"0F0,0SEND_F1,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0",
     "a.csv:1:2: 0SEND_F1: this rank has no 0F1"},
    {"0F0,1SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0",
     "a.csv:1:2: 1SEND_F0: this rank has no 1F0"},
    {"0F0,0SEND_F0,1RECV_F0,1F0,1B0,0B0",
     "a.csv:1:2: 0SEND_F0 moves nothing: both stages are on this rank"},
    {"0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
     "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1",
     "a.csv: with synchronous sends these ranks wait for each other: 0SEND_F1 waits for "
     "1RECV_F1; 1SEND_B0 waits for 0RECV_B0"},
};

TEST(broken_tables_are_refused_with_place_and_reason)
{
    for (size_t i = 0; i < LEN(broken); i++) {
        struct pp_plan *plan = NULL;
        int rc = read_text(broken[i].text, &plan);
        if (rc == 0 || strstr(pp_error_get()->text, broken[i].words) == NULL) {
            fail_msg("'%s' gave %d '%s', expected '%s'", broken[i].text, rc,
                     rc ? pp_error_get()->text : "", broken[i].words);
        }
        CHECK_INT_EQ(rc, PP_EFORMAT);
        assert_null(plan);
    }
    struct pp_plan *plan = NULL;
    FILE *f = fopen("/dev/null", "r"); /* fmemopen() has no empty files */
    assert_non_null(f);
    CHECK_FAILS(pp_plan_read_csv(f, "a.csv", &plan), PP_EFORMAT,
                "a.csv:1:1: there is no line with cells");
    fclose(f);
}

TEST(bytes_that_are_no_text_are_refused)
{
    struct pp_plan *plan = NULL;
    static const char nul[] = "0F0,0\0B0\n";
    CHECK_FAILS(read_bytes(nul, sizeof(nul) - 1, &plan), PP_EFORMAT, "a.csv:1:2: a NUL byte");
    assert_null(plan);
}

TEST(a_line_of_ten_million_characters_is_no_trouble)
{
    size_t n = 10u << 20;
    PP_OWN_MEMORY char *text = malloc(n);
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    assert_non_null(text);
    memset(text, '7', n);
    CHECK_FAILS(read_bytes(text, n, &plan), PP_EFORMAT, "a cell of more than 79 characters");
    memset(text, ',', n);
    CHECK_FAILS(read_bytes(text, n, &plan), PP_EFORMAT, "a.csv:1:1: a line without cells");
    memset(text, '\n', n);
    CHECK_FAILS(read_bytes(text, n, &plan), PP_EFORMAT, "a.csv:1:1: a line without cells");
    memset(text, '#', n);
    CHECK_FAILS(read_bytes(text, n, &plan), PP_EFORMAT, "a.csv:2:1: there is no line with cells");
    for (size_t i = 0; i + 4 <= n; i += 4)
        memcpy(text + i, i % 8 ? "0B0," : "0F0,", 4);
    CHECK_FAILS(read_bytes(text, n, &plan), PP_EFORMAT, "a.csv:1:3: 0F0 comes twice");
    memset(text, ',', n);
    memcpy(text, "0F0", 3);
    memcpy(text + n - 4, ",0B0", 4);
    CHECK_OK(read_bytes(text, n, &plan));
}

TEST(a_file_that_cannot_be_read_is_an_error)
{
    struct pp_plan *plan = NULL;
    FILE *f = fopen("/", "r");
    if (!f) {
        print_message("# a directory cannot be opened here\n");
        skip();
    }
    CHECK_FAILS(pp_plan_read_csv(f, "/", &plan), PP_EIO, "cannot read /");
    fclose(f);
    f = fopen("/dev/full", "w");
    if (f) {
        setvbuf(f, NULL, _IONBF, 0);
        plan = build_plan("1f1b", 2, 1, 2);
        CHECK_FAILS(pp_plan_print_csv_comms(plan, f), PP_EIO, "cannot write");
        pp_plan_destroy(&plan);
        fclose(f);
    }
}
