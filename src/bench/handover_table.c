/* SPDX-License-Identifier: Apache-2.0 */
/* The table of hand-overs: between threads, and between processes when there are two. */
#include <string.h>

#include "bench.h"
#include "table.h"
#include "ppcli/err.h"
#include "ppcli/handover.h"
#include "ppcli/json.h"
#include "ppcli/transport.h"

enum {
    SIZES = 10
};

struct result {
    struct pp_handover threads[SIZES], processes[SIZES];
    bool mpi;
};

static void set_sizes(struct result *r)
{
    static const size_t sizes[SIZES] = {64,    256,    1024,    4096,    16384,
                                        65536, 262144, 1048576, 4194304, 8388608};
    for (int i = 0; i < SIZES; i++) {
        r->threads[i].bytes = r->processes[i].bytes = sizes[i];
    }
}

static int measure_processes(struct result *r, bool *speaks)
{
    struct pp_transport *tp = NULL;
    PP_TRY(pp_mpi_open(&tp));
    *speaks = tp->rank == 0;
    int rc = tp->size == 2 ? pp_handover_measure(tp, r->processes, SIZES)
                           : pp_fail(PP_EUSAGE, "--handover wants 2 processes, not %d", tp->size);
    pp_transport_destroy(&tp);
    return rc;
}

static void put_size(struct table *t, int row, size_t bytes)
{
    if (bytes >= 1048576) {
        table_cell(t, row, 0, "%zu MiB", bytes / 1048576);
    } else if (bytes >= 1024) {
        table_cell(t, row, 0, "%zu KiB", bytes / 1024);
    } else {
        table_cell(t, row, 0, "%zu B", bytes);
    }
}

static int print_md(const struct result *r, const struct pp_bench_header *h, FILE *f)
{
    struct table t;
    PP_TRY(table_create(&t, SIZES));
    table_column(&t, "message", false);
    table_column(&t, "one way, us", false);
    table_column(&t, "fastest", false);
    table_column(&t, "GB/s", false);
    table_column(&t, "same work on one core, us", false);
    table_column(&t, "memcpy, us", false);
    if (r->mpi) {
        table_column(&t, "MPI one way, us", false);
        table_column(&t, "MPI GB/s", false);
        table_column(&t, "MPI / threads", false);
    }
    for (int i = 0; i < SIZES; i++) {
        const struct pp_handover *a = &r->threads[i], *b = &r->processes[i];
        put_size(&t, i, a->bytes);
        table_cell(&t, i, 1, "%.3f", a->one_way * 1e6);
        table_cell(&t, i, 2, "%.3f", a->fastest * 1e6);
        table_cell(&t, i, 3, "%.2f", (double)a->bytes / a->one_way * 1e-9);
        table_cell(&t, i, 4, "%.3f", a->same_core * 1e6);
        table_cell(&t, i, 5, "%.3f", a->copy * 1e6);
        if (r->mpi) {
            table_cell(&t, i, 6, "%.3f", b->one_way * 1e6);
            table_cell(&t, i, 7, "%.2f", (double)b->bytes / b->one_way * 1e-9);
            table_cell(&t, i, 8, "%.2f", b->one_way / a->one_way);
        }
    }
    bench_print_machine(h, f);
    fputc('\n', f);
    table_markdown(&t, f);
    fprintf(
        f,
        "\n- from before the producer writes the message where it lies to after the consumer has "
        "read all of it\n"
        "- copies: 0 between threads, which share the slots%s\n"
        "- medians of blocks of hand-overs there and back; contents are checked\n",
        r->mpi ? "; MPI makes its own" : "");
    if (h->cores < 2) {
        fprintf(f, "- one core: the two ranks take turns on it\n");
    }
    table_fini(&t);
    return 0;
}

static void put_items(struct pp_json *j, const char *key, const struct pp_handover *items)
{
    pp_json_array(j, key);
    for (int i = 0; i < SIZES; i++) {
        pp_json_object(j, NULL);
        pp_json_uint(j, "bytes", items[i].bytes);
        pp_json_dbl(j, "one_way_seconds", items[i].one_way);
        pp_json_dbl(j, "fastest_seconds", items[i].fastest);
        pp_json_dbl(j, "same_core_seconds", items[i].same_core);
        pp_json_dbl(j, "memcpy_seconds", items[i].copy);
        pp_json_end(j);
    }
    pp_json_end(j);
}

static void print_json(const struct result *r, const struct pp_bench_header *h, FILE *f)
{
    struct pp_json j;
    pp_json_init(&j, f, 2);
    pp_json_object(&j, NULL);
    pp_json_str(&j, "type", "handover");
    bench_put_machine(&j, h);
    pp_json_int(&j, "copies", 0);
    put_items(&j, "threads", r->threads);
    if (r->mpi) {
        put_items(&j, "processes", r->processes);
    }
    pp_json_end(&j);
}

int pp_bench_handover(const struct pp_bench_header *h, enum pp_bench_format format, bool first,
                      FILE *f)
{
    struct result r = {.mpi = pp_mpi_launched(NULL)};
    bool speaks = true;
    set_sizes(&r);
    if (first) {
        /* before MPI starts: until this process joins in, the other one sleeps */
        PP_TRY(pp_handover_threads(r.threads, SIZES, r.mpi));
    }
    if (r.mpi) {
        PP_TRY(measure_processes(&r, &speaks));
    }
    if (!speaks) {
        return 0;
    }
    if (format == PP_BENCH_MD) {
        PP_TRY(print_md(&r, h, f));
    } else {
        print_json(&r, h, f);
    }
    return fflush(f) != 0 || ferror(f) ? pp_fail_errno(PP_EIO, "cannot write the result") : 0;
}
