#include "server/http/addresses.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

struct key {
    unsigned char bytes[16]; /* IPv6; IPv4 as IPv6 maps it */
};

struct address {
    UT_hash_handle hh;
    struct key key;
    int64_t open, trusted; /* connections; those of them that have shown a token */
    int64_t trust_ends_ns; /* once none of those is open; 0: it never had one */
    bool is_loopback;
};

struct addresses {
    struct address *table;
    unsigned idle; /* with no connection open */
};

struct addresses *
addresses_new(void)
{
    return calloc(1, sizeof(struct addresses));
}

static void
forget(struct addresses *all, struct address *a)
{
    HASH_DEL(all->table, a);
    free(a);
}

void
addresses_free(struct addresses *all)
{
    struct address *a, *next;

    if (!all)
        return;
    HASH_ITER(hh, all->table, a, next)
    {
        forget(all, a);
    }
    free(all);
}

/* Whether it is loopback's. */
static bool
key_of(const struct sockaddr *from, struct key *out)
{
    static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
    const struct sockaddr_in *v4 = (const void *)from;
    const struct sockaddr_in6 *v6 = (const void *)from;

    memset(out, 0, sizeof(*out));
    if (from->sa_family == AF_INET) {
        memcpy(out->bytes, mapped, sizeof(mapped));
        memcpy(out->bytes + sizeof(mapped), &v4->sin_addr, 4);
    } else if (from->sa_family == AF_INET6) {
        memcpy(out->bytes, &v6->sin6_addr, 16);
    }
    if (memcmp(out->bytes, mapped, sizeof(mapped)) == 0)
        return out->bytes[12] == 127;
    if (from->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr))
        return true;
    memset(out->bytes + 8, 0, 8);
    return false;
}

static bool
is_trusted(const struct address *a, int64_t now_ns)
{
    return a->is_loopback || a->trusted > 0 || now_ns < a->trust_ends_ns;
}

/* Those whose trust is over; if they are too many still, all. */
static void
sweep(struct addresses *all, int64_t now_ns)
{
    for (int pass = 0; pass < 2 && all->idle > ADDRESSES_IDLE_MAX; pass++) {
        struct address *a, *next;
        HASH_ITER(hh, all->table, a, next)
        {
            if (a->open > 0 || (pass == 0 && is_trusted(a, now_ns)))
                continue;
            forget(all, a);
            all->idle--;
        }
    }
}

struct address *
addresses_enter(struct addresses *all, const struct sockaddr *from, int64_t most, int64_t strangers,
                int64_t now_ns)
{
    struct address *a;
    struct key key;
    bool is_loopback = key_of(from, &key);

    HASH_FIND(hh, all->table, &key, sizeof(key), a);
    if (!a) {
        a = calloc(1, sizeof(*a));
        if (!a)
            return NULL;
        a->key = key;
        a->is_loopback = is_loopback;
        HASH_ADD(hh, all->table, key, sizeof(key), a);
        all->idle++;
    }
    if (a->open >= (is_trusted(a, now_ns) ? most : strangers))
        return NULL;
    all->idle -= a->open == 0;
    a->open++;
    return a;
}

void
address_trust(struct address *a)
{
    a->trusted++;
}

void
addresses_leave(struct addresses *all, struct address *a, bool was_trusted, int64_t now_ns)
{
    if (was_trusted) {
        a->trusted--;
        a->trust_ends_ns = now_ns + ADDRESS_TRUST_NS;
    }
    if (--a->open > 0)
        return;
    if (now_ns >= a->trust_ends_ns) {
        forget(all, a);
        return;
    }
    all->idle++;
    sweep(all, now_ns);
}
