#include "server/store/pgsql/alone.h"

int
pg_is_alone(struct store_backend *b, bool *is_alone, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_ask(&pgsql_of(b)->link, "ask whether another node sweeps",
                    "SELECT pg_try_advisory_xact_lock(2004247141)", SQL_NO_VALUES, &row, err);
    *is_alone = rc == 0 && pg_column_bool(row, 0, 0);
    return rc;
}
