#include "server/store/sqlite/names.h"

#include <stdbool.h>
#include <string.h>

#include "common/auto.h"
#include "server/store/sqlite/db.h"

/*
 * The name in the task's own row is the one that is shown to everybody: that of whoever registered it, for as long as
 * somebody calls it so.
 */

enum change {
    FIND_TASK,
    FIND_HOLDER,
    FIND_OTHER,
    HAS_NAME,
    IS_NAMED,
    IS_IN_USE,
    CLAIM,
    FORGET,
    FORGET_ALL,
    SHOW,
    SHOW_OLDEST,
    REMOVE,
};
_Static_assert(REMOVE + 1 == NAMES_NCHANGES, "a statement for each");

/* ?1 the task, ?2 the client, ?3 the name */
static const char *const change_sql[NAMES_NCHANGES] = {
    [FIND_TASK] = "SELECT 1 FROM task WHERE id = ?1",
    [FIND_HOLDER] = "SELECT client FROM task_alias JOIN task ON task.id = task_id WHERE task_id = ?1"
                    " ORDER BY task_alias.name = task.name DESC, task_alias.created_ms LIMIT 1",
    [FIND_OTHER] = "SELECT task_id FROM task_alias WHERE client = ?2 AND name = ?3 AND task_id <> ?1",
    [HAS_NAME] = "SELECT 1 FROM task_alias WHERE task_id = ?1 AND client = ?2",
    [IS_NAMED] = "SELECT 1 FROM task_alias WHERE task_id = ?1",
    [IS_IN_USE] = "SELECT 1 FROM submission INDEXED BY submission_state"
                  " WHERE state IN (0, 1) AND task_id = ?1 LIMIT 1",
    [CLAIM] = "INSERT INTO task_alias (task_id, client, name, created_ms) VALUES (?1, ?2, ?3, ?4)"
              " ON CONFLICT DO NOTHING",
    [FORGET] = "DELETE FROM task_alias WHERE task_id = ?1 AND client = ?2",
    [FORGET_ALL] = "DELETE FROM task_alias WHERE task_id = ?1",
    [SHOW] = "UPDATE task SET name = ?3 WHERE id = ?1 AND NOT EXISTS"
             " (SELECT 1 FROM task_alias WHERE task_id = ?1 AND task_alias.name = task.name)",
    [SHOW_OLDEST] = "UPDATE task SET name = (SELECT name FROM task_alias WHERE task_id = ?1 ORDER BY "
                    "created_ms, name LIMIT 1)"
                    " WHERE id = ?1 AND NOT EXISTS"
                    " (SELECT 1 FROM task_alias WHERE task_id = ?1 AND task_alias.name = task.name)",
    [REMOVE] = "DELETE FROM task WHERE id = ?1",
};

int
names_init(struct names *n, sqlite3 *db, struct error *err)
{
    int rc = 0;

    n->db = db;
    for (int i = 0; rc == 0 && i < NAMES_NCHANGES; i++)
        rc = db_prepare(db, change_sql[i], &n->changes[i], err);
    return rc;
}

void
names_release(struct names *n)
{
    for (int i = 0; i < NAMES_NCHANGES; i++)
        sqlite3_finalize(n->changes[i]);
    memset(n, 0, sizeof(*n));
}

static sqlite3_stmt *
bind(struct names *n, enum change change, const char *task_id, const char *client, const char *name)
{
    sqlite3_stmt *stmt = n->changes[change];
    int parameters = sqlite3_bind_parameter_count(stmt);

    db_bind_text(stmt, 1, task_id);
    if (parameters >= 2)
        db_bind_text(stmt, 2, client);
    if (parameters >= 3)
        db_bind_text(stmt, 3, name);
    return stmt;
}

/* 1 and the first column where there is a row, 0 where there is none, or an error. out may be NULL. */
static int
ask(struct names *n, sqlite3_stmt *stmt, char *out, size_t size, struct error *err)
{
    int step = sqlite3_step(stmt), rc = step == SQLITE_ROW;
    const char *text = rc == 1 ? (const char *)sqlite3_column_text(stmt, 0) : NULL;

    if (out && size > 0) {
        out[0] = '\0';
        if (text)
            strncat(out, text, size - 1);
    }
    if (step != SQLITE_ROW && step != SQLITE_DONE)
        rc = db_fail(n->db, err, "look at the names of a task");
    db_reset(stmt);
    return rc;
}

static int
check_free(struct names *n, const char *task_id, const char *client, const char *name, struct error *err)
{
    char other[80];
    int rc = ask(n, bind(n, FIND_OTHER, task_id, client, name), other, sizeof(other), err);

    if (rc == 1)
        return error_set(err, ERR_CONFLICT, "\"%.100s\" is the name of %s", name, other);
    return rc;
}

static int
claim(struct names *n, const char *task_id, const char *client, const char *name, int64_t now_ms,
      struct error *err)
{
    sqlite3_stmt *stmt = bind(n, CLAIM, task_id, client, name);

    sqlite3_bind_int64(stmt, 4, now_ms);
    return db_run(stmt, "name a task", err);
}

int
names_claim(struct names *n, const char *client, const char *name, const char *task_id, int64_t now_ms,
            struct error *err)
{
    int rc = check_free(n, task_id, client, name, err);
    return rc == 0 ? claim(n, task_id, client, name, now_ms, err) : rc;
}

/* 0 where there is such a task and the client has a name for it. */
static int
check_own(struct names *n, const char *task_id, const char *client, struct error *err)
{
    int rc = ask(n, bind(n, FIND_TASK, task_id, NULL, NULL), NULL, 0, err);

    if (rc == 0)
        return error_set(err, ERR_NOTFOUND, "no task %s", task_id);
    if (rc == 1 && client)
        rc = ask(n, bind(n, HAS_NAME, task_id, client, NULL), NULL, 0, err);
    if (rc == 0)
        return error_set(err, ERR_INPUT, "%.80s has no name for the task: others registered it", client);
    return rc < 0 ? rc : 0;
}

int
names_rename(struct names *n, const char *client, const char *name, const char *task_id, int64_t now_ms,
             struct error *err)
{
    char holder[1024] = ""; /* 200 characters at most */
    int rc = check_own(n, task_id, client, err);

    if (rc == 0 && !client)
        rc = ask(n, bind(n, FIND_HOLDER, task_id, NULL, NULL), holder, sizeof(holder), err);
    if (!client)
        client = holder;
    if (rc >= 0)
        rc = check_free(n, task_id, client, name, err);
    if (rc == 0)
        rc = db_run(bind(n, FORGET, task_id, client, NULL), "rename a task", err);
    if (rc == 0)
        rc = db_run(bind(n, SHOW, task_id, client, name), "rename a task", err);
    return rc == 0 ? claim(n, task_id, client, name, now_ms, err) : rc;
}

int
names_remove(struct names *n, const char *client, const char *task_id, struct error *err)
{
    int rc = check_own(n, task_id, client, err);

    if (rc == 0)
        rc = db_run(bind(n, client ? FORGET : FORGET_ALL, task_id, client, NULL), "forget a name", err);
    if (rc == 0)
        rc = ask(n, bind(n, IS_NAMED, task_id, NULL, NULL), NULL, 0, err);
    if (rc == 1)
        return db_run(bind(n, SHOW_OLDEST, task_id, NULL, NULL), "forget a name", err);
    if (rc == 0)
        rc = ask(n, bind(n, IS_IN_USE, task_id, NULL, NULL), NULL, 0, err);
    if (rc == 1)
        return error_set(err, ERR_CONFLICT, "submissions of the task are not finished");
    return rc == 0 ? db_run(bind(n, REMOVE, task_id, NULL, NULL), "remove a task", err) : rc;
}
