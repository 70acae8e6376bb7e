/*
 * Any bytes as the packets of a child: each is handed on as an object, or ends the channel with a reason. The input is
 * split at its newlines; a packet that begins with '+' brings a descriptor along.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/workers/channel.h"
#include "tests/fuzz/fuzz.h"

struct seen {
    struct channel *channel;
    bool is_gone;
};

static void
message_cb(void *arg, struct message *m)
{
    (void)arg;
    FUZZ_CHECK(json_is_object(m->body));
    FUZZ_CHECK(m->n_fds <= WORKER_FDS_MAX);
    for (size_t i = 0; i < m->n_fds; i++)
        FUZZ_CHECK(m->names[i] && m->fds[i] >= 0);
    message_text(m, "ev");
    int fd = message_take_fd(m, "source");
    if (fd >= 0)
        close(fd);
}

static void
gone_cb(void *arg, const struct error *why)
{
    struct seen *seen = arg;

    FUZZ_CHECK(!seen->is_gone);
    FUZZ_CHECK(why->code != ERR_NONE && memchr(why->text, '\0', sizeof(why->text)) && *why->text);
    seen->is_gone = true;
}

static void
send_packet(int to, const uint8_t *bytes, size_t size)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control = { .space = { 0 } };
    struct iovec iov = { (void *)bytes, size };
    struct msghdr header = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (size > 0 && bytes[0] == '+') {
        iov = (struct iovec){ (void *)(bytes + 1), size - 1 };
        header.msg_control = control.space;
        header.msg_controllen = sizeof(control.space);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &to, sizeof(int));
    }
    (void)!sendmsg(to, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen seen = { 0 };
    struct error err;
    uv_loop_t loop;
    int ends[2];

    FUZZ_CHECK(uv_loop_init(&loop) == 0);
    FUZZ_CHECK(channel_pair(ends, &err) == 0);
    FUZZ_CHECK(channel_new(&loop, ends[0], message_cb, gone_cb, &seen, &seen.channel, &err) == 0);
    while (size > 0) {
        const uint8_t *end = memchr(data, '\n', size);
        size_t length = end ? (size_t)(end - data) : size;
        send_packet(ends[1], data, length);
        data += end ? length + 1 : length;
        size -= end ? length + 1 : length;
        if (!seen.is_gone)
            uv_run(&loop, UV_RUN_NOWAIT);
    }
    close(ends[1]);
    for (int i = 0; i < 64 && !seen.is_gone; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    FUZZ_CHECK(seen.is_gone);
    channel_free(seen.channel);
    uv_run(&loop, UV_RUN_DEFAULT);
    FUZZ_CHECK(uv_loop_close(&loop) == 0);
    return 0;
}
