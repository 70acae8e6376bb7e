/*
 * trainer watch: is this machine about to be taken away? Asks the metadata services of AWS (IMDSv2), GCP and Azure, and on a notice, or
 * SIGTERM, has the run finish its step and write a checkpoint (SIGTERM to it), waits for it, and copies to the remote.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <curl/curl.h>

#include "client/trainer/options.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "common/buffer.h"

#define ANSWER_MAX 65536
#define AWS_URL "http://169.254.169.254"
#define GCP_URL "http://metadata.google.internal"
#define AZURE_URL "http://169.254.169.254"

struct watch {
    struct trainer *trainer;
    const char *clouds, *remote, *aws, *gcp, *azure;
    double every_s, grace_s;
    pid_t pid; /* 0: nobody is told */
    CURL *curl;
    char token[256]; /* IMDSv2; "" until one was given */
    bool is_advised; /* a rebalance recommendation was told already */
};

enum { OPT_PID = 512, OPT_CLOUDS, OPT_EVERY, OPT_GRACE, OPT_REMOTE, OPT_AWS, OPT_GCP, OPT_AZURE };

static const struct argp_option options[] = {
    { "pid", OPT_PID, "PID", 0, "The process that gets SIGTERM on a notice: trainer run", 0 },
    { "clouds", OPT_CLOUDS, "LIST", 0, "Of aws, gcp, azure; default: all", 0 },
    { "every", OPT_EVERY, "SECONDS", 0, "Between two looks (default 5)", 0 },
    { "grace", OPT_GRACE, "SECONDS", 0, "How long the process may take to end (default 25)", 0 },
    { "remote", OPT_REMOTE, "REMOTE", 0, "Copy there when it has ended, as trainer sync does", 0 },
    { "aws-url", OPT_AWS, "URL", 0, "Default " AWS_URL, 0 },
    { "gcp-url", OPT_GCP, "URL", 0, "Default " GCP_URL, 0 },
    { "azure-url", OPT_AZURE, "URL", 0, "Default " AZURE_URL, 0 },
    { 0 },
};

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct watch *w = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = w->trainer;
        return 0;
    case OPT_PID:
        w->pid = option_int(state, "--pid", arg, 2, 1 << 30);
        return 0;
    case OPT_CLOUDS:
        w->clouds = arg;
        return 0;
    case OPT_EVERY:
        w->every_s = option_number(state, "--every", arg, 0.05, 3600);
        return 0;
    case OPT_GRACE:
        w->grace_s = option_number(state, "--grace", arg, 0, 86400);
        return 0;
    case OPT_REMOTE:
        w->remote = arg;
        return 0;
    case OPT_AWS:
        w->aws = arg;
        return 0;
    case OPT_GCP:
        w->gcp = arg;
        return 0;
    case OPT_AZURE:
        w->azure = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &trainer_common_argp, 0, NULL, -1 }, { 0 } };
static const struct argp argp = {
    options, parse, NULL, "Watch for the notice that this machine is taken away.", children, NULL, NULL
};

static size_t
take_cb(char *data, size_t size, size_t n, void *to)
{
    struct buffer *into = to;
    return into->size + size * n <= ANSWER_MAX && buffer_append(into, data, size * n) == 0 ? size * n : 0;
}

/* One request with one header; the HTTP status, or 0 when no answer came. */
static long
ask(struct watch *w, const char *method, const char *base, const char *path, const char *header,
    struct buffer *out)
{
    char url[512];
    long status = 0;
    struct curl_slist *headers = curl_slist_append(NULL, header);

    snprintf(url, sizeof(url), "%s%s", base, path);
    curl_easy_reset(w->curl);
    curl_easy_setopt(w->curl, CURLOPT_URL, url);
    curl_easy_setopt(w->curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(w->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(w->curl, CURLOPT_PROXY, "");
    curl_easy_setopt(w->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(w->curl, CURLOPT_CONNECTTIMEOUT, 2L);
    curl_easy_setopt(w->curl, CURLOPT_TIMEOUT, 5L);
    curl_easy_setopt(w->curl, CURLOPT_WRITEFUNCTION, take_cb);
    curl_easy_setopt(w->curl, CURLOPT_WRITEDATA, out);
    if (curl_easy_perform(w->curl) == CURLE_OK)
        curl_easy_getinfo(w->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    return status;
}

/* With a token, which is asked for once and again when it is refused. */
static long
ask_aws(struct watch *w, const char *path, struct buffer *out)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        char header[320];
        if (!w->token[0]) {
            AUTO_BUFFER struct buffer token = BUFFER_INIT;
            if (ask(w, "PUT", w->aws, "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: 21600",
                    &token) != 200 ||
                !token.data || token.size >= sizeof(w->token) || strpbrk(token.data, "\r\n"))
                return 0;
            snprintf(w->token, sizeof(w->token), "%s", token.data);
        }
        snprintf(header, sizeof(header), "X-aws-ec2-metadata-token: %s", w->token);
        long status = ask(w, "GET", w->aws, path, header, out);
        if (status != 401)
            return status;
        w->token[0] = '\0';
    }
    return 401;
}

static bool
is_noticed_by_aws(struct watch *w)
{
    AUTO_BUFFER struct buffer action = BUFFER_INIT, advice = BUFFER_INIT;
    if (ask_aws(w, "/latest/meta-data/spot/instance-action", &action) == 200) {
        fprintf(stderr, "trainer: AWS: %.200s\n", action.data ? action.data : "");
        return true;
    }
    if (!w->is_advised && ask_aws(w, "/latest/meta-data/events/recommendations/rebalance", &advice) == 200) {
        w->is_advised = true; /* earlier, and not certain: the run goes on */
        fprintf(stderr, "trainer: AWS recommends to move: %.200s\n", advice.data ? advice.data : "");
    }
    return false;
}

static bool
is_noticed_by_gcp(struct watch *w)
{
    AUTO_BUFFER struct buffer preempted = BUFFER_INIT, event = BUFFER_INIT;
    if (ask(w, "GET", w->gcp, "/computeMetadata/v1/instance/preempted", "Metadata-Flavor: Google",
            &preempted) == 200 &&
        preempted.data && strncmp(preempted.data, "TRUE", 4) == 0) {
        fputs("trainer: GCP: this instance is being preempted\n", stderr);
        return true;
    }
    if (ask(w, "GET", w->gcp, "/computeMetadata/v1/instance/maintenance-event", "Metadata-Flavor: Google",
            &event) == 200 &&
        event.data && strncmp(event.data, "TERMINATE", 9) == 0) {
        fprintf(stderr, "trainer: GCP: %.100s\n", event.data);
        return true;
    }
    return false;
}

static bool
is_noticed_by_azure(struct watch *w)
{
    AUTO_BUFFER struct buffer answer = BUFFER_INIT;
    size_t i;
    json_t *event;
    if (ask(w, "GET", w->azure, "/metadata/scheduledevents?api-version=2020-07-01", "Metadata: true",
            &answer) != 200)
        return false;
    AUTO_JSON json_t *document = json_loadb(answer.data ? answer.data : "", answer.size, 0, NULL);
    json_array_foreach(json_object_get(document, "Events"), i, event)
    {
        const char *kind = json_string_value(json_object_get(event, "EventType"));
        const char *when = json_string_value(json_object_get(event, "NotBefore"));
        if (kind && (strcmp(kind, "Preempt") == 0 || strcmp(kind, "Terminate") == 0)) {
            fprintf(stderr, "trainer: Azure: %s, not before %s\n", kind, when ? when : "now");
            return true;
        }
    }
    return false;
}

static bool
is_noticed(struct watch *w)
{
    return (strstr(w->clouds, "aws") && is_noticed_by_aws(w)) ||
           (strstr(w->clouds, "gcp") && is_noticed_by_gcp(w)) ||
           (strstr(w->clouds, "azure") && is_noticed_by_azure(w));
}

static bool
is_gone(const struct watch *w)
{
    return w->pid == 0 || (kill(w->pid, 0) != 0 && errno == ESRCH);
}

/* The process ends with a checkpoint; then everything is copied. */
static int
leave(struct watch *w)
{
    if (w->pid && kill(w->pid, SIGTERM) != 0 && errno != ESRCH)
        return trainer_complain(TRAINER_CONFIG, "cannot tell process %d: %s", (int)w->pid, strerror(errno));
    for (double waited = 0; !is_gone(w) && waited < w->grace_s; waited += 0.1) {
        const struct timespec step = { 0, 100000000 };
        nanosleep(&step, NULL);
    }
    if (!is_gone(w))
        fprintf(stderr, "trainer: process %d still runs after %g s\n", (int)w->pid, w->grace_s);
    if (w->remote) {
        char remote[1024], workdir[1024];
        char *argv[] = { (char *)(uintptr_t) "trainer sync", remote, workdir, NULL };
        snprintf(remote, sizeof(remote), "--remote=%s", w->remote);
        snprintf(workdir, sizeof(workdir), "--workdir=%s", w->trainer->workdir);
        sync_command(w->trainer, 3, argv);
    }
    return TRAINER_RESUME;
}

int
watch_command(struct trainer *t, int argc, char **argv)
{
    struct watch w = { .trainer = t,
                       .clouds = "aws,gcp,azure",
                       .aws = AWS_URL,
                       .gcp = GCP_URL,
                       .azure = AZURE_URL,
                       .every_s = 5,
                       .grace_s = 25 };
    argp_parse(&argp, argc, argv, 0, NULL, &w);
    w.curl = curl_easy_init();
    if (!w.curl)
        return trainer_complain(TRAINER_CONFIG, "out of memory");
    int status = -1;
    while (status < 0) {
        if (w.pid && is_gone(&w))
            status = TRAINER_OK; /* nothing is left to watch for */
        else if (trainer_is_stopping() || is_noticed(&w))
            status = leave(&w);
        else
            trainer_pause(w.every_s);
    }
    curl_easy_cleanup(w.curl);
    return status;
}
