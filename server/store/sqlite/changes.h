/* changes.h - what each write does: the statements of the connection that writes. The writer's thread alone. */
#ifndef SQLITE_CHANGES_H
#define SQLITE_CHANGES_H

#include "server/store/backend.h"

/* The operations of backend.h. */
int changes_probe(struct store_backend *b, bool touch, struct error *err);
int changes_join(struct store_backend *b, const char *node, int64_t lease_ms, struct store_lease *out,
                 struct error *err);
int changes_renew(struct store_backend *b, const struct store_lease *l, int64_t lease_ms,
                  const struct store_node_state *state, struct error *err);
int changes_reap(struct store_backend *b, char holder[STORE_HOLDER_SIZE], struct error *err);
int changes_claim(struct store_backend *b, const struct store_lease *l, const struct store_wants *wants,
                  const struct store_claim *held, struct store_claim *out, struct error *err);
int changes_claim_next(struct store_backend *b, const struct store_lease *l, const struct store_wants *wants,
                       size_t most, struct store_claim *out, size_t *n, struct error *err);
int changes_release(struct store_backend *b, const struct store_claim *c, struct error *err);
int changes_set_attempts(struct store_backend *b, const struct store_claim *c, struct error *err);
int changes_finish(struct store_backend *b, const struct submission_row *row, const char *log,
                   size_t log_size, struct error *err);

#endif
