#include "common/http_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/auto.h"

#define STALL_S 2
#define PAUSE_US 1500000 /* between two bytes: by curl's own mean that is 0 bytes a second */
#define BYTES 4

/* Answers one request with a few single bytes and then with nothing more, until the other side has gone. */
static void *
trickle(void *arg)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
    char request[1024];
    int fd = accept(*(int *)arg, NULL, NULL);

    if (fd < 0)
        return NULL;
    if (read(fd, request, sizeof(request)) > 0 && write(fd, head, strlen(head)) > 0) {
        for (int i = 0; i < BYTES && write(fd, ":", 1) == 1; i++)
            usleep(PAUSE_US);
        while (read(fd, request, sizeof(request)) > 0)
            ;
    }
    close(fd);
    return NULL;
}

static bool
count_cb(void *arg, const char *bytes, size_t size)
{
    (void)bytes;
    *(size_t *)arg += size;
    return true;
}

/* A heartbeat keeps a stream, however few its bytes are; without one it ends, as a time that is over. */
static void
only_silence_is_a_stall(void **state)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof(at);
    struct http_client *c;
    struct http_answer answer;
    struct error err = { 0 };
    pthread_t server;
    size_t heard = 0;
    char url[64];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)state;

    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    assert_int_equal(pthread_create(&server, NULL, trickle, &fd), 0);
    snprintf(url, sizeof(url), "http://127.0.0.1:%d", ntohs(at.sin_port));
    assert_int_equal(http_client_new(url, NULL, &c, &err), 0);
    assert_int_equal(http_client_download(c, "/", STALL_S, count_cb, &heard, &answer, &err), ERR_TIMEOUT);
    assert_int_equal(heard, BYTES);
    assert_non_null(strstr(err.text, "stands still"));
    http_client_free(c);
    pthread_join(server, NULL);
    close(fd);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_silence_is_a_stall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
