/* handlers.h - the handlers of routes.c, by file. Private to http/. Loop thread. */
#ifndef HTTP_HANDLERS_H
#define HTTP_HANDLERS_H

#include "server/http/exchange.h"

exchange_cb task_add, task_list, task_show, task_rename, task_remove;
exchange_cb submission_add, submission_list, submission_show, submission_cancel, submission_source,
    submission_answer, submission_log, submission_part;
exchange_cb group_add, group_list, group_show, group_cancel;
exchange_cb trend_show, failure_list, leaderboard_list, leader_list;
exchange_cb node_list;
exchange_cb run_list, run_show, run_tasks;
exchange_cb rescore;
exchange_cb events_all, submission_events, group_events;
exchange_cb export_rows;
exchange_cb retention_show, retention_run, audit_list;
exchange_cb submission_bundle, replay_add;
exchange_cb calibration_add, calibration_list, canary_forget, canary_list;
exchange_cb service_stats, service_status, service_health, service_ready, service_asset, service_metrics;
exchange_cb compat_evaluate, compat_task_status, compat_task_results;

/* The part of a document that a table of submissions shows. whole is taken. Given. */
json_t *submission_brief(json_t *whole);

#endif
