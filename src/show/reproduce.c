/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares a run with the same run again: losses at every step that the run has logged, tensors at
 * every checkpoint that it has kept, the digest at its end. A run whose config changed when it was
 * resumed consists of parts.
 */
#include "reproduce.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

#define DIGITS 12 /* of losses that were added up in other pieces */

/* ---- reading the original */

static int list_steps(const json_t *records, const char *key, int64_t **out, int *out_n)
{
    int n = (int)json_array_size(records);
    *out_n = 0;
    PP_ALLOC(*out, n + 1);
    for (int i = 0; i < n; i++) {
        double step = report_number(json_array_get(records, (size_t)i), key);
        if (step >= 0)
            (*out)[(*out_n)++] = (int64_t)step;
    }
    return 0;
}

/* The digests of the data, as the state of a checkpoint has them. */
static const char *const state_names[4] = {"data.train.images", "data.train.labels",
                                           "data.test.images", "data.test.labels"};

/* Lists the checkpoints, the oldest first, and reads what the newest one says of the run. */
static int read_checkpoints(struct pp_original *o)
{
    PP_TRY(pp_ckpt_list(o->report->dir, &o->saves, &o->n_saves));
    for (int i = 0; i < o->n_saves / 2; i++) {
        int64_t other = o->saves[o->n_saves - 1 - i];
        o->saves[o->n_saves - 1 - i] = o->saves[i];
        o->saves[i] = other;
    }
    for (int i = o->n_saves - 1; i >= 0 && !o->config; i--) {
        char path[PP_PATH_MAX];
        PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
        PP_TRY(pp_ckpt_step_path(o->report->dir, o->saves[i], path));
        if (pp_ckpt_open(path, PP_CKPT_STRUCTURE, &ck) < 0)
            continue; /* damaged: the comparison says so */
        const char *changes = pp_ckpt_state(ck)->changes;
        for (int k = 0; k < 4; k++)
            o->data_crc[k] = pp_ckpt_get(pp_ckpt_state(ck), state_names[k], 0);
        o->config = pp_strdup(ck->config ? ck->config : "");
        o->changes = changes ? pp_strdup(changes) : NULL;
        PP_TRY(o->config && (o->changes || !changes) ? 0 : PP_ERESOURCE);
    }
    pp_error_clear();
    return 0;
}

static int64_t last_step(const struct pp_original *o)
{
    size_t n = json_array_size(o->report->epochs);
    double epoch = n > 0 ? report_number(json_array_get(o->report->epochs, n - 1), "step") : 0;
    int64_t last = epoch > 0 ? (int64_t)epoch : 0;
    if (o->n_saves > 0 && o->saves[o->n_saves - 1] > last)
        last = o->saves[o->n_saves - 1];
    if (o->n_records > 0 && o->records[o->n_records - 1] > last)
        last = o->records[o->n_records - 1];
    return last;
}

/* ---- parts */

/* A value of the config that holds up to a step. */
static void add_setting(struct pp_original *o, struct reproduce_part *p, const char *key,
                        const char *value)
{
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->settings[i].key, key) == 0)
            return; /* an earlier change of this key has it */
    if (p->n == PP_ORIGINAL_SETTINGS) {
        o->too_many = true;
        return;
    }
    snprintf(p->keys[p->n], sizeof(p->keys[0]), "%s", key);
    snprintf(p->values[p->n], sizeof(p->values[0]), "%s", strcmp(value, "empty") == 0 ? "" : value);
    p->settings[p->n] = (struct pp_setting){p->keys[p->n], p->values[p->n], NULL};
    p->n++;
}

static void add_end(struct pp_original *o, int64_t step)
{
    int at = 0;
    while (at < o->n_parts && o->parts[at].end < step)
        at++;
    if (step <= 0 || (at < o->n_parts && o->parts[at].end == step))
        return;
    if (o->n_parts == REPRODUCE_PARTS_MAX) {
        o->too_many = true;
        return;
    }
    memmove(&o->parts[at + 1], &o->parts[at], (size_t)(o->n_parts - at) * sizeof(*o->parts));
    o->n_parts++;
    o->parts[at] = (struct reproduce_part){.end = step};
}

static void end_at_change(void *ctx, const struct pp_change *c)
{
    struct pp_original *o = ctx;
    add_end(o, c->step);
}

/* Lets the parts before a change have the old value, and those after it allow it. */
static void note_change(struct pp_original *o, int64_t step, const char *key, const char *was)
{
    for (int i = 0; i < o->n_parts; i++) {
        struct reproduce_part *p = &o->parts[i];
        if (p->end <= step)
            add_setting(o, p, key, was);
        else if (!pp_has_word(p->allow, key))
            pp_text_add(p->allow, sizeof(p->allow), "%s%s", p->allow[0] ? "," : "", key);
    }
}

static void take_change(void *ctx, const struct pp_change *c)
{
    note_change(ctx, c->step, c->key, c->was);
}

/* Finds where a resumed run had another value of `field`, and what the parts before had for `key`.
 * `pass` 0 notes the steps, 1 the values. */
static void note_resumes(struct pp_original *o, int pass, const char *field, const char *key)
{
    double before = report_number(o->report->header, field);
    const json_t *event;
    size_t i;
    json_array_foreach(o->report->events, i, event)
    {
        double now = report_number(event, field), step = report_number(event, "step");
        char was[32];
        if (strcmp(report_text(event, "type"), "resume") != 0 || !(step >= 0) || isnan(now))
            continue;
        snprintf(was, sizeof(was), "%.0f", before);
        if (now < before || now > before) {
            if (pass == 0)
                add_end(o, (int64_t)step);
            else
                note_change(o, (int64_t)step, key, was);
        }
        before = now;
    }
}

/* Notes what changes bits without --allow: the number of replicas, and the length of a run whose
 * learning rate depends on it. */
static void note_lengths(struct pp_original *o, int pass)
{
    char schedule[32] = "", steps[32] = "";
    const char *config = o->report->config ? o->report->config : "";
    pp_config_written(config, "train.lr_schedule", schedule, sizeof(schedule));
    pp_config_written(config, "train.lr_steps", steps, sizeof(steps));
    note_resumes(o, pass, "replicas", "pipeline.replicas");
    if (pp_has_word("linear cosine wsd", schedule) && atoll(steps) == 0)
        note_resumes(o, pass, "total_steps", "train.lr_steps");
}

static int divide(struct pp_original *o)
{
    add_end(o, last_step(o));
    PP_TRY(pp_changes_visit(o->changes, end_at_change, o));
    note_lengths(o, 0);
    PP_TRY(pp_changes_visit(o->changes, take_change, o));
    note_lengths(o, 1);
    return o->too_many ? pp_fail(PP_ECONFIG,
                                 "%s was resumed with other settings more often than the %d times "
                                 "that can be repeated",
                                 o->report->name, REPRODUCE_PARTS_MAX - 1)
                       : 0;
}

static int open_original(const char *run, struct pp_original *o)
{
    char dir[PP_PATH_MAX];
    PP_TRY(pp_run_dir_of(run, dir));
    PP_TRY(pp_report_open(dir[0] ? dir : run, &o->report));
    PP_TRY(read_checkpoints(o));
    PP_TRY(list_steps(o->report->steps, "step", &o->records, &o->n_records));
    if (last_step(o) == 0)
        return pp_fail(PP_ENOINPUT,
                       "%s has neither checkpoints nor steps in metrics.jsonl: there "
                       "is nothing to compare with",
                       run);
    return divide(o);
}

int pp_original_open(const char *run, struct pp_original **out)
{
    struct pp_original *o;
    PP_ALLOC(o, 1);
    PP_TRY_UNDO(open_original(run, o), pp_original_close(&o));
    *out = o;
    return 0;
}

void pp_original_close(struct pp_original **original)
{
    struct pp_original *o = *original;
    if (!o)
        return;
    pp_report_close(&o->report);
    pp_free(o->saves);
    pp_free(o->records);
    pp_free(o->changes);
    pp_free(o->config);
    pp_free(o);
    *original = NULL;
}

bool pp_original_part(const struct pp_original *o, int i, struct pp_original_part *out)
{
    if (i >= o->n_parts)
        return false;
    const struct reproduce_part *p = &o->parts[i];
    *out = (struct pp_original_part){.replay = {.saves = o->saves,
                                                .records = o->records,
                                                .n_saves = o->n_saves,
                                                .n_records = o->n_records,
                                                .end = p->end},
                                     .n_settings = p->n,
                                     .allow = p->allow};
    memcpy(out->settings, p->settings, sizeof(p->settings));
    return true;
}

/* ---- comparing losses */

struct losses {
    int equal, rounded, differ, alone; /* rounded: equal in DIGITS digits; alone: in one run only */
    int64_t first;                     /* step of the first that differs; -1: none */
    double was, is;
    const char *key;
};

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static bool is_equal(double a, double b, bool *exact)
{
    char one[40], other[40];
    *exact = bits_of(a) == bits_of(b) || (isnan(a) && isnan(b));
    snprintf(one, sizeof(one), "%.*g", DIGITS, a);
    snprintf(other, sizeof(other), "%.*g", DIGITS, b);
    return *exact || strcmp(one, other) == 0;
}

static const json_t *find_record(const json_t *records, double step)
{
    size_t i;
    const json_t *o;
    json_array_foreach(records, i, o)
    {
        double at = report_number(o, "step");
        if (!(at < step) && !(at > step))
            return o;
    }
    return NULL;
}

/* Compares one number of all records of a kind. Records of steps count only if they cover as many
 * samples. */
static void compare_losses(const json_t *then, const json_t *now, const char *key, struct losses *l)
{
    size_t i;
    const json_t *a;
    bool exact;
    json_array_foreach(then, i, a)
    {
        double step = report_number(a, "step"), was = report_number(a, key);
        const json_t *b = find_record(now, step);
        double of = report_number(a, "samples"), rows = report_number(b, "samples");
        if (!json_object_get(a, key))
            continue;
        if (!b || of < rows || of > rows) {
            l->alone++;
            continue;
        }
        double is = report_number(b, key);
        if (is_equal(was, is, &exact)) {
            *(exact ? &l->equal : &l->rounded) += 1;
            continue;
        }
        if (l->differ++ == 0 || (int64_t)step < l->first) {
            l->first = (int64_t)step;
            l->was = was;
            l->is = is;
            l->key = key;
        }
    }
}

static void print_losses(const char *label, const struct losses *l, FILE *f)
{
    int n = l->equal + l->rounded + l->differ;
    if (n + l->alone == 0)
        return;
    fprintf(f, "%-16s %d of %d equal", label, l->equal + l->rounded, n);
    if (l->rounded > 0)
        fprintf(f, ", %d of them in %d digits (added up in other pieces)", l->rounded, DIGITS);
    if (l->alone > 0)
        fprintf(f, "; %d not compared: other steps", l->alone);
    fputc('\n', f);
}

/* ---- comparing checkpoints */

/* Compares the checkpoints of a step. *out_there is whether both runs have it. */
static int compare_step(const struct pp_original *o, const char *again, int64_t step,
                        bool *out_there, struct pp_ckpt_difference *out)
{
    char path[PP_PATH_MAX];
    PP_OWN(pp_ckpt_close) struct pp_ckpt *then = NULL;
    PP_OWN(pp_ckpt_close) struct pp_ckpt *now = NULL;
    *out_there = false;
    PP_TRY(pp_ckpt_step_path(again, step, path));
    int rc = pp_ckpt_open(path, PP_CKPT_STRUCTURE, &now);
    if (rc == PP_ENOINPUT) {
        pp_error_clear();
        return 0;
    }
    PP_TRY(rc);
    *out_there = true;
    PP_TRY(pp_ckpt_step_path(o->report->dir, step, path));
    rc = pp_ckpt_open(path, PP_CKPT_STRUCTURE, &then);
    if (rc == PP_EFORMAT) { /* too damaged to be read at all */
        *out = (struct pp_ckpt_difference){.tensors = 1, .missing = PP_CKPT_NOT_IN_FIRST};
        pp_error_clear();
        return 0;
    }
    PP_TRY(rc);
    return pp_ckpt_compare(then, now, out);
}

static int compare_checkpoints(const struct pp_original *o, const char *again,
                               struct reproduce_result *r, FILE *f)
{
    int equal = 0, compared = 0;
    for (int i = 0; i < o->n_saves; i++) {
        struct pp_ckpt_difference d;
        bool there = false;
        PP_TRY(compare_step(o, again, o->saves[i], &there, &d));
        compared += there;
        if (there && d.tensors == 0) {
            equal++;
            r->later |= r->save_step >= 0;
            r->equal = r->save_step < 0 ? o->saves[i] : r->equal;
        } else if (there && r->save_step < 0) {
            r->save_step = o->saves[i];
            r->d = d;
        }
    }
    if (o->n_saves == 0)
        return 0;
    fprintf(f, "%-16s %d of %d equal", "checkpoints", equal, compared);
    if (compared < o->n_saves)
        fprintf(f, "; %d not compared: the new run did not reach them", o->n_saves - compared);
    fputc('\n', f);
    return 0;
}

/* ---- the result */

static void write_tensor(const struct reproduce_result *r, char *out, size_t bytes)
{
    const struct pp_ckpt_difference *d = &r->d;
    out[0] = '\0';
    if (r->save_step < 0)
        return;
    pp_text_add(out, bytes, "; at the checkpoint of step %" PRId64 " ", r->save_step);
    if (d->missing == PP_CKPT_NOT_IN_FIRST && !d->name[0])
        pp_text_add(out, bytes, "the original cannot be read");
    else if (d->missing != 0)
        pp_text_add(out, bytes, "tensor %s %s", d->name,
                    d->missing == PP_CKPT_OTHER_SHAPE ? "has another shape"
                                                      : "is in one of the two only");
    else
        pp_text_add(out, bytes,
                    "tensor %s differs first: element %s was %.9g, is %.9g (%" PRIu64 " of %" PRIu64
                    " elements, %d tensor%s)",
                    d->name, d->place, (double)d->was, (double)d->is, d->values, d->elements,
                    d->tensors, pp_plural(d->tensors));
}

static int fail_different(const struct pp_original *o, struct pp_config *cfg,
                          const struct reproduce_result *r, const struct losses *l)
{
    char tensor[1024], cause[REPRODUCE_TEXT], loss[256] = "";
    int64_t step = r->loss_step;
    if (step < 0 || (r->save_step >= 0 && r->save_step < step))
        step = r->save_step;
    if (r->loss_step >= 0)
        snprintf(loss, sizeof(loss), ": %s of step %" PRId64 " was %.9g, is %.9g", l->key, l->first,
                 l->was, l->is);
    write_tensor(r, tensor, sizeof(tensor));
    PP_TRY(reproduce_cause(o, cfg, r, cause));
    if (step < 0)
        return pp_fail(PP_EDIFFERS,
                       "%s is not reproduced: only the digest of its final weights differs; likely "
                       "cause: %s",
                       o->report->name, cause);
    return pp_fail(PP_EDIFFERS,
                   "%s is not reproduced: the first step known to differ is %" PRId64 "%s%s; "
                   "likely cause: %s",
                   o->report->name, step, loss, tensor, cause);
}

/* Compares the digests of the final weights. Both runs must have ended. */
static void compare_end(const struct pp_original *o, const struct pp_report *again,
                        struct reproduce_result *r, FILE *f)
{
    const char *was = report_text(o->report->summary, "weights_sha256");
    const char *is = report_text(again->summary, "weights_sha256");
    if (!was[0] || !is[0])
        return;
    r->end_differs = strcmp(was, is) != 0;
    r->later |= !r->end_differs;
    fprintf(f, "%-16s %s\n", "weights_sha256", is);
    if (r->end_differs)
        fprintf(f, "%-16s %s\n", "  was", was);
}

int pp_original_compare(const struct pp_original *o, struct pp_config *cfg, const char *again,
                        FILE *f)
{
    PP_OWN(pp_report_close) struct pp_report *now = NULL;
    struct losses steps = {.first = -1}, epochs = {.first = -1}, tests = {.first = -1};
    PP_TRY(pp_report_open(again, &now));
    struct reproduce_result r = {.again = now, .loss_step = -1, .save_step = -1, .equal = -1};
    compare_losses(o->report->steps, now->steps, "loss", &steps);
    compare_losses(o->report->epochs, now->epochs, "train_loss", &epochs);
    compare_losses(o->report->epochs, now->epochs, "test_loss", &tests);
    print_losses("losses of steps", &steps, f);
    print_losses("of epochs", &epochs, f);
    print_losses("of tests", &tests, f);
    PP_TRY(compare_checkpoints(o, again, &r, f));
    compare_end(o, now, &r, f);
    const struct losses *all[] = {&steps, &epochs, &tests}, *first = NULL;
    for (int i = 0; i < 3; i++)
        if (all[i]->first >= 0 && (!first || all[i]->first < first->first))
            first = all[i];
    r.loss_step = first ? first->first : -1;
    r.only_tests = first == &tests && steps.differ + epochs.differ == 0 && r.save_step < 0;
    r.later = r.later && !r.end_differs && !first;
    if (!first && r.save_step < 0 && !r.end_differs) {
        int n = steps.equal + steps.rounded + epochs.equal + epochs.rounded;
        if (n == 0 && o->n_saves == 0)
            return pp_fail(PP_ECHECK, "nothing of %s could be compared", o->report->name);
        fprintf(f, "%s is reproduced: all that was compared is equal\n", o->report->name);
        return 0;
    }
    return fail_different(o, cfg, &r, first);
}
