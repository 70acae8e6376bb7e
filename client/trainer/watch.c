/*
 * trainer watch: is this machine about to be taken away? Asks the metadata services of AWS (IMDSv2), GCP and Azure,
 * and on a notice, or SIGTERM, has the run finish its step and write a checkpoint (SIGTERM to it), waits for it, and
 * copies to the remote.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include <curl/curl.h>

#include "client/trainer/child.h"
#include "client/trainer/notice.h"
#include "client/trainer/options.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/program.h"

#define ANSWER_MAX 65536
#define AWS_URL "http://169.254.169.254"
#define GCP_URL "http://metadata.google.internal"
#define AZURE_URL "http://169.254.169.254"

#define ALL_CLOUDS "aws,gcp,azure"

struct watch {
    struct trainer *trainer;
    const char *clouds, *remote, *aws, *gcp, *azure;
    double every_s, grace_s; /* grace_s below 0: by the notice */
    pid_t pid;               /* 0: no process to notify */
    CURL *curl;
    char token[256]; /* IMDSv2; "" until one was given */
    bool is_advised; /* a rebalance recommendation was reported already */
};

enum { OPT_PID = 512, OPT_CLOUDS, OPT_EVERY, OPT_GRACE, OPT_REMOTE, OPT_AWS, OPT_GCP, OPT_AZURE };

static const struct argp_option options[] = {
    { "pid", OPT_PID, "PID", 0, "The process that gets SIGTERM on a notice: trainer run", 0 },
    { "clouds", OPT_CLOUDS, "LIST", 0, "Of aws, gcp, azure; default: all", 0 },
    { "every", OPT_EVERY, "SECONDS", 0, "Between two looks (default 5)", 0 },
    { "grace", OPT_GRACE, "SECONDS", 0,
      "How long the process may take to end (default: two thirds of the notice: 80 on AWS, else 20)", 0 },
    { "remote", OPT_REMOTE, "REMOTE", 0, "Copy there when it has ended, as trainer sync does", 0 },
    { "aws-url", OPT_AWS, "URL", 0, "Default AWS_EC2_METADATA_SERVICE_ENDPOINT, else " AWS_URL, 0 },
    { "gcp-url", OPT_GCP, "URL", 0, "Default GCE_METADATA_HOST, else " GCP_URL, 0 },
    { "azure-url", OPT_AZURE, "URL", 0, "Default " AZURE_URL, 0 },
    { 0 },
};

static void
take_clouds(struct argp_state *state, const char *name, char *arg, void *out)
{
    option_some(state, name, arg, ALL_CLOUDS, out);
}

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct watch *w = state->input;
    const struct take rows[] = {
        TAKE_INPUT(w->trainer),
        TAKE_INT(OPT_PID, &w->pid, 2, 1 << 30),
        TAKE_CALL(OPT_CLOUDS, take_clouds, &w->clouds),
        TAKE_SECONDS(OPT_EVERY, &w->every_s, 0.05, 3600),
        TAKE_SECONDS(OPT_GRACE, &w->grace_s, 0, 86400),
        TAKE_TEXT(OPT_REMOTE, &w->remote),
        TAKE_TEXT(OPT_AWS, &w->aws),
        TAKE_TEXT(OPT_GCP, &w->gcp),
        TAKE_TEXT(OPT_AZURE, &w->azure),
    };

    return take(rows, ARRAY_LEN(rows), key, arg, state);
}

static const struct argp_child children[] = { { &trainer_common_argp, 0, NULL, -1 }, { 0 } };
static const struct argp argp = {
    options, parse, NULL, "Watch for the notice that this machine is taken away.", children, NULL, NULL
};

static size_t
bytes_cb(char *data, size_t size, size_t n, void *to)
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
    curl_easy_setopt(w->curl, CURLOPT_WRITEFUNCTION, bytes_cb);
    curl_easy_setopt(w->curl, CURLOPT_WRITEDATA, out);
    if (curl_easy_perform(w->curl) == CURLE_OK)
        curl_easy_getinfo(w->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    return status;
}

/* With a token, which is requested once, and again when it is refused. */
static long
ask_aws(struct watch *w, const char *path, struct buffer *out)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        char header[320];
        if (!w->token[0]) {
            AUTO_BUFFER struct buffer token = BUFFER_INIT;
            long given = ask(w, "PUT", w->aws, "/latest/api/token",
                             "X-aws-ec2-metadata-token-ttl-seconds: 21600", &token);
            if (!notice_token(given, token.data, w->token))
                return 0;
        }
        snprintf(header, sizeof(header), "X-aws-ec2-metadata-token: %s", w->token);
        long status = ask(w, "GET", w->aws, path, header, out);
        if (status != 401)
            return status;
        w->token[0] = '\0';
    }
    return 401;
}

static struct notice
look_at_aws(struct watch *w)
{
    AUTO_BUFFER struct buffer action = BUFFER_INIT, advice = BUFFER_INIT;
    long status = ask_aws(w, "/latest/meta-data/spot/instance-action", &action);
    struct notice found = notice_aws_action(status, action.data);
    if (found.kind != NOTICE_NONE || w->is_advised)
        return found;
    status = ask_aws(w, "/latest/meta-data/events/recommendations/rebalance", &advice);
    return notice_aws_rebalance(status, advice.data);
}

static struct notice
look_at_gcp(struct watch *w)
{
    static const char header[] = "Metadata-Flavor: Google";
    AUTO_BUFFER struct buffer preempted = BUFFER_INIT, event = BUFFER_INIT;
    long status = ask(w, "GET", w->gcp, "/computeMetadata/v1/instance/preempted", header, &preempted);
    struct notice found = notice_gcp_preempted(status, preempted.data);
    if (found.kind != NOTICE_NONE)
        return found;
    status = ask(w, "GET", w->gcp, "/computeMetadata/v1/instance/maintenance-event", header, &event);
    return notice_gcp_maintenance(status, event.data);
}

static struct notice
look_at_azure(struct watch *w)
{
    AUTO_BUFFER struct buffer answer = BUFFER_INIT, name = BUFFER_INIT;
    long status = ask(w, "GET", w->azure, "/metadata/scheduledevents?api-version=2020-07-01",
                      "Metadata: true", &answer);
    struct notice found = notice_azure(status, answer.data, "");
    if (found.kind == NOTICE_NONE ||
        ask(w, "GET", w->azure, "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
            "Metadata: true", &name) != 200)
        return found;
    return notice_azure(status, answer.data, name.data ? name.data : "");
}

/* The first cloud with a notice. Advice is reported once, and ends nothing. */
static struct notice
look(struct watch *w)
{
    static const struct {
        const char *cloud;
        struct notice (*at)(struct watch *);
    } clouds[] = { { "aws", look_at_aws }, { "gcp", look_at_gcp }, { "azure", look_at_azure } };
    struct notice found = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(clouds) && found.kind != NOTICE_LEAVE; i++) {
        if (!strstr(w->clouds, clouds[i].cloud))
            continue;
        found = clouds[i].at(w);
        if (found.kind == NOTICE_NONE)
            continue;
        fprintf(stderr, "trainer: %s\n", found.text);
        w->is_advised = w->is_advised || found.kind == NOTICE_ADVICE;
    }
    return found;
}

static bool
is_gone(const struct watch *w)
{
    return w->pid == 0 || (kill(w->pid, 0) != 0 && errno == ESRCH);
}

static void
copy(const struct watch *w)
{
    char remote[1024], workdir[1024];
    char *argv[] = { (char *)(uintptr_t) "trainer", (char *)(uintptr_t) "sync", remote, workdir, NULL };
    int status = -1;
    snprintf(remote, sizeof(remote), "--remote=%s", w->remote);
    snprintf(workdir, sizeof(workdir), "--workdir=%s", w->trainer->workdir);
    pid_t pid = child_spawn("/proc/self/exe", argv);
    /* Not child_wait(): a signal that we got is not for this one. */
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (status != 0)
        fprintf(stderr, "trainer: the copy to %s failed: trainer sync --remote=...\n", w->remote);
}

/*
 * The process is sent a signal to end with a checkpoint. Checkpoints that are complete already are copied meanwhile, so
 * that the last copy, once the process has ended or its time is up, is short.
 */
static int
leave(struct watch *w, const struct notice *found)
{
    const double grace_s = w->grace_s >= 0 ? w->grace_s : notice_grace_s(found);
    const int64_t end_ns = clock_monotonic_ns() + (int64_t)(grace_s * 1e9);

    if (w->pid && kill(w->pid, SIGTERM) != 0 && errno != ESRCH)
        return trainer_complain(TRAINER_CONFIG, "cannot tell process %d: %s", (int)w->pid, strerror(errno));
    if (w->remote && !is_gone(w))
        copy(w);
    while (!is_gone(w) && clock_monotonic_ns() < end_ns) {
        const struct timespec step = { 0, 100000000 };
        nanosleep(&step, NULL);
    }
    if (!is_gone(w))
        fprintf(stderr, "trainer: process %d still runs after %g s\n", (int)w->pid, grace_s);
    if (w->remote)
        copy(w);
    return TRAINER_RESUME;
}

/* A URL of the environment's: those that the clouds' own libraries look at. */
static const char *
url_of(const char *variable, const char *before, const char *otherwise, char out[256])
{
    const char *value = program_environment(variable, NULL);
    if (!value)
        return otherwise;
    snprintf(out, 256, "%s%.240s", before, value);
    return out;
}

int
watch_command(struct trainer *t, int argc, char **argv)
{
    char aws[256], gcp[256];
    struct watch w = { .trainer = t,
                       .clouds = ALL_CLOUDS,
                       .aws = url_of("AWS_EC2_METADATA_SERVICE_ENDPOINT", "", AWS_URL, aws),
                       .gcp = url_of("GCE_METADATA_HOST", "http://", GCP_URL, gcp),
                       .azure = AZURE_URL,
                       .every_s = 5,
                       .grace_s = -1 };
    const struct notice asked = { NOTICE_LEAVE, NOTICE_SIGTERM_S, "" };
    argp_parse(&argp, argc, argv, 0, NULL, &w);
    w.curl = curl_easy_init();
    if (!w.curl)
        return trainer_complain(TRAINER_CONFIG, "out of memory");
    int status = -1;
    while (status < 0) {
        if (w.pid && is_gone(&w)) {
            status = TRAINER_OK; /* nothing is left to watch for */
        } else if (trainer_is_stopping()) {
            status = leave(&w, &asked);
        } else {
            const struct notice found = look(&w);
            if (found.kind == NOTICE_LEAVE)
                status = leave(&w, &found);
            else
                trainer_pause(w.every_s);
        }
    }
    curl_easy_cleanup(w.curl);
    return status;
}
