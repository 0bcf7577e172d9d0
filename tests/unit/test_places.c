/* SPDX-License-Identifier: Apache-2.0 */
/* Which processors the ranks of a run get, on machines that hwloc makes up. */
#include <fcntl.h>
#include <hwloc.h>
#include <hwloc/cpukinds.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/base/cores.h"
#include "test.h"

/* Siblings n and n + 8, as laptops and servers number them; then 2n and 2n + 1, as clouds do. */
#define LAPTOP "pack:1 l3:1 l2:8 core:1 pu:2(indexes=0,8,1,9,2,10,3,11,4,12,5,13,6,14,7,15)"
#define CLOUD "pack:1 l3:1 core:4 pu:2"
#define CCX "pack:1 l3:4 core:4 pu:1"
#define SOCKETS "pack:2 [numa] l3:1 core:4 pu:1"
#define NODES "pack:2 l3:2 [numa] core:3 pu:1"
#define SIXTEEN "pack:1 l3:1 core:16 pu:1"

static const struct machine {
    const char *what, *synthetic, *mask, *fast; /* lists of processors; "": all, none faster */
    int ranks, threads;
    const char *expected; /* processors of each rank; "-": the system places them */
    bool siblings;
} machines[] = {
    {"laptop: a core each", LAPTOP, "", "", 2, 1, "0 | 1", false},
    {"laptop: all cores", LAPTOP, "", "", 2, 4, "0 1 2 3 | 4 5 6 7", false},
    {"laptop: siblings when cores are used up", LAPTOP, "", "", 1, 9, "0 8 1 2 3 4 5 6 7", true},
    {"laptop: a core's siblings stay in a rank", LAPTOP, "", "", 8, 2,
     "0 8 | 1 9 | 2 10 | 3 11 | 4 12 | 5 13 | 6 14 | 7 15", true},
    {"laptop: more ranks than processors", LAPTOP, "0-2", "", 4, 1, "-", false},
    {"cloud: siblings are neighbours", CLOUD, "", "", 2, 1, "0 | 2", false},
    {"cloud: half a core in the mask", CLOUD, "1-4", "", 2, 1, "1 | 2", false},
    {"cloud: one thread more than cores", CLOUD, "1-4", "", 1, 4, "1 2 3 4", true},
    {"one processor", CLOUD, "5", "", 1, 4, "5", false},
    {"CCX of 4: a rank stays in one cache", CCX, "", "", 2, 3, "0 1 2 | 4 5 6", false},
    {"CCX of 4: small ranks share one", CCX, "", "", 3, 2, "0 1 | 2 3 | 4 5", false},
    {"CCX of 4: too large for one", CCX, "", "", 2, 6, "0 1 2 3 4 5 | 6 7 8 9 10 11", false},
    {"CCX of 4: the rest is dealt out", CCX, "", "", 5, 3,
     "0 1 2 | 4 5 6 | 8 9 10 | 12 13 14 | 3 7 11", false},
    {"CCX of 4: holes in the mask", CCX, "0,2,5-7,12-15", "", 2, 3, "5 6 7 | 12 13 14", false},
    {"two sockets: neighbours are near", SOCKETS, "", "", 2, 2, "0 1 | 2 3", false},
    {"two sockets: a rank in each", SOCKETS, "", "", 2, 3, "0 1 2 | 4 5 6", false},
    {"two sockets: more than one has", SOCKETS, "", "", 1, 6, "0 1 2 3 4 5", false},
    {"four NUMA nodes: a rank in each", NODES, "", "", 4, 2, "0 1 | 3 4 | 6 7 | 9 10", false},
    {"four NUMA nodes: two of a package", NODES, "1-11", "", 1, 6, "6 7 8 9 10 11", false},
    {"hybrid 6P + 8E: fast ones first", "pack:1 l3:1 core:14 pu:1", "", "8-13", 2, 3,
     "8 9 10 | 11 12 13", false},
    {"hybrid 6P + 8E: slow ones when those are used up", "pack:1 l3:1 core:14 pu:1", "", "0-5", 1,
     8, "0 1 2 3 4 5 6 7", false},
    {"hybrid 6P + 8E: no rank of both kinds where it can be", "pack:1 l3:1 core:14 pu:1", "", "0-5",
     3, 4, "0 1 2 3 | 6 7 8 9 | 4 5 10 11", false},
    {"above 1,024", "pack:8 l3:1 core:256 pu:1", "1500-1503", "", 2, 2, "1500 1501 | 1502 1503",
     false},
    {"auto: one rank has the whole cores", LAPTOP, "", "", 1, 0, "0 1 2 3 4 5 6 7", false},
    {"auto: what cannot be divided is left", LAPTOP, "", "", 3, 0, "0 1 | 2 3 | 4 5", false},
    {"auto: siblings only for ranks", CLOUD, "", "", 5, 0, "0 | 1 | 2 | 4 | 6", true},
    {"auto: a mask of half cores", CLOUD, "1-4", "", 1, 0, "1 2 4", false},
    {"a rank each, sixteen", SIXTEEN, "", "", 16, 1,
     "0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 | 12 | 13 | 14 | 15", false},
};

/* What hwloc reads instead of this machine; with kinds of cores as a file. Returns its processors. */
static void make_up(const struct machine *m, struct pp_cpu_mask *mask)
{
    hwloc_topology_t t;
    hwloc_bitmap_t fast = hwloc_bitmap_alloc(), all = hwloc_bitmap_alloc();
    char path[] = "/tmp/ppcli-places-XXXXXX";
    CHECK_INT_EQ(hwloc_topology_init(&t), 0);
    CHECK_INT_EQ(hwloc_topology_set_synthetic(t, m->synthetic), 0);
    CHECK_INT_EQ(hwloc_topology_load(t), 0);
    hwloc_bitmap_copy(all, hwloc_topology_get_topology_cpuset(t));
    if (m->fast[0]) {
        CHECK_INT_EQ(hwloc_bitmap_list_sscanf(fast, m->fast), 0);
        CHECK_INT_EQ(hwloc_cpukinds_register(t, fast, 2, 0, NULL, 0), 0);
        hwloc_bitmap_andnot(fast, all, fast);
        CHECK_INT_EQ(hwloc_cpukinds_register(t, fast, 1, 0, NULL, 0), 0);
    }
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    CHECK_INT_EQ(hwloc_topology_export_xml(t, path, 0), 0);
    setenv("HWLOC_XMLFILE", path, 1);
    if (m->mask[0])
        CHECK_INT_EQ(hwloc_bitmap_list_sscanf(all, m->mask), 0);
    int cpu;
    hwloc_bitmap_foreach_begin(cpu, all) pp_mask_add(mask, cpu);
    hwloc_bitmap_foreach_end();
    hwloc_bitmap_free(fast);
    hwloc_bitmap_free(all);
    hwloc_topology_destroy(t);
}

TEST(ranks_get_cores_that_are_near_each_other)
{
    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        const struct machine *m = &machines[i];
        struct pp_cpu_mask mask = {0};
        char found[512];
        size_t used = 0;
        make_up(m, &mask);
        struct pp_places p;
        struct pp_places_spec spec = {.ranks = m->ranks, .threads = m->threads, .mask = &mask};
        CHECK_OK(pp_places_make(&spec, &p));
        for (int r = 0; r < m->ranks && p.cpus; r++) {
            used += (size_t)sprintf(found + used, "%s", r > 0 ? " |" : "");
            for (int k = 0; k < p.processors; k++)
                used += (size_t)sprintf(found + used, "%s%d", r + k > 0 ? " " : "",
                                        pp_places_of(&p, r)[k]);
        }
        if (!p.cpus)
            strcpy(found, "-");
        if (strcmp(found, m->expected) != 0)
            print_message("%s\n", m->what);
        CHECK_STR_EQ(found, m->expected);
        CHECK_INT_EQ(p.siblings, m->siblings);
        pp_places_fini(&p);
        unlink(getenv("HWLOC_XMLFILE"));
        unsetenv("HWLOC_XMLFILE");
    }
}

TEST(a_machine_that_hwloc_does_not_know_whole_is_taken_as_the_system_tells_it)
{
    struct pp_cpu_mask mask = {0};
    struct pp_cpu cpus[3];
    for (int c = 5000; c < 5003; c++)
        pp_mask_add(&mask, c);
    CHECK_INT_EQ(pp_topology_read(&mask, cpus), 3);
    CHECK_INT_EQ(cpus[2].number, 5002);
    CHECK_INT_EQ(cpus[2].sibling, 0);
}

/* All rows of the picture of a machine. */
static void draw(const char *synthetic, const char *fast, char *out)
{
    struct pp_cpu_mask mask = {0};
    static struct pp_cpu cpus[64];
    char row[256];
    make_up(&(struct machine){"", synthetic, "", fast, 0, 0, "", false}, &mask);
    int at = 0, n = pp_topology_read(&mask, cpus);
    out[0] = '\0';
    while (pp_topology_row(cpus, n, &at, row, sizeof(row)))
        strcat(strcat(out, row), "|");
    unlink(getenv("HWLOC_XMLFILE"));
    unsetenv("HWLOC_XMLFILE");
}

TEST(the_picture_has_a_row_for_each_cache)
{
    char text[512];
    draw(CLOUD, "", text);
    CHECK_STR_EQ(text, "0+1 2+3 4+5 6+7|");
    draw(NODES, "", text);
    CHECK_STR_EQ(text, "0 1 2|3 4 5|6 7 8|9 10 11|");
    draw("pack:1 l3:1 core:4 pu:1", "2-3", text);
    CHECK_STR_EQ(text, "0 1  (slower)|2 3|");
    draw("pack:2 [numa] l2:2 core:1 pu:1", "", text); /* a cache for each core */
    CHECK_STR_EQ(text, "0 1|2 3|");
}

/* Each time a run of so many ranks and threads on SOCKETS. */
static void make_run(const struct pp_cpu_mask *mask, int ranks, int threads, struct pp_places *out)
{
    CHECK_OK(pp_places_make(
        &(struct pp_places_spec){.ranks = ranks, .threads = threads, .mask = mask, .locks = true},
        out));
}

TEST(a_run_that_is_stopped_at_the_gate_holds_no_other_one_up)
{
    struct pp_cpu_mask mask = {0};
    struct pp_places places;
    char folder[] = "/tmp/ppcli-locks-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    setenv("XDG_RUNTIME_DIR", folder, 1);
    make_up(&(struct machine){"", SOCKETS, "", "", 0, 0, "", false}, &mask);
    snprintf(path, sizeof(path), "%s/ppcli", folder);
    CHECK_INT_EQ(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/ppcli/gate", folder);
    int gate = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK_INT_EQ(flock(gate, LOCK_EX), 0);
    make_run(&mask, 2, 1, &places);
    CHECK_INT_EQ(pp_places_of(&places, 1)[0], 1);
    pp_places_fini(&places);
    close(gate);
    unlink(getenv("HWLOC_XMLFILE"));
    unsetenv("HWLOC_XMLFILE");
    unsetenv("XDG_RUNTIME_DIR");
    snprintf(path, sizeof(path), "rm -r '%s'", folder);
    CHECK_INT_EQ(system(path), 0);
}

TEST(runs_keep_to_cores_that_no_other_one_has)
{
    struct pp_cpu_mask mask = {0};
    struct pp_places first, second, third;
    char folder[] = "/tmp/ppcli-locks-XXXXXX", command[64];
    assert_non_null(mkdtemp(folder));
    setenv("XDG_RUNTIME_DIR", folder, 1);
    make_up(&(struct machine){"", SOCKETS, "", "", 0, 0, "", false}, &mask);
    make_run(&mask, 2, 1, &first);
    CHECK_INT_EQ(pp_places_of(&first, 1)[0], 1);
    make_run(&mask, 1, 4, &second); /* two are left in the first cache: the other one */
    CHECK_INT_EQ(pp_places_of(&second, 0)[0], 4);
    CHECK_INT_EQ(pp_places_of(&second, 0)[3], 7);
    make_run(&mask, 1, 3, &third);
    assert_true(third.shared && third.crowded);
    assert_null(third.cpus);
    pp_places_fini(&third);
    make_run(&mask, 1, 0, &third); /* auto takes what is left */
    CHECK_INT_EQ(third.processors, 2);
    assert_true(third.fewer && !third.crowded);
    CHECK_INT_EQ(pp_places_of(&third, 0)[1], 3);
    pp_places_fini(&third);
    pp_places_fini(&first); /* as when its process ends */
    make_run(&mask, 1, 3, &third);
    assert_false(third.shared);
    CHECK_INT_EQ(pp_places_of(&third, 0)[0], 0);
    CHECK_INT_EQ(pp_places_of(&third, 0)[2], 2);
    pp_places_fini(&second);
    pp_places_fini(&third);
    unlink(getenv("HWLOC_XMLFILE"));
    unsetenv("HWLOC_XMLFILE");
    unsetenv("XDG_RUNTIME_DIR");
    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    CHECK_INT_EQ(system(command), 0);
}
