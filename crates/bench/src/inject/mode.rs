//! The servers that faults are injected into: one per way of protecting.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::oracle::Rules;

/// The bit by which checked values are announced, where they are used.
pub const CHECKED_BIT: u32 = 16;

/// How a server is started.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Each command is executed once: the detector is off.
    Vanilla,
    /// Twice on the same core.
    Sei,
    /// Once, and again by a validator.
    Orthrus,
    /// The same, and replies wait for it.
    OrthrusSync,
    /// Once, and again by a replica.
    Rbv,
    /// The same, and replies wait for it.
    RbvSync,
    /// `orthrus`, with values that clients check.
    OrthrusChecked,
}

impl Mode {
    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Vanilla => "vanilla",
            Mode::Sei => "sei",
            Mode::Orthrus => "orthrus",
            Mode::OrthrusSync => "orthrus-sync",
            Mode::Rbv => "rbv",
            Mode::RbvSync => "rbv-sync",
            Mode::OrthrusChecked => "orthrus-checked",
        }
    }

    /// Flags of `veracache serve`: one worker, and everything is executed again. A core is never left: the next fault is
    /// another one's, and there are no more cores than that.
    pub fn flags(self) -> Vec<&'static str> {
        let mut flags = vec!["-t", "1", "-m", "256", "--on-corruption", "evict", "--protect"];
        flags.extend(match self {
            Mode::Vanilla => &["vanilla"][..],
            Mode::Sei => &["sei", "--redundancy", "2"],
            Mode::Orthrus => &["orthrus"],
            Mode::OrthrusSync => &["orthrus", "--protect-sync"],
            Mode::Rbv => &["rbv"],
            Mode::RbvSync => &["rbv", "--protect-sync"],
            Mode::OrthrusChecked => &["orthrus", "--checked-values-flag", "16"],
        });
        if self.has_validator() {
            flags.extend(["--validators", "1", "--validate-share", "1"]);
        }
        flags
    }

    /// Whether commands are executed again by another thread.
    pub fn has_validator(self) -> bool {
        !matches!(self, Mode::Vanilla | Mode::Sei)
    }

    /// Whether a reply leaves only when its execution is confirmed.
    pub fn confirms(self) -> bool {
        matches!(self, Mode::Sei | Mode::OrthrusSync | Mode::RbvSync)
    }

    /// Whether clients send and check checksums.
    pub fn is_checked(self) -> bool {
        self == Mode::OrthrusChecked
    }

    /// How strict the oracle is: what was missed once may be found again, in any mode. That commands with `noreply` may be
    /// left out goes with it, and never comes up: scenarios have no such commands.
    pub fn rules(self) -> Rules {
        Rules { confirms: true }
    }
}
