#include "server/store/pgsql/blob.h"

/* True once the bytes are there, and kept from being removed until this transaction ends. */
static int
is_kept(struct pgsql *p, const char *hash, bool *out, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_ask(&p->link, "look for stored bytes", "SELECT 1 FROM blob WHERE hash = $1 FOR KEY SHARE",
                    SQL_VALUES(sql_text(hash)), &row, err);
    *out = rc == 0 && PQntuples(row) == 1;
    return rc;
}

static int
insert(struct pgsql *p, const char *sql, const char *key, const void *bytes, size_t size, int64_t *inserted,
       struct error *err)
{
    const char *packed;
    size_t packed_size;
    int rc = packer_pack(&p->packer, bytes, size, &packed, &packed_size, err);

    if (rc < 0)
        return rc;
    rc = pg_run(&p->link, "store bytes", sql,
                SQL_VALUES(sql_text(key), sql_int((int64_t)size), sql_bytes(packed, packed_size)), inserted,
                err);
    packer_trim(&p->packer);
    return rc;
}

/* Another node may store the same bytes, or remove them, between two statements. */
int
pg_blob_put(struct pgsql *p, const char *hash, const void *bytes, size_t size, struct error *err)
{
    for (;;) {
        int64_t inserted = 0;
        bool is_there;
        int rc = is_kept(p, hash, &is_there, err);
        if (rc == 0 && !is_there)
            rc = insert(p, "INSERT INTO blob (hash, size, data) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
                        hash, bytes, size, &inserted, err);
        if (rc < 0 || is_there || inserted > 0)
            return rc;
    }
}

int
pg_answer_put(struct pgsql *p, const char *id, const void *bytes, size_t size, struct error *err)
{
    return insert(p, "INSERT INTO answer (id, size, data) VALUES ($1, $2, $3)", id, bytes, size, NULL, err);
}
