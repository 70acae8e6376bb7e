/*
 * backend.h - what a database offers to be the store: two tables of operations, all of them blocking. store/ calls them
 * on threads of its own and brings the outcome to the loop; a back end knows no loop, no queue and no callback of the
 * daemon. Private to store/ and its back ends.
 *
 * Every operation returns 0 or a code of store.h and fills err. One back end means one connection that writes; each
 * reader has a connection of its own.
 */
#ifndef STORE_BACKEND_H
#define STORE_BACKEND_H

#include "server/store/store.h"

/* An opened database: the first member of the back end's own struct. */
struct store_backend {
    const struct backend_ops *ops;
};

/* A connection that reads, used by one thread at a time: the first member of the back end's own struct. */
struct store_reader {
    const struct reader_ops *ops;
};

/* New submissions that are stored together or not at all; borrowed. */
struct store_intake {
    const struct group_row *group; /* NULL: none */
    const struct key_row *key;     /* NULL: none */
    const struct submission_row *rows;
    const struct store_source *sources; /* one for each row */
    size_t n;
};

struct backend_ops {
    /* Loop's thread. lease: of this daemon, view. A reader is given: free() of its own table. close: once no reader is left. */
    const struct store_lease *(*lease)(const struct store_backend *b);
    int (*reader_new)(struct store_backend *b, struct store_reader **out, struct error *err);
    void (*close)(struct store_backend *b);
    const char *(*name)(const struct store_backend *b);  /* what a log line calls it */
    int64_t (*log_bytes)(const struct store_backend *b); /* of the write-ahead log; 0: not known here */

    /* Any thread. is_away: begin() waits for the database. hurry: it waits no longer, and fails. NULL: it never waits. */
    bool (*is_away)(const struct store_backend *b);
    void (*hurry)(struct store_backend *b);

    /*
     * Writer's thread, as all that follows. One transaction holds many writes, each of them between save() and keep(),
     * or undo() where it failed. is_open: false once the database has rolled the whole transaction back by itself.
     * ERR_UNAVAILABLE after begin(): nothing of the transaction is there, through no fault of a write's; it is made again.
     */
    int (*begin)(struct store_backend *b, struct error *err);
    int (*commit)(struct store_backend *b, struct error *err);
    void (*rollback)(struct store_backend *b);
    int (*save)(struct store_backend *b, struct error *err);
    int (*keep)(struct store_backend *b, struct error *err);
    void (*undo)(struct store_backend *b);
    bool (*is_open)(const struct store_backend *b);

    /* Is there room for a write? touch: write something, too. Nothing of it stays. */
    int (*probe)(struct store_backend *b, bool touch, struct error *err);

    /* The writes of store.h; see there for what they mean and which codes they return. */
    int (*add_task)(struct store_backend *b, const struct task_row *row, struct error *err);
    int (*name_task)(struct store_backend *b, const char *client, const char *name, const char *id,
                     int64_t now_ms, struct error *err);
    int (*rename_task)(struct store_backend *b, const char *client, const char *name, const char *id,
                       int64_t now_ms, struct error *err);
    int (*remove_task)(struct store_backend *b, const char *client, const char *id, struct error *err);
    int (*add_submissions)(struct store_backend *b, const struct store_intake *intake, struct error *err);
    int (*join)(struct store_backend *b, const char *node, int64_t lease_ms, struct store_lease *out,
                struct error *err);
    int (*renew)(struct store_backend *b, const struct store_lease *l, int64_t lease_ms,
                 const struct store_node_state *state, struct error *err); /* NULL: the keeper does */
    int (*reap)(struct store_backend *b, char holder[STORE_HOLDER_SIZE], struct error *err);
    int (*claim)(struct store_backend *b, const struct store_lease *l, const struct store_wants *wants,
                 const struct store_claim *held, struct store_claim *out, struct error *err);
    int (*claim_next)(struct store_backend *b, const struct store_lease *l, const struct store_wants *wants,
                      struct store_claim *out, struct error *err);
    int (*release)(struct store_backend *b, const struct store_claim *c, struct error *err);
    int (*hand_on)(struct store_backend *b, const struct store_claim *c, const struct store_carried *carried,
                   struct error *err); /* or NULL */
    int (*set_attempts)(struct store_backend *b, const struct store_claim *c, struct error *err);
    int (*cancel)(struct store_backend *b, const char *id, int why, struct error *err); /* or NULL */
    int (*finish)(struct store_backend *b, const struct submission_row *row, const char *log, size_t log_size,
                  struct error *err);
    int (*add_calibration)(struct store_backend *b, const struct calibration_row *row, struct error *err);
    int (*put_canary)(struct store_backend *b, const struct canary_row *row, struct error *err);
    int (*sweep)(struct store_backend *b, struct store_sweep *step, struct error *err);
};

/* A reader's own thread. Between begin() and end() all reads see one instant. */
struct reader_ops {
    void (*free)(struct store_reader *r);
    void (*begin)(struct store_reader *r);
    void (*end)(struct store_reader *r);

    int (*get_task)(struct store_reader *r, const char *id, struct task_row *out, struct error *err);
    int (*find_task)(struct store_reader *r, const char *client, const char *name, char id[HASH_TEXT_SIZE],
                     bool *is_own, struct error *err);
    int (*get_submission)(struct store_reader *r, const char *id, struct submission_row *out,
                          struct error *err);
    int (*is_unfinished)(struct store_reader *r, const char *id, bool *out, struct error *err);
    int (*get_answer)(struct store_reader *r, const char *id, char **client, char **verdict,
                      struct error *err);
    int (*get_source)(struct store_reader *r, const char *hash, struct buffer *out, struct error *err);
    int (*get_carried)(struct store_reader *r, const char *id, struct carried_row *out,
                       struct error *err); /* or NULL */
    int (*get_log)(struct store_reader *r, const char *submission_id, struct buffer *out, struct error *err);
    int (*get_group)(struct store_reader *r, const char *id, struct group_row *out, struct error *err);
    int (*get_key)(struct store_reader *r, const char *client, const char *key, int64_t now_ms,
                   struct key_row *out, struct error *err);
    int (*each_of_group)(struct store_reader *r, const char *group_id, store_submission_cb *row_cb, void *arg,
                         struct error *err);
    int (*find_cached)(struct store_reader *r, const char *cache_key, struct submission_row *out,
                       struct error *err);
    int (*each_usage)(struct store_reader *r, int64_t since_ms, store_usage_cb *usage_cb, void *arg,
                      struct error *err);
    int (*list_submissions)(struct store_reader *r, const struct submission_filter *f,
                            store_submission_cb *row_cb, void *arg, struct error *err);
    int (*list_briefs)(struct store_reader *r, const struct submission_filter *f, store_brief_cb *row_cb,
                       void *arg, struct error *err);
    int (*list_tasks)(struct store_reader *r, const char *name, const char *after, int limit,
                      store_task_cb *row_cb, void *arg, struct error *err);
    int (*each_unfinished)(struct store_reader *r, store_submission_cb *row_cb, void *arg, struct error *err);
    int (*each_calibration)(struct store_reader *r, store_calibration_cb *row_cb, void *arg,
                            struct error *err);
    int (*each_canary)(struct store_reader *r, store_canary_cb *row_cb, void *arg, struct error *err);
    int (*each_trend)(struct store_reader *r, const char *scope, int span_s, int64_t since_s,
                      store_trend_cb *row_cb, void *arg, struct error *err);
    int (*each_failure)(struct store_reader *r, const struct failure_filter *f, store_failure_cb *row_cb,
                        void *arg, struct error *err);
    int (*each_task_sum)(struct store_reader *r, const char *scope, int64_t before_ms, const char *before_id,
                         int limit, store_task_sum_cb *row_cb, void *arg, struct error *err);
    int (*get_task_sum)(struct store_reader *r, const char *scope, const char *task_id,
                        store_task_sum_cb *row_cb, void *arg, struct error *err);
    int (*each_leader)(struct store_reader *r, const char *task_id, const char *client, int limit,
                       store_leader_cb *row_cb, void *arg, struct error *err);
    int (*each_record)(struct store_reader *r, const char *scope, const char *task_id,
                       store_record_cb *row_cb, void *arg, struct error *err);
    int (*each_node)(struct store_reader *r, store_node_cb *row_cb, void *arg,
                     struct error *err); /* or NULL */
    int (*each_cancel)(struct store_reader *r, const char *node, int limit, store_cancel_cb *row_cb,
                       void *arg, struct error *err); /* or NULL */
    int (*waits)(struct store_reader *r, const struct store_lease *l, const struct store_wants *wants,
                 bool *out, struct error *err); /* NULL: what is queued waits */
    int (*each_group)(struct store_reader *r, const struct groups_filter *f, store_group_sum_cb *row_cb,
                      void *arg, struct error *err);
    int (*each_run)(struct store_reader *r, const char *scope, int64_t before_ms, const char *before,
                    int limit, store_run_cb *row_cb, void *arg, struct error *err);
    int (*get_run)(struct store_reader *r, const char *scope, const char *run, store_run_cb *row_cb,
                   void *arg, struct error *err);
    int (*each_run_step)(struct store_reader *r, const char *scope, const char *run, int64_t from,
                         int64_t width, store_run_step_cb *row_cb, void *arg, struct error *err);
    int (*each_run_task)(struct store_reader *r, const char *scope, const char *run, int64_t from,
                         int64_t width, int limit, store_run_step_cb *row_cb, void *arg, struct error *err);
    int (*count)(struct store_reader *r, struct store_counts *out, struct error *err);

    /* Of a reader that does nothing else, the keeper: at once durable, and not between begin() and end(). */
    int (*renew)(struct store_reader *r, const struct store_lease *l, int64_t lease_ms,
                 const struct store_node_state *state, struct error *err);
};

#endif
