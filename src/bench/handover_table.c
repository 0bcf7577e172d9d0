/* SPDX-License-Identifier: Apache-2.0 */
/* The table of transfers: between threads, and between processes when there are two. */

#include "bench.h"
#include "table.h"

#define SIZES 10

struct result {
    struct pp_handover threads[SIZES], processes[SIZES];
    bool mpi, apart; /* processes on two hosts */
};

static void set_sizes(struct result *r)
{
    static const size_t sizes[SIZES] = {64,    256,    1024,    4096,    16384,
                                        65536, 262144, 1048576, 4194304, 8388608};
    for (int i = 0; i < SIZES; i++)
        r->threads[i].bytes = r->processes[i].bytes = sizes[i];
}

static int measure_processes(struct result *r, const char *same, bool *speaks)
{
    PP_OWN(pp_transport_destroy) struct pp_transport *tp = NULL;
    PP_TRY(pp_transport_open_world(&tp));
    *speaks = tp->rank == 0;
    PP_TRY(pp_transport_same(tp, 0, same));
    int hosts[2] = {0};
    int rc = tp->size == 2 ? pp_transport_allgather(tp, &tp->host, sizeof(tp->host), hosts)
                           : pp_fail(PP_EUSAGE, "--handover wants 2 processes, not %d", tp->size);
    if (rc == 0)
        rc = pp_handover_measure(tp, r->processes, SIZES);
    r->apart = hosts[0] != hosts[1];
    return rc;
}

static void size_text(struct table *t, size_t bytes)
{
    bool mib = bytes >= 1048576, kib = bytes >= 1024;
    table_text(t, "%zu %s",
               mib   ? bytes / 1048576
               : kib ? bytes / 1024
                     : bytes,
               mib   ? "MiB"
               : kib ? "KiB"
                     : "B");
}

static const struct table_column columns[] = {
    TABLE_TEXT("message", NULL),
    TABLE_NUMBER(NULL, "bytes", "%.0f", 1),
    TABLE_NUMBER("one way, us", "one_way_seconds", "%.3f", 1e6),
    TABLE_NUMBER("fastest", "fastest_seconds", "%.3f", 1e6),
    TABLE_NUMBER("GB/s", NULL, "%.2f", 1e-9),
    TABLE_NUMBER("same work on one core, us", "same_core_seconds", "%.3f", 1e6),
    TABLE_NUMBER("memcpy, us", "memcpy_seconds", "%.3f", 1e6),
    TABLE_NUMBER("hidden, %", "hidden", "%.0f", 100),
    TABLE_NUMBER("MPI one way, us", NULL, "%.3f", 1e6),
    TABLE_NUMBER("MPI GB/s", NULL, "%.2f", 1e-9),
    TABLE_NUMBER("MPI hidden, %", NULL, "%.0f", 100),
    TABLE_NUMBER("MPI / threads", NULL, "%.2f", 1)};
#define COLUMNS ((int)(sizeof(columns) / sizeof(columns[0])))

/* mpi: NULL, or beside it. */
static int make_table(const struct pp_handover *items, const struct pp_handover *mpi,
                      struct table *t)
{
    PP_TRY(table_create(t, SIZES, columns, mpi ? COLUMNS : COLUMNS - 4));
    for (int i = 0; i < SIZES; i++) {
        const struct pp_handover *a = &items[i];
        table_row(t, i);
        size_text(t, a->bytes);
        table_number(t, (double)a->bytes);
        table_number(t, a->one_way);
        table_number(t, a->fastest);
        table_number(t, (double)a->bytes / a->one_way);
        table_number(t, a->same_core);
        table_number(t, a->copy);
        table_number(t, a->hidden);
        if (mpi) {
            table_number(t, mpi[i].one_way);
            table_number(t, (double)mpi[i].bytes / mpi[i].one_way);
            table_number(t, mpi[i].hidden);
            table_number(t, mpi[i].one_way / a->one_way);
        }
    }
    return 0;
}

static int print_md(const struct result *r, const struct pp_bench_header *h, FILE *f)
{
    struct table t;
    PP_TRY(make_table(r->threads, r->mpi ? r->processes : NULL, &t));
    bench_print_machine(h, f);
    fputc('\n', f);
    table_markdown(&t, f);
    fprintf(f,
            "\n- from before the producer writes the message where it lies to after the consumer "
            "has read all of it\n- copies: 0 between threads, which share the slots%s\n- hidden: "
            "the part of one way without a wait when both ranks compute meanwhile\n- "
            "medians of blocks of transfers there and back; contents are checked\n",
            !r->mpi    ? ""
            : r->apart ? "; between the hosts MPI and the network make their own"
                       : "; MPI makes its own");
    if (h->cores < 2)
        fprintf(f, "- one core: the two ranks take turns on it\n");
    table_fini(&t);
    return 0;
}

static int print_json(const struct result *r, const struct pp_bench_header *h, FILE *f)
{
    struct table t;
    struct pp_json j = pp_json_begin(f, 2);
    pp_json_str(&j, "type", "handover");
    bench_put_machine(&j, h);
    pp_json_int(&j, "copies", 0);
    if (r->mpi)
        pp_json_bool(&j, "processes_apart", r->apart);
    for (int processes = 0; processes <= r->mpi; processes++) {
        PP_TRY(make_table(processes ? r->processes : r->threads, NULL, &t));
        table_json_rows(&t, processes ? "processes" : "threads", &j);
        table_fini(&t);
    }
    pp_json_end(&j);
    return 0;
}

int pp_bench_handover(const struct pp_bench_header *h, const char *same,
                      enum pp_bench_format format, bool first, FILE *f)
{
    struct result r = {.mpi = pp_mpi_launched()};
    bool speaks = true;
    set_sizes(&r);
    if (first) {
        /* before MPI starts: until this process joins in, the other one sleeps */
        PP_TRY(pp_handover_threads(r.threads, SIZES, r.mpi));
    }
    if (r.mpi)
        PP_TRY(measure_processes(&r, same, &speaks));
    if (!speaks)
        return 0;
    PP_TRY(format == PP_BENCH_MD ? print_md(&r, h, f) : print_json(&r, h, f));
    return bench_written(f);
}
