//! Calls that concern the whole process: signals, users, limits, going into the background.

use std::ffi::CString;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

/// Signals the server acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGINT, SIGTERM: stop.
    Stop,
    /// SIGUSR1: stop gracefully.
    StopGracefully,
    /// SIGHUP: read again what can be read again.
    Reload,
}

/// A descriptor that signals come from instead of interrupting the process.
#[derive(Debug)]
pub(crate) struct Signals(OwnedFd);

impl Signals {
    /// Takes the signals this server acts on out of the way of this thread and of those it starts, and ignores
    /// SIGPIPE.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: `sigset_t` is a plain array of integers, for which zero is a value; `sigemptyset` sets it up anyway.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is a live local; the signal numbers are constants of the system; SIG_IGN is a valid action.
        let fd = unsafe {
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1] {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            if libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `signalfd` just made this descriptor, and nobody else has it.
        Ok(Signals(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The descriptor to wait on.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.0
    }

    /// The next signal, if one has come.
    pub(crate) fn next(&self) -> Option<Signal> {
        // SAFETY: `signalfd_siginfo` is made of integers only, for which zero is a value.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of_val(&info);
        // SAFETY: the buffer is a live local of exactly the size that is given.
        let read = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), size) };
        if usize::try_from(read) != Ok(size) {
            return None;
        }
        match info.ssi_signo as i32 {
            libc::SIGINT | libc::SIGTERM => Some(Signal::Stop),
            libc::SIGUSR1 => Some(Signal::StopGracefully),
            _ => Some(Signal::Reload),
        }
    }
}

/// A user the process can become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    name: CString,
    uid: libc::uid_t,
    gid: libc::gid_t,
}

impl User {
    /// Looks a user up by name; `None` when there is no such user.
    pub(crate) fn named(name: &str) -> io::Result<Option<Self>> {
        let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut buffer = vec![0 as libc::c_char; 1 << 14];
        // SAFETY: `passwd` is made of integers and pointers, for which zero is a value.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = ptr::null_mut();
        // SAFETY: all pointers are to live locals; the buffer has the length that is given. `found` is only compared
        // with null, and of `entry` only integers are used, so nothing points into the buffer later.
        let code = unsafe {
            libc::getpwnam_r(name.as_ptr(), &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found)
        };
        match (code, found.is_null()) {
            (0, true) => Ok(None),
            (0, false) => Ok(Some(User { name, uid: entry.pw_uid, gid: entry.pw_gid })),
            (code, _) => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Makes the whole process this user. glibc does it for every thread.
    pub(crate) fn become_it(&self) -> io::Result<()> {
        // SAFETY: the name ends with NUL and lives; the calls have no other requirements.
        let failed = unsafe {
            libc::initgroups(self.name.as_ptr(), self.gid) != 0
                || libc::setgid(self.gid) != 0
                || libc::setuid(self.uid) != 0
        };
        if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// A process that was sent into the background, and whose parent waits to hear how its start went.
#[derive(Debug)]
pub(crate) struct Background(PipeWriter);

/// Goes on in a child process without terminal. The parent stays until the child is [`Background::ready`], and ends
/// with the child's code if the child ends before. Only before any thread is started.
pub(crate) fn daemonize(keep_directory: bool) -> io::Result<Background> {
    let (mut reader, writer) = io::pipe()?;
    // SAFETY: the process has one thread (stated requirement), so the child may use everything after `fork`.
    let child = unsafe { libc::fork() };
    match child {
        -1 => return Err(io::Error::last_os_error()),
        0 => drop(reader),
        child => {
            drop(writer);
            let code = if reader.read_exact(&mut [0]).is_ok() { 0 } else { exit_code(child) };
            // SAFETY: `_exit` has no requirements; the child has its own copies of all buffers.
            unsafe { libc::_exit(code) }
        }
    }
    // SAFETY: has no requirements.
    if unsafe { libc::setsid() } == -1 {
        return Err(io::Error::last_os_error());
    }
    if !keep_directory {
        std::env::set_current_dir("/")?;
    }
    Ok(Background(writer))
}

/// The code that a child of ours ended with, or that of an internal error (sysexits.h) if a signal ended it.
fn exit_code(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: the pointer is to a live local.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) } == child;
    if ended && libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 70 }
}

impl Background {
    /// Gives up the standard streams, on which mistakes were told so far, and lets the parent end.
    pub(crate) fn ready(mut self) -> io::Result<()> {
        let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
        for standard in 0..=2 {
            // SAFETY: both are descriptors; the standard ones are replaced as a whole, which nobody here relies on.
            if unsafe { libc::dup2(null.as_raw_fd(), standard) } == -1 {
                return Err(io::Error::last_os_error());
            }
        }
        // A parent that was killed does not keep the server from running.
        let _ = self.0.write_all(&[0]);
        Ok(())
    }
}

/// How long the calling thread has run.
pub(crate) fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The CPU that the calling thread is on; it may have left it when this returns.
pub(crate) fn current_cpu() -> u16 {
    // SAFETY: has no requirements.
    let cpu = unsafe { libc::sched_getcpu() };
    u16::try_from(cpu).unwrap_or(u16::MAX)
}

/// Has this process killed when the one that has started it ends, more precisely its thread that did.
pub(crate) fn die_with_parent() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}

/// A socket that was open when the process began, made non-blocking.
pub(crate) fn inherited(descriptor: i32) -> io::Result<OwnedFd> {
    // SAFETY: has no requirements; a number that is no descriptor makes it fail. The copy is new, so nobody else has it.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system has just made this descriptor for us.
    let copy = unsafe { OwnedFd::from_raw_fd(copy) };
    // Else the other side would never see the end of the connection.
    // SAFETY: the descriptor was inherited for this use alone; whoever named one that std owns (0 to 2) finds it closed.
    unsafe { libc::close(descriptor) };
    rustix::io::ioctl_fionbio(&copy, true)?;
    // Only a socket has a kind.
    rustix::net::sockopt::socket_type(&copy)?;
    Ok(copy)
}

/// Keeps all memory of the process resident, that of later too.
pub(crate) fn lock_memory() -> io::Result<()> {
    // SAFETY: has no requirements.
    let code = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Time the process spent computing, and time the system spent for it.
pub(crate) fn cpu_time() -> (Duration, Duration) {
    // SAFETY: `rusage` is made of integers only, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live local.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0 {
        return (Duration::ZERO, Duration::ZERO);
    }
    let time = |value: libc::timeval| {
        Duration::new(value.tv_sec.unsigned_abs(), value.tv_usec.unsigned_abs() as u32 * 1000)
    };
    (time(usage.ru_utime), time(usage.ru_stime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        let root = User::named("root").expect("lookup").expect("there is always root");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(User::named("nobody-has-this-name").expect("lookup"), None);
        assert!(User::named("a\0b").is_err());
    }

    #[test]
    fn computing_takes_time() {
        let before = cpu_time();
        let mut sum = 0_u64;
        while cpu_time() == before {
            sum = sum.wrapping_add(1);
        }
        let after = cpu_time();
        assert!(after.0 + after.1 > before.0 + before.1, "{sum}");
    }
}
