/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts from rings that are written by hand: what no real run can be made to do at will. */
#include <stdio.h>
#include <stdlib.h>

#include "../unit/test.h"
#include "../../src/nn/model.h"
#include "command.h"
#include "ppcli/base/base.h"
#include "../../src/watch/diagnose.h"
#include "ppcli/pipe/layout.h"

#define RANKS 3
#define LONG_AGO 3000000000u /* ns */

/* A prepared run of 3 stages and a ring for each rank. */
struct scene {
    struct pp_config *cfg;
    struct pp_run run;
    struct pp_ring *rings[RANKS];
    struct pp_diagnosis d;
    uint64_t then, now;
};

static void open_scene(struct scene *s)
{
    static const struct pp_setting settings[] = {{"data.dataset", "synthetic", "test"},
                                                 {"model.sizes", "20 16*3 5", "test"},
                                                 {"pipeline.stages", "3", "test"}};
    memset(s, 0, sizeof(*s));
    CHECK_OK(pp_config_load(NULL, settings, 3, pp_cli_names(), &s->cfg));
    CHECK_OK(pp_run_prepare(s->cfg, PP_RUN_EXPLAIN, &s->run));
    CHECK_OK(pp_diagnosis_init(&s->d, s->run.layout, s->cfg->run.hang_timeout, RANKS));
    s->now = pp_clock_ns();
    s->then = s->now - LONG_AGO;
    for (int r = 0; r < RANKS; r++) {
        CHECK_OK(pp_ring_create(NULL, r, RANKS, 30, &s->rings[r]));
        s->rings[r]->head->opened_ns = s->then;
    }
}

static void close_scene(struct scene *s)
{
    for (int r = 0; r < RANKS; r++)
        pp_ring_destroy(&s->rings[r]);
    pp_diagnosis_fini(&s->d);
    pp_run_fini(&s->run);
    pp_config_destroy(&s->cfg);
}

/* Rank r began this long ago; waits: and shows that it waits. */
static void is_in(struct scene *s, int r, enum pp_event_kind kind, int message, bool waits)
{
    struct pp_event e = {.begin_ns = s->then,
                         .step = 5,
                         .message = message,
                         .stage = (int16_t)r,
                         .kind = (uint8_t)kind};
    pp_ring_begin(s->rings[r], &e);
    s->rings[r]->head->waited_ns = waits ? s->now : 0;
}

static void judge(struct scene *s)
{
    for (int r = 0; r < RANKS; r++)
        if (s->rings[r])
            pp_rank_look(s->rings[r], &s->d.views[r]);
    pp_diagnosis_judge(&s->d);
}

/* The message of micro-batch 0 on a channel: 0 F 0>1, 1 B 1>0, 2 F 1>2, 3 B 2>1. */
static int message(const struct scene *s, int channel)
{
    return pp_plan_message(s->run.layout->plans[0].plan, channel, 0);
}

static char *say(const struct scene *s)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    pp_diagnosis_print(&s->d, "", f);
    pp_diagnosis_print_ranks(&s->d, f);
    fclose(f);
    return text;
}

TEST(waits_are_followed_to_the_rank_that_works)
{
    struct scene s;
    open_scene(&s);
    is_in(&s, 0, PP_EVENT_RECV, message(&s, 1), true);
    is_in(&s, 1, PP_EVENT_RECV, message(&s, 3), true);
    is_in(&s, 2, PP_EVENT_W, -1, false);
    judge(&s);
    CHECK_INT_EQ(s.d.verdict, PP_VERDICT_HANGS);
    CHECK_INT_EQ(s.d.culprit, 2);
    CHECK_INT_EQ(s.d.waits_for[0], 1);
    CHECK_INT_EQ(s.d.waits_for[1], 2);
    CHECK_INT_EQ(s.d.waits_for[2], -1);
    close_scene(&s);
}

TEST(a_wait_that_shows_no_life_is_what_the_others_wait_for)
{
    struct scene s;
    open_scene(&s);
    is_in(&s, 0, PP_EVENT_MEET, -1, true);
    is_in(&s, 1, PP_EVENT_MEET, -1, false);
    is_in(&s, 2, PP_EVENT_MEET, -1, true);
    judge(&s);
    CHECK_INT_EQ(s.d.verdict, PP_VERDICT_HANGS);
    CHECK_INT_EQ(s.d.culprit, 1);
    CHECK_INT_EQ(s.d.waits_for[2], 1);
    close_scene(&s);
}

TEST(whoever_does_not_wait_is_a_suspect)
{
    struct scene s;
    open_scene(&s);
    is_in(&s, 0, PP_EVENT_START, -1, false);
    is_in(&s, 1, PP_EVENT_START, -1, false);
    is_in(&s, 2, PP_EVENT_START, -1, true);
    judge(&s);
    CHECK_INT_EQ(s.d.verdict, PP_VERDICT_HANGS);
    CHECK_INT_EQ(s.d.suspects, 2);
    s.rings[0]->head->waited_ns = s.now;
    judge(&s);
    CHECK_INT_EQ(s.d.suspects, 1);
    CHECK_INT_EQ(s.d.culprit, 1);
    pp_ring_close(s.rings[1], PP_RING_FINISHED);
    judge(&s);
    CHECK_INT_EQ(s.d.suspects, 0);
    close_scene(&s);
}

TEST(ranks_of_several_hosts_are_named_with_theirs)
{
    struct scene s;
    open_scene(&s);
    is_in(&s, 0, PP_EVENT_RECV, message(&s, 1), true);
    is_in(&s, 1, PP_EVENT_W, -1, false);
    is_in(&s, 2, PP_EVENT_RECV, message(&s, 2), true);
    judge(&s);
    char *text = say(&s);
    assert_null(strstr(text, "host"));
    free(text);
    snprintf(s.rings[1]->head->host, sizeof(s.rings[1]->head->host), "beta");
    judge(&s);
    text = say(&s);
    assert_non_null(strstr(text, "rank 1 (stage 1, host beta) hangs in W"));
    free(text);
    close_scene(&s);
}

TEST(a_circle_is_called_a_circle)
{
    struct scene s;
    open_scene(&s);
    is_in(&s, 0, PP_EVENT_RECV, message(&s, 1), true);
    is_in(&s, 1, PP_EVENT_RECV, message(&s, 0), true);
    is_in(&s, 2, PP_EVENT_RECV, message(&s, 2), true);
    judge(&s);
    CHECK_INT_EQ(s.d.verdict, PP_VERDICT_CYCLE);
    CHECK_INT_EQ(s.d.waits_for[0], 1);
    CHECK_INT_EQ(s.d.waits_for[1], 0);
    char *text = say(&s);
    assert_non_null(strstr(text, "ranks wait for each other in a circle"));
    assert_non_null(strstr(text, "rank 0 (stage 0) waits for rank 1: recv of the gradient"));
    free(text);
    close_scene(&s);
}

TEST(nobody_is_blamed_when_all_have_come)
{
    struct scene s;
    open_scene(&s);
    for (int r = 0; r < RANKS; r++)
        is_in(&s, r, PP_EVENT_CLIP, -1, true);
    judge(&s);
    CHECK_INT_EQ(s.d.verdict, PP_VERDICT_ALL_WAIT);
    CHECK_INT_EQ(s.d.culprit, -1);
    close_scene(&s);
}

TEST(a_rank_that_cannot_be_seen_is_called_so)
{
    struct scene s;
    open_scene(&s);
    is_in(&s, 0, PP_EVENT_RECV, message(&s, 1), true);
    is_in(&s, 1, PP_EVENT_RECV, message(&s, 3), true);
    pp_ring_destroy(&s.rings[2]);
    judge(&s);
    CHECK_INT_EQ(s.d.verdict, PP_VERDICT_UNSEEN);
    CHECK_INT_EQ(s.d.culprit, 2);
    close_scene(&s);
}

TEST(as_long_as_one_rank_gets_on_there_is_no_verdict)
{
    struct scene s;
    open_scene(&s);
    is_in(&s, 0, PP_EVENT_RECV, message(&s, 1), true);
    is_in(&s, 1, PP_EVENT_RECV, message(&s, 3), true);
    s.then = pp_clock_ns();
    is_in(&s, 2, PP_EVENT_F, -1, false);
    judge(&s);
    CHECK_INT_EQ(s.d.verdict, PP_VERDICT_NONE);
    CHECK_INT_EQ(s.d.culprit, -1);
    close_scene(&s);
}

TEST(ranks_that_came_to_their_end_are_not_waited_for)
{
    struct scene s;
    open_scene(&s);
    is_in(&s, 0, PP_EVENT_MEET, -1, true);
    is_in(&s, 1, PP_EVENT_F, -1, false);
    pp_ring_close(s.rings[1], PP_RING_FAILED);
    is_in(&s, 2, PP_EVENT_W, -1, false);
    judge(&s);
    CHECK_INT_EQ(s.d.culprit, 2);
    CHECK_INT_EQ(s.d.views[1].state, PP_RANK_FAILED);
    close_scene(&s);
}

/* Weights 2 and 4 are one: layers 1 and 2, which two stages hold. */
TEST(a_wait_for_the_gradient_of_a_tied_tensor_says_so)
{
    struct scene s;
    char words[64];
    open_scene(&s);
    struct pp_training training = s.run.layout->training;
    const char *key;
    pp_diagnosis_fini(&s.d);
    pp_layout_destroy(&s.run.layout);
    pp_model_tie(s.run.model, 2, 4);
    CHECK_OK(pp_layout_create(s.run.model, &s.run.division, &training, &s.run.layout, &key));
    CHECK_OK(pp_diagnosis_init(&s.d, s.run.layout, s.cfg->run.hang_timeout, RANKS));
    const struct pp_channel *back = &s.run.layout->plans[0].plan->channels[5];
    assert_true(back->src_rank != back->dst_rank);
    int last = s.run.layout->plans[0].plan->n_messages - 1;
    is_in(&s, back->dst_rank, PP_EVENT_RECV, last, true);
    is_in(&s, back->src_rank, PP_EVENT_G, -1, false);
    judge(&s);
    CHECK_INT_EQ(s.d.culprit, back->src_rank);
    char *text = say(&s);
    snprintf(words, sizeof(words), "recv of the gradient of tied tensor 0 from rank %d",
             back->src_rank);
    assert_non_null(strstr(text, words));
    assert_non_null(strstr(text, "G of tied tensor 0"));
    free(text);
    close_scene(&s);
}

/* A file may hold anything. */
TEST(records_of_no_plan_are_shown_and_followed_nowhere)
{
    struct scene s;
    open_scene(&s);
    is_in(&s, 0, PP_EVENT_RECV, 1 << 30, true);
    is_in(&s, 1, PP_EVENT_SLOT, -7, true);
    is_in(&s, 2, PP_EVENT_F, -1, false);
    struct pp_event e = {.begin_ns = UINT64_MAX,
                         .end_ns = 1,
                         .step = INT32_MIN,
                         .message = 3,
                         .stage = INT16_MIN,
                         .kind = 255,
                         .plan = 65535};
    pp_ring_begin(s.rings[2], &e);
    e.kind = PP_EVENT_RECV;
    pp_ring_begin(s.rings[2], &e);
    judge(&s);
    char *text = say(&s);
    assert_non_null(strstr(text, "recv of the message of micro-batch 0"));
    free(text);
    close_scene(&s);
}
