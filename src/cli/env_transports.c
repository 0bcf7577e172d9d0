/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli env: what can connect ranks here. */
#include "ppcli/json.h"
#include "ppcli/transport.h"
#include "command.h"

bool env_probe_transport(const struct pp_transport_ops *t, char *why, size_t bytes)
{
    snprintf(why, bytes, "%s", t->missing ? t->missing : t->help);
    return !t->missing && (!t->probe || t->probe(why, bytes) == 0);
}

void env_transports(struct pp_json *j)
{
    char why[512];
    const struct pp_transport_ops *t;
    if (j)
        pp_json_array(j, "transports");
    else
        printf("\ntransports\n");
    for (int i = 0; (t = pp_transport_at(i)) != NULL; i++) {
        bool runs = env_probe_transport(t, why, sizeof(why));
        if (j) {
            pp_json_object(j, NULL);
            pp_json_str(j, "name", t->name);
            pp_json_bool(j, "runs", runs);
            pp_json_str(j, "text", why);
            pp_json_end(j);
        } else {
            printf("  %-14s %s%s\n", t->name, runs ? "" : "no: ", why);
        }
    }
    if (j)
        pp_json_end(j);
}
