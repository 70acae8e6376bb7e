#include "server/store/pgsql/alone.h"

int
pg_alone(struct pgsql *p, enum pg_duty duty, bool *is_alone, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_ask(&p->link, "ask whether another node does it", "SELECT pg_try_advisory_xact_lock($1)",
                    SQL_VALUES(sql_int(duty)), &row, err);
    *is_alone = rc == 0 && pg_column_bool(row, 0, 0);
    return rc;
}

int
pg_is_alone(struct store_backend *b, bool *is_alone, struct error *err)
{
    return pg_alone(pgsql_of(b), PG_SWEEPS, is_alone, err);
}
