/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table: every key there is, once. The INI reader, --set, `ppcli keys`, the published
 * schema, ppcli.ini(5), the completions and the resolved config all come from these rows, so a new
 * key is one row here (and the member of struct pp_config that it fills).
 */
#include "conf.h"

#include <string.h>

static const struct conf_choice activations[] = {
#define PP_ACTIVATION(NAME, word, ...) {#word, PP_ACT_##NAME},
#include "ppcli/activations.def"
    {NULL, 0}};
static const struct conf_choice ffn_activations[] = {{"auto", -1},
#define PP_ACTIVATION(NAME, word, ...) {#word, PP_ACT_##NAME},
#include "ppcli/activations.def"
                                                     {NULL, 0}};
static const struct conf_choice choices[] = {
    {"auto", PP_CHOICE_AUTO}, {"on", PP_CHOICE_ON}, {"off", PP_CHOICE_OFF}, {NULL, 0}};
static const struct conf_choice poolings[] = {
    {"mean", PP_POOLING_MEAN}, {"first", PP_POOLING_FIRST}, {NULL, 0}};
static const struct conf_choice inits[] = {{"kaiming_uniform", PP_INIT_KAIMING_UNIFORM},
                                           {"kaiming_normal", PP_INIT_KAIMING_NORMAL},
                                           {"xavier_uniform", PP_INIT_XAVIER_UNIFORM},
                                           {"xavier_normal", PP_INIT_XAVIER_NORMAL},
                                           {"torch", PP_INIT_TORCH},
                                           {"torchvision", PP_INIT_TORCHVISION},
                                           {NULL, 0}};
static const struct conf_choice tokens[] = {
    {"chars", PP_TOKENS_CHARS}, {"bytes", PP_TOKENS_BYTES}, {NULL, 0}};
static const struct conf_choice layouts[] = {{"auto", PP_LAYOUT_AUTO},
                                             {"channels_last", PP_LAYOUT_CHANNELS_LAST},
                                             {"channels_first", PP_LAYOUT_CHANNELS_FIRST},
                                             {NULL, 0}};
static const struct conf_choice token_bytes[] = {{"2", 2}, {"4", 4}, {"1", 1}, {NULL, 0}};
static const struct conf_choice depths[] = {
    {"18", 18}, {"34", 34}, {"50", 50}, {"101", 101}, {NULL, 0}};
static const struct conf_choice stems[] = {
    {"imagenet", PP_STEM_IMAGENET}, {"cifar", PP_STEM_CIFAR}, {NULL, 0}};
static const struct conf_choice norms[] = {
    {"batch", PP_NORM_BATCH}, {"group", PP_NORM_GROUP}, {NULL, 0}};
static const struct conf_choice strides[] = {
    {"3x3", PP_STRIDE_3X3}, {"1x1", PP_STRIDE_1X1}, {NULL, 0}};
static const struct conf_choice paddings[] = {
    {"symmetric", PP_PAD_SYMMETRIC}, {"same", PP_PAD_SAME}, {NULL, 0}};
static const struct conf_choice rank_orders[] = {
    {"stages", PP_ORDER_STAGES}, {"replicas", PP_ORDER_REPLICAS}, {NULL, 0}};
static const struct conf_choice optimizers[] = {{"sgd", PP_OPT_SGD},
                                                {"momentum", PP_OPT_MOMENTUM},
                                                {"adam", PP_OPT_ADAM},
                                                {"adamw", PP_OPT_ADAMW},
                                                {NULL, 0}};
static const struct conf_choice decays[] = {
    {"all", PP_DECAY_ALL}, {"weights", PP_DECAY_WEIGHTS}, {NULL, 0}};
static const struct conf_choice lr_schedules[] = {{"constant", PP_LR_CONSTANT},
                                                  {"linear", PP_LR_LINEAR},
                                                  {"cosine", PP_LR_COSINE},
                                                  {"multistep", PP_LR_MULTISTEP},
                                                  {NULL, 0}};
static const struct conf_choice lr_bys[] = {
    {"step", PP_LR_BY_STEP}, {"epoch", PP_LR_BY_EPOCH}, {NULL, 0}};
static const struct conf_choice augments[] = {{"crop", PP_AUGMENT_CROP},
                                              {"flip", PP_AUGMENT_FLIP},
                                              {"autoaugment", PP_AUGMENT_AUTO},
                                              {NULL, 0}};
static const struct conf_choice losses[] = {{"cross_entropy", PP_LOSS_CROSS_ENTROPY}, {NULL, 0}};
static const struct conf_choice microbatch_losses[] = {
    {"mean", PP_LOSS_MEAN}, {"sum", PP_LOSS_SUM}, {NULL, 0}};
static const struct conf_choice launches[] = {{"auto", PP_LAUNCH_AUTO},
                                              {"threads", PP_LAUNCH_THREADS},
                                              {"mpirun", PP_LAUNCH_MPIRUN},
                                              {NULL, 0}};

static const struct conf_choice pins[] = {{"auto", PP_PIN_AUTO}, {"off", PP_PIN_OFF}, {NULL, 0}};
static const struct conf_choice nonfinites[] = {{"stop", PP_NONFINITE_STOP},
                                                {"skip", PP_NONFINITE_SKIP},
                                                {"rewind", PP_NONFINITE_REWIND},
                                                {NULL, 0}};

static const struct conf_choice on_corrupts[] = {
    {"previous", PP_CORRUPT_PREVIOUS}, {"stop", PP_CORRUPT_STOP}, {NULL, 0}};

static const struct conf_choice gemms[] = {
    {"auto", PP_GEMM_AUTO}, {"fma", PP_GEMM_FMA}, {"cblas", PP_GEMM_CBLAS}, {NULL, 0}};

static const struct conf_choice precisions[] = {
    {"f32", PP_PRECISION_F32}, {"tf32", PP_PRECISION_TF32}, {"bf16", PP_PRECISION_BF16}, {NULL, 0}};
static const struct conf_choice graph_uses[] = {
    {"auto", PP_GRAPHS_AUTO}, {"on", PP_GRAPHS_ON}, {"off", PP_GRAPHS_OFF}, {NULL, 0}};

/* name, type and place of a row; the rest is written out */
#define KEY(sec, k, t)                                                                             \
    .name = #sec "." #k, .section = #sec, .key = #k, .type = (t),                                  \
    .offset = offsetof(struct pp_config, sec.k), .since = "0.1"
#define LIST(member) .names = offsetof(struct pp_names, member)

static const struct conf_option table[] = {
    {KEY(data, dataset, CONF_NAME), .def = "mnist", LIST(datasets), .numbers = true,
     .help = "data set to train on"},
    {KEY(data, path, CONF_PATH), .def = "", .apart = true,
     .help = "folder of the data set's files; empty: where `ppcli download` puts it"},
    {KEY(data, train_images, CONF_PATH), .def = "", .apart = true,
     .help =
         "idx, npy: file of the training samples, [n][h][w], [n][h][w][c], [n][c][h][w] or [n][d]"},
    {KEY(data, train_labels, CONF_PATH), .def = "", .apart = true,
     .help = "idx, npy: file of their labels, [n], whole numbers from 0 to 255"},
    {KEY(data, test_images, CONF_PATH), .def = "", .apart = true,
     .help = "idx, npy: file of the test samples"},
    {KEY(data, test_labels, CONF_PATH), .def = "", .apart = true,
     .help = "idx, npy: file of their labels"},
    {KEY(data, train_file, CONF_PATH), .def = "", .apart = true,
     .help =
         "csv: table of the training samples, a row each; values are used as they are; cifar10: "
         "a binary file in place of the folder's, records of a label byte and 3072 of a picture; "
         "text: the text; text-labels: a label, a tab and a text in each line; tokens: in place "
         "of train.bin"},
    {KEY(data, test_file, CONF_PATH), .def = "", .apart = true,
     .help = "csv: table of the test samples; cifar10: a binary file of theirs; text: that of "
             "validation, in place of the last part of train_file; text-labels, tokens: the same"},
    {KEY(data, label, CONF_NAME), .def = "last", .word = "first | last", .free = true,
     .numbers = true,
     .help = "csv: column of the label, a whole number from 0 to 255: first, last, or its name in "
             "the first line"},
    {KEY(data, shape, CONF_NAME), .def = "model", .word = "model", .free = true, .numbers = true,
     .help =
         "shape of a sample of synthetic, and of rows of csv, idx or npy, such as 32x32x3; model: "
         "as many values as it reads, or a row"},
    {KEY(data, layout, CONF_ENUM), .def = "auto", .choices = layouts, .numbers = true,
     .help =
         "idx, npy: pictures are [n][h][w][c] (channels_last) or [n][c][h][w] (channels_first), "
         "as PyTorch has them; auto: by the sizes, with a word where it is not plain"},
    {KEY(data, train_samples, CONF_INT), .def = "0", .max = 2147483647, .unit = "samples",
     .numbers = true, .help = "train on at most this many; synthetic: make this many; 0 = all"},
    {KEY(data, test_samples, CONF_INT), .def = "0", .max = 2147483647, .unit = "samples",
     .numbers = true, .help = "test on at most this many; synthetic: make this many; 0 = all"},
    {KEY(data, augment, CONF_CHOICES), .def = "none", .choices = augments, .numbers = true,
     .allowed = true,
     .help =
         "change the pictures of training, in this order: crop, to their size after 4 pixels of "
         "zeros are put around; flip, every second one; autoaugment, the policy for CIFAR-10; "
         "as torchvision's RandomCrop, RandomHorizontalFlip and AutoAugment"},
    {KEY(data, resize, CONF_INT), .def = "0", .max = 4096, .unit = "pixels", .numbers = true,
     .help =
         "make all pictures this high and wide after that: bilinear, as torchvision's Resize of "
         "a PIL image; 0 = as they are"},
    {KEY(data, tokens, CONF_ENUM), .def = "chars", .choices = tokens, .numbers = true,
     .help = "text, text-labels: a token is a character (of UTF-8, one token for each different "
             "character of the text), or a byte"},
    {KEY(data, validation, CONF_FLOAT), .def = "0.1", .max = 0.9, .numbers = true,
     .help = "text: share of one file, its last part, that validation takes; 0 = none"},
    {KEY(data, token_bytes, CONF_ENUM), .def = "2", .choices = token_bytes, .numbers = true,
     .unit = "bytes", .help = "tokens: bytes of a token in a file without a header"},
    {KEY(data, ignored_token, CONF_INT), .def = "-1", .min = -1, .max = 16777215, .numbers = true,
     .allowed = true,
     .help = "text, tokens: no loss where this one is next, as PyTorch's ignore_index; -1 = none"},
    {KEY(data, mean, CONF_FLOATS), .def = "none", .min = -3e38, .max = 3e38, .numbers = true,
     .allowed = true,
     .help =
         "taken off each value, after bytes became 0 to 1: one number for each channel of pictures "
         "or column of a table of floats, or one for all; cifar10: 0.4914 0.4822 0.4465"},
    {KEY(data, std, CONF_FLOATS), .def = "none", .min = 0, .max = 3e38, .above = true,
     .numbers = true, .allowed = true,
     .help = "what is left is divided by it; cifar10: 0.2023 0.1994 0.2010"},

#include "options_model.def"

    /* stages, schedule and assignment change no number of a run: that is the promise of ppcli */
    {KEY(pipeline, stages, CONF_INT), .def = "1", .min = 1, .max = PP_STAGES_MAX, .unit = "stages",
     .help = "pieces the model is cut into; each runs on a rank of its own"},
    {KEY(pipeline, replicas, CONF_INT), .def = "1", .min = 1, .max = PP_REPLICAS_MAX,
     .unit = "replicas", .numbers = true,
     .help = "copies of the pipeline that share each batch; ranks = stages x replicas"},
    {KEY(pipeline, microbatches, CONF_INT), .def = "4", .min = 1, .max = PP_MICROBATCHES_MAX,
     .unit = "micro-batches", .numbers = true, .allowed = true,
     .help = "pieces each replica cuts its share of a batch into; a smaller last batch gets fewer, "
             "about as large as the others"},
    {KEY(pipeline, schedule, CONF_NAME), .def = "1f1b", LIST(schedules), .word = "auto",
     .file = true, .lines = offsetof(struct pp_names, schedule_help),
     .help = "order of forward and backward passes; auto: measure, and take the fastest; "
             "file:TABLE.csv: from a table (ppcli plan --format csv)",
     .note =
         "P stages, V chunks per rank, M micro-batches, at least P; G: pipeline.group, or P where "
         "P divides M, else M/(M/P rounded down), rounded up; bubble: when F, I and W take "
         "equally long; memory: micro-batches of activations on the fullest rank, M where that "
         "is less"},
    {KEY(pipeline, chunks, CONF_INT), .def = "0", .max = 1024, .unit = "chunks",
     .help = "pieces of the model each rank holds; 0 = what the schedule wants"},
    {KEY(pipeline, group, CONF_INT), .def = "0", .max = 65535, .unit = "micro-batches",
     .help = "interleaved schedules: micro-batches per group; 0 = their rule"},
    {KEY(pipeline, eager, CONF_INT), .def = "0", .max = 65535,
     .help = "1f1b-eager: k, how far ahead it runs; 0 = measured, from the cost of a transfer"},
    {KEY(pipeline, memory_cap, CONF_FLOAT), .def = "0", .max = 1e6, .unit = "forwards",
     .help = "zb-auto, zb-fit, zb-fit-v: activations a rank may hold, in micro-batches; 0 = twice "
             "the stages"},
    {KEY(pipeline, costs, CONF_NUMBERS), .def = "none", .min = 1, .max = 1e6, .threes = true,
     .help =
         "zb-fit, zb-fit-v: times that the order is made for: F,I,W of each stage and chunk in "
         "model order, such as 4,4,3 2,3,2, optionally followed by the time of one transfer, in "
         "any unit; none: all equal; plan --best and schedule = auto write what they measured"},
    {KEY(pipeline, recompute, CONF_LAYERS), .def = "off", .word = "all",
     .help =
         "compute forward passes again right before their backward pass, instead of keeping their "
         "activations: off, all, or layers by name or number, such as h.0-h.2 h.5 (a stage or "
         "chunk with one of them); the same bits, less memory, more time; auto: the stages and "
         "chunks that run.memory needs, or the memory that is there, at the least time"},
    {KEY(pipeline, assignment, CONF_ASSIGNMENT), .def = "auto",
     .help = "how layers are divided among the stages: each gets the same flops (auto is the "
             "same), params, measured time, or number of layers (equal); or ranges of layers, one "
             "for each stage and chunk in model order, by number or by name (ppcli explain), such "
             "as 0-2 | 3-5 or conv1-layer2.1 | layer3.0-fc"},
    {KEY(pipeline, slower, CONF_FLOATS), .def = "none", .min = 0.01, .max = 100,
     .help = "for assignment = time, schedule = auto and plan --best: times as slow as the others "
             "that each rank of a pipeline is, one number for each stage, such as 1 1 1.31 "
             "(summary.json has it: ranks, slower); fewer layers for slower ranks"},
    {KEY(pipeline, split_at, CONF_LAYERS), .def = "none",
     .help = "in place of assignment: the first layer of every stage and chunk but the first, in "
             "model order, by name or number, such as layer2.0 layer3.0"},

#include "options_train.def"

    {KEY(checkpoint, every, CONF_INT64), .def = "0", .max = 1e12, .unit = "steps",
     .help = "save a checkpoint into the run folder every this many steps; 0 = not by steps"},
    {KEY(checkpoint, every_epochs, CONF_INT), .def = "1", .max = 1000000, .unit = "epochs",
     .help = "save a checkpoint every this many epochs; 0 = not by epochs"},
    {KEY(checkpoint, at_end, CONF_BOOL), .def = "true",
     .help = "save a checkpoint when the run is complete"},
    {KEY(checkpoint, keep, CONF_INT), .def = "2", .min = 1, .max = 1000000, .unit = "checkpoints",
     .help = "keep this many of the newest and remove older ones"},
    {KEY(checkpoint, copies, CONF_INT), .def = "0", .max = 255, .unit = "hosts",
     .help = "keep each checkpoint also on the own disks of so many other hosts; 0 = none"},
    {KEY(checkpoint, on_corrupt, CONF_ENUM), .def = "previous", .choices = on_corrupts,
     .help = "if --resume finds the newest checkpoint damaged: take the previous one, or stop"},

    {KEY(run, backend, CONF_NAME), .def = "auto", LIST(backends), .alias = "gpu", .means = "cuda",
     .help = "compute device; gpu: the same as cuda"},
    {KEY(run, transport, CONF_NAME), .def = "auto", LIST(transports),
     .help = "how ranks exchange data: by pointer between threads, MPI between processes, NCCL "
             "between devices; auto: what fits"},
    {KEY(run, launch, CONF_ENUM), .def = "auto", .choices = launches,
     .help = "ranks as threads of this process, or start mpirun; auto: threads, unless already "
             "under mpirun"},
    {KEY(run, hosts, CONF_TEXT), .def = "", .note = "HOST:RANKS,... | file:PATH | empty",
     .help = "machines of the ranks, and how many each has: h0:2,h1:2, or file:PATH of lines 'h0 "
             "slots=2'; starts mpirun unless an MPI launcher started ppcli; empty: this machine"},
    {KEY(run, rank_order, CONF_ENUM), .def = "stages", .choices = rank_orders,
     .help = "what run.hosts are filled with in their order: the stages of each replica, or the "
             "replicas of each stage; plan --best --hosts says which is faster"},
    {KEY(run, network, CONF_NAME), .def = "auto", .word = "auto", .free = true,
     .help = "network between the hosts, as 10.0.0.0/24 or the name of an interface; auto: that of "
             "the route to them, or what MPI chooses where there is InfiniBand or the like"},
    {KEY(run, ports, CONF_NAME), .def = "auto", .word = "auto", .free = true,
     .help = "TCP ports between the hosts, such as 52000-52031; auto: any"},
    {KEY(run, agent, CONF_TEXT), .def = "", .note = "a program | empty",
     .help = "program that starts a command on a host, as AGENT HOST WORD...; empty: "
             "PPCLI_HOST_AGENT of the environment, else ssh"},
    {KEY(run, dir, CONF_PATH), .def = "auto", .word = "auto",
     .help = "folder for metrics and results; auto: a new runs/NAME-TIME; empty: write nothing"},
    {KEY(run, log_every, CONF_INT), .def = "0", .max = 1000000000, .unit = "steps",
     .help = "steps between log lines; 0 = about every 2 s and every epoch"},
    {KEY(run, hang_timeout, CONF_DURATION), .def = "60s", .min = 0.2, .max = 604800,
     .help = "end the run (exit 76) when no rank makes progress for this long; set-up may take "
             "twice as long, the first step and saving ten times; 0 = never"},
    {KEY(run, retries, CONF_INT), .def = "0", .max = 1000, .unit = "tries",
     .help = "tries after an mpirun run lost a rank or a host: from the newest checkpoint, on the "
             "hosts that answer, in the shape of plan --best where places are missing"},
    {KEY(run, host_wait, CONF_DURATION), .def = "10m", .max = 604800,
     .help = "how long a try of run.retries waits for hosts to come back when those that answer "
             "cannot run the config; 0 = not at all"},
    {KEY(run, threads, CONF_INT), .def = "auto", .word = "auto", .min = 1, .max = 1024,
     .unit = "threads",
     .help =
         "threads of each rank, which divide its kernels: the same bits for any number; auto: "
         "the free cores of the machine divided among its ranks, 1 with gemm = cblas, whose own "
         "threads a number is for"},
    {KEY(run, pin, CONF_ENUM), .def = "auto", .choices = pins,
     .help = "where ranks and their threads compute: auto, each on a core of its own that no other "
             "run has; off, where the system puts them"},
    {KEY(run, gemm, CONF_ENUM), .def = "auto", .choices = gemms,
     .help = "matrix products on the CPU: fma, ppcli's own (AVX2 or "
             "AVX-512); cblas, a BLAS library; auto: fma where it runs"},
    {KEY(run, precision, CONF_ENUM), .def = "f32", .choices = precisions, .numbers = true,
     .allowed = true,
     .help = "on a GPU: f32; tf32, products of 10 bits of mantissa; bf16, bfloat16 products and "
             "activations; sums and parameters are f32 always"},
    {KEY(run, packed, CONF_BOOL), .def = "true",
     .help = "copies of weights in the order of the products; off: less memory, slower, same bits"},
    {KEY(run, graphs, CONF_ENUM), .def = "auto", .choices = graph_uses,
     .help = "record a whole step on a GPU and replay it, with the same bits: auto, if all ranks "
             "of the process allow it; on, or refuse to train"},
    {KEY(run, devices, CONF_DEVICES), .def = "auto", .apart = true,
     .help = "GPUs to use, by number as CUDA counts those in CUDA_VISIBLE_DEVICES: auto, all; or "
             "such as 0 2-3; ranks take them in this order, with fewer of them neighbours share"},
    {KEY(run, partition_sms, CONF_BOOL), .def = "false",
     .help = "ranks that share a GPU compute on parts of it of equal size, so that none slows the "
             "others down"},
    {KEY(run, memory, CONF_BYTES), .def = "0", .max = 1e15, .unit = "bytes",
     .help = "what a rank may hold, for recompute = auto, schedule = auto and plan --best; 0 = any "
             "number; recompute = auto: its part of the memory that is there"},
    {KEY(run, force_memory, CONF_BOOL), .def = "false",
     .help = "train even if less memory is free than the run will take"},
    {KEY(run, tensorboard, CONF_BOOL), .def = "false",
     .help = "write scalars for TensorBoard into the folder tensorboard of the run folder"},
};

int conf_option_count(void)
{
    return (int)(sizeof(table) / sizeof(table[0]));
}

const struct conf_option *conf_option(int i)
{
    pp_assert(i >= 0 && i < conf_option_count());
    return &table[i];
}

int conf_option_index(const char *name)
{
    for (int i = 0; i < conf_option_count(); i++)
        if (strcmp(table[i].name, name) == 0)
            return i;
    return -1;
}

int conf_option_find(const char *section, const char *key)
{
    for (int i = 0; i < conf_option_count(); i++)
        if (strcmp(table[i].section, section) == 0 && strcmp(table[i].key, key) == 0)
            return i;
    return -1;
}

void conf_sections(const char *out[CONF_SECTIONS_MAX])
{
    int n = 0;
    for (int i = 0; i < conf_option_count(); i++) {
        if (i == 0 || strcmp(table[i].section, table[i - 1].section) != 0) {
            pp_assert(n < CONF_SECTIONS_MAX - 1);
            out[n++] = table[i].section;
        }
    }
    out[n] = NULL;
}

const char *const *conf_names_of(const struct conf_option *o, const struct pp_names *names)
{
    if (!names || o->type != CONF_NAME || o->free)
        return NULL;
    return *(const char *const *const *)((const char *)names + o->names);
}

const char *const *conf_lines_of(const struct conf_option *o, const struct pp_names *names)
{
    return names && o->lines ? *(const char *const *const *)((const char *)names + o->lines) : NULL;
}

static const char *words_text(const struct conf_option *o, const char *const *names, char *out,
                              size_t bytes)
{
    size_t used = 0;
    out[0] = '\0';
    if (o->word)
        used = (size_t)snprintf(out, bytes, "%s", o->word);
    for (int i = 0; used < bytes; i++) {
        const char *word = names ? names[i] : o->choices[i].name;
        if (!word)
            break;
        used += (size_t)snprintf(out + used, bytes - used, "%s%s", used ? " | " : "", word);
    }
    return out;
}

const char *conf_range_text(const struct conf_option *o, const struct pp_names *names, char *out,
                            size_t bytes)
{
    const char *const *list = conf_names_of(o, names);
    const char *unit = o->unit ? o->unit : "", *space = o->unit ? " " : "";
    out[0] = '\0';
    switch (o->type) {
    case CONF_INT:
    case CONF_INT64:
    case CONF_BYTES:
        snprintf(out, bytes, "%s%s%.0f to %.0f%s%s", o->word ? o->word : "", o->word ? " | " : "",
                 o->min, o->max, space, unit);
        break;
    case CONF_UINT64:
        snprintf(out, bytes, "0 to %llu%s%s", (unsigned long long)UINT64_MAX, space, unit);
        break;
    case CONF_FLOAT:
        snprintf(out, bytes, "%s%.10g%s%s%.10g%s%s",
                 o->above   ? "above "
                 : o->below ? "at least "
                            : "",
                 o->min, o->above || o->below ? ", " : " ",
                 o->below   ? "below "
                 : o->above ? "at most "
                            : "to ",
                 o->max, space, unit);
        break;
    case CONF_DURATION:
        snprintf(out, bytes, "0, or %.15gs to %.15gs (ms, s, m, h)", o->min, o->max);
        break;
    case CONF_BOOL:
        snprintf(out, bytes, "true | false");
        break;
    case CONF_ENUM:
        return words_text(o, NULL, out, bytes);
    case CONF_NAME:
        if (o->free)
            snprintf(out, bytes, "%s | a name", o->word);
        return list ? words_text(o, list, out, bytes) : out;
    case CONF_PATH:
        snprintf(out, bytes, "%s%s", o->word ? o->word : "",
                 o->word ? " | a path | empty" : "a path | empty");
        break;
    case CONF_TEXT:
        snprintf(out, bytes, "%s", o->note);
        break;
    case CONF_SIZES:
        snprintf(out, bytes, "2 to %d numbers, each %.0f to %.0f", PP_MODEL_SIZES_MAX, o->min,
                 o->max);
        break;
    case CONF_ASSIGNMENT:
        snprintf(out, bytes, "auto | equal | flops | params | time | ranges");
        break;
    case CONF_LAYERS:
        snprintf(out, bytes, "%s%s | names or numbers of layers%s", o->def,
                 o->word ? " | all | auto" : "", o->word ? ", or ranges" : "");
        break;
    case CONF_DEVICES:
        snprintf(out, bytes, "auto | numbers and ranges of 0 to %d", PP_DEVICES_MAX - 1);
        break;
    case CONF_NUMBERS:
        snprintf(out, bytes, "none | %s numbers, each %.0f to %.0f",
                 o->threes ? "whole" : "ascending", o->min, o->max);
        break;
    case CONF_CHOICES: {
        int n = snprintf(out, bytes, "none | some of");
        for (const struct conf_choice *c = o->choices; c->name; c++)
            n += snprintf(out + n, bytes - (size_t)n, " %s", c->name);
        break;
    }
    case CONF_FLOATS:
        snprintf(out, bytes, "none | 1 to %d numbers, each %s%.10g to %.10g", PP_FLOATS_MAX,
                 o->above ? "above " : "", o->min, o->max);
        break;
    }
    return out;
}

/* ---- values by name */

static const char *name_in(const char *key, int value)
{
    return conf_choice_name(conf_option(conf_option_index(key))->choices, value);
}

const char *pp_activation_name(enum pp_activation a)
{
    return name_in("model.activation", (int)a);
}

const char *pp_optimizer_name(enum pp_optimizer_kind k)
{
    return name_in("train.optimizer", (int)k);
}

int pp_optimizer_moments(enum pp_optimizer_kind k)
{
    return k == PP_OPT_SGD ? 0 : k == PP_OPT_MOMENTUM ? 1 : 2;
}

const char *pp_precision_name(enum pp_precision p)
{
    return name_in("run.precision", (int)p);
}
