#include "server/workers/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/log.h"

#define DEPTH_MAX 32
#define SPARE_BYTES (16ULL << 20) /* of a compile; less is full */
#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* --- removing --- */

struct removal {
    int top;        /* the directory that is being emptied */
    unsigned moved; /* directories brought up to the top so far */
    bool is_again;  /* something was brought up: another pass is due */
};

static int empty_directory(struct removal *r, int fd, int depth);

/* Its owner may have removed the permissions, which only root ignores. The owner's processes are gone. */
static int
open_entry(int parent, const char *name, int flags)
{
    int fd = openat(parent, name, flags);
    if (fd < 0 && errno == EACCES && fchmodat(parent, name, 0700, 0) == 0)
        fd = openat(parent, name, flags);
    return fd;
}

/* A candidate may nest directories without end; below DEPTH_MAX they are brought up to the top instead. */
static int
remove_directory(struct removal *r, int parent, const char *name, int depth)
{
    if (depth >= DEPTH_MAX) {
        char up[32];
        snprintf(up, sizeof(up), ".up-%u", r->moved++);
        r->is_again = true;
        return renameat(parent, name, r->top, up);
    }
    int fd = open_entry(parent, name, OPEN_DIR);
    if (fd < 0 || empty_directory(r, fd, depth + 1) != 0)
        return -1;
    return unlinkat(parent, name, AT_REMOVEDIR);
}

static bool
is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Takes fd. */
static int
empty_directory(struct removal *r, int fd, int depth)
{
    struct dirent *entry;
    struct stat info;
    int rc = 0;

    if (fchmod(fd, 0700) != 0)
        log_debug("scratch", "a directory keeps its mode: %s", strerror(errno));
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return -1;
    }
    while (rc == 0 && (entry = readdir(dir))) {
        if (is_dots(entry->d_name))
            continue;
        if (fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            rc = -1;
        else if (S_ISDIR(info.st_mode))
            rc = remove_directory(r, fd, entry->d_name, depth);
        else
            rc = unlinkat(fd, entry->d_name, 0);
    }
    int saved = errno;
    closedir(dir);
    errno = saved;
    return rc;
}

static int
empty(const char *path)
{
    AUTO_FD int top = open(path, OPEN_DIR);
    struct removal r = { .top = top };
    int rc;

    if (top < 0)
        return -1;
    do {
        r.is_again = false;
        int fd = openat(top, ".", OPEN_DIR);
        rc = fd < 0 ? -1 : empty_directory(&r, fd, 0);
    } while (rc == 0 && r.is_again);
    return rc;
}

int
scratch_remove_now(const char *path, struct error *err)
{
    if ((empty(path) != 0 || rmdir(path) != 0) && errno != ENOENT)
        return error_set(err, ERR_SYS, "remove %s", path);
    return 0;
}

/* --- making --- */

#define MADE_BY_MKDTEMP 6

/*
 * The entries that a daemon makes in its root: a child's directory, a compile cache, and folders moved up from too
 * deep.
 */
static bool
is_made_here(const char *name)
{
    if (strncmp(name, "cache-", strlen("cache-")) == 0 || strncmp(name, ".up-", strlen(".up-")) == 0)
        return true;
    const char *dash = strchr(name, '-');
    return dash && name[0] >= 'a' && name[0] <= 'z' &&
           strspn(name + 1, "0123456789") + 1 == (size_t)(dash - name) && dash > name + 1 &&
           strlen(dash + 1) == MADE_BY_MKDTEMP;
}

/* A start empties the root, and a slip in the settings must not cost what lay there before. */
static int
refuse_foreign(const char *root, struct error *err)
{
    DIR *dir = opendir(root);
    struct dirent *entry;
    int rc = 0;

    if (!dir)
        return error_set(err, ERR_SYS, "read the scratch directory %s", root);
    while (rc == 0 && (entry = readdir(dir)))
        if (!is_dots(entry->d_name) && !is_made_here(entry->d_name))
            rc = error_set(err, ERR_INPUT,
                           "the scratch directory %s is emptied at the start, and \"%.60s\" in it is not "
                           "verifierd's: name a new or an empty directory",
                           root, entry->d_name);
    closedir(dir);
    return rc;
}

int
scratch_check(const char *root, struct error *err)
{
    struct stat info;

    if (lstat(root, &info) != 0)
        return errno == ENOENT ? 0 : error_set(err, ERR_SYS, "look at the scratch directory %s", root);
    if (!S_ISDIR(info.st_mode))
        return error_set(err, ERR_INPUT, "the scratch directory %s is a link or a file", root);
    if (info.st_uid != geteuid())
        return error_set(err, ERR_INPUT, "the scratch directory %s belongs to another user", root);
    return refuse_foreign(root, err);
}

int
scratch_prepare(const char *root, int *held, struct error *err)
{
    if (mkdir(root, 0711) != 0 && errno != EEXIST)
        return error_set(err, ERR_SYS, "make the scratch directory %s", root);
    int rc = scratch_check(root, err);
    if (rc != 0)
        return rc;
    AUTO_FD int lock = open(root, OPEN_DIR);
    if (lock < 0)
        return error_set(err, ERR_SYS, "open the scratch directory %s", root);
    if (flock(lock, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK
                   ? error_set(err, ERR_CONFLICT, "the scratch directory %s is in use by another verifierd",
                               root)
                   : error_set(err, ERR_SYS, "lock the scratch directory %s", root);
    if (chmod(root, 0711) != 0 || empty(root) != 0)
        return error_set(err, ERR_SYS, "empty the scratch directory %s", root);
    if (chmod(root, 0711) != 0)
        return error_set(err, ERR_SYS, "open the scratch directory %s", root);
    if (held)
        *held = fd_take(&lock);
    return 0;
}

int
scratch_make(const char *root, const char *prefix, int64_t uid, char out[SCRATCH_PATH_SIZE],
             struct error *err)
{
    if (snprintf(out, SCRATCH_PATH_SIZE, "%s/%s-XXXXXX", root, prefix) >= SCRATCH_PATH_SIZE)
        return error_set(err, ERR_INPUT, "the scratch directory's path %.60s… is too long", root);
    char *made = mkdtemp(out);
    if (!made && errno == ENOENT && mkdir(root, 0711) == 0) { /* what cleans /tmp has removed it */
        memcpy(out + strlen(out) - 6, "XXXXXX", 6);
        made = chmod(root, 0711) == 0 ? mkdtemp(out) : NULL;
    }
    if (!made)
        return error_set(err, ERR_SYS, "make a directory in %s", root);
    if (uid != SCRATCH_NO_UID && lchown(out, (uid_t)uid, (gid_t)uid) != 0) {
        error_set(err, ERR_SYS, "give a directory in %s to uid %lld", root, (long long)uid);
        rmdir(out);
        return ERR_SYS;
    }
    return 0;
}

/* --- publishing --- */

struct census {
    int64_t bytes, entries;
};

static int publish_directory(struct census *c, int fd, int depth);

/* A hard link may lead to a file outside of this tree: a change of its owner would change that one. */
static int
publish_file(struct census *c, int parent, const char *name)
{
    AUTO_FD int fd = open_entry(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat info;

    if (fd < 0 || fstat(fd, &info) != 0)
        return -1;
    if (!S_ISREG(info.st_mode) || info.st_nlink != 1)
        return unlinkat(parent, name, 0);
    c->bytes += info.st_size;
    if (geteuid() == 0 && fchown(fd, geteuid(), getegid()) != 0)
        return -1;
    return fchmod(fd, 0555); /* launchers are loaded as libraries */
}

static int
publish_entry(struct census *c, int parent, const char *name, int depth)
{
    struct stat info;

    if (++c->entries > SCRATCH_CACHE_ENTRIES || c->bytes > SCRATCH_CACHE_BYTES || depth > DEPTH_MAX) {
        errno = EFBIG;
        return -1;
    }
    if (fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return -1;
    if (S_ISREG(info.st_mode))
        return publish_file(c, parent, name);
    if (!S_ISDIR(info.st_mode))
        return unlinkat(parent, name, 0);
    int fd = open_entry(parent, name, OPEN_DIR);
    return fd < 0 ? -1 : publish_directory(c, fd, depth + 1);
}

/* Takes fd. */
static int
publish_directory(struct census *c, int fd, int depth)
{
    struct dirent *entry;
    DIR *dir = fdopendir(fd);
    int rc = 0;

    if (!dir) {
        close(fd);
        return -1;
    }
    if (geteuid() == 0)
        rc = fchown(fd, geteuid(), getegid());
    while (rc == 0 && (entry = readdir(dir)))
        if (!is_dots(entry->d_name))
            rc = publish_entry(c, fd, entry->d_name, depth);
    if (rc == 0)
        rc = fchmod(fd, 0755);
    int saved = errno;
    closedir(dir);
    errno = saved;
    return rc;
}

int
scratch_publish_now(const char *from, const char *to, struct error *err)
{
    struct census census = { 0 };
    struct stat info;

    if (rename(from, to) != 0)
        return error_set(err, errno == ENOENT ? ERR_NOTFOUND : ERR_SYS, "move %s", from);
    if (lstat(to, &info) == 0 && !S_ISDIR(info.st_mode)) {
        /* A file or a link in a cache's place is not a cache; the candidate made it. */
        if (unlink(to) != 0)
            return error_set(err, ERR_SYS, "remove %s", to);
        return error_set(err, ERR_NOTFOUND, "%s is no directory", from);
    }
    int fd = open_entry(AT_FDCWD, to, OPEN_DIR);
    if (fd < 0 || publish_directory(&census, fd, 0) != 0)
        return error_set(err, errno == EFBIG ? ERR_FULL : ERR_SYS, "hand on the cache %s", to);
    return 0;
}

/* --- in libuv's pool --- */

struct work {
    uv_work_t req;
    char *from, *to; /* to NULL: remove from */
    scratch_publish_cb *cb;
    void *arg;
    int code;
    struct error err;
};

static void
work_free(struct work *w)
{
    if (w) {
        free(w->from);
        free(w->to);
    }
    free(w);
}

static void
work_cb(uv_work_t *req)
{
    struct work *w = req->data;
    w->code = w->to ? scratch_publish_now(w->from, w->to, &w->err) : scratch_remove_now(w->from, &w->err);
}

static void
after_cb(uv_work_t *req, int status)
{
    struct work *w = req->data;

    if (status != 0)
        w->code = error_set(&w->err, ERR_UNAVAILABLE, "%s: %s", w->from, uv_strerror(status));
    if (w->cb)
        w->cb(w->arg, w->code, &w->err);
    else if (w->code != 0)
        log_warn("scratch", "%s", w->err.text);
    work_free(w);
}

int
scratch_publish(uv_loop_t *loop, const char *from, const char *to, scratch_publish_cb *cb, void *arg,
                struct error *err)
{
    struct work *w = calloc(1, sizeof(*w));

    if (w) {
        w->req.data = w;
        w->from = strdup(from);
        w->to = to ? strdup(to) : NULL;
        w->cb = cb;
        w->arg = arg;
    }
    if (!w || !w->from || (to && !w->to) || uv_queue_work(loop, &w->req, work_cb, after_cb) != 0) {
        work_free(w);
        return error_set(err, ERR_NOMEM, "no memory to queue work on %s", from);
    }
    return 0;
}

const char *
scratch_trouble(const char *root)
{
    struct statvfs fs;

    if (statvfs(root, &fs) != 0)
        return NULL;
    if (fs.f_flag & ST_RDONLY)
        return "the scratch directory is on a read-only disk";
    return (uint64_t)fs.f_bavail * fs.f_frsize < SPARE_BYTES || (fs.f_files > 0 && fs.f_favail == 0)
               ? "the disk of the scratch directory is full"
               : NULL;
}

void
scratch_remove(uv_loop_t *loop, const char *path)
{
    struct error err = { 0 };
    if (scratch_publish(loop, path, NULL, NULL, NULL, &err) != 0)
        log_warn("scratch", "%s", err.text);
}
