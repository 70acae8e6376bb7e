#include "server/store/backend.h"
#include "server/store/private.h"
#include "server/store/readers.h"

/* Each read of store.h is the reader's own; on the loop its own reader makes it. */

int
reader_get_task(struct store_reader *r, const char *id, struct task_row *out, struct error *err)
{
    return r->ops->get_task(r, id, out, err);
}

int
store_get_task(struct store *s, const char *id, struct task_row *out, struct error *err)
{
    return reader_get_task(s->loop_reader, id, out, err);
}

int
reader_find_task(struct store_reader *r, const char *client, const char *name, char id[HASH_TEXT_SIZE],
                 bool *is_own, struct error *err)
{
    return r->ops->find_task(r, client, name, id, is_own, err);
}

int
store_find_task(struct store *s, const char *client, const char *name, char id[HASH_TEXT_SIZE], bool *is_own,
                struct error *err)
{
    return reader_find_task(s->loop_reader, client, name, id, is_own, err);
}

int
reader_get_submission(struct store_reader *r, const char *id, struct submission_row *out, struct error *err)
{
    return r->ops->get_submission(r, id, out, err);
}

int
store_get_submission(struct store *s, const char *id, struct submission_row *out, struct error *err)
{
    return reader_get_submission(s->loop_reader, id, out, err);
}

int
reader_is_unfinished(struct store_reader *r, const char *id, bool *out, struct error *err)
{
    return r->ops->is_unfinished(r, id, out, err);
}

int
store_is_unfinished(struct store *s, const char *id, bool *out, struct error *err)
{
    return reader_is_unfinished(s->loop_reader, id, out, err);
}

int
reader_get_answer(struct store_reader *r, const char *id, char **client, char **verdict, struct error *err)
{
    return r->ops->get_answer(r, id, client, verdict, err);
}

int
store_get_answer(struct store *s, const char *id, char **client, char **verdict, struct error *err)
{
    return reader_get_answer(s->loop_reader, id, client, verdict, err);
}

int
reader_get_source(struct store_reader *r, const char *hash, struct buffer *out, struct error *err)
{
    return r->ops->get_source(r, hash, out, err);
}

int
store_get_source(struct store *s, const char *hash, struct buffer *out, struct error *err)
{
    return reader_get_source(s->loop_reader, hash, out, err);
}

int
reader_get_carried(struct store_reader *r, const char *id, struct carried_row *out, struct error *err)
{
    *out = (struct carried_row){ 0 };
    return r->ops->get_carried ? r->ops->get_carried(r, id, out, err)
                               : error_set(err, ERR_NOTFOUND, "nothing was handed on with %s", id);
}

int
reader_get_log(struct store_reader *r, const char *submission_id, struct buffer *out, struct error *err)
{
    return r->ops->get_log(r, submission_id, out, err);
}

int
store_get_log(struct store *s, const char *submission_id, struct buffer *out, struct error *err)
{
    return reader_get_log(s->loop_reader, submission_id, out, err);
}

int
reader_get_group(struct store_reader *r, const char *id, struct group_row *out, struct error *err)
{
    return r->ops->get_group(r, id, out, err);
}

int
store_get_group(struct store *s, const char *id, struct group_row *out, struct error *err)
{
    return reader_get_group(s->loop_reader, id, out, err);
}

int
reader_get_key(struct store_reader *r, const char *client, const char *key, int64_t now_ms,
               struct key_row *out, struct error *err)
{
    return r->ops->get_key(r, client, key, now_ms, out, err);
}

int
store_get_key(struct store *s, const char *client, const char *key, int64_t now_ms, struct key_row *out,
              struct error *err)
{
    return reader_get_key(s->loop_reader, client, key, now_ms, out, err);
}

int
reader_each_of_group(struct store_reader *r, const char *group_id, store_submission_cb *row_cb, void *arg,
                     struct error *err)
{
    return r->ops->each_of_group(r, group_id, row_cb, arg, err);
}

int
store_each_of_group(struct store *s, const char *group_id, store_submission_cb *row_cb, void *arg,
                    struct error *err)
{
    return reader_each_of_group(s->loop_reader, group_id, row_cb, arg, err);
}

int
reader_find_cached(struct store_reader *r, const char *cache_key, struct submission_row *out,
                   struct error *err)
{
    return r->ops->find_cached(r, cache_key, out, err);
}

int
store_find_cached(struct store *s, const char *cache_key, struct submission_row *out, struct error *err)
{
    return reader_find_cached(s->loop_reader, cache_key, out, err);
}

int
reader_each_usage(struct store_reader *r, int64_t since_ms, store_usage_cb *usage_cb, void *arg,
                  struct error *err)
{
    return r->ops->each_usage(r, since_ms, usage_cb, arg, err);
}

int
store_each_usage(struct store *s, int64_t since_ms, store_usage_cb *usage_cb, void *arg, struct error *err)
{
    return reader_each_usage(s->loop_reader, since_ms, usage_cb, arg, err);
}

int
reader_list_submissions(struct store_reader *r, const struct submission_filter *f,
                        store_submission_cb *row_cb, void *arg, struct error *err)
{
    return r->ops->list_submissions(r, f, row_cb, arg, err);
}

int
store_list_submissions(struct store *s, const struct submission_filter *f, store_submission_cb *row_cb,
                       void *arg, struct error *err)
{
    return reader_list_submissions(s->loop_reader, f, row_cb, arg, err);
}

int
reader_list_briefs(struct store_reader *r, const struct submission_filter *f, store_brief_cb *row_cb,
                   void *arg, struct error *err)
{
    return r->ops->list_briefs(r, f, row_cb, arg, err);
}

int
store_list_briefs(struct store *s, const struct submission_filter *f, store_brief_cb *row_cb, void *arg,
                  struct error *err)
{
    return reader_list_briefs(s->loop_reader, f, row_cb, arg, err);
}

int
reader_list_tasks(struct store_reader *r, const char *name, const char *after, int limit,
                  store_task_cb *row_cb, void *arg, struct error *err)
{
    return r->ops->list_tasks(r, name, after, limit, row_cb, arg, err);
}

int
store_list_tasks(struct store *s, const char *name, const char *after, int limit, store_task_cb *row_cb,
                 void *arg, struct error *err)
{
    return reader_list_tasks(s->loop_reader, name, after, limit, row_cb, arg, err);
}

int
reader_each_unfinished(struct store_reader *r, store_submission_cb *row_cb, void *arg, struct error *err)
{
    return r->ops->each_unfinished(r, row_cb, arg, err);
}

int
store_each_unfinished(struct store *s, store_submission_cb *row_cb, void *arg, struct error *err)
{
    return reader_each_unfinished(s->loop_reader, row_cb, arg, err);
}

int
reader_each_calibration(struct store_reader *r, store_calibration_cb *row_cb, void *arg, struct error *err)
{
    return r->ops->each_calibration(r, row_cb, arg, err);
}

int
store_each_calibration(struct store *s, store_calibration_cb *row_cb, void *arg, struct error *err)
{
    return reader_each_calibration(s->loop_reader, row_cb, arg, err);
}

int
reader_each_canary(struct store_reader *r, store_canary_cb *row_cb, void *arg, struct error *err)
{
    return r->ops->each_canary(r, row_cb, arg, err);
}

int
store_each_canary(struct store *s, store_canary_cb *row_cb, void *arg, struct error *err)
{
    return reader_each_canary(s->loop_reader, row_cb, arg, err);
}

int
reader_each_trend(struct store_reader *r, const char *scope, int span_s, int64_t since_s,
                  store_trend_cb *row_cb, void *arg, struct error *err)
{
    return r->ops->each_trend(r, scope, span_s, since_s, row_cb, arg, err);
}

int
store_each_trend(struct store *s, const char *scope, int span_s, int64_t since_s, store_trend_cb *row_cb,
                 void *arg, struct error *err)
{
    return reader_each_trend(s->loop_reader, scope, span_s, since_s, row_cb, arg, err);
}

int
reader_each_failure(struct store_reader *r, const struct failure_filter *f, store_failure_cb *row_cb,
                    void *arg, struct error *err)
{
    return r->ops->each_failure(r, f, row_cb, arg, err);
}

int
store_each_failure(struct store *s, const struct failure_filter *f, store_failure_cb *row_cb, void *arg,
                   struct error *err)
{
    return reader_each_failure(s->loop_reader, f, row_cb, arg, err);
}

int
reader_each_task_sum(struct store_reader *r, const char *scope, int64_t before_ms, const char *before_id,
                     int limit, store_task_sum_cb *row_cb, void *arg, struct error *err)
{
    return r->ops->each_task_sum(r, scope, before_ms, before_id, limit, row_cb, arg, err);
}

int
store_each_task_sum(struct store *s, const char *scope, int64_t before_ms, const char *before_id, int limit,
                    store_task_sum_cb *row_cb, void *arg, struct error *err)
{
    return reader_each_task_sum(s->loop_reader, scope, before_ms, before_id, limit, row_cb, arg, err);
}

int
reader_get_task_sum(struct store_reader *r, const char *scope, const char *task_id, store_task_sum_cb *row_cb,
                    void *arg, struct error *err)
{
    return r->ops->get_task_sum(r, scope, task_id, row_cb, arg, err);
}

int
reader_each_leader(struct store_reader *r, const char *task_id, const char *client, int limit,
                   store_leader_cb *row_cb, void *arg, struct error *err)
{
    return r->ops->each_leader(r, task_id, client, limit, row_cb, arg, err);
}

int
store_each_leader(struct store *s, const char *task_id, const char *client, int limit,
                  store_leader_cb *row_cb, void *arg, struct error *err)
{
    return reader_each_leader(s->loop_reader, task_id, client, limit, row_cb, arg, err);
}

int
reader_each_record(struct store_reader *r, const char *scope, const char *task_id, store_record_cb *row_cb,
                   void *arg, struct error *err)
{
    return r->ops->each_record(r, scope, task_id, row_cb, arg, err);
}

int
store_each_record(struct store *s, const char *scope, const char *task_id, store_record_cb *row_cb, void *arg,
                  struct error *err)
{
    return reader_each_record(s->loop_reader, scope, task_id, row_cb, arg, err);
}

int
reader_each_group(struct store_reader *r, const struct groups_filter *f, store_group_sum_cb *row_cb,
                  void *arg, struct error *err)
{
    return r->ops->each_group(r, f, row_cb, arg, err);
}

int
store_each_group(struct store *s, const struct groups_filter *f, store_group_sum_cb *row_cb, void *arg,
                 struct error *err)
{
    return reader_each_group(s->loop_reader, f, row_cb, arg, err);
}

int
reader_each_run(struct store_reader *r, const char *scope, int64_t before_ms, const char *before, int limit,
                store_run_cb *row_cb, void *arg, struct error *err)
{
    return r->ops->each_run(r, scope, before_ms, before, limit, row_cb, arg, err);
}

int
store_each_run(struct store *s, const char *scope, int64_t before_ms, const char *before, int limit,
               store_run_cb *row_cb, void *arg, struct error *err)
{
    return reader_each_run(s->loop_reader, scope, before_ms, before, limit, row_cb, arg, err);
}

int
reader_get_run(struct store_reader *r, const char *scope, const char *run, store_run_cb *row_cb, void *arg,
               struct error *err)
{
    return r->ops->get_run(r, scope, run, row_cb, arg, err);
}

int
store_get_run(struct store *s, const char *scope, const char *run, store_run_cb *row_cb, void *arg,
              struct error *err)
{
    return reader_get_run(s->loop_reader, scope, run, row_cb, arg, err);
}

int
reader_each_run_step(struct store_reader *r, const char *scope, const char *run, int64_t from, int64_t width,
                     store_run_step_cb *row_cb, void *arg, struct error *err)
{
    return r->ops->each_run_step(r, scope, run, from, width, row_cb, arg, err);
}

int
store_each_run_step(struct store *s, const char *scope, const char *run, int64_t from, int64_t width,
                    store_run_step_cb *row_cb, void *arg, struct error *err)
{
    return reader_each_run_step(s->loop_reader, scope, run, from, width, row_cb, arg, err);
}

int
reader_each_run_task(struct store_reader *r, const char *scope, const char *run, int64_t from, int64_t width,
                     int limit, store_run_step_cb *row_cb, void *arg, struct error *err)
{
    return r->ops->each_run_task(r, scope, run, from, width, limit, row_cb, arg, err);
}

int
store_each_run_task(struct store *s, const char *scope, const char *run, int64_t from, int64_t width,
                    int limit, store_run_step_cb *row_cb, void *arg, struct error *err)
{
    return reader_each_run_task(s->loop_reader, scope, run, from, width, limit, row_cb, arg, err);
}

int
reader_each_node(struct store_reader *r, store_node_cb *row_cb, void *arg, struct error *err)
{
    return r->ops->each_node ? r->ops->each_node(r, row_cb, arg, err) : 0;
}

int
reader_each_cancel(struct store_reader *r, const char *node, int limit, store_cancel_cb *row_cb, void *arg,
                   struct error *err)
{
    return r->ops->each_cancel ? r->ops->each_cancel(r, node, limit, row_cb, arg, err) : 0;
}

static bool
found_cb(void *arg, const struct submission_row *row)
{
    (void)row;
    *(bool *)arg = true;
    return false;
}

int
reader_waits(struct store_reader *r, const struct store_lease *l, const struct store_wants *wants, bool *out,
             struct error *err)
{
    const struct submission_filter queued = { .state = SUBMISSION_QUEUED, .limit = 1 };

    static const struct store_wants all;

    *out = false;
    return r->ops->waits ? r->ops->waits(r, l, wants ? wants : &all, out, err)
                         : reader_list_submissions(r, &queued, found_cb, out, err);
}

int
reader_count(struct store_reader *r, struct store_counts *out, struct error *err)
{
    return r->ops->count(r, out, err);
}

int
store_count(struct store *s, struct store_counts *out, struct error *err)
{
    return reader_count(s->loop_reader, out, err);
}

void
store_reads_begin(struct store *s)
{
    s->loop_reader->ops->begin(s->loop_reader);
}

void
store_reads_end(struct store *s)
{
    s->loop_reader->ops->end(s->loop_reader);
}

int
store_read(struct store *s, store_read_cb *read_cb, store_read_done_cb *done_cb, void *arg, struct error *err)
{
    return readers_put(s->readers, read_cb, done_cb, arg, err);
}
