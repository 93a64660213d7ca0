//! One thread of a server that we started, under ptrace: stopped, stepped, watched, and its registers changed.
//!
//! Debug registers are a thread's own, so that a breakpoint stops the worker and not the validator that executes the
//! same code; nothing is ever written into the code.

use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::mem::{offset_of, size_of};
use std::ptr::without_provenance_mut;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::{self, user_regs_struct};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::error::Error;

/// How long a thread may take to stop after it was asked to, or to execute one instruction that does not wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often we look for a stop before we begin to sleep in between.
const YIELDS: u32 = 300;

/// How long we sleep between two looks.
const PERIOD: Duration = Duration::from_micros(50);

/// Bit 0 of DR7: break when the address in DR0 is executed.
const EXECUTE_DR0: libc::c_long = 1;

/// The register set of everything that `xsave` saves; the kernel's `elf.h`.
const NT_X86_XSTATE: libc::c_int = 0x202;

/// More than any processor's state takes today; AMX tiles make it 11 KiB.
const XSTATE_BYTES_MAX: usize = 16 << 10;

/// Why a thread does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It was asked to, has executed one instruction, or has come to the watched address.
    Trap,
    /// A signal that ends the process if it is delivered, as of an address that isn't mapped.
    Fatal(Signal),
    /// It is gone, and probably its process.
    Gone,
}

/// A thread of a child process.
#[derive(Debug)]
pub struct Tracee {
    process: u32,
    thread: Pid,
    is_running: bool,
    is_gone: bool,
}

/// Finds a thread of a process by its name, and only in processes that are ours.
pub fn find_thread(process: u32, name: &str) -> Result<u32, Error> {
    let parent = procfs::process::Process::new(process.cast_signed()).and_then(|process| process.stat());
    let parent = parent.map_err(|error| Error::Unavailable(format!("the server is gone: {error}")))?.ppid;
    if parent.cast_unsigned() != std::process::id() {
        return Err(Error::Usage(format!("process {process} is not a child of this one; it is left alone")));
    }
    let folder = format!("/proc/{process}/task");
    let entries = fs::read_dir(&folder).map_err(Error::io(folder.as_str()))?;
    for entry in entries {
        let entry = entry.map_err(Error::io(folder.as_str()))?;
        let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if comm.trim_end() == name {
            let thread = entry.file_name().to_string_lossy().parse();
            return thread.map_err(|_| Error::Unavailable(format!("{folder}: not a thread")));
        }
    }
    Err(Error::Unavailable(format!("the server has no thread \"{name}\"")))
}

impl Tracee {
    /// Attaches to a thread of a child of ours; it goes on running.
    pub fn attach(process: u32, name: &str) -> Result<Self, Error> {
        // A server listens before its threads have their names.
        let began = Instant::now();
        let thread = loop {
            match find_thread(process, name) {
                Err(Error::Unavailable(_)) if began.elapsed() < PATIENCE / 2 => thread::sleep(PERIOD),
                found => break Pid::from_raw(found?.cast_signed()),
            }
        };
        ptrace::seize(thread, Options::empty()).map_err(|error| {
            let hint =
                "in a container it takes --cap-add SYS_PTRACE, elsewhere kernel.yama.ptrace_scope 0 or 1";
            Error::Unavailable(format!("ptrace is not permitted here ({error}); {hint}"))
        })?;
        Ok(Tracee { process, thread, is_running: true, is_gone: false })
    }

    /// The process it belongs to.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// The thread.
    pub fn thread(&self) -> u32 {
        self.thread.as_raw().cast_unsigned()
    }

    /// Whether it has ended.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Stops it where it is, in a system call as well.
    pub fn stop(&mut self) -> Result<Stop, Error> {
        if !self.is_running {
            return Ok(Stop::Trap);
        }
        if let Err(error) = ptrace::interrupt(self.thread) {
            return self.failed("stopping a thread", error);
        }
        self.wait_long()
    }

    /// Lets it run.
    pub fn go(&mut self) -> Result<(), Error> {
        if self.is_running || self.is_gone {
            return Ok(());
        }
        match ptrace::cont(self.thread, None) {
            Ok(()) => self.is_running = true,
            Err(error) => {
                self.failed("letting a thread run", error)?;
            }
        }
        Ok(())
    }

    /// Executes one instruction. One that waits in the kernel comes back as running, and [`Tracee::wait`] tells when it is
    /// done.
    pub fn step(&mut self) -> Result<(), Error> {
        match ptrace::step(self.thread, None) {
            Ok(()) => self.is_running = true,
            Err(error) => {
                self.failed("stepping a thread", error)?;
            }
        }
        Ok(())
    }

    /// Executes one instruction that does not wait.
    pub fn step_over(&mut self) -> Result<Stop, Error> {
        self.step()?;
        self.wait_long()
    }

    fn wait_long(&mut self) -> Result<Stop, Error> {
        match self.wait(PATIENCE)? {
            Some(stop) => Ok(stop),
            None => Err(Error::Unavailable(format!("a thread of the server did not stop in {PATIENCE:?}"))),
        }
    }

    /// Waits for it to stop; `None` when it still runs after this time.
    pub fn wait(&mut self, time: Duration) -> Result<Option<Stop>, Error> {
        let began = Instant::now();
        let mut looks = 0;
        loop {
            if self.is_gone {
                return Ok(Some(Stop::Gone));
            }
            let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
            match waitpid(self.thread, Some(flags)) {
                Ok(WaitStatus::StillAlive) => {}
                Ok(WaitStatus::Stopped(_, signal)) => {
                    self.is_running = false;
                    if signal == Signal::SIGTRAP {
                        return Ok(Some(Stop::Trap));
                    }
                    if is_fatal(signal) {
                        return Ok(Some(Stop::Fatal(signal)));
                    }
                    // Signals to the process are none of ours.
                    if let Err(error) = ptrace::cont(self.thread, signal) {
                        self.failed("passing a signal on", error)?;
                    } else {
                        self.is_running = true;
                    }
                }
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => self.is_gone = true,
                Ok(_) => {
                    self.is_running = false;
                    return Ok(Some(Stop::Trap));
                }
                Err(Errno::EINTR) => {}
                Err(error) => return self.failed("waiting for a thread", error).map(Some),
            }
            if began.elapsed() >= time {
                return Ok(None);
            }
            looks += 1;
            if looks < YIELDS { thread::yield_now() } else { thread::sleep(PERIOD) }
        }
    }

    /// Forgets a thread that is gone; anything else is an error.
    fn failed(&mut self, doing: &str, error: Errno) -> Result<Stop, Error> {
        if error == Errno::ESRCH || error == Errno::ECHILD {
            self.is_gone = true;
            return Ok(Stop::Gone);
        }
        Err(Error::Io(doing.to_string(), error.into()))
    }

    /// Its general registers.
    pub fn registers(&self) -> Result<user_regs_struct, Error> {
        ptrace::getregs(self.thread).map_err(|error| Error::Io("reading registers".into(), error.into()))
    }

    /// Changes its general registers.
    pub fn set_registers(&self, registers: user_regs_struct) -> Result<(), Error> {
        ptrace::setregs(self.thread, registers)
            .map_err(|error| Error::Io("changing registers".into(), error.into()))
    }

    /// The address of the next instruction; cheaper than all registers.
    pub fn next_address(&self) -> Result<u64, Error> {
        let offset = offset_of!(libc::user, regs) + offset_of!(user_regs_struct, rip);
        let word = ptrace::read_user(self.thread, without_provenance_mut(offset));
        word.map(i64::cast_unsigned).map_err(|error| Error::Io("reading a register".into(), error.into()))
    }

    /// Stops it each time it comes to this address, before the instruction there is executed; `None` for nowhere.
    pub fn watch(&self, address: Option<u64>) -> Result<(), Error> {
        let debug = offset_of!(libc::user, u_debugreg);
        let set = |number: usize, value: libc::c_long| {
            let offset = debug + number * size_of::<u64>();
            ptrace::write_user(self.thread, without_provenance_mut(offset), value).map_err(|error| {
                let text = "debug registers can't be used here, as in some virtual machines";
                Error::Io(text.into(), error.into())
            })
        };
        set(7, 0)?;
        if let Some(address) = address {
            set(0, address.cast_signed())?;
            set(7, EXECUTE_DR0)?;
        }
        Ok(())
    }

    /// Reads its process's memory. A part that isn't mapped is left out at the end.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<usize, Error> {
        let base = usize::try_from(address).unwrap_or(usize::MAX);
        let remote = [RemoteIoVec { base, len: bytes.len() }];
        process_vm_readv(Pid::from_raw(self.process.cast_signed()), &mut [IoSliceMut::new(bytes)], &remote)
            .map_err(|error| Error::Io(format!("reading the server's memory at {address:x}"), error.into()))
    }

    /// Writes its process's memory.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        let base = usize::try_from(address).unwrap_or(usize::MAX);
        let remote = [RemoteIoVec { base, len: bytes.len() }];
        let written =
            process_vm_writev(Pid::from_raw(self.process.cast_signed()), &[IoSlice::new(bytes)], &remote);
        match written {
            Ok(count) if count == bytes.len() => Ok(()),
            Ok(_) => Err(Error::Unavailable(format!("the server's memory at {address:x} ends too early"))),
            Err(error) => Err(Error::Io(format!("writing the server's memory at {address:x}"), error.into())),
        }
    }

    /// Its vector registers, in the processor's own layout.
    pub fn extended_state(&self) -> Result<Vec<u8>, Error> {
        let mut state = vec![0; XSTATE_BYTES_MAX];
        let count = self.exchange_state(libc::PTRACE_GETREGSET, &mut state)?;
        state.truncate(count);
        Ok(state)
    }

    /// Changes its vector registers.
    pub fn set_extended_state(&self, state: &mut [u8]) -> Result<(), Error> {
        self.exchange_state(libc::PTRACE_SETREGSET, state).map(|_| ())
    }

    fn exchange_state(&self, request: libc::c_uint, state: &mut [u8]) -> Result<usize, Error> {
        let mut span = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
        // SAFETY: the kernel reads or writes at most `iov_len` bytes at `iov_base`, which is what the slice has, and
        // `span` lives until the call returns. nix knows no such register set.
        let result = unsafe {
            libc::ptrace(request, self.thread.as_raw(), NT_X86_XSTATE, std::ptr::from_mut(&mut span))
        };
        match Errno::result(result) {
            Ok(_) => Ok(span.iov_len),
            Err(error) => Err(Error::Io("exchanging vector registers".into(), error.into())),
        }
    }
}

impl Drop for Tracee {
    /// Lets it go on alone, without breakpoints. A thread that has ended is taken leave of, as its process can't end before.
    fn drop(&mut self) {
        if !self.is_gone && matches!(self.stop(), Ok(Stop::Trap | Stop::Fatal(_))) {
            let _ = self.watch(None);
            if ptrace::detach(self.thread, None).is_ok() {
                return;
            }
        }
        let began = Instant::now();
        let flags = Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL);
        while began.elapsed() < PATIENCE && waitpid(self.thread, flags) == Ok(WaitStatus::StillAlive) {
            thread::sleep(PERIOD);
        }
    }
}

fn is_fatal(signal: Signal) -> bool {
    use Signal::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS};
    matches!(signal, SIGABRT | SIGBUS | SIGFPE | SIGILL | SIGSEGV | SIGSYS)
}
