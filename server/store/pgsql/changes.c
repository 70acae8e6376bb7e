#include "server/store/pgsql/changes.h"

#include "common/auto.h"
#include "server/store/brief.h"
#include "server/store/labels.h"
#include "server/store/pgsql/blob.h"
#include "server/store/pgsql/claims.h"
#include "server/store/pgsql/sums.h"

/* --- tasks --- */

int
pg_add_task(struct store_backend *b, const struct task_row *row, struct error *err)
{
    struct pgsql *p = pgsql_of(b);
    char hash[HASH_TEXT_SIZE];

    hash_text(row->reference, row->reference_size, hash);
    int rc = pg_blob_put(p, hash, row->reference, row->reference_size, err);
    if (rc < 0)
        return rc;
    return pg_run(
        &p->link, "add a task",
        "INSERT INTO task (id, name, entry_point, level, dynamic_shapes, created_ms, reference_hash,"
        " metadata, spec) VALUES ($1, $2, $3, $4, $5::int <> 0, $6, $7, $8, $9)"
        " ON CONFLICT (id) DO NOTHING",
        PG_VALUES(pg_text(row->id), pg_text(row->name), pg_text(row->entry_point), pg_int(row->level),
                  pg_int(row->dynamic_shapes), pg_int(row->created_ms), pg_text(hash), pg_text(row->metadata),
                  pg_text(row->spec)),
        NULL, err);
}

/* --- new submissions --- */

static int
add_group(struct pgsql *p, const struct group_row *group, const char *client, struct error *err)
{
    struct labels labels;

    labels_read(group->request, &labels);
    int rc = pg_run(&p->link, "add a group",
                    "INSERT INTO submission_group (id, task_id, size, created_ms, request, client, run, step)"
                    " VALUES ($1, $2, $3, $4, $5, $6, $7, nullif($8::bigint, -1))",
                    PG_VALUES(pg_text(group->id), pg_text(group->task_id), pg_int(group->size),
                              pg_int(group->created_ms), pg_text(group->request), pg_text(client),
                              pg_name(labels.run), pg_int(labels.step)),
                    NULL, err);
    if (rc < 0)
        error_prefix(err, "group %s", group->id);
    return rc;
}

/* Those that are too old go with it, so that the table stays as large as a day's requests. */
static int
add_key(struct pgsql *p, const struct key_row *key, struct error *err)
{
    int64_t kept = 0;
    int rc = pg_run(&p->link, "forget old keys",
                    "DELETE FROM idempotency WHERE (client, key) IN (SELECT client, key FROM idempotency"
                    " WHERE created_ms <= $1 FOR UPDATE SKIP LOCKED)",
                    PG_VALUES(pg_int(key->created_ms - STORE_KEY_LIFE_MS)), NULL, err);
    if (rc < 0)
        return rc;
    /* Of two nodes that add one key at once the second waits for the first. */
    rc = pg_run(&p->link, "add a key",
                "INSERT INTO idempotency AS old (client, key, request_hash, id, created_ms)"
                " VALUES ($1, $2, $3, $4, $5) ON CONFLICT (client, key) DO UPDATE SET"
                " request_hash = excluded.request_hash, id = excluded.id, created_ms = excluded.created_ms"
                " WHERE $7::int = 1 OR old.created_ms <= $6 OR NOT (EXISTS (SELECT 1 FROM submission s WHERE "
                "s.id = old.id)"
                "  OR EXISTS (SELECT 1 FROM submission_group g WHERE g.id = old.id))",
                PG_VALUES(pg_text(key->client), pg_text(key->key), pg_text(key->request_hash),
                          pg_text(key->id), pg_int(key->created_ms),
                          pg_int(key->created_ms - STORE_KEY_LIFE_MS), pg_int(key->replaces)),
                &kept, err);
    if (rc == 0 && kept == 0)
        return error_set(err, ERR_CONFLICT, "the key has made something already");
    return rc;
}

static int
insert_submission(struct pgsql *p, const struct submission_row *row, const struct labels *labels,
                  struct error *err)
{
    AUTO_JSON json_t *verdict = verdict_read(row->verdict);
    AUTO_FREE char *brief = verdict ? brief_text(verdict) : NULL;

    return pg_run(
        &p->link, "add a submission",
        "INSERT INTO submission (id, group_id, group_index, task_id, source_hash, state, priority,"
        " client, attempts, created_ms, finished_ms, stage, class, reward, request, verdict, brief,"
        " run, step) VALUES ($1, $2, $3, $4, $5, CASE WHEN $6::int < 2 THEN 0 ELSE $6 END, $7, $8,"
        " $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, nullif($19::bigint, -1))",
        PG_VALUES(pg_text(row->id), pg_name(row->group_id), pg_int(row->group_index), pg_text(row->task_id),
                  pg_text(row->source_hash), pg_int(row->state), pg_int(row->priority), pg_text(row->client),
                  pg_int(row->attempts), pg_int(row->created_ms), pg_int(row->finished_ms),
                  pg_text(row->stage), pg_text(row->class_), pg_real(row->reward), pg_text(row->request),
                  pg_text(row->verdict), pg_text(brief), pg_name(labels->run), pg_int(labels->step)),
        NULL, err);
}

static int
add_submission(struct pgsql *p, const struct submission_row *row, const char *together, struct error *err)
{
    struct labels labels;

    labels_read(row->request, &labels);
    int rc = insert_submission(p, row, &labels, err);

    if (rc == 0 && (row->state == SUBMISSION_QUEUED || row->state == SUBMISSION_RUNNING))
        rc = pg_run(&p->link, "add a job",
                    "INSERT INTO job (id, state, priority, attempts, claim, together, gpu)"
                    " VALUES ($1, $2, $3, $4, 0, $5, $6)",
                    PG_VALUES(pg_text(row->id), pg_int(row->state), pg_int(row->priority),
                              pg_int(row->attempts), pg_text(together), pg_name(labels.gpu)),
                    NULL, err);
    if (rc == 0 && row->state == SUBMISSION_DONE)
        rc = pg_sums_add(p, row, row->task_id, row->client, &labels, err);
    if (rc < 0)
        error_prefix(err, "submission %s", row->id);
    return rc;
}

int
pg_add_submissions(struct store_backend *b, const struct store_intake *w, struct error *err)
{
    struct pgsql *p = pgsql_of(b);
    const char *client = w->n > 0 ? w->rows[0].client : NULL; /* a group's submissions are all of one */
    const char *together = w->group && w->group->keeps_together ? w->group->id : NULL;
    int rc = w->key ? add_key(p, w->key, err) : 0;

    if (rc == 0 && w->group)
        rc = add_group(p, w->group, client, err);
    for (size_t i = 0; rc == 0 && i < w->n; i++) {
        rc = pg_blob_put(p, w->rows[i].source_hash, w->sources[i].text, w->sources[i].size, err);
        if (rc == 0)
            rc = add_submission(p, &w->rows[i], together, err);
    }
    return rc;
}

/* --- the end --- */

int
pg_finish(struct store_backend *b, const struct submission_row *row, const char *log, size_t log_size,
          struct error *err)
{
    struct pgsql *p = pgsql_of(b);
    AUTO_JSON json_t *verdict = verdict_read(row->verdict);
    AUTO_FREE char *brief = verdict ? brief_text(verdict) : NULL;
    AUTO_RESULT PGresult *ended = NULL;
    char log_hash[HASH_TEXT_SIZE] = "";
    struct labels labels;
    int rc = 0;

    if (log_size > 0) {
        hash_text(log, log_size, log_hash);
        rc = pg_blob_put(p, log_hash, log, log_size, err);
    }
    if (rc < 0)
        return rc;
    rc = pg_ask(
        &p->link, "end a submission",
        "WITH ended AS (DELETE FROM job WHERE id = $1 AND claim = $2 RETURNING attempts, claim)"
        " UPDATE submission SET state = $3, stage = $4, class = $5, reward = $6, verdict = $7,"
        " finished_ms = $8, log_hash = $9, cache_key = $10, device_ms = $11, cached_from = $12,"
        " brief = $13, attempts = ended.attempts, claim = ended.claim"
        " FROM ended WHERE id = $1 RETURNING task_id, client, run, coalesce(step, -1)",
        PG_VALUES(pg_text(row->id), pg_int(row->claim), pg_int(row->state), pg_text(row->stage),
                  pg_text(row->class_), pg_real(row->reward), pg_text(row->verdict), pg_int(row->finished_ms),
                  pg_name(log_hash), pg_name(row->cache_key), pg_int(row->device_ms),
                  pg_text(json_string_value(json_object_get(verdict, "cached_from"))), pg_text(brief)),
        &ended, err);
    if (rc < 0) {
        error_prefix(err, "submission %s", row->id);
        return rc;
    }
    if (PQntuples(ended) == 0)
        return pg_explain_miss(p, row->id, err);
    if (row->state != SUBMISSION_DONE)
        return 0;
    pg_column_name(ended, 0, 2, labels.run, sizeof(labels.run));
    labels.step = pg_column_int(ended, 0, 3);
    return pg_sums_add(p, row, pg_column_text(ended, 0, 0), pg_column_text(ended, 0, 1), &labels, err);
}

/* --- the machine --- */

int
pg_add_calibration(struct store_backend *b, const struct calibration_row *row, struct error *err)
{
    return pg_run(
        &pgsql_of(b)->link, "add a calibration",
        "INSERT INTO calibration (id, created_ms, gpu, document) VALUES ($1, $2, $3, $4)",
        PG_VALUES(pg_text(row->id), pg_int(row->created_ms), pg_text(row->gpu), pg_text(row->document)), NULL,
        err);
}

int
pg_put_canary(struct store_backend *b, const struct canary_row *w, struct error *err)
{
    struct pg_link *l = &pgsql_of(b)->link;

    if (!w->document)
        return pg_run(l, "forget a canary", "DELETE FROM canary WHERE gpu = $1 AND driver = $2 AND kind = $3",
                      PG_VALUES(pg_text(w->gpu), pg_text(w->driver), pg_text(w->kind)), NULL, err);
    return pg_run(l, "keep a canary",
                  "INSERT INTO canary (gpu, driver, kind, changed_ms, document) VALUES ($1, $2, $3, $4, $5)"
                  " ON CONFLICT (gpu, driver, kind) DO UPDATE"
                  " SET changed_ms = excluded.changed_ms, document = excluded.document",
                  PG_VALUES(pg_text(w->gpu), pg_text(w->driver), pg_text(w->kind), pg_int(w->changed_ms),
                            pg_text(w->document)),
                  NULL, err);
}
