/*
 * store.h - what must survive: tasks, sources, submissions, groups. No database is named here: each is a back end
 * (backend.h) in a folder of its own.
 *
 * Writes are queued; one thread makes them, many in one transaction, and the loop is called back in the order of the
 * calls. Reads are made through a reader, and block the thread that makes them. All other functions: loop thread only.
 */
#ifndef STORE_H
#define STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "common/buffer.h"
#include "common/error.h"
#include "common/hash.h"
#include "common/histogram.h"
#include "common/ids.h"

struct store;
struct store_reader; /* a connection that reads */

struct store_options {
    const char *
        node; /* the name that this daemon has where several share the store; a file has one, and needs none */
    int64_t lease_ms; /* that it takes there: store_renew() within that time */
    bool is_relaxed;  /* a database that may lose what was acknowledged will do */
};

/* False: it is the URL of a database. */
bool store_is_file(const char *where);

/*
 * The result of checking a store, which is not changed: as store_open(), but a file need not be there yet. A file that
 * is open and a valid lease of the same name are no errors: the daemon may be running.
 */
#define STORE_HOLDER_SIZE 192
struct store_found {
    char shown[512];                /* its name, without a password */
    bool is_alive;                  /* a node of the name has a valid lease */
    char holder[STORE_HOLDER_SIZE]; /* as store_holder() */
};
int store_check(const char *where, const struct store_options *options, struct store_found *out,
                struct error *err);

/*
 * Bring the schema to this program's version, as store_open() does and with its refusals; no node joins a database, and
 * those of the version before may work in it meanwhile. only_look: nothing is changed, and a file may be in use.
 * out: the versions before.
 */
struct store_schema {
    int64_t version; /* that is there; 0: no store yet. A newer one that may be used is above known */
    int64_t known;   /* this program's */
};
int store_migrate(const char *where, const struct store_options *options, bool only_look,
                  struct store_schema *out, struct error *err);

/*
 * Open or create the store `where`: postgresql://... (or postgres://...) is a PostgreSQL database, which other daemons
 * may have open too, and anything else a file. Migrates an older schema; refuses a newer one, a file or database that
 * is not a store, a file that another daemon has open (ERR_STORE, the text names it), a database that cannot be reached
 * (ERR_UNAVAILABLE), that is too old or may lose acknowledged writes (ERR_STORE), and a name that another running
 * daemon has (ERR_CONFLICT; an earlier lease is waited for, which blocks for lease_ms at most).
 *   options      borrowed
 *   writer_limit  most pending writes before new tasks and submissions get ERR_FULL (256 MiB of them is a bound too);
 *                 changes of stored rows have twice as much room, so that they are still accepted
 * The store keeps the loop alive only while a write is pending.
 */
int store_open(uv_loop_t *loop, const char *where, const struct store_options *options, size_t writer_limit,
               struct store **out, struct error *err);
/*
 * Commit the queued writes, make the pending reads, and run the callbacks; later writes and reads, also by those
 * callbacks, are refused (ERR_UNAVAILABLE). Called before the objects of those callbacks are freed. Blocks until the
 * disk has it; not from a callback of a write.
 */
void store_finish_writes(struct store *s);
/* The same, then close. It runs the loop until its handle is closed: not from a callback. NULL is fine. */
void store_close(struct store *s);

/*
 * Runs on the loop thread, in the order of the calls, once the write is durable (code 0) or has failed and left no
 * trace (err says why): ERR_CONFLICT (an id that exists; a submission that has ended), ERR_NOTFOUND (no such
 * submission), ERR_NOMEM, ERR_STORE (the disk is full or broken; the store goes on). err is borrowed.
 */
typedef void store_done_cb(void *arg, int code, const struct error *err);

/* Strings in rows that are written are copied; rows that are read own their strings: release them. */

enum submission_state {
    SUBMISSION_QUEUED,
    SUBMISSION_RUNNING,
    SUBMISSION_DONE,
    SUBMISSION_CANCELLED,
    SUBMISSION_NSTATES
};
const char *submission_state_name(enum submission_state state);
int submission_state_find(const char *name); /* -1: unknown */

struct task_row {
    char id[HASH_TEXT_SIZE]; /* hash of entry point, reference, dynamic_shapes and declared cases */
    char *name;
    char *entry_point;
    int level; /* 0: not given */
    bool dynamic_shapes;
    char *reference; /* source text; stored once by hash, compressed */
    size_t reference_size;
    char *spec;     /* JSON: cases, as the referee registered it */
    char *metadata; /* JSON object or NULL */
    int64_t created_ms;
};

struct submission_row {
    char id[ID_SIZE];
    char group_id[ID_SIZE]; /* "" for none */
    int group_index;
    char task_id[HASH_TEXT_SIZE];
    char source_hash[HASH_TEXT_SIZE];
    enum submission_state state;
    int priority; /* 0 interactive, 1 batch */
    char *client; /* NULL: none */
    char *
        request; /* JSON: entry_point, policy, reward, until, seed, metadata, flags: all that judging needs */
    int attempts;                    /* times it was claimed, less those that were given back */
    int64_t claim;                   /* number of its last claim; 0: there was none */
    bool is_lost;                    /* it waits since the node that had claimed it was lost. Never written */
    int64_t created_ms, finished_ms; /* 0: not yet */
    char *stage;                     /* last stage reached, NULL: none */
    char *class_;                    /* NULL until done */
    double reward;                   /* NAN: none */
    char *verdict;                   /* JSON, the answer as it is sent; NULL until done */
    int64_t device_ms;               /* that it held devices; never read */
    int64_t content; /* of a waiting one: a number equal for identical submissions; 0: none. Never read */
    char cache_key[HASH_TEXT_SIZE]; /* the key under which the verdict is reused; "": none. Never read */
};

struct group_row {
    char id[ID_SIZE];
    char task_id[HASH_TEXT_SIZE];
    char *request; /* JSON */
    int size;
    int64_t created_ms;
    int64_t age_ms;      /* since it was stored, by the store's clock. Never written */
    bool keeps_together; /* one node at a time judges it: it chooses among its submissions. Never read */
};

/* A result of `verifier calibrate` for a GPU. */
struct calibration_row {
    char id[ID_SIZE];
    int64_t created_ms;
    const char *gpu;      /* its name */
    const char *document; /* JSON */
};

/* The recorded state of a GPU's canary. */
struct canary_row {
    const char *gpu;      /* its UUID */
    const char *driver;   /* its version */
    const char *kind;     /* of the canary: times of different ones are not comparable */
    int64_t changed_ms;   /* wall clock */
    const char *document; /* JSON; NULL, in a write: it is forgotten */
};

/*
 * The Idempotency-Key of a request that made submissions. It is scoped to the client, and forgotten after
 * STORE_KEY_LIFE_MS.
 */
#define STORE_KEY_SIZE 256
#define STORE_KEY_CLIENT_SIZE 65
#define STORE_KEY_LIFE_MS (INT64_C(24) * 3600 * 1000)
struct key_row {
    char client[STORE_KEY_CLIENT_SIZE]; /* "": the operator */
    char key[STORE_KEY_SIZE];
    char request_hash[HASH_TEXT_SIZE]; /* of the call and its body */
    char id[ID_SIZE];                  /* of the group or submission that was made */
    int64_t created_ms;
    bool replaces; /* in place of a valid row of the key, whatever that made. Never read */
};

void task_row_release(struct task_row *r);
void submission_row_release(struct submission_row *r);
void group_row_release(struct group_row *r);
/* Deep: out owns its strings, also after a failure (release it). 0 or ERR_NOMEM. Any thread. */
int submission_row_copy(const struct submission_row *row, struct submission_row *out);

/* --- writes: queued; 0, or at once ERR_FULL, ERR_NOMEM or, while closing, ERR_UNAVAILABLE: no callback then --- */

/* A task that exists already stays unchanged: code 0. Its name is only shown: no client finds the task by it. */
int store_add_task(struct store *s, const struct task_row *row, store_done_cb *cb, void *arg,
                   struct error *err);
/*
 * Each client has its own names for tasks; client "" is the operator. Names are at most 200 characters.
 * store_name_task: one more name, ERR_CONFLICT if the client has it for another task.
 * store_rename_task: in place of all names that the client has for it; store_remove_task: removes them, and the task if
 * no client has a name for it then. For both, client NULL is all clients; ERR_NOTFOUND: no such task, ERR_INPUT: the
 * client has no name for it, ERR_CONFLICT: the name is taken, or submissions of it are not finished.
 */
int store_name_task(struct store *s, const char *client, const char *name, const char *id, int64_t now_ms,
                    store_done_cb *cb, void *arg, struct error *err);
int store_rename_task(struct store *s, const char *client, const char *name, const char *id, int64_t now_ms,
                      store_done_cb *cb, void *arg, struct error *err);
int store_remove_task(struct store *s, const char *client, const char *id, store_done_cb *cb, void *arg,
                      struct error *err);

/*
 * New submissions (and their group, or NULL) with their sources: all or none. sources[i] belongs to rows[i]. key (or
 * NULL) is kept with them; ERR_CONFLICT, and nothing is stored, where one of the same name is younger than
 * STORE_KEY_LIFE_MS and what it made is still there: then another request, of another daemon's too, came first, unless the key
 * replaces it.
 */
struct store_source {
    const char *text;
    size_t size;
    const char *answer; /* of a model, that it was found in; NULL: it came by itself */
    size_t answer_size;
};
int store_add_submissions(struct store *s, const struct group_row *group, const struct key_row *key,
                          const struct submission_row *rows, const struct store_source *sources, size_t n,
                          store_done_cb *cb, void *arg, struct error *err);

/*
 * --- ownership ---
 * A node has a lease. It owns what it has claimed until it finishes or releases it, or until its lease has ended and a
 * node has reaped it; then the submission waits again. Each claim has a number, greater than those before it, and
 * reaping adds one: a write under an earlier number is refused (ERR_CONFLICT), and nothing changes. The database's
 * clock decides about leases, not a node's.
 */
#define STORE_NODE_SIZE 64
#define STORE_LEASE_ENDLESS INT64_MAX
struct store_lease {
    char node[STORE_NODE_SIZE];
    int64_t epoch; /* number of this life of the node */
};
struct store_claim {
    char id[ID_SIZE];
    int64_t number;
    int attempts; /* with this one */
    int cancel;   /* why it is to be cancelled (store_cancel()); 0: it is not */
    bool
        is_handed_on; /* a node that only compiles let it through: there may be what it made (reader_get_carried()) */
};

/* The submissions that a node takes. NULL: all that ask for no GPU. */
#define STORE_GPU_SIZE 128
struct store_wants {
    bool
        is_compiler; /* those not handed on that ask for no GPU and are not of a group that one node judges alone */
    char gpu
        [STORE_GPU_SIZE]; /* else also those that ask for a part of this name; "": its GPUs have none in common */
    /*
     * A JSON object: how many of each client ("*": each that is not named) may be claimed on all nodes; NULL: any number.
     * A node that only compiles does not keep to it with store_claim_next(). Copied.
     */
    const char *limits;
};

/* View: the lease that this daemon has taken by store_open(). A file's lock is its lease, which is endless. */
const struct store_lease *store_lease(const struct store *s);
/* How long that lease lasts from each renewal; STORE_LEASE_ENDLESS: it needs none, and no other daemon has this store. */
int64_t store_lease_ms(const struct store *s);
/*
 * A new life of the node: out (lent until cb has run) is its lease. The claims of an earlier life wait again.
 * ERR_UNAVAILABLE here and from the next two: the store is a file, which has one daemon.
 */
int store_join(struct store *s, const char *node, int64_t lease_ms, struct store_lease *out,
               store_done_cb *cb, void *arg, struct error *err);
/*
 * Renew the lease to lease_ms from now, and set what others see of the node. ERR_CONFLICT: it has ended before, or the
 * node has another life. A database has a separate connection for this, so that no other write or read delays it: cb
 * runs out of their order.
 */
struct store_node_state {
    bool is_draining;
    const char *about; /* JSON object; copied */
};
int store_renew(struct store *s, const struct store_lease *l, int64_t lease_ms,
                const struct store_node_state *state, store_done_cb *cb, void *arg, struct error *err);
/* Submissions claimed under leases that have ended wait again. */
int store_reap(struct store *s, store_done_cb *cb, void *arg, struct error *err);

/*
 * Claim the submission, which waits: state running, one attempt more. out is lent until cb has run; if the node still
 * has it under the number in out, since its release failed, it may claim it, too, with one attempt more than in out.
 * ERR_CONFLICT: it does not wait, another node has claimed an identical one, or the lease has ended; ERR_FULL: the
 * limit of claims for its client is reached; ERR_NOTFOUND.
 */
int store_claim(struct store *s, const struct store_lease *l, const struct store_wants *wants, const char *id,
                struct store_claim *out, store_done_cb *cb, void *arg, struct error *err);
/*
 * Claim 1 .. most (STORE_CLAIMS_MAX) of the waiting ones: interactive ones first, of these the client's with the fewest
 * running on all nodes (not in a file; among thousands of waiting clients, of 64 in turn), then the oldest; out, in no
 * order, and n are lent as above. It may return fewer than wait. ERR_NOTFOUND: nothing waits.
 */
#define STORE_CLAIMS_MAX 16
int store_claim_next(struct store *s, const struct store_lease *l, const struct store_wants *wants,
                     size_t most, struct store_claim *out, size_t *n, store_done_cb *cb, void *arg,
                     struct error *err);
/*
 * Release it: it waits again, with the attempts in c (less this one if it was interrupted). cb may be NULL, here and
 * below.
 */
int store_release(struct store *s, const struct store_claim *c, store_done_cb *cb, void *arg,
                  struct error *err);
/*
 * The same by a node that only compiles: for those that have a device. carried (copied, or NULL) is kept until it has ended,
 * unless the database crashes. ERR_UNAVAILABLE: a file, which has one node.
 */
struct store_carried {
    const char *about; /* JSON */
    const void *bytes;
    size_t size;
};
int store_hand_on(struct store *s, const struct store_claim *c, const struct store_carried *carried,
                  store_done_cb *cb, void *arg, struct error *err);
/* Set the attempts of a claim to those in c: while it only waits for a device, this one does not count. */
int store_set_attempts(struct store *s, const struct store_claim *c, store_done_cb *cb, void *arg,
                       struct error *err);
/*
 * The node that owns it, or claims it next, is to cancel it: why is 1 .. 9, and the first reason counts. ERR_NOTFOUND:
 * it has ended; ERR_UNAVAILABLE: the store is a file, which has one daemon.
 */
int store_cancel(struct store *s, const char *id, int why, store_done_cb *cb, void *arg, struct error *err);
/*
 * End it: writes state, stage, class_, reward, verdict, finished_ms, device_ms, cache_key, and the captured output (may
 * be NULL). row->claim is the number that it was last claimed under, also if it waits. ERR_CONFLICT: it has ended, or
 * another node has claimed it since.
 */
int store_finish(struct store *s, const struct submission_row *row, const char *log, size_t log_size,
                 store_done_cb *cb, void *arg, struct error *err);

int store_add_calibration(struct store *s, const struct calibration_row *row, store_done_cb *cb, void *arg,
                          struct error *err);

/* In place of what was known of the same gpu, driver and kind. */
int store_put_canary(struct store *s, const struct canary_row *row, store_done_cb *cb, void *arg,
                     struct error *err);

/*
 * --- sweeping: removal of old rows, a batch at a time ---
 * A row stays if it has not ended, if its group has not ended completely, or if it is referred to: the fastest of a
 * task (record), a reused verdict (cached_from), the response to an Idempotency-Key that is still valid.
 */
enum sweep_what {
    SWEEP_SUBMISSIONS, /* with their sources, captured output, and groups */
    SWEEP_LOGS,        /* captured output alone */
    SWEEP_VACUUM,      /* free pages go back to the file system */
};
struct store_sweep {
    enum sweep_what what;
    int64_t before_ms; /* only what ended before; wall clock */
    int64_t most;      /* submissions to remove at most */
    int64_t now_ms;    /* wall clock */
    int64_t at_ms;     /* where it is: 0 and "" to begin */
    char at_id[ID_SIZE];
    bool is_over;                                    /* nothing is left to look at */
    int64_t submissions, groups, logs, blobs, pages; /* removed so far */
};
/* Do the next batch: step is lent until cb has run, and is moved on when code is 0. */
int store_sweep_step(struct store *s, struct store_sweep *step, store_done_cb *cb, void *arg,
                     struct error *err);

/*
 * --- reads: 0, ERR_NOTFOUND, ERR_STORE, ERR_NOMEM or ERR_UNAVAILABLE (the database is away). Buffers are appended to, and the caller releases them. ---
 * A read sees all that a callback has reported before it began.
 */

int reader_get_task(struct store_reader *r, const char *id, struct task_row *out, struct error *err);
/*
 * The task that has this name from the client (is_own), else the one that has had it for longest from any client.
 * client NULL: the operator.
 */
int reader_find_task(struct store_reader *r, const char *client, const char *name, char id[HASH_TEXT_SIZE],
                     bool *is_own, struct error *err);
int reader_get_submission(struct store_reader *r, const char *id, struct submission_row *out,
                          struct error *err);
/* A submission, or one of a group, waits or runs. False for an id that is neither. */
int reader_is_unfinished(struct store_reader *r, const char *id, bool *out, struct error *err);
/* No more of it than an answer takes: either may be NULL, as in its row. Free both. */
int reader_get_answer(struct store_reader *r, const char *id, char **client, char **verdict,
                      struct error *err);
/* What was carried with it; ERR_NOTFOUND: nothing, or it is gone. Release out, also after a failure. */
struct carried_row {
    char *about, *bytes;
    size_t size;
};
int reader_get_carried(struct store_reader *r, const char *id, struct carried_row *out, struct error *err);
void carried_row_release(struct carried_row *r);
int reader_get_source(struct store_reader *r, const char *hash, struct buffer *out, struct error *err);
/* Nothing is appended for a submission that printed nothing or has not ended; ERR_NOTFOUND: no such submission. */
int reader_get_log(struct store_reader *r, const char *submission_id, struct buffer *out, struct error *err);
/* Nothing is appended if the source was submitted without a completion. */
int reader_get_completion(struct store_reader *r, const char *submission_id, struct buffer *out,
                          struct error *err);
int reader_get_group(struct store_reader *r, const char *id, struct group_row *out, struct error *err);
/* A key that is older than STORE_KEY_LIFE_MS at now_ms is not found. */
int reader_get_key(struct store_reader *r, const char *client, const char *key, int64_t now_ms,
                   struct key_row *out, struct error *err);
/*
 * Calls row_cb for each submission of the group in order; the row is borrowed. row_cb returns false to stop.
 * ERR_NOTFOUND: no such group. A list must not be read again from its own callback.
 */
typedef bool store_submission_cb(void *arg, const struct submission_row *row);
int reader_each_of_group(struct store_reader *r, const char *group_id, store_submission_cb *row_cb, void *arg,
                         struct error *err);

/* The newest submission that ended with this cache_key; ERR_NOTFOUND: none. Release out. */
int reader_find_cached(struct store_reader *r, const char *cache_key, struct submission_row *out,
                       struct error *err);

/* Milliseconds of devices by client, of what has ended since that midnight (UTC); those without a client not. */
typedef void store_usage_cb(void *arg, const char *client, int64_t device_ms);
int reader_each_usage(struct store_reader *r, int64_t since_ms, store_usage_cb *usage_cb, void *arg,
                      struct error *err);
/*
 * A client's usage on all nodes: its queued submissions, milliseconds of devices of those that ended on the day (UTC)
 * of now_ms, and its submissions in the minute before, counted up to most.
 */
struct store_usage {
    int64_t queued, device_ms, recent;
};
int reader_get_usage(struct store_reader *r, const char *client, int64_t now_ms, int64_t most,
                     struct store_usage *out, struct error *err);

struct submission_filter {
    int state;           /* -1: any */
    const char *task_id; /* NULL: any */
    const char *class_;
    const char *client;
    const char *group_id;
    const char *run;            /* labels.h */
    int64_t step;               /* of the run; < 0: any. Without a run it is ignored */
    const char *policy_version; /* of the run, in its metadata; likewise */
    const char *before;         /* id: only older ones (the cursor); NULL: from the newest */
    int limit;                  /* 1 .. 201, else ERR_INPUT */
};
int reader_list_submissions(struct store_reader *r, const struct submission_filter *f,
                            store_submission_cb *row_cb, void *arg, struct error *err); /* newest first */
/*
 * The same rows, and of each no more than a table shows: brief.h's text, borrowed; NULL for one that has not ended, or
 * that an earlier version stored without it.
 */
typedef bool store_brief_cb(void *arg, const char *id, const char *brief);
int reader_list_briefs(struct store_reader *r, const struct submission_filter *f, store_brief_cb *row_cb,
                       void *arg, struct error *err);

typedef bool store_task_cb(void *arg, const struct task_row *row); /* reference and spec are NULL in lists */
/* By id; after: id of the last row of the page before, NULL to begin. name: only tasks with that name, NULL: any. */
int reader_list_tasks(struct store_reader *r, const char *name, const char *after, int limit,
                      store_task_cb *row_cb, void *arg, struct error *err);

/* Every submission that is queued or running, oldest first: those that a restart adopts. */
int reader_each_unfinished(struct store_reader *r, store_submission_cb *row_cb, void *arg, struct error *err);

/* The newest of each GPU's name; the row is borrowed. */
typedef void store_calibration_cb(void *arg, const struct calibration_row *row);
int reader_each_calibration(struct store_reader *r, store_calibration_cb *row_cb, void *arg,
                            struct error *err);

/* All that are known; the row is borrowed. */
typedef void store_canary_cb(void *arg, const struct canary_row *row);
int reader_each_canary(struct store_reader *r, store_canary_cb *row_cb, void *arg, struct error *err);

/*
 * --- sums: of all that ended since the store has them (docs/store.md), without reading the submissions ---
 * scope is made by store_scope(): all clients, or one client. Rows are borrowed during the callback.
 */
#define STORE_SCOPE_SIZE 260
/* client NULL: all clients */
void store_scope(const char *client, char out[STORE_SCOPE_SIZE]);

/* Lengths of the stretches that are counted, and how long each kind is kept: 2 hours, 2 days, 31 days. */
#define STORE_TREND_MINUTE_S 60
#define STORE_TREND_QUARTER_S 900
#define STORE_TREND_LONG_S 21600
#define STORE_FAILURE_SPAN_S 7200 /* kept for 31 days */

/* Rewards by size: below 0, ten tenths, 1 and more. */
#define STORE_REWARD_NBINS 12
#define STORE_REWARD_NONE (-1)
int store_reward_bin(double reward); /* NAN: STORE_REWARD_NONE */

/* Verdicts of one stretch that are alike. */
struct trend_row {
    int64_t start_s;                /* since 1970 */
    const char *class_, *failed_at; /* failed_at "": nowhere */
    const char *passed;             /* last stage passed, "": none */
    int reward_bin;                 /* 0 .. STORE_REWARD_NBINS - 1, or STORE_REWARD_NONE */
    int64_t n;
    double reward_sum;
    int64_t wait_ms, device_ms; /* sums of the times in queues and on devices */
};
typedef void store_trend_cb(void *arg, const struct trend_row *row);
/* Stretches of span_s that began at since_s or later, oldest first. */
int reader_each_trend(struct store_reader *r, const char *scope, int span_s, int64_t since_s,
                      store_trend_cb *row_cb, void *arg, struct error *err);

struct failure_filter {
    const char *scope;
    const char *task_id, *run, *class_; /* NULL: any */
    int64_t since_s;                    /* stretches that began then or later */
    int limit;                          /* 1 .. 201 */
};
/* Failures that differ in figures alone (summary.h). */
struct failure_row {
    const char *class_, *failed_at, *message; /* message "": those beyond what a stretch has room for */
    int64_t n, first_ms, last_ms;
    const char *last_id;     /* the submission that failed so last */
    int64_t all_n, all_rows; /* of all that the filter lets through, also beyond the limit */
};
typedef void store_failure_cb(void *arg, const struct failure_row *row);
/* Most frequent first. */
int reader_each_failure(struct store_reader *r, const struct failure_filter *f, store_failure_cb *row_cb,
                        void *arg, struct error *err);

struct task_sum_row {
    const char *id, *name;  /* name may be NULL */
    int level;              /* 0: not given */
    int64_t n, ok, cheats;  /* cheats: of class hack or policy */
    double reward, speedup; /* the best; NAN: none */
    int64_t last_ms;        /* when the last one ended */
};
typedef void store_task_sum_cb(void *arg, const struct task_sum_row *row);
/* Tasks that anything ended for, the most recently active first, from (before_ms, before_id) on; limit 1 .. 201. */
int reader_each_task_sum(struct store_reader *r, const char *scope, int64_t before_ms, const char *before_id,
                         int limit, store_task_sum_cb *row_cb, void *arg, struct error *err);
/* That of one task; no row, no callback. */
int reader_get_task_sum(struct store_reader *r, const char *scope, const char *task_id,
                        store_task_sum_cb *row_cb, void *arg, struct error *err);

struct leader_row {
    const char *id;                         /* submission */
    const char *client, *gpu;               /* or NULL */
    double speedup, speedup_lo, speedup_hi; /* NAN where it was not timed */
    double candidate_ms, reference_ms, reward;
    int64_t finished_ms;
};
typedef void store_leader_cb(void *arg, const struct leader_row *row);
/* Submissions of class ok of a task, the fastest first, then by reward; client NULL: of all clients; limit 1 .. 201. */
int reader_each_leader(struct store_reader *r, const char *task_id, const char *client, int limit,
                       store_leader_cb *row_cb, void *arg, struct error *err);

struct record_row {
    const char *id;
    int64_t finished_ms;
    double speedup;
};
typedef void store_record_cb(void *arg, const struct record_row *row);
/* The newest STORE_RECORDS_MAX times that a task's best speed was beaten, newest first. */
#define STORE_RECORDS_MAX 200
int reader_each_record(struct store_reader *r, const char *scope, const char *task_id,
                       store_record_cb *row_cb, void *arg, struct error *err);

struct group_sum_row {
    const char *id, *task_id, *task_name, *client; /* name and client may be NULL */
    const char *run;                               /* NULL: none */
    int64_t step;                                  /* < 0: none */
    int size;
    int64_t created_ms;
    int64_t by_state[SUBMISSION_NSTATES];
    int64_t ok;
    double reward; /* the best; NAN: none */
};
struct groups_filter {
    const char *client, *run; /* NULL: any */
    int64_t step;             /* of the run; < 0: any. Without a run it is ignored */
    const char *before;       /* id, NULL to begin */
    int limit;                /* 1 .. 51 */
};
typedef void store_group_sum_cb(void *arg, const struct group_sum_row *row);
/* Newest first. */
int reader_each_group(struct store_reader *r, const struct groups_filter *f, store_group_sum_cb *row_cb,
                      void *arg, struct error *err);

/*
 * Sums by run: of submissions with a run (labels.h). In the scope of all clients (""), runs of the same name are added
 * up.
 */
#define STORE_SPEEDUP_NBINS 9
/* Bin i is above edge i - 1, up to and including edge i: so fast_p is the sum of the bins above p. */
extern const double store_speedup_edges[STORE_SPEEDUP_NBINS - 1];
int store_speedup_bin(double speedup); /* NAN: -1 */

struct run_counts {
    int64_t n, infra, ok, cheats; /* cheats: of class hack or policy */
    int64_t rewarded;
    double reward_sum;
    double speedup; /* the best; NAN: none was timed */
    int64_t speedups[STORE_SPEEDUP_NBINS];
};
struct run_row {
    const char *run;
    int64_t first_step, last_step; /* < 0: none had a step */
    int64_t first_ms, last_ms;     /* when the first and the last one ended */
    struct run_counts counts;
};
typedef void store_run_cb(void *arg, const struct run_row *row);
/* The most recently active first, from (before_ms, before) on; limit 1 .. 201. */
int reader_each_run(struct store_reader *r, const char *scope, int64_t before_ms, const char *before,
                    int limit, store_run_cb *row_cb, void *arg, struct error *err);
/* That of one run; no row, no callback. */
int reader_get_run(struct store_reader *r, const char *scope, const char *run, store_run_cb *row_cb,
                   void *arg, struct error *err);

/* Sums of a step. */
struct run_step_row {
    const char *task_id, *task_name; /* NULL in reader_each_run_step(); a name may be NULL */
    int64_t step;
    struct run_counts counts;
};
typedef void store_run_step_cb(void *arg, const struct run_step_row *row);
/* Stretches of width steps (1 or more) that begin with from; in order. Those without a step are left out. */
int reader_each_run_step(struct store_reader *r, const char *scope, const char *run, int64_t from,
                         int64_t width, store_run_step_cb *row_cb, void *arg, struct error *err);
/* The same by task, for the limit (1 .. 201) tasks with most verdicts: task by task, then by step. */
int reader_each_run_task(struct store_reader *r, const char *scope, const char *run, int64_t from,
                         int64_t width, int limit, store_run_step_cb *row_cb, void *arg, struct error *err);

/* A node whose lease has not ended for longer than a day. */
struct node_row {
    const char *name;
    int64_t epoch, lease_left_ms; /* negative: it has ended */
    bool is_draining;
    int64_t claimed;   /* submissions that run there */
    const char *about; /* JSON; NULL: not reported yet */
};
typedef void store_node_cb(void *arg, const struct node_row *row);
/* By name. A file has one daemon, and lists none. */
int reader_each_node(struct store_reader *r, store_node_cb *row_cb, void *arg, struct error *err);

/* Submissions to be cancelled that node has claimed or no node has; limit: 1 or more. */
typedef void store_cancel_cb(void *arg, const char *id, int why);
int reader_each_cancel(struct store_reader *r, const char *node, int limit, store_cancel_cb *row_cb,
                       void *arg, struct error *err);

/* Whether there is what store_claim_next() might claim under that lease. */
int reader_waits(struct store_reader *r, const struct store_lease *l, const struct store_wants *wants,
                 bool *out, struct error *err);

/* Whether so many handed-on submissions wait that none is to be compiled ahead. */
#define STORE_AHEAD_MOST 2048
#define STORE_AHEAD_BYTES (256 << 20)
int reader_is_ahead(struct store_reader *r, bool *out, struct error *err);

struct store_counts {
    int64_t by_state[SUBMISSION_NSTATES];
    int64_t tasks;
};
int reader_count(struct store_reader *r, struct store_counts *out, struct error *err);

/*
 * Ask for reads: read_cb makes them on a thread of the store, through a reader that is its own meanwhile, and sees one
 * instant; it touches nothing but what arg owns. Then done_cb runs on the loop, on a later turn. 0, ERR_NOMEM, or
 * ERR_UNAVAILABLE: the store is being closed; neither runs then. Loop thread.
 */
typedef void store_read_cb(void *arg, struct store_reader *r);
typedef void store_read_done_cb(void *arg);
int store_read(struct store *s, store_read_cb *read_cb, store_read_done_cb *done_cb, void *arg,
               struct error *err);

/* The loop's own reader: it blocks the loop. For the start alone, before anything is served. */
struct store_reader *store_reader(struct store *s);

/*
 * False: the last write failed for the disk or the database (no room, a quota, a fault); the log has the reason. Each
 * call starts a check for room, once a second at most, whose result the next call returns: so a full store without
 * writes is detected, and so is new room.
 */
bool store_is_writable(struct store *s);
/* The path of the file, or the database's URL without a password. View. */
const char *store_shown(const struct store *s);
/* The reason why it cannot be written, in a few words; NULL. */
const char *store_trouble(const struct store *s);
/* The holder of a transaction that was open for a minute or more at the last reaping, "" if none. View. */
const char *store_holder(const struct store *s);
/* For how long the writer has worked on one transaction, or has waited for the database with it; 0: neither. */
int64_t store_writing_ms(struct store *s);

/* For /v1/status and /metrics. */
struct store_figures {
    int64_t commits, rows_written, queued_writes, wal_bytes;
    double commit_ms_last, commit_ms_max;
    struct histogram commit_seconds; /* in histogram_seconds */
};
void store_figures(struct store *s, struct store_figures *out);
/* Number of commits reported to the loop: it changes when anything in reader_count() may have changed. */
int64_t store_commits(const struct store *s);

#endif
