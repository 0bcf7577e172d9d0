/* SPDX-License-Identifier: Apache-2.0 */
/* Divisions of a transformer: their rules, as words, and layouts as Megatron-LM writes them. */
#include "estimate.h"
#include "machine_plan.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/sched/schedule.h"
#include "ppcli/base/base.h"

bool pp_estimate_takes(const struct pp_config *cfg)
{
    return strcmp(cfg->model.type, "gpt") == 0 || strcmp(cfg->model.type, "llama") == 0;
}

/* ---- cuts: layer 0 is the embedding, the last one the loss, those between are blocks */

static void set_blocks(struct pp_division *p, const uint16_t *blocks)
{
    int n = pp_division_pieces(p), last = 0;
    for (int v = 0; v < n; v++) {
        last += blocks[v] + (v == n - 1);
        p->last[v] = (uint16_t)last;
    }
}

int parallel_cut(const struct pp_config *cfg, struct pp_division *p)
{
    uint16_t blocks[PP_STAGES_MAX];
    int n = pp_division_pieces(p), layers = cfg->model.n_layer;
    bool ends = layers % n != 0 && (layers + 2) % n == 0 && n > 1;
    if (n > PP_STAGES_MAX || (layers % n != 0 && !ends))
        return pp_fail(PP_ECONFIG,
                       "neither %d blocks nor %d (with embedding and loss as one each) are a "
                       "multiple of pp x vp = %d",
                       layers, layers + 2, n);
    for (int v = 0; v < n; v++)
        blocks[v] = (uint16_t)((layers + 2 * ends) / n - (ends && (v == 0 || v == n - 1)));
    set_blocks(p, blocks);
    return 0;
}

bool parallel_blocks(const struct pp_division *p, uint16_t blocks[PP_STAGES_MAX])
{
    int n = pp_division_pieces(p), layers = p->last[n - 1] - 1;
    for (int v = 0; v < n; v++)
        blocks[v] = (uint16_t)(p->last[v] - (v > 0 ? p->last[v - 1] : 0) - (v == n - 1));
    return !p->gives_cut && layers % n != 0;
}

/* ---- rules */

static int check_divides(const char *what, int n, const char *by, int d)
{
    return n % d == 0 ? 0
                      : pp_fail(PP_ECONFIG, "%s = %d is not a multiple of %s = %d", what, n, by, d);
}

static int check_tensor(const struct pp_estimate_spec *s, int tensor)
{
    const struct pp_config *c = s->cfg;
    int kv = c->model.n_kv_head > 0 ? c->model.n_kv_head : c->model.n_head;
    PP_TRY(check_divides("model.n_head", c->model.n_head, "tp", tensor));
    PP_TRY(check_divides("model.n_kv_head", kv, "tp", tensor));
    PP_TRY(check_divides("model.n_embd", c->model.n_embd, "tp", tensor));
    return c->model.n_hidden > 0 ? check_divides("model.n_hidden", c->model.n_hidden, "tp", tensor)
                                 : 0;
}

bool parallel_has_whole_experts(const struct pp_division *p)
{
    return p->replicas * p->context % p->expert != 0;
}

static int check_experts(const struct pp_estimate_spec *s, const struct pp_division *p)
{
    if (p->expert == 1)
        return 0;
    if (s->cfg->model.experts == 0)
        return pp_fail(PP_ECONFIG, "ep = %d needs experts: give model.experts and model.top_k",
                       p->expert);
    PP_TRY(check_divides("model.experts", s->cfg->model.experts, "ep", p->expert));
    return parallel_has_whole_experts(p)
               ? check_divides("tp x dp x cp", p->tensor * p->replicas * p->context, "ep",
                               p->expert)
               : 0;
}

int parallel_check(const struct pp_estimate_spec *s, const struct pp_division *p, int rows)
{
    int64_t ranks = (int64_t)p->tensor * p->stages * p->replicas * p->context;
    if (ranks != s->ranks)
        return pp_fail(PP_ECONFIG, "tp x cp x pp x dp = %d x %d x %d x %d is not %d ranks",
                       p->tensor, p->context, p->stages, p->replicas, s->ranks);
    PP_TRY(check_tensor(s, p->tensor));
    PP_TRY(check_experts(s, p));
    if (p->context > 1)
        PP_TRY(check_divides("model.block_size", s->cfg->model.block_size, "2 cp", 2 * p->context));
    if (p->stages == 1 && p->chunks > 1)
        return pp_fail(PP_ECONFIG, "vp = %d needs pp > 1", p->chunks);
    if (p->zero > 1 && p->stages > 1)
        return pp_fail(PP_ECONFIG,
                       "zero = %d shards what every micro-batch of a pipeline needs: "
                       "use zero = 1, or pp = 1",
                       p->zero);
    int64_t samples = (int64_t)rows * p->replicas;
    if (s->batch < samples || s->batch % samples != 0)
        return pp_fail(PP_ECONFIG, "the batch of %d is not a multiple of mbs x dp = %d x %d",
                       s->batch, rows, p->replicas);
    if (p->chunks > 1 && strcmp(pp_division_schedule(p), "interleaved") == 0)
        PP_TRY(check_divides("micro-batches", p->microbatches, "pp", p->stages));
    struct pp_geometry g = {
        .stages = p->stages, .chunks = p->chunks, .microbatches = p->microbatches};
    return pp_schedule_check(p->schedule, &g);
}

/* ---- layouts */

struct layout {
    const char *at;
    char *units; /* one letter for each, and '|' */
    int n, room;
};

static int add_units(struct layout *l, const char *from, int n, int times)
{
    for (int k = 0; k < times; k++)
        for (int i = 0; i < n; i++) {
            PP_RESERVE(l->units, l->n, l->room);
            l->units[l->n++] = from[i];
        }
    return l->n < 1 << 20 ? 0 : pp_fail(PP_EUSAGE, "a layout of more than a million pieces");
}

/* Repeats the units from index `from` on as often as '*' and a number say, if these come next in
 * the text. */
static int repeat_units(struct layout *l, int from)
{
    char *end;
    if (*l->at != '*')
        return 0;
    long times = strtol(l->at + 1, &end, 10);
    if (end == l->at + 1 || times < 1 || times > PP_STAGES_MAX)
        return pp_fail(PP_EUSAGE, "--layout: '%s': * wants a number from 1 to %d", l->at,
                       PP_STAGES_MAX);
    l->at = end;
    int n = l->n - from;
    PP_OWN_MEMORY char *copy = pp_alloc((size_t)n + 1, 1);
    PP_TRY(copy ? 0 : PP_ERESOURCE);
    pp_assert(l->units != NULL);
    memcpy(copy, l->units + from, (size_t)n);
    return add_units(l, copy, n, (int)times - 1);
}

static int read_units(struct layout *l)
{
    int open = -1;
    while (*l->at) {
        char c = *l->at++;
        int from = l->n;
        if (c == ',' || isspace((unsigned char)c))
            continue;
        if (c == '(' && open < 0)
            open = l->n;
        else if (c == ')' && open >= 0) {
            from = open;
            open = -1;
            PP_TRY(repeat_units(l, from));
        } else if (strchr("EtmL|", c)) {
            PP_TRY(add_units(l, &c, 1, 1));
            PP_TRY(repeat_units(l, from));
        } else {
            return pp_fail(PP_EUSAGE, "--layout: '%s': write E, t, m, L and |, with (...)*n",
                           l->at - 1);
        }
    }
    return open < 0 ? 0 : pp_fail(PP_EUSAGE, "--layout: a '(' has no ')'");
}

int blocks_read(const struct pp_config *cfg, const char *text, struct pp_division *p)
{
    PP_OWN_MEMORY char *units = NULL;
    struct layout l = {.at = text};
    uint16_t blocks[PP_STAGES_MAX] = {0};
    int rc = read_units(&l), n = 1, sum = 0, stages = p->stages;
    units = l.units;
    PP_TRY(rc);
    for (int i = 0; i < l.n; i++) {
        bool first = units[i] == 'E' && i == 0, last = units[i] == 'L' && i == l.n - 1;
        if (strchr("EL", units[i]) && !first && !last)
            return pp_fail(PP_EUSAGE, "--layout: E comes first and L last, each once");
        n += units[i] == '|';
    }
    if (l.n < 2 || units[0] != 'E' || units[l.n - 1] != 'L')
        return pp_fail(PP_EUSAGE, "--layout: E comes first and L last, as in Et*3|(tt|)*29,m|L");
    if (n > PP_STAGES_MAX || n % stages != 0)
        return pp_fail(PP_EUSAGE, "--layout: %d pieces are not a multiple of %d stages", n, stages);
    p->chunks = n / stages;
    for (int i = 0, v = 0; i < l.n; i++) {
        bool is_block = strchr("tm", units[i]) != NULL;
        v += units[i] == '|';
        blocks[v] += is_block;
        sum += is_block;
    }
    if (sum != cfg->model.n_layer)
        return pp_fail(PP_ECONFIG, "the layout has %d blocks, the model %d", sum,
                       cfg->model.n_layer);
    set_blocks(p, blocks);
    p->gives_cut = true;
    return 0;
}

char *blocks_text(const uint16_t *blocks, int n, char *out, size_t bytes)
{
    out[0] = '\0';
    for (int v = 0, end; v < n; v = end) {
        char t[32] = "";
        for (end = v + 1; end < n - 1 && v > 0 && blocks[end] == blocks[v];)
            end++;
        if (blocks[v] > 0)
            snprintf(t, sizeof(t), blocks[v] > 1 ? "t*%d" : "t", blocks[v]);
        if (end - v > 1)
            pp_text_add(out, bytes, "(%s|)*%d", t, end - v);
        else
            pp_text_add(out, bytes, "%s%s%s", v == 0 ? "E" : "", t, v < n - 1 ? "|" : "");
        if (end == n)
            pp_text_add(out, bytes, "L");
    }
    return out;
}

/* ---- words */

static const char *const redos[] = {"none", "selective", "full", NULL};

static int read_count(const char *name, const char *text, int least, int most, int *out)
{
    char *end;
    long x = strtol(text, &end, 10);
    if (end == text || *end || x < least || x > most)
        return pp_fail(PP_EUSAGE, "%s=%s: write a number from %d to %d", name, text, least, most);
    *out = (int)x;
    return 0;
}

static int read_word(char *word, struct pp_division *p, int *rows, const char **layout)
{
    const struct {
        const char *name;
        int *at, least, most;
    } counts[] = {{"tp", &p->tensor, 1, PP_STAGES_MAX},  {"pp", &p->stages, 1, PP_STAGES_MAX},
                  {"dp", &p->replicas, 1, 1 << 20},      {"cp", &p->context, 1, PP_STAGES_MAX},
                  {"ep", &p->expert, 1, PP_STAGES_MAX},  {"vp", &p->chunks, 1, PP_STAGES_MAX},
                  {"mbs", rows, 1, PP_MICROBATCHES_MAX}, {"zero", &p->zero, 0, 3}};
    char *value = strchr(word, '=');
    if (!value)
        return pp_fail(PP_EUSAGE, "'%s' has no '='; write words such as tp=4 pp=4 vp=20 mbs=1",
                       word);
    *value++ = '\0';
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (strcmp(word, counts[i].name) == 0)
            return read_count(word, value, counts[i].least, counts[i].most, counts[i].at);
    if (strcmp(word, "schedule") == 0) {
        p->schedule = pp_schedule_find(value);
        return p->schedule ? 0
                           : pp_fail(PP_ECONFIG, "unknown schedule '%s'%s", value,
                                     pp_did_you_mean(value, pp_schedule_names()).s);
    }
    if (strcmp(word, "layout") == 0) {
        *layout = value;
        return 0;
    }
    for (int i = 0; strcmp(word, "recompute") == 0 && redos[i]; i++)
        if (strcmp(value, redos[i]) == 0) {
            p->redo = (enum pp_redo)i;
            return 0;
        }
    if (strcmp(word, "recompute") == 0)
        return pp_fail(PP_EUSAGE, "recompute=%s: write none, selective or full", value);
    return pp_fail(PP_EUSAGE,
                   "unknown word '%s'; there are tp pp dp cp ep vp mbs zero recompute "
                   "schedule layout",
                   word);
}

static int parse_words(const char *words, const struct pp_estimate_spec *s, struct pp_division *out)
{
    struct pp_division p = {
        .tensor = 1, .stages = 1, .context = 1, .expert = 1, .chunks = 1, .zero = 1};
    PP_OWN_MEMORY char *copy = pp_strdup(words);
    const char *layout = NULL;
    int rows = 1;
    PP_TRY(copy ? 0 : PP_ERESOURCE);
    for (char *rest = copy, *word; (word = strsep(&rest, " \t"));)
        if (*word)
            PP_TRY(read_word(word, &p, &rows, &layout));
    if (layout)
        PP_TRY(blocks_read(s->cfg, layout, &p));
    int64_t others = (int64_t)p.tensor * p.stages * p.context;
    if (p.replicas == 0)
        p.replicas = others <= s->ranks ? (int)(s->ranks / others) : 1;
    if (!p.schedule)
        p.schedule = pp_schedule_find(p.chunks > 1 ? "interleaved" : "1f1b");
    p.microbatches = s->batch / (rows * p.replicas);
    PP_TRY(parallel_check(s, &p, rows));
    PP_TRY(layout ? 0 : parallel_cut(s->cfg, &p));
    *out = p;
    return 0;
}

char *pp_parallel_text(const struct pp_division *p, int batch, char *out, size_t bytes)
{
    snprintf(out, bytes, "tp=%d pp=%d dp=%d", p->tensor, p->stages, p->replicas);
    if (p->context > 1)
        pp_text_add(out, bytes, " cp=%d", p->context);
    if (p->expert > 1)
        pp_text_add(out, bytes, " ep=%d", p->expert);
    if (p->chunks > 1)
        pp_text_add(out, bytes, " vp=%d", p->chunks);
    pp_text_add(out, bytes, " mbs=%d zero=%d recompute=%s schedule=%s", pp_division_rows(p, batch),
                p->zero, redos[p->redo], pp_division_schedule(p));
    return out;
}

int pp_estimate_words(const struct pp_estimate_spec *s, const char *words, struct pp_division *p,
                      struct pp_estimate *out)
{
    struct pp_division parsed;
    PP_TRY(parse_words(words, s, &parsed));
    if (p)
        *p = parsed;
    return pp_estimate(s, &parsed, false, out);
}
