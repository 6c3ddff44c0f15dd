//! Questions about hosts that no list contains: one for each target, and a bounded number.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use brigade_core::network::Target;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::sync::Semaphore;

use crate::sandbox::{HostDecider, HostRequest};

/// Time after which an unanswered question counts as denied.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Maximum number of targets of a command that are asked about.
const MAX_TARGETS: usize = 256;
/// Maximum number of connections that wait for an answer.
const MAX_WAITING: usize = 32;

type Answer = Shared<BoxFuture<'static, bool>>;

/// Questions of one command, with their answers.
pub(super) struct Questions {
    decider: HostDecider,
    answers: Mutex<HashMap<Target, Answer>>,
    waiting: Semaphore,
}

/// Too many questions are open.
#[derive(Debug)]
pub(super) struct TooMany;

impl Questions {
    pub(super) fn new(decider: HostDecider) -> Questions {
        Questions { decider, answers: Mutex::default(), waiting: Semaphore::new(MAX_WAITING) }
    }

    /// Whether targets can be asked about at all.
    pub(super) fn can_ask(&self) -> bool {
        self.decider.can_allow()
    }

    /// Asks whether a target is allowed, or waits for the answer to the same question.
    pub(super) async fn ask(&self, target: &Target) -> Result<bool, TooMany> {
        if !self.can_ask() {
            return Ok(false);
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| TooMany)?;
        let answer = self.answer(target)?;
        Ok(answer.await)
    }

    fn answer(&self, target: &Target) -> Result<Answer, TooMany> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answers.get(target) {
            return Ok(answer.clone());
        }
        let open = answers.values().filter(|answer| answer.peek().is_none()).count();
        if open >= HostDecider::MAX_OPEN || answers.len() >= MAX_TARGETS {
            return Err(TooMany);
        }
        let (decider, request) =
            (self.decider.clone(), HostRequest::new(target.host.to_string(), target.port));
        let asked = async move {
            tokio::time::timeout(ANSWER_TIMEOUT, decider.decide(request)).await.unwrap_or(false)
        };
        let answer = asked.boxed().shared();
        answers.insert(target.clone(), answer.clone());
        Ok(answer)
    }
}
