#include "server/store/sqlite/blob.h"

static int
insert(struct sqlite *s, const char *sql, const char *key, const void *bytes, size_t size, struct error *err)
{
    const char *packed;
    size_t packed_size;
    int rc = packer_pack(&s->packer, bytes, size, &packed, &packed_size, err);

    if (rc < 0)
        return rc;
    rc = db_change(&s->db, "store bytes", sql,
                   SQL_VALUES(sql_text(key), sql_int((int64_t)size), sql_bytes(packed, packed_size)), NULL,
                   err);
    packer_trim(&s->packer);
    return rc;
}

int
blob_put(struct sqlite *s, const char *hash, const void *bytes, size_t size, struct error *err)
{
    int rc = db_ask(&s->db, "look for stored bytes", "SELECT 1 FROM blob WHERE hash = $1",
                    SQL_VALUES(sql_text(hash)), NULL, 0, err);

    if (rc != 0)
        return rc < 0 ? rc : 0;
    return insert(s, "INSERT INTO blob (hash, size, data) VALUES ($1, $2, $3)", hash, bytes, size, err);
}

int
answer_put(struct sqlite *s, const char *id, const void *bytes, size_t size, struct error *err)
{
    return insert(s, "INSERT INTO answer (id, size, data) VALUES ($1, $2, $3)", id, bytes, size, err);
}
