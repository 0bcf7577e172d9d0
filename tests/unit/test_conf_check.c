/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that must fit each other, and what a higher module adds to the problem list. */
#include "test_conf.h"

#include "ppcli/base/base.h"

TEST(each_replica_needs_a_row_for_each_microbatch)
{
    struct pp_config *cfg = good(NULL, "train.batch_size=8", "pipeline.microbatches=8", NULL);
    pp_config_destroy(&cfg);
    cfg = good(NULL, "train.batch_size=9", "pipeline.microbatches=4", "pipeline.replicas=2", NULL);
    pp_config_destroy(&cfg);
    refuses("pipeline.microbatches: each of 1 replica has 7 samples of a batch of 7, too few for 8 "
            "micro-batches; use pipeline.microbatches = 7 or fewer, or train.batch_size = 8 or "
            "more",
            NULL, "train.batch_size=7", "pipeline.microbatches=8", NULL);
    /* 9 rows over 2 replicas: one has 5, the other only 4 */
    refuses("each of 2 replicas has 4 samples of a batch of 9, too few for 5 micro-batches; use "
            "pipeline.microbatches = 4 or fewer, or train.batch_size = 10 or more",
            NULL, "train.batch_size=9", "pipeline.microbatches=5", "pipeline.replicas=2", NULL);
    refuses("a batch of 3 has no sample for each of 4 replicas; use train.batch_size = 4 or more, "
            "or pipeline.replicas = 3 or fewer",
            NULL, "train.batch_size=3", "pipeline.microbatches=1", "pipeline.replicas=4", NULL);
    refuses("pipeline.replicas: a batch of 4 has no sample for each of 5 replicas; use "
            "train.batch_size = 10 or more, or pipeline.replicas = 2 or fewer",
            NULL, "train.batch_size=4", "pipeline.microbatches=2", "pipeline.replicas=5", NULL);
    refuses("or pipeline.replicas = 1 or fewer with pipeline.microbatches = 1", NULL,
            "train.batch_size=1", "pipeline.microbatches=2", "pipeline.replicas=5", NULL);
    refuses("train.batch_size = 67108864 or more", NULL, "train.batch_size=1",
            "pipeline.microbatches=64Ki", "pipeline.replicas=1024", NULL);
}

TEST(the_key_that_the_user_set_last_is_blamed)
{
    BAD("[train]\nbatch_size = 2\n",
        "t.ini:2: error: train.batch_size: each of 1 replica has 2 samples of a batch of 2, too "
        "few for 4 micro-batches; use pipeline.microbatches = 2 or fewer, or train.batch_size = 4 "
        "or more");
    refuses("--set: error: pipeline.microbatches: each of", "[train]\nbatch_size = 2\n",
            "pipeline.microbatches=3", NULL);
    refuses("--set: error: pipeline.split_at: 3 pieces for 2 stages", "[pipeline]\nstages = 2\n",
            "pipeline.split_at=1 2", NULL);
}

static void check_ranges(const char *assignment, const char *canonical, int n)
{
    char setting[128], stages[64];
    snprintf(setting, sizeof(setting), "pipeline.assignment=%s", assignment);
    snprintf(stages, sizeof(stages), "pipeline.stages=%d", n);
    struct pp_config *cfg = good(NULL, "model.sizes=9*7", stages, setting, NULL);
    CHECK_INT_EQ(cfg->pipeline.assignment, PP_ASSIGN_EXPLICIT);
    CHECK_STR_EQ(cfg->pipeline.ranges, canonical);
    CHECK_STR_EQ(value_of(cfg, "pipeline.assignment"), canonical);
    pp_config_destroy(&cfg);
}

TEST(explicit_ranges_are_read)
{
    check_ranges("0-2 | 3-5", "0-2 | 3-5", 2);
    check_ranges("0-2|3-5", "0-2 | 3-5", 2);
    check_ranges("0 | 1-3|4 - 5", "0 | 1-3 | 4-5", 3);
    check_ranges("0|1|2|3|4|5", "0 | 1 | 2 | 3 | 4 | 5", 6);
    check_ranges("0-5", "0-5", 1);
    check_ranges("0-0 | 1-5", "0 | 1-5", 2);
    check_ranges("conv1-layer1.1|layer2.0 -  fc_2", "conv1-layer1.1 | layer2.0-fc_2", 2);
    check_ranges("layer1.1 - layer1.1 | 3-fc", "layer1.1 | 3-fc", 2);
    check_ranges("layer1.1-layer1.10", "layer1.1-layer1.10", 1);
    struct pp_config *cfg =
        good(NULL, "pipeline.assignment=0-2", "pipeline.assignment=params", NULL);
    CHECK_INT_EQ(cfg->pipeline.assignment, PP_ASSIGN_PARAMS);
    CHECK_STR_EQ(cfg->pipeline.ranges, "");
    pp_config_destroy(&cfg);
}

TEST(first_layers_of_stages_are_read)
{
    struct pp_config *cfg =
        good(NULL, "pipeline.stages=3", "pipeline.split_at= layer2.0,  fc ", NULL);
    CHECK_INT_EQ(cfg->pipeline.assignment, PP_ASSIGN_EXPLICIT);
    CHECK_STR_EQ(cfg->pipeline.split_at, "layer2.0 fc");
    CHECK_STR_EQ(value_of(cfg, "pipeline.split_at"), "layer2.0 fc");
    CHECK_STR_EQ(value_of(cfg, "pipeline.assignment"), "auto");
    pp_config_destroy(&cfg);
    cfg = good("[pipeline]\nstages = 2\nsplit_at = 5\n", "pipeline.split_at=none",
               "pipeline.assignment=0 | 1", NULL);
    CHECK_STR_EQ(value_of(cfg, "pipeline.split_at"), "none");
    CHECK_STR_EQ(value_of(cfg, "pipeline.assignment"), "0 | 1");
    pp_config_destroy(&cfg);
    cfg = good(NULL, "pipeline.stages=2", "pipeline.split_at=a b c", NULL); /* two chunks each */
    pp_config_destroy(&cfg);
    cfg = good(NULL, "pipeline.stages=2", "pipeline.chunks=2", "pipeline.split_at=a b c", NULL);
    pp_config_destroy(&cfg);
}

TEST(first_layers_that_cannot_be_are_refused)
{
    static const char *const values[] = {"a-b", "a | b", "a;b", ", a", "-1", "layer 2 ?", NULL};
    for (int i = 0; values[i]; i++) {
        char setting[64];
        snprintf(setting, sizeof(setting), "pipeline.split_at=%s", values[i]);
        refuses("is not a layer; write none, or the first layer of every stage but the first, "
                "such as layer2.0 layer3.0",
                NULL, "pipeline.stages=3", setting, NULL);
    }
    refuses("nothing after the last comma", NULL, "pipeline.split_at=a,", NULL);
    refuses("--set: error: pipeline.split_at: 2 pieces for 1 stage; name the first layer of every "
            "stage but the first, or pipeline.stages = 2",
            NULL, "pipeline.split_at=layer3.0", NULL);
    refuses("pipeline.split_at: 2 pieces for 2 stages of 2 chunks; name the first layer of every "
            "chunk but the first",
            NULL, "pipeline.stages=2", "pipeline.chunks=2", "pipeline.split_at=layer3.0", NULL);
    refuses("assignment and split_at both define the cut; use only one", NULL, "pipeline.stages=2",
            "pipeline.assignment=equal", "pipeline.split_at=layer3.0", NULL);
}

TEST(the_words_of_assignment_are_read)
{
    static const struct {
        const char *setting, *word;
        enum pp_assignment kind;
    } words[] = {{"pipeline.assignment=auto", "auto", PP_ASSIGN_AUTO},
                 {"pipeline.assignment=equal", "equal", PP_ASSIGN_EQUAL},
                 {"pipeline.assignment=flops", "flops", PP_ASSIGN_FLOPS},
                 {"pipeline.assignment=params", "params", PP_ASSIGN_PARAMS},
                 {"pipeline.assignment=time", "time", PP_ASSIGN_TIME}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        PP_OWN(pp_config_destroy) struct pp_config *cfg = good(NULL, words[i].setting, NULL);
        CHECK_INT_EQ(cfg->pipeline.assignment, words[i].kind);
        CHECK_STR_EQ(value_of(cfg, "pipeline.assignment"), words[i].word);
    }
}

TEST(a_schedule_may_be_left_to_ppcli)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = good(NULL, "pipeline.schedule=auto", NULL);
    CHECK_STR_EQ(cfg->pipeline.schedule, "auto");
    CHECK_STR_EQ(value_of(cfg, "pipeline.schedule"), "auto");
}

TEST(what_the_program_chose_says_so)
{
    struct pp_config *cfg = good("[pipeline]\nstages = 2\nschedule = auto\n", NULL);
    CHECK_OK(pp_config_choose(cfg, "pipeline.schedule", "gpipe"));
    CHECK_STR_EQ(cfg->pipeline.schedule, "gpipe");
    CHECK_STR_EQ(pp_config_origin(cfg, "pipeline.schedule"), "chosen (t.ini:3)");
    CHECK_OK(pp_config_choose(cfg, "pipeline.assignment", "0 | 1-2"));
    CHECK_STR_EQ(value_of(cfg, "pipeline.assignment"), "0 | 1-2");
    CHECK_STR_EQ(pp_config_origin(cfg, "pipeline.assignment"), "chosen (default)");
    CHECK_FAILS(pp_config_choose(cfg, "pipeline.chunks", "many"), PP_ECONFIG,
                "pipeline.chunks: 'many'");
    CHECK_STR_EQ(pp_config_origin(cfg, "pipeline.chunks"), "default");
    pp_config_destroy(&cfg);
}

TEST(what_is_no_list_of_ranges_is_refused)
{
    static const char *const values[] = {
        "0-2 |",   "| 0-2", "0-2 || 3", "0-2, 3-5",   "0-2 3-5",     "-1-2",
        "0--2",    "0-1-2", "0-2;3-5",  "0-",         "0 1",         "|",
        "a.0 b.0", "a-b c", "a-b | c?", "0-\xC3\xA9", "a.0 - | b.0", NULL};
    for (int i = 0; values[i]; i++) {
        char setting[64];
        snprintf(setting, sizeof(setting), "pipeline.assignment=%s", values[i]);
        refuses("is not a range of layers; write auto, equal, flops, params, time, or one range "
                "for each stage such as 0-2 | 3-5",
                NULL, setting, NULL);
    }
    refuses("unknown 'eqaul'; did you mean 'equal'?", NULL, "pipeline.assignment=eqaul", NULL);
    refuses("unknown 'best'; write auto, equal", NULL, "pipeline.assignment=best", NULL);
    char many[8192] = "pipeline.assignment=0";
    for (int i = 1; i <= PP_STAGES_MAX; i++) {
        char one[16];
        snprintf(one, sizeof(one), "|%d", i);
        strcat(many, one);
    }
    refuses("more than 1024 ranges", NULL, many, NULL);
}

TEST(ranges_must_match_stages)
{
    refuses("pipeline.assignment: 2 ranges for 3 stages; write one for each stage, or "
            "pipeline.stages = 2",
            NULL, "pipeline.stages=3", "pipeline.assignment=0 | 1-2", NULL);
    refuses("pipeline.assignment: 3 ranges for 2 stages of 2 chunks; write one for each chunk",
            NULL, "pipeline.stages=2", "pipeline.chunks=2", "pipeline.assignment=a | b | c-d",
            NULL);
}

static void check_note(const char *a, const char *b, const char *expected)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = good(NULL, a, b, NULL);
    CHECK_INT_EQ(pp_config_note_count(cfg), expected ? 1 : 0);
    if (expected)
        CHECK_STR_EQ(pp_config_note_text(cfg, 0), expected);
}

TEST(learning_rates_that_contradict_themselves_are_refused)
{
    struct pp_config *cfg =
        good(NULL, "train.lr_schedule=multistep", "train.lr_milestones=30, 1k", NULL);
    CHECK_STR_EQ(value_of(cfg, "train.lr_milestones"), "30 1000");
    CHECK_INT_EQ(cfg->train.lr_milestones.n, 2);
    pp_config_destroy(&cfg);
    cfg = good(NULL, "train.lr_milestones=5", "train.lr_milestones=none", NULL);
    CHECK_STR_EQ(value_of(cfg, "train.lr_milestones"), "none");
    pp_config_destroy(&cfg);
    refuses("train.lr_milestones: 30 after 30; write numbers in ascending order", NULL,
            "train.lr_milestones=30 30", NULL);
    static const char *const bad[] = {"0", "-1", "3x", "3;4", "2e12", "1,,2", NULL};
    for (int i = 0; bad[i]; i++) {
        char setting[64];
        snprintf(setting, sizeof(setting), "train.lr_milestones=%s", bad[i]);
        refuses("is not a whole number; write none, or whole numbers of 1 to 1000000000000", NULL,
                setting, NULL);
    }
    static char many[8 * PP_NUMBERS_MAX] = "train.lr_milestones=1";
    for (int i = 2, n = (int)strlen(many); i <= PP_NUMBERS_MAX + 1; i++)
        n += snprintf(many + n, sizeof(many) - (size_t)n, " %d", i);
    refuses("more than 3073 numbers", NULL, many, NULL);
    refuses("train.lr_schedule: multistep changes nothing without train.lr_milestones", NULL,
            "train.lr_schedule=multistep", NULL);
    refuses("train.warmup_steps: a warm-up has steps or epochs; use one of the two keys", NULL,
            "train.warmup_steps=5", "train.warmup_epochs=1", NULL);
    refuses("train.warmup_steps: lr_by = epoch changes the learning rate between epochs only; use "
            "train.warmup_epochs, or train.lr_by = step",
            NULL, "train.warmup_steps=5", "train.lr_by=epoch", NULL);
    refuses("train.lr_schedule: wsd changes nothing without train.decay_steps, such as a tenth of "
            "the run's steps",
            NULL, "train.lr_schedule=wsd", NULL);
    refuses("train.lr_floor: lr_floor is above lr, so the learning rate cannot fall to it", NULL,
            "train.lr_schedule=cosine", "train.lr_floor=0.1", "train.lr=0.01", NULL);
}

TEST(keys_of_a_schedule_are_noted_with_another)
{
    check_note("pipeline.schedule=gpipe", "pipeline.eager=2",
               "--set: note: pipeline.eager has no effect with pipeline.schedule = gpipe, only "
               "with 1f1b-eager");
    check_note("pipeline.memory_cap=3", NULL,
               "--set: note: pipeline.memory_cap has no effect with pipeline.schedule = 1f1b, only "
               "with zb-auto, zb-fit, zb-fit-v, zb-exact and zb-exact-v");
    check_note("pipeline.schedule=auto", "pipeline.group=2", NULL);
}

TEST(keys_that_the_learning_rates_do_not_read_are_noted)
{
    check_note("train.lr_steps=20", NULL,
               "--set: note: train.lr_steps has no effect with train.lr_schedule = constant, only "
               "with linear, cosine and wsd");
    check_note("train.lr_schedule=cosine", "train.lr_milestones=30",
               "--set: note: train.lr_milestones has no effect with train.lr_schedule = cosine, "
               "only with multistep");
    check_note("train.lr_schedule=linear", "train.lr_gamma=0.2",
               "--set: note: train.lr_gamma has no effect with train.lr_schedule = linear, only "
               "with multistep and plateau");
    check_note("train.lr_by=epoch", NULL,
               "--set: note: train.lr_by has no effect with train.lr_schedule = constant, only "
               "with linear, cosine, multistep and wsd");
    check_note("train.lr_by=epoch", "train.warmup_epochs=2", NULL);
    check_note(
        "train.decay=weights", NULL,
        "--set: note: train.decay has no effect with train.weight_decay = 0, only with more");
    check_note("train.decay=weights", "train.weight_decay=0.1", NULL);
}

TEST(keys_of_replicas_are_noted_without_them)
{
    check_note("train.zero=1", "pipeline.replicas=1",
               "--set: note: train.zero has no effect with pipeline.replicas = 1, only with more");
    char with_state[512] = "";
#define PP_OPTIMIZER(NAME, word, moments)                                                          \
    if (moments > 0)                                                                               \
        pp_text_add(with_state, sizeof(with_state), "%s" #word, with_state[0] ? " " : "");
#include "ppcli/conf/optimizers.def"
    char expected[1024], listed[512];
    snprintf(expected, sizeof(expected),
             "--set: note: train.zero has no effect with train.optimizer = sgd, only with %s",
             pp_text_list(with_state, listed, sizeof(listed)));
    check_note("train.zero=1", "train.optimizer=sgd", expected);
    check_note("train.zero=1", "pipeline.replicas=2", NULL);
}

TEST(keys_of_a_gpu_are_noted_where_there_is_none)
{
    check_note("run.backend=cpu", "run.precision=tf32",
               "--set: note: run.precision has no effect with run.backend = cpu, only with cuda");
    check_note("run.backend=cpu", "run.graphs=on",
               "--set: note: run.graphs has no effect with run.backend = cpu, only with cuda");
    check_note("run.backend=cpu", "run.devices=1",
               "--set: note: run.devices has no effect with run.backend = cpu, only with cuda");
    check_note("run.backend=cpu", "run.partition_sms=on",
               "--set: note: run.partition_sms has no effect with run.backend = cpu, only with "
               "cuda");
    check_note("run.backend=cpu", "run.precision=f32", NULL);
    check_note("run.backend=cuda", "run.precision=bf16", NULL);
}

TEST(parts_of_a_gpu_need_ranks_that_share_it)
{
    check_note("run.partition_sms=on", "run.backend=cuda",
               "--set: note: run.partition_sms has no effect: one rank has the whole GPU");
    struct pp_config *cfg =
        good(NULL, "run.partition_sms=on", "pipeline.stages=2", "run.devices=0 1", NULL);
    CHECK_STR_EQ(pp_config_note_text(cfg, 0),
                 "--set: note: run.partition_sms has no effect: each rank has a GPU of its own");
    pp_config_destroy(&cfg);
    check_note("run.partition_sms=on", "pipeline.stages=2", NULL);
    refuses("run.partition_sms: processes that share a GPU take turns on the whole of it, only "
            "threads of one process can have parts; use run.launch = threads or run.partition_sms "
            "= off",
            "[run]\nlaunch = mpirun\n[pipeline]\nstages = 2\n", "run.partition_sms=on", NULL);
}

TEST(precision_is_part_of_the_hash_and_where_it_runs_is_not)
{
    char plain[65], other[65];
    struct pp_config *cfg = good(NULL, NULL);
    pp_config_hash(cfg, plain);
    pp_config_destroy(&cfg);
    cfg = good(NULL, "run.precision=bf16", NULL);
    pp_config_hash(cfg, other);
    assert_string_not_equal(plain, other);
    pp_config_destroy(&cfg);
    cfg = good(NULL, "run.graphs=off", "run.devices=1", "run.partition_sms=on", NULL);
    pp_config_hash(cfg, other);
    CHECK_STR_EQ(other, plain);
    pp_config_destroy(&cfg);
}

TEST(transport_and_launch_must_not_contradict)
{
    refuses("--set: error: run.transport: transport = mpi needs a process for each rank, but "
            "launch = threads "
            "starts none",
            "[run]\nlaunch = threads\n[pipeline]\n", "run.launch=threads", "run.transport=auto",
            "run.transport=mpi", NULL);
    refuses("t.ini:3: error: run.transport: launch = mpirun makes each rank a process",
            "[run]\nlaunch = mpirun\ntransport = threads\n", NULL);
    struct pp_config *cfg = good("[run]\ntransport = mpi\nlaunch = mpirun\n", NULL);
    pp_config_destroy(&cfg);
    cfg = good("[run]\ntransport = mpi\n", NULL);
    pp_config_destroy(&cfg);
}

TEST(groups_of_weight_gradients_need_microbatches)
{
    struct pp_config *cfg = good(NULL, NULL);
    assert_true(cfg->train.exact);
    CHECK_INT_EQ(cfg->train.coalesce, 0);
    pp_config_destroy(&cfg);
    cfg = good(NULL, "train.exact=off", "train.coalesce=4", NULL);
    assert_false(cfg->train.exact);
    CHECK_STR_EQ(value_of(cfg, "train.exact"), "false");
    CHECK_INT_EQ(cfg->train.coalesce, 4);
    pp_config_destroy(&cfg);
    cfg = good(NULL, "train.coalesce=1", NULL);
    pp_config_destroy(&cfg);
    refuses("train.coalesce: weight gradients of 5 micro-batches at a time, but a batch has 4; use "
            "train.coalesce = 4 or fewer, or more pipeline.microbatches",
            NULL, "train.coalesce=5", "train.exact=off", NULL);
    refuses("pipeline.microbatches: weight gradients of 8",
            "[train]\nexact = off\ncoalesce = 8\nbatch_size = 64\n[pipeline]\nmicrobatches = 8\n",
            "pipeline.microbatches=4", NULL);
    refuses("train.exact: unknown 'maybe'; write true | false", NULL, "train.exact=maybe", NULL);
}

TEST(a_check_is_silent_about_values_that_were_refused)
{
    BAD("[pipeline]\nstages = 99x\nassignment = 5-7\n[train]\nbatch_size = 0\n",
        "t.ini:2: error: pipeline.stages: '99x' is not a whole number; write digits, perhaps with "
        "k, M, G, Ki, Mi or Gi (1 to 1024 stages)",
        "t.ini:5: error: train.batch_size: 0 is out of range; write 1 to 1073741824 samples");
}

TEST(idle_keys_are_noted_and_accepted)
{
    struct pp_config *cfg =
        good("[train]\noptimizer = sgd\nmomentum = 0.5\nbeta1 = 0.9\neps = 1e-08\n", NULL);
    CHECK_INT_EQ(pp_config_note_count(cfg), 1); /* what equals the default is no surprise */
    CHECK_STR_EQ(pp_config_note_text(cfg, 0), "t.ini:3: note: train.momentum has no effect with "
                                              "train.optimizer = sgd, only with momentum and muon");
    pp_config_destroy(&cfg);
    cfg = good("[train]\noptimizer = adam\nbeta1 = 0.5\n", NULL);
    CHECK_INT_EQ(pp_config_note_count(cfg), 0);
    pp_config_destroy(&cfg);
}

TEST(a_problem_of_a_higher_module_gets_the_keys_origin_and_its_place)
{
    struct pp_config *cfg =
        good("[train]\nlr = 1\n[run]\nbackend = cpu\n", "pipeline.stages=2", NULL);
    CHECK_OK(pp_config_verdict(cfg));
    CHECK_INT_EQ(pp_config_problem(cfg, "pipeline.stages", "%d cores are too few", 1), PP_ECONFIG);
    CHECK_INT_EQ(pp_config_problem(cfg, "run.backend", "no such device"), PP_ECONFIG);
    CHECK_INT_EQ(pp_config_problem(cfg, "train.seed", "unlucky"), PP_ECONFIG);
    CHECK_INT_EQ(pp_config_problem(cfg, "train.lr", "brave"), PP_ECONFIG);
    CHECK_INT_EQ(pp_config_problem_count(cfg), 4);
    CHECK_STR_EQ(pp_config_problem_text(cfg, 0), "t.ini:2: error: brave");
    CHECK_STR_EQ(pp_config_problem_text(cfg, 1), "t.ini:4: error: no such device");
    CHECK_STR_EQ(pp_config_problem_text(cfg, 2), "--set: error: 1 cores are too few");
    CHECK_STR_EQ(pp_config_problem_text(cfg, 3), "t.ini: error: unlucky");
    CHECK_FAILS(pp_config_verdict(cfg), PP_ECONFIG, "t.ini: 4 problems");
    pp_config_destroy(&cfg);
    cfg = good(NULL, NULL);
    pp_config_problem(cfg, "train.seed", "unlucky");
    CHECK_STR_EQ(pp_config_problem_text(cfg, 0), "error: unlucky");
    CHECK_FAILS(pp_config_verdict(cfg), PP_ECONFIG, "configuration: 1 problem");
    pp_config_destroy(&cfg);
    pp_config_destroy(&cfg);
}
