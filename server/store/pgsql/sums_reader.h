/* sums_reader.h - reads of the sums (sums.h): operations of backend.h; what they read is in store.h. */
#ifndef PGSQL_SUMS_READER_H
#define PGSQL_SUMS_READER_H

#include "server/store/backend.h"

int pg_each_trend(struct store_reader *r, const char *scope, int span_s, int64_t since_s,
                  store_trend_cb *row_cb, void *arg, struct error *err);
int pg_each_failure(struct store_reader *r, const struct failure_filter *f, store_failure_cb *row_cb,
                    void *arg, struct error *err);
int pg_each_task_sum(struct store_reader *r, const char *scope, int64_t before_ms, const char *before_id,
                     int limit, store_task_sum_cb *row_cb, void *arg, struct error *err);
int pg_get_task_sum(struct store_reader *r, const char *scope, const char *task_id, store_task_sum_cb *row_cb,
                    void *arg, struct error *err);
int pg_each_leader(struct store_reader *r, const char *task_id, const char *client, int limit,
                   store_leader_cb *row_cb, void *arg, struct error *err);
int pg_each_record(struct store_reader *r, const char *scope, const char *task_id, store_record_cb *row_cb,
                   void *arg, struct error *err);
int pg_each_group(struct store_reader *r, const struct groups_filter *f, store_group_sum_cb *row_cb,
                  void *arg, struct error *err);

#endif
