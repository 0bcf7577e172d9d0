/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power failures. What a save does is recorded, and from every moment of it the disks are made that
 * may be found afterwards: a change of a folder's names that was not followed by a flush of that
 * folder may have happened or not, whatever its order, and bytes that were not flushed may be
 * there, missing or zeros.
 */
#include "test_ckpt_make.h"

#include "ppcli/base/base.h"

#define NODES 256
#define OPS 1024

/* ---- recording */

struct entry {
    int folder, node; /* node < 0: the name is gone */
    char name[64];
};

enum op_kind {
    OP_NAMES,
    OP_WRITE,
    OP_FLUSH,
    OP_FLUSH_NAMES
};

struct op {
    enum op_kind kind;
    int node;            /* written or flushed; the folder of the names */
    struct entry set[2]; /* OP_NAMES: what becomes of up to two names, together */
    int n_set;
    const uint8_t *data; /* OP_WRITE: owned by the recorder */
    size_t bytes;
};

struct recorder {
    struct pp_io io; /* first */
    const char *root;
    struct entry live[NODES]; /* names as the program sees them */
    int n_live;
    int nodes;         /* 0 is the root */
    int node_of[1024]; /* by descriptor */
    struct op ops[OPS];
    int n;
};

static struct recorder *recorder_of(const struct pp_io *io)
{
    return (struct recorder *)(uintptr_t)io;
}

static void apply(struct entry *names, int *n, const struct entry *e)
{
    int i = 0;
    while (i < *n && (names[i].folder != e->folder || strcmp(names[i].name, e->name) != 0))
        i++;
    if (e->node >= 0) {
        assert_true(i < NODES);
        names[i] = *e;
        *n = i == *n ? i + 1 : *n;
    } else if (i < *n) {
        names[i] = names[--*n];
    }
}

/* The folder of a path below the root, and its last name. */
static int locate(const struct recorder *r, const char *path, const char **name)
{
    size_t n = strlen(r->root);
    assert_true(strncmp(path, r->root, n) == 0 && path[n] == '/');
    path += n + 1;
    const char *slash = strchr(path, '/');
    *name = slash ? slash + 1 : path;
    if (!slash)
        return 0;
    for (int i = 0; i < r->n_live; i++)
        if (r->live[i].folder == 0 && strlen(r->live[i].name) == (size_t)(slash - path) &&
            strncmp(r->live[i].name, path, (size_t)(slash - path)) == 0)
            return r->live[i].node;
    fail_msg("no folder of %s", path);
    return -1;
}

static struct entry entry_at(const struct recorder *r, const char *path)
{
    struct entry e = {.node = -1};
    const char *name;
    e.folder = locate(r, path, &name);
    snprintf(e.name, sizeof(e.name), "%s", name);
    for (int i = 0; i < r->n_live; i++)
        if (r->live[i].folder == e.folder && strcmp(r->live[i].name, e.name) == 0)
            e.node = r->live[i].node;
    return e;
}

static struct op *new_op(struct recorder *r, enum op_kind kind, int node)
{
    assert_true(r->n < OPS);
    struct op *op = &r->ops[r->n++];
    *op = (struct op){.kind = kind, .node = node};
    return op;
}

static void change(struct recorder *r, struct entry a, const struct entry *b)
{
    struct op *op = new_op(r, OP_NAMES, a.folder);
    op->set[op->n_set++] = a;
    if (b) {
        assert_int_equal(a.folder, b->folder);
        op->set[op->n_set++] = *b;
    }
    for (int i = 0; i < op->n_set; i++)
        apply(r->live, &r->n_live, &op->set[i]);
}

static void add_node(struct recorder *r, const char *path)
{
    struct entry e = entry_at(r, path);
    e.node = ++r->nodes;
    assert_true(e.node < NODES);
    change(r, e, NULL);
}

static void drop(struct recorder *r, const char *path)
{
    struct entry e = entry_at(r, path);
    e.node = -1;
    change(r, e, NULL);
}

static int rec_create(const struct pp_io *io, const char *path)
{
    struct recorder *r = recorder_of(io);
    int fd = pp_io_system.ops->create(&pp_io_system, path);
    assert_true(fd >= 0 && fd < 1024);
    add_node(r, path);
    r->node_of[fd] = r->nodes;
    return fd;
}

static ssize_t rec_write(const struct pp_io *io, int fd, const void *data, size_t bytes)
{
    struct recorder *r = recorder_of(io);
    struct op *op = new_op(r, OP_WRITE, r->node_of[fd]);
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    op->data = copy;
    op->bytes = bytes;
    return write(fd, data, bytes);
}

static int rec_fsync(const struct pp_io *io, int fd)
{
    struct recorder *r = recorder_of(io);
    new_op(r, OP_FLUSH, r->node_of[fd]);
    return 0;
}

static int rec_close(const struct pp_io *io, int fd)
{
    return close(fd);
}

static int rec_rename(const struct pp_io *io, const char *from, const char *to)
{
    struct recorder *r = recorder_of(io);
    struct entry a = entry_at(r, from), b = entry_at(r, to);
    b.node = a.node;
    a.node = -1;
    change(r, a, &b);
    return rename(from, to);
}

static int rec_exchange(const struct pp_io *io, const char *one, const char *two)
{
    struct recorder *r = recorder_of(io);
    struct entry a = entry_at(r, one), b = entry_at(r, two);
    int node = a.node;
    a.node = b.node;
    b.node = node;
    change(r, a, &b);
    return pp_io_system.ops->exchange(&pp_io_system, one, two);
}

static int rec_unlink(const struct pp_io *io, const char *path)
{
    drop(recorder_of(io), path);
    return unlink(path);
}

static int rec_mkdir(const struct pp_io *io, const char *path)
{
    add_node(recorder_of(io), path);
    return mkdir(path, 0777);
}

static int rec_rmdir(const struct pp_io *io, const char *path)
{
    drop(recorder_of(io), path);
    return rmdir(path);
}

static int rec_sync_dir(const struct pp_io *io, const char *path)
{
    struct recorder *r = recorder_of(io);
    new_op(r, OP_FLUSH_NAMES, strcmp(path, r->root) == 0 ? 0 : entry_at(r, path).node);
    return 0;
}

static int rec_space(const struct pp_io *io, const char *path, uint64_t *out_bytes)
{
    *out_bytes = UINT64_MAX;
    return 0;
}

static struct recorder *record(const char *root)
{
    static const struct pp_io_ops ops = {rec_create, rec_write,    rec_fsync,  rec_close,
                                         rec_rename, rec_exchange, rec_unlink, rec_mkdir,
                                         rec_rmdir,  rec_sync_dir, rec_space};
    struct recorder *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    r->io.ops = &ops;
    r->root = root;
    return r;
}

static void forget(struct recorder *r)
{
    for (int i = 0; i < r->n; i++)
        free((void *)(uintptr_t)r->ops[i].data);
    free(r);
}

/* ---- what is found afterwards */

/* Numbers that look random and are the same in every run. */
static uint32_t next_random(uint32_t *s)
{
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

enum luck {
    ALL_LOST,
    ALL_KEPT,
    BY_CHANCE
};

static bool is_lucky(enum luck luck, uint32_t *seed)
{
    return luck == ALL_KEPT || (luck == BY_CHANCE && (next_random(seed) & 1));
}

static bool flushed(const struct recorder *r, int from, int up_to, enum op_kind kind, int node)
{
    for (int i = from; i < up_to; i++)
        if (r->ops[i].kind == kind && r->ops[i].node == node)
            return true;
    return false;
}

static void make_file(const struct recorder *r, int node, int cut, enum luck luck, uint32_t *seed,
                      const char *path)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < cut; i++) {
        const struct op *op = &r->ops[i];
        if (op->kind != OP_WRITE || op->node != node)
            continue;
        if (flushed(r, i, cut, OP_FLUSH, node) || is_lucky(luck, seed))
            fwrite(op->data, 1, op->bytes, f);
        else if (is_lucky(luck, seed))
            for (size_t k = 0; k < op->bytes; k++)
                fputc(0, f);
    }
    fclose(f);
}

/* The disk after the power went before operation `cut`; what came before `start` is safe. Only
 * folders with the name of a step are made: no other is looked at. */
static void make_disk(const struct recorder *r, int start, int cut, enum luck luck, uint32_t *seed,
                      const char *to)
{
    struct entry names[NODES];
    int n = 0;
    for (int i = 0; i < cut; i++) {
        const struct op *op = &r->ops[i];
        if (op->kind == OP_NAMES &&
            (i < start || flushed(r, i, cut, OP_FLUSH_NAMES, op->node) || is_lucky(luck, seed)))
            for (int k = 0; k < op->n_set; k++)
                apply(names, &n, &op->set[k]);
    }
    folder_empty(to);
    for (int i = 0; i < n; i++) {
        if (names[i].folder != 0 || strlen(names[i].name) != 13)
            continue;
        char path[PP_PATH_MAX];
        CHECK_OK(pp_path_format(path, "%s/%s", to, names[i].name));
        CHECK_INT_EQ(mkdir(path, 0777), 0);
        for (int k = 0; k < n; k++) {
            if (names[k].folder == names[i].node) {
                CHECK_OK(pp_path_format(path, "%s/%s/%s", to, names[i].name, names[k].name));
                make_file(r, names[k].node, cut, luck, seed, path);
            }
        }
    }
}

/* A checkpoint with its own name is whole, whether it is the newest or not. */
static void check_whole(const char *dir, int cut)
{
    PP_OWN_MEMORY int64_t *steps = NULL;
    int n = 0;
    CHECK_OK(pp_ckpt_list(dir, &steps, &n));
    for (int i = 0; i < n; i++) {
        char path[PP_PATH_MAX];
        PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
        CHECK_OK(pp_ckpt_step_path(dir, steps[i], path));
        if (pp_ckpt_open(path, PP_CKPT_VERIFY, &ck) < 0)
            fail_msg("power lost before operation %d: %s", cut, pp_error_get()->text);
    }
}

/* Whatever the luck: `first` or `second` is found; after `saved` operations, `second`. */
static void check_all_disks(struct recorder *r, int start, int saved, int64_t first, int64_t second,
                            const char *to)
{
    uint32_t seed = 1;
    int disks = 0;
    for (int cut = start; cut <= r->n; cut++) {
        for (int k = 0; k < 12; k++) {
            make_disk(r, start, cut, k == 0 ? ALL_LOST : k == 1 ? ALL_KEPT : BY_CHANCE, &seed, to);
            int64_t found = newest_step(to);
            if (found != second && (found != first || cut >= saved)) {
                fail_msg("power lost before operation %d of %d (saved at %d), luck %d: found step "
                         "%d",
                         cut, r->n, saved, k, (int)found);
            }
            check_whole(to, cut);
            disks++;
        }
    }
    print_message("# %d disks\n", disks);
}

TEST_IN_FOLDER(whatever_a_power_failure_leaves_has_the_old_or_the_new_one)
{
    const char *root = in_folder(state, "real"), *to = in_folder(state, "found");
    CHECK_INT_EQ(mkdir(root, 0777) | mkdir(to, 0777), 0);
    struct recorder *r = record(root);
    CHECK_OK(save_at(&r->io, root, 100, 2));
    int start = r->n;
    CHECK_OK(save_at(&r->io, root, 200, 2));
    int saved = r->n;
    CHECK_OK(pp_ckpt_prune(&r->io, root, 1, -1, 200));
    check_all_disks(r, start, saved, 100, 200, to);
    forget(r);
}

TEST_IN_FOLDER(replacing_a_step_is_safe_from_power_failures)
{
    const char *root = in_folder(state, "real"), *to = in_folder(state, "found");
    CHECK_INT_EQ(mkdir(root, 0777) | mkdir(to, 0777), 0);
    struct recorder *r = record(root);
    CHECK_OK(save_at(&r->io, root, 100, 1));
    int start = r->n;
    CHECK_OK(save_at(&r->io, root, 100, 2));
    check_all_disks(r, start, r->n, 100, 100, to);
    forget(r);
}
