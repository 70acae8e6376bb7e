/*
 * addresses.h - how many connections each address has open, and whether it may
 * have one more. Pure. Loop thread only.
 *
 * A connection comes before the header that could have a token in it, so the
 * token of one connection speaks for the others of its address: for as long as
 * that connection is open, and ADDRESS_TRUST_NS longer. An address is an IPv4
 * address or a 64-bit network of IPv6, which one machine may have all of.
 */
#ifndef HTTP_ADDRESSES_H
#define HTTP_ADDRESSES_H

#include <stdbool.h>
#include <stdint.h>

#include <sys/socket.h>

#define ADDRESS_TRUST_NS (10 * 60 * INT64_C(1000000000))
#define ADDRESSES_IDLE_MAX 1024 /* that are remembered with no connection open */

struct addresses;
struct address;

/* NULL: no memory. */
struct addresses *addresses_new(void);
void addresses_free(struct addresses *all); /* NULL is fine */

/*
 * One more connection from there. NULL: the address has as many as it may, or there is no memory.
 *   from       borrowed; of a family other than IPv4 and IPv6, all count as one address
 *   most       for loopback, and for an address that has shown a token
 *   strangers  for any other
 *   now_ns     monotonic, as in the calls below
 */
struct address *addresses_enter(struct addresses *all, const struct sockaddr *from, int64_t most,
                                int64_t strangers, int64_t now_ns);
/* A connection of it has shown a token that counts. Once for each connection. */
void address_trust(struct address *a);
/* A connection of it is closed; is_trusted: it was one that address_trust() was called for. a may be gone then. */
void addresses_leave(struct addresses *all, struct address *a, bool is_trusted, int64_t now_ns);

#endif
