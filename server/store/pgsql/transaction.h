/*
 * transaction.h - the writer's transactions, and how their outcome is found after the loss of the connection:
 * operations of backend.h. The writer's thread, unless a comment says otherwise.
 */
#ifndef PGSQL_TRANSACTION_H
#define PGSQL_TRANSACTION_H

#include "server/store/pgsql/pgsql.h"

/* Waits for the database where it is away, until pg_hurry(). */
int pg_transaction_begin(struct store_backend *b, struct error *err);
/* 0: it is durable, also where the connection was lost meanwhile; ERR_UNAVAILABLE: it is not there, do it again. */
int pg_transaction_commit(struct store_backend *b, struct error *err);
void pg_transaction_rollback(struct store_backend *b);
int pg_transaction_save(struct store_backend *b, struct error *err);
int pg_transaction_keep(struct store_backend *b, struct error *err);
void pg_transaction_undo(struct store_backend *b);
bool pg_transaction_is_open(const struct store_backend *b);
int pg_transaction_is_alone(struct store_backend *b, enum store_duty duty, bool *out, struct error *err);

/* Before the end: no outcome of this writer's is queried later. */
void pg_transaction_forget(struct pgsql *p);

/* Any thread. */
bool pg_is_away(const struct store_backend *b);
void pg_hurry(struct store_backend *b);

#endif
