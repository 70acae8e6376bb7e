/* sums_reader.h - the reader's statements over the sums (sums.h); what they read is in store.h. */
#ifndef SQLITE_SUMS_READER_H
#define SQLITE_SUMS_READER_H

#include <sqlite3.h>

#include "common/error.h"
#include "server/store/sqlite/reading.h"

/* 0, ERR_STORE or ERR_NOMEM; release it in either case. */
int sums_reader_init(struct sqlite_reader *r, struct error *err);
void sums_reader_release(struct sqlite_reader *r);

/* store.h, without the prefix. */
int sums_each_trend(struct store_reader *r, const char *scope, int span_s, int64_t since_s,
                    store_trend_cb *row_cb, void *arg, struct error *err);
int sums_each_failure(struct store_reader *r, const struct failure_filter *f, store_failure_cb *row_cb,
                      void *arg, struct error *err);
int sums_each_task_sum(struct store_reader *r, const char *scope, int64_t before_ms, const char *before_id,
                       int limit, store_task_sum_cb *row_cb, void *arg, struct error *err);
int sums_get_task_sum(struct store_reader *r, const char *scope, const char *task_id,
                      store_task_sum_cb *row_cb, void *arg, struct error *err);
int sums_each_leader(struct store_reader *r, const char *task_id, const char *client, int limit,
                     store_leader_cb *row_cb, void *arg, struct error *err);
int sums_each_record(struct store_reader *r, const char *scope, const char *task_id, store_record_cb *row_cb,
                     void *arg, struct error *err);
int sums_each_group(struct store_reader *r, const struct groups_filter *f, store_group_sum_cb *row_cb,
                    void *arg, struct error *err);

#endif
