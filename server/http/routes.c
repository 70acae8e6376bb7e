#include "server/http/routes.h"

#include <string.h>

#include "common/auto.h"
#include "common/words.h"
#include "server/http/asset.h"
#include "server/http/access.h"
#include "server/http/compat.h"
#include "server/http/handlers.h"

/* Any one of these scopes does. A submitter may look at its own submissions, as far as disclosure.h discloses them. */
#define MAY_SUBMIT (SCOPE_SUBMIT | SCOPE_ADMIN)
#define MAY_READ (SCOPE_READ | SCOPE_ADMIN)
#define MAY_LOOK (MAY_SUBMIT | MAY_READ)

static const struct route routes[] = {
    { "POST", "v1/tasks", "", MAY_SUBMIT, true, false, task_add },
    { "GET", "v1/tasks", "name limit cursor", MAY_LOOK, false, false, task_list },
    { "GET", "v1/tasks/{}", "", MAY_LOOK, false, false, task_show },
    { "PATCH", "v1/tasks/{}", "", MAY_SUBMIT, true, false, task_rename },
    { "DELETE", "v1/tasks/{}", "", MAY_SUBMIT, false, false, task_remove },
    { "GET", "v1/tasks/{}/leaders", "limit", MAY_READ, false, false, leader_list },
    { "POST", "v1/submissions", "wait task entry_point policy until client as", MAY_SUBMIT, true, true,
      submission_add },
    { "GET", "v1/submissions", "state task class client group run step policy_version limit cursor view",
      MAY_LOOK, false, false, submission_list },
    { "GET", "v1/submissions/{}", "wait", MAY_LOOK, false, false, submission_show },
    { "DELETE", "v1/submissions/{}", "", MAY_SUBMIT, false, false, submission_cancel },
    { "GET", "v1/submissions/{}/source", "", MAY_LOOK, false, false, submission_source },
    { "GET", "v1/submissions/{}/answer", "", MAY_LOOK, false, false, submission_answer },
    { "GET", "v1/submissions/{}/log", "", MAY_LOOK, false, false, submission_log },
    { "GET", "v1/submissions/{}/timing", "", MAY_LOOK, false, false, submission_part },
    { "GET", "v1/submissions/{}/plan", "", MAY_LOOK, false, false, submission_part },
    { "GET", "v1/submissions/{}/events", "wait view", MAY_LOOK, false, false, submission_events },
    { "GET", "v1/submissions/{}/bundle", "", MAY_READ, false, false, submission_bundle },
    { "POST", "v1/replays", "wait", SCOPE_ADMIN, true, false, replay_add },
    { "POST", "v1/groups", "wait", MAY_SUBMIT, true, true, group_add },
    { "GET", "v1/groups", "run step limit cursor", MAY_LOOK, false, false, group_list },
    { "GET", "v1/groups/{}", "wait", MAY_LOOK, false, false, group_show },
    { "DELETE", "v1/groups/{}", "", MAY_SUBMIT, false, false, group_cancel },
    { "GET", "v1/groups/{}/events", "wait view", MAY_LOOK, false, false, group_events },
    { "GET", "v1/events", "wait view", MAY_LOOK, false, false, events_all },
    { "POST", "v1/rescore", "", MAY_LOOK, true, false, rescore },
    { "POST", "v1/calibrations", "", SCOPE_ADMIN, true, false, calibration_add },
    { "GET", "v1/calibrations", "", MAY_LOOK, false, false, calibration_list },
    { "POST", "v1/canaries", "", SCOPE_ADMIN, true, false, canary_forget },
    { "GET", "v1/canaries", "", MAY_LOOK, false, false, canary_list },
    { "GET", "v1/trends", "window", MAY_READ, false, false, trend_show },
    { "GET", "v1/failures", "window task run class limit", MAY_READ, false, false, failure_list },
    { "GET", "v1/runs", "limit cursor", MAY_READ, false, false, run_list },
    { "GET", "v1/runs/{}", "", MAY_READ, false, false, run_show },
    { "GET", "v1/runs/{}/tasks", "limit", MAY_READ, false, false, run_tasks },
    { "GET", "v1/leaderboard", "limit cursor", MAY_READ, false, false, leaderboard_list },
    { "POST", "compat/openrlhf", "policy reward run fill", MAY_SUBMIT, true, false, compat_evaluate },
    { "POST", "compat/slime", "policy reward run fill reply", MAY_SUBMIT, true, false, compat_evaluate },
    { "POST", "compat/sandboxfusion/run_code", "policy reward run", MAY_SUBMIT, true, false,
      compat_evaluate },
    { "POST", "compat/kernelgym/evaluate", "policy run", MAY_SUBMIT, true, false, compat_evaluate },
    { "POST", "compat/kernelgym/evaluate/batch", "policy run", MAY_SUBMIT, true, false, compat_evaluate },
    { "GET", "compat/kernelgym/status/{}", "", MAY_LOOK, false, false, compat_task_status },
    { "GET", "compat/kernelgym/results/{}", "", MAY_LOOK, false, false, compat_task_results },
    { "POST", "compat/tritonforge/eval", "policy run", MAY_SUBMIT, true, false, compat_evaluate },
    { "GET", "v1/export",
      "format what source state task class client group run step policy_version since before", MAY_READ,
      false, false, export_rows },
    { "GET", "v1/stats", "window", MAY_READ, false, false, service_stats },
    { "GET", "v1/audit", "limit", SCOPE_ADMIN, false, false, audit_list },
    { "GET", "v1/retention", "", MAY_READ, false, false, retention_show },
    { "POST", "v1/retention", "", SCOPE_ADMIN, true, false, retention_run },
    { "GET", "v1/nodes", "", MAY_READ, false, false, node_list },
    { "GET", "v1/status", "", MAY_LOOK, false, false, service_status },
    { "GET", "metrics", "", MAY_READ, false, false, service_metrics },
    { "GET", "healthz", "", 0, false, false, service_health },
    { "GET", "readyz", "", 0, false, false, service_ready },
};

/* Files are looked up in their own table, under their whole path. */
static const struct route asset_route = { "GET", "", "", 0, false, false, service_asset };

_Static_assert(ARRAY_LEN(routes) <= HTTP_ROUTES_REST, "a place for each, and one for the rest");

static bool
is_match(const char *path, const struct target *t)
{
    size_t n = 0;
    for (const char *part = path; part; n++) {
        const char *slash = strchr(part, '/');
        size_t size = slash ? (size_t)(slash - part) : strlen(part);
        if (n == t->segments_count)
            return false;
        bool is_any = size == 2 && strncmp(part, "{}", 2) == 0;
        if (is_any && !*t->segments[n])
            return false;
        if (!is_any && (strlen(t->segments[n]) != size || strncmp(part, t->segments[n], size) != 0))
            return false;
        part = slash ? slash + 1 : NULL;
    }
    return n == t->segments_count;
}

static bool
is_asset(const struct exchange *x)
{
    size_t size = strcspn(x->uri, "?");
    for (size_t i = 0; i < assets_count; i++)
        if (strlen(assets[i].path) == size && strncmp(assets[i].path, x->uri, size) == 0)
            return true;
    return false;
}

static void
refuse_method(struct exchange *x, const char *method)
{
    char allow[64] = "";

    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        if (!is_match(routes[i].path, &x->target))
            continue;
        if (*allow)
            strcat(allow, ", ");
        strcat(allow, strcmp(routes[i].method, "GET") == 0 ? "GET, HEAD" : routes[i].method);
    }
    if (is_asset(x))
        strcpy(allow, "GET, HEAD");
    if (!*allow) {
        exchange_problem(x, PROBLEM_NOT_FOUND, "no such address; /openapi.yaml lists them");
        return;
    }
    char detail[96];
    snprintf(detail, sizeof(detail), "%.20s does not apply here; allowed: %s", method, allow);
    exchange_problem_set(x, PROBLEM_METHOD, detail, NULL);
    exchange_header(x, MHD_HTTP_HEADER_ALLOW, allow);
    exchange_send(x);
}

const struct route *
route_find(struct exchange *x, const char *method)
{
    const struct route *found = NULL;
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;

    for (size_t i = 0; i < ARRAY_LEN(routes) && !found; i++)
        if (strcmp(routes[i].method, wanted) == 0 && is_match(routes[i].path, &x->target))
            found = &routes[i];
    if (!found && strcmp(wanted, "GET") == 0 && is_asset(x))
        found = &asset_route;
    if (!found) {
        refuse_method(x, method);
        return NULL;
    }
    if (!access_check(x, found, compat_is(found)))
        return NULL;
    x->route = found;
    if (found != &asset_route)
        x->route_number = (size_t)(found - routes);
    x->refuse = compat_is(found) ? compat_problem_set : NULL; /* a refusal from here on is in its manner */
    for (size_t i = 0; i < x->target.pairs_count; i++) {
        const char *name = x->target.pairs[i].name;
        if (words_have(found->query, " ", name, strlen(name)))
            continue;
        exchange_bad_parameter(x, name, "is not a parameter here");
        return NULL;
    }
    return found;
}
