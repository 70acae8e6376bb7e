/* test_channel.c - packets with descriptors between two ends, and what a peer that breaks the protocol gets. */
#include "server/workers/channel.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/auto.h"

struct rig {
    uv_loop_t loop;
    struct channel *channel;
    int peer;
    int messages, gone;
    enum err_code why;
    json_t *last;
    int fd; /* taken from the last message, or -1 */
    bool is_freed_in_callback, says_more;
};

static void
message_cb(void *arg, struct message *m)
{
    struct rig *r = arg;

    r->messages++;
    json_decref(r->last);
    r->last = json_incref(m->body);
    int fd = message_take_fd(m, "thing");
    if (fd >= 0) {
        if (r->fd >= 0)
            close(r->fd);
        r->fd = fd;
    }
    if (r->says_more)
        assert_int_equal(send(r->peer, "{}", 2, 0), 2);
    if (r->is_freed_in_callback) {
        channel_free(r->channel);
        r->channel = NULL;
    }
}

static void
gone_cb(void *arg, const struct error *why)
{
    struct rig *r = arg;
    r->gone++;
    r->why = why->code;
}

static int
set_up(void **state)
{
    struct rig *r = calloc(1, sizeof(*r));
    struct error err;
    int ends[2];

    r->fd = -1;
    assert_int_equal(uv_loop_init(&r->loop), 0);
    assert_int_equal(channel_pair(ends, &err), 0);
    r->peer = ends[1];
    assert_int_equal(channel_new(&r->loop, ends[0], message_cb, gone_cb, r, &r->channel, &err), 0);
    *state = r;
    return 0;
}

static int
tear_down(void **state)
{
    struct rig *r = *state;

    channel_free(r->channel);
    while (uv_run(&r->loop, UV_RUN_NOWAIT) != 0)
        ;
    assert_int_equal(uv_loop_close(&r->loop), 0);
    if (r->peer >= 0)
        close(r->peer);
    if (r->fd >= 0)
        close(r->fd);
    json_decref(r->last);
    free(r);
    return 0;
}

static void
turn(struct rig *r)
{
    for (int i = 0; i < 3; i++)
        uv_run(&r->loop, UV_RUN_NOWAIT);
}

static void
say(struct rig *r, const char *bytes, size_t size, int fd)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control = { .space = { 0 } };
    struct iovec iov = { (void *)(uintptr_t)bytes, size };
    struct msghdr header = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (fd >= 0) {
        header.msg_control = control.space;
        header.msg_controllen = sizeof(control.space);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &fd, sizeof(int));
    }
    assert_int_equal(sendmsg(r->peer, &header, 0), size);
}

static void
say_text(struct rig *r, const char *text)
{
    say(r, text, strlen(text), -1);
}

static int
count_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void
a_packet_comes_with_its_descriptor(void **state)
{
    struct rig *r = *state;
    struct error err = { 0 };
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    AUTO_FD int fd = memfd_make("t", "hello", 5, &err);

    assert_true(fd >= 0);
    const char *packet = "{\"ev\":\"x\",\"fds\":[\"thing\"]}";
    say(r, packet, strlen(packet), fd);
    turn(r);
    assert_int_equal(r->messages, 1);
    assert_true(r->fd >= 0);
    assert_true(fcntl(r->fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(memfd_read(r->fd, 5, &text, &err), 0);
    assert_string_equal(text.data, "hello");
    assert_int_equal(memfd_read(r->fd, 4, &text, &err), ERR_PROTOCOL);
}

/* A peer must not be able to change what was checked, nor hold the loop on a pipe. */
static void
only_sealed_memory_is_read(void **state)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    AUTO_FD int memory = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct error err = { 0 };
    int pipes[2];

    (void)state;
    assert_int_equal(memfd_read(memory, 100, &text, &err), ERR_PROTOCOL);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(memfd_read(pipes[0], 100, &text, &err), ERR_PROTOCOL);
    close(pipes[0]);
    close(pipes[1]);
}

static void
what_is_not_taken_is_closed(void **state)
{
    struct rig *r = *state;
    struct error err;
    AUTO_FD int fd = memfd_make("t", "hello", 5, &err);
    const char *packet = "{\"ev\":\"x\",\"fds\":[\"other\"]}";
    int before = count_fds();

    for (int i = 0; i < 20; i++) {
        say(r, packet, strlen(packet), fd);
        turn(r);
    }
    assert_int_equal(r->messages, 20);
    assert_int_equal(count_fds(), before);
}

static void
a_broken_packet_ends_the_channel(void **state)
{
    static const char *const packets[] = {
        "7", "[]", "{", "{\"a\":1,\"a\":2}", "{\"fds\":[\"thing\"]}", "{\"fds\":[7]}"
    };

    for (size_t i = 0; i < ARRAY_LEN(packets); i++) {
        tear_down(state);
        set_up(state);
        struct rig *r = *state;
        say_text(r, packets[i]);
        say_text(r, "{\"ev\":\"later\"}");
        turn(r);
        if (r->messages != 0 || r->gone != 1 || r->why != ERR_PROTOCOL)
            fail_msg("%s: %d messages, gone %d, code %d", packets[i], r->messages, r->gone, r->why);
    }
}

static void
a_descriptor_without_a_name_ends_the_channel_and_does_not_leak(void **state)
{
    struct rig *r = *state;
    struct error err;
    AUTO_FD int fd = memfd_make("t", "hello", 5, &err);
    int before = count_fds();

    say(r, "{}", 2, fd);
    turn(r);
    assert_int_equal(r->why, ERR_PROTOCOL);
    assert_int_equal(count_fds(), before);
}

static void
the_largest_packet_passes_and_one_more_byte_does_not(void **state)
{
    struct rig *r = *state;
    AUTO_FREE char *text = malloc(WORKER_MESSAGE_MAX + 2);
    struct error err = { 0 };

    memset(text, 'x', WORKER_MESSAGE_MAX + 1);
    memcpy(text, "{\"a\":\"", 6);
    memcpy(text + WORKER_MESSAGE_MAX - 2, "\"}", 2);
    say(r, text, WORKER_MESSAGE_MAX, -1);
    turn(r);
    assert_int_equal(r->messages, 1);
    text[WORKER_MESSAGE_MAX - 2] = text[WORKER_MESSAGE_MAX - 1] = 'x';
    memcpy(text + WORKER_MESSAGE_MAX - 1, "\"}", 2);
    say(r, text, WORKER_MESSAGE_MAX + 1, -1);
    turn(r);
    assert_int_equal(r->why, ERR_PROTOCOL);
    text[WORKER_MESSAGE_MAX] = '\0';
    assert_int_equal(channel_send(r->channel, json_pack("{s:s}", "a", text), NULL, 0, &err), ERR_INPUT);
}

static void
the_end_is_told_once(void **state)
{
    struct rig *r = *state;

    say_text(r, "{\"ev\":\"last\"}");
    close(r->peer);
    r->peer = -1;
    turn(r);
    assert_int_equal(r->messages, 1);
    assert_int_equal(r->gone, 1);
    assert_int_equal(r->why, ERR_UNAVAILABLE);
}

static void
what_was_said_before_a_death_can_still_be_read(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < 5; i++)
        say_text(r, "{\"ev\":\"x\"}");
    close(r->peer);
    r->peer = -1;
    channel_drain(r->channel);
    assert_int_equal(r->messages, 5);
    assert_int_equal(r->gone, 1);
}

/* Where processes can leave their group one may go on with the channel of a child that has ended. */
static void
who_never_stops_is_not_read_for_ever(void **state)
{
    struct rig *r = *state;

    r->says_more = true;
    say_text(r, "{}");
    alarm(20);
    channel_drain(r->channel);
    alarm(0);
    assert_true(r->messages > 600);
}

static void
a_callback_may_free_its_channel(void **state)
{
    struct rig *r = *state;

    r->is_freed_in_callback = true;
    say_text(r, "{\"ev\":\"x\"}");
    say_text(r, "{\"ev\":\"y\"}");
    turn(r);
    assert_int_equal(r->messages, 1);
    assert_int_equal(r->gone, 0);
}

/* A peer that does not read: messages wait, in order, up to a bound. */
static void
messages_wait_in_order_and_are_bounded(void **state)
{
    struct rig *r = *state;
    struct error err = { 0 };
    AUTO_FREE char *bulk = malloc(32 * 1024);
    static char bytes[WORKER_MESSAGE_MAX];
    int sent = 0, read_back = 0;

    memset(bulk, 'x', 32 * 1024 - 1);
    bulk[32 * 1024 - 1] = '\0';
    while (channel_send(r->channel, json_pack("{s:i, s:s}", "n", sent, "bulk", bulk), NULL, 0, &err) == 0)
        assert_true(++sent < 5000);
    assert_int_equal(err.code, ERR_FULL);
    assert_true(sent > 1000);
    for (ssize_t n; read_back < sent;) {
        turn(r);
        while ((n = recv(r->peer, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
            AUTO_JSON json_t *body = json_loadb(bytes, (size_t)n, 0, NULL);
            assert_int_equal(json_integer_value(json_object_get(body, "n")), read_back);
            read_back++;
        }
    }
    assert_int_equal(channel_send(r->channel, json_pack("{s:i}", "n", sent), NULL, 0, &err), 0);
}

static void
descriptors_go_out_and_are_ours_no_more(void **state)
{
    struct rig *r = *state;
    struct error err = { 0 };
    int before = count_fds();
    struct channel_fd fds[] = { { "a", memfd_make("a", "1", 1, &err) },
                                { "b", memfd_make("b", "2", 1, &err) } };

    assert_int_equal(channel_send(r->channel, json_object(), fds, 2, &err), 0);
    assert_int_equal(count_fds(), before);
    fds[0].fd = memfd_make("a", "1", 1, &err);
    close(r->peer);
    r->peer = -1;
    assert_int_not_equal(channel_send(r->channel, json_object(), fds, 1, &err), 0);
    assert_int_equal(count_fds(), before - 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_packet_comes_with_its_descriptor),
        TEST(only_sealed_memory_is_read),
        TEST(what_is_not_taken_is_closed),
        TEST(a_broken_packet_ends_the_channel),
        TEST(a_descriptor_without_a_name_ends_the_channel_and_does_not_leak),
        TEST(the_largest_packet_passes_and_one_more_byte_does_not),
        TEST(the_end_is_told_once),
        TEST(what_was_said_before_a_death_can_still_be_read),
        TEST(who_never_stops_is_not_read_for_ever),
        TEST(a_callback_may_free_its_channel),
        TEST(messages_wait_in_order_and_are_bounded),
        TEST(descriptors_go_out_and_are_ours_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
