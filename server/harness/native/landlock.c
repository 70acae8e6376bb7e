#include "server/harness/native/landlock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CREATE_VERSION 1U
#define RULE_PATH_BENEATH 1

#define FS_EXECUTE (1ULL << 0)
#define FS_WRITE_FILE (1ULL << 1)
#define FS_READ_FILE (1ULL << 2)
#define FS_READ_DIR (1ULL << 3)
#define FS_MAKE_CHAR (1ULL << 6)
#define FS_MAKE_BLOCK (1ULL << 11)
#define FS_TRUNCATE (1ULL << 14)
#define FS_IOCTL_DEV (1ULL << 15)
#define FS_FILE_RIGHTS (FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV)

#define NET_BIND_AND_CONNECT 3ULL      /* TCP, ABI 4 */
#define SCOPE_ABSTRACT_AND_SIGNAL 3ULL /* ABI 6 */

struct ruleset_attr {
    uint64_t handled_fs, handled_net, scoped;
};

struct path_attr {
    uint64_t allowed;
    int32_t parent_fd;
} __attribute__((packed));

int
landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_VERSION);

    return abi < 0 ? harness_fail_errno("Landlock") : (int)abi;
}

/* Rights that each ABI knows: 13 at first, then REFER, TRUNCATE and IOCTL_DEV with 2, 3 and 5. */
static uint64_t
handled_rights(int abi)
{
    static const uint64_t by_abi[] = {
        0, (1ULL << 13) - 1, (1ULL << 14) - 1, (1ULL << 15) - 1, (1ULL << 15) - 1, (1ULL << 16) - 1
    };

    return by_abi[abi < 5 ? abi : 5];
}

static int
add_path(int ruleset, const char *path, uint64_t rights)
{
    struct path_attr attr = { .allowed = rights };
    struct stat st;
    int code = 0;

    attr.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (attr.parent_fd < 0)
        return harness_fail_errno("Landlock: open %s", path);
    if (fstat(attr.parent_fd, &st) == 0 && !S_ISDIR(st.st_mode))
        attr.allowed &= FS_FILE_RIGHTS; /* the kernel refuses directory rights on a file */
    if (syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &attr, 0) != 0)
        code = harness_fail_errno("Landlock: a rule for %s", path);
    close(attr.parent_fd);
    return code;
}

/* NVIDIA's come and go with the driver; only those that are there can be named. */
static int
add_devices(int ruleset, uint64_t rights, int has_gpus)
{
    static const char *const plain[] = { "/dev/null",   "/dev/zero",    "/dev/full",
                                         "/dev/random", "/dev/urandom", NULL };
    char path[300];
    int code = 0;
    DIR *dir;

    for (int i = 0; plain[i] != NULL && code == 0; i++)
        if (access(plain[i], F_OK) == 0)
            code = add_path(ruleset, plain[i], rights);
    dir = code == 0 && has_gpus ? opendir("/dev") : NULL;
    if (dir == NULL)
        return code;
    for (struct dirent *e = readdir(dir); e != NULL && code == 0; e = readdir(dir)) {
        if (strncmp(e->d_name, "nvidia", 6) != 0)
            continue;
        snprintf(path, sizeof(path), "/dev/%s",
                 e->d_name); /* nvidia-caps is a directory; its nodes lie beneath */
        code = add_path(ruleset, path, rights);
    }
    closedir(dir);
    return code;
}

static int
add_rules(int ruleset, const struct landlock_paths *paths, uint64_t handled)
{
    uint64_t read_rights = FS_READ_FILE | FS_READ_DIR | FS_EXECUTE;
    uint64_t file_rights = (FS_READ_FILE | FS_WRITE_FILE | FS_TRUNCATE) & handled;
    int code = add_path(ruleset, "/", read_rights);

    if (code == 0)
        code = add_path(ruleset, paths->writable, handled & ~(FS_MAKE_CHAR | FS_MAKE_BLOCK | FS_IOCTL_DEV));
    if (code == 0)
        code = add_path(ruleset, "/proc", file_rights | FS_READ_DIR);
    if (code == 0)
        code = add_devices(ruleset, (file_rights | FS_IOCTL_DEV | FS_READ_DIR) & handled, paths->has_gpus);
    return code;
}

static int
create_ruleset(int abi, uint64_t handled, const struct landlock_paths *paths, int *has_scopes)
{
    struct ruleset_attr attr = { .handled_fs = handled };
    size_t size = abi >= 6 ? sizeof(attr) : abi >= 4 ? 2 * sizeof(uint64_t) : sizeof(uint64_t);
    long fd;

    attr.handled_net = abi >= 4 && !paths->without_tcp ? NET_BIND_AND_CONNECT : 0;
    attr.scoped = abi >= 6 && !paths->without_scopes ? SCOPE_ABSTRACT_AND_SIGNAL : 0;
    *has_scopes = attr.scoped != 0;
    fd = syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    if (fd < 0 && errno == EINVAL && abi >= 6) {
        /* Some distributions' kernels claim ABI 6 without its scopes. */
        *has_scopes = 0;
        attr.scoped = 0;
        fd = syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    }
    return fd < 0 ? harness_fail_errno("Landlock: make the rules") : (int)fd;
}

int
landlock_enter(const struct landlock_paths *paths, int abi, int *has_scopes)
{
    uint64_t handled = handled_rights(abi);
    int ruleset = create_ruleset(abi, handled, paths, has_scopes);
    int code;

    if (ruleset < 0)
        return ruleset;
    code = add_rules(ruleset, paths, handled);
    if (code == 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) != 0)
        code = harness_fail_errno("Landlock: apply the rules");
    close(ruleset);
    return code;
}
