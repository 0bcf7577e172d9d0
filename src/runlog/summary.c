/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the summary of a finished run: summary.json, and text for people. */

#include "parts.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/cores.h"
#include "ppcli/ckpt/checkpoint.h"
#include "ppcli/base/base.h"

#define MIB (1024.0 * 1024.0)
#define BUSY_LOAD 0.5 /* load of the last minute from which another program must be running */

static void ranks_json(const struct pp_run *run, struct pp_json *j, const struct pp_summary *s,
                       const struct pp_pace *pace)
{
    const struct pp_layout *l = run->layout;
    pp_json_array(j, "ranks");
    for (int r = 0; r < l->ranks; r++) {
        const struct pp_exec_bytes *b = &s->ranks[r].bytes;
        pp_json_object(j, NULL);
        pp_json_int(j, "rank", r);
        pp_json_int(j, "replica", r / l->stages);
        pp_json_int(j, "stage", r % l->stages);
        pp_json_str(j, "host", run->seats[r].host_name);
        if (run->seats[r].device.number >= 0)
            pp_json_int(j, "device", run->seats[r].device.number);
        pp_json_dbl(j, "busy", s->ranks[r].busy);
        pp_json_dbl(j, "slower", pace->ranks[r].factor);
        if (pace->ranks[r].factor > 1)
            pp_json_int(j, "slower_since", pace->ranks[r].from);
        if (s->ranks[r].waited >= 0)
            pp_json_dbl(j, "waited_for_core", s->ranks[r].waited);
        pp_json_dbl(j, "update_seconds", s->forecast->stages.between[r % l->stages]);
        pp_json_uint(j, "peak_bytes", b->total);
        pp_json_uint(j, "parameter_bytes", b->parameters);
        pp_json_uint(j, "packed_bytes", b->packed);
        pp_json_uint(j, "gradient_bytes", b->gradients);
        pp_json_uint(j, "optimizer_bytes", b->optimizer);
        pp_json_uint(j, "activation_bytes", b->activations);
        pp_json_uint(j, "message_bytes", b->messages);
        pp_json_end(j);
    }
    pp_json_end(j);
}

/* Writes the mean seconds that F, I and W of a full-size micro-batch take on every stage, counted
 * over all chunks. */
static void times_json(const struct pp_run *run, struct pp_json *j, const struct pp_forecast *f)
{
    pp_json_array(j, "times");
    for (int v = 0; v < run->layout->n_virtual; v++) {
        pp_json_object(j, NULL);
        pp_json_int(j, "stage", v);
        pp_json_int(j, "rank", run->layout->rank_of[v]);
        pp_json_dbl(j, "F", f->stages.f[v]);
        pp_json_dbl(j, "I", f->stages.i[v]);
        pp_json_dbl(j, "W", f->stages.w[v]);
        pp_json_end(j);
    }
    pp_json_end(j);
}

static void change_json(void *ctx, const struct pp_change *c)
{
    struct pp_json *j = ctx;
    pp_json_object(j, NULL);
    pp_json_int(j, "step", c->step);
    pp_json_str(j, "key", c->key);
    pp_json_str(j, "was", c->was);
    pp_json_str(j, "is", c->is);
    pp_json_end(j);
}

/* Writes the keys that the user has changed by --allow when the run was resumed. Without changes
 * the key is absent. */
static void changes_json(const struct pp_metrics_start *from, struct pp_json *j)
{
    if (!from->changes)
        return;
    pp_json_array(j, "changes");
    (void)pp_changes_visit(from->changes, change_json, j); /* they were checked at the start */
    pp_json_end(j);
}

static void print_change(void *ctx, const struct pp_change *c)
{
    fprintf(ctx, "changed          after step %lld %s is %s, was %s\n", c->step, c->key, c->is,
            c->was);
}

void norm_json(const struct pp_norm_sums *n, struct pp_json *j)
{
    if (n->steps == 0)
        return;
    pp_json_dbl(j, "grad_norm", n->sum / (double)n->steps);
    pp_json_dbl(j, "grad_norm_max", n->most);
    pp_json_dbl(j, "clipped_share", (double)n->clipped / (double)n->steps);
}

void summary_json(const struct pp_metrics_start *from, const struct pp_summary *s,
                  struct pp_json *j)
{
    const struct pp_run *run = from->run;
    int targets = pp_model_text_targets(run->model);
    pp_json_int(j, "schema", PP_METRICS_SCHEMA);
    pp_json_str(j, "ppcli", PP_VERSION);
    if (s->tested) {
        pp_scores_json(run->cfg->train.loss, "test_", &s->test_scores, j);
        pp_json_dbl(j, "test_loss", s->test_loss);
        if (targets > 0)
            pp_json_dbl(j, "test_perplexity", exp(s->test_loss));
    }
    if (s->best.metric) {
        pp_json_object(j, "best");
        pp_json_str(j, "metric", s->best.metric);
        pp_json_dbl(j, "value", s->best.value);
        pp_json_int(j, "step", s->best.step);
        pp_json_int(j, "epoch", s->best.epoch);
        pp_json_end(j);
    }
    if (s->ended_by_patience)
        pp_json_str(j, "ended_by", "train.patience");
    pp_scores_json(run->cfg->train.loss, "train_", &s->train_scores, j);
    pp_json_dbl(j, "train_loss", s->train_loss);
    if (targets > 0)
        pp_json_dbl(j, "train_perplexity", exp(s->train_loss));
    pp_json_dbl(j, "samples_per_second", s->samples_per_second);
    if (targets > 0)
        pp_json_dbl(j, "tokens_per_second", s->samples_per_second * targets);
    pp_json_dbl(j, "flops_per_second", s->samples_per_second * pp_model_flops(run->model));
    pp_json_dbl(j, "bubble_measured", s->bubble.idle);
    pp_bubble_write_json(&s->bubble, j);
    pp_json_dbl(j, "bubble_ideal", s->bubble_ideal);
    pp_json_str(j, "advice", s->advice[0] ? s->advice : NULL);
    if (s->load >= 0)
        pp_json_dbl(j, "load_before", s->load);
    if (s->waited >= 0)
        pp_json_dbl(j, "waited_for_core", s->waited);
    if (s->forecast->known) {
        pp_json_dbl(j, "bubble_predicted", s->forecast->bubble);
        pp_json_dbl(j, "step_seconds_predicted", s->forecast->step_seconds);
        pp_json_dbl(j, "schedule_bound", s->schedule_bound);
    }
    pp_json_str(j, "weights_sha256", s->weights_sha256);
    pp_json_int(j, "epochs", s->epochs);
    pp_json_int(j, "steps", s->steps);
    pp_json_int(j, "samples", s->samples);
    pp_json_int(j, "steps_before", s->before.steps);
    pp_json_int(j, "skipped_steps", s->skipped);
    pp_json_int(j, "rewinds", s->rewinds);
    pp_json_dbl(j, "train_seconds", s->train_seconds);
    pp_json_dbl(j, "train_seconds_before", s->before.seconds);
    pp_json_dbl(j, "test_seconds", s->test_seconds);
    pp_json_dbl(j, "save_seconds", s->save_seconds);
    pp_json_dbl(j, "input_wait_seconds", s->input_seconds);
    pp_json_dbl(j, "wall_seconds", s->wall_seconds);
    norm_json(&s->norms, j);
    pp_json_int(j, "stages", run->layout->stages);
    pp_json_int(j, "replicas", run->layout->replicas);
    pp_json_int(j, "microbatches", run->cfg->pipeline.microbatches);
    pp_json_str(j, "schedule", run->cfg->pipeline.schedule);
    pp_json_str(j, "schedule_sha256", s->schedule_sha256);
    pp_json_bool(j, "exact", run->cfg->train.exact);
    pp_json_int(j, "coalesce", run->layout->coalesce);
    changes_json(from, j);
    pp_json_array(j, "peak_bytes");
    for (int r = 0; r < run->layout->ranks; r++)
        pp_json_uint(j, NULL, s->ranks[r].bytes.total);
    pp_json_end(j);
    ranks_json(run, j, s, from->pace);
    times_json(run, j, s->forecast);
}

/* Writes which layers a rank has, as "0-3", or "0-3 8-11" if it has several chunks. */
static void layers_of_rank(const struct pp_layout *l, int pipeline_rank, char *out, size_t bytes)
{
    out[0] = '\0';
    for (int s = 0; s < l->n_virtual; s++)
        if (l->rank_of[s] == pipeline_rank)
            pp_text_add(out, bytes, "%s%d-%d", out[0] ? " " : "", l->first[s], l->last[s]);
}

static void print_ranks(const struct pp_run *run, const struct pp_summary *s,
                        const struct pp_pace *pace, FILE *f)
{
    const struct pp_layout *l = run->layout;
    int shown = l->ranks <= 16 ? l->ranks : 16;
    bool several = false;
    for (int r = 1; r < l->ranks; r++)
        several |= strcmp(run->seats[r].host_name, run->seats[0].host_name) != 0;
    for (int r = 0; r < shown; r++) {
        char layers[64];
        layers_of_rank(l, r % l->stages, layers, sizeof(layers));
        fprintf(f, "  rank %-3d       layers %s, busy %.1f %%, peak %.1f MiB%s%s\n", r, layers,
                s->ranks[r].busy * 100, (double)s->ranks[r].bytes.total / MIB,
                several ? ", host " : "", several ? run->seats[r].host_name : "");
    }
    if (shown < l->ranks)
        fprintf(f, "  ... %d more ranks in summary.json\n", l->ranks - shown);
    for (int r = 0; r < l->ranks; r++) {
        if (pace->ranks[r].factor > 1) {
            fprintf(f,
                    "slow rank        rank %d (%s): since step %lld it takes %.1f times its "
                    "expected time\n",
                    r, run->seats[r].host_name, (long long)pace->ranks[r].from,
                    pace->ranks[r].factor);
        }
    }
}

static void print_bubble(const struct pp_run *run, const struct pp_summary *s, FILE *f)
{
    char text[PP_BUBBLE_TEXT_MAX];
    fprintf(f, "bubble           %s\n", pp_bubble_text(&s->bubble, text));
    fprintf(f, "ideal bubble     %.1f %% (%s, stages %d, micro-batches %d)\n",
            s->bubble_ideal * 100, pp_layout_schedule(run->layout), run->cfg->pipeline.stages,
            run->layout->plans[0].m);
    if (s->bubble.idle < s->bubble_ideal - 0.0005) {
        fputs("                 the textbook value; ppcli can be below it, because it sends input\n"
              "                 gradients early and overlaps steps\n",
              f);
    }
    if (s->advice[0])
        fprintf(f, "advice           %s\n", s->advice);
}

/* Prints a warning if other programs used the machine or it has too few cores, which spoils the
 * measured figures. */
static void print_machine(const struct pp_run *run, const struct pp_summary *s, FILE *f)
{
    struct pp_machine machine;
    char load[48] = "", waited[64] = "";
    int here = 0; /* ranks on the same host as this one */
    if (s->waited >= 0 ? s->waited < PP_BUBBLE_WAITED : s->load < BUSY_LOAD)
        return;
    if (s->load >= 0)
        snprintf(load, sizeof(load), "load %.1f", s->load);
    if (s->waited >= 0)
        snprintf(waited, sizeof(waited), "ranks waited %.0f %% of the time for a core",
                 s->waited * 100);
    for (int r = 0; r < run->layout->ranks; r++)
        here += run->seats[r].host == run->seats[0].host;
    int cores = run->places.cores; /* this thread is pinned to one core */
    if (here > cores) {
        pp_machine_describe(true, &machine);
        if (!machine.limit[0] && cores < machine.cores)
            snprintf(machine.limit, sizeof(machine.limit), "%s", PP_LIMIT_MASK);
        fprintf(f,
                "few cores        %d ranks share %d core%s%s%s%s, so this is not the speed of a "
                "pipeline%s%s%s\n",
                here, cores, pp_plural(cores), machine.limit[0] ? " (limit: " : "", machine.limit,
                machine.limit[0] ? ")" : "", waited[0] ? " (" : "", waited, waited[0] ? ")" : "");
    } else {
        fprintf(f,
                "busy machine     other programs used this machine (%s%s%s): do not trust speed "
                "and bubble\n",
                load, load[0] && waited[0] ? "; " : "", waited);
    }
}

/* Returns a description of the machines on which a run of the same config has the same digest. */
static const char *find_comparable(const struct pp_run *run)
{
    const struct pp_backend_choice choice = pp_run_backend(run);
    if (run->backend->own_memory)
        return run->cfg->run.conv == PP_CONV_CUDNN
                   ? "the same kind of GPU and versions of cuBLASLt and cuDNN"
                   : "the same kind of GPU and version of cuBLASLt";
    if (pp_backend_sums_in_order(&choice))
        return "any processor, number of stages and threads, and schedule, at the same "
               "run.precision";
    return "the same kind of processor and, with run.gemm = cblas, the same library";
}

static void print_norms(const struct pp_run *run, const struct pp_norm_sums *n, FILE *f)
{
    if (n->steps == 0)
        return;
    fprintf(f, "gradient norm    %.4g in the mean, %.4g at most", n->sum / (double)n->steps,
            n->most);
    if (run->cfg->train.clip_norm > 0)
        fprintf(f, "; %.1f %% of steps clipped", 100 * (double)n->clipped / (double)n->steps);
    fputs(" (last epoch)\n", f);
}

void summary_print(const struct pp_metrics_start *from, const struct pp_summary *s)
{
    const struct pp_run *run = from->run;
    FILE *f = from->out;
    enum pp_loss_kind kind = run->cfg->train.loss;
    int targets = pp_model_text_targets(run->model);
    char text[16], loss[16], test[16], scores[PP_SCORES_TEXT], ppl[32] = "", tokens[48] = "",
                                                               resumed[40] = "";
    if (targets > 0) {
        if (!isnan(s->train_loss))
            snprintf(ppl, sizeof(ppl), "perplexity %.4g, ", exp(s->train_loss));
        snprintf(tokens, sizeof(tokens), ", %.0f tokens/s", s->samples_per_second * targets);
    }
    if (s->tested && targets > 0) {
        fprintf(f, "test loss        %s   (perplexity %.4g, %s, %d windows)\n",
                pp_mean_text(s->test_loss, test), exp(s->test_loss),
                pp_scores_text(kind, &s->test_scores, scores), run->layout->test_n);
    } else if (s->tested) {
        pp_scores_print(kind, &s->test_scores, s->test_loss, run->layout->test_n, f);
    }
    if (s->best.metric) {
        fprintf(f, "best             %s %s after epoch %lld%s%s%s\n", s->best.metric,
                pp_mean_text(s->best.value, loss), (long long)s->best.epoch,
                from->dir[0] ? ": " : "", from->dir,
                from->dir[0] ? "/" PP_CKPT_DIR "/" PP_CKPT_BEST : "");
    }
    if (s->ended_by_patience) {
        fprintf(f, "ended by         train.patience = %d: no better test in %d\n",
                run->cfg->train.patience, run->cfg->train.patience);
    }
    fprintf(f, "train loss       %s   (%s%s, last epoch)\n", pp_mean_text(s->train_loss, loss), ppl,
            pp_scores_text(kind, &s->train_scores, scores));
    int64_t steps = s->steps - s->before.steps;
    if (s->before.steps > 0)
        snprintf(resumed, sizeof(resumed), " after step %lld", (long long)s->before.steps);
    fprintf(f,
            "throughput       %.*f samples/s%s, %.3g GF/s   (%.3f ms a step, %lld steps%s, %s in "
            "all)\n",
            s->samples_per_second < 10 ? 2 : 0, s->samples_per_second, tokens,
            s->samples_per_second * pp_model_flops(run->model) * 1e-9,
            (s->train_seconds - s->before.seconds) / (double)steps * 1e3, (long long)steps, resumed,
            pp_clock_duration(s->wall_seconds, text, sizeof(text)));
    fprintf(
        f,
        "seconds          %.2f of training, of which %.2f waiting for input; %.2f of tests, %.2f "
        "of saving\n",
        s->train_seconds - s->before.seconds, s->input_seconds, s->test_seconds, s->save_seconds);
    print_norms(run, &s->norms, f);
    (void)pp_changes_visit(from->changes, print_change, f);
    if (s->skipped > 0) {
        fprintf(f, "not finite       %lld batches not used, %lld rewinds\n", (long long)s->skipped,
                (long long)s->rewinds);
    }
    print_bubble(run, s, f);
    print_machine(run, s, f);
    print_ranks(run, s, from->pace, f);
    fprintf(f, "weights_sha256   %s\n", s->weights_sha256);
    fprintf(f, "comparable with  %s\n", find_comparable(run));
    if (from->dir[0])
        fprintf(f, "run folder       %s\n", from->dir);
    fflush(f);
}
