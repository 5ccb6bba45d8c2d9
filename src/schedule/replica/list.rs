//! The running list: requests in order of admission, linked through their rows.

use crate::schedule::request::{NONE, Requests};

/// A doubly linked list of requests.
#[derive(Debug, Clone)]
pub(super) struct RunningList {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) len: u64,
}

impl RunningList {
    pub(super) fn new() -> Self {
        Self { first: NONE, last: NONE, len: 0 }
    }

    pub(super) fn append(&mut self, r: u32, requests: &mut Requests) {
        self.len += 1;
        requests[r].prev = self.last;
        requests[r].next = NONE;
        if self.last == NONE {
            self.first = r;
        } else {
            requests[self.last].next = r;
        }
        self.last = r;
    }

    pub(super) fn unlink(&mut self, r: u32, requests: &mut Requests) {
        self.len -= 1;
        let (prev, next) = (requests[r].prev, requests[r].next);
        if prev == NONE {
            self.first = next;
        } else {
            requests[prev].next = next;
        }
        if next == NONE {
            self.last = prev;
        } else {
            requests[next].prev = prev;
        }
    }
}
