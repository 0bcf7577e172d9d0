/* SPDX-License-Identifier: Apache-2.0 */
/* The table of transfers: between two processes where MPI started two, else between two threads. */

#include "bench.h"

#define SIZES 10

struct transfer {
    char message[16];
    double bytes_per_second;
    struct pp_handover t;
};

static const struct pp_column transfer_columns[] = {
    {NULL, "message", PP_FIELD(struct transfer, message), .right = true},
    {"bytes", NULL, PP_FIELD(struct transfer, t.bytes), .help = "size of the message"},
    {"one_way_seconds", "one way, us", "%.3f", 1e6,
     "from before the producer writes until the consumer has read: the median",
     PP_FIELD(struct transfer, t.one_way)},
    {"fastest_seconds", "fastest", "%.3f", 1e6, "the same, of the fastest block",
     PP_FIELD(struct transfer, t.fastest)},
    {NULL, "GB/s", "%.2f", 1e-9, NULL, PP_FIELD(struct transfer, bytes_per_second)},
    {"same_core_seconds", "same work on one core, us", "%.3f", 1e6,
     "the same writing and reading by one rank alone", PP_FIELD(struct transfer, t.same_core)},
    {"memcpy_seconds", "memcpy, us", "%.3f", 1e6, "a memcpy of as many bytes",
     PP_FIELD(struct transfer, t.copy)},
    {"hidden", "hidden, %", "%.0f", 100, "part of one way that passes while both ranks compute",
     PP_FIELD(struct transfer, t.hidden)},
    {0}};

struct handovers {
    const char *type;
    struct pp_bench_header h;
    int copies;
    bool apart; /* the processes are on two hosts */
    struct pp_listing threads, processes;
};

PP_HAS(are_threads, struct handovers, row->threads.n > 0)
PP_HAS(are_processes, struct handovers, row->processes.n > 0)

const struct pp_column bench_handover_columns[] = {
    PP_SCHEMA(PP_BENCH_SCHEMA),
    {"type", PP_FIELD(struct handovers, type), .help = "\"handover\""},
    {.inner = bench_machine_columns, PP_FIELD(struct handovers, h)},
    {"copies", PP_FIELD(struct handovers, copies), .help = "of a message on its way"},
    {"processes_apart", PP_FIELD(struct handovers, apart), .has = are_processes,
     .help = "under mpirun: the two processes are on two hosts"},
    {"threads", PP_FIELD(struct handovers, threads), .inner = transfer_columns, .has = are_threads},
    {"processes", PP_FIELD(struct handovers, processes), .inner = transfer_columns,
     .has = are_processes},
    {0}};

static int measure_processes(struct pp_handover *items, const char *same, bool *apart, bool *speaks)
{
    PP_OWN(pp_transport_destroy) struct pp_transport *tp = NULL;
    PP_TRY(pp_transport_open_world(&tp));
    *speaks = tp->rank == 0;
    PP_TRY(pp_transport_same(tp, 0, same));
    int hosts[2] = {0};
    int rc = tp->size == 2 ? pp_transport_allgather(tp, &tp->host, sizeof(tp->host), hosts)
                           : pp_fail(PP_EUSAGE, "--handover needs 2 processes, not %d", tp->size);
    if (rc == 0)
        rc = pp_handover_measure(tp, items, SIZES);
    *apart = hosts[0] != hosts[1];
    return rc;
}

static void make_transfer_rows(const struct pp_handover *items, struct transfer *rows)
{
    for (int i = 0; i < SIZES; i++) {
        size_t bytes = items[i].bytes;
        int step = bytes >= 1048576 ? 2 : bytes >= 1024 ? 1 : 0;
        static const char *const units[] = {"B", "KiB", "MiB"};
        rows[i] =
            (struct transfer){.t = items[i], .bytes_per_second = (double)bytes / items[i].one_way};
        snprintf(rows[i].message, sizeof(rows[i].message), "%zu %s", bytes >> (10 * step),
                 units[step]);
    }
}

static void print_transfers(const struct handovers *r, FILE *f)
{
    bool processes = r->processes.n > 0;
    bench_print_machine(&r->h, f);
    fputc('\n', f);
    pp_listing_print(transfer_columns, processes ? &r->processes : &r->threads, PP_LISTING_MARKDOWN,
                     0, f);
    fprintf(f,
            "\n- between two %s%s: from before the producer writes the message until the consumer "
            "has read all of it\n- copies: %s\n- hidden: the part of one way that passes while "
            "both ranks compute\n- medians of blocks of transfers there and back; contents are "
            "checked\n",
            processes ? "processes" : "threads", r->apart ? " on two hosts" : "",
            !processes ? "0, as the threads share the slots"
            : r->apart ? "those of MPI and the network"
                       : "those of MPI");
    if (r->h.cores < 2)
        fprintf(f, "- one core: the two ranks take turns on it\n");
}

int pp_bench_handover(const struct pp_bench_header *h, const char *same,
                      enum pp_bench_format format, FILE *f)
{
    struct pp_handover items[SIZES] = {{.bytes = 0}};
    struct transfer rows[SIZES];
    struct handovers r = {.type = "handover", .h = *h};
    bool processes = pp_mpi_launched(), speaks = true;
    static const size_t sizes[SIZES] = {64,    256,    1024,    4096,    16384,
                                        65536, 262144, 1048576, 4194304, 8388608};
    for (int i = 0; i < SIZES; i++)
        items[i].bytes = sizes[i];
    PP_TRY(processes ? measure_processes(items, same, &r.apart, &speaks)
                     : pp_handover_threads(items, SIZES, false));
    if (!speaks)
        return 0;
    make_transfer_rows(items, rows);
    *(processes ? &r.processes : &r.threads) = (struct pp_listing){rows, sizeof(*rows), SIZES};
    if (format == PP_BENCH_MD)
        print_transfers(&r, f);
    else
        pp_document_json(bench_handover_columns, &r, f);
    return bench_written(f);
}
