#include "server/harness/native/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int
harness_memfd(const char *name, uint64_t size)
{
    int fd;

    if (size == 0 || size > INT64_MAX)
        return harness_fail(EINVAL, "memfd %s: size %llu is out of range", name, (unsigned long long)size);
    fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return harness_fail_errno("memfd %s", name);
    if (ftruncate(fd, (off_t)size) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int code = harness_fail_errno("memfd %s: size and seal %llu bytes", name, (unsigned long long)size);
        close(fd);
        return code;
    }
    return fd;
}

int
harness_arena_memfd(uint64_t size)
{
    return harness_memfd("arena", size);
}

static int
check_sealed(int fd, uint64_t size)
{
    struct stat st;
    int seals;

    if (fstat(fd, &st) != 0)
        return harness_fail_errno("map descriptor %d", fd);
    if ((uint64_t)st.st_size != size)
        return harness_fail(EINVAL, "map descriptor %d: it has %lld bytes, not %llu", fd,
                            (long long)st.st_size, (unsigned long long)size);
    seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return harness_fail(EPERM, "map descriptor %d: it is not sealed against shrinking", fd);
    return 0;
}

void *
harness_map(int fd, uint64_t size)
{
    void *mapped;

    if (size == 0 || check_sealed(fd, size) != 0)
        return NULL;
    mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        harness_fail_errno("map %llu bytes of descriptor %d", (unsigned long long)size, fd);
        return NULL;
    }
    return mapped;
}

void
harness_unmap(void *mapped, uint64_t size)
{
    if (mapped != NULL)
        munmap(mapped, size);
}
