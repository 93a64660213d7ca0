//! The line protocol: four commands over the same operators.

use std::hint::black_box;

use protocol::line::{self as wire, Command, Options, Step};
use store::{Delete, Fetch, Put, Status};

use crate::dump::{Dump, Kind};
use crate::execute::{Executor, append_value};
use crate::output::Output;
use crate::replay::Replay;
use crate::session::{Outcome, Work};
use crate::strata::Dialect;

/// Uses the command at the front of the input, whose first `searched` bytes are known to hold no line end.
pub(crate) fn command(
    input: &[u8],
    searched: &mut usize,
    executor: &mut Executor<'_>,
    out: &mut Output,
) -> Outcome {
    let options = Options::for_values(executor.shared.settings.item_bytes_max as usize);
    let searched_before = *searched;
    let step = executor.understand(|| wire::parse(black_box(input), searched_before, &options));
    let Some(step) = step else { return Outcome::Close };
    *searched = 0;
    match step {
        Step::Incomplete => {
            *searched = input.len();
            Outcome::More { for_value: false }
        }
        Step::Close => Outcome::Close,
        Step::Reject { answer, used } => {
            out.say(|bytes| bytes.extend_from_slice(answer));
            Outcome::Used(used)
        }
        Step::Command { command: Command::GetAll, used } => {
            Outcome::Then(used, Work::Dump(Box::new(Dump::new(Kind::GetAll))))
        }
        Step::Command { command, used } => {
            let reply = out.mark();
            execute(&command, executor, out);
            let line = &input[..used];
            match command {
                // Without its value.
                Command::Set { value, .. } => {
                    let from = value.as_ptr() as usize - line.as_ptr() as usize;
                    executor.record(&[&line[..from]], out, reply);
                }
                _ => executor.record(&[line], out, reply),
            }
            Outcome::Used(used)
        }
    }
}

/// Executes a command again whose line was recorded, without its value and what comes behind that.
pub(crate) fn repeat(line: &[u8], executor: &mut Executor<'_>, out: &mut Output) {
    let options = Options::for_values(executor.shared.settings.item_bytes_max as usize);
    if let Step::Command { command, .. } = wire::parse(line, 0, &options) {
        if command != Command::GetAll {
            execute(&command, executor, out);
        }
        return;
    }
    let value = executor.replay().map_or(&[][..], Replay::received_all);
    let whole = [line, value, b"\n"].concat();
    if let Step::Command { command: command @ Command::Set { .. }, .. } = wire::parse(&whole, 0, &options) {
        execute(&command, executor, out);
    }
}

fn execute(command: &Command<'_>, executor: &mut Executor<'_>, out: &mut Output) {
    executor.dialect = Dialect::Line;
    match *command {
        Command::Set { key, value } => {
            let status = if executor.fits(key.len(), value.len(), 0) {
                executor.put(key, Put::set(value)).status
            } else {
                Status::TooLarge
            };
            let answer = match status {
                Status::Stored => wire::OK,
                Status::TooLarge => wire::TOO_LARGE,
                _ => wire::OUT_OF_MEMORY,
            };
            if status != Status::Stored {
                executor.refuse_value(key, status, true);
            }
            out.say(|bytes| bytes.extend_from_slice(answer));
        }
        Command::Get { key } => {
            let shared = executor.shared;
            let hash = executor.store.hash(key);
            match executor.fetch(key, hash, Fetch::default()).item {
                Some(item) => {
                    append_value(out, shared, &item);
                    out.say(|bytes| bytes.push(b'\n'));
                }
                None => out.say(|bytes| bytes.extend_from_slice(wire::NIL)),
            }
        }
        Command::Del { key } => {
            let status = executor.delete(key, Delete::default()).status;
            if status == Status::Disagreed {
                return out.say(|bytes| bytes.extend_from_slice(wire::OUT_OF_MEMORY));
            }
            let deleted = status == Status::Deleted;
            out.say(|bytes| bytes.extend_from_slice(if deleted { wire::DELETED } else { wire::NOT_FOUND }));
        }
        Command::GetAll => unreachable!("it is executed in pieces"),
    }
}
