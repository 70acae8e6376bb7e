#include "server/store/pgsql/pgsql.h"

#include <stdlib.h>

#include "server/store/pgsql/claims.h"
#include "server/store/pgsql/reading.h"

/* Each node has its own rows of counts; here they are added up. */
#define TASK_SUMS                                                                                           \
    "SELECT task_id, name, level, n, ok, cheats, reward, speedup, last_ms FROM (SELECT task_id, sum(n) AS " \
    "n,"                                                                                                    \
    " sum(ok) AS ok, sum(cheats) AS cheats, max(reward) AS reward, max(speedup) AS speedup,"                \
    " max(last_ms) AS last_ms FROM task_sum WHERE scope = $1"
#define TASK_SUMS_END " GROUP BY task_id) AS t LEFT JOIN task ON task.id = task_id"

static const struct sql_dialect dialect = {
    .submission_columns =
        "s.id, s.group_id, s.group_index, s.task_id, s.source_hash, coalesce(j.state, s.state), s.priority, "
        "s.client, s.request, coalesce(j.attempts, s.attempts), s.created_ms, s.finished_ms, s.stage, "
        "s.class, "
        "s.reward, s.verdict, coalesce(j.claim, s.claim), j.state = 0 AND j.node IS NOT NULL",
    .submissions = "submission s LEFT JOIN job j ON j.id = s.id",
    /* No json of PostgreSQL holds a NUL: a request with one matches nothing. */
    .policy_version = "CASE WHEN strpos(s.request, '\\u0000') = 0"
                      " THEN s.request::json #>> '{metadata,policy_version}' END",
    .group_columns = "id, task_id, request, size, created_ms, now_ms() - coalesce(made_ms, created_ms)",
    .live_state = "j.state",
    .unfinished = "FROM job j JOIN submission s ON s.id = j.id ORDER BY s.id",
    .queued = "FROM job WHERE client = $1 AND state = 0",
    .is_unfinished = "SELECT EXISTS (SELECT 1 FROM job WHERE id = $1) OR EXISTS"
                     " (SELECT 1 FROM submission JOIN job USING (id) WHERE group_id = $1)",
    .count = "SELECT what, sum(n) FROM tally GROUP BY what UNION ALL"
             " SELECT state, count(*) FROM job GROUP BY state",
    .each_failure =
        "SELECT class, failed_at, message, sum(n), min(first_ms),"
        " (array_agg(last_id ORDER BY last_ms DESC, last_id DESC))[1], max(last_ms),"
        " sum(sum(n)) OVER (), count(*) OVER () FROM (SELECT scope, start_s, run, task_id, class, failed_at,"
        "   message, n, first_ms, last_ms, last_id FROM cause UNION ALL SELECT scope, start_s, '', '', class,"
        "   failed_at, message, n, first_ms, last_ms, last_id FROM failure) AS f"
        " WHERE scope = $1 AND start_s >= $2"
        " AND ($4::text IS NULL OR task_id = $4) AND ($5::text IS NULL OR run = $5)"
        " AND ($6::text IS NULL OR class = $6) GROUP BY class, failed_at, message"
        " ORDER BY 4 DESC, 7 DESC LIMIT $3",
    .each_task_sum = TASK_SUMS TASK_SUMS_END " WHERE (last_ms, task_id) < ($2, $3)"
                                             " ORDER BY last_ms DESC, task_id DESC LIMIT $4",
    .get_task_sum = TASK_SUMS " AND task_id = $2" TASK_SUMS_END,
    /* Two nodes may each have beaten the same record: only a row faster than all before it counts. */
    .each_record = "SELECT id, finished_ms, speedup FROM (SELECT *, max(speedup) OVER (ORDER BY finished_ms,"
                   " id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM record"
                   " WHERE scope = $1 AND task_id = $2) AS r WHERE before IS NULL OR speedup > before"
                   " ORDER BY finished_ms DESC, id DESC LIMIT $3",
    .has_nodes = true,
    .waits = pg_waits,
    .waits_new = pg_waits_new,
    .each_node = pg_nodes,
    .each_cancel = "SELECT id, cancel FROM job WHERE cancel > 0 AND (state = 0 OR node = $1)"
                   " ORDER BY state DESC, id LIMIT $2",
    .is_ahead = "SELECT count(*) >= $1 OR coalesce(sum(size), 0) >= $2 FROM (SELECT size FROM job"
                " LEFT JOIN carried USING (id) WHERE state = 0 AND handed_on LIMIT $1) h",
    /* The counts walk one group's stretch of an index, 256 rows at most. */
    .group_counts = "c.*",
    .group_counts_from =
        "CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE j.state = 0),"
        " count(*) FILTER (WHERE j.state = 1), count(*) FILTER (WHERE s.state = 2),"
        " count(*) FILTER (WHERE s.state = 3), count(*) FILTER (WHERE s.class = 'ok'), max(s.reward)"
        " FROM submission s LEFT JOIN job j ON j.id = s.id WHERE s.group_id = g.id HAVING count(*) > 0) c",
};

static void
reader_free(struct store_reader *base)
{
    pg_link_close(&pg_reader_of(base)->link);
    free(base);
}

static const struct reader_ops reader_ops = {
    .dialect = &dialect,
    .free = reader_free,
    .begin = pg_reads_begin,
    .end = pg_reads_end,
    .each = pg_read_each,
    .renew = pg_renew,
};

int
pg_reader_new(struct pgsql *p, struct store_reader **out, struct error *err)
{
    struct pg_reader *r = calloc(1, sizeof(*r));

    *out = NULL;
    if (!r)
        return error_set(err, ERR_NOMEM, "no memory for the store's reader");
    r->base.ops = &reader_ops;
    r->of = p;
    int rc = pg_link_open(&r->link, p->where, p->base.lease.node, err);
    if (rc < 0) {
        reader_free(&r->base);
        return rc;
    }
    *out = &r->base;
    return 0;
}
