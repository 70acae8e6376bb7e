#include "server/http/problem.h"

#include <stdio.h>

const struct problem_kind problem_kinds[PROBLEM_COUNT] = {
    [PROBLEM_FRAMING] = { 400, "bad_framing", "The request can be read in more than one way", false },
    [PROBLEM_ADDRESS] = { 400, "bad_address", "The address is malformed", false },
    [PROBLEM_PARAMETER] = { 400, "bad_parameter", "A query parameter is wrong", false },
    [PROBLEM_HEADER] = { 400, "bad_header", "A header is wrong", false },
    [PROBLEM_BODY] = { 400, "bad_body", "The body is wrong", false },
    [PROBLEM_UNAUTHORIZED] = { 401, "unauthorized", "A token is needed", false },
    [PROBLEM_FORBIDDEN] = { 403, "forbidden", "The token does not allow this", false },
    [PROBLEM_UNKNOWN_TASK] = { 404, "unknown_task", "There is no such task", false },
    [PROBLEM_NOT_FOUND] = { 404, "not_found", "There is nothing here", false },
    [PROBLEM_METHOD] = { 405, "method_not_allowed", "The method does not apply here", false },
    [PROBLEM_TIMEOUT] = { 408, "request_timeout", "The request took too long to arrive", true },
    [PROBLEM_FINISHED] = { 409, "finished", "It is finished", false },
    [PROBLEM_UNFINISHED] = { 409, "unfinished", "It has no verdict", true },
    [PROBLEM_NAME_TAKEN] = { 409, "name_taken", "The name is another task's", false },
    [PROBLEM_IN_USE] = { 409, "task_in_use", "Submissions of the task are not finished", true },
    [PROBLEM_KEY_RUNNING] = { 409, "key_in_flight", "The first request with this key is under way", true },
    [PROBLEM_SWEEPING] = { 409, "sweep_running", "A sweep is under way", true },
    [PROBLEM_TOO_LARGE] = { 413, "too_large", "The request is too large", false },
    [PROBLEM_TYPE] = { 415, "unsupported_type", "The body is not application/json", false },
    [PROBLEM_HOST] = { 421, "wrong_host", "The request is for another host", false },
    [PROBLEM_KEY_REUSED] = { 422, "key_reused", "The key was used for another request", false },
    [PROBLEM_REFERENCE] = { 422, "reference_fails", "The reference does not run", false },
    [PROBLEM_FULL] = { 429, "queue_full", "The queue is full", true },
    [PROBLEM_QUOTA_RATE] = { 429, "quota_rate", "The client submits too fast", true },
    [PROBLEM_QUOTA_QUEUED] = { 429, "quota_queued", "Too many of the client wait", true },
    [PROBLEM_QUOTA_GPU] = { 429, "quota_gpu_seconds", "The client's seconds of devices are used up for today",
                            true },
    [PROBLEM_INTERNAL] = { 500, "internal", "The daemon failed", true },
    [PROBLEM_UNAVAILABLE] = { 503, "unavailable", "Not now", true },
    [PROBLEM_CONNECTIONS] = { 503, "too_many_connections", "There are too many connections", true },
    [PROBLEM_NOT_READY] = { 503, "not_ready", "Work cannot be judged yet", true },
};

json_t *
problem_document(enum problem problem, const char *instance, const char *request_id, const char *detail)
{
    const struct problem_kind *kind = &problem_kinds[problem];
    char type[64];

    snprintf(type, sizeof(type), "urn:verifierd:problem:%s", kind->code);
    return json_pack("{s:s, s:s, s:i, s:s, s:s, s:s, s:s, s:b}", "type", type, "title", kind->title, "status",
                     (int)kind->status, "detail", detail, "instance", instance, "code", kind->code,
                     "request_id", request_id, "retryable", (int)kind->is_retryable);
}
