/* SPDX-License-Identifier: Apache-2.0 */
#include "parts.h"

#include <string.h>

#include "ppcli/base/base.h"

#define SHOWN 16 /* ranks that seats_announce() describes */
#define SEAT_TEXT 160

/* Warns about keys for a GPU if backend = auto found no GPU. If the config names a backend, its own
 * check warns. */
static void warn_unused_gpu_keys(const struct pp_run *run)
{
    const struct pp_config *cfg = run->cfg;
    const struct {
        const char *key;
        bool set;
    } keys[] = {{"run.precision", cfg->run.precision == PP_PRECISION_TF32},
                {"run.conv", cfg->run.conv == PP_CONV_CUDNN},
                {"run.graphs", cfg->run.graphs == PP_GRAPHS_ON},
                {"run.devices", cfg->run.n_devices > 0},
                {"run.partition_sms", cfg->run.partition_sms}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (keys[i].set && strcmp(cfg->run.backend, "auto") == 0) {
            pp_log_warn("%s has no effect: backend auto is %s here", keys[i].key,
                        run->backend->name);
        }
    }
}

/* Tells the user how the run could use the cores on which none of its threads computes. */
static void advise_on_cores(const struct pp_run *run)
{
    const struct pp_layout *l = run->layout;
    const struct pp_config *cfg = run->cfg;
    const struct pp_backend_choice choice = pp_run_backend(run);
    int cores = cfg->run.cores, used = l->ranks * choice.threads;
    for (int r = 1; r < l->ranks; r++)
        if (run->seats[r].host != run->seats[0].host)
            return;
    if (used >= cores || run->places.shared)
        return;
    if (run->places.fewer)
        pp_log_info("%d of %d cores compute; other runs hold the rest", used, cores);
    else if (cfg->run.threads > 0 && cores / l->ranks > choice.threads)
        pp_log_info("%d of %d cores compute; run.threads = auto uses more", used, cores);
    else if (!pp_backend_sums_in_order(&choice))
        pp_log_info("%d of %d cores compute; more ranks (--stages, --replicas) use more", used,
                    cores);
    else
        pp_log_info("%d of %d cores compute; %d ranks (--stages, --replicas) use all", used, cores,
                    cores);
}

void seats_announce(const struct pp_run *run, const char *graphs)
{
    const struct pp_layout *l = run->layout;
    char text[SEAT_TEXT];
    int shown = l->ranks < SHOWN ? l->ranks : SHOWN;
    if (run->seats[0].device.number < 0) {
        warn_unused_gpu_keys(run);
        advise_on_cores(run);
        return;
    }
    for (int r = 0; r < shown; r++) {
        pp_log_info("rank %d, stage %d: %s", r, r % l->stages,
                    pp_seat_describe(&run->seats[r], run->backend->name, text, sizeof(text)));
    }
    if (shown < l->ranks)
        pp_log_info("... %d more ranks", l->ranks - shown);
    if (l->ranks > 1)
        pp_log_info("transport %s: %s", run->transport->name, run->transport_why);
    bool on = strcmp(graphs, "on") == 0;
    pp_log_info("graphs %s%s",
                on ? "on" : "off: ", on ? ": a step is recorded once and replayed" : graphs);
}

void seats_json(const struct pp_run *run, const char *graphs, struct pp_json *j)
{
    char text[SEAT_TEXT];
    if (run->seats[0].device.number < 0)
        return;
    pp_json_str(j, "precision", pp_precision_name(run->cfg->run.precision));
    pp_json_str(j, "transport_why", run->transport_why);
    pp_json_str(j, "graphs", graphs);
    pp_json_array(j, "devices");
    for (int r = 0; r < run->layout->ranks; r++) {
        const struct pp_seat *s = &run->seats[r];
        pp_json_object(j, NULL);
        pp_json_int(j, "rank", r);
        pp_json_int(j, "device", s->device.number);
        pp_json_str(j, "name", s->device.name);
        pp_json_str(j, "uuid", s->device.uuid);
        pp_json_int(j, "sharing", s->sharing);
        pp_json_int(j, "part", s->part);
        pp_json_int(j, "parts", s->parts);
        pp_json_str(j, "text", pp_seat_describe(s, run->backend->name, text, sizeof(text)));
        pp_json_end(j);
    }
    pp_json_end(j);
}
