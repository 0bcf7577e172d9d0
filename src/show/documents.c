/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON documents of this module, and columns that several have. */
#include "results.h"

#define BUBBLE(m) PP_FIELD(struct pp_bubble, m)
const struct pp_column pp_bubble_columns[] = {
    {"bubble_schedule", BUBBLE(schedule), .help = "parts of the bubble, which add up to it"},
    {"bubble_imbalance", BUBBLE(imbalance)},
    {"bubble_waiting", BUBBLE(waiting)},
    {"busiest_stage", BUBBLE(busiest), .help = "the stage with most work"},
    {"busiest_share", BUBBLE(work), .help = "its share of all work"},
    {0}};

const struct pp_column pp_show_documents[] = {{"plan", .inner = pp_plan_columns},
                                              {"mark", .inner = pp_mark_columns},
                                              {"tune", .inner = pp_best_columns},
                                              {"estimate", .inner = pp_machine_columns},
                                              {"profile", .inner = pp_profile_columns},
                                              {"profile: --against", .inner = pp_against_columns},
                                              {"explain", .inner = pp_explain_columns},
                                              {"explain: program", .inner = pp_archive_columns},
                                              {"keys: operators", .inner = pp_operators_columns},
                                              {"inspect", .inner = pp_inspect_columns},
                                              {"env", .inner = pp_env_columns},
                                              {"env: hosts", .inner = pp_hosts_columns},
                                              {0}};
