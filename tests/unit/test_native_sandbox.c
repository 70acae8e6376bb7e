/*
 * Attempts to get out of the sandbox, each from a child in all of its layers, and, as the control, the same attempt
 * from a child with none of the optional ones: what is held back must not be held back by chance. A layer that the
 * host lacks excuses the attempts that only it stops, loudly.
 */
#include "server/harness/native/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/mempolicy.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/harness/native/process.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* Ends of an attempt, and of the processes around it. */
enum end { HELD = 0, OUT = 10, EXCUSED = 11, BROKEN = 12 };

#define CHILD_UID 61234
#define FILE_BYTES (1 << 20)
/* A sanitizer's shadow of all memory counts as data, so under one this limit is not set, and not tried. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#endif
#ifdef IS_SANITIZED
#define MEMORY_BYTES 0
#else
#define MEMORY_BYTES (256u << 20)
#endif

/* What lies about for the attempts to reach for, made before any process. */
static struct {
    char base[64], scratch[96], neighbour[96], secret[128], theirs[128], open_dir[96];
    char socket_path[108], datagram_path[108], abstract_name[64], setuid_copy[128];
    char gpu[64];               /* stands for a node of NVIDIA's driver, where root can make one */
    bool has_gpus, may_connect; /* what the child is told */
    int tcp_port, secret_fd;
    pid_t victim;
    volatile uint32_t *victim_word; /* shared with the victim alone */
    bool is_root;
} world;

/* --- attempts: each returns OUT when it got what it wanted --- */

static bool
can_create(const char *directory)
{
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "%s/escaped", directory);
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    if (fd >= 0)
        unlink(path);
    return fd >= 0;
}

static int
write_into_a_directory_that_is_open_to_all(void)
{
    return can_create(world.open_dir) ? OUT : HELD;
}

static int
write_into_shared_memory(void)
{
    return can_create("/dev/shm") ? OUT : HELD;
}

static int
write_a_file_that_is_open_to_all(void)
{
    return open(world.theirs, O_WRONLY) >= 0 ? OUT : HELD;
}

static int
truncate_a_file_that_is_open_to_all(void)
{
    return truncate(world.theirs, 0) == 0 ? OUT : HELD;
}

static int
leave_a_link_outside(void)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/link", world.open_dir);
    if (symlink("/etc/passwd", path) != 0)
        return HELD;
    unlink(path);
    return OUT;
}

static int
read_a_neighbours_scratch(void)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/answer", world.neighbour);
    return open(path, O_RDONLY) >= 0 ? OUT : HELD;
}

static int
list_the_neighbours(void)
{
    return access(world.neighbour, F_OK) == 0 ? OUT : HELD;
}

static int
use_an_inherited_descriptor(void)
{
    return fcntl(world.secret_fd, F_GETFD) >= 0 ? OUT : HELD;
}

static int
kill_the_daemon(void)
{
    return kill(world.victim, 0) == 0 ? OUT : HELD;
}

static int
signal_by_pidfd(void)
{
    return syscall(SYS_pidfd_open, world.victim, 0) >= 0 ? OUT : HELD;
}

static int
find_the_daemon_in_proc(void)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/status", (int)world.victim);
    return access(path, F_OK) == 0 ? OUT : HELD;
}

static int
trace_a_process(void)
{
    pid_t pid = fork();
    int status = 0;

    if (pid == 0)
        _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 ? OUT : HELD);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : BROKEN;
}

static int
read_another_process_memory(void)
{
    char byte = 0, copy = 0;
    struct iovec mine = { &copy, 1 }, its = { &byte, 1 };

    return process_vm_readv(getpid(), &mine, 1, &its, 1, 0) == 1 ? OUT : HELD;
}

/* The init above foreign code has a pipe to the zygote, which believes what comes out of it. */
static int
reach_into_the_init(void)
{
    int status = 0, sealed[2];
    char path[64], link[64];
    pid_t pid;

    if (pipe(sealed) != 0 || (pid = fork()) < 0)
        return BROKEN;
    if (pid > 0) {
        if (harness_close_to_others() != 0 || write(sealed[1], "x", 1) != 1)
            return BROKEN;
        return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : BROKEN;
    }
    if (read(sealed[0], path, 1) != 1)
        _exit(BROKEN);
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)getppid());
    if (open(path, O_RDWR) >= 0)
        _exit(OUT);
    snprintf(path, sizeof(path), "/proc/%d/fd/0", (int)getppid());
    _exit(open(path, O_RDONLY) >= 0 || readlink(path, link, sizeof(link)) >= 0 ? OUT : HELD);
}

static int
connect_by_tcp(void)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)world.tcp_port) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 ? OUT : HELD;
}

static int
send_by_udp(void)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return fd >= 0 && sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1 ? OUT : HELD;
}

static int
talk_to_the_kernel_by_netlink(void)
{
    return socket(AF_NETLINK, SOCK_RAW, 0) >= 0 ? OUT : HELD;
}

static int
unix_address(struct sockaddr_un *to, const char *name)
{
    memset(to, 0, sizeof(*to));
    to->sun_family = AF_UNIX;
    memcpy(to->sun_path + (name[0] == '@'), name + (name[0] == '@'), strlen(name) - (name[0] == '@'));
    return (int)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
}

static bool
can_connect(const char *name)
{
    struct sockaddr_un to;
    int size = unix_address(&to, name);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    return fd >= 0 && connect(fd, (struct sockaddr *)&to, (socklen_t)size) == 0;
}

static int
connect_to_a_socket_in_a_directory(void)
{
    return can_connect(world.socket_path) ? OUT : HELD;
}

static int
connect_to_an_abstract_socket(void)
{
    return can_connect(world.abstract_name) ? OUT : HELD;
}

static int
send_a_datagram_to_a_host_service(void)
{
    struct sockaddr_un to;
    int size = unix_address(&to, world.datagram_path);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

    return fd >= 0 && sendto(fd, "x", 1, 0, (struct sockaddr *)&to, (socklen_t)size) == 1 ? OUT : HELD;
}

/* One end of a pair, which is a datagram socket as good as any. */
static int
datagram_socket(void)
{
    int fds[2];

    return socketpair(AF_UNIX, SOCK_DGRAM, 0, fds) == 0 ? fds[0] : -1;
}

static int
send_a_datagram_from_a_pair(void)
{
    struct sockaddr_un to;
    int size = unix_address(&to, world.datagram_path);
    int fd = datagram_socket();

    return fd >= 0 && sendto(fd, "x", 1, 0, (struct sockaddr *)&to, (socklen_t)size) == 1 ? OUT : HELD;
}

static int
send_a_message_from_a_pair(void)
{
    struct sockaddr_un to;
    struct iovec part = { .iov_base = "x", .iov_len = 1 };
    struct msghdr message = { .msg_name = &to, .msg_iov = &part, .msg_iovlen = 1 };

    message.msg_namelen = (socklen_t)unix_address(&to, world.datagram_path);
    return sendmsg(datagram_socket(), &message, 0) == 1 ? OUT : HELD;
}

static int
send_many_messages_from_a_pair(void)
{
    struct sockaddr_un to;
    struct iovec part = { .iov_base = "x", .iov_len = 1 };
    struct mmsghdr messages[2] = { { .msg_hdr = { .msg_name = &to, .msg_iov = &part, .msg_iovlen = 1 } } };

    messages[0].msg_hdr.msg_namelen = (socklen_t)unix_address(&to, world.datagram_path);
    messages[1] = messages[0];
    return sendmmsg(datagram_socket(), messages, 2, 0) > 0 ? OUT : HELD;
}

static int
make_a_socket_hold_more(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), bytes = 1 << 20;

    if (fd < 0)
        return BROKEN;
    return setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0 ||
                   setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) == 0
               ? OUT
               : HELD;
}

static int
mount_something(void)
{
    return mount("none", world.scratch, "tmpfs", 0, NULL) == 0 ? OUT : HELD;
}

static int
make_a_user_namespace(void)
{
    return unshare(CLONE_NEWUSER) == 0 ? OUT : HELD;
}

static int
clone_into_a_user_namespace(void)
{
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);

    if (pid == 0)
        _exit(0);
    return pid > 0 ? OUT : HELD;
}

static int
clone3_into_a_user_namespace(void)
{
    uint64_t args[8] = { CLONE_NEWUSER, 0, 0, 0, SIGCHLD, 0, 0, 0 };
    long pid = syscall(435, args, sizeof(args));

    if (pid == 0)
        _exit(0);
    return pid > 0 ? OUT : HELD;
}

static int
become_root(void)
{
    return setuid(0) == 0 && world.is_root && geteuid() == 0 ? OUT : HELD;
}

static int
keep_a_capability(void)
{
    for (unsigned long cap = 0; cap < 41; cap++)
        if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) > 0)
            return OUT;
    return HELD;
}

/* A copy of id(1) with the setuid bit, owned by root, tells whose rights it got. */
static int
run_a_setuid_program(void)
{
    int out[2], status = 0;
    char text[16] = "";
    pid_t pid;

    if (pipe(out) != 0 || (pid = fork()) < 0)
        return BROKEN;
    if (pid == 0) {
        dup2(out[1], 1);
        execl(world.setuid_copy, "id", "-u", (char *)NULL);
        _exit(BROKEN);
    }
    close(out[1]);
    if (read(out[0], text, sizeof(text) - 1) <= 0)
        return BROKEN;
    waitpid(pid, &status, 0);
    return strcmp(text, "0\n") == 0 ? OUT : HELD;
}

static int
make_a_device_node(void)
{
    return mknod("node", S_IFBLK | 0600, makedev(8, 0)) == 0 ? OUT : HELD;
}

static int
use_io_uring(void)
{
    char params[256] = { 0 };

    return syscall(425, 2, params) >= 0 || errno == ENOSYS ? OUT : HELD;
}

static int
call_number(long number, int denied)
{
    /* Arguments that the kernel would refuse in another way: only the filter answers like this. */
    errno = 0;
    return syscall(number, -1, -1, -1, -1, -1, -1) < 0 && errno == denied ? HELD : OUT;
}

static int
use_bpf(void)
{
    return call_number(SYS_bpf, EPERM);
}

static int
use_performance_counters(void)
{
    return call_number(SYS_perf_event_open, EPERM);
}

static int
use_userfaultfd(void)
{
    return syscall(SYS_userfaultfd, 1) >= 0 ? OUT : HELD;
}

static int
use_the_keyring(void)
{
    return syscall(SYS_keyctl, 0, -3, 0) >= 0 ? OUT : HELD;
}

static int
open_a_file_by_handle(void)
{
    return call_number(SYS_open_by_handle_at, EPERM);
}

static int
enter_a_namespace(void)
{
    return call_number(SYS_setns, EPERM);
}

static int
copy_a_descriptor_from_a_process(void)
{
    return call_number(438, EPERM);
}

static int
load_a_module(void)
{
    return call_number(SYS_finit_module, EPERM);
}

static int
rename_the_host(void)
{
    return call_number(SYS_sethostname, EPERM);
}

static int
type_into_the_terminal(void)
{
    /* No descriptor: the filter looks at the request first, and a filter that fails types nowhere. */
    errno = 0;
    return ioctl(-1, 0x5412, "x") < 0 && errno == EPERM ? HELD : OUT;
}

static int
lower_everyones_priority(void)
{
    /* Of a user who runs nothing, lest a filter that fails slow this machine down. */
    errno = 0;
    return setpriority(PRIO_USER, 3999999999U, 19) < 0 && errno == EPERM ? HELD : OUT;
}

/* Onto the cores that are kept for timing; here onto those it has, so that the host loses nothing. */
static int
choose_its_cores(void)
{
    cpu_set_t own;
    return sched_getaffinity(0, sizeof(own), &own) == 0 && sched_setaffinity(0, sizeof(own), &own) < 0 &&
                   errno == EPERM
               ? HELD
               : OUT;
}

static int
go_real_time(void)
{
    struct sched_param p = { .sched_priority = 1 };

    return sched_setscheduler(0, SCHED_FIFO, &p) == 0 ? OUT : HELD;
}

/* Whether it stays is seen from outside, by its key. */
static int
leave_a_shared_memory_segment(void)
{
    shmget(0x76657269, 4096, IPC_CREAT | 0666);
    return HELD;
}

static int
change_a_setting_of_the_kernel(void)
{
    return open("/proc/sys/kernel/core_pattern", O_WRONLY) >= 0 || open("/proc/sysrq-trigger", O_WRONLY) >= 0
               ? OUT
               : HELD;
}

static int
write_to_sysfs(void)
{
    return open("/sys/kernel/mm/transparent_hugepage/enabled", O_WRONLY) >= 0 ? OUT : HELD;
}

static int
open_a_gpu(void)
{
    char byte;
    int fd = open(world.gpu, O_RDWR);

    return fd >= 0 && read(fd, &byte, 1) == 1 && byte == 'g' ? OUT : HELD;
}

static int
open_the_disk(void)
{
    return open("/dev/vda", O_RDWR) >= 0 || open("/dev/sda", O_RDWR) >= 0 || open("/dev/mem", O_RDWR) >= 0
               ? OUT
               : HELD;
}

static int
raise_a_limit(void)
{
    struct rlimit r = { RLIM_INFINITY, RLIM_INFINITY };

    return setrlimit(RLIMIT_FSIZE, &r) == 0 ? OUT : HELD;
}

static int
write_a_huge_file(void)
{
    int fd = open("huge", O_WRONLY | O_CREAT, 0600);

    signal(SIGXFSZ, SIG_IGN);
    return fd >= 0 && pwrite(fd, "x", 1, FILE_BYTES) == 1 ? OUT : HELD;
}

#ifndef IS_SANITIZED
static int
take_all_memory(void)
{
    void *p = mmap(NULL, 2UL * MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p != MAP_FAILED ? OUT : HELD;
}
#endif

#if defined(__x86_64__)
static int
use_the_second_set_of_numbers(void)
{
    errno = 0;
    return syscall(0x40000000L + SYS_getpid) < 0 && errno == ENOSYS ? HELD : OUT;
}

static int
use_the_32_bit_calls(void)
{
    pid_t pid = fork();
    int status = 0;

    if (pid == 0) {
        long answer;
        __asm__ volatile("int $0x80" : "=a"(answer) : "a"(20L) : "memory"); /* getpid of i386 */
        _exit(answer > 0 ? OUT : HELD);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : HELD;
}
#endif

/* --- the referee and the zygote: their uid may be the child's where ids are shared --- */

static int
set_a_limit_of_the_daemon(void)
{
    struct rlimit none = { 0, 0 };

    return syscall(SYS_prlimit64, world.victim, RLIMIT_CORE, &none, NULL) == 0 ? OUT : HELD;
}

static int
lower_the_daemons_priority(void)
{
    return setpriority(PRIO_PROCESS, (id_t)world.victim, 1) == 0 ? OUT : HELD;
}

static int
lower_the_daemons_disk_priority(void)
{
    return syscall(SYS_ioprio_set, 1, world.victim, 3 << 13) == 0 ? OUT : HELD; /* class idle */
}

static int
keep_the_daemon_on_one_core(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 &&
                   sched_setaffinity(world.victim, sizeof(set), &set) == 0
               ? OUT
               : HELD;
}

static int
make_the_daemon_a_batch_job(void)
{
    struct sched_param p = { .sched_priority = 0 };

    return sched_setscheduler(world.victim, SCHED_BATCH, &p) == 0 ? OUT : HELD;
}

static int
change_the_daemons_schedule(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = { .size = 48, .policy = SCHED_OTHER, .nice = 2 };

    return syscall(SYS_sched_setattr, world.victim, &attr, 0) == 0 ? OUT : HELD;
}

static int
queue_a_signal_to_the_daemon(void)
{
    return sigqueue(world.victim, 0, (union sigval){ .sival_int = 0 }) == 0 ? OUT : HELD;
}

static int
signal_a_thread_of_the_daemon(void)
{
    return syscall(SYS_tgkill, world.victim, world.victim, 0) == 0 ? OUT : HELD;
}

static int
signal_the_zygote(void)
{
    pid_t zygote = getppid();

    return zygote > 0 && kill(zygote, 0) == 0 ? OUT : HELD;
}

static int
open_of_the_daemon(const char *file, int flags)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)world.victim, file);
    return open(path, flags) >= 0 ? OUT : HELD;
}

static int
read_the_daemons_environment(void)
{
    return open_of_the_daemon("environ", O_RDONLY);
}

static int
write_the_daemons_memory(void)
{
    return open_of_the_daemon("mem", O_RDWR);
}

static int
offer_the_daemon_to_the_oom_killer(void)
{
    return open_of_the_daemon("oom_score_adj", O_WRONLY);
}

/* --- more of the file system, the network, the kernel --- */

static int
leave_a_named_pipe(void)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/pipe", world.open_dir);
    if (mkfifo(path, 0600) != 0)
        return HELD;
    unlink(path);
    return OUT;
}

static int
rename_a_file_that_is_open_to_all(void)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/renamed", world.open_dir);
    if (rename(world.theirs, path) != 0)
        return HELD;
    return rename(path, world.theirs) == 0 ? OUT : BROKEN;
}

static int
link_a_file_into_its_scratch(void)
{
    if (link(world.theirs, "linked") != 0)
        return HELD;
    unlink("linked");
    return OUT;
}

static int
change_the_mode_of_a_file(void)
{
    return chmod(world.theirs, 0666) == 0 ? OUT : HELD;
}

static int
leave_its_root(void)
{
    return chroot(".") == 0 ? OUT : HELD;
}

static int
make_a_file_system(void)
{
    return syscall(430, "tmpfs", 0) >= 0 ? OUT : HELD; /* fsopen */
}

static int
listen_by_tcp_itself(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 ? OUT : HELD;
}

static int
see_raw_packets(void)
{
    return socket(AF_PACKET, SOCK_RAW, 0) >= 0 ? OUT : HELD;
}

static int
talk_to_the_hypervisor(void)
{
    return socket(AF_VSOCK, SOCK_STREAM, 0) >= 0 ? OUT : HELD;
}

static int
leave_a_message_queue(void)
{
    struct {
        long flags, most, size, current, reserved[4];
    } attr = { .most = 1, .size = 64 };
    long fd = syscall(SYS_mq_open, "verifierd-escape", O_CREAT | O_RDWR, 0600, &attr);

    if (fd >= 0)
        syscall(SYS_mq_unlink, "verifierd-escape");
    return fd >= 0 ? OUT : HELD;
}

static int
change_the_clock(void)
{
    return call_number(SYS_clock_settime, EPERM);
}

static int
make_all_memory_executable(void)
{
    return personality(0x0400000) >= 0 ? OUT : HELD; /* READ_IMPLIES_EXEC */
}

static int
give_pages_to_a_pipe(void)
{
    return call_number(SYS_vmsplice, EPERM);
}

static int
hide_memory_from_the_kernel(void)
{
    return call_number(447, EPERM); /* memfd_secret */
}

static int
write_to_the_kernel_log(void)
{
    return open("/dev/kmsg", O_WRONLY) >= 0 ? OUT : HELD;
}

static int
keep_groups(void)
{
    return getgroups(0, NULL) > 0 ? OUT : HELD;
}

#define N_THREADS 8

static void *
reach_out(void *arg)
{
    (void)arg;
    return open(world.theirs, O_WRONLY) >= 0 || can_create("/dev/shm") ? &world : NULL;
}

/* What a step applies to the calling thread alone would leave these out. */
static int
reach_out_from_every_thread(void)
{
    pthread_t threads[N_THREADS];
    void *got = NULL;
    int end = HELD;

    for (int i = 0; i < N_THREADS; i++)
        if (pthread_create(&threads[i], NULL, reach_out, NULL) != 0)
            return BROKEN;
    for (int i = 0; i < N_THREADS; i++)
        if (pthread_join(threads[i], &got) != 0 || got != NULL)
            end = OUT;
    return end;
}

static int
reach_out_from_a_grandchild(void)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        pid_t deeper = fork();
        if (deeper == 0)
            _exit(reach_out(NULL) ? OUT : HELD);
        _exit(waitpid(deeper, &status, 0) == deeper && WIFEXITED(status) ? WEXITSTATUS(status) : BROKEN);
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : BROKEN;
}

/* --- what must go on working: the driver, torch and Triton do all of this --- */

static int
do_what_the_driver_does(void)
{
    char path[64];
    struct sockaddr_un to;
    int fd, size;
    void *page;

    snprintf(path, sizeof(path), "/proc/self/task/%d/comm", (int)getpid());
    fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, "cuda", 4) != 4)
        return 20;
    size = unix_address(&to, "@cuda-uvmfd-0-0");
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&to, (socklen_t)size) != 0 || listen(fd, 4) != 0)
        return 21;
    fd = memfd_create("driver", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 22;
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || mprotect(page, 4096, PROT_READ | PROT_EXEC) != 0)
        return 23;
    if (mmap(NULL, 1UL << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED)
        return 24;
    if (syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0) != 0)
        return 25;
    if (open("/proc/meminfo", O_RDONLY) < 0 || open("/sys/devices/system/cpu/online", O_RDONLY) < 0)
        return 26;
    return open("/dev/null", O_RDWR) >= 0 ? HELD : 27;
}

static void *
say_yes(void *arg)
{
    *(int *)arg = 1;
    return NULL;
}

static int
do_what_a_compiler_does(void)
{
    pthread_t thread;
    int ran = 0, status = 0, fds[2];
    pid_t pid;

    if (pthread_create(&thread, NULL, say_yes, &ran) != 0 || pthread_join(thread, NULL) != 0 || !ran)
        return 30;
    pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c",
              "set -e; mkdir -p cache; echo 'exit 5' > cache/run; chmod +x cache/run; sh cache/run",
              (char *)NULL);
        _exit(31);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 5)
        return 31;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0 || pipe(fds) != 0)
        return 32;
    if (rename("cache", "cache2") != 0 || access("cache2/run", X_OK) != 0)
        return 33;
    pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    return kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid ? HELD : 34;
}

/* --- the stage --- */

static const struct attempt {
    const char *name;
    int (*act)(void);
    const char *layers; /* any one of these stops it, comma-separated; NULL: a required step does */
    enum {
        NO_CONTROL,
        CONTROL,
        ROOTS_CONTROL
    } control; /* without the optional layers it gets out (root does) */
} attempts[] = {
#define STOPPED_BY(act, layers) \
    {                           \
#act, act, layers, true \
    }
#define STOPPED_TWICE(act)     \
    {                          \
#act, act, NULL, false \
    }
    STOPPED_BY(write_into_a_directory_that_is_open_to_all, "landlock"),
    STOPPED_BY(write_into_shared_memory, "landlock"),
    STOPPED_BY(write_a_file_that_is_open_to_all, "landlock"),
    STOPPED_BY(truncate_a_file_that_is_open_to_all, "landlock"),
    STOPPED_BY(leave_a_link_outside, "landlock"),
    STOPPED_BY(read_a_neighbours_scratch, "uid,hidden"),
    STOPPED_BY(list_the_neighbours, "hidden"),
    STOPPED_TWICE(use_an_inherited_descriptor),
    STOPPED_BY(kill_the_daemon, "pid_namespace,seccomp,landlock_scopes"),
    STOPPED_BY(signal_by_pidfd, "pid_namespace,seccomp"),
    STOPPED_BY(find_the_daemon_in_proc, "proc"),
    STOPPED_BY(trace_a_process, "seccomp"),
    STOPPED_BY(read_another_process_memory, "seccomp"),
    STOPPED_TWICE(reach_into_the_init),
    STOPPED_BY(connect_by_tcp, "seccomp,net_namespace,landlock_tcp"),
    STOPPED_BY(send_by_udp, "seccomp,net_namespace"),
    STOPPED_BY(talk_to_the_kernel_by_netlink, "seccomp"),
    STOPPED_BY(connect_to_a_socket_in_a_directory, "seccomp"),
    STOPPED_BY(connect_to_an_abstract_socket, "seccomp,net_namespace,landlock_scopes"),
    STOPPED_BY(send_a_datagram_to_a_host_service, "seccomp"),
    STOPPED_BY(send_a_datagram_from_a_pair, "seccomp"),
    STOPPED_BY(send_a_message_from_a_pair, "seccomp"),
    STOPPED_BY(send_many_messages_from_a_pair, "seccomp"),
    STOPPED_BY(make_a_socket_hold_more, "seccomp"),
    STOPPED_TWICE(mount_something),
    STOPPED_BY(make_a_user_namespace, "seccomp"),
    STOPPED_BY(clone_into_a_user_namespace, "seccomp"),
    STOPPED_BY(clone3_into_a_user_namespace, "seccomp"),
    { "become_root", become_root, "uid,user_namespace", NO_CONTROL },
    STOPPED_BY(keep_a_capability, "bounding_set"),
    STOPPED_TWICE(run_a_setuid_program),
    STOPPED_TWICE(make_a_device_node),
    STOPPED_BY(use_io_uring, "seccomp"),
    STOPPED_BY(use_bpf, "seccomp"),
    STOPPED_BY(use_performance_counters, "seccomp"),
    { "use_userfaultfd", use_userfaultfd, "seccomp", NO_CONTROL },
    STOPPED_BY(use_the_keyring, "seccomp"),
    { "open_a_file_by_handle", open_a_file_by_handle, "seccomp", NO_CONTROL },
    STOPPED_BY(enter_a_namespace, "seccomp"),
    STOPPED_BY(copy_a_descriptor_from_a_process, "seccomp"),
    { "load_a_module", load_a_module, "seccomp", NO_CONTROL },
    { "rename_the_host", rename_the_host, "seccomp", NO_CONTROL },
    STOPPED_BY(type_into_the_terminal, "seccomp"),
    STOPPED_BY(lower_everyones_priority, "seccomp"),
    STOPPED_BY(choose_its_cores, "seccomp"),
    STOPPED_TWICE(go_real_time),
    { "change_a_setting_of_the_kernel", change_a_setting_of_the_kernel, "uid,user_namespace", ROOTS_CONTROL },
    { "write_to_sysfs", write_to_sysfs, "landlock,uid", ROOTS_CONTROL },
    { "open_the_disk", open_the_disk, "landlock,uid", NO_CONTROL },
    STOPPED_TWICE(raise_a_limit),
    STOPPED_TWICE(write_a_huge_file),
#ifndef IS_SANITIZED
    STOPPED_TWICE(take_all_memory),
#endif
#if defined(__x86_64__)
    { "use_the_second_set_of_numbers", use_the_second_set_of_numbers, "seccomp", NO_CONTROL },
    { "use_the_32_bit_calls", use_the_32_bit_calls, "seccomp", NO_CONTROL },
#endif
    STOPPED_BY(set_a_limit_of_the_daemon, "pid_namespace,seccomp"),
    STOPPED_BY(lower_the_daemons_priority, "pid_namespace,seccomp"),
    STOPPED_BY(lower_the_daemons_disk_priority, "pid_namespace,seccomp"),
    STOPPED_BY(keep_the_daemon_on_one_core, "pid_namespace,seccomp"),
    STOPPED_BY(make_the_daemon_a_batch_job, "pid_namespace,seccomp"),
    STOPPED_BY(change_the_daemons_schedule, "pid_namespace,seccomp"),
    STOPPED_BY(queue_a_signal_to_the_daemon, "pid_namespace,seccomp,landlock_scopes"),
    STOPPED_BY(signal_a_thread_of_the_daemon, "pid_namespace,seccomp,landlock_scopes"),
    STOPPED_BY(signal_the_zygote, "pid_namespace,seccomp,landlock_scopes"),
    STOPPED_BY(read_the_daemons_environment, "proc,uid"),
    STOPPED_BY(write_the_daemons_memory, "proc,uid"),
    STOPPED_BY(offer_the_daemon_to_the_oom_killer, "proc,uid"),
    STOPPED_BY(leave_a_named_pipe, "landlock"),
    STOPPED_BY(rename_a_file_that_is_open_to_all, "landlock"),
    STOPPED_BY(link_a_file_into_its_scratch, "landlock"),
    STOPPED_BY(change_the_mode_of_a_file, "uid"),
    STOPPED_TWICE(leave_its_root),
    STOPPED_TWICE(make_a_file_system),
    STOPPED_BY(listen_by_tcp_itself, "seccomp,landlock_tcp"),
    STOPPED_TWICE(see_raw_packets),
    { "talk_to_the_hypervisor", talk_to_the_hypervisor, "seccomp", NO_CONTROL },
    STOPPED_TWICE(leave_a_message_queue),
    STOPPED_BY(change_the_clock, "seccomp"),
    STOPPED_BY(make_all_memory_executable, "seccomp"),
    STOPPED_BY(give_pages_to_a_pipe, "seccomp"),
    STOPPED_BY(hide_memory_from_the_kernel, "seccomp"),
    { "write_to_the_kernel_log", write_to_the_kernel_log, "landlock,uid", NO_CONTROL },
    { "keep_groups", keep_groups, "uid", NO_CONTROL },
    STOPPED_BY(reach_out_from_every_thread, "landlock"),
    STOPPED_BY(reach_out_from_a_grandchild, "landlock"),
    { "open_a_gpu", open_a_gpu, "landlock,hidden", ROOTS_CONTROL },
    STOPPED_TWICE(do_what_the_driver_does),
    STOPPED_TWICE(do_what_a_compiler_does),
};

static struct harness_sandbox
settings(void)
{
    static const char *hidden[] = { NULL, NULL };
    struct harness_sandbox s = { .scratch = world.scratch,
                                 .uid = world.is_root ? CHILD_UID : -1,
                                 .memory_bytes = MEMORY_BYTES,
                                 .file_bytes = FILE_BYTES,
                                 .files = 256,
                                 .processes = 4096,
                                 .has_gpus = world.has_gpus,
                                 .may_connect = world.may_connect,
                                 .hidden = hidden };

    hidden[0] = world.base;
    return s;
}

/* In the child: confine, then act. */
static void
run_attempt(const struct harness_sandbox *s, int (*act)(void))
{
    char report[HARNESS_SANDBOX_REPORT_MAX];

    if (harness_sandbox_enter(s, report, sizeof(report)) != 0) {
        fprintf(stderr, "%s\n", harness_error());
        _exit(BROKEN);
    }
    _exit(act());
}

/* The bits of a comma-separated list of layers. */
static uint64_t
bits_of(const char *layers)
{
    uint64_t bits = 0;
    char name[64];

    for (const char *at = layers; at != NULL && *at != '\0';) {
        size_t n = strcspn(at, ",");
        snprintf(name, sizeof(name), "%.*s", (int)n, at);
        bits |= harness_sandbox_layer(name);
        at += n + (at[n] == ',');
    }
    return bits;
}

/* Without a layer those that stand on it are gone too. */
static uint64_t
take_away(uint64_t layers, uint64_t away)
{
    layers &= ~away;
    if (!(layers & bits_of("mount_namespace")))
        layers &= ~bits_of("proc,hidden");
    if (!(layers & bits_of("pid_namespace")))
        layers &= ~bits_of("proc");
    if (!(layers & bits_of("proc")))
        layers &= ~bits_of(
            "pid_namespace"); /* as the probe has it: CUDA does not start in one without its own /proc */
    if (!(layers & bits_of("landlock")))
        layers &= ~bits_of("landlock_tcp,landlock_scopes");
    return layers;
}

static int
run_in_child(struct harness_sandbox *s, int (*act)(void))
{
    int fd = harness_sandbox_wants_pid_namespace(s->layers) ? harness_pid_namespace_begin() : -1;
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        run_attempt(s, act);
    if (fd >= 0 && harness_pid_namespace_end(fd) != 0)
        return BROKEN;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return BROKEN;
    return WIFEXITED(status) ? WEXITSTATUS(status) : BROKEN;
}

/* As a zygote: probe, then one child for the attempt; without the layers `away`, or any, if it is the control. */
static int
be_zygote(const struct attempt *a, bool is_control, uint64_t away, int mode)
{
    struct harness_sandbox s = settings();
    char report[HARNESS_SANDBOX_REPORT_MAX];

    s.zygote = (uint64_t)mode;
    if (is_control) {
        s.uid = -1;
        s.hidden = NULL;
    } else if (harness_sandbox_probe(&s, &s.layers, report, sizeof(report)) != 0) {
        fprintf(stderr, "%s\n", harness_error());
        return BROKEN;
    }
    s.layers = take_away(s.layers, away);
    if (!is_control && a->layers != NULL && !(s.layers & bits_of(a->layers)))
        return EXCUSED;
    return run_in_child(&s, a->act);
}

/* Everything in processes of its own, as the daemon starts them: guard, zygote, child. */
static int
play(const struct attempt *a, bool is_control, uint64_t away)
{
    int status = 0;
    pid_t guard;

    /* Restore what an earlier control may have changed; root's child owns scratch from then on. */
    if (world.is_root && chown(world.scratch, 0, 0) != 0)
        return BROKEN;
    guard = fork();
    if (guard == 0) {
        int mode = is_control ? 0 : harness_zygote_unshare();
        pid_t zygote = mode == 0 ? 0 : fork();
        if (zygote > 0)
            harness_zygote_guard(zygote);
        _exit(be_zygote(a, is_control, away, mode));
    }
    if (guard < 0 || waitpid(guard, &status, 0) != guard || !WIFEXITED(status))
        return BROKEN;
    return WEXITSTATUS(status);
}

static void
attempt_is_held(void **state)
{
    const struct attempt *a = *state;
    bool has_control = a->control == CONTROL || (a->control == ROOTS_CONTROL && world.is_root);
    int end = play(a, false, 0);

    if (end == EXCUSED) {
        print_message("SKIP %s: the host lacks %s\n", a->name, a->layers);
        skip();
    }
    if (end != HELD)
        fail_msg("%s: ended as %d (%d: it got out)", a->name, end, OUT);
    if (has_control && (end = play(a, true, 0)) != OUT)
        fail_msg("%s without the layers ended as %d: the attempt proves nothing", a->name, end);
}

/*
 * Hosts that lack a layer: what else is named for an attempt holds it alone. Kernels before 6.12 have no scopes, those
 * before 6.7 no TCP rules, some no Landlock at all; a container may refuse namespaces.
 */
static const char *const lesser_hosts[] = {
    "landlock_scopes", "landlock_tcp,landlock_scopes",
    "landlock",        "pid_namespace,proc",
    "net_namespace",   "pid_namespace,proc,mount_namespace,hidden,ipc_namespace,net_namespace,uts_namespace",
};

static void
the_other_layers_hold(void **state)
{
    const char *away = *state;
    int played = 0;

    for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++) {
        const struct attempt *a = &attempts[i];
        int end;
        /* Where nothing that is named goes missing, it is as before. */
        if (a->layers == NULL || !(bits_of(a->layers) & bits_of(away)))
            continue;
        end = play(a, false, bits_of(away));
        if (end == EXCUSED)
            continue;
        played++;
        if (end != HELD)
            fail_msg("%s without %s: ended as %d (%d: it got out)", a->name, away, end, OUT);
    }
    if (played == 0) {
        print_message("SKIP without %s: the host has nothing else for what it stops\n", away);
        skip();
    }
}

static void
who_computes_on_a_gpu_can_open_it(void **state)
{
    const struct attempt a = { "open_a_gpu", open_a_gpu, NULL, NO_CONTROL };
    int end;

    (void)state;
    if (!world.is_root)
        skip();
    world.has_gpus = true;
    end = play(&a, false, 0);
    world.has_gpus = false;
    assert_int_equal(end, OUT);
}

/* --- whole-process behaviour --- */

static int
outlive_the_child(void)
{
    if (fork() == 0) {
        setsid();
        if (fork() == 0)
            for (;;)
                pause();
        _exit(0);
    }
    for (;;)
        pause();
    return OUT;
}

/* In a zygote. The write end of a pipe is inherited by every descendant: end of file means that none is left. */
static int
kill_and_look(int mode)
{
    struct harness_sandbox s = settings();
    char report[HARNESS_SANDBOX_REPORT_MAX], byte;
    int leash[2], fd, pidfd, n = 0;
    pid_t pid;

    s.zygote = (uint64_t)mode;
    if (pipe(leash) != 0 || harness_sandbox_probe(&s, &s.layers, report, sizeof(report)) != 0)
        return 20;
    if (!harness_sandbox_wants_pid_namespace(s.layers))
        return EXCUSED;
    s.keep = &leash[1];
    s.n_keep = 1;
    fd = harness_pid_namespace_begin();
    pid = fork();
    if (pid == 0)
        run_attempt(&s, outlive_the_child);
    if (harness_pid_namespace_end(fd) != 0)
        return 21;
    close(leash[1]);
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    /* Frozen together: the child, and the grandchild in a session of its own, once it is there. */
    for (int round = 0; n < 2 && round < 60000; round++) {
        usleep(1000);
        n = harness_stop(pidfd);
        if (n < 1 || harness_cont(pidfd) < 1) /* not always n: one that was dying is gone now */
            return 22;
    }
    if (n < 2)
        return 23;
    kill(pid, SIGKILL);
    if (waitpid(pid, NULL, 0) != pid)
        return 24;
    if (poll(&(struct pollfd){ .fd = leash[0], .events = POLLIN }, 1, 60000) != 1 ||
        read(leash[0], &byte, 1) != 0)
        return 25;
    return harness_stop(pidfd) == -ESRCH ? HELD : 26;
}

static void
nothing_survives_the_kill(void **state)
{
    int status = 0, end;
    pid_t guard = fork();
    (void)state;

    if (guard == 0) {
        int mode = harness_zygote_unshare();
        pid_t zygote = mode == 0 ? 0 : fork();
        if (zygote > 0)
            harness_zygote_guard(zygote);
        _exit(kill_and_look(mode));
    }
    assert_int_equal(waitpid(guard, &status, 0), guard);
    end = WIFEXITED(status) ? WEXITSTATUS(status) : BROKEN;
    if (end == EXCUSED) {
        print_message("SKIP nothing_survives_the_kill: the host lacks PID namespaces\n");
        skip();
    }
    assert_int_equal(end, HELD);
}

/*
 * Ubuntu refuses an ordinary user's namespace halfway, at the writing of its ids; so does Linux to a process whose /proc
 * files are not its own (PR_SET_DUMPABLE 0). The control is the same process with files of its own.
 */
static int
begin_a_zygote(bool is_refused)
{
    struct stat before, after;
    int mode, status = 0;

    if (world.is_root && (setgroups(0, NULL) != 0 || setresgid(65534, 65534, 65534) != 0 ||
                          setresuid(65534, 65534, 65534) != 0))
        return 20;
    if (stat("/proc/self/ns/user", &before) != 0 || prctl(PR_SET_DUMPABLE, is_refused ? 0 : 1) != 0)
        return 21;
    mode = harness_zygote_unshare();
    if (!is_refused)
        return mode == 2 ? HELD : EXCUSED;
    if (mode != 0 || harness_error()[0] == '\0' || stat("/proc/self/ns/user", &after) != 0)
        return 22;
    if (before.st_ino != after.st_ino)
        return 23;
    for (int i = 0; i < 2; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(getpid() == 1);
        if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
            return 24 + i;
    }
    return HELD;
}

static int
begun(bool is_refused)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        _exit(begin_a_zygote(is_refused));
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : BROKEN;
}

static void
a_namespace_refused_halfway_leaves_the_zygote_as_it_was(void **state)
{
    (void)state;
    if (begun(false) == EXCUSED)
        print_message("the host lacks user namespaces: it refuses them at once, not halfway\n");
    assert_int_equal(begun(true), HELD);
}

static int
count_without_end(void)
{
    for (;;)
        ++*world.victim_word;
    return OUT;
}

static void
a_frozen_child_does_not_move(void **state)
{
    uint32_t seen;
    pid_t pid = fork();
    int pidfd;
    (void)state;

    if (pid == 0)
        _exit(count_without_end());
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    for (int round = 0; round < 50; round++) {
        seen = *world.victim_word;
        while (*world.victim_word == seen)
            usleep(100);
        assert_int_equal(harness_stop(pidfd), 1);
        seen = *world.victim_word;
        usleep(500);
        assert_int_equal(*world.victim_word, seen);
        assert_int_equal(harness_cont(pidfd), 1);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(pidfd);
}

/* A step that the probe found and that then fails must end the child, and say which step it was. */
static void
half_a_sandbox_is_an_error(void **state)
{
    struct harness_sandbox s = settings();
    char report[HARNESS_SANDBOX_REPORT_MAX];
    int status;
    pid_t pid;
    (void)state;

    s.layers = ~0ULL; /* not in a PID namespace of its own, though the layers say so */
    pid = fork();
    if (pid == 0) {
        int code = harness_sandbox_enter(&s, report, sizeof(report));
        _exit(code < 0 && strstr(harness_error(), "step pid_namespace") != NULL ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void
wrong_settings_are_named(void **state)
{
    struct harness_sandbox s = settings();
    char report[HARNESS_SANDBOX_REPORT_MAX];
    uint64_t layers;
    (void)state;

    s.scratch = "relative";
    assert_int_equal(harness_sandbox_probe(&s, &layers, report, sizeof(report)), -EINVAL);
    s.scratch = "/nowhere/at/all";
    assert_true(harness_sandbox_probe(&s, &layers, report, sizeof(report)) < 0);
    assert_non_null(strstr(harness_error(), "step scratch: open /nowhere/at/all"));
    s = settings();
    s.uid = 0;
    assert_int_equal(harness_sandbox_probe(&s, &layers, report, sizeof(report)), -EINVAL);
    s = settings();
    assert_int_equal(harness_sandbox_probe(&s, &layers, report, 100), -EINVAL);
}

/* --- the world --- */

static void
write_text(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);

    if (fd < 0 || write(fd, text, strlen(text)) < 0 || fchmod(fd, mode) != 0)
        abort();
    close(fd);
}

static void
copy_id_with_setuid(void)
{
    char command[400];

    snprintf(command, sizeof(command), "cp /usr/bin/id %s && chmod 4755 %s", world.setuid_copy,
             world.setuid_copy);
    if (system(command) != 0)
        abort();
}

static int
listen_on(const char *name, int type)
{
    struct sockaddr_un to;
    int size = unix_address(&to, name);
    int fd = socket(AF_UNIX, type, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&to, (socklen_t)size) != 0 ||
        (type == SOCK_STREAM && listen(fd, 64) != 0))
        abort();
    if (name[0] != '@' && chmod(name, 0777) != 0)
        abort();
    return fd;
}

static int
talk_to_a_socket_of_its_own(void)
{
    listen_on("@verifierd-test-own", SOCK_STREAM);
    return can_connect("@verifierd-test-own") ? OUT : HELD;
}

/* As compute-sanitizer does. The host's are another namespace's all the same. */
static void
who_may_connect_reaches_its_own_sockets_alone(void **state)
{
    const struct attempt own = { "talk_to_a_socket_of_its_own", talk_to_a_socket_of_its_own, NULL,
                                 NO_CONTROL };
    const struct attempt other = { "connect_to_an_abstract_socket", connect_to_an_abstract_socket,
                                   "net_namespace,landlock_scopes", NO_CONTROL };
    int end;

    (void)state;
    assert_int_equal(play(&own, false, 0), HELD);
    world.may_connect = true;
    end = play(&own, false, 0);
    int others = play(&other, false, 0);
    world.may_connect = false;
    assert_int_equal(end, OUT);
    assert_true(others == HELD || others == EXCUSED);
}

static void
listen_by_tcp(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t size = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, size) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        abort();
    world.tcp_port = ntohs(at.sin_port);
}

static void
make_directories(void)
{
    snprintf(world.base, sizeof(world.base), "/tmp/verifierd-sandbox-XXXXXX");
    if (mkdtemp(world.base) == NULL || chmod(world.base, 0755) != 0)
        abort();
    snprintf(world.scratch, sizeof(world.scratch), "%s/mine", world.base);
    snprintf(world.neighbour, sizeof(world.neighbour), "%s/neighbour", world.base);
    snprintf(world.open_dir, sizeof(world.open_dir), "%s.open", world.base);
    if (mkdir(world.scratch, 0700) != 0 || mkdir(world.neighbour, 0700) != 0 ||
        mkdir(world.open_dir, 0777) != 0 || chmod(world.open_dir, 0777) != 0)
        abort();
}

/* Without capabilities, as the controls are: the kernel lets nobody meddle with a process that has more than he has. */
static void
be_victim(void)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2];

    memset(none, 0, sizeof(none));
    if (syscall(SYS_capset, &header, none) != 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0)
        _exit(1);
    for (;;)
        pause();
}

static int
build_world(void **state)
{
    (void)state;
    world.is_root = geteuid() == 0;
    make_directories();
    snprintf(world.secret, sizeof(world.secret), "%s/answer", world.neighbour);
    snprintf(world.theirs, sizeof(world.theirs), "%s/theirs", world.open_dir);
    snprintf(world.setuid_copy, sizeof(world.setuid_copy), "%s/id", world.open_dir);
    snprintf(world.socket_path, sizeof(world.socket_path), "%s/stream", world.open_dir);
    snprintf(world.datagram_path, sizeof(world.datagram_path), "%s/datagram", world.open_dir);
    snprintf(world.abstract_name, sizeof(world.abstract_name), "@verifierd-test-%d", (int)getpid());
    snprintf(world.gpu, sizeof(world.gpu), "/dev/nvidia-test-%d", (int)getpid());
    write_text(world.secret, "42", 0600);
    if (world.is_root)
        write_text(world.gpu, "gpu", 0666);
    write_text(world.theirs, "theirs", 0666);
    copy_id_with_setuid();
    listen_on(world.socket_path, SOCK_STREAM);
    listen_on(world.datagram_path, SOCK_DGRAM);
    listen_on(world.abstract_name, SOCK_STREAM);
    listen_by_tcp();
    world.secret_fd = open(world.secret, O_RDONLY);
    world.victim_word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    world.victim = fork();
    if (world.victim == 0)
        be_victim();
    return 0;
}

static int
tear_down_world(void **state)
{
    char command[200];
    int status = 0;
    (void)state;

    kill(world.victim, SIGKILL);
    waitpid(world.victim, &status, 0);
    unlink(world.gpu);
    snprintf(command, sizeof(command), "rm -rf %s %s.open", world.base, world.base);
    return system(command);
}

static void
no_segment_was_left_behind(void **state)
{
    struct attempt a = { "leave_a_shared_memory_segment", leave_a_shared_memory_segment,
                         "ipc_namespace,seccomp", NO_CONTROL };
    int id;
    (void)state;

    assert_int_equal(play(&a, false, 0), HELD);
    assert_int_equal(shmget(0x76657269, 4096, 0), -1);
    assert_int_equal(play(&a, true, 0), HELD);
    id = shmget(0x76657269, 4096, 0); /* the control's */
    assert_true(id >= 0);
    shmctl(id, IPC_RMID, NULL);
}

#define N_ATTEMPTS (sizeof(attempts) / sizeof(attempts[0]))
#define N_LESSER (sizeof(lesser_hosts) / sizeof(lesser_hosts[0]))
_Static_assert(N_ATTEMPTS >= 80, "the suite does not shrink");

int
main(void)
{
    struct CMUnitTest tests[N_ATTEMPTS + N_LESSER + 8] = { { NULL, NULL, NULL, NULL, NULL } };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(no_segment_was_left_behind),
        cmocka_unit_test(who_computes_on_a_gpu_can_open_it),
        cmocka_unit_test(who_may_connect_reaches_its_own_sockets_alone),
        cmocka_unit_test(nothing_survives_the_kill),
        cmocka_unit_test(a_namespace_refused_halfway_leaves_the_zygote_as_it_was),
        cmocka_unit_test(a_frozen_child_does_not_move),
        cmocka_unit_test(half_a_sandbox_is_an_error),
        cmocka_unit_test(wrong_settings_are_named),
    };

    for (size_t i = 0; i < N_ATTEMPTS; i++)
        tests[i] = (struct CMUnitTest){ attempts[i].name, attempt_is_held, NULL, NULL,
                                        (void *)(uintptr_t)&attempts[i] };
    for (size_t i = 0; i < N_LESSER; i++)
        tests[N_ATTEMPTS + i] = (struct CMUnitTest){ lesser_hosts[i], the_other_layers_hold, NULL, NULL,
                                                     (void *)(uintptr_t)lesser_hosts[i] };
    memcpy(&tests[N_ATTEMPTS + N_LESSER], others, sizeof(others));
    return cmocka_run_group_tests(tests, build_world, tear_down_world);
}
