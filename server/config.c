#include "server/config.h"

#include <argp.h>
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/hash.h"
#include "common/words.h"
#include "server/queue/quota.h"
#include "server/store/store.h"

/*
 * Theory of operation. table[] is the only list of settings. A value is text
 * wherever it comes from (the table's preset, the file, a flag), and
 * setting_put() turns it into a field of struct config, so that a bad value
 * gets the same words everywhere. argp reads the flags, which are the same
 * names with dashes. removed[] lists the settings that are gone.
 */

enum setting_type { TEXT, CHOICE, NUMBER, SWITCH };

struct setting {
    const char *name;
    enum setting_type type;
    const char *unit;   /* of a NUMBER; the words of a CHOICE, separated by spaces */
    const char *preset; /* "": worked out in config_complete(), as help says */
    int64_t min, max;   /* of a NUMBER; TEXT: min 1 refuses empty text */
    size_t offset;
    bool is_live; /* a reload applies it without a restart */
    const char *help;
};

#define FIELD(name) offsetof(struct config, name)
#define MIB (1024LL * 1024)

static const struct setting table[] = {
    { "listen", TEXT, "ADDRESS:PORT", "127.0.0.1:8080", 1, 0, FIELD(listen), false,
      "where HTTP is served; port 0 takes a free one; an IPv6 address stands in brackets" },
    { "allow_remote", SWITCH, "BOOL", "false", 0, 0, FIELD(allow_remote), false,
      "let listen name an address that other machines can reach; the daemon then starts only where there "
      "are tokens" },
    { "tokens", TEXT, "FILE", "", 0, 0, FIELD(tokens), false,
      "who may call, edited by verifierd token; where there is no such file, whoever reaches the address "
      "may do all; when not given, the store's name with .tokens added, or verifierd.db.tokens where that is "
      "a URL" },
    { "store", TEXT, "FILE|URL", "verifierd.db", 1, 0, FIELD(store), false,
      "the database: a file, made when it is not there (a relative name starts at the working directory), or "
      "postgresql://HOST/NAME, a PostgreSQL database (docs/store.md)" },
    { "node", TEXT, "NAME", "", 0, 0, FIELD(node), false,
      "what this daemon is called among those that share a database (docs/cluster.md): of each name there is "
      "one, and a second does not start; when not given, the host's name" },
    { "role", CHOICE, "all compile http", "all", 0, 0, FIELD(role), false,
      "what this daemon does among those that share a database (docs/cluster.md): all; compile, only the "
      "stages without a device, for the others; http, answer and take in, and judge nothing" },
    { "durability", CHOICE, "strict relaxed", "strict", 0, 0, FIELD(durability), false,
      "which databases will do: strict, one that keeps what was acknowledged when it crashes or fails over "
      "to a "
      "standby; relaxed, any (docs/cluster.md)" },
    { "scratch", TEXT, "DIR", "", 0, 0, FIELD(scratch), false,
      "private files of running submissions, emptied at start; refused where another daemon uses it, and "
      "where it holds what no daemon made; when not given, a directory of the store's own in $TMPDIR or "
      "/tmp" },
    { "python", TEXT, "PROGRAM", "python3", 1, 0, FIELD(python), false,
      "the Python that has torch and triton: a path, or a name looked up in $PATH" },
    { "harness", TEXT, "DIR", "", 0, 0, FIELD(harness), false,
      "the harness; when not given, ../lib/verifierd/harness beside the program's own directory" },
    { "device", TEXT, "DEVICE", "auto", 1, 0, FIELD(device), false,
      "where kernels run: auto (the GPUs that CUDA_VISIBLE_DEVICES allows, else the interpreter), cuda, or "
      "cuda:0,1 by nvidia-smi's numbers; cpu is the interpreter, and cpu:0,1 two of them" },
    { "target", TEXT, "TARGET", "cuda:90", 1, 0, FIELD(target), false,
      "what the compile stage compiles for on a machine without a GPU" },
    { "log_level", CHOICE, "error warn info debug", "info", 0, 0, FIELD(log_level), true,
      "the least important lines to log" },
    { "log_format", CHOICE, "auto json text", "auto", 0, 0, FIELD(log_format), true,
      "lines on stderr; auto is text on a terminal and JSON elsewhere" },
    { "cpu_jobs", NUMBER, "processes", "0", 0, 1024, FIELD(cpu_jobs), false,
      "submissions in the stages that need no GPU, side by side; 0 is one for each core that is not kept for "
      "timing" },
    { "stage_pool", NUMBER, "processes", "2", 0, 64, FIELD(stage_pool), false,
      "children of each stage that needs no GPU (one reads the source, one compiles, one looks at what was "
      "compiled) kept ready; more than cpu_jobs are never kept" },
    { "timing_cores", NUMBER, "cores", "-1", -1, 64, FIELD(timing_cores), false,
      "kept for each GPU's referee and for children while they are timed, and used by nothing else, so that "
      "compiling does not disturb timing; 0 keeps none, 1 and 2 are too few; -1 is 3 where the machine has "
      "enough" },
    { "pool", NUMBER, "processes", "6", 1, 64, FIELD(pool), false,
      "children kept ready for each device; on a GPU each holds about 715 MB of its memory" },
    { "references_kept", NUMBER, "processes", "16", 1, 64, FIELD(references_kept), false,
      "reference children kept loaded for each GPU, while its memory has room for them" },
    { "canary_interval_s", NUMBER, "seconds", "300", 0, 86400, FIELD(canary_interval_s), true,
      "most time between two canaries of a GPU that passed (docs/timing.md): when it is over, one comes "
      "before the next job, or at once where there is none; 0 is only at starts and after suspicious ends" },
    { "queue_limit", NUMBER, "submissions", "20000", 1, 10000000, FIELD(queue_limit), true,
      "submissions that may wait; above it clients get 429, and 400 for a group that is larger by itself" },
    { "quotas", TEXT, "CLIENT:LIMIT=N,...", "", 0, 0, FIELD(quotas), true,
      "what clients may use, separated by blanks: rate (submissions and registrations of tasks a minute), "
      "queued, running, gpu_s (seconds of devices a day); the client * is every other" },
    { "cache", SWITCH, "BOOL", "true", 0, 0, FIELD(cache), true,
      "judge identical candidates of a client once; later ones get the stored verdict" },
    { "cache_recheck_percent", NUMBER, "percent", "1", 0, 100, FIELD(cache_recheck_percent), true,
      "of those that a stored verdict would answer, how many are judged again to compare" },
    { "stage_limit_ms", NUMBER, "milliseconds", "60000", 100, 3600000, FIELD(stage_limit_ms), true,
      "deadline of a stage" },
    { "tiny_limit_ms", NUMBER, "milliseconds", "10000", 100, 3600000, FIELD(tiny_limit_ms), true,
      "deadline of the tiny stage, compiling not counted" },
    { "max_attempts", NUMBER, "times", "3", 1, 100, FIELD(max_attempts), true,
      "times that a submission is begun, or loses its worker, before it ends all the same" },
    { "output_limit_bytes", NUMBER, "bytes", "262144", 1024, 64 * MIB, FIELD(output_limit_bytes), true,
      "captured output kept of one submission" },
    { "memory_limit_bytes", NUMBER, "bytes", "8589934592", 512 * MIB, INT64_MAX / 2,
      FIELD(memory_limit_bytes), true,
      "data memory of a process of a child's (RLIMIT_DATA); a child with all that it started, shared memory "
      "included, may hold a quarter more and is killed beyond that" },
    { "file_limit_bytes", NUMBER, "bytes", "268435456", MIB, INT64_MAX / 2, FIELD(file_limit_bytes), true,
      "largest file that a child may write (RLIMIT_FSIZE)" },
    { "scratch_limit_bytes", NUMBER, "bytes", "1073741824", MIB, INT64_MAX / 2, FIELD(scratch_limit_bytes),
      true, "all files of a child together; it is killed beyond that" },
    { "interpreter_elements", NUMBER, "elements", "4194304", 1, INT64_MAX / 2, FIELD(interpreter_elements),
      true, "largest task that the interpreter judges at its own size, counted over inputs and outputs" },
    { "peaks", TEXT, "NAME=FIGURE,...", "", 0, 0, FIELD(peaks), false,
      "what the GPU can do at most, where it shall not be measured at start: write_gbs, read_gbs, cache_gbs, "
      "float32_tflops, tf32_tflops, half_tflops" },
    { "uid_first", NUMBER, "uid", "40000", 1, 4294967294, FIELD(uid_first), false,
      "first of the user ids given to children when the daemon runs as root" },
    { "uid_count", NUMBER, "uids", "1024", 1, 1000000, FIELD(uid_count), false,
      "how many user ids there are from uid_first on" },
    { "cgroup", TEXT, "GROUP", "auto", 1, 0, FIELD(cgroup), false,
      "a control group (v2) for each child: auto (below the daemon's own where systemd delegates it), off, "
      "or the path "
      "of an empty group that the daemon may change" },
    { "sandbox_require", TEXT, "LAYERS", "no_new_privs,seccomp,uid", 0, 0, FIELD(sandbox_require), false,
      "layers of the sandbox, separated by commas, without which the daemon does not start; uid is met by a "
      "user "
      "namespace too" },
    { "connections", NUMBER, "connections", "4096", 8, 1000000, FIELD(connections), false,
      "most HTTP connections at once, long polls among them" },
    { "wait_limit_s", NUMBER, "seconds", "300", 0, 86400, FIELD(wait_limit_s), true,
      "longest time that a request with wait is held" },
    { "events_kept", NUMBER, "events", "4096", 512, 1000000, FIELD(events_kept), false,
      "events kept for streams that are taken up again (Last-Event-ID), and for readers that fall behind" },
    { "notify_hosts", TEXT, "HOST[:PORT] ...", "", 0, 0, FIELD(notify_hosts), false,
      "where a group's end may be posted (notify_url, docs/http.md), separated by blanks; without a port the "
      "scheme's own; when not given, nowhere" },
    { "notify_key", TEXT, "FILE", "", 0, 0, FIELD(notify_key), false,
      "the key that signs what is posted to notify_hosts: 16 to 256 characters" },
    { "heartbeat_ms", NUMBER, "milliseconds", "15000", 100, 300000, FIELD(heartbeat_ms), true,
      "how often an event stream with nothing to tell sends a comment, so that nobody takes it for dead" },
    { "header_limit_ms", NUMBER, "milliseconds", "10000", 100, 600000, FIELD(header_limit_ms), true,
      "time that a client has for the header of a request" },
    { "body_limit_ms", NUMBER, "milliseconds", "30000", 100, 3600000, FIELD(body_limit_ms), true,
      "time that a client has for the body of a request, and for taking an answer" },
    { "drain_ms", NUMBER, "milliseconds", "10000", 0, 3600000, FIELD(drain_ms), true,
      "time that running stages get after SIGTERM; what has not ended then is begun again by the next "
      "start" },
    { "retention_days", NUMBER, "days", "0", 0, 36500, FIELD(retention_days), true,
      "submissions that ended longer ago are removed, with their sources and captured output; 0 keeps them" },
    { "retention_rows", NUMBER, "submissions", "0", 0, INT64_MAX / 2, FIELD(retention_rows), true,
      "most that have ended and are kept: the oldest go first; 0 is no bound" },
    { "retention_log_days", NUMBER, "days", "0", 0, 36500, FIELD(retention_log_days), true,
      "captured output is removed that long after the end; 0 keeps it as long as the submission" },
    { "retention_interval_s", NUMBER, "seconds", "3600", 1, 86400 * 7, FIELD(retention_interval_s), true,
      "from one removal of what is not to be kept to the next" },
    { "paused", SWITCH, "BOOL", "false", 0, 0, FIELD(paused), true,
      "accept and keep submissions, and judge none" },
};

#define SETTINGS ARRAY_LEN(table)

/* Settings that are gone: a file or a flag that names one is refused with what to do instead. */
static const struct removed {
    const char *name, *instead;
} removed[] = {
    { "connections_per_address",
      "connections bounds all of them; bound those of one address in a proxy (nginx: limit_conn)" },
    { "connections_per_stranger",
      "connections bounds all of them; bound those of one address in a proxy (nginx: limit_conn)" },
    { "judge",
      "candidates are judged by their plan; the policy kernelbench calls them live: take the setting out" },
    { "device_jobs", "a device runs one submission at a time; take the setting out" },
    { "pool_min", "pool is the number of children that are kept ready, always; set that" },
    { "pool_idle_s", "pool is the number of children that are kept ready, always; take the setting out" },
    { "pool_memory_percent",
      "pool is the number of children that are kept ready, about 715 MB of a GPU each; set that" },
};

#define REMOVED ARRAY_LEN(removed)

static char **
text_field(const struct setting *s, const struct config *c)
{
    return (char **)((char *)(uintptr_t)c + s->offset);
}

static int64_t *
number_field(const struct setting *s, const struct config *c)
{
    return (int64_t *)((char *)(uintptr_t)c + s->offset);
}

static bool *
switch_field(const struct setting *s, const struct config *c)
{
    return (bool *)((char *)(uintptr_t)c + s->offset);
}

static bool
is_text(const struct setting *s)
{
    return s->type == TEXT || s->type == CHOICE;
}

/* --- one value --- */

static int
put_number(const struct setting *s, const char *value, struct config *c, struct error *err)
{
    char *end;
    errno = 0;
    long long n = strtoll(value, &end, 10);
    if (end == value || *end || errno == ERANGE)
        return error_set(err, ERR_INPUT, "%s is a whole number of %s, not \"%.40s\"", s->name, s->unit,
                         value);
    if (n < s->min || n > s->max)
        return error_set(err, ERR_INPUT, "%s is %lld %s, outside %" PRId64 " to %" PRId64, s->name, n,
                         s->unit, s->min, s->max);
    *number_field(s, c) = n;
    return 0;
}

static int
put_switch(const struct setting *s, const char *value, struct config *c, struct error *err)
{
    static const char *const yes[] = { "true", "yes", "on" };
    static const char *const no[] = { "false", "no", "off" };

    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (strcasecmp(value, yes[i]) == 0 || strcasecmp(value, no[i]) == 0) {
            *switch_field(s, c) = strcasecmp(value, yes[i]) == 0;
            return 0;
        }
    }
    return error_set(err, ERR_INPUT, "%s is true or false, not \"%.40s\"", s->name, value);
}

static int
put_text(const struct setting *s, const char *value, struct config *c, struct error *err)
{
    if (s->min && !*value)
        return error_set(err, ERR_INPUT, "%s is empty", s->name);
    if (s->type == CHOICE && !words_have(s->unit, " ", value, strlen(value)))
        return error_set(err, ERR_INPUT, "%s is one of \"%s\", not \"%.40s\"", s->name, s->unit, value);
    char *copy = strdup(value);
    if (!copy)
        return error_set(err, ERR_NOMEM, "no memory for the setting %s", s->name);
    free(*text_field(s, c));
    *text_field(s, c) = copy;
    return 0;
}

static int
setting_put(const struct setting *s, const char *value, struct config *c, struct error *err)
{
    if (s->type == NUMBER)
        return put_number(s, value, c, err);
    if (s->type == SWITCH)
        return put_switch(s, value, c, err);
    return put_text(s, value, c, err);
}

/* NULL, with err: no setting has that name. */
static const struct setting *
setting_find(const char *name, struct error *err)
{
    for (size_t i = 0; i < SETTINGS; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    for (size_t i = 0; i < REMOVED; i++) {
        if (strcmp(removed[i].name, name) == 0) {
            error_set(err, ERR_INPUT, "%s is not a setting any more: %s", name, removed[i].instead);
            return NULL;
        }
    }
    error_set(err, ERR_INPUT, "\"%.60s\" is not a setting", name);
    return NULL;
}

/* --- the file --- */

#define FILE_BYTES_MAX (1024 * 1024)

/*
 * A line is empty or NAME = VALUE, and a # outside quotes begins a comment. A
 * value is a word, or text in single quotes, or text in double quotes, where a
 * backslash stands before each " and \ that is meant.
 */
struct line {
    char *text; /* ends with '\0' */
    char *at;   /* the value or line read last, for errors; then the next one */
};

#define BLANKS " \t\r"

/* Takes the quotes and backslashes out where the value stands, since it only gets shorter. */
static char *
read_quoted(struct line *l, struct error *err)
{
    char *begin = l->at++, *end = begin;

    while (*l->at && *l->at != *begin) {
        if (*begin == '"' && *l->at == '\\') {
            if (l->at[1] != '"' && l->at[1] != '\\') {
                error_set(err, ERR_INPUT, "in double quotes, a backslash stands before \" or \\ only");
                return NULL;
            }
            l->at++;
        }
        *++end = *l->at++;
    }
    if (!*l->at) {
        l->at = begin;
        error_set(err, ERR_INPUT, "a quote is never closed");
        return NULL;
    }
    l->at++;
    end[1] = '\0';
    return begin + 1;
}

static char *
read_value(struct line *l, struct error *err)
{
    if (*l->at == '"' || *l->at == '\'')
        return read_quoted(l, err);
    size_t size = strcspn(l->at, BLANKS "#\"'");
    if (size == 0) {
        error_set(err, ERR_INPUT, "a value is missing");
        return NULL;
    }
    l->at += size;
    return l->at - size;
}

/* Removes the rest of a line after its value; '\0' is written after a word, over a character that is checked here. */
static int
read_rest(struct line *l, struct error *err)
{
    char *end = l->at;

    l->at += strspn(l->at, BLANKS);
    if (*l->at && *l->at != '#')
        return error_set(err, ERR_INPUT,
                         "only a comment (#) may follow; a value with blanks stands in quotes");
    *end = '\0';
    return 0;
}

static int
read_setting(struct config *c, struct line *l, bool *is_seen, struct error *err)
{
    char name[64];
    size_t size = strspn(l->at, "abcdefghijklmnopqrstuvwxyz_0123456789");

    if (size == 0 || size >= sizeof(name))
        return error_set(err, ERR_INPUT, "the name of a setting is expected; a comment begins with #");
    snprintf(name, sizeof(name), "%.*s", (int)size, l->at);
    const struct setting *s = setting_find(name, err);
    if (!s)
        return ERR_INPUT;
    if (is_seen[s - table])
        return error_set(err, ERR_INPUT, "%s is set a second time", name);
    is_seen[s - table] = true;
    l->at += size;
    l->at += strspn(l->at, BLANKS);
    if (*l->at != '=')
        return error_set(err, ERR_INPUT, "= is expected after %s", name);
    l->at += 1 + strspn(l->at + 1, BLANKS);
    char *begin = l->at, *value = read_value(l, err);
    if (!value || read_rest(l, err) != 0)
        return ERR_INPUT;
    l->at = begin;
    if (*begin != '\'' && strstr(value, "${"))
        return error_set(err, ERR_INPUT,
                         "nothing is taken from the environment; a ${ that is meant stands in single quotes");
    return setting_put(s, value, c, err);
}

/* size: of text, without the '\0' behind it. */
static int
read_line(struct config *c, char *text, size_t size, bool *is_seen, struct line *l, struct error *err)
{
    l->text = text;
    for (l->at = text; l->at < text + size; l->at++)
        if ((unsigned char)*l->at < ' ' && *l->at != '\t' && *l->at != '\r')
            return error_set(err, ERR_INPUT, "a control character");
    l->at = text + strspn(text, BLANKS);
    return *l->at && *l->at != '#' ? read_setting(c, l, is_seen, err) : 0;
}

static int
config_read_file(struct config *c, const char *path, struct error *err)
{
    AUTO_BUFFER struct buffer file = BUFFER_INIT;
    bool is_seen[SETTINGS] = { false };
    struct line l;
    int number = 1;

    int rc = buffer_read_file(&file, path, FILE_BYTES_MAX, err);
    for (char *p = file.data, *end; rc == 0 && p < file.data + file.size; p = end + 1, number++) {
        end = memchr(p, '\n', (size_t)(file.data + file.size - p));
        end = end ? end : file.data + file.size;
        *end = '\0';
        rc = read_line(c, p, (size_t)(end - p), is_seen, &l, err);
        if (rc != 0)
            error_prefix(err, "%s:%d:%td", path, number, l.at - l.text + 1);
    }
    return rc;
}

/* --- the flags --- */

const char *argp_program_version = "verifierd " VERIFIERD_VERSION;

enum { KEY_CONFIG = 1000, KEY_CHECK, KEY_MANUAL, KEY_SETTING = 2000 };
#define FLAGS (SETTINGS + REMOVED) /* those of removed[] stand behind the others */
#define FLAG_SIZE 32

/* One pass reads --config alone, since the file is read before the other flags whatever their order. */
struct flags {
    struct config *config;
    struct error *err;
    bool is_first_pass;
};

static const char *
name_at(size_t i)
{
    return i < SETTINGS ? table[i].name : removed[i - SETTINGS].name;
}

static const char *
dashed(const char *name, char out[FLAG_SIZE])
{
    snprintf(out, FLAG_SIZE, "%s", name);
    for (char *p = out; *p; p++)
        *p = *p == '_' ? '-' : *p;
    return out;
}

static int
flag_setting(struct flags *f, const char *name, const char *value)
{
    struct error why = { 0 };
    char flag[FLAG_SIZE];

    if (f->is_first_pass)
        return 0;
    const struct setting *s = setting_find(name, &why);
    if (s && setting_put(s, value ? value : "true", f->config, &why) == 0)
        return 0;
    error_prefix(&why, "--%s", dashed(name, flag));
    if (f->err)
        *f->err = why;
    return EINVAL;
}

static error_t
flag_cb(int key, char *value, struct argp_state *state)
{
    struct flags *f = state->input;

    if (key >= KEY_SETTING && key < KEY_SETTING + (int)FLAGS)
        return flag_setting(f, name_at((size_t)(key - KEY_SETTING)), value);
    switch (key) {
    case KEY_CONFIG:
        if (!f->is_first_pass)
            return 0;
        free(f->config->file);
        f->config->file = strdup(value);
        return f->config->file ? 0 : ENOMEM;
    case KEY_CHECK:
        f->config->task = CONFIG_CHECK;
        return 0;
    case KEY_MANUAL:
        f->config->task = CONFIG_MANUAL;
        return 0;
    case 'h': /* argp has -? */
        argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
        return 0;
    case ARGP_KEY_ARG:
        if (strcmp(value, "help") == 0)
            argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
        if (strcmp(value, "version") == 0) {
            puts(argp_program_version);
            exit(EXIT_SUCCESS);
        }
        argp_error(state, "no argument is expected: \"%s\"", value);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

struct flag_texts {
    struct argp_option options[FLAGS + 6];
    char names[FLAGS][FLAG_SIZE];
    char helps[SETTINGS][320];
};

static void
flag_describe(struct flag_texts *t, size_t i)
{
    const struct setting *s = &table[i];
    snprintf(t->helps[i], sizeof(t->helps[i]), "%s%s%s%s", s->help, *s->preset ? " (default: " : "",
             s->preset, *s->preset ? ")" : "");
    t->options[i] = (struct argp_option){
        .name = dashed(s->name, t->names[i]),
        .key = KEY_SETTING + (int)i,
        .arg = s->type == NUMBER   ? "N"
               : s->type == CHOICE ? "WORD"
                                   : s->unit,
        .flags = s->type == SWITCH ? OPTION_ARG_OPTIONAL : 0,
        .doc = t->helps[i],
    };
}

static int
config_read_flags(struct config *c, int argc, char **argv, bool is_first_pass, struct error *err)
{
    struct flag_texts texts = { 0 };
    struct flags f = { .config = c, .err = err, .is_first_pass = is_first_pass };
    const struct argp argp = {
        .options = texts.options,
        .parser = flag_cb,
        .doc =
            "Judge GPU kernels over HTTP."
            "\vEvery setting may also stand in the file as NAME = VALUE, its dashes written as underscores; "
            "flags win. See verifierd(8) and verifierd.conf(5).",
    };

    for (size_t i = 0; i < SETTINGS; i++)
        flag_describe(&texts, i);
    for (size_t i = SETTINGS; i < FLAGS; i++)
        texts.options[i] = (struct argp_option){ .name = dashed(name_at(i), texts.names[i]),
                                                 .key = KEY_SETTING + (int)i,
                                                 .arg = "X",
                                                 .flags = OPTION_HIDDEN | OPTION_ARG_OPTIONAL };
    struct argp_option *last = &texts.options[FLAGS];
    *last++ = (struct argp_option){ "config", KEY_CONFIG, "FILE", 0, "read settings from FILE", -1 };
    *last++ = (struct argp_option){ "check-config", KEY_CHECK, NULL, 0, "check the settings and exit", -1 };
    *last++ = (struct argp_option){ "check", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, -1 };
    *last++ = (struct argp_option){ "help-conf", KEY_MANUAL, NULL, OPTION_HIDDEN, NULL, -1 };
    *last = (struct argp_option){ NULL, 'h', NULL, OPTION_HIDDEN, NULL, -1 };
    int rc = argp_parse(&argp, argc, argv, 0, NULL, &f);
    if (rc != 0 && err && err->code == ERR_NONE)
        return error_set(err, rc == ENOMEM ? ERR_NOMEM : ERR_INPUT, "command line: %s", strerror(rc));
    return rc == 0 ? 0 : err ? (int)err->code : ERR_INPUT;
}

/* --- settings that depend on others, and what must hold between them --- */

/* A text for a setting that was left empty, or was not whole. */
__attribute__((format(printf, 3, 4))) static int
fill(char **field, struct error *err, const char *format, ...)
{
    char *text;
    va_list args;

    va_start(args, format);
    int size = vasprintf(&text, format, args);
    va_end(args);
    if (size < 0)
        return error_set(err, ERR_NOMEM, "no memory for the settings");
    free(*field);
    *field = text;
    return 0;
}

static int
complete_harness(struct config *c, struct error *err)
{
    char program[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (size < 0)
        return error_set(err, ERR_SYS, "read /proc/self/exe to find the harness");
    program[size] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(program, '/');
        if (slash)
            *slash = '\0';
    }
    return fill(&c->harness, err, "%s/lib/verifierd/harness", program);
}

/* The same store, and node of a database, always gets the same directory, so that a start can sweep what the one before left. */
static int
complete_scratch(struct config *c, struct error *err)
{
    bool is_file = store_is_file(c->store);
    AUTO_FREE char *here = is_file && *c->store != '/' ? getcwd(NULL, 0) : strdup("");
    AUTO_FREE char *full = NULL;
    char digest[HASH_TEXT_SIZE];
    const char *tmp = getenv("TMPDIR");

    if (!here)
        return error_set(err, ERR_SYS, "find the working directory");
    int rc = fill(&full, err, "%s/%s%s%s", here, c->store, is_file ? "" : " ", is_file ? "" : c->node);
    if (rc != 0)
        return rc;
    hash_text(full, strlen(full), digest);
    c->is_scratch_ours = true;
    return fill(&c->scratch, err, "%s/verifierd-%lu-%.12s", tmp && *tmp == '/' ? tmp : "/tmp",
                (unsigned long)geteuid(), digest + strlen("sha256:"));
}

/* Children receive the path, and have another working directory. */
static int
scratch_from_here(struct config *c, struct error *err)
{
    AUTO_FREE char *here = getcwd(NULL, 0);

    return here ? fill(&c->scratch, err, "%s/%s", here, c->scratch)
                : error_set(err, ERR_SYS, "find the working directory");
}

int
config_split_listen(const char *listen, char host[CONFIG_HOST_SIZE], uint16_t *port, struct error *err)
{
    const char *colon = strrchr(listen, ':');
    size_t size = colon ? (size_t)(colon - listen) : 0;
    char *end = NULL;

    if (size > 2 && listen[0] == '[' && colon[-1] == ']') {
        listen++;
        size -= 2;
    }
    unsigned long n = colon && colon[1] >= '0' && colon[1] <= '9' ? strtoul(colon + 1, &end, 10) : 0;
    if (!size || size >= CONFIG_HOST_SIZE || !end || *end || n > UINT16_MAX)
        return error_set(err, ERR_INPUT, "listen is ADDRESS:PORT, not \"%.60s\"", listen);
    memcpy(host, listen, size);
    host[size] = '\0';
    *port = (uint16_t)n;
    return 0;
}

/* 1, 0, or ERR_INPUT: no address. */
static int
host_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (inet_pton(AF_INET, host, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6) ? 1 : 0;
    return ERR_INPUT;
}

bool
config_is_loopback(const struct config *c)
{
    char host[CONFIG_HOST_SIZE];
    uint16_t port;

    return config_split_listen(c->listen, host, &port, NULL) == 0 && host_is_loopback(host) == 1;
}

static int
check_listen(const struct config *c, struct error *err)
{
    char host[CONFIG_HOST_SIZE];
    uint16_t port;

    if (config_split_listen(c->listen, host, &port, err) != 0)
        return ERR_INPUT;
    int is_loopback = host_is_loopback(host);
    if (is_loopback < 0)
        return error_set(err, ERR_INPUT, "listen: \"%s\" is not an IPv4 or IPv6 address", host);
    if (!is_loopback && !c->allow_remote)
        return error_set(
            err, ERR_INPUT,
            "listen: %s can be reached from other machines, and whoever may call it can have code run "
            "here; set allow_remote if that is meant",
            host);
    return 0;
}

/* Of a device, "cuda:0" or "cuda:0,2". */
static bool
is_number_list(const char *text)
{
    bool has_digit = false;
    for (; *text; text++) {
        if (*text >= '0' && *text <= '9')
            has_digit = true;
        else if (*text == ',' && has_digit && text[1])
            has_digit = false;
        else
            return false;
    }
    return has_digit;
}

/* Those that the harness has a board for (fake_cuda.py). */
static bool
is_target(const char *text)
{
    static const char *const known[] = { "cuda:70", "cuda:75", "cuda:80",  "cuda:86",
                                         "cuda:89", "cuda:90", "cuda:100", "cuda:120" };

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(text, known[i]) == 0)
            return true;
    return false;
}

static int
check_words(const struct config *c, struct error *err)
{
    if (strcmp(c->device, "auto") != 0 && strcmp(c->device, "cpu") != 0 && strcmp(c->device, "cuda") != 0 &&
        !(strncmp(c->device, "cuda:", 5) == 0 && is_number_list(c->device + 5)) &&
        !(strncmp(c->device, "cpu:", 4) == 0 && is_number_list(c->device + 4)))
        return error_set(err, ERR_INPUT, "device is auto, cpu, cpu:N,N, cuda or cuda:N,N, not \"%.40s\"",
                         c->device);
    if (!is_target(c->target))
        return error_set(err, ERR_INPUT,
                         "target is cuda:N with N one of 70, 75, 80, 86, 89, 90, 100 and 120, not \"%.40s\"",
                         c->target);
    if (c->timing_cores == 1 || c->timing_cores == 2)
        return error_set(
            err, ERR_INPUT,
            "timing_cores is 3 or more, 0 for none, or -1, not %lld: the referee needs one, what is timed "
            "another, and the driver a third",
            (long long)c->timing_cores);
    if (c->uid_first + c->uid_count > 4294967295LL)
        return error_set(err, ERR_INPUT, "uid_first + uid_count goes beyond the last user id");
    return 0;
}

bool
config_has_role(const struct config *c, const char *role)
{
    return strcmp(c->role, role) == 0;
}

/* One that judges nothing needs others, and no GPU: registrations run in the interpreter. */
static int
complete_role(struct config *c, struct error *err)
{
    if (config_has_role(c, "all"))
        return 0;
    if (store_is_file(c->store))
        return error_set(err, ERR_INPUT,
                         "role = %s is for daemons that share a database, and store is a file: nobody else "
                         "would judge",
                         c->role);
    if (strncmp(c->device, "cuda", 4) == 0)
        return error_set(err, ERR_INPUT, "role = %s uses no GPU: take device = %.40s out", c->role,
                         c->device);
    if (strcmp(c->device, "auto") != 0)
        return 0;
    return fill(&c->device, err, "cpu");
}

static int
check_quotas(const struct config *c, struct error *err)
{
    struct quotas quotas;
    int rc = quotas_parse(c->quotas, &quotas, err);

    quotas_release(&quotas);
    return rc;
}

static int
check_notify(const struct config *c, struct error *err)
{
    if (*c->notify_hosts && !*c->notify_key)
        return error_set(err, ERR_INPUT, "notify_hosts needs notify_key, a file with the key that signs");
    if (strpbrk(c->notify_hosts, "/,"))
        return error_set(
            err, ERR_INPUT,
            "notify_hosts is HOST or HOST:PORT, several with blanks between them, not \"%.100s\"",
            c->notify_hosts);
    return 0;
}

/* "write_gbs=4000,half_tflops=990": the referee parses the same (physics.py); an error is reported before it starts. */
static int
check_peaks(const struct config *c, struct error *err)
{
    static const char *const names[] = { "write_gbs",      "read_gbs",    "cache_gbs",
                                         "float32_tflops", "tf32_tflops", "half_tflops" };
    const char *p = c->peaks;

    while (*p) {
        size_t length = strcspn(p, "=,"), i = 0;
        char *end = NULL;
        while (i < ARRAY_LEN(names) && (strlen(names[i]) != length || strncmp(names[i], p, length) != 0))
            i++;
        if (i == ARRAY_LEN(names))
            return error_set(err, ERR_INPUT,
                             "peaks: \"%.*s\" is none of write_gbs, read_gbs, cache_gbs, float32_tflops, "
                             "tf32_tflops, half_tflops",
                             (int)(length < 40 ? length : 40), p);
        double figure =
            p[length] == '=' && isdigit((unsigned char)p[length + 1]) ? strtod(p + length + 1, &end) : 0;
        if (!(figure > 0 && figure < 1e9) || (*end != '\0' && *end != ','))
            return error_set(err, ERR_INPUT, "peaks: %s needs a positive figure", names[i]);
        p = *end ? end + 1 : end;
    }
    return 0;
}

static int
config_complete(struct config *c, struct error *err)
{
    int rc = check_listen(c, err);
    if (rc == 0)
        rc = check_words(c, err);
    if (rc == 0)
        rc = complete_role(c, err);
    if (rc == 0 && !*c->tokens)
        rc = fill(&c->tokens, err, "%s.tokens", store_is_file(c->store) ? c->store : "verifierd.db");
    if (rc == 0)
        rc = check_peaks(c, err);
    if (rc == 0)
        rc = check_quotas(c, err);
    if (rc == 0)
        rc = check_notify(c, err);
    if (rc == 0 && !*c->harness)
        rc = complete_harness(c, err);
    if (rc == 0 && !*c->scratch)
        rc = complete_scratch(c, err);
    else if (rc == 0 && *c->scratch != '/')
        rc = scratch_from_here(c, err);
    return rc;
}

/* --- the whole --- */

int
config_load(int argc, char **argv, struct config *out, struct error *err)
{
    struct error own = { 0 };
    int rc = 0;

    memset(out, 0, sizeof(*out));
    if (!err)
        err = &own;
    memset(err, 0, sizeof(*err));
    for (size_t i = 0; i < SETTINGS && rc == 0; i++)
        rc = setting_put(&table[i], table[i].preset, out, err);
    if (rc == 0)
        rc = config_read_flags(out, argc, argv, true, err);
    if (rc == 0 && out->file)
        rc = config_read_file(out, out->file, err);
    if (rc == 0)
        rc = config_read_flags(out, argc, argv, false, err);
    if (rc == 0)
        rc = config_complete(out, err);
    if (rc != 0)
        config_release(out);
    return rc;
}

void
config_release(struct config *c)
{
    for (size_t i = 0; i < SETTINGS; i++) {
        if (is_text(&table[i])) {
            free(*text_field(&table[i], c));
            *text_field(&table[i], c) = NULL;
        }
    }
    free(c->file);
    c->file = NULL;
}

static bool
is_same(const struct setting *s, const struct config *a, const struct config *b)
{
    if (is_text(s))
        return strcmp(*text_field(s, a), *text_field(s, b)) == 0;
    if (s->type == NUMBER)
        return *number_field(s, a) == *number_field(s, b);
    return *switch_field(s, a) == *switch_field(s, b);
}

static void
exchange_values(const struct setting *s, struct config *a, struct config *b)
{
    if (is_text(s)) {
        char *text = *text_field(s, a);
        *text_field(s, a) = *text_field(s, b);
        *text_field(s, b) = text;
    } else if (s->type == NUMBER) {
        *number_field(s, a) = *number_field(s, b);
    } else {
        *switch_field(s, a) = *switch_field(s, b);
    }
}

int
config_adopt(struct config *c, struct config *now, void (*tell)(void *arg, const char *name), void *arg)
{
    int n = 0;
    for (size_t i = 0; i < SETTINGS; i++) {
        if (is_same(&table[i], c, now))
            continue;
        if (table[i].is_live) {
            exchange_values(&table[i], c, now);
            continue;
        }
        tell(arg, table[i].name);
        n++;
    }
    return n;
}

void
config_print_manual(FILE *to)
{
    for (size_t i = 0; i < SETTINGS; i++) {
        const struct setting *s = &table[i];
        fprintf(to, ".TP\n.BR %s \" = \\fI%s\\fR\"\n%s.\n", s->name, s->type == CHOICE ? "WORD" : s->unit,
                s->help);
        if (s->type == CHOICE)
            fprintf(to, "One of: %s.\n", s->unit);
        if (s->type == NUMBER)
            fprintf(to, "From %" PRId64 " to %" PRId64 ".\n", s->min, s->max);
        if (*s->preset)
            fprintf(to, "Default: %s.\n", s->preset);
        if (s->is_live)
            fprintf(to, "Read again on SIGHUP.\n");
    }
}
