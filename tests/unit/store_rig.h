/* store_rig.h - a store in a directory of its own, and short ways to write to it and wait. */
#ifndef TESTS_STORE_RIG_H
#define TESTS_STORE_RIG_H

#include <sqlite3.h>
#include <uv.h>

#include "server/store/store.h"

struct rig {
    uv_loop_t loop;
    struct store *store;
    char dir[64], path[128];
    struct error err;
};

/* What the callback of one write was told; give rig_done as callback and one of these as its argument. */
struct outcome {
    int calls, code;
    struct error err;
};

#define RIG_LIMIT 1000

/* What a test runs on; path of a rig is what store_open() is given. The first is used where nobody chooses. */
struct rig_backend {
    const char *name;
    void (*make)(struct rig *r);   /* an empty store, and its path */
    void (*remove)(struct rig *r); /* after it was closed */
};
extern const struct rig_backend rig_backends[];
extern const size_t rig_nbackends;
extern const struct rig_backend *rig_backend;

int rig_setup(void **state);
int rig_teardown(void **state);
void rig_open(struct rig *r);   /* fails the test when it cannot */
void rig_reopen(struct rig *r); /* close and open */
void rig_done(void *arg, int code, const struct error *err);
void rig_wait(struct rig *r); /* until every write has been reported */

/* A row with a new id, in state queued; strings are literals: do not release. */
struct submission_row rig_row(void);

/* Add one submission with source text, wait, and return the callback's code. */
int rig_add(struct rig *r, const struct submission_row *row, const char *source);
/* A request of the client under this key that made `id`; and a submission that is added with it. */
struct key_row rig_key(const char *client, const char *name, const char *id, int64_t created_ms);
void rig_add_with_key(struct rig *r, const struct key_row *key, const struct submission_row *row, int expect);
int rig_begin(struct rig *r, const char *id); /* claims it */
int rig_release(struct rig *r, const char *id, int attempts);
/* Ends it as `state` with class ok, reward 0.5 and log (may be NULL). */
int rig_finish(struct rig *r, const char *id, enum submission_state state, const char *log);

/* The file as a person with a shell would open it. Given: sqlite3_close(). */
sqlite3 *rig_raw(struct rig *r);
int64_t rig_number(struct rig *r, const char *sql); /* one integer */

#endif
