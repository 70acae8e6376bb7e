/* Any bytes as the configuration file: settings that hold together, or an error that names the file and says why. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/config.h"
#include "tests/fuzz/fuzz.h"

static void
check_settings(const struct config *c)
{
    char host[CONFIG_HOST_SIZE];
    struct error err;
    uint16_t port;

    FUZZ_CHECK(config_split_listen(c->listen, host, &port, &err) == 0);
    FUZZ_CHECK(c->allow_remote || config_is_loopback(c));
    FUZZ_CHECK(c->queue_limit > 0 && c->max_attempts > 0 && c->stage_limit_ms > 0 && c->tiny_limit_ms > 0);
    FUZZ_CHECK(c->cache_recheck_percent >= 0 && c->cache_recheck_percent <= 100);
    FUZZ_CHECK(c->python && c->harness && c->store && c->quotas);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char flag[64];
    char *argv[] = { "verifierd", flag, NULL };
    struct config c;
    struct error err = { 0 };

    int fd = memfd_create("conf", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(flag, sizeof(flag), "--config=/proc/self/fd/%d", fd);
    if (config_load(2, argv, &c, &err) == 0) {
        check_settings(&c);
        config_release(&c);
    } else {
        FUZZ_CHECK(err.code != ERR_NONE && memchr(err.text, '\0', sizeof(err.text)) && *err.text);
    }
    close(fd);
    return 0;
}
