//! The systems whose protection is compared: one program, started with different flags.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A way to protect executions, by the name the Orthrus experiments have for it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// Every command once.
    Vanilla,
    /// Every command several times on the same core.
    Sei,
    /// Repeated by a validator, after the reply.
    Orthrus,
    /// Repeated by a validator, before the reply.
    OrthrusSync,
    /// Repeated by a replica, after the reply.
    Rbv,
    /// Repeated by a replica, before the reply.
    RbvSync,
}

impl System {
    /// All of them, in the order of the experiments' reports.
    pub const ALL: [System; 6] =
        [System::Vanilla, System::Sei, System::Orthrus, System::OrthrusSync, System::Rbv, System::RbvSync];

    /// As it is named here.
    pub fn name(self) -> &'static str {
        match self {
            System::Vanilla => "vanilla",
            System::Sei => "sei",
            System::Orthrus => "orthrus",
            System::OrthrusSync => "orthrus-sync",
            System::Rbv => "rbv",
            System::RbvSync => "rbv-sync",
        }
    }

    /// As the experiments' files name it.
    pub fn key(self) -> &'static str {
        match self {
            System::OrthrusSync => "orthrus_sync",
            System::RbvSync => "rbv_sync",
            other => other.name(),
        }
    }

    /// As the experiments' report of memory names it.
    pub fn title(self) -> &'static str {
        match self {
            System::Vanilla => "Vanilla",
            System::Sei => "SEI",
            System::Orthrus => "Orthrus(async)",
            System::OrthrusSync => "Orthrus(sync)",
            System::Rbv => "RBV",
            System::RbvSync => "RBV(sync)",
        }
    }

    /// As that report names what it reads.
    pub fn source(self) -> &'static str {
        match self {
            System::Vanilla => "raw",
            System::Sei => "sei",
            System::Orthrus => "scee",
            System::OrthrusSync => "scee(sync)",
            System::Rbv => "rbv",
            System::RbvSync => "rbv(sync)",
        }
    }

    /// Whether executions leave records that somebody else repeats, so that there is a share of them and a latency.
    pub fn validates(self) -> bool {
        !matches!(self, System::Vanilla | System::Sei)
    }

    /// Flags of `veracache serve`.
    pub fn flags(self, share: &str, redundancy: u32) -> Vec<String> {
        let mode = match self {
            System::Vanilla => "vanilla",
            System::Sei => "sei",
            System::Orthrus | System::OrthrusSync => "orthrus",
            System::Rbv | System::RbvSync => "rbv",
        };
        let mut flags = vec!["--protect".to_string(), mode.to_string()];
        match self {
            System::Vanilla => {}
            System::Sei => flags.extend(["--redundancy".to_string(), redundancy.to_string()]),
            System::Orthrus | System::Rbv => {
                flags.extend(["--validate-share".to_string(), share.to_string()]);
            }
            // Everything is recorded with this one.
            System::OrthrusSync | System::RbvSync => flags.push("--protect-sync".to_string()),
        }
        flags
    }
}
