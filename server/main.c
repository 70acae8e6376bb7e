#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <uv.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/log.h"
#include "server/audit.h"
#include "server/config.h"
#include "server/submission/funnel.h"
#include "server/http/http.h"
#include "server/http/notices.h"
#include "server/retention.h"
#include "server/notify.h"
#include "server/store/store.h"
#include "server/token.h"
#include "server/token_command.h"
#include "server/workers/check.h"
#include "server/workers/devices.h"
#include "server/workers/scratch.h"

/*
 * Theory of operation. Start: settings, log, a check of what the workers need,
 * store, funnel, HTTP; each may end the start with one line on stderr. Stop:
 * HTTP takes no more connections and answers its long polls; the funnel
 * drains; HTTP sends its last answers; the store finishes its writes, whose
 * callbacks need all the others; then everything is freed in the opposite order
 * and the loop runs empty. Each of these has its own time limit. A second signal
 * sets one for the whole, which the kernel enforces.
 */

#define STORE_WRITES_MAX 65536
#define LEASE_MS 15000 /* the claims of a dead node wait for so long, and for a third of it more at most */
#define HURRIED_S 20   /* from a second signal to the end, by force if need be */
#define SPARE_DESCRIPTORS 1024 /* for workers, database, sources, in addition to the connections */

struct server {
    int argc;
    char **argv;
    uv_loop_t loop;
    struct config config;
    struct store *store;
    struct funnel *funnel;
    struct http *http;
    struct retention *retention;
    struct notify notify;
    uv_signal_t term, interrupt, hangup;
    bool is_draining, is_hurried, is_stopping;
};

static void
setup_log(const struct config *c)
{
    static const char *const names[] = { "error", "warn", "info", "debug" };
    enum log_level level = LOG_LEVEL_INFO;
    bool is_text =
        strcmp(c->log_format, "text") == 0 || (strcmp(c->log_format, "auto") == 0 && isatty(STDERR_FILENO));

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(c->log_level, names[i]) == 0)
            level = (enum log_level)i;
    log_setup(level, is_text ? LOG_FORMAT_TEXT : LOG_FORMAT_JSON);
}

/* A long poll needs a descriptor: raise the limit to the number in the settings. */
static void
raise_descriptors(const struct config *c)
{
    struct rlimit limit;
    rlim_t want = (rlim_t)c->connections + SPARE_DESCRIPTORS;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want)
        return;
    struct rlimit raised = { want, limit.rlim_max > want ? limit.rlim_max : want };
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        return;
    raised = (struct rlimit){ limit.rlim_max, limit.rlim_max };
    setrlimit(RLIMIT_NOFILE, &raised);
    if (limit.rlim_max < want)
        log_warn(NULL, "only %llu descriptors are allowed (ulimit -n), and %lld connections may want %llu",
                 (unsigned long long)limit.rlim_max, (long long)c->connections, (unsigned long long)want);
}

/* --- stopping --- */

/* A signal while the last writes are made, where the loop no longer runs. One that came before has set the end. */
static void
end_soon(int number)
{
    unsigned left_s = alarm(HURRIED_S);

    (void)number;
    if (left_s > 0)
        alarm(left_s);
}

static void
http_stopped_cb(void *arg)
{
    struct server *s = arg;
    /* Not closed: that would give the signals back their default, and one that comes now would end the process. */
    uv_unref((uv_handle_t *)&s->term);
    uv_unref((uv_handle_t *)&s->interrupt);
    uv_unref((uv_handle_t *)&s->hangup);
    signal(SIGTERM, end_soon);
    signal(SIGINT, end_soon);
    notify_stop(&s->notify);
    uv_stop(&s->loop);
}

static void
funnel_drained_cb(void *arg)
{
    struct server *s = arg;
    /* A second signal asks the funnel again, and it may then answer twice. */
    if (s->is_stopping)
        return;
    s->is_stopping = true;
    log_info(NULL, "drained");
    retention_stop(s->retention);
    http_stop(s->http, http_stopped_cb, s);
}

static void
stop_cb(uv_signal_t *handle, int number)
{
    struct server *s = handle->data;

    if (s->is_hurried)
        return;
    if (!s->is_draining) {
        s->is_draining = true;
        notify_say(&s->notify, "STOPPING=1");
        log_info(NULL, "%s: draining for at most %lld ms; once more to stop now", strsignal(number),
                 (long long)s->config.drain_ms);
        http_drain(s->http);
        funnel_drain(s->funnel, s->config.drain_ms, funnel_drained_cb, s);
        return;
    }
    s->is_hurried = true;
    log_info(NULL, "%s: stopping now, by SIGALRM where that takes more than %d s", strsignal(number),
             HURRIED_S);
    alarm(HURRIED_S);
    if (!s->is_stopping) /* else it is drained, and may be freed by now */
        funnel_drain(s->funnel, 0, funnel_drained_cb, s);
}

/* --- settings that change --- */

static void
cold_setting_cb(void *arg, const char *name)
{
    (void)arg;
    log_warn("config", "%s differs now and takes a restart", name);
}

static void
reload_cb(uv_signal_t *handle, int number)
{
    struct server *s = handle->data;
    struct config now;
    struct error err;

    (void)number;
    if (s->is_draining)
        return;
    if (config_load(s->argc, s->argv, &now, &err) != 0) {
        log_error("config", "the settings stay as they were: %s", err.text);
        return;
    }
    config_adopt(&s->config, &now, cold_setting_cb, NULL);
    config_release(&now);
    setup_log(&s->config);
    http_reload(s->http);
    funnel_reload(s->funnel);
    retention_reload(s->retention);
    if (audit_write(s->config.tokens, "operator", "reload", s->config.file, NULL, &err) != 0)
        log_error("audit", "%s", err.text);
    log_info("config", "settings read again");
}

/* --- starting --- */

static void
watch_signal(struct server *s, uv_signal_t *handle, int number, uv_signal_cb cb)
{
    uv_signal_init(&s->loop, handle);
    handle->data = s;
    uv_signal_start(handle, cb, number);
}

static int
check_store_path(const char *path, struct error *err)
{
    AUTO_FREE char *directory = strdup(path);
    struct stat info;

    if (!directory)
        return error_set(err, ERR_NOMEM, "no memory for a path");
    if (stat(path, &info) == 0)
        return S_ISREG(info.st_mode) ? 0 : error_set(err, ERR_INPUT, "store: %s is no file", path);
    if (errno == ENOENT && access(dirname(directory), W_OK | X_OK) == 0)
        return 0;
    return error_set(err, ERR_SYS, errno == ENOENT ? "store: the directory of %s" : "store: %s", path);
}

/* Other machines are let in with tokens only. */
static int
check_tokens(const struct config *c, struct error *err)
{
    struct token_list tokens;
    int rc = token_list_load(c->tokens, &tokens, err);

    token_list_release(&tokens);
    if (rc == ERR_NOTFOUND && !config_is_loopback(c))
        return error_set(err, ERR_INPUT,
                         "listen: %s can be reached from other machines, and there are no tokens in %s: make "
                         "one with verifierd token new",
                         c->listen, c->tokens);
    if (rc == 0 || rc == ERR_NOTFOUND)
        return 0;
    error_prefix(err, "tokens");
    return rc;
}

/* The files that the settings name, before anything is made or begun. */
static int
check_files(const struct config *c, struct error *err)
{
    int rc = store_is_file(c->store) ? check_store_path(c->store, err) : 0;

    if (rc == 0)
        rc = scratch_check(c->scratch, err);
    if (rc == 0)
        rc = check_tokens(c, err);
    return rc == 0 && *c->notify_hosts ? notices_check_key(c->notify_key, err) : rc;
}

/* All that a start can know before anything is made or begun. layers: as workers_check() gives them. */
static int
check_settings(const struct config *c, struct devices *devices, json_t **layers, struct error *err)
{
    int rc = check_files(c, err);
    if (rc == 0)
        rc = devices_find(c, devices, err);
    return rc == 0 ? workers_check(c, layers, err) : rc;
}

/* host: room for a name that the options may refer to. */
static int
fill_options(const struct config *c, char host[STORE_NODE_SIZE], struct store_options *out, struct error *err)
{
    *out = (struct store_options){ .node = *c->node ? c->node : host,
                                   .lease_ms = LEASE_MS,
                                   .is_relaxed = strcmp(c->durability, "relaxed") == 0 };
    host[STORE_NODE_SIZE - 1] = '\0';
    return gethostname(host, STORE_NODE_SIZE - 1) == 0 ? 0 : error_set(err, ERR_SYS, "the name of this host");
}

static int
open_store(struct server *s, struct error *err)
{
    char host[STORE_NODE_SIZE];
    struct store_options options;
    int rc = fill_options(&s->config, host, &options, err);

    if (rc != 0)
        return rc;
    return store_open(&s->loop, s->config.store, &options, STORE_WRITES_MAX, &s->store, err);
}

static void
log_what_runs(const struct server *s, const struct devices *devices)
{
    AUTO_BUFFER struct buffer names = BUFFER_INIT;

    for (size_t i = 0; i < devices->n; i++)
        buffer_printf(&names, " %s", devices->all[i].name);
    log_info(NULL, "verifierd %s: store %s, python %s, devices%s", VERIFIERD_VERSION, store_shown(s->store),
             s->config.python, names.data ? names.data : " ?");
}

static int
start(struct server *s, struct error *err)
{
    struct devices devices;
    int rc = check_settings(&s->config, &devices, NULL, err);
    if (rc == 0)
        rc = notify_start(&s->notify, &s->loop, err);
    if (rc == 0)
        rc = open_store(s, err);
    if (rc == 0)
        rc = funnel_new(&s->loop, &s->config, s->store, &s->funnel, err);
    if (rc == 0)
        rc = retention_new(&s->loop, &s->config, s->store, &s->retention, err);
    if (rc == 0)
        rc = http_new(&s->loop, &s->config, s->funnel, s->store, s->retention, &s->http, err);
    if (rc == 0)
        log_what_runs(s, &devices);
    return rc;
}

static int
serve(struct server *s)
{
    struct error err = { 0 };

    if (start(s, &err) != 0) {
        /* The process ends here, and with it the workers: their channels close. */
        log_error(NULL, "%s", err.text);
        return EXIT_FAILURE;
    }
    watch_signal(s, &s->term, SIGTERM, stop_cb);
    watch_signal(s, &s->interrupt, SIGINT, stop_cb);
    watch_signal(s, &s->hangup, SIGHUP, reload_cb);
    printf("verifierd: listening on %s\n", http_url(s->http));
    fflush(stdout);
    notify_say(&s->notify, "READY=1");
    log_info(NULL, "listening on %s", http_url(s->http));
    uv_run(&s->loop, UV_RUN_DEFAULT);
    store_finish_writes(s->store);
    http_free(s->http);
    funnel_free(s->funnel);
    store_close(s->store);
    retention_free(s->retention);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    if (uv_loop_alive(&s->loop))
        log_debug(NULL, "something is still open in the loop");
    if (s->config.is_scratch_ours && rmdir(s->config.scratch) != 0 && errno != ENOENT)
        log_warn(NULL, "%s stays behind: %s", s->config.scratch, strerror(errno));
    log_info(NULL, "stopped");
    return EXIT_SUCCESS;
}

/* --check-config: what a start would find, a line each, for people and for `verifier doctor`. */
static int
check(const struct config *c)
{
    AUTO_JSON json_t *layers = NULL;
    struct error err = { 0 };
    struct devices devices;
    struct store_options options;
    struct store_found found;
    char host[STORE_NODE_SIZE];
    const char *name;
    json_t *state;

    int rc = check_settings(c, &devices, &layers, &err);
    if (rc == 0)
        rc = fill_options(c, host, &options, &err);
    if (rc == 0)
        rc = store_check(c->store, &options, &found, &err);
    if (rc != 0) {
        fprintf(stderr, "verifierd: %s\n", err.text);
        return EXIT_FAILURE;
    }
    printf("verifierd: the settings are fine\n%s: %s\nscratch: %s\n",
           store_is_file(c->store) ? "store" : "database", found.shown, c->scratch);
    if (found.is_alive)
        printf("node: %s\n", options.node);
    if (*found.holder)
        printf("holder: %s\n", found.holder);
    for (size_t i = 0; i < devices.n; i++)
        printf("device: %s\n", devices.all[i].name);
    json_object_del(layers, "cgroup"); /* known only once the daemon runs */
    json_object_foreach(layers, name, state) printf("layer %s: %s\n", name, json_string_value(state));
    return EXIT_SUCCESS;
}

/* `verifierd migrate`: the schema's steps and nothing else; with --check the status says whether one is missing. */
#define MIGRATE_FAILURE 2

static int
find_and_migrate(const struct config *c, struct store_schema *out, struct error *err)
{
    struct store_options options;
    char host[STORE_NODE_SIZE];
    int rc = store_is_file(c->store) ? check_store_path(c->store, err) : 0;

    if (rc == 0)
        rc = fill_options(c, host, &options, err);
    return rc == 0 ? store_migrate(c->store, &options, c->task == CONFIG_CHECK, out, err) : rc;
}

static int
migrate(int argc, char **argv)
{
    struct config c;
    struct error err = { 0 };
    struct store_schema schema;
    int rc = config_load(argc, argv, &c, &err);

    if (rc == 0) {
        setup_log(&c);
        rc = find_and_migrate(&c, &schema, &err);
        config_release(&c);
    }
    if (rc != 0) {
        fprintf(stderr, "verifierd: %s\n", err.text);
        return MIGRATE_FAILURE;
    }
    if (schema.version >= schema.known) {
        printf("schema version %lld: nothing to do\n", (long long)schema.version);
        return EXIT_SUCCESS;
    }
    printf("schema version %lld -> %lld\n", (long long)schema.version, (long long)schema.known);
    return c.task == CONFIG_CHECK ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int
prepare_and_serve(struct server *s)
{
    setup_log(&s->config);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a store at a limit on file sizes is a full one */
    json_object_seed(0);      /* before the pool's threads parse */
    raise_descriptors(&s->config);
    if (uv_loop_init(&s->loop) != 0) {
        log_error(NULL, "the event loop cannot be made");
        return EXIT_FAILURE;
    }
    return serve(s);
}

int
main(int argc, char **argv)
{
    static struct server s; /* the loop's memory is there until the end */
    struct error err = { 0 };
    int status = EXIT_SUCCESS;

    if (argc > 1 && strcmp(argv[1], "token") == 0)
        return token_command(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "migrate") == 0)
        return migrate(argc - 1, argv + 1);
    s.argc = argc;
    s.argv = argv;
    if (config_load(argc, argv, &s.config, &err) != 0) {
        fprintf(stderr, "verifierd: %s\n", err.text);
        return EXIT_FAILURE;
    }
    switch (s.config.task) {
    case CONFIG_MANUAL:
        config_print_manual(stdout);
        break;
    case CONFIG_CHECK:
        status = check(&s.config);
        break;
    case CONFIG_SERVE:
        status = prepare_and_serve(&s);
        break;
    }
    config_release(&s.config);
    return status;
}
