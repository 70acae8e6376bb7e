/*
 * backend.h - the operations of a database as the store: two tables, all of them blocking. store/ calls them on threads
 * of its own and brings the outcome to the loop; a back end uses no loop, no queue and no callback of the daemon.
 * Private to store/ and its back ends.
 *
 * Every operation returns 0 or a code of store.h and fills err. One back end means one connection that writes; each
 * reader has a connection of its own.
 */
#ifndef STORE_BACKEND_H
#define STORE_BACKEND_H

#include "server/store/pack.h"
#include "server/store/sql.h"
#include "server/store/store.h"

struct labels;

/* An opened database: the first member of the back end's own struct. */
struct store_backend {
    const struct backend_ops *ops;
    struct store_lease lease; /* of this daemon */
    const char *name;         /* the name in log lines; the back end's own */
    /* Of the writer's thread: */
    struct packer packer;
    int64_t pruned_s; /* when sums that are too old were last removed */
};

/* A connection that reads, used by one thread at a time: the first member of the back end's own struct. */
struct store_reader {
    const struct reader_ops *ops;
};

/* A change of what is stored. what: a row of store.h, or a struct below. */
typedef int change_fn(struct store_backend *b, void *what, struct error *err);

/* A client's name for a task, which is given, replaced or removed; borrowed. */
struct store_naming {
    const char *client, *name; /* NULL: all clients; none */
    char id[HASH_TEXT_SIZE];
    int64_t now_ms;
};

/* New submissions that are stored together or not at all; borrowed. */
struct store_intake {
    const struct group_row *group; /* NULL: none */
    const struct key_row *key;     /* NULL: none */
    const struct submission_row *rows;
    const struct store_source *sources; /* one for each row */
    size_t n;
};

/* The end of a submission, with the output that was captured; borrowed. */
struct store_ending {
    struct submission_row row;
    struct store_source log;
};

/* What a node that only compiles lets go; borrowed. */
struct store_handing_on {
    struct store_claim claim;
    struct store_carried carried; /* about NULL: nothing goes with it */
};

/* A change of ownership (store.h, "ownership"): the request, and its result. */
struct store_order {
    struct store_lease lease; /* of the node that asks; to join: its name alone */
    int64_t lease_ms;
    struct store_wants wants;
    struct store_claim claim; /* to be given back; to claim: its id, and the node's previous claim of it */
    size_t most;              /* to claim */
    int why;                  /* the reason of a cancellation */

    struct store_lease got_lease;
    struct store_claim got[STORE_CLAIMS_MAX];
    size_t n; /* of got */
    char holder[STORE_HOLDER_SIZE];
};
typedef int order_fn(struct store_backend *b, struct store_order *o, struct error *err);
struct ownership_ops {
    order_fn *claim, *claim_next;
    order_fn *join, *reap, *cancel; /* NULL: no other daemon has this store */
};

/* Which old rows a node removes: of several nodes one has the duty. */
enum store_duty { DUTY_SWEEPS, DUTY_PRUNES };

struct backend_ops {
    /* Loop's thread. A reader is given: free() of its own table. close: once no reader is left. */
    int (*reader_new)(struct store_backend *b, struct store_reader **out, struct error *err);
    void (*close)(struct store_backend *b);
    int64_t (*log_bytes)(const struct store_backend *b); /* of the write-ahead log; NULL: not known here */

    /* Any thread. is_away: begin() waits for the database. hurry: stop that wait and fail. NULL: it never waits. */
    bool (*is_away)(const struct store_backend *b);
    void (*hurry)(struct store_backend *b);

    /*
     * Writer's thread, as all that follows. One transaction holds many writes, each of them between save() and keep(),
     * or undo() where it failed. is_open: false once the database has rolled the whole transaction back by itself.
     * ERR_UNAVAILABLE after begin(): nothing of the transaction is stored, and no write is the cause; it is repeated.
     */
    int (*begin)(struct store_backend *b, struct error *err);
    int (*commit)(struct store_backend *b, struct error *err);
    void (*rollback)(struct store_backend *b);
    int (*save)(struct store_backend *b, struct error *err);
    int (*keep)(struct store_backend *b, struct error *err);
    void (*undo)(struct store_backend *b);
    bool (*is_open)(const struct store_backend *b);

    /* Is there room for a write? A bool: write something, too. Nothing of it stays. */
    change_fn *probe;

    /*
     * As reader_ops.each(), through the connection that writes. row_cb NULL: no rows are wanted. changed (may be NULL):
     * how many rows a statement without an answer changed.
     */
    int (*each)(struct store_backend *b, const char *what, const char *sql, const struct sql_value *values,
                size_t nvalues, sql_row_cb *row_cb, void *arg, int64_t *changed, struct error *err);
    /* The differences between databases in changes.c, sums.c and sweep.c: statements, and parts of the writes. */
    const struct sql_changes {
        const char *lock_task, *task_in_use, *forget_keys;
        const char *find_blob; /* and keep it from being removed until the transaction ends */
        const char *jobs;      /* the table with the owner of each submission that waits or runs */
        const char *state_of;  /* a submission, by its id */
        const char
            *finish; /* the parameters are change_finish()'s; gives task, client, run and step, -1: none */
        const char *failures; /* the table with the counts by message */
        /* Added to columns, to their values and to a condition on f: the node that counts, or "". */
        const char *node_column, *node_value, *of_node;
        const char *in_set; /* "IN" the texts of a list in JSON, $1 */
        int sweep_batch;    /* submissions that are removed in one write, more or less */
        bool names_indices; /* as in sql_dialect */
    } * dialect;
    /* Whether this node alone does this until its transaction ends. NULL: it does. */
    int (*is_alone)(struct store_backend *b, enum store_duty duty, bool *out, struct error *err);
    /* A step that gives room back to the file system. NULL: the database does that by itself. */
    int (*vacuum)(struct store_backend *b, struct store_sweep *step, struct error *err);
    /* Remove it, and all that is counted of it. */
    int (*drop_task)(struct store_backend *b, const char *id, struct error *err);
    /* A new submission is to be judged; together: its group, or NULL. NULL: its row shows it. */
    int (*add_job)(struct store_backend *b, const struct submission_row *row, const char *together,
                   const struct labels *labels, struct error *err);
    /* The writes of store.h that are not in changes.c; see there for what they mean and which codes they return. */
    const struct ownership_ops *owns;
    change_fn *hand_on; /* struct store_handing_on; or NULL */
};

/* The differences between databases in reading: parts of statements. */
struct sql_dialect {
    /* The columns of a submission (s), of a group and of sums of groups (g), in the order of reads.c; "FROM" for them. */
    const char *submission_columns, *submissions, *group_columns, *group_counts, *group_counts_from;
    const char *
        policy_version; /* of a submission: without a column of its own, since it is only queried within a run */
    const char *live_state; /* the column with the state queued or running */
    const char *unfinished; /* behind the columns: all that is queued or running, oldest first */
    const char *queued;     /* "FROM": all that is queued of a client, $1 */
    /* Whole statements, in the order of their parameters in reads.c and sums_reads.c. */
    const char *is_unfinished, *count, *each_failure, *each_task_sum, *get_task_sum, *each_record;
    /* Indices are named where there is a choice: NULL, or what to walk for such a list, NULL for the table itself. */
    const char *(*list_index)(const struct submission_filter *f);
    bool names_indices;
    /* What a node may claim, one row if anything: with a device ($1 to $3: its name, its epoch, its GPU), without ($1). */
    const char *waits, *waits_new;
    bool has_nodes; /* several: else the next three are NULL */
    const char *each_node, *each_cancel, *is_ahead;
};

/* A reader's own thread. Between begin() and end() all reads see one instant. */
struct reader_ops {
    const struct sql_dialect *dialect;
    void (*free)(struct store_reader *r);
    void (*begin)(struct store_reader *r);
    void (*end)(struct store_reader *r);

    /*
     * Gives each row of the answer to row_cb, until it returns false; n (may be NULL) counts the calls. what names the
     * statement in errors. ERR_STORE also where it is called from its own callback.
     */
    int (*each)(struct store_reader *r, const char *what, const char *sql, const struct sql_value *values,
                size_t nvalues, sql_row_cb *row_cb, void *arg, size_t *n, struct error *err);

    /* Of a reader that does nothing else, the keeper: at once durable, and not between begin() and end(). */
    int (*renew)(struct store_reader *r, const struct store_lease *l, int64_t lease_ms,
                 const struct store_node_state *state, struct error *err);
};

#endif
