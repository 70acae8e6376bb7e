#include "server/store/pgsql/rows.h"

struct task_row
pg_task_view(const PGresult *rows, int row)
{
    struct task_row out = { .name = pg_column_text(rows, row, 1),
                            .entry_point = pg_column_text(rows, row, 2),
                            .level = (int)pg_column_int(rows, row, 3),
                            .dynamic_shapes = pg_column_bool(rows, row, 4),
                            .metadata = pg_column_text(rows, row, 5),
                            .created_ms = pg_column_int(rows, row, 6) };

    pg_column_name(rows, row, 0, out.id, sizeof(out.id));
    return out;
}

struct submission_row
pg_submission_view(const PGresult *rows, int row)
{
    struct submission_row out = { .group_index = (int)pg_column_int(rows, row, 2),
                                  .state = (enum submission_state)pg_column_int(rows, row, 5),
                                  .priority = (int)pg_column_int(rows, row, 6),
                                  .client = pg_column_text(rows, row, 7),
                                  .request = pg_column_text(rows, row, 8),
                                  .attempts = (int)pg_column_int(rows, row, 9),
                                  .created_ms = pg_column_int(rows, row, 10),
                                  .finished_ms = pg_column_int(rows, row, 11),
                                  .stage = pg_column_text(rows, row, 12),
                                  .class_ = pg_column_text(rows, row, 13),
                                  .reward = pg_column_real(rows, row, 14),
                                  .verdict = pg_column_text(rows, row, 15),
                                  .claim = pg_column_int(rows, row, 16),
                                  .is_lost = pg_column_bool(rows, row, 17) };

    pg_column_name(rows, row, 0, out.id, sizeof(out.id));
    pg_column_name(rows, row, 1, out.group_id, sizeof(out.group_id));
    pg_column_name(rows, row, 3, out.task_id, sizeof(out.task_id));
    pg_column_name(rows, row, 4, out.source_hash, sizeof(out.source_hash));
    return out;
}

struct group_row
pg_group_view(const PGresult *rows, int row)
{
    struct group_row out = { .request = pg_column_text(rows, row, 2),
                             .size = (int)pg_column_int(rows, row, 3),
                             .created_ms = pg_column_int(rows, row, 4),
                             .age_ms = pg_column_int(rows, row, 5) };

    pg_column_name(rows, row, 0, out.id, sizeof(out.id));
    pg_column_name(rows, row, 1, out.task_id, sizeof(out.task_id));
    return out;
}
