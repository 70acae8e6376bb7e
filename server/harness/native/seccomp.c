#include "server/harness/native/seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Theory of operation. Each row of the table below becomes a few instructions of one classic BPF program: compare the
 * call's number; where a row looks at an argument, load its lower half (all of them are ints to the kernel), test it,
 * load the number again. Rows with the same number therefore add up. What no row denies is allowed.
 */

#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCH AUDIT_ARCH_AARCH64
#else
#error "the seccomp filter knows x86-64 and arm64"
#endif

#define NAMESPACES                                                                                \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | \
     CLONE_NEWNET)
#define CLONE_NEWTIME_BIT 0x80
#define SOCKET_TYPE_MASK 0xf
#define IOPRIO_WHO_PROCESS_ONE 1

enum test {
    ALWAYS,
    WITH_BITS,    /* the argument has any of the bits */
    WHEN_IS,      /* the argument is the value */
    UNLESS_IS,    /* the argument is not the value */
    UNLESS_OWN,   /* the argument is neither 0 nor the caller's own pid */
    UNLESS_STREAM /* the argument, its flags aside, is neither SOCK_STREAM nor SOCK_SEQPACKET */
};

enum when { EVER, WITHOUT_PID_NAMESPACE, WITHOUT_IPC_NAMESPACE, WITH_SIBLINGS, UNLESS_MAY_CONNECT };

struct row {
    int number;
    enum test test;
    int argument;
    uint32_t value;
    int answer; /* errno that the caller sees */
    enum when when;
};

#define NO(call)                              \
    {                                         \
        SYS_##call, ALWAYS, 0, 0, EPERM, EVER \
    }

static const struct row rows[] = {
    /* Terminals: typing into the daemon's. First, because ioctl is the driver's busiest call. */
    { SYS_ioctl, WHEN_IS, 1, TIOCSTI, EPERM, EVER },
    { SYS_ioctl, WHEN_IS, 1, TIOCLINUX, EPERM, EVER },
    { SYS_ioctl, WHEN_IS, 1, TIOCSETD, EPERM, EVER },

    /* Other processes' memory and descriptors. */
    NO(ptrace),
    NO(process_vm_readv),
    NO(process_vm_writev),
    NO(kcmp),
    NO(pidfd_getfd),
    NO(process_madvise),
    NO(process_mrelease),
    NO(migrate_pages),

    /* Interfaces with a long record of kernel holes, and of no use to a kernel under test. io_uring would also carry
       out calls that this filter never sees. */
    NO(io_uring_setup),
    NO(io_uring_enter),
    NO(io_uring_register),
    NO(bpf),
    NO(perf_event_open),
    NO(userfaultfd),
    NO(vmsplice),
    NO(memfd_secret),
    NO(fanotify_init),
    NO(open_by_handle_at),
    NO(add_key),
    NO(request_key),
    NO(keyctl),

    /* The shape of the file system. */
    NO(mount),
    NO(umount2),
    NO(pivot_root),
    NO(chroot),
    NO(open_tree),
    NO(move_mount),
    NO(fsopen),
    NO(fsconfig),
    NO(fsmount),
    NO(fspick),
    NO(mount_setattr),
    NO(quotactl),
    NO(quotactl_fd),
    NO(swapon),
    NO(swapoff),

    /* New namespaces would give back the capabilities that were dropped. clone3 keeps its flags in memory where no
       filter can read them: "no such call" makes the C library use clone. */
    NO(setns),
    { SYS_unshare, WITH_BITS, 0, NAMESPACES | CLONE_NEWTIME_BIT, EPERM, EVER },
    { SYS_clone, WITH_BITS, 0, NAMESPACES, EPERM, EVER },
    { SYS_clone3, ALWAYS, 0, 0, ENOSYS, EVER },

    /* The machine itself: its kernel, clock, name, log, accounting. */
    NO(kexec_load),
    NO(kexec_file_load),
    NO(reboot),
    NO(init_module),
    NO(finit_module),
    NO(delete_module),
    NO(acct),
    NO(settimeofday),
    NO(clock_settime),
    NO(clock_adjtime),
    NO(adjtimex),
    NO(sethostname),
    NO(setdomainname),
    NO(syslog),
    NO(vhangup),
    NO(nfsservctl),
    NO(lookup_dcookie),
#if defined(__x86_64__)
    NO(iopl),
    NO(ioperm),
    NO(modify_ldt),
    NO(uselib),
    NO(ustat),
    NO(sysfs),
    NO(_sysctl),
    NO(create_module),
    NO(get_kernel_syms),
    NO(query_module),
#endif
    /* READ_IMPLIES_EXEC and the layouts of other systems; asking (all ones) is fine. */
    { SYS_personality, UNLESS_IS, 0, 0xffffffffU, EPERM, EVER },

    /* The network. The driver makes a listening AF_UNIX SOCK_SEQPACKET socket and nothing else; datagrams would reach
       the sockets of host services by name, and so would connect: it fails as if none listened there. sendto, sendmsg
       and sendmmsg name an address that only a datagram socket would use, and a pair may be of that type, too. */
    { SYS_socket, UNLESS_IS, 0, AF_UNIX, EAFNOSUPPORT, EVER },
    { SYS_socket, UNLESS_STREAM, 1, 0, EACCES, EVER },
    { SYS_socketpair, UNLESS_IS, 0, AF_UNIX, EAFNOSUPPORT, EVER },
    { SYS_socketpair, UNLESS_STREAM, 1, 0, EACCES, EVER },
    { SYS_connect, ALWAYS, 0, 0, ENOENT, UNLESS_MAY_CONNECT },

    /* Data in a socket are in no process's pages: watch.c counts each socket by its initial buffer size. */
    { SYS_setsockopt, WHEN_IS, 2, SO_SNDBUF, EPERM, EVER },
    { SYS_setsockopt, WHEN_IS, 2, SO_RCVBUF, EPERM, EVER },
    { SYS_setsockopt, WHEN_IS, 2, SO_SNDBUFFORCE, EPERM, EVER },
    { SYS_setsockopt, WHEN_IS, 2, SO_RCVBUFFORCE, EPERM, EVER },

    /* Priorities by user or group would reach every process of the uid, the daemon's too where ids are shared. */
    { SYS_setpriority, UNLESS_IS, 0, PRIO_PROCESS, EPERM, EVER },
    { SYS_ioprio_set, UNLESS_IS, 0, IOPRIO_WHO_PROCESS_ONE, EPERM, EVER },

    /* Cores are kept for timing: a compiling process stays off them, and a timed one does not spread. */
    { SYS_sched_setaffinity, ALWAYS, 0, 0, EPERM, EVER },

    /* In a PID namespace a pid can name only the child's own; without one, only itself. */
    { SYS_kill, UNLESS_OWN, 0, 0, EPERM, WITHOUT_PID_NAMESPACE },
    { SYS_kill, WHEN_IS, 0, 0, EPERM, WITH_SIBLINGS },
    { SYS_tgkill, UNLESS_OWN, 0, 0, EPERM, WITHOUT_PID_NAMESPACE },
    { SYS_tkill, ALWAYS, 0, 0, EPERM, WITHOUT_PID_NAMESPACE },
    { SYS_rt_sigqueueinfo, UNLESS_OWN, 0, 0, EPERM, WITHOUT_PID_NAMESPACE },
    { SYS_rt_tgsigqueueinfo, UNLESS_OWN, 0, 0, EPERM, WITHOUT_PID_NAMESPACE },
    { SYS_pidfd_open, UNLESS_OWN, 0, 0, EPERM, WITHOUT_PID_NAMESPACE },
    { SYS_pidfd_send_signal, ALWAYS, 0, 0, EPERM, WITHOUT_PID_NAMESPACE },
    { SYS_setpriority, UNLESS_OWN, 1, 0, EPERM, WITHOUT_PID_NAMESPACE },
    { SYS_ioprio_set, UNLESS_OWN, 1, 0, EPERM, WITHOUT_PID_NAMESPACE },
    { SYS_sched_setscheduler, UNLESS_OWN, 0, 0, EPERM, WITHOUT_PID_NAMESPACE },
    { SYS_sched_setparam, UNLESS_OWN, 0, 0, EPERM, WITHOUT_PID_NAMESPACE },
    { SYS_sched_setattr, UNLESS_OWN, 0, 0, EPERM, WITHOUT_PID_NAMESPACE },
    { SYS_prlimit64, UNLESS_OWN, 0, 0, EPERM, WITHOUT_PID_NAMESPACE },
    /* Without one all its processes are killed by their process group, so none may leave it. */
    { SYS_setsid, ALWAYS, 0, 0, EPERM, WITHOUT_PID_NAMESPACE },
    { SYS_setpgid, ALWAYS, 0, 0, EPERM, WITHOUT_PID_NAMESPACE },

    /* System V objects outlive their maker unless their namespace goes with it. */
    { SYS_shmget, ALWAYS, 0, 0, EPERM, WITHOUT_IPC_NAMESPACE },
    { SYS_msgget, ALWAYS, 0, 0, EPERM, WITHOUT_IPC_NAMESPACE },
    { SYS_semget, ALWAYS, 0, 0, EPERM, WITHOUT_IPC_NAMESPACE },
    { SYS_mq_open, ALWAYS, 0, 0, EPERM, WITHOUT_IPC_NAMESPACE },
};

#define N_ROWS ((int)(sizeof(rows) / sizeof(rows[0])))
#define ROW_INSTRUCTIONS 8
#define PROGRAM_MAX (N_ROWS * ROW_INSTRUCTIONS + 16)

struct program {
    struct sock_filter code[PROGRAM_MAX];
    unsigned short n;
};

static void
emit(struct program *p, uint16_t op, uint8_t if_true, uint8_t if_false, uint32_t k)
{
    p->code[p->n++] = (struct sock_filter){ op, if_true, if_false, k };
}

static void
emit_load(struct program *p, size_t offset)
{
    emit(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

/* Little-endian: the lower half of an argument comes first. */
static void
emit_load_argument(struct program *p, int argument)
{
    emit_load(p, offsetof(struct seccomp_data, args) + (size_t)argument * sizeof(uint64_t));
}

/* The test on the loaded argument: falls into the next instruction to deny, jumps over it to go on. */
static void
emit_test(struct program *p, const struct row *row)
{
    switch (row->test) {
    case WITH_BITS:
        emit(p, BPF_JMP | BPF_JSET | BPF_K, 0, 1, row->value);
        break;
    case WHEN_IS:
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, row->value);
        break;
    case UNLESS_IS:
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, row->value);
        break;
    case UNLESS_OWN:
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, 2, 0, 0);
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, (uint32_t)getpid());
        break;
    case UNLESS_STREAM:
        emit(p, BPF_ALU | BPF_AND | BPF_K, 0, 0, SOCKET_TYPE_MASK);
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, 2, 0, SOCK_STREAM);
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, SOCK_SEQPACKET);
        break;
    case ALWAYS:
        break;
    }
}

static void
emit_row(struct program *p, const struct row *row)
{
    uint32_t deny = SECCOMP_RET_ERRNO | (uint32_t)row->answer;
    unsigned short jump = p->n;

    emit(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, (uint32_t)row->number);
    if (row->test != ALWAYS) {
        emit_load_argument(p, row->argument);
        emit_test(p, row);
    }
    emit(p, BPF_RET | BPF_K, 0, 0, deny);
    if (row->test != ALWAYS)
        emit_load(p, offsetof(struct seccomp_data, nr));
    p->code[jump].jf = (uint8_t)(p->n - jump - 1);
}

static bool
applies(const struct row *row, const struct seccomp_given *given)
{
    return row->when == EVER || (row->when == WITHOUT_PID_NAMESPACE && !given->has_pid_namespace) ||
           (row->when == WITHOUT_IPC_NAMESPACE && !given->has_ipc_namespace) ||
           (row->when == WITH_SIBLINGS && given->has_siblings) ||
           (row->when == UNLESS_MAY_CONNECT && !given->may_connect);
}

static void
build(struct program *p, const struct seccomp_given *given)
{
    p->n = 0;
    emit_load(p, offsetof(struct seccomp_data, arch));
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, OWN_ARCH);
    emit(p, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
    emit_load(p, offsetof(struct seccomp_data, nr));
#if defined(__x86_64__)
    /* The x32 numbers are a second door to every call. */
    emit(p, BPF_JMP | BPF_JGE | BPF_K, 0, 1, 0x40000000U);
    emit(p, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS);
#endif
    for (int i = 0; i < N_ROWS; i++)
        if (applies(&rows[i], given))
            emit_row(p, &rows[i]);
    emit(p, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
}

int
seccomp_enter(const struct seccomp_given *given)
{
    struct program p;
    struct sock_fprog filter;

    build(&p, given);
    filter = (struct sock_fprog){ .len = p.n, .filter = p.code };
    /* SPEC_ALLOW: without it older kernels slow every candidate down by a mitigation that guards secrets of the
       process itself, and it has none. */
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &filter) != 0)
        return harness_fail_errno("seccomp filter of %u instructions", (unsigned)p.n);
    return 0;
}

int
harness_signal_nobody(void)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return harness_fail_errno("no_new_privs");
    return seccomp_enter(&(struct seccomp_given){ .has_ipc_namespace = true, .has_siblings = true });
}
