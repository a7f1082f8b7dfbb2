//! Starting a process without copying this one.
//!
//! `fork` copies the page tables: milliseconds for a process of some hundred MiB, and every thread then pays for each
//! page that it touches. The standard library avoids that (`posix_spawn`) only while nothing is to be done in the
//! child, and something must be: asking for the signal at the parent's death. So this does what `posix_spawn` does
//! inside, plus that: `clone` with `CLONE_VM | CLONE_VFORK`. The child runs in this process's memory, on a stack of its
//! own, while the calling thread stands still, until it has become the program.
//!
//! What the child does, in order: default signal handlers; death signal; process group; descriptors 0 to 2; working
//! directory; signal mask; `execve`. The number of the error that ends this early is left where the parent finds it.

use super::process::Launch;
use rustix::process::Pid;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// Stack of the child until it is another program. What it runs needs a few hundred bytes, the C library's wrappers
/// included.
const STACK_BYTES: usize = 64 * 1024;
/// Signals are numbered from 1 to this.
const SIGNAL_MAX: c_int = 64;

/// A child that runs its program.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) pid: Pid,
    /// Its pidfd.
    pub(super) fd: OwnedFd,
}

/// Everything that the child needs, made before it exists: it may neither allocate nor wait.
struct Plan {
    program: *const c_char,
    args: *const *const c_char,
    env: *const *const c_char,
    /// Null: stay.
    dir: *const c_char,
    input: RawFd,
    output: RawFd,
    parent: libc::pid_t,
    /// 0 while nothing went wrong.
    error: AtomicI32,
}

/// Starts `launch` on the calling thread, whose end is the child's end. `null` is `/dev/null`, for what is not given.
///
/// # Errors
/// A NUL in a text, or what the system says; then no process is left.
pub(super) fn start(launch: &Launch, null: &File, output: Option<&File>) -> io::Result<Started> {
    let program = CString::new(launch.program.as_os_str().as_bytes())?;
    let args =
        texts(std::iter::once(launch.program.as_os_str().as_bytes()).chain(launch.args.iter().map(String::as_bytes)))?;
    let env: Vec<_> = launch.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let env = texts(env.iter().map(String::as_bytes))?;
    let dir = launch.dir.as_ref().map(|dir| CString::new(dir.as_os_str().as_bytes())).transpose()?;
    let (arg_list, env_list) = (pointers(&args), pointers(&env));
    let plan = Plan {
        program: program.as_ptr(),
        args: arg_list.as_ptr(),
        env: env_list.as_ptr(),
        dir: dir.as_ref().map_or(ptr::null(), |dir| dir.as_ptr()),
        input: null.as_raw_fd(),
        output: output.unwrap_or(null).as_raw_fd(),
        parent: rustix::process::getpid().as_raw_nonzero().get(),
        error: AtomicI32::new(0),
    };
    if plan.input <= libc::STDERR_FILENO || plan.output <= libc::STDERR_FILENO {
        // dup2 onto itself would leave it to be closed. Rust opens 0 to 2 when it starts, so nothing of ours is there.
        return Err(io::Error::other("descriptors 0 to 2 of this process are not open"));
    }
    let mut stack = vec![0_u8; STACK_BYTES];
    let (pid, fd) = clone_blocked(&plan, &mut stack)?;
    let started = Started { pid, fd };
    match plan.error.load(Ordering::Acquire) {
        0 => Ok(started),
        number => {
            // It has ended, or is about to, with nobody else to take its status.
            let _ = rustix::process::waitpid(Some(started.pid), rustix::process::WaitOptions::empty());
            Err(io::Error::from_raw_os_error(number))
        }
    }
}

/// Runs [`child`] in a new process with all signals blocked, and returns when it is another program or gone.
fn clone_blocked(plan: &Plan, stack: &mut [u8]) -> io::Result<(Pid, OwnedFd)> {
    let mut pidfd: RawFd = -1;
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY:
    // - sigfillset and pthread_sigmask get valid pointers; `before` is written before it is read.
    // - The child gets the end of `stack`, aligned to 16 bytes, as stacks grow downwards on all platforms that Rust and
    //   Linux share; nobody else uses that memory.
    // - The child shares this process's memory. CLONE_VFORK keeps this thread, and with it `plan`, what `plan` points
    //   to, `stack` and `pidfd`, in place until the child has called execve or _exit. It writes to `plan.error`, an
    //   atomic, and to its stack, nowhere else.
    // - It also shares this thread's thread-local storage, of which its system calls touch errno; this thread stands
    //   still meanwhile.
    // - All signals are blocked, so no handler of this process runs in the child; it gives them their defaults before
    //   it unblocks them.
    // - With CLONE_PIDFD the kernel writes the new descriptor to the fifth argument, before the call returns.
    let pid = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        let refused = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        if refused != 0 {
            return Err(io::Error::from_raw_os_error(refused));
        }
        let end = stack.as_mut_ptr().add(stack.len());
        let top = end.sub(end as usize % 16);
        let argument = ptr::from_ref(plan).cast_mut().cast::<c_void>();
        let pid = libc::clone(child, top.cast(), flags, argument, &raw mut pidfd);
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        if pid < 0 { Err(error) } else { Ok(pid) }
    }?;
    // SAFETY: clone succeeded, so the kernel has opened this descriptor for us, and nobody else knows of it.
    let fd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
    Ok((pid, fd))
}

/// The child's life: becomes the program, or leaves the error and ends. Only system calls: no allocation, no lock, no
/// panic.
extern "C" fn child(argument: *mut c_void) -> c_int {
    // SAFETY: `argument` is the Plan of `start`, which stands still until this function has ended or become the
    // program. Its pointers are to NUL-terminated texts and NULL-terminated lists of such. All functions called are
    // async-signal-safe.
    unsafe {
        let plan = &*argument.cast::<Plan>();
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        for signal in 1..=SIGNAL_MAX {
            libc::sigaction(signal, &raw const default, ptr::null_mut()); // Refused for those that have no handlers.
        }
        let prepared = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0
            && is_parent(plan.parent)
            && libc::setpgid(0, 0) == 0
            && libc::dup2(plan.input, libc::STDIN_FILENO) >= 0
            && libc::dup2(plan.output, libc::STDOUT_FILENO) >= 0
            && libc::dup2(plan.output, libc::STDERR_FILENO) >= 0
            && (plan.dir.is_null() || libc::chdir(plan.dir) == 0);
        if prepared {
            let mut none = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
            libc::execve(plan.program, plan.args, plan.env); // Returns only with an error.
        }
        plan.error.store(*libc::__errno_location(), Ordering::Release);
        libc::_exit(127)
    }
}

/// Whether the parent still lives; if not, the death signal comes too late to be sent.
///
/// # Safety
/// None beyond being called in the child: it is one system call, and sets errno where it answers no.
unsafe fn is_parent(parent: libc::pid_t) -> bool {
    // SAFETY: getppid cannot fail, and errno is this thread's.
    unsafe {
        if libc::getppid() == parent {
            return true;
        }
        *libc::__errno_location() = libc::ESRCH;
        false
    }
}

fn texts<'a>(texts: impl Iterator<Item = &'a [u8]>) -> io::Result<Vec<CString>> {
    texts.map(|text| CString::new(text).map_err(io::Error::from)).collect()
}

/// A NULL-terminated list that borrows from `texts`.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}
