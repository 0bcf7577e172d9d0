/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints on hosts with disks of their own. A host is apart if its run folder is not rank 0's.
 * Ranks of such a host send what they write to rank 0, which has the whole checkpoint; copies of it
 * go to the first ranks of other hosts, into a folder of the same name. A side whose disk fails
 * keeps sending or receiving, so that the other side does not wait, and reports the error at the
 * end.
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"
#include "ppcli/base/base.h"

struct file {
    char name[256]; /* empty: the end; then `bytes` is not 0 if something failed */
    uint64_t bytes;
};

static char block[1 << 18]; /* static, because hosts apart have processes, not threads */

static uint64_t bytes_of_piece(const struct file *f, uint64_t at)
{
    return f->bytes - at < sizeof(block) ? f->bytes - at : sizeof(block);
}

int copies_send(struct pp_transport *tp, int to, const char *folder, int *out_rc)
{
    char path[PP_PATH_MAX];
    PP_OWN_MEMORY char **names = NULL;
    int rc = pp_dir_names(folder, &names), lost = 0, fd;
    for (char **name = names; rc == 0 && lost == 0 && *name; name++) {
        struct file f = {.bytes = 0};
        if ((*name)[0] == '.')
            continue;
        snprintf(f.name, sizeof(f.name), "%s", *name);
        rc = pp_path_format(path, "%s/%s", folder, f.name);
        rc = rc < 0 ? rc : pp_open_regular(path, &fd, &f.bytes);
        if (rc < 0)
            break;
        lost = pp_transport_send(tp, to, &f, sizeof(f));
        for (uint64_t at = 0; lost == 0 && at < f.bytes; at += bytes_of_piece(&f, at)) {
            rc = rc < 0 ? rc : pp_fd_read_at(fd, path, at, block, bytes_of_piece(&f, at));
            lost = pp_transport_send(tp, to, block, bytes_of_piece(&f, at));
        }
        close(fd);
    }
    *out_rc = rc;
    const struct file end = {.bytes = rc < 0};
    return lost < 0 ? lost : pp_transport_send(tp, to, &end, sizeof(end));
}

int copies_take(struct pp_transport *tp, int from, const char *folder, int *out_rc)
{
    char path[PP_PATH_MAX];
    struct file f;
    int rc = *out_rc, lost;
    while ((lost = pp_transport_recv(tp, from, &f, sizeof(f))) == 0 && f.name[0]) {
        struct pp_io_file to = {.fd = -1};
        rc = rc < 0 ? rc : pp_path_format(path, "%s/%s", folder, f.name);
        rc = rc < 0 ? rc : pp_io_create(&pp_io_system, path, &to);
        for (uint64_t at = 0; lost == 0 && at < f.bytes; at += bytes_of_piece(&f, at)) {
            lost = pp_transport_recv(tp, from, block, bytes_of_piece(&f, at));
            rc = rc < 0 ? rc : pp_io_write(&to, block, bytes_of_piece(&f, at));
        }
        rc = rc < 0 || lost < 0 ? rc : pp_io_commit(&to, NULL);
        pp_io_abandon(&to);
        PP_TRY(lost);
    }
    *out_rc = rc == 0 && lost == 0 && f.bytes != 0
                  ? pp_fail(PP_EIO, "rank %d cannot read its files", from)
                  : rc;
    return lost;
}

/* ---- a checkpoint */

/* Splits the path of a checkpoint into its folder and its step. */
static int split_ckpt_path(const char *path, char dir[PP_PATH_MAX], int64_t *step)
{
    const char *name = strrchr(path, '/');
    if (!name || sscanf(name, "/step-%" SCNd64, step) != 1)
        return pp_fail(PP_EFORMAT, "%s has not the name of a checkpoint", path);
    return pp_path_format(dir, "%.*s", (int)(name - path), path);
}

/* Copies the checkpoint of rank `from` to the same path on rank `to`. Other ranks do nothing. */
static int carry_checkpoint(const struct trainer *tr, int from, int to, const char *path,
                            int *out_rc)
{
    struct pp_ckpt_save save = {.step = 0};
    char hash[PP_SHA256_HEX], dir[PP_PATH_MAX];
    if (tr->tp->rank == from)
        return copies_send(tr->tp, to, path, out_rc);
    if (tr->tp->rank != to)
        return 0;
    int rc = pp_config_hash(tr->run->cfg, hash);
    rc = rc < 0 ? rc : split_ckpt_path(path, dir, &save.step);
    rc = rc < 0 ? rc : pp_dir_create(dir);
    rc = rc < 0 ? rc : pp_ckpt_begin(&pp_io_system, dir, save.step, hash, 0, &save);
    bool begun = rc == 0;
    int lost = copies_take(tr->tp, from, save.folder, &rc);
    if (begun && rc == 0 && lost == 0)
        rc = pp_ckpt_adopt(&pp_io_system, &save);
    else if (begun)
        pp_ckpt_abandon(&pp_io_system, &save);
    *out_rc = rc;
    return lost;
}

int copies_give(const struct trainer *tr, const char *path, int hosts)
{
    struct pp_transport *tp = tr->tp;
    int rc = 0;
    for (int r = 1, n = 0; r < tp->size && n != hosts; r++) {
        struct pp_ckpt *ck = NULL;
        bool lacks = hosts >= 0;
        if (tr->apart[r] != r + 1)
            continue;
        n++;
        if (tp->rank == r) {
            lacks = lacks || pp_ckpt_open(path, PP_CKPT_STRUCTURE, &ck) < 0;
            pp_ckpt_close(&ck);
            PP_TRY(pp_transport_send(tp, 0, &lacks, sizeof(lacks)));
        } else if (tp->rank == 0) {
            PP_TRY(pp_transport_recv(tp, r, &lacks, sizeof(lacks)));
        }
        if (lacks && (tp->rank == 0 || tp->rank == r))
            PP_TRY(carry_checkpoint(tr, 0, r, path, &rc));
    }
    return pp_transport_agree(tp, rc);
}

/* ---- the beginning */

/* Returns the first rank on the host of rank r. Sets *hosts to the number of hosts. */
static int find_first_of_host(const struct pp_run *run, int r, int *hosts)
{
    int first = -1;
    *hosts = 0;
    for (int i = 0; i < run->layout->ranks; i++) {
        int k = 0;
        while (strcmp(run->seats[k].host_name, run->seats[i].host_name) != 0)
            k++;
        *hosts += k == i;
        first = i == r ? k : first;
    }
    return first;
}

int copies_find(const struct trainer *tr)
{
    const char *word = tr->spec->options->resume;
    int hosts, me = tr->tp->rank, best = 0, copies = tr->run->cfg->checkpoint.copies;
    bool first = find_first_of_host(tr->run, me, &hosts) == me;
    if (copies >= hosts && tr->run->cfg->run.dir[0]) {
        return pp_fail(PP_ECONFIG, "checkpoint.copies = %d needs %d hosts, but the ranks are on %d",
                       copies, copies + 1, hosts);
    }
    if (hosts == 1 || !word || strcmp(word, "auto") != 0)
        return 0;
    char mine[PP_PATH_MAX] = "";
    PP_OWN_MEMORY char(*all)[PP_PATH_MAX] = pp_alloc((size_t)tr->tp->size, sizeof(*all));
    PP_TRY(pp_transport_agree(tr->tp, all ? 0 : PP_ERESOURCE));
    pp_assert(all != NULL); /* else the ranks had not agreed */
    int found =
        first ? resume_newest(tr, copies > 0 ? PP_CKPT_VERIFY : PP_CKPT_STRUCTURE, mine) : 0;
    PP_TRY(pp_transport_agree(tr->tp, found));
    PP_TRY(pp_transport_allgather(tr->tp, mine, sizeof(mine), all));
    for (int r = 1; r < tr->tp->size; r++)
        best = pp_ckpt_path_order(all[r], all[best]) > 0 ? r : best;
    if (best == 0)
        return 0;
    if (me == 0)
        pp_log_info("%s comes from %s", all[best], tr->run->seats[best].host_name);
    int rc = 0, lost = carry_checkpoint(tr, best, 0, all[best], &rc);
    return lost < 0 ? lost : pp_transport_agree(tr->tp, rc);
}

/* Checks that the run may begin in its run folder on a host that does not see the folder of rank
 * 0. */
static int check_apart(const struct trainer *tr)
{
    const struct pp_train_options *options = tr->spec->options;
    char dir[PP_PATH_MAX];
    int64_t *steps = NULL;
    int n = 0;
    PP_TRY(pp_path_format(dir, "%s/" PP_CKPT_DIR, tr->dir));
    PP_TRY(pp_ckpt_list(dir, &steps, &n));
    pp_free(steps);
    bool wanted = options->overwrite || (options->resume && strcmp(options->resume, "auto") == 0);
    if (n > 0 && !wanted && !tr->begin.goes_on) {
        return pp_fail(PP_ECONFIG,
                       "run folder %s of %s has checkpoints: continue with --resume, name another "
                       "with --dir, or add --overwrite",
                       tr->dir, tr->run->seats[tr->tp->rank].host_name);
    }
    return 0;
}

int copies_tidy(const struct trainer *tr)
{
    char dir[PP_PATH_MAX];
    struct timespec now;
    if (!tr->dir[0] || tr->apart[tr->tp->rank] != tr->tp->rank + 1)
        return 0;
    PP_TRY(pp_path_format(dir, "%s/" PP_CKPT_DIR, tr->dir));
    clock_gettime(CLOCK_REALTIME, &now);
    PP_TRY(pp_ckpt_drop_newer(&pp_io_system, dir, tr->begin.goes_on ? tr->begin.step : -1));
    return pp_ckpt_sweep(&pp_io_system, dir, (int64_t)now.tv_sec * 1000000000 + now.tv_nsec);
}

int copies_begin(struct trainer *tr)
{
    struct stat st;
    char lock[PP_PATH_MAX];
    int hosts, first = find_first_of_host(tr->run, tr->tp->rank, &hosts);
    if (hosts == 1 || !tr->dir[0] || tr->begin.nothing_left)
        return 0;
    PP_TRY(pp_path_format(lock, "%s/" PP_LOCK_NAME, tr->dir));
    /* Who holds the lock in the folder decides what may be removed there. */
    PP_TRY(pp_transport_agree(tr->tp, pp_path_stat(lock, false, &st)));
    bool same = st.st_mode != 0 &&
                tr->begin.locked_ns == (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    int32_t mine = same || tr->tp->rank == 0 ? 0 : first + 1;
    PP_TRY(pp_transport_allgather(tr->tp, &mine, sizeof(mine), tr->apart));
    PP_TRY(pp_transport_agree(tr->tp, mine == tr->tp->rank + 1 ? check_apart(tr) : 0));
    return tr->begin.goes_on ? copies_give(tr, tr->begin.from, -1) : 0;
}
