/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory and processor time there is, from made-up machines: the nearest of all limits
 * counts. */
#include <stdio.h>
#include <stdlib.h>

#include "../../src/train/rank.h"
#include "ppcli/base/files.h"
#include "../../src/base/cores.h"
#include "test.h"

#define GIB ((uint64_t)1 << 30)

static void put(const char *root, const char *path, const char *text)
{
    char name[PP_PATH_MAX], dir[PP_PATH_MAX];
    CHECK_OK(pp_path_format(name, "%s/%s", root, path));
    CHECK_OK(pp_path_format(dir, "%s", name));
    *strrchr(dir, '/') = '\0';
    CHECK_OK(pp_dir_create(dir));
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static uint64_t room_in(const char *root, enum pp_memory_limit kind)
{
    struct pp_memory_left room;
    pp_memory_left_find(root, &room);
    return room.bytes[kind];
}

static const char *machine(void)
{
    static char root[64];
    strcpy(root, "/tmp/ppcli-room-XXXXXX");
    assert_non_null(mkdtemp(root));
    put(root, "proc/meminfo", "MemTotal:  16777216 kB\nMemFree: 1 kB\nMemAvailable:  8388608 kB\n");
    return root;
}

static void forget(const char *root)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    CHECK_INT_EQ(system(command), 0);
}

TEST(what_the_system_has_available_is_a_limit)
{
    const char *root = machine();
    pp_fail(PP_EIO, "of the caller");
    CHECK_INT_EQ(room_in(root, PP_MEMORY_SYSTEM), 8 * GIB);
    CHECK_INT_EQ(pp_error_get()->code, PP_EIO); /* looking leaves the error record as it is */
    pp_error_clear();
    forget(root);
}

TEST(nothing_readable_is_no_limit)
{
    const char *root = machine();
    put(root, "proc/meminfo", "MemAvailable: none\n");
    put(root, "proc/self/cgroup", "nonsense\n0::\n:\n");
    CHECK_INT_EQ(room_in(root, PP_MEMORY_SYSTEM), UINT64_MAX);
    CHECK_INT_EQ(room_in(root, PP_MEMORY_GROUP), UINT64_MAX);
    forget(root);
}

TEST(a_control_group_counts_without_the_files_it_holds)
{
    const char *root = machine();
    put(root, "proc/self/cgroup", "0::/job.slice/step\n");
    put(root, "sys/fs/cgroup/job.slice/step/memory.max", "3221225472\n");
    put(root, "sys/fs/cgroup/job.slice/step/memory.current", "2147483648\n");
    put(root, "sys/fs/cgroup/job.slice/step/memory.stat",
        "anon 1\nfile_mapped 7\nfile 1073741824\n");
    CHECK_INT_EQ(room_in(root, PP_MEMORY_GROUP), 2 * GIB);
    forget(root);
}

TEST(a_limit_of_a_group_above_counts)
{
    const char *root = machine();
    put(root, "proc/self/cgroup", "0::/job.slice/step\n");
    put(root, "sys/fs/cgroup/job.slice/step/memory.max", "max\n");
    put(root, "sys/fs/cgroup/job.slice/step/memory.current", "1\n");
    put(root, "sys/fs/cgroup/job.slice/memory.max", "1073741824\n");
    put(root, "sys/fs/cgroup/job.slice/memory.current", "4294967296\n");
    CHECK_INT_EQ(room_in(root, PP_MEMORY_GROUP), 0);
    forget(root);
}

TEST(a_container_sees_its_group_at_the_root)
{
    const char *root = machine();
    put(root, "proc/self/cgroup", "0::/docker/0123456789\n");
    put(root, "sys/fs/cgroup/memory.max", "1073741824\n");
    put(root, "sys/fs/cgroup/memory.current", "0\n");
    CHECK_INT_EQ(room_in(root, PP_MEMORY_GROUP), GIB);
    forget(root);
}

TEST(groups_of_version_1_count_too)
{
    const char *root = machine();
    put(root, "proc/self/cgroup", "5:cpu:/x\n4:hugetlb,memory:/slurm/job\n");
    put(root, "sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "2147483648\n");
    put(root, "sys/fs/cgroup/memory/slurm/job/memory.usage_in_bytes", "1073741824\n");
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
    CHECK_INT_EQ(room_in(root, PP_MEMORY_GROUP), GIB);
    forget(root);
}

/* ---- processors */

static struct pp_quota quota_in(const char *root, int mask)
{
    struct pp_quota q;
    pp_quota_find(root, mask, &q);
    return q;
}

TEST(a_quota_counts_in_whole_cores_and_says_its_file)
{
    const char *root = machine();
    put(root, "proc/self/cgroup", "0::/kubepods/pod/c\n");
    put(root, "sys/fs/cgroup/kubepods/pod/c/cpu.max", "max 100000\n");
    CHECK_INT_EQ(quota_in(root, 8).cores, 8);
    assert_false(quota_in(root, 8).limits);
    put(root, "sys/fs/cgroup/kubepods/pod/cpu.max", "250000 100000\n"); /* of an outer group */
    CHECK_INT_EQ(quota_in(root, 8).cores, 2);
    assert_non_null(strstr(quota_in(root, 8).file, "/kubepods/pod/cpu.max"));
    put(root, "sys/fs/cgroup/kubepods/pod/c/cpu.max", "40000 100000\n"); /* the least counts */
    CHECK_INT_EQ(quota_in(root, 8).cores, 1);
    assert_non_null(strstr(quota_in(root, 8).file, "/c/cpu.max"));
    forget(root);
}

TEST(a_quota_above_the_mask_limits_nothing)
{
    const char *root = machine();
    put(root, "proc/self/cgroup", "0::/docker/0123\n");
    put(root, "sys/fs/cgroup/cpu.max", "300000 100000\n"); /* the container sees it at the root */
    CHECK_INT_EQ(quota_in(root, 2).cores, 2);
    assert_false(quota_in(root, 2).limits);
    CHECK_INT_EQ(quota_in(root, 4).cores, 3);
    put(root, "sys/fs/cgroup/cpu.max", "nonsense\n");
    CHECK_INT_EQ(quota_in(root, 4).cores, 4);
    put(root, "sys/fs/cgroup/cpu.max", "100000 0\n");
    CHECK_INT_EQ(quota_in(root, 4).cores, 4);
    forget(root);
}

TEST(quotas_of_version_1_count_under_every_mount)
{
    const char *root = machine();
    put(root, "proc/self/cgroup", "6:cpuset:/s\n5:cpuacct,cpu:/slurm/job\n0::/\n");
    put(root, "sys/fs/cgroup/cpuset/s/cpu.cfs_quota_us", "1\n"); /* of another controller */
    put(root, "sys/fs/cgroup/cpuset/s/cpu.cfs_period_us", "1\n");
    CHECK_INT_EQ(quota_in(root, 8).cores, 8);
    put(root, "sys/fs/cgroup/cpu/slurm/job/cpu.cfs_period_us", "50000\n");
    put(root, "sys/fs/cgroup/cpu/slurm/job/cpu.cfs_quota_us", "-1\n");
    CHECK_INT_EQ(quota_in(root, 8).cores, 8);
    put(root, "sys/fs/cgroup/cpu/slurm/cpu.cfs_period_us", "50000\n");
    put(root, "sys/fs/cgroup/cpu/slurm/cpu.cfs_quota_us", "200000\n");
    CHECK_INT_EQ(quota_in(root, 8).cores, 4);
    put(root, "sys/fs/cgroup/cpuacct,cpu/slurm/job/cpu.cfs_period_us", "100000\n");
    put(root, "sys/fs/cgroup/cpuacct,cpu/slurm/job/cpu.cfs_quota_us", "150000\n");
    CHECK_INT_EQ(quota_in(root, 8).cores, 1);
    forget(root);
}

TEST(ranks_under_a_quota_are_not_pinned_and_do_not_spin)
{
    const char *root = machine();
    struct pp_cpu_mask mask = {0};
    struct pp_places p;
    for (int c = 1016; c < 1032; c++) /* 16, beyond the first 1,024 */
        pp_mask_add(&mask, c);
    put(root, "proc/self/cgroup", "0::/\n");
    setenv("PPCLI_SYSTEM_ROOT", root, 1);
    struct pp_places_spec spec = {.ranks = 2, .threads = 3, .mask = &mask};
    CHECK_OK(pp_places_make(&spec, &p));
    CHECK_INT_EQ(p.cores, 16);
    CHECK_INT_EQ(p.processors, 3);
    assert_false(p.crowded);
    CHECK_INT_EQ(pp_places_of(&p, 1)[2] >= 1016, 1);
    pp_places_fini(&p);
    put(root, "sys/fs/cgroup/cpu.max", "400000 100000\n"); /* two ranks of two threads use it up */
    CHECK_OK(pp_places_make(&spec, &p));
    CHECK_INT_EQ(p.cores, 4);
    CHECK_INT_EQ(p.processors, 2);
    assert_true(p.crowded);
    assert_null(pp_places_of(&p, 0));
    put(root, "sys/fs/cgroup/cpu.max", "800000 100000\n"); /* some is left: they may spin */
    CHECK_OK(pp_places_make(&spec, &p));
    CHECK_INT_EQ(p.processors, 3);
    assert_false(p.crowded);
    assert_null(pp_places_of(&p, 0));
    unsetenv("PPCLI_SYSTEM_ROOT");
    forget(root);
}

/* ---- memory of several processes */

/* A process that needs 1 GiB, where nothing but `kind` is limited, to `gib`. */
static struct memory_claim claim(enum pp_memory_limit kind, uint64_t gib, uint32_t on,
                                 uint64_t group)
{
    struct memory_claim c = {.ranks = GIB - 1024, .data = 1024, .machine = on};
    c.room.bytes[PP_MEMORY_SYSTEM] = c.room.bytes[PP_MEMORY_GROUP] =
        c.room.bytes[PP_MEMORY_ADDRESS] = UINT64_MAX;
    c.room.bytes[kind] = gib * GIB;
    c.room.group = group;
    return c;
}

TEST(processes_of_one_machine_share_its_memory)
{
    struct memory_claim c[4] = {claim(PP_MEMORY_SYSTEM, 3, 1, 1), claim(PP_MEMORY_SYSTEM, 3, 1, 2),
                                claim(PP_MEMORY_SYSTEM, 1, 2, 1), claim(PP_MEMORY_SYSTEM, 3, 1, 3)};
    for (int i = 0; i < 4; i++)
        CHECK_OK(fit_check_claims(c, 4, i));
    c[3].data = 1025;
    CHECK_FAILS(fit_check_claims(c, 4, 0), PP_ERESOURCE, "of 3 processes needs 3.00 GiB");
    CHECK_OK(fit_check_claims(c, 4, 2));
    c[3].data = 0;
    c[1].room.bytes[PP_MEMORY_SYSTEM] = GIB; /* who sees the least is believed */
    CHECK_FAILS(fit_check_claims(c, 4, 0), PP_ERESOURCE, "1.00 GiB are left of what the system");
}

TEST(processes_of_one_group_share_its_limit)
{
    struct memory_claim c[3] = {claim(PP_MEMORY_GROUP, 1, 1, 7), claim(PP_MEMORY_GROUP, 1, 1, 8),
                                claim(PP_MEMORY_GROUP, 1, 2, 7)};
    for (int i = 0; i < 3; i++)
        CHECK_OK(fit_check_claims(c, 3, i));
    c[1].room.group = 7;
    CHECK_FAILS(fit_check_claims(c, 3, 1), PP_ERESOURCE, "1.00 GiB are left of the memory limit");
    CHECK_OK(fit_check_claims(c, 3, 2));
}

TEST(address_space_is_shared_with_nobody)
{
    struct memory_claim c[2] = {claim(PP_MEMORY_ADDRESS, 1, 1, 1),
                                claim(PP_MEMORY_ADDRESS, 1, 1, 1)};
    CHECK_OK(fit_check_claims(c, 2, 0));
    c[0].room.bytes[PP_MEMORY_ADDRESS] = GIB - 1;
    CHECK_FAILS(fit_check_claims(c, 2, 0), PP_ERESOURCE, "of address space");
    CHECK_OK(fit_check_claims(c, 2, 1));
    c[1].ranks = UINT64_MAX / 2;
    CHECK_FAILS(fit_check_claims(c, 2, 1), PP_ERESOURCE, "needs 8589934592.00 GiB");
}
