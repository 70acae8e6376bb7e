#include "server/harness/native/doorbell.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "server/harness/native/memory.h"

_Static_assert(sizeof(struct doorbell) <= DOORBELL_BYTES, "the doorbell fits its page");
_Static_assert(offsetof(struct doorbell, answer) == 64, "each side writes its own cache lines");

#define AWAIT_SLICE_NS (5 * 1000 * 1000)
#define SPINS_PER_LOOK 64 /* reading the clock costs more than a spin */

static inline void
spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static inline uint32_t
load_acquire(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Sleeps while *word == value, until an absolute time. 0 or a positive errno. */
static int
futex_sleep(const uint32_t *word, uint32_t value, int64_t until_ns)
{
    struct timespec at = { .tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000 };

    if (syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value, &at, NULL, FUTEX_BITSET_MATCH_ANY) == 0)
        return 0;
    return errno;
}

static void
futex_wake(const uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Spins until *word is (or is not) value, or the time has come. 1 when it is so. */
static int
spin(const uint32_t *word, uint32_t value, int want_equal, int64_t until_ns)
{
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if ((load_acquire(word) == value) == want_equal)
                return 1;
            spin_pause();
        }
    } while (harness_now_ns() < until_ns);
    return 0;
}

static int64_t
add_ns(int64_t start, int64_t span)
{
    if (span < 0 || span > INT64_MAX - start)
        return INT64_MAX;
    return start + span;
}

int
harness_doorbell_create(void)
{
    return harness_memfd("doorbell", DOORBELL_BYTES);
}

struct doorbell *
harness_doorbell_map(int fd)
{
    return harness_map(fd, DOORBELL_BYTES);
}

void
harness_doorbell_unmap(struct doorbell *page)
{
    harness_unmap(page, DOORBELL_BYTES);
}

int
harness_doorbell_wait(struct doorbell *page, uint32_t seen, int64_t spin_ns, int64_t timeout_ns,
                      uint32_t out[4])
{
    int64_t start = harness_now_ns();
    int64_t until = add_ns(start, timeout_ns);

    if (!spin(&page->bell, seen, 0, add_ns(start, spin_ns < 0 ? 0 : spin_ns))) {
        while (load_acquire(&page->bell) == seen) {
            int code = futex_sleep(&page->bell, seen, until);
            if (code == ETIMEDOUT)
                return harness_fail(ETIMEDOUT, "no bell within %lld ns", (long long)timeout_ns);
            if (code == EINTR)
                return harness_fail(EINTR, "a signal came while waiting for a bell");
            if (code != 0 && code != EAGAIN)
                return harness_fail(code, "wait for a bell: %s", strerror(code));
        }
    }
    out[0] = load_acquire(&page->bell);
    out[1] = page->set;
    out[2] = page->calls;
    out[3] = page->sets;
    return 0;
}

int
harness_reply_write(struct doorbell *page, const void *bytes, size_t n)
{
    if (n > DOORBELL_REPLY_MAX)
        return harness_fail(EMSGSIZE, "a reply of %zu bytes: at most %d fit", n, DOORBELL_REPLY_MAX);
    if (page->reply_bytes == n && memcmp(page->reply, bytes, n) == 0 && page->reply_generation != 0)
        return 0;
    memcpy(page->reply, bytes, n);
    page->reply_bytes = (uint32_t)n;
    page->reply_generation++;
    if (page->reply_generation == 0)
        page->reply_generation = 1;
    return 0;
}

void
harness_doorbell_answer(struct doorbell *page, uint32_t bell, uint32_t status, uint64_t events_ns,
                        uint64_t host_ns)
{
    page->status = status;
    page->events_ns = events_ns;
    page->host_ns = host_ns;
    __atomic_store_n(&page->answer, bell, __ATOMIC_RELEASE);
    futex_wake(&page->answer);
}

uint32_t
harness_doorbell_ring(struct doorbell *page, uint32_t set, uint32_t calls, uint32_t sets)
{
    uint32_t bell = page->bell + 1;

    page->set = set;
    page->calls = calls;
    page->sets = sets;
    __atomic_store_n(&page->bell, bell, __ATOMIC_RELEASE);
    futex_wake(&page->bell);
    return bell;
}

static int
is_dead(int pidfd)
{
    struct pollfd p = { .fd = pidfd, .events = POLLIN };

    return pidfd >= 0 && poll(&p, 1, 0) > 0 && p.revents != 0;
}

int
harness_doorbell_await(struct doorbell *page, uint32_t bell, int pidfd, int64_t spin_ns, int64_t timeout_ns)
{
    int64_t start = harness_now_ns();
    int64_t until = add_ns(start, timeout_ns);
    int64_t spin_until = add_ns(start, spin_ns < 0 ? 0 : spin_ns);

    if (spin(&page->answer, bell, 1, spin_until < until ? spin_until : until))
        return 0;
    for (;;) {
        uint32_t answer = load_acquire(&page->answer);
        int64_t now;
        if (answer == bell)
            return 0;
        /* Dead first, then one more look: it may have answered and then died. */
        if (is_dead(pidfd)) {
            if (load_acquire(&page->answer) == bell)
                return 0;
            return harness_fail(ESRCH, "the child died before it answered bell %u", bell);
        }
        now = harness_now_ns();
        if (now >= until)
            return harness_fail(ETIMEDOUT, "bell %u was not answered within %lld ns", bell,
                                (long long)timeout_ns);
        /* A child that keeps changing the word costs us turns of this loop, not its end: the deadline holds. */
        futex_sleep(&page->answer, answer, now + AWAIT_SLICE_NS < until ? now + AWAIT_SLICE_NS : until);
    }
}

void
harness_doorbell_claims(const struct doorbell *page, uint32_t *status, uint32_t *generation,
                        uint64_t *events_ns, uint64_t *host_ns)
{
    if (status != NULL)
        *status = __atomic_load_n(&page->status, __ATOMIC_RELAXED);
    if (generation != NULL)
        *generation = __atomic_load_n(&page->reply_generation, __ATOMIC_RELAXED);
    if (events_ns != NULL)
        *events_ns = __atomic_load_n(&page->events_ns, __ATOMIC_RELAXED);
    if (host_ns != NULL)
        *host_ns = __atomic_load_n(&page->host_ns, __ATOMIC_RELAXED);
}

int
harness_reply_read(const struct doorbell *page, char *out, size_t cap, uint32_t *generation)
{
    uint32_t n = __atomic_load_n(&page->reply_bytes, __ATOMIC_RELAXED);

    if (generation != NULL)
        *generation = __atomic_load_n(&page->reply_generation, __ATOMIC_RELAXED);
    if (n > DOORBELL_REPLY_MAX || n > cap)
        return harness_fail(EPROTO, "the child says that its reply has %u bytes: at most %zu are taken", n,
                            cap < DOORBELL_REPLY_MAX ? cap : (size_t)DOORBELL_REPLY_MAX);
    memcpy(out, page->reply, n);
    return (int)n;
}
