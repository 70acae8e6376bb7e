/* Looking on: what the daemon is doing and where its time goes, drawn anew every second. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/text.h"
#include "common/auto.h"
#include "common/buffer.h"

struct top {
    struct cli *cli;
    bool is_once;
    double every_s, window_s;
    json_t *reads; /* earlier answers of /v1/stats within the window, oldest first */
};

enum { OPT_ONCE = 256, OPT_WINDOW, OPT_EVERY };

static const struct argp_option options[] = {
    { "once", OPT_ONCE, NULL, 0, "Print it once and end", 0 },
    { "window", OPT_WINDOW, "TIME", 0,
      "What to sum over, as 60s, 10m or 2h (default 1m); until then, since it began", 0 },
    { "every", OPT_EVERY, "SECONDS", 0, "Draw it anew so often (default 1)", 0 },
    { 0 },
};

/* "90", "90s", "10m", "2h" to seconds; 0: it is none of these, or out of range. */
static double
read_window(const char *text)
{
    char *end;
    double seconds = strtod(text, &end);

    seconds *= *end == 'h' ? 3600 : *end == 'm' ? 60 : 1;
    bool is_unit = !*end || (strchr("smh", *end) && !end[1]);
    return end > text && is_unit && seconds >= 1 && seconds <= 86400 ? seconds : 0;
}

static void
take_window(struct argp_state *state, const char *name, char *arg, void *out)
{
    double *window_s = out;

    *window_s = read_window(arg);
    if (*window_s == 0)
        argp_error(state, "%s is a time such as 60s, 10m or 2h, a day at most", name);
}

const struct argp top_argp = CLI_ARGP(options, NULL, "Show where work and time go, until q is pressed.");

/* --- the picture --- */

/* "  12.3", or a dash. */
static void
put_ms(struct buffer *out, json_t *spread)
{
    json_t *value = json_object_get(spread, "mean");

    if (json_is_number(value))
        buffer_printf(out, " %9.*f", json_number_value(value) < 100 ? 1 : 0, json_number_value(value));
    else
        buffer_printf(out, " %9s", "-");
}

static void
put_head(struct buffer *out, json_t *status, json_t *stats)
{
    json_t *q = json_object_get(status, "queues");
    const char *why = text_member(status, "why");

    buffer_printf(out, "verifierd %s  %s%s%s  up %.0f s\n", text_or(status, "version", "-"),
                  text_or(status, "state", "-"), why ? ": " : "", why ? why : "",
                  number_under(status, "uptime_s", NULL));
    buffer_printf(
        out, "waiting   %.0f of %.0f:  queued %.0f interactive, %.0f batch; ready %.0f, %.0f; joined %.0f\n",
        number_under(q, "waiting", NULL), number_under(q, "limit", NULL),
        number_under(q, "queued", "interactive"), number_under(q, "queued", "batch"),
        number_under(q, "ready", "interactive"), number_under(q, "ready", "batch"),
        number_under(q, "joined", NULL));
    buffer_printf(out, "running   %.0f of %.0f CPU slots, %.0f on %.0f devices\n",
                  number_under(q, "cpu_running", NULL), number_under(q, "cpu_slots", NULL),
                  number_under(q, "gpu_running", NULL), number_under(stats, "devices", NULL));
    buffer_printf(out, "verdicts  %.0f in %.0f s (%.2f a second), %.0f of them shared\n",
                  number_under(stats, "finished", NULL), number_under(stats, "covered_s", NULL),
                  number_under(stats, "finished_per_s", NULL), number_under(stats, "shared", NULL));
    buffer_printf(
        out,
        "devices   busy %.0f%%; %.1f s used, %.1f s saved by early rejection, %.1f s by shared verdicts\n",
        100 * number_under(stats, "device_busy", NULL), number_under(stats, "device_s", "used"),
        number_under(stats, "device_s", "saved_by_rejection"),
        number_under(stats, "device_s", "saved_by_cache"));
}

static void
put_stages(struct buffer *out, json_t *stats)
{
    json_t *stage;
    size_t i;

    buffer_printf(out, "\n%-8s %7s %7s %7s %7s %9s %9s %9s\n", "stage", "pass", "fail", "skip", "spared",
                  "wait ms", "takes ms", "device s");
    json_array_foreach(json_object_get(stats, "stages"), i, stage)
    {
        buffer_printf(out, "%-8s %7.0f %7.0f %7.0f %7.0f", text_or(stage, "stage", "-"),
                      number_under(stage, "pass", NULL), number_under(stage, "fail", NULL),
                      number_under(stage, "skip", NULL), number_under(stage, "spared", NULL));
        put_ms(out, json_object_get(stage, "wait_ms"));
        put_ms(out, json_object_get(stage, "service_ms"));
        buffer_printf(out, " %9.1f\n", number_under(stage, "device_s", NULL));
    }
}

static void
put_workers(struct buffer *out, json_t *status)
{
    json_t *row;
    size_t i;

    buffer_printf(out, "\n%-24s %-10s %-12s %7s %7s %7s %9s\n", "worker", "state", "device", "starts",
                  "ready", "of", "waited s");
    json_array_foreach(json_object_get(status, "workers"), i, row)
    {
        buffer_printf(out, "%-24s %-10s %-12s %7.0f", text_or(row, "name", "-"),
                      text_or(row, "lane", text_or(row, "state", "-")), text_or(row, "device", "-"),
                      number_under(row, "starts", NULL));
        if (json_object_get(row, "pool"))
            buffer_printf(out, " %7.0f %7.0f %9.1f", number_under(row, "pool", "ready"),
                          number_under(row, "pool", "most"), number_under(row, "pool", "waited_s"));
        buffer_printf(out, "\n");
    }
    json_array_foreach(json_object_get(status, "gpus"), i, row)
        buffer_printf(out, "%s%-8s %-40s %s\n", i == 0 ? "\n" : "", text_or(row, "device", "-"),
                      text_or(row, "name", "-"), text_or(row, "state", "-"));
}

/* --- the window: what happened since an earlier answer --- */

static void
subtract(json_t *from, json_t *earlier, const char *key)
{
    json_t *value = json_object_get(from, key);
    double less = json_number_value(json_object_get(earlier, key));

    if (json_is_number(value))
        json_object_set_new(from, key, json_real(json_number_value(value) - less));
}

static void
subtract_spread(json_t *from, json_t *earlier)
{
    subtract(from, earlier, "n");
    subtract(from, earlier, "sum");
    double n = number_under(from, "n", NULL);
    if (json_is_object(from))
        json_object_set_new(from, "mean",
                            n > 0 ? json_real(number_under(from, "sum", NULL) / n) : json_null());
}

/* stats becomes what happened since the earlier one. */
static void
subtract_stats(json_t *stats, json_t *earlier)
{
    static const char *const counts[] = { "covered_s", "finished", "shared" };
    static const char *const of_stages[] = { "decided", "pass", "fail", "skip", "spared", "device_s" };
    static const char *const seconds[] = { "used", "saved_by_rejection", "saved_by_cache" };
    json_t *stage;
    size_t i;

    for (size_t k = 0; k < ARRAY_LEN(counts); k++)
        subtract(stats, earlier, counts[k]);
    json_array_foreach(json_object_get(stats, "stages"), i, stage)
    {
        json_t *before = json_array_get(json_object_get(earlier, "stages"), i);
        for (size_t k = 0; k < ARRAY_LEN(of_stages); k++)
            subtract(stage, before, of_stages[k]);
        subtract_spread(json_object_get(stage, "wait_ms"), json_object_get(before, "wait_ms"));
        subtract_spread(json_object_get(stage, "service_ms"), json_object_get(before, "service_ms"));
    }
    for (size_t k = 0; k < ARRAY_LEN(seconds); k++)
        subtract(json_object_get(stats, "device_s"), json_object_get(earlier, "device_s"), seconds[k]);
    double covered_s = number_under(stats, "covered_s", NULL), devices = number_under(stats, "devices", NULL);
    if (covered_s <= 0)
        return;
    json_object_set_new(stats, "finished_per_s",
                        json_real(number_under(stats, "finished", NULL) / covered_s));
    if (devices > 0)
        json_object_set_new(stats, "device_busy",
                            json_real(number_under(stats, "device_s", "used") / (covered_s * devices)));
}

/* Keeps the answer, and makes of it what happened within the window, or since the first answer where that is less. */
static void
look_back(struct top *t, json_t *stats)
{
    double now_s = number_under(stats, "covered_s", NULL);
    size_t n = json_array_size(t->reads);

    if (n > 0 && number_under(json_array_get(t->reads, n - 1), "covered_s", NULL) > now_s)
        json_array_clear(t->reads); /* another daemon than before */
    while (json_array_size(t->reads) > 1 &&
           number_under(json_array_get(t->reads, 1), "covered_s", NULL) <= now_s - t->window_s)
        json_array_remove(t->reads, 0);
    json_array_append_new(t->reads, json_deep_copy(stats));
    if (json_array_size(t->reads) > 1)
        subtract_stats(stats, json_array_get(t->reads, 0));
}

/* --- one picture --- */

static int
ask(struct top *t, json_t **status, json_t **stats)
{
    int code = api_call(t->cli, "GET", "/v1/status", NULL, status);
    return code == CLI_OK ? api_call(t->cli, "GET", "/v1/stats", NULL, stats) : code;
}

static int
draw(struct top *t, struct buffer *out)
{
    AUTO_JSON json_t *status = NULL, *stats = NULL;
    int code = ask(t, &status, &stats);

    if (code != CLI_OK)
        return code;
    if (!t->is_once)
        look_back(t, stats);
    if (t->cli->is_json) {
        AUTO_JSON json_t *both = json_pack("{s:O, s:O}", "status", status, "stats", stats);
        text_json(both);
        return CLI_OK;
    }
    put_head(out, status, stats);
    put_stages(out, stats);
    put_workers(out, status);
    return out->data ? CLI_OK : cli_complain(CLI_CONFIG, "out of memory");
}

/* --- the terminal --- */

static struct termios cooked;
static bool is_raw;
static volatile sig_atomic_t is_ending;

static void
end_handler(int number)
{
    (void)number;
    is_ending = 1;
}

static void
restore_terminal(void)
{
    static const char leave[] = "\x1b[?25h\x1b[?1049l"; /* the cursor, and the screen as it was */

    if (!is_raw)
        return;
    is_raw = false;
    tcsetattr(STDIN_FILENO, TCSANOW, &cooked);
    if (write(STDOUT_FILENO, leave, sizeof(leave) - 1) < 0)
        return; /* the terminal has gone */
}

static void
take_terminal(void)
{
    struct termios raw;

    if (tcgetattr(STDIN_FILENO, &cooked) != 0)
        return;
    raw = cooked;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    is_raw = true;
    const struct sigaction end = { .sa_handler = end_handler };
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGHUP, &end, NULL);
    atexit(restore_terminal);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    fputs("\x1b[?1049h\x1b[?25l", stdout);
}

/* As many lines as there is room for, each as wide as there is room for: what does not fit is left out. */
static void
show(const char *text)
{
    struct winsize size = { .ws_row = 24, .ws_col = 80 };

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
        size = (struct winsize){ .ws_row = 24, .ws_col = 80 };
    fputs("\x1b[H", stdout);
    for (int row = 1; *text && row < size.ws_row; row++) {
        size_t width = strcspn(text, "\n");
        for (size_t i = 0; i < width && i < size.ws_col; i++)
            putchar(text[i] >= ' ' && text[i] < 0x7f ? text[i] : '?');
        fputs("\x1b[K\n", stdout);
        text += width + (text[width] == '\n');
    }
    fputs("\x1b[J q quits", stdout);
    fflush(stdout);
}

/* True: it is to end. */
static bool
wait_for_key(double seconds)
{
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    char key = 0;

    if (poll(&in, 1, (int)(seconds * 1000)) <= 0)
        return is_ending;
    ssize_t n = read(STDIN_FILENO, &key, 1);
    return n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN) || key == 'q' || key == 'Q' || key == 3;
}

int
top_command(struct cli *cli, int argc, char **argv)
{
    struct top t = { .cli = cli, .window_s = 60, .every_s = 1 };
    int code;

    CLI_TAKE(cli, &top_argp, argc, argv, TAKE_FLAG(OPT_ONCE, &t.is_once),
             TAKE_CALL(OPT_WINDOW, take_window, &t.window_s), TAKE_SECONDS(OPT_EVERY, &t.every_s, 0.1, 1e7));
    if (cli->is_json || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        t.is_once = true;
    t.reads = json_array();
    do {
        AUTO_BUFFER struct buffer text = BUFFER_INIT;
        code = draw(&t, &text);
        if (code != CLI_OK || cli->is_json)
            break;
        if (t.is_once) {
            text_print(stdout, text.data);
            break;
        }
        if (!is_raw)
            take_terminal();
        show(text.data ? text.data : "");
    } while (!wait_for_key(t.every_s));
    restore_terminal();
    json_decref(t.reads);
    return code;
}
