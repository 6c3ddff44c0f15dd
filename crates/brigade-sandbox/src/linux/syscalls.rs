//! System calls that a command in a sandbox cannot make.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

use crate::Sandbox;

/// Calls that reach into other processes or into the kernel. No build, test or server needs them.
const DENIED: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Calls that a sandbox inside the sandbox needs.
const NAMESPACES: &[libc::c_long] = &[
    libc::SYS_chroot,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_umount2,
    libc::SYS_unshare,
];

/// Flags of `clone` that create a namespace.
const NAMESPACE_FLAGS: [libc::c_int; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// Requests that put input into a terminal.
const TERMINAL_INPUT: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

/// Socket families that a network namespace isolates.
const ISOLATED_FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Filters of a command, compiled before it starts.
pub(crate) struct SyscallFilters(Vec<BpfProgram>);

impl SyscallFilters {
    /// Compiles the filters. Without a network namespace, a command without network gets only UNIX sockets.
    pub(crate) fn compile(sandbox: &Sandbox, has_network_namespace: bool) -> io::Result<SyscallFilters> {
        let mut rules: BTreeMap<libc::c_long, Vec<SeccompRule>> = BTreeMap::new();
        rules.extend(DENIED.iter().map(|call| (*call, Vec::new())));
        let requests = TERMINAL_INPUT
            .map(|request| argument(1, SeccompCmpOp::Eq, request).and_then(|is| rule(vec![is])));
        rules.insert(libc::SYS_ioctl, requests.into_iter().collect::<io::Result<_>>()?);
        let families = match sandbox.network {
            crate::Network::Off | crate::Network::Proxy if !has_network_namespace => &ISOLATED_FAMILIES[..1],
            crate::Network::Off | crate::Network::Proxy | crate::Network::On => &ISOLATED_FAMILIES[..],
        };
        let other_family = families.iter().map(|family| argument(0, SeccompCmpOp::Ne, *family as u64));
        rules.insert(libc::SYS_socket, vec![rule(other_family.collect::<io::Result<_>>()?)?]);
        let mut filters = Vec::new();
        if !sandbox.nested_namespaces {
            rules.extend(NAMESPACES.iter().map(|call| (*call, Vec::new())));
            let flags = NAMESPACE_FLAGS.map(|flag| {
                let flag = flag as u32 as u64;
                argument(0, SeccompCmpOp::MaskedEq(flag), flag).and_then(|is| rule(vec![is]))
            });
            rules.insert(libc::SYS_clone, flags.into_iter().collect::<io::Result<_>>()?);
            // Its flags are in memory, where a filter cannot see them. C libraries fall back to `clone`.
            filters.push(program(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)?);
        }
        filters.push(program(rules, libc::EPERM)?);
        filters.extend(other_call_table());
        Ok(SyscallFilters(filters))
    }

    /// Applies the filters to this process and all that it starts.
    pub(crate) fn apply(&self) -> io::Result<()> {
        self.0.iter().try_for_each(|filter| seccompiler::apply_filter(filter).map_err(io::Error::other))
    }
}

/// Denies the calls of the x32 interface, whose numbers the other filters do not know.
fn other_call_table() -> Option<BpfProgram> {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const X32: u32 = 0x4000_0000;
    let step = |code, k, jt| sock_filter { code, jt, jf: 0, k };
    let denied = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    cfg!(target_arch = "x86_64").then(|| {
        vec![
            step(LOAD_NUMBER, 0, 0),
            step(JUMP_IF_AT_LEAST, X32, 1),
            step(RETURN, libc::SECCOMP_RET_ALLOW, 0),
            step(RETURN, denied, 0),
        ]
    })
}

fn argument(index: u8, compare: SeccompCmpOp, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, compare, value).map_err(io::Error::other)
}

fn rule(conditions: Vec<SeccompCondition>) -> io::Result<SeccompRule> {
    SeccompRule::new(conditions).map_err(io::Error::other)
}

fn program(rules: BTreeMap<libc::c_long, Vec<SeccompRule>>, error: libc::c_int) -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let denied = SeccompAction::Errno(error as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch).map_err(io::Error::other)?;
    filter.try_into().map_err(io::Error::other)
}
