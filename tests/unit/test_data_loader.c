/* SPDX-License-Identifier: Apache-2.0 */
/* The loader: every row once per epoch, balanced pieces, an order anybody can recompute. */
#include "test.h"

#include "ppcli/data/dataset.h"
#include "ppcli/base/base.h"

static uint32_t random_state = 1;

static int pick(int lo, int hi)
{
    random_state = random_state * 1664525u + 1013904223u;
    return lo + (int)((random_state >> 8) % (uint32_t)(hi - lo + 1));
}

static int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

/* What the header promises about the number of micro-batches, said once more. */
static int promised_microbatches(int share, int full, int m)
{
    if (share == full && full >= m)
        return m;
    int usual = ceil_div(full, m);
    int n = usual > 0 ? ceil_div(share, usual) : 0;
    return n < m ? n : m;
}

/* One epoch of one geometry, all replicas: `seen` counts each row. */
static void walk_epoch(struct pp_loader **lds, int replicas, uint8_t *seen)
{
    const struct pp_loader *ld = lds[0];
    int steps = pp_loader_steps(ld), total = 0;
    CHECK_INT_EQ(steps, ceil_div(ld->n, ld->batch_size));
    for (int step = 0; step < steps; step++) {
        int batch = pp_loader_batch_rows(ld, step), shares = 0, least = batch, most = 0;
        CHECK_INT_EQ(batch, step < steps - 1 ? ld->batch_size : ld->n - total);
        for (int r = 0; r < replicas; r++) {
            int share = pp_loader_share_rows(lds[r], step);
            int m = pp_loader_microbatches(lds[r], step);
            int rows = 0, previous = share, first_count = 0, full, at;
            pp_balanced_piece(ld->batch_size, replicas, r, &at, &full);
            CHECK_INT_EQ(m, promised_microbatches(share, full, ld->microbatches));
            for (int mb = 0; mb < m; mb++) {
                const uint32_t *index;
                int count = pp_loader_microbatch(lds[r], step, mb, &index);
                assert_true(count >= 1 && count <= previous); /* larger first, none empty */
                first_count = mb == 0 ? count : first_count;
                assert_true(first_count - count <= 1);
                assert_true(count <= pp_loader_max_rows(lds[r]));
                assert_ptr_equal(index, lds[r]->order + total + shares + rows);
                for (int i = 0; i < count; i++) {
                    assert_true(index[i] < (uint32_t)ld->n);
                    seen[index[i]]++;
                }
                previous = count;
                rows += count;
            }
            CHECK_INT_EQ(rows, share);
            shares += share;
            least = share < least ? share : least;
            most = share > most ? share : most;
        }
        CHECK_INT_EQ(shares, batch);
        assert_true(most - least <= 1);
        total += batch;
    }
    CHECK_INT_EQ(total, ld->n);
}

TEST(every_row_is_handed_out_once_per_epoch)
{
    for (int round = 0; round < 1500; round++) {
        int n = pick(1, 200), batch = pick(1, pick(0, 1) ? 40 : 250), replicas = pick(1, 5);
        int m = pick(1, 9);
        bool shuffle = pick(0, 3) > 0;
        struct pp_loader *lds[5] = {NULL};
        for (int r = 0; r < replicas; r++)
            CHECK_OK(pp_loader_create(n, batch, replicas, r, m, shuffle, 7, &lds[r]));
        for (int epoch = 0; epoch < 2; epoch++) {
            uint8_t seen[200] = {0};
            for (int r = 0; r < replicas; r++)
                pp_loader_start_epoch(lds[r], (uint64_t)epoch);
            walk_epoch(lds, replicas, seen);
            for (int i = 0; i < n; i++)
                CHECK_INT_EQ(seen[i], 1);
        }
        for (int r = 0; r < replicas; r++)
            pp_loader_destroy(&lds[r]);
    }
}

TEST(the_largest_microbatch_is_reached)
{
    for (int round = 0; round < 500; round++) {
        PP_OWN(pp_loader_destroy) struct pp_loader *ld = NULL;
        int most = 0;
        CHECK_OK(pp_loader_create(pick(1, 300), pick(1, 80), 1, 0, pick(1, 9), true, 3, &ld));
        for (int step = 0; step < pp_loader_steps(ld); step++) {
            for (int mb = 0; mb < pp_loader_microbatches(ld, step); mb++) {
                const uint32_t *index;
                int count = pp_loader_microbatch(ld, step, mb, &index);
                most = count > most ? count : most;
            }
        }
        CHECK_INT_EQ(pp_loader_max_rows(ld), most);
    }
}

/* Philox4x32-10 and the permutation written again from their definitions, sharing no code. */
static uint32_t philox_word(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t c[4] = {(uint32_t)(index / 4), (uint32_t)(index / 4 >> 32), (uint32_t)stream,
                     (uint32_t)(stream >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
                            (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
        memcpy(c, next, sizeof(c));
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    return c[index % 4];
}

static uint64_t stream_of(const char *name, uint64_t n)
{
    uint64_t h = 14695981039346656037ull;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 1099511628211ull;
    for (int i = 0; i < 8; i++)
        h = (h ^ (uint8_t)(n >> 8 * i)) * 1099511628211ull;
    return h;
}

TEST(the_order_is_the_documented_permutation)
{
    static uint32_t expected[1000];
    PP_OWN(pp_loader_destroy) struct pp_loader *ld = NULL;
    uint64_t seed = 0x123456789abcdef0ull;
    CHECK_OK(pp_loader_create(1000, 32, 1, 0, 4, true, seed, &ld));
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        uint64_t stream = stream_of("shuffle", epoch);
        for (uint32_t i = 0; i < 1000; i++)
            expected[i] = i;
        for (uint32_t i = 999; i >= 1; i--) {
            uint32_t j = (uint32_t)((uint64_t)philox_word(seed, stream, i) * (i + 1) >> 32);
            uint32_t t = expected[i];
            expected[i] = expected[j];
            expected[j] = t;
        }
        pp_loader_start_epoch(ld, epoch);
        assert_memory_equal(ld->order, expected, sizeof(expected));
    }
}

TEST(without_shuffle_rows_come_in_file_order)
{
    PP_OWN(pp_loader_destroy) struct pp_loader *ld = NULL;
    const uint32_t *index;
    CHECK_OK(pp_loader_create(10, 4, 1, 0, 2, false, 9, &ld));
    pp_loader_start_epoch(ld, 5);
    CHECK_INT_EQ(pp_loader_microbatch(ld, 2, 0, &index), 2);
    CHECK_INT_EQ(index[0], 8);
    CHECK_INT_EQ(index[1], 9);
    CHECK_INT_EQ(pp_loader_microbatches(ld, 2),
                 1); /* two of the usual size 2 would be one too many */
}

/* As DataLoader(drop_last=True): all samples are shuffled, then the rest is left out. */
TEST(an_epoch_may_leave_out_samples_of_the_order)
{
    PP_OWN(pp_loader_destroy) struct pp_loader *all = NULL, *some = NULL;
    CHECK_OK(pp_loader_create(100, 32, 1, 0, 2, true, 5, &all));
    CHECK_OK(pp_loader_create(100, 32, 1, 0, 2, true, 5, &some));
    some->n = 96;
    pp_loader_start_epoch(all, 3);
    pp_loader_start_epoch(some, 3);
    CHECK_INT_EQ(pp_loader_steps(all), 4);
    CHECK_INT_EQ(pp_loader_steps(some), 3);
    CHECK_INT_EQ(pp_loader_batch_rows(some, 2), 32);
    assert_memory_equal(all->order, some->order, 100 * sizeof(uint32_t));
}

TEST(batches_do_not_depend_on_replicas_or_microbatches)
{
    PP_OWN(pp_loader_destroy) struct pp_loader *one = NULL, *split = NULL;
    CHECK_OK(pp_loader_create(100, 16, 1, 0, 1, true, 5, &one));
    CHECK_OK(pp_loader_create(100, 16, 2, 1, 4, true, 5, &split));
    pp_loader_start_epoch(one, 2);
    pp_loader_start_epoch(split, 2);
    assert_memory_equal(one->order, split->order, 100 * sizeof(uint32_t));
}

TEST(an_epoch_and_its_walk_allocate_nothing)
{
    PP_OWN(pp_loader_destroy) struct pp_loader *ld = NULL;
    CHECK_OK(pp_loader_create(1000, 32, 1, 0, 4, true, 1, &ld));
    uint64_t before = pp_alloc_count();
    pp_loader_start_epoch(ld, 1);
    for (int step = 0; step < pp_loader_steps(ld); step++) {
        const uint32_t *index;
        pp_loader_microbatch(ld, step, 0, &index);
    }
    CHECK_INT_EQ(pp_alloc_count(), before);
}

TEST(a_share_smaller_than_the_replicas_is_empty_for_some)
{
    PP_OWN(pp_loader_destroy) struct pp_loader *ld = NULL;
    CHECK_OK(pp_loader_create(9, 8, 4, 3, 2, true, 1, &ld));
    CHECK_INT_EQ(pp_loader_share_rows(ld, 0), 2);
    CHECK_INT_EQ(pp_loader_share_rows(ld, 1), 0);
    CHECK_INT_EQ(pp_loader_microbatches(ld, 1), 0);
    CHECK_INT_EQ(pp_loader_max_rows(ld), 1);
}

TEST(sizes_near_the_end_of_int_do_not_overflow)
{
    int first, count;
    pp_balanced_piece(INT32_MAX, 3, 2, &first, &count);
    CHECK_INT_EQ(first + count, INT32_MAX);
    struct pp_loader *ld = NULL;
    CHECK_OK(pp_loader_create(3, INT32_MAX, 1, 0, INT32_MAX, true, 1, &ld));
    CHECK_INT_EQ(pp_loader_steps(ld), 1);
    CHECK_INT_EQ(pp_loader_microbatches(ld, 0), 3);
    pp_loader_destroy(&ld);
    CHECK_FAILS(pp_loader_create(0, 1, 1, 0, 1, true, 1, &ld), PP_ECONFIG, "at least 1");
    assert_null(ld);
}
