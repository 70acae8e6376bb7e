/* changes.h - writes that are made alike whichever database it is: part of backend.h's transactions. The writer's thread alone. */
#ifndef STORE_CHANGES_H
#define STORE_CHANGES_H

#include "server/store/backend.h"

/* As in store.h, each of what the comment says. */
change_fn change_add_task;                                          /* struct task_row */
change_fn change_name_task, change_rename_task, change_remove_task; /* struct store_naming */
change_fn change_add_submissions;                                   /* struct store_intake */
change_fn change_finish;                                            /* struct store_ending */
change_fn change_add_calibration;                                   /* struct calibration_row */
change_fn change_put_canary;                                        /* struct canary_row */
order_fn change_release, change_set_attempts;
/* Why a change of a submission met no row: ERR_CONFLICT, ERR_NOTFOUND, or as a write. */
int change_explain_miss(struct store_backend *b, const char *id, struct error *err);

#endif
