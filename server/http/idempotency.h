/* idempotency.h - the same request twice. Private to http/. Loop thread. */
#ifndef HTTP_IDEMPOTENCY_H
#define HTTP_IDEMPOTENCY_H

#include "server/http/exchange.h"
#include "server/http/running_keys.h"

/* Idempotency-Key of the header as x->key; false: the problem (400) is sent. */
bool idempotency_read(struct exchange *x);
/* k (NULL: no key was sent) is for exchange_begin(). */
typedef void idempotency_cb(struct exchange *x, struct running_key *k);
/*
 * Before the funnel is asked: `go` goes on, or the answer is sent, be it 409 or 422, or by replay, for which x->id names
 * what the first request made.
 */
void idempotency_begin(struct exchange *x, exchange_cb *replay, idempotency_cb *go);

#endif
