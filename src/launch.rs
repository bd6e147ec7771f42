//! What a starter hands to the daemon over its standard input: one frame, since arguments and environment can be read by others.

use serde::{Deserialize, Serialize};

use crate::config::Settings;
use crate::workspace::{Session, SessionFiles};

/// Everything that a daemon starts from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// Whose daemon it is.
    pub session: Session,
    /// Where its files lie.
    pub files: SessionFiles,
    /// What it keeps for its life.
    pub settings: Settings,
}
