#include "server/store/pgsql/carried.h"

#include "server/store/pgsql/claims.h"
#include "server/store/pgsql/reading.h"

/*
 * Theory of operation. It only saves work, so that its table is not logged: it is empty after a crash and on a standby that
 * took over. Its rows go with the job's (a foreign key), whoever ends that, also a daemon of a version before.
 */

#define HAND_ON                                                                                          \
    "UPDATE job SET state = 0, node = NULL, attempts = $3, handed_on = true WHERE id = $1 AND state = 1" \
    " AND claim = $2"

int
pg_hand_on(struct store_backend *b, const struct store_claim *c, const struct store_carried *carried,
           struct error *err)
{
    struct pgsql *p = pgsql_of(b);
    const char *packed = NULL;
    size_t packed_size = 0;
    int64_t changed = 0;
    int rc = carried ? packer_pack(&p->packer, carried->bytes, carried->size, &packed, &packed_size, err) : 0;

    if (rc == 0 && !carried)
        rc = pg_run(&p->link, "hand a submission on", HAND_ON,
                    SQL_VALUES(sql_text(c->id), sql_int(c->number), sql_int(c->attempts)), &changed, err);
    else if (rc == 0)
        rc = pg_run(&p->link, "hand a submission on",
                    "WITH handed AS (" HAND_ON " RETURNING id)"
                    " INSERT INTO carried (id, about, size, data) SELECT id, $4, $5, $6 FROM handed"
                    " ON CONFLICT (id) DO UPDATE SET about = excluded.about, size = excluded.size,"
                    " data = excluded.data",
                    SQL_VALUES(sql_text(c->id), sql_int(c->number), sql_int(c->attempts),
                               sql_text(carried->about), sql_int((int64_t)carried->size),
                               sql_bytes(packed, packed_size)),
                    &changed, err);
    packer_trim(&p->packer);
    if (rc < 0)
        error_prefix(err, "submission %s", c->id);
    return rc < 0 || changed == 1 ? rc : pg_explain_miss(p, c->id, err);
}

int
pg_is_ahead(struct store_reader *r, bool *out, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_read(r, "look for what was handed on",
                     "SELECT count(*) >= $1 OR coalesce(sum(size), 0) >= $2 FROM (SELECT size FROM job"
                     " LEFT JOIN carried USING (id) WHERE state = 0 AND handed_on LIMIT $1) h",
                     SQL_VALUES(sql_int(STORE_AHEAD_MOST), sql_int(STORE_AHEAD_BYTES)), &row, err);

    *out = rc == 0 && pg_column_bool(row, 0, 0);
    return rc;
}
