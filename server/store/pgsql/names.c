#include "server/store/pgsql/names.h"

#include <stdio.h>

#include "server/store/pgsql/blob.h"

/*
 * The name in the task's own row is the one that is shown to everybody: that of whoever registered it, for as long as
 * somebody calls it so. Whoever renames or removes a task locks its row first: another node's change comes before or after.
 */

/* 1 and the first column where there is a row, 0 where there is none, or an error. out may be NULL. */
static int
ask(struct pgsql *p, const char *sql, const struct pg_value *values, size_t n, char *out, size_t size,
    struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_ask(&p->link, "look at the names of a task", sql, values, n, &row, err);

    if (rc < 0)
        return rc;
    if (out)
        out[0] = '\0';
    if (out && PQntuples(row) > 0)
        pg_column_name(row, 0, 0, out, size);
    return PQntuples(row) > 0;
}

int
pg_name_task(struct store_backend *b, const char *client, const char *name, const char *id, int64_t now_ms,
             struct error *err)
{
    struct pgsql *p = pgsql_of(b);
    char other[80];
    int64_t named = 0;
    int rc =
        pg_run(&p->link, "name a task",
               "INSERT INTO task_alias AS t (task_id, client, name, created_ms) VALUES ($1, $2, $3, $4)"
               " ON CONFLICT (client, name) DO UPDATE SET name = t.name WHERE t.task_id = excluded.task_id",
               PG_VALUES(pg_text(id), pg_text(client), pg_text(name), pg_int(now_ms)), &named, err);

    if (rc < 0 || named > 0)
        return rc;
    rc = ask(p, "SELECT task_id FROM task_alias WHERE client = $1 AND name = $2",
             PG_VALUES(pg_text(client), pg_text(name)), other, sizeof(other), err);
    return rc < 0 ? rc : error_set(err, ERR_CONFLICT, "\"%.100s\" is the name of %s", name, other);
}

/* 0 where there is such a task, which is locked then, and the client has a name for it. */
static int
check_own(struct pgsql *p, const char *id, const char *client, struct error *err)
{
    int rc = ask(p, "SELECT 1 FROM task WHERE id = $1 FOR UPDATE", PG_VALUES(pg_text(id)), NULL, 0, err);

    if (rc == 0)
        return error_set(err, ERR_NOTFOUND, "no task %s", id);
    if (rc == 1 && client)
        rc = ask(p, "SELECT 1 FROM task_alias WHERE task_id = $1 AND client = $2",
                 PG_VALUES(pg_text(id), pg_text(client)), NULL, 0, err);
    if (rc == 0)
        return error_set(err, ERR_INPUT, "%.80s has no name for the task: others registered it", client);
    return rc < 0 ? rc : 0;
}

static int
forget(struct pgsql *p, const char *id, const char *client, struct error *err)
{
    return pg_run(&p->link, "forget a name",
                  "DELETE FROM task_alias WHERE task_id = $1 AND ($2::text IS NULL OR client = $2)",
                  PG_VALUES(pg_text(id), pg_text(client)), NULL, err);
}

/* The name that is shown, once nobody calls the task so any more. */
static int
show(struct pgsql *p, const char *id, const char *name, struct error *err)
{
    return pg_run(&p->link, "show another name of a task",
                  "UPDATE task SET name = coalesce($2, (SELECT a.name FROM task_alias a WHERE a.task_id = $1"
                  " ORDER BY a.created_ms, a.name LIMIT 1)) WHERE id = $1 AND NOT EXISTS"
                  " (SELECT 1 FROM task_alias a WHERE a.task_id = $1 AND a.name = task.name)",
                  PG_VALUES(pg_text(id), pg_text(name)), NULL, err);
}

int
pg_rename_task(struct store_backend *b, const char *client, const char *name, const char *id, int64_t now_ms,
               struct error *err)
{
    struct pgsql *p = pgsql_of(b);
    char holder[1024] = ""; /* 200 characters at most */
    int rc = check_own(p, id, client, err);

    if (rc == 0 && !client)
        rc = ask(p,
                 "SELECT client FROM task_alias a JOIN task ON task.id = task_id WHERE task_id = $1"
                 " ORDER BY a.name = task.name DESC, a.created_ms LIMIT 1",
                 PG_VALUES(pg_text(id)), holder, sizeof(holder), err);
    if (rc < 0)
        return rc;
    if (!client)
        client = holder;
    rc = forget(p, id, client, err);
    if (rc == 0)
        rc = show(p, id, name, err);
    return rc == 0 ? pg_name_task(b, client, name, id, now_ms, err) : rc;
}

/* With all that is counted of it; what was judged stays. */
static int
remove_task(struct pgsql *p, const char *id, struct error *err)
{
    char reference[HASH_TEXT_SIZE];
    int64_t unused = 0;
    int rc = ask(p,
                 "WITH sums AS (DELETE FROM task_sum WHERE task_id = $1),"
                 " leaders AS (DELETE FROM leader WHERE task_id = $1),"
                 " records AS (DELETE FROM record WHERE task_id = $1)"
                 " DELETE FROM task WHERE id = $1 RETURNING reference_hash",
                 PG_VALUES(pg_text(id)), reference, sizeof(reference), err);
    return rc == 1 ? pg_blob_drop(p, reference, &unused, err) : rc;
}

int
pg_remove_task(struct store_backend *b, const char *client, const char *id, struct error *err)
{
    struct pgsql *p = pgsql_of(b);
    int rc = check_own(p, id, client, err);

    if (rc == 0)
        rc = forget(p, id, client, err);
    if (rc == 0)
        rc = ask(p, "SELECT 1 FROM task_alias WHERE task_id = $1 LIMIT 1", PG_VALUES(pg_text(id)), NULL, 0,
                 err);
    if (rc == 1)
        return show(p, id, NULL, err);
    if (rc == 0)
        rc = ask(p, "SELECT 1 FROM job JOIN submission USING (id) WHERE task_id = $1 LIMIT 1",
                 PG_VALUES(pg_text(id)), NULL, 0, err);
    if (rc == 1)
        return error_set(err, ERR_CONFLICT, "submissions of the task are not finished");
    return rc == 0 ? remove_task(p, id, err) : rc;
}
